"""The pairs behind ranks, and the pairs of a list that can occur: equal to what trying everything out finds, and to the
merges that trained models and OpenAI's encodings have. (Files are read in test_from_tiktoken.py.)
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import reference
from budget import examples, mostly_thorough, within
from hypothesis import given
from hypothesis import strategies as st

from cbpe.data import merges
from cbpe.encoding.encoder import Encoder
from cbpe.formats.recover import live_pairs, recover
from cbpe.gpt4 import recover_merges

pytestmark = pytest.mark.native

NONE = 2**32 - 1
Pair = tuple[int, int]


def inner_ids(tokens: list[bytes]) -> dict[bytes, int]:
    """The inner id of every token: the bytes' values, and then as they come."""
    longer = [token for token in tokens if len(token) > 1]
    return {bytes([i]): i for i in range(256)} | {token: i for i, token in enumerate(longer, 256)}


def states(token: bytes, ids: dict[bytes, int]) -> list[list[bytes]]:
    """All states that a token's bytes go through under the ranks, from bytes to what no merge is left of."""
    parts = [token[i : i + 1] for i in range(len(token))]
    seen = [list(parts)]
    while True:
        present = [(ids[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not present:
            return seen
        _, i = min(present)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
        seen.append(list(parts))


def slowly_recovered(tokens: list[bytes]) -> list[list[int]]:
    ids = inner_ids(tokens)
    rows = []
    for token in tokens:
        if len(token) > 1:
            two = [state for state in states(token, ids) if len(state) == 2]
            assert len(two) <= 1
            rows.append([ids[part] for part in two[0]] if two else [NONE, NONE])
    return rows


words = st.lists(st.text("ab", min_size=2, max_size=7).map(str.encode), unique=True, max_size=12)
many_words = st.lists(st.text("abc", min_size=2, max_size=5).map(str.encode), unique=True, max_size=60)


@examples(400)
@given(words | many_words)
def test_any_tokens_have_the_parts_that_trying_finds(tokens: list[bytes]) -> None:
    right = slowly_recovered(tokens)
    assert recover(tokens, strict=False).tolist() == right
    wrong = [i for i, row in enumerate(right) if max(row) >= 256 + i]
    if wrong:
        with pytest.raises(ValueError, match="is not a merge of two tokens of lower rank"):
            recover(tokens)
    else:
        assert recover(tokens).tolist() == right


@examples(300)
@given(words | many_words, st.text("abc", max_size=30).map(str.encode), st.integers(1, 12))
def test_the_recovered_pairs_encode_as_the_ranks_do(tokens: list[bytes], chunk: bytes, times: int) -> None:
    """Also where parts come after what they make, in short chunks and long ones, which takes merging one by one."""
    ids = inner_ids(tokens)
    rows = recover(tokens, strict=False)
    made = [i for i, row in enumerate(rows.tolist()) if row[0] != NONE]
    numbers = np.array(made, np.uint32) + np.uint32(256)
    whole = {token: i for token, i in ids.items() if i >= 256 and rows[i - 256][0] == NONE}
    encoder = Encoder(np.ascontiguousarray(rows[made]), numbers, one_by_one=True, whole=whole)
    ends = np.array([len(chunk)])
    for each in (chunk, chunk * times, *tokens):
        right = reference.encode_by_ranks(each, ids) if each else []
        assert encoder.encode_chunk(each) == right, each
        if each:
            ends = np.array([len(each)])
            assert encoder._encode_chunks(each, ends).tolist() == right, each       # by the vocabulary
            assert encoder._encode_chunks(each, ends).tolist() == right, each       # by the cache


letters = st.sampled_from([97, 98, 256, 257, 258, 259, 300])
hand_made = st.dictionaries(
    st.tuples(letters, letters), st.integers(256, 301), max_size=16
).filter(lambda merges: len(set(merges.values())) == len(merges))


@examples(500)
@given(hand_made, st.text("ab", max_size=32).map(str.encode), st.integers(1, 8))
def test_one_by_one_encodes_any_model(merges: dict[Pair, int], chunk: bytes, times: int) -> None:
    pairs, ids = np.array(list(merges), np.uint32).reshape(-1, 2), np.array(list(merges.values()), np.uint32)
    encoder, all_at_once = Encoder(pairs, ids, one_by_one=True), Encoder(pairs, ids)
    for each in (chunk, chunk * times):
        assert encoder.encode_chunk(each) == reference.encode_one_by_one(each, merges)
        assert all_at_once.encode_chunk(each) == reference.encode_chunk(each, merges)
        if each:
            for _ in range(2):
                ends = np.array([len(each)])
                assert encoder._encode_chunks(each, ends).tolist() == reference.encode_one_by_one(each, merges)
                assert all_at_once._encode_chunks(each, ends).tolist() == reference.encode_chunk(each, merges)


def test_one_by_one_differs_where_a_merge_makes_a_lower_id() -> None:
    pairs, ids = np.array([[97, 98], [300, 97]], np.uint32), np.array([300, 256], np.uint32)
    for times in (1, 10, 30, 3000):
        chunk = b"abab" * times
        assert Encoder(pairs, ids).encode_chunk(chunk) == [300, 300] * times
        assert Encoder(pairs, ids, one_by_one=True).encode_chunk(chunk) == [256, 98] * times


def test_one_by_one_takes_n_log_n_steps() -> None:
    """A pair that is born again and again behind where it was already, and then before it."""
    merges = {(97, 97): 300, (300, 97): 299, (299, 98): 298, (98, 298): 297, (297, 300): 296}
    encoder = Encoder(np.array(list(merges), np.uint32), np.array(list(merges.values()), np.uint32), one_by_one=True)
    steps = [encoder._encode_chunk_counted(b"aaabbaaab" * size)[1] / size for size in (1000, 4000, 16000)]
    assert steps[2] < 2 * steps[0]


# ---- refusals


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([b"ab", b"abcd"], r"token b'abcd' is not a merge of two .*: its bytes merge to b'ab', b'c', b'd'"),
        ([b"abc", b"ab"], r"token b'abc' is not a merge of two tokens of lower rank: its bytes merge to b'ab', b'c'"),
        ([b"ab", b"a", b"ab"], "token b'ab' is listed twice"),
        ([b"ab", b""], "token b'' is empty"),
        ([b"ab" + b"c" * 100], r"\.\.\. \(102 bytes\) is not .*, \.\.\. \(102 parts\)"),
    ],
)
def test_tokens_that_are_not_made_of_two(tokens: list[bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recover(tokens)


def test_tokens_must_be_bytes() -> None:
    for wrong in (["ab"], [97], [None]):
        with pytest.raises(TypeError):
            recover(wrong)      # type: ignore[arg-type]


def test_no_tokens() -> None:
    assert recover([]).shape == recover([b"a", b"b"]).shape == (0, 2)


# ---- what is known


def test_trained_models_are_found_again() -> None:
    generator = random.Random(3)
    for alphabet in ("ab", "abcdef", "etaoin shrdlu"):
        learned, _ = reference.learn("".join(generator.choices(alphabet, k=400)), 120)
        tokens = list(reference.vocab(learned).values())
        generator.shuffle(tokens[:256])
        assert list(map(tuple, recover(tokens).tolist())) == list(learned)


@pytest.mark.parametrize("name", mostly_thorough(merges.SOURCES, "r50k"))
def test_openais_encodings_are_found_again(name: str) -> None:
    pairs, ids, byte_ids = merges.load(name)
    merged = np.arange(256, 256 + len(pairs), dtype=np.uint32) if ids is None else ids
    tokens = {byte_ids[value]: bytes([value]) for value in range(256)}
    for number, (left, right) in zip(merged.tolist(), pairs.tolist(), strict=True):
        tokens[number] = tokens[left] + tokens[right]
    with within(5):         # about 0.2 s
        found = recover(list(tokens.values()))
    assert np.array_equal(np.concatenate([np.frombuffer(byte_ids, np.uint8).astype(np.uint32), merged])[found], pairs)
    again = recover_merges({token: number for number, token in tokens.items()})
    assert np.array_equal(np.array(list(again)), pairs)
    assert list(again.values()) == merged.tolist()


# ---- pairs that can occur


def slowly_live(pairs: list[tuple[bytes, bytes]]) -> list[bool]:
    """Whether each pair ever stands side by side: in the bytes of what it makes, if anywhere."""
    rank = {pair: i for i, pair in enumerate(pairs)}
    live = []
    for pair in pairs:
        token = pair[0] + pair[1]
        parts = [token[i : i + 1] for i in range(len(token))]
        met = False
        while True:
            met = met or tuple(parts) == pair
            present = [(rank[each], i) for i, each in enumerate(pairwise(parts)) if each in rank]
            if not present:
                break
            _, i = min(present)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        live.append(met)
    return live


def listed(tokens: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Every way to make each token of two others, as in files that were converted for Hugging Face's tokenizers."""
    known = {*tokens, *(bytes([i]) for i in range(256))}
    return [(t[:i], t[i:]) for t in tokens for i in range(1, len(t)) if t[:i] in known and t[i:] in known]


def in_ids(pairs: list[tuple[bytes, bytes]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], int]:
    ids = inner_ids([token for pair in pairs for token in (*pair, pair[0] + pair[1])])
    rows = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
    table = np.array(rows, np.uint32).reshape(-1, 3)
    return np.ascontiguousarray(table[:, :2]), np.ascontiguousarray(table[:, 2]), max(ids.values()) + 1


@examples(400)
@given(words | many_words, st.randoms(use_true_random=False), st.sampled_from(["ranks", "shuffled", "some"]))
def test_pairs_are_live_that_trying_finds(tokens: list[bytes], generator: random.Random, order: str) -> None:
    pairs = listed(tokens)
    if order != "ranks":
        generator.shuffle(pairs)
    if order == "some":
        pairs = pairs[: len(pairs) // 2]
    live = live_pairs(*in_ids(pairs))
    assert live.dtype == bool
    assert live.tolist() == slowly_live(pairs)
    made = [left + right for (left, right), lives in zip(pairs, live.tolist(), strict=True) if lives]
    assert len(set(made)) == len(made)


def test_of_all_ways_to_make_a_token_one_is_live() -> None:
    learned, _ = reference.learn("the theatre then thinned that heathen " * 3, 60)
    tokens = [token for number, token in reference.vocab(learned).items() if number >= 256]
    pairs = listed(tokens)
    table, made, n_ids = in_ids(pairs)
    live = live_pairs(table, made, n_ids)
    vocab = reference.vocab(learned)
    right = [(vocab[a], vocab[b]) for a, b in learned]
    assert [pair for pair, lives in zip(pairs, live, strict=True) if lives] == right
    assert live.sum() == len(learned) < len(pairs)


def test_of_ids_that_nothing_makes_no_pair_is_live() -> None:
    pairs, made = np.array([[97, 98], [256, 300], [300, 97]], np.uint32), np.array([256, 257, 258], np.uint32)
    assert live_pairs(pairs, made, 301).tolist() == [True, False, False]
    assert live_pairs(np.empty((0, 2), np.uint32), np.empty(0, np.uint32), 256).tolist() == []


@pytest.mark.parametrize(
    ("pairs", "made", "n_ids", "message"),
    [
        ([[97, 98]], [256], 256, "merge 0 is of ids that there are not"),
        ([[97, 300]], [256], 257, "merge 0 is of ids that there are not"),
        ([[97, 98]], [99], 257, "merge 0 is of ids that there are not"),
        ([[97, 98], [97, 98]], [256, 256], 257, "merged twice"),
        ([[97, 98], [97, 98]], [256], 257, "shape"),
        ([[97, 98], [98, 256]], [256, 256], 257, "of other bytes than another merge"),
        ([[97, 98], [256, 99], [98, 99], [97, 258]], [256, 259, 258, 257], 260, "259 and 257 have the same bytes"),
        ([[97, 97]] + [[256 + i, 256 + i] for i in range(60)], list(range(256, 317)), 317, "bytes in all"),
        ([], [], 5, "n_ids"),
    ],
)
def test_lists_that_are_none(pairs: list[list[int]], made: list[int], n_ids: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        live_pairs(np.array(pairs, np.uint32).reshape(-1, 2), np.array(made, np.uint32), n_ids)

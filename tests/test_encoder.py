"""Encoding: the encoder is the reference, id for id, for every model and every chunk, and takes n log n steps.

Models come from two sides: trained on texts of few letters, and made by hand without any order, so that a merge may
make an id below its parents', an id that another merge makes too, or a byte.
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import json
import pickle
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import reference
from budget import examples
from hypothesis import example, given
from hypothesis import strategies as st

from cbpe.encoding.encoder import Encoder
from cbpe.errors import CorpusTooLargeError
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, NAMED_PATTERNS
from cbpe.splitting import splitter_for
from cbpe.splitting.split import next_cut

pytestmark = pytest.mark.native

LARGEST_ID = 2**32 - 2
BLOCK = 1 << 18         # encoder.pyx splits texts in pieces of this size
IDS = [97, 98, 99, 0, 255, 256, 257, 258, 300, 1000, LARGEST_ID - 1, LARGEST_ID]


def make_encoder(merges: Mapping[tuple[int, int], int], byte_ids: bytes | None = None) -> Encoder:
    pairs = np.array(list(merges), dtype=np.uint32).reshape(-1, 2)
    return Encoder(pairs, np.array(list(merges.values()), dtype=np.uint32), byte_ids)


trained = st.builds(
    lambda text, num_merges: reference.learn_counted([(text, 1)], num_merges)[0],
    st.text(alphabet="abc", max_size=80).map(str.encode),
    st.integers(0, 20),
)
hand_made = st.dictionaries(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), st.sampled_from(IDS), max_size=24)
short_chunks = st.text(alphabet="abc", max_size=32).map(str.encode)
long_chunks = st.lists(st.sampled_from([b"a", b"b", b"c", b"ab", b"aaaa"]), min_size=33, max_size=120).map(b"".join)


@examples(400)
@given(trained | hand_made, short_chunks | long_chunks)
def test_any_model_encodes_any_chunk_as_the_reference_does(merges: dict[tuple[int, int], int], chunk: bytes) -> None:
    assert make_encoder(merges).encode_chunk(chunk) == reference.encode_chunk(chunk, merges)


@examples(200)
@given(hand_made, st.lists(st.sampled_from([97, 98, 99]), min_size=20, max_size=50), st.permutations(range(256)))
def test_bytes_may_have_any_ids(merges: dict[tuple[int, int], int], ids: list[int], byte_ids: list[int]) -> None:
    chunk = bytes(byte_ids.index(i) for i in ids)
    assert make_encoder(merges, bytes(byte_ids)).encode_chunk(chunk) == reference.encode_chunk(ids, merges)


@pytest.mark.parametrize(
    "merges",
    [
        {(97, 98): 300, (98, 97): 300},                                 # the first occurrence decides, and then again
        {(97, 97): 300, (97, 98): 300, (300, 300): 300, (300, 98): 300},
        {(97, 98): 97},                                                 # the pair is born again by its own merge
        {(98, 97): 97, (97, 97): 98},
        {(97, 97): 97},
        {(97, 97): 300, (300, 300): 299, (299, 299): 298, (298, 97): 5},    # every child below its parents
        {(97, 98): 300, (300, 97): 97, (97, 300): 98},
    ],
)
@pytest.mark.parametrize("size", [2, 3, 31, 32, 33, 34, 64, 257])
def test_models_that_no_training_makes(merges: dict[tuple[int, int], int], size: int) -> None:
    generator = random.Random(size)
    encoder = make_encoder(merges)
    for chunk in [b"a" * size, (b"ab" * size)[:size], (b"ba" * size)[:size], bytes(generator.choices(b"ab", k=size))]:
        assert encoder.encode_chunk(chunk) == reference.encode_chunk(chunk, merges), chunk


@pytest.mark.parametrize("letters", [b"ab", b"abcdefgh", bytes(range(97, 123))])
def test_long_chunks_with_a_trained_model(letters: bytes) -> None:
    generator = random.Random(1)
    merges, _ = reference.learn_counted([(bytes(generator.choices(letters, k=600)), 1)], 120)
    encoder = make_encoder(merges)
    for size in [30, 31, 32, 33, 34, 35, 100, 1000]:
        chunk = bytes(generator.choices(letters, k=size))
        assert encoder.encode_chunk(chunk) == reference.encode_chunk(chunk, merges)


def test_c23_runs_of_one_byte() -> None:
    merges, _ = reference.learn_counted([(b"a" * 64, 1)], 6)
    encoder = make_encoder(merges)
    right = {
        3: [256, 97],
        5: [257, 97],
        7: [257, 256, 97],
        31: [259, 258, 257, 256, 97],
        33: [260, 97],
        63: [260, 259, 258, 257, 256, 97],
        65: [261, 97],
        129: [261, 261, 97],
    }
    for size, ids in right.items():
        assert encoder.encode_chunk(b"a" * size) == ids
    for size in range(1, 301):
        for chunk in [b"a" * size, b"b" + b"a" * size + b"b"]:
            assert encoder.encode_chunk(chunk) == reference.encode_chunk(chunk, merges)


def test_an_encoder_without_merges_gives_bytes() -> None:
    encoder = make_encoder({})
    assert encoder.encode_chunk(b"") == []
    assert encoder.encode_chunk(bytes(range(256))) == list(range(256))
    assert encoder.encode("déjà".encode(), splitter_for(GPT4_SPLIT_PATTERN)) == list("déjà".encode())


# ---- the perfect hash of merging.pyx, which short chunks are merged by: models that it is not found for at once

MULTIPLIERS = [0x9E3779B97F4A7C15]      # those that are tried, and what each makes of a pair, with 256 entries
while len(MULTIPLIERS) < 64:
    MULTIPLIERS.append((MULTIPLIERS[-1] * 0xD1342543DE82EF95 + 2) % 2**64)


def bucket_and_home(pair: tuple[int, int], multiplier: int) -> tuple[int, int]:
    product = (pair[0] << 20 | pair[1]) * multiplier % 2**64
    return product >> 58, product >> 18 & 255


def colliding_pairs(multipliers: list[int]) -> list[tuple[int, int]]:
    """For each multiplier two pairs of bytes that it gives the same bucket and the same home."""
    generator = random.Random(11)
    pairs: list[tuple[int, int]] = []
    for multiplier in multipliers:
        seen: dict[tuple[int, int], tuple[int, int]] = {}
        while True:
            pair = generator.randrange(256), generator.randrange(256)
            place = bucket_and_home(pair, multiplier)
            if seen.setdefault(place, pair) != pair:
                pairs += seen[place], pair
                break
    return list(dict.fromkeys(pairs))


def pairs_of_buckets(n_buckets: int, n: int) -> list[tuple[int, int]]:
    """The first n pairs of bytes in each of some buckets."""
    pairs: dict[int, list[tuple[int, int]]] = {bucket: [] for bucket in range(n_buckets)}
    for left in range(256):
        for right in range(256):
            bucket, _ = bucket_and_home((left, right), MULTIPLIERS[0])
            if len(pairs.get(bucket, range(n))) < n:
                pairs[bucket].append((left, right))
    return [pair for found in pairs.values() for pair in found]


@pytest.mark.parametrize(
    ("pairs", "has_hash"),
    [
        (colliding_pairs(MULTIPLIERS[:1]), True),
        (colliding_pairs(MULTIPLIERS[:-1]), True),
        (colliding_pairs(MULTIPLIERS), False),
        (pairs_of_buckets(1, 64), True),
        (pairs_of_buckets(1, 65), True),        # one more than a bucket holds
        (pairs_of_buckets(3, 64), True),        # of which the third finds no room
    ],
)
def test_models_that_a_perfect_hash_is_hard_to_find_for(pairs: list[tuple[int, int]], has_hash: bool) -> None:
    assert len(pairs) <= 204                    # with more, there are more entries
    merges = {pair: 256 + i for i, pair in enumerate(pairs)}
    encoder = make_encoder(merges)
    generator = random.Random(12)
    for size in [1, 2, 3, 20, 40, 62, 63]:
        for _ in range(20):
            chunk = b"".join(map(bytes, generator.choices(pairs, k=size)))[:size]
            ids, steps = encoder._encode_chunk_counted(chunk)
            assert ids == reference.encode_chunk(chunk, merges)
            assert (steps == 0) == (size <= 32 or (has_hash and size <= 62))


# ---- steps


def growing_chunks(size: int) -> dict[str, bytes]:
    generator = random.Random(7)
    return {
        "a": b"a" * size,
        "ab": b"ab" * (size // 2),
        "letters": bytes(generator.choices(range(97, 123), k=size)),
        "two letters": bytes(generator.choices(b"ab", k=size)),
        "bytes": generator.randbytes(size),
    }


def models() -> dict[str, dict[tuple[int, int], int]]:
    generator = random.Random(8)
    corpus = bytes(generator.choices(range(97, 123), k=3000)) + b"a" * 3000 + b"ab" * 1500
    letters = [*range(97, 123), *range(256, 300)]
    return {
        "trained": reference.learn_counted([(corpus, 1)], 120)[0],
        "shared ids": {(left, right): 300 for left in letters for right in letters},
        "shuffled ids": {
            (generator.choice(letters), generator.choice(letters)): generator.choice(letters) for _ in range(2000)
        },
        "one letter eats all": {(97, other): 97 for other in range(256)},
    }


@pytest.mark.parametrize(("model", "merges"), models().items())
def test_c25_twice_the_bytes_take_about_twice_the_steps(model: str, merges: dict[tuple[int, int], int]) -> None:
    encoder = make_encoder(merges)
    small, large = growing_chunks(1 << 19), growing_chunks(1 << 20)
    for kind in small:
        _, steps = encoder._encode_chunk_counted(small[kind])
        _, more_steps = encoder._encode_chunk_counted(large[kind])
        assert 0 < more_steps <= 2.3 * steps, (model, kind)


# ---- texts


@examples(150)
@given(trained | hand_made, st.text(alphabet="ab c\n1é漢'", max_size=120))
@example({}, "")
def test_texts_are_split_and_encoded_as_the_reference_does(merges: dict[tuple[int, int], int], text: str) -> None:
    encoder = make_encoder(merges)
    for pattern in [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, r"[ab]+|\d", None]:
        splitter = splitter_for(pattern)
        ids = reference.encode_ordinary(text, merges, pattern)
        assert encoder.encode(text.encode(), splitter) == ids
        array = encoder.encode_to_numpy(text.encode(), splitter)
        assert array.dtype == np.uint32
        assert array.tolist() == ids
        assert encoder.count(text.encode(), splitter) == len(ids)


def long_texts() -> dict[str, str]:
    generator = random.Random(9)
    words = ["hello", " world", "\n\n", "   ", "  x", "é", "漢字", "🎉", "'s", "123456", "...\n", "\r\n", "\t"]
    return {
        "words": "".join(generator.choices(words, k=200_000)),
        "one long word": "x " + "ab" * BLOCK + " y",
        "a word as long as a block": "a" * BLOCK,
        "a word a byte longer": "a" * (BLOCK + 1),
        "spaces": "x" + " " * (2 * BLOCK + 5) + "y",
        "newlines": "\n" * (BLOCK + 3) + "a" + "\n" * BLOCK,
        "two-byte characters, odd": "x" + "é" * BLOCK,
        "three-byte characters": "漢" * 200_000,
        "four-byte characters": "xyz" + "🎉" * 200_000,
        "short, then long, then short": "a b c " * 10 + "ab" * BLOCK + " a b c" * BLOCK,
    }


@pytest.mark.parametrize("pattern", [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN], ids=["gpt2", "gpt4"])
@pytest.mark.parametrize(("kind", "text"), long_texts().items())
def test_blocks_leave_no_trace(kind: str, text: str, pattern: str) -> None:
    merges = {(97, 98): 256, (256, 256): 257, (32, 32): 258, (258, 258): 259, (97, 97): 260, (10, 10): 261}
    encoder = make_encoder(merges)
    splitter = splitter_for(pattern)
    data = text.encode()
    right = [i for chunk in splitter.split(text) for i in encoder.encode_chunk(chunk)]
    assert encoder.encode(data, splitter) == right
    assert encoder.encode_to_numpy(data, splitter).tolist() == right
    assert encoder.count(data, splitter) == len(right)


@pytest.mark.parametrize("offset", [0, 5, BLOCK - 1, BLOCK, BLOCK + 17, 3 * BLOCK])
@pytest.mark.parametrize("wrong", [b"\xff", b"\xed\xa0\x80", b"\x80" * 9, b"\xf0\x9f\x98"])
def test_bytes_that_are_not_utf8_are_refused_where_they_are(offset: int, wrong: bytes) -> None:
    data = (b"a b\n" * BLOCK)[:offset] + wrong
    with pytest.raises(UnicodeDecodeError) as right:
        data.decode()
    with pytest.raises(UnicodeDecodeError) as caught:
        make_encoder({}).encode(data, splitter_for(GPT4_SPLIT_PATTERN))
    assert caught.value.start == right.value.start


PIECES = ["\n", "\n", "\n", "\r\n", " ", "'ll", "/", "é", "7", "!", "a", "Ab", "漢" * 30]
PIECES += [letter * n for letter in "x!" for n in (61, 62, 63, 64, 65, 66, 200)]


@pytest.mark.parametrize("pattern", NAMED_PATTERNS.values(), ids=NAMED_PATTERNS)
def test_pieces_between_any_two_cuts_are_encoded_as_they_are_in_the_whole(pattern: str) -> None:
    encoder, splitter = make_encoder({(120, 120): 256, (10, 10): 257, (33, 10): 258}), splitter_for(pattern)
    generator = random.Random(13)
    for _ in range(60):
        text = "".join(generator.choices(PIECES, k=100)).encode()
        cuts, cut = [0], next_cut(text)
        while cut >= 0:
            cuts.append(cut)
            cut = next_cut(text, cut + 1)
        for some in (cuts, sorted(generator.sample(cuts[1:], len(cuts) // 3))):
            borders = [0, *some, len(text)]
            pieces = [
                encoder._encode_piece([text], splitter, False, 0, 1, start, end)[0]
                for start, end in itertools.pairwise(borders)
            ]
            assert np.concatenate(pieces).tolist() == encoder.encode(text, splitter)


@pytest.mark.parametrize("width", [62, 64, 66, 80, 200, 100_000])
def test_threads_share_a_text_whose_lines_are_one_chunk_each(width: int) -> None:
    encoder, splitter = make_encoder({(65, 67): 256}), splitter_for(GPT4_SPLIT_PATTERN)
    line = "".join(random.Random(width).choices("ACGT", k=width)) + "\n"
    text = line * (1_200_000 // len(line))
    for num_threads in (2, 3):
        assert encoder.encode(text, splitter, num_threads) == encoder.encode(text, splitter)


def test_ids_are_plain_ints_of_any_size() -> None:
    encoder = make_encoder({(97, 97): LARGEST_ID, (98, 98): 2**31, (99, 99): 70_000})
    ids = encoder.encode(b"aabbccd", splitter_for(None))
    assert ids == [LARGEST_ID, 2**31, 70_000, 100]
    assert json.loads(json.dumps(ids)) == ids
    assert {type(i) for i in ids} == {int}
    assert encoder.encode_to_numpy(b"aa", splitter_for(None)).tolist() == [LARGEST_ID]


def test_c45_threads_share_an_encoder() -> None:
    generator = random.Random(10)
    merges, _ = reference.learn_counted([(bytes(generator.choices(b"abcd", k=500)), 1)], 60)
    encoder, splitter = make_encoder(merges), splitter_for(GPT4_SPLIT_PATTERN)
    texts = [("".join(generator.choices("abcd ", k=size))).encode() for size in (10, 100, 1000, 10_000)]
    right = [encoder.encode(text, splitter) for text in texts]

    def work(seed: int) -> bool:
        order = random.Random(seed)
        picks = [order.randrange(len(texts)) for _ in range(200)]
        return all(encoder.encode(texts[i], splitter) == right[i] for i in picks)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


# ---- what is refused


def test_models_that_are_refused() -> None:
    pairs = np.array([[97, 98], [98, 99]], dtype=np.uint32)
    ids = np.array([256, 257], dtype=np.uint32)
    assert Encoder(pairs, ids).encode_chunk(b"abc") == [256, 99]
    refused: list[tuple[Any, Any, bytes | None, str]] = [
        (pairs, ids[:1], None, "1 ids need pairs of shape"),
        (np.zeros((2, 3), dtype=np.uint32), ids, None, "2 ids need pairs of shape"),
        (np.array([[97, 98], [97, 98]], dtype=np.uint32), ids, None, r"\(97, 98\) is merged twice"),
        (pairs, np.array([256, 2**32 - 1], dtype=np.uint32), None, "holds the id 4,294,967,295"),
        (np.array([[97, 98], [2**32 - 1, 98]], dtype=np.uint32), ids, None, "holds the id 4,294,967,295"),
        (pairs.astype(np.int64), ids, None, "Buffer dtype mismatch"),
        (np.asfortranarray(pairs), ids, None, "not C-contiguous"),
        (pairs, ids, b"abc", "256 bytes, not 3"),
    ]
    for wrong_pairs, wrong_ids, byte_ids, message in refused:
        with pytest.raises(ValueError, match=message):
            Encoder(wrong_pairs, wrong_ids, byte_ids)
    for arguments in [(None, ids), (pairs, None), (pairs, ids, "x" * 256), ()]:
        with pytest.raises(TypeError):
            Encoder(*arguments)  # type: ignore[arg-type]


def claimed(*shape: int) -> Any:
    """An array of zeros that claims a shape and has memory for one: whoever refuses it has not looked into it."""
    kind: Any = ctypes.c_uint32
    for n in reversed(shape):
        kind *= n
    zero = ctypes.c_uint32()
    array = kind.from_address(ctypes.addressof(zero))
    array.owner = zero
    return array


def test_what_is_too_large_is_refused_before_it_is_looked_into() -> None:
    with pytest.raises(ValueError, match="4,294,967,295 merges are too many"):
        Encoder(claimed(2**32 - 1, 2), claimed(2**32 - 1))
    encoder, pages = make_encoder({(97, 97): 256}), bytes(1 << 31)        # which nobody has written to
    with pytest.raises(CorpusTooLargeError, match="2,147,483,648 bytes in chunks without a break"):
        encoder._encode_chunks(pages, [])
    with pytest.raises((CorpusTooLargeError, MemoryError), match=r"a chunk of 2,147,483,648 bytes|no memory"):
        encoder.encode_chunk(pages)


def test_texts_that_are_refused() -> None:
    encoder, splitter = make_encoder({}), splitter_for(None)
    for call in (encoder.encode, encoder.encode_to_numpy, encoder.count):
        for arguments in [(None, splitter), (b"a", None), (b"a", "x"), (bytearray(b"a"), splitter), (97, splitter)]:
            with pytest.raises(TypeError):
                call(*arguments)  # type: ignore[arg-type]
    for wrong in ["a", None, 5]:
        with pytest.raises(TypeError):
            encoder.encode_chunk(wrong)  # type: ignore[arg-type]


def test_an_encoder_says_that_it_cannot_be_pickled() -> None:
    for copier in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="make it anew"):
            copier(make_encoder({}))

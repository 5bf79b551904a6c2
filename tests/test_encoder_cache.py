"""Encoding with memory: whatever is looked up, remembered, overwritten or shared, ids are those of the reference.

Caches are made so small here that everything in them collides and is lost again and again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import reference
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

from cbpe.encoding.encoder import Encoder
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.splitting import splitter_for

pytestmark = pytest.mark.native

Merges = Mapping[tuple[int, int], int]

SMALLEST = 1                # bytes of cache: two lines and a ring of 4 KB
PATTERNS = [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, r"\w+|\W+", None]


def make_encoder(merges: Merges, cache_bytes: int | None = None) -> Encoder:
    pairs = np.array(list(merges), dtype=np.uint32).reshape(-1, 2)
    ids = np.array(list(merges.values()), dtype=np.uint32)
    return Encoder(pairs, ids) if cache_bytes is None else Encoder(pairs, ids, _cache_bytes=cache_bytes)


def trained_merges(seed: int, letters: str, num_merges: int) -> dict[tuple[int, int], int]:
    generator = random.Random(seed)
    words = ["".join(generator.choices(letters, k=generator.randint(1, 12))) for _ in range(60)]
    return reference.learn_counted([(word.encode(), 1) for word in words], num_merges)[0]


def moved(merges: Merges, shift: int) -> dict[tuple[int, int], int]:
    """The same merges with ids that are higher by shift, from 256 on: {(97, 98): 256} -> {(97, 98): 256 + shift}."""

    def move(i: int) -> int:
        return i if i < 256 else i + shift

    return {(move(left), move(right)): move(made) for (left, right), made in merges.items()}


def models() -> dict[str, dict[tuple[int, int], int]]:
    generator = random.Random(1)
    trained = trained_merges(2, "abcdeé漢", 150)
    return {
        "none": {},
        "trained": trained,
        "ids at 2**20 - 2": moved(trained, 2**20 - 2 - max(trained.values())),
        "ids at 2**20 - 1": moved(trained, 2**20 - 1 - max(trained.values())),
        "ids of 32 bits": moved(trained, 2**32 - 2 - max(trained.values())),
        "hand-made": {
            (generator.choice([97, 98, 99, 300, 301]), generator.choice([97, 98, 300, 302])): generator.randint(97, 303)
            for _ in range(20)
        },
        # 258 is ab and c, but in "abc" the b goes to the c first
        "a token that its bytes do not give": {(98, 99): 256, (97, 98): 257, (257, 99): 258},
        "two tokens of the same bytes": {(97, 98): 256, (98, 97): 257, (256, 97): 258, (97, 257): 259},
    }


MODELS = models()


def words(generator: random.Random, count: int) -> list[str]:
    """Words of all lengths that are treated apart, of which some recur."""
    lengths = [1, 2, 3, 5, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 61, 62, 63, 64, 100, 254, 255, 256, 257, 300]
    fresh = ["".join(generator.choices("abcdeé漢 ", k=generator.choice(lengths))) for _ in range(count)]
    return generator.choices(fresh, k=3 * count)


@pytest.mark.parametrize("cache_bytes", [SMALLEST, 1 << 14, None], ids=["smallest", "small", "usual"])
@pytest.mark.parametrize("model", MODELS)
def test_every_way_through_the_cache_gives_the_same_ids(model: str, cache_bytes: int | None) -> None:
    merges = MODELS[model]
    encoder = make_encoder(merges, cache_bytes)
    known: dict[bytes, list[int]] = {}
    for pattern in PATTERNS:
        splitter = splitter_for(pattern)
        text = "".join(words(random.Random(3), 60))[:6000]
        right: list[int] = []
        for chunk in splitter.split(text):
            if chunk not in known:
                known[chunk] = reference.encode_chunk(chunk, merges)
            right += known[chunk]
        for _ in range(3):
            assert encoder.encode(text.encode(), splitter) == right
            assert encoder.encode_to_numpy(text.encode(), splitter).tolist() == right
            assert encoder.count(text.encode(), splitter) == len(right)


hand_made = st.dictionaries(
    st.tuples(st.sampled_from([97, 98, 99, 256, 257, 2**20, 2**32 - 2]), st.sampled_from([97, 98, 256, 2**20 + 1])),
    st.sampled_from([97, 99, 256, 257, 258, 2**20, 2**20 + 1, 2**32 - 2]),
    max_size=16,
)
ascending = st.builds(lambda seed, n: trained_merges(seed, "abc", n), st.integers(0, 50), st.integers(0, 40))


@examples(150)
@given(hand_made | ascending, st.lists(st.text(alphabet="abc", min_size=1, max_size=40), min_size=1, max_size=40))
def test_any_model_with_a_cache_that_forgets(merges: Merges, parts: list[str]) -> None:
    encoder = make_encoder(merges, SMALLEST)
    splitter = splitter_for(GPT4_SPLIT_PATTERN)
    text = " ".join(parts + parts[::-1])
    right = [i for chunk in splitter.split(text) for i in reference.encode_chunk(chunk, merges)]
    assert encoder.encode(text.encode(), splitter) == right
    assert encoder.encode(text.encode(), splitter) == right


@examples(150)
@given(ascending, st.lists(st.text(alphabet="abcd", min_size=1, max_size=64), min_size=1, max_size=40))
def test_chunks_merged_side_by_side_do_not_mix(merges: Merges, parts: list[str]) -> None:
    kept = "".join(parts).encode()
    ends = np.cumsum([len(part) for part in parts])
    right = [i for part in parts for i in reference.encode_chunk(part.encode(), merges)]
    assert make_encoder(merges)._encode_chunks(kept, ends).tolist() == right


@examples(200)
@given(st.integers(0, 10**9), st.integers(1, 4), st.booleans())
def test_tokens_that_are_found_whole_are_proved(seed: int, n_letters: int, known_parts: bool) -> None:
    """Every token's bytes as a chunk, of models whose ids ascend and whose merges need not be reachable."""
    generator = random.Random(seed)
    tokens = {i: bytes([i]) for i in range(97, 97 + n_letters)}
    merges: dict[tuple[int, int], int] = {}
    for made in range(256, 256 + generator.randint(1, 60)):
        names = list(tokens)
        pair = generator.choice(names), generator.choice(names[-6:] if known_parts else names)
        if pair not in merges and len(tokens[pair[0]] + tokens[pair[1]]) <= 40:
            merges[pair] = made
            tokens[made] = tokens[pair[0]] + tokens[pair[1]]
    encoder = make_encoder(merges)
    for token in tokens.values():
        ids = encoder._encode_chunks(token, np.array([len(token)])).tolist()
        assert ids == reference.encode_chunk(token, merges)


def test_tokens_are_found_whole_only_where_their_bytes_give_them() -> None:
    encoder = make_encoder(MODELS["a token that its bytes do not give"])
    splitter = splitter_for(GPT4_SPLIT_PATTERN)
    assert encoder.encode(b"abc", splitter) == [97, 256]
    assert encoder.encode(b"ab", splitter) == [257]


@pytest.mark.parametrize("n_ids", range(1, 20))
@pytest.mark.parametrize("shift", [0, 2**21], ids=["20 bits", "32 bits"])
def test_chunks_of_any_number_of_ids_are_remembered(n_ids: int, shift: int) -> None:
    merges = {(97, 98): 256 + shift}
    encoder, splitter = make_encoder(merges), splitter_for(GPT4_SPLIT_PATTERN)
    text = b"ab" + b"c" * (n_ids - 1) + b"\n"
    for _ in range(3):
        assert encoder.encode(text, splitter) == [256 + shift, *[99] * (n_ids - 1), 10]


def colliding(generator: random.Random) -> tuple[bytes, bytes]:
    """Two chunks of 16 bytes whose keys are equal: chunkkeys.pxd's hash, solved for the last eight."""
    factor, mask = 0x9E3779B97F4A7C15, 2**64 - 1

    def hash_words(head: int, tail: int) -> int:
        h = head ^ (tail * factor & mask)
        return (h ^ (h >> 32)) * 0xC2B2AE3D27D4EB4F & mask

    first, other, last = (generator.getrandbits(64) for _ in range(3))
    difference = hash_words(16, first) ^ hash_words(16, other)
    other_last = (difference ^ (last * factor & mask)) * pow(factor, -1, 2**64) & mask
    assert hash_words(hash_words(16, first), last) == hash_words(hash_words(16, other), other_last)
    return (first | last << 64).to_bytes(16, "little"), (other | other_last << 64).to_bytes(16, "little")


def test_chunks_with_equal_keys_are_told_apart() -> None:
    generator = random.Random(5)
    encoder = make_encoder({})
    pairs = [colliding(generator) for _ in range(20)]
    for one, other in pairs:
        for chunk in (one, other, other, one):      # each call is a batch of its own, and asks what the last one kept
            assert encoder._encode_chunks(chunk, np.array([16])).tolist() == list(chunk)


# ---- bounds


def diverse(seed: int, count: int) -> bytes:
    generator = random.Random(seed)
    return " ".join("".join(generator.choices("abcdeé漢", k=generator.randint(4, 30))) for _ in range(count)).encode()


@pytest.mark.parametrize("bound", [1 << 16, 1 << 20])
def test_a_cache_stays_within_its_bound_on_text_that_never_recurs(bound: int) -> None:
    encoder, splitter = make_encoder(MODELS["trained"], bound), splitter_for(GPT4_SPLIT_PATTERN)
    sizes = []
    for seed in range(6):
        encoder.count(diverse(seed, 20_000), splitter)
        held, workers = encoder._memory()
        sizes.append(held)
        assert workers == 1
        assert held <= bound
    assert bound // 4 <= sizes[0] == sizes[-1]


def test_a_prompt_takes_little_memory() -> None:
    encoder, splitter = make_encoder(MODELS["trained"]), splitter_for(GPT4_SPLIT_PATTERN)
    encoder.encode(b"a prompt of a few words, and not a corpus", splitter)
    assert encoder._memory()[0] < 1 << 16


def test_there_are_no_more_workers_than_threads_at_once() -> None:
    encoder, splitter = make_encoder(MODELS["trained"]), splitter_for(GPT4_SPLIT_PATTERN)
    text = diverse(0, 3000)
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: encoder.count(text, splitter), range(40)))
    assert 1 <= encoder._memory()[1] <= 4


# ---- many texts, many threads


def as_lists(encoded: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    ids, offsets = encoded
    assert ids.dtype == np.uint32
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert offsets[-1] == len(ids)
    return [ids[a:b].tolist() for a, b in pairwise(offsets)]


def batches() -> dict[str, list[bytes]]:
    generator = random.Random(4)
    line = "ab cde é漢 a1b2 123456\n"
    return {
        "no texts": [],
        "empty texts": [b"", b"", b""],
        "short texts": ["".join(words(generator, 3)).encode() for _ in range(300)],
        "long chunks at the ends of texts": [b"", b"ab" * 200, b"", b"", b"c", b"ab " + b"a" * 256, b"ab" * 200, b""],
        "a long text": [(line * 100_000).encode()],
        "a long text among short ones": [b"a b", b"", (line * 80_000).encode(), b"c", (line * 60_000).encode(), b""],
        "newlines before every cut": ["".join("ab" + "\n" * (i % 4) + "c" for i in range(400_000)).encode()],
        "a text without a cut": [b"ab " * 700_000],
        "a text that is one chunk": [b"ab" * 700_000, b"c"],
    }


@pytest.mark.parametrize("pattern", [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, None], ids=["gpt2", "gpt4", "whole"])
@pytest.mark.parametrize(("kind", "texts"), batches().items())
def test_batches_are_their_texts_whatever_the_threads(kind: str, texts: list[bytes], pattern: str | None) -> None:
    encoder, splitter = make_encoder(MODELS["trained"]), splitter_for(pattern)
    right = [encoder.encode(text, splitter) for text in texts]
    for num_threads in (1, 2, 7):
        assert as_lists(encoder.encode_batch_to_numpy(texts, splitter, num_threads)) == right
    assert encoder.encode_batch(texts, splitter, 2) == right
    if texts:
        longest = max(texts, key=len)
        assert encoder.encode(longest, splitter, num_threads=3) == right[texts.index(longest)]
        assert encoder.encode_to_numpy(longest, splitter, num_threads=3).tolist() == right[texts.index(longest)]


@pytest.mark.parametrize("num_threads", [1, 3])
def test_bytes_that_are_not_utf8_are_refused_in_batches(num_threads: int) -> None:
    encoder, splitter = make_encoder({}), splitter_for(GPT4_SPLIT_PATTERN)
    text = b"a b\n" * 500_000
    for offset in (0, 700_001, len(text) - 1):
        wrong = text[:offset] + b"\xff" + text[offset + 1 :]
        with pytest.raises(UnicodeDecodeError) as caught:
            encoder.encode_batch_to_numpy([b"fine", wrong, b"\xff"], splitter, num_threads)
        assert caught.value.start == offset
        assert encoder.encode(b"fine", splitter) == list(b"fine")


@pytest.mark.parametrize("wrong", [[97], [None], [b"a", 5], [bytearray(b"a")]])
def test_batches_that_are_refused(wrong: list[object]) -> None:
    encoder, splitter = make_encoder({}), splitter_for(GPT4_SPLIT_PATTERN)
    for call in (encoder.encode_batch, encoder.encode_batch_to_numpy):
        with pytest.raises(TypeError):
            call(wrong, splitter, 1)    # type: ignore[arg-type]


def test_c45_sixteen_threads_share_an_encoder_and_its_caches() -> None:
    encoder, splitter = make_encoder(MODELS["trained"], 1 << 15), splitter_for(GPT4_SPLIT_PATTERN)
    texts = [diverse(seed, 400) for seed in range(8)]
    fresh = [make_encoder(MODELS["trained"]).encode(text, splitter) for text in texts]
    ways: list[Callable[[bytes], list[int]]] = [
        lambda text: encoder.encode(text, splitter),
        lambda text: encoder.encode_to_numpy(text, splitter).tolist(),
        lambda text: encoder.encode_batch([b"", text], splitter, 1)[1],
    ]

    def work(seed: int) -> bool:
        generator = random.Random(seed)
        picks = [generator.randrange(len(texts)) for _ in range(20)]
        return all(generator.choice(ways)(texts[i]) == fresh[i] for i in picks)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))
    assert encoder._memory()[1] <= 16


def test_arrays_outlive_their_encoder_and_may_be_written_to() -> None:
    encoder, splitter = make_encoder({}), splitter_for(GPT4_SPLIT_PATTERN)
    text = b"ab c" * 100_000
    for size in (0, 1, len(text)):
        array = encoder.encode_to_numpy(text[:size], splitter)
        more = encoder.encode_to_numpy(text[:size], splitter)
        array += 1
        assert more.tolist() == list(text[:size])
        assert (array - 1).tolist() == list(text[:size])

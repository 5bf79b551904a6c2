"""Decoding: every kind of integers gives the same bytes, and an id that is not known is named as it was given."""

from __future__ import annotations

import copy
import pickle
import random
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import reference
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

from cbpe.encoding.decoder import Decoder, add_merged
from cbpe.errors import UnknownIdError

pytestmark = pytest.mark.native

LARGEST_ID = 2**32 - 2
BYTES = {i: bytes([i]) for i in range(256)}
TOKENS = {**BYTES, 256: b"ab", 257: b"a" * 15, 258: b"b" * 16, 259: b"c" * 17, 260: b"d" * 1000, 300: b"gap before"}
DECODER = Decoder(TOKENS)


@examples(200)
@given(
    st.dictionaries(
        st.integers(0, 3000) | st.integers(0, LARGEST_ID), st.binary(max_size=40), min_size=1, max_size=60
    ).flatmap(lambda tokens: st.tuples(st.just(tokens), st.lists(st.sampled_from(sorted(tokens)), max_size=60)))
)
def test_any_vocabulary_decodes_as_the_reference_does(drawn: tuple[dict[int, bytes], list[int]]) -> None:
    tokens, ids = drawn
    decoder = Decoder(tokens)
    right = reference.decode_bytes(ids, tokens)
    assert decoder.decode_bytes(ids) == right
    assert decoder.decode_bytes(np.array(ids, dtype=np.int64)) == right
    assert decoder.decode_bytes(np.array(ids, dtype=np.uint32)) == right
    for number in {0, 1, 2999, 3001, LARGEST_ID, *(i + 1 for i in tokens)} - set(tokens):
        with pytest.raises(UnknownIdError):
            decoder.decode_bytes([*ids, number])


def test_tokens_of_all_lengths_at_the_end() -> None:
    for last in TOKENS:
        for ids in [[last], [260, last], [97, last, last], [last, 97]]:
            assert DECODER.decode_bytes(ids) == reference.decode_bytes(ids, TOKENS)


class Index:
    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number


class Tensor:
    """As torch's: neither a buffer nor a numpy array, but it can be made into one."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.ids, dtype=dtype)


IDS = [104, 105, 97, 32, 98]
KINDS: list[Callable[[list[int]], Any]] = [
    list,
    tuple,
    iter,
    lambda ids: (i for i in ids),
    lambda ids: dict.fromkeys(ids),
    lambda ids: dict.fromkeys(ids).keys(),
    bytes,
    bytearray,
    lambda ids: memoryview(bytes(ids)),
    lambda ids: [np.int64(i) for i in ids],
    lambda ids: [np.array(i) for i in ids],
    lambda ids: [Index(i) for i in ids],
    lambda ids: np.array(ids, dtype=object).tolist(),
    Tensor,
    *(lambda ids, code=code: array(code, ids) for code in "bBhHiIlLqQ"),
    *(lambda ids, code=code: np.array(ids, dtype=code) for code in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]),
    *(lambda ids, code=code: np.array(ids, dtype=code) for code in [">i2", ">u2", ">i4", ">u4", ">i8", ">u8", "<i4"]),
    *(
        lambda ids, code=code: np.repeat(np.array(ids, dtype=code), 2)[::2]
        for code in ["i1", "u2", "i4", "u4", "i8", ">i8"]
    ),
    lambda ids: np.array(ids[::-1], dtype=np.int32)[::-1],
    lambda ids: np.array([ids, ids], dtype=np.uint16, order="F")[1],
]


@pytest.mark.parametrize("kind", KINDS)
def test_c43_integers_of_every_kind(kind: Callable[[list[int]], Any]) -> None:
    assert DECODER.decode_bytes(kind(IDS)) == b"hia b"
    if kind not in (bytes, bytearray):
        assert DECODER.decode_bytes(kind([])) == b""


def test_c43_ranges_bools_and_read_only_arrays() -> None:
    assert DECODER.decode_bytes(range(97, 100)) == b"abc"
    assert DECODER.decode_bytes([True, False]) == b"\x01\x00"
    assert DECODER.decode_bytes(np.array([True, False])) == b"\x01\x00"
    assert DECODER.decode_bytes(np.array([])) == b""
    ids = np.array([97, 260, 98])
    ids.flags.writeable = False
    assert DECODER.decode_bytes(ids) == b"a" + b"d" * 1000 + b"b"


@pytest.mark.parametrize(
    "number",
    [-1, 261, 299, 301, 5000, 2**31, 2**32 - 1, 2**32, 2**32 + 97, -(2**32) + 97, 2**63 - 1, -(2**63)],
)
def test_c41_unknown_ids_are_named(number: int) -> None:
    kinds: list[Any] = [[97, number], (97, number), iter([97, number]), [97, np.int64(number)], np.array([97, number])]
    kinds += [np.array([97, number], dtype=">i8"), np.array([97, 97, number, number])[::2], array("q", [97, number])]
    for code in ["i2", "u2", "i4", "u4", "u8"]:
        if np.iinfo(code).min <= number <= np.iinfo(code).max:
            kinds.append(np.array([97, number], dtype=code))
    for ids in kinds:
        with pytest.raises(UnknownIdError, match=f"^id {number} at index 1 is not"):
            DECODER.decode_bytes(ids)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**63 + 97])
def test_c41_ids_beyond_64_bits(number: int) -> None:
    kinds: list[Any] = [[number], np.array([number], dtype=np.uint64), np.array([number], dtype=">u8")]
    for ids in kinds:
        with pytest.raises(UnknownIdError, match=f"^id {number} at index 0 is not"):
            DECODER.decode_bytes(ids)
    with pytest.raises(UnknownIdError, match=f"^id {2**64 + 97} at index 0 is not"):
        DECODER.decode_bytes([2**64 + 97])
    with pytest.raises(UnknownIdError, match=r"^id of 100001 bits at index 1 is not"):
        DECODER.decode_bytes([97, 2**100_000])


def test_c41_an_unknown_id_satisfies_both_worlds() -> None:
    for error in (ValueError, KeyError):
        with pytest.raises(error, match="id 256 at index 0"):
            Decoder(BYTES).decode_bytes([256])


@pytest.mark.parametrize(
    "ids",
    ["a", "", ["a"], [None], [97.5], [97.0], [b"a"], [[97]], None, 97, 97.5, object(), np.int64(97), np.array(97)],
)
def test_c41_what_is_not_integers_is_refused(ids: Any) -> None:
    with pytest.raises(TypeError):
        DECODER.decode_bytes(ids)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([97.0]),
        np.array(["a"]),
        np.array([[97]]),
        np.array([97], dtype=object),
        np.array([97 + 0j]),
        array("d", [97.0]),
    ],
)
def test_c41_arrays_of_something_else_are_refused(ids: Any) -> None:
    with pytest.raises(TypeError):
        DECODER.decode_bytes(ids)


def test_errors_name_the_type_and_the_index() -> None:
    with pytest.raises(TypeError, match="not str at index 1"):
        DECODER.decode_bytes([97, "b"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="float64"):
        DECODER.decode_bytes(np.array([97.0]))
    with pytest.raises(ZeroDivisionError):
        DECODER.decode_bytes(1 // i for i in [1, 0])


def test_a_list_that_changes_while_it_is_read() -> None:
    class Evil:
        def __init__(self, act: Callable[[], None]) -> None:
            self.act = act

        def __index__(self) -> int:
            self.act()
            return 98

    ids: list[Any] = [97, Evil(lambda: ids.clear()), 99, 100]
    assert DECODER.decode_bytes(ids) == b"ab"
    ids = [97, Evil(lambda: ids.extend([99] * 1000)), 100]
    assert DECODER.decode_bytes(ids) == b"abd"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("e2 82", "\ufffd"),
        ("f0 9f 98", "\ufffd"),
        ("ff fe", "\ufffd\ufffd"),
        ("e2 28 a1", "\ufffd(\ufffd"),
        ("ed a0 bd", "\ufffd" * 3),
        ("c0 80", "\ufffd" * 2),
        ("f4 90 80 80", "\ufffd" * 4),
        ("e2 82 ac e2", "€\ufffd"),
    ],
)
def test_c44_bytes_are_exact_and_cut_characters_harmless(data: str, text: str) -> None:
    ids = list(bytes.fromhex(data))
    assert DECODER.decode_bytes(ids) == bytes(ids)
    assert DECODER.decode_bytes(ids).decode(errors="replace") == text
    assert b"".join(DECODER.decode_bytes([i]) for i in ids) == bytes(ids)


def test_special_tokens_with_far_ids() -> None:
    tokens = {**BYTES, 100_257: b"<|endoftext|>", LARGEST_ID: b"<last>", 2**31: b"<middle>"}
    decoder = Decoder(tokens)
    ids = [97, LARGEST_ID, 2**31, 98, 100_257]
    assert decoder.decode_bytes(ids) == b"a<last><middle>b<|endoftext|>"
    assert decoder.decode_bytes(np.array(ids)) == b"a<last><middle>b<|endoftext|>"
    for number in [256, 100_256, 100_258, 2**31 - 1, 2**31 + 1, LARGEST_ID - 1, LARGEST_ID + 1]:
        with pytest.raises(UnknownIdError, match=str(number)):
            decoder.decode_bytes(np.array([number]))


def test_a_signed_array_never_wraps_to_a_far_id() -> None:
    decoder = Decoder({**BYTES, LARGEST_ID: b"<last>"})
    assert decoder.decode_bytes(np.array([LARGEST_ID], dtype=np.uint32)) == b"<last>"
    with pytest.raises(UnknownIdError, match="id -2 at index 0"):
        decoder.decode_bytes(np.array([-2], dtype=np.int32))


def test_vocabularies_that_are_refused() -> None:
    assert Decoder({}).decode_bytes([]) == b""
    for number in [-1, 2**32 - 1, 2**70]:
        with pytest.raises(ValueError, match=str(number)):
            Decoder({0: b"a", number: b"x"})
    with pytest.raises(OverflowError, match="the limit is 4,294,967,294"):
        Decoder(dict.fromkeys(range(64), bytes(1 << 26)))
    for wrong in [{"a": b"x"}, {1.5: b"x"}, {1: "x"}, {1: None}, None, [b"x"]]:
        with pytest.raises(TypeError):
            Decoder(wrong)  # type: ignore[arg-type]
    for copier in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="make it anew"):
            copier(DECODER)


def test_merges_of_what_nothing_makes_are_refused() -> None:
    def added(*merges: tuple[int, int, int]) -> dict[int, bytes]:
        tokens, table = dict(BYTES), np.array(merges, np.uint32)
        add_merged(tokens, table[:, :2], table[:, 2])
        return tokens

    assert added((257, 99, 256), (97, 98, 257))[256] == b"abc"
    for merges, missing in (
        [[(97, 98, 256), (300, 256, 257)], 300],
        [[(97, 301, 256)], 301],
        [[(97, 257, 256), (256, 97, 257)], 257],        # each of the other
    ):
        with pytest.raises(KeyError, match=f"^{missing}$"):
            added(*merges)


def test_ids_that_change_while_they_are_decoded() -> None:
    """They are measured first and then written, into what was measured."""
    decoder = Decoder({**BYTES, 256: b"fifteen letters"})
    ids, stop = np.full(300_000, 97, np.uint32), threading.Event()

    def change() -> None:
        while not stop.is_set():
            ids[:] = 256
            ids[:] = 97

    def decode_until(deadline: float) -> None:
        while time.monotonic() < deadline:
            assert set(decoder.decode_bytes(ids)) <= set(b"afifteen letters")

    thread = threading.Thread(target=change)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="changed by another thread"):
            decode_until(time.monotonic() + 60)
    finally:
        stop.set()
        thread.join()


def test_c45_threads_share_a_decoder() -> None:
    generator = random.Random(3)
    lists = [generator.choices(sorted(TOKENS), k=size) for size in (0, 1, 10, 1000, 5000)]
    right = [reference.decode_bytes(ids, TOKENS) for ids in lists]
    arrays = [np.array(ids, dtype=np.uint16) for ids in lists]

    def work(seed: int) -> bool:
        picks = [random.Random(seed).randrange(len(lists)) for _ in range(100)]
        return all(DECODER.decode_bytes(lists[i]) == right[i] == DECODER.decode_bytes(arrays[i]) for i in picks)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))

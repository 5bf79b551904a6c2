"""Counting and the chunk store: what is read, where it is cut, what order comes out, and what is refused."""

from __future__ import annotations

import ctypes
import io
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import reference
from budget import times
from hypothesis import given
from hypothesis import strategies as st

from cbpe.errors import ChunkStoreError, CorpusDecodeError, CorpusTooLargeError
from cbpe.inputs import find_sources
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.splitting.split import splitter_for
from cbpe.training import ChunkStore, corpus
from cbpe.training.chunks import ChunkCounter

pytestmark = pytest.mark.native

PATTERNS = [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, r"\w+|\s", None]


def counted(texts, pattern, specials=()):
    """The distinct chunks in order of first appearance, and their counts."""
    parts = [part for text in texts for part in reference.cut_at_specials(text, specials) if part not in specials]
    return list(Counter(chunk for part in parts for chunk in reference.split(part, pattern)).items())


@pytest.mark.parametrize("pattern", [*PATTERNS, r"\w+|\W"])
@pytest.mark.usefixtures("small_parts")
def test_order_is_kept_where_wrong_bytes_are_mended(tmp_path, pattern):
    rng = random.Random(5)
    pieces = [b"\xff", b"\xe3\x80", b"\xf0", b"a", b" b", b"\n", b"\nword", b"<e>", b"z<e>a", "é漢".encode()]
    path = tmp_path / "f.txt"
    for data in [b"\xff" * 10 + b"z<e>a", *(b"".join(rng.choices(pieces, k=60)) for _ in range(40))]:
        path.write_bytes(data)
        # a character may not be made of bytes on either side of a special token
        text = "<e>".join(part.decode("utf-8", "replace") for part in data.split(b"<e>"))
        store = ChunkStore.from_files(path, pattern, special_tokens=["<e>"], errors="replace", num_threads=1)
        assert list(store) == counted([text], pattern, ["<e>"]), data


@pytest.fixture
def small_parts(monkeypatch):
    """Windows and parts so small that every text of these tests has many."""
    monkeypatch.setattr(corpus, "WINDOW", 16)
    monkeypatch.setattr(corpus, "PART", 8)


def test_a_store_shows_how_much_it_holds():
    assert repr(ChunkStore.from_iterator(["a b"])) == "<ChunkStore: 2 distinct chunks, 3 bytes in all>"


def test_what_cannot_be_cut_is_refused_beyond_the_limit(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("x" * 100)
    monkeypatch.setattr(corpus, "MAX_WINDOW", 99)
    with pytest.raises(CorpusTooLargeError, match=r"a\.txt: more than 99 bytes from offset 0 on"):
        ChunkStore.from_files(tmp_path / "a.txt", None)
    with pytest.raises(CorpusTooLargeError, match="text number 1 has 100 bytes; 99 is the limit"):
        ChunkStore.from_iterator(["a", "x" * 100], None)
    assert len(ChunkStore.from_iterator(["a", "x" * 99], None)) == 2


def test_a_file_that_is_shorter_than_it_was_is_cut_at_its_old_end():
    assert corpus.cut_in_file(io.BytesIO(b"abc\ndef"), 1, 100, None) == 100


def claimed(n):
    """A buffer of n bytes that has one: who refuses it has not looked into it."""
    byte = ctypes.c_uint8()
    array = (ctypes.c_uint8 * n).from_address(ctypes.addressof(byte))
    array.owner = byte
    return array


def test_a_counter_looks_at_no_byte_that_is_not_there():
    counter, other = ChunkCounter(splitter_for(GPT2_SPLIT_PATTERN)), ChunkCounter(splitter_for(r"\w"))
    text = np.zeros(100, np.uint8)

    def row(*numbers):
        return np.array(numbers, np.uint64)

    with pytest.raises(ValueError, match="not padded"):
        counter.count(text, 37, 37, True, 0, True)
    with pytest.raises(ValueError, match="not padded"):
        counter.add(text, np.array([10, 37], np.uint32), 0)
    with pytest.raises(ValueError, match="not native"):
        other.count_texts(text, row(0), row(5), row(0))
    for begins, ends, places in [(row(0), row(5, 6), row(0)), (row(0), row(5), row()), (row(), row(5), row(0))]:
        with pytest.raises(ValueError, match="different lengths"):
            counter.count_texts(text, begins, ends, places)
    for begin, end in [(0, 101), (6, 5), (2**64 - 1, 5)]:
        with pytest.raises(ValueError, match="text 1 lies outside"):
            counter.count_texts(text, row(0, begin), row(1, end), row(0, 0))
    for number, bits in [(4, 2), (0, 11), (2**63, 2)]:
        with pytest.raises(ValueError, match="no part"):
            counter.part(number, bits)
    assert len(counter) == 0
    counter.count_texts(text, row(0), row(36), row(0))
    assert len(counter) == 1


def test_texts_that_a_counter_finds_not_to_be_utf8_are_refused():
    counter = ChunkCounter(splitter_for(GPT2_SPLIT_PATTERN))
    zero = np.zeros(1, np.uint64)
    for length, padding in [(10, 64), (10, 0), (100_000, 64)]:      # with others, and alone
        text = b"a" * (length - 1) + b"\xff" + bytes(padding)
        with pytest.raises(ValueError, match=f"its byte at {length - 1:,} is wrong"):
            counter.count_texts(text, zero, np.array([length], np.uint64), zero)


def test_stretches_whose_ends_have_no_room_in_32_bits_are_refused():
    counter = ChunkCounter(splitter_for(None))
    text, n, zero = claimed(2**32 + 100), 2**32, np.zeros(1, np.uint64)
    with pytest.raises(CorpusTooLargeError, match="4,294,967,296 bytes without a place to cut"):
        counter.count(text, n, n, True, 0, True)
    with pytest.raises(CorpusTooLargeError, match="a text of 4,294,967,296 bytes"):
        counter.count_texts(text, zero, np.array([n], np.uint64), zero)


def nasty_text(seed, length=3000):
    rng = random.Random(seed)
    alphabet = [*"ab1 \n\r\t'!sl\n\néſ\u3000\u0085\u0301漢😀", "\nword", "\n\n", " 'll"]
    return "".join(rng.choices(alphabet, k=length))


# ---- counting


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("num_threads", [1, 2, 3, 5])
@pytest.mark.usefixtures("small_parts")
def test_files_are_counted_as_their_texts_are(tmp_path, pattern, num_threads):
    texts = [nasty_text(1), "", "a", nasty_text(2, 1000), "\n\n", nasty_text(3)]
    paths = [tmp_path / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    expected = counted(texts, pattern)
    monkey = pytest.MonkeyPatch()
    with monkey.context() as context:
        context.setattr("cbpe.training.store.ENOUGH", 8)        # so that threads are used at all
        store = ChunkStore.from_files(paths, pattern, num_threads=num_threads)
        assert list(store) == expected
        assert list(ChunkStore.from_iterator(iter(texts), pattern, num_threads=num_threads)) == expected
    assert store.pattern == pattern
    assert len(store) == len(expected)
    assert store.total_bytes == sum(len(chunk) * count for chunk, count in expected)


@given(st.lists(st.text(alphabet="ab \n\r\t'l\u3000é😀", max_size=60), max_size=4), st.sampled_from(PATTERNS))
def test_strings_are_counted_as_the_reference_does(texts, pattern):
    assert list(ChunkStore.from_iterator(texts, pattern)) == counted(texts, pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("specials", [["<e>"], ["<e>", "<e>>"], ["a\nb", "!"]])
@pytest.mark.usefixtures("small_parts")
def test_special_tokens_are_kept_out(tmp_path, pattern, specials):
    rng = random.Random(5)
    text = "".join(rng.choices([*specials, "a", " ", "\n", "b", "\n\n", "<", ">", "1", "\n<e>"], k=2000))
    path = tmp_path / "corpus.txt"
    path.write_bytes(text.encode())
    expected = counted([text], pattern, specials)
    assert list(ChunkStore.from_files(path, pattern, special_tokens=specials, num_threads=2)) == expected
    assert list(ChunkStore.from_iterator([text], pattern, special_tokens=specials)) == expected


def test_a_chunk_far_longer_than_a_window(tmp_path):
    for text in ("a" * 3_000_000 + " b", " " * 1_000_000 + "\n" + "\n" * 500_000, "x" + "^" * 1_000_000):
        path = tmp_path / "long.txt"
        path.write_text(text, newline="")
        for pattern in (GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN):
            expected = Counter(splitter_for(pattern).split(text))
            assert list(ChunkStore.from_files(path, pattern)) == list(expected.items())


def test_many_distinct_chunks_of_every_length(tmp_path, monkeypatch):
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(1, 40))) for _ in range(times(40_000))]
    text = "\n".join(rng.choices(words, k=times(60_000)))
    expected = counted([text], GPT4_SPLIT_PATTERN)
    assert list(ChunkStore.from_iterator([text])) == expected
    monkeypatch.setattr(corpus, "PART", 1 << 14)
    monkeypatch.setattr("cbpe.training.store.ENOUGH", 1)
    path = tmp_path / "corpus.txt"
    path.write_text(text, newline="")
    for num_threads in (2, 3, 7):
        assert list(ChunkStore.from_files(path, num_threads=num_threads)) == expected
    # places of a source so far behind that they do not share a word with a slot's number
    (tmp_path / "empty").touch()
    paths = [tmp_path / "empty"] * 70_000 + [path]
    assert list(ChunkStore.from_files(paths, num_threads=2)) == expected


def test_chunks_that_end_in_nul_are_distinct_C13():
    texts = ["a", "a\0", "a\0\0", "a" * 8, "a" * 8 + "\0", "a" * 15, "a" * 15 + "\0", "a" * 14 + "\0"]
    assert list(ChunkStore.from_iterator(texts, None)) == [(text.encode(), 1) for text in texts]


def test_newlines_are_taken_as_they_are_C11_C12(tmp_path):
    for text in ("a\r\nb\r\nc\r\n", "x\r\ry\r\rz", "a\n\n\n\nb\n\n\n\n"):
        path = tmp_path / "corpus.txt"
        path.write_bytes(text.encode())
        assert list(ChunkStore.from_files(path)) == counted([text], GPT4_SPLIT_PATTERN)


def test_lone_special_paths_C15(tmp_path):
    for name, content in (("empty", b""), ("one", b"a"), ("two", b"ab")):
        (tmp_path / name).write_bytes(content)
    assert list(ChunkStore.from_files(str(tmp_path / "empty"))) == []
    assert list(ChunkStore.from_files(tmp_path / "one")) == [(b"a", 1)]
    paths = [tmp_path / name for name in ("one", "empty", "two")]
    assert list(ChunkStore.from_files(paths)) == [(b"a", 1), (b"ab", 1)]
    with pytest.raises(FileNotFoundError, match=r"no file in this folder is named .*" + re.escape(str(tmp_path))):
        ChunkStore.from_files(tmp_path)
    with pytest.raises(FileNotFoundError, match="missing"):
        ChunkStore.from_files([tmp_path / "one", tmp_path / "missing"])
    with pytest.raises(TypeError):
        ChunkStore.from_files([b"bytes"])
    with pytest.raises(TypeError):
        ChunkStore.from_files(5)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pipe_is_read_to_its_end_C15(tmp_path, pattern):
    text = nasty_text(9, 100_000)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(text.encode(),))
    writer.start()
    try:
        assert list(ChunkStore.from_files(fifo, pattern)) == counted([text], pattern)
    finally:
        writer.join()


def test_iterables_are_checked():
    with pytest.raises(TypeError, match="iterable of str"):
        ChunkStore.from_iterator("text")
    with pytest.raises(TypeError, match="number 1 is bytes"):
        ChunkStore.from_iterator(["a", b"b"])
    with pytest.raises(TypeError, match="number 0 is int"):
        ChunkStore.from_iterator([1])
    with pytest.raises(UnicodeEncodeError):
        ChunkStore.from_iterator(["a\ud800"])
    with pytest.raises(ValueError, match="num_threads"):
        ChunkStore.from_iterator(["a"], num_threads=0)
    with pytest.raises(ValueError, match="errors"):
        ChunkStore.from_iterator(["a"], errors="ignore")
    with pytest.raises(ValueError, match="shard"):
        ChunkStore.from_files([], shard=(2, 2))

    def failing():
        yield "a"
        raise RuntimeError("the generator's own")

    with pytest.raises(RuntimeError, match="the generator's own"):
        ChunkStore.from_iterator(failing())


def test_the_first_fault_is_told_whatever_the_threads_do(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "PART", 64)
    monkeypatch.setattr("cbpe.training.store.ENOUGH", 64)
    good = b"some text\n" * 500
    path = tmp_path / "corpus.txt"
    path.write_bytes(good + b"\xff\n" + good + b"\xfe" + good)
    for _ in range(20):
        with pytest.raises(CorpusDecodeError, match=r"offset 5,000") as fault:
            ChunkStore.from_files(path, num_threads=3)
        assert (fault.value.source, fault.value.offset) == (str(path), 5000)


WRONG = [
    b"good " * 1000 + b"\xd0\xff\xfe" + b" tail tail" * 1000,
    "naïve café ".encode("latin-1") * 500,
    "truncated é".encode()[:-1],
    b"\xe2\x82",
    b"a\n\xe2\x82\nb\n\xf0\x9f\x98\n c\xed\xa0\x80d\xc0\x80\n\xf4\x90\x80\x80x\n" * 50,
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("data", WRONG)
@pytest.mark.usefixtures("small_parts")
def test_bytes_that_are_not_utf8_C14(tmp_path, pattern, data):
    path = tmp_path / "corpus.txt"
    path.write_bytes(data)
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    with pytest.raises(CorpusDecodeError) as fault:
        ChunkStore.from_files(path, pattern, num_threads=1)
    assert fault.value.offset == expected.value.start
    assert "corpus.txt" in str(fault.value)
    for num_threads in (1, 3):
        store = ChunkStore.from_files(path, pattern, errors="replace", num_threads=num_threads)
        assert list(store) == counted([data.decode("utf-8", "replace")], pattern)


@given(st.binary(max_size=60), st.sampled_from([GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN]))
def test_any_bytes_are_counted_or_refused(tmp_path_factory, data, pattern):
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(data)
    text = data.decode("utf-8", "replace")
    assert list(ChunkStore.from_files(path, pattern, errors="replace")) == counted([text], pattern)


def test_a_file_that_shrinks_is_an_error(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"line\n" * 1000)
    part = next(corpus.source_parts(find_sources(path), splitter_for(GPT4_SPLIT_PATTERN), None))
    path.write_bytes(b"line\n")
    with pytest.raises(OSError, match=r"became shorter .* ends at byte 5"), open(path, "rb", buffering=0) as file:
        corpus.Window(file, part, 1 << 16).fill()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_nothing_stays_open_C17(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"a b c\n")
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"\xff")
    ChunkStore.from_files(path).save(tmp_path / "store")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        ChunkStore.from_files([path, path], num_threads=2)
        with pytest.raises(CorpusDecodeError):
            ChunkStore.from_files([path, wrong])
        with ChunkStore.open(tmp_path / "store") as store:
            assert len(store) == 4
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
@pytest.mark.parametrize("pattern", ["GPT4_SPLIT_PATTERN", "r'\\w+|\\s'"])
def test_ctrl_c_is_heard_while_counting_C19(tmp_path, pattern):
    path = tmp_path / "corpus.txt"
    path.write_bytes(b"some words and 1234 numbers\n" * 2_000_000)
    script = textwrap.dedent(f"""
        import time
        from cbpe import ChunkStore, GPT4_SPLIT_PATTERN
        print("ready", flush=True)
        try:
            while True:
                ChunkStore.from_files({str(path)!r}, {pattern}, num_threads=2)
        except KeyboardInterrupt:
            print("heard", flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        threading.Event().wait(0.5)
        process.send_signal(signal.SIGINT)
        try:
            out, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert out == "heard\n"
    assert process.returncode == 0


# ---- stores


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_store_survives_its_file(tmp_path, pattern):
    store = ChunkStore.from_iterator([nasty_text(4), "one more", "\ufffd"], pattern)
    store.save(tmp_path / "a.chunks")
    with ChunkStore.open(tmp_path / "a.chunks") as opened:
        assert list(opened) == list(store)
        assert opened.pattern == pattern
        assert opened.total_bytes == store.total_bytes
        assert opened.sources is None
        opened.save(tmp_path / "b.chunks")
    assert (tmp_path / "a.chunks").read_bytes() == (tmp_path / "b.chunks").read_bytes()
    empty = ChunkStore.from_iterator([], pattern)
    empty.save(tmp_path / "empty.chunks")
    assert list(ChunkStore.open(tmp_path / "empty.chunks")) == []


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("small_parts")
def test_shards_merge_to_the_whole_in_any_order(tmp_path, pattern):
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(nasty_text(i, 2000).encode())
    ChunkStore.from_files(paths, pattern).save(tmp_path / "whole")
    shards = [ChunkStore.from_files(paths, pattern, shard=(i, 5)) for i in range(5)]
    assert sum(shard.total_bytes for shard in shards) == ChunkStore.from_files(paths, pattern).total_bytes
    random.Random(1).shuffle(shards)
    ChunkStore.merge([ChunkStore.merge(shards[:2]), ChunkStore.merge(shards[2:])]).save(tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == (tmp_path / "whole").read_bytes()


def test_stores_of_different_texts_merge_in_the_order_given(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"file words")
    texts = [["the one", "the two"], ["two three"]]
    stores = [ChunkStore.from_iterator(some) for some in texts]
    stores.insert(1, ChunkStore.from_files(tmp_path / "b.txt"))
    expected = counted([*texts[0], "file words", *texts[1]], GPT4_SPLIT_PATTERN)
    assert list(ChunkStore.merge(stores)) == expected
    assert list(ChunkStore.merge([ChunkStore.merge(stores[:2]), stores[2]])) == expected
    assert list(ChunkStore.merge(stores[:1])) == list(stores[0])
    with pytest.raises(ChunkStoreError, match="different patterns"):
        ChunkStore.merge([stores[0], ChunkStore.from_iterator(["a"], None)])
    with pytest.raises(ChunkStoreError, match="no stores"):
        ChunkStore.merge([])


def test_files_of_the_same_names_that_are_no_shards_merge_in_the_order_given(tmp_path, monkeypatch):
    stores = []
    for folder, text in (("a", "words, more"), ("b", "other words"), ("c", "")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "corpus.txt").write_text(text)
        monkeypatch.chdir(tmp_path / folder)
        stores.append(ChunkStore.from_files("corpus.txt"))
    merged = ChunkStore.merge(stores)
    assert list(merged) == counted(["words, more", "other words"], GPT4_SPLIT_PATTERN)
    assert merged.sources == ["corpus.txt"] * 3
    assert list(ChunkStore.merge(stores[1::-1])) == counted(["other words", "words, more"], GPT4_SPLIT_PATTERN)


def test_a_damaged_or_foreign_store_is_refused(tmp_path):
    path = tmp_path / "store"
    ChunkStore.from_iterator(["a text of some words"]).save(path)
    good = path.read_bytes()
    for cut in (0, 1, 8, 15, 16, 30, len(good) - 9, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(ChunkStoreError, match="store"):
            ChunkStore.open(path)
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        with pytest.raises(ChunkStoreError, match="store"):
            ChunkStore.open(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(ChunkStoreError, match="bytes long"):
        ChunkStore.open(path)
    path.write_bytes(good[:8] + (2).to_bytes(4, "little") + good[12:])
    with pytest.raises(ChunkStoreError, match="version 2; this cbpe reads version 1"):
        ChunkStore.open(path)
    with pytest.raises(FileNotFoundError):
        ChunkStore.open(tmp_path / "missing")


def test_a_store_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "store"
    ChunkStore.from_iterator(["old"]).save(path)
    store = ChunkStore.from_iterator(["new"])

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.save(path)
    assert list(ChunkStore.open(path)) == [(b"old", 1)]
    assert os.listdir(tmp_path) == ["store"]


def test_places_number_every_byte(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    paths[0].write_bytes(b"x y")
    paths[1].write_bytes(b"x z")
    store = ChunkStore.from_files(paths)
    assert store.places.tolist() == [0, 1, (1 << 40) + 1]
    assert np.array_equal(store.counts, [2, 1, 1])


def test_places_that_no_source_has_are_damage_and_too_many_sources_an_error(tmp_path):
    def opened(places, sources):
        arrays = (np.array(each, np.uint64) for each in ([1, 1], places, [0, 1, 2]))
        ChunkStore(None, *arrays, np.frombuffer(b"ab", np.uint8), sources).save(tmp_path / "store")
        return ChunkStore.open(tmp_path / "store")

    assert len(opened([0, 2**40], ["a", "b"])) == 2
    for places, sources in (([0, 2**40], ["a"]), ([0, 2**64 - 1], ["a", "b"]), ([1, 0], None)):
        with pytest.raises(ChunkStoreError, match="not in order"):
            opened(places, sources)
    last = opened([0, 2**64 - 1], None)         # in the last source that there can be
    with pytest.raises(CorpusTooLargeError, match="16,777,217 sources"):
        ChunkStore.merge([last, ChunkStore.from_iterator(["c"], pattern=None)])


def test_a_fault_holds_no_arrays_of_a_map_that_is_closed(tmp_path):
    # a debugger that shows a traceback's variables would read memory that is not there any more
    path = tmp_path / "store"
    ChunkStore.from_iterator(["ab"], pattern=None).save(path)
    data = bytearray(path.read_bytes())
    begin = len(data) - 32
    assert data[begin : begin + 18] == bytes(8) + (2).to_bytes(8, "little") + b"ab"     # the only chunk's offsets
    data[begin] = 2
    path.write_bytes(data[:-8] + zlib.crc32(data[:-8]).to_bytes(8, "little"))
    with pytest.raises(ChunkStoreError, match="do not lie end to end") as fault:
        ChunkStore.open(path)
    frames = [frame for frame, _ in traceback.walk_tb(fault.value.__traceback__)]
    assert not [value for frame in frames[1:] for value in frame.f_locals.values() if isinstance(value, np.ndarray)]


def test_counts_beyond_64_bits_do_not_begin_at_0_again():
    one = ChunkStore(None, *(np.array(numbers, np.uint64) for numbers in ([1 << 62], [0], [0, 1])),
                     np.frombuffer(b"a", np.uint8))
    assert one.total_bytes == 1 << 62
    with pytest.raises(CorpusTooLargeError, match=r"2\*\*63 bytes"):
        ChunkStore.merge([one] * 5)

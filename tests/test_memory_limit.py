"""Limits of memory: sizes, what there is, counting and training that stay within, and nothing left behind."""

from __future__ import annotations

import copy
import io
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from budget import SHORT, limits_memory, thorough
from peak import PEAK_MEMORY, needs_peak_memory

from cbpe import BasicTokenizer, RegexTokenizer, memory
from cbpe.errors import ChunkStoreError, CorpusTooLargeError
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.splitting import splitter_for
from cbpe.training import ChunkStore, corpus, learn_merges, spill
from cbpe.training.chunks import ChunkCounter
from cbpe.training.merges import learn
from cbpe.training.spill import Limit, Piece, Size
from cbpe.workspace import Workspace

pytestmark = pytest.mark.native

PATTERNS = [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, r"\w+|\s", None]
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="resource limits, signals and names are POSIX's here")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="what memory there is, is known on Linux only")


@pytest.fixture
def tiny_limits(monkeypatch):
    """Limits of any size are taken, threads are used for short texts, and parts are few, so that tests are quick."""
    monkeypatch.setattr(Limit, "LEAST", 1)
    monkeypatch.setattr(Limit, "LEAST_PER_THREAD", 1)
    monkeypatch.setattr(Limit, "PER_THREAD", 0)
    monkeypatch.setattr("cbpe.training.store.Work._check", lambda self, part: None)
    monkeypatch.setattr("cbpe.training.store.ENOUGH", 64)
    monkeypatch.setattr(corpus, "PART", 256)
    monkeypatch.setattr(spill, "PART_BITS", 4)


def nasty_text(seed, length=4000):
    rng = random.Random(seed)
    alphabet = [*"ab12 \n\r\t'!sl\n\néſ\u3000\u0085\u0301漢😀", "\nword", "\n\n", " 'll", "<e>", "x" * 40]
    words = ["".join(rng.choices("abcdefghijklmnop é漢", k=rng.randint(1, 30))) for _ in range(length // 8)]
    return "".join(rng.choices(alphabet, k=length)) + " ".join(words)


def saved(store, folder):
    store.save(folder / "saved.chunks")
    return (folder / "saved.chunks").read_bytes()


# ---- sizes, and what there is


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (None, None), (5, 5), ("5", 5), ("512MB", 512_000_000), ("2GB", 2_000_000_000), ("1.5GiB", 1_610_612_736),
        (" 3 kib ", 3072), ("2g", 2_000_000_000), ("1T", 10**12), ("10 B", 10), (".5k", 500),
        (10**30, 1 << 62), (10**400, 1 << 62), ("9" * 400 + "GB", 1 << 62),
    ],
)  # fmt: skip
def test_sizes_as_people_write_them(size, expected):
    assert memory.parse_size(size) == expected


@pytest.mark.parametrize("size", ["", "GB", "2 PB", "-1", "2iB", "1e9", "2GB!", 0, -5, "0"])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(ValueError, match="memory_limit"):
        memory.parse_size(size)
    with pytest.raises(ValueError, match="memory_limit"):
        RegexTokenizer().train("abc", 257, memory_limit=size)


@pytest.mark.parametrize("size", [True, 1.5, b"2GB", [2]])
def test_sizes_of_wrong_types_are_refused(size):
    with pytest.raises(TypeError, match="memory_limit"):
        memory.parse_size(size)


def test_sizes_are_shown():
    assert [memory.show_size(n) for n in (999, 1000, 12_345_678_900, 2.5e15)] == [
        "999 bytes", "1.0 kB", "12.3 GB", "2500.0 TB"
    ]  # fmt: skip


@LINUX
def test_memory_that_there_is_is_known():
    there = memory.available()
    assert there is not None
    assert 1_000_000 < there < 1 << 50
    memory.require(1000, "nothing needs {needed}")
    with pytest.raises(MemoryError, match=r"a test needs 1152921\.5 TB, .* are available: give memory_limit="):
        memory.require(1 << 60, "a test needs {needed}")


@POSIX
@limits_memory
def test_what_ulimit_leaves_is_known(monkeypatch):
    import resource

    assert memory._of_limits() == []
    limits = {resource.RLIMIT_AS: 1 << 40, resource.RLIMIT_DATA: 1 << 41}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limits[kind], -1))
    if sys.platform == "linux":
        address_space, data = memory._of_limits()
        assert 0 < address_space < 1 << 40 < data < 1 << 41


def test_a_long_text_without_cuts_asks_whether_there_is_memory(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("some words")
    asked = []
    monkeypatch.setattr("cbpe.training.store.LONG_PART", 9)
    monkeypatch.setattr("cbpe.training.store.require", lambda need, what, *_: asked.append((need, what)))
    assert len(ChunkStore.from_files(tmp_path / "a.txt", r"\w+", num_threads=1)) == 2
    ((need, what),) = asked
    assert need == 30
    assert "a.txt: 10 bytes in one piece" in what


def test_a_thread_that_nobody_waits_for_stops_to_write(tmp_path):
    counter = ChunkCounter(splitter_for(None))
    counter.add(b"ab" + bytes(64), np.array([1, 2], np.uint32), 0)
    for n_asked in (0, 1, 3):
        answers = iter([True] * n_asked + [False])
        to_file = spill.Spill(Limit(100_000_000, tmp_path), lambda answers=answers: next(answers))
        with pytest.raises(spill.Unwanted):
            to_file.take(counter)
        assert not to_file
        to_file.close()


def test_nothing_is_refused_where_nothing_is_known(monkeypatch):
    monkeypatch.setattr(memory, "_of_machine", lambda: iter(()))
    monkeypatch.setattr(memory, "_of_control_groups", lambda: iter(()))
    monkeypatch.setattr(memory, "_of_limits", list)
    assert memory.available() is None
    memory.require(1 << 60, "a test needs {needed}")


def test_control_groups_are_read(tmp_path, monkeypatch):
    """Both versions; a group that is named but not mounted, as in a container; what the page cache would give back."""
    process = tmp_path / "cgroup"
    inner = tmp_path / "slice" / "inner"
    inner.mkdir(parents=True)
    process.write_text("0::/slice/inner\n")
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("100\n")
    (inner.parent / "memory.max").write_text("1000\n")
    (inner.parent / "memory.current").write_text("700\n")
    (inner.parent / "memory.stat").write_text("anon 300\ninactive_file 250\nactive_file 20\n")
    monkeypatch.setattr(memory, "_read", lambda path, read=memory._read: "" if "meminfo" in str(path) else read(path))
    assert list(memory._of_control_groups(tmp_path, str(process))) == [570]
    first = tmp_path / "memory"
    first.mkdir()
    process.write_text("11:cpu,cpuacct:/a\n4:memory:/docker/abc\n")
    (first / "memory.limit_in_bytes").write_text("5000\n")
    (first / "memory.usage_in_bytes").write_text("1000\n")
    assert list(memory._of_control_groups(tmp_path, str(process))) == [4000]
    assert list(memory._of_control_groups(tmp_path, str(tmp_path / "none"))) == []


# ---- counting


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("errors", ["strict", "replace"])
@pytest.mark.parametrize("specials", [(), ("<e>",)])
@pytest.mark.usefixtures("tiny_limits")
def test_the_result_is_that_without_a_limit(tmp_path, pattern, errors, specials):
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for i, path in enumerate(paths):
        data = nasty_text(i).encode()
        path.write_bytes(data if errors == "strict" else data.replace("é".encode(), b"\xc3"))
    how = {"pattern": pattern, "errors": errors, "special_tokens": specials}
    expected = saved(ChunkStore.from_files(paths, num_threads=1, **how), tmp_path)
    for limit, num_threads in ((1, 1), (1, 3), (100_000, 1), (200_000, 3), (500_000, 1), ("1GB", 2)):
        store = ChunkStore.from_files(paths, num_threads=num_threads, memory_limit=limit, **how)
        assert saved(store, tmp_path) == expected, (limit, num_threads)
    with ChunkStore.open(tmp_path / "saved.chunks") as opened:
        assert opened.total_bytes == store.total_bytes
        assert list(opened) == list(store)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.usefixtures("tiny_limits")
def test_strings_are_counted_the_same_under_a_limit(tmp_path, pattern):
    for texts in ([], [""], ["a"], [nasty_text(i, 100 * i) for i in range(12)], ["x" * 100_000, "y" * 50_000 + " z"]):
        expected = saved(ChunkStore.from_iterator(texts, pattern), tmp_path)
        for limit in (1, 60_000):
            store = ChunkStore.from_iterator(iter(texts), pattern, memory_limit=limit, num_threads=2)
            assert saved(store, tmp_path) == expected


@pytest.mark.usefixtures("tiny_limits")
def test_many_chunks_in_all_the_parts_that_there_are(tmp_path, monkeypatch):
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(1, 40))) for _ in range(30_000)]
    text = "\n".join(rng.choices(words, k=50_000))
    expected = saved(ChunkStore.from_iterator([text]), tmp_path)
    monkeypatch.setattr(spill, "PART_BITS", 10)
    for limit in (800_000, 6_000_000):
        assert saved(ChunkStore.from_iterator([text], memory_limit=limit), tmp_path) == expected


@pytest.mark.usefixtures("tiny_limits")
def test_the_first_fault_is_told_under_a_limit_too(tmp_path):
    path = tmp_path / "corpus.txt"
    good = nasty_text(3).encode()
    path.write_bytes(good + b"\xff" + good + b"\xfe")
    for num_threads in (1, 3):
        with pytest.raises(UnicodeDecodeError, match=f"{len(good):,}"):
            ChunkStore.from_files(path, num_threads=num_threads, memory_limit=50_000)


def test_limits_that_cannot_be_kept_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"memory_limit must be at least 32\.0 MB, not 1\.0 MB"):
        ChunkStore.from_iterator(["a"], memory_limit="1MB")
    with pytest.raises(ValueError, match="at least"):
        RegexTokenizer().train("abab", 257, memory_limit=5)
    path = tmp_path / "one.txt"
    with open(path, "wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(MemoryError, match=r"one\.txt: 100\.0 MB in one piece.*400\.0 MB: memory_limit is 64\.0 MB"):
        BasicTokenizer().train_from_files(path, 257, memory_limit="64MB")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ChunkStore.from_iterator((str(i) + " x" for i in range(2_000_000)), None, memory_limit="32MB",
                                 scratch_dir=tmp_path / "nowhere")


@pytest.mark.usefixtures("tiny_limits")
def test_a_mapped_store_does_what_a_store_does(tmp_path):
    text = nasty_text(11)
    plain = ChunkStore.from_iterator([text])
    store = ChunkStore.from_iterator([text], memory_limit=1, scratch_dir=tmp_path)
    for other in (store, copy.copy(store), copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert list(other) == list(plain)
        assert (other.pattern, other.total_bytes, len(other)) == (plain.pattern, plain.total_bytes, len(plain))
    assert learn_merges(store, 50)[0].tolist() == learn_merges(plain, 50)[0].tolist()
    store.close()
    assert len(store) == 0


# ---- merging stores, and parts of them


@pytest.mark.usefixtures("tiny_limits")
@pytest.mark.parametrize("limit", [None, 1, 100_000])
def test_stores_merge_within_a_limit(tmp_path, limit):
    paths = [tmp_path / f"{i}.txt" for i in range(3)]
    for i, path in enumerate(paths):
        path.write_bytes(nasty_text(i, 2000).encode())
    whole = saved(ChunkStore.from_files(paths), tmp_path)
    shards = [ChunkStore.from_files(paths, shard=(i, 5)) for i in range(5)]
    random.Random(1).shuffle(shards)
    for i, shard in enumerate(shards):
        shard.save(tmp_path / f"{i}.chunks")
    opened = [ChunkStore.open(tmp_path / f"{i}.chunks") for i in range(5)]
    assert saved(ChunkStore.merge(opened, memory_limit=limit, scratch_dir=tmp_path), tmp_path) == whole
    different = [ChunkStore.from_iterator([nasty_text(i)]) for i in range(4)]
    expected = saved(ChunkStore.merge(different), tmp_path)
    assert saved(ChunkStore.merge(different, memory_limit=limit), tmp_path) == expected


def merge_in_parts(stores, n_parts, *, block=1 << 10, at_once=None, scratch_dir=None):
    """What machines do together: every store in parts, each part merged from all, and all joined."""
    pieces = [[io.BytesIO() for _ in range(n_parts)] for _ in stores]
    sizes = [spill.write_parts(store, files) for store, files in zip(stores, pieces, strict=True)]
    parts = [io.BytesIO() for _ in range(n_parts)]
    merged = []
    for part, out in enumerate(parts):
        for files in pieces:
            files[part].seek(0)
        most = Size(sum(size[part].n for size in sizes), sum(size[part].n_bytes for size in sizes))
        merged.append(spill.merge_part([files[part] for files in pieces], out, most, part, n_parts, block))
        out.seek(0)
    return parts, merged


@pytest.mark.parametrize("n_parts", [1, 2, 64])
@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
def test_parts_from_many_machines_join_to_the_whole(tmp_path, monkeypatch, n_parts, block):
    monkeypatch.setattr(spill, "CHUNKS_AT_ONCE", 500)
    paths = [tmp_path / f"{i}.txt" for i in range(2)]
    for i, path in enumerate(paths):
        path.write_bytes(nasty_text(i, 2000).encode())
    whole = ChunkStore.from_files(paths)
    shards = [ChunkStore.from_files(paths, shard=(i, 3)) for i in (2, 0, 1)]
    parts, sizes = merge_in_parts(shards, n_parts, block=block)
    assert sum(size.n for size in sizes) == len(whole)
    store = ChunkStore.from_parts(parts, sizes, whole.pattern, sources=whole.sources, scratch_dir=tmp_path)
    assert saved(store, tmp_path) == saved(whole, tmp_path)


def test_parts_that_do_not_belong_together_are_refused():
    store = ChunkStore.from_iterator([nasty_text(1)])
    for n_parts in (0, 3, 2048):
        with pytest.raises(ValueError, match="power of two"):
            spill.write_parts(store, [io.BytesIO() for _ in range(n_parts)])
    files = [io.BytesIO() for _ in range(4)]
    sizes = spill.write_parts(store, files)
    out = io.BytesIO()
    for part, n_parts in ((2, 4), (1, 8)):
        files[1].seek(0)
        with pytest.raises(ChunkStoreError, match=f"piece of part 1 of 4, not of part {part} of {n_parts}"):
            spill.merge_part([files[1]], out, sizes[1], part, n_parts)
    for file in files:
        file.seek(0)
    with pytest.raises(ChunkStoreError, match="not in order of places"):
        ChunkStore.from_parts(files, sizes, store.pattern)
    parts, merged = merge_in_parts([store], 4)
    with pytest.raises(ChunkStoreError, match="announced"):
        ChunkStore.from_parts(parts, [Size(size.n + 1, size.n_bytes) for size in merged], store.pattern)
    good = parts[2].getvalue()
    for at in range(len(good)):
        with pytest.raises(ChunkStoreError, match="piece"):
            list(spill.pieces_of([io.BytesIO(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])], 2, 2))
    for cut in (1, 8, 47, 48, 55, 56, 60, len(good) - 1):
        with pytest.raises(ChunkStoreError, match="piece"):
            list(spill.pieces_of([io.BytesIO(good[:cut])], 2, 2))


def test_counts_that_cannot_be_summed_are_refused_after_merging():
    arrays = np.array([1 << 62], np.uint64), np.array([0], np.uint64), np.array([1], np.uint32)
    file = io.BytesIO()
    spill.write_piece(file, Piece(*arrays, np.frombuffer(b"a", np.uint8)), 0, 0)
    spill.write_piece(file, Piece(*arrays, np.frombuffer(b"b", np.uint8)), 0, 0)
    file.seek(0)
    with pytest.raises(CorpusTooLargeError, match=r"2\*\*63"):
        ChunkStore.from_parts([file], [Size(2, 2)], None)


# ---- training


def piece_bytes(counts, lengths, data, part=0, bits=1):
    file = io.BytesIO()
    places = np.arange(len(counts), dtype=np.uint64)
    arrays = np.array(counts, np.uint64), places, np.array(lengths, np.uint32), np.frombuffer(data, np.uint8)
    spill.write_piece(file, Piece(*arrays), part, bits)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (piece_bytes([1, 0], [1, 1], b"ab"), "end to end"),             # a count of 0 is that of an empty slot
        (piece_bytes([1, 1], [2, 0], b"ab"), "end to end"),
        (piece_bytes([1, 1], [1, 1], b"ab", 2, 1), "no such part"),
        (piece_bytes([1, 1], [1, 1], b"ab", 0, 2**32 - 1), "no such part"),
        (piece_bytes([1 << 62] * 2, [1, 1], b"ab"), "2\\*\\*63 bytes"),
        (piece_bytes([1 << 62], [1], b"a") * 5, "2\\*\\*63 bytes"),     # which in 64 bits is 2**62 again
    ],
)
def test_pieces_that_cannot_be_are_refused(data, reason):
    with pytest.raises((ChunkStoreError, CorpusTooLargeError), match=reason):
        spill.merge_part([io.BytesIO(data)], io.BytesIO(), Size(10, 10), 0, 2)


def test_a_piece_that_claims_to_be_large_is_read_in_portions():
    class Portions(io.BytesIO):
        def read(self, n=-1):
            assert 0 <= n <= 1 << 26
            return super().read(n)

    header = spill.HEADER.pack(spill.MAGIC, spill.VERSION, 0, spill.hash_id(), 0, 1, 2**40, 2**50)
    data = header + zlib.crc32(header).to_bytes(8, "little") + b"little"
    with pytest.raises(ChunkStoreError, match="too short"):
        spill.read_piece(Portions(data))


@pytest.mark.parametrize("segment", [1 << 16, 1 << 26])
@pytest.mark.parametrize("spread", [0.001, 4.0, 1e9])
def test_mapped_arrays_change_no_merge(monkeypatch, segment, spread):
    monkeypatch.setattr("cbpe.workspace.SEGMENT", segment)
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 20))) for _ in range(5000)]
    for text in (" ".join(words), "aaaa" * 1000, "", "ab" * 400_000 + nasty_text(3)):
        store = ChunkStore.from_iterator([text])
        how = (store.counts, store.offsets, store.data, 2000, 1, spread)
        expected = [np.concatenate(each).tolist() for each in zip(*learn(*how), strict=True)]
        mapped = learn(*how, workspace=Workspace(mapped=True))
        assert [np.concatenate(each).tolist() for each in zip(*mapped, strict=True)] == expected


@pytest.mark.usefixtures("tiny_limits")
@pytest.mark.parametrize("cls", [BasicTokenizer, RegexTokenizer])
def test_every_way_to_train_takes_a_limit(tmp_path, cls):
    text = nasty_text(8)
    path = tmp_path / "corpus.txt"
    path.write_bytes(text.encode())
    plain = cls()
    plain.train(text, 400)
    how = {"memory_limit": 50_000, "scratch_dir": tmp_path}
    store = ChunkStore.from_iterator([text], getattr(plain, "pattern", None) or None)
    trained = [cls() for _ in range(4)]
    trained[0].train(text, 400, **how)
    trained[1].train_from_files(path, 400, **how)
    trained[2].train_from_iterator(iter([text]), 400, **how)
    trained[3].train_from_chunks(store, 400, **how)
    assert all(list(tokenizer.merges.items()) == list(plain.merges.items()) for tokenizer in trained)
    assert os.listdir(tmp_path) == ["corpus.txt"]


# ---- what is left, and what is used


def words_file(path, n):
    """n lines of eight random letters: nearly as many distinct chunks."""
    letters = np.random.default_rng(1).integers(97, 123, (n, 9), np.uint8)
    letters[:, 8] = 10
    path.write_bytes(letters.tobytes())


def run(script, *args, **environment):
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, args)], capture_output=True, text=True, check=False,
        timeout=120, env={**os.environ, **environment},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
@pytest.mark.usefixtures("tiny_limits")
def test_nothing_stays_of_scratch_files(tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = tmp_path / "corpus.txt"
    path.write_bytes(nasty_text(1).encode())
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(path.read_bytes() + b"\xff")
    how = {"memory_limit": 1, "scratch_dir": scratch}
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        store = ChunkStore.from_files(path, num_threads=2, **how)
        assert os.listdir(scratch) == []
        assert str(scratch) in Path("/proc/self/maps").read_text()
        learn_merges(store, 100, **how)
        merged = ChunkStore.merge([store, store], **how)
        merged.close()
        del store
        with pytest.raises(UnicodeDecodeError):
            ChunkStore.from_files(wrong, **how)
    assert len(os.listdir("/proc/self/fd")) == before
    assert str(scratch) not in Path("/proc/self/maps").read_text()


@POSIX
@pytest.mark.parametrize("number", ["SIGINT", "SIGKILL"])
def test_nothing_stays_after_an_interruption_C19(tmp_path, number):
    words_file(tmp_path / "corpus.txt", 3_000_000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    script = textwrap.dedent("""
        import sys
        from cbpe import ChunkStore, RegexTokenizer
        path, scratch = sys.argv[1:]
        print("ready", flush=True)
        try:
            while True:
                RegexTokenizer().train_from_files(path, 300, num_threads=2, memory_limit="32MB", scratch_dir=scratch)
        except KeyboardInterrupt:
            print("heard", flush=True)
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "corpus.txt"), str(scratch)]
    for seconds in (1.0,) if SHORT else (0.3, 1.0, 1.8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            threading.Event().wait(seconds)
            process.send_signal(getattr(signal, number))
            try:
                out, _ = process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert out == ("heard\n" if number == "SIGINT" else "")
        assert os.listdir(scratch) == []


PEAK = f"""
{PEAK_MEMORY}
import sys
from cbpe import ChunkStore
path, limit, how = sys.argv[1:]
before = peak_memory()
if how == "files":
    store = ChunkStore.from_files(path, num_threads=2, memory_limit=limit or None, special_tokens=["<e>"])
elif how == "iterator":
    with open(path) as file:
        texts = (file.read(9_000) for _ in range(1000))
        store = ChunkStore.from_iterator(texts, num_threads=2, memory_limit=limit or None)
else:
    store = ChunkStore.merge([ChunkStore.open(path)] * 2, memory_limit=limit or None)
store.save(path + ".chunks")
print(peak_memory() - before)
"""


@thorough
@needs_peak_memory
def test_the_peak_of_counting_honours_the_limit(tmp_path):
    path = tmp_path / "corpus.txt"
    words_file(path, 3_300_000)
    assert int(run(PEAK, path, "", "files")) > 200_000_000
    whole = Path(f"{path}.chunks").read_bytes()
    assert int(run(PEAK, path, "64MB", "files")) <= 64_000_000
    # glibc's malloc may come to keep blocks of 16 MB for later, depending on the order in which threads free them
    keep = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(64 << 20)}
    assert int(run(PEAK, path, "64MB", "files", **keep)) <= 64_000_000
    assert Path(f"{path}.chunks").read_bytes() == whole
    # a store larger than the limit, merged with itself
    assert len(whole) > 90_000_000
    assert int(run(PEAK, f"{path}.chunks", "64MB", "stores")) <= 64_000_000
    assert int(run(PEAK, path, "64MB", "iterator")) <= 64_000_000


@thorough
@LINUX
@limits_memory
def test_the_need_is_told_before_memory_runs_out(tmp_path):
    words_file(tmp_path / "corpus.txt", 6_000_000)
    script = """
        import re, resource, sys
        from cbpe import ChunkStore, RegexTokenizer
        path, scratch = sys.argv[1:]
        def limit_to(n_bytes):
            size = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1])
            resource.setrlimit(resource.RLIMIT_AS, (size + n_bytes if n_bytes else -1, -1))
        tokenizer = RegexTokenizer()
        limit_to(400_000_000)
        try:
            tokenizer.train_from_files(path, 300, num_threads=1)
        except MemoryError as fault:
            print(fault)
        limit_to(500_000_000)
        store = ChunkStore.from_files(path, num_threads=1, memory_limit="64MB", scratch_dir=scratch)
        limit_to(150_000_000)
        try:
            tokenizer.train_from_chunks(store, 400)
        except MemoryError as fault:
            print(fault)
        print(len(tokenizer.merges))
    """
    counting, training, n = run(script, tmp_path / "corpus.txt", tmp_path).splitlines()
    assert "MB for more than" in counting
    assert "distinct chunks, " in counting
    assert "available: give memory_limit=" in counting
    assert training.startswith("training needs ")
    assert " cells, 1" in training
    assert "MB are available: give a (lower) memory_limit=" in training
    assert n == "0"


@POSIX
def test_a_full_disk_names_the_scratch_folder(tmp_path):
    words_file(tmp_path / "corpus.txt", 1_000_000)
    script = """
        import resource, sys
        from cbpe import ChunkStore
        from cbpe.training import learn_merges
        path, scratch = sys.argv[1:]
        store = ChunkStore.from_files(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        for call in (
            lambda: ChunkStore.from_files(path, memory_limit="32MB", scratch_dir=scratch),
            lambda: learn_merges(store, 100, memory_limit="32MB", scratch_dir=scratch),
        ):
            try:
                call()
            except OSError as fault:
                print(fault.filename == scratch, "scratch_dir=" in str(fault))
    """
    assert run(script, tmp_path / "corpus.txt", tmp_path) == "True True\n" * 2
    assert sorted(os.listdir(tmp_path)) == ["corpus.txt"]

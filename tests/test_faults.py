"""What goes wrong outside of the library: disks that are full, files that shrink, memory that is not there.

Of each fault the same is asked: an error that says what is wrong and with which file, the old file or the new one under
every name, nothing left behind, and a library that works on.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import io
import mmap
import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import threading
import tokenize
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from budget import SANITIZED, SHORT, limits_memory, thorough
from tqdm import tqdm

from cbpe import ChunkStore, RegexTokenizer
from cbpe.errors import ChunkStoreError
from cbpe.files import atomic_write, scratch_map
from cbpe.threads import heeding_ctrl_c, in_order

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="limits and mapped files as POSIX has them")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc, or needs what Linux alone has")
ROOT = Path(__file__).parent.parent
TEXT = "the cat sat on the mat.\nThe 12345 cats' mats\n\n\nhé hé 猫 <e>\n" * 200


def run(script: str, *arguments: object, **environment: str) -> str:
    """What a program prints that must end well: neither by a signal nor by an error."""
    result = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def trained(vocab_size: int = 280) -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train(TEXT, vocab_size)
    return tokenizer


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# ---- files that are written


@LINUX
def test_a_file_has_no_name_until_it_is_complete(tmp_path: Path) -> None:
    if not hasattr(os, "O_TMPFILE"):
        pytest.skip("this Python has no O_TMPFILE")
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        names = os.listdir(tmp_path)
        assert path.read_bytes() == b"old"
    assert names == ["a"]           # whoever is killed here leaves nothing
    assert contents(tmp_path) == {"a": b"new"}
    assert path.stat().st_mode & 0o777 == 0o640
    with atomic_write(tmp_path / "b") as file:
        file.write(b"another")
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o666 & ~mask


@pytest.mark.parametrize("missing", ["O_TMPFILE", "its file system", "link"])
def test_files_are_written_where_a_system_cannot_do_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    real_open = os.open

    def refuse(*args: Any, **how: Any) -> None:
        raise PermissionError(1, "not permitted")

    def open_named(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(95, "not supported")
        return real_open(path, flags, mode)

    if missing == "O_TMPFILE":
        monkeypatch.setattr("cbpe.files.sys.platform", "darwin")
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this Python has no O_TMPFILE")
    else:
        monkeypatch.setattr(os, *(("link", refuse) if missing == "link" else ("open", open_named)))
    for content in (b"one", b"another" * 1_000_000):
        with atomic_write(tmp_path / "a") as file:
            file.write(content)
        assert contents(tmp_path) == {"a": content}
    with pytest.raises(TypeError), atomic_write(tmp_path / "a") as file:
        file.writelines([b"half", "wrong"])     # type: ignore[list-item]
    assert contents(tmp_path) == {"a": content}
    with pytest.raises(FileNotFoundError) as raised, atomic_write(tmp_path / "no" / "a"):
        pass
    assert raised.value.filename == str(tmp_path / "no" / "a")


@POSIX
def test_the_old_file_or_the_new_one_whatever_the_moment_of_a_kill() -> None:
    """scripts/torture.py says what it does; here a few rounds of it."""
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "torture.py"), "--rounds", "6", "--seconds", "60"],
        capture_output=True, text=True, timeout=300,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count(" killed, ") == 10


def test_a_scratch_map_where_space_cannot_be_taken_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    with scratch_map(tmp_path, 2_500_000) as mapped:
        assert len(mapped) == 2_500_000
        assert not mapped[:].strip(b"\0")
        mapped[2_499_999] = 1
    assert os.listdir(tmp_path) == []


def test_without_address_space_to_map_a_file_it_is_a_memory_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **how: object) -> None:
        raise OSError(errno.ENOMEM, "no memory")

    ChunkStore.from_iterator(["a b"]).save(tmp_path / "a.chunks")
    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="no address space to map a scratch file"):
        scratch_map(tmp_path, 1000)
    with pytest.raises(MemoryError, match=r"a\.chunks: no address space"):
        ChunkStore.open(tmp_path / "a.chunks")
    assert os.listdir(tmp_path) == ["a.chunks"]


# ---- errors do not hold on to what they met


@pytest.mark.parametrize(
    "call",
    [
        lambda fails: heeding_ctrl_c(fails, 1),
        lambda fails: list(in_order(fails, [1], 1)),
        lambda fails: list(in_order(fails, range(9), 2)),
    ],
)
def test_an_error_from_a_thread_lets_go_of_files_at_once(call: Callable[[Any], object]) -> None:
    class Held:
        pass

    held = []

    def fails(_: int) -> None:
        mine = Held()
        held.append(weakref.ref(mine))
        raise ValueError("wrong")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="wrong") as raised:
            call(fails)
        del raised
        assert held
        assert not any(each() for each in held)
    finally:
        gc.enable()


# ---- bars


def test_a_call_leaves_no_thread_shown_bars_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    before = threading.active_count()
    for progress in (None, False, True):
        tokenizer = RegexTokenizer()
        tokenizer.train_from_files(tmp_path / "a.txt", 280, progress=progress)
        tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", progress=progress)
        assert threading.active_count() == before
        shown = capsys.readouterr().err
        assert [word in shown for word in ("counting", "merging", "encoding")] == [progress is True] * 3


def test_without_a_bar_no_lock_is_taken_that_processes_share(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    tokenizer = trained()
    ended = threading.Event()

    def work() -> None:
        tokenizer.train_from_files(tmp_path / "a.txt", 280)
        tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin")
        ended.set()

    with tqdm.get_lock():           # as a process holds it for ever that was killed
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert ended.wait(60)
    thread.join()


# ---- files that become shorter


@POSIX
def test_a_store_whose_file_became_shorter_is_an_error(tmp_path: Path) -> None:
    path, texts = tmp_path / "store", [f"word{i} " * (i % 7 + 1) for i in range(40_000)]
    ChunkStore.from_iterator(texts).save(path)
    # a program that reads beyond the end of a mapped file is killed: so this is one
    printed = run(
        """
        import os, pickle, sys
        from cbpe import ChunkStore, RegexTokenizer
        from cbpe.errors import ChunkStoreError
        path, out = sys.argv[1:]
        data = open(path, "rb").read()
        known = RegexTokenizer()
        known.train("hello hello", 257)
        for call in (
            lambda store: store.save(out),
            lambda store: list(store),
            lambda store: list(store.blocks()),
            lambda store: ChunkStore.merge([store, store]),
            lambda store: ChunkStore.merge([store, store], memory_limit="64MB"),
            lambda store: store.pruned(2),
            lambda store: pickle.dumps(store),
            lambda store: RegexTokenizer().train_from_chunks(store, 300),
            lambda store: RegexTokenizer().train_from_chunks(store, 300, min_count=2),
            lambda store: known.extend(store, 300),
        ):
            with open(path, "wb") as file:
                file.write(data)
            store = ChunkStore.open(path)
            os.truncate(path, 5000)
            try:
                call(store)
            except ChunkStoreError as fault:
                assert "has become shorter" in str(fault)
            else:
                raise SystemExit("no error")
            assert not os.path.exists(out)
        print(len(known.merges))
        """,
        path, tmp_path / "out",
    )
    assert printed == "1\n"


@POSIX
def test_a_store_that_becomes_shorter_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ChunkStore.from_iterator(["some words " * 9]).save(tmp_path / "a.chunks")
    whole = zlib.crc32

    def cut_off(data: Any, *more: int) -> int:
        os.truncate(tmp_path / "a.chunks", 20)
        return whole(data, *more)

    class Seen:
        crc32 = staticmethod(cut_off)

    monkeypatch.setattr("cbpe.training.store.BLOCK", 2)
    monkeypatch.setattr("cbpe.training.store.zlib", Seen)
    with pytest.raises(ChunkStoreError, match=r"a\.chunks: became shorter while it was read"):
        ChunkStore.open(tmp_path / "a.chunks")


def test_a_store_that_save_replaces_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ChunkStore.from_iterator(["some words " * 9]).save(path)
    with ChunkStore.open(path) as store:
        before = list(store)
        ChunkStore.from_iterator(["x"]).save(path)
        assert list(store) == before
        assert list(pickle.loads(pickle.dumps(store))) == list(copy.deepcopy(store)) == before
    with ChunkStore.open(path) as store:
        assert list(store) == [(b"x", 1)]
        store.check_file()
    store.check_file()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ChunkStoreError):
        ChunkStore.open(path)


# ---- full disks. A child process sets its limits, so that this one keeps its own.

WRITERS = """
import os, resource, sys, warnings
import cbpe
from cbpe import ChunkStore, RegexTokenizer
from cbpe.training.spill import Limit

folder, how = sys.argv[1:]
os.chdir(folder)
words = " ".join("".join(map(chr, (97 + i % 26, 97 + i // 26 % 26, 97 + i // 676 % 26, 97 + i // 17576)))
                 for i in range(120_000))
corpus = os.path.join(os.path.dirname(folder), "corpus.txt")
with open(corpus, "w") as file:
    file.write(words)
one = RegexTokenizer()
one.train(words[:20_000], 280)
two = RegexTokenizer()
two.train(words[:20_000] + " and more words" * 9, 290)
store = ChunkStore.from_iterator([words])
gpt4 = cbpe.GPT4Tokenizer()
Limit.LEAST, Limit.LEAST_PER_THREAD, Limit.PER_THREAD = 1, 1, 0
count = {"memory_limit": 500_000, "scratch_dir": folder}
for _ in range(2):
    one.save("m")
ChunkStore.from_iterator(["old"]).save("a.chunks")
with open("old.txt", "w") as file:
    file.write("old")
one.encode_file("old.txt", "a.bin")


def many_shards():
    two.encode_shards(corpus, "shards", 50_000)


writers = {
    "m": lambda: two.save("m"),
    "a.chunks": lambda: store.save("a.chunks"),
    "a.bin": lambda: two.encode_file(corpus, "a.bin"),
    "shards": many_shards,
    "vocab": lambda: gpt4.save_vocab("vocab"),
    "part.model": lambda: two.train(words, 5000, checkpoint="part", checkpoint_seconds=0),
    folder: lambda: ChunkStore.from_files(corpus, **count),
    folder + "/": lambda: RegexTokenizer().train_from_chunks(store, 300, **count),
}


def content():
    found = {}
    for at, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                found[os.path.join(at, name)] = file.read()
    return found


before = content()
descriptors = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, -1))
    writers.pop(folder + "/")       # tests/test_memory_limit.py has both
    writers.pop(folder)
else:
    size = os.statvfs(".")
    with open("ballast", "wb") as file:
        file.write(bytes(size.f_bavail * size.f_frsize - 8192))
    before = content()
for name, write in writers.items():
    try:
        write()
    except OSError as fault:
        named = str(fault.filename)
        assert named.startswith(name.rstrip("/")), (name, fault)
        assert fault.strerror in str(fault)
    else:
        raise SystemExit(f"{name}: no error")
    after = {path: data for path, data in content().items() if not path.startswith("./shards/")}
    if after.pop("./part.model", None):             # an earlier checkpoint, which was smaller
        RegexTokenizer().load("part.model")
        os.unlink("part.model")
    assert after == before, (name, sorted(after))
    for path, data in content().items():            # whole shards only
        assert not path.endswith(".bin") or path == "./a.bin" or path + ".idx.json" in content(), path
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
if how != "limit":
    os.unlink("ballast")
for name, write in writers.items():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write()
whole = RegexTokenizer()
whole.load("m.model")
assert whole.merges and whole._model.statistics is not None
if descriptors:
    assert len(os.listdir("/proc/self/fd")) == descriptors
print("fine")
"""


@POSIX
def test_a_file_that_may_not_grow_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert run(WRITERS, folder, "limit") == "fine\n"


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[str], None]]:
    """A disk of its own in a folder, until the block ends; gives what mounts it again with other options."""
    folder.mkdir()

    def mount(options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "cbpe-test", str(folder)]
        return subprocess.run(command, capture_output=True).returncode == 0

    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("mount") or not mount("size=100m"):
        pytest.skip("no small disk can be made here: that takes root on Linux")
    try:
        yield lambda options: None if mount(f"remount,{options}") else pytest.fail("cannot be mounted again")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_named_and_nothing_is_half_written(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk"):
        assert run(WRITERS, tmp_path / "disk", "disk") == "fine\n"


@pytest.mark.parametrize("why", ["its file system is read-only", "it is protected"])
def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path, why: str) -> None:
    tokenizer, folder = trained(), tmp_path / "a"
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        if why == "it is protected":
            folder.mkdir()
            folder.chmod(0o555)
            stack.callback(folder.chmod, 0o755)
            if os.access(folder, os.W_OK):
                pytest.skip("nothing is protected from root, nor on Windows by the mode")
        else:
            again = stack.enter_context(small_disk(folder))
            tokenizer.save(folder / "m")
            again("ro")
        before = contents(folder)
        for name, write in {
            "m.": lambda: tokenizer.save(folder / "m"),
            "a.chunks": lambda: ChunkStore.from_iterator(["a"]).save(folder / "a.chunks"),
            "a.bin": lambda: tokenizer.encode_file(tmp_path / "a.txt", folder / "a.bin"),
            "shards": lambda: tokenizer.encode_shards(tmp_path / "a.txt", folder / "shards", 100),
        }.items():
            with pytest.raises(OSError, match=r"Read-only|Permission") as raised:
                write()
            assert str(raised.value.filename).startswith(f"{folder}/{name}")
            assert contents(folder) == before


# ---- memory, threads and descriptors that are not there. Each in a child process, for what goes wrong may be fatal.

CALLS = """
import faulthandler, os, pickle, random, sys, threading, time, warnings
from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer
from cbpe.training.spill import Limit

warnings.simplefilter("ignore")
os.chdir(sys.argv[1])
Limit.LEAST, Limit.LEAST_PER_THREAD, Limit.PER_THREAD = 1, 1, 0
rng = random.Random(5)
text = " ".join("".join(rng.choices("abcdefgh é漢\\n", k=rng.randint(1, 30))) for _ in range(N_WORDS)) + "x" * 500
with open("a.txt", "w", encoding="utf-8") as file:
    file.write(text)
model = RegexTokenizer()
model.train(text, 400)
model.register_special_tokens({"<e>": 5000, "abc": 5001})
model.save("m")
pickled = pickle.dumps(model)
texts = [text[i : i + 3000] for i in range(0, len(text), 3000)]
ids = model.encode_ordinary(text)
ChunkStore.from_files("a.txt").save("a.chunks")


def fresh():
    return pickle.loads(pickled)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def train(make=RegexTokenizer, **how):
    tokenizer = make()
    tokenizer.train_from_files("a.txt", 290, **how)
    return tokenizer.merges


def load():
    tokenizer = RegexTokenizer()
    tokenizer.load("m.model")
    return tokenizer.vocab


def extend():
    tokenizer = fresh()
    tokenizer.extend("a.txt", 410)
    return tokenizer.merges


def encode_file():
    fresh().encode_file("a.txt", "a.bin", num_threads=2)
    return read("a.bin")


def count(**how):
    ChunkStore.from_files("a.txt", num_threads=2, **how).save("b.chunks")
    return read("b.chunks")


def merge():
    with ChunkStore.open("a.chunks") as store:
        return list(ChunkStore.merge([store, store], memory_limit=100_000))


calls = {
    "train": lambda: train(num_threads=2),
    "train by a pattern": lambda: train(lambda: RegexTokenizer(r"\\w+|\\s")),
    "train basic": lambda: train(BasicTokenizer),
    "train within": lambda: train(num_threads=2, memory_limit=100_000, scratch_dir="."),
    "extend": extend,
    "count": count,
    "count within": lambda: count(memory_limit=100_000),
    "merge": merge,
    "load": load,
    "encode": lambda: fresh().encode(text, "all"),
    "encode again": lambda: model.encode(text, "all"),
    "to numpy": lambda: fresh().encode_to_numpy(text, "all").tolist(),
    "batch": lambda: fresh().encode_batch(texts * 10, "all", num_threads=2),
    "count ids": lambda: fresh().count(text, "all"),
    "encode file": encode_file,
    "chunk": lambda: fresh()._encode_chunk(text.encode()),
    "decode": lambda: fresh().decode(ids),
    "decode from an iterator": lambda: fresh().decode(iter(ids)),
    "offsets": lambda: fresh().decode_with_offsets(ids),
}
before = model.merges
for call in calls.values():
    call()


def descriptors():
    return len(os.listdir("/proc/self/fd"))
"""

SWEEP = """
import re, resource

def outcome(call, room):
    size = 1024 * int(re.search(r"VmSize:\\s+(\\d+)", read("/proc/self/status").decode())[1])
    resource.setrlimit(resource.RLIMIT_AS, (size + room, -1))
    try:
        got, ended = call(), "ok"
    except MemoryError:
        got, ended = None, "MemoryError"
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    right = call()                                  # it works on
    assert got in (None, right), "a wrong result"
    assert model.merges == before
    assert threading.active_count() == 1
    return ended

for name, call in calls.items():
    seen = set()
    for room in (0, 1 << 15, *(int(1e5 * 2.5**i) for i in range(5)), 1 << 30):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                faulthandler.dump_traceback_later(60, exit=True)
                code = {"ok": 10, "MemoryError": 11}[outcome(call, room)]
            finally:
                if code == 1:
                    import traceback
                    traceback.print_exc()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (10, 11), f"{name} with room for {room:,} bytes more: ended with {code}"
        seen.add(code)
    assert 10 in seen, name
print("fine")
"""

INJECTION = """
import ctypes

library = ctypes.CDLL(None)
library.failing_arm.argtypes = [ctypes.c_long, ctypes.c_long]
library.failing_calls.restype = ctypes.c_long
n_failed = 0
for name, call in calls.items():
    right, open_files = call(), descriptors()
    for only_one in (True, False):
        n = 1
        while True:
            library.failing_arm(n, n if only_one else 1 << 60)
            try:
                got, failed = call(), False
            except MemoryError:
                got, failed = None, True
            n_calls = library.failing_calls()
            library.failing_arm(0, 0)
            assert got in (None, right), f"{name}: a wrong result without allocation {n}"
            n_failed += failed
            if n % 16 == 1:
                assert call() == right, f"{name}: wrong after the failure of allocation {n}"
                assert model.merges == before
            if n_calls < n:
                break
            n += 1 if n < 48 else 1 + n // 8        # all of them take minutes
    assert descriptors() == open_files, name
print(n_failed > 500)
"""


ONE_BY_ONE = """
import ctypes
import re

import numpy as np

from cbpe.encoding.finder import SpecialFinder
from cbpe.patterns import GPT2_SPLIT_PATTERN
from cbpe.splitting import split, splitter_for
from cbpe.training.chunks import ChunkCounter

finder, gpt2 = SpecialFinder({b"<e>": 300}), splitter_for(GPT2_SPLIT_PATTERN)


def row(number):
    return np.array([number], np.uint64)


def counted(count):
    counter = ChunkCounter(gpt2)
    count(counter)
    return [column.tolist() for column in counter.result()]


def size():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmSize:\\s+(\\d+) kB", file.read())[1])


calls = {
    "stretches": lambda: [column.tolist() for column in finder.stretches(b"a<e>b", row(0), row(5), row(70))],
    "split": lambda: gpt2.split("some text"),
    "masks": lambda: split._masks(b"a", "portable"),
    "block": lambda: split._split_block(gpt2, b"a b"),
    "mended": lambda: split._replace_utf8(b"a\\xff"),
    "count": lambda: counted(lambda counter: counter.count(b"a b" + bytes(64), 3, 3, True, 0, True)),
    "count what is wrong": lambda: counted(lambda counter: counter.count(b"a\\xff" + bytes(64), 2, 2, True, 0, False)),
    "count texts": lambda: counted(lambda counter: counter.count_texts(b"ab cd", row(0), row(5), row(0))),
    "large table": lambda: len(ChunkCounter(gpt2, expected=100_000)),
}
library = ctypes.CDLL(None)
library.failing_arm.argtypes = [ctypes.c_long, ctypes.c_long]
library.failing_calls.restype = ctypes.c_long
for name, call in calls.items():
    right, failed = call(), []
    for n in range(1, 100):
        library.failing_arm(n, n)
        try:
            assert call() == right, name
            break
        except MemoryError as fault:
            failed.append(str(fault))
        finally:
            n_calls = library.failing_calls()
            library.failing_arm(0, 0)
        assert call() == right, name
    assert n_calls == n - 1 == len(failed) > 0, (name, n_calls, n)
before = size()
for _ in range(20):
    library.failing_arm(1 << 60, 1 << 60)
    calls["large table"]()
library.failing_arm(0, 0)
assert size() < before + 4000
print("fine")
"""


def program(script: str, n_words: int) -> str:
    return CALLS.replace("N_WORDS", str(n_words)) + script


@LINUX
@limits_memory
def test_with_little_memory_it_is_a_memory_error_or_the_right_result(tmp_path: Path) -> None:
    assert run(program(SWEEP, 300), tmp_path) == "fine\n"


@pytest.fixture(scope="module")
def failing_malloc(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library in tests/failing_malloc.h, to be preloaded."""
    if SANITIZED:
        pytest.skip("sanitizers have a malloc of their own")
    compiler = shutil.which("gcc") or shutil.which("cc")
    library = tmp_path_factory.mktemp("failing") / "failing.so"
    source = Path(__file__).parent / "failing_malloc.h"
    command = [str(compiler), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-x", "c", str(source), "-o"]
    if not compiler or subprocess.run([*command, str(library)], capture_output=True).returncode:
        pytest.skip("no C compiler here, or another C library than glibc")
    return str(library)


@LINUX
def test_whichever_allocation_fails_it_is_a_memory_error(tmp_path: Path, failing_malloc: str) -> None:
    assert run(program(INJECTION, 60), tmp_path, LD_PRELOAD=failing_malloc) == "True\n"


@LINUX
def test_each_allocation_of_one_native_call_is_looked_at(failing_malloc: str) -> None:
    assert run(ONE_BY_ONE, LD_PRELOAD=failing_malloc) == "fine\n"


@LINUX
@thorough
@pytest.mark.parametrize("arguments", [("--every", "23"), ("encoder, all", "encoder, numbered", "split, spans")])
def test_whichever_allocation_of_python_s_fails_it_is_a_memory_error(arguments: tuple[str, ...]) -> None:
    """scripts/starve.py says what it does; here a part of it."""
    pytest.importorskip("_testcapi")
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "starve.py"), *arguments], capture_output=True, text=True, timeout=300
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stdout


def test_compiled_code_does_without_what_crashes_where_memory_runs_out() -> None:
    """Cython's list comprehensions, which release an item twice if the list cannot grow, and its except clauses, which
    release a traceback that could not be made.
    """
    sources = sorted((ROOT / "cbpe").rglob("*.pyx"))
    assert len(sources) > 10
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert not re.findall(r"^ *except\b.*:$", text, re.MULTILINE), source
        open_brackets = ""
        for token in tokenize.generate_tokens(io.StringIO(text.replace("?", "")).readline):
            if token.string in ("(", "[", "{"):
                open_brackets += token.string
            elif token.string in (")", "]", "}"):
                open_brackets = open_brackets[:-1]
            assert not (token.string == "for" and open_brackets.endswith("[")), f"{source}: {token.line}"


@LINUX
def test_without_descriptors_the_file_is_named_and_none_is_lost(tmp_path: Path) -> None:
    script = """
import resource

model.encode_shards("a.txt", "shards", 1000)
tried = {
    "files": lambda: ChunkStore.from_files(["a.txt"] * 3, num_threads=2),
    "a.chunks": lambda: ChunkStore.open("a.chunks"),
    "n": lambda: model.save("n"),
    "m.model": lambda: RegexTokenizer().load("m.model"),
    "a.": lambda: model.encode_file("a.txt", "a.bin"),
    "shards": lambda: model.encode_shards("a.txt", "shards", 2000, force=True),
    "b.chunks": lambda: count(memory_limit=100_000, scratch_dir="."),
}
open_files = descriptors()
for name, call in tried.items():
    ended = False
    for room in range(12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files - 1 + room, 4096))
        try:
            call()
            ended = True
        except OSError as fault:
            assert fault.filename is not None, (name, fault)
            assert "Too many open files" in str(fault)
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        assert descriptors() == open_files, (name, room)
    assert ended, name
print("fine")
"""
    assert run(program(script, 2000), tmp_path) == "fine\n"


def test_where_no_thread_can_be_started_the_caller_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, path = trained(), tmp_path / "a.txt"
    path.write_text(TEXT * 200, encoding="utf-8")
    texts = [TEXT * 10] * 20

    def results() -> list[Any]:
        store = ChunkStore.from_files(path, num_threads=3)
        tokenizer.encode_file(path, tmp_path / "a.bin", num_threads=3)
        ids, offsets = tokenizer.encode_batch_to_numpy(texts, num_threads=3)
        return [list(store), (tmp_path / "a.bin").read_bytes(), ids.tolist(), offsets.tolist(), tokenizer.encode(TEXT)]

    expected = results()
    start, left = threading.Thread.start, [0]

    def refuse(thread: threading.Thread) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for left[0] in (0, 1, 2, 3, 4, 5):
        assert results() == expected


@pytest.mark.parametrize("call", [lambda: heeding_ctrl_c(len, "a"), lambda: list(in_order(len, "abc", 2))])
def test_a_thread_that_dies_is_a_memory_error(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    monkeypatch.setattr(threading.Thread, "run", lambda self: None)
    with pytest.raises(MemoryError, match="a thread ended"):
        call()


def test_a_counting_thread_that_dies_is_a_memory_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 200, encoding="utf-8")
    monkeypatch.setattr(threading.Thread, "run", lambda self: None)
    with pytest.raises(MemoryError, match="a thread ended"):
        ChunkStore.from_files(tmp_path / "a.txt", num_threads=2)


# ---- Ctrl-C

INTERRUPTED = """
import signal
from cbpe.training import learn

learn.Checkpoint.is_due = lambda self: True
calls["checkpoint"] = lambda: fresh().train(text, 3000, checkpoint="part")
calls["decode many"] = lambda: [model.decode(ids * 20) for _ in range(50)]
calls["encode one"] = lambda: model.encode(text * 50, "all")
calls["encode long"] = lambda: model.encode(long, "all")
calls["batch in one thread"] = lambda: model.encode_batch([long], "all", num_threads=1)
calls["count long"] = lambda: model.count(long, "all")
calls["save"] = lambda: [model.save("n") for _ in range(50)]
calls["shards"] = lambda: model.encode_shards(["a.txt"] * 40, "shards", 1000, force=True)
long = text * (40_000_000 // len(text))
os.mkdir("scratch")
calls["train within"] = lambda: train(memory_limit=100_000, scratch_dir="scratch")
n_interrupted = n_lost = 0
for name, call in calls.items():
    for moment in MOMENTS:
        ready, told = os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                faulthandler.dump_traceback_later(120, exit=True)
                held, open_files, threads = model._model, descriptors(), threading.active_count()
                try:
                    os.write(told, b".")
                    while True:
                        call()
                except KeyboardInterrupt:
                    heard = time.monotonic()
                assert heard - float(read("sent")) < 3, "not heard in time"
                assert model._model is held
                deadline = time.monotonic() + 20        # native work in a thread goes on to its end
                while threading.active_count() > threads and time.monotonic() < deadline:
                    time.sleep(0.01)
                assert threading.active_count() == threads, "threads"
                assert descriptors() <= open_files + 1, "descriptors"
                assert os.getcwd() not in read("/proc/self/maps").decode(), "maps"
                assert not os.listdir("scratch"), "scratch files"
                assert not [each for each in os.listdir() if each.endswith(".tmp")], "temporary names"
                code = 0 if descriptors() == open_files else 3
            except BaseException as fault:
                print(name, moment, repr(fault))
            finally:
                sys.stdout.flush()
                os._exit(code)
        os.read(ready, 1)
        os.close(ready)
        os.close(told)
        time.sleep(moment)
        ended, status = 0, 0
        while not ended:        # Python loses one that comes while a weak reference's callback or a __del__ runs
            with open("sent", "w") as file:
                file.write(str(time.monotonic()))
            os.kill(pid, signal.SIGINT)
            deadline = time.monotonic() + 30
            while not ended and time.monotonic() < deadline:
                ended, status = os.waitpid(pid, os.WNOHANG)
                time.sleep(0.005)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 3)
        n_lost += code == 3     # the interrupt came when the system had opened a file, and before Python had stored it
        n_interrupted += 1
print(n_interrupted, n_lost < 4)
"""


@LINUX
def test_ctrl_c_is_heard_at_any_time_and_leaves_nothing(tmp_path: Path) -> None:
    n, moments = (1, "(rng.uniform(0, 0.3),)") if SHORT else (3, "(0.0, 0.02, rng.uniform(0, 0.3))")
    script = program(INTERRUPTED.replace("MOMENTS", moments), 3000)
    command = [sys.executable, "-c", script, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert (result.returncode, result.stdout) == (0, f"{n * 27} True\n"), result.stderr


def test_short_texts_are_encoded_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = trained()
    monkeypatch.setattr(threading.Thread, "start", lambda self: pytest.fail("a thread"))
    assert tokenizer.encode_batch([TEXT] * 9, num_threads=1) == [tokenizer.encode(TEXT)] * 9
    assert tokenizer.count(TEXT) == len(tokenizer.encode_to_numpy(TEXT))


@POSIX
def test_ctrl_c_is_heard_while_a_long_text_is_encoded(tmp_path: Path) -> None:
    script = """
        import os, signal, threading, time
        from cbpe import RegexTokenizer
        signal.signal(signal.SIGINT, signal.default_int_handler)
        tokenizer = RegexTokenizer()
        tokenizer.train("some words " * 9, 260)
        text = "".join(map(chr, range(0x4E00, 0x9000))) * 1500       # 70 MB, seconds
        for call in (tokenizer.encode, tokenizer.count, lambda text: tokenizer.encode_batch([text], num_threads=1)):
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            start = time.monotonic()
            try:
                call(text)
            except KeyboardInterrupt:
                print("heard", time.monotonic() - start < 2)
        os._exit(0)         # what was interrupted may go on to its end
    """
    assert set(run(script).splitlines()) <= {"heard True"}

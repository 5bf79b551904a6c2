"""What goes wrong outside of the library: disks that are full, files that shrink, memory that is not there.

Of each fault the same is asked: an error that says what is wrong and with which file, the old file or the new one under
every name, nothing left behind, and a library that works on.
"""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from cbpe import ChunkStore, RegexTokenizer
from cbpe.errors import ChunkStoreError
from cbpe.files import atomic_write
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
    assert result.stdout.count(" killed, ") == 6


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

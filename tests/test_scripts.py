"""The scripts as a user runs them, and what a source distribution holds.

scripts/train.py runs in a process of its own on corpora of a few lines; its models are compared with what the library
learns from the same text, its errors are one line each and leave nothing behind.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from budget import thorough

import cbpe

ROOT = Path(__file__).parent.parent
TEXT = "the cat sat on the mat.\r\nThe 12345 cats' mats\n\n\nhé hé 猫\n" * 3


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs scripts/train.py in cwd."""
    return subprocess.run(
        [sys.executable, "-X", "utf8", str(ROOT / "scripts" / "train.py"), *map(str, arguments)],
        cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8", timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    return tmp_path


def files_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -------------------------------------------------------------------------------- train.py: what it does


def test_train_writes_the_model_of_the_library(folder: Path) -> None:
    result = run("a.txt", "--vocab-size", 280, "--threads", 2, "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    expected = cbpe.RegexTokenizer()
    expected.train(TEXT, 280)
    expected.save(str(folder / "expected"))
    for suffix in (".model", ".vocab"):
        assert (folder / f"m{suffix}").read_bytes() == (folder / f"expected{suffix}").read_bytes()
    counted, merged, *wrote = result.stdout.splitlines()
    assert counted.startswith(f"counted  {len(TEXT.encode()):,} bytes, ")
    assert merged.startswith("merged   24 pairs in ")
    assert [line.split()[1] for line in wrote] == ["m.model", "m.vocab", "m.stats.json"]


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["--pattern", "gpt2"], cbpe.GPT2_SPLIT_PATTERN),
        (["--pattern", "gpt4"], cbpe.GPT4_SPLIT_PATTERN),
        (["--pattern", r"\p{L}+"], r"\p{L}+"),
    ],
)
def test_train_with_a_pattern(folder: Path, arguments: list[str], pattern: str) -> None:
    result = run("a.txt", "--vocab-size", 262, *arguments, "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    expected = cbpe.RegexTokenizer(pattern)
    expected.train(TEXT, 262)
    loaded = cbpe.RegexTokenizer()
    loaded.load(str(folder / "m.model"))
    assert (loaded.pattern, loaded.merges) == (pattern, expected.merges)


def test_train_basic(folder: Path) -> None:
    result = run("a.txt", "--vocab-size", 280, "--basic", "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    expected = cbpe.BasicTokenizer()
    expected.train(TEXT, 280)
    loaded = cbpe.BasicTokenizer()
    loaded.load(str(folder / "m.model"))
    assert loaded.merges == expected.merges


def test_train_on_several_files_saves_chunks_to_train_from_again(folder: Path) -> None:
    (folder / "b.txt").write_bytes(b"bbb aaa bbb")
    result = run("a.txt", "b.txt", "--vocab-size", 280, "--save-chunks", "s.chunks", "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    store = cbpe.ChunkStore.open(folder / "s.chunks")
    assert store.total_bytes == len(TEXT.encode()) + 11
    again = cbpe.RegexTokenizer()
    again.train_from_chunks(store, 280)
    loaded = cbpe.RegexTokenizer()
    loaded.load(str(folder / "m.model"))
    assert loaded.merges == again.merges


def test_special_tokens_are_numbered_after_the_merges_and_not_learned(folder: Path) -> None:
    (folder / "s.txt").write_bytes(b"<eot> <eot> <eot> hi hi")
    result = run("s.txt", "--vocab-size", 257, "--special", "<eot>", "--special", "<pad>", "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    loaded = cbpe.RegexTokenizer()
    loaded.load(str(folder / "m.model"))
    assert loaded.special_tokens == {"<eot>": 257, "<pad>": 258}
    assert loaded.merges == {(32, 104): 256}      # " h" of " hi hi"


def test_min_frequency_stops_without_a_warning_of_more_than_a_line(folder: Path) -> None:
    (folder / "c.txt").write_bytes(b"ab ab ab cd")
    result = run("c.txt", "--vocab-size", 300, "--min-frequency", 3, "-o", "m", cwd=folder)
    assert result.returncode == 0
    assert len(result.stderr.splitlines()) <= 1
    loaded = cbpe.RegexTokenizer()
    loaded.load(str(folder / "m.model"))
    assert loaded.merges == {(97, 98): 256}


def test_early_stop_warns_in_one_line(folder: Path) -> None:
    (folder / "c.txt").write_bytes(b"abcd")
    result = run("c.txt", "--vocab-size", 300, "-o", "m", cwd=folder)
    assert result.returncode == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("cbpe train: warning: ")
    assert "259" in line


def test_verbose_prints_a_line_a_merge(folder: Path) -> None:
    result = run("a.txt", "--vocab-size", 259, "--verbose", "-o", "m", cwd=folder)
    assert sum(line.startswith("merge ") for line in result.stdout.splitlines()) == 3


def test_errors_replace(folder: Path) -> None:
    (folder / "bad.txt").write_bytes(b"good \xff\xff")
    result = run("bad.txt", "--vocab-size", 257, "--errors", "replace", "-o", "m", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert (folder / "m.model").exists()


# ----------------------------------------------------------------------------- train.py: what goes wrong


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.txt", "--vocab-size", "255"], 2, "255"),
        (["a.txt", "--vocab-size", "many"], 2, "many"),
        (["a.txt", "--vocab-size", "300", "--min-frequency", "0"], 2, "--min-frequency"),
        (["a.txt", "--vocab-size", "300", "--threads", "0"], 2, "--threads"),
        (["a.txt", "--vocab-size", "300", "--pattern", "(a"], 2, "--pattern"),
        (["a.txt", "--vocab-size", "300", "--pattern", "gpt2", "--basic"], 2, "not allowed"),
        (["a.txt", "--vocab-size", "300", "--save-chunks", "nowhere/s.chunks"], 2, "nowhere"),
        (["missing.txt", "--vocab-size", "300"], 1, "missing.txt"),
        (["folder", "--vocab-size", "300"], 1, "folder"),
        (["bad.txt", "--vocab-size", "300"], 1, "offset 5"),
        (["a.txt", "--vocab-size", "300", "--special", ""], 1, "special"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(folder: Path, arguments: list[str], code: int, says: str) -> None:
    (folder / "folder").mkdir()
    (folder / "bad.txt").write_bytes(b"good \xff\xff tail")
    before = files_in(folder)
    result = run(*arguments, "-o", "m", cwd=folder)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]      # argparse prints its usage first
    assert last.startswith("cbpe train: error: ")
    assert says in last
    if code == 1:
        assert result.stderr.count("\n") == 1
    assert files_in(folder) == before


def test_an_output_that_cannot_be_written_is_known_before_counting(folder: Path) -> None:
    result = run("a.txt", "--vocab-size", 300, "-o", "nowhere/m", cwd=folder)
    assert result.returncode == 2
    assert "nowhere" in result.stderr.splitlines()[-1]
    assert "counted" not in result.stdout


# ---------------------------------------------------------------------------- the source distribution


def sdist(folder: Path) -> set[str]:
    """The names in the sdist of this checkout, made in a folder from a copy of what git would hold of it."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "*.so", "*.pyd")
    shutil.copytree(ROOT, folder / "checkout", ignore=ignored)
    command = [sys.executable, "setup.py", "-q", "sdist"]
    subprocess.run(command, cwd=folder / "checkout", check=True, capture_output=True, timeout=600)
    (archive,) = (folder / "checkout" / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as files:
        return {name.partition("/")[2] for name in files.getnames()}


@thorough
@pytest.mark.skipif(not (ROOT / "setup.py").exists(), reason="these tests run outside a checkout")
@pytest.mark.skipif(
    importlib.util.find_spec("Cython") is None or importlib.util.find_spec("setuptools") is None,
    reason="making an sdist takes Cython and setuptools (the test extra)",
)
def test_the_sdist_holds_every_source_of_the_package_and_no_generated_code(tmp_path: Path) -> None:
    names = sdist(tmp_path)
    suffixes = {".py", ".pyx", ".pxd", ".pyi", ".h", ".bin", ".typed"}
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "cbpe").rglob("*") if path.suffix in suffixes}
    others = {"cbpe/py.typed", "setup.py", "pyproject.toml", "LICENSE", "NOTICE", "README.md", "tests/test_scripts.py"}
    assert sources | others <= names
    products = (".c", ".cpp", ".so", ".pyd", ".pyc")
    assert [name for name in names if name.endswith(products) or name.startswith("build/")] == []

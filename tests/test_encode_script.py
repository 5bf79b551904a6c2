"""scripts/encode.py as a user runs it: what it writes is what the library encodes, its errors are one line each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cbpe

ROOT = Path(__file__).parent.parent
TEXT = "the cat sat on the mat.\r\nThe 12345 cats' mats\n\n\nhé hé 猫\n" * 3


def run(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs scripts/encode.py in cwd with the cbpe that this process imported."""
    home = str(Path(cbpe.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-X", "utf8", str(ROOT / "scripts" / "encode.py"), *map(str, arguments)],
        cwd=cwd, env={**os.environ, "PYTHONPATH": home}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    (tmp_path / "b.txt").write_bytes(b"bbb aaa <|end|>")
    tokenizer = cbpe.RegexTokenizer()
    tokenizer.train(TEXT, 270)
    tokenizer.register_special_tokens({"<|end|>": 300})
    tokenizer.save(tmp_path / "m")
    basic = cbpe.BasicTokenizer()
    basic.train(TEXT, 270)
    basic.save(tmp_path / "basic")
    return tmp_path


def test_encode_writes_the_ids_of_the_library(folder: Path) -> None:
    result = run("a.txt", "b.txt", "-m", "m.model", "--eot", "<|end|>", "--threads", 2, "-o", "o.bin", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    tokenizer = cbpe.RegexTokenizer()
    tokenizer.load(folder / "m.model")
    expected = [*tokenizer.encode_ordinary(TEXT), 300, *tokenizer.encode_ordinary("bbb aaa <|end|>"), 300]
    assert np.memmap(folder / "o.bin", np.uint16, "r").tolist() == expected
    encoded, *wrote = result.stdout.splitlines()
    assert encoded.startswith(f"encoded  2 sources, {len(expected):,} ids in ")
    assert [line.split()[1] for line in wrote] == ["o.bin", "o.bin.idx.json"]
    index = json.loads((folder / "o.bin.idx.json").read_text())
    assert (index["dtype"], index["count"], index["sources"]) == ("uint16", len(expected), ["a.txt", "b.txt"])


def test_encode_with_gpt4_basic_and_the_other_options(folder: Path) -> None:
    result = run("a.txt", "-m", "gpt4", "--eot", 100257, "--document-offsets", "-o", "o.bin", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    expected = [*cbpe.GPT4Tokenizer().encode_ordinary(TEXT), 100257]
    assert np.memmap(folder / "o.bin", np.uint32, "r").tolist() == expected
    assert json.loads((folder / "o.bin.idx.json").read_text())["document_offsets"] == [0, len(expected)]

    (folder / "bad.txt").write_bytes(TEXT.encode() + b"\xff")
    arguments = ["-m", "basic.model", "--dtype", "uint32", "--errors", "replace", "-o", "o.bin"]
    result = run("bad.txt", *arguments, cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    basic = cbpe.BasicTokenizer()
    basic.load(folder / "basic.model")
    assert np.memmap(folder / "o.bin", np.uint32, "r").tolist() == basic.encode_ordinary(TEXT + "\ufffd")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a.txt", "-m", "m.model", "--threads", "0"], 2, "--threads"),
        (["a.txt", "-m", "m.model", "--dtype", "uint8"], 2, "--dtype"),
        (["a.txt", "-m", "m.model", "-o", "nowhere/o.bin"], 2, "nowhere"),
        (["a.txt"], 2, "--model"),
        (["a.txt", "-m", "gpt4", "--dtype", "uint16"], 1, "too small"),
        (["a.txt", "-m", "m.model", "--eot", "<|pad|>"], 1, "<|pad|>"),
        (["a.txt", "-m", "m.model", "--eot", "999"], 1, "999"),
        (["a.txt", "-m", "gpt5"], 1, "gpt5"),
        (["a.txt", "-m", "a.txt"], 1, "a.txt"),
        (["missing.txt", "-m", "m.model"], 1, "missing.txt"),
        (["folder", "-m", "m.model"], 1, "folder"),
        (["bad.txt", "-m", "m.model"], 1, "offset 5"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(folder: Path, arguments: list[str], code: int, says: str) -> None:
    (folder / "folder").mkdir()
    (folder / "bad.txt").write_bytes(b"good \xff\xff tail")
    before = {path.name for path in folder.iterdir()}
    result = run("-o", "o.bin", *arguments, cwd=folder)
    assert result.returncode == code
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]      # argparse prints its usage first
    assert last.startswith("cbpe encode: error: ")
    assert says in last
    if code == 1:
        assert result.stderr.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == before

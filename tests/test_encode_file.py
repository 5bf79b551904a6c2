"""encode_file: the file of ids against encode_ordinary of the text, and what is left behind when it fails: nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from peak import PEAK_MEMORY, needs_peak_memory

import cbpe
from cbpe import BasicTokenizer, CorpusDecodeError, GPT4Tokenizer, RegexTokenizer, SpecialTokenError, UnknownIdError
from cbpe.encoding import files

TEXT = "the cat sat on the mat.\r\nThe 12345 cats' mats\n\n\n  hé hé 猫 👍🏽\n\t\n"
ALPHABET = ["the ", "cat", "'re", "12", "é", "猫", "👍🏽", "!", "a" * 30]
ALPHABET += ["\n", "\n\n", "\n!", "\r\n", " ", "\t", "\u3000", "\u2028"]
PATTERNS = [None, cbpe.GPT2_SPLIT_PATTERN, cbpe.GPT4_SPLIT_PATTERN, r"\w+|\s"]


def trained(pattern: str | None, vocab_size: int = 270) -> BasicTokenizer | RegexTokenizer:
    tokenizer = BasicTokenizer() if pattern is None else RegexTokenizer(pattern)
    tokenizer.train(TEXT * 3 + "\n\n\nx\n\n y", vocab_size)
    return tokenizer


def nasty_text(seed: int, n: int) -> str:
    return "".join(random.Random(seed).choices(ALPHABET, k=n))


def written(path: Path) -> list[int]:
    index = json.loads(Path(f"{path}.idx.json").read_text())
    ids = np.fromfile(path, np.dtype(index["dtype"]).newbyteorder("<"))
    assert index["count"] == len(ids)
    return ids.tolist()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART", 40)


# --------------------------------------------------------------------------------------------------- what it writes


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("pattern", PATTERNS, ids=["whole", "gpt2", "gpt4", "regex"])
@pytest.mark.usefixtures("small_pieces")
def test_the_ids_are_those_of_the_whole_text(tmp_path, pattern, num_threads):
    tokenizer = trained(pattern)
    for seed in range(40):
        text = nasty_text(seed, seed * 5)
        (tmp_path / "a.txt").write_bytes(text.encode())
        count = tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", num_threads=num_threads)
        expected = tokenizer.encode_ordinary(text)
        assert written(tmp_path / "a.bin") == expected
        assert count == len(expected)


@pytest.mark.usefixtures("small_pieces")
def test_long_lines_and_short_ones(tmp_path):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    for lengths in ([1000, 3, 3, 500, 0, 1, 39, 40, 41, 42], [5] * 200, [70] * 30, [10_000], [0] * 300):
        text = "\n".join("ab c" * (length // 4) + "d" * (length % 4) for length in lengths)
        (tmp_path / "a.txt").write_bytes(text.encode())
        tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin")
        assert written(tmp_path / "a.bin") == tokenizer.encode_ordinary(text)


def test_memmap_opens_it(tmp_path):
    tokenizer = GPT4Tokenizer()
    (tmp_path / "a.txt").write_bytes(TEXT.encode())
    count = tokenizer.encode_file(str(tmp_path / "a.txt"), str(tmp_path / "a.bin"))
    ids = np.memmap(tmp_path / "a.bin", dtype=np.uint32, mode="r")
    assert ids.tolist() == tokenizer.encode_ordinary(TEXT)
    assert len(ids) == count
    assert tokenizer.decode(ids) == TEXT


@pytest.mark.usefixtures("small_pieces")
def test_several_files_with_an_end_of_text(tmp_path):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    tokenizer.register_special_tokens({"<|end|>": 5000})
    texts = [TEXT, "", "a\n\n", "<|end|> is text here\n", nasty_text(1, 100)]
    paths = [tmp_path / f"{i}.txt" for i in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.encode())
    lists = [tokenizer.encode_ordinary(text) for text in texts]
    for eot, number in (("<|end|>", 5000), (5000, 5000), (np.int64(97), 97)):
        tokenizer.encode_file(paths, tmp_path / "o.bin", eot=eot, document_offsets=True, num_threads=2)
        assert written(tmp_path / "o.bin") == [i for ids in lists for i in (*ids, number)]
        index = json.loads((tmp_path / "o.bin.idx.json").read_text())
        assert index["eot"] == number
        assert index["document_offsets"] == np.cumsum([0] + [len(ids) + 1 for ids in lists]).tolist()
    tokenizer.encode_file(iter(paths), tmp_path / "o.bin")
    assert written(tmp_path / "o.bin") == [i for ids in lists for i in ids]
    assert tokenizer.encode_file([], tmp_path / "o.bin") == 0
    assert (tmp_path / "o.bin").read_bytes() == b""


def test_what_the_index_says(tmp_path):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    (tmp_path / "a.txt").write_bytes(b"abc")
    tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin")
    index = json.loads((tmp_path / "a.bin.idx.json").read_text())
    assert index == {
        "dtype": "uint16", "byte_order": "little", "count": 3, "model_sha256": tokenizer._model.sha256, "max_id": 269,
        "eot": None, "sources": [str(tmp_path / "a.txt")], "cbpe_version": cbpe.__version__,
    }


@pytest.mark.parametrize("special_id", [65535, 65536])
def test_the_type_is_the_smallest_that_holds_every_id_C20(tmp_path, special_id):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    tokenizer.register_special_tokens({"<|end|>": special_id})
    (tmp_path / "a.txt").write_bytes(b"a")
    tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", eot="<|end|>")
    assert written(tmp_path / "a.bin") == [97, special_id]
    assert (tmp_path / "a.bin").stat().st_size == (4 if special_id < 65536 else 8)
    tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", eot="<|end|>", dtype="uint32")
    assert (tmp_path / "a.bin").read_bytes() == np.array([97, special_id], "<u4").tobytes()
    if special_id == 65536:
        with pytest.raises(ValueError, match=r"too small.*65536"):
            tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "b.bin", dtype=np.uint16)
    for dtype in (np.uint8, np.int32, np.int64, ">u2", float):
        with pytest.raises(ValueError, match="uint16 or uint32"):
            tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "b.bin", dtype=dtype)
    assert not (tmp_path / "b.bin").exists()


@pytest.mark.usefixtures("small_pieces")
def test_a_subclass_that_encodes_its_own_way_is_asked(tmp_path):
    class Whole(RegexTokenizer):
        def encode_ordinary(self, text):
            return [70_000, len(text)]

    (tmp_path / "a.txt").write_bytes(TEXT.encode() * 5)
    Whole().encode_file(tmp_path / "a.txt", tmp_path / "a.bin")
    assert written(tmp_path / "a.bin") == [70_000, len(TEXT) * 5]
    with pytest.raises(OverflowError, match="70000"):
        Whole().encode_file(tmp_path / "a.txt", tmp_path / "b.bin", dtype=np.uint16)
    assert not (tmp_path / "b.bin").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.usefixtures("small_pieces")
def test_a_pipe_is_read_C15(tmp_path):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    text = nasty_text(2, 3000)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(text.encode(),), daemon=True)
    writer.start()
    tokenizer.encode_file(tmp_path / "pipe", tmp_path / "a.bin")
    writer.join(10)
    assert written(tmp_path / "a.bin") == tokenizer.encode_ordinary(text)


def test_the_hash_follows_what_decides_about_ids():
    def fresh() -> RegexTokenizer:
        return trained(cbpe.GPT4_SPLIT_PATTERN)

    hashes = [fresh()._model.sha256]
    assert fresh()._model.sha256 == hashes[0]
    same = fresh()
    same.merges = dict(same.merges)
    assert same._model.sha256 == hashes[0]
    for change in (
        lambda tokenizer: tokenizer.register_special_tokens({"<a>": 1000}),
        lambda tokenizer: tokenizer.register_special_tokens({"<a>": 1001}),
        lambda tokenizer: tokenizer.register_special_tokens({"<a>": 1000, "<a>b": 1001}),
        lambda tokenizer: tokenizer.register_special_tokens({"<a>b": 1001, "<a>": 1000}),
        lambda tokenizer: setattr(tokenizer, "pattern", cbpe.GPT2_SPLIT_PATTERN),
        lambda tokenizer: tokenizer.merges.popitem(),
        lambda tokenizer: tokenizer.train("other text, other merges", 270),
    ):
        changed = fresh()
        change(changed)
        hashes.append(changed._model.sha256)
    hashes.append(GPT4Tokenizer()._model.sha256)
    # to merge one pair at a time makes a difference only where a merge makes a lower id
    assert replace(fresh()._model, one_by_one=True).sha256 == hashes[0]
    lower = RegexTokenizer()
    lower.merges = {(97, 98): 300, (300, 99): 256}
    hashes += [lower._model.sha256, replace(lower._model, one_by_one=True).sha256]
    assert len(set(hashes)) == len(hashes)


# ------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("pattern", PATTERNS, ids=["whole", "gpt2", "gpt4", "regex"])
@pytest.mark.usefixtures("small_pieces")
def test_bytes_that_are_not_utf8_C14(tmp_path, pattern):
    tokenizer = trained(pattern)
    good = b"good line\n" * 20
    for number, bad in enumerate((b"\xff", b"\xe7\x8c\nx", b"x\xf0\x9f", b"\xed\xa0\x80 a\n", b"\n\x80\n")):
        data = good + bad + (good if number != 2 else b"")
        (tmp_path / "a.txt").write_bytes(data)
        with pytest.raises(UnicodeDecodeError) as plain:
            data.decode()
        with pytest.raises(CorpusDecodeError, match=r"a\.txt") as error:
            tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", num_threads=2)
        assert error.value.offset == plain.value.start
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
        tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "b.bin", errors="replace")
        assert written(tmp_path / "b.bin") == tokenizer.encode_ordinary(data.decode("utf-8", "replace"))
        (tmp_path / "b.bin").unlink()
        (tmp_path / "b.bin.idx.json").unlink()


def test_a_failure_leaves_what_was_there(tmp_path):
    tokenizer = trained(cbpe.GPT4_SPLIT_PATTERN)
    (tmp_path / "a.txt").write_bytes(b"abc")
    (tmp_path / "bad.txt").write_bytes(b"abc\xff")
    tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin")
    (tmp_path.parent / f"{tmp_path.name}_empty").mkdir()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    out = tmp_path / "a.bin"
    for wrong, how in (
        (CorpusDecodeError, {"path": [tmp_path / "a.txt", tmp_path / "bad.txt"]}),
        (FileNotFoundError, {"path": tmp_path / "missing.txt"}),
        (FileNotFoundError, {"path": tmp_path.parent / f"{tmp_path.name}_empty"}),
        (TypeError, {"path": 5}),
        (ValueError, {"errors": "ignore"}),
        (ValueError, {"num_threads": 0}),
        (SpecialTokenError, {"eot": "<|end|>"}),
        (UnknownIdError, {"eot": 5000}),
        (TypeError, {"eot": 1.5}),
        (ValueError, {"out_path": tmp_path / "a.txt"}),
        (FileNotFoundError, {"out_path": tmp_path / "nowhere" / "a.bin"}),
    ):
        with pytest.raises(wrong) as raised:
            tokenizer.encode_file(**{"path": tmp_path / "a.txt", "out_path": out, **how})
        assert ".tmp" not in str(raised.value)      # a name that the caller has never heard
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.alone
@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
@pytest.mark.parametrize("pattern", ["cbpe.GPT4_SPLIT_PATTERN", "r'\\w+|\\s'"])
def test_ctrl_c_is_heard_and_leaves_nothing_C19(tmp_path, pattern):
    (tmp_path / "a.txt").write_bytes(b"some words and 1234 numbers\n" * 1_000_000)
    script = textwrap.dedent(f"""
        import cbpe
        tokenizer = cbpe.RegexTokenizer({pattern})
        tokenizer.train("some words", 260)
        print("ready", flush=True)
        try:
            while True:
                tokenizer.encode_file("a.txt", "a.bin", num_threads=2)
        except KeyboardInterrupt:
            print("heard", flush=True)
    """)
    environment = {**os.environ, "PYTHONPATH": str(Path(cbpe.__file__).parent.parent)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
        sent = time.monotonic()
        try:
            heard = process.stdout.readline()
            seconds = time.monotonic() - sent
            process.communicate(timeout=20)
        finally:
            process.kill()
    assert heard == "heard\n"
    assert seconds < 2
    assert not list(tmp_path.glob("*.tmp"))


@needs_peak_memory
def test_memory_does_not_grow_with_the_file(tmp_path):
    block = (TEXT * 400).encode()
    with open(tmp_path / "a.txt", "wb") as file:
        for _ in range(100_000_000 // len(block)):
            file.write(block)
    script = f"""
{PEAK_MEMORY}
import sys
import cbpe
tokenizer = cbpe.RegexTokenizer()
tokenizer.train(sys.argv[1], 280)
before = peak_memory()
count = tokenizer.encode_file("a.txt", "a.bin", num_threads=2)
print(count, peak_memory() - before)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(cbpe.__file__).parent.parent)}
    command = [sys.executable, "-c", script, TEXT * 3]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    count, grown = map(int, result.stdout.split())
    assert count * 2 == (tmp_path / "a.bin").stat().st_size
    assert grown < 250_000_000

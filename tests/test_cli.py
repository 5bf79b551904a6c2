"""The command cbpe: what each subcommand writes against the library, its examples, its errors, and how it is stopped.

Most of it runs in this process; what signals and pipes do, in processes of their own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

import cbpe
from cbpe import ChunkStore, RegexTokenizer, WordTokenizer
from cbpe.cli import command
from cbpe.cli.decode import numbers_of

TEXT = "".join(path.read_text(encoding="utf-8") for path in sorted(Path(cbpe.__file__).parent.glob("*.py")))
SUBCOMMANDS = ["train", "count", "merge", "encode", "decode", "info", "stats"]
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals, pipes and a shell as POSIX has them")


def run(*arguments: object, code: int = 0, stdin: str | bytes = b"") -> Result:
    result = CliRunner().invoke(command, [str(each) for each in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def run_json(*arguments: object, stdin: str | bytes = b"") -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


@contextlib.contextmanager
def started(*arguments: object, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which does not outlive the block."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "cbpe", *map(str, arguments)], **{**pipes, **how}) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with two texts and a model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_bytes(TEXT.encode())
    (tmp_path / "more.txt").write_bytes("Größe, 猫 <|end|> tail\n".encode() * 20)
    tokenizer = RegexTokenizer()
    tokenizer.train(TEXT, 400)
    tokenizer.register_special_tokens({"<|end|>": 500})
    tokenizer.save("mine")
    return tmp_path


@pytest.fixture
def mine(folder: Path) -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.load("mine.model")
    return tokenizer


# ------------------------------------------------------------------------------------------------- what helps


def examples(name: str | None) -> list[str]:
    """The lines of a help text that are commands: "cbpe ...", or a pipe into it."""
    text = run(*([name] if name else []), "--help").stdout
    return re.findall(r"^ {4}((?:cbpe|echo .* cbpe) .*)$", text, re.MULTILINE)


def test_the_examples_of_the_help_run_as_they_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_bytes(TEXT.encode())
    (tmp_path / "more.txt").write_bytes(TEXT.encode()[:20_000])
    shim = tmp_path / "bin" / "cbpe"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cbpe "$@"\n')
    shim.chmod(0o755)
    for name in (None, *SUBCOMMANDS):
        lines = examples(name)
        assert len(lines) >= 3
        for line in lines:
            words = shlex.split(line)
            if words[0] == "cbpe":
                result = run(*words[1:])
                assert result.stderr == ""
                assert result.stdout or "decode" in words
            elif os.name == "posix":
                environment = {**os.environ, "PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}"}
                shell = subprocess.run(line, shell=True, capture_output=True, env=environment, check=True, timeout=60)
                assert shell.stdout == b"hello world"
    assert (tmp_path / "again.txt").read_bytes() == TEXT.encode()
    assert (tmp_path / "shards" / "shard-00001.bin").stat().st_size == 4000


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_help_fits_a_terminal_and_says_what_is_written(name):
    text = run(name, "-h").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "rites" in text or "Nothing is written" in text
    for flag in ("--json", "--quiet", "--debug"):
        assert flag in text
    assert name in run("--help").stdout


def test_version_and_no_command():
    assert run("--version").stdout == f"cbpe, version {cbpe.__version__}\n"
    result = run(code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: cbpe")


def test_the_library_does_without_click():
    script = "import cbpe, sys; sys.exit('click' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with started("--version") as process:
        assert process.communicate(timeout=60) == (f"cbpe, version {cbpe.__version__}\n".encode(), b"")


def test_a_corpus_may_be_lines_in_a_folder_or_stdin(folder, mine):
    texts = [TEXT[:5000], "a <|end|> b", TEXT[5000:6000]]
    lines = "".join(json.dumps({"body": text}) + "\n" for text in texts)
    (folder / "lines").mkdir()
    (folder / "lines" / "a.jsonl").write_text(lines)
    (folder / "lines" / "b.jsonl").write_text("no JSON\n")
    how = ["lines", "--text-field", "body", "--errors", "skip"]
    assert "warning: " in run("train", *how, "--vocab-size", 280, "--special", "<|end|>", "-o", "a").stderr
    expected = RegexTokenizer()
    expected.train_from_iterator(texts, 280, special_tokens=["<|end|>"])
    expected.save("expected")
    assert Path("a.model").read_bytes() == Path("expected.model").read_bytes()
    result = run("encode", *how, "-m", "mine.model", "--eot", 10, "-o", "a.bin", "--json")
    assert "b.jsonl" in json.loads(result.stdout)["warnings"][0]
    assert json.loads(result.stdout)["sources"] == 2
    assert np.fromfile("a.bin", "<u2").tolist() == [i for text in texts for i in (*mine.encode_ordinary(text), 10)]
    assert run("count", *how[:-2], "-o", "a", code=1).stderr.startswith("cbpe count: error: lines")
    found = run_json("encode", "more.txt", "--separator", "<|end|>", "--eot", 10, "-m", "mine.model", "-o", "b.bin")
    assert found["ids"] == np.fromfile("b.bin", "<u2").size
    assert (np.fromfile("b.bin", "<u2") == 10).sum() == 21 + Path("more.txt").read_text(encoding="utf-8").count("\n")
    with started("stats", "-", "-m", "mine.model", "--json", stdin=subprocess.PIPE) as process:
        stdout, stderr = process.communicate(TEXT.encode(), timeout=60)
    assert (json.loads(stdout)["bytes"], stderr) == (len(TEXT.encode()), b"")


# -------------------------------------------------------------------------------------------------- train


def test_train_on_files_and_again_on_their_chunks(folder):
    result = run("train", "corpus.txt", "more.txt", "--vocab-size", 300, "--special", "<|end|>", "-o", "a",
                 "--save-chunks", "s.chunks")  # fmt: skip
    expected = RegexTokenizer()
    expected.train_from_files(["corpus.txt", "more.txt"], 300, special_tokens=["<|end|>"])
    expected.save("expected")
    assert result.stdout.splitlines()[-1].startswith("wrote    s.chunks (")
    run("train", "--from-chunks", "s.chunks", "--vocab-size", 300, "--special", "<|end|>", "-o", "b")
    for name in ("a.model", "b.model"):
        assert Path(name).read_bytes() == Path("expected.model").read_bytes()


def test_train_takes_the_pattern_of_a_store(folder):
    run("count", "corpus.txt", "--pattern", "gpt2", "-o", "gpt2.chunks")
    run("count", "corpus.txt", "--basic", "-o", "basic.chunks")
    run("train", "--from-chunks", "gpt2.chunks", "--vocab-size", 260, "-o", "a")
    run("train", "--from-chunks", "basic.chunks", "--vocab-size", 260, "-o", "b")
    assert Path("a.model").read_text().splitlines()[1] == cbpe.GPT2_SPLIT_PATTERN
    assert Path("b.model").read_text().splitlines()[1] == ""
    for wrong in (["--pattern", "gpt4"], ["--basic"]):
        result = run("train", "--from-chunks", "gpt2.chunks", "--vocab-size", 260, *wrong, "-o", "c", code=1)
        assert "counted with pattern" in result.stderr


def test_train_for_machines(folder):
    found = run_json("train", "corpus.txt", "--vocab-size", 300, "--special", "<|end|>", "-o", "a")
    assert found["bytes"] == len(TEXT.encode())
    assert found["merges"] == 44
    assert found["special_tokens"] == {"<|end|>": 300}
    assert found["written"] == {name: Path(name).stat().st_size for name in ("a.model", "a.vocab", "a.stats.json")}
    assert found["warnings"] == []
    result = run("train", "more.txt", "--vocab-size", 3000, "--verbose", "--json", "-o", "a")
    found = json.loads(result.stdout)
    assert found["warnings"] == [f"training stopped at a vocabulary of {256 + found['merges']} instead of 3000: "
                                 "no pair is left to merge"]  # fmt: skip
    assert f"cbpe train: warning: {found['warnings'][0]}\n" in result.stderr
    assert f"merge 1/{3000 - 256}: " in result.stderr


def test_train_goes_on_from_a_checkpoint_or_a_model(folder):
    counted = ["corpus.txt", "--special", "<|end|>", "--vocab-size"]
    run("train", *counted, 300, "-o", "whole")
    run("train", *counted, 290, "-o", "part")
    for model in ("part.model", "nosuch.model"):
        if model == "part.model":
            os.replace("part.model", "ck.model")
        run("train", *counted, 300, "--checkpoint", "ck", "--resume", "-o", "a")
        assert Path("a.model").read_bytes() == Path("whole.model").read_bytes()
        assert Path("ck.model").read_text().count("\n") == Path("whole.model").read_text().count("\n") - 1
        Path("ck.model").unlink()
    extending = ["train", "more.txt", "--extend", "whole.model", "--vocab-size", 310, "-o", "b"]
    assert run(*extending, code=1).stderr.startswith("cbpe train: error: special token '<|end|>' has the id 300")
    run(*extending, "--special", "<|end|>")
    old, new = RegexTokenizer(), RegexTokenizer()
    old.load("whole.model")
    new.load("b.model")
    assert list(new.merges)[:44] == list(old.merges)
    assert len(new.merges) == 54
    assert new.special_tokens == {"<|end|>": 310}


def test_train_leaves_out_rare_chunks(folder):
    run("train", "corpus.txt", "--vocab-size", 300, "--min-count", 5, "-o", "a")
    expected = RegexTokenizer()
    expected.train_from_chunks(ChunkStore.from_files("corpus.txt").pruned(5), 300)
    expected.save("expected")
    assert Path("a.model").read_bytes() == Path("expected.model").read_bytes()


def test_a_memory_limit_changes_nothing_but_memory(folder):
    limit = ["--memory-limit", "64MB", "--scratch-dir", "."]
    for name, how in (("a", []), ("b", limit)):
        run("train", "corpus.txt", "--vocab-size", 300, *how, "-o", name)
        run("count", "corpus.txt", *how, "-o", f"{name}.chunks")
        run("merge", f"{name}.chunks", f"{name}.chunks", *how, "-o", f"{name}2.chunks")
    for suffix in (".model", ".chunks", "2.chunks"):
        assert Path(f"a{suffix}").read_bytes() == Path(f"b{suffix}").read_bytes()


def test_quiet_says_nothing(folder):
    result = run("train", "corpus.txt", "--vocab-size", 300, "--quiet", "-o", "a")
    assert result.output == ""
    assert run("encode", "corpus.txt", "-m", "a.model", "--quiet", "-o", "a.bin").output == ""


# -------------------------------------------------------------------------------------------- count and merge


def test_shares_merge_to_the_store_of_the_whole(folder):
    ChunkStore.from_files(["corpus.txt", "more.txt"], special_tokens=["<|end|>"]).save("whole.chunks")
    for i in range(3):
        run("count", "corpus.txt", "more.txt", "--special", "<|end|>", "--shard", f"{i}/3", "-o", f"{i}.chunks")
    found = run_json("merge", "2.chunks", "0.chunks", "1.chunks", "-o", "merged.chunks")
    assert Path("merged.chunks").read_bytes() == Path("whole.chunks").read_bytes()
    with ChunkStore.open("whole.chunks") as store:
        assert (found["stores"], found["bytes"], found["chunks"]) == (3, store.total_bytes, len(store))


# --------------------------------------------------------------------------------------------- encode and decode


def test_encode_one_file(folder, mine):
    found = run_json("encode", "corpus.txt", "more.txt", "-m", "mine.model", "--eot", "<|end|>", "-o", "a.bin")
    mine.encode_file(["corpus.txt", "more.txt"], "b.bin", eot=500)
    for suffix in ("", ".idx.json"):
        assert Path(f"a.bin{suffix}").read_bytes() == Path(f"b.bin{suffix}").read_bytes()
    assert found["ids"] * 2 == Path("a.bin").stat().st_size
    assert set(found["written"]) == {"a.bin", "a.bin.idx.json"}


def test_encode_shards(folder, mine):
    found = run_json("encode", "corpus.txt", "-m", "mine.model", "--eot", 500, "--shard-tokens", 5000, "-o", "a")
    assert tuple(mine.encode_shards("corpus.txt", "b", 5000, eot=500)) == (
        found["ids"], found["shards"], found["shards_made"],
    )  # fmt: skip
    assert {path.name: path.read_bytes() for path in Path("a").iterdir()} == {
        path.name: path.read_bytes() for path in Path("b").iterdir()
    }
    again = run("encode", "corpus.txt", "-m", "mine.model", "--eot", 500, "--shard-tokens", 5000, "-o", "a")
    assert f"0 of {found['shards']} shards in a; {found['shards']} were there" in again.stdout
    os.truncate("a/shard-00001.bin", 100)
    how = ["encode", "corpus.txt", "-m", "mine.model", "--eot", 500, "-o", "a"]
    assert "shard-00001.bin: damaged" in run(*how, "--shard-tokens", 5000, code=1).stderr
    assert run_json(*how, "--shard-tokens", 5000, "--force")["shards_made"] == 1
    assert "shard_tokens 5000, not 4000" in run(*how, "--shard-tokens", 4000, code=1).stderr


def test_decode_gives_back_the_text(folder, mine):
    run("encode", "corpus.txt", "-m", "mine.model", "-o", "a.bin")
    run("encode", "corpus.txt", "more.txt", "-m", "mine.model", "--shard-tokens", 7001, "-o", "shards")
    ids = np.fromfile("a.bin", "<u2")
    assert run("decode", "a.bin", "-m", "mine.model").stdout_bytes == TEXT.encode()
    shards = sorted(Path("shards").glob("*.bin"))
    assert run("decode", *shards, "-m", "mine.model", "-o", "again.txt").stdout.startswith("decoded  ")
    assert Path("again.txt").read_bytes() == TEXT.encode() + Path("more.txt").read_bytes()
    part = run("decode", "a.bin", "-m", "mine.model", "--skip", 1000, "--limit", 70)
    assert part.stdout_bytes == mine.decode_bytes(ids[1000:1070])
    assert run("decode", "a.bin", "-m", "mine.model", "--limit", 0).stdout == ""
    found = run_json("decode", "a.bin", "-m", "mine.model", "--limit", 5)
    assert found == {"ids": 5, "bytes": len(found["text"]), "text": mine.decode(ids[:5]), "warnings": []}
    os.rename("a.bin", "b.bin")
    assert "--dtype" in run("decode", "b.bin", "-m", "mine.model", code=1).stderr
    assert run("decode", "b.bin", "-m", "mine.model", "--dtype", "uint16").stdout_bytes == TEXT.encode()


def test_decode_reads_numbers(folder, mine, monkeypatch):
    ids = mine.encode(TEXT[:3000])
    for text in (str(ids), " ".join(map(str, ids)), "\n".join(map(str, ids)) + "\n", json.dumps(ids)):
        for size in (1 << 20, 7, 1):
            monkeypatch.setattr("cbpe.cli.decode.BLOCK", size)
            assert run("decode", "-m", "mine.model", stdin=text).stdout_bytes == TEXT[:3000].encode()
    binary = np.array(ids, "<u4").tobytes()
    for size in (1 << 20, 7):
        monkeypatch.setattr("cbpe.cli.decode.BLOCK", size)
        result = run("decode", "-", "--dtype", "uint32", "-m", "mine.model", stdin=binary)
        assert result.stdout_bytes == TEXT[:3000].encode()
    Path("numbers.txt").write_text("104 105")
    assert run("decode", "numbers.txt", "-m", "gpt2").stdout == cbpe.get_encoding("gpt2").decode([104, 105])
    assert run_json("decode", "-m", "mine.model", stdin="231 140")["text"] == "\ufffd"


def test_decode_does_not_look_for_the_end_of_what_is_no_number(monkeypatch):
    monkeypatch.setattr("cbpe.cli.decode.BLOCK", 1000)
    file = io.BytesIO(b"1" * 10_000)
    with pytest.raises(ValueError, match="endless: no id: '1111"):
        list(numbers_of(file, "endless"))
    assert file.tell() == 1000


# ------------------------------------------------------------------------------------------------ info and stats


def test_info_of_a_model(folder, mine):
    found = run_json("info", "mine.model", "--top", 3)
    assert found["kind"] == "model of a RegexTokenizer"
    assert (found["vocab_size"], found["merges"], found["max_id"]) == (400, 144, 500)
    assert found["pattern"] == cbpe.GPT4_SPLIT_PATTERN
    assert found["pattern_name"] == "gpt4"
    assert found["special_tokens"] == {"<|end|>": 500}
    assert [len(bytes.fromhex(token["hex"])) for token in found["longest_tokens"]] == sorted(
        map(len, mine.vocab.values()), reverse=True
    )[:4][1:] or found["longest_tokens"]
    text = run("info", "mine.model").stdout
    assert re.search(r"^vocab size +400$", text, re.MULTILINE)
    assert re.search(r"^special tokens +'<\|end\|>' 500$", text, re.MULTILINE)


def test_info_of_an_encoding():
    assert run_json("info", "o200k_harmony")["max_id"] == 201087
    assert "and 1,071 more" in run("info", "o200k_harmony").stdout
    assert run_json("info", "gpt4")["vocab_size"] == 100256


def test_a_model_of_OpenAIs_and_the_name_of_its_encoding_are_the_same():
    assert run_json("info", "gpt-4o") == run_json("info", "o200k_base")


def test_other_libraries_files_are_models_too(folder):
    cbpe.get_encoding("r50k_base").save_tiktoken("ranks")
    run("encode", "corpus.txt", "-m", "ranks", "-o", "a.bin")
    run("encode", "corpus.txt", "-m", "r50k_base", "-o", "b.bin")
    assert Path("a.bin").read_bytes() == Path("b.bin").read_bytes()
    assert run_json("info", "ranks")["vocab_size"] == 50256


def test_info_of_a_store(folder):
    store = ChunkStore.from_files(["corpus.txt", "more.txt"])
    store.save("s.chunks")
    found = run_json("info", "s.chunks", "--top", 2)
    assert (found["kind"], found["bytes"], found["distinct_chunks"]) == ("chunk store", store.total_bytes, len(store))
    assert found["sources"] == ["corpus.txt", "more.txt"]
    counts = sorted((count for _, count in store), reverse=True)
    assert [chunk["count"] for chunk in found["most_frequent_chunks"]] == counts[:2]
    assert "pattern name         gpt4" in run("info", "s.chunks").stdout


def test_info_of_ids(folder):
    run("encode", "corpus.txt", "-m", "mine.model", "-o", "a.bin")
    run("encode", "corpus.txt", "-m", "mine.model", "--shard-tokens", 5000, "-o", "shards")
    for name in ("a.bin", "a.bin.idx.json"):
        found = run_json("info", name)
        assert (found["kind"], found["dtype"], found["sources"]) == ("ids", "uint16", ["corpus.txt"])
    whole = run_json("info", "shards")
    assert (whole["kind"], whole["ids"], whole["complete"]) == ("shards of ids", found["count"], True)
    assert run_json("info", "shards/shard-00001.bin")["shard"] == 1
    sorted(Path("shards").glob("*.bin"))[-1].unlink()
    sorted(Path("shards").glob("*.json"))[-1].unlink()
    assert run_json("info", "shards")["complete"] is False
    index = Path("a.bin.idx.json").read_text()
    os.truncate("a.bin", 10)
    assert "damaged" in run("info", "a.bin", code=1).stderr
    for old, new in (("uint16", "a,"), ('"uint16"', "[]"), ("count", "n"), ("model_sha256", "sha"), ("{", "[" * 99999)):
        Path("a.bin.idx.json").write_text(index.replace(old, new))
        for reader in (["info"], ["decode", "-m", "mine.model"]):
            assert "a.bin.idx.json: damaged" in run(*reader, "a.bin", code=1).stderr
    last = sorted(Path("shards").glob("*.json"))[-1]
    last.write_text(last.read_text().replace('"next"', '"then"'))
    assert f"{last}: damaged" in run("info", "shards", code=1).stderr


def test_stats(folder, mine):
    found = run_json("stats", "corpus.txt", "more.txt", "-m", "mine.model", "--top", 3)
    ids = mine.encode_ordinary(TEXT) + mine.encode_ordinary(Path("more.txt").read_text(encoding="utf-8"))
    counts = np.bincount(ids)
    assert (found["bytes"], found["ids"]) == (len(TEXT.encode()) + Path("more.txt").stat().st_size, len(ids))
    assert found["bytes_per_id"] == found["bytes"] / len(ids)
    assert (found["ids_used"], found["share_unused"]) == (len(set(ids)), pytest.approx(1 - len(set(ids)) / 400))
    assert [each["count"] for each in found["most_frequent"]] == sorted(counts.tolist(), reverse=True)[:3]
    for each in found["most_frequent"]:
        assert (counts[each["id"]], mine.vocab[each["id"]].hex()) == (each["count"], each["hex"])
    text = run("stats", "corpus.txt", "-m", "mine.model").stdout
    assert " bytes per id" in text
    Path("empty.txt").write_bytes(b"")
    assert run_json("stats", "empty.txt", "-m", "mine.model")["bytes_per_id"] is None
    assert "0 of 400 ids" in run("stats", "empty.txt", "-m", "mine.model").stdout


def test_stats_of_the_training(folder):
    run("train", "corpus.txt", "--vocab-size", 600, "-o", "a")
    tokenizer = RegexTokenizer()
    tokenizer.load("a.model")
    found = run_json("stats", "-m", "a.model", "--hidden-size", 768)
    assert found["curve"]["vocab_sizes"] == list(range(256, 601))
    assert found["curve"]["tokens"] == tokenizer.compression_curve().tokens.tolist()
    assert [row["tied_parameters"] for row in found["advice"]] == [512 * 768, 600 * 768]
    assert "bytes/token" in run("stats", "-m", "a.model").stdout
    Path("a.stats.json").unlink()
    assert "cbpe stats: error: " in run("stats", "-m", "a.model", code=1).stderr


# ------------------------------------------------------------------------------------------------- what goes wrong


@posix_only
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("train corpus.txt --vocab-size 300 -o a >&- 2>&-", 0, ""),
        ("encode corpus.txt -m mine.model --shard-tokens 9999 -o a 2>&-", 0, ""),
        ("stats corpus.txt -m mine.model >&-", 0, ""),
        ("decode ids.bin -m mine.model >&-", 1, "cbpe decode: error: there is no standard output; -o names a file"),
        ("decode -m mine.model <&-", 1, "cbpe decode: error: -: there is no standard input"),
        ("info mine.model >/dev/full", 1, "cbpe info: error: [Errno 28] No space left on device"),
        ("decode ids.bin -m mine.model >/dev/full", 1, "cbpe: error: [Errno 28] No space left on device"),
        ("--version >/dev/full", 1, "cbpe: error: [Errno 28] No space left on device"),
    ],
)
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_standard_streams_may_be_closed_or_full(folder, mine, line, code, says):
    (folder / "some.txt").write_bytes(b"some words")
    mine.encode_file("some.txt", "ids.bin")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    shell = f"{shlex.quote(sys.executable)} -m cbpe {line}"
    result = subprocess.run(shell, shell=True, capture_output=True, text=True, env=environment, timeout=60)
    assert (result.returncode, result.stderr.strip()) == (code, says)
    if code == 0 and "-o a" in line:
        assert list(folder.glob("a*"))


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("nosuch", 2, "No such command 'nosuch'"),
        ("--nosuch", 2, "--nosuch"),
        ("train --vocab-size 300 -o a", 2, "nothing to train on"),
        ("train corpus.txt --from-chunks s --vocab-size 300 -o a", 2, "--from-chunks: not allowed"),
        ("train corpus.txt --vocab-size 255 -o a", 2, "255"),
        ("train corpus.txt --vocab-size 300 -o .", 2, "a name is wanted"),
        ("train corpus.txt --vocab-size 300 -o nowhere/a", 2, "there is no folder nowhere"),
        ("train corpus.txt --vocab-size 300 -o a --special x --special x", 2, "--special: given twice: 'x'"),
        ("train corpus.txt --vocab-size 300 -o a --errors ignore", 2, "ignore"),
        ("train corpus.txt --vocab-size 300 -o sub/", 2, "a name is wanted, not a folder; say sub/NAME"),
        ("train corpus.txt --vocab-size 300 -o a.model", 2, "say a."),
        ("train corpus.txt --vocab-size 300 -o a --pattern (a", 2, "--pattern"),
        ("train corpus.txt --vocab-size 300 -o a --pattern cl100k_base", 2, "no pattern is called 'cl100k_base'"),
        ("train corpus.txt --vocab-size 300 -o a --pattern ☃+", 1, "the pattern matches none of it"),
        ("train empty.txt --vocab-size 300 -o a", 1, "there is no text to train on"),
        ("train corpus.txt --vocab-size 300 -o a --pattern ''", 2, "--pattern: must not be empty"),
        ("train corpus.txt --vocab-size 300 -o a --save-chunks a.model", 2, "a.model: would be written twice"),
        ("train corpus.txt --vocab-size 300 -o a --save-chunks sub/../a.vocab", 2, "would be written twice"),
        ("train corpus.txt --vocab-size 300 -o a --checkpoint c --save-chunks c.model", 2, "would be written twice"),
        ("train . --vocab-size 300 -o a --save-chunks more.txt", 2, "more.txt: is a file to be read"),
        ("train corpus.txt --vocab-size 300 -o a --special $'a\\nb'", 1, "line end"),
        ("train corpus.txt --vocab-size 300 -o a --resume", 2, "--resume: needs --checkpoint"),
        ("train corpus.txt --vocab-size 300 -o a --checkpoint no/c", 2, "there is no folder no"),
        ("train corpus.txt --vocab-size 300 -o a --extend mine.model", 1, "300"),
        ("train corpus.txt --vocab-size 500 -o a --extend mine.model --basic", 1, "splits texts by"),
        ("train corpus.txt --vocab-size 99999 -o a --extend gpt2", 1, "is complete as it is"),
        ("train missing.txt --vocab-size 300 -o a", 1, "missing.txt: No such file"),
        ("train bad.txt --vocab-size 300 -o a", 1, "offset 4"),
        ("train --from-chunks corpus.txt --vocab-size 300 -o a", 1, "not a chunk store"),
        ("count corpus.txt", 2, "--output"),
        ("count corpus.txt -o a --memory-limit lots", 2, "--memory-limit is a number of bytes"),
        ("merge corpus.txt -o a --scratch-dir nowhere", 2, "--scratch-dir"),
        ("count corpus.txt -o corpus.txt", 2, "is a file to be read"),
        ("count *.txt -o more.txt", 2, "more.txt: is a file to be read"),
        ("count corpus.txt -o a --shard 3/3", 2, "I from 0 to N - 1"),
        ("count corpus.txt -o a --shard 1", 2, "I/N is wanted"),
        ("count corpus.txt -o sub", 2, "is a folder"),
        ("merge -o a", 2, "STORE"),
        ("merge corpus.txt -o a", 1, "not a chunk store"),
        ("encode corpus.txt -o a", 2, "--model"),
        ("encode corpus.txt -m mine.model -o corpus.txt", 2, "is a file to be read"),
        ("encode corpus.txt -m mine.model -o mine.model", 2, "mine.model: is a file to be read"),
        ("encode . -m mine.model -o corpus.txt", 2, "corpus.txt: is a file to be read"),
        ("encode corpus.txt -m mine.model -o sub", 2, "is a folder"),
        ("encode corpus.txt -m mine.model -o a --force", 2, "--force: needs --shard-tokens"),
        ("encode corpus.txt -m mine.model -o a --shard-tokens 0", 2, "--shard-tokens"),
        ("encode corpus.txt -m mine.model -o corpus.txt --shard-tokens 5", 2, "is no folder"),
        ("encode corpus.txt -m mine.model -o no/a --shard-tokens 5", 2, "there is no folder no"),
        ("encode corpus.txt -m mine.model -o a --shard-tokens 5 --document-offsets", 2, "not allowed"),
        ("encode corpus.txt -m nosuch -o a", 1, "nosuch: no such file"),
        ("encode corpus.txt -m mine -o a", 1, "but mine.model is there"),
        ("encode corpus.txt -m mine.model --eot <|no|> -o a", 1, "<|no|>"),
        ("encode bad.txt -m mine.model -o a", 1, "offset 4"),
        ("decode missing.txt -m mine.model", 1, "missing.txt: No such file"),
        ("decode numbers.txt -m mine.model --dtype uint32", 1, "numbers.txt: its size is no multiple of 4"),
        ("decode corpus.txt -m mine.model", 1, "corpus.txt: no id: "),
        ("decode numbers.txt -m mine.model", 1, "450"),
        ("decode ids.bin -m gpt2", 1, "made with another model"),
        ("decode ids.bin -m mine.model -o mine.model", 2, "mine.model: is a file to be read"),
        ("info missing.model", 1, "missing.model: No such file"),
        ("info corpus.txt", 1, "corpus.txt: no tokenizer, but text"),
        ("encode corpus.txt -m corpus.txt -o a", 1, "corpus.txt: no tokenizer, but text"),
        ("encode corpus.txt -m gpt-99 -o a", 1, "models of OpenAI's such as gpt-4o"),
        ("train corpus.txt --vocab-size 300 --extend gpt-4o -o a", 1, "complete as it is"),
        ("info sub", 1, "without shards"),
        ("info", 2, "FILE"),
        ("stats corpus.txt", 2, "--model"),
        ("stats -m gpt2", 1, "no statistics"),
        ("stats bad.txt -m mine.model", 1, "offset 4"),
    ],
)
def test_an_error_is_one_line_and_leaves_nothing(folder, mine, line, code, says):
    (folder / "sub").mkdir()
    (folder / "bad.txt").write_bytes(b"good\xff")
    (folder / "empty.txt").touch()
    (folder / "numbers.txt").write_bytes(b"450")
    mine.encode_file("more.txt", "ids.bin")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    arguments = shlex.split(line.replace("$'a\\nb'", "'a\nb'"))
    for extra in ([], ["--json"]) if arguments[0] in SUBCOMMANDS else ([],):
        result = run(*arguments, *extra, code=code)
        assert result.stdout == ""
        assert says in result.stderr
        assert result.stderr.count("\n") == 1
        name = f"cbpe {arguments[0]}" if arguments[0] in SUBCOMMANDS else "cbpe"
        assert result.stderr.startswith(f"{name}: error: ")
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_debug_shows_where(folder):
    result = run("train", "missing.txt", "--vocab-size", 300, "-o", "a", "--debug", code=1)
    assert "Traceback" in result.stderr
    assert "FileNotFoundError" in result.stderr.splitlines()[-1]


def test_a_fault_of_the_library_is_one_line_too(folder, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(ChunkStore, "from_files", broken)
    result = run("count", "corpus.txt", "-o", "a", code=1)
    assert result.stderr == "cbpe count: error: KeyError: 'x' (--debug shows where)\n"


def test_decode_with_force_takes_ids_of_another_model(folder, mine):
    mine.encode_file("more.txt", "a.bin")
    mine.register_special_tokens({})
    mine.save("other")
    assert "another model" in run("decode", "a.bin", "-m", "other.model", code=1).stderr
    assert run("decode", "a.bin", "-m", "other.model", "--force").stdout_bytes == Path("more.txt").read_bytes()


# ------------------------------------------------------------------------------------------ signals and pipes


def test_stats_of_words_that_are_unknown(folder: Path) -> None:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train("low low lower", num_merges=2)
    tokenizer.save("w")
    (folder / "t.txt").write_text("low 猫 lost\n", encoding="utf-8")
    stats = run_json("stats", "t.txt", "-m", "w.model")
    ids = tokenizer.encode("low 猫 lost\n")
    assert (stats["ids"], stats["bytes"]) == (len(ids), len(tokenizer.decode_bytes(ids)))
    first = stats["most_frequent"][0]
    assert (first["token"], first["count"], first["id"]) == ("<unk>", 3, tokenizer.special_tokens["<unk>"])


@pytest.mark.alone
@posix_only
@pytest.mark.parametrize(("which", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train pipe --threads 1 --vocab-size 300 -o a", "cbpe train: stopped; no model was written\n"),
        ("encode pipe -m mine.model -o a", "cbpe encode: stopped; nothing was written\n"),
    ],
)
def test_a_stopped_command_leaves_nothing(folder, arguments, says, which, code):
    os.mkfifo("pipe")
    before = set(os.listdir())
    with started(*arguments.split()) as process:
        writer = os.open("pipe", os.O_WRONLY)       # waits until the command reads
        os.write(writer, b"some text\n" * 1000)
        time.sleep(0.3)
        process.send_signal(which)
        sent = time.monotonic()
        stdout, stderr = process.communicate(timeout=30)
        os.close(writer)
    assert time.monotonic() - sent < 3
    assert (process.returncode, stdout, stderr.decode()) == (code, b"", says)
    assert set(os.listdir()) == before


# Interrupts the program where some module is imported, or when it is over.
INTERRUPTED = """
import atexit, os, signal, sys
import cbpe_command

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass

class Finder:
    def find_spec(name, path, target=None):
        if name == where:
            interrupt()

where = sys.argv.pop(1)
if where == "end":
    atexit.register(interrupt)
sys.meta_path.insert(0, Finder)
cbpe_command.main()
"""


@posix_only
@pytest.mark.parametrize(
    ("where", "code"), [("numpy.lib", 130), ("cbpe.regex", 130), ("cbpe.cli.train", 130), ("end", 1), ("nowhere", 1)]
)
def test_ctrl_c_ends_the_program_without_a_traceback_whenever_it_comes(where: str, code: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, where, "info", "no file"], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == code
    assert (result.stderr == "") == (code == 130)
    assert "Traceback" not in result.stderr
    assert "Exception" not in result.stderr


@posix_only
def test_where_ctrl_c_is_ignored_the_program_ignores_it() -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + INTERRUPTED
    arguments = [sys.executable, "-c", ignoring, "cbpe.regex", "--version"]
    result = subprocess.run(arguments, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")


@posix_only
@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGINT])
def test_shards_of_a_killed_run_are_taken_up(folder, which):
    (folder / "big.txt").write_bytes(TEXT.encode() * (12_000_000 // len(TEXT)))
    arguments = ["encode", "big.txt", "-m", "mine.model", "--shard-tokens", "30000"]
    run(*arguments, "-o", "whole")
    for wait_for in (2, 40):
        with started(*arguments, "-o", "parts") as process:
            deadline = time.monotonic() + 30
            while not Path(f"parts/shard-{wait_for:05d}.bin").exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            process.send_signal(which)
            _, stderr = process.communicate(timeout=30)
        assert process.returncode == (130 if which == signal.SIGINT else -signal.SIGKILL)
        assert which == signal.SIGKILL or "the same command again goes on" in stderr.decode()
    finished = len(list(Path("parts").glob("*.bin")))
    found = run_json(*arguments, "-o", "parts")
    assert 40 < finished < found["shards"]
    assert found["shards_made"] == found["shards"] - finished
    assert {path.name: path.read_bytes() for path in Path("parts").iterdir()} == {
        path.name: path.read_bytes() for path in Path("whole").iterdir()
    }


@posix_only
def test_a_reader_that_goes_away_is_no_error(folder):
    # unbuffered, Python does not even hear of it
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with started("info", "gpt2", "--json", "--top", 50000, env=environment) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)
    assert process.returncode == 1


@posix_only
def test_a_reader_that_is_gone_at_the_end_is_no_error():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with started("--version", env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=30)
    assert process.returncode == 1


def test_ctrl_c_before_a_command_begins_is_said_by_the_exit_code(monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("click.Group.main", stopped)
    assert run("--version", code=130).stderr == ""


def test_bars_are_for_terminals(folder):
    for extra in ([], ["--quiet"]):
        with started("train", "corpus.txt", "--vocab-size", 300, "-o", "a", *extra) as process:
            assert process.communicate(timeout=60)[1] == b""


@posix_only
def test_a_bar_on_a_terminal_shows_rate_and_time_left(folder):
    import fcntl
    import pty
    import termios

    (folder / "big.txt").write_bytes(TEXT.encode() * (12_000_000 // len(TEXT)))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    with started("encode", "big.txt", "-m", "mine.model", "--shard-tokens", 30000, "-o", "a", stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):      # as Linux says that the other end is closed
            while more := os.read(ours, 1 << 16):
                seen += more
        process.communicate(timeout=60)
    os.close(ours)
    assert re.search(rb"encoding: +\d+%\|.*\d+M?/1[12].\dM \[00:\d\d<00:\d\d, .*MB/s\]", seen)


def test_every_option_has_help():
    for name, subcommand in command.commands.items():
        assert name in SUBCOMMANDS
        for option in subcommand.params:
            assert isinstance(option, click.Argument) or option.help, option.name

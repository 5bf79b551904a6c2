"""encode_shards: its shards end to end are encode_file's ids, wherever a run was stopped and whatever was there."""

from __future__ import annotations

import gzip
import json
import os
import random
import warnings
from pathlib import Path

import numpy as np
import pytest

import cbpe
from cbpe import BasicTokenizer, CorpusDecodeError, RegexTokenizer, ShardError
from cbpe.encoding import files, shards

ALPHABET = ["the ", "cat", "'re", "12", "é", "猫", "👍🏽", "!", "\n", "\n\n", "\n!", "\r\n", " ", "\t", "\u3000"]
PATTERNS = [None, cbpe.GPT2_SPLIT_PATTERN, cbpe.GPT4_SPLIT_PATTERN, r"\w+|\s+"]


def nasty_text(seed: int, n: int) -> str:
    return "".join(random.Random(seed).choices(ALPHABET, k=n))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PART", 40)


@pytest.fixture
def tokenizer() -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train("the cat 12 é猫 the cat\n\n\n" * 3, 270)
    tokenizer.register_special_tokens({"<|end|>": 5000})
    return tokenizer


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{i}.txt" for i in range(5)]
    for i, path in enumerate(paths):
        path.write_bytes(nasty_text(i, (90, 0, 1, 200, 30)[i]).encode())
    return paths


def ids_in(folder: Path) -> list[int]:
    ids: list[int] = []
    paths = sorted(folder.glob("shard-*.bin"))
    for number, path in enumerate(paths):
        assert path.name == f"shard-{number:05d}.bin"
        index = json.loads((folder / f"{path.name}.idx.json").read_bytes())
        shard = np.fromfile(path, np.dtype(index["dtype"]).newbyteorder("<"))
        assert index["count"] == len(shard)
        assert index["shard"] == number
        assert (index["next"] is None) == (number == len(paths) - 1)
        assert len(shard) == index["shard_tokens"] or index["next"] is None
        ids += shard.tolist()
    assert len(list(folder.iterdir())) == 2 * len(paths)
    return ids


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# --------------------------------------------------------------------------------------------------- what it writes


@pytest.mark.parametrize("pattern", PATTERNS, ids=["whole", "gpt2", "gpt4", "regex"])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_ids_are_those_of_one_file(tmp_path, corpus, pattern, num_threads):
    tokenizer = BasicTokenizer() if pattern is None else RegexTokenizer(pattern)
    tokenizer.train("the cat 12 é猫 the cat\n\n\n" * 3, 262)
    count = tokenizer.encode_file(corpus, tmp_path / "all.bin", eot=10)
    expected = np.fromfile(tmp_path / "all.bin", "<u2").tolist()
    for shard_tokens in (1, 7, 100, count - 1, count, count + 1):
        out = tmp_path / f"out{shard_tokens}"
        result = tokenizer.encode_shards(corpus, out, shard_tokens, eot=10, num_threads=num_threads)
        n_shards = -(-count // shard_tokens)
        assert result == (count, n_shards, n_shards)
        assert ids_in(out) == expected


def test_every_kind_of_input_can_be_taken_up(tmp_path, corpus, tokenizer):
    texts = [path.read_bytes().decode() for path in corpus]
    lines = [*(json.dumps({"body": text}) for text in texts), "no JSON", json.dumps({"body": "the end"})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt", encoding="utf-8") as packed:
        packed.write("\n".join(lines[::-1]))
    (tmp_path / "c.txt").write_bytes("<|end|>".join([*texts, *texts]).encode())
    with gzip.open(tmp_path / "d.txt.gz", "wb") as packed:
        packed.write("\n!".join(texts * 20).encode())
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.txt", "d.txt.gz")]
    how = {"eot": 5000, "text_field": "body", "separator": "<|end|>", "errors": "skip"}
    with pytest.warns(UserWarning, match="2"):
        count = tokenizer.encode_file(paths, tmp_path / "all.bin", **how)
    with pytest.warns(UserWarning, match="2"):
        n_ids, n_shards, _ = tokenizer.encode_shards(paths, tmp_path / "out", 100, **how)
    assert n_ids == count
    assert ids_in(tmp_path / "out") == np.fromfile(tmp_path / "all.bin", "<u2").tolist()
    expected = content(tmp_path / "out")
    for seed in range(5):
        chosen = random.Random(seed).sample(range(n_shards), 5)
        for number in chosen:
            (tmp_path / "out" / f"shard-{number:05d}.bin").unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)        # of the lines that are met again
            assert tokenizer.encode_shards(paths, tmp_path / "out", 100, **how) == (n_ids, n_shards, 5)
        assert content(tmp_path / "out") == expected


def test_an_index_says_what_its_shard_holds(tmp_path, corpus, tokenizer):
    tokenizer.encode_shards(corpus, tmp_path / "out", 50, eot="<|end|>", dtype="uint32", errors="replace")
    for path in sorted((tmp_path / "out").glob("*.idx.json")):
        index = json.loads(path.read_bytes())
        ids = np.fromfile(str(path).removesuffix(".idx.json"), "<u4")
        source, offset, skip = index["begin"]
        assert index["first_source"] == source
        assert index["sources"] == [str(name) for name in corpus[source : source + len(index["sources"])]]
        rest = [*tokenizer.encode_ordinary(corpus[source].read_bytes()[offset:].decode()), 5000][skip:]
        n = min(len(rest), len(ids))
        assert ids[:n].tolist() == rest[:n]
        assert len(index["sources"]) - (ids == 5000).sum() in (0, 1)
        assert (index["dtype"], index["eot"], index["errors"]) == ("uint32", 5000, "replace")
        assert index["model_sha256"] == tokenizer._model.sha256


def test_a_corpus_of_nothing_is_one_empty_shard(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"")
    for paths in ([], tmp_path / "a.txt"):
        assert tokenizer.encode_shards(paths, tmp_path / "out", 10, force=True) == (0, 1, 1)
        assert tokenizer.encode_shards(paths, tmp_path / "out", 10) == (0, 1, 0)
        assert ids_in(tmp_path / "out") == []


# --------------------------------------------------------------------------------------------------- going on


def test_a_stopped_run_goes_on_where_it_was(tmp_path, corpus, tokenizer, monkeypatch):
    tokenizer.encode_shards(corpus, tmp_path / "whole", 37, eot=10)
    expected = content(tmp_path / "whole")
    n_shards = len(expected) // 2
    write = shards._Folder.write
    for n_made in range(1, n_shards):

        def stopping(folder, number, *rest, last=n_made):
            if number == last:
                raise KeyboardInterrupt
            return write(folder, number, *rest)

        out = tmp_path / f"out{n_made}"
        monkeypatch.setattr(shards._Folder, "write", stopping)
        with pytest.raises(KeyboardInterrupt):
            tokenizer.encode_shards(corpus, out, 37, eot=10)
        monkeypatch.setattr(shards._Folder, "write", write)
        assert len(content(out)) == 2 * n_made
        before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
        assert tokenizer.encode_shards(corpus, out, 37, eot=10)[1:] == (n_shards, n_shards - n_made)
        assert content(out) == expected
        assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_is_missing_is_made_and_nothing_else(tmp_path, corpus, tokenizer):
    out = tmp_path / "out"
    tokenizer.encode_shards(corpus, out, 20, eot=10)
    expected = content(out)
    n_shards = len(expected) // 2
    for seed in range(20):
        chosen = random.Random(seed).sample(range(n_shards), seed % n_shards)
        for number in chosen:       # a shard without ids is what a kill between the two renames leaves
            (out / f"shard-{number:05d}.bin").unlink()
            if seed % 2:
                (out / f"shard-{number:05d}.bin.idx.json").unlink()
        (out / "shard-00003.bin.0123abcd.tmp").write_bytes(b"left by a run that was killed")
        assert tokenizer.encode_shards(corpus, out, 20, eot=10)[1:] == (n_shards, len(chosen))
        assert content(out) == expected


def test_a_failure_keeps_what_is_finished(tmp_path, tokenizer):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt"
    good.write_bytes(b"a good line\n" * 50)
    bad.write_bytes(b"ab\nc" * 20 + b"\xff" + b"more\n" * 20)
    with pytest.raises(CorpusDecodeError, match=r"bad\.txt.* 80 "):
        tokenizer.encode_shards([good, bad], tmp_path / "out", 30)
    n_finished = len(content(tmp_path / "out")) // 2
    assert n_finished >= len(tokenizer.encode_ordinary("a good line\n" * 50)) // 30
    bad.write_bytes(b"ab\nc" * 20 + b"x" + b"more\n" * 20)
    _, n_shards, n_made = tokenizer.encode_shards([good, bad], tmp_path / "out", 30)
    assert n_made == n_shards - n_finished
    text = good.read_text() + bad.read_text()
    assert ids_in(tmp_path / "out") == tokenizer.encode_ordinary(text)


# ------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shard_tokens": 21}, "shard_tokens 20, not 21"),
        ({"eot": None}, "eot 10, not None"),
        ({"dtype": "uint32"}, "dtype 'uint16', not 'uint32'"),
        ({"errors": "replace"}, "errors 'strict', not 'replace'"),
        ({"paths": 4}, "other files"),
        ({"model": 1}, "model_sha256"),
    ],
)
def test_shards_of_another_job_are_refused_or_replaced(tmp_path, corpus, tokenizer, change, says):
    how = {"shard_tokens": 20, "eot": 10}
    out = tmp_path / "out"
    tokenizer.encode_shards(corpus, out, **how)
    before = content(out)
    changed = {**how, **change}
    paths = corpus[: changed.pop("paths", 5)]
    if changed.pop("model", 0):
        tokenizer.train("the cat 12 the cat\n\n\n" * 3, 260)
    with pytest.raises(ShardError, match=says) as error:
        tokenizer.encode_shards(paths, out, **changed)
    assert "shard-00000.bin" in str(error.value)
    assert content(out) == before
    tokenizer.encode_shards(paths, out, **changed, force=True)
    tokenizer.encode_shards(paths, tmp_path / "new", **changed)
    assert content(out) == content(tmp_path / "new")


def test_a_file_that_has_grown_is_another_corpus(tmp_path, corpus, tokenizer):
    tokenizer.encode_shards(corpus, tmp_path / "out", 20)
    with open(corpus[3], "ab") as file:
        file.write(b"more")
    with pytest.raises(ShardError, match="sizes"):
        tokenizer.encode_shards(corpus, tmp_path / "out", 20)


def tell(path, key, value):
    """Has the JSON file beside a shard say something else."""
    index = Path(f"{path}.idx.json")
    index.write_text(json.dumps({**json.loads(index.read_bytes()), key: value}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path, 6),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: Path(f"{path}.idx.json").unlink(),
        lambda path: Path(f"{path}.idx.json").write_bytes(b""),
        lambda path: Path(f"{path}.idx.json").write_bytes(b"[]"),
        lambda path: Path(f"{path}.idx.json").write_bytes(b'{"dtype": "uint16", "count": 20, "next": [1, 2]}'),
        lambda path: Path(f"{path}.idx.json").write_bytes(b'{"dtype": "uint16", "count": "20", "next": null}'),
        lambda path: Path(f"{path}.idx.json").write_bytes(b"[" * 100_000),
        *(
            lambda path, key=key, value=value: tell(path, key, value)
            for key, value in [
                ("dtype", [["a", "b"]]), ("dtype", None), ("dtype", "a,"), ("count", []), ("count", -1),
                ("next", [9, 0, 0]), ("next", [0, -1, 0]), ("next", [0.5, 0, 0]), ("next", ["0", "0", "0"]),
                ("next", [0, 2**32, 0]),
            ]
        ),
    ],
)
def test_a_damaged_shard_is_refused_or_made_again(tmp_path, corpus, tokenizer, damage):
    out = tmp_path / "out"
    tokenizer.encode_shards(corpus, out, 20)
    expected = content(out)
    damage(out / "shard-00003.bin")
    with pytest.raises(ShardError, match=r"shard-00003.bin.*force"):
        tokenizer.encode_shards(corpus, out, 20)
    assert tokenizer.encode_shards(corpus, out, 20, force=True).n_made == 1
    assert content(out) == expected


def test_wrong_arguments(tmp_path, corpus, tokenizer):
    for wrong, how in (
        (ValueError, {"shard_tokens": 0}),
        (TypeError, {"shard_tokens": 1.5}),
        (ValueError, {"errors": "ignore"}),
        (FileNotFoundError, {"paths": tmp_path / "missing.txt"}),
        (FileNotFoundError, {"out_dir": tmp_path / "no" / "where"}),
        (FileExistsError, {"out_dir": corpus[0]}),
    ):
        with pytest.raises(wrong):
            tokenizer.encode_shards(**{"paths": corpus, "out_dir": tmp_path / "out", "shard_tokens": 5, **how})
        assert not (tmp_path / "out").exists()

"""What somebody might send to break it: texts that are slow for others, thousands of special tokens, patterns that
take for ever, numbers beyond every width.

That time is linear, is tested by a bound that only a linear way keeps: a megabyte takes a tenth of a second or so, and
whatever grows with its square takes minutes.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import random
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from budget import SHORT, mostly_thorough, thorough, times, within

from cbpe import (
    BasicTokenizer,
    ChunkStore,
    ExportError,
    ModelFileError,
    RegexTokenizer,
    SpecialTokenError,
    StreamDecoder,
    WordTokenizer,
    distributed,
    recover_merges,
)
from cbpe.formats.check import check_export
from cbpe.formats.untrusted import check_pattern
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting.split import splitter_for
from cbpe.threads import MOST_THREADS, thread_count

MEGABYTE = 1_000_000
RUNS = {
    "a letter": "a", "a capital": "A", "spaces": " ", "newlines": "\n", "digits": "1", "combining marks": "\u0301",
    "apostrophes": "'", "emoji": "👍", "a a a": "a ", "'s's's": "'s", "newline space newline": "\n \n ", "1a1a": "1a",
    "zeros": "\0", "the last code point": "\U0010ffff", "CR LF": "\r\n", "Han": "猫", "AaAa": "Aa", "slashes": "/\n",
    "dots": " .", "a'a'": "a'",
}


def learned(tokenizer: Any, text: str, n_merges: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train(text, 256 + n_merges)
    return tokenizer


@pytest.mark.parametrize("kind", [*RUNS, "random letters"])
@pytest.mark.parametrize("pattern", mostly_thorough(["gpt2", "gpt4", "cl100k", "o200k", None], "gpt4", "o200k", None))
def test_time_is_linear_in_the_text(pattern: str | None, kind: str, tmp_path: Path) -> None:
    size = MEGABYTE // 5 if SHORT else MEGABYTE
    if kind in RUNS:
        text = RUNS[kind] * (size // len(RUNS[kind].encode()))
    else:
        text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=size))
    split_pattern = NAMED_PATTERNS[pattern] if pattern else None
    splitter = splitter_for(split_pattern)
    with within(10):
        tokenizer = learned(RegexTokenizer(split_pattern) if pattern else BasicTokenizer(), text, 40)
        assert b"".join(splitter.split(text)) == text.encode()
        store = ChunkStore.from_iterator([text], pattern=split_pattern)
        assert store.total_bytes == len(text.encode())
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert tokenizer.count(text) == len(ids)
        assert tokenizer.encode_to_numpy(text).tolist() == ids
        assert tokenizer.encode_batch([text, "a"], num_threads=2)[0] == ids
        (tmp_path / "t.txt").write_bytes(text.encode())
        assert tokenizer.encode_file(tmp_path / "t.txt", tmp_path / "ids") == len(ids)
        decoded, offsets = tokenizer.decode_with_offsets(ids)
        assert (decoded, len(offsets)) == (text, len(ids))
        stream = StreamDecoder(tokenizer)
        assert "".join([*map(stream.feed, ids[:20_000]), stream.flush()]) == tokenizer.decode(ids[:20_000])


@thorough
@pytest.mark.skipif(sys.platform != "linux", reason="the script reads /proc")
def test_the_script_that_tries_ten_megabytes_tries_every_call() -> None:
    script = Path(__file__).resolve().parent.parent / "scripts" / "hostile.py"
    arguments = ["--megabytes", "0.02", "--tokenizer", "gpt4", "--kind", "a'a'"]
    slack = ["--slow", "1000", "--memory", "100000", "--least", "10"]      # so little text says nothing about those
    result = subprocess.run([sys.executable, script, *arguments, *slack], capture_output=True, text=True, timeout=300)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    assert re.search(r"^\d+ calls and texts of 0\.02 MB, 0 marked$", result.stdout, re.MULTILINE)
    calls = {line[15:45].strip() for line in result.stdout.splitlines()[1:]}
    called = {name for name in dir(RegexTokenizer) if name.startswith(("encode", "decode", "train", "count", "extend"))}
    assert {name for name in called if not any(call.startswith(name) for call in calls)} == {
        "decode_single_token_bytes"     # which decode_tokens_bytes calls
    }


# ---- special tokens


def test_a_hundred_thousand_special_tokens(tmp_path: Path) -> None:
    words = {f"<|special number {i}|>": 1000 + i for i in range(100_000)}
    some = list(words)[::5]
    text = "".join(f"hello {word} world\n" for word in some)
    with within(20):
        tokenizer = learned(RegexTokenizer(), "hello world" * 9, 10)
        tokenizer.register_special_tokens(words)
        ids = tokenizer.encode(text, allowed_special="all")
        assert [number for number in ids if number >= 1000] == [words[word] for word in some]
        assert tokenizer.encode(text, set(some)) == ids
        assert tokenizer.decode(ids) == text
        tokenizer.save(tmp_path / "m")
        other = RegexTokenizer()
        other.load(tmp_path / "m.model")
        assert other.encode(text, allowed_special="all") == ids
        (tmp_path / "t.txt").write_bytes(text.encode())
        assert other.encode_file(tmp_path / "t.txt", tmp_path / "ids", eot=some[-1]) > 0
        store = ChunkStore.from_iterator([text], special_tokens=words)
        assert dict(store) == dict.fromkeys([b"hello", b" ", b" world", b"\n"], len(some))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_exports_of_thousands_of_special_tokens(tmp_path: Path) -> None:
    words = {f"<|special number {i}|>": 1000 + i for i in range(times(10_000))}
    tokenizer = learned(RegexTokenizer(), "hello world" * 9, 10)
    tokenizer.register_special_tokens(words)
    text = "".join(f"hello {word} world\n" for word in words)
    ids = tokenizer.encode(text, allowed_special="all")
    with within(30):
        if importlib.util.find_spec("tiktoken"):
            assert tokenizer.to_tiktoken("x").encode(text, allowed_special="all") == ids
        tokenizer.save_huggingface(tmp_path / "t.json")
        assert RegexTokenizer.from_huggingface(tmp_path / "t.json").encode(text, allowed_special="all") == ids
        assert sum(map(tokenizer.is_special_token, ids)) == len(words)
        assert pickle.loads(pickle.dumps(tokenizer)).encode(text, allowed_special="all") == ids


def test_an_export_that_takes_one_of_many_special_tokens_for_another_is_refused() -> None:
    tokenizer = learned(RegexTokenizer(), "hello world" * 9, 10)
    tokenizer.register_special_tokens({f"<|{i}|>": 1000 + i for i in range(2500)})
    for wrong in ({1000: 1001, 1001: 1000}, {2222: 97}, {3499: 1000}):

        def encode(text: str, specials: bool, wrong: dict[int, int] = wrong) -> list[int]:
            return [wrong.get(number, number) for number in tokenizer.encode(text, "all" if specials else "none")]

        with pytest.raises(ExportError, match=rf"<\|{min(wrong) - 1000}\|>"):
            check_export(tokenizer, encode, tokenizer.decode_bytes, "the other", texts=["hello"])


def test_a_list_of_special_tokens_with_one_twice_is_refused_at_once() -> None:
    words = [f"<{i}>" for i in range(100_000)]
    with within(5), pytest.raises(SpecialTokenError, match="listed twice: '<99999>'"):
        RegexTokenizer().train("abc", 256, special_tokens=[*words, words[-1]])


@pytest.mark.parametrize("longest_first", [False, True])
def test_special_tokens_within_each_other(longest_first: bool) -> None:
    words = ["<" * n for n in range(1, 3001)][:: -1 if longest_first else 1]
    tokenizer = RegexTokenizer()
    with within(10):
        tokenizer.register_special_tokens({word: 300 + i for i, word in enumerate(words)})
        for text in ("<" * MEGABYTE, ("<" * 2999 + "a") * 300):
            ids = tokenizer.encode_to_numpy(text, allowed_special="all")
            assert tokenizer.decode(ids) == text
            assert (len(ids) < 1000) == longest_first


# ---- patterns


CATASTROPHIC = r"(?:a|aa)+$|[ab]{1,2}"
SLOW_TEXT = "a" * 40 + "b"


def test_a_pattern_that_takes_for_ever_is_stopped(tmp_path: Path) -> None:
    tokenizer = RegexTokenizer(CATASTROPHIC, regex_timeout=0.2)
    learned(tokenizer, "abab" * 3, 2)
    before = dict(tokenizer.merges)
    path = tmp_path / "slow.txt"
    path.write_text(SLOW_TEXT)
    calls: dict[str, Callable[[], object]] = {
        "encode": lambda: tokenizer.encode(SLOW_TEXT),
        "encode_ordinary": lambda: tokenizer.encode_ordinary(SLOW_TEXT),
        "encode_to_numpy": lambda: tokenizer.encode_to_numpy(SLOW_TEXT),
        "count": lambda: tokenizer.count(SLOW_TEXT),
        "encode_batch": lambda: tokenizer.encode_batch(["a", SLOW_TEXT, "b"], num_threads=2),
        "encode_batch_to_numpy": lambda: tokenizer.encode_batch_to_numpy(["a", SLOW_TEXT, "b"], num_threads=2),
        "encode_file": lambda: tokenizer.encode_file(path, tmp_path / "ids"),
        "encode_shards": lambda: tokenizer.encode_shards(path, tmp_path / "shards", 10),
        "count_ids": lambda: tokenizer.count_ids(path),
        "train": lambda: tokenizer.train(SLOW_TEXT, 260),
        "train_from_files": lambda: tokenizer.train_from_files([path, path], 260, num_threads=2),
        "train_from_iterator": lambda: tokenizer.train_from_iterator(["a", SLOW_TEXT], 260),
        "extend": lambda: tokenizer.extend(path, 270),
    }
    for call in calls.values():
        with within(5), pytest.raises(TimeoutError, match=r"took more than 0\.2 s for 41 bytes.*regex_timeout.*a\|aa"):
            call()
        assert tokenizer.merges == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shards", "slow.txt"]
    assert not list((tmp_path / "shards").iterdir())
    assert tokenizer.decode(tokenizer.encode("aab")) == "aab"      # as before


def test_the_timeout_is_kept(tmp_path: Path) -> None:
    tokenizer = learned(RegexTokenizer(CATASTROPHIC), "abab" * 3, 2)
    tokenizer.save(tmp_path / "m")
    other = RegexTokenizer(regex_timeout=0.2)
    other.load(tmp_path / "m.model")
    pickled = pickle.loads(pickle.dumps(other))
    for each in (other, copy.copy(other), copy.deepcopy(other), pickled, other.truncated(257)):
        assert each.regex_timeout == 0.2
        with pytest.raises(TimeoutError):
            each.encode(SLOW_TEXT)
    other.regex_timeout = None
    assert other.regex_timeout is None
    assert other.encode("aab") == tokenizer.encode("aab")
    other.regex_timeout = 1
    other.compiled_pattern = regex.compile(CATASTROPHIC, regex.I)
    with pytest.raises(TimeoutError, match="took more than 1 s"):
        other.encode(SLOW_TEXT)


def test_the_timeout_is_for_the_regex_package_only() -> None:
    import re

    assert RegexTokenizer(regex_timeout=0.001).encode("a" * 300_000)
    with pytest.raises(ValueError, match="has no timeout"):
        RegexTokenizer(re.compile(r"\w"), regex_timeout=1.0)
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="regex_timeout"):
            RegexTokenizer(regex_timeout=wrong)
    for kind in ("1", True, [1]):
        with pytest.raises(TypeError, match="regex_timeout"):
            RegexTokenizer().regex_timeout = kind     # type: ignore[assignment]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?:(?:ab|cd){1000}){1000}", "items long, too many"),
        ("(?:a{ 9999999999}){99999}", "too many"),
        ("(?:" * 5000 + "a" + ")" * 5000, "nested too deeply"),
        ("(?:a", "no regular expression"),
    ],
)
def test_a_pattern_that_takes_all_memory_is_refused_in_a_file(pattern: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "m.model").write_text(f"minbpe v1\n{pattern}\n0\n")
    with within(5), pytest.raises(ModelFileError, match=f"line 2: .*{reason}"):
        RegexTokenizer().load(tmp_path / "m.model")
    if not pattern.endswith("a"):
        settings = {"version": "0.2", "pattern": pattern, "lower": False, "alphabet": "a", "special_tokens": {}}
        (tmp_path / "w.model").write_text(f"cbpe words v1\n{json.dumps(settings)}\n")
        with within(5), pytest.raises(ModelFileError, match=f"line 2: .*{reason}"):
            WordTokenizer().load(tmp_path / "w.model")
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        (tmp_path / "tokenizer.json").write_text(json.dumps({"pre_tokenizer": split, "added_tokens": [], "model": {
            "type": "BPE", "vocab": {"a": 0}, "merges": []}}))  # fmt: skip
        with within(5), pytest.raises(ModelFileError, match=f"pre_tokenizer splits by .*{reason}"):
            RegexTokenizer.from_huggingface(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("unit", [" ", "\t{", "{  ", "a{", "}"])
def test_a_long_pattern_is_looked_at_in_linear_time(unit: str) -> None:
    with within(10), suppress(ValueError, regex.error):
        check_pattern(unit * (20_000 // len(unit)) + " " * 80_000 + ")")


def test_settings_that_are_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.model").write_text("cbpe words v1\n" + "[" * 100_000 + "\n")
    with pytest.raises(ModelFileError, match="line 2"):
        WordTokenizer().load(tmp_path / "w.model")


def test_a_file_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    packing = zlib.compressobj(9, wbits=31)
    zeros = [packing.compress(bytes(MEGABYTE)) for _ in range(100)]
    (tmp_path / "clip.txt.gz").write_bytes(b"".join([*zeros, packing.flush()]))
    with pytest.raises(ModelFileError, match="of more than"):
        WordTokenizer.from_clip(tmp_path / "clip.txt.gz")


def test_merges_that_double_a_token_again_and_again_are_refused(tmp_path: Path) -> None:
    settings = {"version": "0.2", "pattern": r"\S+", "lower": False, "unk": None, "alphabet": "a", "special_tokens": {}}
    lines = ["cbpe words v1", json.dumps(settings), "0 0", *(f"{i} {i}" for i in range(2, 60))]
    (tmp_path / "w.model").write_text("\n".join(lines) + "\n")
    with within(5), pytest.raises(ModelFileError, match=r"line 33: .* letters together"):
        WordTokenizer().load(tmp_path / "w.model")
    tokenizer = BasicTokenizer()
    tokenizer.merges = {(97, 97): 256, **{(i, i): i + 1 for i in range(256, 300)}}
    for call in (lambda: tokenizer.decode([97]), lambda: tokenizer.save(tmp_path / "m"), lambda: tokenizer.vocab):
        with pytest.raises(ValueError, match="tokens together"):
            call()


def test_patterns_that_people_write_are_not_refused() -> None:
    for pattern in [*NAMED_PATTERNS.values(), r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d{2}-\d{2}|."]:
        check_pattern(pattern)


# ---- numbers


NUMBERS = [2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400, -1, -(2**63),
           np.uint64(2**63), np.int64(-1), 1.5, float("nan"), float("inf"), "5", None]

NUMBERED: dict[str, Callable[[Any, Any, Any, Path], object]] = {
    "vocab_size": lambda new, store, n, folder: new().train("hello hello", n),
    "min_frequency": lambda new, store, n, folder: new().train("hello hello", 260, min_frequency=n),
    "min_count": lambda new, store, n, folder: new().train_from_iterator(["hello"], 260, min_count=n),
    "num_threads": lambda new, store, n, folder: new().train("hello hello", 260, num_threads=n),
    "memory_limit": lambda new, store, n, folder: new().train("hello hello", 260, memory_limit=n),
    "checkpoint_seconds": lambda new, store, n, folder: new().train(
        "hello hello", 260, checkpoint=folder / "c", checkpoint_seconds=n
    ),
    "extend": lambda new, store, n, folder: new().extend(store, n),
    "truncated": lambda new, store, n, folder: new().truncated(n),
    "hidden_size": lambda new, store, n, folder: new().advise(hidden_size=n),
    "special token": lambda new, store, n, folder: new().register_special_tokens({"<e>": n}),
    "special token in training": lambda new, store, n, folder: new().train("hello<e>", 260, special_tokens={"<e>": n}),
    "decode": lambda new, store, n, folder: new().decode([97, n]),
    "decode an array": lambda new, store, n, folder: new().decode(np.array([n])),
    "decode_batch": lambda new, store, n, folder: new().decode_batch([[97], [n]]),
    "decode_with_offsets": lambda new, store, n, folder: new().decode_with_offsets([n]),
    "feed": lambda new, store, n, folder: StreamDecoder(new()).feed(n),
    "threads of a batch": lambda new, store, n, folder: new().encode_batch(["a", "b"], num_threads=n),
    "threads of arrays": lambda new, store, n, folder: new().encode_batch_to_numpy(["a", "b"], num_threads=n),
    "threads of files": lambda new, store, n, folder: new().encode_file(folder / "t", folder / "o", num_threads=n),
    "eot": lambda new, store, n, folder: new().encode_file(folder / "t", folder / "o", eot=n),
    "shard_tokens": lambda new, store, n, folder: new().encode_shards(folder / "t", folder / "s", n, force=True),
    "shard": lambda new, store, n, folder: ChunkStore.from_files(folder / "t", shard=(n, 2)),
    "shards": lambda new, store, n, folder: ChunkStore.from_files(folder / "t", shard=(0, n)),
    "pruned": lambda new, store, n, folder: store.pruned(n),
    "merges": lambda new, store, n, folder: with_attribute(new(), "merges", {(97, 98): n}).encode("ab"),
    "a pair of merges": lambda new, store, n, folder: with_attribute(new(), "merges", {(n, 98): 300}).encode("ab"),
    "special_tokens": lambda new, store, n, folder: with_attribute(new(), "special_tokens", {"<e>": n}).encode("a"),
    "vocab": lambda new, store, n, folder: with_attribute(new(), "vocab", {n: b"a"}).decode([97]),
    "decode_single_token_bytes": lambda new, store, n, folder: new().decode_single_token_bytes(n),
    "decode_tokens_bytes": lambda new, store, n, folder: new().decode_tokens_bytes([97, n]),
    "threads of ordinary texts": lambda new, store, n, folder: new().encode_ordinary_batch(["a", "b"], n),
    "threads of counted ids": lambda new, store, n, folder: new().count_ids(folder / "t", num_threads=n),
    "threads of a store": lambda new, store, n, folder: ChunkStore.from_files([folder / "t"] * 2, num_threads=n),
    "limit of a store": lambda new, store, n, folder: ChunkStore.from_files(folder / "t", memory_limit=n),
    "limit of merged stores": lambda new, store, n, folder: ChunkStore.merge([store, store], memory_limit=n),
    "limit as a text": lambda new, store, n, folder: ChunkStore.from_files(folder / "t", memory_limit=f"{n} GB"),
    "min_count of chunks": lambda new, store, n, folder: new().train_from_chunks(store, 257, min_count=n),
    "num_merges of words": lambda new, store, n, folder: WordTokenizer().train("hello hello", num_merges=n),
    "vocab_size of words": lambda new, store, n, folder: WordTokenizer().train("hello hello", vocab_size=n),
    "words truncated": lambda new, store, n, folder: trained_words().truncated(n),
    "special token of words": lambda new, store, n, folder: trained_words().register_special_tokens({"<e>": n}),
    "decode words": lambda new, store, n, folder: trained_words().decode([n]),
    "a rank": lambda new, store, n, folder: recover_merges({bytes([i]): i for i in range(256)} | {b"ab": n}),
    "rank of a byte": lambda new, store, n, folder: recover_merges({bytes([i]): i for i in range(255)} | {b"\xff": n}),
    "parts of a cluster": lambda new, store, n, folder: distributed._bits_of(n),
    "regex_timeout": lambda new, store, n, folder: RegexTokenizer(r"\w", regex_timeout=n).encode("a"),
}


def trained_words() -> WordTokenizer:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train("hello hello", num_merges=3)
    return tokenizer


def with_attribute(tokenizer: Any, name: str, value: Any) -> Any:
    setattr(tokenizer, name, value)
    return tokenizer


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", NUMBERED)
def test_numbers_beyond_every_width(name: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("hello hello world")
    known = learned(RegexTokenizer(), "hello hello world", 6)
    store = ChunkStore.from_iterator(["hello hello"])
    n_refused = 0
    for number in NUMBERS:
        with within(5):
            try:
                NUMBERED[name](lambda: copy.copy(known), store, number, tmp_path)
            except (ValueError, TypeError):
                n_refused += 1
    assert n_refused > 0


def test_a_number_of_threads_that_nobody_has() -> None:
    assert thread_count(10**30) == thread_count(MOST_THREADS) == MOST_THREADS

"""Gives every public call texts that somebody might send to slow it down, and looks whether time and memory grow as the
text does (needs Linux).

    python scripts/hostile.py --megabytes 10
    python scripts/hostile.py --megabytes 2 --only encode --kind "combining marks" --tokenizer gpt4

A text is one thing again and again: a letter, spaces, apostrophes, combining marks, ... Each call gets it twice, at
half the size and at the whole, each time in a process of its own, which tells the seconds of the processor that the
call took and how far its memory grew. Prints a line for each call and text with both times, their ratio, which is 2
where time is linear, seconds per MB and bytes of memory per byte of text. A line is marked, and the status is 1, if

    the ratio is above --ratio, also when both are tried again (times below --least seconds say nothing),
    a MB takes more than --slow seconds (ten times as many where `regex` splits),
    memory grows by more than --memory bytes for each byte of the text, and 64 MB,
    or the call ends in another error than those that the text is known for.
"""

from __future__ import annotations

import argparse
import base64
import gc
import gzip
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from layouts import LAYOUTS

import cbpe
from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer, StreamDecoder, WordTokenizer
from cbpe.cli import main as cbpe_command
from cbpe.encoding.finder import SpecialFinder
from cbpe.formats.alphabet import text_of as spelled
from cbpe.gpt4 import bpe
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting.split import splitter_for

# ---- texts

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
KINDS: dict[str, str | bytes] = {
    "a letter": "a", "a capital": "A", "spaces": " ", "newlines": "\n", "digits": "1", "apostrophes": "'",
    "combining marks": "\u0301", "emoji": "👍", "a a a": "a ", "a'a'": "a'", "1a1a": "1a", "space newline": " \n",
    "CR LF": "\r\n", "Han": "猫", "ſ'ſ'": "ſ'", "families": FAMILY, "marks out of order": "\u0301\u0327",
    "a and marks": "a\u0301\u0327", "marks that come apart": "\u0344", "joiners": "\u200d", "jamo": "ᄒ",
    "syllables of jamo": "한", "Arabic digits": "٣", "no-break spaces": "\xa0", "wide spaces": "\u3000", "zeros": "\0",
    "the last code point": "\U0010ffff", "'s's's": "'s", "'S'S": "'S", "Σ'Σ'": "Σ'", "AaAa": "Aa", "CR": "\r",
    "newline space newline": "\n \n ", "slashes": "/\n", "dots": " .", "less than": "<", "specials": "<|endoftext|>",
    "nearly specials": "<|endoftext|<", "entities": "&#1", "marks of words": "</w>", "quotes": '"', "tabs": "\t",
    "backslashes": "\\", "brackets": "[", "underscores": "_", "random letters": "", "random characters": "",
    "lines": "",
}  # fmt: skip
SURROGATES: dict[str, str | bytes] = {"lone surrogates": "\ud800", "pairs of surrogates": "\ud83d\udc4d"}
BYTES: dict[str, str | bytes] = {
    "0xff": b"\xff", "half of emoji": b"\xf0\x9f\x91", "continuations": b"\x80", "surrogates in UTF-8": b"\xed\xa0\x80",
    "random bytes": b"",
}  # fmt: skip


def text_of(kind: str, n: int) -> Any:
    """A str or bytes of a kind, of n bytes or a few less."""
    rng = random.Random(kind)
    if kind == "random letters":
        return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=n))
    if kind == "random characters":
        return rng.randbytes(n // 2).decode("utf-16-le", "replace").replace("\ufffd", "?")[: n // 3]
    if kind == "lines":
        return "".join(f"{rng.getrandbits(60):x}\n" for _ in range(n // 16))
    if kind == "random bytes":
        return rng.randbytes(n)
    unit = {**KINDS, **SURROGATES, **BYTES}[kind]
    return unit * (n // len(unit.encode("utf-8", "surrogatepass") if isinstance(unit, str) else unit))


# ---- what the calls work with


class Case(NamedTuple):
    """A text, the tokenizer, and an empty folder to write in."""
    text: Any
    tokenizer: Any
    folder: Path

    @property
    def data(self) -> bytes:
        return self.text if isinstance(self.text, bytes) else self.text.encode()

    @property
    def ids(self) -> Any:
        """The text's ids, made beforehand."""
        return self.tokenizer.encode_to_numpy(self.text, "none")


def learned(tokenizer: Any, text: str) -> Any:
    """The tokenizer, trained on the beginning of a text and on some words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train(text[:20_000] + f"\nhello world, it's 1234 {END} </w> " * 20, 400, special_tokens=[END])
    return tokenizer


END = "<|endoftext|>"


def named(name: str) -> Callable[[str], Any]:
    return lambda text: learned(RegexTokenizer(NAMED_PATTERNS[name]), text)


def by_regex(text: str) -> Any:
    return learned(RegexTokenizer(r"\w+| ?[^\s\w]+|\s+"), text)


@cache
def imported(layout: str) -> Any:
    """A tokenizer as Hugging Face's in a layout, with the first tokens of GPT-2's encoding."""
    gpt2 = cbpe.get_encoding("gpt2")
    tokens = [gpt2.decode_single_token_bytes(number) for number in range(2000)]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    merges = [(spelled(left), spelled(right)) for left, right in pairs_of(ranks)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_text(json.dumps(LAYOUTS[layout](ranks, merges, merges)), encoding="utf-8")
        return RegexTokenizer.from_huggingface(path)


def pairs_of(ranks: dict[bytes, int]) -> list[list[bytes]]:
    return [bpe(ranks, token, rank) for token, rank in ranks.items() if len(token) > 1]


def words(text: str) -> Any:
    return learned(WordTokenizer(unk="<unk>"), text)


def published(name: str) -> Callable[[str], Any]:
    return lambda text: cbpe.get_encoding(name)


def in_layout(name: str) -> Callable[[str], Any]:
    return lambda text: imported(name)


TOKENIZERS: dict[str, Callable[[str], Any]] = {
    "gpt4": named("gpt4"), "basic": lambda text: learned(BasicTokenizer(), text), "words": words, "regex": by_regex,
    **{name: named(name) for name in ("gpt2", "o200k", "llama3", "tekken", "qwen2")},
    **{name: published(name) for name in ("cl100k_base", "o200k_base")},
    **{f"as {name}": in_layout(name) for name in LAYOUTS},
}  # fmt: skip
SLOW_SPLITTING = {"regex", "words", "as deepseek-v2", "as deepseek-v3", "as starcoder", "as falcon", "as bloom",
                  "as command-r", "as laguna", "as qwen3.5"}  # fmt: skip

# ---- calls. Each prepares what it needs, and returns what is measured.

Prepared = Callable[[], object]
CALLS: dict[str, Callable[[Case], Prepared]] = {}
OF_BYTES: set[str] = set()      # those that also take what is not UTF-8
OF_TEXT = {"encode", "encode_to_numpy", "encode_batch", "encode_batch_to_numpy", "encode_ordinary", "count", "train",
           "train_from_iterator", "encode_jsonl"}       # those that also take surrogates, or say that they do not
CORE = {"encode", "encode_ordinary", "encode_to_numpy", "count", "encode_batch", "decode", "train", "encode_file"}


def call(function: Callable[[Case], Prepared]) -> Callable[[Case], Prepared]:
    CALLS[function.__name__] = function
    return function


def of_bytes(function: Callable[[Case], Prepared]) -> Callable[[Case], Prepared]:
    OF_BYTES.add(function.__name__)
    return call(function)


def method(name: str, *arguments: Any, of: Callable[[Any], Any] = lambda text: text) -> Callable[[Case], Prepared]:
    """The call of a tokenizer's method with what is made of the text, and more arguments."""
    return lambda case: lambda: getattr(case.tokenizer, name)(of(case.text), *arguments)


def pieces(text: str) -> list[str]:
    return [text[i : i + 50] for i in range(0, len(text), 50)]


def batch(text: str) -> list[str]:
    return [text, "a"]


@call
def encode_single_token(case: Case) -> Prepared:
    def looked_up() -> None:
        with suppress(KeyError):
            case.tokenizer.encode_single_token(case.text)

    return looked_up


CALLS |= {
    "encode": method("encode", "all"),
    "encode of none": method("encode", "none"),
    "encode_to_numpy": method("encode_to_numpy", "all"),
    "encode_to_numpy of none": method("encode_to_numpy", "none"),
    "count": method("count", "all"),
    "encode_batch": method("encode_batch", "all", 2, of=batch),
    "encode_batch of pieces": method("encode_batch", "all", 2, of=pieces),
    "encode_batch_to_numpy": method("encode_batch_to_numpy", "all", 2, of=batch),
    "encode_batch_to_numpy of pieces": method("encode_batch_to_numpy", "all", 2, of=pieces),
    "encode_ordinary": method("encode_ordinary"),
    "encode_ordinary_batch": method("encode_ordinary_batch", 2, of=batch),
}


WithMore = Callable[[Case, Any], object]


def prepared_by(prepare: Callable[[Case], Any]) -> Callable[[WithMore], Callable[[Case], Prepared]]:
    """A call that takes, besides the case, what is made of it before the clock runs."""

    def of(function: WithMore) -> Callable[[Case], Prepared]:
        def prepared(case: Case) -> Prepared:
            given = prepare(case)
            return lambda: function(case, given)

        CALLS[function.__name__] = prepared
        return prepared

    return of


with_ids = prepared_by(lambda case: case.ids)
with_list = prepared_by(lambda case: case.ids.tolist())


@with_list
def decode(case: Case, ids: Any) -> object:
    return case.tokenizer.decode(ids)


@with_ids
def decode_an_array(case: Case, ids: Any) -> object:
    return case.tokenizer.decode(ids, errors="strict")


@with_ids
def decode_backwards(case: Case, ids: Any) -> object:
    return case.tokenizer.decode(ids[::-1], errors="backslashreplace")


@with_ids
def decode_from_a_generator(case: Case, ids: Any) -> object:
    return case.tokenizer.decode(iter(ids))


@with_ids
def decode_bytes(case: Case, ids: Any) -> object:
    return case.tokenizer.decode_bytes(ids)


@with_ids
def decode_batch(case: Case, ids: Any) -> object:
    return case.tokenizer.decode_batch([ids, ids[:10], *ids[: len(ids) // 100 * 100].reshape(-1, 100)])


@with_list
def decode_with_offsets(case: Case, ids: Any) -> object:
    return case.tokenizer.decode_with_offsets(ids)


@with_list
def decode_tokens_bytes(case: Case, ids: Any) -> object:
    return case.tokenizer.decode_tokens_bytes(ids)


@with_list
def stream(case: Case, ids: Any) -> object:
    decoder = StreamDecoder(case.tokenizer)
    return [*map(decoder.feed, ids[: len(ids) // 10]), decoder.feed(ids[len(ids) // 10 :]), decoder.flush()]


@with_list
def get_stats(case: Case, ids: Any) -> object:
    return cbpe.get_stats(ids)


@with_list
def merge(case: Case, ids: Any) -> object:
    return cbpe.merge(ids, (ids[0], ids[-1]), 1 << 20)


@of_bytes
def render_token(case: Case) -> Prepared:
    data = case.data
    return lambda: cbpe.render_token(data)


@of_bytes
def encode_chunk(case: Case) -> Prepared:
    data = case.data
    return lambda: case.tokenizer._encode_chunk(data)


@of_bytes
def recover_merges(case: Case) -> Prepared:
    """Of ranks, one of which is the text; not at its whole length: tokens of more are in no file."""
    ranks = {bytes([i]): i for i in range(256)} | {case.data: 256}

    def recovered() -> None:
        with suppress(ValueError):
            cbpe.recover_merges(ranks)

    return recovered


def untrained(tokenizer: Any) -> Any:
    """A tokenizer of the same kind that may be trained."""
    if isinstance(tokenizer, WordTokenizer):
        return WordTokenizer(unk="<unk>")
    if isinstance(tokenizer, BasicTokenizer):
        return BasicTokenizer()
    return RegexTokenizer(tokenizer._model.splitting if tokenizer.pattern is None else tokenizer.pattern)


@call
def train(case: Case) -> Prepared:
    tokenizer = untrained(case.tokenizer)
    return lambda: tokenizer.train(case.text, 400)


@call
def train_without_special_tokens(case: Case) -> Prepared:
    tokenizer = untrained(case.tokenizer)
    return lambda: tokenizer.train(case.text, 300, special_tokens=[END, "<", "aa"])


@call
def train_from_iterator(case: Case) -> Prepared:
    tokenizer = untrained(case.tokenizer)
    return lambda: tokenizer.train_from_iterator([case.text, *pieces(case.text)], 400)


def written(case: Case, name: str = "t.txt") -> Path:
    path = case.folder / name
    path.write_bytes(case.data)
    return path


@of_bytes
def train_from_files(case: Case) -> Prepared:
    path = written(case)
    tokenizer = untrained(case.tokenizer)
    return lambda: tokenizer.train_from_files(path, 400, errors="replace", num_threads=2)


@of_bytes
def train_within_a_limit(case: Case) -> Prepared:
    path = written(case)
    tokenizer = untrained(case.tokenizer)
    how: dict[str, Any] = {"errors": "replace", "memory_limit": "256MB", "scratch_dir": case.folder}
    return lambda: tokenizer.train_from_files(path, 400, **how)


@call
def train_from_chunks(case: Case) -> Prepared:
    store = ChunkStore.from_iterator([case.text], pattern=case.tokenizer._model.pattern or None)
    tokenizer = untrained(case.tokenizer)
    return lambda: tokenizer.train_from_chunks(store, 300, min_count=2)


@of_bytes
def extend(case: Case) -> Prepared:
    path = written(case)
    tokenizer = case.tokenizer
    tokenizer.special_tokens = {}
    return lambda: tokenizer.extend(path, 256 + len(tokenizer.merges) + 20, errors="replace")


@of_bytes
def chunk_store(case: Case) -> Prepared:
    path = written(case)

    def counted() -> None:
        store = ChunkStore.from_files([path, path], pattern=case.tokenizer.pattern or None, errors="replace")
        store.save(case.folder / "a.chunks")
        with ChunkStore.open(case.folder / "a.chunks") as opened:
            assert len(list(opened)) == len(store)
            ChunkStore.merge([opened, store]).pruned(2)

    return counted


@call
def split(case: Case) -> Prepared:
    splitter = splitter_for(case.tokenizer._model.pattern or None)
    return lambda: splitter.split(case.text)


def encode_files(case: Case, path: Path, **how: Any) -> Prepared:
    return lambda: case.tokenizer.encode_file(path, case.folder / "ids", errors="replace", **how)


@of_bytes
def encode_file(case: Case) -> Prepared:
    return encode_files(case, written(case), eot=END if END in case.tokenizer.special_tokens else None)


@of_bytes
def encode_documents(case: Case) -> Prepared:
    return encode_files(case, written(case), separator=END, document_offsets=True)


@of_bytes
def encode_near_documents(case: Case) -> Prepared:
    return encode_files(case, written(case), separator="aa<")


@call
def encode_jsonl(case: Case) -> Prepared:
    path = case.folder / "t.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}) for text in [case.text, case.text[:100]]))
    return encode_files(case, path)


@call
def encode_jsonl_of_pieces(case: Case) -> Prepared:
    path = case.folder / "t.jsonl"
    path.write_text("\n".join(json.dumps({"text": text}, ensure_ascii=False) for text in pieces(case.text)))
    return encode_files(case, path)


@of_bytes
def encode_text_as_jsonl(case: Case) -> Prepared:
    path = written(case, "t.jsonl")
    return lambda: case.tokenizer.encode_file(path, case.folder / "ids", errors="skip")


@call
def encode_packed(case: Case) -> Prepared:
    path = case.folder / "t.txt.gz"
    path.write_bytes(gzip.compress(case.data, 1))
    return encode_files(case, path)


@of_bytes
def encode_shards(case: Case) -> Prepared:
    path = written(case)
    return lambda: case.tokenizer.encode_shards(path, case.folder / "shards", 1_000_000, errors="replace")


@of_bytes
def count_ids(case: Case) -> Prepared:
    path = written(case)
    return lambda: case.tokenizer.count_ids(path, errors="replace")


@of_bytes
def find_special_tokens(case: Case) -> Prepared:
    data = case.data
    nested = ["<" * n for n in range(1, 2000)] + [each * 1000 + "b" for each in ("a", " ", "1a", "'")] + [END]
    finder = SpecialFinder({word.encode(): 1000 + i for i, word in enumerate(nested)})
    return lambda: (finder.cut(data), finder.first(data), finder.is_in_any([data.decode("utf-8", "ignore")]))


@of_bytes
def find_long_near_misses(case: Case) -> Prepared:
    """The special tokens are long, and the text is nearly one everywhere."""
    data = case.data
    finder = SpecialFinder({data[:n] + b"\n!": n for n in (5_000, 100_000)})
    return lambda: finder.cut(data)


@call
def encode_near_misses(case: Case) -> Prepared:
    tokenizer = case.tokenizer
    tokenizer.special_tokens = {**tokenizer.special_tokens, case.text[:3000] + "\n!": 1 << 20}
    return lambda: tokenizer.encode_to_numpy(case.text, "all")


@call
def segment(case: Case) -> Prepared:
    return lambda: case.tokenizer.segment(case.text, glossaries=["hello", r"\d+"])


@of_bytes
def load_ranks(case: Case) -> Prepared:
    """A file of ranks that is none, and one with the text for a token."""
    path = written(case, "t.tiktoken")
    other = case.folder / "u.tiktoken"
    tokens = [*(bytes([i]) for i in range(256)), case.data]
    other.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), i) for i, token in enumerate(tokens)))

    def loaded() -> None:
        refused(path, pattern="gpt4")
        refused(other, pattern="gpt4")

    return loaded


@of_bytes
def load_model(case: Case) -> Prepared:
    names = ("m.model", "t.json", "tokenizer.json", "codes.txt", "t.bin")
    heads = (b"minbpe v1\n\n0\n", b"", b'{"model": ', b"#version: 0.2\n", b"")
    paths = [case.folder / name for name in names]
    for path, head in zip(paths, heads, strict=True):
        path.write_bytes(head + case.data)
    return lambda: list(map(refused, paths))


@of_bytes
def load_pattern(case: Case) -> Prepared:
    path = case.folder / "m.model"
    data = case.data[: len(case.data) // 100]       # regex compiles it, which takes what it takes
    path.write_bytes(b"minbpe v1\n" + data + b"\n1\n" + case.data + b" 400\n97 98\n")
    return lambda: refused(path)


def refused(path: Path, **how: Any) -> None:
    with suppress(ValueError):
        cbpe.load(path, **how)


@call
def save_model(case: Case) -> Prepared:
    """With the text for a special token."""
    tokenizer = case.tokenizer
    tokenizer.special_tokens = {case.text.replace("\n", "-"): 1 << 20}

    def saved() -> None:
        tokenizer.save(case.folder / "m")
        cbpe.load(case.folder / "m.model")

    return saved


def command(name: str, *arguments: str) -> None:
    def prepared(case: Case) -> Prepared:
        path = written(case)
        case.tokenizer.save(case.folder / "m")
        if name == "decode":
            case.ids.astype("<u2").tofile(case.folder / "t.bin")
            (case.folder / "t.ids").write_text(" ".join(map(str, case.ids.tolist())))
        given = [each.format(text=path, folder=case.folder) for each in arguments]

        def run() -> None:
            try:
                cbpe_command([name, *given, "--quiet"])
            except SystemExit as end:
                if end.code:
                    raise RuntimeError(f"the command ended with {end.code}") from None

        return run

    told = f"cbpe {name} {arguments[0]}" if name == "decode" else f"cbpe {name}"
    CALLS[told.replace("{folder}/", "")] = prepared
    if name not in ("decode",):
        OF_BYTES.add(told)


READ = ("{text}", "--errors", "replace")
command("train", *READ, "-o", "{folder}/n", "--vocab-size", "270")
command("count", *READ, "-o", "{folder}/a.chunks")
command("encode", *READ, "-m", "{folder}/m.model", "-o", "{folder}/o.bin")
command("stats", *READ, "-m", "{folder}/m.model")
command("info", "{folder}/m.model")
command("decode", "{folder}/t.bin", "-m", "{folder}/m.model", "-o", "{folder}/o.txt", "--dtype", "uint16")
command("decode", "{folder}/t.ids", "-m", "{folder}/m.model", "-o", "{folder}/o.txt")

NOT_FOR = {
    "gpt4": {"segment"},
    "basic": {"segment"},
    "words": {
        "encode_chunk", "extend", "train_from_chunks", "chunk_store", "render_token", "get_stats", "merge", "split",
        "recover_merges", "load_ranks", "load_model", "load_pattern", "find_special_tokens", "find_long_near_misses",
        "cbpe train", "cbpe count", "cbpe info",
    },
}  # fmt: skip

# ---- trials


FIXED = 64 << 20        # bytes that a call may take whatever the text: caches, blocks of files


class Trial(NamedTuple):
    seconds: float
    growth: int         # of memory, in bytes
    fault: str          # "" if there was none


def peak(reset: bool = False) -> int:
    """The most memory that this process has had, in bytes, since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def trial(name: str, kind: str, tokenizer: str, n: int, seconds: float) -> Trial:
    """What a call takes for a text of n bytes, in a process of its own, which is killed after so many seconds."""
    with tempfile.TemporaryDirectory() as folder:
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.close(reading)
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
                result = measured(name, kind, tokenizer, n, Path(folder))
                os.write(writing, json.dumps(result).encode())
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            os.kill(pid, signal.SIGKILL)
        told = os.read(reading, 1 << 16) if ready else b""
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if told:
        return Trial(*json.loads(told))
    return Trial(seconds, 0, f"ended with {status}" if ready else f"not ended after {seconds:.0f} s")


def measured(name: str, kind: str, tokenizer: str, n: int, folder: Path) -> Trial:
    warnings.simplefilter("ignore")
    text = text_of(kind, n)
    as_str = text if isinstance(text, str) and kind not in SURROGATES else "hello"
    try:
        case = Case(text, TOKENIZERS[tokenizer](as_str), folder)
        case.tokenizer.encode_batch(["hello"], "none", 1)       # makes what is made once
        run = CALLS[name](case)
    except BaseException:
        return Trial(0, 0, "in preparation: " + traceback.format_exc(limit=-1)[-300:])
    gc.collect()
    before = peak(reset=True)
    begin = time.process_time()
    fault = ""
    try:
        run()
    except BaseException as error:
        fault = f"{type(error).__name__}: {error}"[:200]
    return Trial(time.process_time() - begin, peak() - before, fault)


def expected(fault: str, kind: str, tokenizer: str) -> bool:
    """Whether the text is known for this error."""
    return not fault or (kind in SURROGATES and fault.startswith("UnicodeEncodeError"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=10.0)
    parser.add_argument("--only", action="append", choices=CALLS, metavar="CALL", help="may be given more than once")
    parser.add_argument("--kind", action="append", choices=[*KINDS, *SURROGATES, *BYTES], metavar="KIND")
    parser.add_argument("--tokenizer", action="append", choices=TOKENIZERS, metavar="NAME")
    parser.add_argument("--ratio", type=float, default=3.0)
    parser.add_argument("--least", type=float, default=0.05)
    parser.add_argument("--slow", type=float, default=1.0)
    parser.add_argument("--memory", type=float, default=100.0)
    parser.add_argument("--marked", action="store_true", help="print only the lines that are marked")
    arguments = parser.parse_args()
    n = int(arguments.megabytes * 1e6)
    n_tried = n_marked = 0
    worst: dict[str, tuple[float, str]] = {}
    print(f"{'tokenizer':14} {'call':30} {'text':22} {'s, n/2':>8} {'s, n':>8} {'ratio':>6} {'s/MB':>7} {'bytes':>6}")
    for tokenizer in arguments.tokenizer or TOKENIZERS:
        slow = arguments.slow * (10 if tokenizer in SLOW_SPLITTING else 1)
        limit = 10 + 10 * slow * arguments.megabytes      # by the clock: others may use the processors too
        for name in arguments.only or (CALLS if tokenizer in ("gpt4", "basic", "words") else sorted(CORE)):
            if name in NOT_FOR.get(tokenizer, ()) or (tokenizer.endswith("_base") and name == "train"):
                continue
            kinds = [*KINDS, *(SURROGATES if name in OF_TEXT else ()), *(BYTES if name in OF_BYTES else ())]
            for kind in [kind for kind in kinds if kind in (arguments.kind or kinds)]:
                for _ in range(3):
                    half, whole = (trial(name, kind, tokenizer, size, limit) for size in (n // 2, n))
                    if whole.fault or whole.seconds <= max(arguments.least, arguments.ratio * half.seconds):
                        break
                fault = " ".join(whole.fault.split()[-20:])
                ratio = whole.seconds / max(half.seconds, 1e-4)
                per_mb, per_byte = whole.seconds / arguments.megabytes, whole.growth / n
                marks = [
                    mark
                    for mark, is_so in {
                        "RATIO": ratio > arguments.ratio and whole.seconds >= arguments.least,
                        "SLOW": per_mb > slow,
                        "MEMORY": whole.growth > arguments.memory * n + FIXED,
                        fault: not expected(whole.fault, kind, tokenizer),
                    }.items()
                    if is_so
                ]
                n_tried += 1
                n_marked += bool(marks)
                line = (
                    f"{tokenizer:14} {name:30} {kind:22} {half.seconds:8.3f} {whole.seconds:8.3f} {ratio:6.2f} "
                    f"{per_mb:7.4f} {per_byte:6.1f} {' '.join(marks)}"
                )
                if marks or not arguments.marked:
                    print(line, flush=True)
                for what, value in (("s/MB", per_mb), ("bytes", per_byte), ("ratio", ratio * (whole.seconds > 0.2))):
                    worst[what] = max(worst.get(what, (0.0, "")), (value, line))
    print(f"{n_tried:,} calls and texts of {arguments.megabytes:g} MB, {n_marked:,} marked")
    for what, (_, line) in worst.items():
        print(f"worst {what}: {line}")
    return 1 if n_marked else 0


if __name__ == "__main__":
    sys.exit(main())

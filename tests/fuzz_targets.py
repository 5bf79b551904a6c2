"""What fuzzing tries, a function for each kind of input: a file's bytes, or bytes out of which a case is made.

A target takes bytes and an empty folder, does with them what a user might, and compares with reference.py, regex or
json. A loader either refuses its input by a ValueError or an OSError, as is documented, or what it loaded works.
Everything else that is raised is a find, and so are a crash, a hang, and memory that grows beyond what the input
holds. A target returns whether the input was taken: scripts/fuzz.py goes on from such inputs.

    run("model", b"minbpe v1\\n...", folder)

scripts/fuzz.py makes inputs; test_fuzz_corpus.py replays those that once were finds. A case is made of bytes by Draw,
so that any bytes are a case, and a find is always a file.
"""

from __future__ import annotations

import base64
import bz2
import contextlib
import copy
import functools
import gzip
import importlib.util
import io
import itertools
import json
import lzma
import random
import re
import struct
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import reference
import regex

import cbpe
from cbpe import BasicTokenizer, ChunkStore, NoStatisticsError, RegexTokenizer, StreamDecoder, UnknownIdError
from cbpe.cli.decode import blocks_of, portion
from cbpe.encoding import files as encoding_files
from cbpe.encoding.encoder import Encoder
from cbpe.encoding.files import read_index
from cbpe.inputs import documents, streams
from cbpe.inputs.documents import Faults, LineBlock
from cbpe.patterns import GPT2_SPLIT_PATTERN, NAMED_PATTERNS
from cbpe.splitting.split import (
    _settled,
    _split_block,
    _splitter_for_isa,
    available_isas,
    last_cut,
    next_cut,
    splitter_for,
)
from cbpe.splitting.stages import KEEPS, Stages
from cbpe.training import corpus
from cbpe.training.spill import HEADER, Size, merge_part, write_parts

T = TypeVar("T")
Run = Callable[[bytes, Path], bool]

TEXT = "the cat sat on the mat, the rat's hat; THE END'S 1234 né\n\n  <e> 猫猫\r\n\tit'll\u00a0be e\u0301 👍🏽 "
TEXTS = ["", "a", "aaaaaaa", TEXT, "\0\x7f\U0010ffff", "\n \n", "'s'S'ſ"]
SPECIALS = {"<e>": 1000, "<|end of text|>": 1001, "猫": 1002}


@dataclass(frozen=True)
class Target:
    """run: as above. seeds: inputs to begin with, some of which are taken. words: what may be put into an input.
    seal: puts checksums right, so that more than they are tried.
    """

    run: Run
    seeds: Callable[[], list[bytes]]
    words: Sequence[bytes]
    seal: Callable[[bytes], bytes] | None


TARGETS: dict[str, Target] = {}


def target(
    seeds: Callable[[], list[bytes]],
    words: Sequence[bytes] = (),
    seal: Callable[[bytes], bytes] | None = None,
    *,
    if_there: bool = True,
) -> Callable[[Run], Run]:
    """Makes a function a target of its name, if what it tries is there."""

    def add(run: Run) -> Run:
        if if_there:
            TARGETS[run.__name__] = Target(run, seeds, words, seal)
        return run

    return add


def run(name: str, data: bytes, folder: Path) -> bool:
    """Tries an input on a target, in a folder that is empty before and afterwards."""
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=folder) as scratch:
        warnings.simplefilter("ignore")
        return TARGETS[name].run(data, Path(scratch))


class Difference(Exception):
    """What came out is not what the reference says."""


def same(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise Difference(f"{what}:\n  found    {found!r:.2000}\n  expected {expected!r:.2000}")


class Draw:
    """A case out of bytes: each choice takes some of them, and the first of all choices where there are none left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, below: int) -> int:
        """0 <= number < below <= 2**16."""
        n = 1 if below <= 256 else 2
        number = int.from_bytes(self._data[self._at : self._at + n], "little")
        self._at += n
        return number % below

    def one_of(self, choices: Sequence[T]) -> T:
        return choices[self.number(len(choices))]

    def text(self, longest: int, letters: str) -> str:
        return "".join(self.one_of(letters) for _ in range(self.number(longest + 1)))


# bytes from which cases are drawn: short ones and long ones
def noise() -> list[bytes]:
    rng = random.Random(1)
    return [rng.randbytes(n) for n in (0, 5, 20, 60, 100, 200, 300, 500)]


LETTERS = [
    "ab", "a", "aAbB '", "abc \n", " \n\r\t", "a1 '", "'sStTrReEvVmMlLdD", "12a", "ab<|>", "éà猫ſ\u0301",
    "ab\0\x7f\U0010ffff\u2028\u00a0", "😀👍🏽\u200d\ufe0f", "Ǆǅǆʰªa", "/\n.a ",
]
PATTERNS = [None, *NAMED_PATTERNS.values(), r"\w+|\s", r"[ab]|.", r"a*|b", r"(?s:.)(?=(a)?)"]


# ---- tokenizers


def works(tokenizer: Any, folder: Path) -> None:
    """Checks that a tokenizer that was loaded encodes, decodes, and is the same after save and load."""
    merges, specials, pattern = dict(tokenizer.merges), dict(tokenizer.special_tokens), tokenizer.pattern or None
    lengths = dict.fromkeys(range(256), 1)
    for (left, right), number in merges.items():
        lengths[number] = lengths[left] + lengths[right]
    if sum(lengths.values()) > 1 << 20:
        return              # tokens that double: to have their bytes is to ask for gigabytes
    tokens = reference.vocab(merges, specials)
    for text in [*TEXTS, "".join(specials), *(f"a{word} b" for word in list(specials)[:5])]:
        if isinstance(tokenizer, RegexTokenizer):
            ids = tokenizer.encode(text, allowed_special="all")
            same(ids, reference.encode(text, merges, pattern, specials), f"ids of {text!r}")
            same(tokenizer.count(text, "all"), len(ids), f"number of ids of {text!r}")
            same(tokenizer.encode_to_numpy(text, "all").tolist(), ids, f"array of {text!r}")
        ordinary = tokenizer.encode_ordinary(text)
        same(ordinary, reference.encode_ordinary(text, merges, pattern), f"ordinary ids of {text!r}")
        decodes(tokenizer, ordinary, tokens)
    decodes(tokenizer, [*specials.values(), *merges.values()][:100], tokens)
    saved_again(tokenizer, folder)


def decodes(tokenizer: Any, ids: list[int], tokens: Mapping[int, bytes]) -> None:
    """Checks all ways to decode some ids."""
    expected = reference.decode_bytes(ids, tokens)
    text = expected.decode("utf-8", "replace")
    same(tokenizer.decode_bytes(ids), expected, f"bytes of {ids}")
    same(tokenizer.decode_bytes(np.array(ids, np.uint32)), expected, f"bytes of an array, {ids}")
    same(tokenizer.decode(iter(ids)), text, f"text of {ids}")
    stream = StreamDecoder(tokenizer)
    same("".join([*map(stream.feed, ids), stream.flush()]), text, f"stream of {ids}")
    try:
        decoded, offsets = tokenizer.decode_with_offsets(ids)
    except UnicodeDecodeError:
        same(text != expected.decode("utf-8", "ignore"), True, f"bytes of {ids} are not UTF-8")
    else:
        same(decoded, text, f"text with offsets of {ids}")
        ends = np.cumsum([0, *(len(tokens[number]) for number in ids)]).tolist()
        starts = [at for at in range(len(expected)) if expected[at] & 0xC0 != 0x80]
        wanted = [
            sum(start < begin for start in starts) - (begin < len(expected) and begin not in starts)
            for begin in ends[:-1]
        ]
        same(offsets, wanted, f"offsets of {ids}")


def saved_again(tokenizer: Any, folder: Path) -> None:
    """Checks that save and load give the same tokenizer, and save of that the same bytes."""
    other = type(tokenizer)()
    tokenizer.save(folder / "again")
    other.load(folder / "again.model")
    for name in ("merges", "special_tokens", "pattern"):
        same(getattr(other, name), getattr(tokenizer, name), f"{name} after save and load")
    other.save(folder / "once more")
    same((folder / "once more.model").read_bytes(), (folder / "again.model").read_bytes(), "the file saved again")


@functools.cache
def _trained(cls: Any, pattern: str | None) -> Any:
    tokenizer = cls() if pattern is None else cls(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train(TEXT * 2, 256 + 40)
    return tokenizer


def trained(
    cls: Any = RegexTokenizer, pattern: str | None = None, specials: Mapping[str, int] = SPECIALS
) -> Any:
    """A tokenizer of forty merges, as new."""
    tokenizer = copy.copy(_trained(cls, pattern))
    tokenizer.register_special_tokens(specials)
    return tokenizer


def saved(tokenizer: Any, suffix: str = ".model") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder) / "m")
        return (Path(folder) / f"m{suffix}").read_bytes()


NUMBERS = [b"0", b"255", b"256", b"257", b"300", b"2147483648", b"4294967294", b"4294967295", b"4294967296",
           b"9223372036854775808", b"18446744073709551616", b"-1", b"1e5", b"1.0", b"9" * 5000]


def model_files() -> list[bytes]:
    doubling = "minbpe v1\n\n0\n" + "".join(f"{n} {n}\n" for n in [97, *range(256, 300)])
    return [
        saved(trained()),
        saved(trained(BasicTokenizer)),
        saved(trained(BasicTokenizer, specials={})).replace(b"\n", b"\r\n"),
        saved(trained(pattern=GPT2_SPLIT_PATTERN)),
        saved(trained(pattern=r"\w+| |(?s:.)", specials={" a b ": 5000, "\r": 4999})),
        doubling.encode(),
    ]


MODEL_WORDS = [*NUMBERS, b"minbpe v1", b"\n", b"\r\n", b"\r", b" ", b"97 97", b"256 256", b"\xff", b"\xed\xa0\x80",
               "\u2028".encode(), "٣".encode(), b"(?i)", b"(?r)", b"\\p{L}", b"{1000}", b"[", b"(?:" * 3000,
               b"(?:(?:a|b){999}){999}", b"(?<=a)",
               b"|", b"\\K", b"$", b"\\X"]


@target(model_files, MODEL_WORDS)
def model(data: bytes, folder: Path) -> bool:
    """A .model file."""
    path = folder / "m.model"
    path.write_bytes(data)
    taken = False
    for cls in (RegexTokenizer, BasicTokenizer):
        tokenizer = trained(cls)
        before = dict(tokenizer.merges), dict(tokenizer.special_tokens), tokenizer.pattern
        try:
            tokenizer.load(path)
        except (ValueError, OSError):
            after = dict(tokenizer.merges), dict(tokenizer.special_tokens), tokenizer.pattern
            same(after, before, "the tokenizer after a load that failed")
        else:
            taken = True
            works(tokenizer, folder)
    return taken


STATS_WORDS = [*NUMBERS, b"{", b"[", b"[" * 5000, b"null", b"NaN", b'"counts"', b"true"]


@target(lambda: [saved(trained(specials={}), ".stats.json")], STATS_WORDS)
def stats(data: bytes, folder: Path) -> bool:
    """A .stats.json file beside a model: what it says is taken or not, and the model is loaded in any case."""
    (folder / "m.model").write_bytes(saved(trained(specials={})))
    (folder / "m.stats.json").write_bytes(data)
    tokenizer = RegexTokenizer()
    tokenizer.load(folder / "m.model")
    try:
        curve = tokenizer.compression_curve()
    except NoStatisticsError:
        return False
    same(bool((curve.tokens[1:] > curve.tokens[:-1]).any()), False, "a curve that rises")
    same(len(curve.tokens), len(tokenizer.merges) + 1, "points of the curve")
    tokenizer.truncated(260).compression_curve()
    tokenizer.save(folder / "again")
    other = RegexTokenizer()
    other.load(folder / "again.model")
    same(other.compression_curve().tokens.tolist(), curve.tokens.tolist(), "the curve after save and load")
    return True


@target(model_files, MODEL_WORDS)
def checkpoint(data: bytes, folder: Path) -> bool:
    """A .model file that training is continued from."""
    path = folder / "m.model"
    path.write_bytes(data)
    tokenizer = BasicTokenizer() if data.split(b"\n")[1:2] in ([b""], [b"\r"]) else RegexTokenizer()
    try:
        tokenizer.load(path)
        store = ChunkStore.from_iterator([TEXT, "aaaa" * 9], pattern=tokenizer.pattern or None)
        n = len(tokenizer.merges) + 5
        tokenizer.extend(store, 256 + n, special_tokens=["<new>"])
    except (ValueError, OSError):
        return False
    learned, _ = reference.learn_counted(list(store), n, known=dict(list(tokenizer.merges.items())[: n - 5]))
    same(tokenizer.merges, learned, "merges")
    same(tokenizer.special_tokens, {"<new>": 256 + len(learned)}, "special tokens")
    return True


# ---- other libraries' files


def agrees_with_itself(tokenizer: Any, texts: Sequence[str], lossless: bool) -> None:
    """Checks that all ways to encode give the same, and that it is decoded; lossless: to the text itself."""
    lists = [tokenizer.encode(text, allowed_special="all") for text in texts]
    for text, ids in zip(texts, lists, strict=True):
        same(tokenizer.encode_to_numpy(text, "all").tolist(), ids, f"array of {text!r}")
        same(tokenizer.count(text, "all"), len(ids), f"number of ids of {text!r}")
        data = tokenizer.decode_bytes(ids)
        stream = StreamDecoder(tokenizer)
        same("".join([*map(stream.feed, ids), stream.flush()]), data.decode("utf-8", "replace"), f"stream of {ids}")
        if lossless:
            same(data.decode(), text, f"text of {ids}")
    same(tokenizer.encode_batch(list(texts), "all", 2), lists, "batch")


def rank_files() -> list[bytes]:
    tokenizer = trained(specials={})
    shuffled = sorted(range(256), key=lambda byte: byte * 37 % 256)
    tokens = list(tokenizer.vocab.values())
    orders = [tokens, [*(bytes([byte]) for byte in shuffled), *tokens[256:]]]
    return [b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(order)) for order in orders]


def encode_by_ranks(chunk: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """tiktoken's way: the pieces whose join has the lowest rank are joined, again and again."""
    if chunk in ranks:
        return [ranks[chunk]]
    pieces = [bytes([byte]) for byte in chunk]
    while True:
        pairs = [left + right for left, right in itertools.pairwise(pieces)]
        joined = [(ranks[pair], i) for i, pair in enumerate(pairs) if pair in ranks]
        if not joined:
            return [ranks[piece] for piece in pieces]
        _, i = min(joined)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


RANK_WORDS = [*NUMBERS, b"\n", b" ", b"=", b"YWE=", b"YQ== 97\n", b"IQ==", b"\r\n", b"\xff", b"YWFhYQ== 300\n",
              b"dGhlIA== 301\n"]


@target(rank_files, RANK_WORDS, if_there=hasattr(RegexTokenizer, "from_tiktoken"))
def ranks(data: bytes, folder: Path) -> bool:
    """A rank file of tiktoken's."""
    path = folder / "r.tiktoken"
    path.write_bytes(data)
    for strict in (True, False):
        try:
            tokenizer = RegexTokenizer.from_tiktoken(path, "gpt4", {"<e>": 3_000_000}, strict=strict)
        except (ValueError, OSError):
            taken = False
            continue
        taken = True
        known = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in data.splitlines() if line.strip()}
        for text in TEXTS:
            expected = []
            for part in reference.cut_at_specials(text, ["<e>"]):
                for chunk in [b""] if part == "<e>" else reference.split(part, tokenizer.pattern):
                    expected += encode_by_ranks(chunk, known) if chunk else [3_000_000]
            same(tokenizer.encode(text, allowed_special="all"), expected, f"ids of {text!r}")
        agrees_with_itself(tokenizer, TEXTS, lossless=True)
    return taken


def huggingface_files() -> list[bytes]:
    """tokenizer.json files of forty merges, as GPT-2, Llama 3 and Qwen have them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    tokenizer = trained(specials={})
    spelled = {number: "".join(letters[byte] for byte in token) for number, token in tokenizer.vocab.items()}
    merges = [[spelled[left], spelled[right]] for left, right in tokenizer.merges]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": NAMED_PATTERNS["cl100k"]}, "behavior": "Isolated", "invert": False}
    added = {
        "id": 296, "content": "<e>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": True,
    }  # fmt: skip
    bpe = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": {word: number for number, word in spelled.items()}, "merges": [" ".join(pair) for pair in merges],
    }  # fmt: skip
    whole: dict[str, Any] = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [added], "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": True}, "post_processor": None,
        "decoder": {**byte_level, "use_regex": True}, "model": bpe,
    }  # fmt: skip
    llama = copy.deepcopy(whole)
    llama["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, byte_level]}
    llama["model"].update(ignore_merges=True, merges=merges)
    qwen = copy.deepcopy(llama)
    qwen["normalizer"] = {"type": "NFC"}
    more = {"id": 297, "content": "<f>", "special": False, "lstrip": True, "normalized": True}
    qwen["added_tokens"].append({**added, **more})
    return [json.dumps(each, ensure_ascii=i > 0, indent=i).encode() for i, each in enumerate([whole, llama, qwen])]


JSON_WORDS = [
    *NUMBERS, b"null", b"true", b"false", b"[]", b"{}", b"[" * 5000, b'"ignore_merges": true', b'"byte_fallback": true',
    b'"NFC"', b'"NFKC"', b'"Isolated"', b'"Removed"', b'"Sequence"', b'"ByteLevel"', b'"Split"', b'"BPE"',
    b'"WordPiece"',
    b'"add_prefix_space": true', b'"lstrip": true', b'"rstrip": true', b'"single_word": true', b'"normalized": true',
    b'"special": false', b'"dropout": 0.5', b'"unk_token": "a"', b'"\\ud800"', b'"invert": true', b'"String": "a"',
    b'"Regex": "(?:a{999}){9999}"', b'"Regex": "["', b'""', b'"the"', b'["t", "h"]', b'"a a"', b"\xff", b'"type"',
    b'"pretokenizers"', b'"id"', b'"content": ""', b'"vocab"',
]  # fmt: skip


@target(huggingface_files, JSON_WORDS, if_there=hasattr(RegexTokenizer, "from_huggingface"))
def huggingface(data: bytes, folder: Path) -> bool:
    """A tokenizer.json file of Hugging Face's, against tokenizers, if that is installed and takes it too."""
    path = folder / "tokenizer.json"
    path.write_bytes(data)
    try:
        tokenizer = RegexTokenizer.from_huggingface(path)
    except (ValueError, OSError):
        return False
    texts = [*TEXTS, "<e>", "a<e> b", " <f> c"]
    agrees_with_itself(tokenizer, texts, lossless=False)
    try:
        import tokenizers

        theirs = tokenizers.Tokenizer.from_file(str(path))
    except Exception:
        return True
    for text in texts:
        ids = theirs.encode(text, add_special_tokens=False).ids
        same(tokenizer.encode(text, allowed_special="all"), ids, f"ids of {text!r}")
    return True


def code_files() -> list[bytes]:
    return [
        b"#version: 0.2\nl o\nlo w</w>\nt h\nth e</w>\na t</w>\n\xc3\xa9 </w>\nc at</w>\n",
        b"t h\nth e\nthe </w>\na t\nat </w>\n",
        b"t h 100\nth e</w> 90\na t</w> 50\n",
        b'cbpe words v1\n{"version": "0.2", "pattern": "[^ \\n]+", "lower": false, "unk": "<unk>", '
        b'"alphabet": ["a", "b"], "special_tokens": {"<unk>": 10}}\n0 1\n4 1\n',
    ]


CODE_WORDS = [*NUMBERS, b"</w>", b" ", b"\n", b"#version: 0.2\n", b"#version: 0.1\n", b"t h\n", b"the </w>", b"\xff",
              b"\r\n", b"a a\n", b"aa aa\n", b"null", b"[" * 5000, b"{}", b'"lower": true', b'"alphabet": 5',
              "\u2028".encode(), b"\0"]


@target(code_files, CODE_WORDS, if_there=hasattr(cbpe, "WordTokenizer"))
def words(data: bytes, folder: Path) -> bool:
    """Codes of subword-nmt or fastBPE, or a WordTokenizer's own .model file."""
    path = folder / "w.model"
    path.write_bytes(data)
    tokenizer = cbpe.WordTokenizer()
    try:
        if data.startswith(b"cbpe words"):
            tokenizer.load(path)
        else:
            tokenizer = cbpe.WordTokenizer.from_codes(path, unk="<unk>", alphabet=sorted(set(TEXT) - set(" \n")))
    except (ValueError, OSError):
        return False
    texts = ["", "the cat", "low lower", "a b", "é thé", "</w>", "@@ a"]
    try:
        lists = [tokenizer.encode(text, allowed_special="all") for text in texts]
        agrees_with_itself(tokenizer, texts, lossless=False)
    except cbpe.UnknownCharacterError:
        return True
    tokenizer.save(folder / "again")
    other = cbpe.WordTokenizer()
    other.load(folder / "again.model")
    same([other.encode(text, allowed_special="all") for text in texts], lists, "ids after save and load")
    return True


def all_files() -> list[bytes]:
    others = [rank_files()[0], huggingface_files()[0], store_files()[0], b"", b"\x1f\x8b"]
    return [*model_files()[:2], *code_files(), *others]


@target(all_files, [*MODEL_WORDS, *RANK_WORDS, *JSON_WORDS, *CODE_WORDS], if_there=hasattr(cbpe, "load"))
def load(data: bytes, folder: Path) -> bool:
    """A file that is to say itself what it is."""
    path = folder / "file"
    taken = False
    for name in ("file.model", "file.tiktoken", "tokenizer.json", "file"):
        path = folder / name
        path.write_bytes(data)
        for pattern in (None, "gpt4"):
            try:
                tokenizer = cbpe.load(path, pattern=pattern)
            except (ValueError, OSError, ImportError):
                continue
            taken = True
            with contextlib.suppress(ValueError):       # characters that a word tokenizer lacks
                agrees_with_itself(tokenizer, TEXTS[:3], lossless=False)
    return taken


# ---- chunk stores, and what belongs to files of ids


def written(store: ChunkStore) -> bytes:
    file = io.BytesIO()
    store.write(file)
    return file.getvalue()


def store_files() -> list[bytes]:
    return [
        written(ChunkStore.from_iterator([TEXT, TEXT + "more"])),
        written(ChunkStore.from_iterator(["ab", "ab", "c"], pattern=None)),
        written(ChunkStore.from_iterator([])),
    ]


def sealed_store(data: bytes) -> bytes:
    return data[:-8] + zlib.crc32(data[:-8]).to_bytes(8, "little")


STORE_WORDS = [*NUMBERS, b"null", b'"n_chunks"', b"[" * 5000, b'"a"', b"{}", b"true", b"CBPEchnk",
               *(struct.pack("<Q", n) for n in (0, 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1))]


@target(store_files, STORE_WORDS, sealed_store)
def store(data: bytes, folder: Path) -> bool:
    """A chunk store's file."""
    path = folder / "s.chunks"
    path.write_bytes(data)
    try:
        opened = ChunkStore.open(path)
    except (ValueError, OSError):
        path.unlink()           # on Windows: nobody holds it
        return False
    with opened:
        chunks = list(opened)
        same(sum(len(chunk) * count for chunk, count in chunks), opened.total_bytes, "total_bytes")
        kept = list(opened.pruned(2))
        same(kept, [(chunk, count) for chunk, count in chunks if count > 1], "what is pruned")
        opened.save(folder / "again")
        with ChunkStore.open(folder / "again") as other:
            same((list(other), other.pattern, other.sources), (chunks, opened.pattern, opened.sources), "saved again")
        tokenizer = BasicTokenizer()
        try:
            if opened.pattern is not None:
                tokenizer = RegexTokenizer(opened.pattern)
            tokenizer.train_from_chunks(opened, 260)
            merged = ChunkStore.merge([opened, opened])
        except (ValueError, regex.error):
            return False        # counts beyond 63 bits in all
        same(tokenizer.merges, reference.learn_counted(chunks, 4)[0], "merges")
        counts: dict[bytes, int] = {}
        for chunk, count in chunks:
            counts[chunk] = counts.get(chunk, 0) + 2 * count
        same(dict(merged), counts, "merged with itself")
    return True


def piece_files() -> list[bytes]:
    files = [io.BytesIO() for _ in range(2)]
    for texts in ([TEXT], [TEXT, "more"], []):
        write_parts(ChunkStore.from_iterator(texts), files)
    return [file.getvalue() for file in files]


def sealed_piece(data: bytes) -> bytes:
    """With the checksums of the first piece as they should be."""
    if len(data) < HEADER.size + 8:
        return data
    magic, version, _, hashed, part, bits, n, n_bytes = HEADER.unpack(data[: HEADER.size])
    body = data[HEADER.size + 8 :]
    checksum = zlib.crc32(body[: 20 * n + n_bytes] if 20 * n + n_bytes < len(body) else body)
    header = HEADER.pack(magic, version, checksum, hashed, part, bits, n, n_bytes)
    return header + zlib.crc32(header).to_bytes(8, "little") + body


@target(piece_files, STORE_WORDS, sealed_piece)
def piece(data: bytes, folder: Path) -> bool:
    """A part of a store, as machines send it to each other."""
    try:
        merged = io.BytesIO()
        size = merge_part([io.BytesIO(data)], merged, Size(1000, 10_000), 0, 2)
        merged.seek(0)
        with ChunkStore.from_parts([merged, io.BytesIO()], [size, Size(0, 0)], None, scratch_dir=folder) as joined:
            same(len(list(joined)), size.n, "chunks")
    except (ValueError, OSError):
        return False
    return True


SHA = re.compile(rb'("sources_sha256": ")\w*')
CORPUS = [TEXT, "one\ntwo\nthree\n", "", TEXT * 3]


def shard_folder(folder: Path, **how: Any) -> dict[str, bytes]:
    """Encodes a corpus of a few files to shards; what is in the folder afterwards, by name."""
    paths = []
    for i, text in enumerate(CORPUS):
        paths.append(folder / f"{i}.txt")
        paths[-1].write_bytes(text.encode())
    trained().encode_shards(paths, folder / "shards", 90, num_threads=1, progress=False, **how)
    return {path.name: path.read_bytes() for path in sorted((folder / "shards").iterdir())}


def index_files() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        return [data for name, data in shard_folder(Path(folder)).items() if name.endswith(".json")]


INDEX_WORDS = [*NUMBERS, b"null", b'"next"', b"[" * 5000, b'"count"', b"true", b'"uint16"', b"{", b"}", b"0.0"]


@target(index_files, INDEX_WORDS)
def index(data: bytes, folder: Path) -> bool:
    """A .idx.json file."""
    path = folder / "i.idx.json"
    path.write_bytes(data)
    try:
        known = read_index(path)
    except (ValueError, OSError):
        return False
    json.dumps(known)
    return True


@target(index_files, INDEX_WORDS)
def shards(data: bytes, folder: Path) -> bool:
    """The .idx.json file of a shard that is finished, on which the next run builds."""
    made = shard_folder(folder)
    ours = SHA.search(made["shard-00000.bin.idx.json"])     # of these files, which have other names each time
    assert ours is not None
    (folder / "shards" / "shard-00000.bin.idx.json").write_bytes(SHA.sub(ours[0], data))
    (folder / "shards" / "shard-00001.bin").unlink()
    taken = True
    try:
        shard_folder(folder)
    except (ValueError, OSError):
        taken = False
    if not taken:
        same(shard_folder(folder, force=True), made, "shards made again")
    return taken


# ---- corpora


LINES = [
    b'{"id": 1, "text": "a\\u00e9\\n"}\n{"text": ""}\n\n{"a": {"b": [1, 2.5e3, null, true]}}\r\n',
    b'{"text": "\\ud83d\\ude00"}\n{"text": "one", "text": "two"}\n{"TEXT": 1}\n[1]\n{"text": 5}\n',
    b'{"text": "\xc3\xa9\xe7\x8c\xab"}',
    b'\xef\xbb\xbf{"text": "x"}\n {"text" : "\\"\\\\\\/\\b\\f\\n\\r\\t" } \n{"te\\u0078t": "y"}\n',
    b'{"text": "\\ud800"}\n\xff\n{"text": "z"}',
]
LINE_WORDS = [
    *NUMBERS, b'"text"', b'"text": "', b"\\u", b"\\ud83d", b"\\ude00", b"\\", b'"', b"\n", b"\r", b"{", b"}", b"[",
    b"]", b",", b":", b"[" * 250, b'{"a":' * 250, b"null", b"NaN", b"-Infinity", b"\x1f", b"\x7f", b"\0", b"\xff",
    b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xa8", b"\x0b", b"\xc2\xa0", b"1E+", b".5", b"01", b"-", b"tru",
]


def texts_by_json(data: bytes, mend: bool) -> list[str]:
    """The texts that the json module finds, line by line; what is wrong is left out, or mended."""
    texts = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            value = json.loads(line.decode("utf-8", "replace" if mend else "strict"), parse_int=float)
            text = value["text"] if isinstance(value, dict) else None
            if mend and isinstance(text, str):
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            text.encode()
        except (ValueError, KeyError, AttributeError, RecursionError):
            continue
        texts.append(text)
    return texts


@target(lambda: LINES, LINE_WORDS)
def lines(data: bytes, folder: Path) -> bool:
    """A JSONL file, against the json module."""
    expected = texts_by_json(data, mend=False)
    path = folder / "l.jsonl"
    path.write_bytes(data)
    found = LineBlock("l", "text", 0, 1, data.removeprefix(b"\xef\xbb\xbf"), 0).texts(Faults("skip")).as_list()
    same([text.decode() for text in found], expected, "texts")
    with ChunkStore.from_files(path, errors="skip", num_threads=1) as counted:
        same(list(counted), list(ChunkStore.from_iterator(expected)), "chunks")
    try:
        mended = LineBlock("l", "text", 0, 1, data.removeprefix(b"\xef\xbb\xbf"), 0).texts(Faults("replace")).as_list()
    except ValueError:
        return bool(expected)
    same([text.decode() for text in mended], texts_by_json(data, mend=True), "mended texts")
    return bool(expected)


SPLIT_WORDS = [
    text.encode() for text in (
        " ", "\n", "\r", "\r\n", "\t", "\u00a0", "\u2028", "\u3000", "\x85", "\x1c", "'", "'s", "'S", "'ſ", "'ll",
        "'LL", "'re", "'Ve", "'d", "a", "Z", "é", "ſ", "K", "猫", "ǅ", "ʰ", "ª", "\u0301", "\u0345", "ⓐ", "1", "٣", "½",
        "²", "Ⅷ", "一", "/", ".", "<|", "👍🏽", "\u200d", "\ufe0f", "\U0010ffff", "\ufffd", "\0", "ꟲ", "𐐀", "ᲀ", "Ა",
    )
] + [b"\xff", b"\xc3", b"\xe4\xb8", b"\xf0\x9f\x91", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]


SPLIT_SEEDS = [TEXT.encode(), b"a\n/b\nc", b" " * 70 + b"x" * 70 + b"1" * 70 + b"\n" * 70, b"it's 'S\xff"]


@target(lambda: SPLIT_SEEDS, SPLIT_WORDS)
def split(data: bytes, folder: Path) -> bool:
    """A text: the native splitters, for every instruction set, against regex."""
    filler = data[-1] if data else 0
    text = data.decode("utf-8", "replace")
    wrong = None
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        wrong = fault.start
    if wrong is None and filler % 64 == 5 and data:
        text *= 300_000 // len(data)            # longer than the window of a splitter
    valid = text.encode()
    cuts = set()
    at = 0
    while (at := next_cut(valid[:2000], at)) != -1:
        cuts.add(at)
        at += 1
    same(last_cut(valid[:2000]), max(cuts, default=-1), "the last cut")
    for name, pattern in NAMED_PATTERNS.items():
        expected = reference.split(text, pattern)
        ends = np.cumsum([len(chunk) for chunk in expected]).tolist()
        same(splitter_for(pattern).split(valid), expected, f"chunks by {name}")
        if len(valid) < 2000:
            same(cuts - set(ends), set(), f"cuts within a chunk of {name}")
        for isa in available_isas():
            splitter = _splitter_for_isa(pattern, isa)
            if len(valid) < 2000:
                same(_split_block(splitter, valid, filler), ends, f"ends by {name}, {isa}")
            if wrong is not None:
                same(_split_block(splitter, data, filler), -1 - wrong, f"wrong byte by {name}, {isa}")
        for cut in (len(text) // 3, len(text) - 1, len(text) - 2):
            begin = text[: max(0, cut)].encode()
            if len(valid) < 2000:
                n = _settled(splitter_for(pattern), begin)
                same(reference.split(begin.decode(), pattern)[:n], expected[:n], f"settled by {name} at {len(begin)}")
    return True


@target(noise)
def train(data: bytes, folder: Path) -> bool:
    """Texts under a pattern: training, statistics, extending and truncating, against the reference."""
    draw = Draw(data)
    pattern = draw.one_of(PATTERNS)
    n, min_frequency, n_threads = draw.number(24), 1 + draw.number(3), 1 + draw.number(3)
    specials = [word for word in dict.fromkeys(draw.text(3, "ab<>") for _ in range(draw.number(4))) if word]
    texts = [draw.text(200, draw.one_of(LETTERS)) * draw.one_of([1, 1, 2, 5]) for _ in range(draw.number(5))]
    how: Any = {"special_tokens": specials, "min_frequency": min_frequency, "num_threads": n_threads, "progress": False}
    tokenizer = BasicTokenizer() if pattern is None else RegexTokenizer(pattern)
    tokenizer.train_from_iterator(texts, 256 + n, **how)
    merges, counts = reference.learn(texts, n, pattern, min_frequency, specials)
    same(tokenizer.merges, merges, "merges")
    same(tokenizer.special_tokens, {word: i for i, word in enumerate(specials, 256 + len(merges))}, "special tokens")
    statistics = tokenizer._model.statistics
    assert statistics is not None
    same(statistics.counts.tolist(), counts, "counts")
    counted = list(ChunkStore.from_iterator(texts, pattern=pattern, special_tokens=specials))
    same(tokenizer.compression_curve().tokens.tolist(), reference.token_totals(counted, merges), "lengths")
    half = len(merges) // 2
    store = ChunkStore.from_iterator(texts, pattern=pattern, special_tokens=specials)
    smaller = tokenizer.truncated(256 + half)
    smaller.extend(store, 256 + n, **how)
    same(smaller.merges, merges, "merges that were continued")
    files = []
    for i, text in enumerate(texts):
        files.append(folder / f"{i}.txt")
        files[-1].write_bytes(text.encode())
    tokenizer.train_from_files(files, 256 + n, **how)
    same(tokenizer.merges, merges, "merges from files")
    return bool(merges)


@target(noise)
def encode(data: bytes, folder: Path) -> bool:
    """Merges that nobody trained: encoding and decoding in all ways, against the reference."""
    draw = Draw(data)
    pattern = draw.one_of(PATTERNS)
    numbered = draw.number(2)                   # 256, 257, ..., or any ids
    shared = draw.number(4) == 3                # ids that several pairs have
    letters = draw.one_of(LETTERS)
    known = list(dict.fromkeys(letters.encode()))
    merges: dict[tuple[int, int], int] = {}
    for i in range(draw.number(40)):
        number = 256 + i if numbered else 256 + draw.number(1 << 16)
        if draw.number(30) == 29:
            number = 2**32 - 2 - i
        if number in known and not shared:
            continue
        merges.setdefault((draw.one_of(known), draw.one_of(known)), number)
        known.append(number)
    words = dict.fromkeys(draw.text(3, "ab<>") for _ in range(draw.number(4)))
    specials = {word: 10**6 + i for i, word in enumerate(words) if word}
    texts = [draw.text(200, letters) * draw.one_of([1, 1, 2, 5]) for _ in range(1 + draw.number(3))]
    tokenizer = RegexTokenizer(pattern or r"(?s:.+)")
    pattern = tokenizer.pattern
    tokenizer.merges = merges
    tokenizer.special_tokens = specials
    wanted = [reference.encode(text, merges, pattern, specials) for text in texts]
    n_threads = 1 + draw.number(3)
    same([tokenizer.encode(text, "all") for text in texts], wanted, "ids")
    same([tokenizer.encode_to_numpy(text, "all").tolist() for text in texts], wanted, "arrays")
    same([tokenizer.count(text, "all") for text in texts], [len(ids) for ids in wanted], "counts")
    same(tokenizer.encode_batch(texts, "all", n_threads), wanted, "batch")
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, "all", n_threads)
    same([ids[a:b].tolist() for a, b in itertools.pairwise(offsets)], wanted, "batch of arrays")
    shuffle = bytes(reversed(range(256)))
    if merges:
        encoder = Encoder(np.array(list(merges), np.uint32), np.array(list(merges.values()), np.uint32), shuffle)
        for text in texts:
            shuffled = text.encode().translate(shuffle)
            same(encoder.encode_chunk(text.encode()), reference.encode_chunk(shuffled, merges), "ids of other bytes")
    try:
        tokens = reference.vocab(merges, specials)
    except KeyError:
        return True             # parts that no merge makes
    if sum(map(len, tokens.values())) < 1 << 16 and len(set(merges.values())) == len(merges):
        for each in wanted:
            decodes(tokenizer, each, tokens)
        for unknown in (2**31, 2**32 - 1, 2**32, 2**63, 2**64, -1):
            if unknown not in tokens:
                try:
                    tokenizer.decode_bytes([97, unknown])
                except UnknownIdError:
                    continue
                raise Difference(f"{unknown} was decoded")
    return True


@target(noise)
def special(data: bytes, folder: Path) -> bool:
    """Special tokens that overlap: finding them, against a naive finder."""
    draw = Draw(data)
    letters = draw.one_of(["ab", "<|>", "a", "<e>", "é猫", "\0\U0010ffff", "ab "])
    words = dict.fromkeys(draw.text(draw.one_of([2, 5, 30]), letters) for _ in range(1 + draw.number(30)))
    specials = {word: 300 + i for i, word in enumerate(words) if word}
    tokenizer = RegexTokenizer(draw.one_of(PATTERNS) or r"(?s:.+)")
    tokenizer.train("abab abab", 258)
    tokenizer.register_special_tokens(specials)
    merges, pattern = tokenizer.merges, tokenizer.pattern
    chosen = {word: number for word, number in specials.items() if draw.number(2)}
    for _ in range(1 + draw.number(4)):
        text = draw.text(100, letters + draw.one_of(["", "x", "ab"]))
        same(tokenizer.encode(text, "all"), reference.encode(text, merges, pattern, specials), f"ids of {text!r}")
        wanted = reference.encode(text, merges, pattern, chosen)
        same(tokenizer.encode(text, set(chosen)), wanted, f"ids of {text!r} with some special tokens")
        wanted = reference.encode_ordinary(text, merges, pattern)
        same(tokenizer.encode(text, "none"), wanted, f"ordinary ids of {text!r}")
        holds = any(word in text for word in specials)
        try:
            tokenizer.encode(text)
        except cbpe.DisallowedSpecialTokenError:
            same(holds, True, f"a special token in {text!r}")
        else:
            same(holds, False, f"a special token in {text!r}")
        stretches = [part for part in reference.cut_at_specials(text, chosen) if part not in chosen]
        counted = ChunkStore.from_iterator([text], pattern=pattern, special_tokens=list(chosen))
        plain = ChunkStore.from_iterator(stretches, pattern=pattern)
        same(list(counted), list(plain), f"chunks of {text!r} without special tokens")
    if not any(set("\n") & set(word) for word in specials):
        saved_again(tokenizer, folder)
    return bool(specials)


# ---- patterns that nobody has written

ATOMS = [
    "a", "b", " ", "\n", ".", r"\w", r"\s", r"\d", r"\S", r"\p{L}", r"\p{N}", r"\p{Lu}", "[ab]", "[^a ]", r"[^\s\p{L}]",
    "^", "$", r"\b", "é", "猫", "'", r"\r", r"(?i:S)", r"\X", r"\K", r"\Z", "[a-c&&b]", r"\R",
]
REPEATS = ["", "", "", "?", "*", "+", "{1,3}", "{2}", "??", "*?", "+?", "++", "*+", "?+"]
GROUPS = ["(?:%s)", "(%s)", "(?i:%s)", "(?s:%s)", "(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)", "(?>%s)"]


def pattern_of(draw: Draw, depth: int = 2) -> str:
    """A pattern; most are regular expressions."""
    ways = []
    for _ in range(1 + draw.number(3)):
        parts = []
        for _ in range(draw.number(4)):
            if depth and draw.number(3) == 2:
                parts.append(draw.one_of(GROUPS) % pattern_of(draw, depth - 1))
            else:
                parts.append(draw.one_of(ATOMS))
            parts.append(draw.one_of(REPEATS))
        ways.append("".join(parts))
    return "|".join(ways)


@target(noise)
def pattern(data: bytes, folder: Path) -> bool:
    """A pattern of one's own: its chunks against regex; training, encoding, and a model file with it."""
    draw = Draw(data)
    text = pattern_of(draw)
    texts = [draw.text(30, draw.one_of(LETTERS)) for _ in range(1 + draw.number(3))]
    try:
        compiled = regex.compile(text)
    except regex.error:
        return False
    for flags in (0, regex.IGNORECASE, regex.V1):
        try:
            compiled = regex.compile(text, flags)
            wanted = [[found.encode() for found in (m.group() for m in compiled.finditer(each, timeout=2)) if found]
                      for each in texts]
        except (TimeoutError, regex.error):
            return False
        splitter = splitter_for(compiled)
        same([splitter.split(each) for each in texts], wanted, f"chunks by {text!r} with flags {flags}")
    wanted = [reference.split(each, text) for each in texts]
    for name, each in enumerate(texts):
        (folder / f"{name}.txt").write_bytes(each.encode())
    tokenizer = RegexTokenizer(text, regex_timeout=60)
    tokenizer.train_from_files(sorted(folder.glob("*.txt")), 262, num_threads=2, progress=False)
    merges, _ = reference.learn(texts, 6, text, 1, [])
    same(tokenizer.merges, merges, f"merges under {text!r}")
    for each in texts:
        same(tokenizer.encode(each), reference.encode_ordinary(each, merges, text), f"ids of {each!r} under {text!r}")
    tokenizer.encode_file(sorted(folder.glob("*.txt")), folder / "ids.bin", num_threads=2)
    ids = [number for each in texts for number in reference.encode_ordinary(each, merges, text)]
    same(np.fromfile(folder / "ids.bin", np.uint16).tolist(), ids, f"ids of files under {text!r}")
    with contextlib.suppress(cbpe.ModelFileError):      # of a pattern that would take too much
        saved_again(tokenizer, folder)
    return any(wanted)


STAGE_PATTERNS = [r"\d", r"\d{1,3}", r"[ab]", r"^.", r".$", r"a(?!b)", r"(?<=a)b", r" ?\w+", r"\s+(?!\S)|\s"]


@target(noise)
def stages(data: bytes, folder: Path) -> bool:
    """Several patterns one after the other, against their definition."""
    draw = Draw(data)
    chosen = []
    for _ in range(1 + draw.number(4)):
        pattern = draw.one_of([*STAGE_PATTERNS, *NAMED_PATTERNS.values()])
        chosen.append((pattern, draw.one_of(KEEPS)))
    splitter = splitter_for(Stages(chosen))
    for _ in range(1 + draw.number(4)):
        text = draw.text(100, draw.one_of(LETTERS))
        pieces = [piece.encode() for piece in reference.split_in_stages(text, chosen)]
        same(splitter.split(text), pieces, f"pieces of {text!r} by {chosen}")
        counted: dict[bytes, int] = {}
        for piece in pieces:
            counted[piece] = counted.get(piece, 0) + 1
        same(list(ChunkStore.from_iterator([text], pattern=Stages(chosen))), [*counted.items()], "chunks")
    return True


# ---- tokenizer.json files that are sound, whatever is in them


@functools.cache
def huggingface_parts() -> list[dict[str, Any]]:
    return [json.loads(data) for data in huggingface_files()]


PRE_TOKENIZERS = [
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
    *({"type": "Punctuation", "behavior": each} for each in ("Isolated", "Removed", "MergedWithNext", "Contiguous")),
    *(
        {"type": "Split", "pattern": {kind: text}, "behavior": behavior, "invert": invert}
        for kind, text in [("Regex", r"\d{1,3}"), ("Regex", r" ?\p{L}+"), ("Regex", r"\s+(?!\S)|\s+"), ("String", "a")]
        for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
        for invert in (False, True)
    ),
]  # fmt: skip


@target(noise)
def prepared(data: bytes, folder: Path) -> bool:
    """What a tokenizer.json does to a text before and while it is split, against tokenizers, if that is installed."""
    try:
        import tokenizers
    except ImportError:
        return True
    draw = Draw(data)
    content = copy.deepcopy(draw.one_of(huggingface_parts()))
    byte_level = {"type": "ByteLevel", "add_prefix_space": bool(draw.number(2)), "trim_offsets": True,
                  "use_regex": bool(draw.number(2))}  # fmt: skip
    stages = [draw.one_of(PRE_TOKENIZERS) for _ in range(draw.number(4))]
    stages.insert(draw.number(len(stages) + 1), byte_level)
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": stages}
    content["normalizer"] = draw.one_of([None, {"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}])
    content["model"]["ignore_merges"] = bool(draw.number(2))
    content["added_tokens"] = []
    letters = draw.one_of(["<e>", "ab", "a ", "e\u0301é", "1'\n"])
    words = dict.fromkeys(draw.text(4, letters) for _ in range(draw.number(5)))
    for number, word in enumerate(filter(None, words), 296):
        flags = {name: bool(draw.number(2)) for name in ("special", "normalized", "lstrip", "rstrip", "single_word")}
        content["added_tokens"].append({"id": number, "content": word, **flags})
    texts = [draw.text(40, draw.one_of([*LETTERS, "<e> a", "e\u0301é a1"])) for _ in range(1 + draw.number(4))]
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        tokenizer = RegexTokenizer.from_huggingface(path)
    except ValueError:
        return False
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for text in texts:
        ids = theirs.encode(text, add_special_tokens=False).ids
        same(tokenizer.encode(text, allowed_special="all"), ids, f"ids of {text!r}")
    agrees_with_itself(tokenizer, texts, lossless=False)
    return True


# ---- streams, packed files, files in pieces, ids in files


@target(noise)
def stream(data: bytes, folder: Path) -> bool:
    """Tokens that end within characters, as a stream of ids in groups of any size, against what decode gives."""
    draw = Draw(data)
    tokenizer = trained(specials={"猫": 1000, "<e>": 1001})
    known = [*tokenizer.vocab, *tokenizer.special_tokens.values()]
    stream = StreamDecoder(tokenizer)
    for _ in range(1 + draw.number(3)):         # the decoder begins anew behind each flush
        ids, shown = [], ""
        for _ in range(draw.number(30)):
            group = [draw.one_of(known) if draw.number(2) else 0x80 + draw.number(128) for _ in range(draw.number(5))]
            kind = draw.number(4)
            if kind == 0 and group:
                group = group[:1]
                shown += stream.feed(group[0])
            elif kind == 1:
                shown += stream.feed(np.array(group, np.int64))
            else:
                shown += stream.feed(iter(group) if kind == 2 else group)
            ids += group
            if draw.number(8) == 7:
                try:
                    stream.feed([*group, 5000])
                except UnknownIdError:
                    continue
                raise Difference("5000 was decoded")
        same(shown + stream.flush(), tokenizer.decode(ids), f"stream of {ids}")
    return True


PACKERS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "gz": (lambda data: gzip.compress(data, mtime=0), gzip.decompress),
    "bz2": (bz2.compress, bz2.decompress),
    "xz": (lzma.compress, lzma.decompress),
}
with contextlib.suppress(ImportError):
    import zstandard

    def zst(data: bytes) -> bytes:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            return reader.read()

    PACKERS["zst"] = zstandard.compress, zst

ENDINGS = list(PACKERS)


def packed_files() -> list[bytes]:
    """The number of the way of packing, and a file packed so: of one member, and of two."""
    return [
        bytes([i]) + pack(TEXT.encode() * n) + more
        for i, (pack, _) in enumerate(PACKERS.values())
        for n, more in ((1, b""), (200, b""), (1, pack(b"more")))
    ]


MAGIC = [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"]


@target(packed_files, [*MAGIC, b"\0", b"\1", b"\2", b"\3", b"\xff"])
def packed(data: bytes, folder: Path) -> bool:
    """A compressed file: what is taken is what the packages say that it holds, all of it."""
    ending = ENDINGS[data[0] % len(ENDINGS)] if data else "gz"
    path = folder / f"t.txt.{ending}"
    path.write_bytes(data[1:])
    try:
        with ChunkStore.from_files(path, pattern=None, errors="replace", num_threads=1) as store:
            chunks = list(store)
    except (ValueError, OSError):
        return False
    text = PACKERS[ending][1](data[1:]).decode("utf-8", "replace")
    same(chunks, [(text.encode(), 1)] if text else [], "the text")
    tokenizer = trained(BasicTokenizer, specials={})
    tokenizer.encode_file(path, folder / "ids.bin", errors="replace", num_threads=1)
    same(np.fromfile(folder / "ids.bin", np.uint16).tolist(), tokenizer.encode(text), "ids of the file")
    return True


def parquet_files() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    files = []
    for texts in (["one", "", None, "two é"] * 5, [TEXT] * 3, []):
        for how in ({}, {"compression": "zstd", "row_group_size": 4}, {"compression": "none", "use_dictionary": False}):
            file = io.BytesIO()
            table = pyarrow.table({"id": range(len(texts)), "text": pyarrow.array(texts, pyarrow.string())})
            pyarrow.parquet.write_table(table, file, **how)
            files.append(file.getvalue())
    return files


@target(parquet_files, [b"PAR1", b"text", b"\xff", b"\0"], if_there=bool(importlib.util.find_spec("pyarrow")))
def parquet(data: bytes, folder: Path) -> bool:
    """A Parquet file: counted, as files of ids and of shards, or refused by all."""
    path = folder / "t.parquet"
    path.write_bytes(data)
    tokenizer = trained(specials={})
    try:
        with ChunkStore.from_files(path, pattern=tokenizer.pattern, errors="skip", num_threads=1) as counted:
            total = counted.total_bytes
        n_ids = tokenizer.encode_file(path, folder / "ids.bin", errors="skip", num_threads=1)
    except (ValueError, OSError):
        return False
    ids = np.fromfile(folder / "ids.bin", np.uint16)
    same(len(ids), n_ids, "number of ids")
    same(len(tokenizer.decode_bytes(ids)), total, "bytes of all texts")
    tokenizer.encode_shards(path, folder / "shards", 7, errors="skip", num_threads=1)
    same(b"".join(each.read_bytes() for each in sorted((folder / "shards").glob("*.bin"))), ids.tobytes(), "shards")
    return True


@contextlib.contextmanager
def patched(values: Mapping[tuple[Any, str], int]) -> Iterator[None]:
    """Gives attributes, (module, name), other values for a while."""
    before = {(module, name): getattr(module, name) for module, name in values}
    try:
        for (module, name), value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def small_pieces(draw: Draw) -> dict[tuple[Any, str], int]:
    """What has files be read a few bytes or lines at a time."""
    return {
        (corpus, "PART"): 1 + draw.number(60), (corpus, "WINDOW"): 8 + draw.number(60),
        (corpus, "PATIENCE"): 1 + draw.number(3), (encoding_files, "PART"): 1 + draw.number(60),
        (documents, "BLOCK"): 1 + draw.number(60), (documents, "MAX_ROWS"): 1 + draw.number(4),
        (streams, "AT_ONCE"): 1 + draw.number(60), (streams, "UNPACKED"): 1 + draw.number(60),
    }  # fmt: skip


@target(noise)
def pieces(data: bytes, folder: Path) -> bool:
    """Files that are read in pieces of any size: counted, and as ids, against what each text gives as a whole."""
    draw = Draw(data)
    pattern = draw.one_of(PATTERNS)
    tokenizer = trained(BasicTokenizer if pattern is None else RegexTokenizer, pattern, {})
    separator = draw.one_of([None, None, "<e>", "\n\n", "\n", "a"])
    texts, paths = [], []
    for number in range(draw.number(5)):
        letters = draw.one_of([*LETTERS, "ab<e>\n", "a\n\n", "\n \u00a0a"])
        parts = [draw.text(60, letters) for _ in range(draw.number(6))]
        kind = draw.one_of(["txt", "jsonl", "txt", *(f"txt.{ending}" for ending in ENDINGS), "jsonl.gz"])
        if kind.startswith("jsonl"):
            content = "".join(json.dumps({"text": part}, ensure_ascii=bool(draw.number(2))) + "\n" for part in parts)
            texts += parts
        else:
            content = (separator or "").join(parts)
            found = content.split(separator) if separator else [content]
            texts += found[:-1] if len(found) > 1 and not found[-1] else found
        paths.append(folder / f"{number}.{kind}")
        pack = PACKERS[kind.rpartition(".")[2]][0] if kind.count(".") else bytes
        paths[-1].write_bytes(pack(content.encode()))
    how: Any = {"eot": 97 if draw.number(2) else None, "separator": separator, "num_threads": 1 + draw.number(3)}
    wanted = []
    for text in texts:
        wanted += [*tokenizer.encode_ordinary(text), *([97] if how["eot"] else [])]
    with patched(small_pieces(draw)):
        tokenizer.encode_file(paths, folder / "ids.bin", **how)
        same(np.fromfile(folder / "ids.bin", np.uint16).tolist(), wanted, f"ids of files, {how}, under {pattern!r}")
        n = 20 + draw.number(200)
        tokenizer.encode_shards(paths, folder / "shards", n, **how)
        files = sorted((folder / "shards").glob("*.bin"))
        found = [number for each in files for number in np.fromfile(each, np.uint16).tolist()]
        same(found, wanted, f"shards of {n}, {how}")
        if files:
            made = [each.read_bytes() for each in files]
            files[draw.number(len(files))].unlink()
            tokenizer.encode_shards(paths, folder / "shards", n, **how)
            same([each.read_bytes() for each in files], made, f"shards of {n}, {how}, taken up")
        if separator is None:
            specials = draw.one_of([(), (), ("<e>",), ("\n",), ("aa", "\n\n")])
            count: Any = {"pattern": pattern, "special_tokens": specials, "num_threads": 1 + draw.number(3)}
            with ChunkStore.from_files(paths, **count) as counted:
                whole = ChunkStore.from_iterator(texts, pattern=pattern, special_tokens=specials)
                same(list(counted), list(whole), f"chunks of files, {count}")
    return bool(wanted)


def id_files() -> list[bytes]:
    ids = np.arange(300, dtype="<u2")
    return [b"[1, 2, 3]\n97 98;99\n", b"\1" + ids.tobytes(), b"\2" + ids.astype("<u4").tobytes(), b"65, 66\n" * 9]


@target(id_files, [*NUMBERS, b",", b"]", b"\n", b"\xff", b"\1", b"\2", b"+1", b"1_0", "٣".encode()])
def ids(data: bytes, folder: Path) -> bool:
    """A file of ids, binary or numbers, as cbpe decode reads it, in blocks of any size."""
    draw = Draw(data)
    dtype = {1: "uint16", 2: "uint32"}.get(data[0] if data else 0)
    data = data[1:] if dtype else data
    path = folder / "ids"
    path.write_bytes(data)
    skip, limit = draw.number(9), draw.one_of([None, 0, 1, 5])
    try:
        with patched({(sys.modules["cbpe.cli.decode"], "BLOCK"): 1 + draw.number(50)}):
            found = [int(n) for block in blocks_of(str(path), dtype, None) for n in block]
            some = [int(n) for block in portion(blocks_of(str(path), dtype, None), skip, limit) for n in block]
    except ValueError:
        if dtype:
            same(len(data) % np.dtype(dtype).itemsize != 0, True, "a file of whole ids is refused")
        else:
            words = re.findall(rb"[^\s,;\[\]]+", data)
            same(all(re.fullmatch(rb"[0-9]{1,19}", word) for word in words), False, "numbers are refused")
        return False
    if dtype:
        same(found, np.frombuffer(data, np.dtype(dtype).newbyteorder("<")).tolist(), "ids")
    else:
        same(found, [int(word) for word in re.findall(rb"[^\s,;\[\]]+", data)], "numbers")
    same(some, found[skip : None if limit is None else skip + limit], "a portion")
    return True

"""load: a tokenizer from any file that the library knows, whatever it is called.

In: the path of a file, or of a folder with a tokenizer.json. Out: the tokenizer that it holds, by the class that reads
it; or a ModelFileError that says what the file looks like, and how one gets a tokenizer of it if there is a way.

What a file is, its first bytes say. No more is read of a file that is not a tokenizer's, be it a corpus of a terabyte.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cbpe.basic import BasicTokenizer
from cbpe.errors import ModelFileError
from cbpe.files import StrPath
from cbpe.formats import minbpe
from cbpe.regex import RegexTokenizer
from cbpe.training.store import MAGIC

if TYPE_CHECKING:
    from cbpe.native import NativeTokenizer

_HEAD = 1 << 16             # bytes that are looked at

_BINARIES = {
    b"PK\x03\x04": "a zip archive, such as PyTorch writes",
    b"GGUF": "a GGUF file, of llama.cpp; the tokenizer.json of the same model can be loaded",
    b"PAR1": "Parquet: a corpus, which train_from_files takes",
    b"(\xb5/\xfd": "packed by zstd",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"\x93NUMPY": "an array of numpy",
}
_STRING = r'"(?:[^"\\]|\\.)*"'
_JSON_TOKEN = re.compile(rf"(?P<string>{_STRING})\s*(?P<colon>:)?|(?P<open>[\[{{])|(?P<close>[\]}}])", re.DOTALL)
_RANK_LINE = re.compile(rb"([A-Za-z0-9+/]+={0,2}) [0-9]{1,10}\r?")


def load(
    path: StrPath, *, pattern: str | None = None, special_tokens: Mapping[str, int] | None = None
) -> NativeTokenizer:
    """The tokenizer in a file, which may be

    - a .model file of this library or of minbpe,
    - a rank file of tiktoken's, NAME.tiktoken or Llama 3's tokenizer.model; see RegexTokenizer.from_tiktoken,
    - a tokenizer.json of Hugging Face's, or a folder with one; see RegexTokenizer.from_huggingface,
    - codes of subword-nmt or fastBPE, or CLIP's vocabulary; see WordTokenizer.

    load("mine.model").encode("hello world")

    Args:
        pattern, special_tokens: what a rank file does not hold; they are refused for other files. pattern: a regular
            expression or one of the names in cbpe.patterns.NAMED_PATTERNS; published rank files need none.

    Raises ModelFileError, which says what the file looks like, for others; ValueError where the pattern is needed and
    not given, or given and not needed; OSError; TypeError.
    """
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"path must be a str or an os.PathLike of one, not {type(name).__name__}")
    if os.path.isdir(name):
        name = _file_in(name)
    with open(name, "rb") as file:
        head = file.read(_HEAD)
    if _is_ranks(head):
        return RegexTokenizer.from_tiktoken(name, pattern=pattern, special_tokens=special_tokens)
    reader = _reader_of(head)
    if reader is None:
        raise ModelFileError(f"{name}: no tokenizer, but {_described(name, head)}")
    for given, value in (("pattern", pattern), ("special_tokens", special_tokens)):
        if value is not None:
            raise ValueError(f"{name}: says itself what its {given} is; {given}= is for rank files, which do not")
    return reader(name)


def _reader_of(head: bytes) -> Callable[[str], NativeTokenizer] | None:
    """What loads a file that begins so."""
    if head.startswith((b"minbpe v1\n", b"minbpe v1\r\n")):
        return _load_model
    if head.startswith(b"cbpe words v1"):
        return _load_words
    if {"model", "added_tokens"} <= (members := _members(head)) or {"version", "added_tokens"} <= members:
        return RegexTokenizer.from_huggingface
    if _is_codes(head):
        return _load_codes
    if head.startswith(b"\x1f\x8b") and b"bpe_simple_vocab" in _unpacked(head)[:100]:
        return _load_clip
    return None


def _load_model(name: str) -> NativeTokenizer:
    data = Path(name).read_bytes()
    pattern, special_tokens, pairs = minbpe.parse(data, name)
    tokenizer = RegexTokenizer() if pattern else BasicTokenizer()
    tokenizer._take(name, pattern, special_tokens, pairs)
    return tokenizer


def _load_words(name: str) -> NativeTokenizer:
    from cbpe.word import WordTokenizer

    tokenizer = WordTokenizer()
    tokenizer.load(name)
    return tokenizer


def _load_codes(name: str) -> NativeTokenizer:
    from cbpe.word import WordTokenizer

    return WordTokenizer.from_codes(name)


def _load_clip(name: str) -> NativeTokenizer:
    from cbpe.word import WordTokenizer

    return WordTokenizer.from_clip(name)


def _file_in(folder: str) -> str:
    """The tokenizer.json in a folder. Raises ModelFileError."""
    name = os.path.join(folder, "tokenizer.json")
    if os.path.isfile(name):
        return name
    names = sorted(os.listdir(folder))
    others = [each for each in names if each.endswith((".model", ".tiktoken")) or each == "tekken.json"]
    if others:
        raise ModelFileError(f"{folder}: a folder without a tokenizer.json; load one of its files: {', '.join(others)}")
    if "shard-00000.bin.idx.json" in names:
        raise ModelFileError(f"{folder}: no tokenizer, but shards of ids")
    raise ModelFileError(f"{folder}: a folder without a tokenizer.json")


# ---- what a file looks like


def _described(name: str, head: bytes) -> str:
    """What a file that begins so is, as far as it says so, and what can be done with it."""
    if not head:
        return "an empty file"
    if head.startswith(MAGIC):
        return (
            "a chunk store, which tokenizers are trained from: "
            "RegexTokenizer(store.pattern).train_from_chunks(store, vocab_size), with store = ChunkStore.open(path)"
        )
    if _is_sentencepiece(head):
        return (
            "a model of SentencePiece, whose pieces are not bytes: it encodes differently; where the same model has a "
            "tokenizer.json of byte-level BPE, load that"
        )
    if head.startswith(b"\x1f\x8b"):
        inside = _unpacked(head)
        return f"packed by gzip; unpacked it is {_described('', inside)}" if inside else "damaged gzip"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and len(head) > 2:
        return (
            "a pickle, which may run any program when it is opened; if it is a tiktoken.Encoding of yours, open it and "
            "pass it to RegexTokenizer.from_tiktoken"
        )
    for magic, what in _BINARIES.items():
        if head.startswith(magic):
            return what
    if os.path.exists(f"{name}.idx.json"):
        return f"ids, of which {os.path.basename(name)}.idx.json beside it says more"
    members = _members(head)
    if members:
        return _described_json(members, head)
    if head.startswith(b"#version:"):
        return (
            "merges of byte-level BPE without their ids, such as GPT-2's merges.txt; load the tokenizer.json of the "
            "same model, or an encoding by its name: get_encoding"
        )
    try:
        head[: len(head) - 3 if len(head) == _HEAD else None].decode()
    except UnicodeDecodeError as error:
        # the end of what was looked at may stand within a character
        if error.start < _HEAD - 7:
            return "a binary file of a kind that is not known"
    if b"\0" in head:
        return "a binary file of a kind that is not known"
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    return f"text, which begins with {first[:40]!r}"


def _described_json(members: set[str], head: bytes) -> str:
    if {"config", "vocab"} <= members:
        return "a tekken.json of Mistral's; load the tokenizer.json of the same model"
    if b'"cbpe training statistics"' in head[:200]:
        return "the statistics of a model, which lie beside it; load the .model file"
    if {"dtype", "count"} <= members:
        return "what is said of a file of ids; the ids are in the file without .idx.json"
    if "tokenizer_class" in members:
        return "the settings of a tokenizer; load the tokenizer.json beside it"
    if re.match(rb'\s*\{\s*"(?:[^"\\]|\\.)+"\s*:\s*\d+\s*,', head):
        return "a vocabulary without its merges, such as a vocab.json; load the tokenizer.json of the same model"
    return f"JSON with the members {', '.join(sorted(members)[:5])}"


def _is_ranks(head: bytes) -> bool:
    """Whether the first lines are tokens in Base64 and their ranks."""
    lines = head.split(b"\n")
    if len(lines) > 1:
        lines.pop()         # it may be cut off
    for line in lines[:20]:
        match = _RANK_LINE.fullmatch(line)
        if match is None:
            return False
        try:
            base64.b64decode(match[1], validate=True)
        except binascii.Error:
            return False
    return True


def _is_codes(head: bytes) -> bool:
    """Whether these are merges of symbols with "</w>" at words' ends, two to a line and perhaps a count."""
    lines = head.split(b"\n")[:-1][:200]
    if lines and lines[0].startswith(b"#version:"):
        lines = lines[1:]
    if not lines or b"</w>" not in head:
        return False
    columns = [line.split(b" ") for line in lines]
    return all(len(each) == 2 or (len(each) == 3 and each[2].strip().isdigit()) for each in columns)


def _is_sentencepiece(head: bytes) -> bool:
    """Whether it is a protobuf of pieces: each a field 1 with a length, whose own field 1 is the piece's text."""
    starts, at = [0], 0
    while len(starts) < 4 and at + 4 < len(head) and head[at] == 0x0A and head[at + 1] < 0x80 and head[at + 2] == 0x0A:
        at += 2 + head[at + 1]
        starts.append(at)
    return len(starts) == 4 and any(b"\x15" in head[first:stop] for first, stop in pairwise(starts))


def _members(head: bytes) -> set[str]:
    """The names of an object's members in JSON of which only the beginning may be there: {"a": {"b": 1}, "c": [2 ->
    {"a", "c"}. Nothing for what is no object.
    """
    text = head.decode("utf-8-sig", "replace")
    if not text.lstrip().startswith("{"):
        return set()
    depth = 0
    members = set()
    for match in _JSON_TOKEN.finditer(text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
            if depth == 0:
                break
        elif depth == 1 and match["colon"]:
            members.add(match["string"][1:-1])
    return members


def _unpacked(head: bytes) -> bytes:
    """The beginning of what gzip packed."""
    try:
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD)
    except zlib.error:
        return b""

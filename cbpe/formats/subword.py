"""Files of word-level BPE: subword-nmt's and fastBPE's codes, CLIP's vocabulary, and WordTokenizer's own .model.

A codes file has a line for each merge, the most frequent first:

    #version: 0.2           subword-nmt's; without this line it is a file of version 0.1
    l o                     the two symbols that are joined
    lo w</w>                "</w>" ends a symbol that ends a word

By version 0.2 the mark belongs to a word's last character from the beginning; by 0.1 it is a symbol of its own, "</w>".
fastBPE has no first line, a third column with the pair's count, and what subword-nmt calls version 0.2. CLIP's file is
one of version 0.2, packed by gzip, in which each byte is written as the character that GPT-2 has for it.

Symbols are numbered as CLIP does it: the alphabet, the alphabet with "</w>" (by version 0.1 "</w>" alone), the merges.
In subword-nmt a symbol is its text, whatever it was joined of. Of several pairs that spell the same symbol only one can
ever stand side by side, as what happens between the symbol's ends depends on nothing outside. The others are dropped.

A .model file of a WordTokenizer, which unlike a codes file holds its whole alphabet:

    cbpe words v1
    a line of JSON: version, pattern, lower, unk, alphabet, special_tokens
    a line each: the ids of the two symbols of a merge
"""

from __future__ import annotations

import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbpe.errors import ModelFileError
from cbpe.files import StrPath
from cbpe.special import MAX_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pairs = NDArray[np.uint32]

END = "</w>"
VERSIONS = ("0.1", "0.2")
CLIP_MERGES = 49152 - 256 - 2   # of the lines in CLIP's file, the rest of which CLIP does not use

_HEADER = "cbpe words v1"
_MOST_UNPACKED = 1 << 26       # bytes of CLIP's file, which has three million
_VERSION = re.compile(r"#version:\s*(?:\S+\s+)*([0-9]+\.[0-9]+)(?:\.0+)*\s*")
_COUNT = re.compile("[0-9]+", re.ASCII)
_IDS = re.compile("([0-9]{1,10}) ([0-9]{1,10})", re.ASCII)


class Codes(NamedTuple):
    """A codes file: its version, its pairs of symbols, and for messages its name and the line of each pair."""

    version: str
    pairs: list[tuple[str, str]]
    name: str = "codes"
    lines: Sequence[int] = ()

    def error(self, index: int, message: str) -> ModelFileError:
        return ModelFileError(f"{self.name}: line {self.lines[index] if self.lines else index + 1}: {message}")


def read_codes(path: StrPath) -> Codes:
    """Reads a codes file of subword-nmt or fastBPE. Raises ModelFileError naming the line, OSError."""
    with open(path, "rb") as file:
        return parse_codes(file.read(), os.fspath(path))


def parse_codes(data: bytes, name: str) -> Codes:
    """What read_codes reads, from the content of a file. name: the file's, for messages."""
    lines = data.rstrip(b"\r\n").split(b"\n") if data.rstrip(b"\r\n") else []
    version = "0.1"
    first = 1
    if lines and lines[0].startswith(b"#version:"):
        found = _VERSION.fullmatch(lines[0].decode("utf-8", "replace"))
        if found is None or found[1] not in VERSIONS:
            raise ModelFileError(f"{name}: line 1: not a version that is known, 0.1 or 0.2: {_shown(lines[0])}")
        version = found[1]
        first = 2
    pairs = []
    for number, line in enumerate(lines[first - 1 :], start=first):
        try:
            symbols = line.decode().strip("\r\n ").split(" ")
        except UnicodeDecodeError:
            raise ModelFileError(f"{name}: line {number}: not UTF-8: {_shown(line)}") from None
        if number == 1 and len(symbols) == 3 and _COUNT.fullmatch(symbols[2]):
            version = "fastBPE"
        if version == "fastBPE" and len(symbols) == 3 and _COUNT.fullmatch(symbols[2]):
            del symbols[2]
        elif version == "fastBPE":
            raise ModelFileError(f"{name}: line {number}: not two symbols and a count: {_shown(line)}")
        if len(symbols) != 2 or not all(symbols):
            raise ModelFileError(f"{name}: line {number}: not two symbols: {_shown(line)}")
        pairs.append((symbols[0], symbols[1]))
    return Codes(version if version in VERSIONS else "0.2", pairs, name, range(first, first + len(pairs)))


def codes_text(version: str, pairs: Iterable[tuple[str, str]]) -> str:
    """The content of a codes file."""
    head = [] if version == "0.1" else [f"#version: {version}"]
    return "".join(f"{line}\n" for line in [*head, *(f"{left} {right}" for left, right in pairs)])


def alphabet_of(codes: Codes) -> list[str]:
    """The characters that symbols are made of, in order: "l o", "lo w</w>" -> ["l", "o", "w"]."""
    return sorted({character for pair in codes.pairs for symbol in pair for character in _characters(symbol, codes)})


def _characters(symbol: str, codes: Codes) -> str:
    """"lo" -> "lo", "w</w>" -> "w". By version 0.2 "</w>" has no character before it and so is four of its own."""
    return symbol.removesuffix(END) if codes.version == "0.1" or symbol != END else symbol


def alphabet_symbols(alphabet: Sequence[str], version: str) -> list[str]:
    """The symbols before any merge, in the order of their ids: "ab" -> ["a", "b", "a</w>", "b</w>"]."""
    return [*alphabet, END] if version == "0.1" else [*alphabet, *(character + END for character in alphabet)]


def numbered(codes: Codes, alphabet: Sequence[str]) -> Pairs:
    """The merges by the ids of their symbols, uint32[k, 2], in their order; the i-th makes the i-th id after the
    alphabet's.

    A pair that is there twice, or never occurs since its symbol is made of others, is left out. Raises ModelFileError
    for a symbol that nothing before its line makes.
    """
    symbols = alphabet_symbols(alphabet, codes.version)
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    makers: dict[str, dict[tuple[str, str], int]] = {}
    for index, pair in enumerate(codes.pairs):
        makers.setdefault(pair[0] + pair[1], {}).setdefault(pair, index)
    ranks = {pair: index for pairs in makers.values() for pair, index in pairs.items()}
    rows: list[tuple[int, int]] = []
    for index, (left, right) in enumerate(codes.pairs):
        made = left + right
        if ranks[left, right] != index or (
            len(makers[made]) > 1 and (left, right) != _live_pair(made, makers[made], ranks, codes.version)
        ):
            continue
        for symbol in (left, right):
            if symbol not in ids:
                hint = ""
                if symbol.endswith(END) and codes.version == "0.1":
                    hint = "; in a file of version 0.2 it may be, but such a file begins with '#version: 0.2'"
                raise codes.error(index, f"{symbol!r} is neither a character nor made by a line before{hint}")
        ends = right.endswith(END) and (len(right) > len(END) or codes.version == "0.1")
        if left.endswith(END) and (len(left) > len(END) or codes.version == "0.1"):
            raise codes.error(index, f"{left!r} ends a word, and nothing can follow it")
        if made in ids or (made.endswith(END) and not ends and (len(made) > len(END) or codes.version == "0.1")):
            raise codes.error(index, f"{made!r} could be two symbols, as the text itself holds {END!r}")
        rows.append((ids[left], ids[right]))
        ids[made] = len(symbols) + len(rows) - 1
    return np.array(rows, np.uint32).reshape(-1, 2)


def _live_pair(
    made: str, makers: dict[tuple[str, str], int], ranks: dict[tuple[str, str], int], version: str
) -> tuple[str, str]:
    """Of several pairs that make a symbol the one that does so where the symbol is encoded; if none does, the first.

    "abc" of (a, bc) and (ab, c), where (b, c) comes before (a, b): (a, bc).
    """
    ends = made.endswith(END)
    word = list(made.removesuffix(END))
    if ends and version == "0.1":
        word.append(END)
    elif ends:
        word[-1] += END
    while len(word) > 1:
        best = min(itertools.pairwise(word), key=lambda pair: ranks.get(pair, len(ranks)))
        if best not in ranks:
            break
        if best in makers:
            return best
        merged: list[str] = []
        for symbol in word:
            if merged and (merged[-1], symbol) == best:
                merged[-1:] = [best[0] + best[1], ""]       # what was just made joins nothing in this round
            else:
                merged.append(symbol)
        word = [symbol for symbol in merged if symbol]
    return min(makers, key=makers.__getitem__)


# ---- CLIP

def byte_characters() -> dict[int, str]:
    """The character that GPT-2 and CLIP write for each byte, in their order: those that can be printed come first."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def read_clip(path: StrPath) -> Codes:
    """Reads CLIP's bpe_simple_vocab_16e6.txt.gz, packed or not: the merges that CLIP uses. Raises ModelFileError,
    OSError."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read()
    if data.startswith(b"\x1f\x8b"):
        unpacking = zlib.decompressobj(wbits=31)
        try:
            data = unpacking.decompress(data, _MOST_UNPACKED)
        except zlib.error as error:
            raise ModelFileError(f"{name}: damaged: {error}") from None
        if not unpacking.eof:
            raise ModelFileError(f"{name}: damaged: cut short, or of more than {_MOST_UNPACKED:,} bytes")
    lines = data.split(b"\n", CLIP_MERGES + 1)[: CLIP_MERGES + 1]
    if b"#version: 0.2" not in lines[0]:
        raise ModelFileError(f"{name}: line 1: not CLIP's merges, which name #version: 0.2: {_shown(lines[0])}")
    codes = parse_codes(b"#version: 0.2\n" + b"\n".join(lines[1:]), name)
    if len(codes.pairs) < CLIP_MERGES:
        raise ModelFileError(f"{name}: ends after {len(codes.pairs):,} merges; CLIP has {CLIP_MERGES:,}")
    return codes


# ---- .model files

def model_text(settings: dict[str, Any], pairs: Pairs) -> str:
    """The content of a .model file. settings: what stands in its line of JSON."""
    lines = [_HEADER, json.dumps(settings, ensure_ascii=True)]
    lines += [f"{left} {right}" for left, right in pairs.tolist()]
    return "\n".join(lines) + "\n"


def parse_model(data: bytes, name: str) -> tuple[dict[str, Any], Pairs]:
    """Settings and merges of a .model file. Raises ModelFileError naming the line."""
    lines = data.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")
    if lines[0] != _HEADER:
        raise ModelFileError(f"{name}: line 1: not a WordTokenizer's .model file: it does not begin with {_HEADER!r}")
    try:
        settings = json.loads(lines[1])
        wrong = _wrong_setting(settings)
    except (ValueError, IndexError, RecursionError):
        wrong = "not the settings, as JSON"
    if wrong:
        raise ModelFileError(f"{name}: line 2: {wrong}")
    if lines[-1]:
        raise ModelFileError(f"{name}: line {len(lines)}: cut short: the last line has no end")
    lengths = [len(symbol) for symbol in alphabet_symbols(settings["alphabet"], settings["version"])]
    total = sum(lengths)
    rows: list[tuple[int, int]] = []
    seen = set()
    for number, line in enumerate(lines[2:-1], start=3):
        found = _IDS.fullmatch(line)
        row = (int(found[1]), int(found[2])) if found else None
        if row is None or max(row) >= len(lengths):
            raise ModelFileError(f"{name}: line {number}: not two ids of symbols before it: {line[:60]!r}")
        if row in seen:
            raise ModelFileError(f"{name}: line {number}: these two are merged by a line before: {line!r}")
        seen.add(row)
        rows.append(row)
        lengths.append(lengths[row[0]] + lengths[row[1]])
        total += lengths[-1]
        if total > MAX_BYTES:
            raise ModelFileError(
                f"{name}: line {number}: the symbols so far have {total:,} letters together; {MAX_BYTES:,} is the limit"
            )
    return settings, np.array(rows, np.uint32).reshape(-1, 2)


def _wrong_setting(settings: Any) -> str | None:
    """What is wrong with the settings of a .model file, if anything is."""
    kinds = {"version": str, "pattern": str, "lower": bool, "alphabet": str, "special_tokens": dict}
    if not isinstance(settings, dict):
        return "the settings are no JSON object"
    for key, kind in kinds.items():
        if not isinstance(settings.get(key), kind):
            return f"{key!r} is missing or no {kind.__name__}"
    if settings["version"] not in VERSIONS:
        return f"not a version that is known: {settings['version']!r}"
    if not (settings.get("unk") is None or isinstance(settings["unk"], str)):
        return "'unk' is no str"
    if len(set(settings["alphabet"])) < len(settings["alphabet"]):
        return "the alphabet holds a character twice"
    return None


def _shown(line: bytes) -> str:
    """The beginning of a line, for a message."""
    return repr(line[:60].decode("utf-8", "backslashreplace"))

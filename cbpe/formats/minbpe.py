"""minbpe's two files: NAME.model, which is loaded again, and NAME.vocab, which people read.

A .model file, every line ended by "\\n":

    minbpe v1
    the pattern, or nothing
    the number of special tokens
    a line each: the special token, a space, its id
    a line each: the two ids of a merge; the first merge makes id 256, the next 257, ...

The pattern is its line as it stands. A special token's line is parted at its last space, so that special tokens may
hold spaces. Only "\\n" ends a line. minbpe on Windows writes "\\r\\n" instead; if the first line ends so, all do.

A .vocab file has a line for each id, "[left][right] -> [token] id" or "[token] id", with control characters written
out.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import regex

from cbpe.errors import ModelFileError
from cbpe.files import atomic_write
from cbpe.formats.untrusted import check_pattern
from cbpe.special import MAX_BYTES, MAX_ID

Pair = tuple[int, int]

_HEADER = "minbpe v1"
_NUMBER = re.compile("[0-9]{1,10}", re.ASCII)
_MERGE = re.compile("([0-9]{1,10}) ([0-9]{1,10})", re.ASCII)


def save(file_prefix: str | os.PathLike[str], model: str, vocab: str) -> None:
    """Writes both files, each whole or not at all. model, vocab: of model_text and vocab_text. Raises OSError."""
    prefix = check_prefix(file_prefix)
    # the .model file, from which all can be made again, is replaced last
    with atomic_write(prefix + ".model") as model_file, atomic_write(prefix + ".vocab") as vocab_file:
        model_file.write(model.encode())
        model_file.flush()      # a full disk is met before anything is replaced
        vocab_file.write(vocab.encode())


def check_prefix(file_prefix: str | os.PathLike[str]) -> str:
    """The prefix of a model's files as a str, or TypeError."""
    prefix = os.fspath(file_prefix)
    if not isinstance(prefix, str):
        raise TypeError(f"a file prefix must be a str or an os.PathLike of one, not {type(prefix).__name__}")
    return prefix


def model_text(pattern: str, special_tokens: Mapping[str, int], merges: Mapping[Pair, int]) -> str:
    """The content of a .model file. Raises ModelFileError for what load would not read back as it is."""
    for what, words in (("pattern", [pattern]), ("special token", special_tokens)):
        for word in words:
            if "\n" in word:
                raise ModelFileError(f"a .model file cannot hold a {what} with a line end in it: {word!r}")
            try:
                word.encode()
            except UnicodeEncodeError:
                raise ModelFileError(f"a .model file cannot hold a {what} that has no UTF-8: {word!r}") from None
    lines = [_HEADER, pattern, str(len(special_tokens))]
    lines += [f"{word} {number}" for word, number in special_tokens.items()]
    for expected, (pair, number) in enumerate(merges.items(), start=256):
        left, right = pair
        if number != expected or not (0 <= left < expected and 0 <= right < expected):
            raise ModelFileError(
                "a .model file can only hold merges whose ids are 256, 257, ... in this order, each made of lower "
                f"ones: {pair} -> {number} stands where id {expected} belongs"
            )
        lines.append(f"{left:d} {right:d}")
    return "\n".join(lines) + "\n"


def vocab_text(vocab: Mapping[int, bytes], merges: Mapping[Pair, int]) -> str:
    """The content of a .vocab file. Raises ModelFileError if the vocab lacks a part of a token that it holds."""
    pairs = {number: pair for pair, number in merges.items()}
    rendered = {number: render_token(token) for number, token in vocab.items()}
    lines = []
    for number, token in rendered.items():
        if number in pairs:
            left, right = pairs[number]
            if left not in rendered or right not in rendered:
                raise ModelFileError(f"the vocab holds id {number}, but not both of its parts, {left} and {right}")
            lines.append(f"[{rendered[left]}][{rendered[right]}] -> [{token}] {number}\n")
        else:
            lines.append(f"[{token}] {number}\n")
    return "".join(lines)


def replace_control_characters(s: str) -> str:
    """The text with every character of the Unicode categories C* written out: "a\\nb" -> "a\\\\u000ab"."""
    if s.isprintable():
        return s
    return s.translate({ord(ch): f"\\u{ord(ch):04x}" for ch in set(s) if unicodedata.category(ch).startswith("C")})


def render_token(t: bytes) -> str:
    """A token for people to read: b"caf\\xc3\\xa9\\n\\xff" -> "café\\\\u000a\\ufffd"."""
    return replace_control_characters(t.decode("utf-8", errors="replace"))


def load(model_file: str | os.PathLike[str]) -> tuple[str, dict[str, int], npt.NDArray[np.uint32]]:
    """Reads a .model file: the pattern ("" if it has none), the special tokens, and the merges as uint32[m, 2].

    Raises ModelFileError, naming the line, for what is no sound .model file; OSError.
    """
    name = os.fspath(model_file)
    if not isinstance(name, str):
        raise TypeError(f"a model file must be a str or an os.PathLike of one, not {type(name).__name__}")
    if not name.endswith(".model"):
        hint = f"; there is {name}.model" if os.path.isfile(f"{name}.model") else ""
        raise ModelFileError(f"{name}: the name of a model file ends in .model{hint}")
    with open(name, "rb") as file:
        data = file.read()
    return parse(data, name)


class _Lines:
    """The lines of a file, one after another, and the number of the last one for error messages."""

    def __init__(self, data: bytes, name: str) -> None:
        self._name = name
        self._lines = data.split(b"\n")
        if not self._lines[-1]:
            self._lines.pop()           # the last line's end begins no other
        self._ended_by_cr = bool(self._lines) and self._lines[0].endswith(b"\r")
        self.number = 0

    def next(self, what: str) -> str:
        self.number += 1
        if self.number > len(self._lines):
            raise self.error(f"the file ends where {what} should be")
        line = self._lines[self.number - 1]
        if self._ended_by_cr:
            line = line.removesuffix(b"\r")
        try:
            return line.decode()
        except UnicodeDecodeError:
            raise self.error("not UTF-8") from None

    def at_end(self) -> bool:
        return self.number >= len(self._lines)

    def error(self, message: str, number: int | None = None) -> ModelFileError:
        return ModelFileError(f"{self._name}: line {self.number if number is None else number}: {message}")


def parse(data: bytes, name: str) -> tuple[str, dict[str, int], npt.NDArray[np.uint32]]:
    """What load reads, from the content of a file. name: the file's, for messages."""
    lines = _Lines(data, name)
    if lines.next("the header") != _HEADER:
        raise lines.error(f"not a .model file: it does not begin with {_HEADER!r}")
    pattern = lines.next("the pattern")
    try:
        check_pattern(pattern)
    except (regex.error, ValueError) as error:
        raise lines.error(f"the pattern is no regular expression: {error}") from None
    count = lines.next("the number of special tokens")
    if not _NUMBER.fullmatch(count):
        raise lines.error(f"not a number of special tokens: {_shown(count)}")

    special_tokens: dict[str, int] = {}
    line_of: dict[int, int] = {}
    for _ in range(int(count)):
        line = lines.next(f"one of {count} special tokens")
        word, space, digits = line.rpartition(" ")
        if not (space and word and _NUMBER.fullmatch(digits)) or int(digits) > MAX_ID:
            raise lines.error(f"not a special token and its id: {_shown(line)}")
        if word in special_tokens or int(digits) in line_of:
            raise lines.error(f"a special token, or the id of one, for the second time: {_shown(line)}")
        special_tokens[word] = int(digits)
        line_of[int(digits)] = lines.number

    pairs: dict[Pair, None] = {}
    lengths = [1] * 256
    total = 256
    while not lines.at_end():
        line = lines.next("a merge")
        match = _MERGE.fullmatch(line)
        if not match:
            raise lines.error(f"not the two ids of a merge: {_shown(line)}")
        left, right = int(match[1]), int(match[2])
        if left >= len(lengths) or right >= len(lengths):
            raise lines.error(f"the merge that makes id {len(lengths)} is of {left} and {right}, which must be lower")
        if (left, right) in pairs:
            raise lines.error(f"the merge of {left} and {right} for the second time")
        pairs[left, right] = None
        lengths.append(lengths[left] + lengths[right])
        total += lengths[-1]
        if total > MAX_BYTES:
            raise lines.error(f"the tokens so far have {total:,} bytes together; {MAX_BYTES:,} is the limit")
    for word, number in special_tokens.items():
        if number < len(lengths):
            message = f"the id of special token {word!r} is that of a byte or a merge: {number}"
            raise lines.error(message, line_of[number])
    return pattern, special_tokens, np.array(list(pairs), dtype=np.uint32).reshape(-1, 2)


def _shown(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:60] + "...")

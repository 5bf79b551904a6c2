"""A tokenizer as an encoding of tiktoken, and as a rank file, NAME.tiktoken.

In: a tokenizer. Out: a tiktoken.Encoding, or a file with a line for each token, its bytes in Base64, a space and its
rank, which is its id. Such a file holds no pattern and no special tokens: whoever reads it brings both. Pattern and
merges are put in the words of tiktoken's engine (fancy, ranks); what comes out is compared with the tokenizer (check)
before anybody gets it.

tiktoken finds special tokens in an order of its own, so two of which one begins with the other are refused. Its engine
panics where a pattern matches nothing at all, so such patterns are refused too.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from cbpe.errors import ExportError
from cbpe.files import StrPath, atomic_write
from cbpe.formats import ranks
from cbpe.formats.check import battery, check_export, overlapping
from cbpe.formats.fancy import to_fancy
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting.stages import Stages

if TYPE_CHECKING:
    import tiktoken

    from cbpe.native import NativeTokenizer

_WHOLE_TEXT = "(?s:.+)"
_BYTES = {bytes([byte]): byte for byte in range(256)}
_MOST_BYTES = 400           # of a text that is split for a message: the number of its stretches grows with the square


def to_encoding(tokenizer: NativeTokenizer, name: str) -> tiktoken.Encoding:
    """The tokenizer as an encoding of this name. Raises ExportError, ImportError."""
    return _checked(tokenizer, name, _ranks(tokenizer))


def save(tokenizer: NativeTokenizer, path: StrPath) -> None:
    """Writes the rank file. Raises ExportError, OSError; there is then no new file."""
    table = _ranks(tokenizer)
    data = ranks.text(table)
    try:
        import tiktoken  # noqa: F401
    except ImportError:
        warnings.warn(
            "tiktoken is not installed, so nobody has compared what it would make of the file with the tokenizer",
            stacklevel=3,
        )
    else:
        _checked(tokenizer, "exported", ranks.parse(data, "the rank file"))
    with atomic_write(path) as file:
        file.write(data)


def _ranks(tokenizer: NativeTokenizer) -> dict[bytes, int]:
    """The ranks of the tokenizer's tokens. Raises ExportError if it does more than ranks and one pattern can say."""
    model = tokenizer._model
    if tokenizer._encodes_its_own_way:
        raise ExportError(f"{type(tokenizer).__name__} encodes in a way of its own, which an encoding would not have")
    if model.preparation is not None:
        raise ExportError("the tokenizer changes texts before it splits them, and an encoding of tiktoken does not")
    if model.stages is not None:
        raise ExportError("the tokenizer splits by several patterns, and an encoding of tiktoken has one")
    missing = _BYTES.keys() - model.tokens(with_specials=False).values()
    if missing:
        raise ExportError(
            f"the tokenizer has no token for byte {min(missing)!r}, and tiktoken begins with all 256: it is not one of "
            "bytes"
        )
    return ranks.ranks_of(model)


def _checked(tokenizer: NativeTokenizer, name: str, table: dict[bytes, int]) -> tiktoken.Encoding:
    """An encoding with these ranks that does what the tokenizer does. Raises ExportError."""
    import tiktoken

    model = tokenizer._model
    pair = overlapping(model.specials)
    if pair is not None:
        raise ExportError(
            f"special token {pair[1]!r} begins with {pair[0]!r}, and which of them tiktoken finds is left to chance"
        )
    texts = battery(tokenizer, Engine())
    pattern = pattern_there(tokenizer, texts)
    try:
        encoding = tiktoken.Encoding(
            name, pat_str=pattern, mergeable_ranks=table, special_tokens=dict(model.specials)
        )
    except ValueError as error:
        raise ExportError(f"tiktoken's engine cannot read the pattern {pattern!r}: {error}") from error

    def encode(text: str, specials: bool) -> list[int]:
        ids: list[int] = encoding.encode(text, allowed_special="all") if specials else encoding.encode_ordinary(text)
        return ids

    check_export(tokenizer, encode, encoding.decode_bytes, "tiktoken", engine=Engine(pattern), texts=texts)
    return encoding


def pattern_there(tokenizer: NativeTokenizer, texts: list[str]) -> str:
    """The tokenizer's pattern in the words of tiktoken's engine. Raises ExportError.

    texts: what the pattern is tried on, to see whether it matches the empty text.
    """
    splitter = tokenizer._splitter(tokenizer._model)
    if splitter.pattern is None:
        return _WHOLE_TEXT
    assert not isinstance(splitter.pattern, Stages)     # those are refused before
    if splitter.compiled is None or splitter.pattern in NAMED_PATTERNS.values():
        return splitter.pattern         # both read these alike
    compiled = splitter.compiled
    for text in texts:
        empty = next((match for match in compiled.finditer(text) if not match.group()), None)
        if empty is not None:
            raise ExportError(
                f"the pattern matches the empty text, for instance at {empty.start()} in {text[:40]!r}, where "
                "tiktoken's engine fails: it must match one character at least"
            )
    return to_fancy(compiled)


class Engine:
    """tiktoken's regular expressions; see check.Engine. They are seen through the ids of encodings made for that."""

    def __init__(self, pattern: str = "") -> None:
        self.pattern = pattern

    def find(self, pattern: str, text: str) -> str:
        return bytes(_encoding(pattern, _BYTES).encode_ordinary(text)).decode()

    def split(self, text: str) -> list[bytes] | None:
        data = text.encode()
        if len(data) > _MOST_BYTES:
            return None
        # every stretch is a token, so every chunk is one
        stretches = {data[i:j] for i in range(len(data)) for j in range(i + 2, len(data) + 1)}
        tokens = [*_BYTES, *stretches]
        encoding = _encoding(self.pattern, {token: number for number, token in enumerate(tokens)})
        return [tokens[number] for number in encoding.encode_ordinary(text)]


def _encoding(pattern: str, table: dict[bytes, int]) -> tiktoken.Encoding:
    import tiktoken

    return tiktoken.Encoding("regular expressions", pat_str=pattern, mergeable_ranks=table, special_tokens={})

"""The exceptions of cbpe.

Each is also what the reference would raise at the same place, so that programs written for minbpe, which checks with
assert and dictionary look-ups, catch what they always caught.
"""

from __future__ import annotations


class DisallowedSpecialTokenError(ValueError, AssertionError):
    """The text holds a special token and allowed_special is "none_raise"."""


class UnknownIdError(ValueError, KeyError):
    """An id that the tokenizer does not have was to be decoded."""

    def __str__(self) -> str:      # KeyError would show the message in quotes
        return str(self.args[0]) if self.args else ""


class UnknownCharacterError(ValueError, KeyError):
    """A text holds a character that a WordTokenizer has no id for, and no id stands for unknown ones."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class VocabSizeError(ValueError, AssertionError):
    """A vocab_size below 256, the number of bytes."""


class SpecialTokenError(ValueError):
    """A special token that cannot be registered: empty, not encodable in UTF-8, or its id is not free."""


class ModelFileError(ValueError, AssertionError):
    """A model file that is damaged, foreign, or of another kind of tokenizer; or a model its format cannot hold."""


class ExportError(ValueError):
    """A tokenizer that another library's format cannot hold, or that would encode differently there."""


class NoStatisticsError(ValueError):
    """A question about the training of a tokenizer that has no statistics of one."""


class ChunkStoreError(ValueError):
    """A chunk store that is damaged, foreign, of a newer version, or made with another pattern."""


class ShardError(ValueError):
    """A shard that is damaged, or was made of other sources, with another model or with other settings."""


class CorpusTooLargeError(ValueError, OverflowError):
    """A corpus beyond the width of an index; the message names the limit."""


class CorpusDecodeError(UnicodeDecodeError):
    """Bytes of a corpus that are not UTF-8, under errors="strict".

    Attributes: source, the file's path or a word for what is not a file; offset, of the first wrong byte in it.
    """

    def __init__(self, source: str, offset: int, wrong: bytes) -> None:
        super().__init__("utf-8", wrong, 0, max(1, len(wrong)), "not UTF-8")
        self.source = source
        self.offset = offset

    def __reduce__(self) -> tuple[type, tuple[str, int, bytes]]:
        return type(self), (self.source, self.offset, self.object)

    def __str__(self) -> str:
        return (
            f"{self.source}: byte {self.object[:1]!r} at offset {self.offset:,} is not UTF-8; "
            'mend the file, or pass errors="replace" (--errors replace) to read U+FFFD in its place'
        )


class CorpusFormatError(ValueError):
    """A line, a row or a file of a corpus that is not what its name says: no JSON, no such column, cut short.

    Attributes: source, the file's path, with "#" and the row group's number for a row; line or row, counted from 1 and
    0, of the one that is wrong, None if it is the file.
    """

    def __init__(self, source: str, reason: str, line: int | None = None, row: int | None = None) -> None:
        super().__init__(source, reason, line, row)
        self.source = source
        self.line = line
        self.row = row
        self._reason = reason

    def __str__(self) -> str:
        where = "".join(f", {word} {n:,}" for word, n in (("line", self.line), ("row", self.row)) if n is not None)
        return f"{self.source}{where}: {self._reason}"

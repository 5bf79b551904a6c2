r"""Words: texts split as the word-level BPE of Sennrich et al. 2016 wants them, with the mark of its end behind each.

It differs from split.pyx in what a chunk is: not a stretch of the text, but a word's UTF-8 and one byte more, MARK, a
value that never occurs in UTF-8. Merges that hold the mark are then merges at a word's end, with no other machinery.

    WordSplitter(WORD_PATTERN).split("low  lower")  ->  [b"low\xff", b"lower\xff"]

Words between spaces and line ends, which is what subword-nmt reads, are found by comparing whole arrays of bytes. Every
other pattern goes through regex.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from cbpe.splitting.split import Splitter, splitter_for

MARK = 0xFF                     # behind a word's last byte

# Words as subword-nmt finds them in its standard input: nothing but spaces and line ends parts them.
WORD_PATTERN = r"[^ \r\n]+"

_BLOCK = 1 << 20                # bytes that are split at a time


class WordSplitter(Splitter):
    """A word pattern and the way to apply it; immutable.

    pattern: of the regex package; what it does not match is dropped. lower: texts are lower-cased first, by str.lower.
    marked: whether each word has MARK at its end.
    """

    kind = "words"

    def __init__(self, pattern: str, lower: bool = False, marked: bool = True) -> None:
        self._regex = splitter_for(pattern)
        self._pattern = pattern
        self._lower = lower
        self._marked = marked

    @property
    def pattern(self) -> str:
        return self._pattern

    @property
    def compiled(self) -> Any:
        return regex.compile(self._pattern)

    @property
    def cuttable(self) -> bool:
        """Whether no word goes on behind a line's end."""
        return self._pattern == WORD_PATTERN

    def batches(self, text: bytes) -> Iterator[tuple[bytes, npt.NDArray[Any]]]:
        words = text.decode()               # also says what is not UTF-8
        if self._lower:
            text = words.lower().encode()
        del words
        if self._pattern == WORD_PATTERN:
            pieces = _between_spaces(text)
        else:
            pieces = (_with_marks(kept, ends) for kept, ends in self._regex.batches(text))
        for kept, ends in pieces:
            if self._marked:
                yield kept.tobytes(), ends
            else:
                yield kept[kept != MARK].tobytes(), ends - np.arange(1, len(ends) + 1, dtype=np.uint32)


def _between_spaces(text: bytes) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]]:
    """b"low  lower" -> b"low\\xfflower\\xff", [4, 10]: of the separators behind a word the first becomes the mark."""
    start = 0
    while start < len(text):
        stop = text.find(b" ", start + _BLOCK) + 1 or len(text)
        block = np.frombuffer(text[start:stop] + b" ", np.uint8)
        parts = (block == ord(" ")) | (block == ord("\n")) | (block == ord("\r"))
        is_kept = ~parts
        is_kept[1:] |= ~parts[:-1]
        kept = np.where(parts, np.uint8(MARK), block)[is_kept]
        yield kept, (np.flatnonzero(kept == MARK) + 1).astype(np.uint32)
        start = stop


def _with_marks(
    kept: bytes, ends: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32]]:
    """b"lowlower", [3, 8] -> b"low\\xfflower\\xff", [4, 10]."""
    marked = np.insert(np.frombuffer(kept, np.uint8), ends.astype(np.int64), MARK)
    return marked, (ends + np.arange(1, len(ends) + 1)).astype(np.uint32)

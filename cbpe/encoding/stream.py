"""Ids that arrive one by one, as text: a language model's output as it is shown to people.

A token may end inside a character. Its bytes are held back until the rest arrives, or until it is certain that none
will, and then U+FFFD stands for them: all that was given out, end to end, is what decode gives for all ids at once.
"""

from __future__ import annotations

import codecs
import contextlib
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

if TYPE_CHECKING:
    from typing import SupportsIndex

    from cbpe.native import NativeTokenizer


class StreamDecoder:
    """Decodes a stream of ids.

    stream = StreamDecoder(tokenizer)
    for id in ids:
        print(stream.feed(id), end="")
    print(stream.flush())

    One stream at a time: threads that decode streams have a StreamDecoder each, and share the tokenizer.
    """

    def __init__(self, tokenizer: NativeTokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: SupportsIndex | Iterable[SupportsIndex] | npt.NDArray[Any]) -> str:
        """The text that one more id, or several, complete; it may be empty, and never holds part of a character.

        Raises what decode raises; the stream is then as it was.
        """
        with contextlib.suppress(TypeError):
            ids = [operator.index(ids)]     # type: ignore[arg-type]
        return self._decoder.decode(self._tokenizer.decode_bytes(ids))      # type: ignore[arg-type]

    def flush(self) -> str:
        """U+FFFD if the ids so far end inside a character, otherwise nothing. The next id begins a new stream."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest

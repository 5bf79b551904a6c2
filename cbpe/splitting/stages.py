r"""Splitting in stages: what one pattern leaves whole, the next one splits.

In: a text. Out: its pieces, which are the chunks. Many published tokenizers split this way, Hugging Face's Sequence of
pre-tokenizers: numbers first, then each stretch between them into words. A stage is applied to each piece of the stage
before as to a text of its own, so that ^, $ and lookarounds see the piece's border, and a stage says which of a piece's
parts it keeps, the matches of its pattern and what lies between them:

    keep             Hugging Face's name            of "a, b" under ,
    "matches"        Removed, inverted              ","             what minbpe does; the rest is dropped
    "all"            Isolated                       "a" "," " b"
    "between"        Removed                        "a" " b"
    "with_previous"  MergedWithPrevious             "a," " b"
    "with_next"      MergedWithNext                 "a" ", b"
    "runs"           Contiguous                     "a" "," " b"    but matches that touch are one piece

An empty match is no piece, but parts what lies on its sides.

The classes of characters are those of the regex package, as everywhere; digits and punctuation are those of
Hugging Face's tokenizers, which have tables of their own in place of a pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import regex

# Which neighbouring parts are one piece, by whether they are matches: with_previous joins a match to what lies before.
_JOINED: dict[str, tuple[tuple[bool, bool], ...]] = {
    "with_previous": ((False, True),),
    "with_next": ((True, False),),
    "runs": ((True, True),),
}
KEEPS = ("matches", "all", "between", *_JOINED)


class Stage(NamedTuple):
    """A pattern of the regex package, and what of a text it keeps: one of KEEPS."""

    pattern: str
    keep: str = "all"


@dataclass(frozen=True)
class Stages:
    r"""A sequence of stages; immutable. splitter_for takes it in place of a pattern.

    Stages([(r"\d", "all"), (r"\w+|\W+", "matches")]) splits "ab12 c" into "ab", "1", "2", " ", "c".

    stages: of Stage, or of pairs that make one; at least one. Raises ValueError, TypeError.
    """

    stages: tuple[Stage, ...]

    def __init__(self, stages: Iterable[Stage | tuple[str, str]]) -> None:
        checked = tuple(Stage(*stage) for stage in stages)
        if not checked:
            raise ValueError("stages: there must be one at least")
        for pattern, keep in checked:
            if not isinstance(pattern, str):
                raise TypeError(f"the pattern of a stage is a str, not {type(pattern).__name__}")
            if keep not in KEEPS:
                raise ValueError(f"a stage keeps one of {', '.join(KEEPS)}, not {keep!r}")
        object.__setattr__(self, "stages", checked)

    def compiled(self) -> list[Step]:
        """What pieces takes. Raises regex.error."""
        return [(regex.compile(pattern), keep) for pattern, keep in self.stages]


Step = tuple[Any, str]      # a compiled pattern, and what is kept


def pieces(steps: Iterable[Step], text: str) -> Iterator[str]:
    """The pieces of a text, none of them empty, one by one."""
    found: Iterator[str] = iter([text])
    for compiled, keep in steps:
        found = _split_each(compiled, keep, found)
    return filter(None, found)


def _split_each(compiled: Any, keep: str, texts: Iterator[str]) -> Iterator[str]:
    """The pieces of each of many texts; some may be empty."""
    for text in texts:
        if keep == "matches":
            for match in compiled.finditer(text):
                yield match.group()
        elif keep in _JOINED:
            for start, end in _joined(_parts(compiled, text), _JOINED[keep]):
                yield text[start:end]
        else:
            at = 0
            for match in compiled.finditer(text):
                start, end = match.span()
                yield text[at:start]
                if keep == "all":
                    yield text[start:end]
                at = end
            yield text[at:]


def _parts(compiled: Any, text: str) -> Iterator[tuple[int, int, bool]]:
    """Where each match and each stretch between begins and ends, and whether it is a match.

    "a12b" under \\d : (0, 1, False), (1, 2, True), (2, 3, True), (3, 4, False).
    """
    at = 0
    for match in compiled.finditer(text):
        start, end = match.span()
        if at < start:
            yield at, start, False
        yield start, end, True
        at = end
    if at < len(text):
        yield at, len(text), False


def _joined(
    parts: Iterator[tuple[int, int, bool]], joined: tuple[tuple[bool, bool], ...]
) -> Iterator[tuple[int, int]]:
    """Where pieces begin and end, when neighbours of the kinds in joined are one."""
    begin = end = 0
    before: bool | None = None
    for start, stop, is_match in parts:
        if before is not None and (before, is_match) not in joined:
            yield begin, end
            begin = start
        end, before = stop, is_match
    yield begin, end

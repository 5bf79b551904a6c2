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

A stage may be one of bytes: from it on, pieces are bytes written as letters (formats/alphabet.py), "é" as "\xc3\xa9",
and may end within a character of the text.

The classes of characters in a pattern are those of the regex package, as everywhere. digits, punctuation and
BYTE_LEVEL are stages for those of Hugging Face's pre-tokenizers that have no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import regex

from cbpe.formats.alphabet import bytes_of, text_of
from cbpe.patterns import BYTE_LEVEL_SPLIT_PATTERN

# Which neighbouring parts are one piece, by whether they are matches: with_previous joins a match to what lies before.
_JOINED: dict[str, tuple[tuple[bool, bool], ...]] = {
    "with_previous": ((False, True),),
    "with_next": ((True, False),),
    "runs": ((True, True),),
}
KEEPS = ("matches", "all", "between", *_JOINED)


class Stage(NamedTuple):
    """A pattern of the regex package, and what of a text it keeps: one of KEEPS; of_bytes: of bytes as letters."""

    pattern: str
    keep: str = "all"
    of_bytes: bool = False


@dataclass(frozen=True)
class Stages:
    r"""A sequence of stages; immutable. splitter_for takes it in place of a pattern.

    Stages([(r"\d", "all"), (r"\w+|\W+", "matches")]) splits "ab12 c" into "ab", "1", "2", " ", "c".

    stages: of Stage, or of pairs that make one; at least one. Raises ValueError, TypeError.
    """

    stages: tuple[Stage, ...]

    def __init__(self, stages: Iterable[Stage | tuple[str, str] | tuple[str, str, bool]]) -> None:
        checked = tuple(Stage(*stage) for stage in stages)
        if not checked:
            raise ValueError("stages: there must be one at least")
        for pattern, keep, _ in checked:
            if not isinstance(pattern, str):
                raise TypeError(f"the pattern of a stage is a str, not {type(pattern).__name__}")
            if keep not in KEEPS:
                raise ValueError(f"a stage keeps one of {', '.join(KEEPS)}, not {keep!r}")
        if any(before.of_bytes and not after.of_bytes for before, after in pairwise(checked)):
            raise ValueError("a stage of bytes has only such behind it: what is left may end within a character")
        object.__setattr__(self, "stages", checked)

    def compiled(self) -> list[Step]:
        """What pieces takes. Raises regex.error."""
        return [(regex.compile(pattern), keep, of_bytes) for pattern, keep, of_bytes in self.stages]


# --- Hugging Face's pre-tokenizers ---

# Their classes of characters, in tokenizers 0.23, are those of older editions of Unicode: (?!...) is what regex has
# beyond them, and two characters that were punctuation are none any more.
_DIGIT = r"(?![\U0001246F\U00012475-\U0001247F\U00012550-\U00012686])\p{N}"
_PUNCTUATION = (
    r"(?!["
    r"\u061D\u09FD\u0A76\u0C77\u0C84\u1B4E-\u1B4F\u1B7D-\u1B7F\u2E43-\u2E4F\u2E52-\u2E5D\u2E60-\u2E63\U00010D6E"
    r"\U00010EAD\U00010ED0\U00010F55-\U00010F59\U00010F86-\U00010F89\U000113D4-\U000113D5\U000113D7-\U000113D8"
    r"\U0001144B-\U0001144F\U0001145A-\U0001145B\U0001145D\U00011660-\U0001166C\U000116B9\U0001183B"
    r"\U00011944-\U00011946\U000119E2\U00011A3F-\U00011A46\U00011A9A-\U00011A9C\U00011A9E-\U00011AA2"
    r"\U00011B00-\U00011B09\U00011BE1\U00011C41-\U00011C45\U00011C70-\U00011C71\U00011EF7-\U00011EF8"
    r"\U00011F43-\U00011F4F\U00011FFF\U00012FF1-\U00012FF2\U00016D6D-\U00016D6F\U00016E97-\U00016E9A\U00016FE2"
    r"\U0001E5FF\U0001E95E-\U0001E95F"
    r"])[\p{P}$+<=>^`|~\u166D\U000111C9]"
)

# ByteLevel with use_regex. What it has besides is no splitting: a space in front, and names for bytes.
BYTE_LEVEL = Stage(BYTE_LEVEL_SPLIT_PATTERN, "all")


def digits(individual: bool) -> Stage:
    """Digits: each number is a piece, or each run of them; a number is \\p{N}. "a12" -> "a", "1", "2" or "a", "12"."""
    return Stage(_DIGIT, "all" if individual else "runs")


def punctuation(keep: str = "all") -> Stage:
    """Punctuation: \\p{P}, and in ASCII also $ + < = > ^ ` | ~ . Its behavior is keep. "a, b" -> "a", ",", " b"."""
    return Stage(_PUNCTUATION, keep)


# What may be said in place of stages.
NAMED_STAGES = {
    # DeepSeek V3, R1 and their successors (deepseek-ai/DeepSeek-V3, tokenizer.json, where line ends stand as such).
    "deepseek3": Stages(
        [
            (r"\p{N}{1,3}", "all"),
            (r"[一-龥぀-ゟ゠-ヿ]+", "all"),
            (
                r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
                "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|"
                r"\s+(?!\S)|\s+",
                "all",
            ),
        ]
    ),
    # StarCoder (bigcode/starcoder, tokenizer.json), SmolLM, Cohere's Command R (which also normalizes).
    "starcoder": Stages([digits(individual=True), BYTE_LEVEL]),
}


# --- Splitting ---

Step = tuple[Any, str, bool]        # a compiled pattern, what is kept, and whether it is of bytes
SHORT = 16                          # characters of a text that is split once for all places,
MOST_KNOWN = 1 << 14                # and how many such are remembered in a stage


def pieces(steps: Iterable[Step], text: str, how: Mapping[str, Any] = MappingProxyType({})) -> Iterator[str]:
    """The pieces of a text, none of them empty, one by one. Bytes of a part of a character are lone surrogates, as
    errors="surrogateescape" has it. how: what finditer is to be told beside each text.
    """
    found: Iterator[str] = iter([text])
    are_bytes = False
    for compiled, keep, of_bytes in steps:
        if of_bytes and not are_bytes:
            found = (text_of(piece.encode()) for piece in found)
            are_bytes = True
        found = _split_each(partial(compiled.finditer, **how), keep, found)
    if are_bytes:
        found = (bytes_of(piece).decode("utf-8", "surrogateescape") for piece in found)
    return filter(None, found)


def batched(
    found: Iterator[str], at_once: int, pattern: object, timeout: float | None, n_bytes: int
) -> Iterator[list[str]]:
    """The pieces in lists of so many. Says of a TimeoutError that it is the pattern's, in n_bytes of text.

    Who asks for batches is compiled, and what Cython makes of an except clause may crash where memory runs out.
    """
    try:
        while batch := list(islice(found, at_once)):
            yield batch
    except TimeoutError:
        raise TimeoutError(
            f"the pattern took more than {timeout:g} s for {n_bytes:,} bytes of text: give it a larger "
            f"regex_timeout, or write it so that it cannot match one text in many ways: {str(pattern)!r:.300}"
        ) from None


def _split_each(finditer: Callable[[str], Any], keep: str, texts: Iterator[str]) -> Iterator[str]:
    """The pieces of each of many texts; some may be empty. Short texts come again and again, and are split once."""
    known: dict[str, list[str]] = {}
    for text in texts:
        if len(text) > SHORT:
            yield from _split(finditer, keep, text)
        elif text:
            found = known.get(text)
            if found is None:
                found = list(_split(finditer, keep, text))
                if len(known) < MOST_KNOWN:
                    known[text] = found
            yield from found


def _split(finditer: Callable[[str], Any], keep: str, text: str) -> Iterator[str]:
    """The pieces of a text; some may be empty."""
    if keep == "matches":
        for match in finditer(text):
            yield match.group()
    elif keep in _JOINED:
        for start, end in _joined(_parts(finditer, text), _JOINED[keep]):
            yield text[start:end]
    else:
        at = 0
        for match in finditer(text):
            start, end = match.span()
            yield text[at:start]
            if keep == "all":
                yield text[start:end]
            at = end
        yield text[at:]


def _parts(finditer: Callable[[str], Any], text: str) -> Iterator[tuple[int, int, bool]]:
    """Where each match and each stretch between begins and ends, and whether it is a match.

    "a12b" under \\d : (0, 1, False), (1, 2, True), (2, 3, True), (3, 4, False).
    """
    at = 0
    for match in finditer(text):
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

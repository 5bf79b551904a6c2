"""What Hugging Face's tokenizers do to a text before they split it: added tokens, NFC, a space in front.

In: a text. Out: its stretches, ready to be split, and between them the ids of added tokens. The order is theirs:

1. Added tokens that are not `normalized` are cut out of the text as it is; of those that could be found at the leftmost
   place, the longest is.
2. Each stretch that is left is brought to Unicode's normal form C, if the model says so, and
3. added tokens that are `normalized`, and are brought to that form themselves, are cut out of it in the same way.
4. A stretch that does not begin with a space gets one, if the model says so.

"the <mask>." with <mask> as token 9 that takes the whitespace on its left (lstrip) -> "the", 9, ".".

Special tokens are added tokens that a caller may forbid, or take for ordinary text, as everywhere in cbpe. Others are
always recognised, as in tokenizers. The normal form is that of Python's unicodedata, in the edition of Unicode that
Python has.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

import regex

from cbpe.encoding.finder import SpecialFinder
from cbpe.formats.alphabet import bytes_of
from cbpe.special import Cutter, disallowed

Part = str | bytes | int

_SPACES = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
)
_WORD = regex.compile(r"\w")
_MANY_MARKS = regex.compile(r"\p{M}{64,}")
_TWO_MARKS = regex.compile(r"\p{M}{2}")


class Flags(NamedTuple):
    """How an added token is recognised.

    special: Hugging Face calls it special. normalized: it is looked for after normalizing. lstrip, rstrip: whitespace
    on its left, on its right, is part of it. single_word: it is recognised only where no character of a word stands
    beside it.
    """

    special: bool = False
    normalized: bool = False
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @property
    def looks_around(self) -> bool:
        """Whether what stands beside the token matters."""
        return self.lstrip or self.rstrip or self.single_word


REGISTERED = Flags(special=True)        # those of a special token that a program registers


@dataclass(frozen=True, eq=False)
class Preparation:
    """What is done to a text before it is split; immutable.

    normalizer: None or "NFC". added: the tokens that are always recognised, text -> id; special tokens stand in the
    model. flags: those of added and special tokens, by text; REGISTERED for a token that is not in it. prefix_space:
    stretches begin with a space. unused: ids of the file that decode and that no text is encoded to, with what the file
    has for them, bytes in its alphabet.
    """

    normalizer: Literal["NFC"] | None = None
    added: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, Flags] = field(default_factory=dict)
    prefix_space: bool = False
    unused: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.normalizer not in (None, "NFC"):
            raise ValueError(f"normalizer must be None or 'NFC', not {self.normalizer!r}")

    @property
    def changes_nothing(self) -> bool:
        """Whether texts are as if there were no preparation, and no ids that only this knows."""
        return not (self.normalizer or self.added or self.flags or self.prefix_space or self.unused)

    def normalized(self, text: str) -> str:
        """The text in the normal form: "e\\u0301" -> "\\xe9"."""
        if self.normalizer is None:
            return text
        if _TWO_MARKS.search(text[::32]):       # where 64 marks stand together, every 32nd character tells it
            text = _MANY_MARKS.sub(_in_order, text)
        return unicodedata.normalize(self.normalizer, text)

    def is_normalized(self, text: str) -> bool:
        return self.normalizer is None or text.isascii() or unicodedata.is_normalized(self.normalizer, text)

    def tokens(self) -> dict[int, bytes]:
        """The bytes of the ids that stand only here."""
        tokens = {number: bytes_of(text) for number, text in self.unused.items()}
        return tokens | {number: word.encode() for word, number in self.added.items()}

    def description(self) -> str:
        """All that decides about ids, as a text: equal for equal preparations."""
        flags = sorted((word, tuple(flags)) for word, flags in self.flags.items())
        return json.dumps([self.normalizer, list(self.added.items()), flags, self.prefix_space, sorted(self.unused)])


def _in_order(marks: regex.Match[str]) -> str:
    """Many marks, apart and in the canonical order, for which unicodedata takes time that grows with their square.

    "\\u0301\\u0327\\u0301" -> "\\u0327\\u0301\\u0301": of the classes 230, 202 and 230. What has class 0, stays.
    """
    apart = unicodedata.normalize("NFD", " ".join(marks.group())).replace(" ", "")
    ordered: list[str] = []
    for _, run in groupby(apart, key=lambda mark: unicodedata.combining(mark) == 0):
        ordered += sorted(run, key=unicodedata.combining)       # those of one class keep their order
    return "".join(ordered)


class _Token(NamedTuple):
    word: str
    number: int
    flags: Flags


class _Group:
    """Added tokens that are looked for at once: the leftmost is found, and of several there the longest.

    tokens: the text to look for -> token.
    """

    def __init__(self, tokens: Mapping[str, _Token]) -> None:
        self._words = sorted(tokens, key=lambda word: len(word.encode()), reverse=True)
        self._tokens = [tokens[word] for word in self._words]
        self._looks_around = any(token.flags.looks_around for token in self._tokens)
        self.finder = SpecialFinder({word.encode(): place for place, word in enumerate(self._words)})

    def cut(self, text: str | bytes) -> list[str | bytes | _Token]:
        """The text cut at the tokens; one without any is a stretch, as it is."""
        parts = self.finder.cut(text)
        if self._looks_around and any(isinstance(part, int) for part in parts):
            return self._cut_with_care(text if isinstance(text, str) else text.decode(), parts)
        return [self._tokens[part] if isinstance(part, int) else part for part in parts]

    def _cut_with_care(self, text: str, parts: list[Part]) -> list[str | bytes | _Token]:
        """The text cut at those of the tokens found that may stand there, each with the whitespace that it takes.

        As in tokenizers, a token that is found in whitespace which the one before it takes is one nevertheless, unless
        nothing is left of it: with lstrip it begins behind that.
        """
        cut: list[str | bytes | _Token] = []
        done = end = 0          # how much of the text has been given out, and how much the finder has gone through
        space_end = 0           # all from the place where whitespace was last looked for up to here is whitespace
        for part in parts:
            begin = end
            if not isinstance(part, int):
                end += len(part.decode() if isinstance(part, bytes) else part)
                continue
            end += len(self._words[part])
            start, stop, token = begin, end, self._tokens[part]
            if token.flags.single_word and (_is_word(text[start - 1 : start]) or _is_word(text[stop : stop + 1])):
                continue
            if token.flags.lstrip:
                while start > done and text[start - 1] in _SPACES:
                    start -= 1
                start = max(start, done)
            if token.flags.rstrip:
                space_end = max(space_end, stop)
                while space_end < len(text) and text[space_end] in _SPACES:
                    space_end += 1
                stop = space_end
            if start >= stop:
                continue
            if done < start:
                cut.append(text[done:start])
            cut.append(token)
            done = stop
        if done < len(text):
            cut.append(text[done:])
        return cut


def _is_word(text: str) -> bool:
    return _WORD.match(text) is not None


class Rules:
    """What takes texts apart by a preparation, if some special tokens are recognised: text -> id."""

    def __init__(self, preparation: Preparation, special_tokens: Mapping[str, int]) -> None:
        self._preparation = preparation
        self._special_tokens = special_tokens
        groups: tuple[dict[str, _Token], dict[str, _Token]] = {}, {}
        for words in (special_tokens, preparation.added):
            for word, number in words.items():
                flags = preparation.flags.get(word, REGISTERED)
                written = preparation.normalized(word) if flags.normalized else word
                groups[flags.normalized].setdefault(written, _Token(word, number, flags))
        self._raw, self._normalized = (_Group(group) if group else None for group in groups)

    def leave_whole(self, texts: list[str]) -> bool:
        """Whether every text would be one stretch, as it is. Raises UnicodeEncodeError for lone surrogates."""
        groups = [group for group in (self._raw, self._normalized) if group is not None]
        return (
            not any(group.finder.is_in_any(texts) for group in groups)
            and all(map(self._preparation.is_normalized, texts))
            and not (self._preparation.prefix_space and any(text[:1] not in ("", " ") for text in texts))
        )

    def parts(self, text: str, *, refused: bool = False) -> list[Part]:
        """The stretches of a text and the ids of added tokens. No stretch is empty, but an empty text is one.

        refused: raise DisallowedSpecialTokenError for a special token.
        """
        cut: list[str | bytes | _Token] = [text] if self._raw is None else self._raw.cut(text)
        parts: list[Part] = []
        for part in cut:
            pieces = [part] if isinstance(part, _Token) else self._normalized_pieces(part)
            for piece in pieces:
                if not isinstance(piece, _Token):
                    parts.append(self._prefixed(piece))
                elif refused and piece.word in self._special_tokens:
                    raise disallowed(piece.word)
                else:
                    parts.append(piece.number)
        return parts

    def _normalized_pieces(self, part: str | bytes) -> list[str | bytes | _Token]:
        if self._preparation.normalizer is not None and not part.isascii():
            part = self._preparation.normalized(part if isinstance(part, str) else part.decode())
        return [part] if self._normalized is None else self._normalized.cut(part)

    def _prefixed(self, piece: str | bytes) -> str | bytes:
        if not self._preparation.prefix_space or not piece:
            return piece
        if isinstance(piece, bytes):
            return piece if piece.startswith(b" ") else b" " + piece
        return piece if piece.startswith(" ") else " " + piece

    @property
    def cuttable(self) -> bool:
        """Whether texts may be cut between a newline and a character that is not whitespace, without special tokens.

        A newline in a token could stand at the cut. A token that begins behind it would end a text, and there
        whitespace is split in another way than before a character. So all must begin with whitespace or stand within a
        line that does. And what is put in front of a text may not be put in front of the rest of one.
        """
        return not self._preparation.prefix_space and all(
            "\n" not in word and word[0] in _SPACES for word in self._preparation.added
        )


@lru_cache(maxsize=128)
def rules_for(preparation: Preparation, special_tokens: tuple[tuple[str, int], ...]) -> Rules:
    return Rules(preparation, dict(special_tokens))


class PreparedCutter(Cutter):
    """A Cutter that prepares texts.

    everything, nothing: the rules with all special tokens, and with none. allowed_special: as encode takes it.
    """

    def __init__(
        self,
        preparation: Preparation,
        special_tokens: Mapping[str, int],
        everything: Rules,
        nothing: Rules,
        allowed_special: str | Set[str],
    ) -> None:
        super().__init__({}, None, allowed_special)         # says what is wrong with it
        self._refuses = allowed_special == "none_raise"
        if isinstance(allowed_special, Set):
            allowed = tuple(item for item in special_tokens.items() if item[0] in allowed_special)
            self._rules = rules_for(preparation, allowed)
        else:
            self._rules = nothing if allowed_special == "none" else everything

    def leaves_whole(self, texts: list[str]) -> bool:
        return self._rules.leave_whole(texts)

    def parts(self, text: str) -> list[Part]:
        return self._rules.parts(text, refused=self._refuses)

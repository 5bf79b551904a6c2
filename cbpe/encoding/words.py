"""Ids of words: characters put together by merges of the lowest ranks, so that the Encoder of bytes encodes words.

In: the alphabet of a word-level BPE and its merges. Out: what Encoder gives, in ids of that BPE.

A word comes as its UTF-8 and MARK. Three kinds of merges then happen in the order of their ids:

1. Bytes become characters, C3 A9 -> é. UTF-8 makes these safe: no byte that begins a character occurs inside one, so
   they join what belongs together and nothing else. A character of three bytes or four is made of its first two, and so
   on; those *prefixes* have ids that only remain where a character is not of the alphabet.
2. A character and MARK become the character at a word's end, e -> e</w>, if the mark is not a symbol of its own.
3. The merges that were learned, which know characters only.

The ids within are therefore not those of the BPE; a table leads from one to the other. What remains of a character that
is not of the alphabet, its first byte or a prefix, then bytes from 80 to BF, tells where it stands: it becomes the id
for unknown characters, if there is one.

    alphabet é; 195 169 -> 256, 256 255 -> 257; b"\\xc3\\xa9\\xff" -> 257 -> é</w>; b"\\xc3\\xaa\\xff" -> 195 170 255
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cbpe.encoding.encoder import Encoder
from cbpe.errors import UnknownCharacterError
from cbpe.splitting.split import Splitter
from cbpe.splitting.words import MARK, WORD_PATTERN, WordSplitter

Ids = npt.NDArray[np.uint32]

UNKNOWN = 0xFFFFFFFE        # in a table of outer ids: here a character begins that is not of the alphabet
NOTHING = 0xFFFFFFFD        # no id: what belongs to such a character


_SPLITTER = WordSplitter(WORD_PATTERN)


class Inner(NamedTuple):
    """Merges over bytes that do what a word-level BPE does, uint32[m, 2], and outer ids, uint32[256 + m]."""

    pairs: Ids
    outer: Ids


def first_merges(alphabet: Sequence[bytes], joined: bool) -> Inner:
    """The merges that make characters, and if the mark is joined to them, characters at a word's end.

    alphabet: what the first ids stand for; the next ones, as many, are the same at a word's end, or the next one is the
    mark. [b"a", b"\\xc3\\xa9"], True -> pairs (195, 169), (97, 255), (256, 255); outer[97] = 0, outer[256] = 1, ...
    """
    made = {bytes([byte]): byte for byte in range(256)}
    pairs: list[tuple[int, int]] = []
    for character in alphabet:
        for n in range(2, len(character) + 1):
            if character[:n] not in made:
                made[character[:n]] = 256 + len(pairs)
                pairs.append((made[character[: n - 1]], character[n - 1]))
    n_assembled = len(pairs)
    if joined:
        pairs += [(made[character], MARK) for character in alphabet]
    outer = np.full(256 + len(pairs), UNKNOWN, np.uint32)
    outer[0x80:0xC0] = NOTHING
    outer[MARK] = NOTHING if joined else len(alphabet)
    outer[[made[character] for character in alphabet]] = np.arange(len(alphabet))
    if joined:
        outer[256 + n_assembled :] = np.arange(len(alphabet), 2 * len(alphabet))
    return Inner(np.array(pairs, np.uint32).reshape(-1, 2), outer)


def all_merges(alphabet: Sequence[bytes], joined: bool, pairs: Ids) -> Inner:
    """first_merges, and pairs of outer ids, the i-th of which makes the i-th id behind the alphabet's."""
    first = first_merges(alphabet, joined)
    n_first = n_first_ids(alphabet, joined)
    known = np.flatnonzero(first.outer < NOTHING)
    inner = np.empty(n_first + len(pairs), np.uint32)
    inner[first.outer[known]] = known
    inner[n_first:] = np.arange(len(pairs)) + len(first.outer)
    return Inner(
        np.concatenate([first.pairs, inner[pairs]]),
        np.concatenate([first.outer, np.arange(n_first, n_first + len(pairs), dtype=np.uint32)]),
    )


def n_first_ids(alphabet: Sequence[bytes], joined: bool) -> int:
    """How many ids there are before those of merges."""
    return 2 * len(alphabet) if joined else len(alphabet) + 1


class WordEncoder:
    """Turns texts into ids of a word-level BPE; the splitter is a WordSplitter. Its methods are those of Encoder.

    unk: the id of each character that is not of the alphabet; None: such a character raises UnknownCharacterError.
    """

    def __init__(self, inner: Inner, unk: int | None) -> None:
        n = len(inner.pairs)
        self._encoder = Encoder(np.ascontiguousarray(inner.pairs), np.arange(256, 256 + n, dtype=np.uint32))
        self._pairs = inner.pairs
        self._outer = inner.outer
        self._unk = unk

    def encode(self, text: str | bytes, splitter: Splitter, num_threads: int = 1) -> list[int]:
        ids: list[int] = self.encode_to_numpy(text, splitter, num_threads).tolist()
        return ids

    def encode_to_numpy(self, text: str | bytes, splitter: Splitter, num_threads: int = 1) -> Ids:
        ids = self._outer_ids(self._encoder.encode_to_numpy(text, splitter, num_threads))
        return self._without_nothing(ids)

    def encode_batch(self, texts: Sequence[str | bytes], splitter: Splitter, num_threads: int = 1) -> list[list[int]]:
        ids, offsets = self.encode_batch_to_numpy(texts, splitter, num_threads)
        ends = offsets.tolist()
        return [ids[start:end].tolist() for start, end in itertools.pairwise(ends)]

    def encode_batch_to_numpy(
        self, texts: Sequence[str | bytes], splitter: Splitter, num_threads: int = 1
    ) -> tuple[Ids, npt.NDArray[np.int64]]:
        inner, offsets = self._encoder.encode_batch_to_numpy(list(texts), splitter, num_threads)
        ids = self._outer_ids(inner)
        is_id = ids != NOTHING
        return ids[is_id], np.append(0, np.cumsum(is_id))[offsets]

    def count(self, text: str | bytes, splitter: Splitter) -> int:
        return len(self.encode_to_numpy(text, splitter))

    def encode_chunk(self, word: bytes) -> list[int]:
        """The ids of one word, given without MARK."""
        ids: list[int] = self._without_nothing(self._outer_ids(self._inner_ids(word))).tolist()
        return ids

    def pieces(self, words: Iterable[str]) -> list[list[str]]:
        """What the ids of each word stand for, without its mark. Unknown characters stand for themselves.

        The alphabet must be of characters, and no word empty or with a space or a line end in it. ["lower"] -> [["lo",
        "wer"]].
        """
        spellings = self._spellings()
        found: list[list[str]] = []
        pieces: list[bytes] = []
        for number in self._encoder.encode_to_numpy("\n".join(words), _SPLITTER).tolist():
            piece = spellings[number]
            if piece[-1] == MARK:
                pieces.append(piece[:-1])
                found.append([each.decode() for each in pieces if each])
                pieces = []
            elif piece[0] & 0xC0 == 0x80:       # of a character that is not of the alphabet
                pieces[-1] += piece
            else:
                pieces.append(piece)
        return found

    def _without_nothing(self, ids: Ids) -> Ids:
        kept: Ids = ids[ids != NOTHING]
        return kept

    def _inner_ids(self, word: bytes) -> Ids:
        return np.array(self._encoder.encode_chunk(word + bytes([MARK])), np.uint32)

    def _outer_ids(self, inner: Ids) -> Ids:
        """An outer id or NOTHING for each inner one."""
        ids: Ids = self._outer[inner]
        unknown = ids == UNKNOWN
        if unknown.any():
            if self._unk is None:
                raise self._unknown_character(inner, ids, int(np.argmax(unknown)))
            ids[unknown] = self._unk
        return ids

    def _unknown_character(self, inner: Ids, ids: Ids, at: int) -> UnknownCharacterError:
        """The error that names the character that begins there."""
        character = self._spellings()[inner[at]]
        for number, outer in zip(inner[at + 1 :].tolist(), ids[at + 1 :].tolist(), strict=True):
            if outer != NOTHING or number == MARK:
                break
            character += bytes([number])
        shown = character.decode("utf-8", "replace")
        code = "".join(f" U+{ord(each):04X}" for each in shown)
        return UnknownCharacterError(
            f"the tokenizer has no id for the character {shown!r} ({code.strip()}), which was in no text that it "
            'was trained on; unk="<unk>" gives one id to all of these'
        )

    def _spellings(self) -> list[bytes]:
        """The bytes of each inner id, MARK included."""
        spellings = [bytes([byte]) for byte in range(256)]
        for left, right in self._pairs.tolist():
            spellings.append(spellings[left] + spellings[right])
        return spellings

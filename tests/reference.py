"""The slow, obviously right twin of cbpe: byte-pair encoding said as plainly as Python can say it.

Texts come in; merges, ids and texts go out. Everything is counted anew at every step, so nothing can be stale, and each
rule stands in one place:

- the pair merged next is the one that occurs most often, overlapping positions included ("aaa" holds (a, a) twice);
  among equals, the one whose first occurrence comes first (max over a dict in order of first occurrence);
- a merge replaces left to right and does not overlap; merges never cross the end of a chunk;
- encoding applies, again and again, the merge of the lowest id that is present.

The tests of every part of cbpe compare with these functions. They share no code with it.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise

import regex

Pair = tuple[int, int]


def get_stats(ids: Sequence[int], counts: dict[Pair, int] | None = None, weight: int = 1) -> dict[Pair, int]:
    """How often each neighbouring pair occurs, in order of first occurrence: [1, 1, 1, 2] -> {(1, 1): 2, (1, 2): 1}."""
    counts = {} if counts is None else counts
    for i in range(len(ids) - 1):
        pair = (ids[i], ids[i + 1])
        counts[pair] = counts.get(pair, 0) + weight
    return counts


def merge(ids: Sequence[int], pair: Pair, new_id: int) -> list[int]:
    """Puts new_id in the place of each pair: [1, 1, 1, 2], (1, 1), 9 -> [9, 1, 2]."""
    merged = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def split(text: str, pattern: str | None) -> list[bytes]:
    """The chunks of a text: what the pattern matches, or all of it where there is no pattern. None of them is empty."""
    chunks = [text] if pattern is None else [match.group() for match in regex.finditer(pattern, text)]
    return [chunk.encode("utf-8") for chunk in chunks if chunk]


def split_in_stages(text: str, stages: Iterable[tuple[str, str]]) -> list[str]:
    """A text after stages (pattern, what is kept), each over all pieces so far. No pattern matches the empty text."""
    pieces = [text]
    for pattern, keep, *_ in stages:
        pieces = [part for piece in pieces for part in _split_in_one_stage(piece, pattern, keep)]
    return pieces


def _split_in_one_stage(text: str, pattern: str, keep: str) -> list[str]:
    """The parts of a text, matches and others, with what they are; then what is kept."""
    owners = [-1] * len(text)                       # the number of the match that each character belongs to
    for number, match in enumerate(regex.finditer(pattern, text)):
        for i in range(*match.span()):
            owners[i] = number
    parts = []
    for owner, letters in groupby(zip(owners, text, strict=True), key=lambda pair: pair[0]):
        parts.append((owner >= 0, "".join(letter for _, letter in letters)))
    if keep == "all":
        return [part for _, part in parts]
    if keep in ("matches", "between"):
        return [part for is_match, part in parts if is_match == (keep == "matches")]
    joined: list[str] = []
    for i, (is_match, part) in enumerate(parts):
        before = parts[i - 1][0] if i > 0 else None
        joins = {
            "with_previous": is_match and before is False,
            "with_next": before is True and not is_match,
            "runs": before == is_match,
        }
        if joins[keep]:
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def cut_at_specials(text: str, specials: Iterable[str]) -> list[str]:
    """A text cut before and after each special token: "a<e>b" -> ["a", "<e>", "b"].

    Of two that could stand at one place, the one named first wins.
    """
    specials = list(specials)
    parts, start, i = [], 0, 0
    while i < len(text):
        found = next((special for special in specials if text.startswith(special, i)), None)
        if found is None:
            i += 1
            continue
        parts += [text[start:i], found]
        start = i = i + len(found)
    parts.append(text[start:])
    return [part for part in parts if part]


def cut_at_added_tokens(text: str, tokens: Mapping[str, Mapping[str, bool]]) -> list[str | tuple[str]]:
    """A text cut at added tokens by Hugging Face's rules: ("<e>",) where one is, the stretches between as they are.

    tokens: text -> flags that are set. The longest of those at the leftmost place is found, and the search goes on
    behind it, also if single_word then forbids it. lstrip and rstrip take whitespace that stands beside it, lstrip none
    that was taken already; a token of which nothing is left is none.
    """
    cut: list[str | tuple[str]] = []
    given = i = 0
    while i < len(text):
        token = max((word for word in tokens if text.startswith(word, i)), key=len, default=None)
        if token is None:
            i += 1
            continue
        start, stop, flags = i, i + len(token), tokens[token]
        i = stop
        beside = text[start - 1 : start] + text[stop : stop + 1]
        if flags.get("single_word") and regex.search(r"\w", beside):
            continue
        if flags.get("lstrip"):
            start = max(given, len(regex.sub(r"\s+\Z", "", text[:start])))
        if flags.get("rstrip"):
            stop += len(regex.match(r"\s*", text, pos=stop).group())
        if start >= stop:
            continue
        cut += [text[given:start], (token,)] if given < start else [(token,)]
        given = stop
    return [*cut, text[given:]] if given < len(text) else cut


def prepare(
    text: str, tokens: Mapping[str, Mapping[str, bool]], normalizer: str | None, prefix_space: bool
) -> list[str | tuple[str]]:
    """The stretches of a text and the added tokens between them, as Hugging Face's tokenizers make them.

    Tokens that are not "normalized" are cut out of the text as it is; others, themselves normalized, of what is left,
    normalized.
    """

    def normal(text: str) -> str:
        return text if normalizer is None else unicodedata.normalize(normalizer, text)

    early = {word: flags for word, flags in tokens.items() if not flags.get("normalized")}
    late = {normal(word): word for word in reversed(list(tokens)) if word not in early}
    prepared: list[str | tuple[str]] = []
    for part in cut_at_added_tokens(text, early):
        if isinstance(part, tuple):
            prepared.append(part)
            continue
        for piece in cut_at_added_tokens(normal(part), {word: tokens[late[word]] for word in late}):
            prepared.append((late[piece[0]],) if isinstance(piece, tuple) else piece)
    return [
        " " + part if prefix_space and isinstance(part, str) and not part.startswith(" ") else part for part in prepared
    ]


def learn_counted(
    counted: Iterable[tuple[bytes, int]],
    num_merges: int,
    min_frequency: int = 1,
    known: Mapping[Pair, int] | None = None,
) -> tuple[dict[Pair, int], list[int]]:
    """The merges of chunks that occur so many times each, and the count of each merge.

    [(b"aaa", 2)], 1 -> {(97, 97): 256}, [4]. Stops when no pair is left that occurs min_frequency times. known: merges
    to begin with, which count among num_merges: what is learned next, is learned from the chunks as they encode them.
    """
    counted = list(counted)
    merges: dict[Pair, int] = {}
    counts: list[int] = []
    for pair, new_id in (known or {}).items():
        counts.append(_stats([(encode_chunk(chunk, merges), count) for chunk, count in counted]).get(pair, 0))
        merges[pair] = new_id
    chunks = [(encode_chunk(chunk, merges), count) for chunk, count in counted]
    while len(merges) < num_merges:
        stats = _stats(chunks)
        best = max(stats, key=stats.__getitem__, default=None)
        if best is None or stats[best] < min_frequency:
            break
        new_id = 256 + len(merges)
        merges[best] = new_id
        counts.append(stats[best])
        chunks = [(merge(ids, best, new_id), count) for ids, count in chunks]
    return merges, counts


def _stats(chunks: Iterable[tuple[Sequence[int], int]]) -> dict[Pair, int]:
    """get_stats of chunks that occur so many times each: [([1, 1, 1], 5)] -> {(1, 1): 10}."""
    stats: dict[Pair, int] = {}
    for ids, count in chunks:
        get_stats(ids, stats, count)
    return stats


def learn(
    texts: str | Iterable[str],
    num_merges: int,
    pattern: str | None = None,
    min_frequency: int = 1,
    specials: Iterable[str] = (),
) -> tuple[dict[Pair, int], list[int]]:
    """The merges of some texts, each split on its own, and the count of each merge. Special tokens are not counted."""
    specials = list(specials)
    texts = [texts] if isinstance(texts, str) else texts
    parts = [part for text in texts for part in cut_at_specials(text, specials) if part not in specials]
    chunks = [chunk for part in parts for chunk in split(part, pattern)]
    return learn_counted([(chunk, 1) for chunk in chunks], num_merges, min_frequency)


def encode_chunk(ids: Sequence[int], merges: Mapping[Pair, int]) -> list[int]:
    """The ids of one chunk, given the ids of its bytes: b"aaa", {(97, 97): 256} -> [256, 97]."""
    ids = list(ids)
    while len(ids) >= 2:
        present = [pair for pair in get_stats(ids) if pair in merges]
        if not present:
            break
        pair = min(present, key=merges.__getitem__)
        ids = merge(ids, pair, merges[pair])
    return ids


def encode_one_by_one(ids: Sequence[int], merges: Mapping[Pair, int]) -> list[int]:
    """The ids of one chunk where one occurrence of a pair is merged, the first of the lowest, and then all are looked
    at again: b"abab", {(97, 98): 300, (300, 97): 256} -> [256, 98].
    """
    ids = list(ids)
    while True:
        present = [(merges[pair], i) for i, pair in enumerate(pairwise(ids)) if pair in merges]
        if not present:
            return ids
        new_id, i = min(present)
        ids[i : i + 2] = [new_id]


def encode_by_ranks(chunk: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """The ids of one chunk as tiktoken gives them: a chunk that is a token is that token, and otherwise neighbours
    merge whose bytes together are a token, the lowest rank first, one by one.
    """
    if chunk in ranks:
        return [ranks[chunk]]
    parts = [chunk[i : i + 1] for i in range(len(chunk))]
    while True:
        present = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not present:
            return [ranks[part] for part in parts]
        _, i = min(present)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def encode_imported(
    chunk: bytes, merges: Mapping[Pair, int], numbers: Sequence[int], whole: Mapping[bytes, int] | None = None
) -> list[int]:
    """The ids of one chunk for a model whose ids are not in the order of merging: numbers has one for each.

    whole: chunks that have an id of their own, whatever the merges say.
    """
    if whole and chunk in whole:
        return [whole[chunk]]
    return [numbers[number] for number in encode_chunk(chunk, merges)]


def token_totals(counted: Iterable[tuple[bytes, int]], merges: Mapping[Pair, int]) -> list[int]:
    """How many ids none, the first, the first two, ... of the merges give for chunks that occur so many times each.

    [(b"aaa", 2)], {(97, 97): 256} -> [6, 4].
    """
    counted, items = list(counted), list(merges.items())
    return [
        sum(count * len(encode_chunk(chunk, dict(items[:k]))) for chunk, count in counted)
        for k in range(len(items) + 1)
    ]


def encode_ordinary(text: str, merges: Mapping[Pair, int], pattern: str | None = None) -> list[int]:
    """The ids of a text, special tokens unknown."""
    return [token for chunk in split(text, pattern) for token in encode_chunk(chunk, merges)]


def encode(
    text: str, merges: Mapping[Pair, int], pattern: str | None = None, specials: Mapping[str, int] | None = None
) -> list[int]:
    """The ids of a text, each special token in it as its own id."""
    specials = {} if specials is None else specials
    ids: list[int] = []
    for part in cut_at_specials(text, specials):
        ids += [specials[part]] if part in specials else encode_ordinary(part, merges, pattern)
    return ids


def vocab(merges: Mapping[Pair, int], specials: Mapping[str, int] | None = None) -> dict[int, bytes]:
    """The bytes of every id: {(97, 98): 256} -> {0: b"\\0", ..., 255: b"\\xff", 256: b"ab"}."""
    tokens = {i: bytes([i]) for i in range(256)}
    for (left, right), new_id in merges.items():
        tokens[new_id] = tokens[left] + tokens[right]
    for special, special_id in (specials or {}).items():
        tokens[special_id] = special.encode("utf-8")
    return tokens


def decode_bytes(ids: Iterable[int], tokens: Mapping[int, bytes]) -> bytes:
    """The bytes of some ids; KeyError for one that is not in tokens."""
    return b"".join(tokens[i] for i in ids)


def decode(ids: Iterable[int], tokens: Mapping[int, bytes]) -> str:
    """The text of some ids, U+FFFD in place of what is not UTF-8."""
    return decode_bytes(ids, tokens).decode("utf-8", errors="replace")


# ---- words: the BPE of characters within words (Sennrich et al. 2016), whose symbols are strings

END = "</w>"


def word_symbols(word: str, version: str = "0.2") -> list[str]:
    """The symbols of a word before any merge: "low" -> ["l", "o", "w</w>"], by version 0.1 ["l", "o", "w", "</w>"]."""
    return [*word, END] if version == "0.1" else [*word[:-1], word[-1] + END]


def join_symbols(symbols: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """["a", "a", "a</w>"], ("a", "a") -> ["aa", "a</w>"]."""
    joined = []
    i = 0
    while i < len(symbols):
        if tuple(symbols[i : i + 2]) == pair:
            joined.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            joined.append(symbols[i])
            i += 1
    return joined


def learn_words(
    words: Iterable[str], num_merges: int, min_frequency: int = 2, ties: str = "greatest", version: str = "0.2"
) -> list[tuple[str, str]]:
    """The merges of words, each of which is there as often as it is listed.

    ties: of pairs that are equally frequent the "greatest", compared as strings, or the "first" in the words' order.
    """
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    segmented = [(word_symbols(word, version), count) for word, count in counts.items()]
    merges: list[tuple[str, str]] = []
    while len(merges) < num_merges:
        stats: dict[tuple[str, str], int] = {}
        for symbols, count in segmented:
            for pair in itertools.pairwise(symbols):
                stats[pair] = stats.get(pair, 0) + count
        if ties == "first":
            best = max(stats, key=stats.__getitem__, default=None)
        else:
            best = max(stats, key=lambda pair: (stats[pair], pair), default=None)
        if best is None or stats[best] < min_frequency:
            break
        merges.append(best)
        segmented = [(join_symbols(symbols, best), count) for symbols, count in segmented]
    return merges


def segment_word(word: str, merges: Sequence[tuple[str, str]], version: str = "0.2") -> list[str]:
    """The symbols that merges, the first of which go first, make of a word."""
    symbols = word_symbols(word, version)
    while True:
        present = [pair for pair in itertools.pairwise(symbols) if pair in merges]
        if not present:
            return symbols
        symbols = join_symbols(symbols, min(present, key=merges.index))


def word_vocab(alphabet: Iterable[str], merges: Sequence[tuple[str, str]], version: str = "0.2") -> dict[str, int]:
    """The id of each symbol: the characters sorted, the same at a word's end or the mark, the merges."""
    characters = sorted(alphabet)
    ends = [END] if version == "0.1" else [character + END for character in characters]
    return {symbol: number for number, symbol in enumerate([*characters, *ends, *map("".join, merges)])}

"""SpecialFinder against the rule itself: an alternation of the words in the order of their registration."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest
from budget import examples, within
from hypothesis import given
from hypothesis import strategies as st

from cbpe import RegexTokenizer
from cbpe.encoding.finder import SpecialFinder

pytestmark = pytest.mark.native


def cut_by_alternation(words: dict[bytes, int], text: bytes) -> list[bytes | int]:
    parts: list[bytes | int] = []
    start = 0
    for match in re.finditer(b"|".join(map(re.escape, words)), text):
        if match.start() > start:
            parts.append(text[start : match.start()])
        parts.append(words[match.group()])
        start = match.end()
    if start < len(text) or not parts:
        parts.append(text[start:])
    return parts


# few letters, so that words are prefixes, suffixes and overlaps of one another; and some that regex would read
few = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=12, unique=True)
nasty = st.lists(st.text("a<|\\.*[\n\0é猫", min_size=1, max_size=4), min_size=1, max_size=12, unique=True)


@examples(500)
@given(st.one_of(few, nasty), st.text("ab<|\\.*[\n\0é猫", max_size=60))
def test_finds_what_the_alternation_finds(words: list[str], text: str) -> None:
    ids = {word.encode(): number for number, word in enumerate(words, start=300)}
    finder = SpecialFinder(ids)
    expected = cut_by_alternation(ids, text.encode())
    assert finder.cut(text.encode()) == expected
    found = [part for part in expected if isinstance(part, int)]
    assert finder.first(text.encode()) == (words[found[0] - 300].encode() if found else None)


def test_exhaustively_on_three_words_and_short_texts() -> None:
    texts = [b""]
    for _ in range(5):
        texts += [text + letter for text in texts[-(2 ** len(texts[-1])) :] for letter in (b"a", b"b")]
    words = [b"a", b"b", b"ab", b"aa", b"ba", b"aab", b"abab"]
    for first in words:
        for second in words:
            for third in words:
                ids = {first: 1, second: 2, third: 3}
                finder = SpecialFinder(ids)
                for text in texts:
                    assert finder.cut(text) == cut_by_alternation(ids, text), (ids, text)


LONG_WORDS = [b"a" * 99 + b"b", b"a" * 70, b"ab" * 50 + b"c", b"b" * 1500 + b"c", b"a", b"ba", b"a" * 3000 + b"c"]


@examples(40)
@given(
    st.permutations(LONG_WORDS).flatmap(lambda words: st.integers(1, len(words)).map(lambda n: words[:n])),
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"ab", b"ba", b"c", b"\xff"]), st.integers(1, 2000)), max_size=6),
)
def test_long_words_are_found_from_behind_as_well(words: list[bytes], runs: list[tuple[bytes, int]]) -> None:
    ids = {word: number for number, word in enumerate(words, start=300)}
    text = b"".join(unit * n for unit, n in runs)
    expected = cut_by_alternation(ids, text)
    finder = SpecialFinder(ids)
    assert finder.cut(text) == expected
    found = next((part for part in expected if isinstance(part, int)), None)
    assert finder.first(text) == (words[found - 300] if found is not None else None)
    begins, ends = np.array([[0, len(text) // 2], [len(text) // 2, len(text)]], np.uint64)
    between = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        between += [part for part in cut_by_alternation(ids, text[begin:end]) if isinstance(part, bytes) and part]
    starts, stops, places = finder.stretches(text or b"-", begins, ends, begins + np.uint64(7))
    assert [text[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)] == between
    assert (places == starts + np.uint64(7)).all()


@pytest.mark.parametrize("length", [100, 5000, 50_000])
def test_time_is_linear_where_a_text_nearly_holds_a_long_word_everywhere(length: int) -> None:
    near = b"a" * length
    finder = SpecialFinder({near + b"b": 1, b"c" + near: 2})
    often = SpecialFinder({near + b"b": 1, b"aa": 2})        # something is found at every place, and looked for far
    text = b"a" * 1_000_000
    with within(5):
        assert finder.cut(text) == [text]
        assert finder.cut(text + b"b") == [text[length:], 1]
        assert finder.cut(b"c" * 1000 + text)[:2] == [b"c" * 999, 2]
        assert often.cut(text) == [2] * 500_000
        assert not finder.is_in_any([text[: length // 2]] * (2_000_000 // length))


def test_the_earlier_word_wins_C28() -> None:
    assert SpecialFinder({b"<a>": 1, b"<a>b": 2}).cut(b"<a>b") == [1, b"b"]
    assert SpecialFinder({b"<a>b": 2, b"<a>": 1}).cut(b"<a>b<a>") == [2, 1]


@pytest.mark.parametrize("head", ["<|reserved_{}|>", "{}"], ids=["one first byte", "many first bytes"])
def test_thousands_of_words(head: str) -> None:
    words = {head.format(chr(0x4E00 + i)).encode(): i for i in range(3000)}
    finder = SpecialFinder(words)
    text = b"x".join(words)
    assert finder.cut(text) == cut_by_alternation(dict(list(words.items())), text)
    assert [part for part in finder.cut(text) if isinstance(part, int)] == list(range(3000))


def test_long_words_that_are_prefixes_of_one_another() -> None:
    words = {b"a" * n: n for n in range(2000, 0, -1)}
    assert SpecialFinder(words).cut(b"a" * 4500 + b"b") == [2000, 2000, 500, b"b"]


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="empty"):
        SpecialFinder({b"": 1})
    for attempt in (copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match="pickled"):
            attempt(SpecialFinder({b"a": 1}))
    assert SpecialFinder({}).cut(b"abc") == [b"abc"]
    assert SpecialFinder({}).first(b"abc") is None


def test_a_tokenizer_with_a_thousand_special_tokens() -> None:
    tokenizer = RegexTokenizer()
    words = {f"<|{i}|>": 1000 + i for i in range(1000)}
    tokenizer.register_special_tokens(words)
    text = "a<|7|>b<|999|><|1000|>"
    ordinary = tokenizer.encode_ordinary("<|1000|>")
    assert tokenizer.encode(text, allowed_special="all") == [97, 1007, 98, 1999, *ordinary]
    assert tokenizer.encode(text, {"<|999|>"}) == [*tokenizer.encode_ordinary("a<|7|>b"), 1999, *ordinary]
    with pytest.raises(ValueError, match=r"<\|7\|>"):
        tokenizer.encode(text)

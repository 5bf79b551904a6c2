"""The split patterns: every text that a native splitter is given for gives the chunks of regex, and of its engine.

test_splitting.py and test_masks.py hold each native splitter against regex under one pattern. Here are the others that
it serves, Llama 3's and other spellings, and no text but those. Hugging Face's tokenizers, whose engine reads patterns
in its own way, is a second oracle.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import regex
from budget import SHORT, times

from cbpe.patterns import (
    BYTE_LEVEL_SPLIT_PATTERN,
    GPT2_SPLIT_PATTERN,
    GPT4_SPLIT_PATTERN,
    LLAMA3_SPLIT_PATTERN,
    NAMED_PATTERNS,
    OTHER_SPELLINGS,
    R50K_SPLIT_PATTERN,
)
from cbpe.splitting import split, splitter_for

# A pattern, and one of which it is another spelling.
SAME = {
    R50K_SPLIT_PATTERN: GPT2_SPLIT_PATTERN,
    LLAMA3_SPLIT_PATTERN: GPT4_SPLIT_PATTERN,
    **{pattern: NAMED_PATTERNS[name] for pattern, name in OTHER_SPELLINGS.items()},
}
each_spelling = pytest.mark.parametrize("pattern", SAME, ids=["r50k", "llama3", "byte level", "cl100k of onig"])

CORPORA = [*Path(__file__).parent.glob("*.py"), *(Path(__file__).parent.parent / "cbpe").rglob("*.h")]


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


def short_strings() -> Iterator[str]:
    yield from strings("' \n\r\t1as.\u017f\u3000é\u0301", 4)
    yield from strings(" \n\r\u3000.x", 6)
    yield from strings("'sltreSLVED\u017f", 4)
    yield from strings("' \n1a.", 6)


def random_strings(count: int) -> Iterator[str]:
    rng = random.Random(11)
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    trouble = [*"'''  \n\n\r\t12ssSlLtTrReEvVdDmMaB.,/!\u017f\u3000\x85\u0301١½中ßǅʰ"]
    for _ in range(count):
        yield "".join(rng.choice(trouble) if rng.random() < 0.8 else rng.choice(everything) for _ in range(30))


def code_points_in_context() -> Iterator[str]:
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    yield "".join(everything)
    for some in (everything[:0x3400], everything[0x3400:0x20000:31], everything[0x20000::307]):
        yield "".join(f"a{x}a {x} 1{x}1'{x}'s.{x}.\n{x}\n  {x}  " for x in some)


@each_spelling
def test_other_spellings_give_the_same_chunks(pattern: str) -> None:
    splitter, other = splitter_for(pattern), splitter_for(SAME[pattern])
    compiled = regex.compile(pattern)
    some = itertools.islice(short_strings(), 0, None, 7 if SHORT else 1)
    for text in itertools.chain(some, random_strings(times(3000)), code_points_in_context()):
        chunks = [match.group().encode() for match in compiled.finditer(text)]
        assert splitter.split(text) == chunks, text[:100]
    for path in CORPORA:
        text = path.read_text(encoding="utf-8")
        chunks = [match.group().encode() for match in compiled.finditer(text)]
        assert splitter.split(text) == other.split(text) == chunks, path
    assert splitter.kind in NAMED_PATTERNS
    assert splitter.pattern == pattern
    assert (splitter.cuttable, splitter.compiled) == (True, None)


def test_all_spellings_are_different_texts() -> None:
    patterns = [*NAMED_PATTERNS.values(), *OTHER_SPELLINGS]
    assert len(set(patterns)) == len(patterns)
    assert set(OTHER_SPELLINGS.values()) <= set(NAMED_PATTERNS)


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_no_text_is_taken_for_another(name: str) -> None:
    """A pattern with one character more or less goes through regex, or is another of those that are known."""
    known = {*NAMED_PATTERNS.values(), *OTHER_SPELLINGS}
    pattern = NAMED_PATTERNS[name]
    for i in range(0, len(pattern), 3):
        for changed in (pattern[:i] + pattern[i + 1 :], pattern[:i] + "+" + pattern[i:]):
            try:
                splitter = splitter_for(changed)
            except regex.error:
                continue
            assert (splitter.kind == "regex") == (changed not in known), changed


def test_patterns_that_split_differently_are_told_apart() -> None:
    """No two of different native splitters agree on these few texts."""
    texts = ["it's 1234", "IT'S", "a\n ", ".\n/", "aB", "12345", "(a"]
    groups: dict[tuple[tuple[bytes, ...], ...], set[str]] = {}
    for name, pattern in NAMED_PATTERNS.items():
        chunks = tuple(tuple(splitter_for(pattern).split(text)) for text in texts)
        groups.setdefault(chunks, set()).add(name)
    assert sorted(map(sorted, groups.values())) == [
        ["cl100k"], ["gpt2", "r50k"], ["gpt4", "llama3"], ["nanochat"], ["o200k"], ["qwen2"], ["tekken"],
    ]  # fmt: skip


# --- Against Hugging Face's engine ---


@pytest.mark.parametrize("pattern", ["gpt2", "r50k", "llama3", "qwen2", "tekken", "o200k", *OTHER_SPELLINGS])
def test_hugging_face_splits_the_same_where_editions_agree(pattern: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    pattern = NAMED_PATTERNS.get(pattern, pattern)
    split_by = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    splitter = splitter_for(pattern)
    rng = random.Random(12)
    # characters that have had their class and case for long
    letters = [*"'''  \n\n\r\t123ssSlLtTrReEvVdDmMaBcD.,/!-\u3000\x85\u0301١½中ßǅʰж"]
    texts = ["".join(rng.choices(letters, k=rng.randint(1, 40))) for _ in range(times(3000))]
    texts += [path.read_text(encoding="utf-8")[:20_000] for path in CORPORA]
    for text in texts:
        pieces = [piece.encode() for piece, _ in split_by.pre_tokenize_str(text)]
        assert splitter.split(text) == pieces, text


def test_byte_level_is_its_pattern() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    splitter = splitter_for(BYTE_LEVEL_SPLIT_PATTERN)
    for text in itertools.chain(strings("' \nsr1a.", 4), random_strings_of_ascii(500)):
        places = [place for _, place in byte_level.pre_tokenize_str(text)]
        assert [text[a:b].encode() for a, b in places] == splitter.split(text), text


def random_strings_of_ascii(count: int) -> Iterator[str]:
    rng = random.Random(13)
    for _ in range(count):
        yield "".join(chr(rng.randrange(128)) for _ in range(40))


# --- Where a text may be taken apart ---


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS.values(), *OTHER_SPELLINGS])
def test_texts_may_be_cut_under_every_pattern(pattern: str) -> None:
    splitter = splitter_for(pattern)
    assert splitter.cuttable
    for text in itertools.chain(strings("' \n1a.", 4), strings("/\n.A ", 5)):
        encoded = text.encode()
        chunks = splitter.split(text)
        cut = 0
        while (cut := split.next_cut(encoded, cut + 1)) != -1:
            right = splitter.split(encoded[cut:])
            assert chunks[len(chunks) - len(right) :] == right, text
            assert sum(map(len, right)) == len(encoded) - cut

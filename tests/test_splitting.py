"""Splitting: the native splitters give regex's chunks; cuts are exact; UTF-8 is what bytes.decode says.

The oracle is regex.findall with the same pattern. Texts come from four sides: every code point in several
neighbourhoods, every short string over an alphabet of troublemakers, random strings, and very long runs.
"""

from __future__ import annotations

import importlib.util
import itertools
import random
import re
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import regex
from budget import SHORT, examples, thorough
from hypothesis import given
from hypothesis import strategies as st

from cbpe.patterns import GPT2_SPLIT_PATTERN, NAMED_PATTERNS
from cbpe.splitting import UNICODE_EDITION, Splitter, split, splitter_for

pytestmark = pytest.mark.native

SPLITTERS = {kind: splitter_for(pattern) for kind, pattern in NAMED_PATTERNS.items()}
COMPILED = {kind: regex.compile(pattern) for kind, pattern in NAMED_PATTERNS.items()}
# (r50k's and Llama 3's are served by GPT-2's and GPT-4's splitters: test_patterns.py)
each = pytest.mark.parametrize("kind", [kind for kind in NAMED_PATTERNS if kind not in ("r50k", "llama3")])

# Fillers of the bytes behind a text: what they are must not matter, were they letters, spaces or the rest of a
# character.
FILLERS = [0, 0x80, 0xBF, ord("s"), ord(" "), ord("1"), ord("'"), 0xFF]


def wanted_ends(kind: str, text: str) -> list[int]:
    return list(accumulate(len(chunk.encode()) for chunk in COMPILED[kind].findall(text)))


def check(kind: str, text: str, filler: int = 0) -> None:
    same(split._split_block(SPLITTERS[kind], text.encode(), filler), wanted_ends(kind, text), text)


def same(ends: int | list[int], wanted: int | list[int], text: str) -> None:
    """Asserts that they are equal; without the diff of pytest, which takes minutes for a million ends."""
    if ends == wanted:
        return
    assert isinstance(ends, list), f"{ends} for {text[:100]!r}"
    assert isinstance(wanted, list)
    i = next((i for i, (a, b) in enumerate(zip(ends, wanted, strict=False)) if a != b), min(len(ends), len(wanted)))
    start = wanted[i - 1] if i > 0 else 0
    around = text.encode()[start : start + 40]
    pytest.fail(f"chunk {i}, from byte {start} on, ends at {ends[i : i + 1]}, not {wanted[i : i + 1]}: {around!r}")


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


# --- The native splitters against regex ---


@thorough
@each
def test_every_code_point_in_every_neighbourhood(kind: str) -> None:
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    check(kind, "".join(everything))
    shuffled = everything[:0x40000]
    random.Random(1).shuffle(shuffled)
    check(kind, "".join(shuffled))
    # behind the planes that have letters, a sample is enough
    for c in [everything[:0x40000], everything[0x40000::331]]:
        check(kind, "".join(f"a{x} {x}1{x}'{x}\n{x}" for x in c))
    for c in [everything[:0x3400], everything[0x3400::61]]:
        check(kind, "".join(f"a{x}a  {x} .{x}. 1{x}2 '{x}s '{x}e '{x}l 'l{x} 'v{x} 'r{x} " for x in c))
        check(kind, "".join(f"\n{x}\n \r{x}\r \t{x}\t\u3000{x}\u3000" for x in c))


@thorough
@each
def test_every_short_string_of_troublemakers(kind: str) -> None:
    for text in strings("' \n\r\t1as.\u017f\u3000é\u0301", 4):
        check(kind, text)
    for text in strings("' \n1a.\u3000", 6):
        check(kind, text)
    for text in strings("'slreLVED \u017f", 4):
        check(kind, text)
    for text in strings(" \n\r\u00a0.x", 6):
        check(kind, text)
    for text in itertools.chain(strings("1²٣a '", 6), strings("1٣a", 8)):
        check(kind, text)
    for text in strings("/\n\r. a", 6):
        check(kind, text)


@thorough
@each
def test_all_the_rest_of_the_troublemakers_in_threes(kind: str) -> None:
    letters = "\u017f\u212a\u0131sSlLvVrReEtTdDmM一가नמ\U00010330"
    for text in strings("' 1½\u094d\U0001f600\x1c\x1f\x85\xa0\u2028\x0b\x0c\0" + letters, 3):
        check(kind, text)


@thorough
@each
@pytest.mark.parametrize("filler", FILLERS)
def test_what_lies_behind_the_text_does_not_matter(kind: str, filler: int) -> None:
    for text in strings("' \ns1é\u3000.", 4):
        check(kind, text, filler)


TROUBLE = st.sampled_from("''  \n\r\t1sltrevdmLSE.,\u017f\u3000é")


@each
@given(st.text(st.one_of(st.characters(exclude_categories=["Cs"]), TROUBLE), max_size=60))
@examples(1000)
def test_random_strings(kind: str, text: str) -> None:
    check(kind, text)
    encoded = text.encode()
    assert SPLITTERS[kind].split(text) == [chunk.encode() for chunk in COMPILED[kind].findall(text)]
    assert b"".join(SPLITTERS[kind].split(encoded)) == encoded      # all these patterns match every character


# a letter of each case and a mark: Lu, Lt, Ll, Lm, Lo, Mn, Mc, Me
CASES = "A\u01c5a\u02b0\u4e00\u0301\u0903\u20dd"


@thorough
@each
def test_every_short_string_of_cases(kind: str) -> None:
    for text in strings("Aa\u4e00\u0301' .s", 5):
        check(kind, text)
    for text in strings(CASES + " 1/\n'", 4):
        check(kind, text)
    for text in strings("AaB\u0301", 8):
        check(kind, text)


@each
@given(st.text(st.sampled_from(CASES + CASES + "BbsS' ./1\n\u017f"), max_size=60))
@examples(1000)
def test_random_strings_of_cases(kind: str, text: str) -> None:
    check(kind, text)


def test_the_patterns_differ_where_they_say_so() -> None:
    def split_by(kind: str, text: str) -> list[str]:
        return [chunk.decode() for chunk in SPLITTERS[kind].split(text)]

    assert split_by("gpt4", "a\n ") == ["a", "\n", " "]
    assert split_by("cl100k", "a\n ") == ["a", "\n "]
    assert split_by("cl100k", "a\n b") == ["a", "\n", " b"]
    assert split_by("cl100k", "a \n\n") == ["a", " \n\n"]
    assert split_by("o200k", "HTMLParser's it'll ABC") == ["HTMLParser's", " it'll", " ABC"]
    assert split_by("o200k", "x.\n/y//\n") == ["x", ".\n/", "y", "//\n"]
    assert split_by("o200k", "\u4e00B \u4e00Bc") == ["\u4e00", "B", " \u4e00Bc"]
    assert split_by("tekken", "HTMLParser's 1234.\n/") == ["HTMLParser", "'s", " ", "1", "2", "3", "4", ".\n/"]
    assert split_by("qwen2", "it's 1234 a\n b") == ["it", "'s", " ", "1", "2", "3", "4", " a", "\n", " b"]
    assert split_by("nanochat", "12345 1") == ["12", "34", "5", " ", "1"]
    for text in itertools.chain(strings("' \n\r\t1as.\u3000", 4), strings(" \na.", 6)):
        assert split_by("gpt2", text) == split_by("r50k", text)
        if not regex.search(r"[\r\n]\s*$", text):
            assert split_by("gpt4", text) == split_by("cl100k", text)


def test_c33_contractions() -> None:
    gpt2, gpt4 = SPLITTERS["gpt2"], SPLITTERS["gpt4"]
    assert gpt4.split("'RE") == [b"'RE"]
    assert gpt2.split("'RE") == [b"'", b"RE"]
    assert gpt4.split("I'M we'll THEY'RE we'd") == [b"I", b"'M", b" we", b"'ll", b" THEY", b"'RE", b" we", b"'d"]
    assert gpt2.split("I'M we'll we'd") == [b"I", b"'", b"M", b" we", b"'ll", b" we", b"'d"]
    assert gpt4.split("it'\u017f") == [b"it", "'\u017f".encode()]
    assert gpt2.split("it'\u017f") == [b"it", b"'", "\u017f".encode()]
    whole = "'s'S'\u017f'll'LL're'RE"
    assert gpt4.split(whole) == [chunk.encode() for chunk in ["'s", "'S", "'\u017f", "'ll", "'LL", "'re", "'RE"]]
    for text in [whole, "'\u212a", "x'\u0131", "'sab", "''s", " 's", "'lL", "'Ve", "'rE", "'l", "'v", "'r"]:
        check("gpt2", text)
        check("gpt4", text)


def test_c36_vowel_signs_are_not_letters() -> None:
    gpt4 = SPLITTERS["gpt4"]
    assert gpt4.split("नमस्ते") == ["नमस".encode(), "\u094dत".encode(), "\u0947".encode()]
    assert gpt4.split("a\u0301b") == [b"a", "\u0301b".encode()]
    o200k = SPLITTERS["o200k"]
    assert o200k.split("नमस्ते") == ["नमस्ते".encode()]
    assert o200k.split("a\u0301b") == ["a\u0301b".encode()]
    for kind in NAMED_PATTERNS:
        check(kind, "हिन्दी")


@each
@pytest.mark.parametrize(
    "text", [*" \nx1^'é一A\u3000\U0001f600", "\r\n", " \n", "\n ", "'s", ". ", "a'", "一A", "aA", "/\n"]
)
@pytest.mark.parametrize("end", ["", "x", "\n"])
def test_long_runs_take_linear_time(kind: str, text: str, end: str) -> None:
    text = text * ((60_000 if SHORT else 1_200_000) // len(text)) + end
    encoded = text.encode()
    started = time.thread_time()
    _, ends = SPLITTERS[kind].spans(encoded)
    assert time.thread_time() - started < 2        # some milliseconds; quadratic time would be an hour
    if end == "x":
        same(ends.tolist(), wanted_ends(kind, text), text)


@each
def test_windows_do_not_show(kind: str) -> None:
    rng = random.Random(2)
    pieces = ["the", " quick", "'s", "'", "r", "l", "123", "4", "é", "一二", ".", "...", "?!\n"]
    pieces += ["A", "BC", "\u0301", "/", "\n", "\n\n", "  ", " ", "\u3000", "\t", " " * 99]
    text = "".join(rng.choices(pieces, k=1_500_000))
    text += " " * 1_500_000 + "a" * 2_500_000 + "".join(rng.choices(pieces, k=400_000))
    encoded = text.encode()
    kept, ends = SPLITTERS[kind].spans(encoded)
    assert kept is encoded
    assert ends.dtype == np.uint32
    same(ends.tolist(), split._split_block(SPLITTERS[kind], encoded), text)


def test_the_tables_are_those_of_the_installed_regex() -> None:
    script = load_script()
    for ours, partition in [
        (split._character_classes(), script.CLASSES),
        (split._character_cases(), script.CASES),
    ]:
        found = verdict(ours, script.character_classes(partition), UNICODE_EDITION, script.unicode_edition())
        assert found == "", found


def load_script() -> ModuleType:
    path = Path(__file__).parent.parent / "scripts" / "make_unicode_tables.py"
    spec = importlib.util.spec_from_file_location("make_unicode_tables", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def verdict(ours: bytes, theirs: bytes, our_edition: str, their_edition: str) -> str:
    """What is to be said of tables that differ. A new edition gives classes to what had none; an old one takes them."""
    differing = [c for c in range(0x110000) if ours[c] != theirs[c]]
    if not differing:
        return ""
    first = differing[0]
    where = f"{len(differing)} code points differ, first U+{first:04X}: {ours[first]} here, {theirs[first]} in regex"
    other_edition = our_edition != their_edition or "unknown" in (our_edition, their_edition)
    one_way = all(ours[c] == 0 for c in differing) or all(theirs[c] == 0 for c in differing)
    if other_edition and one_way and len(differing) < 20_000:
        return (
            f"The installed regex follows another edition of Unicode ({their_edition}; the tables {our_edition}). "
            f"{where}; all of them have a class in one edition only. This is no fault of the tables: "
            "run scripts/make_unicode_tables.py when this regex is to be the reference."
        )
    return f"The tables are wrong, or regex changed more than its edition of Unicode. {where}."


def test_the_verdict_tells_a_new_edition_from_a_fault() -> None:
    ours = split._character_classes()
    assert ours[0x378] == 0
    newer = bytearray(ours)
    newer[0x378] = 1
    assert verdict(ours, ours, "1.0", "2.0") == ""
    assert "another edition" in verdict(ours, bytes(newer), "1.0", "2.0")
    assert "another edition" in verdict(bytes(newer), ours, "2.0", "1.0")
    assert "wrong" in verdict(ours, bytes(newer), "1.0", "1.0")
    newer[ord("a")] = 2
    assert "wrong" in verdict(ours, bytes(newer), "1.0", "2.0")


# --- Where a text may be taken apart ---


@each
@pytest.mark.parametrize(
    ("alphabet", "longest"),
    [("' \n1rle.", 3), ("' \n1ase\r\t\u3000é\u017fvt", 2), ("'\n rl.", 4), ("Aa一' ./\n", 3), ("Aa\u0301'", 4)],
)
def test_settled_chunks_stay_whatever_follows(kind: str, alphabet: str, longest: int) -> None:
    splitter = SPLITTERS[kind]
    continuations = [text.encode() for text in strings(alphabet + "e", 2)]
    for text in strings(alphabet, longest):
        encoded = text.encode()
        ends = split._split_block(splitter, encoded)
        assert isinstance(ends, list)
        stay = len(ends)
        for continuation in continuations:
            longer = split._split_block(splitter, encoded + continuation)
            assert isinstance(longer, list)
            while ends[:stay] != longer[:stay]:
                stay -= 1
        count = split._settled(splitter, encoded)
        assert count <= stay, repr(text)
        stripped = text.rstrip()
        if stripped == text:            # no more is held back than the last two chunks
            assert count == max(0, len(ends) - 2), repr(text)
        else:
            assert count >= split._settled(splitter, stripped.encode()), repr(text)


def first_cut(text: str, start: int) -> int:
    """find_cut by its definition, in offsets of characters."""
    cut = regex.compile(r"(?<=\n)[^\s/]|(?<=[a-zA-Z0-9]\r?\n)/")
    return next((o for o in range(start, len(text)) if cut.match(text, o)), -1)


def test_only_o200k_and_tekken_join_what_stands_on_two_lines() -> None:
    joins = [kind for kind in NAMED_PATTERNS if ".\n/" in COMPILED[kind].findall(".\n/")]
    assert joins == ["o200k", "tekken"]


@each
def test_cuts_are_exact(kind: str) -> None:
    splitter = SPLITTERS[kind]
    texts = strings("' \n\ra1.", 5), strings("\n\t\r\u3000s'", 5), strings("/\n\r.a ", 6)
    for text in itertools.chain(*texts):
        encoded = text.encode()
        ends = wanted_ends(kind, text)
        cut = 0
        while (cut := split.next_cut(encoded, cut + 1)) != -1:
            right = [end + cut for end in wanted_ends(kind, encoded[cut:].decode())]
            assert cut in ends, repr(text)
            assert ends[ends.index(cut) + 1 :] == right, repr(text)
            # the left side is exact once it is shown one character beyond the cut
            beyond = cut + len(encoded[cut:].decode()[0].encode())
            left = split._split_block(splitter, encoded[:beyond])
            assert isinstance(left, list)
            assert [end for end in left if end <= cut] == ends[: ends.index(cut) + 1], repr(text)


@thorough
def testnext_cut_finds_the_first_cut() -> None:
    for text in itertools.chain(strings("a\n \x1c\r", 6), strings("a\n/\r.", 6)):
        for start in range(len(text) + 2):
            assert split.next_cut(text.encode(), start) == first_cut(text, start), (text, start)
        assert split.last_cut(text.encode()) == max(first_cut(text, start) for start in range(len(text) + 1)), text
    assert split.next_cut(b"\nab\nc", 1) == 1
    assert split.next_cut(b"\nab\nc", 2) == 4
    assert split.next_cut(b"a\nb", 100) == -1


@thorough
def testnext_cut_before_every_code_point() -> None:
    spaces = set(regex.findall(r"\s", "".join(map(chr, range(0x110000)))))
    for c in itertools.chain(range(0xD800), range(0xE000, 0x110000, 7)):
        assert split.next_cut(b"\n" + chr(c).encode()) == (-1 if chr(c) in spaces or c == ord("/") else 1), hex(c)


def testnext_cut_waits_for_whole_characters() -> None:
    assert split.next_cut(b"a\n") == -1
    assert split.next_cut(b"a\n\xe3") == -1
    assert split.next_cut(b"a\n\xe3\x80") == -1
    assert split.next_cut(b"a\n\xe3\x80\x80") == -1        # U+3000
    assert split.next_cut(b"a\n\xe3\x80\x81") == 2
    assert split.next_cut(b"a\n\xff") == 2
    assert split.next_cut(b"a\n\xe3a") == 2
    assert split.next_cut(b"a\n\xed\xa0") == 2             # a surrogate: nothing can mend it
    for tail in byte_strings():
        certain = tail != b"" and tail not in BEGINNINGS and regex.match(r"[^\s/]", tail.decode("utf-8", "replace"))
        if b"\n" not in tail:
            assert split.next_cut(b"\n" + tail, 1) == (1 if certain else -1), tail


# --- UTF-8 ---

# All that begins a character and is not one; 64 neighbours differ in their last byte only. (The incremental decoder
# of Python would wait for the rest of ED A0, which no character begins with.)
BEGINNINGS = {
    character[:n]
    for character in (chr(c).encode() for c in range(0x80, 0x110000, 64) if not 0xD800 <= c < 0xE000)
    for n in range(1, len(character))
}
BORDER_BYTES = bytes.fromhex("00 41 7F 80 8F 90 9F A0 BF C1 C2 DF E0 E1 EC ED EE EF F0 F1 F4 F5 FF")


def byte_strings() -> Iterator[bytes]:
    """All strings of one and two bytes, and those of three and four over the bytes where UTF-8 turns."""
    yield b""
    for length in (1, 2):
        yield from map(bytes, itertools.product(range(256), repeat=length))
    yield from map(bytes, itertools.product(BORDER_BYTES, repeat=3))
    yield from map(bytes, itertools.product(bytes.fromhex("E0 ED EF F0 F1 F4"), *[BORDER_BYTES] * 3))


def check_bytes(data: bytes) -> None:
    try:
        data.decode()
        wrong = len(data)
    except UnicodeDecodeError as error:
        wrong = error.start
    assert split._check_utf8(data) == wrong, data
    mended, origin = split._replace_utf8(data)
    assert mended == data.decode("utf-8", "replace").encode(), data
    assert len(origin) == len(mended)
    tails = [data[len(data) - n :] for n in range(1, min(3, len(data)) + 1)]
    assert split._incomplete_tail(data) == max((len(tail) for tail in tails if tail in BEGINNINGS), default=0), data
    for splitter in SPLITTERS.values():
        ends = split._split_block(splitter, data, 0x80)
        assert ends == -1 - wrong if wrong < len(data) else isinstance(ends, list), data


@thorough
def test_utf8_on_every_short_string_of_bytes() -> None:
    for data in byte_strings():
        check_bytes(data)


WHOLE = st.lists(st.sampled_from(["aaaaaaaaaaaa", "é", "一", "\U0001f600"]), max_size=6).map("".join).map(str.encode)


@given(st.one_of(st.binary(max_size=40), WHOLE))
@examples(500)
def test_utf8_on_random_bytes(data: bytes) -> None:
    check_bytes(data)
    for n in range(len(data)):
        check_bytes(data[:n])


def test_origins_name_the_character() -> None:
    assert split._replace_utf8(b"a\xffb\xc3\xa9\xe4\xb8") == (
        "a\ufffdbé\ufffd".encode(),
        [0, 1, 1, 1, 2, 3, 3, 5, 5, 5],
    )
    assert split._replace_utf8(b"") == (b"", [])


@pytest.mark.parametrize("pattern", [*NAMED_PATTERNS.values(), None, r"\w+"])
def test_bytes_that_are_not_utf8_are_refused_with_their_offset(pattern: str | None) -> None:
    for before in (0, 7, 3_000_000):
        data = b"ab c" * before + b"d\xe4\xb8z"
        for call in (splitter_for(pattern).split, splitter_for(pattern).spans):
            with pytest.raises(UnicodeDecodeError) as caught:
                call(data)
            assert caught.value.start == 4 * before + 1


# --- Which splitter serves a pattern ---


def test_native_splitters_serve_exactly_their_patterns() -> None:
    for kind, pattern in NAMED_PATTERNS.items():
        for given_as in (pattern, regex.compile(pattern)):
            splitter = splitter_for(given_as)
            assert (splitter.kind, splitter.pattern) == (kind, pattern)
            assert (splitter.cuttable, splitter.compiled) == (True, None)
        flagged = [regex.compile(pattern, flag) for flag in (regex.IGNORECASE, regex.VERSION1, regex.ASCII)]
        for other in (pattern + " ", pattern + "|x", *flagged):
            splitter = splitter_for(other)
            assert (splitter.kind, splitter.cuttable) == ("regex", False)
            assert splitter.compiled is not None
    assert splitter_for(splitter) is splitter
    assert splitter_for(r"\w", 2.5).timeout == 2.5
    ignoring_case = regex.compile(GPT2_SPLIT_PATTERN, regex.IGNORECASE)
    assert splitter_for(ignoring_case).compiled is ignoring_case
    assert splitter_for(ignoring_case).split("I'M") == [b"I", b"'M"]


@pytest.mark.parametrize("splitter", [splitter_for(None), Splitter()])
def test_without_a_pattern_a_text_is_one_chunk(splitter: Splitter) -> None:
    assert (splitter.kind, splitter.pattern, splitter.cuttable, splitter.compiled) == ("whole", None, False, None)
    assert splitter.split("a b\nc") == [b"a b\nc"]
    assert splitter.split("") == []


@pytest.mark.parametrize("wrong", [5, b"a", re.compile(b"a"), regex.compile(b"a"), ["a"]])
def test_what_is_no_pattern_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="pattern"):
        splitter_for(wrong)


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(regex.error):
        splitter_for("(")


@pytest.mark.parametrize("pattern", [GPT2_SPLIT_PATTERN, r"\w+", None])
def test_what_is_no_text_is_refused(pattern: str | None) -> None:
    splitter = splitter_for(pattern)
    with pytest.raises(TypeError):
        splitter.split(5)    # type: ignore[arg-type]
    with pytest.raises(TypeError):
        splitter.spans("a")    # type: ignore[arg-type]
    with pytest.raises(TypeError):
        splitter.spans(None)    # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        splitter.split("a\ud800")


# --- Every other pattern ---


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w+",                             # gaps
        r"(\w)(\w*)",                       # groups: a chunk is the whole match
        r"(a)|b",
        r"\d*",                             # empty matches
        r"(?=b)|a+",
        r"\b",                              # nothing but empty matches
        r"zzz",                             # no match
        r"(?<=a)b|(?<!b)c",                 # what lies before a match matters
        r"(?s).+",
        r"\X",
        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
        re.compile(r"[a-z]+", re.IGNORECASE),
        re.compile(r"a b # c", re.VERBOSE),
        regex.compile(r"(?r)\w\w"),         # backwards
        regex.compile(r"\L<words>", words=["ab", "é1"]),
    ],
)
@pytest.mark.parametrize("text", ["", "ab cd, é1 bcb", "a\n\nABC abab", "e\u0301🙂x" * 9, "αβγ ab12 ", "é1ab"])
def test_other_patterns_give_the_whole_matches_of_regex(pattern: str | regex.Pattern[str], text: str) -> None:
    compiled = regex.compile(pattern) if isinstance(pattern, str) else pattern
    wanted = [match[0].encode() for match in compiled.finditer(text) if match[0]]
    splitter = splitter_for(pattern)
    assert splitter.kind == "regex"
    assert splitter.split(text) == splitter.split(text.encode()) == wanted
    kept, ends = splitter.spans(text.encode())
    assert kept == b"".join(wanted)
    assert ends.dtype == np.uint32
    assert ends.tolist() == list(accumulate(map(len, wanted)))


def test_many_matches_of_another_pattern() -> None:
    text = "é1, a " * 50_000
    assert splitter_for(r"\w+").split(text) == ["é1".encode(), b"a"] * 50_000
    assert splitter_for(r"x*").split(text) == []

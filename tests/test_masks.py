"""The bit masks: every instruction set that this machine has gives the chunks of regex and of the simple matcher.

test_splitting.py holds the simple matcher against regex on every short string, so here it is the oracle where texts are
many. What is new in the masks is that a text falls into blocks of 64 bytes: strings are placed over every border.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest
import regex
from budget import thorough

from cbpe.patterns import GPT4_SPLIT_PATTERN, NAMED_PATTERNS
from cbpe.splitting import split

pytestmark = pytest.mark.native

PATTERNS = {kind: NAMED_PATTERNS[kind] for kind in ("gpt2", "gpt4", "qwen2", "nanochat")}
ISAS = [name for name in split.available_isas() if name != "simple"]
SPLITTERS = {
    (kind, isa): split._splitter_for_isa(PATTERNS[kind], isa) for kind in PATTERNS for isa in ("simple", *ISAS)
}

every = pytest.mark.parametrize("kind", list(PATTERNS))
each = pytest.mark.parametrize("isa", ISAS)

TROUBLE = [*"'  \n\r\t12asSlLevrt!-", "\u3000", "\x85", "\xa0", "中", "䷀", "\u0301", "😀", "ſ", "ş", "١", "१", "²"]
TROUBLE += ["𐐀", "Ж", "“", "あ", "𝟘", "\u2028", "\u1680", "가", "힣", "Ⅷ", "é", "×", "÷", "\U000e0100", "\x00", "\x1c"]
FILLERS = [0, 0x80, 0xBF, *b"sle 1'\n", 0xFF]


@cache
def simple_ends(kind: str, text: bytes) -> int | list[int]:
    return split._split_block(SPLITTERS[kind, "simple"], text)


@cache
def regex_ends(kind: str, text: str) -> list[int]:
    return list(accumulate(len(chunk.encode()) for chunk in regex.findall(PATTERNS[kind], text)))


def check(kind: str, isa: str, text: bytes, wanted: int | list[int], filler: int = 0) -> None:
    """Asserts that the ends are as wanted, without pytest's diff, which takes minutes for many ends."""
    ends = split._split_block(SPLITTERS[kind, isa], text, filler)
    if ends == wanted:
        return
    assert isinstance(ends, list), (ends, text[:400])
    assert isinstance(wanted, list), (wanted, text[:400])
    i = next((i for i, (a, b) in enumerate(zip(ends, wanted, strict=False)) if a != b), min(len(ends), len(wanted)))
    start = max(0, wanted[i - 1] - 70 if i > 0 else 0)
    around = text[start : start + 200]
    pytest.fail(f"chunk {i} ends at {ends[i : i + 1]}, not {wanted[i : i + 1]}; from {start} on: {around!r}")


def nasty(rng: random.Random, shortest: int, longest: int) -> str:
    """A string over a few of the troublemakers, some in long runs."""
    some = rng.choices(TROUBLE, k=rng.randint(1, 8))
    size = rng.randint(shortest, longest)
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        run = rng.choice([2, 3, 6, rng.randint(7, 140)]) if rng.random() < 0.2 else 1
        parts.append(rng.choice(some if rng.random() < 0.9 else TROUBLE) * run)
    return "".join(parts)


# --- The steps alone ---


@cache
def masks_by_definition(text: str) -> dict[str, int]:
    """The masks of a text of whole blocks, from what regex says of each character."""
    found = dict.fromkeys(["L", "N", "O", "W", "NL", "SP", "AP", "multi", "CONT", "W2", "W3"], 0)
    at = 0
    for character in text:
        size = len(character.encode())
        whole = ((1 << size) - 1) << at
        class_ = "L" if regex.match(r"\p{L}", character) else "N" if regex.match(r"\p{N}", character) else "O"
        class_ = "W" if regex.match(r"\s", character) else class_
        found[class_] |= whole
        for name, members in [("NL", "\n\r"), ("SP", " "), ("AP", "'")]:
            if character in members:
                found[name] |= whole
        if size > 1:
            found["multi"] |= whole
            found["CONT"] |= whole & ~(1 << at)
        if class_ == "W" and size in (2, 3):
            found[f"W{size}"] |= 1 << at
        at += size
    return found


@each
def test_masks_are_those_of_the_definition(isa: str) -> None:
    rng = random.Random(5)
    for _ in range(150):
        text = nasty(rng, 40, 200)
        padded = text + " " * (64 - len(text.encode()) % 64)
        assert split._masks(text.encode(), isa) == masks_by_definition(padded), text
    everything = "".join(chr(c) for c in itertools.chain(range(0x3400), range(0xF900, 0x12000)))
    padded = everything + " " * (64 - len(everything.encode()) % 64)
    assert split._masks(everything.encode(), isa) == masks_by_definition(padded)


@each
def test_starts_become_ends(isa: str) -> None:
    rng = random.Random(6)
    dense = [rng.getrandbits(64) for _ in range(200)]
    sparse = [starts & rng.getrandbits(64) & rng.getrandbits(64) for starts in dense]
    for starts in [0, (1 << 64) - 1, *dense, *sparse, *(1 << i for i in range(64))]:
        base = 64 * rng.randrange(1 << 26)
        assert split._write_ends(base, starts, isa) == [base + i for i in range(64) if starts >> i & 1]


def test_masks_are_made_of_utf8_and_by_instruction_sets_that_have_them() -> None:
    assert split._masks(b"a\xff", "portable") is None
    for call in (lambda: split._masks(b"a", "simple"), lambda: split._write_ends(0, 1, "simple")):
        with pytest.raises(ValueError, match="simple makes no masks"):
            call()


# --- The whole ---


@cache
def code_points_in_context() -> list[str]:
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    shuffled = everything[:0x40000]
    random.Random(1).shuffle(shuffled)
    some = [*everything[:0x3400], *everything[0x3400:0x20000:41]]
    return [
        "".join(everything),
        "".join(shuffled),
        "".join(f"a{x} {x}1{x}'{x}\n{x}" for x in some),
        "".join(f"a  {x} .{x}. 1{x}2 '{x}s '{x}e 'l{x} \n{x}\n \r{x}\r \t{x}\t\u3000{x}\u3000" for x in some),
    ]


@thorough
@every
def test_every_code_point_in_several_neighbourhoods(kind: str) -> None:
    for text in code_points_in_context():
        wanted = regex_ends(kind, text)
        for isa in ISAS:
            check(kind, isa, text.encode(), wanted)


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(1, longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


@thorough
@every
@pytest.mark.parametrize("around", ["x", " ", "\n", "."])
@pytest.mark.parametrize(("alphabet", "longest"), [("' \n1as.", 4), ("'sl\u017f\u3000é\xa0١\u0301\r", 3)])
def test_every_short_string_over_the_border(kind: str, around: str, alphabet: str, longest: int) -> None:
    pieces = []
    for string in strings(alphabet, longest):
        encoded = string.encode()
        for offset in range(64 - len(encoded), 65):
            pieces.append((around.encode() * offset + encoded).ljust(128, around.encode()))
    text = b"".join(pieces)
    for isa in ISAS:
        check(kind, isa, text, simple_ends(kind, text))


@thorough
@every
def test_every_short_string_at_the_end(kind: str) -> None:
    rng = random.Random(7)
    for string in strings("' \n1s.\u3000", 3):
        for before in (62, 63, 64, 65, 126, 127, 128):
            for around in (b"x", b" ", b"\n"):
                text = around * (before - len(string)) + string.encode()
                for isa in ISAS:
                    check(kind, isa, text, simple_ends(kind, text), rng.choice(FILLERS))


@every
def test_contractions_are_not_completed_by_what_is_behind_the_text(kind: str) -> None:
    for string, size, filler in itertools.product([b"'", b"'l", b"'v", b"'r"], range(62, 68), b"slerd"):
        for around in (b"x", b" ", b"."):
            text = around * (size - len(string)) + string
            for isa in ISAS:
                check(kind, isa, text, simple_ends(kind, text), filler)


@every
def test_random_strings(kind: str) -> None:
    rng = random.Random(8)
    for i in range(3000):
        text = nasty(rng, 60, 400)
        wanted = regex_ends(kind, text) if i % 3 == 0 else simple_ends(kind, text.encode())
        for isa in ISAS:
            check(kind, isa, text.encode(), wanted, rng.choice(FILLERS))


@every
def test_runs_over_many_blocks(kind: str) -> None:
    """Newlines, spaces, digits and apostrophes as long as several blocks, ended by each other."""
    rng = random.Random(9)
    runs = ["\n", " ", "1", "'", "١", "\u3000", ".", "a", "\r\n", "\n "]
    text = "".join(rng.choice(runs) * rng.randint(1, 200) for _ in range(9000))
    wanted = regex_ends(kind, text)
    for isa in ISAS:
        check(kind, isa, text.encode(), wanted)


@every
def test_library_sources(kind: str) -> None:
    sources = sorted(Path(os.__file__).parent.glob("[a-m]*.py"))
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    wanted = regex_ends(kind, text)
    for isa in ISAS:
        check(kind, isa, text.encode(), wanted)


@every
def test_what_is_not_utf8_is_found_where_decode_finds_it(kind: str) -> None:
    rng = random.Random(10)
    turns = bytes.fromhex("80 8F 90 9F A0 BF C0 C1 C2 DF E0 ED EF F0 F4 F5 FF")
    for _ in range(3000):
        data = bytearray(nasty(rng, 60, 250).encode())
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at]
            case 2:
                data.insert(at, rng.randrange(0x80, 0x100))
            case 3:
                del data[at + 1 :]
            case 4:
                data[at:at] = bytes(rng.choices(turns, k=rng.randint(1, 4)))
        text = bytes(data)
        try:
            text.decode()
            wanted = simple_ends(kind, text)
        except UnicodeDecodeError as error:
            wanted = -1 - error.start
        for isa in ISAS:
            check(kind, isa, text, wanted, rng.choice(FILLERS))


@every
@each
def test_beginnings_of_characters_at_a_border(kind: str, isa: str) -> None:
    for character in ["é", "中", "가", "\u3000", "😀"]:
        encoded = character.encode()
        for kept, before in itertools.product(range(1, len(encoded)), [61, 62, 63, 64, 125, 126, 127]):
            for behind in (b"", b"a", b"a" * 70):
                text = b"a" * before + encoded[:kept] + behind
                check(kind, isa, text, -1 - before, 0x80)


# --- The choice ---


def run(program: str, isa: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CBPE_ISA": isa}
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["", *split.available_isas()])
def test_the_environment_names_an_instruction_set(name: str) -> None:
    program = """if True:
        from cbpe import GPT4_SPLIT_PATTERN
        from cbpe.splitting.split import splitter_for
        print(splitter_for(GPT4_SPLIT_PATTERN).split("a b" * 40)[-1])
    """
    done = run(program, name)
    assert done.stdout == "b' b'\n", done.stderr


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'sse9'.*portable"):
        split._splitter_for_isa(GPT4_SPLIT_PATTERN, "sse9")
    with pytest.raises(ValueError, match="native"):
        split._splitter_for_isa(r"\w+", "portable")
    done = run("import cbpe.splitting", "sse9")
    assert done.returncode != 0
    assert "'sse9' is no instruction set of this machine" in done.stderr

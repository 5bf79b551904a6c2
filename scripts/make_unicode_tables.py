"""Writes cbpe/splitting/unicode_tables.h: which code points are letters, numbers and whitespace, and of what case.

In goes the installed regex package, because \\p{L}, \\p{N} and \\s are what *it* says they are: it follows its own
edition of Unicode, neither Python's unicodedata nor str.isspace (which counts U+001C..U+001F as spaces; regex does
not). Out comes a C header with two partitions of the characters: the classes that every pattern asks for, and the
cases that o200k's pattern asks for, by which a mark is no OTHER but goes with the letters. Each has two tables, one for
bytes below 0x80 and a two-stage one for every code point.

The two stages: code points are taken in blocks of 128; equal blocks are stored once, and the first table names the
block of each. A block is four 64-bit words, two bits to a code point, the lowest bits first. Everything behind the
last block is OTHER.

    python scripts/make_unicode_tables.py            writes the header
    python scripts/make_unicode_tables.py --check    says whether it is current; exit status 1 if it is not
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import sys
from pathlib import Path

import regex

HEADER = Path(__file__).resolve().parent.parent / "cbpe" / "splitting" / "unicode_tables.h"

OTHER, LETTER, NUMBER, SPACE, MULTI = range(5)
CLASSES = {LETTER: r"\p{L}+", NUMBER: r"\p{N}+", SPACE: r"\s+"}
UPPER, LOWER, EITHER = 1, 2, 3
CASES = {UPPER: r"[\p{Lu}\p{Lt}]+", LOWER: r"\p{Ll}+", EITHER: r"[\p{Lm}\p{Lo}\p{M}]+"}
BLOCK = 128         # code points in a block: of 32, 64, 128 and 256, what makes the tables smallest
WORD = 32           # code points in a 64-bit word


def regex_version() -> str:
    return importlib.metadata.version("regex")


def unicode_edition() -> str:
    """The edition of Unicode that regex follows. Only the package's description tells; "unknown" if it does not."""
    description = importlib.metadata.distribution("regex").read_text("METADATA") or ""
    found = re.search(r"supports Unicode (\d+\.\d+)", description)
    return found[1] if found else "unknown"


def character_classes(partition: dict[int, str] = CLASSES) -> bytes:
    """The class of each of the 0x110000 code points: element 0x61 is LETTER; with CASES it is LOWER."""
    everything = "".join(map(chr, range(0x110000)))
    classes = bytearray(0x110000)
    for name, pattern in partition.items():
        for run in regex.finditer(pattern, everything):
            if any(classes[run.start() : run.end()]):
                raise ValueError(f"{pattern} overlaps another class in U+{run.start():04X}..U+{run.end() - 1:04X}")
            classes[run.start() : run.end()] = bytes([name]) * (run.end() - run.start())
    return bytes(classes)


def two_stages(classes: bytes) -> tuple[list[int], list[bytes]]:
    """The number of each block, and the distinct blocks: b"aabbaa" in blocks of 2 -> [0, 1, 0], [b"aa", b"bb"]."""
    used = len(classes.rstrip(bytes([OTHER])))
    numbers: dict[bytes, int] = {}
    first = [numbers.setdefault(classes[i : i + BLOCK], len(numbers)) for i in range(0, used, BLOCK)]
    if len(numbers) > 256:
        raise ValueError(f"{len(numbers)} distinct blocks: their numbers no longer fit a byte")
    return first, list(numbers)


def packed(block: bytes) -> list[int]:
    """The words of a block, two bits to a code point: b"\\x01\\x02" + 126 zeros -> [0b1001, 0, 0, 0]."""
    return [sum(block[i + j] << (2 * j) for j in range(WORD)) for i in range(0, BLOCK, WORD)]


def rows(values: list[str], width: int = 114) -> str:
    """Values as lines of C, filled up to the width."""
    lines = [""]
    for value in values:
        if len(lines[-1]) + len(value) + 1 > width:
            lines.append("")
        lines[-1] += value + ","
    return "\n".join("    " + line for line in lines)


def tables(classes: bytes, name: str, function: str) -> str:
    """The tables of a partition, and the function that looks a code point up in them, as C."""
    first, blocks = two_stages(classes)
    byte_classes = [str(c) for c in classes[:128]] + [str(MULTI)] * 128
    words = [f"0x{word:X}" for block in blocks for word in packed(block)]
    return f"""\
/* The {name} of a character of one byte. */
static const uint8_t byte_{name}[256] = {{
{rows(byte_classes)}
}};

/* The block of each {BLOCK} code points; those behind all blocks are OTHER. */
static const uint8_t {name}_block_of[{len(first)}] = {{
{rows([str(number) for number in first])}
}};

/* {len(blocks)} blocks of {BLOCK // WORD} words; a word: {WORD} code points, the lowest bits first. */
static const uint64_t {name}_block_words[{len(words)}] = {{
{rows(words)}
}};

static inline unsigned {function}(uint32_t code_point)
{{
    if (code_point >= 0x{len(first) * BLOCK:X})
        return OTHER;
    uint32_t word = {name}_block_of[code_point / {BLOCK}] * {BLOCK // WORD}u + code_point % {BLOCK} / {WORD};
    return {name}_block_words[word] >> (code_point % {WORD} * 2) & 3;
}}
"""


def header() -> str:
    return f"""\
/* Generated by scripts/make_unicode_tables.py: do not edit.
   The classes of characters as regex {regex_version()} sees them, which follows Unicode {unicode_edition()}. */

#ifndef CBPE_UNICODE_TABLES_H
#define CBPE_UNICODE_TABLES_H

#include <stdint.h>

#define TABLES_REGEX_VERSION "{regex_version()}"
#define TABLES_UNICODE_EDITION "{unicode_edition()}"

enum char_class {{
    OTHER = {OTHER},      /* [^\\s\\p{{L}}\\p{{N}}], and what is not assigned */
    LETTER = {LETTER},     /* \\p{{L}} */
    NUMBER = {NUMBER},     /* \\p{{N}} */
    SPACE = {SPACE},      /* \\s */
    MULTI = {MULTI}       /* in byte_class and byte_case only: a byte of a character of several bytes, or of none */
}};

enum char_case {{       /* OTHER also here: what is neither letter nor mark */
    UPPER = {UPPER},      /* [\\p{{Lu}}\\p{{Lt}}] */
    LOWER = {LOWER},      /* \\p{{Ll}} */
    EITHER = {EITHER}      /* [\\p{{Lm}}\\p{{Lo}}\\p{{M}}] */
}};

{tables(character_classes(CLASSES), "class", "class_of")}
{tables(character_classes(CASES), "case", "case_of")}
#endif
"""


def without_version(text: str) -> str:
    """The header without what changes when a new regex brings the same tables."""
    return re.sub(r"as regex \S+ sees|(?<=REGEX_VERSION )\S+", "", text)


def main() -> int:
    parser = argparse.ArgumentParser(description="write cbpe/splitting/unicode_tables.h from the installed regex")
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the header is current")
    arguments = parser.parse_args()
    fresh = header()
    if not arguments.check:
        HEADER.write_text(fresh, encoding="utf-8", newline="\n")
        print(f"{HEADER}: regex {regex_version()}, Unicode {unicode_edition()}, {len(fresh):,} bytes")
        return 0
    if not HEADER.exists() or without_version(HEADER.read_text(encoding="utf-8")) != without_version(fresh):
        print(f"{HEADER} is not what regex {regex_version()}, Unicode {unicode_edition()}, gives")
        return 1
    print(f"{HEADER} is current with regex {regex_version()}, Unicode {unicode_edition()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

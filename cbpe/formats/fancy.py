r"""Split patterns between two engines: regex, by which cbpe splits, and fancy-regex (Rust), by which tiktoken does.

In: a pattern of the one. Out: one that the other reads in the same way, as far as that can be said. The two agree on
nearly all that split patterns are made of, possessive quantifiers included. They do not on these:

    regex                                               fancy-regex                     in its words
    $ also before a "\n" that ends the text             $ at the end only               (?=\n?\z)
    \Z at the end only                                  also before such a "\n"         \z
    [[], [a&&b], [a~~b], [+--]: characters              sets within sets                [\[], [a\&\&b] ...
    [[:alpha:]] of all scripts                          of ASCII                        [\p{Alphabetic}]
    \h horizontal whitespace                            hexadecimal digits              [\t\p{Zs}]
    \< and \> are < and >                               begin and end of a word         < and >
    \N{HYPHEN}                                          nothing that is known           \u2010
    (?i)i matches U+0130 too, and I U+0131 not          i and I only                    (?-i:[iI\u0130])
    flags given to regex.compile                        -                               (?i)

Whether the result is read alike is for check_export to find out: it is compared, not believed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import regex

from cbpe.errors import ExportError
from cbpe.patterns import NAMED_PATTERNS

_CLASSES = {        # [:digit:] is of ASCII in both
    "alpha": r"\p{Alphabetic}",
    "alnum": r"\p{Alphabetic}0-9",
    "lower": r"\p{Lowercase}",
    "upper": r"\p{Uppercase}",
    "space": r"\p{White_Space}",
    "word": r"\w",
}
_DOTLESS = "iI\u0130\u0131"        # what folding cases does to them, differs
_TOKEN = regex.compile(
    r"""(?xs)
      \\N\{(?<named>[^}]*)\} | \\ (?: [pP](?:\{[^}]*\}|.) | x\{[^}]*\} | x.. | u.... | U........ | . )
    | \(\?\# [^)]* \)
    | \(\? (?<flags> [a-zA-Z0-9]* (?: -[a-zA-Z]+ )? ) (?<ends> [:)] )
    | \( (?: \? (?: <?[=!] | [>|(] | P?<[^=!>][^>]*> | P=[^)]*\) | P>[^)]*\) | &[^)]*\) | R\) | \d+\) ) )?
    | \[ \^? \]? (?: \[:\^?\w+:\] | \\[pP]\{[^}]*\} | \\. | [^\]\\] )* \]
    | .
    """
)
_IN_CLASS = regex.compile(
    r"""(?xs) \[:(?<negated>\^?)(?<name>\w+):\] | \\N\{(?<named>[^}]*)\} | \\(?: [pP]\{[^}]*\} | x\{[^}]*\} | . ) | ."""
)


def to_fancy(compiled: regex.Pattern[str] | re.Pattern[str]) -> str:
    """The pattern for fancy-regex. Raises ExportError for a flag that it does not have."""
    package: Any = regex if isinstance(compiled, regex.Pattern) else re
    by_default = package.compile(compiled.pattern).flags
    flags = "".join(
        name for name, flag in zip("imsx", (package.I, package.M, package.S, package.X), strict=True)
        if compiled.flags & ~by_default & flag
    )  # fmt: skip
    known = package.I | package.M | package.S | package.X | package.U | getattr(package, "V0", 0)
    if compiled.flags & ~known:
        raise ExportError(
            f"tiktoken's engine has no such flag as the pattern has: {package.RegexFlag(compiled.flags & ~known)!r}"
        )
    body = "".join(_parts(compiled.pattern, set(flags)))
    return f"(?{flags}){body}" if flags else body


def _parts(pattern: str, flags: set[str]) -> Iterator[str]:
    """The rewritten pattern, piece by piece. flags: which of i, m, s, x hold at its beginning."""
    outer: list[set[str]] = []          # the flags around each group that is open
    in_comment = False
    for match in _TOKEN.finditer(pattern):
        token = match.group()
        if in_comment:
            in_comment = token != "\n"
            yield token
        elif match["ends"] is not None:
            on, _, off = match["flags"].partition("-")
            inner = (flags | set(on)) - set(off)
            on = "".join(flag for flag in on if flag not in "uV0")
            if match["ends"] == ":":
                outer.append(flags)
            flags = inner
            if match["ends"] == ":" or on or off:
                yield f"(?{on}{'-' + off if off else ''}{match['ends']}"
        elif token.startswith("(?#"):
            continue
        elif token.startswith("("):
            if not token.endswith(")"):
                outer.append(flags)
            yield token
        elif token == ")":
            flags = outer.pop() if outer else flags
            yield token
        elif token.startswith("[") and len(token) > 1:
            yield _folded(token, _class(token), flags)
        elif "x" in flags and token == "#":
            in_comment = True
            yield token
        else:
            yield _folded(token, _plain(token, match["named"], flags), flags)


def _plain(token: str, named: str | None, flags: set[str]) -> str:
    if named is not None:
        return _character(named)
    if token == "$" and "m" not in flags:
        return r"(?=\n?\z)"
    return {r"\Z": r"\z", r"\h": r"[\t\p{Zs}]", r"\<": "<", r"\>": ">"}.get(token, token)


def _class(token: str) -> str:
    r"""A set of characters, with what would be read as something else behind a backslash: [[&&] -> [\[\&\&]."""
    head = "[^" if token.startswith("[^") else "["
    parts = [head]
    for match in _IN_CLASS.finditer(token, len(head), len(token) - 1):
        part = match.group()
        if match["name"] in _CLASSES:
            inner = _CLASSES[match["name"]]
            part = f"[^{inner}]" if match["negated"] else inner
        elif match["named"] is not None:
            part = _character(match["named"])
        elif part == r"\h":
            part = r"\t\p{Zs}"
        elif part in "[]&~" or (part == "-" and parts[-1][-1] == "-"):
            part = "\\" + part
        parts.append(part)
    return "".join(parts) + "]"


def _character(name: str) -> str:
    """"HYPHEN" -> "\\u2010", which both engines read."""
    number = ord(unicodedata.lookup(name))
    return rf"\u{number:04X}" if number < 1 << 16 else rf"\U{number:08X}"


def _folded(token: str, there: str, flags: set[str]) -> str:
    """What matches one character and ignores cases, with what regex makes of i, I and the two Turkish letters."""
    if "i" not in flags or not (token in _DOTLESS or token.startswith("[")):
        return there
    exactly = regex.findall(token, _DOTLESS)
    alike = {*exactly, *("iI" if {"i", "I"} & {*exactly} else "")}
    matched = regex.findall(f"(?i:{token})", _DOTLESS)
    if {*matched} == alike:
        return there
    letters = "".join(matched)
    if token in _DOTLESS:
        return f"(?-i:[{letters}])"
    return f"(?:(?-i:[{letters}])|(?!(?-i:[{_DOTLESS}])){there})"


# ---- from fancy-regex to regex

_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z-]*[:)]|.", re.DOTALL)
_NESTED = re.compile(r"(?<!\\)(?:\\\\)*\[|&&|--|~~|\\h")
_REWRITTEN = {"$": r"\Z", r"\z": r"\Z", r"\Z": r"(?=\n*\Z)", r"\h": "[0-9A-Fa-f]"}


def from_fancy(pattern: str) -> str:
    r"""A pattern of tiktoken's engine, fancy-regex, in the words of regex: r"\s++$" -> r"\s++\Z".

    $ and \z are the end of the text there, \Z also before line ends behind which nothing comes, and \h is a hexadecimal
    digit. Raises ValueError for what is read in another way and cannot be put so simply: sets within sets, flags but i
    and s.
    """
    if pattern in NAMED_PATTERNS.values():
        return pattern          # chosen so that both engines read them alike
    parts = []
    for match in _PART.finditer(pattern):
        part = match[0]
        flags = part.startswith("(?") and set(part) - set("(?:-)is")
        if flags or (part[0] == "[" and _NESTED.search(part, 1)) or part in (r"\<", r"\>", r"\b", r"\B", r"\G", r"\K"):
            raise ValueError(
                f"the pattern has {part!r}, which tiktoken's engine reads in another way than the regex package: pass "
                f"pattern=, in regex's words: {pattern!r}"
            )
        parts.append(_REWRITTEN.get(part, part))
    return "".join(parts)

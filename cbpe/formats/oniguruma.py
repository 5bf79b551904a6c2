r"""Patterns from one engine to another: regex, by which cbpe splits, and Oniguruma, by which tokenizers does.

In: a pattern of the one. Out: a pattern that says the same to the other. Most is written alike. What is not:

    regex                   Oniguruma
    a{1,3}+                 (?>a{1,3})      where {1,3}+ is no possessive quantifier but {1,3} repeated
    ^ $ \Z                  \A (?=\n?\z) \z where ^ and $ are those of a line
    (?s:.)                  (?m:.)
    [[a]                    [\[a]           where brackets within brackets are a class
    \w                      a class of its own, which six characters are in and two are not
    \pL \xe9 (?P<a>b)       \p{L} \x{e9} (?<a>b)

What this module knows to have no counterpart is a ValueError. There are finer differences, which whoever compares what
the two engines make of texts will find.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import regex

_TOKENS = r"""
    (?P<line> \(\?m:[$^]\) )
    | (?P<class> {a_class} )
    | (?P<comment> \(\?\# [^)]* \) )
    | (?P<flags> \(\? [a-zA-Z0-9]* (?: - [a-zA-Z]+ )? [:)] )
    | (?P<open> \( (?: \?P? <[A-Za-z_]\w*> | \? (?: <[=!] | [:=!>|] ) )? )
    | (?P<close> \) )
    | (?P<quantifier> (?: [*+?] | \{{ (?: \d+ (?: , \d* )? | , \d+ ) \}} ) [+?]? )
    | (?P<escape> {an_escape} )
    | (?P<other> . )
"""
_ESCAPE = r"""
    \\ (?: [pP] (?: \{ [^}]* \} | \w ) | x \{ [^}]* \} | x [\da-fA-F]{2} | u [\da-fA-F]{4} | U [\da-fA-F]{8} | . )
"""
_FLAT_CLASS = r"\[ \^? \]? (?: \[ : \^? \w+ : \] | \\. | [^\]\\] )* \]"
_NESTED_CLASS = r"\[ \^? (?: \[ : \^? \w+ : \] | \\. | (?&class) | [^\[\]\\] )+ \]"

# what \w is, without brackets: in Oniguruma alone, there within brackets, and in regex
_THEIR_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}²³¹¼½¾"
_THEIR_WORD_IN_CLASS = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}"
_OUR_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}"


def _compiled(pattern: str) -> Any:
    return regex.compile(pattern, regex.VERBOSE | regex.DOTALL)


class _Rules(NamedTuple):
    """How one engine's pattern becomes the other's."""

    tokens: Any
    possessive: str                         # with {0} for an atom, {1} for its braces
    flags: Callable[[str], str]
    anchors: dict[str, str]
    escape: Callable[[str, bool], str]      # of an escape that is no anchor, and whether it stands in a class
    a_class: Callable[[str], str]


def _rewritten(pattern: str, rules: _Rules) -> str:
    out: list[str] = []
    opened: list[int] = []
    atom = 0            # where in out the last atom begins, which a quantifier is of
    for match in rules.tokens.finditer(pattern):
        kind, text = match.lastgroup, match.group()
        if kind == "comment":
            continue
        if kind == "quantifier":
            if text[0] == "{" and text[-1] == "+":
                out[atom:] = [rules.possessive.format("".join(out[atom:]), text[:-1])]
            else:
                out.append(text)
            continue
        atom = opened.pop() if kind == "close" and opened else len(out)
        if kind == "open" or (kind == "flags" and text[-1] == ":"):
            opened.append(len(out))
        if kind == "flags":
            text = rules.flags(text)
        elif kind == "open":
            text = text.replace("(?P<", "(?<")
        elif text in rules.anchors:
            text = rules.anchors[text]
        elif kind == "escape":
            text = rules.escape(text, False)
        elif kind == "class":
            text = rules.a_class(text)
        out.append(text)
    return "".join(out)


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what} has no counterpart in the other engine's regular expressions")


def _flags(dot_all: str, dot_all_there: str, text: str) -> str:
    """Flags of a group, of which one has another letter there: "s", "m", "(?is:" -> "(?im:". Raises ValueError."""
    if not set(text.strip("(?:)")) <= {"i", "-", dot_all}:
        _refuse(text)
    return text.replace(dot_all, dot_all_there)


def _of_words(text: str, in_class: bool, word: str, word_in_class: str) -> str | None:
    r"""What stands for \w, \W or \b, by the characters of words as the engine that is left has them; None for others.

    "\W", False, "ab", "ab" -> "[^ab]"
    """
    if text == r"\w":
        return word_in_class if in_class else f"[{word}]"
    if text == r"\W" and not in_class:
        return f"[^{word}]"
    if text == r"\b" and not in_class:
        return f"(?:(?<=[{word}])(?![{word}])|(?<![{word}])(?=[{word}]))"
    return None


# ---- from regex to Oniguruma


def to_oniguruma(pattern: str, flags: int = 0) -> str:
    r"""A pattern of regex's for Oniguruma: "\p{N}{1,3}+|$" -> "(?>\p{N}{1,3})|(?=\n?\z)".

    flags: of a compiled pattern. Raises ValueError.
    """
    unknown = regex.RegexFlag(flags & ~(regex.IGNORECASE | regex.DOTALL | regex.UNICODE | regex.VERSION0))
    if unknown:
        _refuse(f"the flag {unknown!r}")
    text = _rewritten(pattern, _TO_ONIGURUMA)
    letters = "i" * bool(flags & regex.IGNORECASE) + "m" * bool(flags & regex.DOTALL)
    return f"(?{letters}:{text})" if letters else text


def _escape_there(text: str, in_class: bool) -> str:
    if text[1] in "xuU" and len(text) > 2 and text[2] != "{":
        return rf"\x{{{text[2:]}}}"
    if text[1] in "pP" and text[2] != "{":
        return rf"\{text[1]}{{{text[2]}}}"
    of_words = _of_words(text, in_class, _OUR_WORD, _OUR_WORD)
    if of_words:
        return of_words
    if text in (r"\W", r"\N", r"\m", r"\M", r"\L", r"\B"):
        _refuse(text + (" within brackets" if in_class else ""))
    return text


def _class_there(text: str) -> str:
    begin = 2 if text[1] == "^" else 1
    parts = [text[:begin]]
    for match in _IN_CLASS.finditer(text, begin, len(text) - 1):
        part = match.group()
        if match.lastgroup == "escape":
            part = _escape_there(part, True)
        elif part in ("[", "]", "&&"):
            part = "\\" + part
        parts.append(part)
    return "".join(parts) + "]"


_IN_CLASS = _compiled(rf"(?P<escape> {_ESCAPE} ) | \[ : \^? \w+ : \] | && | .")
_TO_ONIGURUMA = _Rules(
    tokens=_compiled(_TOKENS.format(a_class=_FLAT_CLASS, an_escape=_ESCAPE)),
    possessive="(?>{0}{1})",
    flags=partial(_flags, "s", "m"),
    anchors={"^": r"\A", "$": r"(?=\n?\z)", r"\Z": r"\z", "(?m:^)": "^", "(?m:$)": "$"},
    escape=_escape_there,
    a_class=_class_there,
)


# ---- from Oniguruma to regex


def from_oniguruma(pattern: str) -> str:
    r"""A pattern of Oniguruma's for regex: "\p{N}{1,3}+|$" -> "(?:\p{N}{1,3})+|(?m:$)". Raises ValueError."""
    return _rewritten(pattern, _FROM_ONIGURUMA)


def _escape_here(text: str, in_class: bool) -> str:
    if text.startswith(r"\x{"):
        return regex.escape(chr(int(text[3:-1], 16)))
    of_words = _of_words(text, in_class, _THEIR_WORD, _THEIR_WORD_IN_CLASS)
    if of_words:
        return of_words
    if text in (r"\h", r"\H", r"\W", r"\b", r"\B", r"\R", r"\X", r"\y", r"\Y", r"\N", r"\O", r"\g"):
        _refuse(text + (" within brackets" if in_class else ""))
    return text


def _class_here(text: str) -> str:
    """A class without classes in it: "[^a[b-c]]" -> "[^ab-c]"."""
    begin = 2 if text[1] == "^" else 1
    parts = [text[:begin]]
    for match in _IN_NESTED_CLASS.finditer(text, begin, len(text) - 1):
        part = match.group()
        if match.lastgroup == "escape":
            part = _escape_here(part, True)
        elif match.lastgroup == "class":
            if part[1] == "^":
                _refuse(f"{part} within brackets")
            part = _class_here(part)[1:-1]
        elif part == "&&":
            _refuse(f"&& in {text}")
        parts.append(part)
    return "".join(parts) + "]"


_IN_NESTED_CLASS = _compiled(
    rf"(?P<escape> {_ESCAPE} ) | \[ : \^? \w+ : \] | (?P<class> {_NESTED_CLASS} ) | && | ."
)
_FROM_ONIGURUMA = _Rules(
    tokens=_compiled(_TOKENS.format(a_class=_NESTED_CLASS, an_escape=_ESCAPE)),
    possessive="(?:{0}{1})+",
    flags=partial(_flags, "m", "s"),
    anchors={"^": "(?m:^)", "$": "(?m:$)", r"\Z": r"(?=\n?\Z)", r"\z": r"\Z"},
    escape=_escape_here,
    a_class=_class_here,
)

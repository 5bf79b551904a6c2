"""Special tokens: which sets of them can be registered, and where a text holds them.

In: a text and what the caller allows. Out: the text's stretches, and the special tokens between them as ids. Special
tokens are found by one alternation in the order in which they were registered, so of two that could begin at one place
the earlier one wins: with "<a>" before "<a>b", the latter is never found.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Set
from functools import lru_cache

from cbpe.errors import DisallowedSpecialTokenError, SpecialTokenError

MAX_ID = 2**32 - 2      # ids are 32 bits wide, and the last of them stands for none


def check_word(word: object) -> str:
    """A special token's text, or SpecialTokenError if it is not a str, empty, or has no UTF-8."""
    if not isinstance(word, str):
        raise SpecialTokenError(f"a special token must be a str, not {word!r}")
    if not word:
        raise SpecialTokenError("a special token must not be empty: it would be found everywhere")
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise SpecialTokenError(f"special token {word!r} cannot be written in UTF-8: {error.reason}") from None
    return word


def check_special_tokens(
    special_tokens: object, is_taken: Callable[[int], bool], shared: Set[int] = frozenset()
) -> dict[str, int]:
    """A plain copy of special tokens and their ids, or SpecialTokenError naming the first that cannot be registered.

    is_taken: says of an id whether a byte or a merge has it. shared: ids that several special tokens may have.
    """
    if not isinstance(special_tokens, Mapping):
        raise TypeError(f"special tokens must be a dict from str to id, not {type(special_tokens).__name__}")
    checked: dict[str, int] = {}
    owners: dict[int, str] = {}
    for word, number in special_tokens.items():
        word = check_word(word)
        try:
            if isinstance(number, bool):
                raise TypeError
            number = operator.index(number)
        except TypeError:
            raise SpecialTokenError(f"the id of special token {word!r} must be an int, not {number!r}") from None
        if not 0 <= number <= MAX_ID:
            raise SpecialTokenError(f"the id of special token {word!r} must lie in 0..{MAX_ID}: {number}")
        if is_taken(number):
            kind = "a byte" if number < 256 else "a merge"
            raise SpecialTokenError(f"the id of special token {word!r} is not free: {number} is the id of {kind}")
        if number in owners and number not in shared:
            raise SpecialTokenError(f"special tokens {owners[number]!r} and {word!r} have the same id, {number}")
        owners[number] = word
        checked[word] = number
    return checked


@lru_cache(maxsize=128)
def finder(words: tuple[str, ...]) -> re.Pattern[str]:
    """What finds any of the words, the earlier first: ("a.", "a") finds "a." and "a" in "a.ba"."""
    return re.compile("|".join(map(re.escape, words)))


def allowed_words(special_tokens: Mapping[str, int], allowed_special: str | Set[str], text: str) -> tuple[str, ...]:
    """The special tokens that are to be looked for in the text, in the order of their registration.

    Raises DisallowedSpecialTokenError if allowed_special is "none_raise" and the text holds one, ValueError if it is
    neither "all", "none", "none_raise" nor a set.
    """
    if isinstance(allowed_special, str) and allowed_special in ("all", "none", "none_raise"):
        if allowed_special == "all":
            return tuple(special_tokens)
        if allowed_special == "none_raise":
            # one search for all: 0.8 ms in a megabyte, where five searches for one each take 10 ms
            found = finder(tuple(special_tokens)).search(text) if special_tokens else None
            if found:
                raise DisallowedSpecialTokenError(
                    f"the text holds the special token {found.group()!r}; to encode it as such pass "
                    "allowed_special='all' or a set with it, to encode it as ordinary text pass allowed_special='none'"
                )
        return ()
    if isinstance(allowed_special, Set):
        return tuple(word for word in special_tokens if word in allowed_special)
    raise ValueError(
        f"allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens: {allowed_special!r}"
    )


def cut(text: str, special_tokens: Mapping[str, int], words: Iterable[str]) -> list[str | int]:
    """The text cut at the words: "a<e>b", {"<e>": 300}, ["<e>"] -> ["a", 300, "b"]. No stretch is empty."""
    parts: list[str | int] = []
    start = 0
    for match in finder(tuple(words)).finditer(text):
        if match.start() > start:
            parts.append(text[start : match.start()])
        parts.append(special_tokens[match.group()])
        start = match.end()
    if start < len(text):
        parts.append(text[start:])
    return parts

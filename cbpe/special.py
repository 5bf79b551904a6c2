"""Special tokens: which sets of them can be registered, and where a text holds them.

In: a text and what the caller allows. Out: the text's stretches, and the special tokens between them as ids. Of two
special tokens that could begin at one place, the one that was registered first wins: with "<a>" before "<a>b", the
latter is never found.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Set
from functools import lru_cache

from cbpe.encoding.finder import SpecialFinder
from cbpe.errors import DisallowedSpecialTokenError, SpecialTokenError

MAX_ID = 2**32 - 2      # ids are 32 bits wide, and the last of them stands for none
MAX_BYTES = 2**32 - 2   # of all tokens together: forty merges that double a token each would ask for a terabyte


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
            raise SpecialTokenError(f"the id of special token {word!r} is not free: a byte or a merge has {number}")
        if number in owners and number not in shared:
            raise SpecialTokenError(f"special tokens {owners[number]!r} and {word!r} have the same id, {number}")
        owners[number] = word
        checked[word] = number
    return checked


def words_of(special_tokens: object, is_taken: Callable[[int], bool]) -> list[str]:
    """The texts of special tokens that training leaves out, given as a dict from str to id or as a list; None: none.

    is_taken: as in check_special_tokens. Raises SpecialTokenError for one that cannot be registered or is listed twice.
    """
    if special_tokens is None:
        return []
    if isinstance(special_tokens, Mapping):
        return list(check_special_tokens(special_tokens, is_taken))
    if isinstance(special_tokens, (str, bytes)) or not isinstance(special_tokens, Iterable):
        raise TypeError(f"special_tokens must be a list of str or a dict, not a single {type(special_tokens).__name__}")
    words: dict[str, None] = {}
    for word in map(check_word, special_tokens):
        if word in words:
            raise SpecialTokenError(f"a special token is listed twice: {word!r}")
        words[word] = None
    return list(words)


@lru_cache(maxsize=128)
def finder(words: tuple[tuple[str, int], ...]) -> SpecialFinder:
    """What finds any of the special tokens, the earlier first: (("a.", 300), ("a", 301)) in "a.ba"."""
    return SpecialFinder({word.encode(): number for word, number in words})


class Cutter:
    """Takes texts apart at the special tokens that a caller allows.

    everything: what finds all special tokens; None if there are none. allowed_special: as encode takes it. Raises
    ValueError if that is neither "all", "none", "none_raise" nor a set.
    """

    def __init__(
        self, special_tokens: Mapping[str, int], everything: SpecialFinder | None, allowed_special: str | Set[str]
    ) -> None:
        self._allowed = self._refused = None
        if isinstance(allowed_special, Set):
            allowed = tuple(item for item in special_tokens.items() if item[0] in allowed_special)
            self._allowed = finder(allowed) if allowed else None
        elif allowed_special == "all":
            self._allowed = everything
        elif allowed_special == "none_raise":
            self._refused = everything
        elif allowed_special != "none":
            raise ValueError(
                f"allowed_special must be 'all', 'none', 'none_raise' or a set of special tokens: {allowed_special!r}"
            )

    def leaves_whole(self, texts: list[str]) -> bool:
        """Whether parts would return every text as it is. Raises UnicodeEncodeError for lone surrogates."""
        finder = self._allowed or self._refused
        return finder is None or not finder.is_in_any(texts)

    def parts(self, text: str) -> list[str | bytes | int]:
        """A text cut at its special tokens, which come as their ids: "a<e>b" -> [b"a", 300, b"b"].

        No stretch is empty, but a text without special tokens is one stretch, the str itself. Raises
        DisallowedSpecialTokenError if special tokens are refused and the text holds one.
        """
        if self._allowed is not None:
            return self._allowed.cut(text)
        found = self._refused.first(text) if self._refused is not None else None
        if found is not None:
            raise disallowed(found.decode())
        return [text]


def disallowed(word: str) -> DisallowedSpecialTokenError:
    """The error for a text that holds a special token where none is allowed."""
    return DisallowedSpecialTokenError(
        f"the text holds the special token {word!r}; to encode it as such pass "
        "allowed_special='all' or a set with it, to encode it as ordinary text pass allowed_special='none'"
    )

"""The alphabet in which GPT-2's files, and Hugging Face's after them, write bytes: a visible character for each.

A byte that is a visible character in Latin-1 is that character; the 68 others are U+0100, U+0101, ... in their order:
b" the\\n" is "\\u0120the\\u010a".
"""

from __future__ import annotations

from collections.abc import Iterable

_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]

# by byte: its character
ALPHABET = "".join(chr(byte if byte in _VISIBLE else 0x100 + _HIDDEN.index(byte)) for byte in range(256))
_TO_LATIN = {ord(character): byte for byte, character in enumerate(ALPHABET)}
_FROM_LATIN = dict(enumerate(ALPHABET))
_LETTERS = frozenset(ALPHABET)


def text_of(token: bytes) -> str:
    """b" a" -> "\\u0120a"."""
    return token.decode("latin-1").translate(_FROM_LATIN)


def is_written(text: Iterable[str]) -> bool:
    """Whether a text is of this alphabet alone."""
    return _LETTERS.issuperset(text)


def bytes_of(text: str) -> bytes:
    """"\\u0120a" -> b" a"; a text with other characters is taken as it is, in UTF-8, as Hugging Face's decoder does."""
    return text.translate(_TO_LATIN).encode("latin-1") if is_written(text) else text.encode()

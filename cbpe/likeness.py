"""What programs written for tiktoken ask its encodings, by its names.

In: a tokenizer. Out: sizes, ids and bytes of single tokens, as a tiktoken.Encoding answers. What the two call alike and
do differently (the arguments of encode), keeps minbpe's meaning.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cbpe.errors import UnknownIdError
from cbpe.model import Model

if TYPE_CHECKING:
    from typing import SupportsIndex


class TiktokenNames:
    """The names of tiktoken.Encoding, for a tokenizer that has a Model."""

    _model: Model

    @property
    def max_token_value(self) -> int:
        """The highest id, special tokens included."""
        return self._model.max_id

    @property
    def n_vocab(self) -> int:
        """The highest id plus one: the size of an embedding for all ids, those included that stand for nothing."""
        return self._model.max_id + 1

    @property
    def special_tokens_set(self) -> set[str]:
        """The special tokens."""
        return set(self._model.specials)

    @property
    def eot_token(self) -> int:
        """The id of "<|endoftext|>". Raises KeyError if there is no such special token."""
        return self._model.specials["<|endoftext|>"]

    def is_special_token(self, token: int) -> bool:
        """Whether an id is that of a special token."""
        return token in self._model.special_ids

    def encode_single_token(self, text_or_bytes: str | bytes) -> int:
        """The id of the token, special or not, that stands for just this text. Raises KeyError if there is none."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else bytes(text_or_bytes)
        return self._model.token_ids[token]

    def decode_single_token_bytes(self, token: SupportsIndex) -> bytes:
        """The bytes of an id. Raises UnknownIdError, which is a KeyError."""
        return _bytes_of(self._model, token)

    def decode_tokens_bytes(self, tokens: Iterable[SupportsIndex]) -> list[bytes]:
        """The bytes of each id, to show how a text was cut: [31373, 995] -> [b"hello", b" world"] by gpt2."""
        model = self._model
        return [_bytes_of(model, token) for token in tokens]

    def token_byte_values(self) -> list[bytes]:
        """The bytes of all tokens but the special ones, sorted."""
        return sorted(self._model.tokens(with_specials=False).values())


def _bytes_of(model: Model, token: SupportsIndex) -> bytes:
    number = operator.index(token)
    try:
        return model.token_bytes[number]
    except KeyError:
        raise UnknownIdError(f"no token has the id {number}") from None

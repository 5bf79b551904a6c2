"""GPT4Tokenizer: GPT-4's encoding, cl100k_base, as a RegexTokenizer that is trained already.

tiktoken publishes the encoding as ranks: a number for each token's bytes. From them recover_merges finds the pair that
each token was merged from. That takes seconds, so its result for cl100k_base comes with the package (cbpe/data).

One oddity is GPT-4's own: the ids of single bytes are permuted. In the merges a byte is its id, so the vocab attribute,
as in minbpe, holds permuted bytes: byte_shuffle maps a byte to its id and inverse_byte_shuffle back.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn

from cbpe.base import Attribute
from cbpe.files import atomic_write
from cbpe.formats.minbpe import vocab_text
from cbpe.model import Model, Pair
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.regex import RegexTokenizer

__all__ = ["GPT4_SPECIAL_TOKENS", "GPT4_SPLIT_PATTERN", "GPT4Tokenizer", "bpe", "recover_merges"]

GPT4_SPECIAL_TOKENS = {
    "<|endoftext|>": 100257,
    "<|fim_prefix|>": 100258,
    "<|fim_middle|>": 100259,
    "<|fim_suffix|>": 100260,
    "<|endofprompt|>": 100276,
}


def bpe(mergeable_ranks: Mapping[bytes, int], token: bytes, max_rank: int | None = None) -> list[bytes]:
    """The parts of a token after all merges whose rank is below max_rank, the lowest first, the leftmost among equals.

    {b"ab": 256, b"abc": 257}, b"abc", 257 -> [b"ab", b"c"]. Time grows as n log n with the token's length, copies
    aside.
    """
    n = len(token)
    end = list(range(1, n + 1))         # the part that starts at i ends at end[i]
    start = list(range(-1, n))          # the part that ends at i starts at start[i]
    heap: list[tuple[int, int, int, int]] = []

    def offer(left: int, middle: int, right: int) -> None:
        rank = mergeable_ranks.get(token[left:right])
        if rank is not None and (max_rank is None or rank < max_rank):
            heapq.heappush(heap, (rank, left, middle, right))

    for i in range(n - 1):
        offer(i, i + 1, i + 2)
    while heap:
        _, left, middle, right = heapq.heappop(heap)
        if end[left] != middle or start[middle] != left or end[middle] != right or start[right] != middle:
            continue                    # one of the two parts is not there any more
        end[left], start[right] = right, left
        end[middle] = start[middle] = -1
        if left > 0:
            offer(start[left], left, right)
        if right < n:
            offer(left, right, end[right])
    parts = []
    i = 0
    while i < n:
        parts.append(token[i : end[i]])
        i = end[i]
    return parts


def recover_merges(mergeable_ranks: Mapping[bytes, int]) -> dict[Pair, int]:
    """The pair of ranks that each token of two bytes or more was merged from, in the order of the ranks.

    {b"a": 0, b"b": 1, b"c": 2, b"ab": 3, b"abc": 4} -> {(0, 1): 3, (3, 2): 4}. Raises ValueError naming a token that no
    two tokens of lower rank make.
    """
    merges: dict[Pair, int] = {}
    for token, rank in sorted(mergeable_ranks.items(), key=lambda item: item[1]):
        if len(token) == 1:
            continue
        parts = bpe(mergeable_ranks, token, max_rank=rank)
        if len(parts) != 2 or not all(part in mergeable_ranks for part in parts):
            raise ValueError(f"token {token!r} of rank {rank} is not a merge of two tokens of lower rank: {parts}")
        merges[mergeable_ranks[parts[0]], mergeable_ranks[parts[1]]] = rank
    return merges


@lru_cache(maxsize=1)
def _cl100k() -> Model:
    """GPT-4's model. All tokenizers that are not changed share it, and with it what is made of it on first use."""
    from cbpe.data import cl100k

    pairs, byte_ids = cl100k.load()
    return Model(pairs=pairs, byte_ids=byte_ids, pattern=GPT4_SPLIT_PATTERN).registered(GPT4_SPECIAL_TOKENS)


class GPT4Tokenizer(RegexTokenizer):
    """The tokenizer of GPT-4 with the ids that tiktoken gives.

    GPT4Tokenizer().encode("hello world") -> [15339, 1917]

    Unlike the other classes it repairs surrogates, as tiktoken does: a pair becomes the character it stands for, a lone
    one U+FFFD. It is not trained, saved or loaded.
    """

    byte_shuffle = Attribute[dict[int, int]]("dict byte -> id: GPT-4's permutation of the bytes.")
    inverse_byte_shuffle = Attribute[dict[int, int]]("dict id -> byte: the inverse of byte_shuffle, which it follows.")

    def __init__(self) -> None:
        super().__init__()
        self._model = _cl100k()

    def save_vocab(self, vocab_file: str | os.PathLike[str]) -> None:
        """Writes the tokens and what they are merged from for people to read, as minbpe does. Raises OSError."""
        model = self._model
        text = vocab_text(model.tokens(with_specials=False), model.merges())
        with atomic_write(vocab_file) as file:
            file.write(text.encode())

    def _to_utf8(self, text: str) -> tuple[str, bytes]:
        try:
            return super()._to_utf8(text)
        except UnicodeEncodeError:
            repaired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return repaired, repaired.encode()

    def _train(self, vocab_size: int, count: Callable[..., Any], **kwargs: Any) -> NoReturn:
        raise NotImplementedError("GPT4Tokenizer is trained already; train a RegexTokenizer, whose pattern is the same")

    def save(self, file_prefix: str | os.PathLike[str]) -> NoReturn:
        """Not possible: a .model file cannot say how the bytes are permuted. save_vocab writes the tokens to read."""
        raise NotImplementedError(
            "GPT4Tokenizer cannot be saved: a .model file does not hold its permutation of the bytes, and "
            "GPT4Tokenizer() makes it anew at once; save_vocab(file) writes its tokens for people to read"
        )

    def load(self, model_file: str | os.PathLike[str]) -> NoReturn:
        """Not possible: GPT4Tokenizer() is complete as it is. A RegexTokenizer loads .model files."""
        raise NotImplementedError("GPT4Tokenizer() is complete as it is; load a .model file with RegexTokenizer")

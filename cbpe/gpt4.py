"""GPT4Tokenizer: GPT-4's encoding as minbpe has it, and minbpe's way to find merges behind published ranks.

The encoding is one of OpenAI's (openai.py), cl100k_base; minbpe's differs from it in the pattern. recover_merges finds
the pair that each token of an encoding was merged from; for OpenAI's encodings what it finds comes with the package
(cbpe/data).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from cbpe.formats.recover import recover
from cbpe.model import Model, Pair
from cbpe.openai import CL100K_SPECIAL_TOKENS, OpenAITokenizer, published_model
from cbpe.patterns import GPT4_SPLIT_PATTERN

__all__ = ["GPT4_SPECIAL_TOKENS", "GPT4_SPLIT_PATTERN", "GPT4Tokenizer", "bpe", "recover_merges"]

GPT4_SPECIAL_TOKENS = CL100K_SPECIAL_TOKENS


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
    tokens = sorted(mergeable_ranks, key=mergeable_ranks.__getitem__)
    longer = [token for token in tokens if len(token) > 1]
    by_inner_id = [bytes([value]) for value in range(256)] + longer
    merges: dict[Pair, int] = {}
    for token, pair in zip(longer, recover(tokens).tolist(), strict=True):
        left, right = (by_inner_id[part] for part in pair)
        if left not in mergeable_ranks or right not in mergeable_ranks:
            raise ValueError(f"token {token!r} is a merge of {left!r} and {right!r}, which are not both tokens")
        merges[mergeable_ranks[left], mergeable_ranks[right]] = mergeable_ranks[token]
    return merges


class GPT4Tokenizer(OpenAITokenizer):
    """The tokenizer of GPT-4 with minbpe's pattern: cl100k_base as tiktoken had it when minbpe was written.

    GPT4Tokenizer().encode("hello world") -> [15339, 1917]

    cbpe.get_encoding("cl100k_base") has tiktoken's present pattern. It leaves whitespace at the end of a text whole,
    where minbpe's parts it behind the last line end; the ids are the same, because behind its last line end no token
    goes on. Like all of OpenAI's encodings it repairs surrogates, and is not trained, saved or loaded.
    """

    def __init__(self) -> None:
        super().__init__("cl100k_base")
        self._model = _gpt4()


@lru_cache(maxsize=1)
def _gpt4() -> Model:
    """GPT-4's model. All tokenizers that are not changed share it, and with it what is made of it on first use."""
    return replace(published_model("cl100k_base"), pattern=GPT4_SPLIT_PATTERN)

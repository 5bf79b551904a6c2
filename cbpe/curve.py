"""What training tells about vocabulary sizes: how long the corpus is at each of them, and which may be worth having.

In: of every merge how often its pair occurred and how many tokens it removed, which training records in passing. Out:
the number of tokens of the corpus at every vocabulary size, exactly: what the first k merges leave of the corpus in
training is what a tokenizer with these merges encodes it to. So one training at the largest size answers for all
smaller ones.

The corpus is what was counted: the chunks of all its texts, without special tokens and without what the pattern drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Where people set vocabularies: powers of two, and round numbers near those of well-known models. Up to 65,536 ids fit
# into 16 bits.
USUAL_SIZES = (
    512, 1024, 2048, 4096, 8192, 16384, 32768, 50_000, 65_536, 100_000, 131_072, 200_000, 262_144,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Statistics:
    """What a corpus was to k merges, in their order. Arrays are read-only.

    counts: int64[k], how often each pair occurred when it was merged, overlaps included ("aaa" holds (a, a) twice).
    tokens: int64[k], how many tokens the corpus had after each merge. total_bytes: how many it had before the first.
    """

    counts: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    total_bytes: int

    def __post_init__(self) -> None:
        self.counts.flags.writeable = False
        self.tokens.flags.writeable = False

    @classmethod
    def of_training(
        cls, counts: npt.NDArray[np.int64], removed: npt.NDArray[np.int64], total_bytes: int
    ) -> Statistics:
        """From what training records. removed: int64[k], how many tokens fewer there were after each merge."""
        return cls(counts.copy(), total_bytes - np.cumsum(removed), total_bytes)

    def __len__(self) -> int:
        return len(self.counts)

    def truncated(self, k: int) -> Statistics:
        """Those of the first k merges alone."""
        return Statistics(self.counts[:k].copy(), self.tokens[:k].copy(), self.total_bytes)

    def curve(self) -> CompressionCurve:
        tokens = np.concatenate([np.array([self.total_bytes], np.int64), self.tokens])
        with np.errstate(invalid="ignore"):         # of an empty corpus
            bytes_per_token = self.total_bytes / tokens
        return CompressionCurve(np.arange(256, 257 + len(self), dtype=np.int64), tokens, bytes_per_token)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return Statistics, (self.counts, self.tokens, self.total_bytes)     # copies are read-only, too


@dataclass(frozen=True, eq=False)
class CompressionCurve:
    """The length of a corpus at every vocabulary size from 256, the bytes, up to what was trained: k + 1 sizes.

    vocab_sizes: int64[k + 1], 256, 257, ..., special tokens not counted. tokens: int64[k + 1], the ids that the whole
    corpus is encoded to with a vocabulary of that size. bytes_per_token: float64[k + 1], the corpus's bytes divided by
    them; NaN if the corpus is empty.
    """

    vocab_sizes: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    bytes_per_token: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        first, last = self.vocab_sizes[0], self.vocab_sizes[-1]
        return (
            f"<CompressionCurve: vocabulary {first:,} to {last:,}, {self.tokens[0]:,} to {self.tokens[-1]:,} tokens, "
            f"{self.bytes_per_token[-1]:.3f} bytes a token at last>"
        )


@dataclass(frozen=True)
class SizeAdvice:
    """What one vocabulary size gives and costs.

    vocab_size: special tokens not counted. tokens: of the whole corpus. bytes_per_token. fewer_tokens: than at the
    next smaller size that was looked at, the first one against bytes alone; a share: 0.05 is 5 %.
    tied_parameters: vocab_size * hidden_size, where one matrix is both embedding and output layer; untied_parameters:
    twice as many, where each has its own.
    """

    vocab_size: int
    tokens: int
    bytes_per_token: float
    fewer_tokens: float
    tied_parameters: int
    untied_parameters: int


def advice(statistics: Statistics, hidden_size: int) -> list[SizeAdvice]:
    """A row for each of USUAL_SIZES that was reached in training, and one for the size reached."""
    curve = statistics.curve()
    reached = int(curve.vocab_sizes[-1])
    rows = []
    before = int(curve.tokens[0])
    for size in [*(size for size in USUAL_SIZES if size < reached), reached]:
        tokens = int(curve.tokens[size - 256])
        rows.append(
            SizeAdvice(
                vocab_size=size,
                tokens=tokens,
                bytes_per_token=float(curve.bytes_per_token[size - 256]),
                fewer_tokens=1 - tokens / before if before else 0.0,
                tied_parameters=size * hidden_size,
                untied_parameters=2 * size * hidden_size,
            )
        )
        before = tokens
    return rows


def advice_table(rows: list[SizeAdvice], hidden_size: int) -> str:
    """The rows for people to read."""
    lines = [
        f"{'vocab size':>10}  {'tokens':>16}  {'bytes/token':>11}  {'fewer tokens':>12}  "
        f"{'tied params':>12}  {'untied params':>13}"
    ]
    lines += [
        f"{row.vocab_size:>10,}  {row.tokens:>16,}  {row.bytes_per_token:>11.3f}  {row.fewer_tokens:>12.2%}  "
        f"{_millions(row.tied_parameters):>12}  {_millions(row.untied_parameters):>13}"
        for row in rows
    ]
    lines += [
        "",
        "fewer tokens: than in the row above; in the first row, than bytes.",
        f"params: of the embedding at hidden size {hidden_size:,}; tied: the output layer shares it, untied: it has as",
        "many of its own. Special tokens and padding come on top.",
    ]
    return "\n".join(lines)


def _millions(n: int) -> str:
    """134217728 -> "134.2 M"."""
    tenths = round(n, -5) // 10**5          # of an int of any size, which a float may not hold
    return f"{tenths // 10:,}.{tenths % 10} M"

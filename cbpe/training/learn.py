"""From a chunk store to merges, with what people watch meanwhile, a bar or minbpe's lines, and with checkpoints.

A checkpoint is the merges so far, and all that a training which was interrupted needs to go on: the store and these
merges give the same chunks of tokens again, and so the same merges as if nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cbpe.files import StrPath
from cbpe.memory import parse_size
from cbpe.progress import progress_bar
from cbpe.threads import heeding_ctrl_c
from cbpe.training.merges import learn
from cbpe.training.store import ChunkStore
from cbpe.workspace import Workspace

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Known(NamedTuple):
    """What training begins with: merges uint32[m, 2], and the ids of the 256 bytes; None: each is its own."""

    pairs: NDArray[np.uint32] = np.empty((0, 2), np.uint32)
    byte_ids: bytes | None = None


class Learned(NamedTuple):
    """Merges, and what they did to the corpus; merge number i makes id 256 + i."""

    pairs: NDArray[np.uint32]       # [k, 2]
    counts: NDArray[np.int64]       # [k], how often each pair occurred when it was merged
    removed: NDArray[np.int64]      # [k], how many tokens fewer the corpus had afterwards


def learn_merges(
    store: ChunkStore,
    num_merges: int,
    *,
    min_frequency: int = 1,
    known: Known | None = None,
    verbose: bool = False,
    progress: bool | None = None,
    close_store: bool = False,
    checkpoint: Checkpoint | None = None,
    memory_limit: int | str | None = None,
    scratch_dir: StrPath | None = None,
    spellings: Sequence[bytes] | None = None,
) -> Learned:
    """The merges that minbpe would learn: pairs uint32[k, 2], counts int64[k], removed int64[k].

    k is less than num_merges where no pair is left that occurs min_frequency times. known: merges to begin with, which
    are the first of num_merges. verbose prints a line for every merge that is learned, as minbpe does. progress: None
    shows a bar on a terminal only. close_store lets go of the store as soon as it is not needed, which on large corpora
    spares memory. checkpoint: is given the merges so far now and then and at the end, also if that is an interruption.
    memory_limit: as in from_files of ChunkStore; where more is foreseen, all working arrays lie in mapped scratch files
    in scratch_dir. spellings: what each of the first 256 ids spells, if of equally frequent pairs not the first but the
    one that is spelled greatest is to be merged. Raises CorpusTooLargeError, MemoryError, OSError, KeyboardInterrupt.
    """
    known = Known() if known is None else known
    store.check_file()
    data = store.data if known.byte_ids is None else np.frombuffer(known.byte_ids, np.uint8)[store.data]
    limit = parse_size(memory_limit)
    workspace = Workspace(limit is not None and _foreseen(store) > limit, scratch_dir)
    steps = learn(
        store.counts, store.offsets, data, num_merges, min_frequency,
        known=known.pairs, workspace=workspace, spellings=spellings,
    )
    del data
    heeding_ctrl_c(next, steps)
    if close_store:
        store.close()
    batches = [(np.empty((0, 2), np.uint32), np.empty(0, np.int64), np.empty(0, np.int64))]
    lines = _Lines(known, num_merges) if verbose else None
    n_known = len(known.pairs)
    with progress_bar(progress, num_merges, "merging", unit="merge", unit_scale=False) as bar:
        try:
            for batch in steps:
                batches.append(batch)
                pairs, counts, _ = batch
                bar.update(len(pairs))
                if lines is not None:
                    lines.print(pairs, counts)
                if checkpoint is not None and checkpoint.is_due():
                    checkpoint.write([pairs for pairs, _, _ in batches], n_known)
        finally:
            if checkpoint is not None:
                checkpoint.write([pairs for pairs, _, _ in batches], n_known)
    return Learned(*map(np.concatenate, zip(*batches, strict=True)))


class Checkpoint:
    """Keeps the merges so far: save(pairs uint32[k, 2]) is called every so many seconds, and when it ends."""

    def __init__(self, save: Callable[[NDArray[np.uint32]], None], seconds: float) -> None:
        self._save = save
        self._seconds = seconds
        self._saved_at = time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() - self._saved_at >= self._seconds

    def write(self, batches: list[NDArray[np.uint32]], n_known: int) -> None:
        """Saves the merges of all batches, unless there are fewer than it began with: then nothing is gained."""
        pairs = np.concatenate(batches)
        if len(pairs) >= n_known:
            self._save(pairs)
        self._saved_at = time.monotonic()


class _Lines:
    """minbpe's lines, one for every merge that is new."""

    def __init__(self, known: Known, num_merges: int) -> None:
        self._n_known = len(known.pairs)
        self._num_merges = num_merges
        self._made = 0
        self._vocab = {number: bytes([byte]) for byte, number in enumerate(known.byte_ids or bytes(range(256)))}

    def print(self, pairs: NDArray[np.uint32], counts: NDArray[np.int64]) -> None:
        vocab = self._vocab
        for (left, right), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            idx = 256 + self._made
            vocab[idx] = vocab[left] + vocab[right]
            self._made += 1
            if self._made > self._n_known:
                print(
                    f"merge {self._made}/{self._num_merges}: {(left, right)} -> {idx} ({vocab[idx]!r}) had {count} "
                    "occurrences"
                )


def _foreseen(store: ChunkStore) -> int:
    """Bytes of memory that training on a store takes at most, the store not counted: a cell is 4, and occurrences and
    what is made of them twice as much.
    """
    return 12 * (len(store.data) + len(store)) + (8 << 20)

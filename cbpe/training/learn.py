"""From a chunk store to merges, with what people watch meanwhile: a bar, or minbpe's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from tqdm import tqdm

from cbpe.threads import heeding_ctrl_c
from cbpe.training.merges import learn
from cbpe.training.store import ChunkStore

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    verbose: bool = False,
    progress: bool | None = None,
    close_store: bool = False,
) -> Learned:
    """The merges that minbpe would learn: pairs uint32[k, 2], counts int64[k], removed int64[k].

    k is less than num_merges where no pair is left that occurs min_frequency times.
    verbose prints a line a merge, as minbpe does. progress: None shows a bar on a terminal only. close_store lets go of
    the store as soon as it is not needed, which on large corpora spares memory.
    Raises CorpusTooLargeError, MemoryError, KeyboardInterrupt.
    """
    steps = learn(store.counts, store.offsets, store.data, num_merges, min_frequency)
    heeding_ctrl_c(next, steps)
    if close_store:
        store.close()
    batches = []
    vocab = {i: bytes([i]) for i in range(256)} if verbose else {}
    made = 0
    hidden = None if progress is None else not progress         # None: unless this is a terminal
    with tqdm(total=num_merges, desc="merging", unit="merge", leave=False, disable=hidden) as bar:
        for batch in steps:
            pairs, counts, _ = batch
            batches.append(batch)
            bar.update(len(pairs))
            for (left, right), count in zip(pairs.tolist(), counts.tolist(), strict=True) if verbose else ():
                idx = 256 + made
                vocab[idx] = vocab[left] + vocab[right]
                made += 1
                print(f"merge {made}/{num_merges}: {(left, right)} -> {idx} ({vocab[idx]!r}) had {count} occurrences")
    empty = np.empty((0, 2), np.uint32), np.empty(0, np.int64), np.empty(0, np.int64)
    return Learned(*map(np.concatenate, zip(empty, *batches, strict=True)))

"""Training, in the order in which a byte walks: corpus.py, chunks.pyx, store.py, pairs.pyx, merges.pyx, learn.py."""

from cbpe.training.learn import learn_merges
from cbpe.training.store import ChunkStore

__all__ = ["ChunkStore", "learn_merges"]

"""cbpe: byte-level BPE, trained and applied at full speed, with exactly the merges and ids of minbpe."""

from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.training import ChunkStore

"""cbpe: byte-level BPE, trained and applied at full speed, with exactly the merges and ids of minbpe."""

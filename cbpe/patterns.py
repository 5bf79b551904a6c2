"""The split patterns, each written once, and the words a user may say for them.

A pattern decides where a text is cut into chunks before merges are learned or applied; merges never cross a chunk's
end. Native splitters are chosen by a pattern's exact text (see splitting/split.pyx): another text, however alike,
goes through the regex package.
"""

from __future__ import annotations

# The pattern that GPT-2 was released with (openai/gpt-2, src/encoder.py), in the form tiktoken gives it.
GPT2_SPLIT_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)

# The pattern of cl100k_base as tiktoken had it when minbpe was written; tiktoken's present text differs from it.
GPT4_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""
)

# What may be said in place of a pattern, for instance on the command line.
NAMED_PATTERNS = {"gpt2": GPT2_SPLIT_PATTERN, "gpt4": GPT4_SPLIT_PATTERN}

r"""The split patterns, each written once, and the words a user may say for them.

A pattern decides where a text is cut into chunks before merges are learned or applied; merges never cross a chunk's
end. Native splitters are chosen by a pattern's exact text (see splitting/split.pyx): another text, however alike,
goes through the regex package.

Of GPT-2 and GPT-4 there are two patterns each: the ones that minbpe took over, and the ones in tiktoken today, which
were made for its engine and are named after the encoding. They are compared as strings, and none stands for another:

- r50k's and GPT-2's give the same chunks of every text.
- cl100k's and GPT-4's differ where a text ends with whitespace: "a\n " is "a", "\n " by cl100k's, which asks for \s++$
  first, and "a", "\n", " " by GPT-4's.

The $ of \s++$ means the end of the text alone in tiktoken's engine, and in regex also before a "\n" that ends the text.
No chunk depends on it: \s++ has taken all whitespace and gives none back, so no "\n" follows where $ is asked.
"""

from __future__ import annotations

# The pattern that GPT-2 was released with (openai/gpt-2, src/encoder.py), in the form tiktoken gave it.
GPT2_SPLIT_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)

# The pattern of cl100k_base as tiktoken had it when minbpe was written; tiktoken's present text differs from it.
GPT4_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""
)

# tiktoken's pattern for gpt2, r50k_base, p50k_base and p50k_edit.
R50K_SPLIT_PATTERN = (
    r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
)

# tiktoken's pattern for cl100k_base.
CL100K_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"""
    r"""\s+(?!\S)|\s"""
)

# tiktoken's pattern for o200k_base and o200k_harmony.
O200K_SPLIT_PATTERN = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"""
    r"""\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

# What may be said in place of a pattern, for instance on the command line. Each has a native splitter of that name.
NAMED_PATTERNS = {
    "gpt2": GPT2_SPLIT_PATTERN,
    "gpt4": GPT4_SPLIT_PATTERN,
    "r50k": R50K_SPLIT_PATTERN,
    "cl100k": CL100K_SPLIT_PATTERN,
    "o200k": O200K_SPLIT_PATTERN,
}

r"""The split patterns, each written once, and the words a user may say for them.

A pattern decides where a text is cut into chunks before merges are learned or applied; merges never cross a chunk's
end. Native splitters are chosen by a pattern's exact text (see splitting/split.pyx), one of those here: another text,
however alike, goes through the regex package.

Of GPT-2 and GPT-4 there are several patterns: the ones that minbpe took over, the ones in tiktoken today, which were
made for its engine and are named after the encoding, and older ones that live on in other models. They are compared as
strings:

- r50k's and GPT-2's give the same chunks of every text, and so does the first of GPT-2's: ++ takes what + takes where
  nothing that follows could ask for some of it back, and of 's, 't, 're, ... only one can match.
- cl100k's and GPT-4's differ where a text ends with whitespace: "a\n " is "a", "\n " by cl100k's, which asks for \s++$
  first, and "a", "\n", " " by GPT-4's.
- Llama 3's and GPT-4's give the same chunks of every text. \s* takes all whitespace there is and gives back no more
  than up to the last line end, whether [\r\n] or [\r\n]+ is to match it; and [^\r\n\p{L}\p{N}]? need not be
  possessive, as a character that it has taken and would give back is no letter, which is what \p{L}+ asks for.

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

# The first pattern of cl100k_base, which other models took over: Llama 3 (meta-llama/llama3, llama/tokenizer.py, and
# its tokenizer.json), OLMo 2, Phi-4, and GPT-4 itself as Hugging Face's files have it.
LLAMA3_SPLIT_PATTERN = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"""
    r"""\s+(?!\S)|\s+"""
)

# Of Qwen (tokenization_qwen.py), Qwen 2, 2.5 and 3 (transformers, models/qwen2/tokenization_qwen2.py, and their
# tokenizer.json): Llama 3's, but each number is a chunk of its own.
QWEN2_SPLIT_PATTERN = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"""
    r"""\s+(?!\S)|\s+"""
)

# Of nanochat (karpathy/nanochat, nanochat/tokenizer.py): GPT-4's, but a chunk has two numbers at most.
NANOCHAT_SPLIT_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""
)

# Of Mistral Nemo and its successors (the "pattern" of tekken.json): o200k's without contractions, each number alone.
TEKKEN_SPLIT_PATTERN = (
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"""
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"""
    r"""\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
)

# GPT-2's pattern as it was released, letter by letter; Hugging Face's ByteLevel splits by it.
BYTE_LEVEL_SPLIT_PATTERN = (
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
)

# What may be said in place of a pattern, for instance on the command line. Each has a native splitter.
NAMED_PATTERNS = {
    "gpt2": GPT2_SPLIT_PATTERN,
    "gpt4": GPT4_SPLIT_PATTERN,
    "r50k": R50K_SPLIT_PATTERN,
    "cl100k": CL100K_SPLIT_PATTERN,
    "o200k": O200K_SPLIT_PATTERN,
    "llama3": LLAMA3_SPLIT_PATTERN,
    "qwen2": QWEN2_SPLIT_PATTERN,
    "nanochat": NANOCHAT_SPLIT_PATTERN,
    "tekken": TEKKEN_SPLIT_PATTERN,
}

# Patterns without a name of their own, each with the name of one that gives the same chunks of every text. The second
# is for engines to which {1,3}+ is not possessive but repeated, as to Hugging Face's; whether it is possessive or not
# is the same here.
OTHER_SPELLINGS = {
    BYTE_LEVEL_SPLIT_PATTERN: "gpt2",
    CL100K_SPLIT_PATTERN.replace("{1,3}+", "{1,3}"): "cl100k",
}

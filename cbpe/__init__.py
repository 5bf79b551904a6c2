"""cbpe: byte-level BPE, trained and applied at full speed, with exactly the merges and ids of minbpe.

    from cbpe import RegexTokenizer

    tokenizer = RegexTokenizer()
    tokenizer.train_from_files("corpus.txt", 32768)
    tokenizer.save("mine")                              # mine.model, mine.vocab
    ids = tokenizer.encode_to_numpy("hello world")      # uint32[n]
    tokenizer.decode(ids)                               # "hello world"

How to read the code. There are two walks, and a file uses only what stands before it on its own walk, besides a few
words that all share (errors, ids, pairtable, patterns, files, threads).

A corpus becomes a model:

    inputs/sources      paths, folders, globs, URLs -> files, each with its kind
    inputs/streams      a file -> its bytes, unpacked
    inputs/documents    lines (by inputs/lines) and rows -> texts
    training/corpus     sources and texts -> stretches of bytes that may be counted apart
    splitting/split     bytes -> chunks, which no merge crosses
    training/chunks     chunks -> distinct chunks in order of first appearance, each with its count
    training/store      the same as an object, and as a file
    training/pairs      distinct chunks -> the pairs in them
    training/merges     pairs -> merges, the most frequent first
    training/learn      all of it, with what people watch meanwhile
    curve               what training tells about vocabulary sizes
    distributed         from sources to chunk store, and to files of ids, by the machines of a cluster
    model               merges, special tokens and a pattern: what a tokenizer knows
    formats             a model <-> files, the library's own and others'; formats/recover: which pairs tokens are made
                        of, if a file does not say it
    loading             a file -> the tokenizer that it holds

A prompt becomes ids, and ids become text:

    regex, basic        the tokenizers: what people call
    word, clip          the same for characters within words, by splitting/words and encoding/words
    openai, gpt4        the same with merges that OpenAI published, which stand in data
    native, base        what they share; likeness has tiktoken's names
    special             special tokens, which there can be, and what a caller allows
    encoding/finder     where a text holds them
    splitting/split     bytes -> chunks
    encoding/encoder    chunks -> ids, by merges
    encoding/batch      the same for many texts, by threads
    encoding/files      the same for files, which may be larger than memory
    encoding/shards     the same in files of ids of one size, made one after another
    encoding/usage      the same, only counted
    encoding/decoder    ids -> bytes
    encoding/stream     ids that arrive one by one -> text
"""

from cbpe.base import Tokenizer, get_stats, merge, render_token
from cbpe.basic import BasicTokenizer
from cbpe.encoding.stream import StreamDecoder
from cbpe.errors import (
    ChunkStoreError,
    CorpusDecodeError,
    CorpusFormatError,
    CorpusTooLargeError,
    DisallowedSpecialTokenError,
    ExportError,
    ModelFileError,
    NoStatisticsError,
    ShardError,
    SpecialTokenError,
    UnknownCharacterError,
    UnknownIdError,
    VocabSizeError,
)
from cbpe.gpt4 import GPT4_SPECIAL_TOKENS, GPT4Tokenizer, recover_merges
from cbpe.loading import load
from cbpe.openai import encoding_for_model, get_encoding
from cbpe.patterns import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN
from cbpe.regex import RegexTokenizer
from cbpe.training import ChunkStore
from cbpe.word import WordTokenizer

__version__ = "0.1.0"

__all__ = [
    "GPT2_SPLIT_PATTERN",
    "GPT4_SPECIAL_TOKENS",
    "GPT4_SPLIT_PATTERN",
    "BasicTokenizer",
    "ChunkStore",
    "ChunkStoreError",
    "CorpusDecodeError",
    "CorpusFormatError",
    "CorpusTooLargeError",
    "DisallowedSpecialTokenError",
    "ExportError",
    "GPT4Tokenizer",
    "ModelFileError",
    "NoStatisticsError",
    "RegexTokenizer",
    "ShardError",
    "SpecialTokenError",
    "StreamDecoder",
    "Tokenizer",
    "UnknownCharacterError",
    "UnknownIdError",
    "VocabSizeError",
    "WordTokenizer",
    "encoding_for_model",
    "get_encoding",
    "get_stats",
    "load",
    "merge",
    "recover_merges",
    "render_token",
]

"""The two halves of training, counting and merging, each alone and then together.

Counting follows the bytes of the corpus, merging its distinct chunks; so a change that helps one is seen apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cbpe import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, BasicTokenizer, ChunkStore, RegexTokenizer

# A pattern that no native splitter has: it goes through the regex package.
WORDS = r"\w+|[^\w\s]+|\s+"


@pytest.mark.parametrize("pattern", [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, WORDS], ids=["gpt2", "gpt4", "regex"])
def test_count(benchmark: BenchmarkFixture, corpus_file: Path, pattern: str) -> None:
    store = benchmark(ChunkStore.from_files, [corpus_file], pattern=pattern, num_threads=1)
    assert store.total_bytes == corpus_file.stat().st_size


def test_count_from_strings(benchmark: BenchmarkFixture, corpus: str) -> None:
    lines = corpus.splitlines(keepends=True)
    store = benchmark(ChunkStore.from_iterator, lines, pattern=GPT4_SPLIT_PATTERN, num_threads=1)
    assert store.total_bytes == len(corpus.encode())


def test_merge(benchmark: BenchmarkFixture, corpus_file: Path) -> None:
    store = ChunkStore.from_files([corpus_file], pattern=GPT4_SPLIT_PATTERN)
    tokenizer = RegexTokenizer()
    benchmark(tokenizer.train_from_chunks, store, 4096)
    assert len(tokenizer.merges) == 4096 - 256


def test_train(benchmark: BenchmarkFixture, corpus_file: Path) -> None:
    tokenizer = RegexTokenizer()
    benchmark(tokenizer.train_from_files, [corpus_file], 4096)
    assert len(tokenizer.merges) == 4096 - 256


def test_train_basic(benchmark: BenchmarkFixture, corpus: str) -> None:
    tokenizer = BasicTokenizer()
    benchmark(tokenizer.train, corpus, 1024)
    assert len(tokenizer.merges) == 1024 - 256

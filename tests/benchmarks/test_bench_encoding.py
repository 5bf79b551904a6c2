"""Encoding and decoding a text of two megabytes, and many short ones, with 4096 tokens learned from the same text."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cbpe import BasicTokenizer, RegexTokenizer


@pytest.fixture(scope="module")
def tokenizer(corpus_file: Path) -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train_from_files([corpus_file], 4096)
    return tokenizer


def test_encode(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = benchmark(tokenizer.encode, corpus)
    assert tokenizer.decode(ids) == corpus


def test_encode_lines(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    lines = corpus.splitlines(keepends=True)
    ids = benchmark(lambda: [tokenizer.encode(line) for line in lines])
    assert "".join(map(tokenizer.decode, ids)) == corpus


def test_encode_one_long_chunk(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer) -> None:
    """No end to the chunk: what is quadratic in its length shows here."""
    text = "a" * 200_000
    ids = benchmark(tokenizer.encode, text)
    assert tokenizer.decode(ids) == text


def test_encode_basic(benchmark: BenchmarkFixture, corpus: str) -> None:
    tokenizer = BasicTokenizer()
    text = corpus[:200_000]
    tokenizer.train(text, 1024)
    ids = benchmark(tokenizer.encode, text)
    assert tokenizer.decode(ids) == text


def test_decode(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = tokenizer.encode(corpus)
    assert benchmark(tokenizer.decode, ids) == corpus

"""Encoding and decoding a text of two megabytes, and many short ones, with 4096 tokens learned from the same text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from cbpe import BasicTokenizer, RegexTokenizer, StreamDecoder


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


def test_encode_to_numpy(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = benchmark(tokenizer.encode_to_numpy, corpus)
    assert tokenizer.decode(ids) == corpus


def test_count(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    assert benchmark(tokenizer.count, corpus) == len(tokenizer.encode_to_numpy(corpus))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_encode_batch(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str, num_threads: int) -> None:
    lines = corpus.splitlines(keepends=True)
    lists = benchmark(tokenizer.encode_batch, lines, num_threads=num_threads)
    assert "".join(tokenizer.decode_batch(lists)) == corpus


@pytest.mark.parametrize("num_threads", [1, 2])
def test_encode_batch_to_numpy(
    benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str, num_threads: int
) -> None:
    lines = corpus.splitlines(keepends=True)
    ids, offsets = benchmark(tokenizer.encode_batch_to_numpy, lines, num_threads=num_threads)
    assert tokenizer.decode(ids) == corpus
    assert len(offsets) == len(lines) + 1


@pytest.mark.parametrize("n_specials", [10, 1000])
@pytest.mark.parametrize("form", ["<|{}|>", "{}|"], ids=["one first byte", "many first bytes"])
def test_encode_with_specials(benchmark: BenchmarkFixture, corpus: str, form: str, n_specials: int) -> None:
    """Hundreds of special tokens must not take longer than ten."""
    many = RegexTokenizer()
    many.register_special_tokens({form.format(chr(0x4E00 + 31 * i)): 1000 + i for i in range(n_specials)})
    text = corpus[:200_000]
    ids = benchmark(many.encode, text, allowed_special="all")
    assert many.decode(ids) == text


@pytest.mark.parametrize("num_threads", [1, 2])
def test_encode_file(
    benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus_file: Path, tmp_path: Path, num_threads: int
) -> None:
    count = benchmark(tokenizer.encode_file, corpus_file, tmp_path / "ids.bin", num_threads=num_threads)
    ids = np.fromfile(tmp_path / "ids.bin", "<u2")
    assert len(ids) == count
    assert tokenizer.decode(ids) == corpus_file.read_bytes().decode()


def test_decode_bytes(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = tokenizer.encode_to_numpy(corpus)
    assert benchmark(tokenizer.decode_bytes, ids) == corpus.encode()


def test_decode_batch(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    lists = tokenizer.encode_batch(corpus.splitlines(keepends=True))
    assert "".join(benchmark(tokenizer.decode_batch, lists)) == corpus


def test_decode_with_offsets(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = tokenizer.encode_to_numpy(corpus)
    text, offsets = benchmark(tokenizer.decode_with_offsets, ids)
    assert text == corpus
    assert len(offsets) == len(ids)


def test_stream(benchmark: BenchmarkFixture, tokenizer: RegexTokenizer, corpus: str) -> None:
    ids = tokenizer.encode(corpus[:200_000])

    def stream() -> str:
        decoder = StreamDecoder(tokenizer)
        return "".join(map(decoder.feed, ids)) + decoder.flush()

    assert benchmark(stream) == corpus[:200_000]

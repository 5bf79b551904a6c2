"""cbpe -> tiktoken -> cbpe and tiktoken -> cbpe -> tiktoken: nothing is lost and no id changes."""

from __future__ import annotations

import random
import warnings

import pytest
import tiktoken
from budget import mostly_thorough
from published import VOCAB, needs_vocabularies

import cbpe
from cbpe import BasicTokenizer, RegexTokenizer
from cbpe.formats import ranks
from cbpe.patterns import CL100K_SPLIT_PATTERN, NAMED_PATTERNS, O200K_SPLIT_PATTERN, R50K_SPLIT_PATTERN

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN = LLAMA3.replace("{1,3}", "")
PUBLISHED = {
    "cl100k_base.tiktoken": CL100K_SPLIT_PATTERN,
    "o200k_base.tiktoken": O200K_SPLIT_PATTERN,
    "r50k_base.tiktoken": R50K_SPLIT_PATTERN,
    "p50k_base.tiktoken": R50K_SPLIT_PATTERN,
    "llama3_tokenizer.model": LLAMA3,
    "qwen.tiktoken": QWEN,
}


def text_of(rng, n):
    words = ["the", " lower", "it's", " WE'LL", "12", " 2024", "\n\n", "  ", "\t", "!!", " ->", "naïve", "日本語"]
    words += ["".join(rng.choices("aabbcdeé漢 1.\n", k=rng.randint(1, 9))) for _ in range(n // 5)]
    return "".join(rng.choices(words, k=n))


@pytest.mark.parametrize("seed", mostly_thorough(range(8), 0, 1))
def test_random_models_go_and_come_back(seed, tmp_path):
    rng = random.Random(seed)
    pattern = rng.choice([*NAMED_PATTERNS.values(), r"\w+$|\s+|[[:alpha:]]+|.", r"(?i:in|[a-z]+)|\W", r".+\s*", QWEN])
    tokenizer = RegexTokenizer(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # the text may not support as many
        tokenizer.train(text_of(rng, 3000), rng.choice([256, 257, 300, 500, 900]))
    first = tokenizer.n_vocab + rng.randint(0, 50)
    specials = {"<|endoftext|>": first, "[MASK] ": first + 7, "\n\n\n": first + 3}
    tokenizer.register_special_tokens(rng.choice([{}, specials]))

    encoding = tokenizer.to_tiktoken("mine")
    back = RegexTokenizer.from_tiktoken(encoding)
    tokenizer.save_tiktoken(tmp_path / "mine.tiktoken")
    loaded = cbpe.load(tmp_path / "mine.tiktoken", pattern=pattern, special_tokens=tokenizer.special_tokens)
    again = back.to_tiktoken("again")
    assert back.merges == loaded.merges == tokenizer.merges
    assert back.special_tokens == loaded.special_tokens == tokenizer.special_tokens
    assert loaded.pattern == pattern
    assert again._mergeable_ranks == encoding._mergeable_ranks
    assert again._special_tokens == encoding._special_tokens
    for _ in range(200):
        text = text_of(rng, rng.randint(0, 60)) + rng.choice(["", "<|endoftext|>", "\n", "İn ıI"])
        ids = tokenizer.encode(text, "all")
        assert encoding.encode(text, allowed_special="all") == ids
        assert again.encode(text, allowed_special="all") == ids
        assert back.encode(text, "all") == loaded.encode(text, "all") == ids


def test_a_basic_tokenizer_comes_back_as_one_with_a_pattern_that_takes_all():
    tokenizer = BasicTokenizer()
    tokenizer.train(text_of(random.Random(0), 2000), 400)
    back = RegexTokenizer.from_tiktoken(tokenizer.to_tiktoken("basic"))
    assert back.pattern == "(?s:.+)"
    assert back.merges == tokenizer.merges
    for seed in range(50):
        text = text_of(random.Random(seed), seed)
        assert back.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("name", mostly_thorough(["r50k_base", "p50k_edit", "cl100k_base"], "r50k_base"))
def test_encodings_come_back(name):
    tokenizer = cbpe.get_encoding(name)
    back = RegexTokenizer.from_tiktoken(tokenizer.to_tiktoken(name))
    assert back.pattern == tokenizer.pattern
    assert back.special_tokens == tokenizer.special_tokens
    assert back.merges == tokenizer.merges
    assert back._model.sha256 == tokenizer._model.sha256


@needs_vocabularies
@pytest.mark.parametrize("name", mostly_thorough(PUBLISHED, "r50k_base.tiktoken"))
def test_published_rank_files_come_back_to_the_byte(name, tmp_path):
    data = (VOCAB / name).read_bytes()
    table = ranks.parse(data, name)
    special_tokens = {"<|a|>": max(table.values()) + 1, "<|b|>": max(table.values()) + 100}
    encoding = tiktoken.Encoding("x", pat_str=PUBLISHED[name], mergeable_ranks=table, special_tokens=special_tokens)
    tokenizer = RegexTokenizer.from_tiktoken(
        VOCAB / name, pattern=PUBLISHED[name], special_tokens=special_tokens
    )
    tokenizer.save_tiktoken(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == data
    again = tokenizer.to_tiktoken("again")
    assert again._mergeable_ranks == table
    rng = random.Random(0)
    for _ in range(300):
        text = text_of(rng, rng.randint(0, 300)) + "<|b|>"
        ids = encoding.encode(text, allowed_special="all")
        assert tokenizer.encode(text, "all") == ids
        assert again.encode(text, allowed_special="all") == ids

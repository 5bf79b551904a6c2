"""What training records: the compression curve, advice, truncated tokenizers, the file beside the model, min_count."""

from __future__ import annotations

import copy
import json
import pickle
import random
import re

import numpy as np
import pytest
import reference
import regex
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

import cbpe
from cbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    GPT4Tokenizer,
    NoStatisticsError,
    RegexTokenizer,
    SpecialTokenError,
    VocabSizeError,
)
from cbpe.curve import USUAL_SIZES, Statistics

pytestmark = pytest.mark.native

TEXTS = [
    "the cat sat on the mat, the cat sat on the hat  <|end|>and aaaa aaaaa aaaaaaa went\n\n\n   on",
    "",
    "<|end|><|end|>naïve café 猫が好き 12345 12345 1234 the end<|end|>the the the end\r\n",
    "e",
    "x" * 37 + " the mat" * 5,
]
END = "<|end|>"
MAKERS = {
    "basic": BasicTokenizer,
    "gpt4": RegexTokenizer,
    "gpt2": lambda: RegexTokenizer(GPT2_SPLIT_PATTERN),
    "words": lambda: RegexTokenizer(r"\w+"),
}


def trained(make=RegexTokenizer, vocab_size=300, **how):
    tokenizer = make()
    tokenizer.train_from_iterator(TEXTS, vocab_size, **how)
    return tokenizer


def numbers(tokenizer):
    statistics = tokenizer._model.statistics
    return statistics.counts.tolist(), statistics.tokens.tolist(), statistics.total_bytes


# ---- the curve


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("specials", [[], [END]])
def test_the_curve_is_what_encoding_gives_at_every_size(make, specials):
    tokenizer = trained(make, special_tokens=specials)
    curve = tokenizer.compression_curve()
    parts = [part for text in TEXTS for part in reference.cut_at_specials(text, specials) if part not in specials]
    n_bytes = sum(len(chunk) for part in parts for chunk in reference.split(part, tokenizer.pattern or None))
    assert len(curve) == 45
    assert curve.vocab_sizes.tolist() == list(range(256, 301))
    for size, tokens, bytes_per_token in zip(curve.vocab_sizes, curve.tokens, curve.bytes_per_token, strict=True):
        smaller = tokenizer.truncated(size)
        assert sum(smaller.count(part, "none") for part in parts) == tokens
        assert bytes_per_token == n_bytes / tokens


@examples(60)
@given(st.lists(st.text(alphabet="ab c", max_size=60), max_size=6), st.integers(0, 30))
def test_the_curve_is_the_reference_s(texts, num_merges):
    for make, pattern in ((BasicTokenizer, None), (RegexTokenizer, GPT4_SPLIT_PATTERN)):
        tokenizer = make()
        store = ChunkStore.from_iterator(texts, pattern)
        merges, counts = reference.learn(texts, num_merges, pattern)
        tokenizer.train_from_chunks(store, 256 + len(merges))
        assert tokenizer.merges == merges
        totals = reference.token_totals(list(store), merges)
        assert tokenizer.compression_curve().tokens.tolist() == totals
        assert numbers(tokenizer) == (counts, totals[1:], store.total_bytes)


def test_types_and_shapes():
    curve = trained().compression_curve()
    assert (curve.vocab_sizes.dtype, curve.tokens.dtype) == (np.int64, np.int64)
    assert curve.bytes_per_token.dtype == np.float64
    assert curve.bytes_per_token[0] == 1.0
    assert "vocabulary 256 to 300" in repr(curve)


def test_counts_beyond_53_bits_are_exact(tmp_path):
    weight = 2**53 + 1
    one = [np.array([weight], np.uint64), np.zeros(1, np.uint64), np.array([0, 5], np.uint64)]
    tokenizer = RegexTokenizer()
    tokenizer.train_from_chunks(ChunkStore(GPT4_SPLIT_PATTERN, *one, np.frombuffer(b"aaaab", np.uint8)), 258)
    assert numbers(tokenizer) == ([3 * weight, weight], [3 * weight, 2 * weight], 5 * weight)
    tokenizer.save(tmp_path / "heavy")
    again = RegexTokenizer()
    again.load(tmp_path / "heavy.model")
    assert numbers(again) == numbers(tokenizer)


def test_an_empty_corpus_has_a_curve_of_one_point():
    tokenizer = RegexTokenizer()
    tokenizer.train("", 256)
    curve = tokenizer.compression_curve()
    assert curve.tokens.tolist() == [0]
    assert np.isnan(curve.bytes_per_token[0])
    assert [row.vocab_size for row in tokenizer.advise(hidden_size=1)] == [256]


@pytest.mark.parametrize("ask", [lambda t: t.compression_curve(), lambda t: t.advise(hidden_size=8)])
def test_without_statistics_the_question_is_refused(ask):
    given_merges = RegexTokenizer()
    given_merges.merges = {(97, 98): 256}
    for tokenizer in (RegexTokenizer(), BasicTokenizer(), GPT4Tokenizer(), given_merges):
        with pytest.raises(NoStatisticsError, match=r"\.stats\.json"):
            ask(tokenizer)
    assert issubclass(NoStatisticsError, ValueError)


# ---- advice


def test_advice_is_printed_and_returned(capsys):
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 9))) for _ in range(900)]
    tokenizer = RegexTokenizer()
    tokenizer.train(" ".join(rng.choices(words, k=8000)), 1500)
    curve = tokenizer.compression_curve()
    rows = tokenizer.advise(hidden_size=64)
    assert [row.vocab_size for row in rows] == [512, 1024, 1500]
    before = curve.tokens[0]
    for row in rows:
        assert row.tokens == curve.tokens[row.vocab_size - 256]
        assert row.bytes_per_token == curve.bytes_per_token[row.vocab_size - 256]
        assert row.fewer_tokens == pytest.approx((before - row.tokens) / before)
        assert (row.tied_parameters, row.untied_parameters) == (64 * row.vocab_size, 128 * row.vocab_size)
        before = row.tokens
    lines = capsys.readouterr().out.splitlines()
    assert re.split("  +", lines[0].strip()) == [
        "vocab size", "tokens", "bytes/token", "fewer tokens", "tied params", "untied params",
    ]  # fmt: skip
    assert lines[3].split()[:2] == ["1,500", f"{rows[2].tokens:,}"]
    assert "hidden size 64" in "".join(lines)
    assert [row.vocab_size for row in tokenizer.truncated(512).advise(hidden_size=64)] == [512]


def test_usual_sizes_ascend_and_a_wrong_hidden_size_is_refused():
    assert list(USUAL_SIZES) == sorted(set(USUAL_SIZES))
    tokenizer = trained()
    for wrong, error in ((0, ValueError), (-1, ValueError), (2.5, TypeError), ("8", TypeError)):
        with pytest.raises(error, match="hidden_size"):
            tokenizer.advise(hidden_size=wrong)


# ---- truncated


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("size", [256, 257, 280, 300])
def test_truncated_is_training_at_the_smaller_size(make, size, tmp_path):
    specials = [END, "<|pad|>"]
    whole = trained(make, special_tokens=specials)
    smaller, expected = whole.truncated(size), trained(make, size, special_tokens=specials)
    assert type(smaller) is type(whole)
    for name in ("merges", "vocab", "special_tokens", "inverse_special_tokens", "pattern"):
        assert getattr(smaller, name) == getattr(expected, name)
    assert list(smaller.special_tokens.items()) == [(END, size), ("<|pad|>", size + 1)]
    assert numbers(smaller) == numbers(expected)
    smaller.save(tmp_path / "one")
    expected.save(tmp_path / "other")
    for suffix in (".model", ".vocab", ".stats.json"):
        assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"other{suffix}").read_bytes()
    for text in TEXTS:
        assert smaller.encode(text, allowed_special="all") == expected.encode(text, allowed_special="all")
    assert len(whole.merges) == 44
    assert list(whole.special_tokens.values()) == [300, 301]


def test_special_tokens_behind_a_gap_stay_where_they_are(tmp_path):
    tokenizer = trained()
    tokenizer.register_special_tokens({"<c>": 303, "<a>": 301, "<z>": 1000, "<b>": 300})
    smaller = tokenizer.truncated(260)
    assert list(smaller.special_tokens.items()) == [("<c>", 303), ("<a>", 261), ("<z>", 1000), ("<b>", 260)]
    tokenizer.save(tmp_path / "m")
    loaded = RegexTokenizer()
    loaded.load(tmp_path / "m.model")
    assert loaded.truncated(260).special_tokens == smaller.special_tokens
    assert loaded.truncated(260).vocab == {**smaller.vocab, 303: b"<c>", 261: b"<a>", 1000: b"<z>", 260: b"<b>"}
    assert loaded.truncated(300).vocab == loaded.vocab


def test_what_cannot_be_truncated_says_why():
    tokenizer = trained()
    for size in (255, 0, -1, 301, 10**9):
        with pytest.raises(VocabSizeError, match=r"256\.\.300"):
            tokenizer.truncated(size)
    with pytest.raises(TypeError, match="vocab_size"):
        tokenizer.truncated(280.0)
    tokenizer.merges = {(97, 98): 256, (97, 99): 300}
    with pytest.raises(ValueError, match=r"\(97, 99\) -> 300 stands where id 257 belongs"):
        tokenizer.truncated(257)
    tokenizer.merges = {(97, 98): 256, (258, 99): 257}
    with pytest.raises(ValueError, match=r"\(258, 99\) -> 257"):
        tokenizer.truncated(257)
    tokenizer.merges = {(97, 98): 256}
    tokenizer.special_tokens = {"<a>": 256}
    with pytest.raises(SpecialTokenError, match="merge"):
        tokenizer.truncated(256)
    with pytest.raises(NotImplementedError, match="complete"):
        GPT4Tokenizer().truncated(1000)


def test_assigned_merges_are_truncated_in_the_order_of_their_ids():
    tokenizer = RegexTokenizer()
    tokenizer.merges = {(256, 99): 257, (97, 98): 256, (257, 100): 258}
    smaller = tokenizer.truncated(258)
    assert list(smaller.merges.items()) == [((97, 98), 256), ((256, 99), 257)]
    assert smaller.vocab[257] == b"abc"
    with pytest.raises(NoStatisticsError):
        smaller.compression_curve()


def test_a_compiled_pattern_with_flags_goes_on_splitting():
    tokenizer = trained(lambda: RegexTokenizer(regex.compile("[a-z]+", regex.IGNORECASE)), 270)
    assert tokenizer.truncated(260).encode("THE") == [84, 72, 69]


# ---- statistics as part of the model


def test_copies_have_statistics_that_nobody_can_change():
    tokenizer = trained()
    for each in (tokenizer, copy.copy(tokenizer), copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert numbers(each) == numbers(tokenizer)
        for array in (each._model.statistics.counts, each._model.statistics.tokens):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1
    curve = tokenizer.compression_curve()
    curve.tokens[:] = 0
    assert tokenizer.compression_curve().tokens[0] > 0


def test_statistics_go_when_what_they_are_of_changes():
    keeps = {
        "registering": lambda t: t.register_special_tokens({"<a>": 1000}),
        "special_tokens": lambda t: setattr(t, "special_tokens", {"<a>": 1000}),
        "vocab": lambda t: setattr(t, "vocab", t.vocab),
        "looking": lambda t: (t.merges, t.vocab, t.pattern),
        "the same pattern": lambda t: setattr(t, "pattern", t.pattern),
        "its own compiled pattern": lambda t: setattr(t, "compiled_pattern", regex.compile(t.pattern)),
    }
    drops = {
        "merges": lambda t: setattr(t, "merges", {(97, 98): 256}),
        "the same merges": lambda t: setattr(t, "merges", t.merges),
        "in place": lambda t: t.merges.popitem(),
        "pattern": lambda t: setattr(t, "pattern", r"\w+"),
        "compiled_pattern": lambda t: setattr(t, "compiled_pattern", regex.compile(r"\w+")),
    }
    for name, change in keeps.items():
        tokenizer = trained()
        change(tokenizer)
        assert len(tokenizer.compression_curve()) == 45, name
    for name, change in drops.items():
        tokenizer = trained()
        change(tokenizer)
        with pytest.raises(NoStatisticsError):
            print(name, tokenizer.compression_curve())


def test_a_failed_training_leaves_the_statistics():
    tokenizer = trained()
    before = numbers(tokenizer)
    with pytest.raises(UnicodeEncodeError):
        tokenizer.train("\ud800", 300)
    assert numbers(tokenizer) == before


# ---- the file


@pytest.fixture
def saved(tmp_path):
    """A trained tokenizer, and the prefix it is saved under."""
    tokenizer = trained(special_tokens=[END])
    tokenizer.save(tmp_path / "m")
    return tokenizer, tmp_path / "m"


def loaded(prefix, make=RegexTokenizer):
    tokenizer = make()
    tokenizer.load(f"{prefix}.model")
    return tokenizer


def test_statistics_lie_beside_the_model(saved, tmp_path):
    tokenizer, prefix = saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.model", "m.stats.json", "m.vocab"]
    assert numbers(loaded(prefix)) == numbers(tokenizer)
    content = json.loads((tmp_path / "m.stats.json").read_bytes())
    assert content["format"] == "cbpe training statistics"
    assert (content["counts"], content["tokens"], content["total_bytes"]) == numbers(tokenizer)
    assert b"\r" not in (tmp_path / "m.stats.json").read_bytes()


def test_minbpe_s_files_are_the_same_with_and_without(saved, tmp_path):
    tokenizer, _ = saved
    tokenizer.merges = tokenizer.merges
    tokenizer.save(tmp_path / "without")
    for suffix in (".model", ".vocab"):
        assert (tmp_path / f"without{suffix}").read_bytes() == (tmp_path / f"m{suffix}").read_bytes()
    assert not (tmp_path / "without.stats.json").exists()
    with pytest.raises(NoStatisticsError):
        loaded(tmp_path / "without").compression_curve()


def test_a_file_of_another_model_is_not_believed(saved, tmp_path):
    _, prefix = saved
    old = (tmp_path / "m.stats.json").read_bytes()
    other = RegexTokenizer()
    other.train("other words, other merges " * 9, 300 - 30)
    other.save(prefix)
    assert numbers(loaded(prefix)) == numbers(other)
    (tmp_path / "m.stats.json").write_bytes(old)
    with pytest.raises(NoStatisticsError):
        loaded(prefix).compression_curve()
    other.pattern = r"\w+|\W"           # the same merges, another pattern: what they are of is not what was counted
    other._model = other._model.trained(other._model.pairs)
    other.save(prefix)
    with pytest.raises(NoStatisticsError):
        loaded(prefix).compression_curve()


DAMAGE = {
    "cut": lambda content: json.dumps(content)[:-40],
    "empty": lambda content: "",
    "not JSON": lambda content: "\xff",
    "deep": lambda content: "[" * 100_000,
    "a list": lambda content: "[]",
    "null": lambda content: "null",
    "newer": lambda content: json.dumps({**content, "version": 2}),
    "foreign": lambda content: json.dumps({**content, "format": "other"}),
    "short": lambda content: json.dumps({**content, "tokens": content["tokens"][:-1]}),
    "floats": lambda content: json.dumps({**content, "counts": [float(count) for count in content["counts"]]}),
    "huge": lambda content: json.dumps({**content, "total_bytes": 2**63}),
    "negative": lambda content: json.dumps({**content, "counts": [-count for count in content["counts"]]}),
    "rising": lambda content: json.dumps({**content, "tokens": content["tokens"][::-1]}),
    "no bytes": lambda content: json.dumps({key: content[key] for key in content if key != "total_bytes"}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_as_none(saved, tmp_path, damage):
    tokenizer, prefix = saved
    path = tmp_path / "m.stats.json"
    path.write_text(damage(json.loads(path.read_bytes())), encoding="latin-1")
    again = loaded(prefix)
    assert again.merges == tokenizer.merges
    with pytest.raises(NoStatisticsError):
        again.compression_curve()


def test_nothing_is_written_if_the_model_cannot_be(saved, tmp_path):
    tokenizer, _ = saved
    tokenizer.register_special_tokens({"a\nb": 1000})
    with pytest.raises(cbpe.ModelFileError):
        tokenizer.save(tmp_path / "wrong")
    with pytest.raises(OSError, match="missing"):
        trained().save(tmp_path / "missing" / "m")
    assert not list(tmp_path.glob("wrong*"))
    assert not list(tmp_path.glob("*.tmp"))


def test_a_save_that_fails_leaves_the_old_model_its_statistics(saved, tmp_path):
    tokenizer, prefix = saved
    (tmp_path / "m.vocab").unlink()
    (tmp_path / "m.vocab").mkdir()
    other = RegexTokenizer()
    other.train("other words, other merges " * 9, 270)
    with pytest.raises(OSError, match=r"m\.vocab"):
        other.save(prefix)
    assert numbers(loaded(prefix)) == numbers(tokenizer)
    assert not list(tmp_path.glob("*.tmp"))


# ---- min_count


def test_rare_chunks_are_dropped_on_request(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(TEXTS), encoding="utf-8", newline="")
    store = ChunkStore.from_files(path)
    counted = [(chunk, count) for chunk, count in store if count >= 3]
    pruned = store.pruned(3)
    assert list(pruned) == counted
    assert 0 < len(pruned) < len(store)
    assert (pruned.pattern, pruned.sources) == (store.pattern, store.sources)
    assert pruned.places.tolist() == store.places[store.counts >= 3].tolist()
    pruned.save(tmp_path / "pruned.chunks")
    with ChunkStore.open(tmp_path / "pruned.chunks") as again:
        assert list(again) == counted
    merges, counts = reference.learn_counted(counted, 10)
    total = sum(count * len(chunk) for chunk, count in counted)
    for train in (
        lambda t: t.train_from_files(path, 266, min_count=3),
        lambda t: t.train_from_iterator(["".join(TEXTS)], 266, min_count=3),
        lambda t: t.train_from_chunks(store, 266, min_count=3),
    ):
        tokenizer = RegexTokenizer()
        train(tokenizer)
        assert tokenizer.merges == merges
        assert numbers(tokenizer) == (counts, reference.token_totals(counted, merges)[1:], total)
    assert len(store) > len(pruned)             # it is the caller's, and as it was


@pytest.mark.parametrize("min_count", [1, 2, 10**9])
def test_pruned_stores_of_any_size(min_count):
    for texts in ([], ["a"], TEXTS):
        store = ChunkStore.from_iterator(texts)
        assert list(store.pruned(min_count)) == [each for each in store if each[1] >= min_count]


def test_a_wrong_min_count_is_refused():
    store = ChunkStore.from_iterator(TEXTS)
    for wrong, error in ((0, ValueError), (-3, ValueError), (1.5, TypeError)):
        with pytest.raises(error):
            store.pruned(wrong)
        with pytest.raises(error, match="min_count"):
            RegexTokenizer().train_from_chunks(store, 260, min_count=wrong)


def test_statistics_show_their_length():
    statistics = Statistics.of_training(np.array([5, 4]), np.array([5, 3]), 20)
    assert len(statistics) == 2
    assert statistics.tokens.tolist() == [15, 12]
    assert statistics.truncated(1).tokens.tolist() == [15]

"""Going on with merges that are known, on other chunks or after an interruption, against the slow twin."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st
from test_training import SPREADS, arrays, chunks_of_few_letters

from cbpe import (
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    ChunkStoreError,
    CorpusDecodeError,
    GPT4Tokenizer,
    RegexTokenizer,
    SpecialTokenError,
    VocabSizeError,
)
from cbpe.model import Model
from cbpe.training.merges import learn


def extended(counted, known, num_merges, min_frequency=1, spread=4.0):
    """What learn yields after the known merges: the merges, their counts, and how many tokens there are after each."""
    merges, counts = {}, []
    totals = [sum(len(chunk) * count for chunk, count in counted)]
    known = np.array(list(known), np.uint32).reshape(-1, 2)
    for pairs, pair_counts, removed in learn(*arrays(counted), num_merges, min_frequency, spread, known):
        counts += pair_counts.tolist()
        totals += [totals[-1] - removed[: i + 1].sum().item() for i in range(len(removed))]
        for pair in pairs.tolist():
            merges[tuple(pair)] = 256 + len(merges)
    return merges, counts, totals


@st.composite
def known_merges(draw):
    """Merges as a hand would make them: each of lower ids, and no pair twice."""
    merges = {}
    for _ in range(draw(st.integers(0, 12))):
        made = st.integers(256, 255 + len(merges)) if merges else st.sampled_from(b"ab")
        either = st.sampled_from(b"abc") | made
        merges.setdefault((draw(either), draw(either)), 256 + len(merges))
    return merges


def check(counted, known, num_merges, min_frequency, spread):
    num_merges = max(num_merges, len(known))
    merges, counts = reference.learn_counted(counted, num_merges, min_frequency, known)
    expected = merges, counts, reference.token_totals(counted, merges)
    assert extended(counted, known, num_merges, min_frequency, spread) == expected


@given(
    chunks_of_few_letters,
    known_merges(),
    st.integers(0, 40),
    st.sampled_from([1, 1, 2, 2**22]),
    st.sampled_from(SPREADS),
)
@example([(b"aaaaa", 2), (b"aabaa", 1)], {(97, 97): 256, (120, 121): 257, (256, 256): 258}, 10, 1, 0.0)
@example([], {(97, 97): 256}, 3, 1, 4.0)
@example([(b"ab", 1)], {(97, 98): 256, (256, 99): 257}, 9, 1, 4.0)
def test_known_merges_are_taken_as_encoding_takes_them(counted, known, num_merges, min_frequency, spread):
    check(counted, known, num_merges, min_frequency, spread)


@given(chunks_of_few_letters, chunks_of_few_letters, st.integers(0, 20), st.integers(0, 40), st.sampled_from(SPREADS))
def test_merges_of_one_corpus_are_continued_on_another(first, second, n_known, num_merges, spread):
    check(second, reference.learn_counted(first, n_known)[0], num_merges, 1, spread)


@given(chunks_of_few_letters, st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 1, 2]))
def test_merges_of_one_corpus_are_continued_on_the_same_as_if_never_interrupted(counted, n_known, num_merges, least):
    whole = extended(counted, {}, num_merges, least)
    known = list(whole[0])[:n_known]
    assert extended(counted, known, num_merges, least) == whole


@pytest.mark.parametrize("seed", range(3))
def test_longer_texts_are_continued(seed):
    rng = random.Random(seed)

    def words(letters):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 9))).encode() for _ in range(150)]
        return [(word, rng.choice([1, 2, 50, 2**23])) for word in dict.fromkeys(words)]

    known = reference.learn_counted(words("abcdefgh"), 150)[0]
    check(words("abcdefghijkl"), known, 250, 1, SPREADS[seed])


def test_merges_that_do_not_occur_take_their_places():
    known = [tuple(pair) for pair in itertools.product(range(256, 266), range(97, 107))]
    known = [(97, 98), (97, 99), *known[:60]]
    merges, counts, totals = extended([(b"cdcd", 5)], known, 1000)
    assert list(merges)[:62] == known
    assert counts[:62] == [0] * 62
    assert totals[:63] == [20] * 63
    assert list(merges)[62:] == [(99, 100), (318, 318)]


# ---- tokenizers

FIRST = ["the cat sat on the mat, the cat ate the rat " * 3, "aaaa aaa aaaaaaa <end>", "héhé 12 12 123"]
SECOND = ["on the mountain the fountain went on <end> the other one, aaaa aaaaa", "猫が好き 猫が", "", "the end"]
PATTERNS = {"basic": None, "gpt4": GPT4_SPLIT_PATTERN, "words": r"\w+"}


def make(pattern):
    return BasicTokenizer() if pattern is None else RegexTokenizer(pattern)


def trained(pattern=GPT4_SPLIT_PATTERN, vocab_size=270, texts=FIRST, **how):
    tokenizer = make(pattern)
    tokenizer.train_from_iterator(texts, vocab_size, **how)
    return tokenizer


def state(tokenizer):
    """All that extending may change."""
    statistics = tokenizer._model.statistics
    numbers = statistics and (statistics.counts.tolist(), statistics.tokens.tolist(), statistics.total_bytes)
    return tokenizer.merges, tokenizer.vocab, tokenizer.special_tokens, numbers


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("specials", [None, ["<end>"]])
def test_a_tokenizer_is_continued_on_other_texts(pattern, specials):
    tokenizer = trained(pattern)
    known = tokenizer.merges
    store = ChunkStore.from_iterator(SECOND, pattern, special_tokens=specials)
    tokenizer.extend(store, 290, special_tokens=specials)
    counted = list(store)
    merges, counts = reference.learn_counted(counted, 34, 1, known)
    assert list(tokenizer.merges)[:14] == list(known)
    assert tokenizer.special_tokens == ({"<end>": 290} if specials else {})
    totals = reference.token_totals(counted, merges)
    assert state(tokenizer) == (
        merges,
        reference.vocab(merges),
        tokenizer.special_tokens,
        (counts, totals[1:], store.total_bytes),
    )
    parts = [part for text in SECOND for part in reference.cut_at_specials(text, specials or [])]
    n_ids = sum(len(tokenizer.encode_ordinary(part)) for part in parts if part != "<end>" or not specials)
    assert n_ids == tokenizer.compression_curve().tokens[-1] == totals[-1]
    assert len(store) == len(counted)           # it can be used again


def test_files_are_taken_as_train_from_files_takes_them(tmp_path):
    paths = []
    for i, text in enumerate(SECOND):
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_text(text, encoding="utf-8", newline="")
    expected = trained()
    expected.extend(ChunkStore.from_iterator(SECOND, special_tokens=["<end>"]), 280, special_tokens={"<end>": 1000})
    for source in (paths, iter(paths)):
        tokenizer = trained()
        tokenizer.extend(source, 280, special_tokens={"<end>": 1000}, num_threads=2, progress=False)
        assert state(tokenizer) == state(expected)
    one, other = trained(), trained()
    one.extend(str(paths[0]), 275)
    other.extend(ChunkStore.from_iterator(SECOND[:1]), 275)
    assert state(one) == state(other)
    paths[0].write_bytes(b"the \xff mat")
    before = state(one)
    with pytest.raises(CorpusDecodeError):
        one.extend(paths[0], 300)
    with pytest.raises(FileNotFoundError):
        one.extend(tmp_path / "none.txt", 300)
    assert state(one) == before
    one.extend(paths[0], 276, errors="replace")
    assert one.compression_curve().tokens[0] == len("the \ufffd mat".encode())


def test_extending_on_the_same_corpus_is_one_training():
    store = ChunkStore.from_iterator(FIRST + SECOND)
    whole = RegexTokenizer()
    whole.train_from_chunks(store, 300)
    for size in (256, 257, 280, 300):
        tokenizer = whole.truncated(size)
        tokenizer.extend(store, 300)
        assert state(tokenizer) == state(whole)


def test_with_no_new_merges_the_statistics_are_of_the_new_corpus():
    tokenizer = trained()
    merges = tokenizer.merges
    tokenizer.extend(ChunkStore.from_iterator(SECOND), 270)
    assert tokenizer.merges == merges
    assert tokenizer.compression_curve().tokens[-1] == sum(len(tokenizer.encode(text)) for text in SECOND)


def test_min_frequency_is_for_new_merges():
    tokenizer = trained()
    with pytest.warns(UserWarning, match=r"at a vocabulary of 27\d instead of 400: no pair occurs 3 times"):
        tokenizer.extend(ChunkStore.from_iterator(SECOND), 400, min_frequency=3)
    counts = tokenizer._model.statistics.counts
    assert counts[:14].min() < 3 <= counts[14:].min()
    with pytest.warns(UserWarning, match="there is no text"):
        tokenizer.extend(ChunkStore.from_iterator([]), 1000)
    tokenizer = trained()
    tokenizer.extend(ChunkStore.from_iterator(SECOND), 270, min_count=2)
    assert tokenizer.compression_curve().tokens[0] == ChunkStore.from_iterator(SECOND).pruned(2).total_bytes


def test_lines_are_numbered_through(capsys):
    tokenizer = trained(texts=["aaab aaab"], vocab_size=258)
    tokenizer.extend(ChunkStore.from_iterator(["aaab aaab"]), 259, verbose=True)
    assert capsys.readouterr().out == "merge 3/3: (257, 98) -> 258 (b'aaab') had 2 occurrences\n"


# ---- special tokens


def test_special_tokens_on_ids_that_are_needed_are_refused_before_anything_is_counted():
    tokenizer = trained(special_tokens=["<end>", "<pad>"])
    before = state(tokenizer)
    for how in ({}, {"special_tokens": {"<x>": 279}}):
        with pytest.raises(SpecialTokenError, match=r"a new merge needs: pass special_tokens=\[\.\.\.\].*from 280 on"):
            tokenizer.extend("/no/such/file", 280, **how)
    assert state(tokenizer) == before
    tokenizer.extend(ChunkStore.from_iterator(SECOND), 280, special_tokens=["<end>", "<pad>"])
    assert tokenizer.special_tokens == {"<end>": 280, "<pad>": 281}
    tokenizer.register_special_tokens({"<end>": 300, "<pad>": 290})
    tokenizer.extend(ChunkStore.from_iterator(SECOND), 290)
    assert tokenizer.special_tokens == {"<end>": 300, "<pad>": 290}


# ---- which tokenizers can be continued


def test_a_smaller_size_is_refused():
    tokenizer = trained()
    for size in (255, 256, 269):
        with pytest.raises(VocabSizeError):
            tokenizer.extend(ChunkStore.from_iterator(SECOND), size)
    with pytest.raises(ChunkStoreError, match="pattern"):
        tokenizer.extend(ChunkStore.from_iterator(SECOND, r"\w+"), 280)
    with pytest.raises(TypeError):
        tokenizer.extend(5, 280)


@pytest.mark.parametrize(
    ("merges", "message"),
    [
        ({(97, 98): 256, (256, 99): 258}, r"\(256, 99\) -> 258 stands where id 257 belongs"),
        ({(97, 98): 257}, r"\(97, 98\) -> 257 stands where id 256 belongs"),
        ({(97, 98): 256, (98, 97): 256}, r"-> 256 stands where id 257 belongs"),
        ({(97, 257): 256, (98, 97): 257}, r"lower ids: \(97, 257\) -> 256"),
        ({(97, 256): 256}, r"\(97, 256\) -> 256"),
        ({(97, 98): 50}, r"-> 50 stands where id 256 belongs"),
    ],
)
def test_merges_that_are_numbered_otherwise_are_refused(merges, message):
    tokenizer = RegexTokenizer()
    tokenizer.merges = merges
    with pytest.raises(ValueError, match=message):
        tokenizer.extend(ChunkStore.from_iterator(SECOND), 280)
    assert tokenizer.merges == merges


def test_merges_made_by_hand_are_continued_in_the_order_of_their_ids():
    tokenizer = BasicTokenizer()
    tokenizer.merges = {(256, 101): 257, (116, 104): 256, (120, 121): 258, (97, 97): 259, (259, 97): 260}
    tokenizer.vocab = {5: b"nothing"}
    known = dict(sorted(tokenizer.merges.items(), key=lambda item: item[1]))
    store = ChunkStore.from_iterator(FIRST, None)
    tokenizer.extend(store, 280)
    merges, counts = reference.learn_counted(list(store), 24, 1, known)
    assert list(tokenizer.merges.items()) == list(merges.items())
    assert tokenizer.vocab == reference.vocab(merges)
    assert tokenizer._model.statistics.counts.tolist() == counts


@given(st.permutations(range(256)), chunks_of_few_letters, st.integers(0, 9), st.integers(0, 20))
def test_permuted_bytes_are_continued(permutation, counted, n_known, more):
    """As in OpenAI's encodings, where the id of a byte is another number."""
    byte_ids = bytes(permutation)
    counted = [(chunk, count) for chunk, count in counted if chunk]
    shuffled = [(chunk.translate(byte_ids), count) for chunk, count in counted]
    known, _ = reference.learn_counted(shuffled, n_known)
    merges, counts = reference.learn_counted(shuffled, n_known + more, 1, known)
    tokenizer = BasicTokenizer()
    pairs = np.array(list(known), np.uint32).reshape(-1, 2)
    tokenizer._model = Model(pairs=pairs, byte_ids=byte_ids)
    values, offsets, data = arrays(counted)
    store = ChunkStore(None, values, np.arange(len(counted), dtype=np.uint64), offsets, data)
    tokenizer.extend(store, 256 + len(merges))
    assert tokenizer.merges == merges
    assert tokenizer._model.statistics.counts.tolist() == counts
    total = sum(len(tokenizer._encode_chunk(chunk)) * count for chunk, count in counted)
    assert total == tokenizer.compression_curve().tokens[-1]
    for chunk, _ in counted:
        assert tokenizer.decode_bytes(tokenizer._encode_chunk(chunk)) == chunk


def test_training_anew_forgets_permuted_bytes():
    tokenizer = BasicTokenizer()
    tokenizer._model = Model(byte_ids=bytes(reversed(range(256))))
    tokenizer.train("abab", 257)
    assert tokenizer.encode("ab") == [256]
    assert tokenizer.decode([97, 256]) == "aab"


def test_classes_that_encode_their_own_way_and_published_encodings_are_refused():
    class Shuffled(RegexTokenizer):
        def _encode_chunk(self, text_bytes):
            return super()._encode_chunk(bytes(255 - byte for byte in text_bytes))

    tokenizer = Shuffled()
    tokenizer.train("hello hello", 258)
    with pytest.raises(ValueError, match="Shuffled encodes in a way of its own"):
        tokenizer.extend(ChunkStore.from_iterator(SECOND), 280)
    with pytest.raises(NotImplementedError, match="complete as it is"):
        GPT4Tokenizer().extend(ChunkStore.from_iterator(SECOND), 200_000)

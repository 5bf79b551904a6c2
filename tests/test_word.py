"""WordTokenizer: its merges, ids and texts are those of tests/reference.py and of subword-nmt."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import reference
import regex
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

import cbpe
from cbpe import ChunkStore, WordTokenizer
from cbpe.encoding.words import WordEncoder, first_merges
from cbpe.splitting.words import WORD_PATTERN, WordSplitter

pytestmark = pytest.mark.native

# few characters of all lengths of UTF-8, some sharing all bytes but the last; U+00FF; what Python takes for spaces
LETTERS = "ab" + "éêÿ" + "中丮\u3000" + "😀😁" + "\t\x85\xa0"
PAPER = "low " * 5 + "lower " * 2 + "newest " * 6 + "widest " * 3

words = st.text(st.sampled_from(LETTERS), min_size=1, max_size=8)
corpora = st.lists(words, max_size=30)
versions = st.sampled_from(["0.1", "0.2"])
ties = st.sampled_from(["greatest", "first"])


def trained(corpus: list[str], num_merges: int, **how: str) -> WordTokenizer:
    tokenizer = WordTokenizer(**how)
    tokenizer.train_from_iterator([" ".join(corpus)], num_merges=num_merges)
    return tokenizer


def pairs_of(tokenizer: WordTokenizer) -> list[tuple[str, str]]:
    vocab = tokenizer.vocab
    return [(vocab[left].decode(), vocab[right].decode()) for left, right in tokenizer.merges]


# ---- training

@pytest.mark.filterwarnings("ignore:training stopped")
@examples(100)
@given(corpora, versions, ties, st.integers(0, 20))
def test_merges_are_the_references(corpus: list[str], version: str, tie: str, num_merges: int) -> None:
    tokenizer = trained(corpus, num_merges, version=version, ties=tie)
    assert pairs_of(tokenizer) == reference.learn_words(corpus, num_merges, 2, tie, version)
    assert tokenizer.alphabet == "".join(sorted(set("".join(corpus))))


@pytest.mark.filterwarnings("ignore:training stopped")
@examples(100)
@given(st.lists(st.text("a", min_size=1, max_size=20), max_size=12), ties, versions)
def test_runs_of_one_character_are_merged_as_the_reference_does(corpus: list[str], tie: str, version: str) -> None:
    tokenizer = trained(corpus, 30, ties=tie, version=version)
    assert pairs_of(tokenizer) == reference.learn_words(corpus, 30, 2, tie, version)


@pytest.mark.filterwarnings("ignore:training stopped")
def test_many_ties_over_several_stages_are_the_references() -> None:
    rng = random.Random(5)
    corpus = ["".join(rng.choices("abcdé中", k=rng.randint(1, 7))) for _ in range(600)]
    for tie in ("greatest", "first"):
        assert pairs_of(trained(corpus, 250, ties=tie)) == reference.learn_words(corpus, 250, 2, tie)


def test_more_merges_than_there_is_room_for_at_first() -> None:
    rng = random.Random(6)
    corpus = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(400)] * 2
    assert pairs_of(trained(corpus, 800)) == reference.learn_words(corpus, 800)


def test_the_papers_example_gives_the_papers_merges() -> None:
    tokenizer = WordTokenizer(version="0.1", ties="first")
    tokenizer.train(PAPER, num_merges=10)
    assert [left + right for left, right in pairs_of(tokenizer)] == [
        "es", "est", "est</w>", "lo", "low", "ne", "new", "newest</w>", "low</w>", "wi",
    ]


def test_verbose_prints_subword_nmts_lines(capsys: pytest.CaptureFixture[str]) -> None:
    WordTokenizer().train("low low lower lower é é", num_merges=3, verbose=True)
    assert capsys.readouterr().out.splitlines() == [
        "pair 0: l o -> lo (frequency 4)",
        "pair 1: w e -> we (frequency 2)",
        "pair 2: we r</w> -> wer</w> (frequency 2)",
    ]


def test_greatest_does_not_depend_on_the_order_of_the_corpus() -> None:
    merges = set()
    for seed in range(5):
        corpus = PAPER.split() + ["abba", "baab"] * 2
        random.Random(seed).shuffle(corpus)
        tokenizer = WordTokenizer()
        tokenizer.train(" ".join(corpus), num_merges=8)
        merges.add(tuple(pairs_of(tokenizer)))
    assert len(merges) == 1


def test_training_stops_below_min_frequency_and_says_so() -> None:
    tokenizer = WordTokenizer()
    with pytest.warns(UserWarning, match="stopped at 1 merges instead of 9, a vocabulary of 9: no pair occurs 2 times"):
        tokenizer.train("ab ab cd", num_merges=9)
    with pytest.warns(UserWarning, match="stopped at 2 merges"):
        tokenizer.train("ab ab cd", num_merges=9, min_frequency=1)


def test_vocab_size_counts_the_alphabet_twice() -> None:
    tokenizer = WordTokenizer()
    tokenizer.train(PAPER, vocab_size=20 + 3)
    assert len(tokenizer.alphabet) == 10
    assert len(tokenizer.merges) == 3
    assert sorted(tokenizer.vocab) == list(range(23))
    with pytest.raises(cbpe.VocabSizeError, match="at least 20: the text has 10 characters"):
        tokenizer.train(PAPER, vocab_size=19)
    assert len(tokenizer.merges) == 3
    with pytest.raises(TypeError, match="either vocab_size"):
        tokenizer.train(PAPER)
    with pytest.raises(TypeError, match="either vocab_size"):
        tokenizer.train(PAPER, 30, num_merges=3)


def test_all_ways_to_train_are_one(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    text = PAPER.replace(" ", "\n") * 3
    path.write_text(text)
    one = WordTokenizer()
    one.train(text, num_merges=8)
    two = WordTokenizer()
    two.train_from_files(path, num_merges=8, num_threads=2)
    three = WordTokenizer()
    three.train_from_iterator(text.split("\n"), num_merges=8)
    four = WordTokenizer()
    four.train_from_chunks(ChunkStore.from_files(path, pattern=one.pattern), num_merges=8)
    five = WordTokenizer()
    five.train_from_files(path, num_merges=8, memory_limit="64MB")
    assert one.merges == two.merges == three.merges == four.merges == five.merges
    with pytest.raises(cbpe.ChunkStoreError, match="pattern"):
        four.train_from_chunks(ChunkStore.from_files(path), num_merges=8)


def test_a_file_is_cut_into_parts_where_lines_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    corpus = ["".join(rng.choices("abé中", k=rng.randint(1, 5))) for _ in range(3000)]
    path = tmp_path / "corpus.txt"
    path.write_text("".join(word + rng.choice([" ", "\n", "\n\n", " \n"]) for word in corpus), encoding="utf-8")
    monkeypatch.setattr("cbpe.training.corpus.PART", 100)
    for tie in ("first", "greatest"):
        tokenizer = WordTokenizer(ties=tie)
        tokenizer.train_from_files(path, num_merges=40, num_threads=2)
        assert pairs_of(tokenizer) == reference.learn_words(corpus, 40, 2, tie)


def test_lower_casing_is_done_before_counting_and_encoding() -> None:
    text = "Low LOW low ΑΣ ασ Σ İ"
    lower = WordTokenizer(lower=True)
    lower.train(text, num_merges=3, min_frequency=1)
    plain = WordTokenizer()
    plain.train(text.lower(), num_merges=3, min_frequency=1)
    assert lower.merges == plain.merges
    assert lower.alphabet == plain.alphabet
    assert lower.encode("LoW İΣ ΑΣ") == plain.encode("LoW İΣ ΑΣ".lower())
    assert lower.segment("LoW") == plain.segment("low")
    again = WordTokenizer(lower=True)
    again.train_from_chunks(ChunkStore.from_iterator([text], pattern=WORD_PATTERN), num_merges=3, min_frequency=1)
    assert again.merges == lower.merges


def test_a_word_pattern_says_what_words_are() -> None:
    pattern = r"\w+|[^\w\s]+"
    tokenizer = WordTokenizer(pattern)
    tokenizer.train("low, low! lower.\tlow", num_merges=2)
    assert pairs_of(tokenizer) == reference.learn_words(["low", ",", "low", "!", "lower", ".", "low"], 2)
    ids = reference.word_vocab(tokenizer.alphabet, pairs_of(tokenizer))
    assert tokenizer.encode("low,lower") == [ids["low</w>"], ids[",</w>"], ids["lo"], ids["w"], ids["e"], ids["r</w>"]]
    assert tokenizer.decode(tokenizer.encode("low,lower")) == "low , lower"


def test_rare_words_may_be_left_out() -> None:
    tokenizer = WordTokenizer()
    store = ChunkStore.from_iterator(["low low lower lower once"], pattern=tokenizer.pattern)
    tokenizer.train_from_chunks(store, num_merges=2, min_count=2)
    assert tokenizer.alphabet == "elorw"


def test_special_tokens_are_left_out_and_numbered_behind_the_merges() -> None:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train("low<e>low low", num_merges=1, special_tokens=["<e>"])
    assert tokenizer.alphabet == "low"
    assert tokenizer.special_tokens == {"<e>": 7, "<unk>": 8}
    assert tokenizer.encode("low<e>lox", allowed_special="all") == [0, 6, 7, 0, 1, 8]
    with pytest.raises(cbpe.DisallowedSpecialTokenError):
        tokenizer.encode("low<e>")
    assert tokenizer.decode([0, 6, 7, 0, 1, 8]) == "low <e>lo<unk>"
    tokenizer.register_special_tokens({"<e>": 9})
    with pytest.raises(cbpe.SpecialTokenError, match="not free"):
        tokenizer.register_special_tokens({"<e>": 6})


def test_a_training_that_fails_leaves_the_tokenizer_as_it_was() -> None:
    tokenizer = WordTokenizer()
    tokenizer.train(PAPER, num_merges=3)
    merges = tokenizer.merges
    for wrong in (lambda: tokenizer.train("\ud800", num_merges=1), lambda: tokenizer.train("a", num_merges=-1),
                  lambda: tokenizer.train("a", num_merges=1, special_tokens={"x": 0}),
                  lambda: tokenizer.train("a", num_merges=1, special_tokens=["x", "x"])):
        with pytest.raises(ValueError, match=r"surrogates|at least 0|not free|listed twice"):
            wrong()
    assert tokenizer.merges == merges
    assert tokenizer.alphabet == "deilnorstw"


# ---- encoding

@pytest.mark.filterwarnings("ignore:training stopped")
@examples(100)
@given(corpora, corpora, versions, ties)
def test_ids_are_the_references(corpus: list[str], others: list[str], version: str, tie: str) -> None:
    tokenizer = WordTokenizer(version=version, ties=tie, unk="<unk>")
    tokenizer.train_from_iterator([" ".join(corpus)], num_merges=15)
    merges = pairs_of(tokenizer)
    ids = reference.word_vocab(tokenizer.alphabet, merges, version)
    unk = tokenizer.special_tokens["<unk>"]
    assert unk == len(ids)
    expected = [
        [ids.get(symbol, unk) for symbol in reference.segment_word(word, merges, version)] for word in others
    ]
    text = " ".join(others)
    flat = [number for each in expected for number in each]
    assert tokenizer.encode(text) == flat
    assert tokenizer.encode_to_numpy(text).tolist() == flat
    assert tokenizer.count(text) == len(flat)
    assert tokenizer.encode_batch(others, num_threads=2) == expected
    array, offsets = tokenizer.encode_batch_to_numpy(others)
    assert [array[a:b].tolist() for a, b in itertools.pairwise(offsets)] == expected
    if set(text) <= {*tokenizer.alphabet, " "}:
        assert tokenizer.decode(flat) == text


def test_an_unknown_character_is_an_error_that_names_it() -> None:
    tokenizer = WordTokenizer()
    tokenizer.train("é 中 ab ab", num_merges=1)
    for text, shown in (("aé 丮b", "丮"), ("ê", "ê"), ("ab\tab", "\t"), ("😀", "😀"), ("中ÿ", "ÿ")):
        with pytest.raises(cbpe.UnknownCharacterError, match=f"U\\+{ord(shown):04X}"):
            tokenizer.encode(text)
        with pytest.raises(KeyError):
            tokenizer.encode_batch(["ab", text])
    assert tokenizer.encode("") == []
    assert WordTokenizer().encode(" \n") == []


def test_encode_file_encodes_documents_as_encode_does(tmp_path: Path) -> None:
    tokenizer = WordTokenizer()
    tokenizer.train(PAPER, num_merges=5)
    path = tmp_path / "text.txt"
    path.write_text(PAPER.replace(" ", "\n") * 20)
    assert tokenizer.encode_file(path, tmp_path / "ids.bin") == tokenizer.count(PAPER * 20)
    assert np.fromfile(tmp_path / "ids.bin", np.uint16).tolist() == tokenizer.encode(PAPER * 20)


@examples(100)
@given(st.text(st.sampled_from(" \r\nab\téİ"), max_size=30))
def test_words_are_what_the_pattern_says(text: str) -> None:
    fast = WordSplitter(WORD_PATTERN).split(text)
    assert fast == [chunk + b"\xff" for chunk in reference.split(text, WORD_PATTERN)]
    other = WordSplitter(r"[^\n\r ]+", marked=False)
    assert WordSplitter(WORD_PATTERN, marked=False).split(text) == other.split(text)


def test_words_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbpe.splitting.words._BLOCK", 3)
    text = "aé  \n\nb ccccc " + "d" * 10 + "\ne\r\n f"
    assert WordSplitter(WORD_PATTERN).split(text) == [word.encode() + b"\xff" for word in text.split()]


def test_characters_are_joined_only_by_their_own_bytes() -> None:
    alphabet = [character.encode() for character in sorted(LETTERS)]
    inner = first_merges(alphabet, True)
    assert len(inner.pairs) < 3 * len(alphabet) + len(alphabet)
    encoder = WordEncoder(inner._replace(outer=inner.outer), None)
    for i, character in enumerate(alphabet):
        assert encoder.encode_chunk(character * 2) == [i, len(alphabet) + i]


# ---- segments

@pytest.fixture(scope="module")
def subword_nmt():
    pytest.importorskip("subword_nmt")
    from subword_nmt import apply_bpe, learn_bpe

    return learn_bpe, apply_bpe


def learned_by_subword_nmt(learn_bpe, text: str, num_merges: int, min_frequency: int = 2) -> str:
    out = io.StringIO()
    errors, sys.stderr = sys.stderr, io.StringIO()
    try:
        learn_bpe.learn_bpe(io.StringIO(text), out, num_merges, min_frequency)
    finally:
        sys.stderr = errors
    return out.getvalue()


def text_of(seed: int, n: int) -> str:
    rng = random.Random(seed)
    chosen = ["".join(rng.choices("aaaabbbccdeé中😀", k=rng.randint(1, 9))) for _ in range(n)]
    return "".join(rng.choice(chosen) + rng.choice([" ", " ", "  ", "\n", " \n  "]) for _ in range(3 * n))


@pytest.mark.filterwarnings("ignore:training stopped")
@pytest.mark.parametrize("seed", range(4))
def test_merges_and_segments_are_subword_nmts(subword_nmt, seed: int, tmp_path: Path) -> None:
    learn_bpe, apply_bpe = subword_nmt
    text = text_of(seed, 150)
    codes = learned_by_subword_nmt(learn_bpe, text, 400)
    tokenizer = WordTokenizer()
    tokenizer.train(text, num_merges=400)
    tokenizer.save_codes(tmp_path / "codes")
    assert (tmp_path / "codes").read_text(encoding="utf-8") == codes
    other = text_of(seed + 10, 100) + "xyz a <> \n\n   \n é"
    bpe = apply_bpe.BPE(io.StringIO(codes))
    assert tokenizer.segment(other) == "".join(bpe.process_line(line) for line in io.StringIO(other))
    read = WordTokenizer.from_codes(tmp_path / "codes")
    assert read.segment(other) == tokenizer.segment(other)
    old = codes.removeprefix("#version: 0.2\n").replace("</w>", "")      # as if of version 0.1, with odd merges
    (tmp_path / "old").write_text("".join(line + "\n" for line in dict.fromkeys(old.splitlines())), encoding="utf-8")
    if seed == 0:
        bpe = apply_bpe.BPE(io.StringIO((tmp_path / "old").read_text(encoding="utf-8")))
        read = WordTokenizer.from_codes(tmp_path / "old")
        assert read.segment(other) == "".join(bpe.process_line(line) for line in io.StringIO(other))


@pytest.mark.filterwarnings("ignore:training stopped")
@examples(100)
@given(corpora, st.text(st.sampled_from(LETTERS + " \nx"), max_size=40), versions)
def test_segments_are_the_references(corpus: list[str], text: str, version: str) -> None:
    tokenizer = trained(corpus, 15, version=version)
    merges = pairs_of(tokenizer)
    expected = []
    for line in text.split("\n"):
        inner = line.strip(" ")
        symbols = [reference.segment_word(word, merges, version) for word in inner.split(" ") if word]
        pieces = [
            "@@ ".join(piece for symbol in each if (piece := symbol.removesuffix("</w>"))) for each in symbols
        ]
        left = line[: len(line) - len(line.lstrip(" "))]
        right = line[len(line.rstrip(" ")) :] if inner else ""
        expected.append(left + " ".join(pieces) + right)
    assert tokenizer.segment(text) == "\n".join(expected)


def test_glossaries_and_separators_are_subword_nmts(subword_nmt) -> None:
    learn_bpe, apply_bpe = subword_nmt
    text = text_of(1, 100)
    codes = learned_by_subword_nmt(learn_bpe, text, 50)
    tokenizer = WordTokenizer()
    tokenizer.train(text, num_merges=50)
    for glossaries in (["ab"], ["<tag>", "USA"], [r"\d+", "b+a"], ["abc", "bc"]):
        bpe = apply_bpe.BPE(io.StringIO(codes), separator="##", glossaries=glossaries)
        for line in [*text.splitlines(), "1934USABUSA a12b3 <tag>aab abab ab 99", "xbbbax abcbc\r\n"]:
            assert tokenizer.segment(line, "##", glossaries) == bpe.process_line(line)


# ---- the object

def test_what_is_saved_loads_as_it_was(tmp_path: Path) -> None:
    tokenizer = WordTokenizer(r"\S+", lower=True, version="0.1", unk="<unk>")
    tokenizer.train("Low low é 中 é\u2028 \"\\", num_merges=2, special_tokens=["<e>"])
    tokenizer.save(tmp_path / "words")
    loaded = WordTokenizer()
    loaded.load(tmp_path / "words.model")
    text = "Low é <e> zz"
    assert loaded.encode(text, "all") == tokenizer.encode(text, "all")
    for name in ("merges", "vocab", "pattern", "special_tokens", "alphabet"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    loaded.save(tmp_path / "again")
    for suffix in (".model", ".vocab"):
        assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / f"words{suffix}").read_bytes()
    assert loaded._model.sha256 == tokenizer._model.sha256


def test_copies_and_pickles_encode_alike() -> None:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train(PAPER, num_merges=5)
    for other in (copy.copy(tokenizer), copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert other.encode("lowest x") == tokenizer.encode("lowest x")


def test_truncated_is_what_training_for_less_gives() -> None:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train(PAPER, num_merges=8)
    smaller = WordTokenizer(unk="<unk>")
    smaller.train(PAPER, num_merges=3)
    cut = tokenizer.truncated(20 + 3)
    assert cut.merges == smaller.merges
    assert cut.special_tokens == smaller.special_tokens
    with pytest.raises(cbpe.VocabSizeError):
        tokenizer.truncated(19)


def test_what_does_not_go_with_words_is_refused() -> None:
    tokenizer = WordTokenizer()
    tokenizer.train(PAPER, num_merges=3)
    with pytest.raises(NotImplementedError, match="new characters"):
        tokenizer.extend("x", 300)
    with pytest.raises(cbpe.NoStatisticsError):
        tokenizer.compression_curve()
    with pytest.raises(ValueError, match="not those of bytes"):
        tokenizer._model.numbered_pairs()
    with pytest.raises(TypeError, match="store must be a ChunkStore, not str"):
        tokenizer.train_from_chunks("x", num_merges=1)
    with pytest.raises(TypeError, match="not a single str"):
        tokenizer.train("a", num_merges=1, special_tokens="x")
    tokenizer.special_tokens = {"<a>": 50}
    assert tokenizer.encode("<a>", allowed_special="all") == [50]
    with pytest.raises(ValueError, match="cannot be set"):
        tokenizer.merges = {}
    tokenizer.merges[1, 2] = 3
    with pytest.raises(ValueError, match="cannot be set"):
        tokenizer.encode("low")
    for wrong in ({"ties": "last"}, {"version": "0.3"}, {"unk": ""}):
        with pytest.raises(ValueError, match=r"ties|version|empty"):
            WordTokenizer(**wrong)
    with pytest.raises(TypeError, match="pattern must be a str"):
        WordTokenizer(re.compile("a"))
    with pytest.raises(regex.error):
        WordTokenizer("(")


def test_a_stream_and_offsets_have_a_space_behind_each_word() -> None:
    tokenizer = WordTokenizer()
    tokenizer.train(PAPER, num_merges=3)
    ids = tokenizer.encode("low newest")
    stream = cbpe.StreamDecoder(tokenizer)
    assert "".join(map(stream.feed, ids)) + stream.flush() == "low newest "
    assert tokenizer.decode_bytes(ids) == b"low newest "
    assert tokenizer.decode_batch([ids, ids[:1], []]) == ["low newest", tokenizer.decode(ids[:1]), ""]

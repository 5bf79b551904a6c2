"""Files of word-level BPE: what is read is what was written, and what is damaged is refused with its line."""

from __future__ import annotations

import gzip
import io
import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import cbpe
from cbpe import ModelFileError, WordTokenizer
from cbpe.formats.subword import Codes, alphabet_of, numbered, parse_codes

CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\n"


def from_text(tmp_path: Path, text: str | bytes, **how: object) -> WordTokenizer:
    path = tmp_path / "codes"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return WordTokenizer.from_codes(path, **how)


def test_ids_are_the_alphabet_its_ends_and_the_merges(tmp_path: Path) -> None:
    tokenizer = from_text(tmp_path, CODES, unk="<unk>")
    assert tokenizer.alphabet == "elorw"
    assert [tokenizer.vocab[i].decode() for i in range(13)] == [
        "e", "l", "o", "r", "w", "e</w>", "l</w>", "o</w>", "r</w>", "w</w>", "lo", "low</w>", "er</w>",
    ]
    assert tokenizer.special_tokens == {"<unk>": 13}
    assert tokenizer.encode("low lower x") == [11, 10, 4, 12, 13]
    assert from_text(tmp_path, CODES, alphabet="abc").alphabet == "abcelorw"


def test_a_file_of_fastbpe_is_read_as_one_of_version_2(tmp_path: Path) -> None:
    fast = from_text(tmp_path, "l o 120\nlo w</w> 33\ne r</w> 7\n")
    assert fast.merges == from_text(tmp_path, CODES).merges
    with pytest.raises(ModelFileError, match="codes: line 2: not two symbols and a count: 'lo w'"):
        from_text(tmp_path, "l o 120\nlo w\n")


def test_in_a_file_of_version_1_the_mark_is_a_symbol(tmp_path: Path) -> None:
    tokenizer = from_text(tmp_path, "l o\nw </w>\nlo w</w>\n")
    assert [token.decode() for token in tokenizer.vocab.values()] == ["l", "o", "w", "</w>", "lo", "w</w>", "low</w>"]
    assert tokenizer.encode("low lo w wo") == [6, 4, 3, 5, 2, 1, 3]
    assert tokenizer.segment("low lo wo") == "low lo w@@ o"
    with pytest.raises(ModelFileError, match=r"line 2: 'w</w>' is neither a character nor .* in a file of"):
        from_text(tmp_path, CODES.removeprefix("#version: 0.2\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#version: 0.3\na b\n", "line 1: not a version that is known"),
        ("#version: 10.2\na b\n", "line 1: not a version that is known"),
        ("#version: 0.2\na b\nab\n", "line 3: not two symbols: 'ab'"),
        ("#version: 0.2\na b\n\nab c\n", "line 3: not two symbols"),
        ("#version: 0.2\na b c\n", "line 2: not two symbols: 'a b c'"),
        ("#version: 0.2\na  b\n", "line 2: not two symbols"),
        (b"#version: 0.2\na b\nab \xff\n", "line 3: not UTF-8"),
        ("#version: 0.2\na b\nabc d\n", "line 3: 'abc' is neither a character nor made by a line before"),
        ("#version: 0.2\na</w> b\n", "line 2: 'a</w>' ends a word"),
        ("#version: 0.2\n< /\n</ w\n</w >\na </w>\n", "line 5: 'a</w>' could be two symbols"),
        ("\x00\x01\x02", "line 1: not two symbols"),
    ],
)
def test_damaged_files_are_refused_with_the_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        from_text(tmp_path, text)


def test_line_ends_and_empty_files(tmp_path: Path) -> None:
    assert from_text(tmp_path, CODES.replace("\n", "\r\n")).merges == from_text(tmp_path, CODES).merges
    assert from_text(tmp_path, CODES + "\n\n").merges == from_text(tmp_path, CODES.rstrip("\n")).merges
    for text in ("", "#version: 0.2\n"):
        assert from_text(tmp_path, text).merges == {}


def test_a_pair_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    assert from_text(tmp_path, CODES + "l o\n").merges == from_text(tmp_path, CODES).merges


def random_codes(seed: int, version: str) -> list[tuple[str, str]]:
    """Merges that no training gives: several pairs for one symbol, in any order."""
    rng = random.Random(seed)
    symbols = ["a", "b"]
    ends = ["</w>"] if version == "0.1" else ["a</w>", "b</w>"]
    pairs: list[tuple[str, str]] = []
    for _ in range(rng.randint(1, 25)):
        pair = rng.choice(symbols), rng.choice(symbols + ends)
        if len("".join(pair)) < 10 and pair not in pairs:
            pairs.append(pair)
            made = "".join(pair)
            kind = ends if made.endswith("</w>") else symbols
            if made not in kind:
                kind.append(made)
    return pairs


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("seed", range(60))
def test_symbols_that_several_pairs_make_are_encoded_as_strings(tmp_path: Path, seed: int, version: str) -> None:
    pairs = random_codes(seed, version)
    text = ("#version: 0.2\n" if version == "0.2" else "") + "".join(f"{left} {right}\n" for left, right in pairs)
    try:
        tokenizer = from_text(tmp_path, text, alphabet="ab")
    except ModelFileError as error:         # the pair that makes a symbol stands behind one that needs it
        assert "made by a line before" in str(error)    # noqa: PT017
        return
    words = ["".join(letters) for n in range(1, 10) for letters in itertools.product("ab", repeat=n)]
    for word in [*random.Random(seed).sample(words, 120), "a" * 20, "b" * 19, "ab" * 9]:
        expected = reference.segment_word(word, pairs, version)
        found = [tokenizer.vocab[number].decode() for number in tokenizer.encode(word)]
        assert found == expected


def test_symbols_of_several_pairs_are_those_of_subword_nmt() -> None:
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe")
    for seed in range(40):
        pairs = random_codes(seed, "0.2")
        text = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in pairs)
        bpe = apply_bpe.BPE(io.StringIO(text))
        codes = parse_codes(text.encode(), "codes")
        try:
            numbered(codes, "ab")
        except ModelFileError:
            continue
        line = " ".join("".join(random.Random(seed).choices("ab", k=1 + n % 12)) for n in range(50))
        symbols = [reference.segment_word(word, pairs) for word in line.split()]
        assert bpe.segment(line) == " ".join(
            "@@ ".join(symbol.removesuffix("</w>") for symbol in each) for each in symbols
        )


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_codes_or_an_error_that_says_why(data: bytes) -> None:
    try:
        codes = parse_codes(data, "name")
        numbered(codes, alphabet_of(codes))
    except ModelFileError as error:
        assert "name: line " in str(error)      # noqa: PT017


def test_what_a_codes_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "codes"
    for pattern, text in ((r".+", "a b"), (None, "</w>a </w>a x</w> x</w>y")):
        tokenizer = WordTokenizer(pattern)
        with pytest.warns(UserWarning, match="stopped"):
            tokenizer.train(text, num_merges=30, min_frequency=1)
        with pytest.raises(ModelFileError, match="a codes file cannot hold"):
            tokenizer.save_codes(path)
        assert not path.exists()
        tokenizer.save(tmp_path / "own")
        loaded = WordTokenizer()
        loaded.load(tmp_path / "own.model")
        assert loaded.encode(text) == tokenizer.encode(text)


def test_codes_of_a_training_give_its_ids(tmp_path: Path) -> None:
    for version in ("0.1", "0.2"):
        tokenizer = WordTokenizer(version=version)
        tokenizer.train("low low lower newest newest é 中\t", num_merges=4)
        tokenizer.save_codes(tmp_path / "codes")
        read = WordTokenizer.from_codes(tmp_path / "codes", alphabet=tokenizer.alphabet)
        assert read.vocab == tokenizer.vocab
        assert read.merges == tokenizer.merges


def test_a_model_file_is_refused_with_the_line_that_is_wrong(tmp_path: Path) -> None:
    tokenizer = WordTokenizer(unk="<unk>")
    tokenizer.train("low low lower lower", num_merges=3)
    tokenizer.save(tmp_path / "words")
    path = tmp_path / "words.model"
    good = path.read_text()
    lines = good.splitlines(keepends=True)
    assert lines[0] == "cbpe words v1\n"

    def refused(text: str, message: str) -> None:
        path.write_text(text)
        other = WordTokenizer()
        with pytest.raises(ModelFileError, match=message):
            other.load(path)
        assert other.vocab == WordTokenizer().vocab

    refused("minbpe v1\n\n0\n", "line 1: not a WordTokenizer")
    refused("", "line 1: not a WordTokenizer")
    refused(lines[0], "line 2: not the settings")
    refused(lines[0] + "[]\n", "line 2: the settings are no JSON object")
    refused(good.replace('"elorw"', "3"), "line 2: 'alphabet' is missing or no str")
    refused(good.replace('"elorw"', '"eeorw"'), "line 2: the alphabet holds a character twice")
    refused(good.replace('"elorw"', '"el\\ud800rw"'), "line 2: .*surrogates")
    refused(good.replace('"0.2"', '"0.7"'), "line 2: not a version")
    refused(good.replace('"unk": "<unk>"', '"unk": 5'), "line 2: 'unk' is no str")
    refused(good.replace("{\"<unk>\": 13}", "{\"<unk>\": 3}"), "line 2: .*not free")
    refused(good.replace(r"[^ \\r\\n]+", "("), "line 2: ")
    refused(good + "1 99\n", "line 6: not two ids of symbols before it: '1 99'")
    refused(good + lines[2], "line 6: these two are merged by a line before")
    refused(good + "1 2", "line 6: cut short")
    path.write_text(good.replace("\n", "\r\n"), newline="")
    loaded = WordTokenizer()
    loaded.load(path)
    assert loaded.vocab == tokenizer.vocab


def test_other_tokenizers_refuse_a_model_of_words(tmp_path: Path) -> None:
    tokenizer = WordTokenizer()
    tokenizer.train("low low", num_merges=1)
    tokenizer.save(tmp_path / "words")
    with pytest.raises(ModelFileError, match="line 1"):
        cbpe.RegexTokenizer().load(tmp_path / "words.model")


def test_codes_have_an_alphabet_in_order() -> None:
    assert alphabet_of(Codes("0.2", [("b", "a</w>"), ("é", "</w>")])) == ["/", "<", ">", "a", "b", "w", "é"]
    assert alphabet_of(Codes("0.1", [("b", "a"), ("é", "</w>")])) == ["a", "b", "é"]
    assert numbered(Codes("0.2", [("b", "a</w>")]), "ab").tolist() == [[1, 2]]
    assert numbered(Codes("0.2", []), "ab").dtype == np.uint32


def test_a_damaged_file_of_clip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "clip.txt.gz"
    for data, message in (
        (b"in t\n", "line 1: not CLIP's merges"),
        (b'"bpe_simple_vocab_16e6.txt#version: 0.2\ni n\nt h e\n', "line 3: not two symbols"),
        (b'"bpe_simple_vocab_16e6.txt#version: 0.2\ni n\nt h\n', "ends after 2 merges"),
    ):
        for packed in (data, gzip.compress(data)):
            path.write_bytes(packed)
            with pytest.raises(ModelFileError, match=message):
                WordTokenizer.from_clip(path, clean=None)
    packed = gzip.compress(b"abc" * 100)
    for data in (packed[:-9], packed[:10] + b"\xff" + packed[11:]):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match="damaged"):
            WordTokenizer.from_clip(path, clean=None)

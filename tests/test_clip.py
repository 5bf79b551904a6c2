"""CLIP's tokenizer: ids are those that open_clip's SimpleTokenizer gave for tests/data/clip.json."""

from __future__ import annotations

import html
import importlib.util
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from published import VOCAB

import cbpe
from cbpe import WordTokenizer
from cbpe.clip import _unescaped

FILES = [
    VOCAB / "clip_bpe_simple_vocab_16e6.txt.gz",
    Path(__file__).parent / "data" / "bpe_simple_vocab_16e6.txt.gz",
]
RECORDED = json.loads((Path(__file__).parent / "data" / "clip.json").read_text())


@pytest.fixture(scope="module")
def path() -> Path:
    """CLIP's file, of open_clip if that is installed."""
    found = importlib.util.find_spec("open_clip")
    places = [*FILES, *(Path(each) / "bpe_simple_vocab_16e6.txt.gz" for each in found.submodule_search_locations)] if (
        found and found.submodule_search_locations) else FILES
    for place in places:
        if place.exists():
            return place
    pytest.skip("CLIP's file is not here")


@pytest.fixture(scope="module")
def clip(path: Path) -> WordTokenizer:
    pytest.importorskip("ftfy")
    return WordTokenizer.from_clip(path)


@pytest.mark.parametrize("clean", ["lower", "whitespace", "canonicalize"])
def test_ids_are_those_that_open_clip_gave(path: Path, clean: str) -> None:
    pytest.importorskip("ftfy")
    tokenizer = WordTokenizer.from_clip(path, clean=clean)
    texts = [text for text, _ in RECORDED[clean]]
    expected = [ids for _, ids in RECORDED[clean]]
    assert [tokenizer.encode(text) for text in texts] == expected
    assert tokenizer.encode_batch(texts, num_threads=2) == expected
    flat, offsets = tokenizer.encode_batch_to_numpy(texts)
    assert flat.tolist() == [number for ids in expected for number in ids]
    assert np.diff(offsets).tolist() == [len(ids) for ids in expected]
    assert [tokenizer.count(text) for text in texts] == [len(ids) for ids in expected]
    assert tokenizer.encode_to_numpy(texts[-1]).tolist() == expected[-1]


def test_ids_are_those_of_open_clip_where_it_is_installed(path: Path) -> None:
    tokenizer = pytest.importorskip("open_clip.tokenizer")
    theirs, ours = tokenizer.SimpleTokenizer(), WordTokenizer.from_clip(path)
    for text, _ in RECORDED["lower"]:
        assert ours.encode(text) == theirs.encode(text)


@pytest.mark.parametrize(
    "text", ["&#233;", "&#00233x", "&#0", "&#000;", "&#99999999;a", "&#1114112;", "&#55296", "&#&#65;", "&amp;"]
)
def test_entities_are_those_of_html(text: str) -> None:
    assert _unescaped(text) == html.unescape(text)


def test_a_number_that_no_int_may_have_is_no_character() -> None:
    assert _unescaped("a&#" + "1" * 100_000 + ";b&#" + "0" * 100_000 + "65;") == "a\ufffdbA"


def test_special_tokens_are_found_as_open_clip_finds_them(clip: WordTokenizer) -> None:
    assert clip.special_tokens == {"<start_of_text>": 49406, "<end_of_text>": 49407}
    assert clip.encode("<start_of_text>a cat &lt;END_of_text&gt;") == [49406, 320, 2368, 49407]
    assert 49407 not in clip.encode("!<end_of_text>")
    text = "cat <end_of_text><start_of_text>"
    assert clip.encode(text, {"<end_of_text>"})[:2] == [2368, 49407]
    assert 49406 not in clip.encode(text, {"<end_of_text>"})
    assert clip.encode(text, "none") == clip.encode_ordinary(text)
    assert max(clip.encode_ordinary(text)) < 49406
    with pytest.raises(cbpe.DisallowedSpecialTokenError, match="<end_of_text>"):
        clip.encode("&lt;end_of_text&gt;", "none_raise")
    with pytest.raises(ValueError, match="allowed_special"):
        clip.encode("a", "some")


def test_decoding_puts_spaces_between_words(clip: WordTokenizer) -> None:
    assert clip.decode([49406, 320, 1125, 539, 320, 2368, 49407]) == "<start_of_text>a photo of a cat <end_of_text>"
    assert clip.decode(clip.encode("Caf&eacute; 😀!")) == "café 😀!"
    assert sorted(clip._model.vocab(with_specials=True)) == list(range(49408))


def test_files_are_cleaned_too(clip: WordTokenizer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Caf&eacute;\n  A Cat\n", encoding="utf-8")
    n = clip.encode_file(tmp_path / "text.txt", tmp_path / "ids.bin", eot="<end_of_text>")
    assert np.fromfile(tmp_path / "ids.bin", np.uint16).tolist() == [*clip.encode("café a cat"), 49407]
    assert n == 4


def test_it_is_pickled_and_not_trained(clip: WordTokenizer, tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(clip)).encode("A Cat") == [320, 2368]
    for call in (lambda: clip.train("a", 600), lambda: clip.save(tmp_path / "a"), lambda: clip.segment("a"),
                 lambda: clip.save_codes(tmp_path / "a"), lambda: clip.extend("a", 9), lambda: clip.truncated(600)):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.raises(UnicodeEncodeError):
        clip.encode("\ud800")
    with pytest.raises(AttributeError, match="that of all bytes"):
        _ = clip.alphabet


def test_cleaning_needs_ftfy_or_is_left_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ftfy", None)
    with pytest.raises(ImportError, match=r"cbpe\[clip\]"):
        WordTokenizer.from_clip(path)
    with pytest.raises(ValueError, match="clean must be"):
        WordTokenizer.from_clip(path, clean="upper")
    plain = WordTokenizer.from_clip(path, clean=None)
    assert plain.encode("a photo of a cat") == [320, 1125, 539, 320, 2368]
    assert plain.encode_batch(["a cat", "<end_of_text>"]) == [[320, 2368], [49407]]

"""tokenizer.json files, read and written, against Hugging Face's own libraries.

No file can be fetched here: files in the layouts of published ones are made of what is trained here, and of published
vocabularies where published.py says.
"""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import random
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import regex
from budget import mostly_thorough, thorough, times
from layouts import LAYOUTS, all_merges, build, byte_level, sequence, split, token
from published import VOCAB

import cbpe
from cbpe import BasicTokenizer, GPT4Tokenizer, RegexTokenizer, WordTokenizer
from cbpe.errors import ExportError, ModelFileError
from cbpe.formats.alphabet import ALPHABET, text_of
from cbpe.formats.oniguruma import from_oniguruma, to_oniguruma
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting.stages import Stages

tokenizers = pytest.importorskip("tokenizers")


NASTY = [
    "", " ", "  ", "\n", "\r\n\r\n", "a", " a", "a ", "hello world", "Hello, World!  It's 1234567 o'clock, I'LL say",
    "x = [1, 22, 333, 4444]\n\tif a==b:\r\n\t\treturn  None\n\n\n", "  leading, trailing   \n  ",
    "naïve cafe\u0301 ﬁ Å A\u030a", "中文文本，日本語のテキスト。カタカナ 한국어", "Привет, мир! नमस्ते दुनिया",
    "שָׁלוֹם ไทย", "👋🏽👨\u200d👩\u200d👧 ❤\ufe0f \u200b\ufeff\xad", "²³¹¼½¾ ò ó ù ½x ٣٤٥ Ⅻ 𝟘𝟙",
    "\0\x01\x7f\x80\x85\xa0\u2028\u2029", "a²a_a\u200da-a",
    "<|endoftext|>", "a<|endoftext|> b  <|im_start|>x", "the <mask>  ,<mask>", "<think>\n\n</think>\n<tool_call> {}",
    "<s>a</s><unk>", "[INST] hi", "<｜begin▁of▁sentence｜>Hi<｜fim▁hole｜>", ">>TITLE<<a", "<|begin_of_text|>\u3000",
    "<|reserved_special_token_7|>", " " * 30 + "x" + " " * 31, "\t" * 12 + "y", "a" * 200, "1" * 50, "!" * 50,
    "it'\u017f 's'S'\u017f'll'LL're'RE \u212a'\u0131", "(a|b) [c] s.t. …。，、।۔", "don't\u00a0'tis",
    "a\n\n\nb \n c\n \n\n  d", "\r\r\n\n x",
]  # fmt: skip
PIECES = [
    *"abcXYZ 0123456789\n\t\r .,'!?-_/()|", "é", "e\u0301", "猫", "カ", "ß", "😀", "the", " and", "ing ", "'ll", "\r\n",
    "  ", *NASTY,
]  # fmt: skip


def random_texts(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(PIECES, k=rng.randrange(1, 24))) for _ in range(times(n))]


@cache
def trained() -> RegexTokenizer:
    """A tokenizer that has learned something of every kind of text that is encoded here."""
    tokenizer = RegexTokenizer()
    own = (Path(__file__).parent / "layouts.py").read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train("\n".join([*NASTY * 3, own, *random_texts(300, 7)]), 2000)
    return tokenizer


def ranks_of(tokenizer: RegexTokenizer) -> dict[bytes, int]:
    """The tokens in the order of merging, the bytes as GPT-2 has them."""
    singles = sorted(range(256), key=lambda byte: ord(ALPHABET[byte]))
    longer = [token for token in tokenizer.vocab.values() if len(token) > 1]
    return {token: rank for rank, token in enumerate([*(bytes([byte]) for byte in singles), *longer])}


def merges_of(tokenizer: RegexTokenizer) -> list[tuple[str, str]]:
    vocab = tokenizer.vocab
    return [(text_of(vocab[left]), text_of(vocab[right])) for left, right in tokenizer.merges]


@cache
def layout(name: str) -> str:
    ranks = ranks_of(trained())
    return json.dumps(LAYOUTS[name](ranks, merges_of(trained()), all_merges(ranks)))


def assert_same(ours: RegexTokenizer, theirs, texts: list[str]) -> None:
    expected = [each.ids for each in theirs.encode_batch(texts, add_special_tokens=False)]
    got = ours.encode_batch(texts, allowed_special="all")
    for text, ids, right in zip(texts, got, expected, strict=True):
        assert ids == right, text
    for ids in expected[: len(NASTY)]:
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


# ---- reading


@pytest.mark.parametrize("name", mostly_thorough(LAYOUTS, "roberta", "deepseek-v3", "command-r", "mistral-nemo"))
def test_a_published_layout_encodes_as_in_tokenizers(name, tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(layout(name), encoding="utf-8")
    ours = RegexTokenizer.from_huggingface(path)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    assert_same(ours, theirs, NASTY + random_texts(300))
    vocab = theirs.get_vocab(with_added_tokens=True)
    assert sorted(ours._model.token_bytes) == sorted(vocab.values())
    for number in vocab.values():
        if theirs.id_to_token(number) is not None:
            assert ours.decode([number]) == theirs.decode([number], skip_special_tokens=False)

    # cbpe -> file -> tokenizers, and back
    ours.save_huggingface(tmp_path / "again.json")
    again = tokenizers.Tokenizer.from_file(str(tmp_path / "again.json"))
    assert_same(ours, again, NASTY + random_texts(300))
    assert again.get_vocab(with_added_tokens=True) == vocab
    twice = RegexTokenizer.from_huggingface(tmp_path / "again.json")
    assert twice._model.sha256 == ours._model.sha256
    assert twice.special_tokens == ours.special_tokens


@pytest.mark.parametrize("name", ["roberta", "qwen2", "falcon", "mistral-nemo"])
def test_what_was_read_is_a_tokenizer_like_any_other(name, tmp_path) -> None:
    (tmp_path / "tokenizer.json").write_text(layout(name), encoding="utf-8")
    ours = RegexTokenizer.from_huggingface(tmp_path)        # a folder
    text = "\n".join(random_texts(200))
    ids = ours.encode(text, allowed_special="all")
    for other in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert other.encode(text, allowed_special="all") == ids
    assert ours.encode_to_numpy(text, allowed_special="all").tolist() == ids
    assert ours.count(text, allowed_special="all") == len(ids)
    assert ours.decode_bytes(ours.encode_ordinary("naïve, 1234")).strip() == "naïve, 1234".encode()
    path = tmp_path / "text.txt"
    path.write_bytes(text.encode())
    ours.encode_file(path, tmp_path / "ids", dtype=np.uint32)
    assert np.fromfile(tmp_path / "ids", np.uint32).tolist() == ours.encode_ordinary(text)
    with pytest.raises(ModelFileError, match="save_huggingface"):
        ours.save(tmp_path / "mine")


def test_it_is_read_from_the_other_library_too() -> None:
    theirs = tokenizers.Tokenizer.from_str(layout("llama3"))
    assert_same(RegexTokenizer.from_huggingface(theirs), theirs, NASTY)


class Mine(RegexTokenizer):
    pass


def test_the_class_is_the_one_that_is_asked() -> None:
    assert type(Mine.from_huggingface(tokenizers.Tokenizer.from_str(layout("gpt2")))) is Mine


def test_the_models_are_as_plain_as_they_can_be() -> None:
    def read(name: str):
        return RegexTokenizer.from_huggingface(tokenizers.Tokenizer.from_str(layout(name)))._model

    gpt2 = read("gpt2")
    assert (gpt2.preparation, gpt2.numbers, gpt2.stages) == (None, None, None)
    assert gpt2.splitter.kind == "gpt2"
    assert gpt2.first_ids is not None
    llama3 = read("llama3")
    assert (llama3.preparation, llama3.numbers, llama3.stages) == (None, None, None)
    assert not llama3.whole
    assert llama3.splitter.kind == "llama3"
    assert len(llama3.pairs) == len(trained().merges)       # of the many in the file
    assert read("roberta").numbers is not None
    assert read("deepseek-v3").stages is not None
    assert read("gpt-4").splitter.kind == "gpt4"


def test_tokens_that_no_merge_makes_are_found_whole_if_the_file_ignores_merges(tmp_path) -> None:
    content = json.loads(layout("llama3"))
    vocab = content["model"]["vocab"]
    vocab |= {"Ġqqqzzz": len(vocab), "qz": len(vocab) + 1, "中": len(vocab) + 2}
    content["added_tokens"] = []
    for ignores in (True, False):
        content["model"]["ignore_merges"] = ignores
        theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
        ours = RegexTokenizer.from_huggingface(theirs)
        assert bool(ours._model.whole) == ignores
        assert_same(ours, theirs, ["a qqqzzz qz 中 qzz", *NASTY])
        for number in range(len(vocab)):
            assert ours.decode([number]) == theirs.decode([number])
        ours.save_huggingface(tmp_path / "again.json")
        assert_same(ours, tokenizers.Tokenizer.from_file(str(tmp_path / "again.json")), ["a qqqzzz qz 中 qzz", *NASTY])


def byte_model(merges: list[tuple[str, str]], **changes) -> dict:
    ranks = {bytes([byte]): byte for byte in range(256)}
    for left, right in merges:
        ranks.setdefault((left + right).encode(), len(ranks))
    return build(ranks, merges=merges, pre_tokenizer=byte_level(), **changes)


@pytest.mark.parametrize(
    "merges",
    [
        [("a", "b"), ("b", "c"), ("a", "b")],                       # the last place counts
        [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")],         # the second way to abc never occurs
        [("a", "a"), ("aa", "a"), ("a", "aa"), ("aa", "aa"), ("aaa", "a")],
        [("b", "c"), ("a", "bc"), ("a", "b"), ("ab", "c")],
        [("ab", "a"), ("a", "b")],                                  # what is made may go on merging first
        [("ab", "c"), ("c", "ab"), ("a", "b"), ("b", "c"), ("ab", "ab"), ("bc", "abc")],
    ],
)
def test_the_order_of_merges_is_that_of_tokenizers(merges) -> None:
    theirs = tokenizers.Tokenizer.from_str(json.dumps(byte_model(merges)))
    rng = random.Random(0)
    assert_same(
        RegexTokenizer.from_huggingface(theirs),
        theirs,
        ["".join(rng.choices("abc", k=rng.randrange(1, 12))) for _ in range(500)],
    )


def test_random_models_of_the_other_librarys_training(tmp_path) -> None:
    for seed in range(3):
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=seed == 1)
        theirs.decoder = tokenizers.decoders.ByteLevel()
        theirs.normalizer = tokenizers.normalizers.NFC() if seed else None
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=400 + 200 * seed,
            show_progress=False,
            special_tokens=["<s>", "<pad>"],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        )
        theirs.train_from_iterator(random_texts(300, seed), trainer)
        theirs.add_tokens([tokenizers.AddedToken(" wow", lstrip=True), tokenizers.AddedToken("猫!", normalized=False)])
        ours = RegexTokenizer.from_huggingface(theirs)
        texts = [*random_texts(200, seed + 100), "  wow<s> wow猫!猫 !<pad>"]
        assert_same(ours, theirs, texts)
        ours.save_huggingface(tmp_path / "again.json")
        assert_same(ours, tokenizers.Tokenizer.from_file(str(tmp_path / "again.json")), texts)


def test_a_special_token_that_merges_make_too_is_always_recognised() -> None:
    content = byte_model([("h", "i")])
    content["added_tokens"] = [token("hi", 256), token("!", 33), token("<pad>", 257)]
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    ours = RegexTokenizer.from_huggingface(theirs)
    assert ours.special_tokens == {"<pad>": 257}
    assert_same(ours, theirs, ["hi!", "ahi!!a<pad>hi"])
    assert ours.encode("hi!") == [256, 33]


def test_added_tokens_are_numbered_as_tokenizers_numbers_them() -> None:
    content = byte_model([])
    content["added_tokens"] = [token("<b>", 900), token("<a>", 257)]
    with pytest.warns(UserWarning, match="'<b>' is said to have id 900, but is numbered 256"):
        ours = RegexTokenizer.from_huggingface(_Json(content))
    assert ours.special_tokens == {"<b>": 256, "<a>": 257}
    assert_same(ours, tokenizers.Tokenizer.from_str(json.dumps(content)), ["<a><b>"])


@pytest.mark.filterwarnings("ignore:added token")
def test_added_tokens_that_are_there_twice_or_empty() -> None:
    content = byte_model([])
    content["added_tokens"] = [token("", 256), token("<a>", 256), token("<a>", 257), token("<b>", 257)]
    ours = RegexTokenizer.from_huggingface(_Json(content))
    assert ours.special_tokens == {"<a>": 256, "<b>": 257}
    assert_same(ours, tokenizers.Tokenizer.from_str(json.dumps(content)), ["<a><b>x"])


def test_merges_of_an_empty_token_are_refused() -> None:
    content = byte_model([])
    content["model"]["vocab"][""] = 256
    content["model"]["merges"] = [["", "a"]]
    assert "model's merges: merge 0 is of ids that there are not: (256, 97) -> 97" in refused(content)


def test_a_split_may_name_its_text_as_it_is() -> None:
    content = byte_model([("b", "y"), ("b", "c")])
    plain = {"type": "Split", "pattern": {"String": "a.b"}, "behavior": "Isolated", "invert": False}
    content["pre_tokenizer"] = sequence(plain, byte_level())
    ours = RegexTokenizer.from_huggingface(_Json(content))
    assert_same(ours, tokenizers.Tokenizer.from_str(json.dumps(content)), ["a.by", "axby", "xa.bc"])


def test_a_space_in_front_goes_with_gpt2s_pattern_only(tmp_path) -> None:
    tokenizer = RegexTokenizer.from_huggingface(_Json(json.loads(layout("roberta"))))
    tokenizer.save_huggingface(tmp_path / "a.json")
    tokenizer.pattern = NAMED_PATTERNS["gpt4"]
    with pytest.raises(ExportError, match="a space in front of texts goes with GPT-2's pattern only"):
        tokenizer.save_huggingface(tmp_path / "b.json")
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("qwen2", "changes texts before it splits"), ("falcon", "splits by several patterns")]
)
def test_what_an_encoding_of_tiktoken_lacks_is_refused(name, reason) -> None:
    with pytest.raises(ExportError, match=reason):
        RegexTokenizer.from_huggingface(_Json(json.loads(layout(name)))).to_tiktoken("x")


class _Json:
    def __init__(self, content: dict) -> None:
        self.content = content

    def to_str(self) -> str:
        return json.dumps(self.content)


def refused(content: dict) -> str:
    with pytest.raises(ModelFileError) as caught:
        RegexTokenizer.from_huggingface(_Json(content))
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "WordPiece"}, "model is WordPiece"),
        ({"type": "Unigram"}, "model is Unigram"),
        ({"type": "WordLevel"}, "model is WordLevel"),
        ({"byte_fallback": True}, "byte_fallback"),
        ({"dropout": 0.1}, "dropout 0.1"),
        ({"end_of_word_suffix": "</w>"}, "end_of_word_suffix '</w>'.*WordTokenizer"),
        ({"continuing_subword_prefix": "##"}, "continuing_subword_prefix '##'"),
        ({"merges": [["a", "bx"]]}, "'bx', which is not in its vocab"),
        ({"merges": ["a b c"]}, "merge 0 is no pair: 'a b c'"),
        ({"merges": [["a", "b"]]}, "'ab', which is not in its vocab"),
        ({"vocab": {"a": 0}}, "lacks 255 of the 256 bytes, 0x00 the first"),
        ({"vocab": {"a": -1}}, "-1 for 'a', which is no id"),
        ({"vocab": {"a": 1.5}}, "1.5 for 'a'"),
    ],
)
def test_a_model_that_cannot_be_matched_is_refused(change, message) -> None:
    content = byte_model([])
    content["model"] |= change
    assert regex.search(message, refused(content)), refused(content)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("normalizer", {"type": "NFKC"}, "normalizer is NFKC"),
        ("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}, "Lowercase"),
        ("pre_tokenizer", None, "no ByteLevel"),
        ("pre_tokenizer", {"type": "Metaspace"}, "Metaspace"),
        ("pre_tokenizer", sequence({"type": "Whitespace"}, byte_level()), "pre_tokenizer has Whitespace"),
        ("pre_tokenizer", sequence(byte_level(), byte_level()), "ByteLevel twice"),
        ("pre_tokenizer", sequence(split("a"), byte_level(False, True)), "add_prefix_space behind others"),
        ("pre_tokenizer", sequence(split(r"[a&&b]"), byte_level()), "cannot be translated.*&&"),
        ("pre_tokenizer", sequence(split(r"(a"), byte_level()), "cannot be translated"),
        ("pre_tokenizer", sequence(split("a", "Scattered"), byte_level()), "'Scattered'"),
        ("model", None, "has no model"),
        ("model", {"type": "BPE"}, "not a tokenizer.json as tokenizers writes it: KeyError"),
        ("added_tokens", [{"content": "a"}], "not a tokenizer.json"),
    ],
)
def test_parts_that_cannot_be_matched_are_refused(part, value, message) -> None:
    content = byte_model([])
    content[part] = value
    assert regex.search(message, refused(content)), refused(content)


def test_what_is_no_such_file_is_refused_with_its_name(tmp_path) -> None:
    path = tmp_path / "tokenizer.json"
    for data in (b"", b"\xff\xfe", b"[1]", b"{", b"null"):
        path.write_bytes(data)
        with pytest.raises(ModelFileError, match=r"tokenizer\.json: no"):
            RegexTokenizer.from_huggingface(path)
    with pytest.raises(FileNotFoundError):
        RegexTokenizer.from_huggingface(tmp_path / "none.json")


# ---- writing


def written(tokenizer: RegexTokenizer, folder: Path):
    tokenizer.save_huggingface(folder / "out.json")
    return tokenizers.Tokenizer.from_file(str(folder / "out.json"))


OWN_PATTERNS = [r"\p{L}+", r"(?i:ab)|\s+|\w+|[[\]&^x-]+", r"^\w+|\n|.$|\d{2,3}+"]


@pytest.mark.parametrize("pattern", mostly_thorough([*NAMED_PATTERNS, *OWN_PATTERNS], "gpt4", *OWN_PATTERNS))
def test_a_trained_tokenizer_has_the_same_ids_there_C57(pattern, tmp_path) -> None:
    tokenizer = RegexTokenizer(NAMED_PATTERNS.get(pattern, pattern))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train("\n".join([*NASTY, "x\0\0y\0\0z", *random_texts(300, 3)]), 700)
    tokenizer.register_special_tokens({"<|endoftext|>": 700, "<é>": 710, "<a\0b>": 705, " x ": 703})
    theirs = written(tokenizer, tmp_path)
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["model"]["merges"]
    assert all(type(merge) is list for merge in content["model"]["merges"])
    parts = content["pre_tokenizer"]["pretokenizers"]
    assert list(parts[0]["pattern"]) == ["Regex"]
    assert (parts[0]["behavior"], parts[0]["invert"]) == (
        ("Isolated", False) if pattern in NAMED_PATTERNS else ("Removed", True)
    )
    assert parts[-1]["use_regex"] is parts[-1]["add_prefix_space"] is False
    assert_same(tokenizer, theirs, [*NASTY, "ab, cd1", "a<é>b<a\0b> x y", *random_texts(500, 5)])
    assert {word: theirs.token_to_id(word) for word in tokenizer.special_tokens} == tokenizer.special_tokens
    again = RegexTokenizer.from_huggingface(tmp_path / "out.json")
    assert again.merges == tokenizer.merges
    assert again.special_tokens == dict(sorted(tokenizer.special_tokens.items(), key=lambda item: item[1]))
    if pattern in NAMED_PATTERNS:
        assert again.pattern == tokenizer.pattern


@thorough
def test_gpt4_and_openais_encodings_C58(tmp_path) -> None:
    tokenizer = GPT4Tokenizer()
    theirs = written(tokenizer, tmp_path)
    for text, ids in {
        "  ": [256],
        "   ": [262],
        "hello  world": [15339, 220, 1917],
        "hello world!!!? (안녕하세요!) lol123 \U0001f609": [
            15339, 1917, 12340, 30, 320, 31495, 230, 75265, 243, 92245, 16715, 28509, 4513, 57037,
        ],
        "<|endoftext|>": [100257],
    }.items():  # fmt: skip
        assert theirs.encode(text).ids == ids
    again = RegexTokenizer.from_huggingface(tmp_path / "out.json")
    assert (again.merges, again.byte_shuffle) == (tokenizer.merges, tokenizer.byte_shuffle)
    with pytest.raises(ExportError, match="have one id"):
        cbpe.get_encoding("o200k_harmony").save_huggingface(tmp_path / "harmony.json")
    assert not (tmp_path / "harmony.json").exists()


def test_a_tokenizer_without_a_pattern(tmp_path) -> None:
    tokenizer = BasicTokenizer()
    tokenizer.train("low lower lowest\n" * 3, 266)
    tokenizer.register_special_tokens({"<s>": 266})
    theirs = written(tokenizer, tmp_path)
    for text in NASTY:
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode_batch([text], "all")[0]


def test_stages_are_written(tmp_path) -> None:
    for stages in (
        [(r"[aeiou]+", "all"), (r"\d", "matches"), (r"\s", "with_next"), (r"l+", "runs")],
        [(r"\s", "with_previous"), (r"[,.]", "between"), (r"x*", "all"), (r"[²Ã]", "all", True)],
    ):
        tokenizer = RegexTokenizer(Stages(stages))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokenizer.train("\n".join(random_texts(100)), 400)
        assert_same(tokenizer, written(tokenizer, tmp_path), NASTY + random_texts(200, 9))
        assert RegexTokenizer.from_huggingface(tmp_path / "out.json")._model.stages == tokenizer._model.stages


def test_special_tokens_that_begin_alike_are_found_as_here(tmp_path) -> None:
    tokenizer = RegexTokenizer()
    for words in ({"<a>": 256, "<a>b": 257}, {"<a>b": 256, "<a>": 257}, {"<a": 300, "<a>": 256, "a>": 306}):
        tokenizer.register_special_tokens(words)
        theirs = written(tokenizer, tmp_path)
        assert_same(tokenizer, theirs, ["<a>", "<a>b", "x<a>bc<a>a<", "a>"])
        assert {word: theirs.token_to_id(word) for word in words} == words


def test_special_tokens_of_every_kind_C13_C28_C32_C49(tmp_path) -> None:
    words = [
        "<e f>", "<e> ", " <e>", "<e>\n", "\n\n", "<e>\r", "<a\u2028b>", "<a\u00a0b>", "<a\u3000b>", "<a\tb>",
        "<a\x85b>", "<a\x1cb>", "\0", "300 301", "<|a|>", "a.b", "a*", "[x]", "(y)", "$^", "\\d", "a|b", "{2}", "#x y",
        "<s>", "</s>", "猫", "e\u0301",
    ]  # fmt: skip
    tokenizer = RegexTokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train("\n".join(NASTY), 400)
    tokenizer.register_special_tokens({word: 400 + 2 * i for i, word in enumerate(words)})
    theirs = written(tokenizer, tmp_path)
    texts = [*words, *(f"q{word}aXb{word}{word} {word}  " for word in words), "a  <e>  b", "<s></s>"]
    assert_same(tokenizer, theirs, texts)
    again = RegexTokenizer.from_huggingface(tmp_path / "out.json")
    assert again.special_tokens == tokenizer.special_tokens


def assert_refused(tokenizer: RegexTokenizer, message: str, folder: Path) -> None:
    path = folder / "refused.json"
    path.write_text("as it was")
    with pytest.raises(ExportError, match=message):
        tokenizer.save_huggingface(path)
    assert path.read_text() == "as it was"
    assert os.listdir(folder) == ["refused.json"]


def test_what_would_differ_is_refused_and_nothing_is_left(tmp_path) -> None:
    tokenizer = RegexTokenizer()
    tokenizer.merges = {(97, 98): 256, (98, 99): 257, (256, 99): 258, (97, 257): 259}
    assert_refused(tokenizer, "258 and 259 clash", tmp_path)
    tokenizer.merges = {(97, 98): 257, (257, 99): 256}
    assert_refused(tokenizer, "merge of 257 and 99 to 256 comes before", tmp_path)
    tokenizer.merges = {(97, 98): 256, (98, 97): 256}
    assert_refused(tokenizer, "several merges make id 256", tmp_path)
    tokenizer.merges = {(97, 98): 256}
    tokenizer.register_special_tokens({"ab": 300})
    assert_refused(tokenizer, "special token 'ab', id 300", tmp_path)
    tokenizer.register_special_tokens({})
    tokenizer.merges = {(102, 102): 256}
    for pattern, message in [
        (r"\p{Script=Greek}+|.", "tokenizers does not read"),
        (r"(?i:ﬀ)|.", "its regular expressions read the pattern otherwise"),
        (r"(?m)^a|.", "has no counterpart"),
    ]:
        tokenizer.pattern = pattern
        assert_refused(tokenizer, message, tmp_path)


class OwnWay(RegexTokenizer):
    def _encode_chunk(self, text_bytes: bytes) -> list[int]:
        return list(text_bytes)[::-1]


def test_a_class_that_encodes_its_own_way_is_refused(tmp_path) -> None:
    assert_refused(OwnWay(), "OwnWay encodes in a way of its own", tmp_path)
    assert_refused(WordTokenizer(), "WordTokenizer are not of bytes", tmp_path)


def test_without_the_library_it_is_written_with_a_warning(tmp_path, monkeypatch) -> None:
    tokenizer = RegexTokenizer()
    tokenizer.train("abab", 257)
    tokenizer.save_huggingface(tmp_path / "checked.json")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.warns(UserWarning, match=r"cbpe\[huggingface\]"):
        tokenizer.save_huggingface(tmp_path / "unchecked.json")
    assert (tmp_path / "checked.json").read_bytes() == (tmp_path / "unchecked.json").read_bytes()


def test_transformers_loads_a_file_and_a_folder(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = RegexTokenizer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train("\n".join(NASTY), 500)
    tokenizer.register_special_tokens({"<|endoftext|>": 500, "<|im_start|>": 501})
    tokenizer.save_huggingface(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["tokenizer.json", "tokenizer_config.json"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = [
            transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json")),
            transformers.AutoTokenizer.from_pretrained(str(tmp_path)),
        ]
    texts = NASTY + random_texts(100)
    for theirs in loaded:
        for text in texts:
            ids = tokenizer.encode(text, allowed_special="all")
            assert theirs.encode(text, add_special_tokens=False) == ids
            assert theirs.decode(ids) == tokenizer.decode(ids)
        assert theirs.convert_tokens_to_ids("<|im_start|>") == 501
        assert RegexTokenizer.from_huggingface(theirs).encode(texts[9]) == tokenizer.encode(texts[9])


# ---- patterns from one engine to the other


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (r"\p{N}{1,3}+|a{2}+b", r"(?>\p{N}{1,3})|(?>a{2})b"),
        (r"(ab|c){1,2}+$", r"(?>(ab|c){1,2})(?=\n?\z)"),
        (r"^a\Z", r"\Aa\z"),
        (r"(?s:.)(?i:b)", r"(?m:.)(?i:b)"),
        (r"[[a-c&&]]x", r"[\[a-c\&&]]x"),
        (r"[]a]", r"[\]a]"),
        (r"[^\pL\xe9]", r"[^\p{L}\x{e9}]"),
        (r"(?P<n>a)(?#note)", r"(?<n>a)"),
        (r"a{b}", r"a{b}"),
    ],
)
def test_a_pattern_for_oniguruma(ours, theirs) -> None:
    assert to_oniguruma(ours) == theirs


@pytest.mark.parametrize("ours", [r"\N{EM DASH}", r"[\W]", r"\mword", r"\B", r"(?m)^a", r"(?x: a)"])
def test_what_oniguruma_lacks_is_refused(ours) -> None:
    with pytest.raises(ValueError, match="no counterpart"):
        to_oniguruma(ours)


@pytest.mark.parametrize("theirs", [r"\h", r"[\W]", r"\X", r"[a[^b]]", r"(?x: a)", r"[a&&b]"])
def test_what_regex_lacks_is_refused(theirs) -> None:
    with pytest.raises(ValueError, match="no counterpart"):
        from_oniguruma(theirs)


def test_flags_of_a_compiled_pattern() -> None:
    assert to_oniguruma("a.b", regex.compile("a", regex.I | regex.S).flags) == "(?im:a.b)"
    with pytest.raises(ValueError, match=r"regex\.X"):
        to_oniguruma("a", regex.X)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (r"\p{N}{1,3}+|(a|b){2}+", r"(?:\p{N}{1,3})+|(?:(a|b){2})+"),
        (r"\s+$|^x", r"\s+(?m:$)|(?m:^)x"),
        (r"a\z\Z", r"a\Z(?=\n?\Z)"),
        (r"(?m:.)", r"(?s:.)"),
        (" ?[^(\\s|[.,!?…])]+", " ?[^(\\s|.,!?…)]+"),
        (r"\x{e9}", "é"),
    ],
)
def test_a_pattern_of_oniguruma(theirs, ours) -> None:
    assert from_oniguruma(theirs) == ours


def test_both_engines_split_alike_by_a_translated_pattern() -> None:
    texts = NASTY + random_texts(200)
    patterns = [
        r"\w+", r"\w+|[^\w\s]", r"\b\w", r"\d{1,3}(?=(?:\d{3})*\b)", r"[^\w]+", r"\s+$", r"^\s*", r"(?i:'s|ll)", r".+",
        r"\W", r"\b", r"a\b|[^a]",
    ]  # fmt: skip
    for pattern in patterns:
        for theirs, ours in ((pattern, from_oniguruma(pattern)), (to_oniguruma(pattern), pattern)):
            split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(theirs), "removed", invert=True)
            for text in texts:
                found = [match.group() for match in regex.finditer(ours, text) if match.group()]
                assert [piece for piece, _ in split.pre_tokenize_str(text)] == found, (theirs, ours, text)


# ---- published vocabularies, where they are


def rank_file(name: str) -> dict[bytes, int]:
    path = VOCAB / name
    if not path.exists():
        pytest.skip(f"no {path}")
    lines = path.read_bytes().splitlines()
    return {base64.b64decode(text): int(rank) for text, rank in (line.split() for line in lines)}


def published(name: str) -> str:
    """A tokenizer.json of a published vocabulary in its published layout."""
    if name == "gpt2":
        if not (VOCAB / "gpt2_encoder.json").exists():
            pytest.skip("no GPT-2")
        content = json.loads(layout("gpt2"))
        content["model"]["vocab"] = json.loads((VOCAB / "gpt2_encoder.json").read_text(encoding="utf-8"))
        content["model"]["merges"] = (VOCAB / "gpt2_vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
        content["added_tokens"][0]["id"] = 50256
        return json.dumps(content)
    files = {"llama3": "llama3_tokenizer.model", "qwen2": "qwen.tiktoken", "gpt-oss": "o200k_base.tiktoken"}
    ranks = rank_file(files[name])
    merges = all_merges(ranks)
    return json.dumps(LAYOUTS[name](ranks, merges, merges))


@pytest.mark.parametrize("name", mostly_thorough(["gpt2", "llama3", "qwen2", "gpt-oss"], "gpt2"))
def test_a_published_vocabulary(name) -> None:
    theirs = tokenizers.Tokenizer.from_str(published(name))
    ours = RegexTokenizer.from_huggingface(theirs)
    texts = NASTY + random_texts(300)
    tokens = [token.decode("utf-8", "ignore") for token in ours._model.token_bytes.values()]
    texts += random.Random(0).sample(tokens, 3000)
    assert_same(ours, theirs, texts)

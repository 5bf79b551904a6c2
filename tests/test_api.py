"""Tests of what a user of minbpe touches: names, attributes, calls, and tokenizers that programs derive from cbpe's."""

import copy
import inspect
import itertools
import pickle
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import reference
import regex
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

import cbpe
import cbpe.base
import cbpe.basic
import cbpe.gpt4
import cbpe.regex
from cbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPECIAL_TOKENS,
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    ChunkStoreError,
    CorpusTooLargeError,
    DisallowedSpecialTokenError,
    GPT4Tokenizer,
    ModelFileError,
    RegexTokenizer,
    SpecialTokenError,
    Tokenizer,
    UnknownIdError,
    VocabSizeError,
    get_stats,
    merge,
    recover_merges,
    render_token,
)

TEXT = "the cat sat on the mat, the rat sat on the cat; THE END's 1234 né\n\n  <e> "
PATTERNS = {BasicTokenizer: None, RegexTokenizer: GPT4_SPLIT_PATTERN}


def state(tokenizer):
    return dict(tokenizer.merges), dict(tokenizer.vocab), tokenizer.pattern, list(tokenizer.special_tokens.items())


@pytest.fixture(params=[BasicTokenizer, RegexTokenizer])
def trained(request):
    tokenizer = request.param()
    tokenizer.train(TEXT, 280)
    return tokenizer


# ---- names


def test_modules_hold_what_minbpes_do():
    for name in ("get_stats", "merge", "replace_control_characters", "render_token", "Tokenizer"):
        assert hasattr(cbpe.base, name)
    assert cbpe.basic.BasicTokenizer is BasicTokenizer
    for name in ("GPT2_SPLIT_PATTERN", "GPT4_SPLIT_PATTERN", "RegexTokenizer"):
        assert hasattr(cbpe.regex, name)
    for name in ("bpe", "recover_merges", "GPT4_SPLIT_PATTERN", "GPT4_SPECIAL_TOKENS", "GPT4Tokenizer"):
        assert hasattr(cbpe.gpt4, name)
    for cls in (BasicTokenizer, RegexTokenizer, GPT4Tokenizer):
        assert issubclass(cls, Tokenizer)
    assert issubclass(GPT4Tokenizer, RegexTokenizer)
    assert all(hasattr(cbpe, name) for name in cbpe.__all__)


def test_the_helper_functions():
    assert get_stats([1, 2, 3, 1, 2]) == {(1, 2): 2, (2, 3): 1, (3, 1): 1}
    counts = {(1, 1): 5}
    assert get_stats([1, 1, 1, 2], counts) is counts
    assert counts == {(1, 1): 7, (1, 2): 1}
    assert get_stats([]) == get_stats([1]) == {}
    assert merge([1, 2, 3, 1, 2], (1, 2), 4) == [4, 3, 4]
    assert merge([1, 1, 1], (1, 1), 2) == [2, 1]
    assert merge([], (1, 1), 2) == []
    assert merge((1, 1), (1, 1), 2) == [2]
    assert render_token(b"caf\xc3\xa9\n\xff") == "café\\u000a\ufffd"
    assert cbpe.base.replace_control_characters("a\u200bb\U000e0001 \u00a0") == "a\\u200bb\\ue0001 \u00a0"


@given(st.lists(st.integers(0, 3)), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_the_helper_functions_are_the_twins(ids, pair):
    assert list(get_stats(ids).items()) == list(reference.get_stats(ids).items())
    assert merge(ids, pair, 9) == reference.merge(ids, pair, 9)


# ---- training


@pytest.mark.parametrize("cls", [BasicTokenizer, RegexTokenizer])
@examples(60)
@given(text=st.text(alphabet="aab \n'sé1", max_size=60), num_merges=st.integers(0, 8), seed=st.integers())
def test_training_and_encoding_are_the_twins(cls, text, num_merges, seed):
    expected, _ = reference.learn(text, num_merges, PATTERNS[cls])
    tokenizer = cls()
    tokenizer.train(text, 256 + len(expected))
    assert list(tokenizer.merges.items()) == list(expected.items())
    assert tokenizer.vocab == reference.vocab(expected)
    other = "".join(random.Random(seed).sample(text, len(text)))
    for each in (text, other):
        ids = tokenizer.encode(each)
        assert ids == reference.encode_ordinary(each, expected, PATTERNS[cls])
        assert tokenizer.encode_ordinary(each) == ids
        assert tokenizer.encode_to_numpy(each).tolist() == ids
        assert tokenizer.count(each) == len(ids)
        assert tokenizer.decode(ids) == each


def test_verbose_prints_minbpes_lines(capsys):
    BasicTokenizer().train("aaabdaaabac", 258, True)
    assert capsys.readouterr().out == (
        "merge 1/2: (97, 97) -> 256 (b'aa') had 4 occurrences\n"
        "merge 2/2: (256, 97) -> 257 (b'aaa') had 2 occurrences\n"
    )


def test_every_way_to_train_is_the_same(trained, tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_bytes(TEXT.encode())
    for train, corpus in (
        ("train", TEXT),
        ("train_from_files", path),
        ("train_from_files", str(path)),
        ("train_from_files", [path]),
        ("train_from_iterator", iter([TEXT])),
        ("train_from_chunks", ChunkStore.from_iterator([TEXT], pattern=trained.pattern or None)),
    ):
        other = type(trained)()
        getattr(other, train)(corpus, 280, num_threads=2, progress=False)
        assert state(other) == state(trained)


def test_texts_of_an_iterator_are_texts_of_their_own():
    texts = ["ab", "ab", "ba"]
    tokenizer = BasicTokenizer()
    tokenizer.train_from_iterator(texts, 257)
    assert dict(tokenizer.merges) == reference.learn(texts, 1)[0] == {(97, 98): 256}
    with pytest.raises(TypeError):
        tokenizer.train_from_iterator("abab", 257)


def test_min_frequency_stops_before_rarer_pairs():
    tokenizer = RegexTokenizer()
    expected, counts = reference.learn(TEXT, 100, GPT4_SPLIT_PATTERN, min_frequency=3)
    assert min(counts) == 3
    with pytest.warns(UserWarning, match=rf"{256 + len(expected)}.*356.*3 times"):
        tokenizer.train(TEXT, 356, min_frequency=3)
    assert tokenizer.merges == expected


def test_a_min_frequency_may_be_of_any_size():
    tokenizer = RegexTokenizer()
    for huge in (2**63 - 1, 2**63, 10**30):
        with pytest.warns(UserWarning, match="no pair occurs"):
            tokenizer.train(TEXT, 356, min_frequency=huge)
        assert tokenizer.merges == {}


def test_a_store_serves_twice_and_must_have_the_pattern():
    store = ChunkStore.from_iterator([TEXT], pattern=GPT2_SPLIT_PATTERN)
    tokenizer = RegexTokenizer(GPT2_SPLIT_PATTERN)
    tokenizer.train_from_chunks(store, 260)
    first = state(tokenizer)
    tokenizer.train_from_chunks(store, 260)
    assert state(tokenizer) == first
    other = RegexTokenizer()
    for cls in (RegexTokenizer, BasicTokenizer):
        with pytest.raises(ChunkStoreError, match="pattern"):
            cls().train_from_chunks(store, 260)
    with pytest.raises(TypeError):
        other.train_from_chunks([(b"a", 1)], 260)


def test_special_tokens_are_left_out_of_training_and_registered(tmp_path):
    text = "<e>ab<e>ab<e>abc<f>"
    expected, _ = reference.learn(text, 2, GPT4_SPLIT_PATTERN, specials=["<e>", "<f>"])
    assert expected == {(97, 98): 256, (256, 99): 257}
    path = tmp_path / "corpus.txt"
    path.write_bytes(text.encode())
    for train, corpus in (("train", text), ("train_from_files", path), ("train_from_iterator", [text])):
        tokenizer = RegexTokenizer()
        getattr(tokenizer, train)(corpus, 258, special_tokens=["<f>", "<e>"])
        assert tokenizer.merges == expected
        assert list(tokenizer.special_tokens.items()) == [("<f>", 258), ("<e>", 259)]
        getattr(tokenizer, train)(corpus, 258, special_tokens={"<e>": 1000, "<f>": 999})
        assert tokenizer.merges == expected
        assert list(tokenizer.special_tokens.items()) == [("<e>", 1000), ("<f>", 999)]
        assert tokenizer.encode("<e>ab<f>", "all") == [1000, 256, 999]


def test_listed_special_tokens_follow_the_size_that_was_reached():
    tokenizer = BasicTokenizer()
    with pytest.warns(UserWarning, match="257"):
        tokenizer.train("ab<e>", 300, special_tokens=["<e>"])
    assert tokenizer.special_tokens == {"<e>": 257}
    assert tokenizer.decode([256, 257]) == "ab<e>"
    assert tokenizer.encode("<e>") == [60, 101, 62]
    assert tokenizer.encode("<e>", allowed_special="all") == [257]


@pytest.mark.parametrize(
    ("special_tokens", "error"),
    [
        ("<e>", TypeError),
        (5, TypeError),
        (["<e>", "<e>"], SpecialTokenError),
        ([""], SpecialTokenError),
        ([b"<e>"], SpecialTokenError),
        (["\ud800"], SpecialTokenError),
        ({"<e>": 97}, SpecialTokenError),
        ({"<e>": 256}, SpecialTokenError),
        ({"<e>": "300"}, SpecialTokenError),
    ],
)
def test_wrong_special_tokens_leave_the_old_model(trained, special_tokens, error):
    before = state(trained)
    with pytest.raises(error):
        trained.train("abcabc", 258, special_tokens=special_tokens)
    assert state(trained) == before


def test_training_past_a_registered_id_leaves_the_old_model(trained):
    trained.register_special_tokens({"<e>": 281})
    before = state(trained)
    with pytest.raises(SpecialTokenError, match="281"):
        trained.train(TEXT, 282)
    assert state(trained) == before
    trained.train(TEXT, 281)
    assert trained.special_tokens == {"<e>": 281}


@pytest.mark.parametrize(
    "how",
    [
        {"min_frequency": 0},
        {"min_frequency": 1.5},
        {"num_threads": 0},
        {"num_threads": "2"},
    ],
)
def test_wrong_keywords_leave_the_old_model(trained, how, tmp_path):
    before = state(trained)
    with pytest.raises((ValueError, TypeError), match=next(iter(how))):
        trained.train("abc", 257, **how)
    with pytest.raises((ValueError, TypeError), match=next(iter(how))):
        trained.train_from_files(tmp_path / "not even opened", 257, **how)
    assert state(trained) == before


def test_failures_on_the_way_leave_the_old_model(trained, tmp_path):
    before = state(trained)

    def failing():
        yield "abc"
        raise RuntimeError("on the way")

    with pytest.raises(RuntimeError, match="on the way"):
        trained.train_from_iterator(failing(), 257)
    with pytest.raises(FileNotFoundError):
        trained.train_from_files(tmp_path / "absent", 257)
    with pytest.raises(ValueError, match="errors"):
        trained.train_from_iterator(["a"], 257, errors="ignore")
    with pytest.raises(UserWarning):        # pytest makes errors of warnings, as a program may
        trained.train("ab", 300)
    assert state(trained) == before


def test_the_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="257") as caught:
        RegexTokenizer().train("ab", 300)
    assert caught[0].filename == __file__


# ---- attributes


def test_attributes_are_minbpes(trained):
    assert isinstance(trained.merges, dict)
    assert list(trained.merges.values()) == list(range(256, 280))
    assert all(type(number) is int for pair in trained.merges for number in pair)
    assert list(trained.vocab) == list(range(280))
    assert trained.special_tokens == trained.inverse_special_tokens == {}
    trained.register_special_tokens({"<e>": 300})
    assert trained.inverse_special_tokens == {300: "<e>"}
    assert 300 not in trained.vocab


def test_the_pattern_and_its_compiled_form():
    assert BasicTokenizer().pattern == ""
    assert RegexTokenizer().pattern == GPT4_SPLIT_PATTERN
    assert RegexTokenizer().compiled_pattern == regex.compile(GPT4_SPLIT_PATTERN)
    with_flags = RegexTokenizer(regex.compile("a+|b", regex.IGNORECASE))
    assert with_flags.pattern == "a+|b"
    assert with_flags.compiled_pattern.flags & regex.IGNORECASE
    assert with_flags.encode("AcB") == [65, 66]
    with pytest.raises(regex.error):
        RegexTokenizer("(")
    with pytest.raises(TypeError):
        RegexTokenizer(5)


def test_assignments_take_effect_on_the_next_call():
    tokenizer = RegexTokenizer()
    assert tokenizer.encode("aa bb") == [97, 97, 32, 98, 98]
    tokenizer.merges = {(98, 98): 256, (97, 97): 300}
    assert tokenizer.encode("aa bb") == [300, 32, 256]
    assert tokenizer.vocab[300] == b"aa"
    assert tokenizer.decode([300, 256]) == "aabb"
    tokenizer.pattern = "[ab]+"
    assert tokenizer.encode("aa bb") == [300, 256]
    assert tokenizer.compiled_pattern.pattern == "[ab]+"
    tokenizer.compiled_pattern = re.compile("b+")
    assert tokenizer.encode("aa bb") == [256]
    tokenizer.special_tokens = {" ": 500}
    assert tokenizer.encode("bb bb", "all") == [256, 500, 256]
    assert tokenizer.inverse_special_tokens == {500: " "}
    assert tokenizer.decode([500]) == " "
    tokenizer.inverse_special_tokens = {501: "?"}
    assert tokenizer.decode([501]) == "?"
    tokenizer.vocab = {256: b"BB"}
    assert tokenizer.decode([256]) == "BB"
    tokenizer.merges = {}
    assert tokenizer.decode([256]) == "BB"       # a vocab that was assigned stays, as in minbpe
    tokenizer.train("bbbb", 257)
    assert tokenizer.decode([256, 99]) == "bbc"  # and goes with its merges


def test_changes_in_place_take_effect_on_the_next_call():
    tokenizer = RegexTokenizer()
    vocab = tokenizer.vocab
    tokenizer.merges[97, 97] = 256
    tokenizer.merges.update({(98, 98): 257})
    assert tokenizer.encode("aabb") == [256, 257]
    assert tokenizer.vocab[257] == b"bb"
    assert 257 not in vocab             # it was made for other merges
    tokenizer.merges |= {(256, 257): 258}
    assert tokenizer.encode("aabb") == [258]
    del tokenizer.merges[256, 257]
    assert tokenizer.encode("aabb") == [256, 257]
    tokenizer.special_tokens["<e>"] = 300
    assert tokenizer.encode("<e>", "all") == [300]
    with pytest.raises(DisallowedSpecialTokenError):
        tokenizer.encode("<e>")
    assert tokenizer.special_tokens.pop("<e>") == 300
    assert tokenizer.encode("<e>") == [60, 101, 62]
    tokenizer.vocab[256] = b"AA"
    assert tokenizer.decode([256]) == "AA"
    handed_out = tokenizer.merges
    tokenizer.train("cdcd", 257)
    handed_out.clear()                  # the dict of the former model
    assert tokenizer.merges == {(99, 100): 256}
    assert tokenizer.encode("cdcd") == [256, 256]


def test_assigning_copies():
    mine = {(97, 97): 256}
    tokenizer = BasicTokenizer()
    tokenizer.merges = mine
    mine.clear()
    assert tokenizer.encode("aa") == [256]


def test_nonsense_in_attributes_is_named_when_it_is_used():
    for merges in ({97: 256}, {(97, 97): "256"}, {(97, 97): -1}, {(97, 97): 2**32}):
        tokenizer = BasicTokenizer()
        tokenizer.merges = merges
        with pytest.raises(ValueError, match="merges"):
            tokenizer.encode("aa")
    tokenizer.merges = {(97, 300): 256}
    with pytest.raises(KeyError, match="300"):
        tokenizer.decode([97])
    tokenizer = RegexTokenizer()
    tokenizer.special_tokens = {"<e>": 97}
    with pytest.raises(SpecialTokenError, match="97"):
        tokenizer.encode("a")


def test_handed_out_dicts_copy_as_plain_dicts(trained):
    assert type(copy.deepcopy(trained.merges)) is dict
    assert pickle.loads(pickle.dumps(trained.vocab)) == trained.vocab


# ---- special tokens


def test_the_four_ways_to_allow_special_tokens():
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<e>": 300, "<f>": 301})
    plain = list(b"<e>"), list(b"<f>")
    assert tokenizer.encode("<e><f>", "all") == [300, 301]
    assert tokenizer.encode("<e><f>", "none") == plain[0] + plain[1]
    for allowed in ({"<f>"}, frozenset(["<f>", "<other>"])):
        assert tokenizer.encode("<e><f>", allowed_special=allowed) == [*plain[0], 301]
    assert tokenizer.encode("<e><f>", set()) == tokenizer.encode_ordinary("<e><f>")
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match="<f>"):
            tokenizer.encode("a<f>b")
    assert tokenizer.encode("abc") == [97, 98, 99]
    for wrong in ("some", None, ["<e>"], 5):
        with pytest.raises(ValueError, match="allowed_special"):
            tokenizer.encode("a", allowed_special=wrong)
    for method in (tokenizer.encode_to_numpy, tokenizer.count):
        with pytest.raises(DisallowedSpecialTokenError):
            method("<e>")
    assert tokenizer.encode_to_numpy("a<e>b", "all").tolist() == [97, 300, 98]
    assert tokenizer.encode_to_numpy("<e>", "all").dtype == np.uint32
    assert tokenizer.encode_to_numpy("", "all").tolist() == []
    assert tokenizer.count("a<e>b", "all") == 3


@examples(100)
@given(
    st.text(alphabet="<ae> b", max_size=30),
    st.lists(st.sampled_from(["<a>", "<a>b", "a", "<", "<a", " ", "b <", ">>"]), unique=True, max_size=5),
)
def test_special_tokens_are_found_as_the_twin_finds_them(text, words):
    specials = {word: 400 - i for i, word in enumerate(words)}
    tokenizer = RegexTokenizer()
    tokenizer.merges = merges = {(97, 62): 256, (60, 256): 257}
    tokenizer.register_special_tokens(specials)
    expected = reference.encode(text, merges, GPT4_SPLIT_PATTERN, specials)
    assert tokenizer.encode(text, "all") == expected
    assert tokenizer.encode_to_numpy(text, "all").tolist() == expected
    assert tokenizer.count(text, "all") == len(expected)
    assert tokenizer.decode(expected) == text


def test_registering_copies_and_replaces():
    tokenizer = RegexTokenizer()
    specials = {"<e>": np.int64(300)}
    tokenizer.register_special_tokens(specials)
    specials["<f>"] = 301
    assert tokenizer.special_tokens == {"<e>": 300}
    assert type(tokenizer.special_tokens["<e>"]) is int
    tokenizer.register_special_tokens({"<f>": 301})
    assert tokenizer.special_tokens == {"<f>": 301}
    for wrong in (["<e>"], None, {"<e>"}):
        with pytest.raises(TypeError):
            tokenizer.register_special_tokens(wrong)
    assert tokenizer.special_tokens == {"<f>": 301}


def test_many_special_tokens_take_linear_time():
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({f"<|{i}|>": 1000 + i for i in range(1000)})
    text = "".join(f"a<|{i % 1000}|>" for i in range(20_000))
    assert tokenizer.encode(text, "all") == [n for i in range(20_000) for n in (97, 1000 + i % 1000)]


def test_refusals_hold_without_asserts():
    program = """
import cbpe
tokenizer = cbpe.RegexTokenizer()
tokenizer.register_special_tokens({"<e>": 300})
for call in (lambda: tokenizer.encode("<e>"), lambda: tokenizer.train("a", 255), lambda: tokenizer.load("x.txt")):
    try:
        call()
    except AssertionError as error:
        print(type(error).__name__)
"""
    output = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["DisallowedSpecialTokenError", "VocabSizeError", "ModelFileError"]


# ---- tokenizers of programs' own


class TextbookTokenizer(Tokenizer):
    """As programs for minbpe write one."""

    def train(self, text, vocab_size, verbose=False):
        ids = list(text.encode("utf-8"))
        merges = {}
        for i in range(vocab_size - 256):
            stats = get_stats(ids)
            pair = max(stats, key=stats.get)
            ids = merge(ids, pair, 256 + i)
            merges[pair] = 256 + i
        self.merges = merges
        self.vocab = self._build_vocab()

    def decode(self, ids):
        return b"".join(self.vocab[idx] for idx in ids).decode("utf-8", errors="replace")

    def encode(self, text):
        ids = list(text.encode("utf-8"))
        while len(ids) >= 2:
            stats = get_stats(ids)
            pair = min(stats, key=lambda p: self.merges.get(p, float("inf")))
            if pair not in self.merges:
                break
            ids = merge(ids, pair, self.merges[pair])
        return ids


class StepwiseTokenizer(TextbookTokenizer):
    """The same, changing its attributes in place, and with no call of super().__init__."""

    def __init__(self, name):
        self.name = name

    def train(self, text, vocab_size, verbose=False):
        ids = list(text.encode("utf-8"))
        for idx in range(256, vocab_size):
            stats = get_stats(ids)
            pair = max(stats, key=stats.get)
            ids = merge(ids, pair, idx)
            self.merges[pair] = idx
            self.vocab[idx] = self.vocab[pair[0]] + self.vocab[pair[1]]


@pytest.mark.parametrize("make", [TextbookTokenizer, lambda: StepwiseTokenizer("x")])
def test_a_tokenizer_written_for_minbpe(make, tmp_path):
    basic, own = BasicTokenizer(), make()
    for tokenizer in (basic, own):
        tokenizer.train(TEXT, 280)
    assert state(own) == state(basic)
    assert own.encode(TEXT) == basic.encode(TEXT)
    assert own.decode(own.encode(TEXT)) == TEXT
    own.save(tmp_path / "own")
    basic.save(tmp_path / "basic")
    for suffix in (".model", ".vocab"):
        assert (tmp_path / f"own{suffix}").read_bytes() == (tmp_path / f"basic{suffix}").read_bytes()
    other = make()
    other.load(tmp_path / "own.model")
    assert other.encode(TEXT) == basic.encode(TEXT)
    for again in (copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))):
        assert state(again) == state(own)
        assert vars(again).get("name") == vars(own).get("name")


def test_the_base_says_what_is_for_subclasses_to_write():
    tokenizer = Tokenizer()
    assert tokenizer.vocab == {i: bytes([i]) for i in range(256)}
    for call in (lambda: tokenizer.train("a", 256), lambda: tokenizer.encode("a"), lambda: tokenizer.decode([97])):
        with pytest.raises(NotImplementedError):
            call()


class ShuffledTokenizer(RegexTokenizer):
    """As minbpe writes GPT4Tokenizer: it permutes the bytes of each chunk and of the decoded text itself."""

    def __init__(self, merges, byte_shuffle):
        super().__init__(pattern=GPT4_SPLIT_PATTERN)
        self.merges = merges
        vocab = {idx: bytes([idx]) for idx in range(256)}
        for (p0, p1), idx in self.merges.items():
            vocab[idx] = vocab[p0] + vocab[p1]
        self.vocab = vocab
        self.byte_shuffle = byte_shuffle
        self.inverse_byte_shuffle = {v: k for k, v in self.byte_shuffle.items()}
        self.register_special_tokens(GPT4_SPECIAL_TOKENS)

    def _encode_chunk(self, text_bytes):
        return super()._encode_chunk(bytes(self.byte_shuffle[b] for b in text_bytes))

    def decode(self, ids):
        text_bytes = b"".join(self.vocab[idx] for idx in ids)
        return bytes(self.inverse_byte_shuffle[b] for b in text_bytes).decode("utf-8", errors="replace")


def test_a_subclass_may_encode_chunks_its_own_way():
    gpt4 = GPT4Tokenizer()
    own = ShuffledTokenizer(gpt4.merges, gpt4.byte_shuffle)
    text = TEXT + "안녕하세요! 😉"
    ids = gpt4.encode(text)
    assert own.encode(text) == own.encode_ordinary(text) == ids
    assert own.encode_to_numpy(text).tolist() == ids
    assert own.count(text) == len(ids)
    assert own.decode(ids) == text
    assert own.encode("a<|endoftext|>" + text, "all") == [64, 100257, *ids]


# ---- GPT-4


def test_gpt4_gives_tiktokens_ids():
    tokenizer = GPT4Tokenizer()
    text = "hello world!!!? (안녕하세요!) lol123 😉"
    ids = [15339, 1917, 12340, 30, 320, 31495, 230, 75265, 243, 92245, 16715, 28509, 4513, 57037]
    assert tokenizer.encode(text) == ids
    assert tokenizer.encode_to_numpy(text).tolist() == ids
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode_bytes(ids) == text.encode()


def test_gpt4s_attributes_are_minbpes():
    tokenizer = GPT4Tokenizer()
    assert tokenizer.pattern == GPT4_SPLIT_PATTERN
    assert tokenizer.special_tokens == GPT4_SPECIAL_TOKENS
    assert tokenizer.inverse_special_tokens[100257] == "<|endoftext|>"
    assert list(tokenizer.merges.values()) == list(range(256, 100256))
    assert tokenizer.byte_shuffle[0] == 188
    assert tokenizer.inverse_byte_shuffle == {v: k for k, v in tokenizer.byte_shuffle.items()}
    assert tokenizer.vocab[0] == b"\0"
    assert bytes(tokenizer.inverse_byte_shuffle[b] for b in tokenizer.vocab[1917]) == b" world"


def test_gpt4s_bytes_may_be_assigned_from_either_side():
    tokenizer = GPT4Tokenizer()
    tokenizer.inverse_byte_shuffle = {first: byte for byte, first in tokenizer.byte_shuffle.items()}
    assert tokenizer.byte_shuffle == GPT4Tokenizer().byte_shuffle
    assert tokenizer.encode("hello world") == [15339, 1917]


def test_changing_one_gpt4_tokenizer_changes_no_other():
    one, other = GPT4Tokenizer(), GPT4Tokenizer()
    one.byte_shuffle = {i: 255 - i for i in range(256)}
    one.merges = {}
    assert one.encode("a") == [255 - 97]
    assert one.decode([255 - 97]) == "a"
    one.byte_shuffle[97], one.byte_shuffle[98] = one.byte_shuffle[98], one.byte_shuffle[97]
    assert one.encode("a") == [255 - 98]
    assert one.inverse_byte_shuffle[255 - 98] == 97
    one.special_tokens.clear()
    one.byte_shuffle[0] = 7
    with pytest.raises(ValueError, match="shuffle"):
        one.encode("a")
    assert other.encode("hello world") == [15339, 1917]
    assert other.special_tokens == GPT4_SPECIAL_TOKENS


def test_gpt4_is_not_trained_saved_or_loaded(tmp_path):
    tokenizer = GPT4Tokenizer()
    for call in (
        lambda: tokenizer.train("a", 256),
        lambda: tokenizer.train_from_files(tmp_path / "a", 256),
        lambda: tokenizer.train_from_iterator(["a"], 256),
        lambda: tokenizer.load(tmp_path / "a.model"),
    ):
        with pytest.raises(NotImplementedError, match="RegexTokenizer"):
            call()
    with pytest.raises(NotImplementedError, match="save_vocab"):
        tokenizer.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_gpt4s_vocab_file_is_minbpes(tmp_path):
    GPT4Tokenizer().save_vocab(tmp_path / "gpt4.vocab")
    lines = (tmp_path / "gpt4.vocab").read_bytes().decode().split("\n")
    assert lines[0] == "[!] 0"
    assert lines[188] == "[\\u0000] 188"
    assert lines[256] == "[ ][ ] -> [  ] 256"
    assert lines[1917] == "[ w][orld] -> [ world] 1917"
    assert lines[100255:] == ["[ Con][veyor] -> [ Conveyor] 100255", ""]


# ---- recovering merges


def naive_bpe(ranks, token, max_rank):
    parts = [bytes([b]) for b in token]
    while True:
        found = [(ranks[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in ranks]
        if not found or min(found)[0] >= max_rank:
            return parts
        i = min(found)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@examples(100)
@given(st.sets(st.binary(min_size=2, max_size=4).map(lambda b: bytes(97 + x % 2 for x in b))), st.randoms())
def test_bpe_is_the_naive_one(tokens, rng):
    ranks = {token: rank for rank, token in enumerate(rng.sample(sorted(tokens), len(tokens)), start=256)}
    token = bytes(rng.choices(b"abc", k=rng.randrange(30)))
    for max_rank in (258, 1000):
        assert cbpe.gpt4.bpe(ranks, token, max_rank) == naive_bpe(ranks, token, max_rank)


def test_bpe_passes_over_pairs_that_are_not_there_any_more():
    assert cbpe.gpt4.bpe({b"ab": 256, b"bc": 257, b"cd": 258}, b"abcdbc") == [b"ab", b"cd", b"bc"]


def test_recover_merges_is_the_inverse_of_ranks():
    tokenizer = BasicTokenizer()
    tokenizer.train(TEXT + TEXT[::-1] + "a" * 65, 330)
    ranks = {token: number for number, token in tokenizer.vocab.items()}
    assert len(ranks) == 330
    shuffled = dict(random.Random(1).sample(sorted(ranks.items()), len(ranks)))
    assert list(recover_merges(shuffled).items()) == list(tokenizer.merges.items())


def test_recover_merges_names_a_token_without_parents():
    ranks = {bytes([i]): i for i in range(256)}
    with pytest.raises(ValueError, match="token b'ab' is a merge of b'a' and b'b', which are not both tokens"):
        recover_merges({**{token: rank for token, rank in ranks.items() if token != b"a"}, b"ab": 97})
    for token in (b"abc", b""):
        with pytest.raises(ValueError, match=re.escape(repr(token))):
            recover_merges({**ranks, b"bd": 256, token: 257})


def test_recover_merges_of_long_tokens_is_quick():
    ranks = {bytes([i]): i for i in range(256)} | {b"a" * 2**i: 255 + i for i in range(1, 16)}
    assert recover_merges(ranks)[255 + 14, 255 + 14] == 255 + 15


# ---- signatures


def test_signatures_show_the_arguments():
    assert list(inspect.signature(RegexTokenizer.train).parameters)[:4] == ["self", "text", "vocab_size", "verbose"]
    assert inspect.signature(RegexTokenizer.encode).parameters["allowed_special"].default == "none_raise"
    for name in ("train_from_files", "train_from_iterator", "train_from_chunks"):
        parameters = inspect.signature(getattr(RegexTokenizer, name)).parameters
        keywords = ["special_tokens", "min_frequency", "num_threads", "errors", "verbose", "progress"]
        assert [each for each in parameters if each in keywords] == keywords
        assert all(each.kind is each.KEYWORD_ONLY for each in list(parameters.values())[3:])
    for cls in (Tokenizer, BasicTokenizer, RegexTokenizer, GPT4Tokenizer):
        for name, member in inspect.getmembers(cls):
            if not name.startswith("_"):
                assert member.__doc__, f"{cls.__name__}.{name}"


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (DisallowedSpecialTokenError, (ValueError, AssertionError)),
        (UnknownIdError, (ValueError, KeyError)),
        (VocabSizeError, (ValueError, AssertionError)),
        (ModelFileError, (ValueError, AssertionError)),
        (CorpusTooLargeError, (ValueError, OverflowError)),
    ],
)
def test_errors_are_of_both_worlds(error, kinds):
    assert all(issubclass(error, kind) for kind in kinds)
    assert str(error("what is wrong")) == "what is wrong"
    assert str(pickle.loads(pickle.dumps(error("what is wrong")))) == "what is wrong"


def test_training_and_encoding_do_without_stderr(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("low lower lowest " * 100)
    tokenizer = RegexTokenizer()
    monkeypatch.setattr(sys, "stderr", None)        # as under pythonw.exe, or where a daemon closed it
    for progress in (None, True):
        tokenizer.train_from_files(corpus, 260, progress=progress)
        n = tokenizer.encode_file(corpus, tmp_path / "ids.bin", progress=progress)
        assert tokenizer.count_ids(corpus, progress=progress).sum() == n
        assert tokenizer.encode_shards(corpus, tmp_path / f"shards{progress}", 100, progress=progress).n_ids == n


@pytest.mark.parametrize(("pattern", "text"), [(cbpe.GPT4_SPLIT_PATTERN, ""), ("no such word", "some text")])
def test_training_on_nothing_says_so(pattern, text):
    with pytest.warns(UserWarning, match="there is no text, or the pattern matches none of it"):
        RegexTokenizer(pattern).train(text, 300)

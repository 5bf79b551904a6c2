"""to_tiktoken and save_tiktoken: what they let out gives the same ids in tiktoken, and what would not, they refuse."""

from __future__ import annotations

import base64
import hashlib
import os
import pickle
import random
import re
import sys
import warnings
from itertools import product

import pytest
import regex
import tiktoken
import tiktoken.load
from budget import mostly_thorough, thorough

import cbpe
from cbpe import BasicTokenizer, ExportError, GPT4Tokenizer, RegexTokenizer
from cbpe.formats.fancy import to_fancy
from cbpe.formats.tiktoken import Engine, pattern_there
from cbpe.patterns import NAMED_PATTERNS

CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
NANOCHAT = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
TEXTS = [
    "", " ", "\n", "hello world", "  ", "   ", "hello  world", "I'LL say it'\u017f 12345\r\n\r\n  x \t",
    "naïve 日本語 नमस्ते", "hello world!!!? (안녕하세요!) lol123 😉", "a\0b", "x" * 3000, " " * 2000, "ab" * 700,
    "\u3000\x85\x1c\ufeff",
]  # fmt: skip


def corpus(seed=0, n=3000):
    rng = random.Random(seed)
    words = ["the", "lower", "newest", "it's", "WE'LL", "12", "2024", "\n\n", "  ", "\t", "!!", "->"]
    words += ["naïve", "日本語", "नमस्ते"]
    words += ["".join(rng.choices("abcdeé漢 1.", k=rng.randint(1, 6))) for _ in range(60)]
    return " ".join(rng.choices(words, k=n))


def trained(pattern=None, size=500, seed=0, specials=None, basic=False):
    tokenizer = BasicTokenizer() if basic else RegexTokenizer(pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer.train(corpus(seed), size)
    tokenizer.register_special_tokens(specials or {})
    return tokenizer


def same(tokenizer, encoding, texts=TEXTS):
    for text in texts:
        assert encoding.encode_ordinary(text) == tokenizer.encode_ordinary(text)
        assert encoding.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all")
    for number, token in tokenizer._model.token_bytes.items():
        if number not in tokenizer._model.shared_ids:
            assert encoding.decode_single_token_bytes(number) == token


# ---- what goes


@pytest.mark.parametrize(
    ("seed", "pattern"),
    list(enumerate([*NAMED_PATTERNS.values(), NANOCHAT, r"\w+|\W", r"\p{L}+"])),
)
def test_a_trained_tokenizer(pattern, seed):
    specials = {"<|endoftext|>": 700, "<a b>": 701, "[x]*": 705, "'": 706, "\n\n": 707}
    tokenizer = trained(pattern, 300 + 30 * seed, seed, specials)
    encoding = tokenizer.to_tiktoken("mine")
    assert encoding.name == "mine"
    assert encoding._special_tokens == specials
    texts = [*TEXTS, corpus(seed + 1, 300), "a<a b>  [x]*'s\n\n\n<|endoftext|>"]
    same(tokenizer, encoding, texts)


def test_a_basic_tokenizer():
    tokenizer = trained(basic=True, specials={"<e>": 900})
    same(tokenizer, tokenizer.to_tiktoken("basic"), [*TEXTS, corpus(1, 400), "a\n<e>\n b"])


def test_a_tokenizer_without_merges_or_special_tokens():
    tokenizer = RegexTokenizer()
    same(tokenizer, tokenizer.to_tiktoken("bytes"))


ENCODINGS = ["gpt2", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"]


@pytest.mark.parametrize("name", mostly_thorough(ENCODINGS, "p50k_edit"))
def test_published_encodings_keep_their_pattern(name):
    tokenizer = cbpe.get_encoding(name)
    encoding = tokenizer.to_tiktoken(name)
    assert encoding._pat_str == tokenizer.pattern
    assert encoding._special_tokens == tokenizer.special_tokens
    same(tokenizer, encoding)


@thorough
def test_C58_gpt4_is_cl100k_to_the_byte(tmp_path):
    tokenizer = GPT4Tokenizer()
    tokenizer.save_tiktoken(tmp_path / "gpt4.tiktoken")
    assert hashlib.sha256((tmp_path / "gpt4.tiktoken").read_bytes()).hexdigest() == CL100K_SHA256
    encoding = tokenizer.to_tiktoken("gpt4")
    assert encoding.encode("  ") == [256]
    assert encoding.encode("   ") == [262]
    assert encoding.encode("hello  world") == [15339, 220, 1917]
    assert encoding.encode("hello world!!!? (안녕하세요!) lol123 😉") == [
        15339, 1917, 12340, 30, 320, 31495, 230, 75265, 243, 92245, 16715, 28509, 4513, 57037
    ]  # fmt: skip


def test_a_rank_file_is_what_tiktoken_reads(tmp_path, monkeypatch):
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    tokenizer = trained()
    path = tmp_path / "naïve é.tiktoken"
    tokenizer.save_tiktoken(path)
    table = tiktoken.load.load_tiktoken_bpe(str(path))
    assert table == {token: number for number, token in tokenizer.vocab.items()}
    lines = path.read_bytes().split(b"\n")
    assert lines[0] == base64.b64encode(b"\0") + b" 0"
    assert lines[-1] == b""
    assert [int(line.split()[1]) for line in lines[:-1]] == sorted(table.values())
    encoding = tiktoken.Encoding("mine", pat_str=tokenizer.pattern, mergeable_ranks=table, special_tokens={})
    same(tokenizer, encoding)


def test_an_encoding_pickles():
    tokenizer = trained(specials={"<e>": 600})
    encoding = pickle.loads(pickle.dumps(tokenizer.to_tiktoken("mine")))
    same(tokenizer, encoding, ["a<e>b"])


def test_C26_surrogates_are_mended_there():
    encoding = trained().to_tiktoken("mine")
    assert encoding.encode("\ud83d\udc4d") == encoding.encode("👍")


def test_sparse_ids_go():
    tokenizer = RegexTokenizer()
    tokenizer.merges = {(97, 98): 300, (300, 99): 1000}
    same(tokenizer, tokenizer.to_tiktoken("sparse"), ["abcab", "ab"])


# ---- patterns


# the vocabulary of every_border has characters that tiktoken does not know yet
NEWER = pytest.mark.filterwarnings("ignore:tiktoken has an older edition of Unicode")


def every_border(pattern):
    """A tokenizer with tokens of two bytes for much that occurs: where another chunk begins, the ids are others."""
    tokenizer = RegexTokenizer(pattern)
    low = b"\t\n\r !#&'+,-.:<>[]_09ABINXabinx"
    pairs = [*product(low, low), *product(range(0x80, 0xC0), low), *product(low, range(0xC2, 0xF5))]
    pairs += product(range(0xC2, 0xF5), range(0x80, 0xC0))
    tokenizer.merges = {pair: 256 + i for i, pair in enumerate(pairs)}
    return tokenizer


REWRITTEN = {
    r"\w+$|.": r"\w+(?=\n?\z)|.",
    r"a\Z|\s": r"a\z|\s",
    r"(?m)a$|.": r"(?m)a$|.",
    r"[[&]+|\w": r"[\[&]+|\w".replace("&", r"\&"),
    r"[a&&b]+|\w|&": r"[a\&\&b]+|\w|&",
    r"[+--]+|\w+": r"[+-\-]+|\w+",
    r"[]a]+|\w+": r"[\]a]+|\w+",
    r"[^]a\n]+|a": r"[^\]a\n]+|a",
    r"[[:alpha:]]+|[[:digit:]]": r"[\p{Alphabetic}]+|[[:digit:]]",
    r"[[:alnum:]]+": r"[\p{Alphabetic}0-9]+",
    r"[^[:space:]]+|\s": r"[^\p{White_Space}]+|\s",
    r"[[:^alpha:]_]+|\w": r"[[^\p{Alphabetic}]_]+|\w",
    r"\h+|\w+": r"[\t\p{Zs}]+|\w+",
    r"[\h\n]+|\w+": r"[\t\p{Zs}\n]+|\w+",
    r"\<+|\w+|\>": r"<+|\w+|>",
    r"\N{COLON}+|[\N{COMMA}\N{SLIGHTLY SMILING FACE}]": r"\u003A+|[\u002C\U0001F642]",
    "(?x) [ #]+ # text $ [\n | \\w+$ | .": "(?x) [ #]+ # text $ [\n | \\w+(?=\\n?\\z) | .",
    r"(?i:in)|\w|\s": "(?i:(?-i:[iIİ])n)|\\w|\\s",
    r"(?i)[a-f]+|[h-k]+|\W": "(?i)[a-f]+|(?:(?-i:[iIİ])|(?!(?-i:[iIİı]))[h-k])+|\\W",
    r"(?V0)a(?#text)(?u)|\s": r"a|\s",
    r"(?s:.)(?-s:.)|\n": r"(?s:.)(?-s:.)|\n",
    r"(?<q>['\"]).(?P=q)|\w": r"(?<q>['\"]).(?P=q)|\w",
    r"\p{N}{1,3}+|\p{L}{2,}+|\s*+\S": r"\p{N}{1,3}+|\p{L}{2,}+|\s*+\S",
}


@NEWER
@pytest.mark.parametrize("pattern", REWRITTEN)
def test_a_pattern_is_rewritten(pattern):
    tokenizer = every_border(pattern)
    assert pattern_there(tokenizer, TEXTS) == REWRITTEN[pattern]
    same(tokenizer, tokenizer.to_tiktoken("x"), ["a\n", "I'm in, [a&&b] İıi #\t+,-. <> 'a' :\n", "a \n\n", "x-ray\n"])


@NEWER
@pytest.mark.parametrize("pattern", [pattern for pattern, there in REWRITTEN.items() if pattern != there])
def test_what_is_rewritten_has_to_be(pattern, monkeypatch):
    """As it stands tiktoken would read the pattern otherwise, and the comparison says so."""
    if pattern in (r"[]a]+|\w+", r"[^]a\n]+|a"):
        pytest.skip("both read it alike")
    monkeypatch.setattr("cbpe.formats.tiktoken.to_fancy", lambda compiled: compiled.pattern)
    with pytest.raises(ExportError, match=r"pattern|fails"):
        every_border(pattern).to_tiktoken("x")


@NEWER
@pytest.mark.parametrize(
    ("compiled", "there"),
    [
        (regex.compile(r"in|\w+ #", regex.I | regex.X), r"(?ix)(?-i:[iIİ])n|\w+ #"),
        (regex.compile("a.b$|.", regex.S | regex.M), "(?ms)a.b$|."),
        (re.compile(r"a.b$|\w", re.S), r"(?s)a.b(?=\n?\z)|\w"),
    ],
)
def test_flags_of_a_compiled_pattern_go(compiled, there):
    assert to_fancy(compiled) == there
    if isinstance(compiled, regex.Pattern):
        tokenizer = every_border(compiled)
        same(tokenizer, tokenizer.to_tiktoken("x"), ["a\nb\n", "A\nB in IN"])


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"x*", "matches the empty text"),
        (r"\w*|\s", "matches the empty text"),
        (r"a|(?=b)", "matches the empty text"),
        (r"(?r)\w+", "no such flag"),
        (r"(?V1)[[a-z]--[b]]", "no such flag"),
        (r"(?:ab){e<=1}|\w", "pattern"),
        (r"(?|(a)|(b))", "cannot read the pattern"),
        (r"\X", "cannot read the pattern"),
        (r"[[:punct:]]+|\w+", "read the pattern otherwise"),
        (r"(?i:\p{Lu})+|.", "read the pattern otherwise"),
        (r"\p{InGreek}+|\w", "cannot read the pattern"),
        (regex.compile(r"\w+", regex.ASCII), "no such flag"),
    ],
)
def test_other_patterns_are_refused(pattern, reason, tmp_path):
    if isinstance(pattern, str):
        try:
            regex.compile(pattern)
        except regex.error:
            pytest.skip("this regex has no such pattern")
    tokenizer = every_border(pattern)
    with pytest.raises(ExportError, match=reason):
        tokenizer.save_tiktoken(tmp_path / "x.tiktoken")        # makes the encoding, to compare it
    assert os.listdir(tmp_path) == []


@NEWER
def test_C57_text_that_the_pattern_does_not_cover_is_left_out_there_too():
    tokenizer = every_border(r"\p{L}+")
    encoding = tokenizer.to_tiktoken("x")
    assert encoding.encode("ab, cd1") == tokenizer.encode("ab, cd1")
    assert encoding.decode(encoding.encode("ab, cd1")) == "abcd"


def test_the_engine_says_how_it_splits():
    engine = Engine(r"\w+|\s")
    assert engine.split("ab 12, é\n") == [b"ab", b" ", b"12", b" ", "é".encode(), b"\n"]
    assert engine.split("aaaa" * 300) is None
    assert engine.find(r"\p{Lu}", "aBcÉ") == "BÉ"


# ---- what is refused otherwise


def test_special_tokens_that_begin_alike_are_refused(tmp_path):
    for specials in ({"<a>": 900, "<a>b": 901}, {"<a>b": 901, "<a>": 900}):
        tokenizer = trained(specials=specials)
        with pytest.raises(ExportError, match="'<a>b' begins with '<a>'"):
            tokenizer.to_tiktoken("x")
        with pytest.raises(ExportError, match="'<a>b' begins with '<a>'"):
            tokenizer.save_tiktoken(tmp_path / "x.tiktoken")
    same(each := trained(specials={"<s>": 900, "</s>": 901, "s>": 902}), each.to_tiktoken("x"), ["<s>a</s>s>"])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "merges",
    [
        {(97, 98): 256, (98, 99): 257, (97, 257): 258},             # "abc" is 256, 99 here, and 258 there
        {(97, 98): 256, (256, 99): 257, (98, 99): 258, (97, 258): 259},      # "abc" twice
        {(97, 98): 400, (400, 97): 300},                            # "abab" is 400, 400 here, and 300, 98 there
    ],
)
def test_merges_that_ranks_cannot_say_are_refused(merges, tmp_path):
    tokenizer = RegexTokenizer()
    tokenizer.merges = merges
    with pytest.raises(ExportError, match=r"abc|ab"):
        tokenizer.to_tiktoken("x")
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"old")
    with pytest.raises(ExportError):
        tokenizer.save_tiktoken(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.tiktoken"]


def test_a_vocab_that_was_assigned_is_refused():
    tokenizer = trained()
    tokenizer.vocab = {**tokenizer.vocab, 97: b"b"}
    with pytest.raises(ExportError):
        tokenizer.to_tiktoken("x")


def test_a_class_that_encodes_its_own_way_is_refused():
    class Mine(RegexTokenizer):
        def encode_ordinary(self, text):
            return super().encode_ordinary(text.lower())

    with pytest.raises(ExportError, match="Mine encodes in a way of its own"):
        Mine().to_tiktoken("x")


def test_a_tokenizer_of_words_is_refused(tmp_path):
    tokenizer = cbpe.WordTokenizer()
    tokenizer.train("low lower lowest " * 10, 20)
    with pytest.raises(ExportError, match=r"WordTokenizer|no token for byte"):
        tokenizer.to_tiktoken("x")
    with pytest.raises(ExportError, match=r"WordTokenizer|no token for byte"):
        tokenizer.save_tiktoken(tmp_path / "x")
    assert os.listdir(tmp_path) == []


def test_a_newer_character_in_the_vocabulary_is_warned_of():
    def known(char):
        return Engine("").find(r"\p{L}", char)

    new = next(char for char in regex.findall(r"\p{Ll}", "".join(map(chr, range(0xA700, 0xA800)))) if not known(char))
    tokenizer = RegexTokenizer()
    tokenizer.train(f"a{new}a{new}" * 10, 260)
    with pytest.warns(UserWarning, match=rf"older edition of Unicode and splits U\+{ord(new):04X}"):
        encoding = tokenizer.to_tiktoken("x")
    assert encoding.encode(f"a{new}") != tokenizer.encode(f"a{new}")


def test_wrong_names_and_places(tmp_path):
    tokenizer = RegexTokenizer()
    with pytest.raises(TypeError, match="must be a str"):
        tokenizer.to_tiktoken(5)
    with pytest.raises(OSError, match="nowhere"):
        tokenizer.save_tiktoken(tmp_path / "nowhere" / "x")


def test_without_tiktoken_a_file_is_written_with_a_warning(tmp_path, monkeypatch):
    tokenizer = trained()
    tokenizer.save_tiktoken(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.warns(UserWarning, match="tiktoken is not installed"):
        tokenizer.save_tiktoken(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with pytest.raises(ImportError):
        tokenizer.to_tiktoken("x")


def test_a_tokenizer_is_not_changed():
    tokenizer = trained(specials={"<e>": 600})
    before = pickle.dumps((tokenizer.merges, tokenizer.special_tokens, tokenizer.pattern))
    tokenizer.to_tiktoken("x")
    assert pickle.dumps((tokenizer.merges, tokenizer.special_tokens, tokenizer.pattern)) == before


def test_gpt4_names_the_export_where_it_refuses_to_save():
    with pytest.raises(NotImplementedError, match="save_tiktoken"):
        GPT4Tokenizer().save("x")

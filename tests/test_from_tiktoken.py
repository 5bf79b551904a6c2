"""Rank files and encodings of tiktoken: an imported tokenizer gives tiktoken's ids, or the import is refused.

The oracle is tiktoken. published.py says where published rank files are looked for.
"""

from __future__ import annotations

import base64
import copy
import pickle
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference
import regex
import tiktoken
from budget import examples, mostly_thorough
from hypothesis import given
from hypothesis import strategies as st
from published import SHARED, VOCAB

import cbpe
from cbpe import RegexTokenizer
from cbpe.errors import ExportError, ModelFileError, SpecialTokenError, UnknownIdError
from cbpe.formats import ranks
from cbpe.formats.fancy import from_fancy
from cbpe.model import Model
from cbpe.patterns import CL100K_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, NAMED_PATTERNS

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {
    "cl100k_base.tiktoken": None,
    "o200k_base.tiktoken": None,
    "r50k_base.tiktoken": None,
    "p50k_base.tiktoken": None,
    "llama3_tokenizer.model": LLAMA3,
    "qwen.tiktoken": LLAMA3.replace("{1,3}", ""),
}
BYTES = {bytes([i]): i for i in range(256)}
TEXT = "the cat that sat on the mat, the theatre and that hat: tatata ananas 1234 it's é漢🎉\n\n x " * 3 + "a" * 300
NASTY = [
    "", " ", "  ", "\n", "a\n ", "\r\n\r\n", "\0", "'RE 'll it'\u017f", "0123456789 ١٢٣",
    "\ufeff\u200b\u00a0\u2028x\u3000", "नमस्ते हिन्दी a\u0301b", "👩\u200d👩\u200d👧🏽🇩🇪", "한국어 日本語 ไทย",
    "x" * 1000, " " * 500, "=" * 333 + "\n" * 99, "ab" * 700,
    " nghiệp .:.:.:.: việc uzavře したいている",
]  # fmt: skip

each_file = pytest.mark.parametrize("name", mostly_thorough(PATTERNS, "r50k_base.tiktoken", "llama3_tokenizer.model"))


@cache
def published(name: str) -> tuple[RegexTokenizer, tiktoken.Encoding]:
    """A file, imported by us and by tiktoken."""
    path = VOCAB / name
    if not path.exists():
        pytest.skip(f"no {path}")
    tokenizer = RegexTokenizer.from_tiktoken(path, PATTERNS[name])
    lines = map(bytes.split, path.read_bytes().splitlines())
    table = {base64.b64decode(token): int(rank) for token, rank in lines}
    return tokenizer, tiktoken.Encoding(name, pat_str=tokenizer.pattern, mergeable_ranks=table, special_tokens={})


def rank_file(path: Path, table: dict[bytes, int]) -> Path:
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in table.items()))
    return path


def trained(text: str, num_merges: int) -> dict[bytes, int]:
    """Ranks that training gives."""
    learned, _ = reference.learn(text, num_merges, GPT4_SPLIT_PATTERN)
    return {token: number for number, token in reference.vocab(learned).items()}


# ---- published files


@each_file
def test_texts_have_tiktokens_ids(name: str) -> None:
    tokenizer, encoding = published(name)
    texts = [path.read_text(encoding="utf-8") for path in sorted((SHARED / "data").glob("*.txt"))]
    sources = sorted(Path(random.__file__).parent.glob("*.py"))
    texts += [path.read_bytes().decode("utf-8", "replace") for path in sources[::4]]
    for text in [*texts, *NASTY]:
        right = encoding.encode_ordinary(text)
        assert tokenizer.encode_ordinary(text) == right
        assert tokenizer.encode_to_numpy(text, "all").tolist() == right
        assert tokenizer.decode(right) == text


@each_file
def test_every_token_has_tiktokens_ids(name: str) -> None:
    """Alone as a chunk, and between letters, where it is no whole chunk."""
    tokenizer, encoding = published(name)
    tokens = encoding.token_byte_values()
    numbers = {encoding.encode_single_token(token): token for token in tokens}
    assert tokenizer._model.tokens(with_specials=False) == numbers
    encoder = tokenizer._model.encoder
    for token in tokens:
        assert encoder.encode_chunk(token) == [encoding.encode_single_token(token)]
    for token in random.Random(1).sample(tokens, 3000):
        for chunk in (b"x" + token, token + b"e", token + token, token * 12):
            assert encoder.encode_chunk(chunk) == encoding._encode_single_piece(chunk)


@each_file
def test_random_strings_of_tokens_have_tiktokens_ids(name: str) -> None:
    tokenizer, encoding = published(name)
    tokens = [token.decode("utf-8", "ignore") for token in encoding.token_byte_values()]
    generator = random.Random(2)
    for size in [2, 3, 5, 20, 100] * 40:
        text = "".join(generator.choices(tokens, k=size))
        assert tokenizer.encode_ordinary(text) == encoding.encode_ordinary(text)


@each_file
def test_a_file_is_imported_and_written_the_same(name: str) -> None:
    published(name)
    path = VOCAB / name
    tokenizer = RegexTokenizer.from_tiktoken(path, PATTERNS[name])
    assert ranks.text(ranks.ranks_of(tokenizer._model)) == path.read_bytes()


@each_file
def test_an_encoding_is_imported_as_its_file_is(name: str) -> None:
    tokenizer, encoding = published(name)
    again = RegexTokenizer.from_tiktoken(encoding)
    assert again._model.sha256 == tokenizer._model.sha256
    assert again.encode(NASTY[-1]) == tokenizer.encode(NASTY[-1])


@each_file
def test_the_pattern_of_a_published_file_is_known(name: str) -> None:
    published(name)
    tokenizer = RegexTokenizer.from_tiktoken(VOCAB / name)
    assert tokenizer.pattern in NAMED_PATTERNS.values()
    assert PATTERNS[name] is None or tokenizer.pattern == PATTERNS[name]


@pytest.mark.parametrize("name", mostly_thorough(["cl100k_base", "p50k_base", "o200k_base", "r50k_base"], "r50k_base"))
def test_openais_files_give_what_get_encoding_gives(name: str) -> None:
    tokenizer, _ = published(f"{name}.tiktoken")
    ours = cbpe.get_encoding(name)
    tokenizer = copy.copy(tokenizer)
    tokenizer.register_special_tokens(ours.special_tokens)
    assert tokenizer._model.sha256 == ours._model.sha256
    for attribute in ("merges", "vocab", "pattern", "byte_shuffle", "inverse_byte_shuffle"):
        assert getattr(tokenizer, attribute) == getattr(ours, attribute)


def test_tokens_that_merging_does_not_make_are_refused_in_files_that_nobody_knows() -> None:
    _, encoding = published("llama3_tokenizer.model")
    table = dict(encoding._mergeable_ranks)
    del table[b" nghi\xe1\xbb\x87"]
    other = tiktoken.Encoding("other", pat_str=LLAMA3, mergeable_ranks=table, special_tokens={})
    with pytest.raises(ModelFileError, match=r"encoding other: token .* is not a merge of two .*strict=False"):
        RegexTokenizer.from_tiktoken(other)
    tokenizer = RegexTokenizer.from_tiktoken(other, strict=False)
    for text in [*NASTY, TEXT]:
        assert tokenizer.encode(text) == other.encode(text)


# ---- any ranks


def rearranged(table: dict[bytes, int], way: str, generator: random.Random) -> dict[bytes, int]:
    """The same order of merging, numbered in another way."""
    if way == "bytes in another order":
        values = list(range(256))
        generator.shuffle(values)
        return {token: values[rank] if rank < 256 else rank for token, rank in table.items()}
    if way == "gaps":
        return {token: rank if rank < 256 else rank * 3 - 400 for token, rank in table.items()}
    if way == "begins elsewhere":
        return {token: rank + 1000 for token, rank in table.items()}
    if way == "bytes last":
        return {token: (rank - 256) % len(table) for token, rank in table.items()}
    if way == "far up":
        return {token: rank + 2**31 for token, rank in table.items()}
    return table


WAYS = ["as trained", "bytes in another order", "gaps", "begins elsewhere", "bytes last", "far up"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(4))
def test_trained_models_in_any_numbering(way: str, seed: int, tmp_path: Path) -> None:
    generator = random.Random(seed)
    letters = generator.choice(["ab ", "abcdé \n", "etaoin shrdlu,.\n123"])
    text = "".join(generator.choices(letters, k=400)) + TEXT
    table = rearranged(trained(text, 80), way, generator)
    shuffled = dict(generator.sample(sorted(table.items()), len(table)))
    path = rank_file(tmp_path / "a.tiktoken", shuffled)
    special_tokens = {"<s>": max(table.values()) + 5}
    encoding = tiktoken.Encoding(
        "a", pat_str=GPT4_SPLIT_PATTERN, mergeable_ranks=shuffled, special_tokens=special_tokens
    )
    for tokenizer in (
        RegexTokenizer.from_tiktoken(path, "gpt4", special_tokens),
        RegexTokenizer.from_tiktoken(str(path), GPT4_SPLIT_PATTERN, special_tokens),
        RegexTokenizer.from_tiktoken(encoding),
        pickle.loads(pickle.dumps(RegexTokenizer.from_tiktoken(encoding))),
    ):
        for each in [text, *NASTY, text + "<s>" + text]:
            assert tokenizer.encode(each, "all") == encoding.encode(each, allowed_special="all")
            assert tokenizer.encode_ordinary(each) == encoding.encode_ordinary(each)
            ids = tokenizer.encode_batch([each, each], "all", num_threads=2)
            assert ids == encoding.encode_batch([each, each], allowed_special="all")
            assert tokenizer.decode(ids[0]) == each
        assert tokenizer._model.max_id == encoding.max_token_value
        assert {number: encoding.decode_single_token_bytes(number) for number in tokenizer._model.token_bytes} == (
            tokenizer._model.token_bytes
        )
        assert ranks.ranks_of(tokenizer._model) == table
        with pytest.raises(UnknownIdError):
            tokenizer.decode([encoding.max_token_value - 1])
        assert tokenizer.pattern == GPT4_SPLIT_PATTERN
        assert tokenizer.special_tokens == special_tokens


@pytest.mark.parametrize("way", WAYS)
def test_a_tokenizer_trained_here_comes_back_as_it_was(way: str) -> None:
    plain = RegexTokenizer()
    plain.train(TEXT, 310)
    assert ranks.ranks_of(plain._model) == {token: number for number, token in plain.vocab.items()}
    table = rearranged(ranks.ranks_of(plain._model), way, random.Random(1))
    tokenizer = RegexTokenizer()
    tokenizer._model = ranks.model_of(table, "gpt4")
    back = {number: token for token, number in table.items()}
    for text in [TEXT, *NASTY]:
        tokens = [plain.vocab[number] for number in plain.encode(text)]
        assert [back[number] for number in tokenizer.encode(text)] == tokens
    assert ranks.ranks_of(tokenizer._model) == table
    if way == "as trained":
        assert tokenizer._model.sha256 == plain._model.sha256
        assert tokenizer.merges == plain.merges


tokens = st.lists(st.text("ab", min_size=2, max_size=7).map(str.encode), unique=True, max_size=14)


@examples(200)
@given(tokens, st.randoms(use_true_random=False), st.lists(st.text("ab", max_size=40), max_size=4))
def test_ranks_that_no_training_makes(longer: list[bytes], generator: random.Random, texts: list[str]) -> None:
    """Tokens before their parts, and tokens that are only whole chunks."""
    table = rearranged(BYTES | {token: i for i, token in enumerate(longer, 256)}, generator.choice(WAYS), generator)
    encoding = tiktoken.Encoding("a", pat_str=r"\w+|\W", mergeable_ranks=table, special_tokens={})
    tokenizer = RegexTokenizer.from_tiktoken(encoding, strict=False)
    for text in [*texts, " ".join(texts), " ".join(token.decode() for token in longer), "ab" * 100, "aab" * 40]:
        right = encoding.encode(text)
        for _ in range(2):
            assert tokenizer.encode(text) == right
            assert tokenizer.encode_to_numpy(text).tolist() == right
        assert tokenizer.decode(right) == text
    for token in longer:
        assert tokenizer.encode(token.decode()) == [table[token]]
    assert ranks.ranks_of(tokenizer._model) == table


def test_vocab_of_whole_chunks_is_written_as_the_other_tokens_are() -> None:
    table = rearranged(trained(TEXT, 20) | {b"xyz": 999}, "bytes in another order", random.Random(3))
    tokenizer = RegexTokenizer()
    tokenizer._model = ranks.model_of(table, "gpt4", strict=False)
    values = bytes(tokenizer.inverse_byte_shuffle[i] for i in range(256))
    assert {number: token.translate(values) for number, token in tokenizer.vocab.items()} == {
        number: token for token, number in table.items()
    }
    assert tokenizer.encode("xyz") == [999]
    assert tokenizer.decode([999]) == "xyz"


# ---- special tokens, surrogates, classes


def test_special_tokens_that_share_an_id() -> None:
    """As in o200k_harmony; which of them is decoded, tiktoken says."""
    special_tokens = {"<a>": 300, "<b>": 301, "<c>": 300, "<d>": 300}
    encoding = tiktoken.Encoding("a", pat_str=r"\w+|\W", mergeable_ranks=BYTES, special_tokens=special_tokens)
    tokenizer = RegexTokenizer.from_tiktoken(encoding)
    assert tokenizer.special_tokens == special_tokens
    assert tokenizer.encode("<a><b>x<c><d>", "all") == encoding.encode("<a><b>x<c><d>", allowed_special="all")
    assert tokenizer.decode([300, 301]) == encoding.decode([300, 301])
    with pytest.raises(SpecialTokenError, match="have the same id"):
        RegexTokenizer.from_tiktoken(encoding, special_tokens=special_tokens)


def test_special_tokens_need_free_ids() -> None:
    encoding = tiktoken.Encoding("a", pat_str=r"\w+|\W", mergeable_ranks=BYTES, special_tokens={})
    with pytest.raises(SpecialTokenError, match="not free"):
        RegexTokenizer.from_tiktoken(encoding, special_tokens={"<a>": 97})
    assert RegexTokenizer.from_tiktoken(encoding, special_tokens={"<a>": 256}).encode("<a>", "all") == [256]


def test_c26_surrogates_are_repaired_as_tiktoken_does(tmp_path: Path) -> None:
    table = trained(TEXT, 40)
    encoding = tiktoken.Encoding("a", pat_str=CL100K_SPLIT_PATTERN, mergeable_ranks=table, special_tokens={})
    tokenizer = RegexTokenizer.from_tiktoken(encoding)
    for text in ["\ud83d\udc4d", "\ud83d", "ok\ud800ok", "\udc4d\ud83d"]:
        right = encoding.encode(text)
        assert tokenizer.encode(text) == tokenizer.encode_ordinary(text) == right
        assert tokenizer.encode_to_numpy(text).tolist() == right
        assert tokenizer.encode_batch([text, "a"])[0] == right
        assert tokenizer.count(text) == len(right)
    with pytest.raises(SpecialTokenError):
        tokenizer.register_special_tokens({"\ud800": 900})


def test_a_subclass_is_made_of_its_class_and_openais_are_not(tmp_path: Path) -> None:
    class Own(RegexTokenizer):
        pass

    path = rank_file(tmp_path / "a.tiktoken", BYTES)
    assert type(Own.from_tiktoken(path, "gpt2")) is Own
    for complete in (cbpe.GPT4Tokenizer, type(cbpe.get_encoding("gpt2"))):
        with pytest.raises(NotImplementedError, match="RegexTokenizer"):
            complete.from_tiktoken(path, "gpt2")


def test_training_an_imported_tokenizer_begins_anew() -> None:
    encoding = tiktoken.Encoding(
        "a", pat_str=GPT4_SPLIT_PATTERN, mergeable_ranks=rearranged(BYTES, "begins elsewhere", random.Random(1)),
        special_tokens={},
    )
    tokenizer, fresh = RegexTokenizer.from_tiktoken(encoding), RegexTokenizer()
    for each in (tokenizer, fresh):
        each.train(TEXT, 300)
    assert tokenizer._model.sha256 == fresh._model.sha256
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("\ud800")


# ---- patterns


def test_a_pattern_must_be_known(tmp_path: Path) -> None:
    path = rank_file(tmp_path / "a.tiktoken", BYTES)
    with pytest.raises(ValueError, match=r"does not hold the pattern.*gpt2, gpt4, r50k, cl100k, o200k"):
        RegexTokenizer.from_tiktoken(path)
    assert RegexTokenizer.from_tiktoken(path, "o200k").pattern == NAMED_PATTERNS["o200k"]
    assert RegexTokenizer.from_tiktoken(path, regex.compile("A+", regex.I)).encode("aAb") == list(b"aA")


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (r"\s++$|\s", r"\s++\Z|\s"),
        (r"[$\$]\$\\$", r"[$\$]\$\\\Z"),
        (r"a\z|b\Z", r"a\Z|b(?=\n*\Z)"),
        (r"\h+", "[0-9A-Fa-f]+"),
        (r"(?i:'s)|(?s-i:.)|(?=a)(?<!b)(?:c)", r"(?i:'s)|(?s-i:.)|(?=a)(?<!b)(?:c)"),
        (r"[^\]\[a]|[]a]", r"[^\]\[a]|[]a]"),
        (CL100K_SPLIT_PATTERN, CL100K_SPLIT_PATTERN),
    ],
)
def test_patterns_in_the_words_of_regex(theirs: str, ours: str) -> None:
    assert from_fancy(theirs) == ours
    encoding = tiktoken.Encoding("a", pat_str=theirs, mergeable_ranks=BYTES, special_tokens={})
    tokenizer = RegexTokenizer.from_tiktoken(encoding)
    for text in ["a\n", "ab\n\n", "fx$\\$", " \n", "'S", "]a[", "x y\n"]:
        assert tokenizer.encode(text) == encoding.encode(text)


@pytest.mark.parametrize("theirs", [r"[\p{L}&&[^\p{Han}]]+", "[a[b]]", r"[\ha]", "(?m)a$", "[a--b]", r"\bx"])
def test_patterns_that_regex_reads_otherwise_are_refused(theirs: str) -> None:
    encoding = tiktoken.Encoding("a", pat_str=theirs, mergeable_ranks=BYTES, special_tokens={})
    with pytest.raises(ValueError, match="another way than the regex package: pass pattern="):
        RegexTokenizer.from_tiktoken(encoding)
    assert RegexTokenizer.from_tiktoken(encoding, "gpt2").pattern == NAMED_PATTERNS["gpt2"]


# ---- files that are refused

GOOD = ranks.text(BYTES | {b"ab": 256, b"abc": 257})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"YWJj"], "line 259: not a token in Base64 and its rank"),
        ([b"", b"YWJjZA== 258", b"YWJjZA 259"], "line 261: not a token in Base64"),
        ([b"YWJjZA=== 258"], "line 259: not a token in Base64"),
        ([b"YWJjZB== 258"], "line 259: not a token in Base64"),        # bits that no byte has
        ([b"YWJ?ZA== 258"], "line 259: not a token in Base64"),
        ([b"YWJjZA==  258"], "line 259: not a token in Base64"),
        ([b"YWJjZA== -1"], "line 259: not a token in Base64"),
        ([b"YWJjZA== 25x"], "line 259: not a token in Base64"),
        ([b"YWJjZA== 4294967295"], r"line 259: .* rank, 0\.\.4294967294"),
        ([b" 258"], "line 259: not a token in Base64"),
        ([b"YWJj 258"], "line 259: token b'abc' for the second time; it has rank 257 already"),
        ([b"YWJjZA== 257"], "line 259: rank 257 for the second time; line 258 has it"),
        ([b"eHl6 258"], r"token b'xyz' is not a merge of two tokens of lower rank: .* b'x', b'y', b'z'"),
    ],
)
def test_damaged_files(lines: list[bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    path.write_bytes(GOOD)
    assert RegexTokenizer.from_tiktoken(path, "gpt2").encode("abc") == [257]
    path.write_bytes(GOOD.replace(b"\n", b"\r\n") + b"\r\n")
    assert RegexTokenizer.from_tiktoken(path, "gpt2").encode("abc") == [257]
    path.write_bytes(GOOD + b"\n".join(lines) + b"\n")
    with pytest.raises(ModelFileError, match=f"^{path}: {message}"):
        RegexTokenizer.from_tiktoken(path, "gpt2")


def test_files_that_lack_something(tmp_path: Path) -> None:
    path = tmp_path / "a.tiktoken"
    for table, message in [
        ({token: rank for token, rank in BYTES.items() if token != b"A"}, "no token for byte 0x41: not every"),
        ({token: rank for token, rank in BYTES.items() if rank < 250}, "no token for byte 0xfa, and 5 more"),
        ({}, "no token for byte 0x00, and 255 more"),
    ]:
        with pytest.raises(ModelFileError, match=message):
            RegexTokenizer.from_tiktoken(rank_file(path, table), "gpt2")
        assert issubclass(ModelFileError, ValueError)
    with pytest.raises(FileNotFoundError):
        RegexTokenizer.from_tiktoken(tmp_path / "b", "gpt2")
    with pytest.raises(TypeError):
        RegexTokenizer.from_tiktoken(5, "gpt2")


def test_a_line_that_was_lost_is_noticed(tmp_path: Path) -> None:
    table = trained(TEXT, 60)
    generator = random.Random(5)
    refused = 0
    for token in generator.sample([token for token in table if len(token) > 1], 20):
        rest = {each: rank for each, rank in table.items() if each != token}
        try:
            RegexTokenizer.from_tiktoken(rank_file(tmp_path / "a", rest), "gpt4")
        except ModelFileError:
            refused += 1
        else:
            assert not any(token in each for each in rest)      # nothing was made of it
    assert refused


# ---- models that no ranks say


def assigned(merges: dict[tuple[int, int], int]) -> Model:
    return Model(pattern=GPT4_SPLIT_PATTERN).with_attribute("merges", merges)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (assigned({(97, 98): 256, (98, 99): 257, (256, 99): 258, (97, 257): 259}), "both stand for b'abc'"),
        (assigned({(98, 99): 256, (97, 98): 257, (257, 99): 258}), "token b'abc' of id 258 is made of b'ab' and b'c'"),
        (assigned({(97, 98): 300, (300, 99): 299}), "token b'abc' of id 299 is made of a token of higher id"),
        (assigned({(97, 98): 256, (99, 100): 256}), "id 256 is made by two merges"),
        (
            Model(pairs=np.array([[97, 98], [98, 99]], "u4"), numbers=np.array([*range(256), 301, 300], "u4")),
            r"id 300 \(b'bc'\) is merged after id 301",
        ),
        (Model(whole={b"a": 300}), "both stand for b'a'"),
        (
            Model(pairs=np.array([[97, 98], [256, 99]], np.uint32), whole={b"bc": 300}),
            "token b'bc' of id 300 is made by merging here and not by ranks, or the other way round",
        ),
        (Model().with_attribute("vocab", {97: b"b"}), "the vocab that was assigned"),
    ],
)
def test_models_that_no_ranks_say(model: Model, message: str) -> None:
    with pytest.raises(ExportError, match=message):
        ranks.ranks_of(model)

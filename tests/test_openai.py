"""OpenAI's encodings: get_encoding gives tiktoken's ids, its special tokens and its errors.

The oracle is tiktoken itself, with its own patterns and special tokens and with the ranks that follow from the merges
in the package, which test_openai_data.py compares with the published files; its constructors want the network.

tiktoken's engine may follow another edition of Unicode than cbpe. Which code points both give the same classes, is
asked of it class by class; characters that it does not know, or knows otherwise, are left out.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
import tiktoken.model
import tiktoken_ext.openai_public as published
from budget import examples, thorough
from hypothesis import given
from hypothesis import strategies as st

import cbpe
from cbpe.errors import DisallowedSpecialTokenError, SpecialTokenError, UnknownIdError
from cbpe.openai import OpenAITokenizer
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting import split

pytestmark = pytest.mark.native

NAMES = ["gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"]
PATTERN_OF = {"gpt2": "r50k", "r50k_base": "r50k", "p50k_base": "r50k", "p50k_edit": "r50k", "cl100k_base": "cl100k"}
TEXTS = sorted((Path(__file__).parents[2] / "shared" / "data").glob("*.txt"))

each = pytest.mark.parametrize("name", NAMES)
each_pattern = pytest.mark.parametrize("name", ["r50k_base", "cl100k_base", "o200k_base"])


@cache
def ours(name: str) -> OpenAITokenizer:
    return cbpe.get_encoding(name)


@cache
def specification(name: str) -> dict[str, Any]:
    """What tiktoken says of an encoding, with our ranks for those it would download."""
    tokenizer = ours(name)
    values = bytes(tokenizer.inverse_byte_shuffle[i] for i in range(256))
    ranks = {token.translate(values): rank for rank, token in tokenizer.vocab.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "load_tiktoken_bpe", lambda *args, **kwargs: ranks)
        patch.setattr(published, "data_gym_to_mergeable_bpe_ranks", lambda *args, **kwargs: ranks)
        constructor = published.ENCODING_CONSTRUCTORS.get(name)
        if constructor is None:
            pytest.skip(f"tiktoken {tiktoken.__version__} has no {name}")
        found: dict[str, Any] = constructor()
    return found


@cache
def theirs(name: str) -> tiktoken.Encoding:
    return tiktoken.Encoding(**specification(name))


@cache
def agreed() -> str:
    """The characters to which cbpe and tiktoken's engine give the same classes."""
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    single = {bytes([i]): i for i in range(256)}

    def members(pattern: str) -> set[str]:
        engine = tiktoken.Encoding("class", pat_str=pattern, mergeable_ranks=single, special_tokens={})
        return set(bytes(engine.encode_ordinary("".join(characters))).decode())

    classes, cases = split._character_classes(), split._character_cases()
    wrong: set[str] = set()
    for table, number, pattern in [
        (classes, 1, r"\p{L}"),
        (classes, 2, r"\p{N}"),
        (classes, 3, r"\s"),
        (cases, 1, r"[\p{Lu}\p{Lt}]"),
        (cases, 2, r"\p{Ll}"),
        (cases, 3, r"[\p{Lm}\p{Lo}\p{M}]"),
    ]:
        wrong |= members(pattern) ^ {c for c in characters if table[ord(c)] == number}
    # editions differ in what was assigned since, some thousands in ten years; more would be a fault
    assert len(wrong) < 20_000
    return "".join(c for c in characters if c not in wrong)


def check(name: str, text: str) -> None:
    found, wanted = ours(name).encode_ordinary(text), theirs(name).encode_ordinary(text)
    if found != wanted:                 # without pytest's diff, which takes minutes for a million ids
        i = next((i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), 0)
        around = theirs(name).decode(wanted[max(0, i - 3) : i + 5])
        pytest.fail(f"{name}: id {i} is {found[i : i + 5]}, not {wanted[i : i + 5]}, at {around!r}")


def strings(alphabet: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            yield "".join(letters)


# ---- ids


@each
def test_the_encoding_is_what_tiktoken_says(name: str) -> None:
    wanted = specification(name)
    tokenizer = ours(name)
    assert tokenizer.name == name
    assert tokenizer.special_tokens == wanted["special_tokens"]
    assert tokenizer.pattern == wanted["pat_str"], f"tiktoken {tiktoken.__version__} has another pattern"
    assert tokenizer.pattern == NAMED_PATTERNS[PATTERN_OF.get(name, "o200k")]
    if "explicit_n_vocab" in wanted:
        assert len(tokenizer.vocab) + len(tokenizer.special_tokens) == wanted["explicit_n_vocab"]


@each
@pytest.mark.parametrize("path", TEXTS, ids=[path.name for path in TEXTS])
def test_texts(name: str, path: Path) -> None:
    text = path.read_bytes().decode()
    check(name, text)
    ids = ours(name).encode_to_numpy(text)
    assert ids.tolist() == theirs(name).encode(text)
    assert ours(name).decode(ids) == text
    assert ours(name).count(text) == len(ids)


@each
def test_sources_of_the_standard_library(name: str) -> None:
    total = 0
    for path in sorted(Path(random.__file__).parent.glob("*.py")):
        text = path.read_bytes().decode("utf-8", "replace")
        check(name, text)
        total += len(text)
        if total > 2_000_000:
            break
    assert total > 500_000


@thorough
@each_pattern
def test_every_code_point_on_which_the_editions_agree(name: str) -> None:
    lines = [agreed()[i : i + 100] for i in range(0, len(agreed()), 100)]      # long chunks make tiktoken slow
    check(name, "\n".join(lines))
    known = agreed()[:0x3000] + agreed()[0x3000::41]
    check(name, "".join(f"a{x}b {x} 1{x}2 .{x}. '{x}\n{x}A{x}" for x in known))


@thorough
@each_pattern
def test_every_short_string_of_troublemakers(name: str) -> None:
    for text in strings(" \n\r'sAa1./\u3000", 4):
        check(name, text)
    for text in strings(" \na.", 6):
        check(name, text)
    for text in strings("'sLlVE\u017f ", 4):
        check(name, text)
    for text in strings("A\u01c5a\u02b0\u4e00\u0301' ", 4):
        check(name, text)


@each
def test_every_very_short_string_of_troublemakers(name: str) -> None:
    for text in strings(" \n\r\t'sAa1./\u3000\u4e00\u0301\0", 3):
        check(name, text)
    for n in range(1, 90):              # p50k's tokens behind <|endoftext|> are runs of spaces
        for text in [" " * n, " " * n + "x", "x\n" + " " * n + "\n" + " " * n, "\n" * n, "a" * n]:
            check(name, text)


@each
@given(data=st.data())
@examples(150)
def test_random_strings(name: str, data: st.DataObject) -> None:
    trouble = st.sampled_from("''  \n\r\t1sltrevdmLSEA.,/\u017f\u3000é\u0301一")
    character = st.one_of(trouble, st.integers(0, len(agreed()) - 1).map(agreed().__getitem__))
    text = data.draw(st.text(character, max_size=100))
    check(name, text)
    assert ours(name).decode(ours(name).encode_ordinary(text)) == text


@each
def test_every_token_decodes_to_itself(name: str) -> None:
    ids = np.array([*ours(name).vocab, *ours(name).special_tokens.values()])
    assert ours(name).decode_bytes(ids) == theirs(name).decode_bytes(ids.tolist())
    tokens = [theirs(name).decode_single_token_bytes(i) for i in ids.tolist()]
    assert [ours(name).decode_bytes([i]) for i in ids.tolist()] == tokens


def test_c36_known_answers() -> None:
    for text, cl100k, o200k in [
        ("\u0928\u092e\u0938\u094d\u0924\u0947", [61196, 88344, 79468, 31584, 97, 35470], [998, 1637, 14681, 628]),
        ("a\u0301b", [64, 54939, 65], None),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", [95048, 43411, 101, 31584, 99, 44747], None),
    ]:
        assert ours("cl100k_base").encode(text) == cl100k
        assert o200k is None or ours("o200k_base").encode(text) == o200k
        for name in NAMES:
            check(name, text)


def test_c25_long_runs() -> None:
    tokenizer = ours("cl100k_base")
    assert tokenizer.encode("a" * 100_000) == [70540] * 12_500
    assert tokenizer.encode("^" * 1_000_000) == [62824] * 250_000
    assert tokenizer.encode(" " * 1_000_000) == [58040] * 7812 + [5351]
    assert tokenizer.encode("\n" * 200_000) == [80183] * 6250
    letters = "".join(random.Random(25).choices("abcdefghijklmnopqrstuvwxyz", k=200_000))
    for name in NAMES:
        for text in ["a" * 200_000, "^" * 200_000, " " * 200_000, "\n" * 200_000, "Aa\u4e00" * 70_000, letters]:
            assert ours(name).decode(ours(name).encode(text)) == text


def test_the_ids_of_minbpes_gpt4_are_the_same() -> None:
    """Its chunks are not, where a text ends with a line end and other whitespace; but no token spans the two."""
    gpt4 = cbpe.GPT4Tokenizer()
    tokens = [ours("cl100k_base").decode_bytes([i]) for i in ours("cl100k_base").vocab]
    assert not [token for token in tokens if re.search(rb"[\r\n][^\r\n]+\Z", token)]
    for text in strings(" \n\r\ta\u3000", 5):
        assert gpt4.encode_ordinary(text) == ours("cl100k_base").encode_ordinary(text)


# ---- special tokens


@each
def test_special_tokens(name: str) -> None:
    tokenizer, peer = ours(name), theirs(name)
    words = list(tokenizer.special_tokens)
    generator = random.Random(7)
    for _ in range(30):
        pieces = [*generator.choices(words, k=5), "<|", "|>", "<|endoftext", "hello", " \n", "\n ", " it's"]
        text = "".join(generator.choices(pieces, k=12))
        ids = tokenizer.encode(text, allowed_special="all")
        assert ids == peer.encode(text, allowed_special="all")
        assert tokenizer.decode_bytes(ids) == peer.decode_bytes(ids)
        assert tokenizer.encode(text, allowed_special="none") == peer.encode_ordinary(text)
        some = set(words[:1])
        assert tokenizer.encode(text, allowed_special=some) == peer.encode(
            text, allowed_special=some, disallowed_special=()
        )
    for word in words:
        with pytest.raises(DisallowedSpecialTokenError):
            tokenizer.encode(f"a{word}b")


def test_two_special_tokens_of_harmony_have_one_id() -> None:
    tokenizer = cbpe.get_encoding("o200k_harmony")
    assert tokenizer.encode("<|endofprompt|><|reserved_200018|>", allowed_special="all") == [200018, 200018]
    assert tokenizer.decode([200018]) == theirs("o200k_harmony").decode([200018]) == "<|endofprompt|>"
    tokenizer.register_special_tokens({**tokenizer.special_tokens, "<|mine|>": 201088})
    assert tokenizer.encode("a<|mine|>", allowed_special="all") == [64, 201088]
    with pytest.raises(SpecialTokenError, match="same id"):
        tokenizer.register_special_tokens({"<|a|>": 201088, "<|b|>": 201088})


def test_an_id_between_merges_is_free_and_those_around_it_are_not() -> None:
    tokenizer = cbpe.get_encoding("p50k_base")
    assert tokenizer.decode([50255, 50256, 50257]) == " gazed<|endoftext|>  "
    for taken in (50255, 50257, 50280):
        with pytest.raises(SpecialTokenError, match="a merge"):
            tokenizer.register_special_tokens({"<|mine|>": taken})
    tokenizer.register_special_tokens({"<|mine|>": 50281})
    with pytest.raises(UnknownIdError):
        tokenizer.decode([50256])
    assert ours("p50k_base").decode([50256]) == "<|endoftext|>"


# ---- the class


@each
def test_merges_and_vocab_are_minbpes(name: str) -> None:
    tokenizer = ours(name)
    vocab = {i: bytes([i]) for i in range(256)}
    for (left, right), number in tokenizer.merges.items():
        vocab[number] = vocab[left] + vocab[right]
    assert tokenizer.vocab == vocab
    assert tokenizer.inverse_byte_shuffle == {number: byte for byte, number in tokenizer.byte_shuffle.items()}


@each
def test_c26_surrogates_are_repaired_as_tiktoken_does(name: str) -> None:
    for text in ["\ud83d\udc4d", "\ud83d", "ok\ud800ok"]:
        assert ours(name).encode(text) == theirs(name).encode(text)
        assert ours(name).encode_to_numpy(text).tolist() == theirs(name).encode(text)


def test_it_is_not_trained_saved_or_loaded(tmp_path: Path) -> None:
    tokenizer = cbpe.get_encoding("p50k_base")
    for refused in [
        lambda: tokenizer.train("aaaa", 300),
        lambda: tokenizer.train_from_iterator(["aaaa"], 300),
        lambda: tokenizer.save(tmp_path / "x"),
        lambda: tokenizer.load(tmp_path / "x.model"),
    ]:
        with pytest.raises(NotImplementedError, match="OpenAITokenizer"):
            refused()
    assert not list(tmp_path.iterdir())
    tokenizer.save_vocab(tmp_path / "p50k.vocab")
    lines = (tmp_path / "p50k.vocab").read_text(encoding="utf-8").split("\n")
    assert "[ ][ ] -> [  ] 50257" in lines
    assert repr(tokenizer) == "<OpenAITokenizer p50k_base>"


def test_every_tokenizer_is_its_own() -> None:
    tokenizer = cbpe.get_encoding("gpt2")
    tokenizer.register_special_tokens({})
    assert tokenizer.encode("<|endoftext|>") == theirs("gpt2").encode_ordinary("<|endoftext|>")
    assert cbpe.get_encoding("gpt2").special_tokens == {"<|endoftext|>": 50256}


@each
def test_copies_and_pickles(name: str) -> None:
    text = "a  <|endoftext|>  b it's"
    ids = ours(name).encode(text, allowed_special="all")
    for other in [copy.copy(ours(name)), copy.deepcopy(ours(name)), pickle.loads(pickle.dumps(ours(name)))]:
        assert other.name == name
        assert other.encode(text, allowed_special="all") == ids
        assert other.decode(ids) == text


def test_names_that_are_no_encodings() -> None:
    with pytest.raises(ValueError, match="o200k_base"):
        cbpe.get_encoding("o300k_base")
    for wrong in (None, 5, b"gpt2", ["gpt2"]):
        with pytest.raises(TypeError, match="must be a str"):
            cbpe.get_encoding(wrong)            # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be a str"):
            cbpe.encoding_for_model(wrong)      # type: ignore[arg-type]


def test_models_have_the_encodings_that_tiktoken_names() -> None:
    models = [*tiktoken.model.MODEL_TO_ENCODING, *(prefix + "x" for prefix in tiktoken.model.MODEL_PREFIX_TO_ENCODING)]
    for model in models:
        assert cbpe.encoding_for_model(model).name == tiktoken.model.encoding_name_for_model(model)
    with pytest.raises(KeyError, match="no model 'gpt-0'"):
        cbpe.encoding_for_model("gpt-0")

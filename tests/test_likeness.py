"""tiktoken's names: they answer what an encoding of tiktoken answers that was made of the tokenizer."""

from __future__ import annotations

import pytest

import cbpe
from cbpe import BasicTokenizer, RegexTokenizer, UnknownIdError

TEXT = "the cat sat on the mat; the hat 12345 naïve 日本語 " * 20


def tokenizers():
    trained = RegexTokenizer()
    trained.train(TEXT, 280)
    trained.register_special_tokens({"<|endoftext|>": 400, "<a>": 500})
    basic = BasicTokenizer()
    basic.train(TEXT, 280)
    basic.register_special_tokens({"<|endoftext|>": 300})
    return [trained, basic, cbpe.get_encoding("p50k_edit")]


@pytest.mark.parametrize("number", range(3))
def test_the_answers_are_tiktokens(number):
    tokenizer = tokenizers()[number]
    encoding = tokenizer.to_tiktoken("x")
    for name in ("n_vocab", "max_token_value", "eot_token", "special_tokens_set"):
        assert getattr(tokenizer, name) == getattr(encoding, name)
        assert type(getattr(tokenizer, name)) is type(getattr(encoding, name))
    assert tokenizer.token_byte_values() == encoding.token_byte_values()
    for i, token in list(tokenizer._model.token_bytes.items())[::7]:
        assert tokenizer.decode_single_token_bytes(i) == encoding.decode_single_token_bytes(i) == token
        assert tokenizer.encode_single_token(token) == encoding.encode_single_token(token) == i
        assert tokenizer.is_special_token(i) is encoding.is_special_token(i)
    for word in tokenizer.special_tokens:
        assert tokenizer.encode_single_token(word) == encoding.encode_single_token(word)
    ids = tokenizer.encode_ordinary("the cat é 日x")
    assert tokenizer.decode_tokens_bytes(ids) == encoding.decode_tokens_bytes(ids)
    texts = ["the", "", "a<|endoftext|>b"]
    assert tokenizer.encode_ordinary_batch(texts) == encoding.encode_ordinary_batch(texts)
    assert tokenizer.encode_ordinary_batch(texts, num_threads=2) == encoding.encode_ordinary_batch(texts)


def test_what_tiktoken_refuses_is_refused_by_the_same_error():
    tokenizer = RegexTokenizer()
    for wrong in ("ab", "", b"\xff\xff", "<|endoftext|>"):
        with pytest.raises(KeyError):
            tokenizer.encode_single_token(wrong)
    for wrong in (256, -1, 2**40):
        with pytest.raises(KeyError, match=str(wrong)):
            tokenizer.decode_single_token_bytes(wrong)
        with pytest.raises(UnknownIdError):
            tokenizer.decode_tokens_bytes([97, wrong])
    with pytest.raises(KeyError, match="endoftext"):
        tokenizer.eot_token  # noqa: B018
    with pytest.raises(TypeError):
        tokenizer.decode_single_token_bytes("a")


def test_a_token_that_merges_do_not_make_is_found():
    tokenizer = RegexTokenizer()
    tokenizer.merges = {(97, 98): 256, (98, 99): 257, (97, 257): 258}
    assert tokenizer.encode("abc") == [256, 99]
    assert tokenizer.encode_single_token("abc") == 258


@pytest.mark.parametrize("errors", ["replace", "ignore", "strict", "backslashreplace"])
def test_errors_of_decode(errors):
    tokenizer = RegexTokenizer()
    encoding = tokenizer.to_tiktoken("x")
    assert tokenizer.decode([104, 105], errors=errors) == encoding.decode([104, 105], errors=errors)
    if errors == "strict":
        with pytest.raises(UnicodeDecodeError):
            tokenizer.decode([255], errors=errors)
    else:
        assert tokenizer.decode([104, 255], errors=errors) == encoding.decode([104, 255], errors=errors)


def test_of_two_names_for_one_id_both_are_found():
    tokenizer = cbpe.get_encoding("o200k_harmony")
    assert tokenizer.encode_single_token("<|endofprompt|>") == tokenizer.encode_single_token("<|reserved_200018|>")


def test_names_follow_the_special_tokens():
    tokenizer = RegexTokenizer()
    assert (tokenizer.n_vocab, tokenizer.special_tokens_set) == (256, set())
    tokenizer.register_special_tokens({"<|endoftext|>": 1000})
    assert (tokenizer.n_vocab, tokenizer.eot_token, tokenizer.is_special_token(1000)) == (1001, 1000, True)

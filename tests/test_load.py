"""cbpe.load: it knows each kind of file by its content, and says of others what they look like."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import pickle
import zipfile

import numpy as np
import pytest
from published import VOCAB, needs_vocabularies

import cbpe
from cbpe import BasicTokenizer, ChunkStore, ModelFileError, RegexTokenizer
from cbpe.loading import _members

TEXT = "the cat sat on the mat; the hat 12345 naïve 日本語 " * 20
PACKED = gzip.compress(b"low lower\n" * 10, mtime=0)       # the same wherever tests run side by side


@pytest.fixture
def trained():
    tokenizer = RegexTokenizer()
    tokenizer.train(TEXT, 280)
    tokenizer.register_special_tokens({"<|endoftext|>": 280})
    return tokenizer


def refusal(path, **how):
    with pytest.raises(ModelFileError) as caught:
        cbpe.load(path, **how)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


# ---- what is loaded


@pytest.mark.parametrize("pattern", [None, r"\w+|\W"])
def test_model_files(tmp_path, trained, pattern):
    if pattern:
        trained = RegexTokenizer(pattern)
        trained.train(TEXT, 270)
    trained.save(tmp_path / "mine")
    loaded = cbpe.load(tmp_path / "mine.model")
    assert type(loaded) is RegexTokenizer
    assert loaded.encode(TEXT) == trained.encode(TEXT)
    assert loaded.special_tokens == trained.special_tokens
    if not pattern:
        assert loaded.compression_curve().tokens.tolist() == trained.compression_curve().tokens.tolist()


def test_a_model_without_a_pattern_is_a_basic_tokenizers(tmp_path):
    tokenizer = BasicTokenizer()
    tokenizer.train(TEXT, 270)
    tokenizer.save(tmp_path / "mine")
    loaded = cbpe.load(str(tmp_path / "mine.model"))
    assert type(loaded) is BasicTokenizer
    assert loaded.merges == tokenizer.merges


def test_the_name_does_not_matter(tmp_path, trained):
    trained.save(tmp_path / "mine")
    trained.save_tiktoken(tmp_path / "ranks.model")
    (tmp_path / "mine.model").rename(tmp_path / "model.txt")
    (tmp_path / "windows").write_bytes((tmp_path / "model.txt").read_bytes().replace(b"\n", b"\r\n"))
    assert cbpe.load(tmp_path / "model.txt").merges == trained.merges
    assert cbpe.load(tmp_path / "windows").merges == trained.merges
    assert cbpe.load(tmp_path / "ranks.model", pattern="gpt4").encode(TEXT) == trained.encode(TEXT)


def test_a_damaged_model_names_its_line(tmp_path):
    (tmp_path / "mine.model").write_bytes(b"minbpe v1\n\nfive\n")
    assert "line 3" in refusal(tmp_path / "mine.model")


def test_rank_files(tmp_path, trained):
    path = tmp_path / "mine.tiktoken"
    trained.save_tiktoken(path)
    for pattern in ("gpt4", trained.pattern):
        loaded = cbpe.load(path, pattern=pattern, special_tokens=trained.special_tokens)
        assert isinstance(loaded, RegexTokenizer)
        assert loaded.encode(TEXT + "<|endoftext|>", "all") == trained.encode(TEXT + "<|endoftext|>", "all")
    with pytest.raises(ValueError, match="pattern"):
        cbpe.load(path)
    path.write_bytes(path.read_bytes() + b"!\n")
    with pytest.raises(ModelFileError, match="line"):
        cbpe.load(path, pattern="gpt4")


@needs_vocabularies
@pytest.mark.parametrize(
    ("name", "encoding"),
    [("cl100k_base.tiktoken", "cl100k_base"), ("o200k_base.tiktoken", "o200k_base"), ("r50k_base.tiktoken", "gpt2")],
)
def test_published_rank_files_need_no_pattern(name, encoding):
    assert cbpe.load(VOCAB / name).encode(TEXT) == cbpe.get_encoding(encoding).encode(TEXT)


@needs_vocabularies
def test_Llama_3s_tokenizer_model_is_a_rank_file():
    assert cbpe.load(VOCAB / "llama3_tokenizer.model").encode("hello world") == [15339, 1917]


def test_tokenizer_json(tmp_path, trained):
    pytest.importorskip("tokenizers")
    trained.save_huggingface(tmp_path / "tokenizer.json")
    for path in (tmp_path / "tokenizer.json", tmp_path):
        loaded = cbpe.load(path)
        assert isinstance(loaded, RegexTokenizer)
        assert loaded.encode(TEXT) == trained.encode(TEXT)


def test_a_tokenizer_json_of_another_kind_is_refused_by_its_reader(tmp_path):
    content = {"version": "1.0", "added_tokens": [], "model": {"type": "Unigram", "vocab": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="Unigram"):
        cbpe.load(tmp_path)


@pytest.mark.parametrize("content", [
    "#version: 0.2\nl o\nlo w</w>\n", "l o\nlo w\nlow </w>\n", "l o 50\nlo w</w> 20\n"
])  # fmt: skip
def test_codes(tmp_path, content):
    (tmp_path / "codes").write_text(content)
    loaded = cbpe.load(tmp_path / "codes")
    assert type(loaded) is cbpe.WordTokenizer
    assert loaded.decode(loaded.encode("low")).strip() == "low"


def test_word_models(tmp_path):
    tokenizer = cbpe.WordTokenizer()
    tokenizer.train("low lower lowest " * 10, 20)
    tokenizer.save(tmp_path / "words")
    assert type(loaded := cbpe.load(tmp_path / "words.model")) is cbpe.WordTokenizer
    assert loaded.encode("lower") == tokenizer.encode("lower")


@needs_vocabularies
def test_clip():
    loaded = cbpe.load(VOCAB / "clip_bpe_simple_vocab_16e6.txt.gz")
    assert isinstance(loaded, cbpe.WordTokenizer)
    assert loaded.encode("hello world") == [3306, 1002]


def test_pattern_and_special_tokens_are_for_rank_files(tmp_path, trained):
    trained.save(tmp_path / "mine")
    with pytest.raises(ValueError, match="pattern= is for rank files"):
        cbpe.load(tmp_path / "mine.model", pattern="gpt4")
    with pytest.raises(ValueError, match="special_tokens= is for rank files"):
        cbpe.load(tmp_path / "mine.model", special_tokens={})


# ---- what is refused


def test_lines_that_look_like_ranks_and_are_no_base64(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"YQ= 0\nYg== 1\n")
    with pytest.raises(ModelFileError, match=r"a\.txt: no tokenizer, but text, which begins with 'YQ= 0'"):
        cbpe.load(tmp_path / "a.txt")


def test_a_chunk_store_says_what_it_is_for(tmp_path, trained):
    ChunkStore.from_iterator([TEXT]).save(tmp_path / "corpus.chunks")
    message = refusal(tmp_path / "corpus.chunks")
    assert "chunk store" in message
    assert "train_from_chunks" in message


def test_what_lies_beside_models_and_ids(tmp_path, trained):
    trained.save(tmp_path / "mine")
    assert "statistics" in refusal(tmp_path / "mine.stats.json")
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    trained.encode_file(tmp_path / "corpus.txt", tmp_path / "ids.bin")
    assert "ids" in refusal(tmp_path / "ids.bin")
    assert "file of ids" in refusal(tmp_path / "ids.bin.idx.json")
    trained.encode_shards(tmp_path / "corpus.txt", tmp_path / "shards", 100)
    assert "shards of ids" in refusal(tmp_path / "shards")
    assert "mine.model" in refusal(tmp_path)
    assert "text, which begins with '[" in refusal(tmp_path / "mine.vocab")
    assert "text, which begins with 'the cat" in refusal(tmp_path / "corpus.txt")


def varint(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def sentencepiece(words):
    """What a SentencePiece model begins with: a field 1 for each piece, in which field 1 is its text, 2 its score."""
    pieces = [b"\x0a" + varint(len(word.encode())) + word.encode() + b"\x15\0\0\0\0\x18\x02" for word in words]
    return b"".join(b"\x0a" + varint(len(piece)) + piece for piece in pieces)


def test_sentencepiece_is_refused(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece(["<unk>", "<s>", "</s>", "▁the", "ing"]))
    assert "SentencePiece" in refusal(tmp_path / "tokenizer.model")


@needs_vocabularies
@pytest.mark.parametrize("name", ["mistral_tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"])
def test_published_sentencepiece_is_refused(name):
    assert "SentencePiece" in refusal(VOCAB / name)


def archive():
    with zipfile.ZipFile(file := io.BytesIO(), "w") as packed:
        packed.writestr("data.pkl", b"x")
    return file.getvalue()


def array():
    np.save(file := io.BytesIO(), np.arange(5))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "an empty file"),
        (b"#version: 0.2\n\xc4\xa0 t\n\xc4\xa0 a\n", "merges of byte-level BPE without their ids"),
        (b'{"!": 0, "\\"": 1, "#": 2}', "a vocabulary without its merges"),
        (b'{"config": {"pattern": "x"}, "vocab": [{"rank": 0}], "special_tokens": []}', "tekken.json"),
        (b'{"add_bos_token": true, "tokenizer_class": "LlamaTokenizer"}', "load the tokenizer.json beside it"),
        (b'{"text": "a document", "id": 5}\n{"text": "another"}\n', "JSON with the members id, text"),
        (b"[1, 2, 3]\n", "text, which begins with '[1, 2, 3]'"),
        (archive(), "a zip archive"),
        (array(), "an array of numpy"),
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"PAR1\x15\x04", "Parquet"),
        (pickle.dumps({"a": 5}), "a pickle"),
        (PACKED, "packed by gzip; unpacked it is text, which begins with 'low lower'"),
        (PACKED[:5], "damaged gzip"),
        (b"(\xb5/\xfd\x04", "packed by zstd"),
        (bytes(range(256)), "a binary file"),
        (b"a\0b", "a binary file"),
        ("é".encode() * 100_000, "text, which begins with 'éé"),
        (b"a" + "漢".encode() * 100_000, "text, which begins with 'a漢"),
        (b"VGhl 0\nthe cat\n", "text, which begins with 'VGhl 0'"),
        (b"hello world\n", "text"),
    ],
)
def test_other_files_are_described(tmp_path, content, says):
    (tmp_path / "file").write_bytes(content)
    assert says in refusal(tmp_path / "file")


def test_no_pickle_is_opened(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "opened"),)

    (tmp_path / "tokenizer.pkl").write_bytes(pickle.dumps(Evil()))
    assert "may run any program" in refusal(tmp_path / "tokenizer.pkl")
    assert not (tmp_path / "opened").exists()


def test_what_is_not_there_and_what_is_no_path(tmp_path):
    with pytest.raises(FileNotFoundError):
        cbpe.load(tmp_path / "missing.model")
    for wrong in (5, None, b"mine.model"):
        with pytest.raises(TypeError):
            cbpe.load(wrong)
    assert "a folder without a tokenizer.json" in refusal(tmp_path)


@pytest.mark.parametrize("begins", [b"", b'{"text": "', b"\x1f\x8b\x08\0\0\0\0\0", b"the cat "])
def test_of_a_huge_file_the_beginning_is_read(tmp_path, begins):
    with open(tmp_path / "huge", "wb") as file:
        file.write(begins)
        file.truncate(100 << 30)        # a sparse file: it takes no room
    refusal(tmp_path / "huge")


def test_members_of_json():
    assert _members(b'{"a": {"b": 1, "c": [{"d": 2}]}, "e": "f\\"g\\":", "h": [1') == {"a", "e", "h"}
    assert _members(b'\xef\xbb\xbf {"a": 5} {"b": 6}') == {"a"}
    assert _members(b'["a"]') == _members(b"") == _members(b"{}") == set()
    assert _members(json.dumps({"version": "1.0", "added_tokens": [{"content": "<{\"[>"}], "model": {}}).encode()) == {
        "version", "added_tokens", "model"
    }  # fmt: skip


def test_base64_of_words_is_no_rank_file(tmp_path):
    lines = [base64.b64encode(bytes([i])) + b" %d" % i for i in range(256)]
    (tmp_path / "a").write_bytes(b"\n".join(lines))         # the last line has no end
    loaded = cbpe.load(tmp_path / "a", pattern="gpt2")
    assert loaded.encode("ab") == [97, 98]

"""Tokenizers whose ids are not in the order of merging: what goes out, and all that follows from it.

The twin is the reference with the inner ids, each replaced by its outer one.
"""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

import numpy as np
import pytest
import reference
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

from cbpe import RegexTokenizer
from cbpe.encoding.encoder import Encoder
from cbpe.errors import ModelFileError, SpecialTokenError, UnknownIdError
from cbpe.model import Model
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.splitting import splitter_for

SPLITTER = splitter_for(GPT4_SPLIT_PATTERN)
WHOLE = splitter_for(None)
TEXT = "the cat that sat on the mat, the theatre and that hat: tatata ananas " * 3 + "é漢🎉\n\n x" + "a" * 300


def learned(text: str, num_merges: int) -> dict[tuple[int, int], int]:
    return reference.learn(text, num_merges, GPT4_SPLIT_PATTERN)[0]


def arrays(merges: dict[tuple[int, int], int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return np.array(list(merges), np.uint32).reshape(-1, 2), np.array(list(merges.values()), np.uint32)


def numbers_of(n: int, seed: int, step: int = 3, first: int = 0) -> np.ndarray[Any, Any]:
    """Distinct numbers for n ids, in no order and with gaps."""
    shuffled = list(range(first, first + step * n, step))
    random.Random(seed).shuffle(shuffled)
    return np.array(shuffled, np.uint32)


def everything(encoder: Encoder, text: str) -> dict[str, list[int]]:
    """The ids of a text in every way that there is, several times where that takes another path."""
    data = text.encode()
    chunks = SPLITTER.split(text)
    ends = np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64)
    flat, offsets = encoder.encode_batch_to_numpy([text, "", text], SPLITTER, 2)
    assert offsets[1] == offsets[2] == len(flat) // 2
    lists = encoder.encode_batch([text, "", text], SPLITTER, 2)
    assert lists[0] == lists[2]
    found = {
        "list": encoder.encode(text, SPLITTER),
        "list of bytes": encoder.encode(data, SPLITTER),
        "array": encoder.encode_to_numpy(text, SPLITTER).tolist(),
        "batch": flat[: offsets[1]].tolist(),
        "batch of lists": lists[0],
        "second of a batch": flat[offsets[2] :].tolist(),
        "chunk by chunk": [number for chunk in chunks for number in encoder.encode_chunk(chunk)],
        "chunks": encoder._encode_chunks(data, ends).tolist(),
        "list again": encoder.encode(text, SPLITTER),
    }
    assert encoder.count(text, SPLITTER) == len(found["list"])
    return found


@examples(60)
@given(st.text("abc é\n1", max_size=200), st.integers(0, 30), st.integers(0, 100), st.sampled_from([1, 3, 9000]))
def test_outer_ids_are_those_of_the_inner_ones(text: str, num_merges: int, seed: int, step: int) -> None:
    merges = learned(text, num_merges)
    numbers = numbers_of(256 + len(merges), seed, step)
    encoder = Encoder(*arrays(merges), numbers=numbers)
    right = [int(numbers[i]) for i in reference.encode_ordinary(text, merges, GPT4_SPLIT_PATTERN)]
    for _ in range(3):          # the table of ints is made once it is worth it
        for way, ids in everything(encoder, text).items():
            assert ids == right, way


def test_numbers_of_a_model_whose_ids_have_gaps_and_no_order() -> None:
    merges = {(97, 98): 300, (300, 99): 270, (99, 97): 270, (270, 270): 5}
    numbers = numbers_of(301, 7)
    encoder = Encoder(*arrays(merges), numbers=numbers)
    for chunk in [b"abc", b"abcca", b"caab", b"abcabcabc" * 30, b"x"]:
        assert encoder.encode_chunk(chunk) == [int(numbers[i]) for i in reference.encode_chunk(chunk, merges)]


def test_numbers_on_top_of_an_order_of_the_bytes() -> None:
    byte_ids = bytes(reversed(range(256)))
    numbers = numbers_of(256, 5)
    encoder = Encoder(*arrays({}), byte_ids, numbers=numbers)
    assert encoder.encode_chunk(b"\0ab") == [int(numbers[i]) for i in (255, 158, 157)]


def test_numbers_far_up() -> None:
    numbers = np.arange(256, dtype=np.uint32) + np.uint32(2**32 - 2 - 255)
    encoder = Encoder(*arrays({}), numbers=numbers)
    text = "abc" * 1000
    for ids in everything(encoder, text).values():
        assert ids == [2**32 - 2 - 255 + byte for byte in text.encode()]


def test_long_texts_and_several_threads() -> None:
    text = TEXT * 1500
    merges = learned(TEXT, 60)
    numbers = numbers_of(256 + len(merges), 3)
    plain, encoder = Encoder(*arrays(merges)), Encoder(*arrays(merges), numbers=numbers)
    right = numbers[plain.encode_to_numpy(text, SPLITTER)]
    for threads in (1, 2, 3):
        assert np.array_equal(encoder.encode_to_numpy(text, SPLITTER, threads), right)
        assert encoder.encode(text, SPLITTER, threads) == right.tolist()
        flat, offsets = encoder.encode_batch_to_numpy([text, "a", text], SPLITTER, threads)
        assert np.array_equal(flat[: offsets[1]], right)
        assert np.array_equal(flat[offsets[2] :], right)
    assert np.array_equal(encoder.encode_to_numpy("b" + "a" * 100_000, WHOLE)[:1], numbers[[98]])


def test_lists_share_their_ints() -> None:
    encoder = Encoder(*arrays({}), numbers=numbers_of(256, 1, first=1000))
    for _ in range(3):
        ids = encoder.encode("abcabc" * 200, SPLITTER)
    assert ids[0] is ids[3]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (np.arange(255, dtype=np.uint32), "256 ids need as many numbers, not 255"),
        (np.arange(257, dtype=np.uint32), "256 ids need as many numbers, not 257"),
        (np.full(256, 2**32 - 1, np.uint32), "numbers must be below 4,294,967,295"),
    ],
)
def test_numbers_that_are_none(numbers: np.ndarray[Any, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Encoder(*arrays({}), numbers=numbers)


# ---- chunks that have an id as a whole


def hand_made(seed: int) -> tuple[dict[tuple[int, int], int], dict[bytes, int], np.ndarray[Any, Any] | None, str]:
    """A model and a text; whole chunks of every length and kind, of which some are tokens that merges make as well."""
    generator = random.Random(seed)
    letters = generator.choice(["ab", "abc", "abé"])
    sizes = generator.choices([1, 2, 3, 9, 20, 70, 300], k=40)
    text = " ".join("".join(generator.choices(letters, k=size)) for size in sizes)
    merges = learned(text, generator.randrange(40))
    if generator.random() < 0.3:            # without any order, and so without a vocabulary
        shuffled = list(merges.values())
        generator.shuffle(shuffled)
        merges = dict(zip(merges, shuffled, strict=True))
    chunks = list(dict.fromkeys(reference.split(text, GPT4_SPLIT_PATTERN)))
    tokens = list(reference.vocab(learned(text, 20)).values())[250:]
    words = [*generator.sample(chunks, min(len(chunks), 8)), *generator.sample(tokens, 8), b"a", b"not in the text"]
    high = generator.choice([10_000, 2**21])
    whole = {word: high + i for i, word in enumerate(dict.fromkeys(words))}
    numbers = numbers_of(256 + len(merges), seed) if generator.random() < 0.6 else None
    return merges, whole, numbers, text


@pytest.mark.parametrize("seed", range(60))
def test_whole_chunks_whatever_the_merges_say(seed: int) -> None:
    merges, whole, numbers, text = hand_made(seed)
    encoder = Encoder(*arrays(merges), numbers=numbers, whole=whole)
    outer = list(range(256 + len(merges))) if numbers is None else numbers.tolist()
    chunks = reference.split(text, GPT4_SPLIT_PATTERN)
    right = [number for chunk in chunks for number in reference.encode_imported(chunk, merges, outer, whole)]
    assert set(right) & set(whole.values())
    for _ in range(3):
        for way, ids in everything(encoder, text).items():
            assert ids == right, way
    for chunk in whole:
        assert encoder.encode_chunk(chunk) == [whole[chunk]]
        assert encoder._encode_chunks(chunk, np.array([len(chunk)])).tolist() == [whole[chunk]]
        longer = chunk + b"c"
        right = reference.encode_imported(longer, merges, outer, whole)
        assert encoder._encode_chunks(longer, np.array([len(longer)])).tolist() == right
    assert encoder.encode_chunk(b"") == []


def test_thousands_of_whole_chunks_crowd_the_vocabulary() -> None:
    merges = learned(TEXT, 50)
    words = [f"{i:b}".replace("0", "t").replace("1", "a").encode() for i in range(4000)]
    whole = {word: 1000 + i for i, word in enumerate(words)}
    encoder = Encoder(*arrays(merges), whole=whole)
    for _ in range(2):
        assert encoder.encode(b" ".join(words), splitter_for(r"\w+")) == list(whole.values())
    assert encoder.encode_chunk(b"tha") == reference.encode_chunk(b"tha", merges)


@pytest.mark.parametrize("whole", [{b"": 5}, {b"a": -1}, {b"a": 2**32 - 1}])
def test_whole_chunks_that_are_none(whole: dict[bytes, int]) -> None:
    with pytest.raises(ValueError, match="no chunk or no id"):
        Encoder(*arrays({}), whole=whole)


# ---- tokenizers

MERGES = learned(TEXT, 40)
NUMBERS = numbers_of(256 + len(MERGES), 11, first=4)        # 0..3 are free


def imported(**fields: Any) -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    model = Model(pairs=arrays(MERGES)[0], numbers=NUMBERS, pattern=GPT4_SPLIT_PATTERN, **fields)
    tokenizer._model = model.registered({"<s>": 0, "</s>": 2})
    return tokenizer


def right_ids(text: str) -> list[int]:
    return [int(NUMBERS[i]) for i in reference.encode_ordinary(text, MERGES, GPT4_SPLIT_PATTERN)]


def test_a_tokenizer_with_numbers_encodes_and_decodes(tmp_path: Any) -> None:
    for tokenizer in (imported(), pickle.loads(pickle.dumps(imported())), copy.deepcopy(imported())):
        right = right_ids(TEXT)
        assert tokenizer.encode(TEXT) == tokenizer.encode_ordinary(TEXT) == right
        assert tokenizer.encode_to_numpy(TEXT).tolist() == right
        assert tokenizer.encode_batch([TEXT, "a"], num_threads=2) == [right, right_ids("a")]
        assert tokenizer.encode_batch_to_numpy([TEXT, "a"])[0].tolist() == right + right_ids("a")
        assert tokenizer.count(TEXT) == len(right)
        assert tokenizer.decode(right) == TEXT
        text, offsets = tokenizer.decode_with_offsets(right)
        assert (text, len(offsets)) == (TEXT, len(right))
        assert tokenizer.encode(f"<s>{TEXT}</s>", "all") == [0, *right, 2]
        assert tokenizer.encode_batch_to_numpy([f"<s>{TEXT}</s>"], "all")[0].tolist() == [0, *right, 2]
        assert tokenizer.decode([0, 2]) == "<s></s>"
        for unknown in (1, 3, 5, 100_000):
            with pytest.raises(UnknownIdError):
                tokenizer.decode([unknown])


def test_files_of_ids_have_outer_ones(tmp_path: Any) -> None:
    tokenizer = imported()
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    count = tokenizer.encode_file(tmp_path / "a.txt", tmp_path / "a.bin", eot="</s>")
    ids = np.fromfile(tmp_path / "a.bin", np.uint16).tolist()
    assert ids == [*right_ids(TEXT), 2]
    assert count == len(ids)
    counts = tokenizer.count_ids(tmp_path / "a.txt")
    assert counts.tolist() == np.bincount(right_ids(TEXT)).tolist()


def test_attributes_show_outer_ids() -> None:
    tokenizer = imported()
    outer = NUMBERS.tolist()
    assert tokenizer.merges == {(outer[a], outer[b]): outer[made] for (a, b), made in MERGES.items()}
    assert list(tokenizer.merges.values()) == outer[256:]           # the order of merging
    assert tokenizer.vocab == {outer[i]: token for i, token in reference.vocab(MERGES).items()}
    assert list(tokenizer.vocab) == sorted(outer)
    assert tokenizer.special_tokens == {"<s>": 0, "</s>": 2}
    assert tokenizer._model.max_id == max(outer)
    assert not hasattr(tokenizer, "byte_shuffle")                   # vocab has the bytes as they are


def test_attributes_that_would_lose_the_order_are_refused() -> None:
    tokenizer = imported()
    for name in ("merges", "vocab", "byte_shuffle", "inverse_byte_shuffle"):
        with pytest.raises(ValueError, match=f"{name} cannot be assigned or changed: .*order of merging"):
            setattr(tokenizer, name, {})
    tokenizer.merges.clear()
    with pytest.raises(ValueError, match="merges cannot be assigned or changed"):
        tokenizer.encode("a")
    assert tokenizer.encode(TEXT) == right_ids(TEXT)
    assert len(tokenizer.merges) == len(MERGES)


def test_other_attributes_may_be_assigned() -> None:
    tokenizer = imported()
    tokenizer.special_tokens = {"<x>": 1}
    assert tokenizer.encode("a<x>", "all") == [*right_ids("a"), 1]
    tokenizer.pattern = r"\w"
    assert tokenizer.encode_ordinary("th") == [int(NUMBERS[ord("t")]), int(NUMBERS[ord("h")])]


def test_special_tokens_take_free_ids_only() -> None:
    tokenizer = imported()
    tokenizer.register_special_tokens({"<a>": 3, "<b>": 5})
    assert tokenizer.encode("<a><b>", "all") == [3, 5]
    for number in (int(NUMBERS[0]), int(NUMBERS[256])):
        with pytest.raises(SpecialTokenError, match=f"a byte or a merge has {number}"):
            tokenizer.register_special_tokens({"<a>": number})


def test_the_hash_tells_numbers_apart() -> None:
    plain = Model(pairs=arrays(MERGES)[0], pattern=GPT4_SPLIT_PATTERN)
    hashes = {plain.sha256}
    for seed in range(3):
        numbers = numbers_of(256 + len(MERGES), seed)
        hashes.add(Model(pairs=plain.pairs, numbers=numbers, pattern=GPT4_SPLIT_PATTERN).sha256)
    assert len(hashes) == 4


def test_what_a_model_file_cannot_hold_is_refused(tmp_path: Any) -> None:
    tokenizer = imported()
    with pytest.raises(ModelFileError, match=r"cannot hold this tokenizer: the ids would be lost.*save_tiktoken"):
        tokenizer.save(tmp_path / "a")
    for call in (
        lambda: tokenizer.truncated(260),
        lambda: tokenizer.extend(tmp_path / "a", 400),
    ):
        with pytest.raises(ValueError, match="numbers its tokens in another way"):
            call()
    assert not list(tmp_path.iterdir())
    tokenizer.save_vocab(tmp_path / "a.vocab")
    lines = (tmp_path / "a.vocab").read_text(encoding="utf-8").splitlines()
    left, right, made = (int(NUMBERS[i]) for i in (*next(iter(MERGES)), 256))
    tokens = tokenizer.vocab
    expected = f"[{tokens[left].decode()}][{tokens[right].decode()}] -> [{tokens[made].decode()}] {made}"
    assert expected in lines


def test_training_starts_afresh() -> None:
    tokenizer, fresh = imported(), RegexTokenizer()
    tokenizer.register_special_tokens({})
    for each in (tokenizer, fresh):
        each.train(TEXT, 270)
    assert tokenizer.merges == fresh.merges
    assert tokenizer.encode(TEXT) == fresh.encode(TEXT)
    assert tokenizer._model.numbers is None


def test_loading_takes_the_place_of_what_was_imported(tmp_path: Any) -> None:
    fresh = RegexTokenizer()
    fresh.train(TEXT, 270)
    fresh.save(tmp_path / "a")
    tokenizer = imported(mends_surrogates=True)
    assert tokenizer.encode("a\ud800") == right_ids("a\ufffd")
    tokenizer.load(tmp_path / "a.model")
    assert tokenizer.encode(TEXT) == fresh.encode(TEXT)
    with pytest.raises(UnicodeEncodeError):
        tokenizer.encode("a\ud800")


# ---- an order of the bytes without numbers, as GPT-4's, in a class that is not of OpenAI's


def permuted() -> RegexTokenizer:
    byte_ids = bytes(reversed(range(256)))
    text = bytes(byte_ids[byte] for byte in TEXT.encode()).decode("latin-1")
    pairs = list(reference.learn_counted([(text.encode("latin-1"), 1)], 30)[0])
    tokenizer = RegexTokenizer(r"(?s:.+)")
    tokenizer._model = Model(pairs=np.array(pairs, np.uint32), byte_ids=byte_ids, pattern=r"(?s:.+)")
    return tokenizer


def test_permuted_bytes_work_in_every_class(tmp_path: Any) -> None:
    tokenizer = permuted()
    ids = reference.encode_chunk([255 - byte for byte in TEXT.encode()], tokenizer.merges)
    for each in (tokenizer, pickle.loads(pickle.dumps(tokenizer)), copy.copy(tokenizer)):
        assert each.encode(TEXT) == ids
        assert each.decode(ids) == TEXT
        assert each.byte_shuffle == each.inverse_byte_shuffle == {i: 255 - i for i in range(256)}
    with pytest.raises(ModelFileError, match=r"the order of the bytes would be lost.*save_tiktoken"):
        tokenizer.save(tmp_path / "a")
    shorter = tokenizer.truncated(270)
    assert shorter.encode("tha") == reference.encode_chunk([255 - b for b in b"tha"], shorter.merges)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    shorter.extend(tmp_path / "a.txt", 286)
    assert shorter.merges == tokenizer.merges
    with pytest.raises(ModelFileError, match="the order of the bytes"):
        shorter.extend(tmp_path / "a.txt", 290, checkpoint=tmp_path / "b")
    tokenizer.byte_shuffle = {i: i for i in range(256)}
    assert tokenizer.encode_ordinary("a") == [97]
    tokenizer.train(TEXT, 260)
    assert not hasattr(tokenizer, "byte_shuffle")
    tokenizer.save(tmp_path / "a")


def test_a_program_may_use_the_names_of_the_byte_order_where_there_is_none() -> None:
    tokenizer = RegexTokenizer()
    assert not hasattr(tokenizer, "byte_shuffle")
    with pytest.raises(AttributeError, match="'RegexTokenizer' object has no attribute 'inverse_byte_shuffle'"):
        _ = tokenizer.inverse_byte_shuffle
    own = {0: 1}
    tokenizer.byte_shuffle = own
    assert tokenizer.byte_shuffle is own
    assert pickle.loads(pickle.dumps(tokenizer)).byte_shuffle == own
    assert tokenizer.encode("\0") == [0]


def test_a_tokenizer_with_whole_chunks(tmp_path: Any) -> None:
    whole = {b" theatre": 5, b"zz": 8, "é漢🎉\n\n".encode(): 9}
    ways = [(imported(whole=whole), NUMBERS.tolist())]
    plain = RegexTokenizer()
    plain._model = Model(pairs=arrays(MERGES)[0], pattern=GPT4_SPLIT_PATTERN, whole={b" theatre": 1005, b"zz": 1007})
    ways.append((pickle.loads(pickle.dumps(plain)), list(range(256 + len(MERGES)))))
    text = TEXT + " zz theatre zz"
    for tokenizer, outer in ways:
        held = dict(tokenizer._model.whole)
        chunks = reference.split(text, GPT4_SPLIT_PATTERN)
        right = [number for chunk in chunks for number in reference.encode_imported(chunk, MERGES, outer, held)]
        assert tokenizer.encode(text) == tokenizer.encode_to_numpy(text).tolist() == right
        assert tokenizer.decode(right) == text
        assert held[b" theatre"] in right
        vocab = tokenizer.vocab
        assert all(vocab[number] == token for token, number in held.items())
        assert tokenizer._model.max_id == max(*outer, *held.values(), 2)
        with pytest.raises(ModelFileError, match="the chunks that have an id as a whole would be lost"):
            tokenizer.save(tmp_path / "a")
        with pytest.raises(ValueError, match="cannot be assigned or changed"):
            tokenizer.merges = {}
        with pytest.raises(ValueError, match=r"numbers its tokens in another way|stand for chunks as a whole"):
            tokenizer.truncated(256)
        with pytest.raises(SpecialTokenError, match="is not free"):
            tokenizer.register_special_tokens({"<a>": held[b" theatre"]})
        tokenizer.save_vocab(tmp_path / "a.vocab")
        tokenizer.register_special_tokens({})
        tokenizer.train("aaa", 257)
        assert not tokenizer._model.whole
        assert tokenizer.encode(" theatre") == list(b" theatre")
    several: list[dict[bytes, int]] = [{}, {b"a": 300}, {b"a": 301}, {b"b": 300}, {b"a": 300, b"b": 301}]
    hashes = {Model(whole=whole).sha256 for whole in several}
    assert len(hashes) == 5
    assert Model(whole={b"a": 300, b"b": 301}).sha256 == Model(whole={b"b": 301, b"a": 300}).sha256

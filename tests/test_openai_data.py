"""The data of OpenAI's encodings: the merges that the package ships are those of tiktoken's rank files, and with them
cbpe is tiktoken, chunk for chunk. (Whole texts, with tiktoken's patterns, are in test_openai.py.)

published.py says where the original files are looked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
from base64 import b64encode
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tiktoken
from budget import examples, thorough
from hypothesis import given
from hypothesis import strategies as st
from published import VOCAB
from tiktoken.load import data_gym_to_mergeable_bpe_ranks

from cbpe.data import merges
from cbpe.encoding.decoder import Decoder
from cbpe.encoding.encoder import Encoder
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.splitting import splitter_for

ROOT = Path(__file__).parents[1]
SPLITTER = splitter_for(GPT4_SPLIT_PATTERN)
SKIPPED = {"p50k": [50256]}

each = pytest.mark.parametrize("name", list(merges.SOURCES))


def merged_ids(name: str) -> np.ndarray:
    pairs, ids, _ = merges.load(name)
    return np.arange(256, 256 + len(pairs), dtype=np.uint32) if ids is None else ids


@cache
def tokens(name: str) -> dict[int, bytes]:
    pairs, _, byte_ids = merges.load(name)
    found = {byte_ids[value]: bytes([value]) for value in range(256)}
    for number, (left, right) in zip(merged_ids(name).tolist(), pairs.tolist(), strict=True):
        found[number] = found[left] + found[right]
    return found


@cache
def encoder(name: str) -> Encoder:
    return Encoder(merges.load(name).pairs, merged_ids(name), merges.load(name).byte_ids)


DECODER = Decoder(tokens("cl100k"))


def encode(text: str) -> list[int]:
    return encoder("cl100k").encode(text.encode(), SPLITTER)


# What the rank files say needs no file to check: the tokens in the order of their ranks are the file.


@each
def test_the_data_rebuild_the_rank_file_byte_for_byte(name: str) -> None:
    lines = [b64encode(token) + b" %d\n" % rank for rank, token in sorted(tokens(name).items())]
    assert hashlib.sha256(b"".join(lines)).hexdigest() == merges.SOURCES[name]


@each
def test_shapes(name: str) -> None:
    pairs, ids, byte_ids = merges.load(name)
    sizes = {"r50k": 50_000, "p50k": 50_024, "cl100k": 100_000, "o200k": 199_742}
    assert (pairs.dtype, pairs.shape) == (np.uint32, (sizes[name], 2))
    assert pairs.flags.c_contiguous
    assert not pairs.flags.writeable
    assert sorted(byte_ids) == list(range(256))
    assert (pairs.max(axis=1) < merged_ids(name)).all()
    if ids is None:
        assert name not in SKIPPED
    else:
        assert not ids.flags.writeable
        assert sorted(set(range(256, ids[-1])) - set(ids.tolist())) == SKIPPED[name]
    assert merges.load(name) is merges.load(name)


@each
def test_every_token_encodes_to_itself_and_back(name: str) -> None:
    table, decoder = encoder(name), Decoder(tokens(name))
    assert all(table.encode_chunk(token) == [rank] for rank, token in tokens(name).items())
    assert all(decoder.decode_bytes([rank]) == token for rank, token in tokens(name).items())


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hello\r\nworld\r\n\r\n", [15339, 319, 14957, 881]),                                       # C12
        ("a\0b", [64, 188, 65]),                                                                    # C13
        ("\U0001f44d", [9468, 239, 235]),                                                           # C26
        ("\ufffd", [5809]),
        ("'RE", [95253]),                                                                           # C33
        ("I'M we'll THEY'RE we'd", [40, 28703, 584, 3358, 63593, 95253, 584, 4265]),
        ("it'\u017f", [275, 6, 129, 123]),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", [61196, 88344, 79468, 31584, 97, 35470]),          # C36
        ("a\u0301b", [64, 54939, 65]),
        ("\u0939\u093f\u0928\u094d\u0926\u0940", [95048, 43411, 101, 31584, 99, 44747]),
        ("  ", [256]),                                                                              # C58
        ("   ", [262]),
        ("hello  world", [15339, 220, 1917]),
        (
            "hello world!!!? (\uc548\ub155\ud558\uc138\uc694!) lol123 \U0001f609",
            [15339, 1917, 12340, 30, 320, 31495, 230, 75265, 243, 92245, 16715, 28509, 4513, 57037],
        ),
    ],
)
def test_c12_c13_c26_c33_c36_c58_known_answers(text: str, ids: list[int]) -> None:
    assert encode(text) == ids
    assert DECODER.decode_bytes(ids).decode() == text


def test_c25_long_runs() -> None:
    assert encode("a" * 100_000) == [70540] * 12_500
    assert encode("^" * 1_000_000) == [62824] * 250_000
    assert encode(" " * 1_000_000) == [58040] * 7812 + [5351]
    assert encode("\n" * 200_000) == [80183] * 6250
    letters = "".join(random.Random(25).choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000))
    ids = encode(letters)
    assert DECODER.decode_bytes(ids).decode() == letters
    assert encoder("cl100k").count(letters.encode(), SPLITTER) == len(ids)


# ---- the originals, where they are


def ranks_of(name: str, maker: ModuleType) -> dict[bytes, int]:
    path = VOCAB / f"{name}_base.tiktoken"
    if not path.exists():
        pytest.skip(f"no {path}")
    ranks: dict[bytes, int] = maker.read_ranks(path.read_bytes())
    return ranks


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_openai_data", ROOT / "scripts" / "make_openai_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@thorough
@each
def test_the_data_are_what_the_script_makes_of_the_original(name: str, maker: ModuleType) -> None:
    ranks = ranks_of(name, maker)
    assert {token: rank for rank, token in tokens(name).items()} == ranks
    made, held = maker.recover(ranks), merges.load(name)
    assert np.array_equal(made.pairs, held.pairs)
    assert (made.ids is None) == (held.ids is None)
    assert made.ids is None or np.array_equal(made.ids, held.ids)
    assert made.byte_ids == held.byte_ids


def test_the_files_of_gpt2_say_the_same_as_r50k() -> None:
    paths = VOCAB / "gpt2_vocab.bpe", VOCAB / "gpt2_encoder.json"
    for path in paths:
        if not path.exists():
            pytest.skip(f"no {path}")
    ranks = data_gym_to_mergeable_bpe_ranks(*map(str, paths))
    assert ranks == {token: rank for rank, token in tokens("r50k").items()}


def test_the_script_makes_a_file_and_refuses_others(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "ranks"
    all_bytes = {bytes([i]): i for i in range(256)}
    source.write_bytes(b"".join(b64encode(token) + b" %d\n" % rank for token, rank in all_bytes.items()))
    monkeypatch.setattr("sys.argv", ["make_openai_data.py", str(source), "-o", str(tmp_path)])
    with pytest.raises(SystemExit):
        maker.main()
    assert merges.SOURCES["cl100k"] in capsys.readouterr().err
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    monkeypatch.setitem(merges.SOURCES, "bytes", sha256)
    maker.main()
    made = merges.unpack((tmp_path / "bytes.bin").read_bytes(), sha256)
    assert (len(made.pairs), made.ids, made.byte_ids) == (0, None, bytes(range(256)))
    for ranks in [{b"a": 1}, {b"ab": 0, **{bytes([i]): i + 1 for i in range(256)}}, {**all_bytes, b"abc": 256}]:
        with pytest.raises(ValueError, match="rank"):
            maker.recover(ranks)


def test_skipped_ids_survive(maker: ModuleType) -> None:
    ranks = {**{bytes([i]): i for i in range(256)}, b"ab": 257, b"cd": 258, b"abcd": 261}
    table = maker.recover(ranks)
    assert table.ids is not None
    assert table.ids.tolist() == [257, 258, 261]
    again = merges.unpack(merges.pack(table, "00" * 32), "00" * 32)
    assert again.pairs.tolist() == [[97, 98], [99, 100], [257, 258]]
    assert again.ids is not None
    assert again.ids.tolist() == [257, 258, 261]


@pytest.fixture(scope="module")
def peer() -> tiktoken.Encoding:
    """tiktoken with cl100k_base and minbpe's pattern, put together by hand: its own constructor wants the network."""
    ranks = {token: rank for rank, token in tokens("cl100k").items()}
    return tiktoken.Encoding("cl100k", pat_str=GPT4_SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={})


@thorough
def test_all_code_points_encode_as_tiktoken_encodes_them(peer: tiktoken.Encoding) -> None:
    """Each chunk by itself, as cbpe splits: the engines' editions of Unicode may differ, the merges may not."""
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    lines = [points[i : i + 256] for i in range(0, len(points), 256)]       # no chunk is long: tiktoken is slow there
    for between in ["", "a", " \n"]:
        chunks = SPLITTER.split("\n".join(between.join(line) for line in lines))
        right = [i for chunk in dict.fromkeys(chunks) for i in peer._encode_single_piece(chunk)]
        assert [i for chunk in dict.fromkeys(chunks) for i in encoder("cl100k").encode_chunk(chunk)] == right


@examples(300)
@given(data=st.data())
def test_random_strings_encode_as_tiktoken_encodes_them(peer: tiktoken.Encoding, data: st.DataObject) -> None:
    text = data.draw(st.text(alphabet="aeinorst ETA'\n\t.,10é漢🎉_=", max_size=400))
    assert encode(text) == peer.encode_ordinary(text)


def test_random_chunks_encode_as_tiktoken_encodes_them(peer: tiktoken.Encoding) -> None:
    generator = random.Random(4)
    for size in [1, 2, 3, 5, 8, 15, 31, 32, 33, 64, 300, 2000]:
        for letters in [bytes(range(256)), b"etaoinshrdlu", b" \n\t", "漢字かなéü".encode()]:
            for _ in range(20):
                chunk = bytes(generator.choices(letters, k=size))
                assert encoder("cl100k").encode_chunk(chunk) == peer._encode_single_piece(chunk)


# ---- files that are refused


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a file of packed merges"),
        (lambda data: data[:50], "not a file of packed merges"),
        (lambda data: b"x" + data[1:], "not a file of packed merges"),
        (lambda data: data[:8] + b"\x01" + data[9:], "version 1; this program reads version 2"),
        (lambda data: data[:24] + b"\0" + data[25:], "another rank file"),
        (lambda data: data[:-1000], "damaged"),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "checksum"),
        (lambda data: data[:12] + b"\1" + data[13:], "checksum"),
    ],
)
def test_damaged_files_are_refused(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    pairs, _, byte_ids = merges.load("cl100k")
    source = merges.SOURCES["cl100k"]
    packed = merges.pack(merges.Table(pairs[:1000], None, byte_ids), source)
    again = merges.unpack(packed, source)
    assert np.array_equal(again.pairs, pairs[:1000])
    assert (again.ids, again.byte_ids) == (None, byte_ids)
    with pytest.raises(ValueError, match=message):
        merges.unpack(damage(packed), source)


def test_ids_too_large_to_pack_are_refused() -> None:
    table = merges.Table(np.array([[1 << 24, 0]], dtype=np.uint32), None, bytes(range(256)))
    with pytest.raises(ValueError, match="more than 3 bytes"):
        merges.pack(table, "00" * 32)

"""GPT-4's data: the merges that the package ships are those of tiktoken's rank file, and with them cbpe is tiktoken.

The original rank file is looked for beside the repository, in ../shared/vocab; what needs it is skipped without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import random
from base64 import b64encode
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from cbpe.data import cl100k
from cbpe.encoding.decoder import Decoder
from cbpe.encoding.encoder import Encoder
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.splitting import splitter_for

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
RANKS = SHARED / "vocab" / "cl100k_base.tiktoken"
TEXTS = sorted((SHARED / "data").glob("*.txt"))

PAIRS, BYTE_IDS = cl100k.load()
TOKENS = {BYTE_IDS[value]: bytes([value]) for value in range(256)}
for left, right in PAIRS.tolist():
    TOKENS[len(TOKENS)] = TOKENS[left] + TOKENS[right]
ENCODER = Encoder(PAIRS, np.arange(256, 256 + len(PAIRS), dtype=np.uint32), BYTE_IDS)
DECODER = Decoder(TOKENS)
SPLITTER = splitter_for(GPT4_SPLIT_PATTERN)


def encode(text: str) -> list[int]:
    return ENCODER.encode(text.encode(), SPLITTER)


# What the rank file says needs no file to check: the tokens in the order of their ranks are the file.


def test_the_data_rebuild_the_rank_file_byte_for_byte() -> None:
    lines = [b64encode(TOKENS[rank]) + b" %d\n" % rank for rank in range(len(TOKENS))]
    assert hashlib.sha256(b"".join(lines)).hexdigest() == cl100k.SOURCE_SHA256


def test_shapes() -> None:
    assert PAIRS.dtype == np.uint32
    assert PAIRS.shape == (100_000, 2)
    assert PAIRS.flags.c_contiguous
    assert not PAIRS.flags.writeable
    assert sorted(BYTE_IDS) == list(range(256))
    assert (PAIRS.max(axis=1) < np.arange(256, 256 + len(PAIRS))).all()
    assert cl100k.load() is cl100k.load()


def test_every_token_encodes_to_itself_and_back() -> None:
    assert [ENCODER.encode_chunk(TOKENS[i]) for i in range(len(TOKENS))] == [[i] for i in range(len(TOKENS))]
    assert all(DECODER.decode_bytes([i]) == token for i, token in TOKENS.items())


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
    assert ENCODER.count(letters.encode(), SPLITTER) == len(ids)


# ---- the original, where it is


@pytest.fixture(scope="module")
def original() -> bytes:
    if not RANKS.exists():
        pytest.skip(f"no {RANKS}")
    return RANKS.read_bytes()


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_gpt4_data", ROOT / "scripts" / "make_gpt4_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def peer(original: bytes, maker: ModuleType) -> tiktoken.Encoding:
    """tiktoken's cl100k_base, put together by hand: its own constructor wants the network."""
    ranks = maker.read_ranks(original)
    return tiktoken.Encoding("cl100k", pat_str=GPT4_SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={})


def test_the_data_are_what_the_script_makes_of_the_original(original: bytes, maker: ModuleType) -> None:
    pairs, byte_ids = maker.recover(maker.read_ranks(original))
    assert np.array_equal(pairs, PAIRS)
    assert byte_ids == BYTE_IDS


def test_the_script_refuses_another_file(
    maker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranks").write_bytes(b"IQ== 0\n")
    monkeypatch.setattr("sys.argv", ["make_gpt4_data.py", str(tmp_path / "ranks"), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit):
        maker.main()
    assert cl100k.SOURCE_SHA256 in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    all_bytes = {bytes([i]): i for i in range(256)}
    for ranks in [{b"a": 1}, {b"ab": 0, **{bytes([i]): i + 1 for i in range(256)}}, {**all_bytes, b"abc": 256}]:
        with pytest.raises(ValueError, match="rank"):
            maker.recover(ranks)


@pytest.mark.parametrize("path", TEXTS, ids=[path.name for path in TEXTS])
def test_texts_encode_as_tiktoken_encodes_them(peer: tiktoken.Encoding, path: Path) -> None:
    text = path.read_bytes().decode()
    ids = encode(text)
    assert ids == peer.encode_ordinary(text)
    assert DECODER.decode_bytes(np.array(ids)).decode() == text


def test_all_code_points_encode_as_tiktoken_encodes_them(peer: tiktoken.Encoding) -> None:
    """Each chunk by itself, as cbpe splits: the engines' editions of Unicode may differ, the merges may not."""
    points = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    lines = [points[i : i + 256] for i in range(0, len(points), 256)]       # no chunk is long: tiktoken is slow there
    for between in ["", "a", " \n"]:
        chunks = SPLITTER.split("\n".join(between.join(line) for line in lines))
        right = [i for chunk in dict.fromkeys(chunks) for i in peer._encode_single_piece(chunk)]
        assert [i for chunk in dict.fromkeys(chunks) for i in ENCODER.encode_chunk(chunk)] == right


@settings(max_examples=300, deadline=None)
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
                assert ENCODER.encode_chunk(chunk) == peer._encode_single_piece(chunk)


# ---- files that are refused


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "not a file of packed merges"),
        (lambda data: data[:50], "not a file of packed merges"),
        (lambda data: b"x" + data[1:], "not a file of packed merges"),
        (lambda data: data[:8] + b"\x02" + data[9:], "version 2; this program reads version 1"),
        (lambda data: data[:20] + b"\0" + data[21:], "another rank file"),
        (lambda data: data[:-1000], "damaged"),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "checksum"),
        (lambda data: data[:12] + b"\1" + data[13:], "checksum"),
    ],
)
def test_damaged_files_are_refused(damage, message: str) -> None:  # type: ignore[no-untyped-def]
    packed = cl100k.pack(PAIRS[:1000], BYTE_IDS)
    pairs, byte_ids = cl100k.unpack(packed)
    assert np.array_equal(pairs, PAIRS[:1000])
    assert byte_ids == BYTE_IDS
    with pytest.raises(ValueError, match=message):
        cl100k.unpack(damage(packed))


def test_ids_too_large_to_pack_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 3 bytes"):
        cl100k.pack(np.array([[1 << 24, 0]], dtype=np.uint32), BYTE_IDS)

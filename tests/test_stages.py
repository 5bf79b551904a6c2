"""Splitting in stages: what one pattern leaves whole, the next one splits.

The oracle for a single stage is a twin that marks every character with the match it belongs to, for stages in sequence
the twin applied piece by piece; and Hugging Face's tokenizers, whose pre-tokenizers stages stand for.
"""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference
import regex
from click.testing import CliRunner

from cbpe import ChunkStore, RegexTokenizer
from cbpe.cli import command
from cbpe.errors import ChunkStoreError, ModelFileError
from cbpe.patterns import BYTE_LEVEL_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, NAMED_PATTERNS
from cbpe.splitting import Stages, split, splitter_for
from cbpe.splitting.stages import KEEPS, NAMED_STAGES, Stage, digits, punctuation

WORDS = r" ?\w+"
PATTERNS = [r"\d", r"\d+", r"\d{1,3}", r"[ab]", r"^.", r".$", r"a(?!b)", r"(?<=a)b", r"(a)(b)?", WORDS, r"\s+(?!\S)|\s"]


def check(stages: list[tuple[str, str]], text: str) -> None:
    splitter = splitter_for(Stages(stages))
    wanted = [piece.encode() for piece in reference.split_in_stages(text, stages)]
    assert splitter.split(text) == splitter.split(text.encode()) == wanted, (stages, text)


def texts() -> list[str]:
    rng = random.Random(3)
    short = ["".join(letters) for n in range(4) for letters in itertools.product("ab1 \n", repeat=n)]
    return short + ["".join(rng.choices("aab12 \n.é中", k=rng.randint(5, 60))) for _ in range(40)]


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_stage(pattern: str, keep: str) -> None:
    for text in texts():
        check([(pattern, keep)], text)


def test_stages_in_sequence() -> None:
    rng = random.Random(4)
    some = texts()
    for _ in range(150):
        stages = [(rng.choice(PATTERNS), rng.choice(KEEPS)) for _ in range(rng.randint(2, 4))]
        for text in rng.sample(some, 20):
            check(stages, text)


def test_a_stage_sees_pieces_as_texts_of_their_own() -> None:
    assert splitter_for(Stages([(r"1", "all"), (r"^a|\s+(?!\S)|\s|$", "all")])).split("ab1ac  1 ") == [
        b"a", b"b", b"1", b"a", b"c", b"  ", b"1", b" ",
    ]  # fmt: skip


def test_empty_matches_part_and_are_no_pieces() -> None:
    assert splitter_for(Stages([(r"\b", "all")])).split("ab cd") == [b"ab", b" ", b"cd"]
    assert splitter_for(Stages([(r"x*", "between")])).split("axxb") == [b"a", b"b"]
    assert splitter_for(Stages([(r"x*", "matches"), ("y", "all")])).split("axxb") == [b"xx"]


def test_spans_and_batches() -> None:
    splitter = splitter_for(Stages([(r"\d", "all"), (r"\s", "between")]))
    text = "é1 中ab " * 20_000
    kept, ends = splitter.spans(text.encode())
    assert kept == text.replace(" ", "").encode()
    assert ends.dtype == np.uint32
    assert ends[:4].tolist() == [2, 3, 8, 10]
    batches = list(splitter.batches(text.encode()))
    assert len(batches) > 1
    assert b"".join(part for part, _ in batches) == kept
    assert sum(len(part_ends) for _, part_ends in batches) == len(ends)
    assert splitter.split("") == []
    with pytest.raises(UnicodeDecodeError) as caught:
        splitter.split(b"ab\xff")
    assert caught.value.start == 2
    with pytest.raises(UnicodeEncodeError):
        splitter.split("a\ud800")


def test_attributes() -> None:
    stages = Stages([(r"\d", "all"), (r"\s", "between")])
    splitter = splitter_for(stages)
    assert (splitter.kind, splitter.pattern, splitter.cuttable, splitter.compiled) == ("stages", stages, False, None)
    assert repr(stages) in repr(splitter)


@pytest.mark.parametrize(("kind", "pattern"), NAMED_PATTERNS.items())
@pytest.mark.parametrize("keep", ["matches", "all"])
def test_one_stage_of_a_named_pattern_is_that_pattern(kind: str, pattern: str, keep: str) -> None:
    splitter = splitter_for(Stages([(pattern, keep)]))
    assert (splitter.kind, splitter.pattern) == (kind, pattern)


def test_one_stage_that_keeps_matches_is_its_pattern() -> None:
    splitter = splitter_for(Stages([(WORDS, "matches")]))
    assert (splitter.kind, splitter.pattern) == ("regex", WORDS)
    assert splitter_for(Stages([(WORDS, "all")])).kind == "stages"
    assert splitter_for(Stages([(GPT4_SPLIT_PATTERN, "between")])).split("a b") == []


def test_stages_are_plain_values() -> None:
    stages = Stages([("a", "all"), Stage("b", "matches")])
    assert stages.stages == (Stage("a", "all"), Stage("b", "matches"))
    assert Stages([Stage("a")]).stages[0].keep == "all"
    others = [Stages([("a", "all")]), Stages([("a", "all"), ("b", "all")]), Stages([("b", "matches"), ("a", "all")])]
    assert all(stages != other for other in others)
    for same in (Stages(stages.stages), pickle.loads(pickle.dumps(stages)), copy.deepcopy(stages)):
        assert same == stages
        assert hash(same) == hash(stages)
    with pytest.raises(AttributeError):
        stages.stages = ()    # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ([], ValueError, "one at least"),
        ([("a", "none")], ValueError, "'none'"),
        ([(5, "all")], TypeError, "int"),
        ([(regex.compile("a"), "all")], TypeError, "Pattern"),
    ],
)
def test_what_is_no_stage_is_refused(wrong: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Stages(wrong)


def test_what_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(regex.error):
        splitter_for(Stages([("a", "all"), ("(", "all")]))


# --- Against Hugging Face ---

BEHAVIORS = {
    "all": ("isolated", False),
    "between": ("removed", False),
    "matches": ("removed", True),
    "with_previous": ("merged_with_previous", False),
    "with_next": ("merged_with_next", False),
    "runs": ("contiguous", False),
}


def pre_tokenizer(stages: list[tuple[str, str]]) -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    splits = []
    for pattern, keep, *_ in stages:
        behavior, invert = BEHAVIORS[keep]
        splits.append(tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior, invert))
    return tokenizers.pre_tokenizers.Sequence(splits)


def pieces_of(pre: Any, text: str) -> list[bytes]:
    return [piece.encode() for piece, _ in pre.pre_tokenize_str(text)]


def test_stages_are_what_hugging_face_does() -> None:
    rng = random.Random(5)
    some = texts()
    # (to its engine ^ and $ are the ends of a line)
    patterns = [r"\A.", *(pattern for pattern in PATTERNS if pattern not in ("^.", ".$"))]
    singles = [[(pattern, keep)] for pattern in patterns for keep in KEEPS]
    several = [[(rng.choice(patterns), rng.choice(KEEPS)) for _ in range(rng.randint(2, 3))] for _ in range(100)]
    for stages in [*singles, *several]:
        splitter, pre = splitter_for(Stages(stages)), pre_tokenizer(stages)
        for text in rng.sample(some, 40):
            assert splitter.split(text) == pieces_of(pre, text), (stages, text)


CODE_POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
SOME_CODE_POINTS = [*CODE_POINTS[:0x800], *CODE_POINTS[0x800:0x20000:37]]


@cache
def regex_has_the_edition() -> bool:
    numbers = [ord(number) for number in regex.findall(r"\p{N}", "".join(CODE_POINTS))]
    return numbers == [c for c, class_ in enumerate(split._character_classes()) if class_ == 2]


def need_the_editions() -> Any:
    """The package tokenizers, if it and regex have the editions of Unicode that the classes were made for."""
    tokenizers = pytest.importorskip("tokenizers")
    if not tokenizers.__version__.startswith("0.23."):
        pytest.skip(f"digits and punctuation are those of tokenizers 0.23, not {tokenizers.__version__}")
    if not regex_has_the_edition():
        pytest.skip("regex follows another edition of Unicode")
    return tokenizers


def test_digits_on_every_code_point() -> None:
    tokenizers = need_the_editions()
    for individual, text in [(True, "".join(CODE_POINTS)), (False, "a12½³x 4".join(SOME_CODE_POINTS))]:
        splitter = splitter_for(Stages([digits(individual)]))
        pre = tokenizers.pre_tokenizers.Digits(individual_digits=individual)
        assert splitter.split(text) == pieces_of(pre, text)


@pytest.mark.parametrize("keep", ["all", "between", "with_previous", "with_next", "runs"])
def test_punctuation_on_every_code_point(keep: str) -> None:
    pre = need_the_editions().pre_tokenizers.Punctuation(BEHAVIORS[keep][0])
    splitter = splitter_for(Stages([punctuation(keep)]))
    text = "".join(CODE_POINTS) if keep == "all" else "a,b ?!".join(SOME_CODE_POINTS)
    assert splitter.split(text) == pieces_of(pre, text)
    assert punctuation() == punctuation("all")


def named_pre_tokenizer(name: str) -> Any:
    """The pre-tokenizers of the published file, without ByteLevel's names for bytes."""
    tokenizers = need_the_editions()
    if name == "starcoder":
        by_words = tokenizers.pre_tokenizers.Split(tokenizers.Regex(BYTE_LEVEL_SPLIT_PATTERN), "isolated")
        return tokenizers.pre_tokenizers.Sequence([tokenizers.pre_tokenizers.Digits(individual_digits=True), by_words])
    return pre_tokenizer([tuple(stage) for stage in NAMED_STAGES[name].stages])


@pytest.mark.parametrize("name", NAMED_STAGES)
def test_named_stages(name: str) -> None:
    pre, splitter = named_pre_tokenizer(name), splitter_for(NAMED_STAGES[name])
    assert splitter.pattern == NAMED_STAGES[name]
    rng = random.Random(6)
    trouble = "'''  \n\n\r\t123sSltbBéß.,/!-$^\u3000\x85\u0301\u200b\x00١½Ⅷ中文あア・゛ー๔"
    some = ["".join(rng.choices(trouble, k=rng.randint(1, 30))) for _ in range(4000)]
    some += ["".join(letters) for letters in itertools.product("a1 中.\n\u0301", repeat=4)]
    some += [path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_s*.py")]
    stages = list(NAMED_STAGES[name].stages)
    for text in some:
        assert splitter.split(text) == pieces_of(pre, text), text
        if len(text) < 100:
            assert splitter.split(text) == [part.encode() for part in reference.split_in_stages(text, stages)], text


def test_stages_of_bytes_split_what_bytes_are_written_as() -> None:
    # "ò" is C3 B2, and B2 is written "²", which is a number
    stages = Stages([Stage(r" ?\w+", "all"), Stage(r"\p{N}+", "all", of_bytes=True), Stage("1", "between", True)])
    splitter = splitter_for(stages)
    assert splitter.split("oò 12!") == [b"o\xc3", b"\xb2", b" ", b"2", b"!"]
    assert pickle.loads(pickle.dumps(stages)) == stages
    with pytest.raises(ValueError, match="only such behind it"):
        Stages([Stage("a", "all", True), Stage("a")])


def test_deepseek_splits_numbers_and_chinese_first() -> None:
    splitter = splitter_for(NAMED_STAGES["deepseek3"])
    chunks = ["Number", " ", "123", "456", " ", "中文", " text", ".\n", " it", "'s"]
    assert splitter.split("".join(chunks)) == [chunk.encode() for chunk in chunks]


# --- Through the whole library ---

THREE = [(r"\p{N}{1,3}", "all"), (r"[一-龥]+", "all"), (r"\s+|[^\s]+?(?=\W|$)", "all")]
SOME_TEXTS = ["ab 1234 中文 ab.", "", "12345", "ab ab ab\n\ncd 中文中文 99", "x" * 70 + " é "] * 7


def chunks_of(texts: list[str]) -> dict[bytes, int]:
    return Counter(piece.encode() for text in texts for piece in reference.split_in_stages(text, THREE))


def trained() -> RegexTokenizer:
    tokenizer = RegexTokenizer(Stages(THREE))
    tokenizer.train_from_iterator(SOME_TEXTS, 270)
    return tokenizer


def test_a_tokenizer_trains_and_encodes_in_stages(tmp_path: Path) -> None:
    tokenizer = trained()
    assert tokenizer.merges == reference.learn_counted(chunks_of(SOME_TEXTS).items(), 14)[0]
    file = tmp_path / "text.txt"
    file.write_text("\n".join(SOME_TEXTS), encoding="utf-8")
    for text in [*SOME_TEXTS, "\n".join(SOME_TEXTS)]:
        pieces = reference.split_in_stages(text, THREE)
        ids = [number for piece in pieces for number in tokenizer._encode_chunk(piece.encode())]
        assert tokenizer.encode(text) == tokenizer.encode_ordinary(text) == ids
        assert tokenizer.encode_to_numpy(text).tolist() == ids
        assert tokenizer.count(text) == len(ids)
        assert tokenizer.decode(ids) == text
    wanted = [tokenizer.encode(text) for text in SOME_TEXTS]
    assert tokenizer.encode_batch(SOME_TEXTS, num_threads=2) == wanted
    flat, offsets = tokenizer.encode_batch_to_numpy(SOME_TEXTS, num_threads=2)
    assert [flat[a:b].tolist() for a, b in itertools.pairwise(offsets)] == wanted
    assert tokenizer.encode_file(file, tmp_path / "ids.bin") == len(ids)
    assert np.fromfile(tmp_path / "ids.bin", np.uint16).tolist() == ids
    for copied in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert copied.encode_batch(SOME_TEXTS) == wanted
        assert copied._model.sha256 == tokenizer._model.sha256


def test_stages_stay_until_a_pattern_takes_their_place(tmp_path: Path) -> None:
    tokenizer = trained()
    assert tokenizer.pattern == THREE[-1][0]
    assert tokenizer.truncated(260).encode("1234") == [49, 50, 51, 52]
    plain = trained()
    plain.merges = tokenizer.merges
    assert plain._model.stages == Stages(THREE)
    assert plain._model.sha256 == tokenizer._model.sha256
    with pytest.raises(ModelFileError, match="stages"):
        tokenizer.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    for name, value in [("pattern", r"(?s)."), ("compiled_pattern", regex.compile(r"(?s)."))]:
        other = trained()
        setattr(other, name, value)
        assert other._model.stages is None
        assert other.encode("ab") == [97, 98]
        assert other._model.sha256 != tokenizer._model.sha256


def test_one_stage_that_is_a_pattern_makes_a_plain_tokenizer() -> None:
    tokenizer = RegexTokenizer(Stages([(GPT4_SPLIT_PATTERN, "all")]))
    assert (tokenizer.pattern, tokenizer._model.stages) == (GPT4_SPLIT_PATTERN, None)


def test_a_store_of_chunks_in_stages(tmp_path: Path) -> None:
    stages = Stages(THREE)
    wanted = chunks_of(SOME_TEXTS)
    store = ChunkStore.from_iterator(SOME_TEXTS, stages, num_threads=2)
    assert list(store) == list(wanted.items())
    assert store.pattern == stages
    store.save(tmp_path / "store")
    with ChunkStore.open(tmp_path / "store") as opened:
        assert list(opened) == list(store)
        assert opened.pattern == stages
        merged = ChunkStore.merge([opened, store])
        assert list(merged) == [(chunk, 2 * count) for chunk, count in store]
        tokenizer = RegexTokenizer(stages)
        tokenizer.train_from_chunks(opened, 270)
        assert tokenizer.merges == trained().merges
        with pytest.raises(ChunkStoreError, match="pattern"):
            RegexTokenizer().train_from_chunks(opened, 270)
        with pytest.raises(ChunkStoreError, match="different patterns"):
            ChunkStore.merge([opened, ChunkStore.from_iterator(SOME_TEXTS)])
    done = CliRunner().invoke(command, ["info", "--json", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["pattern"] == [[*stage, False] for stage in THREE]
    train = ["train", "--from-chunks", f"{tmp_path}/store", "-o", f"{tmp_path}/m", "--vocab-size", "270"]
    done = CliRunner().invoke(command, train)
    assert "stages" in done.output
    assert not list(tmp_path.glob("m*"))


@pytest.mark.parametrize("special_tokens", [(), ("ab",)])
def test_files_in_stages(tmp_path: Path, special_tokens: tuple[str, ...]) -> None:
    file, lines = tmp_path / "text.txt", tmp_path / "lines.jsonl"
    file.write_text("\n".join(SOME_TEXTS), encoding="utf-8")
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in SOME_TEXTS), encoding="utf-8")
    for path, whole in [(file, ["\n".join(SOME_TEXTS)]), (lines, SOME_TEXTS)]:
        stretches = [part for text in whole for part in (text.split("ab") if special_tokens else [text])]
        store = ChunkStore.from_files(path, Stages(THREE), special_tokens=special_tokens, num_threads=2)
        assert list(store) == list(chunks_of(stretches).items())

"""Trainings that are interrupted, and go on from their checkpoint to the very same result."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from budget import mostly_thorough

from cbpe import (
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    ModelFileError,
    RegexTokenizer,
    SpecialTokenError,
)
from cbpe.training import learn as learning

VOCAB_SIZE = 60_000


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
    """A store whose training takes a second or so, most of it merging."""
    rng = random.Random(17)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 11))) for _ in range(60_000)]
    path = tmp_path_factory.mktemp("store") / "words.chunks"
    ChunkStore.from_iterator([" ".join(words)]).save(path)
    return path


def trained(store_path, vocab_size=VOCAB_SIZE, **how):
    tokenizer = RegexTokenizer()
    with ChunkStore.open(store_path) as store:
        tokenizer.train_from_chunks(store, vocab_size, **how)
    return tokenizer


@pytest.fixture(scope="module")
def whole(store_path):
    """The training that nothing interrupts."""
    return trained(store_path)


def loaded(prefix):
    tokenizer = RegexTokenizer()
    tokenizer.load(f"{prefix}.model")
    return tokenizer


def assert_same(tokenizer, expected):
    assert tokenizer.merges == expected.merges
    assert tokenizer.special_tokens == expected.special_tokens
    one, other = tokenizer._model.statistics, expected._model.statistics
    assert one.total_bytes == other.total_bytes
    assert (one.counts == other.counts).all()
    assert (one.tokens == other.tokens).all()


# It waits after each checkpoint, so that a signal that follows one comes before the end.
PROGRAM = """
import sys, time
from cbpe import ChunkStore, RegexTokenizer
from cbpe.training.learn import Checkpoint
write = Checkpoint.write
Checkpoint.write = lambda *args: (write(*args), time.sleep(0.5))
store, prefix, vocab_size, seconds, call = sys.argv[1:]
tokenizer = RegexTokenizer()
how = {"checkpoint": prefix, "checkpoint_seconds": float(seconds)}
if call == "extend":
    tokenizer.load(prefix + ".model")
with ChunkStore.open(store) as store:
    print("begins", flush=True)
    try:
        getattr(tokenizer, call)(store, int(vocab_size), **how)
    except KeyboardInterrupt:
        print("interrupted", len(tokenizer.merges), flush=True)
        raise SystemExit(3)
"""


def interrupted(store_path, prefix, how, call="train_from_chunks"):
    """Runs a training in a process of its own and stops it when it has made some merges; returns its exit code."""
    command = [sys.executable, "-c", PROGRAM, str(store_path), str(prefix), str(VOCAB_SIZE), "0", call]
    path = Path(f"{prefix}.model")
    before = path.read_bytes() if path.exists() else b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begins\n"
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (path.exists() and len(path.read_bytes()) > len(before) + 2000):
            time.sleep(0.002)
        if how == "kill":
            process.kill()
        else:
            process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    if process.returncode == 3:
        known = 0 if call == "train_from_chunks" else before.count(b"\n") - 3
        assert out == f"interrupted {known}\n"          # the tokenizer is as it was
    return process.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
@pytest.mark.parametrize("how", mostly_thorough(["ctrl-c", "kill"], "ctrl-c"))
def test_a_training_that_was_stopped_goes_on_to_the_same_result(store_path, whole, tmp_path, how):
    prefix = tmp_path / "part"
    sizes = []
    code = interrupted(store_path, prefix, how)
    sizes.append(len(loaded(prefix).merges))
    interrupted(store_path, prefix, how, "extend")       # and once more, on the way
    sizes.append(len(loaded(prefix).merges))
    assert code == (3 if how == "ctrl-c" else -signal.SIGKILL)
    assert 0 < sizes[0] <= sizes[1]
    assert sizes[0] < len(whole.merges)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.endswith(".tmp")) == ["part.model"]
    if how == "ctrl-c":
        assert not list(tmp_path.glob("*.tmp"))
    tokenizer = loaded(prefix)
    with ChunkStore.open(store_path) as store:
        tokenizer.extend(store, VOCAB_SIZE)
    assert_same(tokenizer, whole)


def test_whatever_the_place_of_the_interruption(store_path, whole):
    expected = whole.truncated(3000)
    with ChunkStore.open(store_path) as store:
        for size in (256, 257, 300, 1000, 2999, 3000):
            tokenizer = whole.truncated(size)
            tokenizer.extend(store, 3000)
            assert_same(tokenizer, expected)


def test_the_checkpoint_holds_all_merges_in_the_end(store_path, whole, tmp_path):
    for call in (
        lambda t, **how: t.train_from_chunks(ChunkStore.open(store_path), 2000, **how),
        lambda t, **how: t.extend(ChunkStore.open(store_path), 2000, **how),
    ):
        tokenizer = RegexTokenizer()
        call(tokenizer, checkpoint=tmp_path / "all", checkpoint_seconds=1000)
        assert loaded(tmp_path / "all").merges == whole.truncated(2000).merges
        assert [path.name for path in tmp_path.iterdir()] == ["all.model"]
        (tmp_path / "all.model").unlink()


def test_every_way_to_train_takes_a_checkpoint(tmp_path):
    text = "the cat sat on the mat " * 20
    (tmp_path / "text.txt").write_text(text)
    for number, train in enumerate(
        (
            lambda t, **how: t.train(text, 265, **how),
            lambda t, **how: t.train_from_files(tmp_path / "text.txt", 265, **how),
            lambda t, **how: t.train_from_iterator([text], 265, **how),
            lambda t, **how: t.extend(tmp_path / "text.txt", 265, **how),
        )
    ):
        for make in (BasicTokenizer, RegexTokenizer):
            tokenizer = make()
            prefix = tmp_path / f"{make.__name__}{number}"
            train(tokenizer, checkpoint=str(prefix))
            again = make()
            again.load(f"{prefix}.model")
            assert again.merges == tokenizer.merges != {}


def test_special_tokens_that_have_their_ids_are_in_the_checkpoint(store_path, tmp_path):
    prefix = tmp_path / "m"
    for specials, expected in (({"<end>": 1000}, {"<end>": 1000}), (["<end>"], {}), (None, {})):
        trained(store_path, 300, special_tokens=specials, checkpoint=prefix)
        assert loaded(prefix).special_tokens == expected
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<pad>": 999})
    with ChunkStore.open(store_path) as store:
        tokenizer.train_from_chunks(store, 300, checkpoint=prefix)
        assert loaded(prefix).special_tokens == {"<pad>": 999}
        again = loaded(prefix)
        again.extend(store, 310)
    assert again.special_tokens == {"<pad>": 999}


def test_a_failure_while_merging_leaves_a_checkpoint(store_path, whole, tmp_path, monkeypatch):
    def failing(*args, **kwargs):
        for i, batch in enumerate(learn(*args, **kwargs)):
            yield batch
            if len(batch[0]) and i > 3:
                raise MemoryError("no memory for more")

    learn = learning.learn
    monkeypatch.setattr(learning, "learn", failing)
    tokenizer = RegexTokenizer()
    with ChunkStore.open(store_path) as store, pytest.raises(MemoryError):
        tokenizer.train_from_chunks(store, VOCAB_SIZE, checkpoint=tmp_path / "m")
    assert tokenizer.merges == {}
    merges = list(loaded(tmp_path / "m").merges)
    assert merges == list(whole.merges)[: len(merges)] != []
    # one that has not even repeated the merges there were, takes none of them away
    monkeypatch.setattr(learning, "learn", lambda *args, **kwargs: iter([next(learn(*args, **kwargs))]))
    tokenizer = loaded(tmp_path / "m")          # (a generator that only begins stands for a Ctrl-C)
    with ChunkStore.open(store_path) as store, pytest.warns(UserWarning, match="vocabulary of 256"):
        tokenizer.extend(store, VOCAB_SIZE, checkpoint=tmp_path / "m")
    assert list(loaded(tmp_path / "m").merges) == merges


def test_checkpoints_are_written_now_and_then():
    saved = []
    checkpoint = learning.Checkpoint(saved.append, 0.05)
    assert not checkpoint.is_due()
    time.sleep(0.06)
    assert checkpoint.is_due()
    checkpoint.write([np.zeros((2, 2), np.uint32), np.zeros((1, 2), np.uint32)], 3)
    assert not checkpoint.is_due()
    assert [pairs.shape for pairs in saved] == [(3, 2)]
    checkpoint.write([np.zeros((2, 2), np.uint32)], 3)
    assert len(saved) == 1


def test_what_no_checkpoint_can_hold_is_said_before_anything_is_counted(tmp_path):
    def texts():
        pytest.fail("it was counted")
        yield ""

    with pytest.raises(FileNotFoundError, match="no such folder"):
        RegexTokenizer().train_from_iterator(texts(), 300, checkpoint=tmp_path / "missing" / "m")
    with pytest.raises(ModelFileError, match="line end"):
        RegexTokenizer("a\n|b").train_from_iterator(texts(), 300, checkpoint=tmp_path / "m")
    with pytest.raises(ModelFileError, match="line end"):
        RegexTokenizer().train_from_iterator(
            texts(), 300, special_tokens={"<\n>": 1000}, checkpoint=tmp_path / "m"
        )
    with pytest.raises(TypeError):
        RegexTokenizer().train_from_iterator(texts(), 300, checkpoint=b"m")
    for wrong in (-1, "soon", None, float("nan")):
        with pytest.raises((TypeError, ValueError), match="checkpoint_seconds"):
            RegexTokenizer().train_from_iterator(texts(), 300, checkpoint=tmp_path / "m", checkpoint_seconds=wrong)
    assert not list(tmp_path.iterdir())


def test_a_clash_of_ids_comes_out_with_the_first_checkpoint(tmp_path):
    with pytest.raises(SpecialTokenError):
        RegexTokenizer().train("abc abc abc", 260, special_tokens={"<end>": 257}, checkpoint=tmp_path / "m")
    assert not list(tmp_path.iterdir())
    assert RegexTokenizer().pattern == GPT4_SPLIT_PATTERN

"""Many texts and many lists at once, against one at a time; decode_with_offsets against tiktoken."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest
import tiktoken
from budget import SANITIZED

from cbpe import (
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    DisallowedSpecialTokenError,
    GPT4Tokenizer,
    RegexTokenizer,
    UnknownIdError,
    threads,
)
from cbpe.threads import in_order

pytestmark = pytest.mark.native

TEXT = "the cat sat on the mat.\r\nThe 12345 cats' mats\n\n\nhé hé 猫 👍🏽 "
SPECIALS = {"<|end|>": 1000, "<|pad|>": 1001}
PATTERNS = [None, GPT4_SPLIT_PATTERN, r"\w+|\s"]


@lru_cache(maxsize=3)
def trained(pattern: str | None) -> BasicTokenizer | RegexTokenizer:
    tokenizer = BasicTokenizer() if pattern is None else RegexTokenizer(pattern)
    tokenizer.train(TEXT * 3, 270)
    tokenizer.register_special_tokens(SPECIALS)
    return tokenizer


@pytest.fixture(scope="module")
def peer() -> tiktoken.Encoding:
    tokens = GPT4Tokenizer()._model.tokens(with_specials=False)
    ranks = {token: number for number, token in tokens.items()}
    return tiktoken.Encoding("cl100k", pat_str=GPT4_SPLIT_PATTERN, mergeable_ranks=ranks, special_tokens={})


def texts_with_specials(seed: int, n: int = 200) -> list[str]:
    chance = random.Random(seed)
    pieces = [*TEXT.split(" "), *SPECIALS, "<|other|>", "", "\n", " ", "<|"]
    return ["".join(chance.choices(pieces, k=chance.randrange(8))) for _ in range(n)]


# -------------------------------------------------------------------------------------------------------- encoding


@pytest.mark.parametrize("num_threads", [None, 1, 3])
@pytest.mark.parametrize("pattern", PATTERNS, ids=["whole", "gpt4", "regex"])
@pytest.mark.parametrize("allowed", ["all", "none", frozenset({"<|pad|>"}), frozenset()], ids=str)
def test_a_batch_is_what_its_texts_are(pattern, allowed, num_threads):
    tokenizer = trained(pattern)
    texts = texts_with_specials(1)
    expected = [tokenizer.encode(text, allowed) for text in texts]
    assert tokenizer.encode_batch(texts, allowed, num_threads) == expected
    ids, offsets = tokenizer.encode_batch_to_numpy(texts, allowed, num_threads)
    assert (ids.dtype, offsets.dtype, offsets.shape) == (np.uint32, np.int64, (len(texts) + 1,))
    assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] == expected
    json.dumps(tokenizer.encode_batch(texts, allowed))


@pytest.mark.parametrize("texts", [[], [""], ["", ""], ["<|end|>"], ["", "<|end|>", "a<|end|>b", ""]])
def test_small_batches(texts):
    tokenizer = trained(GPT4_SPLIT_PATTERN)
    expected = [tokenizer.encode(text, "all") for text in texts]
    assert tokenizer.encode_batch(texts, "all") == expected
    assert tokenizer.encode_batch(iter(texts), "all") == expected
    ids, offsets = tokenizer.encode_batch_to_numpy(tuple(texts), "all")
    assert ids.tolist() == [number for each in expected for number in each]
    assert offsets.tolist() == [0, *np.cumsum([len(each) for each in expected]).tolist()]
    assert (ids.dtype, offsets.dtype) == (np.uint32, np.int64)


@pytest.mark.parametrize("call", ["encode_batch", "encode_batch_to_numpy"])
def test_errors_name_the_text(call):
    encode = getattr(trained(GPT4_SPLIT_PATTERN), call)
    with pytest.raises(DisallowedSpecialTokenError, match=r"text 1 .*<\|end\|>"):
        encode(["a", "b<|end|>"])
    with pytest.raises(AssertionError):
        encode(["<|end|>"], "none_raise")
    with pytest.raises(TypeError, match=r"text 2 .*bytes"):
        encode(["a", "b", b"c"])
    with pytest.raises(TypeError, match=r"text 0 .*NoneType"):
        encode([None])
    for single in ("abc", b"abc"):
        with pytest.raises(TypeError, match="single"):
            encode(single)
    with pytest.raises(TypeError):
        encode(5)
    with pytest.raises(ValueError, match="allowed_special"):
        encode([], "some")
    with pytest.raises(ValueError, match="num_threads"):
        encode(["a"], num_threads=0)
    with pytest.raises(TypeError, match="num_threads"):
        encode(["a"], num_threads=1.5)


@pytest.mark.parametrize("call", ["encode_batch", "encode_batch_to_numpy"])
def test_surrogates_in_a_batch_C26(call):
    """The same as in encode: refused by name, or repaired as tiktoken does."""
    for tokenizer in (trained(None), trained(GPT4_SPLIT_PATTERN)):
        with pytest.raises(UnicodeEncodeError, match=r"surrogates not allowed \(text 1 of the batch\)"):
            getattr(tokenizer, call)(["a", "ok\ud800ok"], "all")
    texts = ["\ud83d\udc4d", "\ud83d", "ok\ud800ok<|endoftext|>"]
    got = getattr(GPT4Tokenizer(), call)(texts, "all")
    lists = got if call == "encode_batch" else [got[0][a:b].tolist() for a, b in itertools.pairwise(got[1])]
    assert lists == [GPT4Tokenizer().encode(text, "all") for text in texts]
    assert lists[:2] == [[9468, 239, 235], [5809]]


def test_a_subclass_that_encodes_its_own_way_is_asked():
    class Reversing(RegexTokenizer):
        def _encode_chunk(self, text_bytes):
            return list(reversed(text_bytes))

    tokenizer = Reversing()
    tokenizer.register_special_tokens({"<e>": 300})
    assert tokenizer.encode_batch(["ab<e>cd", "e"], "all") == [[98, 97, 300, 100, 99], [101]]
    ids, offsets = tokenizer.encode_batch_to_numpy(["ab<e>cd", "e"], "all")
    assert (ids.tolist(), offsets.tolist()) == ([98, 97, 300, 100, 99, 101], [0, 5, 6])
    assert tokenizer.encode_batch_to_numpy([])[1].tolist() == [0]


# -------------------------------------------------------------------------------------------------------- decoding


def test_decode_batch():
    tokenizer = trained(GPT4_SPLIT_PATTERN)
    texts = texts_with_specials(2)
    lists = tokenizer.encode_batch(texts, "all")
    assert tokenizer.decode_batch(lists) == texts
    assert tokenizer.decode_batch(np.array(ids, np.uint16) for ids in lists) == texts
    assert tokenizer.decode_batch([]) == []
    assert tokenizer.decode_batch([range(97, 100), [226, 130], []]) == ["abc", "\ufffd", ""]
    with pytest.raises(UnknownIdError, match=r"list 1 .*id 99999 at index 2"):
        tokenizer.decode_batch([[97], [97, 98, 99999]])
    with pytest.raises(KeyError):
        tokenizer.decode_batch([[-1]])
    with pytest.raises(TypeError, match="list 0"):
        tokenizer.decode_batch([97, 98])


def test_offsets_are_those_of_tiktoken(peer):
    tokenizer = GPT4Tokenizer()
    chance = random.Random(3)
    alphabet = "ab 12\n'é猫👍🏽नमस्ते\u0301 안녕"
    for _ in range(300):
        ids = peer.encode_ordinary("".join(chance.choices(alphabet, k=chance.randrange(40))))
        if chance.random() < 0.5:       # ids that begin and end inside characters
            ids = [number for token in map(peer.decode_single_token_bytes, ids) for number in map(byte_id(peer), token)]
        assert tokenizer.decode_with_offsets(ids) == peer.decode_with_offsets(ids)
    n_equal = 0
    for _ in range(300):
        ids = [chance.randrange(100_000) for _ in range(chance.randrange(1, 6))]
        try:
            expected = peer.decode_with_offsets(ids)
        except UnicodeDecodeError:
            with pytest.raises(UnicodeDecodeError):
                tokenizer.decode_with_offsets(ids)
        else:
            assert tokenizer.decode_with_offsets(ids) == expected
            n_equal += 1
    assert n_equal > 100


def byte_id(peer):
    return lambda byte: peer.encode_single_token(bytes([byte]))


def test_offsets_of_whatever_holds_ids_C43():
    tokenizer = trained(GPT4_SPLIT_PATTERN)
    expected = ("h猫<|end|>a", [0, 1, 1, 1, 2, 9])
    ids = [104, *"猫".encode(), 1000, 97]
    for given in (ids, tuple(ids), iter(ids), np.array(ids, ">i4"), np.repeat(ids, 2)[::2], [np.int64(i) for i in ids]):
        assert tokenizer.decode_with_offsets(given) == expected
    offsets = tokenizer.decode_with_offsets(np.array(ids))[1]
    assert all(type(offset) is int for offset in offsets)
    assert tokenizer.decode_with_offsets([]) == ("", [])
    with pytest.raises(UnknownIdError, match="99999"):
        tokenizer.decode_with_offsets([97, 99999])
    with pytest.raises(TypeError):
        tokenizer.decode_with_offsets([97.5])


# ----------------------------------------------------------------------------------------- threads and processes


def test_in_order_yields_in_order_and_raises_the_first_fault():
    def work(item):
        if item in (7, 30):
            raise ValueError(item)
        return -item

    before = threading.active_count()
    assert list(in_order(work, range(7), 3)) == [-i for i in range(7)]
    seen = []
    with pytest.raises(ValueError, match="7"):
        seen.extend(in_order(work, iter(range(100)), 5))

    def items():
        yield from range(8)
        raise KeyError("behind the fault of 7")

    with pytest.raises(ValueError, match="7"):
        list(in_order(work, items(), 5))
    taken = iter(range(1000))
    stopped = in_order(work, taken, 2)
    assert next(stopped) == 0
    stopped.close()
    assert next(taken) < 10         # items are not taken far ahead
    assert threading.active_count() == before


@pytest.mark.parametrize("where", ["cancel", "put"])
def test_threads_end_though_an_interrupt_comes_while_they_are_told_to(monkeypatch, where):
    def interrupted(*args):
        raise KeyboardInterrupt

    class Queue(threads.SimpleQueue):
        def put(self, job):
            super().put(job) if job else interrupted()

    monkeypatch.setattr(*(threads, "SimpleQueue", Queue) if where == "put" else (threads.Future, "cancel", interrupted))
    before = threading.active_count()
    stopped = in_order(abs, range(1000), 3)     # some items wait when nobody wants more
    assert next(stopped) == 0
    with contextlib.suppress(KeyboardInterrupt):        # of what is cancelled there may be nothing left
        stopped.close()
    if where == "put":
        with pytest.raises(KeyboardInterrupt):
            list(in_order(abs, range(3), 3))
    del stopped
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


@pytest.mark.parametrize("new", [None, {"<|new|>": 2000}])
def test_of_two_changes_at_once_the_one_that_ends_last_holds(new):
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens(SPECIALS)

    def texts():
        yield TEXT
        tokenizer.register_special_tokens({"<|meanwhile|>": 3000})
        assert tokenizer.encode("<|meanwhile|>", "all") == [3000]
        yield TEXT

    tokenizer.train_from_iterator(texts(), 260, special_tokens=new)
    assert tokenizer.special_tokens == (new or SPECIALS)
    assert list(tokenizer.merges.values()) == [256, 257, 258, 259]


def test_sixteen_threads_share_a_tokenizer_while_another_changes_it_C45(tmp_path):
    shared = RegexTokenizer()
    shared.train(TEXT * 3, 270)
    shared.register_special_tokens(SPECIALS)
    shared.save(tmp_path / "a")
    other = RegexTokenizer()
    other.train("ab ab abc abc <|end|>", 260)
    other.register_special_tokens({"<|end|>": 2000})
    other.save(tmp_path / "b")
    texts = texts_with_specials(5, 60)
    right = [[each.encode_batch(texts, "all"), each.encode_batch(texts, "none")] for each in (shared, other)]
    stop = threading.Event()

    def change():
        number = 0
        while not stop.is_set():
            shared.load(tmp_path / f"{'ab'[number % 2]}.model")
            number += 1

    def check(seed):
        for i in range(60):
            mode = (seed + i) % 2
            allowed = ("all", "none")[mode]
            candidates = [each[mode] for each in right]
            assert shared.encode_batch(texts, allowed, num_threads=1 + i % 2) in candidates
            text = texts[i % len(texts)]
            assert shared.encode(text, allowed) in [each[i % len(texts)] for each in candidates]
            ids, offsets = shared.encode_batch_to_numpy(texts, allowed)
            assert [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)] in candidates
            assert shared.decode_batch([[104, 105], [97]]) == ["hi", "a"]

    writer = threading.Thread(target=change)
    writer.start()
    try:
        with ThreadPoolExecutor(16) as pool:
            for result in [pool.submit(check, seed) for seed in range(16)]:
                result.result(60)
    finally:
        stop.set()
        writer.join()


def encode_in_child(tokenizer, texts):
    return tokenizer.encode_batch(texts, "all", num_threads=2)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_after_threads_C46(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    if method == "fork" and SANITIZED:
        pytest.skip("a sanitizer's malloc may be locked by another thread at the moment of a fork")
    if method == "fork" and sys.version_info >= (3, 12) and threading.active_count() > 1:
        pytest.skip("another library's thread is alive, and Python warns of a fork")
    tokenizer = trained(GPT4_SPLIT_PATTERN)
    texts = [TEXT * 3000, "a<|end|>"] * 3
    expected = tokenizer.encode_batch(texts, "all", num_threads=2)      # threads were used in this process
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        assert pool.submit(encode_in_child, tokenizer, texts).result(60) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_no_thread_outlives_a_batch_C46():
    before = threading.active_count()
    trained(GPT4_SPLIT_PATTERN).encode_batch_to_numpy([TEXT * 3000] * 8, num_threads=4)
    assert threading.active_count() == before

"""Threads, processes, copies: what a tokenizer gives while others use it, and while one of them changes it.

A tokenizer goes through a few states, each of which is known beforehand with what every call gives in it. Whatever
threads see must be one of these, whole.
"""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from budget import SANITIZED

import cbpe
from cbpe import BasicTokenizer, ChunkStore, GPT4Tokenizer, RegexTokenizer, StreamDecoder

TEXT = "hello hello world, the world's wide <a> web <b> 123 hé 猫\n" * 4
OTHER = "wide wide world, the web's hello worldly <b> 1234 hé\n" * 4
N_THREADS = 16


def states(tokenizer: RegexTokenizer, folder: Path) -> list[Callable[[], object]]:
    """What takes a tokenizer from one state to the next, and from the last to the first."""
    if not (folder / "one.model").exists():
        for name, text, size in (("one", TEXT, 280), ("two", OTHER, 280)):
            made = RegexTokenizer()
            made.train(text, size)
            made.register_special_tokens({"<a>": 1000, "<b>": 1001} if name == "one" else {"<b>": 500})
            made.save(folder / name)
    two = RegexTokenizer()
    two.load(folder / "two.model")
    merges = two.merges
    return [
        lambda: tokenizer.load(folder / "one.model"),
        lambda: tokenizer.register_special_tokens({"<a>": 2000}),
        lambda: tokenizer.train(OTHER, 275),
        lambda: setattr(tokenizer, "merges", merges),
        lambda: tokenizer.load(folder / "two.model"),
        lambda: tokenizer.train(TEXT, 278, special_tokens={"<a>": 600, "<b>": 601}),
        lambda: setattr(tokenizer, "_model", tokenizer.truncated(270)._model),
        lambda: tokenizer.extend(folder / "one.vocab", 280),
    ]


def stream(tokenizer: RegexTokenizer) -> str:
    decoder = StreamDecoder(tokenizer)
    return "".join(decoder.feed(number) for number in (104, 105, 256, 257)) + decoder.flush()


def saved(tokenizer: RegexTokenizer, folder: Path) -> tuple[str, Any]:
    prefix = folder / f"saved{threading.get_ident()}"
    tokenizer.save(prefix)
    again = RegexTokenizer()
    again.load(f"{prefix}.model")
    return again._model.sha256, again.special_tokens


def readers(tokenizer: RegexTokenizer, folder: Path) -> dict[str, Callable[[], object]]:
    texts = [TEXT, "", "hello <a>", OTHER] * 3
    return {
        "encode": lambda: tokenizer.encode(TEXT, "all"),
        "encode_ordinary": lambda: tokenizer.encode_ordinary(TEXT),
        "encode_to_numpy": lambda: tokenizer.encode_to_numpy(TEXT, "all").tolist(),
        "encode_batch": lambda: tokenizer.encode_batch(texts, "all", num_threads=2),
        "encode_batch_to_numpy": lambda: [a.tolist() for a in tokenizer.encode_batch_to_numpy(texts, "none")],
        "count": lambda: tokenizer.count(TEXT, "all"),
        "count_ids": lambda: tokenizer.count_ids(folder / "one.vocab", num_threads=2).tolist(),
        "decode": lambda: tokenizer.decode([104, 256, 257, 258]),
        "decode_bytes": lambda: tokenizer.decode_bytes(np.arange(270)),
        "decode_batch": lambda: tokenizer.decode_batch([[256], range(265)]),
        "decode_with_offsets": lambda: tokenizer.decode_with_offsets([256, 104, 257]),
        "stream": lambda: stream(tokenizer),
        "vocab": lambda: tokenizer.vocab,
        "merges": lambda: tokenizer.merges,
        "special_tokens": lambda: tokenizer.special_tokens,
        "pattern": lambda: tokenizer.pattern,
        "save": lambda: saved(tokenizer, folder),
        "pickle": lambda: pickle.loads(pickle.dumps(tokenizer)).encode(TEXT, "all"),
        "copy": lambda: copy.copy(tokenizer)._model.sha256,
        "deepcopy": lambda: copy.deepcopy(tokenizer).vocab,
        "truncated": lambda: tokenizer.truncated(262).merges,
    }


def test_sixteen_threads_see_whole_states_in_every_call_C45(tmp_path: Path) -> None:
    shared, alone = RegexTokenizer(), RegexTokenizer()
    changes = states(shared, tmp_path)
    calls = readers(shared, tmp_path)
    right: dict[str, list[object]] = {name: [] for name in calls}
    for change in states(alone, tmp_path) * 2:
        change()
        for name, call in readers(alone, tmp_path).items():
            right[name].append(call())
    assert all(len({repr(each) for each in right[name]}) > 2 for name in ("encode", "vocab", "save", "pickle"))
    changes[0]()
    stop = threading.Event()
    counts = dict.fromkeys(calls, 0)

    def change_on() -> int:
        for n in itertools.count():
            for change in changes:
                change()
                if stop.is_set():
                    return n
        return 0

    def read(offset: int) -> None:
        order = [*calls.items()]
        for n in range(3 * len(order)):
            name, call = order[(offset + n) % len(order)]
            got = call()
            assert got in right[name], f"{name}: of no state: {got!r}"
            counts[name] += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(N_THREADS + 1) as pool:
            changing = pool.submit(change_on)
            reading = [pool.submit(read, offset) for offset in range(N_THREADS)]
            try:
                for each in reading:
                    each.result(120)
            finally:
                stop.set()
            assert changing.result(60) >= 0
    finally:
        sys.setswitchinterval(interval)
    assert min(counts.values()) > N_THREADS


# ---- processes


def work_in_threads(tokenizer: Any, texts: list[str]) -> tuple[list[list[int]], list[str]]:
    """Encodes and decodes in four threads, each call with two more."""
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda text: tokenizer.encode_batch([text] * 3, num_threads=2), texts))
        made = [ids for batch in batches for ids in batch]
        return made, list(pool.map(tokenizer.decode, made))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_threads_within_processes_after_threads_C46(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    if method == "fork" and SANITIZED:
        pytest.skip("a sanitizer's malloc may be locked by another thread at the moment of a fork")
    tokenizer = RegexTokenizer()
    tokenizer.train(TEXT, 280, num_threads=2)
    texts = [TEXT * n for n in (1, 300, 2, 500)]
    expected = work_in_threads(tokenizer, texts)        # threads were used in this process, and have ended
    with warnings.catch_warnings():
        if method == "fork" and sys.version_info >= (3, 12):
            # of threads that are alive during a fork: the pool's own
            warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            for each in [pool.submit(work_in_threads, tokenizer, texts) for _ in range(4)]:
                assert each.result(120) == expected


# ---- pickles


def used(tokenizer: Any) -> Any:
    """The tokenizer, with everything in it that is computed on first use."""
    ids = tokenizer.encode(TEXT)
    tokenizer.decode_with_offsets(ids)
    tokenizer.encode_batch([TEXT] * 3, num_threads=2)
    assert tokenizer.vocab
    assert tokenizer.merges
    assert tokenizer._model.sha256
    return tokenizer


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_class_is_pickled_by_every_protocol_used_or_not(protocol: int, tmp_path: Path) -> None:
    regex, basic = RegexTokenizer(), BasicTokenizer()
    for tokenizer in (regex, basic):
        tokenizer.train(TEXT, 270)
    small = [regex, basic, cbpe.get_encoding("gpt2")] + [GPT4Tokenizer()] * (protocol == pickle.HIGHEST_PROTOCOL)
    for tokenizer in small:
        for each in (copy.copy(tokenizer), used(tokenizer)):
            again = pickle.loads(pickle.dumps(each, protocol))
            assert type(again) is type(tokenizer)
            assert again._model.sha256 == tokenizer._model.sha256
            assert again.encode(TEXT) == tokenizer.encode(TEXT)
            assert again.decode([104, 105]) == tokenizer.decode([104, 105])
    store = ChunkStore.from_iterator([TEXT])
    store.save(tmp_path / "a.chunks")
    with ChunkStore.open(tmp_path / "a.chunks") as mapped:
        for each in (store, mapped):
            assert list(pickle.loads(pickle.dumps(each, protocol))) == list(store)
    statistics = pickle.loads(pickle.dumps(regex._model.statistics, protocol))
    assert np.array_equal(statistics.tokens, regex._model.statistics.tokens)
    curve = pickle.loads(pickle.dumps(regex.compression_curve(), protocol))
    assert np.array_equal(curve.tokens, regex.compression_curve().tokens)


def test_no_module_claims_to_run_without_the_gil() -> None:
    """Until that is tested on an interpreter that has none: there, importing cbpe turns the GIL on."""
    package = Path(cbpe.__file__).parent
    for source in package.rglob("*.pyx"):
        assert "freethreading_compatible" not in source.read_text(encoding="utf-8")
    if hasattr(sys, "_is_gil_enabled"):
        assert sys._is_gil_enabled()

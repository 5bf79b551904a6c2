"""Threads, processes, copies: what a tokenizer gives while others use it, and while one of them changes it.

A tokenizer goes through a few states, each of which is known beforehand with what every call gives in it. Whatever
threads see must be one of these, whole.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import itertools
import json
import multiprocessing
import pickle
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Set
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from budget import SANITIZED, mostly_thorough

import cbpe
from cbpe import (
    GPT2_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    GPT4Tokenizer,
    RegexTokenizer,
    StreamDecoder,
    WordTokenizer,
)
from cbpe.encoding.decoder import Decoder
from cbpe.encoding.encoder import Encoder
from cbpe.encoding.finder import SpecialFinder
from cbpe.splitting import Stages
from cbpe.splitting.split import splitter_for

TEXT = "hello hello world, the world's wide <a> web <b> 123 hé 猫\n" * 4
OTHER = "wide wide world, the web's hello worldly <b> 1234 hé\n" * 4
N_THREADS = 16


Call = Callable[[], object]

# What changes a tokenizer or makes one, of its public names; all others are asked for below.
CHANGES = {"train", "train_from_files", "train_from_iterator", "train_from_chunks", "extend", "load"}
CHANGES |= {"register_special_tokens"}
MAKES = {"from_tiktoken", "from_huggingface", "from_codes", "from_clip"}
SLOW = {"to_tiktoken", "save_tiktoken", "save_huggingface"}     # compare with other libraries


def made(kind: str, folder: Path) -> Any:
    """A tokenizer that has learned nothing, or what another library has."""
    if kind == "regex":
        return RegexTokenizer()
    if kind == "basic":
        return BasicTokenizer()
    if kind == "words":
        return WordTokenizer(unk="<unk>")
    source = RegexTokenizer()
    source.train(TEXT, 280)
    source.save_huggingface(folder / "tokenizer.json")
    content = json.loads((folder / "tokenizer.json").read_bytes())
    content["normalizer"] = {"type": "NFC"}
    content["added_tokens"].append({"id": 280, "content": "wide", "special": False, "lstrip": True, "rstrip": False,
                                    "normalized": True, "single_word": False})  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return RegexTokenizer.from_huggingface(folder / "tokenizer.json")


def states(tokenizer: Any, kind: str, folder: Path) -> list[Call]:
    """What takes a tokenizer from one state to the next, and from the last to the first."""
    if kind == "imported":
        begin = tokenizer._model
        return [
            lambda: setattr(tokenizer, "_model", begin),
            lambda: tokenizer.register_special_tokens({"<a>": 2000}),
            lambda: tokenizer.register_special_tokens({"<b>": 300, "web": 301}),
        ]
    if not (folder / "one.model").exists():
        for name, text, size in (("one", TEXT, 280), ("two", OTHER, 280)):
            other = made(kind, folder)
            other.train(text, size)
            other.register_special_tokens({"<a>": 1000, "<b>": 1001} if name == "one" else {"<b>": 500})
            other.save(folder / name)
    small = 40 if kind == "words" else 270
    two = made(kind, folder)
    two.load(folder / "two.model")
    merges = two.merges
    changes = [
        lambda: tokenizer.load(folder / "one.model"),
        lambda: tokenizer.register_special_tokens({"<a>": 2000}),
        lambda: tokenizer.train(OTHER, 275),
        lambda: tokenizer.load(folder / "two.model"),
        lambda: tokenizer.train(TEXT, 278, special_tokens={"<a>": 600, "<b>": 601}),
        lambda: setattr(tokenizer, "_model", tokenizer.truncated(small)._model),
    ]
    if kind != "words":             # whose merges are fixed, and which do not go on
        changes.insert(3, lambda: setattr(tokenizer, "merges", merges))
        changes.append(lambda: tokenizer.extend(folder / "corpus.txt", 280))
    return changes


def stream(tokenizer: Any) -> str:
    decoder = StreamDecoder(tokenizer)
    return decoder.feed([104, 105, 256, 257]) + decoder.flush()


def outcome(call: Call) -> object:
    """What a call returns, as something that can be compared; or what it raises, which is as good an answer."""
    try:
        got = call()
    except (ValueError, KeyError, AttributeError, NotImplementedError) as fault:
        return type(fault).__name__, str(fault)
    if isinstance(got, (list, tuple)):
        return [each.tolist() if isinstance(each, np.ndarray) else each for each in got]
    return got.tolist() if isinstance(got, np.ndarray) else got


def readers(tokenizer: Any, folder: Path, only: Set[str] | None = None) -> dict[str, Call]:
    """Everything that a tokenizer can be asked, by its public name, and some things more; or only some of that."""
    texts = [TEXT, "", "hello <a>", OTHER] * 3
    corpus = folder / "corpus.txt"
    if not corpus.exists():
        corpus.write_text(TEXT + OTHER, encoding="utf-8")

    def mine(name: str) -> Path:
        return folder / f"{threading.get_ident()}-{name}"

    def shards() -> list[bytes]:
        out = mine("shards")
        tokenizer.encode_shards(corpus, out, 300, num_threads=2, force=True)
        return [path.read_bytes() for path in sorted(out.glob("*.bin"))]

    def written(write: Callable[[Path], object], name: str) -> bytes:
        write(mine(name))
        return mine(name).read_bytes()

    def saved() -> object:
        tokenizer.save(mine("saved"))
        again = copy.copy(tokenizer)
        again.load(f"{mine('saved')}.model")
        return again._model.sha256, again.special_tokens

    def exported() -> object:
        encoding = tokenizer.to_tiktoken("mine")
        return encoding.encode(TEXT, allowed_special="all"), encoding.n_vocab

    def advised() -> object:
        with contextlib.redirect_stdout(io.StringIO()):
            return tokenizer.advise(hidden_size=64)

    asked: dict[str, Call] = {
        "encode": lambda: tokenizer.encode(TEXT, "all"),
        "encode_ordinary": lambda: tokenizer.encode_ordinary(TEXT),
        "encode_to_numpy": lambda: tokenizer.encode_to_numpy(TEXT, "all"),
        "encode_batch": lambda: tokenizer.encode_batch(texts, "all", num_threads=2),
        "encode_ordinary_batch": lambda: tokenizer.encode_ordinary_batch(texts, num_threads=2),
        "encode_batch_to_numpy": lambda: tokenizer.encode_batch_to_numpy(texts, "none"),
        "encode_file": lambda: written(lambda path: tokenizer.encode_file(corpus, path, num_threads=2), "ids.bin"),
        "encode_shards": shards,
        "count": lambda: tokenizer.count(TEXT, "all"),
        "count_ids": lambda: tokenizer.count_ids(corpus, num_threads=2),
        "decode": lambda: tokenizer.decode([104, 256, 257, 258]),
        "decode_bytes": lambda: tokenizer.decode_bytes(np.arange(270)),
        "decode_batch": lambda: tokenizer.decode_batch([[256], range(265)]),
        "decode_with_offsets": lambda: tokenizer.decode_with_offsets([256, 104, 257]),
        "decode_single_token_bytes": lambda: tokenizer.decode_single_token_bytes(260),
        "decode_tokens_bytes": lambda: tokenizer.decode_tokens_bytes([104, 260, 261]),
        "encode_single_token": lambda: tokenizer.encode_single_token("he"),
        "is_special_token": lambda: tokenizer.is_special_token(1000),
        "token_byte_values": lambda: tokenizer.token_byte_values(),
        "advise": advised,
        "compression_curve": lambda: tokenizer.compression_curve().tokens,
        "truncated": lambda: tokenizer.truncated(262).merges,
        "save": saved,
        "save_vocab": lambda: written(tokenizer.save_vocab, "vocab"),
        "save_codes": lambda: written(tokenizer.save_codes, "codes"),
        "save_tiktoken": lambda: written(tokenizer.save_tiktoken, "ranks"),
        "save_huggingface": lambda: written(tokenizer.save_huggingface, "tokenizer.json"),
        "to_tiktoken": exported,
        "segment": lambda: tokenizer.segment(TEXT),
        "compiled_pattern": lambda: tokenizer.compiled_pattern.pattern,
        "stream": lambda: stream(tokenizer),
        "pickle": lambda: pickle.loads(pickle.dumps(tokenizer)).encode(TEXT, "all"),
        "copy": lambda: copy.copy(tokenizer)._model.sha256,
        "deepcopy": lambda: copy.deepcopy(tokenizer).vocab,
    }
    public = {name for name in dir(tokenizer) if not name.startswith("_")} - CHANGES - MAKES
    for name in public - set(asked):        # the attributes
        asked[name] = functools.partial(getattr, tokenizer, name)
        assert not callable(getattr(type(tokenizer), name)), name
    wanted = (public | {"stream", "pickle", "copy", "deepcopy"}) - SLOW if only is None else only
    return {name: functools.partial(outcome, call) for name, call in asked.items() if name in wanted}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["regex", "basic", "words", "imported"])
def test_sixteen_threads_see_whole_states_in_every_call_C45(kind: str, tmp_path: Path) -> None:
    shared = made(kind, tmp_path)
    calls = readers(shared, tmp_path)
    changes = states(shared, kind, tmp_path)
    alone = pickle.loads(pickle.dumps(shared))
    answers = readers(alone, tmp_path)
    right: dict[str, list[object]] = {name: [] for name in calls}
    for change in states(alone, kind, tmp_path) * 2:
        change()
        for name, call in answers.items():
            right[name].append(call())
    assert all(len({repr(each) for each in right[name]}) > 1 for name in ("encode", "pickle", "special_tokens"))
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
        for n in range(2 * len(order)):
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


def test_exports_are_of_one_state(tmp_path: Path) -> None:
    """They are compared with the tokenizer before anybody gets them: with the same one."""
    shared = RegexTokenizer()
    models = []
    for specials in ({"<a>": 1000}, {"<a>": 2000, "<b>": 300}):
        shared.train(TEXT, 280, special_tokens=specials)
        models.append(shared._model)
    calls = readers(shared, tmp_path, SLOW)
    right: dict[str, list[object]] = {name: [] for name in calls}
    for shared._model in models:
        for name, call in calls.items():
            right[name].append(call())
    stop = threading.Event()

    def change_on() -> None:
        for shared._model in itertools.cycle(models):
            if stop.wait(0.005):
                break

    with ThreadPoolExecutor(4) as pool:
        changing = pool.submit(change_on)
        try:
            for name, got in [(name, pool.submit(call)) for name, call in calls.items() for _ in range(2)]:
                assert got.result(120) in right[name], name
        finally:
            stop.set()
        changing.result(60)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["gpt2", "stages", "pattern", "whole"])
def test_sixteen_threads_use_what_nobody_has_used_before(kind: str, tmp_path: Path) -> None:
    """Splitter, finder, encoder, decoder and store, shared, each made a moment ago; what is made on first use, is made
    once or is the same.
    """
    pattern: Any = {"gpt2": GPT2_SPLIT_PATTERN, "stages": Stages([(r"\d", "all"), (r"\w+|\W", "all")]),
                    "pattern": r"\w+|\s", "whole": None}[kind]  # fmt: skip
    source = BasicTokenizer() if pattern is None else RegexTokenizer(pattern)
    source.train(TEXT, 280)
    pairs = np.array(list(source.merges), np.uint32)
    ids = np.array(list(source.merges.values()), np.uint32)
    ChunkStore.from_iterator([TEXT, OTHER], pattern=pattern).save(tmp_path / "s.chunks")

    def fresh() -> list[Call]:
        splitter, encoder, decoder = splitter_for(pattern), Encoder(pairs, ids), Decoder(dict(source.vocab))
        finder = SpecialFinder({b"<a>": 1, b"<b>": 2})
        store = ChunkStore.open(tmp_path / "s.chunks")
        tokenizer = pickle.loads(pickle.dumps(source))
        encoded = source.encode_ordinary(TEXT)

        def trained() -> object:
            other = copy.copy(source)
            other.train_from_chunks(store, 270)
            return other.merges

        return [
            lambda: splitter.split(TEXT),
            lambda: encoder.encode(TEXT, splitter),
            lambda: encoder.encode_batch([TEXT, OTHER] * 4, splitter, 2),
            lambda: encoder.encode_to_numpy(OTHER, splitter),
            lambda: encoder.count(TEXT, splitter),
            lambda: decoder.decode_bytes(encoded),
            lambda: finder.cut(TEXT),
            lambda: list(store),
            lambda: list(store.pruned(2)),
            lambda: list(ChunkStore.merge([store, store])),
            trained,
            lambda: tokenizer.vocab,
            lambda: tokenizer.encode_ordinary(OTHER),
            lambda: tokenizer.decode_with_offsets(encoded),
            lambda: tokenizer._model.sha256,
            lambda: tokenizer.compression_curve().tokens,
        ]

    wanted = [outcome(call) for call in fresh()]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(N_THREADS) as pool:
            for _ in range(4):
                calls, barrier = fresh(), threading.Barrier(N_THREADS)

                def use(offset: int, calls: list[Call] = calls, barrier: threading.Barrier = barrier) -> None:
                    barrier.wait(60)
                    for n in range(len(calls)):
                        at = (offset // 2 + n) % len(calls)
                        assert outcome(calls[at]) == wanted[at], at

                list(pool.map(use, range(N_THREADS)))
    finally:
        sys.setswitchinterval(interval)


# ---- processes


def of_every_kind() -> list[Any]:
    """Small tokenizers: of each class, and of each way to split and to prepare a text."""
    kinds: list[Any] = [RegexTokenizer(), BasicTokenizer(), WordTokenizer(), RegexTokenizer(r"\w+|\s+|[^\w\s]+")]
    kinds += [RegexTokenizer(Stages([(r"\d", "all"), (r"\w+|\W", "all")]))]
    for tokenizer in kinds:
        tokenizer.train(TEXT, 60 if isinstance(tokenizer, WordTokenizer) else 270, num_threads=2)
        tokenizer.register_special_tokens({"<a>": 1000})
    with tempfile.TemporaryDirectory() as folder:
        kinds.append(made("imported", Path(folder)))
    return kinds


def work_in_threads(tokenizer: Any, texts: list[str]) -> tuple[list[list[int]], list[str]]:
    """Encodes and decodes in four threads, each call with two more."""
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda text: tokenizer.encode_batch([text] * 3, "all", num_threads=2), texts))
        made = [ids for batch in batches for ids in batch]
        return made, list(pool.map(tokenizer.decode, made))


@pytest.mark.parametrize("method", mostly_thorough(["fork", "spawn", "forkserver"], "fork", "spawn"))
def test_threads_within_processes_after_threads_C46(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    if method == "fork" and SANITIZED:
        pytest.skip("a sanitizer's malloc may be locked by another thread at the moment of a fork")
    tokenizers = of_every_kind()
    texts = [TEXT * n for n in (1, 300, 2, 500)]
    # threads were used in this process, and have ended
    expected = [work_in_threads(tokenizer, texts) for tokenizer in tokenizers]
    with warnings.catch_warnings():
        if method == "fork" and sys.version_info >= (3, 12):
            # of threads that are alive during a fork: the pool's own
            warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            for each in [pool.submit(work_in_threads, tokenizer, texts) for tokenizer in tokenizers]:
                assert each.result(120) == expected.pop(0)


# ---- pickles


def used(tokenizer: Any) -> Any:
    """The tokenizer, with everything in it that is computed on first use."""
    ids = tokenizer.encode(TEXT, "all")
    tokenizer.decode_with_offsets(ids)
    tokenizer.encode_batch([TEXT] * 3, "all", num_threads=2)
    assert tokenizer.vocab
    assert tokenizer.merges
    assert tokenizer._model.sha256
    return tokenizer


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_class_is_pickled_by_every_protocol_used_or_not(protocol: int, tmp_path: Path) -> None:
    regex, *others = of_every_kind()
    large = [cbpe.get_encoding("gpt2")] + [GPT4Tokenizer()] * (protocol == pickle.HIGHEST_PROTOCOL)
    for tokenizer in [regex, *others, *large]:
        for each in (copy.copy(tokenizer), used(tokenizer)):
            again = pickle.loads(pickle.dumps(each, protocol))
            assert type(again) is type(tokenizer)
            assert again._model.sha256 == tokenizer._model.sha256
            assert again.encode(TEXT, "all") == tokenizer.encode(TEXT, "all")
            assert again.decode([10, 11]) == tokenizer.decode([10, 11])
            assert again.special_tokens == tokenizer.special_tokens
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
    root = Path(__file__).parent.parent
    sources = [root / "setup.py", *(root / "cbpe").rglob("*.p[yx]*")]
    assert len(sources) > 50
    for source in sources:
        assert "freethreading" not in source.read_text(encoding="utf-8")
    if hasattr(sys, "_is_gil_enabled"):
        assert sys._is_gil_enabled()

"""Calls what is compiled again and again, and each time another one of Python's allocations fails (Linux, CPython).

    python scripts/starve.py                     # every allocation of every call: some minutes
    python scripts/starve.py decode learn        # of the calls whose names begin so
    python scripts/starve.py --every 7           # each seventh allocation only

The n-th allocation fails alone, and then together with those that follow, for n = 1, 2, ... up to where the call needs
no more. (Not with all that follow: without any memory CPython goes round and round at an except clause.)
The call must end in a MemoryError, or as it does with memory, if what failed was not needed; and the same call, once
there is memory again, as it always does. What is otherwise, a crash, another error, a wrong result, a call that does
not end, is told, and then the status is 1. Prints a line for each call: how often it was tried, how often it ran out.

These are the allocations for Python's objects, made to fail by CPython's own _testcapi. Those that the C code makes
are tried by tests/test_faults.py, and so is what starts threads: Thread.start waits for ever for a thread that found
no memory to say that it runs.
"""

from __future__ import annotations

import argparse
import array
import faulthandler
import gc
import itertools
import mmap
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex

from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer, StreamDecoder, memory
from cbpe.encoding.decoder import Decoder, add_merged
from cbpe.encoding.encoder import Encoder, all_encodable, encodable
from cbpe.encoding.finder import SpecialFinder
from cbpe.formats.recover import live_pairs, recover
from cbpe.inputs.lines import texts_of_lines
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.splitting.split import _masks, _replace_utf8, last_cut, next_cut, splitter_for
from cbpe.training.chunks import ChunkCounter, copy_chunks, in_order_of_places
from cbpe.training.merges import learn
from cbpe.workspace import Workspace

# What CPython and numpy themselves make of it at times: an error that names another reason, or none. (CPython 3.11 to
# 3.13 lose the exception of a Python function where there is no memory for its caller's frame. So a generator in Python
# that raises may look like one that has ended, to any program.)
THEIRS = re.compile(
    r"error return without exception set|returned NULL without setting an exception|can't allocate read lock"
    r"|expected str, bytes or os.PathLike object, not PosixPath|ufunc '\w+' not supported for the input types"
)
LIMIT = 60.0            # seconds for one call
ROW = 20                # allocations that fail one after another
MOST = 20_000           # allocations of one call
PAD = bytes(64)
TEXT = "the cat sat on the mat <e> é猫 the cats' 123 mats\n" * 4

Call = Callable[[], object]
Numbers = npt.NDArray[np.int64]


class Index:
    """An integer, but not an int."""

    def __index__(self) -> int:
        return 256


class NoIndex:
    """Neither."""

    def __index__(self) -> int:
        raise TypeError("no integer")


def plain(value: Any) -> Any:
    """What can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def calls() -> dict[str, Call]:
    """What is called, by name; the first word is the module's."""
    tokenizer, basic = RegexTokenizer(), BasicTokenizer()
    tokenizer.train(TEXT, 270)
    basic.train(TEXT, 270)
    tokenizer.register_special_tokens({"<e>": 300, "猫": 301})
    pairs = np.array(list(tokenizer.merges), np.uint32)
    made = np.array(list(tokenizer.merges.values()), np.uint32)
    ids = tokenizer.encode(TEXT, "all")
    data = TEXT.encode()
    native, whole, slow = splitter_for(GPT4_SPLIT_PATTERN), splitter_for(None), splitter_for(r"\w+|\s")
    compiled = regex.compile(r"[a-z]+|[^a-z]+")         # for regex.compile is not ours
    patient = splitter_for(r"\w+|\s", timeout=60)
    encoder, decoder = Encoder(pairs, made), Decoder(dict(tokenizer.vocab))
    finder = SpecialFinder({b"<e>": 300, "猫".encode(): 301})
    counted = ChunkStore.from_iterator([TEXT])
    columns = counted.counts, counted.offsets, counted.data
    texts = [TEXT, "", "a", "é猫 "] * 2
    wrong = "the \ud800"
    ends = np.array([3, 7, len(data)], np.uint32)
    begins = np.array([0, 8, 20], np.uint64)
    stops = np.array([8, 20, len(data)], np.uint64)
    tokens = [bytes([i]) for i in range(256)] + [b"ab", b"abc", b"cd", b"abcd"]
    jsonl = b'{"text": "a\\u00e9\\n"}\n{"text": 5}\n[1]\n{"a": {"text": ""}, "text": "b"}\n'

    def counter() -> ChunkCounter:
        held = ChunkCounter(native)
        held.count(data + PAD, len(data), len(data), True, 0, True)
        return held

    def limited() -> object:
        taken: list[object] = []
        held = ChunkCounter(native)
        held.limit_to(1, lambda full: taken.append(plain(full.part(0, 0))))
        for i in range(20):
            held.count_texts(b"one two %d" % i + PAD, begins[:1], stops[:1], begins[:1])
        return taken

    def drained() -> object:
        one, other = counter(), counter()
        one.drain(other)
        order = in_order_of_places([one], len(one), 0)
        return one.take(order, 0, len(one), one.n_chunk_bytes), one.result([other])

    def learned(**how: Any) -> object:
        return [each for each in learn(*columns, 10, **how) if len(each[0])]

    def streamed() -> str:
        stream = StreamDecoder(tokenizer)
        return "".join([*map(stream.feed, ids), stream.flush()])

    def saved() -> object:
        basic.save("m")
        again = BasicTokenizer()
        again.load("m.model")
        return again.merges

    return {
        "encoder, new": lambda: Encoder(pairs, made, bytes(reversed(range(256)))).encode(TEXT, native),
        "encoder, numbered": lambda: Encoder(
            pairs, made, numbers=np.arange(1000, dtype=np.uint32)[: int(made.max()) + 1], whole={b"cat": 900}
        ).encode(TEXT, native),
        "encoder, bad numbers": lambda: Encoder(pairs, made, numbers=made),
        "encoder, encode": lambda: encoder.encode(TEXT, native),
        "encoder, encode by regex": lambda: encoder.encode(TEXT, slow),
        "encoder, encode whole": lambda: encoder.encode(TEXT, whole),
        "encoder, encode bytes": lambda: encoder.encode(data, native),
        "encoder, not UTF-8": lambda: encoder.encode(data + b"\xff", native),
        "encoder, not UTF-8 by regex": lambda: encoder.encode(data + b"\xff", slow),
        "encoder, surrogate": lambda: encoder.encode(wrong, native),
        "encoder, no text": lambda: encoder.encode(5, native),       # type: ignore[arg-type]
        "encoder, array": lambda: encoder.encode_to_numpy(TEXT, native),
        "encoder, long array": lambda: encoder.encode_to_numpy(TEXT * 50, native),
        "encoder, count": lambda: encoder.count(TEXT, native),
        "encoder, batch": lambda: encoder.encode_batch(texts, native),
        "encoder, flat": lambda: encoder.encode_batch_to_numpy(texts, native),
        "encoder, flat, not UTF-8": lambda: encoder.encode_batch_to_numpy([data, b"\xff"], native),
        "encoder, chunk": lambda: encoder.encode_chunk(data),
        "encoder, all encodable": lambda: [all_encodable(each) for each in (texts, [wrong], [TEXT, 5])],
        "encoder, encodable": lambda: encodable(wrong),
        "decoder, new": lambda: Decoder({**tokenizer.vocab, 2**31: b"far"}).decode_bytes([97, 2**31]),
        "decoder, list": lambda: decoder.decode_bytes(ids),
        "decoder, iterator": lambda: decoder.decode_bytes(iter(ids)),
        "decoder, array": lambda: decoder.decode_bytes(np.array(ids)),
        "decoder, strided array": lambda: decoder.decode_bytes(np.array(ids, ">u2")[::2]),
        "decoder, buffer": lambda: decoder.decode_bytes(array.array("i", ids)),
        "decoder, index": lambda: decoder.decode_bytes([97, Index()]),
        "decoder, no index": lambda: decoder.decode_bytes([97, NoIndex()]),
        "decoder, float": lambda: decoder.decode_bytes([97, 97.5]),         # type: ignore[list-item]
        "decoder, no integers": lambda: decoder.decode_bytes([None]),       # type: ignore[list-item]
        "decoder, too large": lambda: decoder.decode_bytes([97, 2**70]),
        "decoder, thousands of digits": lambda: decoder.decode_bytes([97, 1 << 40_000]),
        "decoder, unknown": lambda: decoder.decode_bytes([97, 290]),
        "decoder, unknown in an array": lambda: decoder.decode_bytes(np.array([97, 290])),
        "decoder, floats": lambda: decoder.decode_bytes(np.array([0.5])),
        "decoder, nothing to go through": lambda: decoder.decode_bytes(5),  # type: ignore[arg-type]
        "decoder, add merged": lambda: add_merged({i: bytes([i]) for i in range(256)}, pairs, made),
        "decoder, add merged, no such part": lambda: add_merged({}, pairs, made),
        "finder, new": lambda: SpecialFinder({b"ab": 1, b"abc": 2, b"b": 3}).cut("aabcb"),
        "finder, empty word": lambda: SpecialFinder({b"": 1}),
        "finder, cut": lambda: finder.cut(TEXT),
        "finder, first": lambda: [finder.first(TEXT), finder.is_in_any(texts), finder.has_byte(60)],
        "finder, surrogate": lambda: finder.first(wrong),
        "finder, stretches": lambda: finder.stretches(data, begins, stops, begins),
        "split": lambda: [each.split(TEXT) for each in (native, slow, patient, whole)],
        "split, new": lambda: splitter_for(compiled, timeout=60).spans(data),
        "split, spans": lambda: [each.spans(data) for each in (native, slow, patient, whole)],
        "split, not UTF-8": lambda: native.spans(data + b"\xff"),
        "split, not UTF-8, whole": lambda: whole.spans(data + b"\xff"),
        "split, surrogate": lambda: native.split(wrong),
        "split, cuts": lambda: [next_cut(data, 3), last_cut(data), _replace_utf8(b"a\xffb"), _masks(data, "base")],
        "chunks": lambda: counter().result(),
        "chunks, added": lambda: ChunkCounter(slow).add(data + PAD, ends, 0),
        "chunks, mended": lambda: ChunkCounter(native).count(
            data + b"\xffa" + PAD, len(data) + 2, len(data) + 2, True, 0, False
        ),
        "chunks, not UTF-8": lambda: ChunkCounter(native).count_texts(
            b"ab \xff cd" * 4 + PAD, begins[:2], stops[:2], begins[:2]
        ),
        "chunks, limited": limited,
        "chunks, drained": drained,
        "chunks, copied": lambda: copy_chunks(np.array([1, 0], np.uint64), counted.offsets, counted.data),
        "merges": learned,
        "merges, known": lambda: learned(known=pairs[:4]),
        "merges, spelled": lambda: learned(spellings=[bytes([i]) for i in range(256)]),
        "merges, mapped": lambda: learned(workspace=Workspace(True, ".")),
        "merges, rare": lambda: learned(min_frequency=10**6),
        "recover": lambda: recover(tokens),
        "recover, not made": lambda: recover([*tokens, b"xyz"]),
        "recover, live": lambda: live_pairs(pairs, made, 300),
        "recover, twice": lambda: live_pairs(pairs[[0, 0]], made[:2], 300),
        "lines": lambda: texts_of_lines(jsonl, b"text"),
        "tokenizer, encode": lambda: tokenizer.encode(TEXT, "all"),
        "tokenizer, special": lambda: tokenizer.encode(TEXT),
        "tokenizer, surrogate": lambda: tokenizer.encode(wrong),
        "tokenizer, array": lambda: tokenizer.encode_to_numpy(TEXT, "all"),
        "tokenizer, batch": lambda: tokenizer.encode_batch(texts, "all", num_threads=1),
        "tokenizer, batch, surrogate": lambda: tokenizer.encode_batch([*texts, wrong], "all", num_threads=1),
        "tokenizer, decode": lambda: tokenizer.decode(ids),
        "tokenizer, offsets": lambda: tokenizer.decode_with_offsets(ids),
        "tokenizer, stream": streamed,
        "tokenizer, save": saved,
    }


# ---- the process that calls


def ending(call: Call) -> tuple[str, Any]:
    """How a call ends: ("", what it returns), or the kind and the words of what it raises."""
    try:
        return "", plain(call())
    except Exception as fault:
        return described(fault)


def described(fault: Exception) -> tuple[str, Any]:
    # names of scratch files are others each time
    return type(fault).__name__, fault.strerror if isinstance(fault, OSError) else str(fault)


def starved(call: Call, first: int, last: int) -> tuple[str, Any]:
    """As ending, but without the allocations first to last, from 1 on.

    Nothing is made of what it returns or raises before there is memory again. CPython has 16 MemoryErrors ready for
    when it can make none: nothing here may hold one in a ring.
    """
    import _testcapi  # type: ignore[import-not-found]

    _testcapi.set_nomemory(first - 1, last)
    try:
        got = call()
        _testcapi.remove_mem_hooks()
        return "", plain(got)
    except Exception as fault:
        _testcapi.remove_mem_hooks()
        if isinstance(fault, MemoryError) or THEIRS.search(str(fault)):
            return "MemoryError", None
        traceback.print_exc()
        return described(fault)


def work(call: Call, right: tuple[str, Any], every: int, turn: Numbers, counts: Numbers) -> int:
    """Goes on from the turn that stands in shared memory; returns 0 once the call needs no more allocations."""
    quiet = 0                           # how often, one after another, the call did not run out
    for number in itertools.count(int(turn[0])):
        n, alone = 1 + number // 2 * every, number % 2 == 0
        turn[0] = number
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        got = starved(call, n, n if alone else n + ROW - 1)
        faulthandler.cancel_dump_traceback_later()
        ran_out = got[0] == "MemoryError"
        counts[0] += 1
        counts[1] += ran_out
        if got != right and not ran_out:
            print(f"ended in {got!r:.300} and not in {right!r:.300}", file=sys.stderr)
            return 1
        again = ending(call)
        if again != right:
            print(f"ended, with memory again, in {again!r:.300} and not in {right!r:.300}", file=sys.stderr)
            return 1
        if not alone:
            quiet = 0 if ran_out else quiet + 1
            if quiet == 4 or n > MOST:
                return 0
    return 0


def starve(name: str, call: Call, every: int) -> int:
    """Has a call starve in one process after another; returns what was found."""
    shared = np.frombuffer(mmap.mmap(-1, 24), np.int64)
    turn, counts = shared[:1], shared[1:]
    for _ in range(3):                  # what is made on first use is there
        right = ending(call)
    n_found = 0
    while True:
        with tempfile.TemporaryFile() as told:
            pid = os.fork()
            if not pid:
                status = 1
                try:
                    os.dup2(told.fileno(), 2)
                    faulthandler.enable()
                    status = work(call, right, every, turn, counts)
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if code == 0:
                break
            told.seek(0)
            what = told.read().decode("utf-8", "replace")
        print(f"{name}: turn {turn[0]}, status {code}\n{what}", flush=True)
        turn[0] += 1
        n_found += 1
    print(f"{name:36} {counts[0]:6,} times, {counts[1]:6,} MemoryErrors, {n_found} finds", flush=True)
    return n_found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="how a call's name begins; none: all")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try one allocation of N (default: 1)")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    memory.available = lambda: 1 << 40  # for it reads files, by thousands of allocations
    gc.disable()                        # it would call what other objects have, at its own time
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = [
            starve(name, call, arguments.every)
            for name, call in calls().items()
            if not arguments.names or name.startswith(tuple(arguments.names))
        ]
        os.chdir(Path(folder).parent)
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())

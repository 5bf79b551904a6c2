"""Encodes the same texts into cl100k_base with cbpe and with the encoders installed beside it, and prints tables.

    pip install ".[bench]"
    python scripts/bench_encode.py english.txt code.txt multilingual.txt       # the first 20 MB of each
    python scripts/bench_encode.py english.txt --files big.txt --threads 2     # whole files too, beside gigatoken
    python scripts/bench_encode.py english.txt --own                           # cbpe alone: threads, splitting

Every run is a process of its own that makes an encoder, has it encode one word, and then times it: the first pass over
the text, when no cache holds anything of it, and later passes over the same text. Runs go in turn (A B C A B C), so
that a machine that slows down slows all; medians are quoted, in MB of UTF-8 a second. One thread encodes. Ids as an
array stand beside ids as an array, lists beside lists. Before anything is timed, a run of its own compares the whole
output with tiktoken's.

Nothing is fetched: encoders that do not bring cl100k_base along get a file written from the tables that cbpe ships.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

# ---------------------------------------------------------------------------------------------------- the encoders

Call = Callable[[Any], Any]

# Each of these imports its encoder and returns what it can do, by kind: "array" and "list" take a str and return ids;
# "decode array" and "decode list" take ids and return bytes or a str. ranks is the path of a .tiktoken file.


def cbpe(ranks: str) -> dict[str, Call]:
    from cbpe import GPT4Tokenizer

    encoder = GPT4Tokenizer()
    return {
        "array": lambda text: encoder.encode_to_numpy(text, "none"),
        "list": encoder.encode_ordinary,
        "decode array": encoder.decode_bytes,
        "decode list": encoder.decode_bytes,
    }


def tiktoken(ranks: str) -> dict[str, Call]:
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    encoder = tiktoken.Encoding(
        "cl100k", pat_str=pattern(), mergeable_ranks=load_tiktoken_bpe(ranks), special_tokens={"<|endoftext|>": 100257}
    )
    return {
        "array": lambda text: encoder.encode_to_numpy(text, disallowed_special=()),
        "list": encoder.encode_ordinary,
        "decode array": encoder.decode_bytes,
        "decode list": encoder.decode_bytes,
    }


def gigatoken(ranks: str) -> dict[str, Call]:
    import gigatoken

    encoder = gigatoken.Tokenizer.from_tiktoken(ranks, pretokenizer="gpt4")
    return {
        "array": encoder.encode,
        "list": lambda text: encoder.encode_batch_list([text], parallel=False)[0],
        "decode array": encoder.decode,
        "decode list": encoder.decode,
    }


def toktok(ranks: str) -> dict[str, Call]:
    import toktok

    encoder = toktok._encoding("cl100k_base")      # its public functions only count
    return {
        "array": lambda text: encoder.encode_to_numpy(text, disallowed_special=()),
        "list": encoder.encode_ordinary,
        "decode list": encoder.decode_bytes,
    }


def quicktok(ranks: str) -> dict[str, Call]:
    import quicktok

    encoder = quicktok.get_encoding("cl100k_base")
    return {
        "array": lambda text: encoder.encode_batch([text], 1)[0],
        "list": encoder.encode_ordinary,
        "decode list": encoder.decode_bytes,
    }


def splintr(ranks: str) -> dict[str, Call]:
    import numpy as np
    import splintr

    encoder = splintr.Tokenizer.from_bytes(Path(ranks).read_bytes(), splintr.CL100K_BASE_PATTERN)
    return {
        "array": lambda text: np.frombuffer(encoder.encode_flat(text), np.uint32),
        "list": encoder.encode_ordinary,
        "decode list": encoder.decode_bytes,
    }


def bpe_openai(ranks: str) -> dict[str, Call]:
    import bpe_openai

    from cbpe.splitting.split import next_cut

    encoder = bpe_openai.get_encoding("cl100k_base")

    def encode(text: str) -> list[int]:
        """It refuses texts of more than 200,000 ids, so it gets them in pieces, cut where that changes nothing."""
        data = text.encode()
        ids: list[int] = []
        start = 0
        while start < len(data):
            cut = next_cut(data, start + 100_000)
            stop = cut if cut > 0 else len(data)
            ids += encoder.encode_ordinary(data[start:stop].decode())
            start = stop
        return ids

    return {"list": encode, "decode list": encoder.decode_bytes}


def tokenizers(ranks: str) -> dict[str, Call]:
    from tokenizers import Regex, Tokenizer, decoders
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    from cbpe import GPT4Tokenizer

    # its letter for each byte: that character if it can be seen, otherwise the next of those from U+0100 on
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in seen}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(sorted(set(range(256)) - set(seen)))}
    ours = GPT4Tokenizer()
    names = {
        number: "".join(letters[ours.inverse_byte_shuffle[byte]] for byte in token)
        for number, token in ours.vocab.items()
    }
    merges = [(names[left], names[right]) for left, right in ours.merges]
    encoder = Tokenizer(BPE({name: number for number, name in names.items()}, merges))
    split = Split(Regex(pattern()), "isolated")
    encoder.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    encoder.decoder = decoders.ByteLevel()
    return {
        "list": lambda text: encoder.encode(text, add_special_tokens=False).ids,
        "decode list": lambda ids: encoder.decode(ids, skip_special_tokens=False),
    }


def pattern() -> str:
    from cbpe import GPT4_SPLIT_PATTERN

    return GPT4_SPLIT_PATTERN


ENCODERS: dict[str, Callable[[str], dict[str, Call]]] = {      # by the name of the distribution
    "cbpe": cbpe,
    "tiktoken": tiktoken,
    "gigatoken": gigatoken,
    "toktok-rs": toktok,
    "quicktok-v1": quicktok,
    "splintr-rs": splintr,
    "bpe-openai": bpe_openai,
    "tokenizers": tokenizers,
}
PEERS = [name for name in ENCODERS if name != "cbpe"]
KINDS = ("array", "list", "decode array", "decode list")

# ------------------------------------------------------------------------------------- one run, in a child process


@dataclass(frozen=True)
class Job:
    """What a child does: an action, with an encoder, in one of the kinds, on the first size bytes of a file."""

    action: str             # "kinds", "check", "time", "file", "batch", "split"; "ranks" writes the .tiktoken file
    ranks: str
    name: str = ""
    kind: str = ""
    corpus: str = ""
    size: int = 0
    passes: int = 0
    threads: int = 1


def write_ranks(job: Job) -> None:
    import base64

    from cbpe import GPT4Tokenizer

    encoder = GPT4Tokenizer()
    lines = (b"%s %d\n" % (base64.b64encode(encoder.decode_bytes([i])), i) for i in range(len(encoder.vocab)))
    Path(job.ranks).write_bytes(b"".join(lines))


def read_text(job: Job) -> str:
    with open(job.corpus, "rb") as file:
        return file.read(job.size).decode("utf-8", "ignore")       # the last character may be cut


def prepared(job: Job) -> tuple[Call, Any]:
    """The call to be timed, warmed up with one word, and what it is given."""
    calls = ENCODERS[job.name](job.ranks)
    text = read_text(job)
    if not job.kind.startswith("decode"):
        calls[job.kind]("hello")
        return calls[job.kind], text
    form = job.kind.split()[1]
    ids = ENCODERS["cbpe"](job.ranks)[form](text)
    calls[job.kind](ids[:1])
    return calls[job.kind], ids


def digest(result: Any) -> str:
    """sha256 of ids as 32-bit numbers, or of a text's bytes."""
    import numpy as np

    if isinstance(result, str):
        result = result.encode()
    if not isinstance(result, bytes):
        result = np.asarray(result, "<u4").tobytes()
    return hashlib.sha256(result).hexdigest()


def time_passes(job: Job) -> list[float]:
    call, given = prepared(job)
    seconds = []
    for _ in range(1 + job.passes):
        start = time.perf_counter()
        result = call(given)
        seconds.append(time.perf_counter() - start)
        del result          # outside the time: freeing a list of ints is not encoding
    return seconds


def encode_whole_file(job: Job) -> dict[str, Any]:
    """cbpe's encode_file, which writes a file, beside gigatoken's encode_files, which returns an array."""
    import numpy as np

    if job.name == "cbpe":
        from cbpe import GPT4Tokenizer

        tokenizer = GPT4Tokenizer()
        tokenizer.encode_ordinary("hello")
        out = os.path.join(os.path.dirname(job.ranks), "ids.bin")
        start = time.perf_counter()
        tokenizer.encode_file(job.corpus, out, num_threads=job.threads, progress=False)
        seconds = time.perf_counter() - start
        memory = peak_memory()
        ids = np.fromfile(out, "<u4")
        os.unlink(out)
        os.unlink(out + ".idx.json")
    else:
        import awkward
        import gigatoken

        encoder = gigatoken.Tokenizer.from_tiktoken(job.ranks, pretokenizer="gpt4")
        encoder.encode("hello")
        start = time.perf_counter()
        ids = encoder.encode_files(job.corpus, parallel=True)
        seconds = time.perf_counter() - start
        memory = peak_memory()
        ids = awkward.to_numpy(awkward.flatten(ids, axis=None))
    return {"seconds": seconds, "memory": memory, "count": len(ids), "digest": digest(ids)}


def time_batches(job: Job) -> dict[str, list[float]]:
    """Later passes of encode_batch_to_numpy over documents of some 4,000 characters, with one thread and with more."""
    from cbpe import GPT4Tokenizer

    tokenizer = GPT4Tokenizer()
    text = read_text(job)
    documents = [""]
    for line in text.splitlines(keepends=True):
        documents[-1] += line
        if len(documents[-1]) > 4000:
            documents.append("")
    calls: dict[str, Call] = {
        "documents": lambda threads: tokenizer.encode_batch_to_numpy(documents, "none", threads),
        "one text": lambda threads: tokenizer.encode_batch_to_numpy([text], "none", threads),
    }
    seconds: dict[str, list[float]] = {}
    for number in range(2 + job.passes):
        for name, call in calls.items():
            for threads in (1, job.threads):
                start = time.perf_counter()
                call(threads)
                if number > 1:          # both have filled their caches
                    seconds.setdefault(f"{name}, {threads}", []).append(time.perf_counter() - start)
    return seconds


def time_splitting(job: Job) -> list[float]:
    """Seconds for a text's chunk ends as an array; of "regex", for a list of the chunks by its findall."""
    import regex

    from cbpe.splitting.split import splitter_for

    text = read_text(job)
    seconds = []
    if job.name == "regex":
        split: Call = regex.compile(pattern()).findall
        given: Any = text
    else:
        split = splitter_for(pattern()).spans
        given = text.encode()
    for _ in range(1 + job.passes):
        start = time.perf_counter()
        split(given)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def peak_memory() -> int | None:
    """Bytes that this process had in memory at its most, mapped pages included; None where the system does not tell.

    (Of getrusage's figure a child inherits its parent's part, across exec.)
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def run_here(job: Job) -> None:
    """Does the job, and prints its result as one line of JSON; an encoder may print lines of its own before it."""
    result: Any = None
    if job.action == "ranks":
        write_ranks(job)
    elif job.action == "kinds":
        result = list(ENCODERS[job.name](job.ranks))
    elif job.action == "check":
        call, given = prepared(job)
        result = digest(call(given))
    elif job.action == "time":
        result = time_passes(job)
    elif job.action == "batch":
        result = time_batches(job)
    elif job.action == "split":
        result = time_splitting(job)
    else:
        result = encode_whole_file(job)
    print(flush=True)
    print(json.dumps(result), flush=True)


class ChildError(Exception):
    """A child that failed or took too long; the message says why, in one line."""


def run_in_child(job: Job, limit: float, **variables: str) -> Any:
    environment = dict(os.environ, **variables, RAYON_NUM_THREADS=str(job.threads), TOKENIZERS_PARALLELISM="false")
    command = [sys.executable, __file__, "--child", json.dumps(asdict(job))]
    try:
        child = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"stopped: more than {limit:.0f} s") from None
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        raise ChildError(f"failed ({child.returncode}): {last[:200]}")
    return json.loads(child.stdout.strip().splitlines()[-1])


# ------------------------------------------------------------------------------------------------------ the report


@dataclass
class Row:
    """What became of one encoder on one text: seconds by kind, of first passes and of later ones."""

    first: dict[str, list[float]] = field(default_factory=dict)
    later: dict[str, list[float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure(
    corpus: str, names: list[str], abilities: dict[str, list[str]], args: argparse.Namespace, ranks: str
) -> None:
    """Checks and times all encoders on one text, and prints its tables."""
    size = args.size * 1_000_000
    job = Job("check", ranks, corpus=corpus, size=size, passes=args.passes)
    n_bytes = min(size, os.path.getsize(corpus))
    rows = {name: Row() for name in names}
    wanted = {"array": "", "list": ""}
    for kind in ("array", "list"):
        wanted[kind] = run_in_child(replace(job, name="tiktoken", kind=kind), args.limit)
    with open(corpus, "rb") as file:
        text = file.read(size).decode("utf-8", "ignore").encode()
    wanted["decode array"] = wanted["decode list"] = hashlib.sha256(text).hexdigest()
    tasks = []
    for name in names:
        for kind in abilities[name]:
            try:
                if run_in_child(replace(job, name=name, kind=kind), args.limit) == wanted[kind]:
                    tasks.append((name, kind))
                else:
                    rows[name].notes.append(f"{kind}: NOT tiktoken's output, so not timed")
            except ChildError as failure:
                rows[name].notes.append(f"{kind}: {failure}")
    for number in range(1, args.runs + 1):
        for kind in KINDS:
            for name in names:
                if (name, kind) not in tasks:
                    continue
                print(f"{Path(corpus).name}, run {number} of {args.runs}, {kind}: {name}", file=sys.stderr, flush=True)
                try:
                    seconds = run_in_child(replace(job, action="time", name=name, kind=kind), args.limit)
                except ChildError as failure:
                    rows[name].notes.append(f"{kind}: {failure}")
                    tasks.remove((name, kind))
                    continue
                rows[name].first.setdefault(kind, []).append(seconds[0])
                rows[name].later.setdefault(kind, []).extend(seconds[1:])

    text_hash = wanted["decode list"]
    print(f"\n{Path(corpus).name}, the first {n_bytes / 1e6:,.1f} MB, sha256 {text_hash}; MB/s\n")
    columns = [(kind, which) for kind in ("array", "list") for which in ("first", "later")]
    columns += [("decode array", "later"), ("decode list", "later")]
    print("| encoder | " + " | ".join(f"{kind}, {which} pass" for kind, which in columns) + " | |")
    print("|---|" + "---:|" * len(columns) + "---|")
    speeds = {
        name: {
            column: n_bytes / 1e6 / statistics.median(getattr(row, column[1])[column[0]])
            for column in columns
            if getattr(row, column[1]).get(column[0])
        }
        for name, row in rows.items()
    }
    for name in names:
        cells = [f"{speeds[name][column]:,.0f}" if column in speeds[name] else "-" for column in columns]
        print(f"| {name} {version_of(name)} | " + " | ".join(cells) + f" | {'; '.join(rows[name].notes)} |")
    # cbpe beside the best of the others in each column
    for label, against in (("the fastest peer", set(PEERS)), ("tiktoken", {"tiktoken"})):
        ratios = []
        for column in columns:
            others = [speeds[name][column] for name in names if name in against and column in speeds[name]]
            ours = speeds["cbpe"].get(column)
            ratios.append(f"{ours / max(others):.2f}" if others and ours else "-")
        print(f"| cbpe / {label} | " + " | ".join(ratios) + " | |")


def measure_files(paths: Iterable[str], names: list[str], args: argparse.Namespace, ranks: str) -> None:
    """Times whole files, and prints their table."""
    print(f"\nWhole files, {args.threads} threads; cbpe writes the ids to a file, gigatoken returns them in memory\n")
    print("| file | encoder | seconds | MB/s | ids | peak MB | |")
    print("|---|---|---:|---:|---:|---:|---|")
    for path in paths:
        ours = ""
        for name in (name for name in names if name in ("cbpe", "gigatoken")):
            job = Job("file", ranks, name=name, corpus=path, threads=args.threads)
            try:
                results = [run_in_child(job, args.limit) for _ in range(args.runs)]
            except ChildError as failure:
                print(f"| {Path(path).name} | {name} | - | - | - | - | {failure} |")
                continue
            seconds = statistics.median(result["seconds"] for result in results)
            memory = max((result["memory"] or 0) / 1e6 for result in results)
            ours = ours or results[0]["digest"]
            note = "" if results[0]["digest"] == ours else "NOT the same ids"
            print(
                f"| {Path(path).name} | {name} | {seconds:.2f} | {os.path.getsize(path) / 1e6 / seconds:,.0f} "
                f"| {results[0]['count']:,} | {memory:,.0f} | {note} |"
            )


def measure_own(paths: Iterable[str], args: argparse.Namespace, ranks: str) -> None:
    """What more threads bring, and how fast texts are split, beside the regex package."""
    job = Job("batch", ranks, size=args.size * 1_000_000, passes=args.passes, threads=args.threads)
    print(f"\nencode_batch_to_numpy, later passes, MB/s with 1 thread and with {args.threads}\n")
    print("| text | given as | 1 | more | ratio |")
    print("|---|---|---:|---:|---:|")
    for path in paths:
        runs = [run_in_child(replace(job, corpus=path), args.limit) for _ in range(args.runs)]
        for name in ("documents", "one text"):
            one, more = (
                statistics.median(second for run in runs for second in run[f"{name}, {threads}"])
                for threads in (1, args.threads)
            )
            size = job.size / 1e6
            print(f"| {Path(path).name} | {name} | {size / one:,.0f} | {size / more:,.0f} | {one / more:.2f} |")
    print("\nSplitting by GPT-4's pattern, one thread, MB/s: chunk ends as an array beside regex.findall\n")
    print("| text | regex | simple | portable | sse2 | best | sse2 / regex | best / regex |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for path in paths:
        speeds = []
        for name in ("regex", "simple", "portable", "sse2", ""):
            size = 2_000_000 if name == "regex" else job.size       # it would take minutes
            task = replace(job, action="split", name=name, corpus=path, size=size)
            isa = {"CBPE_ISA": name} if name not in ("regex", "") else {}
            runs = [run_in_child(task, args.limit, **isa) for _ in range(args.runs)]
            speeds.append(size / 1e6 / statistics.median(second for run in runs for second in run))
        cells = " | ".join(f"{speed:,.0f}" for speed in speeds)
        print(f"| {Path(path).name} | {cells} | {speeds[3] / speeds[0]:.0f} | {speeds[4] / speeds[0]:.0f} |")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def version_of(name: str) -> str:
    """The version that is installed, or nothing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench_encode.py", description="cbpe beside other encoders of cl100k_base.")
    parser.add_argument("corpus", nargs="*", help="UTF-8 text files")
    parser.add_argument("--size", type=int, default=20, metavar="MB", help="of each file, from its beginning (20)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="processes for each figure (3)")
    parser.add_argument("--passes", type=int, default=3, metavar="N", help="later passes in each process (3)")
    parser.add_argument("--files", nargs="+", default=[], metavar="FILE", help="files to encode as a whole too")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="for --files and --own (2)")
    parser.add_argument("--own", action="store_true", help="no peers: what threads bring, and splitting beside regex")
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)} (default: all installed)"
    )
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="a longer run is stopped")
    parser.add_argument("--child", metavar="JOB", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_here(Job(**json.loads(args.child)))
        return 0
    if not args.corpus and not args.files:
        parser.error("name a text file")
    if min(args.size, args.runs, args.passes, args.threads) < 1:
        parser.error("--size, --runs, --passes and --threads start at 1")
    for path in (*args.corpus, *args.files):
        if not os.path.isfile(path):
            parser.exit(1, f"bench_encode.py: error: {path}: there is no such file\n")

    names = ["cbpe", *(PEERS if args.peers is None else dict.fromkeys(args.peers))]
    missing = [name for name in names[1:] if not version_of(name)]
    names = [name for name in names if name not in missing]
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        ranks = os.path.join(folder, "cl100k_base.tiktoken")
        abilities = {}
        try:
            run_in_child(Job("ranks", ranks), args.limit)
        except ChildError as failure:
            parser.exit(1, f"bench_encode.py: error: {failure}\n")
        print(
            f"cl100k_base, one thread, median of {args.runs} processes with {args.passes} later passes each; "
            f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
            f"Python {platform.python_version()}"
        )
        if args.own:
            measure_own(args.corpus, args, ranks)
            return 0
        for name in list(names):
            try:
                abilities[name] = run_in_child(Job("kinds", ranks, name=name), args.limit)
            except ChildError as failure:
                failed = True
                names.remove(name)
                print(f"\nLeft out: {name}: {failure}")
        for corpus in args.corpus:
            measure(corpus, names, abilities, args, ranks)
        if args.files:
            measure_files(args.files, names, args, ranks)
    if missing:
        print(f"\nNot installed: {', '.join(missing)}.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

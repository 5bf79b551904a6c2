"""Trains the same vocabulary on the same file with cbpe and with the trainers installed beside it, and prints a table.

    pip install ".[bench]"
    python scripts/bench_train.py corpus.txt                                  # 32768 tokens, 2 threads, GPT-4's pattern
    python scripts/bench_train.py corpus.txt --pattern gpt2 --peers gigabpe   # where gigabpe splits as cbpe does

Every run is a process of its own, so that peak memory is that run's and no cache is warm but the operating system's;
runs go in turn (A B C A B C), so that a machine that slows down slows all. Seconds are wall time of the training call
alone, reading the file included, imports not; the median is quoted. Every trainer is called as its own documentation
shows and learns the same number of merges, vocab size - 256. The column `merges` compares with cbpe's the merges of
those trainers that promise minbpe's. A trainer without a note splits by the pattern named and takes the file as one
text, as cbpe does.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# ---------------------------------------------------------------------------------------------------- the trainers


@dataclass(frozen=True)
class Job:
    """What every trainer is given: the same file, the same number of merges."""

    corpus: str
    vocab_size: int
    pattern_name: str
    pattern: str
    byte_values: int      # how many different bytes the corpus has
    threads: int


Pairs = list[tuple[int, int]]

# Each of these imports its trainer and returns the call to be timed.


def cbpe(job: Job) -> Callable[[], Pairs]:
    from cbpe import RegexTokenizer

    tokenizer = RegexTokenizer(job.pattern)

    def train() -> Pairs:
        tokenizer.train_from_files([job.corpus], job.vocab_size, num_threads=job.threads, progress=False)
        return list(tokenizer.merges)

    return train


def minibperust(job: Job) -> Callable[[], Pairs]:
    from MiniBpeRust import rustminibpe

    return lambda: [pair for pair, _ in rustminibpe.train_on_files([job.corpus], job.pattern, job.vocab_size)]


def gigabpe(job: Job) -> Callable[[], object]:
    import gigabpe

    vocab_size = job.vocab_size - 256 + job.byte_values      # its alphabet is the bytes that occur, not all 256
    return lambda: gigabpe.train_bpe([job.corpus], vocab_size, pretokenizer="bytelevel", threads=job.threads)


def gigatoken(job: Job) -> Callable[[], object]:
    import gigatoken

    return lambda: gigatoken.train_bpe(gigatoken.TextFileSource([job.corpus]), job.vocab_size, [])


def rustbpe(job: Job) -> Callable[[], object]:
    import rustbpe

    def train() -> None:
        with open(job.corpus, encoding="utf-8", newline="") as lines:
            rustbpe.Tokenizer().train_from_iterator(lines, job.vocab_size, pattern=job.pattern)

    return train


def tokenizers(job: Job) -> Callable[[], object]:
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
    from tokenizers.trainers import BpeTrainer

    tokenizer = Tokenizer(BPE())
    split = Split(Regex(job.pattern), "isolated")
    tokenizer.pre_tokenizer = Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = BpeTrainer(vocab_size=job.vocab_size, show_progress=False, initial_alphabet=ByteLevel.alphabet())
    return lambda: tokenizer.train([job.corpus], trainer)


@dataclass(frozen=True)
class Trainer:
    prepare: Callable[[Job], Callable[[], object]]
    exact: bool = False                 # it promises minbpe's merges, and its call returns them
    only_pattern: str | None = None     # the one pattern it has
    note: str = ""                      # how its work differs from cbpe's


TRAINERS = {      # by the name of the distribution
    "cbpe": Trainer(cbpe, exact=True),
    "gigabpe": Trainer(gigabpe, only_pattern="gpt2", note="each line is a text; ties by id"),
    "gigatoken": Trainer(gigatoken, only_pattern="gpt2", note="ties by id"),
    "minibperust": Trainer(minibperust, exact=True),
    "rustbpe": Trainer(rustbpe, note="each line is a text; ties by id"),
    "tokenizers": Trainer(tokenizers, note="each line is a text; ties by id"),
}
PEERS = [name for name in TRAINERS if name != "cbpe"]

# ------------------------------------------------------------------------------------- one run, in a child process


def peak_memory() -> int | None:
    """Bytes that this process had in memory at its most, mapped pages included; None where the system does not tell.

    (Of getrusage's figure a child inherits its parent's part, across exec.)
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def run_here(name: str, job: Job) -> None:
    """Trains, and prints one line of JSON; a trainer may print lines of its own before it."""
    train = TRAINERS[name].prepare(job)
    start = time.perf_counter()
    pairs = train()
    seconds = time.perf_counter() - start
    memory = peak_memory()
    digest = None
    if TRAINERS[name].exact:
        digest = hashlib.sha256(json.dumps(pairs).encode()).hexdigest()
    print(flush=True)
    print(json.dumps({"seconds": seconds, "memory": memory, "digest": digest}), flush=True)


@dataclass
class Result:
    seconds: list[float]
    memory: list[int]
    digests: set[str]
    failure: str = ""      # why there are no (more) runs


def run_in_child(name: str, job: Job, limit: float, result: Result) -> None:
    environment = dict(os.environ, RAYON_NUM_THREADS=str(job.threads), TOKENIZERS_PARALLELISM="true")
    command = [sys.executable, __file__, job.corpus, "--child", name, json.dumps(vars(job))]
    try:
        child = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        result.failure = f"stopped: more than {limit:.0f} s"
        return
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        result.failure = f"failed ({child.returncode}): {last[:200]}"
        return
    report = json.loads(child.stdout.strip().splitlines()[-1])
    result.seconds.append(report["seconds"])
    if report["memory"] is not None:
        result.memory.append(report["memory"])
    if report["digest"] is not None:
        result.digests.add(report["digest"])


# ------------------------------------------------------------------------------------------------------ the report


def read_facts(corpus: str) -> tuple[int, str, int]:
    """Size, sha256 and number of different bytes of a file.

    Read in blocks, for this process must stay small: on Linux a child's peak memory starts from its parent's.
    """
    size, digest, missing = 0, hashlib.sha256(), bytes(range(256))
    with open(corpus, "rb") as file:
        while block := file.read(1 << 20):
            size += len(block)
            digest.update(block)
            if missing:
                missing = bytes(byte for byte in missing if byte not in block)
    return size, digest.hexdigest(), 256 - len(missing)


def pattern_text(name: str) -> str:
    """A split pattern by name, from cbpe/patterns.py alone: importing all of cbpe would make this process larger."""
    package = importlib.util.find_spec("cbpe")
    if package is None or package.origin is None:
        raise SystemExit("bench_train.py: error: cbpe is not installed")
    pattern: str = runpy.run_path(str(Path(package.origin).with_name("patterns.py")))["NAMED_PATTERNS"][name]
    return pattern


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def table_row(name: str, job: Job, result: Result, ours: Result) -> str:
    trainer = TRAINERS[name]
    notes = [trainer.note] if trainer.note else []
    if trainer.only_pattern not in (None, job.pattern_name):
        notes.append(f"splits by {trainer.only_pattern}'s pattern only")
    if result.failure:
        notes.append(result.failure)
    cells = [f"{name} {version_of(name) or ''}".strip(), "-", "-", "-", "-", "-", "; ".join(notes)]
    if result.seconds:
        median = statistics.median(result.seconds)
        cells[1] = f"{median:.2f}"
        cells[2] = f"{min(result.seconds):.2f}-{max(result.seconds):.2f}"
        if ours.seconds:
            cells[3] = f"{median / statistics.median(ours.seconds):.2f}"
        if result.memory:
            cells[4] = f"{max(result.memory) / 1e6:,.0f}"
    if result.digests and ours.digests:
        cells[5] = "equal" if len(result.digests | ours.digests) == 1 else "DIFFERENT"
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench_train.py", description="cbpe beside the other trainers, on one file.")
    parser.add_argument("corpus", help="a UTF-8 text file")
    parser.add_argument("--vocab-size", type=int, default=32768, metavar="N")
    parser.add_argument("--pattern", choices=("gpt2", "gpt4"), default="gpt4")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, metavar="PEER", help=f"of {', '.join(PEERS)} (default: all installed)"
    )
    parser.add_argument(
        "--limit", type=float, default=600, metavar="SECONDS", help="a longer run is stopped, its trainer left out"
    )
    parser.add_argument("--child", nargs=2, metavar=("NAME", "JOB"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_here(args.child[0], Job(**json.loads(args.child[1])))
        return 0
    if args.vocab_size < 256 or args.threads < 1 or args.runs < 1:
        parser.error("--vocab-size starts at 256, --threads and --runs at 1")

    peers = PEERS if args.peers is None else list(dict.fromkeys(args.peers))
    missing = [name for name in peers if version_of(name) is None]
    names = ["cbpe", *(name for name in peers if name not in missing)]
    try:
        size, digest, byte_values = read_facts(args.corpus)
    except OSError as error:
        parser.exit(1, f"bench_train.py: error: {args.corpus}: {error.strerror}\n")
    job = Job(args.corpus, args.vocab_size, args.pattern, pattern_text(args.pattern), byte_values, args.threads)

    results = {name: Result([], [], set()) for name in names}
    for number in range(1, args.runs + 1):
        for name in names:
            if not results[name].failure:
                print(f"run {number} of {args.runs}: {name} ...", end="", file=sys.stderr, flush=True)
                run_in_child(name, job, args.limit, results[name])
                print("", results[name].failure or f"{results[name].seconds[-1]:.2f} s", file=sys.stderr)

    print(
        f"{Path(args.corpus).name}, {size / 1e6:,.1f} MB, sha256 {digest}; {args.vocab_size - 256:,} merges, "
        f"{args.pattern}'s pattern, {args.threads} threads, median of {args.runs} runs; {processor()}, "
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}\n"
    )
    print("| trainer | seconds | range | times cbpe | peak MB | merges | |")
    print("|---|---:|---:|---:|---:|---|---|")
    for name in names:
        print(table_row(name, job, results[name], results["cbpe"]))
    if missing:
        print(f"\nNot installed: {', '.join(missing)}.")
    return 1 if any(result.failure.startswith("failed") for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

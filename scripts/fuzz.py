"""Tries broken files, odd texts and random models on cbpe for so many seconds, and keeps what should not happen.

    python scripts/fuzz.py --seconds 60                       # every target, a minute each
    python scripts/fuzz.py model store --seconds 600 --seed 7
    python scripts/fuzz.py model --replay finds/model-1f3a    # an input again

The targets are in tests/fuzz_targets.py, each with files to begin with. An input is one of those, or one that was taken
before, with a few things changed: bits, numbers, stretches left out, doubled or taken from another, words of the
format put in, and checksums made right again. Chance decides by --seed alone.

A target runs in a process of its own, which writes each input to a file before it tries it; so an input that crashes
the process, or that takes longer than --limit seconds, is known, and the next process goes on. The process has 4 GB of
address space. A find is written to --finds as TARGET-HASH, shortened as far as it stays the same find, and beside it
TARGET-HASH.txt says what happened. When it is mended, it belongs into tests/fuzz_corpus/TARGET/, from where
tests/test_fuzz_corpus.py replays it. The status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import fuzz_targets  # noqa: E402
from fuzz_targets import TARGETS, Target  # noqa: E402

MOST_INPUTS = 500           # that a target goes on from
LONGEST = 1 << 16           # bytes of an input
SLOW = 10.0                 # seconds of the processor for one input
ADDRESS_SPACE = 4 << 30


# ---- inputs


def changed(data: bytes, others: list[bytes], target: Target, rng: random.Random) -> bytes:
    """An input with one to eight changes."""
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 5, 8])):
        data = changed_once(data, others, target, rng)[:LONGEST]
    if target.seal and rng.random() < 0.9:
        data = target.seal(data)
    return data


def changed_once(data: bytes, others: list[bytes], target: Target, rng: random.Random) -> bytes:
    at = rng.randint(0, len(data))
    end = min(len(data), at + rng.choice([1, 1, 2, 4, 8, 16, 64, 256]))
    way = rng.randrange(9)
    if way == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if way == 1:
        return data[:at] + rng.randbytes(end - at) + data[end:]
    if way == 2:
        return data[:at] + data[end:]
    if way == 3:
        return data[:at] + data[at:end] * rng.choice([2, 2, 3, 20]) + data[end:]
    if way == 4:
        other = rng.choice(others)
        begin = rng.randint(0, len(other))
        return data[:at] + other[begin : begin + rng.choice([4, 16, 64, len(other)])] + data[rng.choice([at, end]) :]
    if way == 5 and target.words:
        return data[:at] + rng.choice(target.words) + data[rng.choice([at, end]) :]
    if way == 6:
        width = rng.choice([1, 2, 4, 8])
        number = rng.choice([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, rng.getrandbits(64), len(data)])
        return data[:at] + (number % (1 << 8 * width)).to_bytes(width, "little") + data[at + width :]
    if way == 7:
        numbers = list(re.finditer(rb"\d+", data))
        if numbers:
            found = rng.choice(numbers)
            number = int(found[0][:18]) + rng.choice([-1, 1])
            written = rng.choice([b"%d" % number, *fuzz_targets.NUMBERS])
            return data[: found.start()] + written + data[found.end() :]
    if way == 8:
        lines = data.split(b"\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return b"\n".join(lines)
    return data[:at]


# ---- the process that tries them


def attempt(name: str, data: bytes, folder: Path) -> tuple[bool, tuple[str, ...], str]:
    """Whether an input was taken; and if it is a find, what tells it from others, and what happened."""
    begin = time.process_time()
    try:
        taken = fuzz_targets.run(name, data, folder)
    except Exception as fault:
        frames = traceback.extract_tb(fault.__traceback__)
        key = (type(fault).__name__, *(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:]))
        return False, key, traceback.format_exc()
    seconds = time.process_time() - begin
    if seconds > SLOW:
        return False, ("slow",), f"it took {seconds:.0f} s of the processor"
    return taken, (), ""


def shortened(name: str, data: bytes, key: tuple[str, ...], folder: Path, seconds: float = 5.0) -> bytes:
    """The find with stretches left out, as long as it stays the same one."""
    deadline = time.monotonic() + seconds
    target = TARGETS[name]
    size = len(data) // 2
    while size:
        at = 0
        while at < len(data) and time.monotonic() < deadline:
            less = data[:at] + data[at + size :]
            less = target.seal(less) if target.seal else less
            if len(less) < len(data) and attempt(name, less, folder)[1] == key:
                data = less
            else:
                at += size
        size //= 2
    return data


def keep(name: str, data: bytes, what: str, finds: Path) -> None:
    finds.mkdir(parents=True, exist_ok=True)
    path = finds / f"{name}-{hashlib.sha256(data).hexdigest()[:8]}"
    path.write_bytes(data)
    path.with_name(f"{path.name}.txt").write_text(what, encoding="utf-8")
    print(f"{path}: {what.strip().splitlines()[-1][:200]}", flush=True)


def limit_memory() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def work(name: str, seed: str, seconds: float, limit: float, finds: Path, folder: Path) -> None:
    """Tries inputs until the time is over. folder/input is the one that is tried, folder/count their number."""
    target = TARGETS[name]
    rng = random.Random(f"{name} {seed}")
    seeds = target.seeds()
    pool = list(seeds)
    found: set[tuple[str, ...]] = set()
    count = taken_count = 0
    deadline = time.monotonic() + seconds
    with open(folder / "trace", "w") as trace:
        while time.monotonic() < deadline:
            data = pool[count] if count < len(seeds) else changed(rng.choice(pool), pool, target, rng)
            (folder / "input").write_bytes(data)
            faulthandler.dump_traceback_later(limit, exit=True, file=trace)
            taken, key, what = attempt(name, data, folder)
            count += 1
            if key and key not in found:
                found.add(key)
                faulthandler.dump_traceback_later(limit + 10, exit=True, file=trace)
                keep(name, shortened(name, data, key, folder), what, finds)
            if taken:
                taken_count += 1
                if len(pool) < MOST_INPUTS:
                    pool.append(data)
                else:
                    pool[rng.randrange(len(seeds), MOST_INPUTS)] = data
            (folder / "count").write_text(f"{count} {taken_count} {len(found)}")
    faulthandler.cancel_dump_traceback_later()


# ---- all of it


def fuzz(name: str, seed: str, seconds: float, limit: float, finds: Path) -> bool:
    """Fuzzes a target, in one process after another; returns whether anything was found."""
    begin = time.monotonic()
    count = taken = n_found = lives = 0
    while (left := seconds - (time.monotonic() - begin)) > 0:
        with tempfile.TemporaryDirectory() as folder:
            arguments = [name, "--seed", f"{seed}.{lives}", "--seconds", left, "--limit", limit, "--finds", finds]
            command = [sys.executable, __file__, *arguments, "--work", folder]
            status = subprocess.run([*map(str, command)]).returncode
            lives += 1
            numbers = Path(folder, "count")
            counts = numbers.read_text().split() if numbers.exists() else [0, 0, 0]
            count, taken, n_found = count + int(counts[0]), taken + int(counts[1]), n_found + int(counts[2])
            if status:
                n_found += 1
                trace = Path(folder, "trace")
                what = f"{trace.read_text() if trace.exists() else ''}\nthe process ended with status {status}"
                given = Path(folder, "input")
                if not given.exists():
                    print(f"{name}: {what}", flush=True)
                    return True
                keep(name, given.read_bytes(), what, finds)
    seconds = time.monotonic() - begin
    print(f"{name:12} {count:9,} inputs in {seconds:6.0f} s, {taken:9,} taken, {n_found} finds", flush=True)
    return n_found > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all if there is none")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target (default: 60)")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one input (default: 60)")
    parser.add_argument("--finds", type=Path, default=Path("finds"), help="a folder (default: finds)")
    parser.add_argument("--replay", type=Path, help="try this input only")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = arguments.targets or list(TARGETS)
    unknown = set(names) - set(TARGETS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if arguments.work:
        limit_memory()
        work(names[0], arguments.seed, arguments.seconds, arguments.limit, arguments.finds, arguments.work)
        return 0
    if arguments.replay:
        with tempfile.TemporaryDirectory() as folder:
            taken = fuzz_targets.run(names[0], arguments.replay.read_bytes(), Path(folder))
        print("taken" if taken else "refused")
        return 0
    found = [fuzz(name, arguments.seed, arguments.seconds, arguments.limit, arguments.finds) for name in names]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())

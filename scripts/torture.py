"""Kills the library at random moments, hundreds of times, and looks at what is left (needs POSIX).

    python scripts/torture.py --rounds 300
    python scripts/torture.py --rounds 1000 --seconds 60 --only encode_file --seed 7

Each case writes something: a model, a vocabulary, files for other libraries, a chunk store, a store that was counted
within a memory limit, a file of ids, shards, text that the command decodes, a model trained with checkpoints. In each
round a child process begins, over what an earlier run has left, and is killed by SIGKILL: every other time after a
random part of the time that it takes, else at a random one of the calls that it makes, so that short moments, such as
that between two renames, are met as well. Then every file must be the old one or the new one, whole, as they are known
from runs that nobody killed; and the same work, done again, must end with the new ones. Prints a line for each case:
how often the child was killed, how often it had ended before, what was found, and how many files were left under
temporary names, which nothing reads.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cbpe import ChunkStore, RegexTokenizer
from cbpe.cli import main as cbpe_command
from cbpe.training import corpus, learn, spill, store

Files = dict[str, bytes]


def make_small() -> None:
    """Has small corpora take the ways of large ones: threads, scratch files, checkpoints."""
    spill.Limit.LEAST = spill.Limit.LEAST_PER_THREAD = 1
    spill.Limit.PER_THREAD = 0
    spill.PART_BITS = 4
    store.ENOUGH = 1 << 10
    corpus.PART = 1 << 14
    learn.Checkpoint.is_due = lambda self: True     # type: ignore[method-assign]


def words(seed: int, n: int) -> str:
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefgh é漢\n", k=rng.randint(2, 9))) for _ in range(n))


# ---- what is done. Each works in the current folder; number 0 makes what is old, number 1 what is new.


def save(number: int) -> None:
    MODELS[number].save("m")


def save_store(number: int) -> None:
    STORES[number].save("a.chunks")


def spilled(number: int) -> None:
    os.makedirs("scratch", exist_ok=True)
    how = {"num_threads": 2, "memory_limit": 100_000, "scratch_dir": "scratch"}
    ChunkStore.from_files(f"../corpus{number}.txt", **how).save("a.chunks")     # type: ignore[arg-type]


def encode_file(number: int) -> None:
    MODELS[number].encode_file(f"../corpus{number}.txt", "a.bin", num_threads=2, document_offsets=True)


def save_vocab(number: int) -> None:
    MODELS[number].save_vocab("m.vocab")


def save_tiktoken(number: int) -> None:
    without_checks()
    MODELS[number].save_tiktoken("m.tiktoken")


def save_huggingface(number: int) -> None:
    without_checks()
    os.makedirs("m", exist_ok=True)
    MODELS[number].save_huggingface("m")


def without_checks() -> None:
    """Hides what exports are compared with: the comparison writes nothing, and would take most of the time."""
    sys.modules["tiktoken"] = sys.modules["tokenizers"] = None      # type: ignore[assignment]
    warnings.simplefilter("ignore")


def decode(number: int) -> None:
    command("decode", f"../ids{number}.bin", "-m", f"../model{number}.model", "-o", "a.txt", "--force")


def shards(number: int) -> None:
    command("encode", "../corpus1.txt", "-m", "../model1.model", "-o", "shards", "--shard-tokens", "3000")


def checkpoints(number: int) -> None:
    command(
        "train", "../corpus1.txt", "-o", "m", "--vocab-size", str(VOCAB_SIZE), "--checkpoint", "part", "--resume",
        "--threads", "2",
    )


def command(*arguments: str) -> None:
    with contextlib.suppress(SystemExit):
        cbpe_command([*arguments, "--quiet"])


# ---- what must be true


def whole(found: Files, old: Files, new: Files) -> str:
    """Raises AssertionError for a file that is neither the old one nor the new one; tells which they are."""
    kinds = []
    for name in sorted({*old, *new}):
        content = found.get(name)
        assert content in (old.get(name), new.get(name)), f"{name}: neither the old file nor the new one"
        kinds.append("old" if content == old.get(name) else "new")
    return kinds[0] if len(set(kinds)) == 1 else "some"


def model_loads(found: Files, old: Files, new: Files) -> str:
    kind = whole(found, old, new)
    tokenizer = RegexTokenizer()
    tokenizer.load("m.model")
    assert tokenizer.merges in [each.merges for each in MODELS]
    statistics = tokenizer._model.statistics        # of another model's file they must not be taken
    assert statistics is None or len(statistics.counts) == len(tokenizer.merges)
    return kind


def ids_are_described(found: Files, old: Files, new: Files) -> str:
    """A JSON file may be missing for a moment, but never stands beside other ids than its own."""
    known = found.get("a.bin.idx.json")
    if known is not None:
        return whole(found, old, new)
    assert found["a.bin"] in (old["a.bin"], new["a.bin"])
    return "some"


def shards_are_whole(found: Files, old: Files, new: Files) -> str:
    n_finished = 0
    for name, content in found.items():
        assert content == new.get(name), f"{name}: not what it should be"
        if name.endswith(".bin"):
            assert f"{name}.idx.json" in found, f"{name}: nothing says what it is"
            n_finished += 1
    return "old" if not found else "new" if len(found) == len(new) else "some"


def checkpoint_loads(found: Files, old: Files, new: Files) -> str:
    if "part.model" in found:
        tokenizer = RegexTokenizer()
        tokenizer.load("part.model")
        merges = list(MODELS[2].merges)
        assert list(tokenizer.merges) == merges[: len(tokenizer.merges)]
    for name in found.keys() - {"part.model"}:
        assert found[name] == new[name], f"{name}: not what it should be"
    return "old" if not found else "new" if found == new else "some"


CASES: dict[str, tuple[Callable[[int], None], Callable[[Files, Files, Files], str]]] = {
    "save": (save, model_loads),
    "save_store": (save_store, whole),
    "spilled": (spilled, whole),
    "save_vocab": (save_vocab, whole),
    "save_tiktoken": (save_tiktoken, whole),
    "save_huggingface": (save_huggingface, whole),
    "decode": (decode, whole),
    "encode_file": (encode_file, ids_are_described),
    "shards": (shards, shards_are_whole),
    "checkpoints": (checkpoints, checkpoint_loads),
}
FROM_NOTHING = ("shards", "checkpoints")        # what is old is an empty folder: a run goes on with what there is
VOCAB_SIZE = 1500
HANGS = 60.0        # seconds after which work that has not ended prints where it is, and fails
MODELS: list[RegexTokenizer] = []
STORES: list[ChunkStore] = []


def prepare(folder: Path) -> None:
    """Corpora, models and stores, the same in every run. Leaves no thread, for this process forks."""
    for number, n in enumerate((9_000, 12_000)):
        (folder / f"corpus{number}.txt").write_text(words(number, n), encoding="utf-8")
        MODELS.append(RegexTokenizer())
        MODELS[-1].train(words(number, 3000), 600 + 10 * number)
        MODELS[-1].save(folder / f"model{number}")
        MODELS[-1].encode_file(folder / f"corpus{number}.txt", folder / f"ids{number}.bin", num_threads=1)
        STORES.append(ChunkStore.from_files(folder / f"corpus{number}.txt"))
    MODELS.append(RegexTokenizer())
    MODELS[2].train_from_files(folder / "corpus1.txt", VOCAB_SIZE)


# ---- rounds


def files() -> tuple[Files, list[str]]:
    """All files in the current folder, and the names of those that have temporary ones."""
    found = {os.path.relpath(os.path.join(at, name)): os.path.join(at, name)
             for at, _, names in os.walk(".") for name in names}
    temporary = [name for name in found if name.endswith(".tmp")]
    return {name: Path(path).read_bytes() for name, path in found.items() if name not in temporary}, temporary


def put(content: Files) -> None:
    for name in os.listdir():
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    for name, data in content.items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        Path(name).write_bytes(data)


def child(act: Callable[[int], None], number: int, kill_at: int = 0) -> int:
    """Starts act(number) in a process of its own. kill_at: the call at which it is killed; 0: none; -1: none, and the
    number of calls goes to ../calls.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    faulthandler.dump_traceback_later(HANGS, exit=True)
    try:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        n_calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal n_calls
            n_calls += 1
            if n_calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        if kill_at:
            threading.setprofile(count)
            sys.setprofile(count)
        act(number)
        sys.setprofile(None)
        if kill_at < 0:
            Path("../calls").write_text(str(n_calls))
        code = 0
    except BaseException as fault:
        print(f"{type(fault).__name__}: {fault}", file=sys.stderr)
    finally:
        os._exit(code)


def finish(pid: int) -> int:
    """Waits for a child; returns 0, or minus the signal that ended it. Raises AssertionError for an error."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL), f"the work ended with {code}"
    return code


def torture(name: str, folder: Path, rounds: int, until: float, rng: random.Random) -> str:
    """All rounds of a case. Raises AssertionError."""
    act, check = CASES[name]
    os.makedirs(folder / name)
    os.chdir(folder / name)
    old: Files = {}
    if name not in FROM_NOTHING:
        finish(child(act, 0))
        old = files()[0]
    put(old if name not in FROM_NOTHING else {})
    start = time.monotonic()
    finish(child(act, 1))
    seconds = time.monotonic() - start
    new = files()[0]
    put(old)
    finish(child(act, 1, kill_at=-1))
    n_calls = int(Path("../calls").read_text())
    assert files()[0] == new, "two runs differ"
    counts: Counter[str] = Counter()
    n_temporary = n = 0
    for n in range(1, rounds + 1):
        if time.monotonic() > until:
            n -= 1
            break
        put(old)
        if n % 2:
            pid = child(act, 1)
            time.sleep(rng.uniform(0, 1.1 * seconds))
            os.kill(pid, signal.SIGKILL)
        else:
            pid = child(act, 1, kill_at=rng.randint(1, n_calls))
        code = finish(pid)
        counts["killed" if code else "ended before"] += 1
        found, temporary = files()
        counts[check(found, old, new)] += 1
        n_temporary += len(temporary)
        finish(child(act, 1))
        found, temporary = files()
        assert found == new, "the work, done again, ends with other files"
        if name == "shards":
            assert not temporary, f"left behind: {temporary}"
    told = ", ".join(f"{counts[key]:,} {key}" for key in ("killed", "ended before", "old", "some", "new"))
    return f"{name:12} {n:,} rounds: {told}; {n_temporary} temporary names"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="of each case (default: 100)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="no round begins after so many, shared evenly")
    parser.add_argument("--only", choices=CASES, action="append", help="this case; may be given more than once")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    make_small()
    names = arguments.only or list(CASES)
    print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for i, name in enumerate(names):
            until = time.monotonic() + arguments.seconds / len(names)
            try:
                line = torture(name, Path(folder), arguments.rounds, until, random.Random(f"{arguments.seed} {i}"))
            except AssertionError as fault:
                kept = tempfile.mkdtemp()
                os.chdir("/")
                shutil.copytree(Path(folder) / name, kept, dirs_exist_ok=True)
                print(f"{name}: {fault}; what was left is in {kept}")
                return 1
            print(line, flush=True)
        os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())

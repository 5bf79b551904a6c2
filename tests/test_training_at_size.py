"""Training at real size and under pressure: a second witness, memory, processes, interruptions."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import sysconfig
import textwrap
import threading
from pathlib import Path

import pytest
import reference
from peak import PEAK_MEMORY, needs_peak_memory

from cbpe import GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, RegexTokenizer
from cbpe.training import ChunkStore, learn_merges
from cbpe.training.merges import learn


def run(script: str, *args: str, **environment: str) -> str:
    """What a script prints that runs in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *args],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Some 3 MB of the standard library's own sources in one file."""
    root = Path(sysconfig.get_path("stdlib"))
    path = tmp_path_factory.mktemp("corpus") / "sources.txt"
    size = 0
    with open(path, "wb") as out:
        for source in sorted(root.glob("*.py")) + sorted((root / "asyncio").glob("*.py")):
            data = source.read_bytes()
            if size > 3_000_000:
                break
            try:
                data.decode()
            except UnicodeDecodeError:
                continue
            size += out.write(data)
    return path


@pytest.mark.parametrize("pattern", [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN])
def test_minibperust_learns_the_same(sources, pattern):
    """MiniBpeRust is another program that promises minbpe's merges, tie for tie."""
    rustminibpe = pytest.importorskip("MiniBpeRust", reason="minibperust has no package for this platform").rustminibpe
    expected = [tuple(pair) for pair, _ in rustminibpe.train_on_files([str(sources)], pattern, 4096)]
    for num_threads in (1, 2, 5):
        tokenizer = RegexTokenizer(pattern)
        tokenizer.train_from_files(sources, 4096, num_threads=num_threads)
        assert list(tokenizer.merges) == expected


def test_results_depend_on_nothing_but_the_text_C09(tmp_path):
    rng = random.Random(9)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=4)) for _ in range(400)]
    text = "\n".join(words)
    path = tmp_path / "ties.txt"
    path.write_text(text, newline="")
    script = """
        import sys
        from cbpe import RegexTokenizer
        from cbpe.training import corpus, store
        corpus.PART, store.ENOUGH = 64, 64         # so that so small a text is shared out at all
        tokenizer = RegexTokenizer()
        tokenizer.train_from_files(sys.argv[1], 600, num_threads=int(sys.argv[2]))
        print(list(tokenizer.merges))
    """
    expected = str(list(reference.learn(text, 344, GPT4_SPLIT_PATTERN)[0]))
    for seed in range(8):
        assert run(script, str(path), str([1, 2, 4, 8][seed % 4]), PYTHONHASHSEED=str(seed)).strip() == expected


PEAK = f"""
{PEAK_MEMORY}
import sys
from cbpe import BasicTokenizer, RegexTokenizer
before = peak_memory()
tokenizer = globals()[sys.argv[1]]()
tokenizer.train_from_files(sys.argv[2], int(sys.argv[3]), num_threads=2)
print(peak_memory() - before)
"""


@needs_peak_memory
def test_memory_follows_the_distinct_chunks_and_not_the_file_C18(sources, tmp_path):
    path = tmp_path / "repeated.txt"
    data = sources.read_bytes()
    with open(path, "wb") as out:
        for _ in range(60):
            out.write(data)
    once = int(run(PEAK, "RegexTokenizer", str(sources), "2000"))
    many = int(run(PEAK, "RegexTokenizer", str(path), "2000"))
    assert path.stat().st_size > 150_000_000
    assert many < once + 8_000_000


@needs_peak_memory
@pytest.mark.parametrize("name", ["BasicTokenizer", "RegexTokenizer"])
def test_one_endless_chunk_takes_twelve_bytes_a_byte_at_most_C18(tmp_path, name):
    path = tmp_path / "letters.txt"
    size = 20_000_000
    path.write_bytes(random.Random(18).randbytes(size).translate(bytes(97 + i % 26 for i in range(256))))
    # Blocks as large as this text malloc may keep for a while when they are freed, or not, as it happens: not here.
    peak = int(run(PEAK, name, str(path), "1000", MALLOC_MMAP_THRESHOLD_=str(1 << 17)))
    assert peak < 12 * size + 10_000_000        # some of it does not grow with size


def test_a_corpus_learned_in_many_stages_is_learned_exactly(sources):
    store = ChunkStore.from_files(sources)
    digests = set()
    for spread in (0.001, 4.0, 1e9):
        digest = hashlib.sha256()
        for pairs, counts, _ in learn(store.counts, store.offsets, store.data, 3000, 1, spread):
            for row, count in zip(pairs.tolist(), counts.tolist(), strict=True):
                digest.update(f"{row} {count}\n".encode())
        digests.add(digest.hexdigest())
    assert len(digests) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
@pytest.mark.parametrize("phase", ["counting", "merging", "basic"])
def test_ctrl_c_leaves_the_old_model_whole_C19(sources, tmp_path, phase):
    script = """
        import sys
        from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer
        phase, path = sys.argv[1:]
        tokenizer = BasicTokenizer() if phase == "basic" else RegexTokenizer()
        text = open(path, encoding="utf-8", newline="").read()
        store = ChunkStore.from_files(path)
        calls = {
            "counting": lambda: tokenizer.train_from_files([path] * 60, 300),
            "merging": lambda: tokenizer.train_from_chunks(store, 100_000),
            "basic": lambda: tokenizer.train(text, 50_000),
        }
        state = lambda: (tokenizer.merges, tokenizer.vocab, tokenizer.encode("hello"))
        calls[phase]()
        whole = [state()]
        tokenizer.train("hello hello hello", 260)
        whole.append(state())
        print("ready", flush=True)
        try:
            while True:
                calls[phase]()
        except KeyboardInterrupt:
            print(state() in whole)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), phase, str(sources)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, err
    assert out == "True\n"


def test_a_store_trains_many_tokenizers(sources):
    store = ChunkStore.from_files(sources)
    pairs, counts, _ = learn_merges(store, 1000)
    fewer, fewer_counts, _ = learn_merges(store, 100)
    assert fewer.tolist() == pairs[:100].tolist()
    assert fewer_counts.tolist() == counts[:100].tolist()
    assert (counts[:-1] >= counts[1:]).all()

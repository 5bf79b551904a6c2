"""Trains on the same documents as text, JSONL.zst and Parquet, and within a memory limit, and prints a table.

    pip install ".[data]"
    python scripts/bench_inputs.py corpus.txt --vocab-size 32768 --threads 2 --memory-limit 512MB

The text is cut into documents of some 4,000 bytes where the pattern lets it be cut, so that all three hold the same
chunks, in the same order. Every run is a process of its own, which counts, trains, and tells how long each took and how
much memory it had at most by then. The merges of all must be the same.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCUMENT = 4000             # bytes, and on to the next cut
AT_ONCE = 1 << 22           # bytes of text that are cut into documents together
ROWS = 1 << 16              # in a row group


def documents(path: str) -> Iterator[str]:
    """The text in stretches that each end where it may be cut."""
    from cbpe.splitting.split import next_cut

    data = b""
    with open(path, "rb") as file:
        while more := file.read(AT_ONCE):
            data += more
            start = 0
            while len(data) - start > 2 * DOCUMENT and (cut := next_cut(data, start + DOCUMENT)) > 0:
                yield data[start:cut].decode()
                start = cut
            data = data[start:]
    if data:
        yield data.decode()


def write_jsonl(path: str, out: str) -> None:
    import zstandard

    with open(out, "wb") as raw, zstandard.ZstdCompressor(3).stream_writer(raw) as file:
        for text in documents(path):
            file.write(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n")


def write_parquet(path: str, out: str) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("text", pyarrow.string())])
    rows: list[str] = []
    with pyarrow.parquet.ParquetWriter(out, schema, compression="zstd", use_dictionary=False) as writer:
        for text in documents(path):
            rows.append(text)
            if len(rows) == ROWS:
                writer.write_table(pyarrow.table({"text": rows}, schema))
                rows.clear()
        writer.write_table(pyarrow.table({"text": rows}, schema))


def peak_memory() -> float:
    """Megabytes that this process had in memory at most, mapped pages included; 0 where the system does not tell.

    (Of getrusage's figure a child inherits its parent's part, across exec.)
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM"))


def run_here(job: dict[str, Any]) -> None:
    """Counts and trains, and prints what came of it as a line of JSON."""
    from cbpe import ChunkStore, RegexTokenizer

    start = time.perf_counter()
    how = {"memory_limit": job["memory_limit"], "scratch_dir": job["scratch"]}
    store = ChunkStore.from_files(job["path"], num_threads=job["threads"], progress=False, **how)
    result: dict[str, Any] = {"counting": time.perf_counter() - start, "chunks": len(store)}
    result["counting memory"] = peak_memory()
    tokenizer = RegexTokenizer()
    start = time.perf_counter()
    tokenizer.train_from_chunks(store, job["vocab_size"], progress=False, **how)
    result |= {"merging": time.perf_counter() - start, "memory": peak_memory()}
    result["merges"] = hashlib.sha256(repr(list(tokenizer.merges)).encode()).hexdigest()
    print(json.dumps(result))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench_inputs.py", description="The same corpus in several forms.")
    parser.add_argument("corpus", nargs="?", help="a file of UTF-8 text")
    parser.add_argument("--vocab-size", type=int, default=32768, metavar="N", help="(32768)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(2)")
    parser.add_argument("--memory-limit", default="512MB", metavar="SIZE", help="of the limited run (512MB)")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the forms and scratch files are made")
    parser.add_argument("--child", metavar="JOB", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_here(json.loads(args.child))
        return 0
    if not args.corpus:
        parser.error("name a text file")
    size = os.path.getsize(args.corpus)
    seen = set()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        jsonl, parquet = os.path.join(folder, "corpus.jsonl.zst"), os.path.join(folder, "corpus.parquet")
        write_jsonl(args.corpus, jsonl)
        write_parquet(args.corpus, parquet)
        print(f"{Path(args.corpus).name}, {size / 1e6:,.0f} MB of text, {args.threads} threads, ", end="")
        print(f"{args.vocab_size:,} ids, Python {sys.version.split()[0]}, {os.cpu_count()} cores\n")
        print("| input | file MB | counting s | MB/s | peak MB in counting | merging s | peak MB | chunks |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        forms = [("text", args.corpus, None), ("JSONL.zst", jsonl, None), ("Parquet", parquet, None)]
        forms.append((f"text, memory_limit={args.memory_limit!r}", args.corpus, args.memory_limit))
        for name, path, limit in forms:
            job = {"path": path, "memory_limit": limit, "scratch": folder}
            job |= {"threads": args.threads, "vocab_size": args.vocab_size}
            command = [sys.executable, __file__, "--child", json.dumps(job)]
            child = subprocess.run(command, capture_output=True, text=True, check=False)
            if child.returncode:
                print(f"| {name} | failed: {child.stderr.strip().splitlines()[-1]} |")
                return 1
            done = json.loads(child.stdout.splitlines()[-1])
            seen.add(done["merges"])
            print(
                f"| {name} | {os.path.getsize(path) / 1e6:,.0f} | {done['counting']:.1f} "
                f"| {size / 1e6 / done['counting']:,.0f} | {done['counting memory']:,.0f} | {done['merging']:.1f} "
                f"| {done['memory']:,.0f} | {done['chunks']:,} |", flush=True
            )
    print(f"\nThe merges are {'the same' if len(seen) == 1 else 'NOT the same'}.")
    return 0 if len(seen) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())

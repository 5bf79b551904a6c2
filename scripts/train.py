"""Trains a tokenizer on text files and saves it as PREFIX.model and PREFIX.vocab, which cbpe and minbpe load.

    python scripts/train.py corpus.txt --vocab-size 32768 -o models/mine
    python scripts/train.py a.txt b.txt --vocab-size 8192 --special "<|endoftext|>" --save-chunks mine.chunks -o mine

Corpora go in, each file a text of its own; out come the model and a summary: bytes, distinct chunks, seconds, files.
All the work is the library's: a ChunkStore counts, a tokenizer learns from it. Exit codes: 0; 1 for what went wrong
(one line on stderr, nothing half-written); 2 for wrong arguments; 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import regex

from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer
from cbpe.patterns import NAMED_PATTERNS


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="train.py", description="Train a byte-level BPE tokenizer on text files.")
    option = parser.add_argument
    option("corpus", nargs="+", type=Path, help="UTF-8 text files; each is a text of its own")
    option("-o", "--output", required=True, type=Path, metavar="PREFIX", help="writes PREFIX.model and PREFIX.vocab")
    option("--vocab-size", required=True, type=int, metavar="N", help="256 bytes and N - 256 merges")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--pattern", default="gpt4", metavar="gpt4|gpt2|REGEX", help="where texts are split (gpt4)")
    kind.add_argument("--basic", action="store_true", help="do not split: merges may cross words")
    option("--min-frequency", type=int, default=1, metavar="N", help="stop at the first pair seen less often (1)")
    option("--threads", type=int, metavar="N", help="threads that count (all cores); the result is the same")
    option("--errors", choices=("strict", "replace"), default="strict", help="for bytes that are not UTF-8 (strict)")
    option("--special", action="append", default=[], metavar="TOKEN",
           help="a special token: cut out of the corpus, numbered after the merges; may be given again")
    option("--save-chunks", type=Path, metavar="FILE", help="keep the counted chunks, to train from them again")
    option("--verbose", action="store_true", help="print a line a merge")
    args = parser.parse_args(argv)

    # What can be known to be wrong is said now, and not after the counting.
    if args.vocab_size < 256:
        parser.error(f"--vocab-size {args.vocab_size}: must be at least 256, the bytes")
    if args.min_frequency < 1:
        parser.error(f"--min-frequency {args.min_frequency}: must be at least 1")
    if args.threads is not None and args.threads < 1:
        parser.error(f"--threads {args.threads}: must be at least 1")
    args.pattern = NAMED_PATTERNS.get(args.pattern, args.pattern)
    try:
        regex.compile(args.pattern)
    except regex.error as error:
        parser.error(f"--pattern {args.pattern!r}: {error}")
    for path in filter(None, (args.output, args.save_chunks)):
        if not path.parent.is_dir():
            parser.error(f"{path}: there is no folder {path.parent}")
    return args


def train(args: argparse.Namespace) -> None:
    tokenizer = BasicTokenizer() if args.basic else RegexTokenizer(args.pattern)
    written = [args.output.with_name(args.output.name + suffix) for suffix in (".model", ".vocab")]

    start = time.perf_counter()
    store = ChunkStore.from_files(
        args.corpus,
        pattern=None if args.basic else args.pattern,
        special_tokens=args.special,
        num_threads=args.threads,
        errors=args.errors,
    )
    seconds = time.perf_counter() - start
    print(f"counted  {store.total_bytes:,} bytes, {len(store):,} distinct chunks in {seconds:.2f} s")
    if args.save_chunks:
        store.save(args.save_chunks)
        written.append(args.save_chunks)

    start = time.perf_counter()
    tokenizer.train_from_chunks(
        store,
        args.vocab_size,
        special_tokens=args.special or None,
        min_frequency=args.min_frequency,
        verbose=args.verbose,
    )
    print(f"merged   {len(tokenizer.merges):,} pairs in {time.perf_counter() - start:.2f} s")

    tokenizer.save(str(args.output))
    for path in written:
        print(f"wrote    {path} ({path.stat().st_size:,} bytes)")


def in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def main() -> int:
    args = parse_arguments()
    warnings.formatwarning = lambda message, *_: f"train.py: warning: {message}\n"
    try:
        train(args)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        print(f"train.py: error: {in_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("train.py: stopped; no model was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

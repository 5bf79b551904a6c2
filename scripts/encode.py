"""Encodes text files to one flat file of ids, which np.memmap opens, and OUT.idx.json, which says what it holds.

    python scripts/encode.py corpus.txt -m models/mine.model -o corpus.bin
    python scripts/encode.py a.txt b.txt -m gpt4 --eot "<|endoftext|>" --document-offsets -o corpus.bin

    ids = np.memmap("corpus.bin", dtype=np.uint16, mode="r")        # or uint32: OUT.idx.json knows

Corpora go in, each file a document of its own; out come the ids and a summary. All the work is the library's. Exit
codes: 0; 1 for what went wrong (one line on stderr, nothing half-written); 2 for wrong arguments; 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cbpe import BasicTokenizer, GPT4Tokenizer, RegexTokenizer
from cbpe.formats import minbpe


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="encode.py", description="Encode text files to a flat file of token ids.")
    option = parser.add_argument
    option("corpus", nargs="+", type=Path, help="UTF-8 text files; each is a document of its own")
    option("-m", "--model", required=True, metavar="MODEL", help="a .model file, or gpt4")
    option("-o", "--output", required=True, type=Path, metavar="OUT", help="writes OUT and OUT.idx.json")
    option("--eot", metavar="TOKEN|ID", help="a special token, or an id, to put behind each document")
    option("--dtype", choices=("uint16", "uint32"), help="of the ids (the smallest that holds all of the model's)")
    option("--threads", type=int, metavar="N", help="threads that encode (all cores); the result is the same")
    option("--errors", choices=("strict", "replace"), default="strict", help="for bytes that are not UTF-8 (strict)")
    option("--document-offsets", action="store_true", help="list in OUT.idx.json where each document begins")
    args = parser.parse_args(argv)

    # What can be known to be wrong is said now, and not after the model is loaded.
    if args.threads is not None and args.threads < 1:
        parser.error(f"--threads {args.threads}: must be at least 1")
    if not args.output.parent.is_dir():
        parser.error(f"{args.output}: there is no folder {args.output.parent}")
    return args


def tokenizer_of(model: str) -> BasicTokenizer | RegexTokenizer:
    """The tokenizer of a name or a .model file: without a pattern it is a BasicTokenizer's."""
    if model == "gpt4":
        return GPT4Tokenizer()
    pattern, _, _ = minbpe.load(model)
    tokenizer = RegexTokenizer() if pattern else BasicTokenizer()
    tokenizer.load(model)
    return tokenizer


def encode(args: argparse.Namespace) -> None:
    tokenizer = tokenizer_of(args.model)
    eot = args.eot
    if eot is not None and eot not in tokenizer.special_tokens and eot.isdecimal():
        eot = int(eot)
    start = time.perf_counter()
    count = tokenizer.encode_file(
        args.corpus,
        args.output,
        dtype=args.dtype,
        eot=eot,
        num_threads=args.threads,
        errors=args.errors,
        document_offsets=args.document_offsets,
    )
    print(f"encoded  {len(args.corpus):,} files, {count:,} ids in {time.perf_counter() - start:.2f} s")
    for path in (args.output, args.output.with_name(args.output.name + ".idx.json")):
        print(f"wrote    {path} ({path.stat().st_size:,} bytes)")


def in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def main() -> int:
    args = parse_arguments()
    try:
        encode(args)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        print(f"encode.py: error: {in_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("encode.py: stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

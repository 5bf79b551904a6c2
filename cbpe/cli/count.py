"""cbpe count and cbpe merge: a corpus becomes a chunk store, and stores become one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from cbpe import ChunkStore
from cbpe.cli.common import CORPUS, COUNTING, MEMORY, OUTPUT, PATTERN, Output, check_outputs, pattern_of, taken

STORE = click.Option(
    ["-o", "--output", "target"], required=True, type=Path, metavar="STORE", help="Write the chunk store STORE."
)


def share(_: click.Context, option: click.Parameter, value: str) -> tuple[int, int]:
    """The I-th of N: "0/4" -> (0, 4)."""
    index, _slash, number = value.partition("/")
    if not (index.isdecimal() and number.isdecimal() and int(index) < int(number)):
        raise click.BadParameter(f"{value!r}: I/N is wanted, with I from 0 to N - 1.", param=option)
    return int(index), int(number)


@click.command(
    short_help="A corpus becomes a chunk store, to train on.",
    params=[
        CORPUS,
        STORE,
        click.Option(
            ["--shard"],
            callback=share,
            default="0/1",
            metavar="I/N",
            help="Count the I-th of N shares of the corpus only, I from 0 to N - 1; cbpe merge makes one of all.",
        ),
        *PATTERN,
        *COUNTING,
        *MEMORY,
        *OUTPUT,
    ],
)
@click.pass_obj
def count(
    out: Output, /, corpus: tuple[str, ...], target: Path, pattern: str | None, basic: bool, **given: Any
) -> None:
    """Count the distinct chunks of a corpus, to train on them later, many times if need be.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs, such
    as s3://...; or - for stdin (-- -.jsonl if JSONL comes).

    Writes STORE, whole or not at all, from which cbpe train --from-chunks trains what it would from the corpus. To
    count on many machines, give each the same CORPUS and another --shard.

    \b
    Examples:
      cbpe count corpus.txt more.txt -o corpus.chunks
      cbpe count corpus.txt --shard 0/2 --special "<|endoftext|>" -o part0.chunks
      cbpe count corpus.txt --shard 1/2 --special "<|endoftext|>" -o part1.chunks
      cbpe merge part0.chunks part1.chunks -o whole.chunks
    """
    memory = taken(given, MEMORY)
    check_outputs([target], corpus=corpus)
    start = time.perf_counter()
    split_pattern = pattern_of(pattern, basic)
    store = ChunkStore.from_files(corpus, pattern=split_pattern, progress=out.progress, **given, **memory)
    seconds = time.perf_counter() - start
    out.say(f"counted  {store.total_bytes:,} bytes, {len(store):,} distinct chunks in {seconds:.2f} s")
    store.save(target)
    counted = {"bytes": store.total_bytes, "chunks": len(store), "seconds": seconds}
    out.finish({**counted, "written": out.wrote([target])})


@click.command(
    short_help="Chunk stores become one.",
    params=[click.Argument(["stores"], nargs=-1, required=True, metavar="STORE..."), STORE, *MEMORY, *OUTPUT],
)
@click.pass_obj
def merge(out: Output, /, stores: tuple[str, ...], target: Path, **given: Any) -> None:
    """Merge chunk stores into one, as if their texts had been read in the order in which they are given.

    Writes STORE, whole or not at all. The shares of one corpus (cbpe count --shard) are told by their places: they give
    the store of the whole corpus, to the byte, in any order.

    \b
    Examples:
      cbpe count corpus.txt -o a.chunks
      cbpe count more.txt -o b.chunks
      cbpe merge a.chunks b.chunks -o both.chunks
    """
    memory = taken(given, MEMORY)
    check_outputs([target], stores)
    start = time.perf_counter()
    store = ChunkStore.merge(map(ChunkStore.open, stores), **memory)
    seconds = time.perf_counter() - start
    out.say(f"merged   {store.total_bytes:,} bytes, {len(store):,} distinct chunks in {seconds:.2f} s")
    store.save(target)
    counted = {"stores": len(stores), "bytes": store.total_bytes, "chunks": len(store), "seconds": seconds}
    out.finish({**counted, "written": out.wrote([target])})

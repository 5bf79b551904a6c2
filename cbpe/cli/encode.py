"""cbpe encode: a corpus becomes one file of ids, or shards of them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from cbpe.cli.common import CORPUS, MODEL, OUTPUT, READING, SEPARATOR, Output, check_outputs, taken, tokenizer_of
from cbpe.native import NativeTokenizer

ENCODING = [
    click.Option(
        ["--dtype"],
        type=click.Choice(["uint16", "uint32"]),
        help="Of the ids; by default the smallest that holds all of the model's.",
    ),
    click.Option(["--eot"], metavar="TOKEN|ID", help="A special token, or an id, to put behind each document."),
    SEPARATOR,
    *READING,
]


@click.command(
    short_help="A corpus becomes files of ids.",
    params=[
        CORPUS,
        MODEL,
        click.Option(
            ["-o", "--output", "target"],
            required=True,
            type=Path,
            metavar="OUT",
            help="Write the file OUT and OUT.idx.json; with --shard-tokens, files in the folder OUT.",
        ),
        *ENCODING,
        click.Option(
            ["--document-offsets"], is_flag=True, help="List in OUT.idx.json where the ids of each document begin."
        ),
        click.Option(
            ["--shard-tokens"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Write shards of N ids each. The same command again goes on where it was stopped.",
        ),
        click.Option(
            ["--force"], is_flag=True, help="Replace shards in OUT that are damaged, or of another job."
        ),
        *OUTPUT,
    ],
)
@click.pass_obj
def encode(
    out: Output,
    /,
    corpus: tuple[str, ...],
    model: str,
    target: Path,
    document_offsets: bool,
    shard_tokens: int | None,
    force: bool,
    **given: Any,
) -> None:
    """Encode a corpus to ids. A text file is a document, and so is each line of JSONL and each row of Parquet.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs, such
    as s3://...; or - for stdin (-- -.jsonl if JSONL comes).

    Writes OUT, the ids end to end, little-endian and without a header, as np.memmap opens them; and OUT.idx.json, which
    says what they are. Both are written whole or not at all. A special token that stands in a text is text.

    With --shard-tokens N the folder OUT gets shard-00000.bin, shard-00001.bin and so on, of N ids each but the last,
    and a .idx.json beside each. Finished shards are never made again: a run that was stopped is taken up by the same
    command, and what it makes is the same to the byte.

    \b
    Examples:
      cbpe encode corpus.txt -m mine.model -o corpus.bin
      cbpe encode corpus.txt more.txt -m gpt2 --eot "<|endoftext|>" -o both.bin
      cbpe encode corpus.txt -m mine.model --shard-tokens 2000 -o shards
    """
    encoding = taken(given, ENCODING)
    if shard_tokens is None:
        if force:
            raise click.UsageError("--force: needs --shard-tokens")
        check_outputs([target, index_of(target)], [model], corpus)
    else:
        if document_offsets:
            raise click.UsageError("--document-offsets: not allowed with --shard-tokens")
        if not target.parent.is_dir():
            raise click.UsageError(f"{target}: there is no folder {target.parent}")
        if target.exists() and not target.is_dir():
            raise click.UsageError(f"{target}: is no folder")
        out.if_stopped = f"the same command again goes on behind the shards that are finished in {target}"

    tokenizer = tokenizer_of(model)
    encoding["eot"] = token_or_id(tokenizer, encoding["eot"])
    start = time.perf_counter()
    result: dict[str, Any] = {}
    if shard_tokens is None:
        result["ids"] = tokenizer.encode_file(
            corpus, target, document_offsets=document_offsets, progress=out.progress, **encoding
        )
    else:
        n_ids, n_shards, n_made = tokenizer.encode_shards(
            corpus, target, shard_tokens, force=force, progress=out.progress, **encoding
        )
        result |= {"ids": n_ids, "shards": n_shards, "shards_made": n_made}
    result["seconds"] = time.perf_counter() - start
    first = target if shard_tokens is None else target / "shard-00000.bin"
    index = json.loads(index_of(first).read_bytes())
    result["sources"] = len(index["sources"]) if shard_tokens is None else index["n_sources"]
    sources = "1 source" if result["sources"] == 1 else f"{result['sources']:,} sources"
    out.say(f"encoded  {sources}, {result['ids']:,} ids in {result['seconds']:.2f} s")
    if shard_tokens is None:
        result["written"] = out.wrote([target, index_of(target)])
    else:
        found = f"; {n_shards - n_made:,} were there" if n_made < n_shards else ""
        out.say(f"wrote    {n_made:,} of {n_shards:,} shards in {target}{found}")
    out.finish(result)


def token_or_id(tokenizer: NativeTokenizer, word: str | None) -> str | int | None:
    """A special token as it is, and a number that is none as an int: "<|endoftext|>", "50256" -> 50256."""
    if word is not None and word not in tokenizer.special_tokens and word.isdecimal():
        return int(word)
    return word


def index_of(path: Path) -> Path:
    """What encode puts beside a file of ids: corpus.bin -> corpus.bin.idx.json."""
    return path.with_name(path.name + ".idx.json")

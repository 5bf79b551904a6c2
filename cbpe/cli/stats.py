"""cbpe stats: how a model does on a corpus."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np

from cbpe.cli.common import CORPUS, MODEL, OUTPUT, READING, SEPARATOR, Output, tokenizer_of
from cbpe.cli.info import shown


@click.command(
    short_help="How a model does on a corpus.",
    params=[
        CORPUS,
        MODEL,
        click.Option(
            ["--top"],
            type=click.IntRange(min=0),
            default=10,
            show_default=True,
            metavar="N",
            help="Show the N most frequent ids.",
        ),
        SEPARATOR,
        *READING,
        *OUTPUT,
    ],
)
@click.pass_obj
def stats(out: Output, /, corpus: tuple[str, ...], model: str, top: int, **given: Any) -> None:
    """Encode a corpus and say how it went: bytes, ids, bytes per id, frequent ids, ids that are never used.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs, such
    as s3://...; or - for stdin.

    Nothing is written, and memory does not grow with the corpus. Bytes are those that are encoded. A special token that
    stands in a text is text.

    \b
    Examples:
      cbpe stats corpus.txt -m mine.model
      cbpe stats corpus.txt more.txt -m o200k_base --top 3
      cbpe stats corpus.txt -m gpt2 --json
    """
    tokenizer = tokenizer_of(model)
    tokens = tokenizer._model.tokens(with_specials=False)
    start = time.perf_counter()
    counts = tokenizer.count_ids(corpus, progress=out.progress, **given)
    seconds = time.perf_counter() - start
    n_ids = int(counts.sum())
    used = np.flatnonzero(counts).tolist()
    n_bytes = sum(int(counts[number]) * len(tokens[number]) for number in used)
    unused = (len(tokens) - len(used)) / len(tokens)
    frequent = [int(number) for number in np.argsort(-counts, kind="stable")[:top] if counts[number]]
    result = {
        "bytes": n_bytes,
        "ids": n_ids,
        "bytes_per_id": n_bytes / n_ids if n_ids else None,
        "vocab_size": len(tokens),
        "ids_used": len(used),
        "share_unused": unused,
        "most_frequent": [
            {"id": number, "count": int(counts[number]), "share": counts[number] / n_ids, **shown(tokens[number])}
            for number in frequent
        ],
        "seconds": seconds,
    }
    ratio = f", {n_bytes / n_ids:.3f} bytes per id" if n_ids else ""
    out.show(f"encoded  {n_bytes:,} bytes to {n_ids:,} ids{ratio}, in {seconds:.2f} s")
    out.show(f"used     {len(used):,} of {len(tokens):,} ids; {unused:.1%} never (special tokens not counted)")
    for i, number in enumerate(frequent):
        count, token = int(counts[number]), shown(tokens[number])["token"]
        out.show(f"{'' if i else 'frequent':<8} {number:>8} {count:>14,} {count / n_ids:>7.2%}  '{token}'")
    out.finish(result)

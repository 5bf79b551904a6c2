"""cbpe stats: how a model does on a corpus, and how every smaller one would do on the corpus that it was trained on."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import Any

import click
import numpy as np

from cbpe.cli.common import MODEL, OUTPUT, READING, SEPARATOR, Output, tokenizer_of
from cbpe.cli.info import shown
from cbpe.native import NativeTokenizer


@click.command(
    short_help="How a model does on a corpus.",
    params=[
        click.Argument(["corpus"], nargs=-1, metavar="[CORPUS...]"),
        MODEL,
        click.Option(
            ["--top"],
            type=click.IntRange(min=0),
            default=10,
            show_default=True,
            metavar="N",
            help="Show the N most frequent ids.",
        ),
        click.Option(
            ["--hidden-size"],
            type=click.IntRange(min=1),
            default=1024,
            show_default=True,
            metavar="N",
            help="Without CORPUS: the width of the language model, for the parameters of its embedding.",
        ),
        SEPARATOR,
        *READING,
        *OUTPUT,
    ],
)
@click.pass_obj
def stats(
    out: Output, /, corpus: tuple[str, ...], model: str, top: int, hidden_size: int, **given: Any
) -> None:
    """Encode a corpus and say how it went: bytes, ids, bytes per id, frequent ids, ids that are never used.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs,
    such as s3://...; or - for stdin (-- -.jsonl if JSONL comes). Memory does not grow with it. Bytes are those that
    are encoded; what a tokenizer of words does not know counts as its unk is written. A special token that stands in a
    text is text.

    Without CORPUS, say what was recorded when the model was trained (MODEL's .stats.json file): the tokens of its
    corpus at the usual vocabulary sizes, with --json at every size, and what each size costs. Nothing is written.

    \b
    Examples:
      cbpe stats corpus.txt -m mine.model
      cbpe stats corpus.txt more.txt -m o200k_base --top 3
      cbpe stats corpus.txt -m gpt2 --json
      cbpe stats -m mine.model --hidden-size 768
    """
    tokenizer = tokenizer_of(model)
    if not corpus:
        advise(out, tokenizer, hidden_size)
        return
    tokens = tokenizer._model.tokens(with_specials=False)
    start = time.perf_counter()
    counts = tokenizer.count_ids(corpus, progress=out.progress, **given)
    seconds = time.perf_counter() - start
    n_ids = int(counts.sum())
    used = np.flatnonzero(counts).tolist()
    # what a tokenizer of words does not know has the id of its unk, which is a special token
    tokens |= {number: tokenizer.decode_single_token_bytes(number) for number in used if number not in tokens}
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


def advise(out: Output, tokenizer: NativeTokenizer, hidden_size: int) -> None:
    """What training recorded. Raises NoStatisticsError."""
    curve = tokenizer.compression_curve()
    with contextlib.redirect_stdout(None) if out.as_json else contextlib.nullcontext():
        rows = tokenizer.advise(hidden_size=hidden_size)
    out.finish(
        {
            "curve": {"vocab_sizes": curve.vocab_sizes.tolist(), "tokens": curve.tokens.tolist()},
            "advice": [dataclasses.asdict(row) for row in rows],
        }
    )

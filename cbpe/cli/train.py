"""cbpe train: a corpus, or a chunk store, becomes a model."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cbpe import BasicTokenizer, ChunkStore, RegexTokenizer
from cbpe.cli.common import (
    COUNTING,
    OUTPUT,
    PATTERN,
    Output,
    check_outputs,
    pattern_of,
    taken,
    with_suffix,
)
from cbpe.formats import minbpe
from cbpe.special import check_word

LEARNING = [
    click.Option(
        ["--vocab-size"],
        required=True,
        type=click.IntRange(min=256),
        metavar="N",
        help="The 256 bytes and N - 256 merges; special tokens come on top.",
    ),
    click.Option(
        ["--min-frequency"],
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Stop at the first pair that is seen less often.",
    ),
    click.Option(["--verbose"], is_flag=True, help="Print a line a merge."),
]


@click.command(
    short_help="A corpus becomes a model.",
    params=[
        click.Argument(["corpus"], nargs=-1, metavar="[CORPUS...]"),
        click.Option(
            ["-o", "--output", "prefix"],
            required=True,
            type=Path,
            metavar="PREFIX",
            help="Write PREFIX.model and PREFIX.vocab.",
        ),
        *LEARNING,
        *PATTERN,
        *COUNTING,
        click.Option(
            ["--save-chunks"], type=Path, metavar="STORE", help="Keep what was counted, to train from it again."
        ),
        click.Option(["--from-chunks"], metavar="STORE", help="Train on what was counted before, not on CORPUS."),
        *OUTPUT,
    ],
)
@click.pass_obj
def train(
    out: Output,
    /,
    corpus: tuple[str, ...],
    prefix: Path,
    pattern: str | None,
    basic: bool,
    save_chunks: Path | None,
    from_chunks: str | None,
    **given: Any,
) -> None:
    """Train a tokenizer on a corpus, of which each file, JSONL line or Parquet row is a text of its own.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs, such
    as s3://...; or - for stdin.

    Writes PREFIX.model, which cbpe and minbpe load, and PREFIX.vocab, which shows the tokens to people; whole or not at
    all. Special tokens are numbered after the merges. If the corpus does not support N ids, training stops early with a
    warning.

    \b
    Examples (the last two count once and train twice):
      cbpe train corpus.txt --vocab-size 1000 --special "<|endoftext|>" -o mine
      cbpe train corpus.txt more.txt --vocab-size 600 --save-chunks a.chunks -o a
      cbpe train --from-chunks a.chunks --vocab-size 400 -o b
    """
    counting, learning = taken(given, COUNTING), taken(given, LEARNING)
    out.if_stopped = "no model was written"
    models = [with_suffix(prefix, suffix) for suffix in (".model", ".vocab")]
    check_outputs(models + ([save_chunks] if save_chunks else []), [*corpus, *filter(None, [from_chunks])])
    if from_chunks and (corpus or save_chunks):
        raise click.UsageError("--from-chunks: not allowed with CORPUS or --save-chunks")
    if not (corpus or from_chunks):
        raise click.UsageError("nothing to train on: name the files of a CORPUS, or --from-chunks STORE")
    split_pattern = pattern_of(pattern, basic)
    check_words(split_pattern or "", counting["special_tokens"])

    start = time.perf_counter()
    if from_chunks:
        store = ChunkStore.open(from_chunks)
        if not (pattern or basic):
            split_pattern = store.pattern
    else:
        store = ChunkStore.from_files(corpus, pattern=split_pattern, progress=out.progress, **counting)
    counted = {"bytes": store.total_bytes, "chunks": len(store)}
    seconds = {"counting": time.perf_counter() - start}
    done = "opened  " if from_chunks else "counted "
    numbers = f"{store.total_bytes:,} bytes, {len(store):,} distinct chunks"
    out.say(f"{done} {numbers} in {seconds['counting']:.2f} s")
    if save_chunks:
        store.save(save_chunks)

    start = time.perf_counter()
    tokenizer = BasicTokenizer() if split_pattern is None else RegexTokenizer(split_pattern)
    with contextlib.redirect_stdout(sys.stderr) if out.as_json else contextlib.nullcontext():       # minbpe's lines
        tokenizer.train_from_chunks(
            store, special_tokens=counting["special_tokens"] or None, progress=out.progress, **learning
        )
    seconds["merging"] = time.perf_counter() - start
    out.say(f"merged   {len(tokenizer.merges):,} pairs in {seconds['merging']:.2f} s")

    tokenizer.save(str(prefix))
    written = out.wrote(models + ([save_chunks] if save_chunks else []))
    out.finish(
        {
            **counted,
            "merges": len(tokenizer.merges),
            "special_tokens": tokenizer.special_tokens,
            "seconds": seconds,
            "written": written,
        }
    )


def check_words(pattern: str, special_tokens: Sequence[str]) -> None:
    """Raises what would be wrong with the model file in the end, were it only its pattern and its special tokens."""
    words = [check_word(word) for word in special_tokens]
    if len(set(words)) < len(words):
        raise click.UsageError(f"--special: given twice: {next(w for w in words if words.count(w) > 1)!r}")
    minbpe.model_text(pattern, dict(zip(words, range(256, 256 + len(words)), strict=True)), {})

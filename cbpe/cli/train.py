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
    MEMORY,
    OUTPUT,
    PATTERN,
    Output,
    check_outputs,
    pattern_of,
    prefix_of,
    taken,
    tokenizer_of,
    with_suffix,
)
from cbpe.formats import minbpe
from cbpe.native import check_room
from cbpe.openai import OpenAITokenizer
from cbpe.special import check_word
from cbpe.splitting import Stages

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
    click.Option(
        ["--min-count"],
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Leave out chunks that occur less often: less time and memory, but no longer exactly the same merges.",
    ),
    click.Option(
        ["--checkpoint"],
        type=Path,
        metavar="PREFIX",
        help="Write the merges so far to PREFIX.model now and then, and when training is stopped.",
    ),
    click.Option(["--verbose"], is_flag=True, help="Print a line for each merge."),
]


@click.command(
    short_help="A corpus becomes a model.",
    params=[
        click.Argument(["corpus"], nargs=-1, metavar="[CORPUS...]"),
        click.Option(
            ["-o", "--output", "prefix"],
            required=True,
            callback=prefix_of,
            metavar="PREFIX",
            help="Write PREFIX.model, PREFIX.vocab and PREFIX.stats.json.",
        ),
        *LEARNING,
        click.Option(
            ["--resume"], is_flag=True, help="Go on from the --checkpoint, if it is there; to the same result."
        ),
        click.Option(
            ["--extend"], metavar="MODEL", help="Keep the merges of a .model file and learn more behind them."
        ),
        *PATTERN,
        *COUNTING,
        *MEMORY,
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
    resume: bool,
    extend: str | None,
    save_chunks: Path | None,
    from_chunks: str | None,
    **given: Any,
) -> None:
    """Train a tokenizer on a corpus, of which each file, JSONL line or Parquet row is a text of its own.

    CORPUS is text, .jsonl or .parquet files, also packed (.gz, .bz2, .xz, .zst); folders and globs of them; URLs, such
    as s3://...; or - for stdin (-- -.jsonl if JSONL comes).

    Writes PREFIX.model, which cbpe and minbpe load; PREFIX.vocab, which shows the tokens to people; and
    PREFIX.stats.json, from which cbpe stats tells how every smaller vocabulary would do. Each is written whole or not
    at all. Special tokens are numbered after the merges. If the corpus does not support N ids, training stops early
    with a warning.

    \b
    Examples (the second and third count once and train twice):
      cbpe train corpus.txt --vocab-size 1000 --special "<|endoftext|>" -o mine
      cbpe train corpus.txt more.txt --vocab-size 600 --save-chunks a.chunks -o a
      cbpe train --from-chunks a.chunks --vocab-size 400 -o b
      cbpe train corpus.txt --vocab-size 1000 --checkpoint part --resume -o mine
      cbpe train more.txt --extend b.model --vocab-size 450 -o c
    """
    counting, learning, memory = (taken(given, group) for group in (COUNTING, LEARNING, MEMORY))
    out.if_stopped = "no model was written"
    models = [with_suffix(prefix, suffix) for suffix in (".model", ".vocab", ".stats.json")]
    checkpoint = with_suffix(learning["checkpoint"], ".model") if learning["checkpoint"] else None
    stores = [save_chunks] if save_chunks else []
    inputs = [from_chunks] if from_chunks else []
    check_outputs([*models, *stores], inputs, corpus)
    if checkpoint:                          # the model may take its place
        check_outputs([checkpoint, *stores], inputs, corpus)
    if from_chunks and (corpus or save_chunks):
        raise click.UsageError("--from-chunks: not allowed with CORPUS or --save-chunks")
    if not (corpus or from_chunks):
        raise click.UsageError("nothing to train on: name the files of a CORPUS, or --from-chunks STORE")
    if resume and (extend or not checkpoint):
        raise click.UsageError("--resume: needs --checkpoint, and goes without --extend")
    if checkpoint:
        out.if_stopped = f"--resume goes on from the merges in {checkpoint}"
        if resume and checkpoint.exists():
            extend = str(checkpoint)
    split_pattern = pattern_of(pattern, basic)
    known = None
    if extend:
        known = known_merges(extend, learning["vocab_size"], counting["special_tokens"])
        own_pattern = known.pattern if isinstance(known, RegexTokenizer) else None
        if (pattern or basic) and split_pattern != own_pattern:
            raise ValueError(f"{extend}: splits texts by {own_pattern!r}, not by {split_pattern!r}")
        split_pattern = own_pattern
    check_words(split_pattern or "", counting["special_tokens"])

    start = time.perf_counter()
    if from_chunks:
        store = ChunkStore.open(from_chunks)
        if not (pattern or basic or known):
            if isinstance(store.pattern, Stages):
                raise ValueError(f"{from_chunks}: split in stages, which a .model file cannot hold")
            split_pattern = store.pattern
    else:
        store = ChunkStore.from_files(corpus, pattern=split_pattern, progress=out.progress, **counting, **memory)
    if not store.total_bytes:
        raise ValueError("there is no text to train on, or the pattern matches none of it")
    counted = {"bytes": store.total_bytes, "chunks": len(store)}
    seconds = {"counting": time.perf_counter() - start}
    done = "opened  " if from_chunks else "counted "
    numbers = f"{store.total_bytes:,} bytes, {len(store):,} distinct chunks"
    out.say(f"{done} {numbers} in {seconds['counting']:.2f} s")
    if save_chunks:
        store.save(save_chunks)

    start = time.perf_counter()
    tokenizer = known or (BasicTokenizer() if split_pattern is None else RegexTokenizer(split_pattern))
    learn = tokenizer.extend if known else tokenizer.train_from_chunks
    with contextlib.redirect_stdout(sys.stderr) if out.as_json else contextlib.nullcontext():       # minbpe's lines
        learn(
            store, special_tokens=counting["special_tokens"] or None, progress=out.progress, **learning, **memory
        )
    seconds["merging"] = time.perf_counter() - start
    out.say(f"merged   {len(tokenizer.merges):,} pairs in {seconds['merging']:.2f} s")

    tokenizer.save(str(prefix))
    written = out.wrote(models + stores)
    out.finish(
        {
            **counted,
            "merges": len(tokenizer.merges),
            "special_tokens": tokenizer.special_tokens,
            "seconds": seconds,
            "written": written,
        }
    )


def known_merges(model: str, vocab_size: int, special_tokens: Sequence[str]) -> BasicTokenizer | RegexTokenizer:
    """The tokenizer that training goes on from. Raises ValueError if that cannot be, or will not in the end."""
    tokenizer = tokenizer_of(model)
    if isinstance(tokenizer, OpenAITokenizer) or not isinstance(tokenizer, (BasicTokenizer, RegexTokenizer)):
        raise ValueError(f"{model}: is an encoding, which is complete as it is; a .model file can be extended")
    tokenizer._model_text(tokenizer._model)         # what comes of it must go into a .model file
    fixed = {} if special_tokens else tokenizer.special_tokens
    check_room(len(tokenizer.merges), vocab_size, fixed)
    return tokenizer


def check_words(pattern: str, special_tokens: Sequence[str]) -> None:
    """Raises what would be wrong with the model file in the end, were it only its pattern and its special tokens."""
    words = [check_word(word) for word in special_tokens]
    if len(set(words)) < len(words):
        raise click.UsageError(f"--special: given twice: {next(w for w in words if words.count(w) > 1)!r}")
    minbpe.model_text(pattern, dict(zip(words, range(256, 256 + len(words)), strict=True)), {})

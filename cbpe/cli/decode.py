"""cbpe decode: ids, as a file that cbpe encode wrote or as numbers in a text, become text."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import numpy as np

from cbpe.cli.common import MODEL, OUTPUT, Output, check_outputs, tokenizer_of
from cbpe.encoding.files import read_index
from cbpe.files import atomic_write

BLOCK = 1 << 20         # bytes that are read at a time

_NUMBER = re.compile(rb"[^\s,;\[\]]+")


@click.command(
    short_help="Ids become text.",
    params=[
        click.Argument(["ids"], nargs=-1, metavar="[IDS...]"),
        MODEL,
        click.Option(
            ["-o", "--output", "target"], type=Path, metavar="TEXT", help="Write the file TEXT, and not to stdout."
        ),
        click.Option(
            ["--dtype"],
            type=click.Choice(["uint16", "uint32"]),
            help="IDS are binary, little-endian, of this type, and no .idx.json says what they are.",
        ),
        click.Option(
            ["--skip"], type=click.IntRange(min=0), default=0, metavar="N", help="Leave out the first N ids."
        ),
        click.Option(["--limit"], type=click.IntRange(min=0), metavar="N", help="Decode N ids at most."),
        click.Option(["--force"], is_flag=True, help="Decode ids that were made with another model, too."),
        *OUTPUT,
    ],
)
@click.pass_obj
def decode(
    out: Output,
    /,
    ids: tuple[str, ...],
    model: str,
    target: Path | None,
    dtype: str | None,
    skip: int,
    limit: int | None,
    force: bool,
) -> None:
    """Decode files of ids, one after another, or stdin where there is none, or for "-".

    A file with a .idx.json beside it is one that cbpe encode wrote. Any other is a text of numbers, parted by blanks or
    commas, brackets allowed, unless --dtype says that it is binary.

    Writes the bytes that the ids stand for, exactly and with nothing added, to stdout or to TEXT; TEXT is written whole
    or not at all. With --json and without TEXT, the text is in the object, with U+FFFD for what is not UTF-8.

    \b
    Examples:
      cbpe decode corpus.bin -m mine.model -o again.txt
      cbpe decode shards/shard-00001.bin -m mine.model --skip 100 --limit 20
      echo "[15339, 1917]" | cbpe decode -m gpt4
    """
    if target:
        check_outputs([target], [model, *(name for path in ids for name in (path, f"{path}.idx.json"))])
    for name in ids:
        if name != "-":
            os.stat(name)       # of several files none is decoded if one is not there
    tokenizer = tokenizer_of(model)
    blocks = itertools.chain.from_iterable(
        blocks_of(name, dtype, None if force else tokenizer._model.sha256) for name in ids or ["-"]
    )
    n_ids = n_bytes = 0
    text = []
    with contextlib.ExitStack() as stack:
        file: IO[bytes] | None = None
        if target:
            file = stack.enter_context(atomic_write(target))
        elif not out.as_json:
            if sys.stdout is None:
                raise ValueError("there is no standard output; -o names a file")
            file = sys.stdout.buffer
        for block in portion(blocks, skip, limit):
            data = tokenizer.decode_bytes(block)
            n_ids, n_bytes = n_ids + len(block), n_bytes + len(data)
            if file:
                write_all(file, data)
            else:
                text.append(data)
    result: dict[str, Any] = {"ids": n_ids, "bytes": n_bytes}
    if target:
        out.say(f"decoded  {n_ids:,} ids to {n_bytes:,} bytes")
        result["written"] = out.wrote([target])
    else:
        result["text"] = b"".join(text).decode("utf-8", "replace")
    out.finish(result)


def write_all(file: IO[bytes], data: bytes) -> None:
    """Writes data, all of it even if the file has no buffer, as stdout has none under PYTHONUNBUFFERED."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += file.write(view[done:])


def blocks_of(name: str, dtype: str | None, sha256: str | None) -> Iterator[Any]:
    """The ids of a file, or of "-", in blocks: arrays or lists.

    sha256: of the model that they must be made with if it is known which one was; None: of any. Raises ValueError for
    what is no id, or not of this model.
    """
    index = f"{name}.idx.json"
    if name != "-" and os.path.exists(index):
        known = read_index(index)
        dtype, made_with = known["dtype"], known["model_sha256"]
        if sha256 not in (None, made_with):
            raise ValueError(f"{name}: made with another model, {made_with[:12]}...; --force decodes it all the same")
    elif name.endswith(".bin") and dtype is None:
        raise ValueError(f"{name}: there is no {index} beside it; say --dtype uint16 or uint32")
    if name == "-" and sys.stdin is None:
        raise ValueError("-: there is no standard input")
    with click.open_file(name, "rb") as file:
        yield from numbers_of(file, name) if dtype is None else arrays_of(file, name, np.dtype(dtype))


def arrays_of(file: IO[bytes], name: str, dtype: np.dtype[Any]) -> Iterator[Any]:
    """The ids of a binary file."""
    rest = b""
    while data := file.read(BLOCK):
        data = rest + data
        whole = len(data) - len(data) % dtype.itemsize
        yield np.frombuffer(data[:whole], dtype.newbyteorder("<"))
        rest = data[whole:]
    if rest:
        raise ValueError(f"{name}: its size is no multiple of {dtype.itemsize}, as one of {dtype} would be")


def numbers_of(file: IO[bytes], name: str) -> Iterator[list[int]]:
    """The ids of a text of numbers: "[15339, 1917]" -> 15339, 1917."""
    rest = b""
    ended = False
    while not ended:
        data = file.read(BLOCK)
        ended = not data
        words = _NUMBER.findall(rest + data)
        # a number may go on in the next block, but none is as long as one
        rest = words.pop() if words and not ended and _NUMBER.fullmatch(data[-1:]) and len(words[-1]) < 20 else b""
        for word in words:
            if not (word.isdigit() and len(word) < 20):
                shown = word[:20].decode("utf-8", "replace")
                raise ValueError(f"{name}: no id: {shown!r}")
        yield [int(word) for word in words]


def portion(blocks: Iterator[Any], skip: int, limit: int | None) -> Iterator[Any]:
    """Ids skip to skip + limit of those in the blocks, in blocks."""
    for block in blocks:
        part = block[skip : None if limit is None else skip + limit]
        skip = max(0, skip - len(block))
        if limit is not None:
            limit -= len(part)
        yield part
        if limit == 0:
            return

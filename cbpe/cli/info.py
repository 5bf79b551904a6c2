"""cbpe info: what a file is, as far as it says so itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import numpy as np

from cbpe import ChunkStore, render_token
from cbpe.cli.common import OUTPUT, Output, name_of, tokenizer_of
from cbpe.encoding.files import read_index
from cbpe.splitting import Stages
from cbpe.training.store import MAGIC

MOST = 20           # lines of text that a list takes: a corpus may have a million files


@click.command(
    short_help="What a file is: a model, a chunk store, ids.",
    params=[
        click.Argument(["path"], metavar="FILE"),
        click.Option(
            ["--top"],
            type=click.IntRange(min=0),
            default=10,
            show_default=True,
            metavar="N",
            help="Show the N longest tokens of a model, the N most frequent chunks of a store.",
        ),
        *OUTPUT,
    ],
)
@click.pass_obj
def info(out: Output, /, path: str, top: int) -> None:
    """Say what a file is: its kind, sizes, pattern, special tokens, largest tokens, hash.

    FILE is what -m takes elsewhere: a tokenizer's file, gpt4, an encoding or a model of OpenAI's; or a chunk store; a
    file of ids or its .idx.json; or a folder of shards. Nothing is written.

    \b
    Examples:
      cbpe info mine.model
      cbpe info corpus.chunks --top 3
      cbpe info corpus.bin --json
    """
    if os.path.isdir(path) and not os.path.exists(os.path.join(path, "tokenizer.json")):
        result = of_shards(Path(path))
    elif path.endswith(".idx.json") or os.path.exists(f"{path}.idx.json"):
        result = of_ids(Path(path.removesuffix(".idx.json")))
    elif is_store(path):
        result = of_store(path, top)
    else:
        result = of_model(path, top)
    for key, value in result.items():
        show(out, key.replace("_", " "), value)
    out.finish(result)


def is_store(path: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def of_model(path: str, top: int) -> dict[str, Any]:
    tokenizer = tokenizer_of(path)
    model = tokenizer._model
    tokens = model.tokens(with_specials=False)
    longest = sorted(tokens, key=lambda number: (-len(tokens[number]), number))[:top]
    return {
        "kind": f"model of a {type(tokenizer).__name__}",
        "file_bytes": os.path.getsize(path) if os.path.isfile(path) else None,
        "sha256": model.sha256,
        "pattern": model.pattern or None,
        "pattern_name": name_of(model.pattern),
        "vocab_size": len(tokens),
        "merges": len(model.pairs),
        "max_id": model.max_id,
        "special_tokens": model.specials,
        "token_bytes": sum(map(len, tokens.values())),
        "longest_tokens": [{"id": number, **shown(tokens[number])} for number in longest],
    }


def of_store(path: str, top: int) -> dict[str, Any]:
    with ChunkStore.open(path) as store:
        counts = np.array(store.counts)
        order = np.argsort(counts, kind="stable")[::-1][:top]
        bounds = [(int(store.offsets[i]), int(store.offsets[i + 1])) for i in order]
        return {
            "kind": "chunk store",
            "file_bytes": os.path.getsize(path),
            "pattern": store.pattern.stages if isinstance(store.pattern, Stages) else store.pattern,
            "pattern_name": name_of(store.pattern),
            "bytes": store.total_bytes,
            "chunks": int(counts.sum()),
            "distinct_chunks": len(store),
            "distinct_bytes": len(store.data),
            "seen_once": int((counts == 1).sum()),
            "sources": store.sources,
            "most_frequent_chunks": [
                {"count": int(counts[i]), **shown(store.data[start:stop].tobytes())}
                for i, (start, stop) in zip(order, bounds, strict=True)
            ],
        }


def of_ids(path: Path) -> dict[str, Any]:
    index = read_index(f"{path}.idx.json")
    size = path.stat().st_size
    expected = index["count"] * np.dtype(index["dtype"]).itemsize
    if size != expected:
        raise ValueError(f"{path}: damaged: {size:,} bytes long, and its .idx.json says {expected:,}")
    return {"kind": "ids", "file_bytes": size, **index}


def of_shards(folder: Path) -> dict[str, Any]:
    files = sorted(folder.glob("shard-*.bin.idx.json"))
    if not files:
        raise ValueError(f"{folder}: a folder without shards")
    shards = [of_ids(Path(str(file).removesuffix(".idx.json"))) for file in files]
    common = ("dtype", "shard_tokens", "model_sha256", "max_id", "eot", "errors", "n_sources", "cbpe_version")
    for file, shard in zip(files, shards, strict=True):
        if not {*common, "shard", "next"} <= shard.keys():
            raise ValueError(f"{file}: damaged: it does not say what the shard is")
    return {
        "kind": "shards of ids",
        "shards": len(shards),
        "complete": shards[-1]["next"] is None and shards[-1]["shard"] == len(shards) - 1,
        "ids": sum(shard["count"] for shard in shards),
        "file_bytes": sum(shard["file_bytes"] for shard in shards),
        **{key: shards[0][key] for key in common},
    }


def shown(token: bytes) -> dict[str, Any]:
    """A token for people and for machines."""
    return {"token": render_token(token), "hex": token.hex()}


def show(out: Output, key: str, value: Any) -> None:
    """A line for a value; for many values a line each."""
    items = list(value.items()) if isinstance(value, dict) else value if isinstance(value, list) else [value]
    lines = [in_words(item) for item in items[:MOST]] or ["-"]
    if len(items) > MOST:
        lines.append(f"and {len(items) - MOST:,} more, which --json lists")
    for i, line in enumerate(lines):
        out.show(f"{'' if i else key:<21}{line}")


def in_words(value: Any) -> str:
    """1000 -> "1,000", None -> "-", ("<a>", 1000) -> "'<a>' 1000", {"id": 97, "token": "a"} -> "97  'a'"."""
    if isinstance(value, dict):
        number = f"{value['id']:>8}" if "id" in value else f"{value['count']:>14,}"
        return f"{number}  '{value['token']}'"
    if isinstance(value, tuple):
        return f"{value[0]!r} {value[1]}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is None else str(value)

"""NAME.stats.json, which lies beside NAME.model and holds what its training has recorded (see curve).

A JSON object: "format" and "version", which a reader checks; "merges_sha256", the hash of the merges that the numbers
belong to, and "pattern", so that a file left from another model is not believed; "total_bytes"; "counts" and "tokens",
a number each for every merge.

The hash is hashlib.sha256 over left and right id of each merge, in order, as little-endian numbers of 32 bits.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from cbpe.curve import Statistics

SUFFIX = ".stats.json"
_FORMAT = "cbpe training statistics"
_VERSION = 1


def merges_sha256(pairs: npt.NDArray[np.uint32]) -> str:
    """The hash of merges uint32[m, 2]."""
    return hashlib.sha256(pairs.astype("<u4").tobytes()).hexdigest()


def text(statistics: Statistics, pairs: npt.NDArray[np.uint32], pattern: str) -> str:
    """The content of the file for a model of these merges, uint32[m, 2], and this pattern."""
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "merges_sha256": merges_sha256(pairs),
        "pattern": pattern,
        "total_bytes": statistics.total_bytes,
        "counts": statistics.counts.tolist(),
        "tokens": statistics.tokens.tolist(),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n"


def load(path: str | os.PathLike[str], pairs: npt.NDArray[np.uint32], pattern: str) -> Statistics | None:
    """The statistics of these merges, or None if the file is not there, is damaged, newer or another model's."""
    try:
        with open(path, "rb") as file:
            content: Any = json.loads(file.read())
        if (
            content["format"] != _FORMAT
            or content["version"] != _VERSION
            or content["merges_sha256"] != merges_sha256(pairs)
            or content["pattern"] != pattern
        ):
            return None
        counts, tokens, before = map(_int64s, (content["counts"], content["tokens"], [content["total_bytes"]]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if len(counts) != len(pairs) or len(tokens) != len(pairs):
        return None
    totals = np.concatenate([before, tokens])
    if np.min(counts, initial=0) < 0 or totals[-1] < 0 or (totals[1:] > totals[:-1]).any():
        return None
    return Statistics(counts, tokens, int(before[0]))


def _int64s(numbers: Any) -> npt.NDArray[np.int64]:
    """[1, 2] -> int64 array. Raises TypeError for what is no list of ints, OverflowError beyond 64 bits."""
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise TypeError
    return np.array(numbers, dtype=np.int64)

"""Many texts at once: from texts to ids end to end, and where each text's begin.

In: for each text its stretches and the special tokens between them. Out: the ids of all, as one array with offsets or
as a list for each text. Only the stretches are encoded; threads share them, for the encoder works without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from cbpe.encoding.encoder import Encoder
from cbpe.splitting.split import Splitter
from cbpe.threads import in_order

ENOUGH = 1 << 18            # bytes that make a thread worth its while

T = TypeVar("T")
Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
Parts = list[bytes | int]


def encode_flat(encoder: Encoder, splitter: Splitter, texts: list[Parts], num_threads: int) -> tuple[Ids, Offsets]:
    """The ids of all texts end to end, uint32[n], and offsets, int64[len(texts) + 1]: text i has ids[o[i]:o[i + 1]].

    [[b"a", 300], [b"b"]] -> [97, 300, 98], [0, 2, 3]
    """
    flat = [part for parts in texts for part in parts]
    stretches = [part for part in flat if isinstance(part, bytes)]
    ids, offsets = _encode_stretches(encoder, splitter, stretches, num_threads)
    if len(flat) == len(texts) == len(stretches):
        return ids, offsets
    is_special = np.array([isinstance(part, int) for part in flat])
    lengths = np.ones(len(flat), np.int64)
    lengths[~is_special] = np.diff(offsets)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    is_special_id = np.zeros(begins[-1], bool)
    is_special_id[begins[:-1][is_special]] = True
    merged = np.empty(begins[-1], np.uint32)
    merged[~is_special_id] = ids
    merged[is_special_id] = [part for part in flat if isinstance(part, int)]
    first_parts = np.concatenate([[0], np.cumsum([len(parts) for parts in texts], dtype=np.int64)])
    return merged, begins[first_parts]


def encode_lists(encoder: Encoder, splitter: Splitter, texts: list[Parts], num_threads: int) -> list[list[int]]:
    """The ids of each text: [[b"a", 300], [b"b"]] -> [[97, 300], [98]]."""
    stretches = [part for parts in texts for part in parts if isinstance(part, bytes)]
    encoded = iter(_encode_stretches_to_lists(encoder, splitter, stretches, num_threads))
    lists = []
    for parts in texts:
        ids: list[int] = []
        for part in parts:
            more = [part] if isinstance(part, int) else next(encoded)
            if ids:
                ids += more
            else:
                ids = more          # no copy where there is nothing else
        lists.append(ids)
    return lists


def _encode_stretches(
    encoder: Encoder, splitter: Splitter, stretches: list[bytes], num_threads: int
) -> tuple[Ids, Offsets]:
    """encode_flat for texts without special tokens."""
    arrays = _shared_out(lambda stretch: encoder.encode_to_numpy(stretch, splitter), stretches, num_threads)
    offsets = np.zeros(len(arrays) + 1, np.int64)
    np.cumsum([len(ids) for ids in arrays], out=offsets[1:])
    return np.concatenate([np.empty(0, np.uint32), *arrays]), offsets


def _encode_stretches_to_lists(
    encoder: Encoder, splitter: Splitter, stretches: list[bytes], num_threads: int
) -> list[list[int]]:
    """encode_lists for texts without special tokens."""
    return _shared_out(lambda stretch: encoder.encode(stretch, splitter), stretches, num_threads)


def _shared_out(encode: Callable[[bytes], T], stretches: list[bytes], num_threads: int) -> list[T]:
    """encode(stretch) for each, by as many of the threads as there is work for."""
    num_threads = min(num_threads, sum(map(len, stretches)) // ENOUGH)
    if num_threads <= 1:
        return list(map(encode, stretches))
    groups = in_order(lambda group: list(map(encode, group)), _groups(stretches), num_threads)
    with closing(groups):
        return [result for group in groups for result in group]


def _groups(stretches: list[bytes]) -> Iterator[list[bytes]]:
    """The stretches in groups of ENOUGH bytes, or of one that is longer: what a thread takes at a time."""
    group: list[bytes] = []
    size = 0
    for stretch in stretches:
        group.append(stretch)
        size += len(stretch)
        if size >= ENOUGH:
            yield group
            group, size = [], 0
    if group:
        yield group

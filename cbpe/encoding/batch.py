"""Many texts at once: from texts to ids end to end, and where each text's begin.

In: each text as a whole, or its stretches and the special tokens between them. Out: the ids of all, as one array with
offsets or as a list for each text. The encoder takes the stretches, all at once; here special tokens are put between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cbpe.encoding.encoder import Encoder
from cbpe.splitting.split import Splitter

if TYPE_CHECKING:
    from typing import TypeGuard

Ids = npt.NDArray[np.uint32]
Offsets = npt.NDArray[np.int64]
Parts = str | list[str | bytes | int]


def parts_of(text: Parts) -> list[str | bytes | int]:
    """"ab" -> ["ab"]; what is a list already stays one."""
    return [text] if isinstance(text, str) else text


def are_whole(texts: list[Parts]) -> TypeGuard[list[str]]:
    return all(isinstance(text, str) for text in texts)


def encode_flat(encoder: Encoder, splitter: Splitter, texts: list[Parts], num_threads: int) -> tuple[Ids, Offsets]:
    """The ids of all texts end to end, uint32[n], and offsets, int64[len(texts) + 1]: text i has ids[o[i]:o[i + 1]].

    [[b"a", 300], "b"] -> [97, 300, 98], [0, 2, 3]
    """
    if are_whole(texts):
        return encoder.encode_batch_to_numpy(texts, splitter, num_threads)
    split_texts = [parts_of(text) for text in texts]
    flat = [part for parts in split_texts for part in parts]
    stretches = [part for part in flat if not isinstance(part, int)]
    ids, offsets = encoder.encode_batch_to_numpy(stretches, splitter, num_threads)
    is_special = np.array([isinstance(part, int) for part in flat])
    lengths = np.ones(len(flat), np.int64)
    lengths[~is_special] = np.diff(offsets)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    is_special_id = np.zeros(begins[-1], bool)
    is_special_id[begins[:-1][is_special]] = True
    merged = np.empty(begins[-1], np.uint32)
    merged[~is_special_id] = ids
    merged[is_special_id] = [part for part in flat if isinstance(part, int)]
    first_parts = np.concatenate([[0], np.cumsum([len(parts) for parts in split_texts], dtype=np.int64)])
    return merged, begins[first_parts]


def encode_lists(encoder: Encoder, splitter: Splitter, texts: list[Parts], num_threads: int) -> list[list[int]]:
    """The ids of each text: [[b"a", 300], "b"] -> [[97, 300], [98]]."""
    if are_whole(texts):
        return encoder.encode_batch(texts, splitter, num_threads)
    stretches = [part for parts in texts for part in parts_of(parts) if not isinstance(part, int)]
    encoded = iter(encoder.encode_batch(stretches, splitter, num_threads))
    lists = []
    for parts in texts:
        ids: list[int] = []
        for part in parts_of(parts):
            more = [part] if isinstance(part, int) else next(encoded)
            if ids:
                ids += more
            else:
                ids = more          # no copy where there is nothing else
        lists.append(ids)
    return lists

"""Makes cbpe/data/cl100k.bin, GPT-4's merges, from tiktoken's rank file cl100k_base.tiktoken.

    python scripts/make_gpt4_data.py PATH/cl100k_base.tiktoken

A rank file holds a line per token, its bytes in base64 and its rank, which is its id; how the token was merged it does
not say. Merging the token's bytes with the ranks below its own ends in the two tokens that it was made of. The 256
tokens of one byte hold the ranks 0..255, though not in the order of the bytes: their order is kept too.

The file made is described in cbpe/data/cl100k.py. Versions of zlib may pack it differently; what it holds is the same.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cbpe.data import cl100k


def read_ranks(data: bytes) -> dict[bytes, int]:
    """b"IQ== 0\\nIg== 1\\n" -> {b"!": 0, b'"': 1}"""
    ranks = {}
    for line in data.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


def parents(ranks: dict[bytes, int], token: bytes, rank: int) -> tuple[int, int]:
    """The ids that were merged into the token: with {a: 0, b: 1, ab: 2, abb: 3}, b"abb" of rank 3 gives (2, 1)."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        candidates = [ranks.get(left + right, rank) for left, right in pairwise(parts)]
        lowest = min(candidates)
        if lowest >= rank:
            break
        at = candidates.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    if len(parts) != 2:
        raise ValueError(f"the token {token!r} of rank {rank} is not a merge of two tokens of lower ranks")
    return ranks[parts[0]], ranks[parts[1]]


def recover(ranks: dict[bytes, int]) -> tuple[npt.NDArray[np.uint32], bytes]:
    """The pairs in the order of their ids 256, 257, ... and the id of each byte value."""
    tokens = sorted(ranks, key=ranks.__getitem__)
    if [ranks[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError("the ranks are not 0, 1, 2, ...")
    if any(len(token) != 1 for token in tokens[:256]) or len(set(tokens[:256])) != 256:
        raise ValueError("the first 256 ranks are not those of the bytes")
    byte_ids = bytes(ranks[bytes([value])] for value in range(256))
    pairs = [parents(ranks, token, rank) for rank, token in enumerate(tokens) if rank >= 256]
    return np.array(pairs, dtype=np.uint32), byte_ids


def main() -> None:
    parser = argparse.ArgumentParser(description="Make cbpe/data/cl100k.bin from tiktoken's cl100k_base.tiktoken.")
    parser.add_argument("ranks", type=Path, help="path of cl100k_base.tiktoken")
    parser.add_argument("-o", "--output", type=Path, default=Path(cl100k.__file__).with_name("cl100k.bin"))
    arguments = parser.parse_args()
    source = arguments.ranks.read_bytes()
    sha256 = hashlib.sha256(source).hexdigest()
    if sha256 != cl100k.SOURCE_SHA256:
        parser.error(f"{arguments.ranks} has the sha256 {sha256}, and tiktoken's has {cl100k.SOURCE_SHA256}")
    packed = cl100k.pack(*recover(read_ranks(source)))
    arguments.output.write_bytes(packed)
    print(f"{arguments.output}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()

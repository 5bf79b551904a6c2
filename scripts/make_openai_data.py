"""Makes cbpe/data/*.bin, the merges of OpenAI's encodings, from the rank files that tiktoken publishes.

    python scripts/make_openai_data.py PATH/r50k_base.tiktoken PATH/p50k_base.tiktoken ...

A rank file holds a line per token, its bytes in base64 and its rank, which is its id; how the token was merged it does
not say, but that follows from the ranks (cbpe/formats/recover.pyx). The 256 tokens of one byte hold the ranks 0..255,
though not in the order of the bytes: their order is kept too. Ranks that no token has are kept as skipped.

The files made are described in cbpe/data/merges.py. Which table a rank file is, its sha256 says; another file is
refused. Versions of zlib may pack differently; what is held is the same.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
from pathlib import Path

import numpy as np

from cbpe.data import merges
from cbpe.formats.recover import recover as recover_pairs


def read_ranks(data: bytes) -> dict[bytes, int]:
    """b"IQ== 0\\nIg== 1\\n" -> {b"!": 0, b'"': 1}"""
    ranks = {}
    for line in data.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    return ranks


def recover(ranks: dict[bytes, int]) -> merges.Table:
    """The merges behind the ranks, in the order of their ids."""
    tokens = sorted(ranks, key=ranks.__getitem__)
    if [ranks[token] for token in tokens[:256]] != list(range(256)) or len(set(ranks.values())) != len(ranks):
        raise ValueError("the ranks are not 0, 1, ..., 255 and others, all of them different")
    if any(len(token) != 1 for token in tokens[:256]):
        raise ValueError("the first 256 ranks are not those of the bytes")
    byte_ids = bytes(ranks[bytes([value])] for value in range(256))
    ids = np.array([ranks[token] for token in tokens[256:]], dtype=np.uint32)
    pairs = np.concatenate([np.frombuffer(byte_ids, np.uint8).astype(np.uint32), ids])[recover_pairs(tokens)]
    return merges.Table(pairs, None if len(ids) == 0 or ids[-1] == len(ranks) - 1 else ids, byte_ids)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make cbpe/data/*.bin from the rank files that tiktoken publishes.")
    parser.add_argument("ranks", type=Path, nargs="+", help="paths of r50k_base.tiktoken, p50k_base.tiktoken, ...")
    parser.add_argument("-o", "--output", type=Path, default=Path(merges.__file__).parent, help="folder to write to")
    arguments = parser.parse_args()
    names = {sha256: name for name, sha256 in merges.SOURCES.items()}
    for path in arguments.ranks:
        source = path.read_bytes()
        sha256 = hashlib.sha256(source).hexdigest()
        if sha256 not in names:
            known = "".join(f"\n    {sha256} {name}_base.tiktoken" for sha256, name in names.items())
            parser.error(f"{path} has the sha256 {sha256}; known are{known}")
        packed = merges.pack(recover(read_ranks(source)), sha256)
        output = arguments.output / f"{names[sha256]}.bin"
        output.write_bytes(packed)
        print(f"{output}: {len(packed):,} bytes")


if __name__ == "__main__":
    main()

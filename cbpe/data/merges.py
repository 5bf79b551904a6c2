"""The merges of OpenAI's encodings, unpacked from the files beside this one, one for each published rank file.

A file, all numbers little-endian:

    8 bytes     magic, b"cbpe-bpe"
    4 bytes     version of this layout, 2
    4 bytes     number of merges
    4 bytes     number of skipped ids
    32 bytes    sha256 of the rank file that the merges were recovered from
    32 bytes    sha256 of what follows, unpacked
    the rest    zlib: the ids of the byte values 0..255; the skipped ids, 4 bytes each; then the merges' ids as six
                planes: the low, the middle and the high bytes of all left ids, then those of all right ids

The merges make the ids from 256 on, one after another without the skipped ones. (One table skips one: p50k leaves 50256
to <|endoftext|>, which GPT-2 put there, and goes on behind it.)

Planes pack better than ids do (for cl100k 342 kB against 427 kB), because the bytes of a plane resemble each other.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# The sha256 of each rank file NAME_base.tiktoken, as tiktoken publishes it.
SOURCES = {
    "r50k": "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    "p50k": "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
    "cl100k": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "o200k": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
}

_MAGIC = b"cbpe-bpe"
_VERSION = 2
_HEADER = struct.Struct("<8sIII32s32s")
_N_PLANES = 3       # bytes of an id


class Table(NamedTuple):
    """What a rank file says, as merges.

    pairs: uint32[m, 2], C-contiguous. ids: uint32[m], ascending, pairs[i] merge into ids[i]; None if that is 256 + i.
    byte_ids: 256 bytes; byte value b alone is the id byte_ids[b].
    """

    pairs: npt.NDArray[np.uint32]
    ids: npt.NDArray[np.uint32] | None
    byte_ids: bytes


def pack(table: Table, source_sha256: str) -> bytes:
    """The content of a file. All ids below 2**24."""
    pairs = table.pairs
    if pairs.size and int(np.max(pairs)) >> (8 * _N_PLANES):
        raise ValueError(f"an id needs more than {_N_PLANES} bytes")
    skipped = np.empty(0, np.uint32)
    if table.ids is not None and table.ids.size:
        skipped = np.setdiff1d(np.arange(256, table.ids[-1], dtype=np.uint32), table.ids)
    planes = [pairs[:, side] >> (8 * plane) & 0xFF for side in (0, 1) for plane in range(_N_PLANES)]
    content = table.byte_ids + skipped.astype("<u4").tobytes()
    content += b"".join(plane.astype(np.uint8).tobytes() for plane in planes)
    checksum = hashlib.sha256(content).digest()
    header = _HEADER.pack(_MAGIC, _VERSION, len(pairs), len(skipped), bytes.fromhex(source_sha256), checksum)
    return header + zlib.compress(content, 9)


def unpack(packed: bytes, source_sha256: str) -> Table:
    """The inverse of pack; its arrays are read-only. A ValueError says what is wrong with what pack did not make."""
    if len(packed) < _HEADER.size or packed[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not a file of packed merges")
    _, version, n_merges, n_skipped, source, checksum = _HEADER.unpack_from(packed)
    if version != _VERSION:
        raise ValueError(f"packed merges of version {version}; this program reads version {_VERSION}")
    if source.hex() != source_sha256:
        raise ValueError(f"merges recovered from another rank file, of sha256 {source.hex()}")
    try:
        content = zlib.decompress(memoryview(packed)[_HEADER.size :])
    except zlib.error as error:
        raise ValueError(f"damaged packed merges: {error}") from None
    planes_at = 256 + 4 * n_skipped
    if hashlib.sha256(content).digest() != checksum or len(content) != planes_at + 2 * _N_PLANES * n_merges:
        raise ValueError("damaged packed merges: the checksum differs")
    planes = np.frombuffer(content, dtype=np.uint8, offset=planes_at).reshape(2, _N_PLANES, n_merges)
    pairs = np.zeros((n_merges, 2), dtype=np.uint32)
    for side in (0, 1):
        for plane in range(_N_PLANES):
            pairs[:, side] |= planes[side, plane].astype(np.uint32) << np.uint32(8 * plane)
    pairs.flags.writeable = False
    ids = None
    if n_skipped:
        skipped = np.frombuffer(content, dtype="<u4", count=n_skipped, offset=256)
        ids = np.delete(np.arange(256, 256 + n_merges + n_skipped, dtype=np.uint32), skipped - 256)
        ids.flags.writeable = False
    return Table(pairs, ids, content[:256])


@cache
def load(name: str) -> Table:
    """A table by its name in SOURCES, read once in a process."""
    return unpack(Path(__file__).with_name(f"{name}.bin").read_bytes(), SOURCES[name])

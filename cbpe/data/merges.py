"""GPT-4's merges (cl100k_base), unpacked from the file beside this one.

The file cl100k.bin, all numbers little-endian:

    8 bytes     magic, b"cbpe-bpe"
    4 bytes     version of this layout, 1
    4 bytes     number of merges
    32 bytes    sha256 of the rank file that the merges were recovered from
    32 bytes    sha256 of what follows, unpacked
    the rest    zlib: the ids of the byte values 0..255, then the merges' ids as six planes: the low, the middle and the
                high bytes of all left ids, then those of all right ids

Planes pack better than ids do (342 kB against 427 kB), because the bytes of a plane resemble each other.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

SOURCE_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"     # as tiktoken publishes it

_MAGIC = b"cbpe-bpe"
_VERSION = 1
_HEADER = struct.Struct("<8sII32s32s")
_N_PLANES = 3       # bytes of an id


def pack(pairs: npt.NDArray[np.uint32], byte_ids: bytes) -> bytes:
    """The content of the file. pairs: uint32[m, 2], ids below 2**24; byte_ids: 256 bytes."""
    if pairs.size and int(pairs.max()) >> (8 * _N_PLANES):
        raise ValueError(f"an id needs more than {_N_PLANES} bytes")
    planes = [pairs[:, side] >> (8 * plane) & 0xFF for side in (0, 1) for plane in range(_N_PLANES)]
    content = byte_ids + b"".join(plane.astype(np.uint8).tobytes() for plane in planes)
    checksum = hashlib.sha256(content).digest()
    header = _HEADER.pack(_MAGIC, _VERSION, len(pairs), bytes.fromhex(SOURCE_SHA256), checksum)
    return header + zlib.compress(content, 9)


def unpack(packed: bytes) -> tuple[npt.NDArray[np.uint32], bytes]:
    """The inverse of pack; a ValueError says what is wrong with content that pack did not make."""
    if len(packed) < _HEADER.size or packed[: len(_MAGIC)] != _MAGIC:
        raise ValueError("not a file of packed merges")
    _, version, n_merges, source, checksum = _HEADER.unpack_from(packed)
    if version != _VERSION:
        raise ValueError(f"packed merges of version {version}; this program reads version {_VERSION}")
    if source.hex() != SOURCE_SHA256:
        raise ValueError(f"merges recovered from another rank file, of sha256 {source.hex()}")
    try:
        content = zlib.decompress(memoryview(packed)[_HEADER.size :])
    except zlib.error as error:
        raise ValueError(f"damaged packed merges: {error}") from None
    if hashlib.sha256(content).digest() != checksum or len(content) != 256 + 2 * _N_PLANES * n_merges:
        raise ValueError("damaged packed merges: the checksum differs")
    planes = np.frombuffer(content, dtype=np.uint8, offset=256).reshape(2, _N_PLANES, n_merges)
    pairs = np.zeros((n_merges, 2), dtype=np.uint32)
    for side in (0, 1):
        for plane in range(_N_PLANES):
            pairs[:, side] |= planes[side, plane].astype(np.uint32) << np.uint32(8 * plane)
    pairs.flags.writeable = False
    return pairs, content[:256]


@lru_cache(maxsize=1)
def load() -> tuple[npt.NDArray[np.uint32], bytes]:
    """GPT-4's merges and the ids of its bytes, read once in a process.

    Returns:
        pairs: uint32[100000, 2], C-contiguous, read-only; pairs[i] merge into the id 256 + i.
        byte_ids: 256 bytes; byte value b alone is the id byte_ids[b].
    """
    return unpack(Path(__file__).with_name("cl100k.bin").read_bytes())

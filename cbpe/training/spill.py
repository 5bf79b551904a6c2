"""Counting beyond memory: full counters go to disk part by part, parts are merged one by one, and joined in order.

In: counters that are full, or stores. Out: the arrays of one chunk store in a file, the same to the byte as if all had
been counted in memory. The way there, on one machine (store.py) or on many:

    write the chunks in 2**bits parts, by the top bits of their hashes: the same chunk is always in the same part;
    merge the pieces of one part from everywhere: counts are summed, the least place stays; sort it by place;
    join the sorted parts by place, a few chunks of each at a time.

No step holds more than one part or a few pieces of each. What is on disk is a piece; a part is pieces end to end, in
any order before it is merged, in order of places afterwards. A piece, all integers little-endian:

    8 bytes     b"CBPEpart"
    u32, u32    version (1), CRC-32 of the arrays
    u64         how chunks are hashed: hash_id() of chunks.pyx
    u32, u32    which part it is of, and of 2**how many
    u64, u64    n, the number of chunks, and the number of their bytes
    u64         CRC-32 of all before it
    u64[n]      counts
    u64[n]      places
    u32[n]      lengths
    u8[...]     the chunks end to end
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cbpe.errors import ChunkStoreError, CorpusTooLargeError
from cbpe.files import StrPath, naming, scratch_file
from cbpe.memory import require, show_size
from cbpe.threads import heeding_ctrl_c
from cbpe.training.chunks import ChunkCounter, copy_chunks, hash_id, in_order_of_places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cbpe.training.store import ChunkStore

MAGIC = b"CBPEpart"
VERSION = 1
HEADER = struct.Struct("<8sIIQIIQQ")
PART_BITS = 10                      # scratch files have 2**10 parts, of which some are merged at a time: 10 at most
CHUNKS_AT_ONCE = 1 << 18            # of a store that is taken apart
READ_AT_ONCE = 1 << 26              # bytes


class Piece(NamedTuple):
    """Some chunks: counts uint64[n], places uint64[n], lengths uint32[n], and data uint8[...], their bytes."""

    counts: NDArray[np.uint64]
    places: NDArray[np.uint64]
    lengths: NDArray[np.uint32]
    data: NDArray[np.uint8]

    @property
    def offsets(self) -> NDArray[np.uint64]:
        """Where each chunk begins in data, and the end: uint64[n + 1]."""
        offsets = np.zeros(len(self.lengths) + 1, np.uint64)
        np.cumsum(self.lengths, out=offsets[1:])
        return offsets

    @property
    def nbytes(self) -> int:
        """The memory of its arrays."""
        return 20 * len(self.counts) + len(self.data)


class Size(NamedTuple):
    """How much there is of something: chunks, and their bytes."""

    n: int
    n_bytes: int


# ---- pieces


def write_piece(file: IO[bytes], piece: Piece, part: int, bits: int) -> None:
    """Writes a piece of one of 2**bits parts. Raises OSError."""
    sections: list[Any] = [
        piece.counts.astype("<u8", copy=False),
        piece.places.astype("<u8", copy=False),
        piece.lengths.astype("<u4", copy=False),
        piece.data,
    ]
    checksum = 0
    for section in sections:
        checksum = zlib.crc32(section, checksum)
    header = HEADER.pack(MAGIC, VERSION, checksum, hash_id(), part, bits, len(piece.counts), len(piece.data))
    file.write(header + zlib.crc32(header).to_bytes(8, "little"))
    for section in sections:
        file.write(section)


def read_piece(file: IO[bytes]) -> tuple[Piece, int, int] | None:
    """The next piece, its part and bits; None at the end of the file. Raises OSError, ChunkStoreError."""
    header = file.read(HEADER.size)
    if not header:
        return None
    header_checksum = int.from_bytes(file.read(8), "little")
    if len(header) < HEADER.size or header[:8] != MAGIC:
        raise ChunkStoreError(f"not a piece of a chunk store: it does not begin with {MAGIC!r}")
    _, version, checksum, hashed, part, bits, n, n_bytes = HEADER.unpack(header)
    if version != VERSION:
        raise ChunkStoreError(f"a piece of a chunk store of version {version}; this cbpe reads version {VERSION}")
    if zlib.crc32(header) != header_checksum:
        raise ChunkStoreError("a damaged piece of a chunk store: the checksum of its header does not match")
    if bits > PART_BITS or part >> bits:
        raise ChunkStoreError("a damaged piece of a chunk store: there is no such part")
    body = _read(file, 20 * n + n_bytes)
    if len(body) < 20 * n + n_bytes or zlib.crc32(body) != checksum:
        raise ChunkStoreError("a damaged piece of a chunk store: it is too short, or the checksum does not match")
    if hashed != hash_id():
        raise ChunkStoreError("a piece of a chunk store by a cbpe that hashes chunks differently: use one version")
    piece = Piece(
        np.frombuffer(body, "<u8", n).astype(np.uint64, copy=False),
        np.frombuffer(body, "<u8", n, 8 * n).astype(np.uint64, copy=False),
        np.frombuffer(body, "<u4", n, 16 * n).astype(np.uint32, copy=False),
        np.frombuffer(body, np.uint8, n_bytes, 20 * n),
    )
    if int(piece.lengths.sum(dtype=np.uint64)) != n_bytes or not (piece.lengths.all() and piece.counts.all()):
        raise ChunkStoreError("a damaged piece of a chunk store: its chunks do not lie end to end")
    return piece, part, bits


def _read(file: IO[bytes], n: int) -> bytes:
    """The next n bytes, or as many as there are. Memory is taken for what the file holds, not for what is asked for."""
    blocks = []
    while n and (block := file.read(min(n, READ_AT_ONCE))):
        blocks.append(block)
        n -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def pieces_of(files: Iterable[IO[bytes]], part: int, bits: int) -> Iterator[Piece]:
    """All pieces in files, from where they stand on. Raises ChunkStoreError for one of another part."""
    for file in files:
        while found := read_piece(file):
            if found[1:] != (part, bits):
                raise ChunkStoreError(
                    f"a piece of part {found[1]} of {1 << found[2]}, not of part {part} of {1 << bits} as expected"
                )
            yield found[0]


# ---- within a limit


class Limit:
    """A memory limit in bytes, how it is shared out, and the scratch files that keep it: close() it at the end.

    Counters get most of it; the rest is for what each thread reads, a few copies of up to 4 MB, and for the allocator's
    rounding. There are fewer threads than wanted where each would get too little.
    """

    LEAST = 32_000_000
    LEAST_PER_THREAD = 32_000_000
    PER_THREAD = 16_000_000         # for what it reads

    def __init__(self, n_bytes: int, scratch_dir: StrPath | None) -> None:
        if n_bytes < self.LEAST:
            raise ValueError(f"memory_limit must be at least {show_size(self.LEAST)}, not {show_size(n_bytes)}")
        self.n_bytes = n_bytes
        self.scratch_dir = scratch_dir
        self._files: list[IO[bytes]] = []

    @property
    def share(self) -> int:
        """What merging may take."""
        return self.n_bytes * 3 // 4

    def threads(self, wanted: int) -> int:
        return max(1, min(wanted, self.n_bytes // self.LEAST_PER_THREAD))

    def share_of_counter(self, n_counters: int) -> int:
        return min(self.share, self.n_bytes - n_counters * self.PER_THREAD) // n_counters

    def scratch_file(self) -> IO[bytes]:
        file = scratch_file(self.scratch_dir)
        self._files.append(file)
        return file

    def close(self) -> None:
        for file in self._files:
            with suppress(OSError):     # of bytes that could not be written, and are not wanted any more
                file.close()


class Unwanted(Exception):
    """The end of a thread that nobody waits for any more: raised in the midst of writing, after Ctrl-C."""


class Spill:
    """A scratch file that takes the chunks of a full counter again and again, each time in parts by their hashes.

    n_chunks, n_bytes: of each of the 2**bits parts in all, duplicates included. wanted: asked now and then whether to
    go on.
    """

    def __init__(self, limit: Limit, wanted: Callable[[], bool] = lambda: True) -> None:
        self.bits = PART_BITS
        self.n_chunks = np.zeros(1 << self.bits, np.int64)
        self.n_bytes = np.zeros(1 << self.bits, np.int64)
        self._limit = limit
        self._wanted = wanted
        self._file: IO[bytes] | None = None
        self._starts: list[list[int]] = []      # of each time, where each part begins

    def __bool__(self) -> bool:
        return bool(self._starts)

    def take(self, counter: ChunkCounter) -> None:
        """Writes all that a counter holds. Raises OSError, Unwanted where nobody needs it any more."""
        if not self._wanted():
            raise Unwanted              # before a file is opened that nobody would close
        with naming(self._limit.scratch_dir):
            if self._file is None:
                self._file = self._limit.scratch_file()
            self._file.seek(0, os.SEEK_END)
            starts = []
            for part in range(1 << self.bits):
                if not self._wanted():
                    raise Unwanted
                piece = Piece(*counter.part(part, self.bits))
                starts.append(self._file.tell())
                write_piece(self._file, piece, part, self.bits)
                self.n_chunks[part] += len(piece.counts)
                self.n_bytes[part] += len(piece.data)
            self._starts.append(starts)

    def pieces(self, first: int, behind: int) -> Iterator[Piece]:
        """The pieces of parts first to behind - 1."""
        file = self._file
        for starts in self._starts if file is not None else ():
            assert file is not None
            file.seek(starts[first])
            for _ in range(first, behind):
                found = read_piece(file)
                assert found is not None
                yield found[0]

    def close(self) -> None:
        """Gives back the disk."""
        if self._file is not None:
            self._file.close()


# ---- merging


def merge_need(size: Size) -> int:
    """The bytes of memory in which a part of so many chunks, duplicates included, is merged: at most."""
    slots = 1 << max(10, (size.n * 4 // 3).bit_length())
    return 32 * slots + 24 * size.n + 2 * size.n_bytes


def merge_pieces(pieces: Iterable[Piece], most: Size, part: int, bits: int, out: IO[bytes], block: int) -> Size:
    """Merges all pieces of one of 2**bits parts, and writes it to out in order of places; returns its size.

    most: the size of all pieces together. block: bytes of a piece that is written; there is at least one.
    """
    require(merge_need(most), f"merging counts needs {{needed}} for {most.n:,} chunks of one part")
    counter = ChunkCounter(None, bits, most.n)
    total = 0
    for piece in pieces:
        total += sum_bytes([(piece.counts, piece.lengths)])
        check_total(total)          # beyond it a count might begin at 0 again
        counter.add_counted(piece.counts, piece.places, piece.offsets, piece.data, 0)
    order = heeding_ctrl_c(in_order_of_places, [counter], len(counter), counter.bits)
    at = 0
    while at < len(order) or at == 0:
        piece = Piece(*counter.take(order, at, max(1, block // 64), block // 2))
        write_piece(out, piece, part, bits)
        at += max(1, len(piece.counts))
    return Size(len(counter), counter.n_chunk_bytes)


class _Head:
    """The next chunks of a sorted part: at least one piece of them, until it ends."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._block = 1             # bytes of the largest piece so far
        self.is_last = False
        self.rest = Piece(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.uint8))

    def fill(self) -> None:
        while not self.is_last and self.rest.nbytes < self._block:
            piece = next(self._pieces, None)
            if piece is None:
                self.is_last = True
                return
            self._block = max(self._block, piece.nbytes)
            self.rest = _chained([self.rest, piece])
            if (self.rest.places[1:] < self.rest.places[:-1]).any():
                raise ChunkStoreError("a part that is not in order of places: merge_part has to come before")

    def take(self, last: np.uint64 | None) -> Piece:
        """Takes away what has its place at or before last; None: all."""
        counts, places, lengths, data = self.rest
        n = len(counts) if last is None else int(np.searchsorted(places, last, side="right"))
        n_bytes = int(lengths[:n].sum(dtype=np.uint64))
        self.rest = Piece(counts[n:], places[n:], lengths[n:], data[n_bytes:])
        return Piece(counts[:n], places[:n], lengths[:n], data[:n_bytes])


def _chained(pieces: Sequence[Piece]) -> Piece:
    counts, places, lengths, data = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return Piece(counts, places, lengths, data)


def in_order(parts: Iterable[Iterator[Piece]]) -> Iterator[Piece]:
    """The chunks of sorted parts in order of places, in pieces of about as many chunks as one piece of each holds.

    What lies before the end of every part's next chunks can be sorted without looking further.
    """
    heads = [_Head(part) for part in parts]
    while True:
        for head in heads:
            head.fill()
        heads = [head for head in heads if len(head.rest.counts)]
        if not heads:
            return
        last = min((head.rest.places[-1] for head in heads if not head.is_last), default=None)
        piece = _chained([head.take(last) for head in heads])
        order = np.argsort(piece.places, kind="stable").astype(np.uint64, copy=False)
        data = copy_chunks(order, piece.offsets, piece.data)
        yield Piece(piece.counts[order], piece.places[order], piece.lengths[order], data)


def sum_bytes(blocks: Iterable[tuple[NDArray[np.uint64], NDArray[Any]]]) -> int:
    """The bytes of chunks, duplicates included: [([2, 1], [3, 5])] -> 11, from counts and lengths.

    Raises CorpusTooLargeError for 2**63 bytes or more.
    """
    total = 0
    for counts, lengths in blocks:
        about = total + float(np.multiply(counts, lengths, dtype=np.float64).sum())
        check_total(1 << 63 if about >= 2.0**63 else 0)
        total += int(np.multiply(counts, lengths, dtype=np.uint64).sum())
        check_total(total)
    return total


def check_total(total: int) -> None:
    """Raises CorpusTooLargeError if that is too many bytes, duplicates included, to be counted in 63 bits."""
    if total >= 1 << 63:
        raise CorpusTooLargeError("the counts add up to 2**63 bytes or more, and cannot be summed in 64 bits")


def write_in_order(parts: Iterable[Iterator[Piece]], size: Size, file: IO[bytes], at: int) -> None:
    """Joins sorted parts into the arrays of a store's file, from offset at on, and leaves the file at their end.

    size: of all parts together. The arrays are those of store.py: counts, places, offsets, data.
    """
    starts = [at, at + 8 * size.n, at + 16 * size.n, at + 24 * size.n + 8]
    n = n_bytes = 0
    for piece in in_order(parts):
        offsets = piece.offsets + np.uint64(n_bytes)
        sections: list[Any] = [
            piece.counts.astype("<u8", copy=False),
            piece.places.astype("<u8", copy=False),
            offsets[:-1].astype("<u8", copy=False),
            piece.data,
        ]
        for i, section in enumerate(sections):
            file.seek(starts[i])
            file.write(section)
            starts[i] += section.nbytes
        n += len(piece.counts)
        n_bytes += len(piece.data)
    if (n, n_bytes) != size:
        raise ChunkStoreError(f"parts of {n:,} chunks of {n_bytes:,} bytes, where {size} was announced")
    file.seek(starts[2])
    file.write(n_bytes.to_bytes(8, "little"))
    file.seek(starts[3])


def merged(spills: Sequence[Spill], limit: Limit) -> tuple[list[Iterator[Piece]], Size]:
    """Merges what spills hold within a limit: the sorted parts, in a scratch file, and their size together."""
    n_chunks = sum((spill.n_chunks for spill in spills), np.int64(0))
    n_bytes = sum((spill.n_bytes for spill in spills), np.int64(0))
    all_bits = spills[0].bits
    for bits in range(all_bits + 1):
        # parts are merged in 2**bits groups of neighbours
        together = 1 << (all_bits - bits)
        groups = [Size(*map(int, sizes)) for sizes in zip(
            n_chunks.reshape(-1, together).sum(axis=1), n_bytes.reshape(-1, together).sum(axis=1), strict=True
        )]
        need = max(map(merge_need, groups))
        if need <= limit.share or bits == all_bits:
            break
    block = max(1024, limit.share // (8 << bits))
    with naming(limit.scratch_dir):
        file = limit.scratch_file()
        starts = [0]
        sizes = []
        for i, most in enumerate(groups):
            pieces = (piece for spill in spills for piece in spill.pieces(i * together, (i + 1) * together))
            sizes.append(merge_pieces(pieces, most, i, bits, file, block))
            starts.append(file.tell())
    for spill in spills:
        spill.close()

    def sorted_part(at: int, end: int) -> Iterator[Piece]:
        while at < end:
            file.seek(at)
            found = read_piece(file)
            assert found is not None
            at = file.tell()
            yield found[0]

    size = Size(sum(size.n for size in sizes), sum(size.n_bytes for size in sizes))
    return [sorted_part(*span) for span in itertools.pairwise(starts)], size


# ---- between machines


def write_parts(store: ChunkStore, files: Sequence[IO[bytes]]) -> list[Size]:
    """Writes a store in as many parts as there are files, a power of two up to 1024: the same chunk always goes to
    the file of the same number. Returns their sizes.

    Takes memory for some hundred thousand chunks of the store at a time. Raises ValueError, OSError.
    """
    bits = len(files).bit_length() - 1
    if not files or len(files) != 1 << bits or bits > 10:
        raise ValueError(f"the number of parts is a power of two up to 1024, not {len(files)}")
    sizes = [Size(0, 0)] * len(files)
    counter = ChunkCounter(None)
    for counts, places, offsets, data in store.blocks(CHUNKS_AT_ONCE):
        counter.add_counted(counts, places, offsets, data, 0)
        for part, file in enumerate(files):
            piece = Piece(*counter.part(part, bits))
            write_piece(file, piece, part, bits)
            sizes[part] = Size(sizes[part].n + len(piece.counts), sizes[part].n_bytes + len(piece.data))
        counter.clear()
    return sizes


def merge_part(
    files: Iterable[IO[bytes]], out: IO[bytes], most: Size, part: int, n_parts: int, block: int = 1 << 18
) -> Size:
    """Merges one part from all files that hold pieces of it, and writes it in order of places to out.

    Files are read one after another to their ends. most: the sizes that write_parts gave for it, added up. block:
    bytes that whoever joins the parts holds of each. Memory: merge_need(most). Returns the size of the part;
    ChunkStore.from_parts joins all of them. Raises ChunkStoreError, OSError, MemoryError.
    """
    bits = n_parts.bit_length() - 1
    return merge_pieces(pieces_of(files, part, bits), most, part, bits, out, block)

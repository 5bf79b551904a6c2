"""The chunk store: a corpus as its distinct chunks, counted once, to be trained on many times and carried about.

In: parts of a corpus, counted by as many threads as asked for. Out: arrays in order of first appearance; and a file
of them, which is opened mapped. The order never depends on threads or shards: each chunk carries the place where it
was seen first. Under a memory limit the counting goes by way of spill.py, and the store is mapped from a scratch file.

The file, all integers little-endian:

    8 bytes     b"CBPEchnk"
    u32, u32    version (1), length of the header
    header      JSON in UTF-8: pattern, unicode, sources, n_chunks, n_bytes; padded with spaces to a multiple of 8 bytes
                (pattern is null, a string, or, of Stages, a list of pairs of strings)
    u64[n]      counts
    u64[n]      first places: source number << 40 | byte offset
    u64[n + 1]  offsets of the chunks in what follows
    u8[...]     the chunks end to end, padded with zeros to a multiple of 8 bytes
    u64         CRC-32 of everything before it
"""

from __future__ import annotations

import errno
import itertools
import json
import mmap
import operator
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cbpe.errors import ChunkStoreError
from cbpe.files import atomic_write, naming, scratch_file
from cbpe.inputs import StrPath, find_sources
from cbpe.inputs.documents import Faults
from cbpe.inputs.sources import OFFSET_BITS, check_field, check_sources, total_size
from cbpe.memory import parse_size, require, show_size
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.progress import progress_bar
from cbpe.splitting.split import UNICODE_EDITION, Splitter, splitter_for
from cbpe.splitting.stages import Stages
from cbpe.threads import DIED, GRACE, heeding_ctrl_c, start_threads, thread_count
from cbpe.training.chunks import ChunkCounter
from cbpe.training.corpus import DocumentPart, Part, count_part, separators_of, source_parts, text_parts
from cbpe.training.spill import (
    Limit,
    Piece,
    Size,
    Spill,
    check_total,
    merged,
    pieces_of,
    sum_bytes,
    write_in_order,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Counted: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]"
Counters: TypeAlias = "tuple[list[ChunkCounter], list[Spill]]"

MAGIC = b"CBPEchnk"
VERSION = 1
ENOUGH = 1 << 20            # bytes of short texts that a thread takes at a time
BLOCK = 1 << 18             # chunks of a store, or of its arrays' words, that are looked at between two looks around
LONG_PART = 1 << 26         # bytes of a text without cuts that is worth a look at what memory there is


class ChunkStore:
    """The distinct chunks of a corpus under one pattern, in order of first appearance, each with its count.

    store = ChunkStore.from_files("corpus.txt"); store.save("corpus.chunks"); ChunkStore.open("corpus.chunks")

    len(store) is the number of distinct chunks, iterating gives (bytes, count). pattern: the split pattern, Stages, or
    None where each text is one chunk (BasicTokenizer). total_bytes: the bytes of all chunks, duplicates included. A
    store from open() is mapped: close() it, or use it in a with statement, to let go of the file at once. skipped: how
    many documents counting left out under errors="skip"; it is not saved.
    """

    def __init__(
        self,
        pattern: str | Stages | None,
        counts: NDArray[np.uint64],
        places: NDArray[np.uint64],
        offsets: NDArray[np.uint64],
        data: NDArray[np.uint8],
        sources: Sequence[str] | None = None,
        mapped: mmap.mmap | None = None,
    ) -> None:
        """counts, places: uint64[n]; offsets: uint64[n + 1]; data: uint8[offsets[n]]; sources: the files, None for
        others; mapped: what the arrays lie in, if it is a file.
        """
        self.pattern = pattern
        self.counts = counts
        self.places = places
        self.offsets = offsets
        self.data = data
        self.sources = None if sources is None else list(sources)
        self.skipped = 0
        self._map = mapped
        self.total_bytes = sum_bytes((some, np.diff(ends)) for some, _, ends, _ in self.blocks())

    # ---- building

    @classmethod
    def from_files(
        cls,
        paths: StrPath | Iterable[StrPath],
        pattern: Any = GPT4_SPLIT_PATTERN,
        *,
        special_tokens: Iterable[str] | None = None,
        num_threads: int | None = None,
        errors: str = "strict",
        text_field: str = "text",
        progress: bool | None = None,
        shard: tuple[int, int] = (0, 1),
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> ChunkStore:
        """Counts the chunks of files. A file of text is a text of its own; so is each line of JSONL, row of Parquet.

        paths: files (.txt or any other text, .jsonl, .ndjson, .parquet; all but the last also .gz, .bz2, .xz, .zst),
        folders, globs, "-" for standard input, URLs that fsspec knows; see find_sources. text_field: the member of a
        JSON object, or the column, that holds the text.

        pattern: a split pattern, Stages, or None to take each text as one chunk; or a Splitter. special_tokens are not
        counted, nor is any part of them: the text on either side ends there. num_threads: None for all processors;
        threads change the time, never the result. progress: None shows a bar on a terminal only. shard (i, n): counts
        only the i-th of n shares of the corpus; merge() of all of them is the store of the whole.

        errors: "strict" raises at the first thing that is wrong: CorpusDecodeError with file and offset for bytes that
        are not UTF-8, CorpusFormatError with file and line, or row group and row, for what holds no text. "replace"
        counts U+FFFD in place of wrong bytes, as bytes.decode has it. "skip" does so in files of text; lines and rows
        with anything wrong are left out, counted in store.skipped, and told of by one UserWarning.

        memory_limit: bytes, or a text such as "2GB", "512MB", "1.5GiB": about so much memory is used at most, and what
        does not fit goes to scratch files in scratch_dir (None: the system's folder for temporary files), which hold
        several times the store; the result is the same. The store is then mapped from such a file, which is gone when
        the store is, or the process.

        Raises OSError naming the file, CorpusDecodeError, CorpusFormatError, CorpusTooLargeError, MemoryError,
        ImportError for what needs the extra cbpe[data], and ValueError for a limit that is too small to work with.
        """
        index, n_shards = shard
        if not 0 <= index < n_shards:
            raise ValueError(f"shard is (i, n) with 0 <= i < n, not {shard}")
        faults = Faults(errors)
        sources = find_sources(paths)
        check_field(sources, text_field)
        splitter = splitter_for(pattern)
        parts = source_parts(sources, splitter, separators_of(special_tokens or ()), text_field, shard)
        total = total_size(sources)
        if total is not None:
            total //= n_shards
        if total is not None and total < ENOUGH and not all(source.is_plain for source in sources):
            total = None            # little may hold much
        with _limited(memory_limit, scratch_dir) as limit:
            counted = _count(parts, splitter, num_threads, faults, progress, total, limit)
            store = cls._from_counters(splitter.pattern, [source.name for source in sources], counted, limit)
        store.skipped = faults.skipped
        faults.warn()
        return store

    @classmethod
    def from_iterator(
        cls,
        texts: Iterable[str],
        pattern: Any = GPT4_SPLIT_PATTERN,
        *,
        special_tokens: Iterable[str] | None = None,
        num_threads: int | None = None,
        errors: str = "strict",
        progress: bool | None = None,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> ChunkStore:
        """Counts the chunks of strings, each of which is a text of its own; the other arguments are those of
        from_files.

        The iterable is read once and not kept; the strings themselves are not subject to memory_limit. Raises TypeError
        for what is not a str, UnicodeEncodeError for lone surrogates.
        """
        splitter = splitter_for(pattern)
        parts = text_parts(texts, splitter, separators_of(special_tokens or ()))
        sized = isinstance(texts, (list, tuple)) and all(isinstance(text, str) for text in texts)
        total = sum(map(len, texts)) if sized else None
        with _limited(memory_limit, scratch_dir) as limit:
            counted = _count(parts, splitter, num_threads, Faults(errors), progress, total, limit)
            return cls._from_counters(splitter.pattern, None, counted, limit)

    @classmethod
    def merge(
        cls,
        stores: Iterable[ChunkStore],
        *,
        memory_limit: int | str | None = None,
        scratch_dir: StrPath | None = None,
    ) -> ChunkStore:
        """One store for the texts of all, as if they had been read in the order in which the stores are given.

        Stores over the same list of files are shards of one corpus: their order does not matter, places decide. (But
        not if two begin at one place: then files of the same names, or standard input, were counted several times.)
        Under a memory_limit, as in from_files, stores from open() may be larger than memory. Raises ChunkStoreError
        where patterns differ or there is no store, CorpusTooLargeError beyond 2**24 sources or 2**63 bytes.
        """
        stores = list(stores)
        if not stores:
            raise ChunkStoreError("no stores to merge")
        for store in stores:
            store.check_file()
        check_total(sum(store.total_bytes for store in stores))
        first = stores[0]
        begins = [int(store.places[0]) for store in stores if len(store)]
        shards = (
            first.sources is not None
            and all(store.sources == first.sources for store in stores)
            and len(set(begins)) == len(begins)
        )
        if not shards:
            check_sources(sum(store._n_sources() for store in stores))
        sources: list[str] | None = first.sources if shards else []
        n_sources = 0
        with _limited(memory_limit, scratch_dir) as limit:
            counter = ChunkCounter(None)
            spills = _spills_of([counter], limit)
            for store in stores:
                if store.pattern != first.pattern:
                    raise ChunkStoreError(f"stores of different patterns: {first.pattern!r} and {store.pattern!r}")
                shift = 0 if shards else n_sources << OFFSET_BITS
                for block in store.blocks():
                    counter.add_counted(*block, shift)
                if not shards:
                    n_sources += store._n_sources()
                    sources = None if sources is None or store.sources is None else sources + store.sources
            return cls._from_counters(first.pattern, sources, ([counter], spills), limit)

    @classmethod
    def from_parts(
        cls,
        files: Sequence[IO[bytes]],
        sizes: Sequence[Size],
        pattern: str | Stages | None,
        *,
        sources: Sequence[str] | None = None,
        scratch_dir: StrPath | None = None,
    ) -> ChunkStore:
        """Joins the sorted parts of a store, which spill.merge_part wrote to files and gave the sizes of.

        Part i is read from files[i], from where that stands on, some chunks at a time. The store is mapped from a
        scratch file. Raises ChunkStoreError, OSError.
        """
        bits = len(files).bit_length() - 1
        parts = [pieces_of([file], i, bits) for i, file in enumerate(files)]
        size = Size(sum(size.n for size in sizes), sum(size.n_bytes for size in sizes))
        return cls._from_sorted(pattern, sources, parts, size, scratch_dir)

    @classmethod
    def _from_counters(
        cls, pattern: str | Stages | None, sources: Sequence[str] | None, counted: Counters, limit: Limit | None
    ) -> ChunkStore:
        """What counters and their spills hold. In memory, if nothing was spilled yet and there is room for it."""
        counters, spills = counted
        need = sum(counter.held + 40 * len(counter) + counter.n_chunk_bytes for counter in counters)
        if limit is None or (not any(spills) and need <= limit.n_bytes):
            return cls(pattern, *heeding_ctrl_c(_joined, counters), sources=sources)
        for counter, spill in zip(counters, spills, strict=True):
            spill.take(counter)
            counter.clear()
        parts, size = merged(spills, limit)
        return cls._from_sorted(pattern, sources, parts, size, limit.scratch_dir)

    @classmethod
    def _from_sorted(
        cls,
        pattern: str | Stages | None,
        sources: Sequence[str] | None,
        parts: Iterable[Iterator[Piece]],
        size: Size,
        scratch_dir: StrPath | None,
    ) -> ChunkStore:
        """Joins sorted parts in a scratch file, which is a store's file in all but name, and maps it."""
        start = _start_of_file(pattern, sources, size)
        with naming(scratch_dir), scratch_file(scratch_dir) as file:
            file.write(start)
            write_in_order(parts, size, file, len(start))
            file.write(bytes(-size.n_bytes % 8))
            file.seek(0)
            checksum = 0
            while block := file.read(1 << 20):
                checksum = zlib.crc32(block, checksum)
            file.write(checksum.to_bytes(8, "little"))
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return cls(pattern, *_arrays(mapped, len(start), size), sources=sources, mapped=mapped)

    def _n_sources(self) -> int:
        if self.sources is not None:
            return len(self.sources)
        # the last place is the greatest
        return 1 + (int(self.places[-1]) >> OFFSET_BITS) if len(self) else 1

    def pruned(self, min_count: int) -> ChunkStore:
        """A store of the chunks that occur min_count times or more: far smaller, trained on in less time and memory.

        Merges learned from it are not exactly those of the corpus, for pairs are no longer counted in what is left out;
        nor is that in total_bytes. This store stays as it is. Raises ValueError for a min_count below 1.
        """
        min_count = operator.index(min_count)
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1: {min_count}")
        self.check_file()
        kept = self.counts >= min_count
        lengths = np.diff(self.offsets)
        offsets = np.zeros(int(np.count_nonzero(kept)) + 1, np.uint64)
        np.cumsum(lengths[kept], out=offsets[1:])
        data = self.data[np.repeat(kept, lengths.astype(np.int64))]
        return ChunkStore(self.pattern, self.counts[kept], self.places[kept], offsets, data, self.sources)

    # ---- reading

    def blocks(self, n: int = BLOCK) -> Iterator[Counted]:
        """The arrays in slices of n chunks: counts, places, offsets of one more, which are into data, and data, whole.

        What was read of a mapped store does not count as the process's memory after the block. Raises ChunkStoreError
        as check_file does.
        """
        for start in range(0, len(self), n):
            self.check_file()
            stop = start + n
            yield self.counts[start:stop], self.places[start:stop], self.offsets[start : stop + 1], self.data
            _release(self._map)

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for counts, _, offsets, data in self.blocks(1 << 10):
            for count, (start, stop) in zip(counts.tolist(), itertools.pairwise(offsets.tolist()), strict=True):
                yield data[start:stop].tobytes(), count

    def check_file(self) -> None:
        """Raises ChunkStoreError if the file that the store is mapped from has become shorter.

        To read what is not there any more would end the process (SIGBUS). Everything here looks before it reads, which
        leaves a moment in which another program may still cut the file off; whoever reads the arrays may look too. A
        file that another one replaces, as save() does it, stays mapped as it was.
        """
        if self._map is not None and self._map.size() < len(self._map):
            raise ChunkStoreError(
                f"the chunk store's file has become shorter while it was mapped: {self._map.size():,} bytes of "
                f"{len(self._map):,} are left; write to another file, or let save() replace it"
            )

    def __repr__(self) -> str:
        return f"<ChunkStore: {len(self):,} distinct chunks, {self.total_bytes:,} bytes in all>"

    def __enter__(self) -> ChunkStore:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the arrays, and so of the file that they are mapped from; the store is empty afterwards."""
        self.counts = self.places = np.empty(0, np.uint64)
        self.offsets = np.zeros(1, np.uint64)
        self.data = np.empty(0, np.uint8)
        self._map = None

    def __getstate__(self) -> dict[str, Any]:
        self.check_file()
        return self.__dict__ | {"_map": None}       # a copy, or a pickle, holds the arrays

    # ---- files

    def save(self, path: StrPath) -> None:
        """Writes the store to path, whole or not at all. Raises OSError."""
        with atomic_write(path) as file:
            self.write(file)

    def write(self, file: IO[bytes]) -> None:
        """Writes the store to a file that is open for writing bytes, from front to back. Raises OSError."""
        start = _start_of_file(self.pattern, self.sources, Size(len(self), len(self.data)))
        words = (array[at : at + BLOCK].astype("<u8", copy=False)
                 for array in (self.counts, self.places, self.offsets) for at in range(0, len(array), BLOCK))
        data = (self.data[at : at + 8 * BLOCK] for at in range(0, len(self.data), 8 * BLOCK))
        sections: Iterable[Any] = itertools.chain([start], words, data, [bytes(-len(self.data) % 8)])
        checksum = 0
        for section in sections:        # all are buffers, though numpy's stubs do not say so
            self.check_file()
            checksum = zlib.crc32(section, checksum)
            file.write(section)
            _release(self._map)
        file.write(checksum.to_bytes(8, "little"))

    @classmethod
    def open(cls, path: StrPath) -> ChunkStore:
        """Maps a store that save() wrote. Raises OSError, ChunkStoreError for what is foreign, newer or damaged,
        CorpusTooLargeError for one of 2**63 bytes or more, duplicates included.
        """
        name = os.fspath(path)
        with open(name, "rb") as file:
            if os.fstat(file.fileno()).st_size < 16:
                raise ChunkStoreError(f"{name}: too short to be a chunk store")
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as fault:
                if fault.errno == errno.ENOMEM:
                    raise MemoryError(f"{name}: no address space to map it") from None
                raise OSError(fault.errno, fault.strerror, name) from None
        try:
            return cls._from_buffer(mapped, name)
        except ChunkStoreError:
            mapped.close()
            raise

    @classmethod
    def _from_buffer(cls, mapped: mmap.mmap, name: str) -> ChunkStore:
        if mapped[:8] != MAGIC:
            raise ChunkStoreError(f"{name}: not a chunk store: it does not begin with {MAGIC!r}")
        version = int.from_bytes(mapped[8:12], "little")
        if version != VERSION:
            raise ChunkStoreError(f"{name}: a chunk store of version {version}; this cbpe reads version {VERSION}")
        at = 16 + int.from_bytes(mapped[12:16], "little")
        try:
            header = json.loads(mapped[16:at].decode("utf-8", "surrogateescape"))
            pattern, sources = header["pattern"], header["sources"]
            size = Size(header["n_chunks"], header["n_bytes"])
            if isinstance(pattern, list):
                pattern = Stages(pattern)
            sound = all(type(number) is int and number >= 0 for number in size)
            sound = sound and (pattern is None or isinstance(pattern, (str, Stages)))
            sound = sound and (sources is None or all(isinstance(name, str) for name in [*sources]))
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise ChunkStoreError(f"{name}: damaged: the header cannot be read")
        expected = at + 24 * size.n + 8 + size.n_bytes + -size.n_bytes % 8 + 8
        if len(mapped) != expected:
            raise ChunkStoreError(f"{name}: damaged: {len(mapped):,} bytes long, but its header says {expected:,}")
        checksum = 0
        for start in range(0, expected - 8, 8 * BLOCK):
            if mapped.size() < expected:
                raise ChunkStoreError(f"{name}: became shorter while it was read")
            with memoryview(mapped) as view, view[start : min(start + 8 * BLOCK, expected - 8)] as block:
                checksum = zlib.crc32(block, checksum)
            _release(mapped)
        if checksum != int.from_bytes(mapped[expected - 8 :], "little"):
            raise ChunkStoreError(f"{name}: damaged: the checksum does not match")
        counts, places, offsets, data = _arrays(mapped, at, size)
        sound = offsets[0] == 0 and offsets[-1] == size.n_bytes
        for start in range(0, size.n, BLOCK):
            stop = start + BLOCK
            sound = sound and bool((offsets[start + 1 : stop + 1] > offsets[start:stop][: size.n - start]).all())
            sound = sound and bool((places[start + 1 : stop + 1] >= places[start:stop][: size.n - start - 1]).all())
            sound = sound and bool(counts[start:stop].all())
            _release(mapped)
        if sources is not None and size.n:
            sound = sound and int(places[-1]) >> OFFSET_BITS < len(sources)
        if not sound:
            # whoever looks at the traceback's variables must not find arrays in what is unmapped then
            del counts, places, offsets, data
            raise ChunkStoreError(f"{name}: damaged: its chunks do not lie end to end, or not in order")
        return cls(pattern, counts, places, offsets, data, sources, mapped)


def _start_of_file(pattern: str | Stages | None, sources: Sequence[str] | None, size: Size) -> bytes:
    """What stands before the arrays."""
    header = json.dumps(
        {
            "pattern": pattern.stages if isinstance(pattern, Stages) else pattern,
            "unicode": UNICODE_EDITION,
            "sources": None if sources is None else list(sources),
            "n_chunks": size.n,
            "n_bytes": size.n_bytes,
        },
        ensure_ascii=False,
    ).encode("utf-8", "surrogateescape")
    header += b" " * (-len(header) % 8)
    return MAGIC + VERSION.to_bytes(4, "little") + len(header).to_bytes(4, "little") + header


def _arrays(mapped: mmap.mmap, at: int, size: Size) -> Counted:
    """counts, places, offsets and data, which lie in a file from offset at on."""
    counts, places, offsets = (
        np.ndarray(n, "<u8", mapped, start).astype(np.uint64, copy=False)
        for n, start in ((size.n, at), (size.n, at + 8 * size.n), (size.n + 1, at + 16 * size.n))
    )
    return counts, places, offsets, np.ndarray(size.n_bytes, np.uint8, mapped, at + 24 * size.n + 8)


def _release(mapped: mmap.mmap | None) -> None:
    """Takes what was read of a file out of the process's memory; where it is read again it comes back."""
    if mapped is not None and sys.platform != "win32":
        mapped.madvise(mmap.MADV_DONTNEED)


@contextmanager
def _limited(memory_limit: int | str | None, scratch_dir: StrPath | None) -> Iterator[Limit | None]:
    """A limit, if one is given, whose scratch files are closed afterwards."""
    n_bytes = parse_size(memory_limit)
    limit = None if n_bytes is None else Limit(n_bytes, scratch_dir)
    try:
        yield limit
    finally:
        if limit is not None:
            limit.close()


def _spills_of(
    counters: list[ChunkCounter], limit: Limit | None, wanted: Callable[[], bool] = lambda: True
) -> list[Spill]:
    """Gives each counter a share of the limit, and a spill for what is more; none without a limit."""
    if limit is None:
        return []
    spills = [Spill(limit, wanted) for _ in counters]
    for counter, spill in zip(counters, spills, strict=True):
        counter.limit_to(limit.share_of_counter(len(counters)), spill.take)
    return spills


def _count(
    parts: Iterator[Part | DocumentPart],
    splitter: Splitter,
    num_threads: int | None,
    faults: Faults,
    progress: bool | None,
    total: int | None,
    limit: Limit | None,
) -> Counters:
    """Counts all parts, with a counter for each thread; returns the counters, and under a limit a spill for each.

    Of several faults in a corpus the first in reading order is raised, whatever the threads do.
    """
    num_threads = thread_count(num_threads)
    if total is not None and total < ENOUGH:
        num_threads = 1
    if limit is not None:
        num_threads = limit.threads(num_threads)
    counters = [ChunkCounter(splitter) for _ in range(num_threads)]
    work = Work(parts, splitter, faults, limit)
    spills = _spills_of(counters, limit, work.is_wanted)
    with progress_bar(progress, total, "counting") as bar:
        if num_threads == 1:
            for done in work.steps(counters[0]):
                bar.update(done)
        else:
            work.share(counters, bar.update)
    work.raise_first_fault()
    return counters, spills


def _joined(counters: list[ChunkCounter]) -> Counted:
    """What all counters have counted. The last is drained into all before it, then the one before, and so on."""
    for i in reversed(range(len(counters))):
        for counter in counters[:i]:
            counter.drain(counters[i])
    return counters[0].result(counters[1:])


class Work:
    """Parts of a corpus that threads take one batch after another, in order."""

    def __init__(
        self, parts: Iterator[Part | DocumentPart], splitter: Splitter, faults: Faults, limit: Limit | None
    ) -> None:
        self._parts = parts
        self._splitter = splitter
        self._lenience = faults
        self._limit = limit
        self._lock = threading.Lock()
        self._faults: list[tuple[int, BaseException]] = []      # with the number of the batch
        self._n_batches = 0
        self._stopped = False           # nobody wants the result any more
        self._done = 0                  # bytes

    def _take(self) -> tuple[int, list[Part | DocumentPart]]:
        """The next batch and its number: one long part, or short ones up to ENOUGH bytes. Empty when there is nothing
        to do.
        """
        batch: list[Part | DocumentPart] = []
        size = 0
        with self._lock:
            number = self._n_batches
            self._n_batches += 1
            if self._faults or self._stopped:
                return number, batch
            try:
                while size < ENOUGH and (part := next(self._parts, None)):
                    self._check(part)
                    batch.append(part)
                    size += ENOUGH if part.size is None else part.size
            except BaseException as fault:
                self._faults.append((number + 1, fault))        # behind what was taken before it
            return number, batch

    def _check(self, part: Part | DocumentPart) -> None:
        """Raises MemoryError for a text without cuts that is known to be too long: it is held more than once."""
        can_be_cut = self._splitter.cuttable and part.separators is None
        if part.size is None or can_be_cut or isinstance(part, DocumentPart):
            return
        size = part.size
        what = f"{part.name}: {show_size(size)} in one piece, for the pattern gives no place to cut it,"
        if self._limit is not None and 4 * size > self._limit.n_bytes:
            raise MemoryError(
                f"{what} take about {show_size(4 * size)}: memory_limit is {show_size(self._limit.n_bytes)}"
            )
        if size > LONG_PART:
            require(3 * size, f"{what} take {{needed}}", "cut it into several files")

    def is_wanted(self) -> bool:
        return not self._stopped

    def steps(self, counter: ChunkCounter) -> Iterator[int]:
        """Counts batches until there are none; yields the numbers of bytes done with."""
        while True:
            number, batch = self._take()
            if not batch:
                return
            try:
                for part in batch:
                    for done in count_part(counter, self._splitter, part, self._lenience):
                        yield done
                        if self._stopped:
                            return
            except Exception as fault:
                with self._lock:
                    if not self._stopped:           # nor does anybody want this
                        self._faults.append((number, fault))

    def share(self, counters: list[ChunkCounter], report: Any) -> None:
        """Has one thread count into each counter; report(n) is told of n more bytes a few times a second."""

        ended = []

        def work(counter: ChunkCounter) -> None:
            for done in self.steps(counter):
                with self._lock:
                    self._done += done
            ended.append(counter)

        threads: list[threading.Thread] = []
        reported = 0
        try:
            start_threads((threading.Thread(target=work, args=(each,), daemon=True) for each in counters), threads)
            if not threads:
                for done in self.steps(counters[0]):
                    report(done)
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    report(self._done - reported)
                    reported = self._done
            if len(ended) < len(threads):
                raise MemoryError(DIED)
        except BaseException:
            self._stopped = True
            deadline = time.monotonic() + GRACE         # one of them may wait for a pipe
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, deadline - time.monotonic()))
            self._faults.clear()        # their tracebacks lead here, and to scratch files
            raise

    def raise_first_fault(self) -> None:
        if self._faults:
            fault = min(self._faults, key=lambda fault: fault[0])[1]
            self._faults.clear()
            try:
                raise fault
            finally:
                del fault       # a fault that its own traceback leads to would keep files open until the next gc

"""The chunk store: a corpus as its distinct chunks, counted once, to be trained on many times and carried about.

In: parts of a corpus, counted by as many threads as asked for. Out: arrays in order of first appearance; and a file
of them, which is opened mapped. The order never depends on threads or shards: each chunk carries the place where it
was seen first.

The file, all integers little-endian:

    8 bytes     b"CBPEchnk"
    u32, u32    version (1), length of the header
    header      JSON in UTF-8: pattern, unicode, sources, n_chunks, n_bytes; padded with spaces to a multiple of 8 bytes
    u64[n]      counts
    u64[n]      first places: source number << 40 | byte offset
    u64[n + 1]  offsets of the chunks in what follows
    u8[...]     the chunks end to end, padded with zeros to a multiple of 8 bytes
    u64         CRC-32 of everything before it
"""

from __future__ import annotations

import json
import mmap
import operator
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from tqdm import tqdm

from cbpe.errors import ChunkStoreError, CorpusTooLargeError
from cbpe.files import atomic_write
from cbpe.inputs import StrPath, find_sources
from cbpe.inputs.documents import Faults
from cbpe.inputs.sources import OFFSET_BITS, check_field
from cbpe.patterns import GPT4_SPLIT_PATTERN
from cbpe.splitting.split import UNICODE_EDITION, Splitter, splitter_for
from cbpe.threads import heeding_ctrl_c, thread_count
from cbpe.training.chunks import ChunkCounter
from cbpe.training.corpus import DocumentPart, Part, count_part, separators_of, source_parts, text_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

Counted: TypeAlias = "tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]"

MAGIC = b"CBPEchnk"
VERSION = 1
ENOUGH = 1 << 20            # bytes of short texts that a thread takes at a time


class ChunkStore:
    """The distinct chunks of a corpus under one pattern, in order of first appearance, each with its count.

    store = ChunkStore.from_files("corpus.txt"); store.save("corpus.chunks"); ChunkStore.open("corpus.chunks")

    len(store) is the number of distinct chunks, iterating gives (bytes, count). pattern: the split pattern, or None
    where each text is one chunk (BasicTokenizer). total_bytes: the bytes of all chunks, duplicates included. A store
    from open() is mapped: close() it, or use it in a with statement, to let go of the file at once. skipped: how many
    documents counting left out under errors="skip"; it is not saved.
    """

    def __init__(
        self,
        pattern: str | None,
        counts: NDArray[np.uint64],
        places: NDArray[np.uint64],
        offsets: NDArray[np.uint64],
        data: NDArray[np.uint8],
        sources: Sequence[str] | None = None,
    ) -> None:
        """counts, places: uint64[n]; offsets: uint64[n + 1]; data: uint8[offsets[n]]; sources: the files, None for
        others.
        """
        self.pattern = pattern
        self.counts = counts
        self.places = places
        self.offsets = offsets
        self.data = data
        self.sources = None if sources is None else list(sources)
        self.skipped = 0
        lengths = np.diff(offsets)
        if np.multiply(counts, lengths, dtype=np.float64).sum() >= 2.0**63:
            raise CorpusTooLargeError("the counts add up to 2**63 bytes or more, and cannot be summed in 64 bits")
        self.total_bytes = int(np.multiply(counts, lengths).sum())

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
    ) -> ChunkStore:
        """Counts the chunks of files. A file of text is a text of its own; so is each line of JSONL, row of Parquet.

        paths: files (.txt or any other text, .jsonl, .ndjson, .parquet; all but the last also .gz, .bz2, .xz, .zst),
        folders, globs, "-" for standard input, URLs that fsspec knows; see find_sources. text_field: the member of a
        JSON object, or the column, that holds the text.

        pattern: a split pattern, or None to take each text as one chunk. special_tokens are not counted, nor is any
        part of them: the text on either side ends there. num_threads: None for all processors; threads change the
        time, never the result. progress: None shows a bar on a terminal only. shard (i, n): counts only the i-th of n
        shares of the corpus; merge() of all of them is the store of the whole.

        errors: "strict" raises at the first thing that is wrong: CorpusDecodeError with file and offset for bytes that
        are not UTF-8, CorpusFormatError with file and line, or row group and row, for what holds no text. "replace"
        counts U+FFFD in place of wrong bytes, as bytes.decode has it. "skip" does so in files of text; lines and rows
        with anything wrong are left out, counted in store.skipped, and told of by one UserWarning.

        Raises OSError naming the file, CorpusDecodeError, CorpusFormatError, CorpusTooLargeError, and ImportError
        for what needs the extra cbpe[data].
        """
        index, n_shards = shard
        if not 0 <= index < n_shards:
            raise ValueError(f"shard is (i, n) with 0 <= i < n, not {shard}")
        faults = Faults(errors)
        sources = find_sources(paths)
        check_field(sources, text_field)
        splitter = splitter_for(pattern)
        parts = source_parts(sources, splitter, separators_of(special_tokens or ()), text_field, shard)
        sizes = [source.size for source in sources]
        total = None if None in sizes else sum(size or 0 for size in sizes) // n_shards
        counted = _count(parts, splitter, num_threads, faults, progress, total)
        store = cls(splitter.pattern, *counted, sources=[source.name for source in sources])
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
    ) -> ChunkStore:
        """Counts the chunks of strings, each of which is a text of its own; the other arguments are those of
        from_files.

        The iterable is read once and not kept. Raises TypeError for what is not a str, UnicodeEncodeError for lone
        surrogates.
        """
        splitter = splitter_for(pattern)
        parts = text_parts(texts, splitter, separators_of(special_tokens or ()))
        total = sum(map(len, texts)) if isinstance(texts, (list, tuple)) else None
        return cls(splitter.pattern, *_count(parts, splitter, num_threads, Faults(errors), progress, total))

    @classmethod
    def merge(cls, stores: Iterable[ChunkStore]) -> ChunkStore:
        """One store for the texts of all, as if they had been read in the order in which the stores are given.

        Stores over the same list of files are shards of one corpus: their order does not matter, places decide. Raises
        ChunkStoreError where patterns differ or there is no store.
        """
        stores = list(stores)
        if not stores:
            raise ChunkStoreError("no stores to merge")
        first = stores[0]
        counter = ChunkCounter(splitter_for(first.pattern))
        shards = first.sources is not None and all(store.sources == first.sources for store in stores)
        sources: list[str] | None = first.sources if shards else []
        n_sources = 0
        for store in stores:
            if store.pattern != first.pattern:
                raise ChunkStoreError(f"stores of different patterns: {first.pattern!r} and {store.pattern!r}")
            shift = 0 if shards else n_sources << OFFSET_BITS
            counter.add_counted(store.counts, store.places, store.offsets, store.data, shift)
            if not shards:
                n_sources += store._n_sources()
                sources = None if sources is None or store.sources is None else sources + store.sources
        return cls(first.pattern, *counter.result(), sources=sources)

    def _n_sources(self) -> int:
        if self.sources is not None:
            return len(self.sources)
        return 1 + (int(self.places.max()) >> OFFSET_BITS) if len(self) else 1

    def pruned(self, min_count: int) -> ChunkStore:
        """A store of the chunks that occur min_count times or more: far smaller, trained on in less time and memory.

        Merges learned from it are not exactly those of the corpus, for pairs are no longer counted in what is left out;
        nor is that in total_bytes. This store stays as it is. Raises ValueError for a min_count below 1.
        """
        min_count = operator.index(min_count)
        if min_count < 1:
            raise ValueError(f"min_count must be at least 1: {min_count}")
        kept = self.counts >= min_count
        lengths = np.diff(self.offsets)
        offsets = np.zeros(np.count_nonzero(kept) + 1, np.uint64)
        np.cumsum(lengths[kept], out=offsets[1:])
        data = self.data[np.repeat(kept, lengths.astype(np.int64))]
        return ChunkStore(self.pattern, self.counts[kept], self.places[kept], offsets, data, self.sources)

    # ---- reading

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for start, stop, count in zip(self.offsets[:-1], self.offsets[1:], self.counts, strict=True):
            yield self.data[int(start) : int(stop)].tobytes(), int(count)

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

    # ---- files

    def save(self, path: StrPath) -> None:
        """Writes the store to path, whole or not at all. Raises OSError."""
        header = json.dumps(
            {
                "pattern": self.pattern,
                "unicode": UNICODE_EDITION,
                "sources": self.sources,
                "n_chunks": len(self),
                "n_bytes": len(self.data),
            },
            ensure_ascii=False,
        ).encode("utf-8", "surrogateescape")
        header += b" " * (-len(header) % 8)
        start = MAGIC + VERSION.to_bytes(4, "little") + len(header).to_bytes(4, "little") + header
        with atomic_write(path) as file:
            checksum = 0
            words = [array.astype("<u8", copy=False) for array in (self.counts, self.places, self.offsets)]
            arrays: list[Any] = [*words, self.data]         # which are buffers, though numpy's stubs do not say so
            for section in (start, *arrays, bytes(-len(self.data) % 8)):
                checksum = zlib.crc32(section, checksum)
                file.write(section)
            file.write(checksum.to_bytes(8, "little"))

    @classmethod
    def open(cls, path: StrPath) -> ChunkStore:
        """Maps a store that save() wrote. Raises OSError, ChunkStoreError for what is foreign, newer or damaged."""
        name = os.fspath(path)
        with open(name, "rb") as file:
            if os.fstat(file.fileno()).st_size < 16:
                raise ChunkStoreError(f"{name}: too short to be a chunk store")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
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
            n, n_bytes = header["n_chunks"], header["n_bytes"]
            sizes = [8 * n, 8 * n, 8 * (n + 1), n_bytes]
            sound = min(sizes) >= 0 and (pattern is None or isinstance(pattern, str))
        except (ValueError, KeyError, TypeError):
            sound = False
        if not sound:
            raise ChunkStoreError(f"{name}: damaged: the header cannot be read")
        expected = at + sum(sizes) + -n_bytes % 8 + 8
        if len(mapped) != expected:
            raise ChunkStoreError(f"{name}: damaged: {len(mapped):,} bytes long, but its header says {expected:,}")
        with memoryview(mapped) as view, view[: expected - 8] as body:
            checksum = zlib.crc32(body)
        if checksum != int.from_bytes(mapped[expected - 8 :], "little"):
            raise ChunkStoreError(f"{name}: damaged: the checksum does not match")
        counts, places, offsets = (
            np.ndarray(size // 8, "<u8", mapped, at + sum(sizes[:i])).astype(np.uint64, copy=False)
            for i, size in enumerate(sizes[:3])
        )
        data = np.ndarray(n_bytes, np.uint8, mapped, at + sum(sizes[:3]))
        if offsets[0] != 0 or offsets[-1] != n_bytes or (offsets[1:] <= offsets[:-1]).any() or not counts.all():
            raise ChunkStoreError(f"{name}: damaged: its chunks do not lie end to end")
        return cls(pattern, counts, places, offsets, data, sources)


def _count(
    parts: Iterator[Part | DocumentPart],
    splitter: Splitter,
    num_threads: int | None,
    faults: Faults,
    progress: bool | None,
    total: int | None,
) -> Counted:
    """Counts all parts, with a counter for each thread; returns counts, places, offsets and data.

    Of several faults in a corpus the first in reading order is raised, whatever the threads do.
    """
    num_threads = thread_count(num_threads)
    counters = [ChunkCounter(splitter)]
    hidden = None if progress is None else not progress         # None: unless this is a terminal
    with tqdm(total=total, desc="counting", unit="B", unit_scale=True, leave=False, disable=hidden) as bar:
        work = _Work(parts, splitter, faults)
        if num_threads == 1 or (total is not None and total < ENOUGH):
            for done in work.steps(counters[0]):
                bar.update(done)
        else:
            counters += [ChunkCounter(splitter) for _ in range(num_threads - 1)]
            work.share(counters, bar.update)
    work.raise_first_fault()
    return heeding_ctrl_c(_joined, counters)


def _joined(counters: list[ChunkCounter]) -> Counted:
    """What all counters have counted. The last is drained into all before it, then the one before, and so on."""
    for i in reversed(range(len(counters))):
        for counter in counters[:i]:
            counter.drain(counters[i])
    return counters[0].result(counters[1:])


class _Work:
    """Parts of a corpus that threads take one batch after another, in order."""

    def __init__(self, parts: Iterator[Part | DocumentPart], splitter: Splitter, faults: Faults) -> None:
        self._parts = parts
        self._splitter = splitter
        self._lenience = faults
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
                    batch.append(part)
                    size += ENOUGH if part.size is None else part.size
            except BaseException as fault:
                self._faults.append((number, fault))
            return number, batch

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
                    self._faults.append((number, fault))

    def share(self, counters: list[ChunkCounter], report: Any) -> None:
        """Has one thread count into each counter; report(n) is told of n more bytes a few times a second."""

        def work(counter: ChunkCounter) -> None:
            for done in self.steps(counter):
                with self._lock:
                    self._done += done

        threads = [threading.Thread(target=work, args=(counter,), daemon=True) for counter in counters]
        reported = 0
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.1)
                    report(self._done - reported)
                    reported = self._done
        finally:
            self._stopped = True
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def raise_first_fault(self) -> None:
        if self._faults:
            raise min(self._faults, key=lambda fault: fault[0])[1]

"""From text to distinct chunks: splits blocks of text, counts each distinct chunk, remembers where it was seen first.

In: stretches of text with their place in the corpus, from corpus.py. Out: the distinct chunks in order of first
appearance, which is all that training needs to know of a corpus (duplicates keep ties: the first occurrence of a pair
has the same rank among the distinct chunks as in the whole text).

Nearly all the time goes into waiting for memory: a gigabyte of mixed text has millions of distinct chunks. So a slot
of the table is half a cache line and holds everything: a chunk of up to 15 bytes itself, its count, its place. Chunks
are taken 64 at a time: all keys and hashes first, each one's slot prefetched, then the look-ups. A longer chunk is
keyed by a 64-bit hash, and its bytes, kept aside, are compared when the hash is found.

A chunk's home slot is the top bits of its hash. The table's order is therefore the order of hashes whatever its size,
and to grow it, or to look up one thread's chunks in another's table, is one pass through both in step, without a
cache miss. For the same reason a table is cut into parts by hash without sorting anything: a part is a stretch of
slots. Under a memory limit spill.py writes a full counter part by part, and merges the parts of all of them later.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

cimport cython

from cbpe.chunkkeys cimport INLINE, LONG, hash_bytes, hash_words, inline_head, inline_tail
from cbpe.splitting.split cimport PAD, Splitter, check_utf8, incomplete_tail, replace_utf8, settled

from cbpe.errors import CorpusTooLargeError
from cbpe.memory import require

cdef extern from "platform.h" nogil:
    void cbpe_prefetch(const void *address)
    void *cbpe_zeroed_pages(size_t bytes)
    void cbpe_free_pages(void *memory, size_t bytes)
    uint64_t cbpe_load64(const uint8_t *bytes)
    void cbpe_store64(uint8_t *bytes, uint64_t word)

cdef enum:
    BATCH = 64                  # chunks whose slots are fetched together
    BLOCK = 131072              # bytes split at once: text, ends and tables stay in the second-level cache
    TOGETHER = 16384            # bytes of short texts whose chunks are counted together
    MAX_TEXT = 0xFFFFFF00       # chunk ends are 32 bits wide
    FORESEEN = 4194304          # slots of a table that is worth a look at what memory there is
    LEAST_BITS = 10             # of the smallest table's number of slots


cdef struct Slot:
    uint64_t head               # the chunk's bytes 0 to 7; of a long one, its hash
    uint64_t tail               # bytes 8 to 14 and, on top, the length; of a long one, where it is kept, and LONG
    uint64_t place              # where the chunk was seen first
    uint64_t count              # 0: the slot is empty


cdef inline uint64_t hash_slot(const Slot *slot) noexcept nogil:
    if slot.tail >> 56 == LONG:
        return hash_words(slot.head, <uint64_t> LONG << 56)
    return hash_words(slot.head, slot.tail)


@cython.overflowcheck(False)        # the skipped bits are meant to go
cdef inline uint64_t home_of(uint64_t hash, int skip, int shift) noexcept nogil:
    """A hash's home slot: its top bits, after the first skip of them."""
    return hash << skip >> shift


@cython.final
cdef class ChunkCounter:
    """The distinct chunks seen so far, their counts and places. One thread counts into one counter at a time.

    counter.count(...) any number of times; then first.drain(other) for every two of them, and first.result(others).
    splitter: None where nothing is to be split: add() and add_counted() do without. skip: the top bits that the hashes
    of all chunks will have in common, because they are one part of many. expected: so many distinct chunks at most.
    """
    cdef Slot *slots
    cdef uint64_t n_slots, n_used
    cdef uint64_t n_bytes       # of all distinct chunks
    cdef int shift              # 64 - log2(n_slots)
    cdef uint8_t *kept          # the long chunks, each as its length (8 bytes) and its bytes
    cdef uint64_t n_kept, kept_capacity
    cdef uint32_t *ends
    cdef uint64_t n_ends
    cdef Splitter splitter
    cdef int skip               # the hashes' top bits that do not count
    cdef uint64_t limit         # bytes; 0 where there is none
    cdef uint64_t kept_limit    # what the limit leaves for long chunks beside the table
    cdef object on_full

    def __cinit__(self, Splitter splitter, int skip=0, uint64_t expected=0):
        self.splitter = splitter
        self.skip = skip
        self.limit = 0
        self.kept_limit = <uint64_t> -1
        self.on_full = None
        self.kept = NULL
        self.n_kept = self.kept_capacity = 0
        self.ends = NULL
        self.n_ends = 0
        self.n_used = self.n_bytes = 0
        self.shift = 64 - LEAST_BITS
        while (<uint64_t> 1 << (64 - self.shift)) * 3 < expected * 4:
            self.shift -= 1
        self.n_slots = <uint64_t> 1 << (64 - self.shift)
        self.slots = allocate_slots(self.n_slots, expected)

    def __dealloc__(self):
        cbpe_free_pages(self.slots, self.n_slots * sizeof(Slot))
        free(self.kept)
        free(self.ends)

    def __len__(self):
        return self.n_used

    # ---- counting under a limit

    @property
    def n_chunk_bytes(self):
        """The bytes of all distinct chunks."""
        return self.n_bytes

    @property
    def bits(self):
        """log2 of the number of slots."""
        return 64 - self.shift

    @property
    def held(self):
        """The bytes of memory that the table and the long chunks take."""
        return self.n_slots * sizeof(Slot) + self.n_kept

    def limit_to(self, uint64_t limit, on_full):
        """From now on, calls on_full(self) in place of holding more than limit bytes, and starts afresh afterwards.

        on_full: takes everything away, by part(); it is called in the midst of count(), add() or add_counted(). One
        chunk is always held, however long.
        """
        self.limit = limit
        self.on_full = on_full
        self._leave_room_for_long_chunks()

    def clear(self):
        """Forgets all chunks, and gives back the memory but for the smallest table's."""
        self._start_afresh(LEAST_BITS)

    cdef int _make_room(self, uint64_t n) except -1 nogil:
        """Makes the table hold n more chunks; where the limit stands against that, on_full takes away what there is.

        The table that follows a crowded one is the largest that the limit allows: to grow to it would have needed
        room for both.
        """
        cdef bint crowded = (self.n_used + n) * 4 > self.n_slots * 3
        cdef int bits = 64 - self.shift
        cdef uint64_t needed = (3 if crowded else 1) * self.n_slots * sizeof(Slot) + self.n_kept
        if self.limit and needed > self.limit and self.n_used:
            with gil:
                self.on_full(self)
            while crowded and (<uint64_t> 2 << bits) * sizeof(Slot) * 4 <= self.limit * 3:
                bits += 1
            self._start_afresh(bits)
        elif crowded:
            self._grow()
        return 0

    cdef int _start_afresh(self, int bits) except -1 nogil:
        free(self.kept)
        self.kept = NULL
        self.n_kept = self.kept_capacity = 0
        self.n_used = self.n_bytes = 0
        if bits == 64 - self.shift:
            memset(self.slots, 0, self.n_slots * sizeof(Slot))
        else:
            cbpe_free_pages(self.slots, self.n_slots * sizeof(Slot))
            self.slots = NULL
            self.slots = allocate_slots(<uint64_t> 1 << bits, 0)
            self.n_slots = <uint64_t> 1 << bits
            self.shift = 64 - bits
        self._leave_room_for_long_chunks()
        return 0

    cdef void _leave_room_for_long_chunks(self) noexcept nogil:
        cdef uint64_t table = self.n_slots * sizeof(Slot)
        if self.limit:
            self.kept_limit = self.limit - table if self.limit > table else 0

    # ---- counting

    def count(self, const uint8_t[::1] text, uint64_t size, uint64_t limit, bint is_last, uint64_t place, bint strict):
        """Splits a stretch of text natively and counts the chunks; returns how many of its bytes are done with.

        text: at least size + PAD bytes, of which size are the stretch. is_last: the text it comes from ends after
        limit bytes, and what stands behind limit is there to be looked at only (the splitter must see what follows a
        cut). Otherwise limit is size, the text goes on, and what is not settled is left for the next call; 0 means
        that the stretch is too short to settle anything. place: of the first byte, in the numbering by which first
        appearances are compared. Returns -2 - offset if strict and the byte at offset is not UTF-8; if not strict,
        counts what bytes.decode("utf-8", "replace") would give.
        """
        cdef const uint8_t *start = &text[0]
        cdef int64_t done, valid
        if size + PAD > <uint64_t> text.shape[0]:
            raise ValueError("the text is not padded")
        if size > MAX_TEXT:
            raise CorpusTooLargeError(
                f"a stretch of {size:,} bytes without a place to cut it: at most {MAX_TEXT:,} can be numbered"
            )
        if not is_last:
            size -= incomplete_tail(start, size)
            limit = size
        elif size > limit:
            size -= min(incomplete_tail(start, size), size - limit)
        if not strict:
            with nogil:
                valid = check_utf8(start, size)
            if valid < <int64_t> size:
                with nogil:
                    done = self._count_mended(start, size, limit, is_last, place)
                return done
        with nogil:
            done = self._count_native(start, size, limit, is_last, place, NULL)
        return done

    def add(self, const uint8_t[::1] text, const uint32_t[::1] ends, uint64_t place):
        """Counts chunks that were found elsewhere. text: the chunks end to end and PAD bytes more; ends: of each."""
        if ends.shape[0]:
            if ends[ends.shape[0] - 1] + PAD > <uint64_t> text.shape[0]:
                raise ValueError("the text is not padded")
            with nogil:
                self._add(&text[0], &ends[0], <uint64_t> ends.shape[0], place, NULL)

    def count_texts(self, const uint8_t[::1] text, const uint64_t[::1] begins, const uint64_t[::1] ends,
                    const uint64_t[::1] places):
        """Splits and counts many texts, each of which ends where it ends: text[begins[i]:ends[i]], seen at places[i].

        The pattern is native, or None, by which each text is one chunk. Raises ValueError for a text that is not UTF-8,
        CorpusTooLargeError.
        """
        cdef uint64_t size = text.shape[0], n_texts = begins.shape[0], i
        if self.splitter.native == NULL and self.splitter.kind != "whole":
            raise ValueError("this pattern is not native")
        if ends.shape[0] != begins.shape[0] or places.shape[0] != begins.shape[0]:
            raise ValueError("begins, ends and places are of different lengths")
        for i in range(n_texts):
            if begins[i] > ends[i] or ends[i] > size:
                raise ValueError(f"text {i} lies outside of the buffer")
            if ends[i] - begins[i] > MAX_TEXT:
                raise CorpusTooLargeError(
                    f"a text of {ends[i] - begins[i]:,} bytes: at most {MAX_TEXT:,} can be numbered"
                )
        if n_texts:
            with nogil:
                self._count_texts(&text[0], size, &begins[0], &ends[0], &places[0], n_texts)

    cdef int _count_texts(self, const uint8_t *text, uint64_t size, const uint64_t *begins, const uint64_t *ends,
                          const uint64_t *places, uint64_t n_texts) except -1 nogil:
        """count_texts. Short texts that lie end to end are split one by one, and their chunks counted together: those
        of a single line are too few to hide the waiting for their slots (see BATCH).
        """
        cdef uint64_t i, n, n_chunks = 0, start = 0, place = 0, end = 0     # of the short texts that wait
        cdef uint32_t *origin = <uint32_t *> malloc(TOGETHER * sizeof(uint32_t))
        cdef bint is_short
        try:
            if origin == NULL:
                with gil:
                    raise MemoryError(f"no memory for {TOGETHER * sizeof(uint32_t):,} bytes")
            for i in range(n_texts):
                n = ends[i] - begins[i]
                is_short = self.splitter.native != NULL and n <= TOGETHER and ends[i] + PAD <= size
                if n_chunks and not (is_short and begins[i] == end and ends[i] - start <= TOGETHER
                                     and place <= places[i] < place + MAX_TEXT - TOGETHER):
                    self._add(text + start, self.ends, n_chunks, place, origin)
                    n_chunks = 0
                if not is_short:
                    self._count_text(text + begins[i], n, size - begins[i], places[i])
                elif n:
                    if n_chunks == 0:
                        self._reserve_ends(2 * TOGETHER + PAD)
                        start, place = begins[i], places[i]
                    n_chunks = self._split_short(text, begins[i], n, start, n_chunks, origin, places[i] - place)
                    end = ends[i]
            if n_chunks:
                self._add(text + start, self.ends, n_chunks, place, origin)
        finally:
            free(origin)
        return 0

    cdef uint64_t _split_short(self, const uint8_t *text, uint64_t begin, uint64_t n, uint64_t start, uint64_t n_chunks,
                               uint32_t *origin, uint64_t shift) except? 0 nogil:
        """Splits text[begin:begin + n] and appends its chunks to the n_chunks that there are; returns their number.

        Ends count from start on. origin: gets for the first byte of each chunk its offset in the text plus shift.
        """
        cdef uint32_t *ends = self.ends + n_chunks
        cdef int64_t found = self.splitter.native(text + begin, n, ends), i
        cdef uint32_t before = <uint32_t> (begin - start), at = 0
        if found < 0:
            with gil:
                raise ValueError(f"a text is not UTF-8: its byte at {-1 - found:,} is wrong")
        for i in range(found):
            origin[before + at] = <uint32_t> (shift + at)
            at = ends[i]
            ends[i] = before + at
        return n_chunks + <uint64_t> found

    cdef int _count_text(self, const uint8_t *text, uint64_t n, uint64_t readable, uint64_t place) except -1 nogil:
        """Splits and counts a whole text; behind it not all of PAD may be readable."""
        cdef uint8_t *padded = NULL
        cdef int64_t done
        if n == 0:
            return 0
        try:
            if n + PAD > readable:
                padded = <uint8_t *> malloc(n + PAD)
                if padded == NULL:
                    with gil:
                        raise MemoryError(f"no memory for a text of {n:,} bytes")
                memcpy(padded, text, n)
                memset(padded + n, 0, PAD)
                text = padded
            if self.splitter.native == NULL:
                self._reserve_ends(1)
                self.ends[0] = <uint32_t> n
                self._add(text, self.ends, 1, place, NULL)
                return 0
            done = self._count_native(text, n, n, True, place, NULL)
            if done < 0:
                with gil:
                    raise ValueError(f"a text is not UTF-8: its byte at {-2 - done:,} is wrong")
        finally:
            free(padded)
        return 0

    cdef int64_t _count_native(self, const uint8_t *text, uint64_t size, uint64_t limit, bint is_last, uint64_t place,
                               const uint32_t *origin) except -1 nogil:
        """Splits and counts block by block; arguments and result as count's. origin: as _add's."""
        cdef uint64_t at = 0, block = BLOCK, n
        cdef int64_t n_chunks
        while at < limit:
            n = min(block, size - at)
            if at + n < size:
                n -= incomplete_tail(text + at, n)
            self._reserve_ends(n + PAD)
            n_chunks = self.splitter.native(text + at, n, self.ends)
            if n_chunks < 0:
                return n_chunks - <int64_t> at - 1
            if at + n < size or not is_last:
                n_chunks = <int64_t> settled(text + at, n, self.ends, <size_t> n_chunks)
            while n_chunks and at + self.ends[n_chunks - 1] > limit:
                n_chunks -= 1
            if n_chunks:
                self._add(text + at, self.ends, <uint64_t> n_chunks, place + (0 if origin != NULL else at),
                          origin + at if origin != NULL else NULL)
                at += self.ends[n_chunks - 1]
                block = BLOCK
            elif at + n < size:
                block *= 2              # a chunk larger than the block
            else:
                break
        return <int64_t> at

    cdef int64_t _count_mended(self, const uint8_t *text, uint64_t size, uint64_t limit, bint is_last,
                               uint64_t place) except -1 nogil:
        """_count_native for text that is not UTF-8: what is wrong is replaced first; offsets stay those of the text."""
        cdef uint8_t *mended = <uint8_t *> malloc(3 * size + PAD)
        cdef uint32_t *origin = <uint32_t *> malloc((3 * size + 1) * sizeof(uint32_t))
        cdef uint64_t n, mended_limit = 0
        cdef int64_t done
        try:
            if mended == NULL or origin == NULL:
                with gil:
                    raise MemoryError(f"no memory to mend {size:,} bytes that are not UTF-8")
            n = replace_utf8(text, size, mended, origin)
            origin[n] = <uint32_t> size
            while mended_limit < n and origin[mended_limit] < limit:
                mended_limit += 1
            done = self._count_native(mended, n, mended_limit, is_last, place, origin)
            return origin[done]
        finally:
            free(mended)
            free(origin)

    cdef int _add(self, const uint8_t *text, const uint32_t *ends, uint64_t n_chunks, uint64_t place,
                  const uint32_t *origin) except -1 nogil:
        """Counts the chunks that end at ends. place: of text[0], or, with origin, what to add to origin[start].

        INLINE + 1 bytes behind a short chunk's first byte are read, whatever its length.
        """
        cdef uint64_t head[BATCH]
        cdef uint64_t tail[BATCH]
        cdef uint64_t home[BATCH]
        cdef uint64_t begin = 0, first = 0, length, at
        cdef const uint8_t *chunk
        cdef uint64_t batch, i
        while first < n_chunks:
            batch = min(<uint64_t> BATCH, n_chunks - first)
            if (self.n_used + BATCH) * 4 > self.n_slots * 3 or self.n_kept > self.kept_limit:
                self._make_room(BATCH)
            at = begin
            for i in range(batch):
                length = ends[first + i] - at
                chunk = text + at
                at += length
                if length <= INLINE:
                    head[i] = inline_head(chunk, length)
                    tail[i] = inline_tail(chunk, length)
                else:
                    head[i] = hash_bytes(chunk, length)
                    tail[i] = <uint64_t> LONG << 56
                home[i] = home_of(hash_words(head[i], tail[i]), self.skip, self.shift)
                cbpe_prefetch(self.slots + home[i])
            for i in range(batch):
                at = ends[first + i]
                self._add_one(head[i], tail[i], home[i], text + begin, at - begin, 1,
                              place + (begin if origin == NULL else origin[begin]))
                begin = at
            first += batch
        return 0

    cdef inline int _add_one(self, uint64_t head, uint64_t tail, uint64_t home, const uint8_t *chunk, uint64_t length,
                             uint64_t count, uint64_t place) except -1 nogil:
        """Adds count to the chunk's slot, or takes an empty one for it."""
        cdef Slot *slot = self._find(head, tail, home, chunk, length)
        if slot.count:
            slot.count += count
            if place < slot.place:
                slot.place = place
            return 0
        slot.head = head
        slot.tail = tail if tail >> 56 != LONG else <uint64_t> LONG << 56 | self._keep(chunk, length)
        slot.place = place
        slot.count = count
        self.n_used += 1
        self.n_bytes += length
        return 0

    cdef inline Slot *_find(self, uint64_t head, uint64_t tail, uint64_t home, const uint8_t *chunk,
                            uint64_t length) noexcept nogil:
        """The chunk's slot, or the empty one that it would take: from its home on, the first that is either.

        chunk and length: of a long chunk; where it is kept, if anywhere, does not matter in tail.
        """
        cdef uint64_t i = home
        cdef Slot *slot = self.slots + i
        while slot.count and not (slot.head == head and (
                slot.tail == tail if tail >> 56 != LONG else self._is_kept(slot.tail, chunk, length))):
            i = (i + 1) & (self.n_slots - 1)
            slot = self.slots + i
        return slot

    # ---- long chunks

    cdef inline uint64_t _length(self, const Slot *slot) noexcept nogil:
        cdef uint64_t length = slot.tail >> 56
        if length == LONG:
            length = cbpe_load64(self.kept + (slot.tail & (<uint64_t> 1 << 56) - 1))
        return length

    cdef bint _is_kept(self, uint64_t tail, const uint8_t *chunk, uint64_t length) noexcept nogil:
        """Whether the chunk is the one that a slot with this tail stands for."""
        cdef const uint8_t *kept = self.kept + (tail & (<uint64_t> 1 << 56) - 1)
        return tail >> 56 == LONG and cbpe_load64(kept) == length and memcmp(kept + 8, chunk, length) == 0

    cdef uint64_t _keep(self, const uint8_t *chunk, uint64_t length) except? 0xFFFFFFFFFFFFFFFF nogil:
        """Keeps a copy of a long chunk; returns where."""
        cdef uint64_t where = self.n_kept, capacity
        cdef uint8_t *larger
        if where + 8 + length > self.kept_capacity:
            capacity = max(self.kept_capacity + self.kept_capacity // 2, where + 8 + length)
            larger = <uint8_t *> realloc(self.kept, capacity)
            if larger == NULL:
                with gil:
                    raise MemoryError(f"no memory for {capacity:,} bytes of chunks")
            self.kept = larger
            self.kept_capacity = capacity
        cbpe_store64(self.kept + where, length)
        memcpy(self.kept + where + 8, chunk, length)
        self.n_kept = where + 8 + length
        return where

    # ---- memory

    cdef int _reserve_ends(self, uint64_t n) except -1 nogil:
        if n > self.n_ends:
            free(self.ends)
            self.n_ends = 0
            self.ends = <uint32_t *> malloc(n * sizeof(uint32_t))
            if self.ends == NULL:
                with gil:
                    raise MemoryError(f"no memory for the ends of the chunks in {n:,} bytes")
            self.n_ends = n
        return 0

    cdef int _grow(self) except -1 nogil:
        """Doubles the table. Slots keep their order, so both tables are walked once from front to back."""
        cdef uint64_t n_slots = 2 * self.n_slots, i, j
        cdef int shift = self.shift - 1
        cdef Slot *slots = allocate_slots(n_slots, self.n_used)
        for i in range(self.n_slots):
            if self.slots[i].count:
                j = home_of(hash_slot(self.slots + i), self.skip, shift)
                while slots[j].count:
                    j = (j + 1) & (n_slots - 1)
                slots[j] = self.slots[i]
        cbpe_free_pages(self.slots, self.n_slots * sizeof(Slot))
        self.slots = slots
        self.n_slots = n_slots
        self.shift = shift
        self._leave_room_for_long_chunks()
        return 0

    # ---- results

    def drain(self, ChunkCounter other):
        """Moves here what another counter has counted of chunks that this one has too; the rest stays there.

        The other may not count any more: only result() knows what to do with its holes.
        """
        cdef Slot *slot
        cdef Slot *own
        cdef const uint8_t *chunk
        cdef uint64_t i
        with nogil:
            for i in range(other.n_slots):
                slot = other.slots + i
                if slot.count == 0:
                    continue
                chunk = NULL
                if slot.tail >> 56 == LONG:
                    chunk = other.kept + (slot.tail & (<uint64_t> 1 << 56) - 1) + 8
                own = self._find(slot.head, slot.tail, home_of(hash_slot(slot), self.skip, self.shift), chunk,
                                 other._length(slot))
                if own.count:
                    own.count += slot.count
                    own.place = min(own.place, slot.place)
                    other.n_used -= 1
                    other.n_bytes -= other._length(slot)
                    slot.count = 0

    def add_counted(self, const uint64_t[::1] counts, const uint64_t[::1] places, const uint64_t[::1] offsets,
                    const uint8_t[::1] data, uint64_t shift):
        """Adds chunks that were counted before; shapes as result's, but offsets may begin anywhere in data.

        shift is added to each place.
        """
        cdef uint8_t short_chunk[16]
        cdef uint64_t i, length, head, tail
        cdef const uint8_t *chunk
        with nogil:
            for i in range(<uint64_t> counts.shape[0]):
                if (self.n_used + 1) * 4 > self.n_slots * 3 or self.n_kept > self.kept_limit:
                    self._make_room(1)
                chunk = &data[offsets[i]]
                length = offsets[i + 1] - offsets[i]
                if length <= INLINE:
                    memset(short_chunk, 0, 16)
                    memcpy(short_chunk, chunk, length)
                    head = cbpe_load64(short_chunk)
                    tail = cbpe_load64(short_chunk + 8) | length << 56
                else:
                    head = hash_bytes(chunk, length)
                    tail = <uint64_t> LONG << 56
                self._add_one(head, tail, home_of(hash_words(head, tail), self.skip, self.shift), chunk, length,
                              counts[i], places[i] + shift)

    def part(self, uint64_t number, int bits):
        """The chunks of part number of 2**bits, as take() gives them: those whose hash has number for its top bits.

        They have their homes in one stretch of slots, and lie in it or, if their neighbours were in the way, in the
        used slots that follow. bits: up to LEAST_BITS. Not after drain(), which leaves holes.
        """
        cdef int part_shift = 64 - self.shift - bits            # from a home to its part
        cdef uint64_t first, behind, i, n = 0
        cdef uint64_t mask = self.n_slots - 1
        cdef uint64_t[::1] order
        cdef Slot *slot
        if not 0 <= bits <= LEAST_BITS or number >> bits:
            raise ValueError(f"no part {number} of 2**{bits}")
        first = number << part_shift
        behind = first + (<uint64_t> 1 << part_shift)
        order = np.empty(min(self.n_used, behind - first), np.uint64)
        with nogil:
            i = first
            while i < behind or (self.slots[i & mask].count and i < first + self.n_slots):
                slot = self.slots + (i & mask)
                if slot.count and home_of(hash_slot(slot), self.skip, self.shift) >> part_shift == number:
                    if n == <uint64_t> order.shape[0]:
                        with gil:
                            order = np.concatenate([order, np.empty(n + 1, np.uint64)])
                    order[n] = i & mask
                    n += 1
                i += 1
        return self.take(order.base[:n], 0, n, <uint64_t> -1)

    def take(self, const uint64_t[::1] order, uint64_t start, uint64_t n, uint64_t n_bytes):
        """Up to n of the chunks in the slots order[start:], and n_bytes bytes, but at least one, if there is one.

        Returns counts uint64[k], places uint64[k], lengths uint32[k], data uint8[...].
        """
        cdef uint64_t i, k = 0, total = 0, length
        n = min(n, <uint64_t> order.shape[0] - start)
        cdef uint64_t[::1] counts = np.empty(n, np.uint64)
        cdef uint64_t[::1] places = np.empty(n, np.uint64)
        cdef uint32_t[::1] lengths = np.empty(n, np.uint32)
        cdef uint8_t[::1] data
        cdef Slot *slot
        with nogil:
            while k < n:
                if k + 16 < n:
                    cbpe_prefetch(self.slots + order[start + k + 16])
                slot = self.slots + order[start + k]
                length = self._length(slot)
                if k and total + length > n_bytes:
                    break
                counts[k] = slot.count
                places[k] = slot.place
                lengths[k] = <uint32_t> length
                total += length
                k += 1
        data = np.empty(total, np.uint8)
        total = 0
        with nogil:
            for i in range(k):
                total += copy_chunk(self.slots + order[start + i], self.kept, &data[total])
        return counts.base[:k], places.base[:k], lengths.base[:k], data.base

    def result(self, others=()):
        """All chunks in order of their places: counts and places uint64[n], offsets uint64[n + 1], data uint8[...].

        others: counters whose chunks this one lacks, and each other: drain() sees to that.
        """
        cdef list counters = [self, *others]
        cdef uint64_t n = sum(map(len, counters)), n_bytes = 0, i, total = 0
        cdef int bits = 0
        cdef ChunkCounter counter
        for counter in counters:
            n_bytes += counter.n_bytes
            bits = max(bits, 64 - counter.shift)
        if n >= FORESEEN:
            require(40 * n + n_bytes, f"{n:,} distinct chunks need {{needed}} more to be put in order")
        cdef uint64_t[::1] counts = np.empty(n, np.uint64)
        cdef uint64_t[::1] places = np.empty(n, np.uint64)
        cdef uint64_t[::1] offsets = np.zeros(n + 1, np.uint64)
        cdef uint8_t[::1] data = np.empty(n_bytes, np.uint8)
        cdef const uint64_t[::1] order = in_order_of_places(counters, n, bits)
        cdef Table *tables = <Table *> malloc(len(counters) * sizeof(Table))
        cdef Slot *slot
        if tables == NULL:
            raise MemoryError
        for i in range(<uint64_t> len(counters)):
            tables[i].slots = (<ChunkCounter> counters[i]).slots
            tables[i].kept = (<ChunkCounter> counters[i]).kept
        with nogil:
            for i in range(n):
                if i + 32 < n:
                    cbpe_prefetch(slot_of(tables, order[i + 32], bits))
                    slot = slot_of(tables, order[i + 16], bits)
                    if slot.tail >> 56 == LONG:
                        cbpe_prefetch(tables[order[i + 16] >> bits].kept + (slot.tail & (<uint64_t> 1 << 56) - 1))
                slot = slot_of(tables, order[i], bits)
                counts[i] = slot.count
                places[i] = slot.place
                total += copy_chunk(slot, tables[order[i] >> bits].kept, &data[total])
                offsets[i + 1] = total
        free(tables)
        return counts.base, places.base, offsets.base, data.base


cdef Slot *allocate_slots(uint64_t n_slots, uint64_t n_used) except NULL nogil:
    """Empty slots, which cbpe_free_pages frees. n_used: what the message says of the need, if there is no memory.

    Pages of their own go back to the system at once. Of what calloc gave, malloc may keep 16 MB and more for later,
    which a memory limit has no room for.
    """
    cdef Slot *slots
    if n_slots >= FORESEEN:
        with gil:
            require(n_slots * sizeof(Slot), f"counting needs {{needed}} for more than {n_used:,} distinct chunks")
    slots = <Slot *> cbpe_zeroed_pages(n_slots * sizeof(Slot))
    if slots == NULL:
        with gil:
            raise MemoryError(f"no memory for {n_slots * sizeof(Slot):,} bytes: {n_used:,} distinct chunks")
    return slots


def hash_id():
    """A number that changes when chunks are hashed differently: parts can only be merged where it is the same."""
    cdef bytes sample = bytes(range(1, 65))
    cdef const uint8_t *text = sample
    cdef uint64_t h = hash_words(hash_bytes(text, 33), <uint64_t> LONG << 56)
    return hash_words(h, hash_words(inline_head(text, INLINE), inline_tail(text, INLINE)))


def copy_chunks(const uint64_t[::1] order, const uint64_t[::1] offsets, const uint8_t[::1] data):
    """The bytes of chunks order[0], order[1], ... end to end, uint8[...]; i is data[offsets[i]:offsets[i + 1]]."""
    cdef uint64_t i, total = 0, length
    cdef uint8_t[::1] out = np.empty(data.shape[0], np.uint8)
    with nogil:
        for i in range(<uint64_t> order.shape[0]):
            length = offsets[order[i] + 1] - offsets[order[i]]
            memcpy(&out[total], &data[offsets[order[i]]], length)
            total += length
    return out.base[:total]


cdef struct Table:
    Slot *slots
    const uint8_t *kept


cdef inline Slot *slot_of(const Table *tables, uint64_t number, int bits) noexcept nogil:
    """The slot with a number: which table << bits | where in it."""
    return tables[number >> bits].slots + (number & (<uint64_t> 1 << bits) - 1)


def in_order_of_places(list counters, uint64_t n, int bits):
    """The numbers of the used slots of all counters, uint64[n], in order of their places. A number is slot_of's.

    Where place and number fit into one word, numpy sorts such words: 8.3 M in 0.12 s, against 1.0 s for argsort.
    """
    cdef uint64_t[::1] places = np.empty(n, np.uint64)
    cdef uint64_t[::1] numbers = np.empty(n, np.uint64)
    cdef uint64_t at = 0, i, last = 0, table = 0
    cdef int low_bits = bits + int(len(counters) - 1).bit_length()
    cdef ChunkCounter counter
    for counter in counters:
        with nogil:
            for i in range(counter.n_slots):
                if counter.slots[i].count:
                    places[at] = counter.slots[i].place
                    last = max(last, places[at])
                    numbers[at] = table << bits | i
                    at += 1
            table += 1
    if last >> (64 - low_bits):
        return numbers.base[np.argsort(places)]
    words = places.base
    words <<= np.uint64(low_bits)
    words |= numbers.base
    words.sort()
    words &= np.uint64((1 << low_bits) - 1)
    return words


cdef uint64_t copy_chunk(const Slot *slot, const uint8_t *kept, uint8_t *out) noexcept nogil:
    """Writes a slot's chunk to out; returns its length. kept: the long chunks of the slot's counter."""
    cdef uint64_t length = slot.tail >> 56
    cdef uint8_t words[16]
    if length == LONG:
        kept += slot.tail & (<uint64_t> 1 << 56) - 1
        length = cbpe_load64(kept)
        memcpy(out, kept + 8, length)
    else:
        cbpe_store64(words, slot.head)
        cbpe_store64(words + 8, slot.tail)
        memcpy(out, words, length)
    return length

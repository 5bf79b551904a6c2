"""A bounded memory of chunks and their ids: one thread's, lent to one operation at a time.

In: chunks that the merges have been applied to. Out: their ids, if they are asked for again soon enough.

A line of 64 bytes, which is what a processor fetches, has two entries; an entry is a chunk's key and its ids, as long
as they are few. A chunk may stand in either of two lines, chosen by independent parts of its hash. If all four entries
are taken, one of the first line is overwritten, by turns. More ids, and the bytes of a chunk that is longer than a key,
are written into a ring, the oldest overwritten first; an entry says where. Whatever it says is compared with the
chunk before it is believed, so what has been lost is only made anew.

Both begin small, so that a prompt does not pay for what a corpus needs, and grow up to a bound that is given: the ring
has a third of it.
"""

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from cbpe.chunkkeys cimport LONG, hash_words
from cbpe.ids cimport id_t

cdef extern from "platform.h" nogil:
    void *cbpe_zeroed_pages(size_t bytes)
    void cbpe_free_pages(void *memory, size_t bytes)

cdef enum:
    FIRST_BITS = 8              # log2 of the lines there are at first
    GROWTH_BITS = 2             # log2 of the factor by which lines and ring grow
    FIRST_RING = 16384
    LEAST_RING = 4096           # above all that a record may have: KEPT bytes and as many ids


cdef inline size_t table_size(int bits) noexcept nogil:
    """Bytes for 2**bits lines, and one more, for memory need not begin where a line does."""
    return ((<size_t> 1 << bits) + 1) * sizeof(Line)


cdef int allocate_lines(Cache *cache, int bits) except -1 nogil:
    cdef size_t size = <size_t> 1 << bits
    cdef void *memory = cbpe_zeroed_pages(table_size(bits))
    if memory == NULL:
        with gil:
            raise MemoryError(f"no memory for {size * sizeof(Line):,} bytes of cache")
    cache.memory = memory
    cache.lines = <Line *> ((<uint64_t> memory + sizeof(Line) - 1) // sizeof(Line) * sizeof(Line))
    cache.shift = 64 - bits
    cache.n_used = 0
    return 0


cdef int cache_init(Cache *cache, uint64_t most_bytes) except -1 nogil:
    """Makes an empty cache out of one that is all zero. It will not have more than most_bytes, or what it begins with.

    cache_free is to be called whatever happens.
    """
    cdef int bits = 1
    while sizeof(Line) << (bits + 1) <= most_bytes // 3 * 2 and bits < 40:
        bits += 1
    cache.least_shift = 64 - bits
    cache.most_ring = LEAST_RING
    while 2 * cache.most_ring <= most_bytes // 3:
        cache.most_ring *= 2
    allocate_lines(cache, min(bits, FIRST_BITS))
    cache.ring_head = 0
    resize_ring(cache, min(cache.most_ring, <uint64_t> FIRST_RING))
    return 0


cdef void cache_free(Cache *cache) noexcept nogil:
    if cache.memory != NULL:
        cbpe_free_pages(cache.memory, table_size(64 - cache.shift))
    cbpe_free_pages(cache.ring, cache.ring_size)


cdef bint put(Entry *place, const Entry *entry) noexcept nogil:
    """Writes the entry if the place is empty or has an older one of the same chunk."""
    if place.tail != 0 and (place.head != entry.head or place.tail != entry.tail):
        return False
    place[0] = entry[0]
    return True


cdef void put_anywhere(Cache *cache, uint64_t hash, const Entry *entry) noexcept nogil:
    cdef Line *first = cache.lines + first_line(cache, hash)
    cdef Line *second = cache.lines + second_line(cache, hash)
    cache.n_used += 1                   # more or less: what is overwritten counts twice
    if put(&first.entries[0], entry) or put(&first.entries[1], entry):
        return
    if put(&second.entries[0], entry) or put(&second.entries[1], entry):
        return
    cache.turn += 1
    first.entries[cache.turn & 1] = entry[0]


cdef int grow_lines(Cache *cache) except -1 nogil:
    """Moves everything into more lines. First lines keep their order, so both tables are walked once."""
    cdef void *memory = cache.memory
    cdef Line *lines = cache.lines
    cdef int bits = 64 - cache.shift
    cdef uint64_t n_lines = <uint64_t> 1 << bits
    cdef uint64_t i, j
    cdef Entry *entry
    allocate_lines(cache, 64 - max(cache.shift - GROWTH_BITS, cache.least_shift))
    for i in range(n_lines):
        for j in range(2):
            entry = &lines[i].entries[j]
            if entry.tail != 0:
                put_anywhere(cache, hash_words(entry.head, entry.tail), entry)
    cbpe_free_pages(memory, table_size(bits))
    return 0


cdef int cache_insert(Cache *cache, uint64_t hash, const Entry *entry) except -1 nogil:
    """Keeps an entry, at the cost of another one if need be. hash: hash_words of its key."""
    if cache.n_used >> (64 - cache.shift) != 0 and cache.shift > cache.least_shift:
        grow_lines(cache)               # half of the entries are taken
    put_anywhere(cache, hash, entry)
    return 0


cdef int resize_ring(Cache *cache, uint64_t size) except -1 nogil:
    """The ring has not been full once: every place stays where it is."""
    cdef void *larger = cbpe_zeroed_pages(size)
    if larger == NULL:
        with gil:
            raise MemoryError(f"no memory for {size:,} bytes of cache")
    if cache.ring != NULL:
        memcpy(larger, cache.ring, cache.ring_size)
    cbpe_free_pages(cache.ring, cache.ring_size)
    cache.ring = <uint8_t *> larger
    cache.ring_size = size
    return 0


cdef int cache_insert_apart(Cache *cache, uint64_t hash, const Entry *entry, const id_t *ids, const uint8_t *chunk,
                            uint64_t length) except -1 nogil:
    """cache_insert of an entry that says how many ids there are, and not yet where. length <= KEPT."""
    cdef Entry placed = entry[0]
    cdef uint64_t n_ids = entry.second * sizeof(id_t)
    cdef uint64_t size = (n_ids + length + 7) // 8 * 8
    cdef uint64_t left
    cdef uint8_t *record
    while cache.ring_head + size > cache.ring_size and cache.ring_size < cache.most_ring:
        resize_ring(cache, min(cache.ring_size << GROWTH_BITS, cache.most_ring))
    left = cache.ring_size - (cache.ring_head & (cache.ring_size - 1))
    if left < size:
        cache.ring_head += left         # a record lies in one piece
    placed.first = <uint64_t> APART << 60 | cache.ring_head
    record = in_ring(cache, cache.ring_head)
    memcpy(record, ids, n_ids)
    if entry.tail >> 56 == LONG:
        memcpy(record + n_ids, chunk, length)
    cache.ring_head += size
    return cache_insert(cache, hash, &placed)

"""A bounded memory of chunks and their ids: the words that the pipeline inlines. See cache.pyx for what it is."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from cbpe.chunkkeys cimport LONG
from cbpe.ids cimport id_t

cdef enum:
    KEPT = 255                  # bytes of the longest chunk that is kept
    MOST_INLINE = 6             # ids that an entry holds itself, of models all of whose ids are below 2**20
    MOST_INLINE_WIDE = 3        # of the others
    APART = 15                  # in place of the number of ids: they stand in the ring, or wherever the entry says


cdef struct Entry:
    uint64_t head, tail         # the chunk's key; tail is 0 if the entry is empty
    # ids 0 and 1 at bits 0 and 32, their number at bit 60, and what is between has the 20 bits of id 5; ids 2, 3, 4 at
    # bits 0, 20, 40. Of wide models: id 0, and the number at bit 60; ids 1 and 2 at bits 0 and 32. Of what is APART:
    # the place in the ring, and APART at bit 60; the number.
    uint64_t first, second


cdef struct Line:
    Entry entries[2]


cdef struct Cache:
    Line *lines                 # aligned to 64 bytes
    void *memory                # what was allocated for them
    int shift                   # 64 - log2 of their number; a chunk's line is the top bits of its hash
    int least_shift             # of the most lines that there may be
    uint64_t n_used             # entries
    uint64_t turn               # which of two entries is overwritten next
    uint8_t *ring               # ids and bytes of the chunks that do not fit in an entry
    uint64_t ring_size          # a power of two
    uint64_t most_ring
    uint64_t ring_head          # bytes ever written: place p is at p % ring_size as long as p >= ring_head - ring_size


cdef inline uint64_t first_line(const Cache *cache, uint64_t hash) noexcept nogil:
    return hash >> cache.shift


@cython.overflowcheck(False)        # hashes wrap around
cdef inline uint64_t second_line(const Cache *cache, uint64_t hash) noexcept nogil:
    """The line of another hash, made of this one's low half as well."""
    return (((hash << 32) | (hash >> 32)) * <uint64_t> 0xD6E8FEB86659FD93) >> cache.shift


cdef inline const Entry *find_in(const Line *line, uint64_t head, uint64_t tail) noexcept nogil:
    """The entry with this key, or NULL."""
    cdef uint64_t miss0 = (line.entries[0].head ^ head) | (line.entries[0].tail ^ tail)
    cdef uint64_t miss1 = (line.entries[1].head ^ head) | (line.entries[1].tail ^ tail)
    cdef const Entry *entry = &line.entries[miss1 == 0]
    return entry if (miss0 == 0) | (miss1 == 0) else NULL


cdef inline uint8_t *in_ring(const Cache *cache, uint64_t place) noexcept nogil:
    return cache.ring + (place & (cache.ring_size - 1))


cdef inline const id_t *find_apart(const Cache *cache, const Entry *entry, const uint8_t *chunk,
                                   uint64_t length) noexcept nogil:
    """The ids of an entry whose ids stand in the ring, or NULL if they are gone or those of another chunk."""
    cdef uint64_t place = entry.first & ((<uint64_t> 1 << 60) - 1)
    cdef const uint8_t *record = in_ring(cache, place)
    if place + cache.ring_size < cache.ring_head:
        return NULL
    if entry.tail >> 56 == LONG and memcmp(record + entry.second * sizeof(id_t), chunk, length) != 0:
        return NULL
    return <const id_t *> record


cdef int cache_init(Cache *cache, uint64_t most_bytes) except -1 nogil
cdef void cache_free(Cache *cache) noexcept nogil
cdef int cache_insert(Cache *cache, uint64_t hash, const Entry *entry) except -1 nogil
cdef int cache_insert_apart(Cache *cache, uint64_t hash, const Entry *entry, const id_t *ids, const uint8_t *chunk,
                            uint64_t length) except -1 nogil

"""From one chunk to ids: the tables of the merges, and the words that the pipeline calls. See merging.pyx."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from cbpe.ids cimport NO_ID, id_t
from cbpe.pairtable cimport PairTable


cdef enum:
    PACKED = 62                 # bytes of a chunk that merge_lanes takes
    END = 0xFFFFF               # stands before the first token and behind the last: no id of a packed model


# What the encoder knows: written once, then only read.
cdef struct Merges:
    PairTable slots             # pair -> slot
    uint32_t *byte_slots        # [256 * 256], the slots of pairs of bytes, by left << 8 | right
    id_t *merged                # [n], the id that slot's merge makes, ascending
    uint32_t n
    bint ids_differ             # no two merges make the same id
    bint one_by_one             # only the first occurrence of a pair is merged before all are looked at again
    bint is_packed              # merge_lanes may be taken: what follows is there
    id_t byte_ids[256]
    int32_t *byte_packed        # [256 * 256], the id that two bytes make << 6, or NONE
    uint16_t *shifts            # of the perfect hash of pairs, by the hash's top bits
    uint64_t *entries           # left << 40 | right << 20 | the id they make; all ones if empty
    uint64_t multiplier, entry_mask
    int bucket_shift


cdef struct Run:                # ascending positions of one pair
    uint32_t head               # the first position, or RUN | its own number if it is empty
    uint32_t tail               # the last position, or the same
    uint32_t last               # the last position it ever held; the next must be behind it
    uint32_t slot
    uint32_t older              # another run of the same pair, or NOWHERE


cdef struct Entry:              # of the heap
    uint64_t key                # id of the merge << 32 | head of the run when last looked at
    uint32_t run


# What one operation works with. All zero is empty.
cdef struct Scratch:
    uint64_t operations         # steps taken in long chunks
    # The long chunk at work. A token is known by the offset of its first byte.
    id_t *token
    uint32_t *mate              # at a token's first byte the offset of its last, at its last the offset of its first
    uint32_t *next              # links of the runs; NOWHERE if the position is in none
    uint32_t *prev
    size_t capacity             # of these four
    Run *runs
    Entry *heap                 # never more entries than runs
    uint32_t n_runs, n_heap, runs_capacity
    uint32_t *newest            # by slot, the youngest run: true if that run exists and has this slot


# A chunk to be merged.
cdef struct Job:
    const uint8_t *chunk
    uint64_t n
    id_t *out                   # room for n ids
    uint64_t n_ids              # the answer


@cython.overflowcheck(False)        # hashes wrap around
cdef inline uint64_t hash_of(const Merges *merges, uint64_t pair) noexcept nogil:
    return pair * merges.multiplier


cdef inline uint64_t home_of(const Merges *merges, uint64_t pair) noexcept nogil:
    """Where the entry of left << 20 | right is, if there is one. See pack."""
    cdef uint64_t hash = hash_of(merges, pair)
    return (hash >> 18 & merges.entry_mask) ^ merges.shifts[hash >> merges.bucket_shift]


cdef inline id_t merge_of(const Merges *merges, id_t left, id_t right) noexcept nogil:
    """The id that two tokens of a packed model make, or NO_ID."""
    cdef uint64_t pair = <uint64_t> left << 20 | right
    cdef uint64_t entry = merges.entries[home_of(merges, pair)]
    return <id_t> (entry & 0xFFFFF) if entry >> 20 == pair else <id_t> NO_ID


cdef int merges_init(Merges *merges, const uint32_t *pairs, const uint32_t *ids, const int64_t *by_id, size_t m,
                     const uint8_t *byte_ids) except -1
cdef void merges_free(Merges *merges) noexcept nogil
cdef void scratch_free(Scratch *work) noexcept nogil
cdef int64_t merge_chunk(const Merges *merges, Scratch *work, const uint8_t *chunk, size_t n,
                         id_t *out) except -1 nogil
cdef int merge_chunks(const Merges *merges, Scratch *work, Job *jobs, uint64_t n_jobs) except -1 nogil
cdef int resize(void **array, size_t n, size_t size) except -1 nogil

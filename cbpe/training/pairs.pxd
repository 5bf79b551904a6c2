"""The words that merges.pyx shares with pairs.pyx: the arena's cells, and a pair with its occurrences."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cbpe.ids cimport count_t, id_t, pair_key_t
from cbpe.pairtable cimport PairTable
from cbpe.workspace cimport Memory, Workspace


cdef struct Pair:
    id_t left
    id_t right
    count_t count               # sum of the weights of its live occurrences
    uint32_t *occurrences       # positions of the left token's first cell, ascending; dead ones are skipped when met
    uint32_t n_occurrences
    uint32_t cursor             # all occurrences before it are dead


cdef struct PairSum:
    count_t count
    pair_key_t key
    uint32_t n_occurrences


cdef struct HeavyChunk:         # one whose weight does not fit into a cell
    uint64_t start              # the position of its first cell
    count_t weight


@cython.final
cdef class Arena:
    cdef Workspace workspace
    cdef Memory *memory         # the workspace's
    cdef uint32_t *cells        # the weight of the chunk << id_bits | the token's id
    cdef uint64_t n_cells
    cdef int id_bits
    cdef uint32_t id_mask
    cdef uint32_t no_token      # the highest bit of the id: set where no token is, and in no id
    cdef uint32_t *span         # cells that each token covers, by id
    cdef uint64_t n_spans
    cdef HeavyChunk *heavy      # ascending
    cdef uint64_t n_heavy
    cdef uint64_t read_at, write_at, heavy_at, heavy_to      # how far compact() has come

    cdef void _lay(
        self, const uint64_t *counts, const uint64_t *offsets, const uint8_t *data, uint64_t n) noexcept nogil
    cdef int reserve_ids(self, uint64_t n_ids) except -1 nogil
    cdef int compact(self, uint64_t budget, id_t n_ids) except -1 nogil
    cdef count_t heavy_weight(self, uint64_t position) noexcept nogil


@cython.final
cdef class PairIndex:
    cdef Workspace workspace
    cdef Memory *memory
    cdef Pair *pairs
    cdef uint32_t n_pairs
    cdef uint32_t capacity
    cdef PairTable table

    cdef int add(self, id_t left, id_t right, count_t count, uint32_t n_occurrences) except -1 nogil
    cdef void release_occurrences(self, uint32_t slot) noexcept nogil
    cdef void clear(self) noexcept nogil


@cython.final
cdef class PairSurvey:
    cdef Arena arena
    cdef Memory *memory
    cdef bint of_bytes          # all tokens are single bytes: a sum's number is left << 8 | right
    cdef PairTable table
    cdef PairSum *sums
    cdef uint32_t n_sums
    cdef uint32_t capacity
    cdef uint32_t *slots        # of_bytes: the slots of the watched pairs, by number
    cdef uint64_t at            # the cell that the pass has come to

    cdef void _clear_sum(self, pair_key_t key) noexcept nogil
    cdef int _new_sum(self, pair_key_t key) except -1 nogil
    cdef int count(self, uint64_t budget) except -1 nogil
    cdef count_t highest(self) noexcept nogil
    cdef int watch(self, PairIndex index, count_t threshold) except -1 nogil
    cdef int list(self, PairIndex index, uint64_t budget) noexcept nogil

"""The words that merges.pyx shares with pairs.pyx: the arena's cells, and a pair with its occurrences."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cbpe.ids cimport count_t, id_t, pair_key_t
from cbpe.pairtable cimport PairTable

cdef enum:
    SEPARATOR = 0xFFFFFFFE      # the symbol of the cell between two chunks
    MERGED = 0xFFFFFFFF         # the symbol left where a right-hand token began before it was merged
    NO_TOKEN = 0x80000000       # the bit that both have and no id has
    HEAVY = 0x80000000          # set in a weight that is an index into Arena.heavy


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


cdef class Arena:
    cdef uint32_t *cells        # stride words a cell: the symbol and, where chunks are weighted, the weight
    cdef readonly uint64_t n_cells
    cdef readonly int stride    # 2, or 1 where every weight is 1
    cdef uint32_t *span         # cells that each token covers, by id
    cdef count_t *heavy         # the weights that do not fit into 31 bits
    cdef uint64_t n_spans
    cdef uint64_t read_at, write_at      # how far compact() has come

    cdef int reserve_ids(self, uint64_t n_ids) except -1 nogil
    cdef void _lay(self, const uint64_t *counts, const uint64_t *offsets, const uint8_t *data, uint64_t n) noexcept nogil
    cdef int compact(self, uint64_t budget, id_t n_ids) except -1 nogil


cdef class PairIndex:
    cdef Pair *pairs
    cdef uint32_t n_pairs
    cdef uint32_t capacity
    cdef PairTable table

    cdef uint32_t add(self, id_t left, id_t right, count_t count, uint32_t n_occurrences) except? 0xFFFFFFFF nogil
    cdef void release_occurrences(self, uint32_t slot) noexcept nogil
    cdef void clear(self) noexcept nogil


cdef class PairSurvey:
    cdef Arena arena
    cdef PairTable table
    cdef PairSum *sums
    cdef uint32_t n_sums
    cdef uint32_t capacity
    cdef uint64_t at            # the cell that the pass has come to

    cdef uint32_t _new_sum(self, pair_key_t key) except? 0xFFFFFFFF nogil
    cdef int count(self, uint64_t budget) except -1 nogil
    cdef count_t highest(self) noexcept nogil
    cdef int watch(self, PairIndex index, count_t threshold) except -1 nogil
    cdef int list(self, PairIndex index, uint64_t budget) noexcept nogil


cdef inline count_t weight_of(const uint32_t *cell, const count_t *heavy, bint weighted) noexcept nogil:
    """The weight of the chunk that a cell stands in."""
    if not weighted:
        return 1
    if cell[1] & <uint32_t> HEAVY:
        return heavy[cell[1] & ~(<uint32_t> HEAVY)]
    return cell[1]

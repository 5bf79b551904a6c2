"""An open-addressing table from a pair of ids to a 32-bit slot number: the words that the hot loops inline.

A find or an insert is one multiplication and, nearly always, one cache line: the table is at most half full. There is
no removal, because neither training nor encoding ever forgets a pair.
"""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from cbpe.ids cimport pair_key_t
from cbpe.workspace cimport Memory


cdef struct PairEntry:
    pair_key_t key              # all ones where the entry is empty: no pair of ids is
    uint32_t slot
    uint32_t _padding


cdef struct PairTable:
    PairEntry *entries          # capacity of them, a power of two
    uint64_t mask               # capacity - 1
    int shift                   # 64 - log2(capacity): the hash's top bits are the home entry
    uint64_t used
    Memory *memory              # where the entries lie; NULL: in the C library's


cdef enum:
    NO_SLOT = 0xFFFFFFFF        # what find returns for a pair that is not there


cdef int pairtable_init(PairTable *table, uint64_t expected) except -1 nogil
cdef int pairtable_init_in(Memory *memory, PairTable *table, uint64_t expected) except -1 nogil
cdef int pairtable_grow(PairTable *table) except -1 nogil
cdef void pairtable_free(PairTable *table) noexcept nogil


@cython.overflowcheck(False)        # hashes wrap around
cdef inline uint64_t pairtable_home(const PairTable *table, pair_key_t key) noexcept nogil:
    # the key is folded first: otherwise the left id would reach the top bits only through the product's low half
    return ((key ^ (key >> 32)) * <uint64_t> 0x9E3779B97F4A7C15) >> table.shift


cdef inline uint32_t pairtable_find(const PairTable *table, pair_key_t key) noexcept nogil:
    """The pair's slot, or NO_SLOT."""
    cdef uint64_t i = pairtable_home(table, key)
    while table.entries[i].key != key:
        if table.entries[i].key == <pair_key_t> 0xFFFFFFFFFFFFFFFF:
            return <uint32_t> NO_SLOT
        i = (i + 1) & table.mask
    return table.entries[i].slot


cdef inline int pairtable_insert(PairTable *table, pair_key_t key, uint32_t slot) except -1 nogil:
    """Adds a pair that is not in the table yet."""
    cdef uint64_t i
    if table.used * 2 > table.mask:
        pairtable_grow(table)
    i = pairtable_home(table, key)
    while table.entries[i].key != <pair_key_t> 0xFFFFFFFFFFFFFFFF:
        i = (i + 1) & table.mask
    table.entries[i].key = key
    table.entries[i].slot = slot
    table.used += 1
    return 0

"""The parts of the pair table that allocate: see pairtable.pxd for what it is."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from cbpe.workspace cimport give, take


cdef int _allocate(Memory *memory, PairTable *table, int bits) except -1 nogil:
    cdef uint64_t capacity = <uint64_t> 1 << bits
    table.memory = memory
    table.entries = NULL
    table.entries = <PairEntry *> take(memory, capacity * sizeof(PairEntry))
    memset(table.entries, 0xFF, capacity * sizeof(PairEntry))
    table.mask = capacity - 1
    table.shift = 64 - bits
    table.used = 0
    return 0


cdef int pairtable_init(PairTable *table, uint64_t expected) except -1 nogil:
    """Makes an empty table that holds the expected number of pairs without growing."""
    return pairtable_init_in(NULL, table, expected)


cdef int pairtable_init_in(Memory *memory, PairTable *table, uint64_t expected) except -1 nogil:
    """pairtable_init in some workspace's memory, which must live as long as the table."""
    cdef int bits = 6
    while (<uint64_t> 1 << bits) < 2 * expected + 2:
        bits += 1
    return _allocate(memory, table, bits)


cdef int pairtable_grow(PairTable *table) except -1 nogil:
    """Doubles the table. On MemoryError the table is as it was."""
    cdef PairTable larger
    cdef uint64_t i, j
    _allocate(table.memory, &larger, 64 - table.shift + 1)
    for i in range(table.mask + 1):
        if table.entries[i].key != <pair_key_t> 0xFFFFFFFFFFFFFFFF:
            j = pairtable_home(&larger, table.entries[i].key)
            while larger.entries[j].key != <pair_key_t> 0xFFFFFFFFFFFFFFFF:
                j = (j + 1) & larger.mask
            larger.entries[j] = table.entries[i]
    larger.used = table.used
    give(table.memory, table.entries)
    table[0] = larger
    return 0


cdef void pairtable_free(PairTable *table) noexcept nogil:
    if table.entries != NULL:
        give(table.memory, table.entries)
    table.entries = NULL

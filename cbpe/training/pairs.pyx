"""From chunks to pairs: the arena that holds the distinct chunks end to end, and the pairs worth watching in it.

In: a store's chunks with their counts. Out: for each pair of neighbouring tokens that can still win, its count and the
ascending list of its occurrences, which merges.pyx consumes.

The arena. Every byte of every distinct chunk is a cell, in order of first appearance, with a separator cell between
chunks. A cell is one word: a token's id below, its chunk's weight above, so that an occurrence touches one cache
line; the few weights that do not fit are looked up. A token's position is its first cell, and it writes its id into
its first and its last cell: the next token begins span cells on, the previous one's id is in the cell before. One
array is thus a doubly linked list, and since positions never move while pairs are listed, "occurs first" is "has the
lower position" (minbpe's rule for ties).

Stages. A pair is born with its final set of occurrences and its count only falls, and so does the highest count from
merge to merge. So a pair born with a count below a threshold cannot win while the highest count is at or above it,
and is not watched at all: no list, no heap entry, no place in the table. When the highest count falls below the
threshold, a new stage begins: the arena is compacted (a token shrinks to one cell, chunks that are one token go
away), the pairs are counted afresh, and those that reach a lower threshold are listed. Order is kept, so the merges
are the same. On 2 GB of mixed text 99 % of all pairs never reach a threshold.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from cbpe.ids cimport count_t, id_t, pair_key, pair_key_t
from cbpe.pairtable cimport (
    NO_SLOT,
    pairtable_find,
    pairtable_free,
    pairtable_init_in,
    pairtable_insert,
)
from cbpe.workspace cimport Workspace, give, retake, take

from cbpe.errors import CorpusTooLargeError
from cbpe.memory import require

cdef extern from "platform.h" nogil:
    void cbpe_advise_huge(void *memory, size_t bytes)

cdef enum:
    FORESEEN = 16777216         # occurrences that are worth a look at what memory there is


cdef inline uint64_t largest_weight(int id_bits) noexcept nogil:
    """The largest weight that fits into a cell above the id; 0 there stands for a weight that does not."""
    return (<uint64_t> 1 << (32 - id_bits)) - 1


MAX_CELLS = 0xFFFFFFF0          # positions are 32 bits wide
WAYS_OUT = "give a (lower) memory_limit=, drop rare chunks by min_count=, or take a larger machine"


@cython.no_gc
@cython.final
cdef class Arena:
    """The distinct chunks as cells. See the top of this file.

    counts: uint64[n], offsets: uint64[n + 1] into data, both contiguous; data: the chunks' bytes end to end;
    num_merges: how many ids beyond the bytes' there may be, at most 2**30. Chunks of one byte hold no pair and are
    left out. workspace: where the cells lie, and all that is made of them; None: in memory. Raises CorpusTooLargeError
    beyond MAX_CELLS, MemoryError, OSError where there is no room for scratch files.
    """

    def __cinit__(self, const uint64_t[::1] counts, const uint64_t[::1] offsets, const uint8_t[::1] data, num_merges,
                  Workspace workspace=None):
        cdef uint64_t i, length, n_cells = 1, n_heavy = 0, most
        self.workspace = Workspace() if workspace is None else workspace
        self.memory = &self.workspace.memory
        self.cells = NULL
        self.span = NULL
        self.heavy = NULL
        self.n_spans = self.n_heavy = 0
        self.read_at = self.write_at = self.heavy_at = self.heavy_to = 0
        for i in range(<uint64_t> counts.shape[0]):
            length = offsets[i + 1] - offsets[i]
            if length > 1:
                n_cells += length + 1
        if n_cells > <uint64_t> MAX_CELLS:
            raise CorpusTooLargeError(
                f"the distinct chunks need {n_cells:,} cells, one a byte and one a chunk: {MAX_CELLS:,} is the limit"
            )
        # one more bit tells tokens from none
        self.id_bits = int(256 + num_merges).bit_length() + 1
        self.id_mask = <uint32_t> ((<uint64_t> 1 << self.id_bits) - 1)
        self.no_token = <uint32_t> 1 << (self.id_bits - 1)
        most = largest_weight(self.id_bits)
        for i in range(<uint64_t> counts.shape[0]):
            n_heavy += counts[i] > most and offsets[i + 1] - offsets[i] > 1
        self.n_cells = n_cells
        if not self.workspace.mapped:
            require(n_cells * sizeof(uint32_t), f"training needs {{needed}} for {n_cells:,} cells", WAYS_OUT)
        self.cells = <uint32_t *> take(self.memory, n_cells * sizeof(uint32_t))
        self.heavy = <HeavyChunk *> take(self.memory, (n_heavy + 1) * sizeof(HeavyChunk))
        cbpe_advise_huge(self.cells, n_cells * sizeof(uint32_t))
        self.reserve_ids(256)
        if n_cells > 1:
            with nogil:
                self._lay(&counts[0], &offsets[0], &data[0], <uint64_t> counts.shape[0])
        else:
            self.cells[0] = self.id_mask

    def __dealloc__(self):
        give(self.memory, self.cells)
        give(self.memory, self.span)
        give(self.memory, self.heavy)

    cdef void _lay(
            self, const uint64_t *counts, const uint64_t *offsets, const uint8_t *data, uint64_t n) noexcept nogil:
        """Writes separator, chunk, separator, chunk, ..., separator."""
        cdef uint32_t *cells = self.cells
        cdef uint64_t i, at, to = 1, most = largest_weight(self.id_bits)
        cdef uint32_t weight
        cells[0] = self.id_mask
        for i in range(n):
            if offsets[i + 1] - offsets[i] < 2:
                continue
            if counts[i] <= most:
                weight = <uint32_t> counts[i] << self.id_bits
            else:
                weight = 0
                self.heavy[self.n_heavy].start = to
                self.heavy[self.n_heavy].weight = <count_t> counts[i]
                self.n_heavy += 1
            for at in range(offsets[i], offsets[i + 1]):
                cells[to] = weight | data[at]
                to += 1
            cells[to] = self.id_mask
            to += 1

    cdef count_t heavy_weight(self, uint64_t position) noexcept nogil:
        """The weight of the heavy chunk that holds this position: the last one that begins at or before it."""
        cdef uint64_t low = 0, high = self.n_heavy, middle
        while high - low > 1:
            middle = (low + high) // 2
            if self.heavy[middle].start <= position:
                low = middle
            else:
                high = middle
        return self.heavy[low].weight

    cdef int reserve_ids(self, uint64_t n_ids) except -1 nogil:
        """Makes span hold ids below n_ids; new entries are 1, as a byte's."""
        cdef uint64_t i
        if n_ids > self.n_spans:
            self.span = <uint32_t *> retake(self.memory, self.span, n_ids * sizeof(uint32_t))
            for i in range(self.n_spans, n_ids):
                self.span[i] = 1
            self.n_spans = n_ids
        return 0

    cdef int compact(self, uint64_t budget, id_t n_ids) except -1 nogil:
        """Moves tokens together, one cell each, and drops chunks of one token; returns 1 when the whole arena is done.

        About budget cells are read in one call, so that the caller can look around between calls. The arena is unusable
        until the last call has returned. n_ids: ids in use; all of them span one cell afterwards.
        """
        cdef uint32_t *cells = self.cells
        cdef uint32_t id_mask = self.id_mask
        cdef uint64_t read = self.read_at, write = self.write_at, start
        cdef uint64_t stop = min(read + budget, self.n_cells)
        cdef id_t token
        cdef bint is_heavy
        while read < stop:
            # read is at a separator: copy it and the chunk behind it, then look at how many tokens that was
            cells[write] = id_mask
            start = write + 1
            write = start
            read += 1
            is_heavy = self.heavy_at < self.n_heavy and self.heavy[self.heavy_at].start == read
            while read < self.n_cells and not (cells[read] & self.no_token):
                token = cells[read] & id_mask
                cells[write] = cells[read]
                write += 1
                read += self.span[token]
            if is_heavy:
                self.heavy[self.heavy_to].start = start
                self.heavy[self.heavy_to].weight = self.heavy[self.heavy_at].weight
                self.heavy_at += 1
                self.heavy_to += write - start > 1
            if write - start == 1:
                write = start - 1
        self.read_at = read
        self.write_at = write
        if read < self.n_cells:
            return 0
        self.n_cells = write
        self.n_heavy = self.heavy_to
        self.read_at = self.write_at = self.heavy_at = self.heavy_to = 0
        self.cells = <uint32_t *> retake(self.memory, cells, write * sizeof(uint32_t))
        for token in range(n_ids):
            self.span[token] = 1
        return 1


@cython.no_gc
@cython.final
cdef class PairIndex:
    """The pairs that are watched, by slot, and the table that finds a pair's slot."""

    def __cinit__(self, Workspace workspace):
        self.workspace = workspace
        self.memory = &workspace.memory
        self.n_pairs = 0
        self.capacity = 1024
        self.table.entries = NULL
        self.pairs = NULL
        self.pairs = <Pair *> take(self.memory, self.capacity * sizeof(Pair))
        pairtable_init_in(self.memory, &self.table, 1024)

    def __dealloc__(self):
        self.clear()
        give(self.memory, self.pairs)
        pairtable_free(&self.table)

    cdef int add(self, id_t left, id_t right, count_t count, uint32_t n_occurrences) except -1 nogil:
        """Adds a pair that is not there yet in the next slot, with room for its occurrences, none of them written."""
        cdef Pair *pair
        if self.n_pairs == self.capacity:
            self.pairs = <Pair *> retake(self.memory, self.pairs, 2 * <uint64_t> self.capacity * sizeof(Pair))
            self.capacity *= 2
        pair = &self.pairs[self.n_pairs]
        pair.left = left
        pair.right = right
        pair.count = count
        pair.n_occurrences = 0
        pair.cursor = 0
        pair.occurrences = <uint32_t *> take(self.memory, <uint64_t> n_occurrences * sizeof(uint32_t))
        self.n_pairs += 1
        pairtable_insert(&self.table, pair_key(left, right), self.n_pairs - 1)
        return 0

    cdef void release_occurrences(self, uint32_t slot) noexcept nogil:
        give(self.memory, self.pairs[slot].occurrences)
        self.pairs[slot].occurrences = NULL
        self.pairs[slot].n_occurrences = 0

    cdef void clear(self) noexcept nogil:
        """Forgets every pair; the memory of the table stays for the next stage."""
        cdef uint32_t slot
        for slot in range(self.n_pairs):
            self.release_occurrences(slot)
        self.n_pairs = 0
        if self.table.entries != NULL:
            memset(self.table.entries, 0xFF, (self.table.mask + 1) * sizeof(self.table.entries[0]))
            self.table.used = 0


@cython.no_gc
@cython.final
cdef class PairSurvey:
    """Counts all pairs of an arena whose tokens are one cell each, then lists the occurrences of the pairs worth
    watching.

    In this order: count(budget) until it returns 1, highest(), watch(index, threshold), list(index, budget) until it
    returns 1. n_ids: ids in use.
    """

    def __cinit__(self, Arena arena, id_t n_ids):
        self.arena = arena
        self.memory = arena.memory
        self.of_bytes = n_ids == 256
        self.n_sums = 0
        self.capacity = 1 << 16
        self.at = 0
        self.slots = NULL
        self.table.entries = NULL
        self.sums = NULL
        self.sums = <PairSum *> take(self.memory, self.capacity * sizeof(PairSum))
        if self.of_bytes:
            while self.n_sums < 1 << 16:
                self._clear_sum(pair_key(self.n_sums >> 8, self.n_sums & 255))
        else:
            pairtable_init_in(self.memory, &self.table, self.capacity)

    def __dealloc__(self):
        give(self.memory, self.sums)
        give(self.memory, self.slots)
        pairtable_free(&self.table)

    cdef void _clear_sum(self, pair_key_t key) noexcept nogil:
        """Makes the next sum that of a pair, at nothing."""
        self.sums[self.n_sums].key = key
        self.sums[self.n_sums].count = 0
        self.sums[self.n_sums].n_occurrences = 0
        self.n_sums += 1

    cdef int _new_sum(self, pair_key_t key) except -1 nogil:
        if self.n_sums == self.capacity:
            self.sums = <PairSum *> retake(self.memory, self.sums, 2 * <uint64_t> self.capacity * sizeof(PairSum))
            self.capacity *= 2
        self._clear_sum(key)
        pairtable_insert(&self.table, key, self.n_sums - 1)
        return 0

    cdef int count(self, uint64_t budget) except -1 nogil:
        """Counts the pairs of the next budget cells; returns 1 at the arena's end."""
        cdef const uint32_t *cells = self.arena.cells
        cdef uint32_t id_mask = self.arena.id_mask, no_token = self.arena.no_token
        cdef int id_bits = self.arena.id_bits
        cdef uint64_t stop = min(self.at + budget, self.arena.n_cells - 1), i
        cdef uint32_t left, right, slot
        cdef count_t weight
        cdef PairSum *sum
        right = cells[self.at]
        for i in range(self.at, stop):
            left = right
            right = cells[i + 1]
            if (left | right) & no_token:
                continue
            if self.of_bytes:
                slot = (left & 255) << 8 | (right & 255)
            else:
                slot = pairtable_find(&self.table, pair_key(left & id_mask, right & id_mask))
                if slot == <uint32_t> NO_SLOT:
                    self._new_sum(pair_key(left & id_mask, right & id_mask))
                    slot = self.n_sums - 1
            weight = left >> id_bits
            if weight == 0:
                weight = self.arena.heavy_weight(i)
            sum = &self.sums[slot]
            sum.count += weight
            sum.n_occurrences += 1
        self.at = stop
        if stop < self.arena.n_cells - 1:
            return 0
        self.at = 0
        return 1

    cdef count_t highest(self) noexcept nogil:
        """The highest count of any pair; 0 where there is none."""
        cdef count_t highest = 0
        cdef uint32_t i
        for i in range(self.n_sums):
            highest = max(highest, self.sums[i].count)
        return highest

    cdef int watch(self, PairIndex index, count_t threshold) except -1 nogil:
        """Adds the pairs that reach the threshold to the index, and forgets all sums."""
        cdef uint32_t i
        cdef uint64_t n_occurrences = 0
        for i in range(self.n_sums):
            if self.sums[i].count >= threshold:
                n_occurrences += self.sums[i].n_occurrences
        if n_occurrences >= FORESEEN and self.memory.owner == NULL:
            with gil:
                need = f"{{needed}} for {n_occurrences:,} occurrences of pairs, besides {self.arena.n_cells:,} cells"
                require(n_occurrences * sizeof(uint32_t), f"training needs {need}", WAYS_OUT)
        if self.of_bytes:
            self.slots = <uint32_t *> take(self.memory, sizeof(uint32_t) << 16)
            memset(self.slots, 0xFF, sizeof(uint32_t) << 16)
        for i in range(self.n_sums):
            if self.sums[i].count >= threshold:
                index.add(<id_t> (self.sums[i].key >> 32), <id_t> self.sums[i].key, self.sums[i].count,
                          self.sums[i].n_occurrences)
                if self.of_bytes:
                    self.slots[i] = index.n_pairs - 1
        give(self.memory, self.sums)
        self.sums = NULL
        pairtable_free(&self.table)
        return 0

    cdef int list(self, PairIndex index, uint64_t budget) noexcept nogil:
        """Writes the occurrences of the watched pairs in the next budget cells; returns 1 at the arena's end."""
        cdef const uint32_t *cells = self.arena.cells
        cdef uint32_t id_mask = self.arena.id_mask, no_token = self.arena.no_token
        cdef uint64_t stop = min(self.at + budget, self.arena.n_cells - 1), i
        cdef uint32_t left, right, slot
        cdef Pair *pair
        right = cells[self.at]
        for i in range(self.at, stop):
            left = right
            right = cells[i + 1]
            if (left | right) & no_token:
                continue
            if self.of_bytes:
                slot = self.slots[(left & 255) << 8 | (right & 255)]
            else:
                slot = pairtable_find(&index.table, pair_key(left & id_mask, right & id_mask))
            if slot != <uint32_t> NO_SLOT:
                pair = &index.pairs[slot]
                pair.occurrences[pair.n_occurrences] = <uint32_t> i
                pair.n_occurrences += 1
        self.at = stop
        return stop == self.arena.n_cells - 1

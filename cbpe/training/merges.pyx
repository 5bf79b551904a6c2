"""From pairs to merges: which pair wins, and what its merge does to its neighbours.

In: the arena and the watched pairs of pairs.pyx. Out: the merges, exactly as minbpe would learn them; of each how often
its pair occurred, and how many tokens fewer the corpus has after it. (Runs make the difference: "aaa" holds (a, a)
twice and is one token shorter afterwards.)

The winner is the pair with the highest count, and among equals the one that occurs first. A pair's count only falls and
its first live occurrence only moves right (it is born once, in the merge that makes its younger token), so what a heap
entry says of a pair is never too bad. Take the top entry; if the pair has got worse since, correct the entry and look
again; if it has not, no other pair can be better. Nothing is ever searched for.

Instead of the first among equals, the greatest can win, as it is spelled: that is subword-nmt's rule, by which the
order of a corpus does not matter. What a pair spells never changes, so the heap is as exact by this rule as by the
other.

A merge of (a, b) into t walks the pair's occurrences once. Each ... x a b y ... becomes ... x t y ...: the weight is
taken from (x, a) and (b, y) and given to (x, t) and (t, y). Sums are kept per neighbour, in one small record a token,
so that the pair table is asked once per distinct neighbour and not four times per occurrence. New pairs need no
search: they hold t, so they cannot exist yet. Their occurrences come out in ascending order, because the walk is.

Training can begin with merges that are known, from another corpus or from a training that was interrupted. They are
repeated first, in a stage of their own in which exactly their pairs are watched and no winner is asked for. Since a
merge's id is above those it joins, that is what encoding each chunk by them gives; and what each of them does to this
corpus is recorded as if it had been learned from it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

import numpy as np

cimport cython

from cbpe.ids cimport count_t, id_t, pair_key
from cbpe.pairtable cimport NO_SLOT, PairTable, pairtable_find, pairtable_free, pairtable_init, pairtable_insert
from cbpe.training.pairs cimport Arena, Pair, PairIndex, PairSurvey
from cbpe.workspace cimport Memory, Workspace, give, retake, take

cdef extern from "platform.h" nogil:
    void cbpe_prefetch(const void *address)

cdef enum:
    # Occurrences ahead of the one at work whose cell is fetched: a miss takes about as long as two dozen occurrences.
    AHEAD = 24
    BATCH = 4096                # merges, at most, between two looks around

STEPS = 1 << 23                 # occurrences looked at between them,
SCAN = 1 << 24                  # cells scanned
MAX_MERGES = (1 << 30) - 256    # an id and its marks share a cell with the weight
MAX_COUNT = (1 << 63) - 1       # of a count_t


cdef struct Entry:              # of the heap
    count_t count
    uint32_t first              # position of the pair's first live occurrence
    uint32_t slot


cdef struct Neighbour:          # what the merge at work takes from one token x, and gives back
    count_t before              # weight of the occurrences with x before them: lost by (x, a), won by (x, t)
    count_t behind              # weight of the occurrences with x behind them: lost by (b, x), won by (t, x)
    uint32_t n_before           # how many those are; then the slot of (x, t)
    uint32_t n_behind           # how many those are; then the slot of (t, x)


@cython.no_gc
@cython.final
cdef class Merger:
    """Merges one pair after another in an arena: first the known ones, uint32[n, 2], in their order; then the best, as
    long as its count is at or above the threshold.
    """
    cdef Arena arena
    cdef Memory *memory                     # the arena's
    cdef PairIndex index
    cdef Entry *heap
    cdef uint32_t n_heap, heap_capacity
    cdef Neighbour *neighbours              # by id; all zero between merges
    cdef uint64_t n_neighbours
    cdef id_t *touched_before               # the ids whose record the merge at work has written to
    cdef id_t *touched_behind
    cdef id_t *before                       # for each occurrence merged: the token before it, or no_token
    cdef id_t *behind
    cdef uint64_t n_before
    cdef const uint32_t[:, ::1] known
    cdef PairTable known_pairs
    cdef bint is_repeating                  # the stage is that of the known merges
    cdef count_t threshold
    cdef bint stage_is_over                 # no watched pair reaches the threshold any more
    cdef id_t next_id
    cdef uint64_t n_steps                   # occurrences looked at so far: the measure of work done
    cdef count_t removed                    # weight of the occurrences that the last merge replaced
    cdef uint8_t *letters                   # what the ids spell, end to end; NULL where the first of equals wins
    cdef uint64_t *spelled                  # [next_id + 1], by id: where that begins; one more: where the last one ends
    cdef uint64_t n_letters, n_spelled      # room for so many

    def __cinit__(self, Arena arena, const uint32_t[:, ::1] known, spellings=None):
        cdef uint32_t i
        self.arena = arena
        self.memory = arena.memory
        self.known = known
        self.known_pairs.entries = NULL
        self.index = PairIndex(arena.workspace)
        self.heap = NULL
        self.neighbours = NULL
        self.touched_before = NULL
        self.touched_behind = NULL
        self.before = NULL
        self.behind = NULL
        self.letters = NULL
        self.spelled = NULL
        self.n_letters = self.n_spelled = 0
        self.n_heap = self.heap_capacity = 0
        self.n_neighbours = 0
        self.n_before = 0
        self.next_id = 256
        self._reserve_ids(512)
        pairtable_init(&self.known_pairs, known.shape[0])
        for i in range(<uint32_t> known.shape[0]):
            pairtable_insert(&self.known_pairs, pair_key(known[i, 0], known[i, 1]), i)
        if spellings is not None:
            self._spell_first(spellings)

    def __dealloc__(self):
        give(self.memory, self.heap)
        give(self.memory, self.neighbours)
        give(self.memory, self.touched_before)
        give(self.memory, self.touched_behind)
        give(self.memory, self.before)
        give(self.memory, self.behind)
        give(self.memory, self.letters)
        give(self.memory, self.spelled)
        pairtable_free(&self.known_pairs)

    # ---- memory

    cdef int _reserve_ids(self, uint64_t n_ids) except -1 nogil:
        """Makes every array that is indexed by id hold ids below n_ids, more than they hold."""
        self.arena.reserve_ids(n_ids)
        self.neighbours = <Neighbour *> retake(self.memory, self.neighbours, n_ids * sizeof(Neighbour))
        memset(self.neighbours + self.n_neighbours, 0, (n_ids - self.n_neighbours) * sizeof(Neighbour))
        self.touched_before = <id_t *> retake(self.memory, self.touched_before, n_ids * sizeof(id_t))
        self.touched_behind = <id_t *> retake(self.memory, self.touched_behind, n_ids * sizeof(id_t))
        self.n_neighbours = n_ids
        return 0

    cdef int _reserve_occurrences(self, uint64_t n) except -1 nogil:
        """Makes before and behind hold n ids; what they held is lost."""
        if n <= self.n_before:
            return 0
        give(self.memory, self.before)
        give(self.memory, self.behind)
        self.before = self.behind = NULL
        self.n_before = 0
        self.before = <id_t *> take(self.memory, n * sizeof(id_t))
        self.behind = <id_t *> take(self.memory, n * sizeof(id_t))
        self.n_before = n
        return 0

    # ---- what ids spell

    cdef int _reserve_letters(self, uint64_t n) except -1 nogil:
        if n > self.n_letters:
            self.letters = <uint8_t *> retake(self.memory, self.letters, 2 * n)
            self.n_letters = 2 * n
        return 0

    cdef int _spell_first(self, spellings) except -1:
        """Takes over what the first 256 ids spell."""
        cdef bytes joined = b"".join(spellings)
        cdef const uint8_t *source = joined
        cdef uint64_t n = len(joined), at = 0
        if len(spellings) != 256:
            raise ValueError(f"spellings are those of 256 ids, not of {len(spellings)}")
        self._reserve_letters(n)
        memcpy(self.letters, source, n)
        self.n_spelled = 1024
        self.spelled = <uint64_t *> take(self.memory, self.n_spelled * sizeof(uint64_t))
        for number, spelling in enumerate(spellings):
            self.spelled[<uint64_t> number] = at
            at += <uint64_t> len(spelling)
        self.spelled[256] = at
        return 0

    cdef int _spell(self, id_t left, id_t right) except -1 nogil:
        """Writes what the next id spells, which is left and right."""
        cdef uint64_t end = self.spelled[self.next_id]
        cdef uint64_t n_left = self.spelled[left + 1] - self.spelled[left]
        cdef uint64_t n_right = self.spelled[right + 1] - self.spelled[right]
        self._reserve_letters(end + n_left + n_right)
        memcpy(self.letters + end, self.letters + self.spelled[left], n_left)
        memcpy(self.letters + end + n_left, self.letters + self.spelled[right], n_right)
        if <uint64_t> self.next_id + 1 >= self.n_spelled:
            self.n_spelled *= 2
            self.spelled = <uint64_t *> retake(self.memory, self.spelled, self.n_spelled * sizeof(uint64_t))
        self.spelled[self.next_id + 1] = end + n_left + n_right
        return 0

    cdef int _compare(self, id_t one, id_t other) noexcept nogil:
        """Above 0 if one is spelled greater, as Python compares bytes; below 0 if it is spelled less."""
        cdef uint64_t n_one = self.spelled[one + 1] - self.spelled[one]
        cdef uint64_t n_other = self.spelled[other + 1] - self.spelled[other]
        cdef int order = memcmp(
            self.letters + self.spelled[one], self.letters + self.spelled[other], min(n_one, n_other)
        )
        return order if order != 0 else (n_one > n_other) - (n_one < n_other)

    # ---- the heap

    cdef bint _is_better(self, const Entry *one, const Entry *other) noexcept nogil:
        cdef const Pair *pair
        cdef const Pair *than
        cdef int order
        if one.count != other.count:
            return one.count > other.count
        if self.letters == NULL:
            return one.first < other.first
        pair = &self.index.pairs[one.slot]
        than = &self.index.pairs[other.slot]
        order = self._compare(pair.left, than.left)
        return order > 0 or (order == 0 and self._compare(pair.right, than.right) > 0)

    cdef void _sift_down(self, uint32_t i) noexcept nogil:
        cdef Entry entry = self.heap[i]
        cdef uint32_t child = 2 * i + 1
        while child < self.n_heap:
            if child + 1 < self.n_heap and self._is_better(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not self._is_better(&self.heap[child], &entry):
                break
            self.heap[i] = self.heap[child]
            i = child
            child = 2 * i + 1
        self.heap[i] = entry

    cdef int _push(self, uint32_t slot) except -1 nogil:
        cdef Pair *pair = &self.index.pairs[slot]
        cdef Entry entry
        cdef uint64_t capacity
        cdef uint32_t i = self.n_heap
        if self.n_heap == self.heap_capacity:
            capacity = 2 * <uint64_t> self.heap_capacity + 1024
            self.heap = <Entry *> retake(self.memory, self.heap, capacity * sizeof(Entry))
            self.heap_capacity = <uint32_t> capacity
        entry.count = pair.count
        entry.first = pair.occurrences[0]
        entry.slot = slot
        self.n_heap += 1
        while i > 0 and self._is_better(&entry, &self.heap[(i - 1) // 2]):
            self.heap[i] = self.heap[(i - 1) // 2]
            i = (i - 1) // 2
        self.heap[i] = entry
        return 0

    cdef void _drop_top(self) noexcept nogil:
        self.n_heap -= 1
        self.heap[0] = self.heap[self.n_heap]
        if self.n_heap:
            self._sift_down(0)

    cdef uint32_t _winner(self) noexcept nogil:
        """The slot of the best pair, or NO_SLOT when no watched pair reaches the threshold any more."""
        cdef const uint32_t *cells = self.arena.cells
        cdef const uint32_t *span = self.arena.span
        cdef uint32_t id_mask = self.arena.id_mask
        cdef Entry *top
        cdef Pair *pair
        cdef uint64_t position
        while self.n_heap:
            top = &self.heap[0]
            pair = &self.index.pairs[top.slot]
            if pair.count < self.threshold:
                self.index.release_occurrences(top.slot)
                self._drop_top()
                continue
            if pair.count < top.count:
                top.count = pair.count
                self._sift_down(0)
                continue
            if self.letters != NULL:
                return top.slot
            # there is a live occurrence, since the count is above zero
            while True:
                position = pair.occurrences[pair.cursor]
                if (cells[position] & id_mask == pair.left
                        and cells[position + span[pair.left]] & id_mask == pair.right):
                    break
                pair.cursor += 1
            if position != top.first:
                top.first = <uint32_t> position
                self._sift_down(0)
                continue
            return top.slot
        return <uint32_t> NO_SLOT

    # ---- a merge

    cdef uint32_t _replace(self, uint32_t slot, id_t new_id, uint32_t *n_touched, count_t *twin_count,
                           uint32_t *n_twins) noexcept nogil:
        """Writes the new id over every occurrence of the pair; returns how many there were.

        OUT: their positions, at the front of the pair's own list, and the sum of their weights, in removed; before,
        behind and the neighbours' sums; how many ids were touched before and behind; and the count and number of
        (new_id, new_id), which no neighbour's record holds.
        """
        cdef Pair *pair = &self.index.pairs[slot]
        cdef uint32_t *occurrences = pair.occurrences
        cdef Neighbour *neighbours = self.neighbours
        cdef uint32_t *cells = self.arena.cells
        cdef uint32_t id_mask = self.arena.id_mask, no_token = self.arena.no_token
        cdef int id_bits = self.arena.id_bits
        cdef id_t left = pair.left, right = pair.right, x, y
        cdef uint64_t to_right = self.arena.span[left]
        cdef uint64_t to_end = to_right + self.arena.span[right]
        cdef uint32_t n = pair.n_occurrences, i, done = 0, position
        cdef uint32_t n_before = 0, n_behind = 0
        cdef uint32_t *cell
        cdef count_t weight, removed = 0
        for i in range(pair.cursor, n):
            if i + AHEAD < n:
                # both ends: what stands before and behind may lie in another cache line (10 % on mix_2GB's merges)
                cbpe_prefetch(cells + occurrences[i + AHEAD] - 1)
                cbpe_prefetch(cells + occurrences[i + AHEAD] + to_end)
            position = occurrences[i]
            cell = cells + position
            if cell[0] & id_mask != left or cell[to_right] & id_mask != right:
                continue
            weight = cell[0] >> id_bits
            if weight == 0:
                weight = self.arena.heavy_weight(position)
            removed += weight
            x = (cell - 1)[0] & id_mask
            y = cell[to_end] & id_mask
            cell[to_right] |= id_mask
            cell[0] = cell[0] & ~id_mask | new_id
            cell[to_end - 1] = cell[0]
            if x == new_id:
                x = no_token        # the occurrence before this one has seen to it
            elif not x & no_token:
                if neighbours[x].before == 0:
                    self.touched_before[n_before] = x
                    n_before += 1
                neighbours[x].before += weight
                neighbours[x].n_before += 1
            if not y & no_token:
                if neighbours[y].behind == 0:
                    self.touched_behind[n_behind] = y
                    n_behind += 1
                neighbours[y].behind += weight
                if y == left and cell[to_end + to_right] & id_mask == right:
                    # the next occurrence follows at once: what will stand behind this one is the new token itself
                    y = new_id
                    twin_count[0] += weight
                    n_twins[0] += 1
                else:
                    neighbours[y].n_behind += 1
            occurrences[done] = position
            self.before[done] = x
            self.behind[done] = y
            done += 1
        n_touched[0] = n_before
        n_touched[1] = n_behind
        self.removed = removed
        self.n_steps += n - pair.cursor
        return done

    cdef int merge(self, uint32_t slot) except -1 nogil:
        """Merges the pair in this slot into the next id: the arena, the counts, the new pairs."""
        cdef id_t new_id = self.next_id, left, right, x
        cdef uint32_t done, i, born, twins, position, first_born = self.index.n_pairs
        cdef uint32_t no_token = self.arena.no_token
        cdef uint32_t n_touched[2]
        cdef uint32_t n_twins = 0
        cdef count_t twin_count = 0, won
        cdef Neighbour *neighbour
        cdef uint32_t *occurrences
        left = self.index.pairs[slot].left
        right = self.index.pairs[slot].right
        self._reserve_occurrences(self.index.pairs[slot].n_occurrences - self.index.pairs[slot].cursor)
        self.arena.span[new_id] = self.arena.span[left] + self.arena.span[right]
        done = self._replace(slot, new_id, n_touched, &twin_count, &n_twins)
        self.index.pairs[slot].count = 0

        # counts that fall, and pairs that are born; a record's numbers of occurrences become the slots of its new pairs
        for i in range(n_touched[0]):
            x = self.touched_before[i]
            neighbour = &self.neighbours[x]
            self._take(x, left, neighbour.before)
            self._bear(x, new_id, neighbour.before, neighbour.n_before, &neighbour.n_before)
        for i in range(n_touched[1]):
            x = self.touched_behind[i]
            neighbour = &self.neighbours[x]
            self._take(right, x, neighbour.behind)
            won = neighbour.behind - twin_count if x == left else neighbour.behind
            self._bear(new_id, x, won, neighbour.n_behind, &neighbour.n_behind)
        self._bear(new_id, new_id, twin_count, n_twins, &twins)

        # the occurrences of the pairs that were born
        if self.index.n_pairs > first_born:
            occurrences = self.index.pairs[slot].occurrences
            for i in range(done):
                position = occurrences[i]
                x = self.before[i]
                if not x & no_token:
                    born = self.neighbours[x].n_before
                    if born != <uint32_t> NO_SLOT:
                        self._write(born, position - self.arena.span[x])
                x = self.behind[i]
                if not x & no_token:
                    born = twins if x == new_id else self.neighbours[x].n_behind
                    if born != <uint32_t> NO_SLOT:
                        self._write(born, position)
        self.index.release_occurrences(slot)
        for i in range(n_touched[0]):
            x = self.touched_before[i]
            self.neighbours[x].before = 0
            self.neighbours[x].n_before = 0
        for i in range(n_touched[1]):
            x = self.touched_behind[i]
            self.neighbours[x].behind = 0
            self.neighbours[x].n_behind = 0
        if not self.is_repeating:
            for born in range(first_born, self.index.n_pairs):
                self._push(born)
        return 0

    cdef void _take(self, id_t left, id_t right, count_t weight) noexcept nogil:
        """Takes weight from a pair's count, if it is watched."""
        cdef uint32_t slot = pairtable_find(&self.index.table, pair_key(left, right))
        cdef Pair *pair
        if slot != <uint32_t> NO_SLOT:
            pair = &self.index.pairs[slot]
            pair.count -= weight

    cdef int _bear(self, id_t left, id_t right, count_t count, uint32_t n_occurrences, uint32_t *slot) except -1 nogil:
        """Adds a new pair if its count makes it worth watching. OUT: its slot, or NO_SLOT."""
        slot[0] = NO_SLOT
        if count >= self.threshold and (not self.is_repeating or self._is_known(left, right)):
            self.index.add(left, right, count, n_occurrences)
            slot[0] = self.index.n_pairs - 1
        return 0

    cdef bint _is_known(self, id_t left, id_t right) noexcept nogil:
        return pairtable_find(&self.known_pairs, pair_key(left, right)) != <uint32_t> NO_SLOT

    cdef void _write(self, uint32_t slot, uint32_t position) noexcept nogil:
        cdef Pair *pair = &self.index.pairs[slot]
        pair.occurrences[pair.n_occurrences] = position
        pair.n_occurrences += 1

    # ---- steps

    cdef int run(self, uint32_t *pairs, int64_t *counts, int64_t *removed, uint64_t budget,
                 uint32_t n_merges) except -1 nogil:
        """Merges up to n_merges times, or until about budget occurrences were looked at; returns how many merges it
        made.

        OUT: pairs, two ids a merge, counts, and what each merge removed. Where it returns early within its budget the
        stage is over.
        """
        cdef uint64_t limit = self.n_steps + budget
        cdef uint32_t slot
        cdef uint32_t done = 0
        while done < n_merges and self.n_steps < limit:
            if self.next_id >= self.n_neighbours:
                self._reserve_ids(2 * <uint64_t> self.next_id)
            if self.is_repeating:
                if self.next_id - 256 == <uint64_t> self.known.shape[0]:
                    self.stage_is_over = True
                    break
                pairs[2 * done] = self.known[self.next_id - 256, 0]
                pairs[2 * done + 1] = self.known[self.next_id - 256, 1]
                slot = pairtable_find(&self.index.table, pair_key(pairs[2 * done], pairs[2 * done + 1]))
            else:
                slot = self._winner()
                if slot == <uint32_t> NO_SLOT:
                    self.stage_is_over = True
                    break
                pairs[2 * done] = self.index.pairs[slot].left
                pairs[2 * done + 1] = self.index.pairs[slot].right
            if self.letters != NULL:
                self._spell(pairs[2 * done], pairs[2 * done + 1])
            counts[done] = removed[done] = 0
            if slot != <uint32_t> NO_SLOT:          # a known pair need not occur
                counts[done] = self.index.pairs[slot].count
                self.merge(slot)
                removed[done] = self.removed
            self.next_id += 1
            done += 1
        return <int> done

    cdef void keep_known(self, PairSurvey survey) noexcept nogil:
        """Takes the counts of pairs that are not known out of a survey."""
        cdef uint32_t i
        for i in range(survey.n_sums):
            if not self._is_known(<id_t> (survey.sums[i].key >> 32), <id_t> survey.sums[i].key):
                survey.sums[i].count = 0


def learn(counts, offsets, data, num_merges, min_frequency=1, spread=4.0, known=None, Workspace workspace=None,
          spellings=None):
    """Yields the merges of a corpus in batches, each after a tenth of a second or so: (pairs uint32[k, 2], counts
    int64[k], removed int64[k]).

    counts uint64[n], offsets uint64[n + 1], data uint8[offsets[n]]: the distinct chunks in order of first appearance.
    Merge number i makes id 256 + i, and leaves the corpus removed[i] tokens shorter. Ends when there are num_merges, or
    when no pair occurs min_frequency times. A batch may be empty: between batches the caller shows progress and hears
    signals. The first batch comes when the arrays are not needed any more.

    known: uint32[m, 2], merges to begin with, each of lower ids and no pair twice; they count among num_merges, which
    is at least m, and are yielded first, whether or not their pairs occur. spread: how many times the merges still to
    come a stage's highest count is taken to be above its threshold; it changes the time, never the result. (mix_2GB at
    32,768 ids: the highest count is 55,000 times the last one. One stage of spread 4 takes 7.8 s; two stages with fewer
    pairs watched in the first, 10.0 s; without a threshold, 15.4 s.) workspace: where arrays lie; None: in memory.
    spellings: None, or 256 bytes objects, what each byte spells: then of equal pairs not the first is merged but the
    greatest (the left parts decide, then the right ones). Raises CorpusTooLargeError, MemoryError, OSError.
    """
    # a merge shortens the text, so there cannot be more of them than bytes
    known = np.empty((0, 2), np.uint32) if known is None else np.ascontiguousarray(known, np.uint32)
    num_merges = min(num_merges, len(known) + len(data), MAX_MERGES)
    cdef Merger merger = Merger(Arena(counts, offsets, data, num_merges, workspace), known, spellings)
    counts = offsets = data = None          # the arena holds it all; the caller may let go of the store
    cdef PairSurvey survey
    cdef int done
    cdef uint32_t[:, ::1] pairs = np.empty((BATCH, 2), np.uint32)
    cdef int64_t[::1] pair_counts = np.empty(BATCH, np.int64)
    cdef int64_t[::1] removed = np.empty(BATCH, np.int64)
    cdef uint64_t left = num_merges, scan = SCAN, steps = STEPS
    cdef uint32_t slot
    cdef count_t highest, floor = max(1, min(min_frequency, MAX_COUNT))
    nothing = np.empty((0, 2), np.uint32), np.empty(0, np.int64), np.empty(0, np.int64)
    yield nothing
    while left:
        merger.index.clear()
        merger.n_heap = 0
        done = merger.next_id == 256
        while not done:
            with nogil:
                done = merger.arena.compact(scan, merger.next_id)
            yield nothing
        survey = PairSurvey(merger.arena, merger.next_id)
        done = 0
        while not done:
            with nogil:
                done = survey.count(scan)
            yield nothing
        merger.is_repeating = merger.next_id == 256 and len(known) > 0
        if merger.is_repeating:
            merger.keep_known(survey)
            merger.threshold = 1
        else:
            highest = survey.highest()
            if highest < floor:
                return
            merger.threshold = max(min(<count_t> (highest / max(1.0, spread * left)), highest), floor)
        survey.watch(merger.index, merger.threshold)
        done = 0
        while not done:
            with nogil:
                done = survey.list(merger.index, scan)
            yield nothing
        if not merger.is_repeating:
            for slot in range(merger.index.n_pairs):
                merger._push(slot)
        merger.stage_is_over = False
        while left and not merger.stage_is_over:
            with nogil:
                done = merger.run(&pairs[0, 0], &pair_counts[0], &removed[0], steps,
                                  <uint32_t> min(left, <uint64_t> BATCH))
            left -= done
            yield pairs.base[:done].copy(), pair_counts.base[:done].copy(), removed.base[:done].copy()

"""From one chunk to ids: the merges, applied exactly as minbpe applies them.

In: the bytes of chunks. Out: their ids.

minbpe's rule for one chunk: as long as two tokens stand side by side, take among the pairs present the one whose
merge has the lowest id (among equals the pair that occurs first), replace all its occurrences from left to right, and
look again.

tiktoken and Hugging Face's tokenizers replace one occurrence and look again, *one by one*. That is the same unless a
merge makes a lower id than one of those it joins: then what has just been made may go on merging before the pair's next
occurrence has its turn. With ab -> 300 and 300 a -> 256, "abab" is 300 300 for minbpe and 256 b one by one. The second
and third way do either.

A merge has a *slot*, its place among all merges sorted by id. Three ways through a chunk:

*Short chunks of packed models* (up to 62 bytes; models in which every merge makes an id of its own above those it
joins, below 2**20 - 1, as training makes them) are merged side by side, see merge_lanes.

*Short chunks of other models* (up to 32 bytes) lie in two small arrays, the tokens and the slots of their pairs.
A round finds the lowest slot and rewrites both arrays in one sweep: the rule to the letter. It compares slots where
the rule compares ids, which is the same if no two merges share an id. Models in which some do take the third way for
every chunk.

*Long chunks* would be quadratic that way: a megabyte would be scanned once for every merge. There every
position whose pair can merge is held in a *run*, a linked list of ascending positions of one pair, and a heap orders
the runs by (id of the merge, first position). A round takes the first run and merges at its head until it is empty.
Each merge takes at most three positions out of their runs and puts at most two into others: amortised O(n log n) for
n bytes, whatever the model. Why this is exact for every model, hand-made ones too:

1. Runs hold exactly the positions whose pair can merge, each in one run: a position leaves its run in the moment its
   pair ends, and enters a run of the new pair in the same moment.
2. A run only grows at its end and only by positions behind all that it ever held, so its head only moves right and
   the position that the heap remembers for it is never too far right. An entry that is out of date is corrected
   before it is believed. An entry that is up to date and on top is thus the lowest id present and, among pairs that
   share the id, the first occurrence in the current sequence.
3. A pair may be born in several rounds (where a merge makes an id that existed before), so it may have several runs.
   They are merged into one, in order, before the sweep: it sees all occurrences there are, from left to right.
4. Merging at a head removes the position of the second token too: of the overlapping pairs in "aaa" the second is
   gone before the sweep comes to it, as in minbpe's merge.
5. Occurrences that the sweep itself gives birth to enter new runs, for the pair has none that is open: they wait for
   their round, as they do in minbpe, which looks at the sequence anew only after the sweep.

"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from cbpe.errors import CorpusTooLargeError

from cbpe.ids cimport NO_ID, id_t, pair_key
from cbpe.pairtable cimport NO_SLOT, pairtable_find, pairtable_free, pairtable_init, pairtable_insert

cdef extern from "platform.h" nogil:
    void cbpe_prefetch_read(const void *address)

cdef enum:
    LANES = 16                  # chunks that are merged at a time
    SHORT = 32                  # bytes of a chunk that is scanned if its model is not packed; beyond it, runs win
    MAX_CHUNK = 0x7FFFFFFF      # bytes of a chunk: positions leave the top bit free
    RUN = 0x80000000            # the top bit: a link that leads to a run, not to a position
    NOWHERE = 0xFFFFFFFF        # a position that is in no run; a run that is not there
    NONE = 0x7FFFFFFF           # a packed rank and position that is behind all others
    TRIALS = 64                 # multipliers that a perfect hash is looked for with


cdef void scratch_free(Scratch *work) noexcept nogil:
    free(work.token)
    free(work.mate)
    free(work.next)
    free(work.prev)
    free(work.runs)
    free(work.heap)
    free(work.newest)


cdef int resize(void **array, size_t n, size_t size) except -1 nogil:
    """Gives the array room for n items of a size. On MemoryError it is as it was."""
    cdef void *larger = NULL
    if n <= <size_t> -1 // size:
        larger = realloc(array[0], n * size)
    if larger == NULL:
        with gil:
            raise MemoryError(f"no memory for {n:,} items of {size} bytes while encoding")
    array[0] = larger
    return 0

# ---- the tables

cdef int merges_init(Merges *merges, const uint32_t *pairs, const uint32_t *ids, const int64_t *by_id, size_t m,
                     const uint8_t *byte_ids) except -1:
    """Fills merges, which are all zero. pairs: m times left and right; by_id: the order of the merges by their ids.

    Raises ValueError for a pair that is merged twice or holds NO_ID. merges_free is to be called whatever happens.
    """
    cdef uint32_t left, right, slot
    cdef int64_t at
    cdef bint ordered = True            # every merge makes an id of its own above those it joins
    for at in range(256):
        merges.byte_ids[at] = byte_ids[at]
    resize(<void **> &merges.merged, m + 1, sizeof(id_t))
    resize(<void **> &merges.byte_slots, 256 * 256, sizeof(uint32_t))
    pairtable_init(&merges.slots, m)
    merges.n = <uint32_t> m
    merges.ids_differ = True
    for slot in range(merges.n):
        at = by_id[slot]
        left, right = pairs[2 * at], pairs[2 * at + 1]
        if ids[at] == <id_t> NO_ID or left == <id_t> NO_ID or right == <id_t> NO_ID:
            raise ValueError(f"merge {at} holds the id {<id_t> NO_ID:,}: ids must be below it")
        if pairtable_find(&merges.slots, pair_key(left, right)) != <uint32_t> NO_SLOT:
            raise ValueError(f"the pair ({left}, {right}) is merged twice")
        pairtable_insert(&merges.slots, pair_key(left, right), slot)
        merges.merged[slot] = ids[at]
        if slot > 0 and merges.merged[slot - 1] == ids[at]:
            merges.ids_differ = False
        ordered = ordered and ids[at] > max(left, right, <id_t> 255)
    for left in range(256):
        for right in range(256):
            merges.byte_slots[left << 8 | right] = pairtable_find(
                &merges.slots, pair_key(merges.byte_ids[left], merges.byte_ids[right])
            )
    if ordered and merges.ids_differ and (m == 0 or merges.merged[m - 1] < <id_t> END):
        merges.is_packed = pack(merges, pairs, ids, m)
    return 0


cdef void merges_free(Merges *merges) noexcept nogil:
    pairtable_free(&merges.slots)
    free(merges.byte_slots)
    free(merges.merged)
    free(merges.byte_packed)
    free(merges.shifts)
    free(merges.entries)


@cython.overflowcheck(False)
cdef uint64_t another_multiplier(uint64_t multiplier) noexcept:
    """Odd stays odd."""
    return multiplier * <uint64_t> 0xD1342543DE82EF95 + 2


cdef bint pack(Merges *merges, const uint32_t *pairs, const uint32_t *ids, size_t m) except -1:
    """Makes what merge_lanes needs; false if no perfect hash was found in TRIALS trials.

    The hash of a pair is its 40 bits times a multiplier. Its top bits choose a bucket, and the bucket's shift, xored
    with other bits of the hash, gives the entry: shifts are chosen so that no two pairs share one, for the buckets
    with the most pairs first. A look-up is two loads without a loop, and no branch depends on what it finds.

    A trial fails for two of three models that fill their entries: two pairs have a bucket and those other bits in
    common. All trials fail only for a model made for that.
    """
    cdef uint64_t n_entries = 1 << 8
    cdef uint64_t n_buckets, i
    cdef uint64_t *keys = NULL
    cdef bint found = False
    while n_entries < m + m // 4:
        n_entries *= 2
    n_buckets = n_entries // 4
    merges.entry_mask = n_entries - 1
    merges.bucket_shift = 64
    while <uint64_t> 1 << (64 - merges.bucket_shift) < n_buckets:
        merges.bucket_shift -= 1
    resize(<void **> &merges.byte_packed, 256 * 256, sizeof(int32_t))
    resize(<void **> &merges.shifts, n_buckets, sizeof(uint16_t))
    resize(<void **> &merges.entries, n_entries, sizeof(uint64_t))
    for i in range(256 * 256):
        merges.byte_packed[i] = NONE
        if merges.byte_slots[i] != <uint32_t> NO_SLOT:
            merges.byte_packed[i] = <int32_t> merges.merged[merges.byte_slots[i]] << 6
    try:
        resize(<void **> &keys, m + 1, sizeof(uint64_t))
        for i in range(m):
            keys[i] = (<uint64_t> pairs[2 * i] << 20 | pairs[2 * i + 1]) << 20 | ids[i]
        merges.multiplier = <uint64_t> 0x9E3779B97F4A7C15
        for _ in range(TRIALS):
            found = place_all(merges, keys, m, n_buckets)
            if found:
                break
            merges.multiplier = another_multiplier(merges.multiplier)
    finally:
        free(keys)
    return found


cdef inline uint64_t bucket_of(const Merges *merges, uint64_t hash) noexcept nogil:
    return hash >> merges.bucket_shift


cdef inline uint64_t unshifted(const Merges *merges, uint64_t hash) noexcept nogil:
    return hash >> 18 & merges.entry_mask


cdef bint place_all(Merges *merges, const uint64_t *keys, size_t m, size_t n_buckets) except -1:
    """Chooses every bucket's shift and writes the entries; false if some bucket finds none. keys: the entries."""
    cdef uint32_t *starts = NULL        # [n_buckets + 1], of each bucket's members
    cdef uint32_t *members = NULL
    cdef uint32_t *order = NULL         # the buckets, by number of members from most to fewest
    cdef uint32_t sizes[66]             # buckets of more than 64 members are not tried
    cdef uint64_t i, bucket, size
    cdef bint placed = True
    try:
        resize(<void **> &starts, n_buckets + 2, sizeof(uint32_t))
        resize(<void **> &members, m + 1, sizeof(uint32_t))
        resize(<void **> &order, n_buckets, sizeof(uint32_t))
        memset(starts, 0, (n_buckets + 2) * sizeof(uint32_t))
        memset(sizes, 0, sizeof(sizes))
        memset(merges.entries, 0xFF, (merges.entry_mask + 1) * sizeof(uint64_t))
        for i in range(m):
            starts[bucket_of(merges, hash_of(merges, keys[i] >> 20)) + 2] += 1
        for bucket in range(n_buckets):
            size = starts[bucket + 2]
            if size > 64:
                return False
            sizes[64 - size + 1] += 1
            starts[bucket + 2] += starts[bucket + 1]
        for i in range(m):
            bucket = bucket_of(merges, hash_of(merges, keys[i] >> 20))
            members[starts[bucket + 1]] = <uint32_t> i
            starts[bucket + 1] += 1
        for i in range(65):
            sizes[i + 1] += sizes[i]
        for bucket in range(n_buckets):
            size = starts[bucket + 1] - starts[bucket]
            order[sizes[64 - size]] = <uint32_t> bucket
            sizes[64 - size] += 1
        for i in range(n_buckets):
            bucket = order[i]
            merges.shifts[bucket] = 0
            size = starts[bucket + 1] - starts[bucket]
            if placed and size > 0:
                placed = place(merges, keys, members + starts[bucket], size, bucket)
    finally:
        free(starts)
        free(members)
        free(order)
    return placed


cdef bint place(Merges *merges, const uint64_t *keys, const uint32_t *members, uint64_t size,
                uint64_t bucket) noexcept nogil:
    """Finds the first shift that leads all members of a bucket to empty entries, and writes them there."""
    cdef uint64_t homes[64]
    cdef uint64_t i, j, shift
    cdef uint64_t n_shifts = min(merges.entry_mask + 1, <uint64_t> 1 << 16)
    for i in range(size):
        homes[i] = unshifted(merges, hash_of(merges, keys[members[i]] >> 20))
        for j in range(i):
            if homes[i] == homes[j]:
                return False            # two that no shift takes apart
    for shift in range(n_shifts):
        for i in range(size):
            if merges.entries[homes[i] ^ shift] != ~(<uint64_t> 0):
                break
        else:
            merges.shifts[bucket] = <uint16_t> shift
            for i in range(size):
                merges.entries[homes[i] ^ shift] = keys[members[i]]
            return True
    return False


# ---- chunks of up to PACKED bytes, of models in which every merge makes an id above those it joins

cdef uint8_t AFTER[PACKED + 2]      # the neighbours of each token before any merge
cdef uint8_t BEFORE[PACKED + 2]


cdef void _fill_neighbours() noexcept:
    cdef int i
    for i in range(PACKED + 2):
        AFTER[i] = <uint8_t> (i + 1)
        BEFORE[i] = <uint8_t> max(i - 1, 0)


_fill_neighbours()


cdef struct Lane:
    # Token i, from 1 to n, and the word id << 6 | i of its merge with the token behind it, or NONE
    int32_t ranks[PACKED + 2]
    id_t tokens[PACKED + 2]
    uint8_t after[PACKED + 2]   # the tokens' neighbours
    uint8_t before[PACKED + 2]
    Job *job
    uint32_t n_eights           # eights of ranks that are looked at
    uint32_t here, previous     # the tokens whose merges change in this round,
    uint64_t here_pair, previous_pair       # the pairs they form now,
    uint64_t here_home, previous_home       # and where the entries of these are


cdef inline int32_t packed_rank(uint64_t entry, uint64_t pair, uint32_t position) noexcept nogil:
    cdef int32_t rank = <int32_t> ((entry & 0xFFFFF) << 6 | position)
    return rank if entry >> 20 == pair else NONE


cdef inline int32_t lowest_of_8(const int32_t *ranks) noexcept nogil:
    return min(min(min(ranks[0], ranks[1]), min(ranks[2], ranks[3])),
               min(min(ranks[4], ranks[5]), min(ranks[6], ranks[7])))


cdef inline void enter_lane(const Merges *merges, Lane *lane, Job *job) noexcept nogil:
    cdef const uint8_t *chunk = job.chunk
    cdef uint32_t n = <uint32_t> job.n
    cdef uint32_t i
    cdef int32_t rank
    lane.job = job
    lane.n_eights = (n >> 3) + 1
    lane.tokens[0] = lane.tokens[n + 1] = END
    lane.tokens[1] = merges.byte_ids[chunk[0]]
    lane.ranks[0] = NONE
    for i in range(1, n):
        rank = merges.byte_packed[<uint32_t> chunk[i - 1] << 8 | chunk[i]]
        lane.ranks[i] = rank | <int32_t> (i if rank != NONE else 0)
        lane.tokens[i + 1] = merges.byte_ids[chunk[i]]
    for i in range(n, 8 * lane.n_eights):
        lane.ranks[i] = NONE
    memcpy(lane.after, AFTER, sizeof(AFTER))
    memcpy(lane.before, BEFORE, sizeof(BEFORE))


cdef inline bint begin_round(const Merges *merges, Lane *lane) noexcept nogil:
    """Merges the pair whose turn it is and asks for the entries of the two pairs that this makes; false if done."""
    cdef uint32_t i, here, next
    cdef int32_t lowest = lowest_of_8(lane.ranks)
    cdef id_t made
    for i in range(1, lane.n_eights):
        lowest = min(lowest, lowest_of_8(lane.ranks + 8 * i))
    if lowest == NONE:
        return False
    here = lowest & 63
    made = <id_t> lowest >> 6
    next = lane.after[here]
    lane.ranks[next] = NONE
    next = lane.after[next]
    lane.after[here] = <uint8_t> next
    lane.before[next] = <uint8_t> here
    lane.tokens[here] = made
    lane.here = here
    lane.previous = lane.before[here]
    lane.here_pair = <uint64_t> made << 20 | lane.tokens[next]
    lane.previous_pair = <uint64_t> lane.tokens[lane.previous] << 20 | made
    lane.here_home = home_of(merges, lane.here_pair)
    lane.previous_home = home_of(merges, lane.previous_pair)
    cbpe_prefetch_read(merges.entries + lane.here_home)
    cbpe_prefetch_read(merges.entries + lane.previous_home)
    return True


cdef inline void end_round(const Merges *merges, Lane *lane) noexcept nogil:
    lane.ranks[lane.here] = packed_rank(merges.entries[lane.here_home], lane.here_pair, lane.here)
    lane.ranks[lane.previous] = packed_rank(merges.entries[lane.previous_home], lane.previous_pair, lane.previous)


cdef inline void leave_lane(Lane *lane) noexcept nogil:
    """Writes the answer."""
    cdef Job *job = lane.job
    cdef uint32_t here = 1
    cdef uint64_t n_ids = 0
    while here <= job.n:
        job.out[n_ids] = lane.tokens[here]
        n_ids += 1
        here = lane.after[here]
    job.n_ids = n_ids


cdef void merge_lanes(const Merges *merges, Job *jobs, uint64_t n_jobs) noexcept nogil:
    """Merges chunks of 1 to PACKED bytes, LANES of them at a time, a step of each in turn.

    The lowest word of a lane says which pair has its turn and where it stands first. One pair is merged at a time,
    which is the rule as well: a merge of what was just made makes an id above that, so no pair that comes into being
    goes before the other occurrences of this one. Of a chunk alone, each round would wait for what the one before it
    has looked up; with many at hand, the look-ups of all are under way at once.
    """
    cdef Lane lanes[LANES]
    cdef uint32_t active[LANES]
    cdef uint32_t i, n_left
    cdef uint32_t n_active = <uint32_t> min(<uint64_t> LANES, n_jobs)
    cdef uint64_t n_begun = n_active
    for i in range(n_active):
        enter_lane(merges, &lanes[i], &jobs[i])
        active[i] = i
    while n_active > 0:
        n_left = 0
        for i in range(n_active):
            active[n_left] = active[i]
            n_left += 1
            while not begin_round(merges, &lanes[active[i]]):
                leave_lane(&lanes[active[i]])
                if n_begun == n_jobs:
                    n_left -= 1
                    break
                enter_lane(merges, &lanes[active[i]], &jobs[n_begun])
                n_begun += 1
        n_active = n_left
        for i in range(n_active):
            end_round(merges, &lanes[active[i]])


# ---- short chunks of the other models

cdef inline uint32_t merge_short(const Merges *merges, const uint8_t *chunk, uint32_t n, id_t *out) noexcept nogil:
    """Writes the chunk's ids to out, which has room for n, and returns their number. 1 <= n <= SHORT.

    With merges ab -> 256 and 256 256 -> 257, "ababc": 97 98 97 98 99, then 256 256 99, then 257 99.
    """
    cdef uint32_t slots[SHORT]          # slots[i] is that of the pair (out[i], out[i + 1]); the last token has none
    cdef uint32_t i, best, first, read, write
    cdef bint is_new
    cdef id_t made
    for i in range(n):
        out[i] = merges.byte_ids[chunk[i]]
    for i in range(n - 1):
        slots[i] = merges.byte_slots[<uint32_t> chunk[i] << 8 | chunk[i + 1]]
    slots[n - 1] = <uint32_t> NO_SLOT
    while True:
        best = <uint32_t> NO_SLOT
        first = 0
        for i in range(n - 1):
            if slots[i] < best:
                best = slots[i]
                first = i
        if best == <uint32_t> NO_SLOT:
            return n
        made = merges.merged[best]
        read = write = first
        is_new = False                  # whether the token written last is the merge's
        while read < n:
            if slots[read] == best and (read == first or not merges.one_by_one):
                out[write] = made
                if write > 0:
                    slots[write - 1] = pairtable_find(&merges.slots, pair_key(out[write - 1], made))
                is_new = True
                read += 2
            else:
                out[write] = out[read]
                if is_new:
                    slots[write - 1] = pairtable_find(&merges.slots, pair_key(made, out[write]))
                elif write > 0:
                    slots[write - 1] = slots[read - 1]
                is_new = False
                read += 1
            write += 1
        n = write
        slots[n - 1] = <uint32_t> NO_SLOT


# ---- long chunks: the heap of runs

cdef void sift_down(Scratch *work, uint32_t i) noexcept nogil:
    """Moves entry i down to where neither child is before it."""
    cdef Entry *heap = work.heap
    cdef Entry moving = heap[i]
    cdef uint32_t child = 2 * i + 1
    while child < work.n_heap:
        if child + 1 < work.n_heap and heap[child + 1].key < heap[child].key:
            child += 1
        if heap[child].key >= moving.key:
            break
        heap[i] = heap[child]
        i = child
        child = 2 * i + 1
        work.operations += 1
    heap[i] = moving


cdef void heap_pop(Scratch *work) noexcept nogil:
    work.n_heap -= 1
    if work.n_heap > 0:
        work.heap[0] = work.heap[work.n_heap]
        sift_down(work, 0)


cdef void heap_push(Scratch *work, uint64_t key, uint32_t run) noexcept nogil:
    cdef uint32_t i = work.n_heap
    work.n_heap += 1
    while i > 0 and key < work.heap[(i - 1) // 2].key:
        work.heap[i] = work.heap[(i - 1) // 2]
        i = (i - 1) // 2
        work.operations += 1
    work.heap[i].key = key
    work.heap[i].run = run


# ---- long chunks: the runs

cdef int reserve_long(const Merges *merges, Scratch *work, size_t n) except -1 nogil:
    """Makes room for a chunk of n bytes."""
    if n > <size_t> MAX_CHUNK:
        with gil:
            raise CorpusTooLargeError(
                f"a chunk of {n:,} bytes cannot be encoded: the limit is {<size_t> MAX_CHUNK:,} bytes a chunk"
            )
    if work.newest == NULL:
        work.newest = <uint32_t *> calloc(<size_t> merges.n + 1, sizeof(uint32_t))
        if work.newest == NULL:
            with gil:
                raise MemoryError(f"no memory for the runs of {merges.n:,} pairs")
    if n > work.capacity:
        resize(<void **> &work.token, n, sizeof(id_t))
        resize(<void **> &work.mate, n, sizeof(uint32_t))
        resize(<void **> &work.next, n, sizeof(uint32_t))
        resize(<void **> &work.prev, n, sizeof(uint32_t))
        work.capacity = n
    return 0


cdef int reserve_run(Scratch *work) except -1 nogil:
    cdef uint32_t capacity = work.runs_capacity
    if work.n_runs < capacity:
        return 0
    if capacity >= <uint32_t> 1 << 30:
        with gil:
            raise CorpusTooLargeError(f"a chunk has more than {capacity:,} runs of pairs: the limit")
    capacity = 2 * capacity if capacity > 0 else 256
    resize(<void **> &work.runs, capacity, sizeof(Run))
    resize(<void **> &work.heap, capacity, sizeof(Entry))
    work.runs_capacity = capacity
    return 0


cdef inline uint32_t newest_run(const Scratch *work, uint32_t slot) noexcept nogil:
    """The pair's youngest open run, or NOWHERE. What the array says may date from another chunk: hence the check."""
    cdef uint32_t run = work.newest[slot]
    if run < work.n_runs and work.runs[run].slot == slot:
        return run
    return <uint32_t> NOWHERE


cdef inline int enter(const Merges *merges, Scratch *work, uint32_t slot, uint32_t position) except -1 nogil:
    """Puts a position, which is in no run, into the pair's youngest run, or into a new one if it is not behind that."""
    cdef uint32_t number = newest_run(work, slot)
    cdef uint32_t tail
    cdef Run *run
    work.operations += 1
    if number == <uint32_t> NOWHERE or work.runs[number].last >= position:
        reserve_run(work)
        run = &work.runs[work.n_runs]
        run.older = number
        number = work.n_runs
        work.n_runs += 1
        run.slot = slot
        run.head = run.tail = <uint32_t> RUN | number
        work.newest[slot] = number
        heap_push(work, (<uint64_t> merges.merged[slot] << 32) | position, number)
    run = &work.runs[number]
    run.last = position
    tail = run.tail
    work.prev[position] = tail
    work.next[position] = <uint32_t> RUN | number
    run.tail = position
    if tail & <uint32_t> RUN:
        run.head = position
    else:
        work.next[tail] = position
    return 0


cdef inline void leave(Scratch *work, uint32_t position) noexcept nogil:
    """Takes a position out of the run it is in, if it is in one."""
    cdef uint32_t next = work.next[position]
    cdef uint32_t prev = work.prev[position]
    work.operations += 1
    if next == <uint32_t> NOWHERE:
        return
    work.next[position] = <uint32_t> NOWHERE
    if prev & <uint32_t> RUN:
        work.runs[prev ^ <uint32_t> RUN].head = next
    else:
        work.next[prev] = next
    if next & <uint32_t> RUN:
        work.runs[next ^ <uint32_t> RUN].tail = prev
    else:
        work.prev[next] = prev


cdef void join(Scratch *work, uint32_t into, uint32_t other) noexcept nogil:
    """Moves all positions of the other run into a run, in order: 3 8 and 1 5 give 1 3 5 8 and nothing."""
    cdef uint32_t a = work.runs[into].head
    cdef uint32_t b = work.runs[other].head
    cdef uint32_t tail = <uint32_t> RUN | into
    cdef uint32_t position
    while not (a & <uint32_t> RUN and b & <uint32_t> RUN):
        if b & <uint32_t> RUN or a < b:         # a link to a run is above every position
            position = a
            a = work.next[a]
        else:
            position = b
            b = work.next[b]
        if tail & <uint32_t> RUN:
            work.runs[into].head = position
        else:
            work.next[tail] = position
        work.prev[position] = tail
        tail = position
        work.operations += 1
    if not tail & <uint32_t> RUN:
        work.next[tail] = <uint32_t> RUN | into
    work.runs[into].tail = tail
    work.runs[other].head = work.runs[other].tail = <uint32_t> RUN | other


cdef uint32_t join_all(Scratch *work, uint32_t slot) noexcept nogil:
    """Joins the pair's runs into the youngest, neighbours first, so that k runs take log k passes; its number."""
    cdef uint32_t youngest = newest_run(work, slot)
    cdef uint32_t run, older
    while work.runs[youngest].older != <uint32_t> NOWHERE:
        run = youngest
        while run != <uint32_t> NOWHERE and work.runs[run].older != <uint32_t> NOWHERE:
            older = work.runs[run].older
            join(work, run, older)
            work.runs[run].older = work.runs[older].older
            run = work.runs[older].older
    return youngest


cdef inline int form_pair(const Merges *merges, Scratch *work, uint32_t position, id_t left,
                          id_t right) except -1 nogil:
    """The token at a position has got a new neighbour on its right, or is new itself."""
    cdef uint32_t slot = pairtable_find(&merges.slots, pair_key(left, right))
    if slot != <uint32_t> NO_SLOT:
        enter(merges, work, slot, position)
    return 0


cdef inline int merge_at(const Merges *merges, Scratch *work, uint32_t n, uint32_t position, id_t made) except -1 nogil:
    """Makes one token of the token at a position and the next."""
    cdef uint32_t second = work.mate[position] + 1
    cdef uint32_t end = work.mate[second]
    cdef uint32_t before
    leave(work, position)
    leave(work, second)
    work.token[position] = made
    work.mate[position] = end
    work.mate[end] = position
    if position > 0:
        before = work.mate[position - 1]
        leave(work, before)
        form_pair(merges, work, before, work.token[before], made)
    if end + 1 < n:
        form_pair(merges, work, position, made, work.token[end + 1])
    return 0


cdef int64_t merge_long(const Merges *merges, Scratch *work, const uint8_t *chunk, size_t size,
                        id_t *out) except -1 nogil:
    """Writes the chunk's ids to out, which has room for size, and returns their number. size >= 1."""
    cdef int64_t n_ids = 0
    cdef uint32_t n = <uint32_t> size
    cdef uint32_t i, slot, run, head
    cdef id_t made
    reserve_long(merges, work, size)
    work.n_runs = work.n_heap = 0
    for i in range(n):
        work.token[i] = merges.byte_ids[chunk[i]]
        work.mate[i] = i
        work.next[i] = <uint32_t> NOWHERE
    for i in range(n - 1):
        slot = merges.byte_slots[<uint32_t> chunk[i] << 8 | chunk[i + 1]]
        if slot != <uint32_t> NO_SLOT:
            enter(merges, work, slot, i)
    while work.n_heap > 0:
        run = work.heap[0].run
        head = work.runs[run].head
        if head & <uint32_t> RUN:                           # empty: closed for good, since the heap forgets it
            work.runs[run].last = <uint32_t> NOWHERE
            heap_pop(work)
        elif head != <uint32_t> work.heap[0].key:           # the head is gone: look again from where it is now
            work.heap[0].key = (work.heap[0].key >> 32 << 32) | head
            sift_down(work, 0)
        else:
            slot = work.runs[run].slot
            made = merges.merged[slot]
            if merges.one_by_one:
                merge_at(merges, work, n, head, made)
                continue
            run = join_all(work, slot)
            work.newest[slot] = <uint32_t> NOWHERE
            while not work.runs[run].head & <uint32_t> RUN:
                merge_at(merges, work, n, work.runs[run].head, made)
    i = 0
    while i < n:
        out[n_ids] = work.token[i]
        n_ids += 1
        i = work.mate[i] + 1
    work.operations += 2 * <uint64_t> n
    return n_ids


# ---- any chunk

cdef int merge_chunks(const Merges *merges, Scratch *work, Job *jobs, uint64_t n_jobs) except -1 nogil:
    """Answers the jobs."""
    cdef uint64_t i = 0
    cdef uint64_t first
    while i < n_jobs:
        first = i
        while i < n_jobs and merges.is_packed and 1 <= jobs[i].n <= PACKED:
            i += 1
        merge_lanes(merges, jobs + first, i - first)
        if i < n_jobs:
            jobs[i].n_ids = <uint64_t> merge_chunk(merges, work, jobs[i].chunk, jobs[i].n, jobs[i].out)
            i += 1
    return 0


cdef int64_t merge_chunk(const Merges *merges, Scratch *work, const uint8_t *chunk, size_t n,
                         id_t *out) except -1 nogil:
    """Writes the chunk's ids to out, which has room for n, and returns their number."""
    cdef Job job
    if n == 0:
        return 0
    if n <= PACKED and merges.is_packed:
        job.chunk, job.n, job.out = chunk, n, out
        merge_lanes(merges, &job, 1)
        return <int64_t> job.n_ids
    if n <= SHORT and merges.ids_differ:
        return merge_short(merges, chunk, <uint32_t> n, out)
    return merge_long(merges, work, chunk, n, out)

"""From chunks to ids: the merges, applied exactly as minbpe applies them.

In: the bytes of a text and a splitter. Out: ids, as a list, as an array, or only their number.

minbpe's rule for one chunk: as long as two tokens stand side by side, take among the pairs present the one whose
merge has the lowest id (among equals the pair that occurs first), replace all its occurrences from left to right, and
look again.

A merge has a *slot*, its place among all merges sorted by id. Two ways through a chunk:

*Short chunks* (up to 32 bytes, nearly all of them) lie in two small arrays, the tokens and the slots of their pairs.
A round finds the lowest slot and rewrites both arrays in one sweep: the rule to the letter. It compares slots where
the rule compares ids, which is the same if no two merges share an id. Models in which some do take the other way for
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

Before either, a chunk of up to 15 bytes is looked up in a *memo* of the chunks met before in this text: most words of a
text are its frequent words. The memo forgets by overwriting, so its size is fixed; a text of less than a few thousand
words does without. Measured with cl100k, medians of six runs in turn with and without: English 30 -> 39 MB/s, code
35 -> 42, many languages 24 -> 23.

All memory that an operation writes to is its own, so that threads share one Encoder; the GIL is released while bytes
are split and merged.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

import numpy as np

from cbpe.errors import CorpusTooLargeError

cimport cython

from cbpe.ids cimport NO_ID, id_t, pair_key
from cbpe.pairtable cimport NO_SLOT, PairTable, pairtable_find, pairtable_free, pairtable_init, pairtable_insert
from cbpe.splitting.split cimport PAD, Splitter, settled, split_block_fn

cdef enum:
    MEMO_BYTES = 15             # bytes of a chunk that is remembered: with their number, two 8-byte integers
    MEMO_IDS = 3                # ids of such a chunk: 32 bytes an entry in all
    MEMO_BITS = 16              # the memo has 2**16 entries, 2 MB: a few lines of text touch only a little of it
    MEMO_TEXT = 0x10000         # bytes of a text that is worth a memo
    SHORT = 32                  # bytes of a chunk that is scanned; beyond it, runs win
    BLOCK = 0x40000             # bytes of text split at a time: text, ends and ids stay in the second-level cache
    MAX_CHUNK = 0x7FFFFFFF      # bytes of a chunk: positions leave the top bit free
    RUN = 0x80000000            # the top bit: a link that leads to a run, not to a position
    NOWHERE = 0xFFFFFFFF        # a position that is in no run; a run that is not there


# ---- what the encoder knows: written once, then only read

cdef struct Merges:
    PairTable slots             # pair -> slot
    uint32_t *byte_slots        # [256 * 256], the slots of pairs of bytes, by left << 8 | right
    id_t *merged                # [n], the id that slot's merge makes, ascending
    uint32_t n
    bint ids_differ             # no two merges make the same id
    id_t byte_ids[256]


# ---- what one operation works with

cdef struct Run:                # ascending positions of one pair
    uint32_t head               # the first position, or RUN | its own number if it is empty
    uint32_t tail               # the last position, or the same
    uint32_t last               # the last position it ever held; the next must be behind it
    uint32_t slot
    uint32_t older              # another run of the same pair, or NOWHERE


cdef struct Entry:              # of the heap
    uint64_t key                # id of the merge << 32 | head of the run when last looked at
    uint32_t run


cdef struct Memo:               # a chunk and its ids
    uint64_t key[2]             # the bytes, zeros, and as the last byte their number; all zero if there is none
    uint32_t n
    id_t ids[<int> MEMO_IDS]


cdef struct Work:
    id_t *ids                   # the ids made so far
    size_t n_ids, ids_capacity
    bint only_count             # forget ids once they are counted
    uint64_t count              # ids made in all
    uint64_t operations         # steps taken in long chunks
    Memo *memos                 # [2**MEMO_BITS], or NULL
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


cdef void work_free(Work *work) noexcept nogil:
    free(work.ids)
    free(work.memos)
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


cdef int reserve_ids(Work *work, size_t more) except -1 nogil:
    cdef size_t capacity = work.n_ids + more
    if capacity > work.ids_capacity:
        if work.ids_capacity > 0:       # the first guess is exact: a prompt needs no more
            capacity += work.ids_capacity
        resize(<void **> &work.ids, capacity, sizeof(id_t))
        work.ids_capacity = capacity
    return 0


# ---- short chunks

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
            if slots[read] == best:
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


# ---- the memo

@cython.overflowcheck(False)        # a hash is meant to overflow
cdef inline Memo *find_memo(Memo *memos, const uint8_t *chunk, size_t n, uint64_t *key) noexcept nogil:
    """The one place where a chunk of at most MEMO_BYTES bytes may be; key is set to the chunk's."""
    cdef uint64_t mixed
    key[0] = key[1] = 0
    memcpy(key, chunk, n)
    (<uint8_t *> key)[<int> MEMO_BYTES] = <uint8_t> n
    mixed = (key[0] ^ (key[1] * <uint64_t> 0xD6E8FEB86659FD93)) * <uint64_t> 0x9E3779B97F4A7C15
    return memos + (mixed >> (64 - MEMO_BITS))


# ---- long chunks: the heap of runs

cdef void sift_down(Work *work, uint32_t i) noexcept nogil:
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


cdef void heap_pop(Work *work) noexcept nogil:
    work.n_heap -= 1
    if work.n_heap > 0:
        work.heap[0] = work.heap[work.n_heap]
        sift_down(work, 0)


cdef void heap_push(Work *work, uint64_t key, uint32_t run) noexcept nogil:
    cdef uint32_t i = work.n_heap
    work.n_heap += 1
    while i > 0 and key < work.heap[(i - 1) // 2].key:
        work.heap[i] = work.heap[(i - 1) // 2]
        i = (i - 1) // 2
        work.operations += 1
    work.heap[i].key = key
    work.heap[i].run = run


# ---- long chunks: the runs

cdef int reserve_long(const Merges *merges, Work *work, size_t n) except -1 nogil:
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


cdef int reserve_run(Work *work) except -1 nogil:
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


cdef inline uint32_t newest_run(const Work *work, uint32_t slot) noexcept nogil:
    """The pair's youngest open run, or NOWHERE. What the array says may date from another chunk: hence the check."""
    cdef uint32_t run = work.newest[slot]
    if run < work.n_runs and work.runs[run].slot == slot:
        return run
    return <uint32_t> NOWHERE


cdef inline int enter(const Merges *merges, Work *work, uint32_t slot, uint32_t position) except -1 nogil:
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


cdef inline void leave(Work *work, uint32_t position) noexcept nogil:
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


cdef void join(Work *work, uint32_t into, uint32_t other) noexcept nogil:
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


cdef uint32_t join_all(Work *work, uint32_t slot) noexcept nogil:
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


cdef inline int form_pair(const Merges *merges, Work *work, uint32_t position, id_t left, id_t right) except -1 nogil:
    """The token at a position has got a new neighbour on its right, or is new itself."""
    cdef uint32_t slot = pairtable_find(&merges.slots, pair_key(left, right))
    if slot != <uint32_t> NO_SLOT:
        enter(merges, work, slot, position)
    return 0


cdef inline int merge_at(const Merges *merges, Work *work, uint32_t n, uint32_t position, id_t made) except -1 nogil:
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


cdef int merge_long(const Merges *merges, Work *work, const uint8_t *chunk, size_t size) except -1 nogil:
    """Appends the chunk's ids to work.ids, which has room for them. size >= 1."""
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
            run = join_all(work, slot)
            work.newest[slot] = <uint32_t> NOWHERE
            while not work.runs[run].head & <uint32_t> RUN:
                merge_at(merges, work, n, work.runs[run].head, made)
    i = 0
    while i < n:
        work.ids[work.n_ids] = work.token[i]
        work.n_ids += 1
        i = work.mate[i] + 1
    work.operations += 2 * <uint64_t> n
    return 0


# ---- texts

cdef inline int merge_chunk(const Merges *merges, Work *work, const uint8_t *chunk, size_t n) except -1 nogil:
    """Appends the chunk's ids to work.ids, which has room for n. n >= 1."""
    if n <= SHORT and merges.ids_differ:
        work.n_ids += merge_short(merges, chunk, <uint32_t> n, work.ids + work.n_ids)
        return 0
    return merge_long(merges, work, chunk, n)


cdef inline int encode_one(const Merges *merges, Work *work, const uint8_t *chunk, size_t n) except -1 nogil:
    """merge_chunk, from the memo if the chunk is there. n >= 1."""
    cdef uint64_t key[2]
    cdef id_t *ids = work.ids + work.n_ids
    cdef size_t before = work.n_ids
    cdef Memo *memo
    cdef uint32_t i
    if work.memos == NULL or n > MEMO_BYTES:
        return merge_chunk(merges, work, chunk, n)
    memo = find_memo(work.memos, chunk, n, key)
    if memo.key[0] == key[0] and memo.key[1] == key[1]:
        for i in range(memo.n):
            ids[i] = memo.ids[i]
        work.n_ids += memo.n
        return 0
    merge_chunk(merges, work, chunk, n)
    if work.n_ids - before <= MEMO_IDS:
        memo.key[0] = key[0]
        memo.key[1] = key[1]
        memo.n = <uint32_t> (work.n_ids - before)
        for i in range(memo.n):
            memo.ids[i] = ids[i]
    return 0


cdef int reserve_memos(Work *work, size_t n) except -1 nogil:
    """Gives a text of n bytes a memo, if it is worth one."""
    if n >= MEMO_TEXT:
        work.memos = <Memo *> calloc(1 << MEMO_BITS, sizeof(Memo))
        if work.memos == NULL:
            with gil:
                raise MemoryError("no memory for the chunks met")
    return 0


cdef void settle_count(Work *work, size_t n_before) noexcept nogil:
    work.count += work.n_ids - n_before
    if work.only_count:
        work.n_ids = 0


cdef int encode_chunks(
    const Merges *merges, Work *work, const uint8_t *text, const int64_t *ends, size_t n_ends
) except -1 nogil:
    """Encodes chunks that lie end to end. n_ends >= 1."""
    cdef size_t i, before
    cdef int64_t start = 0
    reserve_memos(work, <size_t> ends[n_ends - 1])
    for i in range(n_ends):
        if ends[i] > start:
            reserve_ids(work, <size_t> (ends[i] - start))
            before = work.n_ids
            encode_one(merges, work, text + start, <size_t> (ends[i] - start))
            settle_count(work, before)
        start = ends[i]
    return 0


cdef int64_t encode_blocks(
    const Merges *merges, Work *work, split_block_fn split, const uint8_t *text, size_t n
) except -1 nogil:
    """Splits and encodes a text block by block; returns n, or the offset of the first byte that is not UTF-8.

    The last chunks of a block may look otherwise once more text is seen: they are split again, with the next block. A
    chunk that fills a whole block doubles the block.
    """
    cdef size_t block = <size_t> BLOCK
    cdef uint8_t *buffer = NULL                 # a block of the text, with the room behind it that a splitter may read
    cdef uint32_t *ends = NULL
    cdef size_t start = 0
    cdef size_t size
    cdef int64_t n_ends = 0
    reserve_memos(work, n)
    try:
        if block > n:
            block = n
        resize(<void **> &buffer, block + PAD, 1)
        resize(<void **> &ends, block + PAD, sizeof(uint32_t))
        while start < n:
            size = n - start
            if size > block:
                size = block
                while size > 1 and text[start + size] & 0xC0 == 0x80:      # never inside a character
                    size -= 1
            memcpy(buffer, text + start, size)
            memset(buffer + size, 0, PAD)
            n_ends = split(buffer, size, ends)
            if n_ends < 0:
                return <int64_t> start - 1 - n_ends
            if start + size < n:
                n_ends = <int64_t> settled(buffer, size, ends, <size_t> n_ends)
            if n_ends == 0:
                if start + size == n:
                    break
                block = 2 * block if 2 * block < n else n
                if block > <size_t> MAX_CHUNK:
                    with gil:
                        raise CorpusTooLargeError(
                            f"the chunk at offset {start:,} cannot be encoded: "
                            f"the limit is {<size_t> MAX_CHUNK:,} bytes a chunk"
                        )
                resize(<void **> &buffer, block + PAD, 1)
                resize(<void **> &ends, block + PAD, sizeof(uint32_t))
                continue
            encode_block(merges, work, buffer, ends, <size_t> n_ends)
            start += ends[n_ends - 1]
        return <int64_t> n
    finally:
        free(buffer)
        free(ends)


cdef int encode_block(
    const Merges *merges, Work *work, const uint8_t *text, const uint32_t *ends, size_t n_ends
) except -1 nogil:
    """encode_chunks for a block's 32-bit ends, with room for the ids made once."""
    cdef size_t before = work.n_ids
    cdef size_t i
    cdef uint32_t start = 0
    reserve_ids(work, ends[n_ends - 1])
    for i in range(n_ends):
        encode_one(merges, work, text + start, ends[i] - start)
        start = ends[i]
    settle_count(work, before)
    return 0


@cython.final
cdef class Encoder:
    """Turns text into ids by a list of merges.

    Args:
        pairs: uint32[m, 2], C-contiguous: the ids that each merge joins. No pair may occur twice.
        ids: uint32[m], C-contiguous, below 2**32 - 1: the id that each merge makes. A lower id goes first.
        byte_ids: 256 bytes, the id of each byte value before any merge; None: the byte itself.

    Read-only after construction, so that threads may share it. Not picklable: make it anew from the merges.
    """
    cdef Merges merges
    cdef tuple ints             # the int of every id, shared by all lists made; None if the ids are too far apart

    def __cinit__(self, const uint32_t[:, ::1] pairs not None, const uint32_t[::1] ids not None, bytes byte_ids=None):
        cdef Merges *merges = &self.merges          # all zero, as every new object is
        cdef const uint8_t *first_ids
        cdef const int64_t[::1] by_id
        cdef size_t i, m = ids.shape[0]
        cdef uint32_t left, right, slot
        cdef int64_t at
        cdef id_t highest = 0
        if pairs.shape[1] != 2 or <size_t> pairs.shape[0] != m:
            raise ValueError(f"{m} ids need pairs of shape ({m}, 2), not ({pairs.shape[0]}, {pairs.shape[1]})")
        if m >= <size_t> NO_SLOT:
            raise ValueError(f"{m:,} merges are too many: the limit is {<size_t> NO_SLOT - 1:,}")
        if byte_ids is None:
            byte_ids = bytes(range(256))
        if len(byte_ids) != 256:
            raise ValueError(f"byte_ids must hold 256 bytes, not {len(byte_ids)}")
        first_ids = <const uint8_t *> PyBytes_AS_STRING(byte_ids)
        for i in range(256):
            merges.byte_ids[i] = first_ids[i]
            highest = max(highest, first_ids[i])
        resize(<void **> &merges.merged, m + 1, sizeof(id_t))
        resize(<void **> &merges.byte_slots, 256 * 256, sizeof(uint32_t))
        pairtable_init(&merges.slots, m)
        merges.n = <uint32_t> m
        merges.ids_differ = True
        by_id = np.argsort(np.asarray(ids), kind="stable").astype(np.int64)
        for slot in range(merges.n):
            at = by_id[slot]
            if ids[at] == <id_t> NO_ID or pairs[at, 0] == <id_t> NO_ID or pairs[at, 1] == <id_t> NO_ID:
                raise ValueError(f"merge {at} holds the id {<id_t> NO_ID:,}: ids must be below it")
            if pairtable_find(&merges.slots, pair_key(pairs[at, 0], pairs[at, 1])) != <uint32_t> NO_SLOT:
                raise ValueError(f"the pair ({pairs[at, 0]}, {pairs[at, 1]}) is merged twice")
            pairtable_insert(&merges.slots, pair_key(pairs[at, 0], pairs[at, 1]), slot)
            merges.merged[slot] = ids[at]
            if slot > 0 and merges.merged[slot - 1] == ids[at]:
                merges.ids_differ = False
        for left in range(256):
            for right in range(256):
                merges.byte_slots[left << 8 | right] = pairtable_find(
                    &merges.slots, pair_key(merges.byte_ids[left], merges.byte_ids[right])
                )
        if m > 0:
            highest = max(highest, merges.merged[m - 1])
        self.ints = tuple(range(<uint64_t> highest + 1)) if highest < 4 * (m + 256) else None

    def __dealloc__(self):
        pairtable_free(&self.merges.slots)
        free(self.merges.byte_slots)
        free(self.merges.merged)

    def __reduce__(self):
        raise TypeError("an Encoder cannot be pickled: make it anew from its merges")

    cdef int _encode(self, Work *work, bytes text, Splitter splitter) except -1:
        cdef const uint8_t *pointer = <const uint8_t *> PyBytes_AS_STRING(text)
        cdef size_t n = PyBytes_GET_SIZE(text)
        cdef split_block_fn split = splitter.native
        cdef const int64_t[::1] ends
        cdef int64_t done
        if n == 0:
            return 0
        if split != NULL:
            with nogil:
                done = encode_blocks(&self.merges, work, split, pointer, n)
            if done != <int64_t> n:
                raise UnicodeDecodeError("utf-8", text, done, done + 1, "not UTF-8")
            return 0
        text, spans = splitter.spans(text)
        ends = np.ascontiguousarray(spans, dtype=np.int64)
        pointer = <const uint8_t *> PyBytes_AS_STRING(text)
        if ends.shape[0] > 0:
            with nogil:
                encode_chunks(&self.merges, work, pointer, &ends[0], ends.shape[0])
        return 0

    cdef int _encode_chunk(self, Work *work, bytes chunk) except -1:
        cdef const uint8_t *pointer = <const uint8_t *> PyBytes_AS_STRING(chunk)
        cdef int64_t n = PyBytes_GET_SIZE(chunk)
        with nogil:
            encode_chunks(&self.merges, work, pointer, &n, 1)
        return 0

    cdef list _as_list(self, const Work *work):
        cdef list ids = PyList_New(work.n_ids)
        cdef object value
        cdef size_t i
        for i in range(work.n_ids):
            if self.ints is not None:
                value = <object> PyTuple_GET_ITEM(self.ints, work.ids[i])
            else:
                value = work.ids[i]
            Py_INCREF(value)            # PyList_SET_ITEM takes a reference over
            PyList_SET_ITEM(ids, i, value)
        return ids

    def encode(self, bytes text not None, Splitter splitter not None):
        """The ids of a text, as a list of ints. The text is UTF-8; what is not raises UnicodeDecodeError."""
        cdef Work work
        memset(&work, 0, sizeof(Work))
        try:
            self._encode(&work, text, splitter)
            return self._as_list(&work)
        finally:
            work_free(&work)

    def encode_to_numpy(self, bytes text not None, Splitter splitter not None):
        """The ids of a text, as a new uint32 array."""
        cdef Work work
        cdef uint32_t[::1] view
        memset(&work, 0, sizeof(Work))
        try:
            self._encode(&work, text, splitter)
            ids = np.empty(work.n_ids, dtype=np.uint32)
            view = ids
            if work.n_ids > 0:
                memcpy(&view[0], work.ids, work.n_ids * sizeof(id_t))
            return ids
        finally:
            work_free(&work)

    def count(self, bytes text not None, Splitter splitter not None):
        """The number of ids of a text; the ids themselves are not kept."""
        cdef Work work
        memset(&work, 0, sizeof(Work))
        work.only_count = True
        try:
            self._encode(&work, text, splitter)
            return work.count
        finally:
            work_free(&work)

    def encode_chunk(self, bytes chunk not None):
        """The ids of one chunk, which is not split and may hold any bytes: b"ababc" -> [257, 99] as in merge_short."""
        return self._encode_chunk_counted(chunk)[0]

    def _encode_chunk_counted(self, bytes chunk not None):
        """encode_chunk, and the number of steps that were taken: how tests see that no chunk takes quadratic time."""
        cdef Work work
        memset(&work, 0, sizeof(Work))
        try:
            self._encode_chunk(&work, chunk)
            return self._as_list(&work), work.operations
        finally:
            work_free(&work)

"""From text to ids: splits, looks chunks up, and applies the merges to what is new.

In: texts and a splitter. Out: ids, as lists, as arrays, or only their number.

A text is split a block at a time, and its chunks are taken in batches, for nearly all the time goes into waiting for
memory: what a whole batch will need is asked for before any of it is used. A batch walks through five steps:

1. *Keys.* Each chunk's key and hash; its line of the vocabulary is prefetched.
2. *The vocabulary*, a table that never changes, holds the chunks that are a token: nine of ten in English. A token is
   in it only if its bytes, encoded by merging, gave that token when the table was made; for models made by hand that
   need not be so.
3. *The cache* (cache.pyx) remembers other chunks up to 255 bytes. What it finds in its ring is fetched and compared.
4. *Merging* (merging.pyx), for the rest. A model may have chunks that are given one id as a whole, whatever the merges
   say; these are taken out before. Short ones stand in the vocabulary too, which then has nothing else of their bytes.
5. Ids are written out in the chunks' order, and what was merged is put into the cache.

Longer chunks are merged where they stand and not kept.

Merges work with ids of their own kind, the *inner* ones: their order is the order of merging. A model may number its
tokens otherwise (`numbers`); then the *outer* ids are put in place of the inner ones a block at a time, or, for lists,
by taking the ints from a table of the outer ones.

Threads share one Encoder, which is only read. All that an operation writes to is a Worker's; the encoder keeps those
that are not at work and makes a new one if there is none, so there are never more than threads have been encoding at
once. A Worker has CACHE_BYTES at most, and some hundred kilobytes more; what a very long chunk or text needed beyond
that is freed at the end of the call. The GIL is released while bytes are split, looked up and merged.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Clear
from cpython.list cimport PyList_New
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from cbpe.errors import CorpusTooLargeError
from cbpe.threads import LONG_TEXT, heeding_ctrl_c, in_order

cimport cython

from cbpe.chunkkeys cimport INLINE, LONG, hash_bytes, hash_words, inline_head, inline_tail
from cbpe.encoding.cache cimport (
    APART,
    KEPT,
    MOST_INLINE,
    MOST_INLINE_WIDE,
    Cache,
    Entry,
    cache_free,
    cache_init,
    cache_insert,
    cache_insert_apart,
    find_apart,
    find_in,
    first_line,
    in_ring,
    second_line,
)
from cbpe.encoding.merging cimport (
    Job,
    Merges,
    Scratch,
    merge_chunk,
    merge_chunks,
    merge_of,
    merges_free,
    merges_init,
    resize,
    scratch_free,
)
from cbpe.encoding.utf8 cimport utf8_of, utf8_or_null
from cbpe.ids cimport NO_ID, id_t
from cbpe.pairtable cimport NO_SLOT
from cbpe.splitting.split cimport PAD, Splitter, find_cut, settled, split_block_fn

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()
    PyObject *PyTuple_GET_ITEM(tuple items, Py_ssize_t i)
    PyObject **PySequence_Fast_ITEMS(list items)

cdef extern from "platform.h" nogil:
    void cbpe_prefetch(const void *address)
    void cbpe_prefetch_read(const void *address)
    void cbpe_advise_huge(void *memory, size_t bytes)
    void *cbpe_zeroed_pages(size_t bytes)
    void cbpe_free_pages(void *memory, size_t bytes)

cdef enum:
    BATCH = 128                 # chunks that are looked up together
    BLOCK = 65536               # bytes of text split at a time: text, ends and ids stay in the second-level cache
    LOOK = 64                   # bytes behind a cut that the splitter is shown
    MAX_BLOCK = 0x7FFFFFFF      # bytes of a chunk that can be encoded
    SLACK = 8                   # ids of room beyond those that are written
    SMALL = 65536               # ids that are copied into an array; more of them become the array
    GATHERED = 1024             # texts that are laid into a block together, at most
    HELD = 1048576              # bytes of a buffer that a worker keeps for the next call
    AHEAD = 16                  # ints that are fetched before they are used
    PIECE = 262144              # bytes of text that are worth another thread
    TURNS = 8                   # through merges that may come before those of their parts, to find their bytes

cdef size_t ALL = ~<size_t> 0    # of a text: up to its end
CACHE_BYTES = 48 << 20          # of a worker, at most


# ---- what the encoder knows

cdef struct VocabularyLine:     # of three chunks: their keys, no two with the same head, and their tokens
    uint64_t head[3]
    uint64_t tail[3]
    id_t ids[4]


cdef struct WholeChunk:
    uint64_t start              # of its bytes
    uint32_t length             # 0: the place is empty
    id_t made


cdef struct WholeChunks:        # those that are given one id whatever the merges say
    uint8_t *bytes              # all of them end to end
    WholeChunk *places          # an open-addressing table, at most half of it taken
    uint64_t mask
    uint64_t n
    uint64_t longest


cdef struct Model:
    Merges merges
    WholeChunks whole
    uint8_t *lines              # VocabularyLines, aligned to 64 bytes
    void *memory                # what was allocated for them
    uint64_t line_mask          # what the upper half of a hash is masked by to give a line's offset in bytes
    bint wide                   # some ids need more than 20 bits
    uint64_t most_inline        # ids that an entry of the cache holds itself
    id_t *numbers               # the outer id of each inner one; NULL: the same


@cython.overflowcheck(False)        # hashes wrap around
cdef inline uint64_t whole_home(const WholeChunks *whole, const uint8_t *chunk, uint64_t length) noexcept nogil:
    """The place where the search for a chunk begins. Unlike a key, it is made without reading beyond the chunk."""
    cdef uint64_t hash = length
    cdef uint64_t i
    for i in range(length):
        hash = (hash ^ chunk[i]) * <uint64_t> 0x9E3779B97F4A7C15
    return (hash ^ hash >> 32) & whole.mask


cdef id_t find_whole(const WholeChunks *whole, const uint8_t *chunk, uint64_t length) noexcept nogil:
    """The id that the chunk is given as a whole, or NO_ID."""
    cdef const WholeChunk *place
    cdef uint64_t i
    if not 0 < length <= whole.longest:
        return <id_t> NO_ID
    i = whole_home(whole, chunk, length)
    while whole.places[i].length > 0:
        place = &whole.places[i]
        if place.length == length and memcmp(whole.bytes + place.start, chunk, length) == 0:
            return place.made
        i = (i + 1) & whole.mask
    return <id_t> NO_ID


cdef inline VocabularyLine *line_of(const Model *model, uint64_t hash) noexcept nogil:
    return <VocabularyLine *> (model.lines + (hash >> 32 & model.line_mask))


cdef void remember(Model *model, const uint8_t *token, uint64_t length, id_t made) noexcept nogil:
    """Puts a token into the vocabulary, unless its line is full or has the head. Reads 16 bytes."""
    cdef uint64_t head = inline_head(token, length)
    cdef uint64_t tail = inline_tail(token, length)
    cdef VocabularyLine *line = line_of(model, hash_words(head, tail))
    cdef int i
    for i in range(3):
        if line.tail[i] == 0:
            line.head[i] = head
            line.tail[i] = tail
            line.ids[i] = made
            return
        if line.head[i] == head:
            return


cdef struct Token:
    uint8_t key[16]             # its bytes, if they are up to INLINE, and in the last place their number; else all 0
    id_t left, right            # what it is made of
    bint is_proved              # its bytes, encoded, give it


cdef bint is_whole(const Merges *merges, const Token *tokens, id_t made) noexcept nogil:
    """Whether the bytes of a token give it, if those of both its parts do.

    Encoded side by side, the parts are made as each alone, unless a merge joins what stands left and right of the
    border between them before it has become part of something else. Merges happen in the order of their ids, so the
    border is walked back in time: of the two tokens there, the higher one was made last, and before that its part
    stood there. A merge of the two that were there together must not come before it. Among equals the left one comes
    first.
    """
    cdef id_t left = tokens[made].left
    cdef id_t right = tokens[made].right
    cdef id_t last, between
    while max(left, right) > 255:
        last = max(left, right)
        if left > right:
            left = tokens[left].right
        else:
            right = tokens[right].left
        between = merge_of(merges, left, right)
        if between < last or (between == last and tokens[last].left == right):
            return False
    return True


cdef inline bint are_close(const Merges *merges) noexcept nogil:
    """Whether the tokens of a model that is not packed may be listed by id and encoded as short chunks. n > 0."""
    return merges.ids_differ and merges.merged[merges.n - 1] < 4 * (<uint64_t> merges.n + 256)


cdef int remember_tried(Model *model, Token *tokens, const uint32_t *pairs, const int64_t *by_id) except -1 nogil:
    """Puts into the vocabulary what gives itself when it is encoded. Tokens not found in TURNS turns stay out."""
    cdef const Merges *merges = &model.merges
    cdef Scratch scratch
    cdef id_t made[INLINE]
    cdef id_t highest = max(merges.merged[merges.n - 1], <id_t> 255)
    cdef Token *token
    cdef const Token *left
    cdef const Token *right
    cdef const uint32_t *pair
    cdef uint64_t i, length
    cdef bint is_new = True
    memset(&scratch, 0, sizeof(Scratch))            # short chunks need none
    for _ in range(TURNS):
        if not is_new:
            break
        is_new = False
        for i in range(merges.n):
            token = &tokens[merges.merged[i]]
            pair = pairs + 2 * by_id[i]
            if max(pair[0], pair[1]) > highest:         # of a token that nothing makes
                continue
            left, right = &tokens[pair[0]], &tokens[pair[1]]
            length = left.key[15] + right.key[15]
            if token.key[15] > 0 or left.key[15] == 0 or right.key[15] == 0 or length > INLINE:
                continue
            memcpy(token.key, left.key, left.key[15])
            memcpy(token.key + left.key[15], right.key, right.key[15])
            token.key[15] = <uint8_t> length
            is_new = True
            if merge_chunk(merges, &scratch, token.key, length, made) == 1 and made[0] == merges.merged[i]:
                remember(model, token.key, length, made[0])
    return 0


cdef inline size_t vocabulary_size(const Model *model) noexcept nogil:
    """Bytes for the lines, and one more, for memory need not begin where a line does."""
    return <size_t> model.line_mask + 2 * sizeof(VocabularyLine)


cdef int make_vocabulary(Model *model, const uint32_t *pairs, const int64_t *by_id) except -1 nogil:
    """Chunks that have one id as a whole, every byte, and every token of a packed model whose bytes give it back.

    Tokens with low ids, more frequent, come first. What has the same bytes as one that came before it stays out: if
    that found its line full, it finds it full too.
    For cl100k 65,536 lines, of which 3 % are too full for what belongs to them. The proof takes a few look-ups a token;
    to encode each made the whole encoder for cl100k in 48 ms and not in 31. Of models that are not packed tokens are
    encoded, if their ids lie close enough for an array; otherwise only bytes are there.
    """
    cdef const Merges *merges = &model.merges
    cdef bint has_tokens = merges.n > 0 and (merges.is_packed or are_close(merges))
    cdef uint64_t n_tokens = model.whole.n + 256 + (merges.n if has_tokens else 0)
    cdef uint64_t i, length
    cdef uint64_t n_lines = 1
    cdef uint8_t byte[16]
    cdef Token *tokens = NULL           # by id
    cdef Token *token
    cdef const Token *left
    cdef const Token *right
    cdef const WholeChunk *whole
    while 3 * n_lines < 2 * n_tokens and n_lines < 1 << 26:
        n_lines *= 2
    model.line_mask = (n_lines - 1) * sizeof(VocabularyLine)
    model.memory = cbpe_zeroed_pages(vocabulary_size(model))
    if model.memory == NULL:
        with gil:
            raise MemoryError(f"no memory for a vocabulary of {n_tokens:,} tokens")
    model.lines = <uint8_t *> ((<uint64_t> model.memory + 63) // 64 * 64)
    memset(byte, 0, 16)
    for i in range(model.whole.mask + 1 if model.whole.n > 0 else 0):
        whole = &model.whole.places[i]
        if 1 <= whole.length <= INLINE:
            memcpy(byte, model.whole.bytes + whole.start, whole.length)
            remember(model, byte, whole.length, whole.made)
    for i in range(256):
        byte[0] = <uint8_t> i
        remember(model, byte, 1, merges.byte_ids[i])
    if not has_tokens:
        return 0
    tokens = <Token *> calloc(<size_t> max(merges.merged[merges.n - 1], <id_t> 255) + 1, sizeof(Token))
    if tokens == NULL:
        with gil:
            raise MemoryError(f"no memory for the bytes of {n_tokens:,} tokens")
    for i in range(256):
        token = &tokens[merges.byte_ids[i]]
        token.key[0] = <uint8_t> i
        token.key[15] = 1
        token.is_proved = True
    if not merges.is_packed:
        remember_tried(model, tokens, pairs, by_id)
        free(tokens)
        return 0
    for i in range(merges.n):
        token = &tokens[merges.merged[i]]
        token.left = pairs[2 * by_id[i]]
        token.right = pairs[2 * by_id[i] + 1]
        left, right = &tokens[token.left], &tokens[token.right]
        token.is_proved = left.is_proved and right.is_proved and is_whole(merges, tokens, merges.merged[i])
        length = left.key[15] + right.key[15]
        if token.is_proved and left.key[15] > 0 and right.key[15] > 0 and length <= INLINE:
            memcpy(token.key, left.key, left.key[15])
            memcpy(token.key + left.key[15], right.key, right.key[15])
            token.key[15] = <uint8_t> length
            remember(model, token.key, length, merges.merged[i])
    free(tokens)
    return 0


# ---- what one operation works with

cdef struct Work:
    Cache cache
    Scratch scratch
    id_t *ids                   # the ids made so far
    size_t n_ids, ids_capacity
    const id_t *numbers         # those of the model if ids are to be outer ones, else NULL
    bint only_count             # ids are not written
    uint64_t count              # of the ids that were not
    id_t *made                  # [BATCH * KEPT + SLACK], what is merged in one batch
    uint8_t *block              # the end of a text, with the room behind it that a splitter may read
    size_t block_capacity
    uint32_t *ends
    size_t ends_capacity


@cython.final
cdef class Worker:
    """The memory of one operation: see the top of the file."""
    cdef Work work

    def __cinit__(self, uint64_t cache_bytes):
        cache_init(&self.work.cache, cache_bytes)       # work is all zero, as every new object is
        resize(<void **> &self.work.made, BATCH * KEPT + SLACK, sizeof(id_t))

    def __dealloc__(self):
        cache_free(&self.work.cache)
        scratch_free(&self.work.scratch)
        free(self.work.ids)
        free(self.work.made)
        free(self.work.block)
        free(self.work.ends)

    cdef void tidy(self):
        """Makes it ready for another operation, and gives back what few operations need."""
        cdef Work *work = &self.work
        work.n_ids = work.count = 0
        work.only_count = False
        work.scratch.operations = 0
        if work.ids_capacity * sizeof(id_t) > HELD:
            free(work.ids)
            work.ids = NULL
            work.ids_capacity = 0
        if work.block_capacity > HELD:
            free(work.block)
            work.block = NULL
            work.block_capacity = 0
        if work.ends_capacity * sizeof(uint32_t) > HELD:
            free(work.ends)
            work.ends = NULL
            work.ends_capacity = 0
        if work.scratch.capacity > HELD // 64 or work.scratch.runs_capacity > HELD // 64:
            scratch_free(&work.scratch)
            memset(&work.scratch, 0, sizeof(Scratch))


cdef int reserve_ids(Work *work, size_t more) except -1 nogil:
    cdef size_t capacity = work.n_ids + more + SLACK
    if capacity > work.ids_capacity:
        capacity += capacity // 2
        resize(<void **> &work.ids, capacity, sizeof(id_t))
        cbpe_advise_huge(work.ids + work.n_ids, (capacity - work.n_ids) * sizeof(id_t))
        work.ids_capacity = capacity
    return 0


# ---- a batch of chunks

cdef struct Batch:
    uint64_t head[BATCH]        # keys
    uint64_t tail[BATCH]
    const VocabularyLine *line[BATCH]
    uint64_t first[BATCH]       # what the chunk's ids are, as in an Entry; but if they are APART,
    uint64_t second[BATCH]      # first holds their number and second their address
    uint32_t start[BATCH + 1]   # where each chunk begins, and where the last one ends
    uint16_t asked[BATCH]       # the chunks that the vocabulary does not have,
    uint64_t hash[BATCH]        # and their hashes
    uint16_t missed[BATCH]      # those that have to be merged
    uint64_t n, n_asked, n_missed


cdef inline void key_batch(const Model *model, Batch *batch, const uint8_t *text, const uint32_t *ends,
                           uint64_t n) noexcept nogil:
    """Step 1. batch.start[0] is set. The batch ends before a chunk of more than KEPT bytes."""
    cdef uint32_t begin = batch.start[0]
    cdef uint64_t i, length, head, tail
    cdef const VocabularyLine *line
    cdef const uint8_t *chunk
    for i in range(n):
        chunk = text + begin
        length = ends[i] - begin
        if length <= INLINE:
            head = inline_head(chunk, length)
            tail = inline_tail(chunk, length)
        elif length <= KEPT:
            head = hash_bytes(chunk, length)
            tail = <uint64_t> LONG << 56 | length
        else:
            n = i
            break
        line = line_of(model, hash_words(head, tail))
        cbpe_prefetch_read(line)
        batch.head[i] = head
        batch.tail[i] = tail
        batch.line[i] = line
        begin = ends[i]
        batch.start[i + 1] = begin
    batch.n = n


cdef inline void ask_vocabulary(const Model *model, const Cache *cache, Batch *batch) noexcept nogil:
    """Step 2. No branch depends on what is found: the next chunk that is not overwrites its place in asked."""
    cdef const VocabularyLine *line
    cdef uint64_t i, j, head, hash
    cdef uint64_t n_asked = 0
    for i in range(batch.n):
        line = batch.line[i]
        head = batch.head[i]
        # 1 or 2, and 2 where both are: two empty places have the head of a chunk of zeros
        j = ((line.head[1] == head) & (line.head[2] != head)) + 2 * (line.head[2] == head)
        batch.first[i] = line.ids[j] | <uint64_t> 1 << 60
        batch.asked[n_asked] = <uint16_t> i
        n_asked += ((line.head[j] ^ head) | (line.tail[j] ^ batch.tail[i])) != 0
    for j in range(n_asked):
        i = batch.asked[j]
        hash = hash_words(batch.head[i], batch.tail[i])
        batch.hash[j] = hash
        cbpe_prefetch_read(cache.lines + first_line(cache, hash))
        cbpe_prefetch_read(cache.lines + second_line(cache, hash))
    batch.n_asked = n_asked


cdef inline void ask_cache(const Cache *cache, Batch *batch, const uint8_t *text) noexcept nogil:
    """Step 3."""
    cdef const Entry *entry
    cdef const Entry *apart[BATCH]      # entries whose ids are in the ring, and their chunks
    cdef uint16_t apart_chunk[BATCH]
    cdef const id_t *ids
    cdef uint64_t i, j
    cdef uint64_t n_apart = 0
    cdef uint64_t n_missed = 0
    for j in range(batch.n_asked):
        i = batch.asked[j]
        entry = find_in(cache.lines + first_line(cache, batch.hash[j]), batch.head[i], batch.tail[i])
        if entry == NULL:
            entry = find_in(cache.lines + second_line(cache, batch.hash[j]), batch.head[i], batch.tail[i])
        if entry == NULL:
            batch.missed[n_missed] = <uint16_t> i
            n_missed += 1
            continue
        batch.first[i] = entry.first
        batch.second[i] = entry.second
        if entry.first >> 60 == APART:
            cbpe_prefetch_read(in_ring(cache, entry.first))
            apart[n_apart] = entry
            apart_chunk[n_apart] = <uint16_t> i
            n_apart += 1
    for j in range(n_apart):
        i = apart_chunk[j]
        ids = find_apart(cache, apart[j], text + batch.start[i], batch.start[i + 1] - batch.start[i])
        if ids == NULL:
            batch.missed[n_missed] = <uint16_t> i
            n_missed += 1
        else:
            batch.first[i] = <uint64_t> APART << 60 | apart[j].second
            batch.second[i] = <uint64_t> ids
    batch.n_missed = n_missed


cdef void take_whole(const WholeChunks *whole, Batch *batch, const uint8_t *text) noexcept nogil:
    """Step 4, of chunks that have an id as a whole: they are no longer missed, and so not kept either."""
    cdef uint64_t i, j
    cdef uint64_t n_missed = 0
    cdef id_t made
    for j in range(batch.n_missed):
        i = batch.missed[j]
        made = find_whole(whole, text + batch.start[i], batch.start[i + 1] - batch.start[i])
        if made == <id_t> NO_ID:
            batch.missed[n_missed] = <uint16_t> i
            n_missed += 1
        else:
            batch.first[i] = made | <uint64_t> 1 << 60
    batch.n_missed = n_missed


cdef int merge_missed(const Model *model, Work *work, Batch *batch, const uint8_t *text) except -1 nogil:
    """Step 4."""
    cdef Job jobs[BATCH]
    cdef id_t *made = work.made
    cdef uint64_t i, j, n
    for j in range(batch.n_missed):
        i = batch.missed[j]
        jobs[j].chunk = text + batch.start[i]
        jobs[j].n = batch.start[i + 1] - batch.start[i]
        jobs[j].out = made
        made += max(jobs[j].n, <uint64_t> MOST_INLINE)
    merge_chunks(&model.merges, &work.scratch, jobs, batch.n_missed)
    for j in range(batch.n_missed):
        i = batch.missed[j]
        n = jobs[j].n_ids
        made = jobs[j].out
        if n > model.most_inline or batch.tail[i] >> 56 == LONG:
            batch.first[i] = <uint64_t> APART << 60 | n
            batch.second[i] = <uint64_t> made
        else:
            memset(made + n, 0, (MOST_INLINE - n) * sizeof(id_t))
            if model.wide:
                batch.first[i] = n << 60 | made[0]
                batch.second[i] = made[1] | <uint64_t> made[2] << 32
            else:
                batch.first[i] = n << 60 | <uint64_t> made[1] << 32 | made[0]
                batch.first[i] |= <uint64_t> (made[5] >> 12) << 52 | (made[5] & 0xFFF) << 20
                batch.second[i] = made[2] | <uint64_t> made[3] << 20 | <uint64_t> made[4] << 40
    return 0


cdef inline id_t *write_batch(const Batch *batch, uint64_t begin, uint64_t end, id_t *out, bint wide) noexcept nogil:
    """Step 5, for chunks begin to end. Writes the ids an entry may have, and then goes on behind those that it has."""
    cdef uint64_t i, first, second, n, two
    for i in range(begin, end):
        first = batch.first[i]
        n = first >> 60
        if wide:
            out[0] = <id_t> first
        else:
            two = first & <uint64_t> 0x000FFFFF000FFFFF
            out[0] = <id_t> two             # compilers make one store of both
            out[1] = <id_t> (two >> 32)
        if n > (1 if wide else 2):
            second = batch.second[i]
            if n == APART:
                n = first & 0xFFFF
                memcpy(out, <const id_t *> second, n * sizeof(id_t))
            elif wide:
                out[1] = <id_t> second
                out[2] = <id_t> (second >> 32)
            else:
                out[2] = second & 0xFFFFF
                out[3] = second >> 20 & 0xFFFFF
                out[4] = second >> 40 & 0xFFFFF
                out[5] = (first >> 20 & 0xFFF) | (first >> 52 & 0xFF) << 12
        out += n
    return out


@cython.overflowcheck(False)        # which takes the difference of two pointers for one of ints
cdef inline void write_some(const Model *model, Work *work, const Batch *batch, uint64_t begin,
                            uint64_t end) noexcept nogil:
    if model.wide:
        work.n_ids = write_batch(batch, begin, end, work.ids + work.n_ids, True) - work.ids
    else:
        work.n_ids = write_batch(batch, begin, end, work.ids + work.n_ids, False) - work.ids


cdef inline uint64_t count_batch(const Batch *batch) noexcept nogil:
    """write_batch without the ids."""
    cdef uint64_t i, n
    cdef uint64_t count = 0
    for i in range(batch.n):
        n = batch.first[i] >> 60
        count += n if n != APART else batch.first[i] & 0xFFFF
    return count


cdef int keep_missed(Work *work, Batch *batch, const uint8_t *text) except -1 nogil:
    """Step 5, too."""
    cdef uint64_t i, j, hash
    cdef Entry entry
    for j in range(batch.n_missed):
        i = batch.missed[j]
        entry.head = batch.head[i]
        entry.tail = batch.tail[i]
        entry.first = batch.first[i]
        entry.second = batch.second[i]
        hash = hash_words(entry.head, entry.tail)
        if entry.first >> 60 != APART:
            cache_insert(&work.cache, hash, &entry)
        else:
            entry.second = entry.first & 0xFFFF
            cache_insert_apart(&work.cache, hash, &entry, <const id_t *> batch.second[i],
                               text + batch.start[i], batch.start[i + 1] - batch.start[i])
    return 0


cdef int64_t encode_one(const Model *model, Work *work, const uint8_t *chunk, size_t n, id_t *out) except -1 nogil:
    """Writes the ids of one chunk to out, which has room for n, and returns their number. Nothing is looked up."""
    cdef id_t made = find_whole(&model.whole, chunk, n)
    if made == <id_t> NO_ID:
        return merge_chunk(&model.merges, &work.scratch, chunk, n, out)
    out[0] = made
    return 1


cdef void renumber(id_t *ids, size_t n, const id_t *numbers) noexcept nogil:
    """Puts outer ids in the place of inner ones."""
    cdef size_t i
    for i in range(n):
        ids[i] = numbers[ids[i]]


cdef int encode_chunks(const Model *model, Work *work, const uint8_t *text, const uint32_t *ends, size_t n_ends,
                       const uint32_t *borders, int64_t *positions, size_t n_borders) except -1 nogil:
    """Encodes chunks that lie end to end. 16 bytes behind the last one's first byte are read, whatever its length.

    borders: numbers of chunks, ascending; the number of ids there are once so many are encoded goes to positions. None
    where ids are only counted.
    """
    cdef Batch batch
    cdef uint64_t at = 0, begin, end, before, written
    cdef size_t border = 0
    cdef size_t first = work.n_ids
    batch.start[0] = 0
    while at < n_ends:
        key_batch(model, &batch, text, ends + at, min(<uint64_t> BATCH, n_ends - at))
        begin, end = batch.start[0], batch.start[batch.n]
        if batch.n == 0:                        # a long chunk
            end = ends[at]
            reserve_ids(work, end - begin)
            before = work.n_ids
            work.n_ids += <size_t> encode_one(model, work, text + begin, end - begin, work.ids + before)
            if work.only_count:
                work.count += work.n_ids - before
                work.n_ids = before
            at += 1
            batch.start[0] = <uint32_t> end
            while border < n_borders and borders[border] <= at:
                positions[border] = work.n_ids if borders[border] == at else before
                border += 1
            continue
        ask_vocabulary(model, &work.cache, &batch)
        ask_cache(&work.cache, &batch, text)
        if batch.n_missed and model.whole.n > 0:
            take_whole(&model.whole, &batch, text)
        if batch.n_missed:
            merge_missed(model, work, &batch, text)
        if work.only_count:
            work.count += count_batch(&batch)
        else:
            reserve_ids(work, end - begin)
            written = 0
            while border < n_borders and borders[border] <= at + batch.n:
                before = borders[border] - at
                write_some(model, work, &batch, written, before)
                positions[border] = work.n_ids
                border += 1
                written = before
            write_some(model, work, &batch, written, batch.n)
        if batch.n_missed:
            keep_missed(work, &batch, text)
        at += batch.n
        batch.start[0] = <uint32_t> end
    while border < n_borders:               # there were no chunks
        positions[border] = work.n_ids
        border += 1
    if work.numbers != NULL:
        renumber(work.ids + first, work.n_ids - first, work.numbers)
    return 0


# ---- texts

cdef int reserve_block(Work *work, size_t size) except -1 nogil:
    if size > work.block_capacity:
        resize(<void **> &work.block, size, 1)
        work.block_capacity = size
    return 0


cdef int reserve_ends(Work *work, size_t size) except -1 nogil:
    if size + PAD > work.ends_capacity:
        resize(<void **> &work.ends, size + PAD, sizeof(uint32_t))
        work.ends_capacity = size + PAD
    return 0


cdef int64_t encode_native(const Model *model, Work *work, split_block_fn split, const uint8_t *text, size_t n,
                           size_t start, size_t limit) except? -1 nogil:
    """Splits and encodes a text from start to limit block by block; returns limit, or -2 - the offset of the first
    byte that is not UTF-8.

    start and limit are the text's ends or where it may be cut. The last chunks of a block may look otherwise once more
    text is seen: they are split again, with the next block. A chunk that fills a whole block doubles the block. Where a
    character behind limit is seen, a chunk ends at limit whatever follows, and those before it stay as they are.
    """
    cdef size_t block = BLOCK
    cdef size_t size
    cdef int64_t n_ends
    cdef const uint8_t *piece
    if not work.only_count:
        reserve_ids(work, (limit - start) // 4)     # English has 4 bytes an id
    while start < limit:
        size = min(block, n - start)
        if limit < n:
            size = min(size, limit - start + LOOK)
        while start + size < n and text[start + size] & 0xC0 == 0x80 and size > 1:      # never inside a character
            size -= 1
        piece = text + start
        if start + size + PAD > n:
            reserve_block(work, size + PAD)
            memcpy(work.block, piece, size)
            memset(work.block + size, 0, PAD)
            piece = work.block
        reserve_ends(work, size)
        n_ends = split(piece, size, work.ends)
        if n_ends < 0:
            return -2 - (<int64_t> start - 1 - n_ends)
        if start + size < n and start + size <= limit:
            n_ends = <int64_t> settled(piece, size, work.ends, <size_t> n_ends)
        while n_ends > 0 and start + work.ends[n_ends - 1] > limit:
            n_ends -= 1
        if n_ends == 0:
            if block == MAX_BLOCK:
                with gil:
                    raise CorpusTooLargeError(
                        f"the chunk at offset {start:,} cannot be encoded: the limit is {MAX_BLOCK:,} bytes a chunk"
                    )
            block = min(2 * block, <size_t> MAX_BLOCK)
            continue
        block = BLOCK
        encode_chunks(model, work, piece, work.ends, <size_t> n_ends, NULL, NULL, 0)
        start += work.ends[n_ends - 1]
    return <int64_t> limit


cdef int64_t encode_texts(const Model *model, Work *work, split_block_fn split, const uint8_t **texts,
                          const size_t *sizes, size_t n_texts, int64_t *positions) except? -1 nogil:
    """Encodes texts one after another; returns their number, or -2 - that of the first that is not UTF-8.

    positions: for each text, the number of ids there are when it is encoded. Short texts are laid end to end in a
    block and split one by one, so that their chunks fill batches together: 88,000 lines of 57 bytes take half the time.
    """
    cdef uint32_t borders[GATHERED]
    cdef size_t first = 0
    cdef size_t last, i, j, size, n_ends, start
    cdef int64_t found
    while first < n_texts:
        if sizes[first] > BLOCK:
            if encode_native(model, work, split, texts[first], sizes[first], 0, sizes[first]) < 0:
                return -2 - <int64_t> first
            positions[first] = work.n_ids
            first += 1
            continue
        reserve_block(work, BLOCK + PAD)
        reserve_ends(work, BLOCK)
        last = first
        size = 0
        while last < n_texts and last - first < GATHERED and size + sizes[last] <= BLOCK:
            memcpy(work.block + size, texts[last], sizes[last])
            size += sizes[last]
            last += 1
        memset(work.block + size, 0, PAD)
        start = n_ends = 0
        for i in range(first, last):
            found = split(work.block + start, sizes[i], work.ends + n_ends)
            if found < 0:
                return -2 - <int64_t> i
            for j in range(n_ends, n_ends + <size_t> found):
                work.ends[j] += <uint32_t> start
            start += sizes[i]
            n_ends += <size_t> found
            borders[i - first] = <uint32_t> n_ends
        encode_chunks(model, work, work.block, work.ends, n_ends, borders, positions + first, last - first)
        first = last
    return <int64_t> n_texts


cdef int encode_split(const Model *model, Work *work, bytes kept, ends) except -1:
    """Encodes chunks that were found elsewhere. kept: the chunks end to end; ends: an array, of each."""
    cdef const uint8_t *pointer = <const uint8_t *> PyBytes_AS_STRING(kept)
    cdef size_t n = PyBytes_GET_SIZE(kept)
    cdef const uint32_t[::1] view
    if n > MAX_BLOCK:
        raise CorpusTooLargeError(f"{n:,} bytes in chunks without a break: the limit is {MAX_BLOCK:,}")
    view = np.ascontiguousarray(ends, dtype=np.uint32)
    if view.shape[0] > 0:
        with nogil:
            reserve_block(work, n + PAD)
            memcpy(work.block, pointer, n)
            memset(work.block + n, 0, PAD)
            encode_chunks(model, work, work.block, &view[0], view.shape[0], NULL, NULL, 0)
    return 0


cdef int encode_text(const Model *model, Work *work, object text, Splitter splitter, size_t start,
                     size_t limit) except -1:
    """Encodes a text, or a part of it if the splitter is native. A limit of ALL is its end."""
    cdef Py_ssize_t n
    cdef const uint8_t *pointer = utf8_of(text, &n)
    cdef split_block_fn split = splitter.native
    cdef int64_t done
    limit = min(limit, <size_t> n)
    if split == NULL:
        for kept, ends in splitter.batches(text if isinstance(text, bytes) else text.encode()):
            encode_split(model, work, kept, ends)
    elif start < limit:
        with nogil:
            done = encode_native(model, work, split, pointer, n, start, limit)
        if done < 0:
            raise UnicodeDecodeError("utf-8", text, -2 - done, -1 - done, "not UTF-8")
    return 0


def encodable(text):
    """The text itself, a str. Raises UnicodeEncodeError if it holds lone surrogates, which UTF-8 does not have."""
    cdef Py_ssize_t n
    utf8_of(text, &n)
    return text


def all_encodable(list texts not None):
    """Whether all are known to be str without lone surrogates: what is wrong with a text, or that there is no memory
    for its UTF-8, is for encodable to say.
    """
    cdef Py_ssize_t n
    for text in texts:
        if not isinstance(text, str):
            return False
        if utf8_or_null(text, &n) == NULL:
            PyErr_Clear()
            return False
    return True


# ---- results

@cython.final
cdef class Memory:
    """Ids that an array shows without a copy."""
    cdef id_t *ids
    cdef Py_ssize_t n

    def __dealloc__(self):
        free(self.ids)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.ids, self.n * <Py_ssize_t> sizeof(id_t), False, flags)


cdef take_array(Work *work):
    """The ids as an array. If they are many, their memory becomes the array's and the worker is left without."""
    cdef Memory memory
    cdef Py_buffer view
    cdef void *smaller
    if work.n_ids <= SMALL:
        array = np.empty(work.n_ids, np.uint32)
        PyObject_GetBuffer(array, &view, PyBUF_WRITABLE)
        if work.n_ids > 0:
            memcpy(view.buf, work.ids, work.n_ids * sizeof(id_t))
        PyBuffer_Release(&view)
        return array
    memory = Memory()
    memory.n = work.n_ids
    memory.ids = work.ids
    work.ids = NULL
    work.ids_capacity = 0
    smaller = realloc(memory.ids, memory.n * sizeof(id_t))
    if smaller != NULL:
        memory.ids = <id_t *> smaller
    return np.frombuffer(memory, np.uint32)


cdef list make_list(tuple ints, const id_t *numbers, const id_t *ids, size_t n):
    """ids as a list, of outer ones. ints: those of all inner ids from 0, or None; numbers: a Model's."""
    cdef list made = PyList_New(n)      # all NULL
    cdef PyObject **items = PySequence_Fast_ITEMS(made)
    cdef object value
    cdef size_t i
    if ints is None:
        for i in range(n):
            value = ids[i] if numbers == NULL else numbers[ids[i]]
            Py_INCREF(value)
            items[i] = <PyObject *> value
        return made
    cbpe_advise_huge(items, n * sizeof(PyObject *))
    for i in range(n):
        if i + AHEAD < n:               # the ints of a large vocabulary do not fit in the second-level cache
            cbpe_prefetch(PyTuple_GET_ITEM(ints, ids[i + AHEAD]))
        items[i] = PyTuple_GET_ITEM(ints, ids[i])
        Py_INCREF(<object> items[i])
    return made


@cython.final
cdef class Encoder:
    """Turns text into ids by a list of merges.

    Args:
        pairs: uint32[m, 2], C-contiguous: the ids that each merge joins. No pair may occur twice.
        ids: uint32[m], C-contiguous, below 2**32 - 1: the id that each merge makes. A lower id goes first.
        byte_ids: 256 bytes, the id of each byte value before any merge; None: the byte itself.
        numbers: uint32[the highest of those ids + 1], below 2**32 - 1: what is given out in place of each id; None: the
            ids themselves. It decides about nothing else.
        one_by_one: merge as tiktoken and tokenizers do, see merging.pyx; it matters only if a merge makes a lower id
            than one of those it joins.
        whole: dict bytes -> id, below 2**32 - 1: chunks that get this one id, whatever the merges say. It is given out
            as it is, whether there are numbers or not.
        _cache_bytes: what the memory of chunks may take, for each thread that encodes at the same time.

    Threads may share it. Texts are str, or bytes in UTF-8; what is not raises UnicodeDecodeError, unless the splitter
    leaves texts whole, and a str with lone surrogates UnicodeEncodeError. num_threads is the most threads that a call
    uses; what it returns does not depend on it. Not picklable: make it anew from the merges.
    """
    cdef Model model
    cdef id_t highest
    cdef tuple ints             # the int of every id, shared by all lists; None before they are worth their making
    cdef uint64_t n_listed      # ids in lists before that
    cdef list workers           # those not at work
    cdef uint64_t cache_bytes

    def __cinit__(self, const uint32_t[:, ::1] pairs not None, const uint32_t[::1] ids not None, bytes byte_ids=None,
                  *, const uint32_t[::1] numbers=None, dict whole=None, bint one_by_one=False,
                  uint64_t _cache_bytes=CACHE_BYTES):
        cdef Model *model = &self.model             # all zero, as every new object is
        cdef const int64_t[::1] by_id
        cdef const uint32_t *first_pair = NULL
        cdef const uint32_t *first_id = NULL
        cdef const int64_t *first_by_id = NULL
        cdef size_t m = ids.shape[0]
        if pairs.shape[1] != 2 or <size_t> pairs.shape[0] != m:
            raise ValueError(f"{m} ids need pairs of shape ({m}, 2), not ({pairs.shape[0]}, {pairs.shape[1]})")
        if m >= <size_t> NO_SLOT:
            raise ValueError(f"{m:,} merges are too many: the limit is {<size_t> NO_SLOT - 1:,}")
        if byte_ids is None:
            byte_ids = bytes(range(256))
        if len(byte_ids) != 256:
            raise ValueError(f"byte_ids must hold 256 bytes, not {len(byte_ids)}")
        model.merges.one_by_one = one_by_one
        by_id = np.argsort(np.asarray(ids), kind="stable").astype(np.int64)
        if m > 0:
            first_pair, first_id, first_by_id = &pairs[0, 0], &ids[0], &by_id[0]
        merges_init(&model.merges, first_pair, first_id, first_by_id, m, <const uint8_t *> PyBytes_AS_STRING(byte_ids))
        self.highest = max(max(byte_ids), model.merges.merged[m - 1] if m > 0 else 0)
        if numbers is not None:
            self._renumber(numbers)
        if whole:
            self._add_whole(whole)
        model.wide = self.highest >= 1 << 20
        model.most_inline = MOST_INLINE_WIDE if model.wide else MOST_INLINE
        make_vocabulary(model, first_pair, first_by_id)
        self.workers = []
        self.cache_bytes = _cache_bytes

    cdef _renumber(self, const uint32_t[::1] numbers):
        cdef uint64_t n = <uint64_t> self.highest + 1
        if <uint64_t> numbers.shape[0] != n:
            raise ValueError(f"{n:,} ids need as many numbers, not {numbers.shape[0]:,}")
        if np.max(numbers) >= <uint32_t> NO_ID:
            raise ValueError(f"numbers must be below {<uint32_t> NO_ID:,}")
        resize(<void **> &self.model.numbers, n, sizeof(id_t))
        memcpy(self.model.numbers, &numbers[0], n * sizeof(id_t))

    cdef _add_whole(self, dict whole):
        """Their ids are inner ones behind all others if there are numbers."""
        cdef WholeChunks *chunks = &self.model.whole
        cdef WholeChunk *place
        cdef uint64_t i, start = 0
        cdef uint64_t n = len(whole)
        cdef uint64_t n_places = 4
        cdef bytes chunk
        cdef const uint8_t *pointer
        while n_places < 2 * n:
            n_places *= 2
        if self.model.numbers != NULL:
            resize(<void **> &self.model.numbers, <uint64_t> self.highest + 1 + n, sizeof(id_t))
        resize(<void **> &chunks.bytes, sum(map(len, whole)) + 1, 1)
        resize(<void **> &chunks.places, n_places, sizeof(WholeChunk))
        memset(chunks.places, 0, n_places * sizeof(WholeChunk))
        chunks.mask = n_places - 1
        chunks.n = n
        for chunk, number in whole.items():
            if not (0 < len(chunk) <= MAX_BLOCK and 0 <= number < <uint32_t> NO_ID):
                raise ValueError(f"no chunk or no id: {chunk[:40]!r} -> {number}")
            pointer = <const uint8_t *> PyBytes_AS_STRING(chunk)
            i = whole_home(chunks, pointer, len(chunk))
            while chunks.places[i].length > 0:
                i = (i + 1) & chunks.mask
            place = &chunks.places[i]
            place.start = start
            place.length = <uint32_t> len(chunk)
            place.made = number
            if self.model.numbers != NULL:
                self.highest += 1
                self.model.numbers[self.highest] = number
                place.made = self.highest
            else:
                self.highest = max(self.highest, place.made)
            memcpy(chunks.bytes + start, pointer, place.length)
            start += place.length
            chunks.longest = max(chunks.longest, place.length)

    def __dealloc__(self):
        merges_free(&self.model.merges)
        free(self.model.whole.bytes)
        free(self.model.whole.places)
        free(self.model.numbers)
        cbpe_free_pages(self.model.memory, vocabulary_size(&self.model))

    def __reduce__(self):
        raise TypeError("an Encoder cannot be pickled: make it anew from its merges")

    cdef Worker _worker(self, bint outer):
        """One that is not at work. outer: its ids will be outer ones. Nothing lets another thread in between the look
        and list.pop.

        Not by catching IndexError: what Cython makes of that crashes where there is no memory for the traceback.
        """
        cdef Worker worker
        if self.workers:
            worker = self.workers.pop()
        else:
            worker = Worker(self.cache_bytes)
        worker.work.numbers = self.model.numbers if outer else NULL
        return worker

    cdef void _return(self, Worker worker):
        """A worker that an error has interrupted is not returned: its cache may be half changed."""
        worker.tidy()
        self.workers.append(worker)

    cdef tuple _ints(self, size_t n):
        """The ints of all ids, for lists of n ids. None if there are none, and to make them would take longer."""
        if self.ints is None and self.highest < 4 * (<uint64_t> self.model.merges.n + self.model.whole.n + 256):
            self.n_listed += n
            if self.n_listed > self.highest // 4:
                self.ints = self._all_ints()
        return self.ints

    cdef tuple _all_ints(self):
        cdef uint64_t n = <uint64_t> self.highest + 1
        if self.model.numbers == NULL:
            return tuple(range(n))
        return tuple(np.asarray(<id_t[:n]> self.model.numbers).tolist())

    def encode(self, text, Splitter splitter not None, num_threads=1):
        """The ids of a text, as a list of ints."""
        cdef Worker worker
        if num_threads > 1 and len(text) >= 2 * PIECE:
            return self.encode_batch([text], splitter, num_threads)[0]
        worker = self._worker(False)
        encode_text(&self.model, &worker.work, text, splitter, 0, ALL)
        ids = make_list(self._ints(worker.work.n_ids), self.model.numbers, worker.work.ids, worker.work.n_ids)
        self._return(worker)
        return ids

    def encode_to_numpy(self, text, Splitter splitter not None, num_threads=1):
        """The ids of a text, as a new uint32 array."""
        cdef Worker worker
        if num_threads > 1 and len(text) >= 2 * PIECE:
            return self.encode_batch_to_numpy([text], splitter, num_threads)[0]
        worker = self._worker(True)
        encode_text(&self.model, &worker.work, text, splitter, 0, ALL)
        ids = take_array(&worker.work)
        self._return(worker)
        return ids

    def count(self, text, Splitter splitter not None):
        """The number of ids of a text; the ids themselves are not kept."""
        cdef Worker worker = self._worker(False)
        cdef uint64_t count
        worker.work.only_count = True
        encode_text(&self.model, &worker.work, text, splitter, 0, ALL)
        count = worker.work.count
        self._return(worker)
        return count

    def encode_batch_to_numpy(self, list texts not None, Splitter splitter not None, num_threads=1):
        """The ids of many texts, end to end, as one uint32 array, and int64[len(texts) + 1]: where each text's begin.

        Text i has ids[offsets[i] : offsets[i + 1]].
        """
        return self._encode_flat(texts, splitter, num_threads, True)

    def _encode_flat(self, texts, splitter, num_threads, outer):
        """encode_batch_to_numpy, with outer or inner ids."""
        cdef list mine = list(texts)            # the caller's may change meanwhile
        total, pieces = self._pieces(mine, splitter, num_threads)
        if len(pieces) == 1:
            if total >= LONG_TEXT:
                ids, counts = heeding_ctrl_c(self._encode_piece, mine, splitter, outer, *pieces[0])
            else:
                ids, counts = self._encode_piece(mine, splitter, outer, *pieces[0])
            return ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        offsets = np.zeros(len(mine) + 1, np.int64)
        done = list(in_order(lambda piece: self._encode_piece(mine, splitter, outer, *piece), pieces, num_threads))
        for (first, last, _, _), (_, counts) in zip(pieces, done, strict=True):
            offsets[first + 1 : last + 1] += counts
        np.cumsum(offsets, out=offsets)
        # threads put the pieces together too: of 50 ms for 20 MB of English, one took 6
        borders = np.cumsum([0, *(len(ids) for ids, _ in done)])
        joined = np.empty(sum(len(ids) for ids, _ in done), np.uint32)

        def put(i):
            joined[borders[i] : borders[i + 1]] = done[i][0]

        for _ in in_order(put, range(len(done)), num_threads):
            pass
        return joined, offsets

    def encode_batch(self, list texts not None, Splitter splitter not None, num_threads=1):
        """The ids of many texts, as a list of lists of ints."""
        cdef Py_ssize_t i, n
        cdef Py_buffer view
        cdef const int64_t[::1] starts
        cdef bint gc_was_on
        ids, offsets = self._encode_flat(texts, splitter, num_threads, False)
        starts = offsets
        lists = []
        ints = self._ints(len(ids))
        PyObject_GetBuffer(ids, &view, PyBUF_WRITABLE)
        # no list is garbage yet; to look for some at every 700th made 88,000 lines of 57 bytes take half as long again
        gc_was_on = PyGC_Disable()
        try:
            for i in range(starts.shape[0] - 1):
                n = starts[i + 1] - starts[i]
                lists.append(make_list(ints, self.model.numbers, <const id_t *> view.buf + starts[i], n))
        finally:
            if gc_was_on:
                PyGC_Enable()
            PyBuffer_Release(&view)
        return lists

    def _pieces(self, list texts, Splitter splitter, num_threads):
        """The bytes of all texts, and what threads are given to do, in order: tuples (first, last, start, limit).

        Either the whole texts from first up to last, with start 0 and limit ALL, or one text, first, from start to
        limit, if it is long and may be cut.
        """
        cdef size_t total = 0, target
        cdef size_t size = 0, start
        cdef int64_t cut
        cdef Py_ssize_t i, n, first = 0
        cdef const uint8_t *pointer
        for text in texts:
            utf8_of(text, &n)
            total += n
        target = max(<size_t> PIECE, total // (4 * max(num_threads, 1)))
        if num_threads <= 1 or total < 2 * PIECE:
            return total, [(0, len(texts), 0, ALL)]
        pieces = []
        for i in range(len(texts)):
            pointer = utf8_of(texts[i], &n)
            if <size_t> n >= 2 * target and splitter.cuttable and splitter.native != NULL:
                if first < i:
                    pieces.append((first, i, 0, ALL))
                start = 0
                while start < <size_t> n:
                    cut = -1
                    if start + target < <size_t> n:
                        cut = find_cut(pointer, n, start + target)
                    if cut < 0:
                        cut = n
                    pieces.append((i, i + 1, start, cut))
                    start = cut
                first, size = i + 1, 0
                continue
            size += n
            if size >= target:
                pieces.append((first, i + 1, 0, ALL))
                first, size = i + 1, 0
        if first < len(texts):
            pieces.append((first, len(texts), 0, ALL))
        return total, pieces

    def _encode_piece(self, list texts, Splitter splitter, bint outer, Py_ssize_t first, Py_ssize_t last, size_t start,
                      size_t limit):
        """(ids, counts) of one of _pieces; counts: int64[last - first], of each text's ids."""
        cdef Worker worker = self._worker(outer)
        cdef Py_ssize_t i, size
        cdef size_t n = last - first
        cdef int64_t done
        cdef const uint8_t **pointers = NULL
        cdef size_t *sizes = NULL
        cdef int64_t[::1] positions = np.zeros(n + 1, np.int64)
        if splitter.native != NULL and limit == ALL and n > 1:
            try:
                resize(<void **> &pointers, n, sizeof(uint8_t *))
                resize(<void **> &sizes, n, sizeof(size_t))
                for i in range(first, last):
                    pointers[i - first] = utf8_of(texts[i], &size)
                    sizes[i - first] = size
                with nogil:
                    done = encode_texts(&self.model, &worker.work, splitter.native, pointers, sizes, n, &positions[1])
            finally:
                free(pointers)
                free(sizes)
            if done < 0:                # says what is wrong
                encode_text(&self.model, &worker.work, texts[first - 2 - done], splitter, 0, ALL)
        else:
            for i in range(first, last):
                encode_text(&self.model, &worker.work, texts[i], splitter, start, limit)
                positions[i - first + 1] = worker.work.n_ids
        ids = take_array(&worker.work)
        self._return(worker)
        return ids, np.diff(positions)

    # ---- for tests and measurements

    def encode_chunk(self, bytes chunk not None):
        """The ids of one chunk, which is not split and may hold any bytes. Vocabulary and cache are not asked.

        With merges ab -> 256 and 256 256 -> 257, b"ababc" -> [257, 99].
        """
        return self._encode_chunk_counted(chunk)[0]

    def _encode_chunk_counted(self, bytes chunk not None):
        """encode_chunk, and the number of steps that were taken: how tests see that no chunk takes quadratic time."""
        cdef Worker worker = self._worker(False)
        cdef Work *work = &worker.work
        cdef const uint8_t *pointer = <const uint8_t *> PyBytes_AS_STRING(chunk)
        cdef size_t n = len(chunk)
        with nogil:
            reserve_ids(work, n)
            work.n_ids = <size_t> encode_one(&self.model, work, pointer, n, work.ids)
        ids = make_list(self._ints(work.n_ids), self.model.numbers, work.ids, work.n_ids)
        result = ids, work.scratch.operations
        self._return(worker)
        return result

    def _encode_chunks(self, bytes kept not None, ends):
        """The ids of chunks that were found elsewhere, as an array: of each, where it ends in kept."""
        cdef Worker worker = self._worker(True)
        encode_split(&self.model, &worker.work, kept, ends)
        ids = take_array(&worker.work)
        self._return(worker)
        return ids

    def _memory(self):
        """Bytes held by the caches of the workers that are not at work, and how many workers that are."""
        cdef Worker worker
        cdef uint64_t held = 0
        for worker in self.workers:
            held += (<uint64_t> 1 << (64 - worker.work.cache.shift)) * sizeof(Entry) * 2 + worker.work.cache.ring_size
        return held, len(self.workers)

"""Which pairs tokens are made of, where a file does not say it, or says more than can happen.

A rank file (tiktoken) lists tokens in the order of merging, and any two neighbours merge whose bytes together are a
token. A list of merges for Hugging Face may have every way to part a token. Both come to one pair a token, for this
reason: *while a text is encoded, of all the pairs that make the same bytes at most one ever stands side by side.*

As long as no merge crosses its two ends, a stretch of bytes goes through the same states whatever stands around it:
those that it goes through alone. Two tokens that make the stretch together are one of these states, and no stretch is
in two parts more than once. So the pair is found by encoding the token's own bytes with all merges but its own. These
are merges of fewer bytes, so tokens are taken by their length; and the pairs that are found encode every text as all
the ranks do, or all the pairs that were listed: what else there is never occurs.

That holds for merges that are applied one by one (see encoding/merging.pyx), as tiktoken and tokenizers do. Where each
token is made of such as come before it, as in all that was trained, it is the same for all at once.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

import numpy as np

from cbpe.encoding.merging cimport Merges, Scratch, merge_chunk, merges_free, resize, scratch_free
from cbpe.ids cimport NO_ID, id_t, pair_key
from cbpe.pairtable cimport NO_SLOT, PairTable, pairtable_find, pairtable_free, pairtable_init, pairtable_insert

cdef enum:
    MAX_BYTES = 0x7FFFFFFF      # of all tokens together


# ---- merges that grow

cdef struct Growing:            # all zero is empty
    Merges merges               # slot i is that of the i-th merge, which makes 256 + i
    Scratch scratch
    id_t *parts                 # what a token's bytes merge to


cdef int growing_init(Growing *growing, uint64_t m, size_t longest) except -1 nogil:
    """Makes room for m merges, and for the parts of a token of longest bytes."""
    cdef Merges *merges = &growing.merges
    cdef uint32_t i
    resize(<void **> &growing.parts, longest + 1, sizeof(id_t))
    resize(<void **> &merges.byte_slots, 256 * 256, sizeof(uint32_t))
    resize(<void **> &merges.merged, m + 1, sizeof(id_t))
    pairtable_init(&merges.slots, m)
    for i in range(256 * 256):
        merges.byte_slots[i] = <uint32_t> NO_SLOT
    for i in range(256):
        merges.byte_ids[i] = i
    for i in range(<uint32_t> m):
        merges.merged[i] = 256 + i
    merges.n = <uint32_t> m
    merges.ids_differ = True
    merges.one_by_one = True
    return 0


cdef void growing_free(Growing *growing) noexcept nogil:
    free(growing.parts)
    merges_free(&growing.merges)
    scratch_free(&growing.scratch)


cdef inline int64_t part(Growing *growing, const uint8_t *token, size_t n) except -1 nogil:
    """Writes what a token's bytes merge to, so far, to growing.parts, and returns its number."""
    return merge_chunk(&growing.merges, &growing.scratch, token, n, growing.parts)


cdef inline int add(Growing *growing, uint32_t slot) except -1 nogil:
    """Adds the merge of the first two of growing.parts."""
    cdef id_t left = growing.parts[0]
    cdef id_t right = growing.parts[1]
    pairtable_insert(&growing.merges.slots, pair_key(left, right), slot)
    if max(left, right) < 256:
        growing.merges.byte_slots[left << 8 | right] = slot
    return 0


# ---- rank files

def recover(list tokens not None, bint strict=True):
    """The two parts that each token of two bytes or more is merged from, as inner ids: uint32[m, 2].

    Args:
        tokens: list of bytes, in the order of rank. Those of one byte may stand anywhere; their inner ids are their
            values, and those of the others, as they come, 256, 257, ...
        strict: refuse a token that is not made of two that come before it. Otherwise one of its parts may come later;
            and if merging does not make it, its parts are 2**32 - 1.

    [b"ab", b"abc", b"cab"] -> [[97, 98], [256, 99], [99, 256]]. Raises ValueError naming a token. Time grows as n log n
    with the bytes of all tokens.
    """
    cdef Growing growing
    cdef uint32_t[:, ::1] pairs
    cdef const int64_t[::1] order, slots
    cdef bytes token
    cdef uint64_t m
    cdef int64_t n_parts, i
    cdef uint32_t slot
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    is_longer = lengths != 1
    order = np.argsort(lengths, kind="stable")
    slots = np.cumsum(is_longer) - 1
    m = np.count_nonzero(is_longer)
    if m >= <uint64_t> NO_ID - 256:
        raise ValueError(f"{m:,} tokens are too many: ids have 32 bits")
    found = np.full((m, 2), <uint32_t> NO_ID, np.uint32)
    pairs = found
    memset(&growing, 0, sizeof(Growing))
    try:
        growing_init(&growing, m, lengths.max(initial=0))
        for i in order:
            token = tokens[i]
            if PyBytes_GET_SIZE(token) == 1:
                continue
            slot = <uint32_t> slots[i]
            n_parts = part(&growing, <const uint8_t *> PyBytes_AS_STRING(token), PyBytes_GET_SIZE(token))
            if n_parts < 2:
                raise ValueError(f"token {_shown(token)} is listed twice" if token else f"token {token!r} is empty")
            if strict and (n_parts > 2 or max(growing.parts[0], growing.parts[1]) >= 256 + slot):
                parts = np.asarray(<uint32_t[:n_parts]> growing.parts).tolist()
                raise ValueError(f"{_not_made(tokens, token, parts)}")
            if n_parts == 2:
                pairs[slot, 0], pairs[slot, 1] = growing.parts[0], growing.parts[1]
                add(&growing, slot)
    finally:
        growing_free(&growing)
    return found


def _not_made(tokens, token, parts):
    """What is wrong with a token that merging makes these parts of."""
    longer = list(filter(lambda each: len(each) > 1, tokens))
    shown = ", ".join(map(lambda i: _shown(bytes([i]) if i < 256 else longer[i - 256]), parts[:8]))
    more = f", ... ({len(parts):,} parts)" if len(parts) > 8 else ""
    return f"token {_shown(token)} is not a merge of two tokens of lower rank: its bytes merge to {shown}{more}"


def _shown(token):
    return repr(token) if len(token) <= 60 else f"{token[:60]!r}... ({len(token):,} bytes)"


# ---- lists of merges with several ways to make a token

cdef struct Bytes:              # of a token
    uint64_t start
    uint64_t length             # 0: none are known


cdef int spell(const uint32_t[:, ::1] pairs, const uint32_t[::1] made, Bytes *tokens, uint8_t **text) except -1:
    """Finds the bytes of all tokens that merges make of bytes; a merge may stand before those of its parts."""
    cdef uint64_t used = 256, capacity = 4096
    cdef size_t i, n_new = 1
    cdef Bytes left, right
    resize(<void **> text, capacity, 1)
    for i in range(256):
        text[0][i] = <uint8_t> i
        tokens[i].start = i
        tokens[i].length = 1
    while n_new > 0:
        n_new = 0
        for i in range(<size_t> made.shape[0]):
            left, right = tokens[pairs[i, 0]], tokens[pairs[i, 1]]
            if tokens[made[i]].length > 0 or left.length == 0 or right.length == 0:
                continue
            if used + left.length + right.length > <uint64_t> MAX_BYTES:
                raise ValueError(f"tokens of more than {<uint64_t> MAX_BYTES:,} bytes in all")
            if used + left.length + right.length > capacity:
                capacity = 2 * (used + left.length + right.length)
                resize(<void **> text, capacity, 1)
            tokens[made[i]].start = used
            tokens[made[i]].length = left.length + right.length
            memcpy(text[0] + used, text[0] + left.start, left.length)
            memcpy(text[0] + used + left.length, text[0] + right.start, right.length)
            used += left.length + right.length
            n_new += 1
    for i in range(<size_t> made.shape[0]):
        left, right = tokens[pairs[i, 0]], tokens[pairs[i, 1]]
        if left.length > 0 and right.length > 0 and left.length + right.length != tokens[made[i]].length:
            raise ValueError(f"merge {i} makes {made[i]} of other bytes than another merge does")
    return 0


def live_pairs(const uint32_t[:, ::1] pairs not None, const uint32_t[::1] made not None, uint64_t n_ids):
    """Which of many pairs can occur while encoding: bool[m].

    Args:
        pairs: uint32[m, 2], in the order of merging. No pair twice.
        made: uint32[m], the id that each makes, 256 or more; the same for pairs that make the same bytes, and only for
            those.
        n_ids: a number that all ids are below. Those below 256 are the bytes, others that no pair makes never occur.

    With ab -> 256, bc -> 257, (ab, c) -> 258 and (a, bc) -> 258, the last one is dead: before b and c merge, a has b.
    Of the pairs that make an id at most one is live. Raises ValueError for other ids.
    """
    cdef Growing growing
    cdef PairTable listed
    cdef Bytes *tokens = NULL
    cdef uint8_t *text = NULL
    cdef uint8_t[::1] live
    cdef const int64_t[::1] order
    cdef int64_t[::1] lengths = np.zeros(n_ids, np.int64)
    cdef size_t i, m = made.shape[0]
    cdef int64_t token
    cdef uint32_t slot
    cdef id_t parts[2]
    if pairs.shape[1] != 2 or <size_t> pairs.shape[0] != m or m >= <size_t> NO_ID - 256:
        raise ValueError(f"{m:,} merges need pairs of shape ({m}, 2), not {np.asarray(pairs).shape}")
    if n_ids < 256 or n_ids > <uint64_t> NO_ID:
        raise ValueError(f"n_ids must lie in 256..{<uint64_t> NO_ID}: {n_ids}")
    found = np.zeros(m, bool)
    live = found.view(np.uint8)
    memset(&growing, 0, sizeof(Growing))
    memset(&listed, 0, sizeof(PairTable))
    try:
        pairtable_init(&listed, m)
        for i in range(m):
            if max(pairs[i, 0], pairs[i, 1], made[i]) >= n_ids or made[i] < 256:
                raise ValueError(f"merge {i} is of ids that there are not: {(pairs[i, 0], pairs[i, 1])} -> {made[i]}")
            if pairtable_find(&listed, pair_key(pairs[i, 0], pairs[i, 1])) != <uint32_t> NO_SLOT:
                raise ValueError(f"the pair {(pairs[i, 0], pairs[i, 1])} is merged twice")
            pairtable_insert(&listed, pair_key(pairs[i, 0], pairs[i, 1]), <uint32_t> i)
        resize(<void **> &tokens, n_ids, sizeof(Bytes))
        memset(tokens, 0, n_ids * sizeof(Bytes))
        spell(pairs, made, tokens, &text)
        for i in range(n_ids):
            lengths[i] = tokens[i].length
        growing_init(&growing, m, max(lengths))
        order = np.argsort(lengths, kind="stable")
        for token in order:
            if token < 256 or tokens[token].length == 0:
                continue
            if part(&growing, text + tokens[token].start, tokens[token].length) != 2:
                continue
            for i in range(2):                  # a part is the number of the merge that makes it
                parts[i] = growing.parts[i]
                if parts[i] >= 256:
                    parts[i] = made[parts[i] - 256]
            slot = pairtable_find(&listed, pair_key(parts[0], parts[1]))
            if slot == <uint32_t> NO_SLOT:
                continue
            if made[slot] != <uint64_t> token:
                raise ValueError(f"ids {made[slot]} and {token} have the same bytes")
            live[slot] = True
            add(&growing, slot)
    finally:
        free(tokens)
        free(text)
        pairtable_free(&listed)
        growing_free(&growing)
    return found

"""From ids to bytes: the bytes of all tokens in one array, and where each token's lie.

In: ids, in whatever holds integers. Out: bytes.

The spans of ids 0, 1, 2, ... are an array as long as most places in it are filled; a special token may have an id far
beyond, and such ids are searched for. Ids are read as the 64-bit integers that they are and compared with the array's
length before they are used, so that an id that is negative or too large is an error that names it, never another token.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.number cimport PyIndex_Check
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import operator

import numpy as np

from cbpe.encoding.buffers import as_array
from cbpe.errors import UnknownIdError

cimport cython

from cbpe.ids cimport NO_ID, id_t

cdef enum:
    WIDTH = 16                  # bytes copied for every token: nearly all are shorter, and a fixed size is one move
    SPREAD = 4                  # the array has at most so many places a token,
    SPARE = 1024                # and so many more
    UNKNOWN = 0xFFFFFFFF        # the length of a token that is not there

ctypedef fused id_kind:
    uint16_t
    int32_t
    uint32_t
    int64_t


cdef struct Span:
    uint32_t start
    uint32_t length             # or UNKNOWN


cdef struct Vocabulary:
    uint8_t *bytes              # all tokens end to end, and WIDTH bytes more
    Span *spans                 # [n_dense + n_far]: by id below n_dense, then those of far_ids
    uint64_t n_dense
    id_t *far_ids               # [n_far], ascending, none below n_dense
    uint64_t n_far


cdef Span far_span(const Vocabulary *vocabulary, uint64_t number) noexcept nogil:
    """The span of an id that is not below n_dense."""
    cdef uint64_t low = 0
    cdef uint64_t high = vocabulary.n_far
    cdef uint64_t middle
    cdef Span none
    while low < high:
        middle = (low + high) // 2
        if vocabulary.far_ids[middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < vocabulary.n_far and vocabulary.far_ids[low] == number:
        return vocabulary.spans[vocabulary.n_dense + low]
    none.start = 0
    none.length = <uint32_t> UNKNOWN
    return none


cdef inline Span span_of(const Vocabulary *vocabulary, uint64_t number) noexcept nogil:
    """Where the id's bytes lie. A negative id, seen as unsigned, is beyond all ids."""
    if number < vocabulary.n_dense:
        return vocabulary.spans[number]
    return far_span(vocabulary, number)


cdef int64_t measure(const Vocabulary *vocabulary, const id_kind *ids, size_t n, uint64_t *total) noexcept nogil:
    """Adds up the lengths of the ids' bytes; returns n, or the index of the first id that is not known."""
    cdef size_t i
    cdef uint64_t sum = 0
    cdef Span span
    for i in range(n):
        span = span_of(vocabulary, <uint64_t> <int64_t> ids[i])
        if span.length == <uint32_t> UNKNOWN:
            return <int64_t> i
        sum += span.length
    total[0] = sum
    return <int64_t> n


cdef bint write(const Vocabulary *vocabulary, const id_kind *ids, size_t n, uint8_t *out, uint64_t room) noexcept nogil:
    """Writes the ids' bytes to out; false if they are not exactly as many as there is room for."""
    cdef size_t i
    cdef Span span
    for i in range(n):
        span = span_of(vocabulary, <uint64_t> <int64_t> ids[i])
        if span.length > room:              # UNKNOWN too
            return False
        if span.length <= WIDTH <= room:
            memcpy(out, vocabulary.bytes + span.start, WIDTH)
        else:
            memcpy(out, vocabulary.bytes + span.start, span.length)
        out += span.length
        room -= span.length
    return room == 0


cdef bytes decode_ids(const Vocabulary *vocabulary, const id_kind *ids, size_t n, object originals):
    """The bytes of contiguous ids. originals: what holds them, for the message."""
    cdef uint64_t total = 0
    cdef int64_t known
    cdef bint written
    cdef bytes decoded
    cdef uint8_t *out
    with nogil:
        known = measure(vocabulary, ids, n, &total)
    if known < <int64_t> n:
        raise unknown(int(originals[known]), known)
    decoded = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> total)
    out = <uint8_t *> PyBytes_AS_STRING(decoded)
    with nogil:
        written = write(vocabulary, ids, n, out, total)
    if not written:
        raise RuntimeError("the ids were changed by another thread while they were being decoded")
    return decoded


cdef unknown(number, index):
    # an int of thousands of digits cannot be written: Python refuses
    name = number if number.bit_length() <= 1024 else f"of {number.bit_length()} bits"
    return UnknownIdError(f"id {name} at index {index} is not a token of this tokenizer")


def add_merged(dict tokens not None, const uint32_t[:, :] pairs not None, const uint32_t[:] ids not None):
    """Adds to tokens, id -> bytes, what merges make: with b"a" and b"b" for 97 and 98, [[97, 98]] and [256] add b"ab".

    A merge may stand before those of its parts: it is put off until they are there. Raises KeyError for a part that
    nothing makes. A loop in Python took 0.13 s for the 100,000 merges of cl100k, which a first decode waited for.
    """
    cdef Py_ssize_t i
    cdef list put_off = list(range(ids.shape[0]))
    cdef list turn
    while put_off:
        turn, put_off = put_off, []
        for i in turn:
            if pairs[i, 0] in tokens and pairs[i, 1] in tokens:
                tokens[ids[i]] = <bytes> tokens[pairs[i, 0]] + <bytes> tokens[pairs[i, 1]]
            else:
                put_off.append(i)
        if len(put_off) == len(turn):
            i = turn[0]
            raise KeyError(pairs[i, 1] if pairs[i, 0] in tokens else pairs[i, 0])


@cython.final
cdef class Decoder:
    """Turns ids into bytes.

    Args:
        tokens: the bytes of every id that decodes, special tokens included. Ids may be any from 0 to 2**32 - 2.

    Read-only after construction, so that threads may share it. Not picklable: make it anew from the tokens.
    """
    cdef Vocabulary vocabulary

    def __cinit__(self, dict tokens not None):
        cdef Vocabulary *vocabulary = &self.vocabulary      # all zero, as every new object is
        cdef uint64_t i, place, n = len(tokens)
        cdef uint64_t total = 0
        cdef bytes token
        cdef list numbers = sorted(map(operator.index, tokens))
        if n > 0 and not 0 <= numbers[0] <= numbers[n - 1] < <uint32_t> NO_ID:
            raise ValueError(f"ids must lie in 0..{<uint32_t> NO_ID - 1}, not in {numbers[0]}..{numbers[n - 1]}")
        for token in tokens.values():
            total += <uint64_t> len(token)
        if total >= <uint32_t> UNKNOWN:
            raise OverflowError(f"tokens of {total:,} bytes in all: the limit is {<uint32_t> UNKNOWN - 1:,}")
        vocabulary.n_far = n
        for i in range(n):
            if numbers[i] < SPREAD * (i + 1) + SPARE:
                vocabulary.n_dense = numbers[i] + 1
                vocabulary.n_far = n - i - 1
        vocabulary.bytes = <uint8_t *> malloc(total + WIDTH)
        vocabulary.spans = <Span *> malloc((vocabulary.n_dense + vocabulary.n_far + 1) * sizeof(Span))
        vocabulary.far_ids = <id_t *> malloc((vocabulary.n_far + 1) * sizeof(id_t))
        if vocabulary.bytes == NULL or vocabulary.spans == NULL or vocabulary.far_ids == NULL:
            raise MemoryError(f"no memory for {n:,} tokens of {total:,} bytes")
        for i in range(vocabulary.n_dense):
            vocabulary.spans[i].length = <uint32_t> UNKNOWN
        total = 0
        for i in range(n):
            token = tokens[numbers[i]]
            place = numbers[i]
            if place >= vocabulary.n_dense:
                place = vocabulary.n_dense + i - (n - vocabulary.n_far)
                vocabulary.far_ids[i - (n - vocabulary.n_far)] = numbers[i]
            vocabulary.spans[place].start = <uint32_t> total
            vocabulary.spans[place].length = <uint32_t> PyBytes_GET_SIZE(token)
            memcpy(vocabulary.bytes + total, PyBytes_AS_STRING(token), PyBytes_GET_SIZE(token))
            total += <uint64_t> PyBytes_GET_SIZE(token)

    def __dealloc__(self):
        free(self.vocabulary.bytes)
        free(self.vocabulary.spans)
        free(self.vocabulary.far_ids)

    def __reduce__(self):
        raise TypeError("a Decoder cannot be pickled: make it anew from its tokens")

    def decode_bytes(self, ids):
        """The bytes of the ids, end to end.

        Args:
            ids: integers: a list, any other iterable, or an array of one dimension and any integer type, stride and
                byte order.

        Raises:
            UnknownIdError: an id is not in the vocabulary; names it and its index.
            TypeError: ids, or one of them, are not integers.
        """
        if isinstance(ids, np.ndarray):
            return self._decode_array(ids)
        if isinstance(ids, str):
            raise TypeError("ids to decode must be integers, not a str")
        if not isinstance(ids, (list, tuple)):
            array = as_array(ids)
            if array is not None:
                return self._decode_array(array)
            ids = list(ids)
        return self._decode_sequence(ids)

    cdef bytes _decode_array(self, ids):
        cdef const uint8_t[::1] view
        cdef size_t n = ids.size
        if ids.ndim != 1:
            raise TypeError(f"an array of ids to decode must have one dimension, not {ids.ndim}")
        if n == 0:
            return b""                  # of whatever type: np.array([]) is one of floats
        if ids.dtype.kind not in "iub":
            raise TypeError(f"ids to decode must be integers, not {ids.dtype}")
        # uint64 is read as int64: what does not fit turns negative, which no id is, and the message names the original
        native = np.int64 if ids.dtype.itemsize == 8 else ids.dtype.newbyteorder("=")
        if ids.dtype.itemsize == 1 or ids.dtype.newbyteorder("=") == np.int16:
            native = np.int32
        array = np.ascontiguousarray(ids, dtype=native)
        view = array.view(np.uint8)
        if array.dtype == np.uint16:
            return decode_ids[uint16_t](&self.vocabulary, <const uint16_t *> &view[0], n, ids)
        if array.dtype == np.int32:
            return decode_ids[int32_t](&self.vocabulary, <const int32_t *> &view[0], n, ids)
        if array.dtype == np.uint32:
            return decode_ids[uint32_t](&self.vocabulary, <const uint32_t *> &view[0], n, ids)
        return decode_ids[int64_t](&self.vocabulary, <const int64_t *> &view[0], n, ids)

    cdef bytes _decode_sequence(self, ids):
        """ids: a list or a tuple. The values are copied first: an object's __index__ may do anything to a list."""
        cdef size_t n = len(ids)
        cdef size_t i = 0
        cdef int64_t number
        cdef int overflow = 0
        cdef uint32_t *values = <uint32_t *> malloc((n + 1) * sizeof(uint32_t))
        if values == NULL:
            raise MemoryError(f"no memory for {n:,} ids")
        try:
            for item in ids:
                if i == n:
                    break
                if not isinstance(item, int):
                    if not PyIndex_Check(item):
                        raise TypeError(f"ids to decode must be integers, not {type(item).__name__} at index {i}")
                    item = operator.index(item)
                number = PyLong_AsLongLongAndOverflow(item, &overflow)
                if overflow or number < 0 or number >= <uint32_t> NO_ID:
                    raise unknown(item, i)
                values[i] = <uint32_t> number
                i += 1
            return decode_ids[uint32_t](&self.vocabulary, values, i, ids)
        finally:
            free(values)

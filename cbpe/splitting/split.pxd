"""Splitting a text into chunks: the words that training and encoding share. See split.pyx for what they do."""

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef enum:
    PAD = 64                    # readable bytes, of any value, behind the n of a buffer given to a native splitter


# Splits text[0:n] as a whole text, n < 2**32, and writes the chunks' ends; returns their number, or -1 - the offset
# of the first byte that is not UTF-8. There is room for n + PAD ends. No text has no chunks.
ctypedef int64_t (*split_block_fn)(const uint8_t *text, size_t n, uint32_t *ends) noexcept nogil


cdef class Splitter:
    cdef readonly object pattern        # str; Stages; or None: the whole text is one chunk
    cdef readonly str kind              # a name in NAMED_PATTERNS, all of which are native; "regex"; "stages"; "whole"
    cdef split_block_fn native          # NULL for "regex", "stages" and "whole"
    cdef readonly bint cuttable         # a text may be cut where find_cut says
    cdef readonly object compiled       # the compiled pattern for "regex", else None
    cdef list steps                     # the compiled Stages for "stages", else None
    cdef readonly object timeout        # seconds that regex may take for a text, or None

    cdef tuple _native_spans(self, bytes text)


cdef size_t settled(const uint8_t *text, size_t n, const uint32_t *ends, size_t n_ends) noexcept nogil
cdef int64_t find_cut(const uint8_t *text, size_t n, size_t start) noexcept nogil
cdef int64_t check_utf8(const uint8_t *text, size_t n) noexcept nogil
cdef size_t replace_utf8(const uint8_t *text, size_t n, uint8_t *out, uint32_t *origin) noexcept nogil
cdef size_t incomplete_tail(const uint8_t *text, size_t n) noexcept nogil

"""Keys of chunks: what counting and encoding look chunks up by.

A chunk of up to INLINE bytes is its own key: two words, its bytes 0 to 7 and its bytes 8 to 14 with the length on top.
Equal keys are equal chunks, and nothing else need be compared. "the" is 0x656874 and 3 << 56. A longer chunk has a
hash for its first word and LONG on top of its second: where the key is found, the bytes are still to be compared.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

cdef extern from *:
    """
    /* CBPE_KEY_MASK + 16 - n begins with n bytes that keep and goes on with bytes that clear. */
    static const unsigned char CBPE_KEY_MASK[32] = {
        255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    """
    const uint8_t CBPE_KEY_MASK[32]

cdef extern from "platform.h" nogil:
    uint64_t cbpe_load64(const uint8_t *bytes)

cdef enum:
    INLINE = 15                 # the longest chunk that is its own key
    LONG = 255                  # on top of the second word of a longer one's key


cdef inline uint64_t inline_head(const uint8_t *chunk, uint64_t length) noexcept nogil:
    """The first word of a chunk's key. Reads 8 bytes. length <= INLINE, here and below."""
    return cbpe_load64(chunk) & cbpe_load64(CBPE_KEY_MASK + 16 - length)


cdef inline uint64_t inline_tail(const uint8_t *chunk, uint64_t length) noexcept nogil:
    """The second word. Reads 16 bytes, whatever the length."""
    return (cbpe_load64(chunk + 8) & cbpe_load64(CBPE_KEY_MASK + 24 - length)) | length << 56


@cython.overflowcheck(False)        # hashes wrap around
cdef inline uint64_t hash_words(uint64_t head, uint64_t tail) noexcept nogil:
    """All bits of both words reach the top bits, which choose a slot. Five instructions, for there is one a chunk."""
    cdef uint64_t h = head ^ (tail * <uint64_t> 0x9E3779B97F4A7C15)
    return (h ^ (h >> 32)) * <uint64_t> 0xC2B2AE3D27D4EB4F


cdef inline uint64_t hash_bytes(const uint8_t *chunk, uint64_t length) noexcept nogil:
    """Eight bytes at a time; the last eight overlap the ones before. length > INLINE."""
    cdef uint64_t h = length
    cdef uint64_t i = 0
    while i + 8 < length:
        h = hash_words(h, cbpe_load64(chunk + i))
        i += 8
    return hash_words(h, cbpe_load64(chunk + length - 8))

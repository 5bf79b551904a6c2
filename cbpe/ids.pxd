"""The shared C words of cbpe: what an id, a count, an offset and a pair are, in every module that is compiled."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

ctypedef uint32_t id_t          # a token's id; 0..255 are the bytes
ctypedef int64_t count_t        # how often something occurs; signed, so that a fault shows as a negative number
ctypedef uint64_t pair_key_t    # two neighbouring ids in one word

cdef enum:
    NO_ID = 0xFFFFFFFF          # stands where no token is


cdef inline pair_key_t pair_key(id_t left, id_t right) noexcept nogil:
    """(97, 98) -> 97 << 32 | 98."""
    return (<pair_key_t> left << 32) | right

"""Memory for the working arrays of a long computation: the C library's, or scratch files that are mapped.

take, retake and give are malloc, realloc and free, except that what fails raises. Where a Workspace is mapped, its
pages are those of files without names: when memory is short the system writes them out and takes them away, as it
cannot with malloc's where there is no swap. They are slower only then.
"""

from libc.stdint cimport uint8_t, uint64_t


cdef enum:
    N_CLASSES = 96              # sizes of small blocks, four to an octave


cdef struct Memory:
    void *owner                 # the Workspace that maps more; NULL: all comes from the C library
    uint8_t *at                 # what is left of the last segment
    uint8_t *end
    void *given[N_CLASSES]      # blocks that were given back, by class: each holds the next one's address


cdef class Workspace:
    cdef Memory memory
    cdef object scratch_dir
    cdef uint64_t segment       # bytes of the next one
    cdef list segments
    cdef dict large             # address -> the map of a large block

    cdef void *map_large(self, uint64_t n_bytes) except NULL
    cdef int map_segment(self, uint64_t n_bytes) except -1


# memory: NULL is the C library's. MemoryError; OSError where a scratch file cannot be had.
cdef void *take(Memory *memory, uint64_t n_bytes) except NULL nogil
cdef void *retake(Memory *memory, void *block, uint64_t n_bytes) except NULL nogil
cdef void give(Memory *memory, void *block) noexcept nogil

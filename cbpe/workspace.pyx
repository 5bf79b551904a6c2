"""The parts of a workspace that map files and keep blocks in order: see workspace.pxd for what it is.

A large block is a file of its own. Small ones are cut from the front of segments; one that is given back waits, in a
list of its size, to be taken again. Sizes are rounded up to four steps an octave: 1000 bytes -> 1024, 1025 -> 1280.
"""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cbpe.files import scratch_map
from cbpe.memory import require

cdef enum:
    FORESEEN = 67108864         # bytes that are worth a look at what memory there is
    LARGE = 4194304             # bytes of a block that gets a file of its own

SEGMENT = 1 << 26               # bytes of the first; a later one is an eighth of all before it, if that is more


cdef struct Header:             # before each block of a mapped workspace
    uint64_t size_class         # N_CLASSES for a large one
    uint64_t capacity           # bytes behind the header


@cython.final
@cython.no_gc
cdef class Workspace:
    """Where working arrays lie: in the C library's memory, or, if mapped, in scratch files in a folder.

    scratch_dir: None for the system's folder for temporary files. Whoever takes memory from it holds it by a reference
    that no garbage collection may clear: hence no_gc, here and there, which none of them needs, for they make no cycle.
    """

    def __cinit__(self, bint mapped=False, scratch_dir=None):
        memset(&self.memory, 0, sizeof(Memory))
        self.scratch_dir = scratch_dir
        self.segment = SEGMENT
        self.segments = []
        self.large = {}
        if mapped:
            self.memory.owner = <void *> self

    @property
    def mapped(self):
        """Whether arrays lie in scratch files."""
        return self.memory.owner != NULL

    cdef void *map_large(self, uint64_t n_bytes) except NULL:
        mapped = scratch_map(self.scratch_dir, n_bytes)
        cdef uint8_t[::1] view = mapped
        self.large[<uint64_t> &view[0]] = mapped
        return &view[0]

    cdef int map_segment(self, uint64_t n_bytes) except -1:
        """A new segment, of n_bytes at least; what is left of the last one stays unused."""
        self.segment = max(self.segment, n_bytes)
        mapped = scratch_map(self.scratch_dir, self.segment)
        cdef uint8_t[::1] view = mapped
        self.segments.append(mapped)
        self.memory.at = &view[0]
        self.memory.end = self.memory.at + self.segment
        self.segment = max(self.segment, sum(map(len, self.segments)) // 8)
        return 0


cdef uint64_t size_class(uint64_t n_bytes, uint64_t *rounded) noexcept nogil:
    """The class of blocks of so many bytes. OUT: rounded, what they all have."""
    cdef int octave = 5
    cdef uint64_t step
    n_bytes = max(n_bytes, <uint64_t> 1 << octave)
    while n_bytes >> octave > 1:
        octave += 1
    step = <uint64_t> 1 << (octave - 2)
    rounded[0] = (n_bytes + step - 1) // step * step
    # 32, 40, 48, 56, 64, ... -> 0, 1, 2, 3, 4, ...
    return (octave - 5) * 4 + (rounded[0] >> (octave - 2)) - 4


cdef void *take_mapped(Memory *memory, uint64_t n_bytes) except NULL nogil:
    cdef Header *header
    cdef uint64_t rounded, number
    n_bytes += sizeof(Header)
    if n_bytes >= LARGE:
        with gil:
            header = <Header *> (<Workspace> memory.owner).map_large(n_bytes)
        header.size_class = N_CLASSES
        header.capacity = n_bytes - sizeof(Header)
        return header + 1
    number = size_class(n_bytes, &rounded)
    header = <Header *> memory.given[number]
    if header != NULL:
        memory.given[number] = (<void **> (header + 1))[0]
        return header + 1
    if <size_t> memory.end - <size_t> memory.at < rounded:
        with gil:
            (<Workspace> memory.owner).map_segment(rounded)
    header = <Header *> memory.at
    memory.at += rounded
    header.size_class = number
    header.capacity = rounded - sizeof(Header)
    return header + 1


cdef void *take(Memory *memory, uint64_t n_bytes) except NULL nogil:
    cdef void *block
    if memory != NULL and memory.owner != NULL:
        return take_mapped(memory, n_bytes)
    if n_bytes >= FORESEEN:
        with gil:
            require(n_bytes, "{needed} more are needed")
    block = malloc(max(n_bytes, <uint64_t> 1))
    if block == NULL:
        with gil:
            raise MemoryError(f"no memory for {n_bytes:,} bytes more")
    return block


cdef void *retake(Memory *memory, void *block, uint64_t n_bytes) except NULL nogil:
    """block: NULL for a new one. Where this raises, the block is as it was."""
    cdef void *larger
    cdef Header *header
    if block == NULL:
        return take(memory, n_bytes)
    if memory == NULL or memory.owner == NULL:
        larger = realloc(block, max(n_bytes, <uint64_t> 1))
        if larger == NULL:
            with gil:
                raise MemoryError(f"no memory for {n_bytes:,} bytes more")
        return larger
    header = <Header *> block - 1
    if n_bytes <= header.capacity:
        return block
    larger = take_mapped(memory, n_bytes)
    memcpy(larger, block, header.capacity)
    give(memory, block)
    return larger


cdef void give(Memory *memory, void *block) noexcept nogil:
    """block: may be NULL."""
    cdef Header *header
    if memory == NULL or memory.owner == NULL:
        free(block)
    elif block != NULL:
        header = <Header *> block - 1
        if header.size_class == N_CLASSES:
            with gil:
                (<Workspace> memory.owner).large.pop(<uint64_t> header)
        else:
            (<void **> block)[0] = memory.given[header.size_class]
            memory.given[header.size_class] = header

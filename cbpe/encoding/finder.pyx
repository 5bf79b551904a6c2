"""Where a text holds special tokens: one pass over its bytes, however many special tokens there are.

In: the bytes of a text. Out: the text's stretches, and the numbers of the special tokens between them.

The rule is that of an alternation of the words in the order of their registration: the leftmost place at which a word
begins; of several words that begin there the one that was registered first; and on behind its end. Two observations
make a trie of it. A word that an earlier one is a prefix of is never found: it is left out. Of the words that remain
and begin at one place, each is a prefix of the next, and the longest was registered first: so the longest is found.

The trie's edges lie in one hash table, (node, byte) -> node. Most places of a text begin no word, and what they cost
decides: where all words begin with the same byte, memchr looks for it (several GB/s); otherwise a table of 256 says
which bytes begin one (about 1 GB/s, where an alternation of the re module without a common prefix does 0.07).
UTF-8 needs no further care: no character's bytes occur inside another's.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr

import numpy as np

cimport cython

from cbpe.encoding.utf8 cimport utf8_of
from cbpe.ids cimport pair_key
from cbpe.pairtable cimport (
    NO_SLOT,
    PairTable,
    pairtable_find,
    pairtable_free,
    pairtable_init,
    pairtable_insert,
)


@cython.final
cdef class SpecialFinder:
    """Finds words in texts.

    Args:
        words: a dict from a word's bytes to its id; where two could be found at one place, the earlier one is.

    Read-only after construction, so that threads may share it. Not picklable: make it anew from the words.
    """
    cdef PairTable edges
    cdef uint32_t[::1] ends     # by node: 1 + the number of the word that ends there, or 0
    cdef list words             # those that can be found
    cdef list ids
    cdef readonly size_t longest            # bytes of the longest word
    cdef uint8_t[256] begins    # by byte: whether a word begins with it
    cdef int only               # the byte with which all words begin, or -1

    def __cinit__(self, dict words not None):
        cdef uint32_t node, child, n_nodes = 1
        cdef uint8_t byte
        cdef bytes word
        ends = [0]
        self.words, self.ids = [], []
        pairtable_init(&self.edges, len(words))     # it grows: words may share most of their bytes
        for word, number in words.items():
            if not word:
                raise ValueError("an empty word would be found everywhere")
            node = 0
            for byte in word:
                child = pairtable_find(&self.edges, pair_key(node, byte))
                if child == <uint32_t> NO_SLOT:
                    child = n_nodes
                    n_nodes += 1
                    pairtable_insert(&self.edges, pair_key(node, byte), child)
                    ends.append(0)
                node = child
                if ends[node]:
                    break                       # an earlier word is a prefix of this one
            else:
                self.words.append(word)
                self.ids.append(number)
                ends[node] = len(self.words)
                self.begins[<uint8_t> word[0]] = 1
        self.longest = max(map(len, self.words), default=0)
        firsts = {word[0] for word in self.words}
        self.only = firsts.pop() if len(firsts) == 1 else -1
        self.ends = memoryview(bytearray(4 * len(ends))).cast("I")
        for node in range(n_nodes):
            self.ends[node] = ends[node]

    def __dealloc__(self):
        pairtable_free(&self.edges)

    def __reduce__(self):
        raise TypeError("a SpecialFinder cannot be pickled: make it anew from its words")

    cdef uint32_t _at(self, const uint8_t *text, size_t n, size_t start) noexcept nogil:
        """1 + the number of the word at start, or 0: the deepest node on the way at which a word ends."""
        cdef uint32_t node = 0, found = 0
        while start < n:
            node = pairtable_find(&self.edges, pair_key(node, text[start]))
            if node == <uint32_t> NO_SLOT:
                break
            if self.ends[node]:
                found = self.ends[node]
            start += 1
        return found

    cdef uint32_t _next(self, const uint8_t *text, size_t n, size_t *start) noexcept nogil:
        """Moves start to the next place of a word; returns 1 + its number, or 0 if there is none any more."""
        cdef const uint8_t *place
        cdef size_t p = start[0]
        cdef uint32_t found
        while p < n:
            if self.only >= 0:
                place = <const uint8_t *> memchr(text + p, self.only, n - p)
                if place == NULL:
                    break
                p = place - text
            else:
                while p < n and not self.begins[text[p]]:
                    p += 1
            found = self._at(text, n, p)
            if found:
                start[0] = p
                return found
            p += 1
        return 0

    def is_in_any(self, list texts not None):
        """Whether any of the texts, each a str or bytes, holds a word."""
        cdef const uint8_t *pointer
        cdef Py_ssize_t n
        cdef size_t start
        for text in texts:
            pointer = utf8_of(text, &n)
            start = 0
            if self._next(pointer, n, &start):
                return True
        return False

    def first(self, text):
        """The first word that a text, a str or bytes, holds, or None."""
        cdef Py_ssize_t n
        cdef const uint8_t *pointer = utf8_of(text, &n)
        cdef size_t start = 0
        cdef uint32_t found
        with nogil:
            found = self._next(pointer, n, &start)
        return self.words[found - 1] if found else None

    def cut(self, text):
        """The text cut at the words, which come as their ids: {b"<e>": 300}, "a<e>b" -> [b"a", 300, b"b"].

        No stretch is empty, but a text without a word is one stretch, even if it is empty: the text as it was given.
        """
        cdef Py_ssize_t n
        cdef const uint8_t *pointer = utf8_of(text, &n)
        cdef size_t start = 0, end = 0
        cdef uint32_t found
        cdef list parts = []
        while True:
            with nogil:
                found = self._next(pointer, n, &start)
            if not found:
                break
            if start > end:
                parts.append(pointer[end:start])
            parts.append(self.ids[found - 1])
            end = start = start + PyBytes_GET_SIZE(self.words[found - 1])
        if end == 0:
            return [text]
        if end < <size_t> n:
            parts.append(pointer[end:n])
        return parts

    def has_byte(self, uint8_t byte):
        """Whether a word holds the byte."""
        return any(byte in word for word in self.words)

    def length_at(self, const uint8_t[::1] text not None, size_t start):
        """The length of the word that begins at start, 0 if none does."""
        cdef uint32_t found = self._at(&text[0], text.shape[0], start) if start < <size_t> text.shape[0] else 0
        return len(self.words[found - 1]) if found else 0

    def stretches(self, const uint8_t[::1] text not None, const uint64_t[::1] begins not None,
                  const uint64_t[::1] ends not None, const uint64_t[::1] places not None):
        """What lies between words in many texts, text[begins[i]:ends[i]], of which the first byte stands at places[i].

        Returns begins, ends and places of the stretches, uint64[n] each: {b"<e>": 300}, b"a<e>b", [0], [5], [70] ->
        [0, 4], [1, 5], [70, 74]. No stretch is empty.
        """
        cdef uint64_t *found = NULL         # three for each stretch
        cdef uint64_t n = 0, room = 0, begin
        cdef size_t start
        cdef uint32_t number
        cdef uint32_t[::1] lengths = np.array([0, *map(len, self.words)], np.uint32)
        cdef uint64_t i
        try:
            with nogil:
                for i in range(<uint64_t> begins.shape[0]):
                    begin = start = begins[i]
                    number = 1
                    while number:
                        number = self._next(&text[0], ends[i], &start)
                        if not number:
                            start = ends[i]
                        if start > begin:
                            if n + 3 > room:
                                room = max(2 * room, 3 * <uint64_t> begins.shape[0] + 3)
                                found = _larger(found, room)
                            found[n] = begin
                            found[n + 1] = start
                            found[n + 2] = places[i] + (begin - begins[i])
                            n += 3
                        begin = start = start + lengths[number]
            if n == 0:
                return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint64)
            rows = np.array(<uint64_t[:n // 3, :3]> found)
        finally:
            free(found)
        return tuple(np.ascontiguousarray(rows.T))


cdef uint64_t *_larger(uint64_t *memory, uint64_t n) except NULL nogil:
    cdef uint64_t *larger = <uint64_t *> realloc(memory, n * sizeof(uint64_t))
    if larger == NULL:
        with gil:
            raise MemoryError(f"no memory for {n // 3:,} stretches of text")
    return larger

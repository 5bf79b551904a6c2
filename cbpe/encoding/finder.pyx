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

A text that nearly holds a word everywhere, as "aaaa" does "aaa...b", has every walk go far in vain. Where that happens,
the text is read from behind, a block at a time, by the automaton of Aho and Corasick that is made of the words spelled
backwards. Its state is the longest stretch from here on that ends a word, and so it knows the longest word that begins
here, at a step for each byte. Words that are short need none: their walks are.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
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

cdef enum:
    LONG = 64                   # bytes of a word from which on walks may be long
    PATIENCE = 8                # steps for each byte of text, beyond which it is read from behind,
    LEAST_STEPS = 1024          # but not before so many
    LEAST_BLOCK = 4096          # bytes that are read from behind at once; as many as in the longest word if more


cdef struct Trie:
    PairTable edges
    uint32_t *ends              # by node: 1 + the number of the word that ends there, or 0
    uint32_t *shorter           # by node: that of the longest proper end of its letters; NULL if it is not known
    uint32_t n                  # nodes; the first is the root
    uint32_t room


cdef struct Search:
    const uint8_t *text
    size_t n
    size_t place                # what is before is done with
    size_t since                # where counting steps began
    size_t steps
    uint32_t *block             # by place from block_begin on: 1 + the number of the word that begins there, or 0
    size_t block_begin
    size_t block_end            # 0 before the first block


cdef int trie_init(Trie *trie, size_t expected) except -1:
    pairtable_init(&trie.edges, expected)       # it grows: words may share most of their bytes
    trie.n = 1
    trie.room = 64
    trie.ends = <uint32_t *> calloc(trie.room, sizeof(uint32_t))
    if trie.ends == NULL:
        raise MemoryError("no memory for special tokens")
    return 0


cdef void trie_free(Trie *trie) noexcept nogil:
    pairtable_free(&trie.edges)
    free(trie.ends)
    free(trie.shorter)


cdef uint32_t trie_child(Trie *trie, uint32_t node, uint8_t byte) except 0:
    """The node that a byte leads to, which may be a new one."""
    cdef uint32_t child = pairtable_find(&trie.edges, pair_key(node, byte))
    cdef uint32_t *ends
    if child != <uint32_t> NO_SLOT:
        return child
    child = trie.n
    if child == trie.room:
        if trie.room >= 1 << 31:
            raise MemoryError("special tokens of more than 2 GB")
        ends = <uint32_t *> realloc(trie.ends, 2 * trie.room * sizeof(uint32_t))
        if ends == NULL:
            raise MemoryError("no memory for special tokens")
        trie.ends = ends
        trie.room *= 2
    trie.ends[child] = 0
    pairtable_insert(&trie.edges, pair_key(node, byte), child)
    trie.n += 1
    return child


cdef inline uint32_t trie_step(const Trie *trie, uint32_t node, uint8_t byte) noexcept nogil:
    """The node of the longest end of a node's letters and one more byte that the trie has."""
    cdef uint32_t child = pairtable_find(&trie.edges, pair_key(node, byte))
    while child == <uint32_t> NO_SLOT:
        if node == 0:
            return 0
        node = trie.shorter[node]
        child = pairtable_find(&trie.edges, pair_key(node, byte))
    return child


cdef int trie_finish(Trie *trie, list words) except -1:
    """Makes an automaton of the trie of words: a node gets its shorter one, and ends what that ends if it ends none.

    A shorter one has fewer letters. So all words are gone along at once, a letter at a time.
    """
    cdef bytes word
    cdef uint32_t node, child
    cdef size_t depth = 0
    cdef Py_ssize_t i
    cdef list going = sorted(words, key=len, reverse=True)
    nodes = np.zeros(len(going), np.uint32)
    cdef uint32_t[::1] at = nodes
    trie.shorter = <uint32_t *> calloc(trie.n, sizeof(uint32_t))
    if trie.shorter == NULL:
        raise MemoryError("no memory for special tokens")
    while going:
        for i in range(len(going)):
            word = going[i]
            node = at[i]
            at[i] = child = pairtable_find(&trie.edges, pair_key(node, <uint8_t> word[depth]))
            if node and not trie.shorter[child]:
                trie.shorter[child] = trie_step(trie, trie.shorter[node], <uint8_t> word[depth])
                if not trie.ends[child]:
                    trie.ends[child] = trie.ends[trie.shorter[child]]
        depth += 1
        while going and <size_t> len(going[len(going) - 1]) == depth:
            going.pop()
    return 0


cdef Search search_in(const uint8_t *text, size_t n) noexcept nogil:
    cdef Search search
    search.text = text
    search.n = n
    search.place = search.since = search.steps = search.block_begin = search.block_end = 0
    search.block = NULL
    return search


@cython.final
cdef class SpecialFinder:
    """Finds words in texts.

    Args:
        words: a dict from a word's bytes to its id; where two could be found at one place, the earlier one is.

    Read-only after construction, so that threads may share it. Not picklable: make it anew from the words.
    """
    cdef Trie trie
    cdef Trie backwards         # of the words spelled backwards, if one of them is long
    cdef readonly list words    # those that can be found
    cdef list ids
    cdef readonly size_t longest            # bytes of the longest word
    cdef uint8_t[256] begins    # by byte: whether a word begins with it
    cdef int only               # the byte with which all words begin, or -1

    def __cinit__(self, dict words not None):
        cdef uint32_t node
        cdef uint8_t byte
        cdef bytes word
        cdef Py_ssize_t number
        self.words, self.ids = [], []
        trie_init(&self.trie, len(words))
        for word, id in words.items():
            if not word:
                raise ValueError("an empty word would be found everywhere")
            node = 0
            for byte in word:
                node = trie_child(&self.trie, node, byte)
                if self.trie.ends[node]:
                    break                       # an earlier word is a prefix of this one
            else:
                self.words.append(word)
                self.ids.append(id)
                self.trie.ends[node] = len(self.words)
                self.begins[<uint8_t> word[0]] = 1
        self.longest = max(map(len, self.words), default=0)
        firsts = {word[0] for word in self.words}
        self.only = firsts.pop() if len(firsts) == 1 else -1
        if self.longest > LONG:
            trie_init(&self.backwards, len(self.words))
            backwards = []
            for number, word in enumerate(self.words, start=1):
                word = word[::-1]
                backwards.append(word)
                node = 0
                for byte in word:
                    node = trie_child(&self.backwards, node, byte)
                self.backwards.ends[node] = number
            trie_finish(&self.backwards, backwards)

    def __dealloc__(self):
        trie_free(&self.trie)
        trie_free(&self.backwards)

    def __reduce__(self):
        raise TypeError("a SpecialFinder cannot be pickled: make it anew from its words")

    cdef inline uint32_t _at(self, const uint8_t *text, size_t n, size_t start, size_t *steps) noexcept nogil:
        """1 + the number of the word at start, or 0: the deepest node on the way at which a word ends.

        steps grows by how many bytes were gone along.
        """
        cdef uint32_t node = 0, found = 0
        cdef size_t place = start
        while place < n:
            node = pairtable_find(&self.trie.edges, pair_key(node, text[place]))
            if node == <uint32_t> NO_SLOT:
                break
            if self.trie.ends[node]:
                found = self.trie.ends[node]
            place += 1
        steps[0] += place - start
        return found

    cdef uint32_t _next(self, Search *search) noexcept nogil:
        """Moves the search to the next place of a word; returns 1 + its number, or 0 if there is none any more."""
        cdef const uint8_t *text = search.text
        cdef const uint8_t *place
        cdef size_t p = search.place, n = search.n, steps = search.steps
        cdef uint32_t found = 0
        while p < n:
            if p < search.block_end:
                found = search.block[p - search.block_begin]
                if found:
                    break
                p += 1
                continue
            if self.only >= 0:
                place = <const uint8_t *> memchr(text + p, self.only, n - p)
                p = n if place == NULL else place - text
            else:
                while p < n and not self.begins[text[p]]:
                    p += 1
            if p == n:
                break
            found = self._at(text, n, p, &steps)
            if steps > LEAST_STEPS and self.longest > LONG and steps > PATIENCE * (p - search.since):
                steps = 0
                search.since = p
                if self._read_block(search, p):
                    search.since = search.block_end
                    continue
            if found:
                break
            p += 1
        search.place = p
        search.steps = steps
        return found

    cdef bint _read_block(self, Search *search, size_t begin) noexcept nogil:
        """Finds the words of a block from behind; False if there is no memory for that."""
        cdef size_t size = max(self.longest, <size_t> LEAST_BLOCK)
        cdef size_t end, p
        cdef uint32_t node = 0
        if search.block == NULL:
            search.block = <uint32_t *> malloc(min(size, search.n - begin) * sizeof(uint32_t))
            if search.block == NULL:
                return False
        end = min(search.n, begin + size)
        p = min(search.n, end + self.longest)       # a word that begins in the block may end behind it
        while p > begin:
            p -= 1
            node = trie_step(&self.backwards, node, search.text[p])
            if p < end:
                search.block[p - begin] = self.backwards.ends[node]
        search.block_begin = begin
        search.block_end = end
        return True

    def is_in_any(self, list texts not None):
        """Whether any of the texts, each a str or bytes, holds a word."""
        cdef const uint8_t *pointer
        cdef Py_ssize_t n
        cdef uint32_t found
        cdef Search search
        for text in texts:
            pointer = utf8_of(text, &n)
            search = search_in(pointer, n)
            found = self._next(&search)
            free(search.block)
            if found:
                return True
        return False

    def first(self, text):
        """The first word that a text, a str or bytes, holds, or None."""
        cdef Py_ssize_t n
        cdef const uint8_t *pointer = utf8_of(text, &n)
        cdef Search search = search_in(pointer, n)
        cdef uint32_t found
        with nogil:
            found = self._next(&search)
            free(search.block)
        return self.words[found - 1] if found else None

    def cut(self, text):
        """The text cut at the words, which come as their ids: {b"<e>": 300}, "a<e>b" -> [b"a", 300, b"b"].

        No stretch is empty, but a text without a word is one stretch, even if it is empty: the text as it was given.
        """
        cdef Py_ssize_t n
        cdef const uint8_t *pointer = utf8_of(text, &n)
        cdef Search search = search_in(pointer, n)
        cdef size_t end = 0
        cdef uint32_t found
        cdef list parts = []
        try:
            while True:
                with nogil:
                    found = self._next(&search)
                if not found:
                    break
                if search.place > end:
                    parts.append(pointer[end:search.place])
                parts.append(self.ids[found - 1])
                end = search.place = search.place + PyBytes_GET_SIZE(self.words[found - 1])
        finally:
            free(search.block)
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
        cdef size_t steps = 0
        cdef uint32_t found = 0
        if start < <size_t> text.shape[0]:
            found = self._at(&text[0], text.shape[0], start, &steps)
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
        cdef Search search = search_in(NULL, 0)
        cdef uint32_t[::1] lengths = np.array([0, *map(len, self.words)], np.uint32)
        cdef uint64_t i
        try:
            with nogil:
                for i in range(<uint64_t> begins.shape[0]):
                    begin = begins[i]
                    search = search_in(&text[0] + begin, ends[i] - begin)
                    number = 1
                    while number:
                        number = self._next(&search)
                        start = begins[i] + search.place
                        if start > begin:
                            if n + 3 > room:
                                room = max(2 * room, 3 * <uint64_t> begins.shape[0] + 3)
                                found = _larger(found, room)
                            found[n] = begin
                            found[n + 1] = start
                            found[n + 2] = places[i] + (begin - begins[i])
                            n += 3
                        search.place += lengths[number]
                        begin = start + lengths[number]
                    free(search.block)
                    search.block = NULL
            if n == 0:
                return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint64)
            rows = np.array(<uint64_t[:n // 3, :3]> found)
        finally:
            free(search.block)
            free(found)
        return tuple(np.ascontiguousarray(rows.T))


cdef uint64_t *_larger(uint64_t *memory, uint64_t n) except NULL nogil:
    cdef uint64_t *larger = <uint64_t *> realloc(memory, n * sizeof(uint64_t))
    if larger == NULL:
        with gil:
            raise MemoryError(f"no memory for {n // 3:,} stretches of text")
    return larger

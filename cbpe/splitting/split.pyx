"""Text in, chunks out: where a split pattern cuts a text.

A chunk is a match of the pattern; what lies between two matches belongs to no chunk and is dropped, as by
regex.findall. For the named patterns of patterns.py there are native splitters, which find the same chunks as regex:
the simple matchers in matchers.h, and for all but o200k's and tekken's the bit masks of masks.h, for each instruction
set in isa.h; the best that the machine has is chosen when this module is imported, or the one that the environment
names in CBPE_ISA. Any other pattern goes through regex itself, and so do the Stages of stages.py, several patterns one
after the other. A Splitter is a pattern, or Stages, with the way to apply it.

    splitter_for(GPT4_SPLIT_PATTERN).split("I've 1234!")  ->  [b"I", b"'ve", b" ", b"123", b"4", b"!"]

A native splitter takes a block as a whole text. Whoever has a longer text asks settled which chunks of a block do not
depend on what follows it, or find_cut where a block may begin so that what precedes it does not matter. The second is
between "\\n" and a character that is not whitespace: no chunk holds both, except under o200k's pattern and tekken's, by
which ".\\n/" is one; so a "/" counts only if a letter or digit of ASCII ends the line before. What matters there is the
border only. GPT-2's pattern splits "\\n\\n" before a letter into "\\n" and "\\n" but leaves it whole at the end of the
text, so a block must reach at least one character beyond the cut where it is to end.

The other functions here say what is UTF-8 and mend what is not, exactly as bytes.decode does.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

import os
import re

import numpy as np
import regex

from cbpe.errors import CorpusTooLargeError
from cbpe.patterns import NAMED_PATTERNS, OTHER_SPELLINGS
from cbpe.splitting.stages import Stages, batched, pieces

cdef extern from "splitting/matchers.h" nogil:
    const char *TABLES_REGEX_VERSION
    const char *TABLES_UNICODE_EDITION
    enum: SPACE, WRONG
    unsigned class_of(uint32_t code_point)
    int read_multi(const uint8_t *text, size_t n, uint32_t *code_point)
    unsigned class_at(const uint8_t *text, size_t n, size_t p, size_t *next)
    size_t last_whitespace(const uint8_t *text, size_t n)

cdef extern from "splitting/isa.h" nogil:
    struct masks:
        uint64_t L, N, O, W, NL, SP, AP, multi, CONT, W2, W3
    ctypedef struct isa:
        const char *name
        split_block_fn gpt2
        split_block_fn gpt4
        split_block_fn cl100k
        split_block_fn qwen2
        split_block_fn nanochat
        bint (*classify)(const uint8_t *blocks, size_t n_blocks, masks *found) noexcept nogil
        uint32_t *(*write_ends)(uint32_t *ends, uint32_t base, uint64_t starts) noexcept nogil
    const isa ISAS[]
    enum: N_ISAS
    bint isa_is_usable(const isa *way)

cdef extern from "splitting/matchers_o200k.h" nogil:
    unsigned case_of(uint32_t code_point)
    int64_t split_o200k(const uint8_t *text, size_t n, uint32_t *ends)
    int64_t split_tekken(const uint8_t *text, size_t n, uint32_t *ends)

REGEX_VERSION = TABLES_REGEX_VERSION.decode()           # of the regex package that the native splitters agree with
UNICODE_EDITION = TABLES_UNICODE_EDITION.decode()       # the edition of Unicode that it follows

_DEFAULT_FLAGS = int(regex.VERSION0 | regex.UNICODE)    # what regex.compile(pattern) gives

cdef size_t _WINDOW = 1 << 18       # bytes that a native splitter is given at a time
_BATCH = 1 << 14                    # matches of another pattern that are held at a time
_NATIVE_KINDS = {**{pattern: kind for kind, pattern in NAMED_PATTERNS.items()}, **OTHER_SPELLINGS}


# --- The ways to split natively ---

def available_isas():
    """The names that CBPE_ISA may have on this machine, the default last: ["simple", "portable", "sse2", "avx2"]."""
    cdef size_t i
    names = []
    for i in range(<size_t> N_ISAS):
        if isa_is_usable(&ISAS[i]):
            names.append(ISAS[i].name.decode())
    return names


cdef const isa *_isa_named(str name) except NULL:
    """The instruction set of that name; the last that can be used if the name is empty."""
    cdef const isa *found = NULL
    cdef size_t i
    for i in range(<size_t> N_ISAS):
        if isa_is_usable(&ISAS[i]) and (not name or ISAS[i].name.decode() == name):
            found = &ISAS[i]
    if found == NULL:
        raise ValueError(f"{name!r} is no instruction set of this machine for CBPE_ISA: {', '.join(available_isas())}")
    return found


cdef const isa *_chosen = _isa_named(os.environ.get("CBPE_ISA", ""))


# --- Splitters ---


cdef class Splitter:
    """A split pattern and the way to apply it; immutable. splitter_for makes them; Splitter() leaves texts whole.

    Attributes: pattern, a str, Stages or None; kind, the pattern's name in NAMED_PATTERNS, or the one that it is
    another spelling of, "regex", "stages" or "whole"; cuttable, whether a long text may be cut where a line begins
    without indentation; compiled, the compiled pattern of kind "regex", else None; timeout, how many seconds regex may
    take for a text, or None.
    """

    def __cinit__(self):
        self.kind = "whole"

    def __repr__(self):
        return f"<Splitter {self.kind} {self.pattern!r}>"

    def split(self, text):
        """The chunks of a text as a list of bytes. Of "ab cd" under \\\\w+ : [b"ab", b"cd"].

        text: str or bytes. Bytes that are not UTF-8 raise UnicodeDecodeError, lone surrogates UnicodeEncodeError.
        """
        cdef bytes kept
        cdef size_t start = 0
        if isinstance(text, str):
            text = text.encode()
        elif not isinstance(text, bytes):
            raise TypeError(f"a text is a str or bytes, not {type(text).__name__}")
        kept, ends = self.spans(text)
        chunks = []
        for end in ends.tolist():
            chunks.append(kept[start:end])
            start = end
        return chunks

    def spans(self, bytes text not None):
        """The chunks' bytes end to end, and where each ends in them. Of b"ab cd" under \\\\w+ : (b"abcd", [2, 4]).

        Returns (kept, ends): ends is an array of uint32, or of int64 if kept has 2**32 bytes or more. No chunk is
        empty. Bytes that are not UTF-8 raise UnicodeDecodeError.
        """
        if self.native != NULL:
            return self._native_spans(text)
        kept = []
        all_ends = []
        total = 0
        for part, ends in self.batches(text):
            kept.append(part)
            all_ends.append(ends.astype(np.int64) + total)
            total += len(part)
        return b"".join(kept), _as_ends(np.concatenate(all_ends) if kept else [], total)

    def batches(self, bytes text not None):
        """spans piece by piece, for whoever wants to look around meanwhile.

        Yields (kept, ends), each counted from its own kept[0]. UTF-8 is checked before the first piece is yielded.
        """
        if self.compiled is not None:
            found = (match.group() for match in self.compiled.finditer(text.decode(), **self._how()))
            yield from self._batches_of(found, len(text))
        elif self.steps is not None:
            yield from self._batches_of(pieces(self.steps, text.decode(), self._how()), len(text))
        elif self.native != NULL:
            yield self._native_spans(text)
        else:
            _raise_unless_utf8(text)
            if text:
                yield text, _as_ends([len(text)], len(text))

    def _how(self):
        """What regex is to be told beside the text."""
        return {} if self.timeout is None else {"timeout": self.timeout}

    def _batches_of(self, found, n):
        """batches, of an iterator of chunks, str, in n bytes; they may be of parts of characters (see stages.pieces).

        Empty ones are left out.
        """
        for batch in batched(found, _BATCH, self.pattern, self.timeout, n):
            chunks = _encoded(batch)
            kept = b"".join(chunks)
            yield kept, _as_ends(np.cumsum(np.fromiter(map(len, chunks), np.int64, len(chunks))), len(kept))

    cdef tuple _native_spans(self, bytes text):
        """Splits window by window; each begins where the last settled chunk of the one before it ended."""
        cdef const uint8_t *source = <const uint8_t *> PyBytes_AS_STRING(text)
        cdef size_t n = PyBytes_GET_SIZE(text), start = 0, window = _WINDOW, size
        cdef uint8_t *block = NULL
        cdef uint32_t *ends = NULL
        cdef int64_t count = 0
        parts = []
        try:
            while start < n:
                # a window that has no settled chunk, being one long chunk or whitespace, is doubled
                size = min(n - start, window)
                block = _resized(block, size + PAD)
                ends = <uint32_t *> _resized(<uint8_t *> ends, (size + PAD) * sizeof(uint32_t))
                with nogil:
                    memcpy(block, source + start, size)
                    memset(block + size, 0, PAD)
                    if start + size < n:
                        size -= incomplete_tail(block, size)
                    count = self.native(block, size, ends)
                    if count >= 0 and start + size < n:
                        count = settled(block, size, ends, count)
                if count < 0:
                    _raise_unless_utf8(text)
                if count == 0:
                    window *= 2
                    if window >= <uint64_t> 1 << 32:
                        raise CorpusTooLargeError(f"the chunk at byte {start:,} is longer than the limit, 2**31 bytes")
                    continue
                part = _as_ends(np.frombuffer((<char *> ends)[:count * sizeof(uint32_t)], np.uint32), n)
                part += start
                parts.append(part)
                start += ends[count - 1]
        finally:
            free(block)
            free(ends)
        return text, np.concatenate(parts) if parts else _as_ends([], n)


def splitter_for(pattern, timeout=None):
    """The Splitter of a pattern. A Splitter is its own.

    pattern: a str; a compiled pattern of the regex package or of the standard library's re, whose flags are kept;
    Stages; or None, by which a whole text is one chunk. The native splitters serve exactly the texts in NAMED_PATTERNS
    and OTHER_SPELLINGS, with the flags that regex.compile gives them; and a single stage of them, if it keeps the
    matches, or all, which is the same, as those patterns match every character. A pattern that is no regular
    expression raises regex.error.

    timeout: seconds of the processor that regex may take for a text, or part of one, before it raises TimeoutError;
    native splitters need none. The standard library's re has none: ValueError.
    """
    cdef Splitter splitter = Splitter()
    if isinstance(pattern, Splitter):
        return pattern
    if pattern is None:
        return splitter
    if isinstance(pattern, Stages):
        if len(pattern.stages) == 1:
            alone, keep, of_bytes = pattern.stages[0]
            if not of_bytes and (keep == "matches" or (keep == "all" and alone in _NATIVE_KINDS)):
                return splitter_for(alone, timeout)
        splitter.pattern, splitter.kind, splitter.steps = pattern, "stages", pattern.compiled()
        splitter.timeout = timeout
        return splitter
    compiled = regex.compile(pattern) if isinstance(pattern, str) else pattern
    if not isinstance(compiled, (regex.Pattern, re.Pattern)):
        raise TypeError(f"a pattern is a str, a compiled pattern, Stages or None, not {type(pattern).__name__}")
    if not isinstance(compiled.pattern, str):
        raise TypeError("a pattern that was compiled from bytes cannot split text")
    splitter.pattern = compiled.pattern
    if isinstance(pattern, str) or compiled.flags == _DEFAULT_FLAGS:
        splitter.kind = _NATIVE_KINDS.get(splitter.pattern, "regex")
    else:
        splitter.kind = "regex"
    splitter.native = _native(splitter.kind, _chosen)
    splitter.cuttable = splitter.native != NULL
    if splitter.native == NULL:
        splitter.compiled = compiled
        splitter.timeout = timeout
        if timeout is not None and not isinstance(compiled, regex.Pattern):
            raise ValueError("a pattern that the standard library's re compiled has no timeout: use regex.compile")
    return splitter


cdef split_block_fn _native(str kind, const isa *way) noexcept:
    """What splits by the named pattern; NULL for other kinds."""
    if kind == "gpt2" or kind == "r50k":            # two strings, the same chunks
        return way.gpt2
    if kind == "gpt4" or kind == "llama3":          # likewise
        return way.gpt4
    if kind == "cl100k":
        return way.cl100k
    if kind == "qwen2":
        return way.qwen2
    if kind == "nanochat":
        return way.nanochat
    if kind == "o200k":
        return split_o200k
    if kind == "tekken":
        return split_tekken
    return NULL


cdef list _encoded(list chunks):
    """The chunks that are not empty, as bytes."""
    cdef list encoded = []
    for chunk in chunks:
        if chunk:
            encoded.append((<str> chunk).encode("utf-8", "surrogateescape"))
    return encoded


cdef uint8_t *_resized(uint8_t *memory, size_t size) except NULL:
    """The memory with room for size bytes; on MemoryError it is as it was."""
    cdef uint8_t *larger = <uint8_t *> realloc(memory, size)
    if larger == NULL:
        raise MemoryError(f"no memory for {size:,} bytes of a text that is split")
    return larger


def _as_ends(ends, n):
    """An array of its own, of the type that holds ends in n bytes."""
    return np.array(ends, np.uint32 if n < 1 << 32 else np.int64)


def _raise_unless_utf8(bytes text):
    """Raises what decoding the text raises, without making the str if all is well."""
    cdef const uint8_t *source = <const uint8_t *> PyBytes_AS_STRING(text)
    cdef size_t n = PyBytes_GET_SIZE(text)
    cdef size_t wrong
    with nogil:
        wrong = check_utf8(source, n)
    if wrong < n:
        text.decode()


# --- Where a text may be taken apart ---

cdef size_t settled(const uint8_t *text, size_t n, const uint32_t *ends, size_t n_ends) noexcept nogil:
    """How many of the chunks of text[0:n], which ends with a whole character, stay as they are whatever text follows.

    The last chunk may grow, and trailing whitespace may be shared out anew. What follows may also join the last two
    chunks, or move their border: under GPT-2's pattern "'", "r" become "'re"; under o200k's "it", "'" become "it's",
    and "\\u4e00", "B" become "\\u4e00Bc". It never reaches the third, whose end is where the last but one begins.
    (A few chunks that are settled may be held back.)
    "a b  " -> chunks "a", " b", "  ": one is settled. "it'r" -> chunks "it", "'", "r": one is.
    """
    cdef size_t whitespace
    if n_ends < 3:
        return 0
    whitespace = last_whitespace(text, n)
    n_ends -= 2
    while n_ends > 0 and ends[n_ends - 1] > whitespace:
        n_ends -= 1
    return n_ends


cdef int64_t find_cut(const uint8_t *text, size_t n, size_t start) noexcept nogil:
    """The first offset from max(start, 1) on that stands behind "\\n" and before what is not whitespace; or -1.

    "a\\nb\\n c" -> 2 from 0 on, -1 from 3 on. A wrong byte is no whitespace; but at the end of text[0:n], where more
    bytes might make a character of what stands there, nothing is certain and nothing is found. "/" as in "a\\n/b" only.
    """
    cdef size_t p = start if start > 0 else 1
    cdef const uint8_t *newline
    while p < n:
        newline = <const uint8_t *> memchr(text + p - 1, c"\n", n - p)
        if newline == NULL:
            return -1
        p = newline - text + 1
        if _is_cut(text, n, p):
            return p
        p += 1
    return -1


cdef int64_t find_last_cut(const uint8_t *text, size_t n) noexcept nogil:
    """The last offset that find_cut would find from somewhere on; or -1."""
    cdef size_t p = n
    while p > 1:
        p -= 1
        if text[p - 1] == c"\n" and _is_cut(text, n, p):
            return p
    return -1


cdef inline bint _is_cut(const uint8_t *text, size_t n, size_t p) noexcept nogil:
    """Whether p, behind a newline, is a cut, and certain to be one. p < n."""
    cdef size_t next = 0
    cdef unsigned class_ = class_at(text, n, p, &next)
    if class_ == WRONG:
        return not _is_incomplete(text + p, n - p)
    return class_ != SPACE and (text[p] != c"/" or _ends_in_a_word(text, p - 1))


cdef inline bint _ends_in_a_word(const uint8_t *text, size_t n) noexcept nogil:
    """Whether the last character of a line is a letter or digit of ASCII: of "a" and "a\\r"."""
    if n > 0 and text[n - 1] == c"\r":
        n -= 1
    return n > 0 and (c"a" <= text[n - 1] | 0x20 <= c"z" or c"0" <= text[n - 1] <= c"9")


# --- UTF-8 ---

cdef inline bint _is_incomplete(const uint8_t *text, size_t n) noexcept nogil:
    """Whether text[0:n], n > 0, is a character whose last bytes are missing: E4 B8 is, FF and "a" are not."""
    cdef uint32_t code_point
    if text[0] < 0xC2 or text[0] > 0xF4:
        return False
    return read_multi(text, n, &code_point) == -<int64_t> n


cdef int64_t check_utf8(const uint8_t *text, size_t n) noexcept nogil:
    """n if text[0:n] is UTF-8; otherwise the offset at which bytes.decode says it goes wrong: b"ab\\xe4c" -> 2."""
    cdef size_t p = 0
    cdef uint64_t eight
    cdef uint32_t code_point
    cdef int length
    while p < n:
        if text[p] < 0x80:
            p += 1
            while n - p >= 8:
                memcpy(&eight, text + p, 8)
                if eight & <uint64_t> 0x8080808080808080:
                    break
                p += 8
        else:
            length = read_multi(text + p, n - p, &code_point)
            if length < 0:
                return p
            p += length
    return n


cdef size_t replace_utf8(const uint8_t *text, size_t n, uint8_t *out, uint32_t *origin) noexcept nogil:
    """Writes to out what text.decode("utf-8", "replace").encode() gives and returns its length, at most 3 * n.

    origin[i] becomes the offset in text at which the character begins, or the wrong piece, that byte i of out belongs
    to: b"a\\xffb" -> b"a\\xef\\xbf\\xbdb", origin 0 1 1 1 2.
    """
    cdef size_t p = 0, size = 0
    cdef uint32_t code_point
    cdef int length, i
    while p < n:
        length = 1 if text[p] < 0x80 else read_multi(text + p, n - p, &code_point)
        if length < 0:
            length = -length
            out[size] = 0xEF
            out[size + 1] = 0xBF
            out[size + 2] = 0xBD
            for i in range(3):
                origin[size + i] = <uint32_t> p
            size += 3
        else:
            for i in range(length):
                out[size + i] = text[p + i]
                origin[size + i] = <uint32_t> p
            size += length
        p += length
    return size


cdef size_t incomplete_tail(const uint8_t *text, size_t n) noexcept nogil:
    """How many bytes at the end, 0 to 3, begin a character that more bytes could complete: b"a\\xe4\\xb8" -> 2."""
    cdef size_t tail
    for tail in range(1, (n if n < 3 else 3) + 1):
        if text[n - tail] & 0xC0 != 0x80:
            return tail if _is_incomplete(text + n - tail, tail) else 0
    return 0


# --- The same for Python: next_cut and last_cut for whoever reads corpora, the others for tests ---

def _splitter_for_isa(pattern, str isa_name not None):
    """splitter_for by a certain instruction set; ValueError if this machine lacks it, or the pattern is not native."""
    cdef const isa *way = _isa_named(isa_name)
    cdef Splitter splitter = splitter_for(pattern)
    if splitter.native == NULL:
        raise ValueError("only native splitters differ by instruction set")
    splitter.native = _native(splitter.kind, way)
    return splitter


def _masks(bytes text, str isa_name not None):
    """The masks of a text, filled up with spaces to whole blocks: each a long int, by name. None if it is not UTF-8."""
    cdef const isa *way = _isa_named(isa_name)
    cdef size_t n_blocks = len(text) // 64 + 1, k
    cdef bytes padded = text.ljust(64 * n_blocks + PAD)
    cdef masks *found = <masks *> malloc(n_blocks * sizeof(masks))
    cdef masks *block
    result = dict.fromkeys(["L", "N", "O", "W", "NL", "SP", "AP", "multi", "CONT", "W2", "W3"], 0)
    try:
        if found == NULL:
            raise MemoryError
        if way.classify == NULL:
            raise ValueError(f"{isa_name} makes no masks")
        if not way.classify(<const uint8_t *> PyBytes_AS_STRING(padded), n_blocks, found):
            return None
        for k in range(n_blocks):
            block = found + k
            words = [block.L, block.N, block.O, block.W, block.NL, block.SP, block.AP, block.multi, block.CONT,
                     block.W2, block.W3]
            for name, word in zip(result, words, strict=True):
                result[name] |= int(word) << 64 * k
        return result
    finally:
        free(found)


def _write_ends(uint32_t base, uint64_t starts, str isa_name not None):
    """What becomes of a block's starts: of base 64 and starts 0b101, [64, 66]."""
    cdef const isa *way = _isa_named(isa_name)
    cdef uint32_t ends[64 + PAD]
    cdef uint32_t *behind
    if way.write_ends == NULL:
        raise ValueError(f"{isa_name} makes no masks")
    behind = way.write_ends(ends, base, starts)
    written = []
    while ends + len(written) != behind:        # (checks for overflow take a difference of pointers for one of bytes)
        written.append(ends[len(written)])
    return written


def _character_classes():
    """The class of each of the 0x110000 code points in the tables: 0 other, 1 letter, 2 number, 3 whitespace."""
    cdef uint32_t code_point
    cdef bytearray classes = bytearray(0x110000)
    for code_point in range(0x110000):
        classes[code_point] = class_of(code_point)
    return bytes(classes)


def _character_cases():
    """The case of each of the 0x110000 code points in the tables: 0 other, 1 upper, 2 lower, 3 either."""
    cdef uint32_t code_point
    cdef bytearray cases = bytearray(0x110000)
    for code_point in range(0x110000):
        cases[code_point] = case_of(code_point)
    return bytes(cases)


cdef list _as_list(const uint32_t *numbers, size_t n):
    return np.frombuffer((<const char *> numbers)[:n * sizeof(uint32_t)], np.uint32).tolist()


def _split_block(Splitter splitter, bytes text, int filler=0):
    """What a native splitter gives for a text with PAD bytes of the value filler behind it: ends, or -1 - offset."""
    cdef size_t n = len(text)
    cdef bytes padded = text + bytes([filler]) * PAD
    cdef uint32_t *ends = <uint32_t *> malloc((n + PAD) * sizeof(uint32_t))
    cdef int64_t count
    if ends == NULL:
        raise MemoryError
    try:
        count = splitter.native(<const uint8_t *> PyBytes_AS_STRING(padded), n, ends)
        return count if count < 0 else _as_list(ends, count)
    finally:
        free(ends)


def _settled(Splitter splitter, bytes text):
    """How many chunks of a text are settled under the splitter, which is native."""
    ends = _split_block(splitter, text)
    cdef bytes raw = np.array(ends, np.uint32).tobytes()
    cdef const uint32_t *words = <const uint32_t *> PyBytes_AS_STRING(raw)
    return settled(<const uint8_t *> PyBytes_AS_STRING(text), len(text), words, len(ends))


def next_cut(const uint8_t[::1] text not None, size_t start=0):
    """find_cut in a buffer of bytes."""
    return find_cut(&text[0], text.shape[0], start) if text.shape[0] > 0 else -1


def last_cut(const uint8_t[::1] text not None):
    """find_last_cut in a buffer of bytes."""
    return find_last_cut(&text[0], text.shape[0]) if text.shape[0] > 0 else -1


def _check_utf8(bytes text):
    return check_utf8(<const uint8_t *> PyBytes_AS_STRING(text), len(text))


def _replace_utf8(bytes text):
    """The mended bytes and the list of their origins."""
    cdef size_t n = len(text), size
    cdef bytearray out = bytearray(3 * n)
    cdef uint32_t *origin = <uint32_t *> malloc((3 * n + 1) * sizeof(uint32_t))
    if origin == NULL:
        raise MemoryError
    try:
        size = replace_utf8(<const uint8_t *> PyBytes_AS_STRING(text), n, <uint8_t *> <char *> out, origin)
        return bytes(out[:size]), _as_list(origin, size)
    finally:
        free(origin)


def _incomplete_tail(bytes text):
    return incomplete_tail(<const uint8_t *> PyBytes_AS_STRING(text), len(text))

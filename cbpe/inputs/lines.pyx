"""Texts out of lines of JSON: one pass over the bytes of a block, without the GIL and without an object for anything.

In: whole lines, each a JSON object, and the name of a member. Out: that member's strings end to end in UTF-8, and the
lines that are not so plain. A line is plain if it is JSON by the grammar, UTF-8, not nested deeply, an object with
exactly such a member, a string without lone surrogates, and none of its members' names is written with escapes. All
others are left to the json module, which knows what is wrong with them, if anything is.

    {"id": 1, "text": "a\\u00e9\\n"}    ->  61 C3 A9 0A

Most of a line is the inside of strings. There eight bytes are looked at together, and copied as they are up to the next
backslash; what comes out is never longer than what went in.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

import numpy as np

cimport cython

from cbpe.splitting.split cimport PAD, check_utf8

cdef extern from "platform.h" nogil:
    uint64_t cbpe_load64(const uint8_t *bytes)

cdef enum:
    MAX_DEPTH = 200             # of arrays and objects within each other

cdef uint64_t ONES = <uint64_t> 0x0101010101010101
cdef uint64_t TOPS = <uint64_t> 0x8080808080808080


cdef struct Cursor:
    const uint8_t *at
    const uint8_t *end          # of the line


# ---- what moves a cursor: behind something, if that is there; 0 if it is not

cdef inline void skip_space(Cursor *c) noexcept nogil:
    while c.at < c.end and (c.at[0] == c" " or c.at[0] == c"\t" or c.at[0] == c"\r" or c.at[0] == c"\n"):
        c.at += 1


cdef inline bint skip_byte(Cursor *c, uint8_t byte) noexcept nogil:
    """Behind a byte and the whitespace around it."""
    skip_space(c)
    if c.at == c.end or c.at[0] != byte:
        return False
    c.at += 1
    skip_space(c)
    return True


@cython.overflowcheck(False)        # a byte that is zero borrows from the next
cdef inline void skip_plain(Cursor *c) noexcept nogil:
    """To the next quote, backslash or control character in a string."""
    cdef uint64_t word, quotes, slashes
    while c.end - c.at >= 8:
        word = cbpe_load64(c.at)
        quotes = word ^ (ONES * <uint64_t> 0x22)
        slashes = word ^ (ONES * <uint64_t> 0x5C)
        # a byte's top bit is set if it is zero; above the first such byte there may be false ones
        if ((quotes - ONES) & ~quotes | (slashes - ONES) & ~slashes | (word - ONES * <uint64_t> 0x20) & ~word) & TOPS:
            break
        c.at += 8
    while c.at < c.end and c.at[0] != 0x22 and c.at[0] != 0x5C and c.at[0] >= 0x20:
        c.at += 1


cdef inline int hex_value(uint8_t byte) noexcept nogil:
    if c"0" <= byte <= c"9":
        return byte - c"0"
    if c"a" <= (byte | 0x20) <= c"f":
        return (byte | 0x20) - c"a" + 10
    return -1


cdef bint skip_hex4(Cursor *c, uint32_t *value) noexcept nogil:
    """Behind four hexadecimal digits: "00e9" -> 0xE9."""
    cdef int i, digit
    if c.end - c.at < 4:
        return False
    value[0] = 0
    for i in range(4):
        digit = hex_value(c.at[i])
        if digit < 0:
            return False
        value[0] = value[0] << 4 | <uint32_t> digit
    c.at += 4
    return True


cdef bint skip_string(Cursor *c) noexcept nogil:
    """Behind a string whose quote the cursor stands at."""
    cdef uint32_t value
    cdef uint8_t escape
    c.at += 1
    while True:
        skip_plain(c)
        if c.at == c.end or c.at[0] < 0x20:
            return False
        if c.at[0] == c'"':
            c.at += 1
            return True
        if c.end - c.at < 2:
            return False
        escape = c.at[1]
        c.at += 2
        if escape == c"u":
            if not skip_hex4(c, &value):
                return False
        elif memchr(b'"\\/bfnrt', escape, 8) == NULL:
            return False


cdef bint skip_digits(Cursor *c) noexcept nogil:
    cdef const uint8_t *start = c.at
    while c.at < c.end and c"0" <= c.at[0] <= c"9":
        c.at += 1
    return c.at > start


cdef bint skip_number(Cursor *c) noexcept nogil:
    """Behind a number: -0.5e+3, and not 01, .5 or 1."""
    if c.at[0] == c"-":
        c.at += 1
    if c.at < c.end and c.at[0] == c"0":
        c.at += 1
    elif not skip_digits(c):
        return False
    if c.at < c.end and c.at[0] == c".":
        c.at += 1
        if not skip_digits(c):
            return False
    if c.at < c.end and (c.at[0] | 0x20) == c"e":
        c.at += 1
        if c.at < c.end and (c.at[0] == c"+" or c.at[0] == c"-"):
            c.at += 1
        return skip_digits(c)
    return True


cdef inline bint skip_word(Cursor *c, const char *word, size_t n) noexcept nogil:
    if <size_t> (c.end - c.at) < n or memcmp(c.at, word, n) != 0:
        return False
    c.at += n
    return True


cdef bint skip_value(Cursor *c, int depth) noexcept nogil:
    """Behind any value."""
    cdef uint8_t first, closing
    if c.at == c.end or depth > MAX_DEPTH:
        return False
    first = c.at[0]
    if first == c'"':
        return skip_string(c)
    if first == c"t":
        return skip_word(c, b"true", 4)
    if first == c"f":
        return skip_word(c, b"false", 5)
    if first == c"n":
        return skip_word(c, b"null", 4)
    if first != c"{" and first != c"[":
        return skip_number(c)
    closing = first + 2
    skip_byte(c, first)
    if skip_byte(c, closing):
        return True
    while True:
        if first == c"{" and not (c.at < c.end and c.at[0] == c'"' and skip_string(c) and skip_byte(c, c":")):
            return False
        if not skip_value(c, depth + 1):
            return False
        if not skip_byte(c, c","):
            return skip_byte(c, closing)


# ---- strings and lines

cdef inline uint8_t *put_utf8(uint32_t code_point, uint8_t *out) noexcept nogil:
    if code_point < 0x80:
        out[0] = code_point
        return out + 1
    if code_point < 0x800:
        out[0] = 0xC0 | code_point >> 6
        out[1] = 0x80 | code_point & 0x3F
        return out + 2
    if code_point < 0x10000:
        out[0] = 0xE0 | code_point >> 12
        out[1] = 0x80 | code_point >> 6 & 0x3F
        out[2] = 0x80 | code_point & 0x3F
        return out + 3
    out[0] = 0xF0 | code_point >> 18
    out[1] = 0x80 | code_point >> 12 & 0x3F
    out[2] = 0x80 | code_point >> 6 & 0x3F
    out[3] = 0x80 | code_point & 0x3F
    return out + 4


cdef uint8_t *copy_string(Cursor *c, uint8_t *out) noexcept nogil:
    """Writes to out what a string stands for, and moves behind it; returns the end in out, or NULL."""
    cdef const uint8_t *start
    cdef uint32_t high, low
    cdef uint8_t escape
    c.at += 1
    while True:
        start = c.at
        skip_plain(c)
        memcpy(out, start, c.at - start)
        out += c.at - start
        if c.at == c.end or c.at[0] < 0x20:
            return NULL
        if c.at[0] == c'"':
            c.at += 1
            return out
        if c.end - c.at < 2:
            return NULL
        escape = c.at[1]
        c.at += 2
        if escape == c"n":
            out[0] = c"\n"
        elif escape == c'"' or escape == c"\\" or escape == c"/":
            out[0] = escape
        elif escape == c"t":
            out[0] = c"\t"
        elif escape == c"r":
            out[0] = c"\r"
        elif escape == c"b":
            out[0] = c"\b"
        elif escape == c"f":
            out[0] = c"\f"
        elif escape == c"u" and skip_hex4(c, &high):
            if 0xD800 <= high < 0xE000:
                if not (high < 0xDC00 and skip_word(c, b"\\u", 2) and skip_hex4(c, &low) and 0xDC00 <= low < 0xE000):
                    return NULL
                high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            out = put_utf8(high, out) - 1
        else:
            return NULL
        out += 1


cdef uint8_t *copy_member(Cursor *c, const uint8_t *name, size_t n, uint8_t *out) noexcept nogil:
    """Writes to out the member of that name of the object that a line holds; NULL if the line is not plain.

    Of several members of that name the last counts.
    """
    cdef const uint8_t *start
    cdef uint8_t *end = NULL
    if not skip_byte(c, c"{"):
        return NULL
    while True:
        if c.at == c.end or c.at[0] != c'"':
            return NULL
        start = c.at + 1
        if not skip_string(c):
            return NULL
        if memchr(start, c"\\", c.at - start) != NULL:
            return NULL
        if <size_t> (c.at - 1 - start) == n and memcmp(start, name, n) == 0:
            if not skip_byte(c, c":") or c.at == c.end or c.at[0] != c'"':
                return NULL
            end = copy_string(c, out)
            if end == NULL:
                return NULL
        elif not skip_byte(c, c":") or not skip_value(c, 0):
            return NULL
        if not skip_byte(c, c","):
            break
    return end if skip_byte(c, c"}") and c.at == c.end else NULL


def texts_of_lines(const uint8_t[::1] data not None, bytes name not None):
    """The texts of the plain lines in data end to end, and what is known of the other lines that hold anything.

    Returns the texts' bytes and PAD more, uint8[...]; begins, ends, and where in data each one's line begins, uint64[n]
    each; and of each other line its index among all, its begin and its end, uint64[m, 3].
    """
    cdef size_t size = data.shape[0], n = len(name), start = 0, stop
    cdef const uint8_t *name_bytes = name
    cdef const uint8_t *newline
    cdef uint64_t n_lines = 1, line = 0, n_plain = 0, n_odd = 0
    cdef bint is_utf8
    cdef uint8_t[::1] text = np.empty(size + PAD, np.uint8)
    cdef uint8_t *out = &text[0]
    cdef uint8_t *end
    cdef uint64_t[:, ::1] plain
    cdef uint64_t[:, ::1] odd
    cdef Cursor c
    with nogil:
        while start < size:
            newline = <const uint8_t *> memchr(&data[start], c"\n", size - start)
            if newline == NULL:
                break
            start = newline - &data[0] + 1
            n_lines += 1
        is_utf8 = size == 0 or check_utf8(&data[0], size) == <int64_t> size
    plain = np.empty((3, n_lines), np.uint64)
    odd = np.empty((n_lines, 3), np.uint64)
    with nogil:
        start = 0
        for line in range(n_lines):
            if start >= size:
                break
            newline = <const uint8_t *> memchr(&data[start], c"\n", size - start)
            stop = size if newline == NULL else newline - &data[0]
            c.at, c.end = &data[start], &data[0] + stop
            skip_space(&c)
            if c.at < c.end:
                end = NULL
                if is_utf8 or check_utf8(c.at, c.end - c.at) == c.end - c.at:
                    end = copy_member(&c, name_bytes, n, out)
                if end != NULL:
                    plain[0, n_plain] = out - &text[0]
                    plain[1, n_plain] = end - &text[0]
                    plain[2, n_plain] = start
                    n_plain += 1
                    out = end
                else:
                    odd[n_odd, 0], odd[n_odd, 1], odd[n_odd, 2] = line, start, stop
                    n_odd += 1
            start = stop + 1
        memset(out, 0, PAD)
    begins, ends, starts = plain.base[:, :n_plain]
    return text.base[:out - &text[0] + PAD], begins, ends, starts, odd.base[:n_odd]

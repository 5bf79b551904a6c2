/* The simple native splitters, of GPT-2's pattern, GPT-4's and their relatives: UTF-8 in, the ends of the chunks out.
   o200k's and tekken's are in matchers_o200k.h.

   Each is one loop that asks what the next character is, LETTER, NUMBER, SPACE or OTHER, and then runs to the
   chunk's end. A regular expression would try its alternatives in order; here the class of the first character says
   which of them can match, and each function names the part of the pattern that it stands for. No function looks at a
   byte more than a fixed number of times, so time is linear in the text, whatever the text.

   The text is checked on the way: a piece that is not UTF-8 is of class WRONG, which no alternative matches, so a
   chunk ends before it, and the loop meets it as the first character of the next one.

   Nothing is read behind text[n - 1]. */

#ifndef CBPE_MATCHERS_H
#define CBPE_MATCHERS_H

#include <stddef.h>
#include <stdint.h>

#include "unicode_tables.h"

#define WRONG 5u        /* beside enum char_class: not UTF-8 */
#define NONE 6u         /* the end of the text */

/* Characters */

/* The length of the character at text[0], 2 to 4, and its code point, or minus the length of the wrong piece there.
   n > 0, text[0] >= 0x80.

   A wrong piece is what one U+FFFD stands for: the longest beginning of a character, or one byte if there is none. So
   E4 B8 41 -> -2, FF -> -1; a surrogate, ED A0 80, begins no character: -1. */
static inline int read_multi(const uint8_t *text, size_t n, uint32_t *code_point)
{
    uint32_t lead = text[0];
    uint32_t lowest = 0x80, highest = 0xBF;         /* of the second byte */
    int length, i;
    if (lead < 0xC2 || lead > 0xF4)
        return -1;
    if (lead < 0xE0) {
        length = 2;
        *code_point = lead & 0x1F;
    } else if (lead < 0xF0) {
        length = 3;
        *code_point = lead & 0x0F;
        if (lead == 0xE0)
            lowest = 0xA0;                          /* below it, two bytes would do */
        else if (lead == 0xED)
            highest = 0x9F;                         /* above it, surrogates */
    } else {
        length = 4;
        *code_point = lead & 0x07;
        if (lead == 0xF0)
            lowest = 0x90;                          /* below it, three bytes would do */
        else if (lead == 0xF4)
            highest = 0x8F;                         /* above it, more than U+10FFFF */
    }
    if (n < 2 || text[1] < lowest || text[1] > highest)
        return -1;
    *code_point = *code_point << 6 | (text[1] & 0x3F);
    for (i = 2; i < length; i++) {
        if ((size_t) i == n || (text[i] & 0xC0) != 0x80)
            return -i;
        *code_point = *code_point << 6 | (text[i] & 0x3F);
    }
    return length;
}

/* The class of the character at p, and where the next one begins; WRONG or NONE if there is no character. */
static inline unsigned class_at(const uint8_t *text, size_t n, size_t p, size_t *next)
{
    uint32_t code_point;
    int length;
    if (p >= n)
        return NONE;
    if (text[p] < 0x80) {
        *next = p + 1;
        return byte_class[text[p]];
    }
    length = read_multi(text + p, n - p, &code_point);
    if (length < 0)
        return WRONG;
    *next = p + (size_t) length;
    return class_of(code_point);
}

/* Where a run of characters of one class ends that may begin at p: \p{L}*, \p{N}* or [^\s\p{L}\p{N}]*. */
static inline size_t run_end(const uint8_t *text, size_t n, size_t p, unsigned class_)
{
    size_t next = p;
    for (;;) {
        while (p < n && byte_class[text[p]] == class_)
            p++;
        if (p == n || text[p] < 0x80 || class_at(text, n, p, &next) != class_)
            return p;
        p = next;
    }
}

/* Parts of several patterns */

/* The pattern's ll, ve or re, letter by letter as they are. */
static inline int is_two_letter_contraction(unsigned first, unsigned second)
{
    return (first == 'l' && second == 'l') || (first == 'v' && second == 'e') || (first == 'r' && second == 'e');
}

/* A run of whitespace, its first character at p, is read to its end and then parted by one of three rules:

   SPACES_ONLY      \s+(?!\S)|\s+                      where the text ends with the run, one chunk; otherwise the last
                                                       character of the run is left to what follows, unless it is the
                                                       only one
   NEWLINE_FIRST    \s*[\r\n]|\s+(?!\S)|\s+            up to its last \r or \n, if it has one; otherwise as above
   TEXT_END_FIRST   \s++$|\s*[\r\n]|\s+(?!\S)|\s      where the text ends with the run, one chunk; otherwise as above

   What stands last in a pattern, \s+ or \s, is asked only about a run of one character, so either is the same. And $
   is asked where no whitespace follows, so whether it also matches before a "\n" that ends the text, which is so in
   regex and not in tiktoken's engine, is the same. */
enum whitespace_rule { SPACES_ONLY, NEWLINE_FIRST, TEXT_END_FIRST };

static inline size_t whitespace_end(const uint8_t *text, size_t n, size_t p, enum whitespace_rule rule)
{
    size_t start = p, last = p, newline_end = 0, next = p;
    unsigned class_;
    while ((class_ = class_at(text, n, p, &next)) == SPACE) {
        last = p;
        if (text[p] == '\n' || text[p] == '\r')
            newline_end = next;
        p = next;
    }
    if (rule == TEXT_END_FIRST && class_ == NONE)
        return p;
    if (rule != SPACES_ONLY && newline_end > start)
        return newline_end;
    return class_ == NONE || last == start ? p : last;
}

/* GPT-2's pattern, and r50k's, which splits the same:
   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
   '(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s  */

/* '(?:[sdmt]|ll|ve|re) : its length if it is at p, where an apostrophe is; or 0. */
static inline size_t gpt2_contraction(const uint8_t *text, size_t n, size_t p)
{
    unsigned first = p + 1 < n ? text[p + 1] : 0;
    if (first == 's' || first == 'd' || first == 'm' || first == 't')
        return 2;
    return p + 2 < n && is_two_letter_contraction(first, text[p + 2]) ? 3 : 0;
}

static int64_t split_gpt2(const uint8_t *text, size_t n, uint32_t *ends)
{
    size_t p = 0, next = 0, length;
    int64_t count = 0;
    unsigned class_;
    while (p < n) {
        class_ = class_at(text, n, p, &next);
        if (class_ == WRONG)
            return -1 - (int64_t) p;
        if (text[p] == '\'' && (length = gpt2_contraction(text, n, p)) > 0) {
            p += length;
        } else if (class_ != SPACE) {                       /* \p{L}+|\p{N}+|[^\s\p{L}\p{N}]+ */
            p = run_end(text, n, next, class_);
        } else {
            size_t behind = next;
            if (text[p] == ' ' && (class_ = class_at(text, n, next, &behind)) < SPACE)
                p = run_end(text, n, behind, class_);       /* the same, with the space before it */
            else
                p = whitespace_end(text, n, p, SPACES_ONLY);
        }
        ends[count++] = (uint32_t) p;
    }
    return count;
}

/* GPT-4's pattern, and cl100k's, which differs in whitespace at the end of the text:
   '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+
   '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s
   Llama 3's is GPT-4's in other words (see patterns.py); Qwen 2's and nanochat's are too, but with fewer numbers in a
   chunk, \p{N} and \p{N}{1,2}. */

/* '(?i:[sdmt]|ll|ve|re) : its length if it is at p, where an apostrophe is; or 0.
   Without regard to case, U+017F, the long s, is an s; the other letters have no such relatives beyond ASCII. */
static inline size_t gpt4_contraction(const uint8_t *text, size_t n, size_t p)
{
    unsigned first = p + 1 < n ? text[p + 1] : 0, second = p + 2 < n ? text[p + 2] : 0;
    unsigned lower = first | 0x20;
    if (lower == 's' || lower == 'd' || lower == 'm' || lower == 't')
        return 2;
    if (first == 0xC5 && second == 0xBF)
        return 3;
    return is_two_letter_contraction(lower, second | 0x20) ? 3 : 0;
}

/* \p{N}{1,most} : its first character ends at p. */
static inline size_t number_end(const uint8_t *text, size_t n, size_t p, unsigned most)
{
    size_t next = p;
    unsigned i;
    for (i = 1; i < most && class_at(text, n, p, &next) == NUMBER; i++)
        p = next;
    return p;
}

/* [^\s\p{L}\p{N}]*+[\r\n]* : what is left of the fourth alternative once its first such character has ended at p. */
static inline size_t gpt4_other_end(const uint8_t *text, size_t n, size_t p)
{
    p = run_end(text, n, p, OTHER);
    while (p < n && (text[p] == '\n' || text[p] == '\r'))
        p++;
    return p;
}

static inline int64_t split_gpt4_by(enum whitespace_rule rule, unsigned most_numbers, const uint8_t *text, size_t n,
                                    uint32_t *ends)
{
    size_t p = 0, next = 0, behind, length;
    int64_t count = 0;
    unsigned class_, second;
    while (p < n) {
        class_ = class_at(text, n, p, &next);
        if (class_ == LETTER) {                             /* \p{L}+ */
            p = run_end(text, n, next, LETTER);
        } else if (class_ == NUMBER) {
            p = number_end(text, n, next, most_numbers);
        } else if (class_ == WRONG) {
            return -1 - (int64_t) p;
        } else if (text[p] == '\'' && (length = gpt4_contraction(text, n, p)) > 0) {
            p += length;
        } else if (text[p] == '\n' || text[p] == '\r') {    /* the only ones that never stand before \p{L}+ */
            p = whitespace_end(text, n, p, rule);
        } else {
            second = class_at(text, n, next, &behind);
            if (second == LETTER)                           /* [^\r\n\p{L}\p{N}]\p{L}+ */
                p = run_end(text, n, behind, LETTER);
            else if (class_ == OTHER)
                p = gpt4_other_end(text, n, next);
            else if (text[p] == ' ' && second == OTHER)
                p = gpt4_other_end(text, n, behind);
            else
                p = whitespace_end(text, n, p, rule);
        }
        ends[count++] = (uint32_t) p;
    }
    return count;
}

static inline int64_t split_gpt4(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_gpt4_by(NEWLINE_FIRST, 3, text, n, ends);
}

static inline int64_t split_cl100k(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_gpt4_by(TEXT_END_FIRST, 3, text, n, ends);
}

static inline int64_t split_qwen2(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_gpt4_by(NEWLINE_FIRST, 1, text, n, ends);
}

static inline int64_t split_nanochat(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_gpt4_by(NEWLINE_FIRST, 2, text, n, ends);
}

/* Where the whitespace at the end of a text begins; n if there is none. text[0:n] is UTF-8. "a\n " -> 1. */
static inline size_t last_whitespace(const uint8_t *text, size_t n)
{
    size_t start = n, p, next = 0;
    while (start > 0) {
        p = start - 1;
        while (p > 0 && (text[p] & 0xC0) == 0x80)
            p--;
        if (class_at(text, n, p, &next) != SPACE)
            break;
        start = p;
    }
    return start;
}

/* cl100k's chunks from GPT-4's: all whitespace at the end of the text is one chunk, from the first chunk on that begins
   in it, as \s++$ comes before the other ways with whitespace. "a\n ": "a", "\n", " " -> "a", "\n ". A negative count,
   which tells of wrong bytes, stays as it is. */
static inline int64_t join_last_whitespace(const uint8_t *text, size_t n, uint32_t *ends, int64_t count)
{
    size_t whitespace;
    int64_t first = count;                                  /* of the chunks that begin in it; count if none does */
    if (count <= 0)
        return count;
    whitespace = last_whitespace(text, n);
    while (first > 1 && ends[first - 2] >= whitespace)
        first--;
    if (whitespace == 0)
        first = 0;
    if (first == count)
        return count;
    ends[first] = (uint32_t) n;
    return first + 1;
}

#endif

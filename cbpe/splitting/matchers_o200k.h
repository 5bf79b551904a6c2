/* The simple native splitters of o200k's pattern and tekken's: UTF-8 in, the ends of the chunks out; built of the parts
   of matchers.h.

   [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
   |[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
   |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+

   It differs from GPT-4's in words. Letters and marks have a case, UPPER, LOWER or EITHER, which is any that is needed
   (enum char_case), and a word is at most one stretch of upper case and one of lower case. Its contraction belongs to
   it. And "/" may follow punctuation as line ends do. tekken's has no contractions, and \p{N} in place of \p{N}{1,3};
   all else is the same.

   Time is linear in the text: a word may be read to the end of its upper case and yet end before it, but then what is
   read again is all UPPER and one chunk. */

#ifndef CBPE_MATCHERS_O200K_H
#define CBPE_MATCHERS_O200K_H

#include "matchers.h"

/* The case of the character at p, and where the next one begins; OTHER if there is no letter, mark or character. */
static inline unsigned case_at(const uint8_t *text, size_t n, size_t p, size_t *next)
{
    uint32_t code_point;
    int length;
    if (p >= n)
        return OTHER;
    if (text[p] < 0x80) {
        *next = p + 1;
        return byte_case[text[p]];
    }
    length = read_multi(text + p, n - p, &code_point);
    if (length < 0)
        return OTHER;
    *next = p + (size_t) length;
    return case_of(code_point);
}

/* Where a word ends whose first letter or mark is at p: the first two alternatives, what may stand before it aside.
   In the words of the cases:  [EU]*[EL]+  or, where that fails,  [EU]+[EL]* .

   [EU]* takes all it can. If an L follows, [EL]+ goes on from there: ABcd. If not, [EU]* gives back as much as is needed
   for [EL]+ to find an E, so the word ends behind the last E: in AeB, e an E, behind e. If there is no E either, it is
   the second alternative: ABC. */
static inline size_t o200k_word_end(const uint8_t *text, size_t n, size_t p, int contracts)
{
    size_t either_end = 0, next = p;
    unsigned case_;
    while ((case_ = case_at(text, n, p, &next)) == UPPER || case_ == EITHER) {
        p = next;
        if (case_ == EITHER)
            either_end = p;
    }
    if (case_ == LOWER) {
        while (case_ == LOWER || case_ == EITHER) {
            p = next;
            case_ = case_at(text, n, p, &next);
        }
    } else if (either_end > 0) {
        p = either_end;
    }
    return contracts && p < n && text[p] == '\'' ? p + gpt4_contraction(text, n, p) : p;
}

/* [^\s\p{L}\p{N}]*[\r\n/]* : what is left of the fourth alternative once its first such character has ended at p. */
static inline size_t o200k_other_end(const uint8_t *text, size_t n, size_t p)
{
    p = run_end(text, n, p, OTHER);
    while (p < n && (text[p] == '\n' || text[p] == '\r' || text[p] == '/'))
        p++;
    return p;
}

/* A mark that begins a chunk may be [^\r\n\p{L}\p{N}] or the first of its word: the word's end is the same. */
static inline int64_t split_o200k_by(int contracts, unsigned most_numbers, const uint8_t *text, size_t n,
                                     uint32_t *ends)
{
    size_t p = 0, next = 0, behind = 0;
    int64_t count = 0;
    unsigned class_;
    while (p < n) {
        if (case_at(text, n, p, &next) != OTHER) {
            p = o200k_word_end(text, n, p, contracts);
        } else if ((class_ = class_at(text, n, p, &next)) == WRONG) {
            return -1 - (int64_t) p;
        } else if (class_ == NUMBER) {
            p = number_end(text, n, next, most_numbers);
        } else if (text[p] == '\n' || text[p] == '\r') {            /* the only ones that never stand before a word */
            p = whitespace_end(text, n, p, NEWLINE_FIRST);
        } else if (case_at(text, n, next, &behind) != OTHER) {
            p = o200k_word_end(text, n, next, contracts);
        } else if (class_ == OTHER) {
            p = o200k_other_end(text, n, next);
        } else if (text[p] == ' ' && class_at(text, n, next, &behind) == OTHER) {
            p = o200k_other_end(text, n, behind);
        } else {
            p = whitespace_end(text, n, p, NEWLINE_FIRST);
        }
        ends[count++] = (uint32_t) p;
    }
    return count;
}

static inline int64_t split_o200k(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_o200k_by(1, 3, text, n, ends);
}

static inline int64_t split_tekken(const uint8_t *text, size_t n, uint32_t *ends)
{
    return split_o200k_by(0, 1, text, n, ends);
}

#endif

/* Splitting without a matcher, part one: a block of 64 bytes as bit masks, and the algebra that finds chunks' starts.

   A mask has one bit for each byte of a block, the first byte lowest. Every byte of a character carries its class. For
   the text "I've 12" the masks begin, first byte left:

       text     I ' v e _ 1 2
       L        1 0 1 1 0 0 0     letters
       N        0 0 0 0 0 1 1     numbers
       starts   1 1 0 0 1 1 0     -> chunks  I  've  _  12

   Whether a chunk starts at a byte depends, nearly always, on the classes of that byte and its neighbours: then a dozen
   operations on words answer for 64 bytes at once, and no loop runs over chunks. Three things reach further, and each
   has its carry from block to block: numbers are cut in threes, newlines stick to punctuation before them, and
   whitespace behind a newline starts a chunk unless another newline follows.

   Here stands what is the same on every machine: the masks, the classes of characters of several bytes, the starts
   under each pattern. blocks.h makes the masks and writes out the ends, once per instruction set; isa.h chooses one.
   The simple matchers (matchers.h) say the same, slower: they take what is short or wrong, and tests hold one against
   the other.

   MB/s on 100 MB of each text in blocks of 128 KB, GPT-4's pattern / GPT-2's; gcc 12 -O3, one thread of a Xeon at 2.8
   GHz that had other work, thread time, median of 5:

                     simple       portable     SSE2          AVX2          AVX-512
       English       262 / 299    903 / 902    1424 / 1578   1729 / 1965   3075 / 3866
       code          275 / 305    899 / 978    1404 / 1399   1751 / 1766   3409 / 4201
       many scripts  296 / 300    470 / 502     662 /  794    777 /  904   1036 / 1201
       mix           224 / 266    529 / 677    1036 / 1047   1291 / 1341   2225 / 2620

   What the many scripts cost is the look-up of first bytes that do not tell alone. Dropped: two- and three-byte
   characters in one loop (7 % slower there), without its branch (the same), look-ups by fours (10 to 20 % slower); a
   64 KB table of classes (5 % faster there, not worth its cache); pointers to three masks in turn instead of copies
   (the same). */

#ifndef CBPE_MASKS_H
#define CBPE_MASKS_H

#include <stddef.h>
#include <stdint.h>

#include "matchers.h"

#if defined(__GNUC__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#elif defined(_MSC_VER)
#include <intrin.h>
#define ALWAYS_INLINE static __forceinline
#define UNLIKELY(condition) (condition)
#else
#define ALWAYS_INLINE static inline
#define UNLIKELY(condition) (condition)
#endif

#define BIT(i) ((uint64_t) 1 << (i))

/* --- Words as sets of bits --- */

/* How many bits are set: 0b1011 -> 3. */
ALWAYS_INLINE unsigned count_bits(uint64_t mask)
{
#if defined(__GNUC__)
    return (unsigned) __builtin_popcountll(mask);
#else
    mask -= mask >> 1 & 0x5555555555555555u;
    mask = (mask & 0x3333333333333333u) + (mask >> 2 & 0x3333333333333333u);
    return (unsigned) (((mask + (mask >> 4)) & 0x0F0F0F0F0F0F0F0Fu) * 0x0101010101010101u >> 56);
#endif
}

/* The number of the lowest bit that is set; there is one: 0b1100 -> 2. */
ALWAYS_INLINE unsigned lowest_bit(uint64_t mask)
{
#if defined(__GNUC__)
    return (unsigned) __builtin_ctzll(mask);
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_ARM64))
    unsigned long index;
    _BitScanForward64(&index, mask);
    return (unsigned) index;
#else
    return count_bits((mask & (0 - mask)) - 1);
#endif
}

/* The bytes that come after those of a mask; before is the same mask of the block before. */
ALWAYS_INLINE uint64_t after(uint64_t before, uint64_t mask)
{
    return mask << 1 | before >> 63;
}

/* The bytes that come k, 1 to 63, ahead of those of a mask; next is the same mask of the next block. */
ALWAYS_INLINE uint64_t ahead(uint64_t mask, uint64_t next, unsigned k)
{
    return mask >> k | next << (64 - k);
}

/* The rest of each stretch of set bits, from the seed in it on. A stretch has one seed or none. The sum carries from
   the seed to the stretch's end: what it changes there was flooded. Stretch 0b01110, seed 0b00100 -> 0b01100. */
ALWAYS_INLINE uint64_t flood(uint64_t seeds, uint64_t stretches)
{
    return stretches & ((stretches + seeds) ^ stretches);
}

/* --- Masks --- */

struct masks {
    uint64_t L, N, O, W;        /* letters, numbers, others, whitespace: each byte is in one of these */
    uint64_t NL;                /* in W: \r and \n */
    uint64_t SP, AP;            /* the space U+0020; the apostrophe, in O */
    uint64_t multi;             /* bytes of characters of several bytes */
    uint64_t CONT;              /* all but the first byte of such characters */
    uint64_t W2, W3;            /* the first bytes of whitespace of two and of three bytes */
    uint64_t due;               /* in the next block, the continuation bytes that this one's last character lacks */
};

/* What a look at single bytes tells about a block with characters of several bytes. */
struct byte_masks {
    uint64_t CONT;              /* 80..BF */
    uint64_t from_E0, from_F0;  /* first bytes of three or four, of four */
    uint64_t letters;           /* first bytes of letters, as far as they or the second byte tell: C3, but for U+00D7
                                   and U+00F7; C4..CA, D0, D1, D3, DA; E4, but for U+4DC0..4DFF; E5..E9, EB, EC */
};

/* Completes the masks of a block with characters of several bytes, in which now has what ASCII there is.

   First the first bytes get their class: most are letters by their value alone, the others are looked up. Then each
   class floods through the continuation bytes behind, which may reach in from the block before. What is not UTF-8
   makes *wrong other than 0: continuation bytes stand where they are due and nowhere else; too long forms, surrogates
   and code points that do not exist show when they are looked up (no letter in bytes->letters can be one). */
ALWAYS_INLINE void classify_multi(const uint8_t *block, const struct byte_masks *bytes, const struct masks *before,
                                  struct masks *now, uint64_t *wrong)
{
    const uint64_t CONT = bytes->CONT, first = now->multi & ~CONT, from_E0 = bytes->from_E0, from_F0 = bytes->from_F0;
    uint64_t low = bytes->letters, high = 0;        /* the two bits of each first byte's class: LETTER is 01 */
    uint64_t left, bad = 0;

    for (left = first & ~bytes->letters & ~from_E0; left; left &= left - 1) {
        const unsigned i = lowest_bit(left);
        const uint32_t code_point = (block[i] & 0x1Fu) << 6 | (block[i + 1] & 0x3Fu);
        const uint64_t class_ = class_of(code_point);
        bad |= code_point < 0x80;
        low |= (class_ & 1) << i;
        high |= (class_ >> 1) << i;
    }
    for (left = first & ~bytes->letters & from_E0 & ~from_F0; left; left &= left - 1) {
        const unsigned i = lowest_bit(left);
        const uint32_t code_point = (block[i] & 0x0Fu) << 12 | (block[i + 1] & 0x3Fu) << 6 | (block[i + 2] & 0x3Fu);
        const uint64_t class_ = class_of(code_point);
        bad |= (code_point < 0x800) | (code_point >> 11 == 0xD800 >> 11);
        low |= (class_ & 1) << i;
        high |= (class_ >> 1) << i;
    }
    for (left = first & from_F0; UNLIKELY(left); left &= left - 1) {
        const unsigned i = lowest_bit(left);
        const uint32_t code_point = (block[i] & 0x0Fu) << 18 | (block[i + 1] & 0x3Fu) << 12
                                    | (block[i + 2] & 0x3Fu) << 6 | (block[i + 3] & 0x3Fu);
        const uint64_t class_ = class_of(code_point);
        bad |= code_point - 0x10000 > 0xFFFFF;
        low |= (class_ & 1) << i;
        high |= (class_ >> 1) << i;
    }
    now->L |= low & ~high;
    now->N |= high & ~low;
    now->W |= high & low;
    now->W2 = high & low & ~from_E0;
    now->W3 = high & low & from_E0;
    now->CONT = CONT;

    *wrong |= bad | (CONT ^ (first << 1 | from_E0 << 2 | from_F0 << 3 | before->due));
    now->due = first >> 63 | from_E0 >> 62 | from_F0 >> 61;
    now->L |= flood(after(before->L, now->L) & CONT, CONT);
    now->N |= flood(after(before->N, now->N) & CONT, CONT);
    now->W |= flood(after(before->W, now->W) & CONT, CONT);
}

/* --- Starts --- */

/* What the starts of a block depend on in the blocks before it, beyond their masks. Of masks that are kept only the
   last bit matters. All zero at the start of a text. */
struct carry {
    uint64_t lone;              /* GPT-4: the first character of each run of O that has a start */
    uint64_t swallowed;         /* GPT-4: newlines that belong to the other characters before them */
    uint64_t number_starts;     /* GPT-4: where chunks of numbers started, in as many last bytes as one may be long */
    uint64_t open;              /* GPT-4: 1 if the last start was behind a newline, and only H has followed it */
    uint64_t refuted;           /* GPT-4, for the caller: 1 if that start is taken back, because a newline followed */
    uint64_t contracted;        /* starts behind contractions, by their place in the next block */
    uint64_t joined;            /* GPT-2: letters that belong to the apostrophe before them, likewise */
};

/* The first byte of each whitespace character in mask, W or part of it, that is followed by a character that is none.
   It does not belong to the whitespace before it, but begins what follows or stands alone. */
ALWAYS_INLINE uint64_t last_spaces(uint64_t mask, const struct masks *now, const struct masks *next)
{
    uint64_t last = mask & ~now->multi & ~ahead(now->W, next->W, 1);
    if (now->multi)
        last |= (now->W2 & ~ahead(now->W, next->W, 2)) | (now->W3 & ~ahead(now->W, next->W, 3));
    return last;
}

/* \p{N}{1,most} : a start at the first number of a run and, if most is 3, at every third one behind it. */
ALWAYS_INLINE uint64_t gpt4_number_starts(const struct masks *before, const struct masks *now, struct carry *carry,
                                          unsigned most)
{
    const uint64_t N = now->N, behind_one = after(before->N, N);
    uint64_t starts, left, more, full;
    unsigned length, i;
    if (most == 1)
        return N & ~now->CONT;
    if (UNLIKELY(N & now->multi)) {
        /* Numbers of several bytes have to be counted one by one. length: of the chunk so far. */
        length = 0;
        if (before->N >> 63)
            for (length = 1; length < most && !(carry->number_starts >> (most - length) & 1);)
                length++;
        starts = 0;
        for (left = N & ~now->CONT; left; left &= left - 1) {
            uint64_t bit = left & (0 - left);
            if (!(behind_one & bit) || length == most) {
                starts |= bit;
                length = 0;
            }
            length++;
        }
        carry->number_starts = N >> 63 ? BIT(most) >> length : 0;       /* as if each number had been one byte */
        return starts;
    }
    starts = N & ~behind_one;
    full = N & behind_one;                                              /* behind as many as a chunk may have */
    for (i = 2; i <= most; i++)
        full &= N << i | before->N >> (64 - i);
    if (UNLIKELY(full))
        for (more = (starts << most | carry->number_starts) & full; more; more = more << most & full)
            starts |= more;
    carry->number_starts = starts >> (64 - most);
    return starts;
}

/* GPT-4's pattern:
   '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+
   most_numbers: the 3 in it, which is 1 in Qwen 2's and 2 in nanochat's.

   H is whitespace without newlines; L, N, O, W are as in struct masks. A chunk starts
   - other: at a run of O, unless a space stands before it, which then has the start;
   - letter: at a run of L, unless before it stands H, or a lone O that has a start: those it is joined to;
   - number: see above;
   - space: at a run of W, but not at newlines right behind O, which has swallowed them;
   - behind_newline: at H behind a newline, unless another newline follows this stretch of H, as \s*[\r\n] runs to the
     last newline;
   - at the last H before what is not whitespace;
   - behind a contraction.
   H behind a newline has its start until a newline refutes it. If that comes in a later block, the start that was
   written last is taken back. (None can have been written meanwhile: in a stretch of H only the last one starts.) */
ALWAYS_INLINE uint64_t gpt4_starts(const uint8_t *block, const struct masks *before, const struct masks *now,
                                   const struct masks *next, struct carry *carry, unsigned most_numbers)
{
    const uint64_t L = now->L, O = now->O, W = now->W, NL = now->NL, H = W & ~NL;
    const uint64_t behind_H = after(before->W & ~before->NL, H);

    const uint64_t other = O & ~after(before->O, O) & ~after(before->SP, now->SP);
    uint64_t lone = other;
    if (now->multi)
        lone |= flood(after(carry->lone, other) & now->CONT, now->CONT);            /* the whole character */
    const uint64_t letter = L & ~after(before->L, L) & ~behind_H & ~after(carry->lone, lone);
    const uint64_t number = gpt4_number_starts(before, now, carry, most_numbers);

    const uint64_t swallowed = flood(NL & (after(before->O, O) | carry->swallowed >> 63), NL);
    const uint64_t space = W & ~after(before->W, W) & ~swallowed;
    const uint64_t behind_newline = H & after(before->NL, NL);

    uint64_t starts = other | letter | number | space | behind_newline | last_spaces(H, now, next) | carry->contracted;

    carry->contracted = 0;
    for (uint64_t left = other & now->AP; left; left &= left - 1) {
        const uint64_t apostrophe = left & (0 - left);
        const size_t length = gpt4_contraction(block + lowest_bit(left), 3, 0);
        if (length) {
            starts |= apostrophe << length;
            carry->contracted |= apostrophe >> (64 - length);
        }
    }

    /* Each stretch of H that is in question carries a bit to the byte behind its end. */
    const uint64_t question = behind_newline & ~after(carry->swallowed, swallowed);
    const uint64_t sum = H + (question | carry->open);
    carry->refuted = 0;
    if (UNLIKELY(sum & ~H & NL)) {
        carry->refuted = carry->open && ((H + 1) & ~H & NL);
        for (uint64_t left = question; left; left &= left - 1) {
            const uint64_t start = left & (0 - left);
            if ((H + start) & ~H & NL)
                starts &= ~start;
        }
    }
    carry->open = sum < H;                      /* carried out of the block */
    carry->lone = lone;
    carry->swallowed = swallowed;
    return starts;
}

/* GPT-2's pattern:  '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

   A chunk starts at each run of L, N or O, unless a space stands before it, which then has the start; at each run of W;
   at the last W before what is not whitespace; and behind a contraction, while its letters, a run of L like any
   other, lose theirs. */
ALWAYS_INLINE uint64_t gpt2_starts(const uint8_t *block, const struct masks *before, const struct masks *now,
                                   const struct masks *next, struct carry *carry)
{
    const uint64_t L = now->L, N = now->N, O = now->O, W = now->W;
    const uint64_t behind_space = after(before->SP, now->SP);
    const uint64_t other = O & ~after(before->O, O) & ~behind_space;
    uint64_t starts = ((L & ~after(before->L, L)) | (N & ~after(before->N, N))) & ~behind_space & ~carry->joined;
    starts |= other | (W & ~after(before->W, W)) | last_spaces(W, now, next) | carry->contracted;
    carry->contracted = carry->joined = 0;
    for (uint64_t left = other & now->AP; left; left &= left - 1) {
        const uint64_t apostrophe = left & (0 - left);
        const size_t length = gpt2_contraction(block + lowest_bit(left), 3, 0);
        if (length) {
            starts &= ~(apostrophe << 1);
            starts |= apostrophe << length;
            carry->joined |= apostrophe >> 63;
            carry->contracted |= apostrophe >> (64 - length);
        }
    }
    return starts;
}

#endif

/* Splitting without a matcher, part two, compiled once per instruction set: bytes to masks, starts to ends, the loop.

   isa.h includes this file with ISA defined as one of its numbers, NAMED(x) as x with the set's name appended, and
   TARGET as what lets the compiler use the set in a function. In: a text. Out: the ends of its chunks, by split_gpt2_*
   and the like below, which keep the promise of split_block_fn (split.pxd). */

/* --- Masks of what single bytes are --- */

#if ISA == PORTABLE

/* A byte's classes, one in each byte of a word. The words of eight bytes in a row, each shifted by the byte's number,
   are put together to eight bits of each mask; eight such rows, turned round, are eight masks. */
#define WITHIN(c, low, high) ((uint64_t) ((c) >= (low) && (c) <= (high)))
#define IS(c, value) WITHIN(c, value, value)
#define ASCII_CLASSES(c) \
    ((WITHIN(c, 'a', 'z') | WITHIN(c, 'A', 'Z')) | WITHIN(c, '0', '9') << 8 | (WITHIN(c, 9, 13) | IS(c, ' ')) << 16 \
     | (IS(c, '\n') | IS(c, '\r')) << 24 | IS(c, ' ') << 32 | IS(c, '\'') << 40 | WITHIN(c, 0x80, 0xFF) << 48)
#define MULTI_CLASSES(c) \
    (WITHIN(c, 0x80, 0xBF) | WITHIN(c, 0xE0, 0xFF) << 8 | WITHIN(c, 0xF0, 0xFF) << 16 \
     | (WITHIN(c, 0xC4, 0xCA) | WITHIN(c, 0xD0, 0xD1) | IS(c, 0xD3) | IS(c, 0xDA) | WITHIN(c, 0xE5, 0xE9) \
        | WITHIN(c, 0xEB, 0xEC)) << 24 \
     | IS(c, 0xC3) << 32 | IS(c, 0xE4) << 40 | IS(c, 0x97) << 48 | IS(c, 0xB7) << 56)
#define FOUR(f, c) f(c), f(c + 1), f(c + 2), f(c + 3)
#define SIXTEEN(f, c) FOUR(f, c), FOUR(f, c + 4), FOUR(f, c + 8), FOUR(f, c + 12)
#define SIXTY_FOUR(f, c) SIXTEEN(f, c), SIXTEEN(f, c + 16), SIXTEEN(f, c + 32), SIXTEEN(f, c + 48)
static const uint64_t ascii_classes[256] = {
    SIXTY_FOUR(ASCII_CLASSES, 0), SIXTY_FOUR(ASCII_CLASSES, 64),
    SIXTY_FOUR(ASCII_CLASSES, 128), SIXTY_FOUR(ASCII_CLASSES, 192),
};
static const uint64_t multi_classes[256] = {
    SIXTY_FOUR(MULTI_CLASSES, 0), SIXTY_FOUR(MULTI_CLASSES, 64),
    SIXTY_FOUR(MULTI_CLASSES, 128), SIXTY_FOUR(MULTI_CLASSES, 192),
};
#undef WITHIN
#undef IS
#undef ASCII_CLASSES
#undef MULTI_CLASSES
#undef FOUR
#undef SIXTEEN
#undef SIXTY_FOUR

/* Exchanges the high parts of one word with the low parts of the other; parts: the bits of the low ones. */
ALWAYS_INLINE void exchange(uint64_t *one, uint64_t *other, unsigned shift, uint64_t parts)
{
    const uint64_t differing = (*one >> shift ^ *other) & parts;
    *other ^= differing;
    *one ^= differing << shift;
}

/* masks[k]: which bytes of the block have class k, byte k of their word in the table. */
ALWAYS_INLINE void masks_by_table(const uint8_t *block, const uint64_t *table, uint64_t masks[8])
{
    int i;
    for (i = 0; i < 8; i++) {
        const uint8_t *row = block + 8 * i;
        masks[i] = table[row[0]] | table[row[1]] << 1 | table[row[2]] << 2 | table[row[3]] << 3 | table[row[4]] << 4
                   | table[row[5]] << 5 | table[row[6]] << 6 | table[row[7]] << 7;
    }
    for (i = 0; i < 4; i++)
        exchange(&masks[i], &masks[i + 4], 32, 0x00000000FFFFFFFFu);
    for (i = 0; i < 6; i = i == 1 ? 4 : i + 1)
        exchange(&masks[i], &masks[i + 2], 16, 0x0000FFFF0000FFFFu);
    for (i = 0; i < 8; i += 2)
        exchange(&masks[i], &masks[i + 1], 8, 0x00FF00FF00FF00FFu);
}

ALWAYS_INLINE void NAMED(classify_ascii)(const uint8_t *block, struct masks *now)
{
    uint64_t masks[8];
    masks_by_table(block, ascii_classes, masks);
    now->L = masks[0];
    now->N = masks[1];
    now->W = masks[2];
    now->NL = masks[3];
    now->SP = masks[4];
    now->AP = masks[5];
    now->multi = masks[6];
}

ALWAYS_INLINE void NAMED(look_at_multi)(const uint8_t *block, uint64_t multi, struct byte_masks *bytes)
{
    uint64_t masks[8];
    (void) multi;
    masks_by_table(block, multi_classes, masks);
    bytes->CONT = masks[0];
    bytes->from_E0 = masks[1];
    bytes->from_F0 = masks[2];
    bytes->letters = masks[3] | (((masks[4] & ~ahead(masks[6], block[64] == 0x97, 1)) | masks[5])
                                 & ~ahead(masks[7], block[64] == 0xB7, 1));
}

#else

/* A vector of bytes, which of them were found, and those as a mask: with these words the sets differ in nothing else.
   SSE2 and AVX2 compare bytes as signed: a range is moved up to end at 127, so that one comparison bounds it. */
#if ISA == SSE2

#define LANES 16
#define VECTOR __m128i
#define FOUND __m128i
#define LOAD(p) _mm_loadu_si128((const __m128i *) (p))
#define ALL(c) _mm_set1_epi8((char) (c))
#define LOWER(v) _mm_or_si128(v, ALL(0x20))
#define EQUAL(v, c) _mm_cmpeq_epi8(v, ALL(c))
#define WITHIN_RANGE(v, low, high) _mm_cmpgt_epi8(_mm_add_epi8(v, ALL(127 - (high))), ALL(126 - ((high) - (low))))
#define FROM(v, low) _mm_cmpgt_epi8(v, ALL((low) - 1))
#define EITHER(a, b) _mm_or_si128(a, b)
#define UNLESS(a, b) _mm_andnot_si128(b, a)
#define MASK(found) ((uint64_t) (uint32_t) _mm_movemask_epi8(found))
#define ABOVE_ASCII(v) MASK(v)

#elif ISA == AVX2

#define LANES 32
#define VECTOR __m256i
#define FOUND __m256i
#define LOAD(p) _mm256_loadu_si256((const __m256i *) (p))
#define ALL(c) _mm256_set1_epi8((char) (c))
#define LOWER(v) _mm256_or_si256(v, ALL(0x20))
#define EQUAL(v, c) _mm256_cmpeq_epi8(v, ALL(c))
#define WITHIN_RANGE(v, low, high) _mm256_cmpgt_epi8(_mm256_add_epi8(v, ALL(127 - (high))), ALL(126 - ((high) - (low))))
#define FROM(v, low) _mm256_cmpgt_epi8(v, ALL((low) - 1))
#define EITHER(a, b) _mm256_or_si256(a, b)
#define UNLESS(a, b) _mm256_andnot_si256(b, a)
#define MASK(found) ((uint64_t) (uint32_t) _mm256_movemask_epi8(found))
#define ABOVE_ASCII(v) MASK(v)

#elif ISA == AVX512

#define LANES 64
#define VECTOR __m512i
#define FOUND uint64_t
#define LOAD(p) _mm512_loadu_si512(p)
#define ALL(c) _mm512_set1_epi8((char) (c))
#define LOWER(v) _mm512_or_si512(v, ALL(0x20))
#define EQUAL(v, c) _mm512_cmpeq_epi8_mask(v, ALL(c))
#define WITHIN_RANGE(v, low, high) _mm512_cmple_epu8_mask(_mm512_sub_epi8(v, ALL(low)), ALL((high) - (low)))
#define FROM(v, low) _mm512_cmpgt_epi8_mask(v, ALL((low) - 1))
#define EITHER(a, b) ((a) | (b))
#define UNLESS(a, b) ((a) & ~(b))
#define MASK(found) (found)
#define ABOVE_ASCII(v) _mm512_movepi8_mask(v)

#endif

TARGET ALWAYS_INLINE void NAMED(classify_ascii)(const uint8_t *block, struct masks *now)
{
    uint64_t L = 0, N = 0, W = 0, NL = 0, SP = 0, AP = 0, multi = 0;
    int i;
    for (i = 0; i < 64; i += LANES) {
        const VECTOR here = LOAD(block + i);
        const FOUND space = EQUAL(here, ' ');
        L |= MASK(WITHIN_RANGE(LOWER(here), 'a', 'z')) << i;
        N |= MASK(WITHIN_RANGE(here, '0', '9')) << i;
        W |= MASK(EITHER(space, WITHIN_RANGE(here, 9, 13))) << i;
        NL |= MASK(EITHER(EQUAL(here, '\n'), EQUAL(here, '\r'))) << i;
        SP |= MASK(space) << i;
        AP |= MASK(EQUAL(here, '\'')) << i;
        multi |= ABOVE_ASCII(here) << i;
    }
    now->L = L;
    now->N = N;
    now->W = W;
    now->NL = NL;
    now->SP = SP;
    now->AP = AP;
    now->multi = multi;
}

TARGET ALWAYS_INLINE void NAMED(look_at_multi)(const uint8_t *block, uint64_t multi, struct byte_masks *bytes)
{
    uint64_t from_C0 = 0, from_E0 = 0, from_F0 = 0, letters = 0;
    int i;
    for (i = 0; i < 64; i += LANES) {
        const VECTOR here = LOAD(block + i), behind = LOAD(block + i + 1);
        const FOUND two = EITHER(EITHER(WITHIN_RANGE(here, 0xC4, 0xCA), WITHIN_RANGE(here, 0xD0, 0xD1)),
                                 EITHER(EQUAL(here, 0xD3), EQUAL(here, 0xDA)));
        const FOUND three = EITHER(WITHIN_RANGE(here, 0xE5, 0xE9), WITHIN_RANGE(here, 0xEB, 0xEC));
        const FOUND C3_or_E4 = EITHER(UNLESS(EQUAL(here, 0xC3), EQUAL(behind, 0x97)), EQUAL(here, 0xE4));
        letters |= MASK(EITHER(EITHER(two, three), UNLESS(C3_or_E4, EQUAL(behind, 0xB7)))) << i;
        from_C0 |= MASK(FROM(here, 0xC0)) << i;         /* and ASCII, as bytes are signed */
        from_E0 |= MASK(FROM(here, 0xE0)) << i;
        from_F0 |= MASK(FROM(here, 0xF0)) << i;
    }
    bytes->CONT = multi & ~from_C0;
    bytes->from_E0 = multi & from_E0;
    bytes->from_F0 = multi & from_F0;
    bytes->letters = letters;
}

#undef LANES
#undef VECTOR
#undef FOUND
#undef LOAD
#undef ALL
#undef LOWER
#undef EQUAL
#undef WITHIN_RANGE
#undef FROM
#undef EITHER
#undef UNLESS
#undef MASK
#undef ABOVE_ASCII

#endif

/* The masks of a block. Up to READ_BEHIND bytes behind it are read. */
TARGET ALWAYS_INLINE void NAMED(classify)(const uint8_t *block, const struct masks *before, struct masks *now,
                                          uint64_t *wrong)
{
    NAMED(classify_ascii)(block, now);
    now->CONT = now->W2 = now->W3 = now->due = 0;
    if (UNLIKELY(now->multi | before->due)) {
        struct byte_masks bytes;
        NAMED(look_at_multi)(block, now->multi, &bytes);
        classify_multi(block, &bytes, before, now, wrong);
    }
    now->O = ~(now->L | now->N | now->W);
}

/* --- Starts to ends --- */

/* Writes base plus the number of each bit; returns where the next ones go. Up to 64 words are written over there. */
#if ISA == AVX512

TARGET ALWAYS_INLINE uint32_t *NAMED(write_ends)(uint32_t *ends, uint32_t base, uint64_t starts)
{
    static const uint8_t numbers[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63,
    };
    const __m512i found = _mm512_maskz_compress_epi8(starts, _mm512_loadu_si512(numbers));
    const __m512i bases = _mm512_set1_epi32((int) base);
    const unsigned count = count_bits(starts);
#define WIDENED(quarter) _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, quarter))
    _mm512_storeu_si512(ends, _mm512_add_epi32(bases, WIDENED(0)));
    _mm512_storeu_si512(ends + 16, _mm512_add_epi32(bases, WIDENED(1)));
    if (UNLIKELY(count > 32)) {
        _mm512_storeu_si512(ends + 32, _mm512_add_epi32(bases, WIDENED(2)));
        _mm512_storeu_si512(ends + 48, _mm512_add_epi32(bases, WIDENED(3)));
    }
#undef WIDENED
    return ends + count;
}

#else

TARGET ALWAYS_INLINE uint32_t *NAMED(write_ends)(uint32_t *ends, uint32_t base, uint64_t starts)
{
    /* Most blocks have up to 12 starts, nearly all up to 20: so many are always written, without a branch for each. */
    const unsigned count = count_bits(starts);
    unsigned i;
    for (i = 0; i < 12; i++, starts &= starts - 1)
        ends[i] = base + lowest_bit(starts | BIT(63));
    if (count > 12) {
        for (; i < 20; i++, starts &= starts - 1)
            ends[i] = base + lowest_bit(starts | BIT(63));
        for (; starts; i++, starts &= starts - 1)
            ends[i] = base + lowest_bit(starts);
    }
    return ends + count;
}

#endif

/* --- The loop --- */

/* A text under a pattern, which the compiler knows, and so most_numbers, for GPT-4's: masks of a block, with a look at those of the block before and of
   the next one; starts; ends. A start is the end of the chunk before it, so the first one is left out and the text's
   end put in.

   The last 64 to 127 bytes are copied and filled up with spaces, which is what the end of a text looks like: whitespace
   there need not leave its last character to anything, a contraction is not completed, a character that lacks bytes is
   wrong. Nothing behind text[n - 1] is read. */
TARGET ALWAYS_INLINE int64_t NAMED(split_blocks)(const uint8_t *text, size_t n, uint32_t *ends,
                                                 enum split_pattern pattern, unsigned most_numbers)
{
    const size_t n_whole = n / 64, n_in_place = n_whole - 1;        /* n is 64 or more */
    struct masks before = {0}, now, next;
    struct carry carry = {0};
    uint64_t wrong = 0, starts, wanted = ~(uint64_t) 1;
    uint8_t last[3 * 64 + READ_BEHIND];
    const uint8_t *block, *next_block = n_in_place > 0 ? text : last;
    uint32_t *end = ends;
    size_t k;
    memset(last, ' ', sizeof(last));
    memcpy(last, text + 64 * n_in_place, n - 64 * n_in_place);
    NAMED(classify)(next_block, &before, &now, &wrong);
    for (k = 0; k <= n_whole; k++) {
        block = next_block;
        next_block = k + 1 != n_in_place ? block + 64 : last;
        NAMED(classify)(next_block, &now, &next, &wrong);
        if (pattern == GPT2)
            starts = gpt2_starts(block, &before, &now, &next, &carry);
        else
            starts = gpt4_starts(block, &before, &now, &next, &carry, most_numbers);
        if (k == n_whole)
            wanted = BIT(n % 64) - 1;
        end = NAMED(write_ends)(end - carry.refuted, (uint32_t) (64 * k), starts & wanted);
        wanted = ~(uint64_t) 0;
        before = now;
        now = next;
    }
    if (UNLIKELY(wrong))
        return -1;
    *end++ = (uint32_t) n;
    return end - ends;
}

/* The simple matcher takes short texts, which have no whole block, and wrong ones, of which it says where. */
TARGET static int64_t NAMED(split_gpt2)(const uint8_t *text, size_t n, uint32_t *ends)
{
    const int64_t count = n < 64 ? -1 : NAMED(split_blocks)(text, n, ends, GPT2, 0);
    return count < 0 ? split_gpt2(text, n, ends) : count;
}

TARGET static int64_t NAMED(split_gpt4)(const uint8_t *text, size_t n, uint32_t *ends)
{
    const int64_t count = n < 64 ? -1 : NAMED(split_blocks)(text, n, ends, GPT4, 3);
    return count < 0 ? split_gpt4(text, n, ends) : count;
}

TARGET static int64_t NAMED(split_qwen2)(const uint8_t *text, size_t n, uint32_t *ends)
{
    const int64_t count = n < 64 ? -1 : NAMED(split_blocks)(text, n, ends, GPT4, 1);
    return count < 0 ? split_qwen2(text, n, ends) : count;
}

TARGET static int64_t NAMED(split_nanochat)(const uint8_t *text, size_t n, uint32_t *ends)
{
    const int64_t count = n < 64 ? -1 : NAMED(split_blocks)(text, n, ends, GPT4, 2);
    return count < 0 ? split_nanochat(text, n, ends) : count;
}

TARGET static int64_t NAMED(split_cl100k)(const uint8_t *text, size_t n, uint32_t *ends)
{
    return join_last_whitespace(text, n, ends, NAMED(split_gpt4)(text, n, ends));
}

/* For tests: the two steps that depend on the instruction set, alone. Returns 0 if a block is not UTF-8. */
TARGET static int NAMED(classify_all)(const uint8_t *blocks, size_t n_blocks, struct masks *masks)
{
    struct masks nothing = {0};
    uint64_t wrong = 0;
    size_t k;
    for (k = 0; k < n_blocks; k++)
        NAMED(classify)(blocks + 64 * k, k > 0 ? &masks[k - 1] : &nothing, &masks[k], &wrong);
    return wrong == 0;
}

TARGET static uint32_t *NAMED(write_some)(uint32_t *ends, uint32_t base, uint64_t starts)
{
    return NAMED(write_ends)(ends, base, starts);
}

/* Splitting without a matcher, part two, compiled once per instruction set: bytes to masks, starts to ends, the loop.

   isa.h includes this file with ISA defined as one of the numbers below, NAMED(x) as x with the set's name appended,
   and TARGET as what lets the compiler use the set in a function. In: a text. Out: the ends of its chunks, by the two
   functions at the end of the file, which keep the promise of split_block_fn. */

/* --- Masks of what single bytes are --- */

#if ISA == PORTABLE

/* A byte's classes, one in each byte of a word; shifted by the byte's number in a row of eight and added up, a row's
   words give eight bits of every mask. Eight rows are turned round into eight masks. */
#define WITHIN(c, low, high) ((uint64_t) ((c) >= (low) && (c) <= (high)))
#define ASCII_CLASSES(c) \
    ((WITHIN(c, 'a', 'z') | WITHIN(c, 'A', 'Z')) | WITHIN(c, '0', '9') << 8 | (WITHIN(c, 9, 13) | WITHIN(c, ' ', ' ')) << 16 \
     | (WITHIN(c, '\n', '\n') | WITHIN(c, '\r', '\r')) << 24 | WITHIN(c, ' ', ' ') << 32 | WITHIN(c, '\'', '\'') << 40 \
     | WITHIN(c, 0x80, 0xFF) << 48)
#define MULTI_CLASSES(c) \
    (WITHIN(c, 0x80, 0xBF) | WITHIN(c, 0xE0, 0xFF) << 8 | WITHIN(c, 0xF0, 0xFF) << 16 \
     | (WITHIN(c, 0xC4, 0xCA) | WITHIN(c, 0xD0, 0xD1) | WITHIN(c, 0xE5, 0xE9) | WITHIN(c, 0xEB, 0xEC)) << 24 \
     | WITHIN(c, 0xE4, 0xE4) << 32 | WITHIN(c, 0xB7, 0xB7) << 40)
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

/* Exchanges the high part of the bytes in low with the low part of those in high; part: the bits of the low part. */
ALWAYS_INLINE void exchange(uint64_t *low, uint64_t *high, unsigned shift, uint64_t part)
{
    uint64_t differing = (*low >> shift ^ *high) & part;
    *high ^= differing;
    *low ^= differing << shift;
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

ALWAYS_INLINE void NAMED(look_at_multi)(const uint8_t *block, const struct masks *now, struct byte_masks *bytes)
{
    uint64_t masks[8];
    (void) now;
    masks_by_table(block, multi_classes, masks);
    bytes->CONT = masks[0];
    bytes->from_E0 = masks[1];
    bytes->from_F0 = masks[2];
    bytes->letters = masks[3] | (masks[4] & ~ahead(masks[5], block[64] == 0xB7, 1));
}

#else

/* Which of the 64 bytes are c; which are from low to high; which have their top bit set. Loads are not shared here in
   the text: the compiler finds them equal. */
#if ISA == SSE2

ALWAYS_INLINE __m128i sse2_load(const uint8_t *bytes)
{
    return _mm_loadu_si128((const __m128i *) bytes);
}

ALWAYS_INLINE uint64_t sse2_equal16(const uint8_t *bytes, __m128i c)
{
    return (uint64_t) _mm_movemask_epi8(_mm_cmpeq_epi8(sse2_load(bytes), c));
}

ALWAYS_INLINE uint64_t sse2_within16(const uint8_t *bytes, __m128i low, __m128i span)
{
    __m128i above = _mm_sub_epi8(sse2_load(bytes), low);        /* at most span, if within */
    return (uint64_t) _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(above, span), above));
}

ALWAYS_INLINE uint64_t equal_sse2(const uint8_t *block, uint8_t c)
{
    const __m128i all = _mm_set1_epi8((char) c);
    return sse2_equal16(block, all) | sse2_equal16(block + 16, all) << 16 | sse2_equal16(block + 32, all) << 32
           | sse2_equal16(block + 48, all) << 48;
}

ALWAYS_INLINE uint64_t within_sse2(const uint8_t *block, uint8_t low, uint8_t high)
{
    const __m128i lows = _mm_set1_epi8((char) low), span = _mm_set1_epi8((char) (high - low));
    return sse2_within16(block, lows, span) | sse2_within16(block + 16, lows, span) << 16
           | sse2_within16(block + 32, lows, span) << 32 | sse2_within16(block + 48, lows, span) << 48;
}

ALWAYS_INLINE uint64_t above_ascii_sse2(const uint8_t *block)
{
    return (uint64_t) _mm_movemask_epi8(sse2_load(block)) | (uint64_t) _mm_movemask_epi8(sse2_load(block + 16)) << 16
           | (uint64_t) _mm_movemask_epi8(sse2_load(block + 32)) << 32
           | (uint64_t) _mm_movemask_epi8(sse2_load(block + 48)) << 48;
}

#elif ISA == AVX2

TARGET ALWAYS_INLINE uint64_t avx2_equal32(const uint8_t *bytes, uint8_t c)
{
    const __m256i here = _mm256_loadu_si256((const __m256i *) bytes);
    return (uint32_t) _mm256_movemask_epi8(_mm256_cmpeq_epi8(here, _mm256_set1_epi8((char) c)));
}

TARGET ALWAYS_INLINE uint64_t avx2_within32(const uint8_t *bytes, uint8_t low, uint8_t high)
{
    const __m256i here = _mm256_loadu_si256((const __m256i *) bytes);
    const __m256i above = _mm256_sub_epi8(here, _mm256_set1_epi8((char) low));
    const __m256i least = _mm256_min_epu8(above, _mm256_set1_epi8((char) (high - low)));
    return (uint32_t) _mm256_movemask_epi8(_mm256_cmpeq_epi8(least, above));
}

TARGET ALWAYS_INLINE uint64_t equal_avx2(const uint8_t *block, uint8_t c)
{
    return avx2_equal32(block, c) | avx2_equal32(block + 32, c) << 32;
}

TARGET ALWAYS_INLINE uint64_t within_avx2(const uint8_t *block, uint8_t low, uint8_t high)
{
    return avx2_within32(block, low, high) | avx2_within32(block + 32, low, high) << 32;
}

TARGET ALWAYS_INLINE uint64_t above_ascii_avx2(const uint8_t *block)
{
    const __m256i half = _mm256_loadu_si256((const __m256i *) block);
    const __m256i other_half = _mm256_loadu_si256((const __m256i *) (block + 32));
    return (uint32_t) _mm256_movemask_epi8(half) | (uint64_t) (uint32_t) _mm256_movemask_epi8(other_half) << 32;
}

#elif ISA == AVX512

TARGET ALWAYS_INLINE uint64_t equal_avx512(const uint8_t *block, uint8_t c)
{
    return _mm512_cmpeq_epi8_mask(_mm512_loadu_si512(block), _mm512_set1_epi8((char) c));
}

TARGET ALWAYS_INLINE uint64_t within_avx512(const uint8_t *block, uint8_t low, uint8_t high)
{
    const __m512i above = _mm512_sub_epi8(_mm512_loadu_si512(block), _mm512_set1_epi8((char) low));
    return _mm512_cmple_epu8_mask(above, _mm512_set1_epi8((char) (high - low)));
}

TARGET ALWAYS_INLINE uint64_t above_ascii_avx512(const uint8_t *block)
{
    return _mm512_movepi8_mask(_mm512_loadu_si512(block));
}

#endif

TARGET ALWAYS_INLINE void NAMED(classify_ascii)(const uint8_t *block, struct masks *now)
{
    now->L = NAMED(within)(block, 'a', 'z') | NAMED(within)(block, 'A', 'Z');
    now->N = NAMED(within)(block, '0', '9');
    now->SP = NAMED(equal)(block, ' ');
    now->W = NAMED(within)(block, 9, 13) | now->SP;
    now->NL = NAMED(equal)(block, '\n') | NAMED(equal)(block, '\r');
    now->AP = NAMED(equal)(block, '\'');
    now->multi = NAMED(above_ascii)(block);
}

TARGET ALWAYS_INLINE void NAMED(look_at_multi)(const uint8_t *block, const struct masks *now, struct byte_masks *bytes)
{
    const uint64_t before_B7 = ahead(NAMED(equal)(block, 0xB7), block[64] == 0xB7, 1);
    bytes->CONT = NAMED(within)(block, 0x80, 0xBF);
    bytes->from_E0 = NAMED(within)(block, 0xE0, 0xFF);
    bytes->from_F0 = NAMED(within)(block, 0xF0, 0xFF);
    bytes->letters = NAMED(within)(block, 0xC4, 0xCA) | NAMED(within)(block, 0xD0, 0xD1)
                     | NAMED(within)(block, 0xE5, 0xE9) | NAMED(within)(block, 0xEB, 0xEC)
                     | (NAMED(equal)(block, 0xE4) & ~before_B7);
    (void) now;
}

#endif

/* The masks of a block. Up to four bytes behind it are read. */
TARGET ALWAYS_INLINE void NAMED(classify)(const uint8_t *block, const struct masks *before, struct masks *now,
                                          uint64_t *wrong)
{
    NAMED(classify_ascii)(block, now);
    now->due = 0;
    if (UNLIKELY(now->multi | before->due)) {
        struct byte_masks bytes;
        NAMED(look_at_multi)(block, now, &bytes);
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
    _mm512_storeu_si512(ends, _mm512_add_epi32(bases, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(found))));
    _mm512_storeu_si512(ends + 16, _mm512_add_epi32(bases, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 1))));
    if (UNLIKELY(count > 32)) {
        _mm512_storeu_si512(ends + 32, _mm512_add_epi32(bases, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 2))));
        _mm512_storeu_si512(ends + 48, _mm512_add_epi32(bases, _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(found, 3))));
    }
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

/* A text under each pattern: masks of a block, with a look at those of the block before and of the next one; starts;
   ends. A start is the end of the chunk before it, so the first one is left out and the text's end put in.

   The last bytes are copied and filled up with spaces, which is what the end of a text looks like: whitespace there
   need not leave its last character to anything. Of what stands behind text[n] nothing matters: a character or a
   contraction that reached there would be wrong, or start a chunk behind n, which is not written. */
#define DEFINE_SPLIT(split, find_starts, split_simply)                                          \
    TARGET static int64_t split(const uint8_t *text, size_t n, uint32_t *ends)                  \
    {                                                                                           \
        const size_t n_whole = n / 64;                                                          \
        struct masks masks[3] = {{0}};                                                          \
        struct masks *before = &masks[0], *now = &masks[1], *next = &masks[2], *spare;          \
        struct carry carry = {0};                                                               \
        uint64_t wrong = 0, wanted = ~(uint64_t) 1;                                             \
        uint8_t last[128 + PAD_READ];                                                           \
        uint32_t *end = ends;                                                                   \
        size_t k;                                                                               \
        if (n < 64)                                                                             \
            return split_simply(text, n, ends);                                                 \
        memset(last, ' ', sizeof(last));                                                        \
        memcpy(last, text + 64 * n_whole, n % 64);                                              \
        NAMED(classify)(text, before, now, &wrong);                                             \
        for (k = 0; k <= n_whole; k++) {                                                        \
            const uint8_t *block = k < n_whole ? text + 64 * k : last;                          \
            const uint8_t *behind = k + 1 < n_whole ? block + 64 : last + 64 * (k + 1 - n_whole); \
            uint64_t starts;                                                                    \
            NAMED(classify)(behind, now, next, &wrong);                                         \
            starts = find_starts(block, before, now, next, &carry);                             \
            if (k == n_whole)                                                                   \
                wanted = BIT(n % 64) - 1;                                                       \
            end = NAMED(write_ends)(end - carry.refuted, (uint32_t) (64 * k), starts & wanted); \
            wanted = ~(uint64_t) 0;                                                             \
            spare = before;                                                                     \
            before = now;                                                                       \
            now = next;                                                                         \
            next = spare;                                                                       \
        }                                                                                       \
        if (UNLIKELY(wrong))                                                                    \
            return split_simply(text, n, ends);         /* it says where */                     \
        *end++ = (uint32_t) n;                                                                  \
        return end - ends;                                                                      \
    }

DEFINE_SPLIT(NAMED(split_gpt2), gpt2_starts, split_gpt2)
DEFINE_SPLIT(NAMED(split_gpt4), gpt4_starts, split_gpt4)

#undef DEFINE_SPLIT

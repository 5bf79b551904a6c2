/* Splitting without a matcher, part three: blocks.h for each instruction set, and which of them this machine has.

   PORTABLE is plain C and always there. SSE2 is part of every x86-64. AVX2 and AVX-512 need a compiler that can use
   them in single functions, and are offered where the processor has them. */

#ifndef CBPE_ISA_H
#define CBPE_ISA_H

#include <string.h>

#include "masks.h"

#if defined(__SSE2__) || defined(_M_X64)
#define HAVE_SSE2
#include <emmintrin.h>
#if defined(__GNUC__) && defined(__x86_64__)
#define HAVE_AVX
#include <immintrin.h>
#endif
#endif

#define READ_BEHIND 3       /* how many bytes behind a block are read: the rest of a character, or of a contraction */

enum split_pattern { GPT2, GPT4 };

#define PORTABLE 0
#define SSE2 1
#define AVX2 2
#define AVX512 3

#define ISA PORTABLE
#define NAMED(x) x##_portable
#define TARGET
#include "blocks.h"
#undef ISA
#undef NAMED
#undef TARGET

#ifdef HAVE_SSE2
#define ISA SSE2
#define NAMED(x) x##_sse2
#define TARGET
#include "blocks.h"
#undef ISA
#undef NAMED
#undef TARGET
#endif

#ifdef HAVE_AVX
#define ISA AVX2
#define NAMED(x) x##_avx2
#define TARGET __attribute__((target("avx2,bmi,bmi2,popcnt")))
#include "blocks.h"
#undef ISA
#undef NAMED
#undef TARGET

#define ISA AVX512
#define NAMED(x) x##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vbmi2,avx2,bmi,bmi2,popcnt")))
#include "blocks.h"
#undef ISA
#undef NAMED
#undef TARGET
#endif

typedef struct {
    const char *name;
    int64_t (*gpt2)(const uint8_t *text, size_t n, uint32_t *ends);
    int64_t (*gpt4)(const uint8_t *text, size_t n, uint32_t *ends);
    int64_t (*cl100k)(const uint8_t *text, size_t n, uint32_t *ends);
    int64_t (*qwen2)(const uint8_t *text, size_t n, uint32_t *ends);
    int64_t (*nanochat)(const uint8_t *text, size_t n, uint32_t *ends);
    int (*classify)(const uint8_t *blocks, size_t n_blocks, struct masks *masks);       /* for tests, NULL for simple */
    uint32_t *(*write_ends)(uint32_t *ends, uint32_t base, uint64_t starts);            /* likewise */
} isa;

/* All that were compiled, the fastest last. */
static const isa ISAS[] = {
    {"simple", split_gpt2, split_gpt4, split_cl100k, split_qwen2, split_nanochat, NULL, NULL},
#define WAY(set) \
    {#set, split_gpt2_##set, split_gpt4_##set, split_cl100k_##set, split_qwen2_##set, split_nanochat_##set, \
     classify_all_##set, write_some_##set}
    WAY(portable),
#ifdef HAVE_SSE2
    WAY(sse2),
#endif
#ifdef HAVE_AVX
    WAY(avx2),
    WAY(avx512),
#endif
#undef WAY
};
#define N_ISAS (sizeof(ISAS) / sizeof(ISAS[0]))

/* Whether this machine has the instruction set: all that its TARGET names. */
static int isa_is_usable(const isa *way)
{
#ifdef HAVE_AVX
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")
               && __builtin_cpu_supports("popcnt");
    if (way->gpt4 == split_gpt4_avx2)
        return avx2;
    if (way->gpt4 == split_gpt4_avx512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
               && __builtin_cpu_supports("avx512vbmi2");
#endif
    (void) way;
    return 1;
}

#endif

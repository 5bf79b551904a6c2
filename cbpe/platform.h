/* What compilers and systems spell differently: a prefetch, a hint for huge pages, a load of eight bytes.
 *
 * Each has a portable fallback; none changes a result. */
#ifndef CBPE_PLATFORM_H
#define CBPE_PLATFORM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define cbpe_prefetch(address) __builtin_prefetch((address), 1, 3)
#define cbpe_prefetch_read(address) __builtin_prefetch((address), 0, 3)     /* leaves it shared between cores */
#else
#define cbpe_prefetch(address) ((void)(address))
#define cbpe_prefetch_read(address) ((void)(address))
#endif

/* Asks for huge pages on the whole 2 MB pages within memory that was allocated and not touched yet.
 * Random access to hundreds of megabytes is bound by TLB misses without them. */
static inline void cbpe_advise_huge(void *memory, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = (uintptr_t)1 << 21;
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t last = ((uintptr_t)memory + bytes) & ~(page - 1);
    if (last > first) {
        (void)madvise((void *)first, last - first, MADV_HUGEPAGE);
    }
#else
    (void)memory;
    (void)bytes;
#endif
}

/* Eight bytes at any address as one word, the first byte lowest: "abcdefgh" -> 0x6867666564636261. */
static inline uint64_t cbpe_load64(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* The inverse of cbpe_load64. */
static inline void cbpe_store64(uint8_t *bytes, uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(bytes, &word, 8);
}

#endif

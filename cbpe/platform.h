/* What compilers and systems spell differently: a prefetch, huge pages, a load of eight bytes.
 *
 * Each has a portable fallback; none changes a result. */
#ifndef CBPE_PLATFORM_H
#define CBPE_PLATFORM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
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

/* Memory that is all zero, for a table that is looked up at random: on Linux, from 2 MB on, in huge pages from its first
 * byte to its last. Of 4 MB that calloc finds anywhere, half may lie outside whole huge pages. NULL if there is none.
 * (Encoding 20 MB of many languages once more, its tables from calloc: 136 MB/s; from here: 151.) */
#if defined(__linux__) && defined(MADV_HUGEPAGE) && !defined(__SANITIZE_ADDRESS__)
#define CBPE_HUGE ((size_t)1 << 21)

static inline size_t cbpe_in_huge_pages(size_t bytes) { return (bytes + CBPE_HUGE - 1) & ~(CBPE_HUGE - 1); }

static inline void *cbpe_zeroed_pages(size_t bytes) {
    if (bytes < CBPE_HUGE) {
        return calloc(bytes, 1);
    }
    const size_t size = cbpe_in_huge_pages(bytes);
    char *mapped = mmap(NULL, size + CBPE_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        return NULL;
    }
    char *first = (char *)(((uintptr_t)mapped + CBPE_HUGE - 1) & ~(uintptr_t)(CBPE_HUGE - 1));
    if (first > mapped) {
        (void)munmap(mapped, (size_t)(first - mapped));
    }
    if (mapped + CBPE_HUGE > first) {
        (void)munmap(first + size, (size_t)(mapped + CBPE_HUGE - first));
    }
    (void)madvise(first, size, MADV_HUGEPAGE);
    return first;
}

static inline void cbpe_free_pages(void *memory, size_t bytes) {
    if (bytes < CBPE_HUGE) {
        free(memory);
    } else if (memory != NULL) {
        (void)munmap(memory, cbpe_in_huge_pages(bytes));
    }
}
#else
static inline void *cbpe_zeroed_pages(size_t bytes) { return calloc(bytes, 1); }

static inline void cbpe_free_pages(void *memory, size_t bytes) {
    (void)bytes;
    free(memory);
}
#endif

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

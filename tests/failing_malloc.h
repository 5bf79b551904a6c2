/* Allocations that fail on demand, to be preloaded (Linux with glibc): tests/test_faults.py compiles it.
 *
 * failing_arm(first, last) counts from now on the calls of malloc, calloc, realloc and mmap that cbpe's own modules make;
 * those numbered first to last, from 1 on, return no memory. failing_arm(0, 0): none. failing_calls(): how many there
 * were. Python's allocations and everybody else's go through. Meanwhile what cbpe maps begins a page behind a border
 * of large pages, as on systems that do not align it of themselves. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static struct {
    uintptr_t begin, end;
} modules[128];                 /* where cbpe's code lies */
static int n_modules;
static atomic_long calls, first, last;

static int look(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    (void)data;
    if (strstr(info->dlpi_name, "/cbpe/") == NULL) {
        return 0;
    }
    for (int i = 0; i < info->dlpi_phnum && n_modules < 128; i++) {
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            modules[n_modules].begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            modules[n_modules].end = modules[n_modules].begin + info->dlpi_phdr[i].p_memsz;
            n_modules++;
        }
    }
    return 0;
}

void failing_arm(long from, long to) {
    last = 0;
    n_modules = 0;
    dl_iterate_phdr(look, NULL);
    calls = 0;
    first = from;
    last = to;
}

long failing_calls(void) { return calls; }

static int fails(const void *caller) {
    const uintptr_t at = (uintptr_t)caller;
    for (int i = 0; last && i < n_modules; i++) {
        if (at >= modules[i].begin && at < modules[i].end) {
            const long n = atomic_fetch_add(&calls, 1) + 1;
            if (n >= first && n <= last) {
                errno = ENOMEM;
                return 1;
            }
            return 0;
        }
    }
    return 0;
}

void *malloc(size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }

void *calloc(size_t n, size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size); }

void *realloc(void *block, size_t n) { return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(block, n); }

#define PAGE ((size_t)4096)

void *mmap(void *at, size_t n, int protection, int flags, int descriptor, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (real == NULL) {
        real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    }
    const long before = calls;
    if (fails(__builtin_return_address(0))) {
        return MAP_FAILED;
    }
    if (calls == before || descriptor >= 0) {
        return real(at, n, protection, flags, descriptor, offset);
    }
    char *mapped = real(at, n + PAGE, protection, flags, descriptor, offset);
    if (mapped == MAP_FAILED) {
        return MAP_FAILED;
    }
    munmap(mapped, PAGE);
    return mapped + PAGE;
}

/* What mmap is called where files may be large. */
void *mmap64(void *at, size_t n, int protection, int flags, int descriptor, off_t offset)
    __attribute__((alias("mmap")));

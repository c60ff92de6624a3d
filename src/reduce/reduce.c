/* SPDX-License-Identifier: MIT */
/*
 * Names and sizes of types and operators, and the choice of a kernel.
 *
 * The choice is made once per process. Threads that race for it find the same answer, so a relaxed
 * store is enough: the tables themselves are constants.
 */
#include "reduce/reduce.h"

#include <stdatomic.h>

#include "reduce/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

struct reduce_dtype_row {
    size_t bytes;
    const char *name;
};

#define DTYPE_ROW(name, number, bytes, word) [number] = {bytes, word},
static const struct reduce_dtype_row dtype_rows[JACKAL_DTYPE_COUNT] = {
    JACKAL_DTYPE_TABLE(DTYPE_ROW)};

#define OP_ROW(name, number, word) [number] = word,
static const char *const op_names[JACKAL_OP_COUNT] = {JACKAL_OP_TABLE(OP_ROW)};

static bool is_dtype(jackal_dtype dtype) {
    return dtype >= 0 && dtype < JACKAL_DTYPE_COUNT;
}

static bool is_op(jackal_op op) {
    return op >= 0 && op < JACKAL_OP_COUNT;
}

size_t reduce_dtype_bytes(jackal_dtype dtype) {
    return is_dtype(dtype) ? dtype_rows[dtype].bytes : 0;
}

const char *reduce_dtype_name(jackal_dtype dtype) {
    return is_dtype(dtype) ? dtype_rows[dtype].name : NULL;
}

const char *reduce_op_name(jackal_op op) {
    return is_op(op) ? op_names[op] : NULL;
}

static bool always(void) {
    return true;
}

#if defined(__x86_64__)

/* __builtin_cpu_supports() includes whether the system saves the wide registers. */
static bool has_avx2(void) {
    unsigned int eax, ebx, ecx, edx;
    /* Not every compiler's __builtin_cpu_supports() knows f16c. */
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_F16C))
        return false;
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

#endif

struct reduce_isa {
    const char *name;
    const struct reduce_table *table;
    bool (*available)(void);
};

static const struct reduce_isa isas[] = {
    {"portable", &reduce_table_portable, always},
#if defined(__x86_64__)
    {"avx2", &reduce_table_avx2, has_avx2},
    {"avx512", &reduce_table_avx512, has_avx512},
#elif defined(__aarch64__)
    {"neon", &reduce_table_neon, always},
#endif
};

size_t reduce_isa_count(void) {
    return sizeof isas / sizeof isas[0];
}

const char *reduce_isa_name(size_t isa) {
    return isa < reduce_isa_count() ? isas[isa].name : NULL;
}

bool reduce_isa_available(size_t isa) {
    return isa < reduce_isa_count() && isas[isa].available();
}

size_t reduce_isa_best(void) {
    /* One more than the number, so that 0 says "not looked yet". */
    static atomic_size_t found;
    size_t best = atomic_load_explicit(&found, memory_order_relaxed);
    if (best == 0) {
        best = reduce_isa_count();
        while (!isas[best - 1].available())
            best--;
        atomic_store_explicit(&found, best, memory_order_relaxed);
    }
    return best - 1;
}

reduce_kernel reduce_find_isa(jackal_dtype dtype, jackal_op op, size_t isa) {
    if (!is_dtype(dtype) || !is_op(op) || !reduce_isa_available(isa))
        return NULL;
    return isas[isa].table->kernels[dtype][op];
}

reduce_kernel reduce_find(jackal_dtype dtype, jackal_op op) {
    if (!is_dtype(dtype) || !is_op(op))
        return NULL;
    return isas[reduce_isa_best()].table->kernels[dtype][op];
}

jackal_status reduce_apply(jackal_dtype dtype, jackal_op op, void *dst, const void *const *srcs,
                           size_t n_srcs, size_t count) {
    reduce_kernel kernel = reduce_find(dtype, op);
    if (!kernel || n_srcs == 0)
        return JACKAL_ERR_ARGUMENT;
    kernel(dst, srcs, n_srcs, count);
    return JACKAL_OK;
}

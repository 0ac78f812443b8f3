#include "common.h"
#include "table.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif
#define ISA avx512
#define VECTOR_BYTES 64
#define TILE_ROWS 12
#include "isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

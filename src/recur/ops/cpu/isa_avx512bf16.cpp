// AVX-512 with products of bfloat16 and of 8-bit weights.
#include "common.h"
#include "table.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx512vnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512bf16,avx512vnni,avx2,fma")
#endif
#define ISA avx512bf16
#define VECTOR_BYTES 64
#define TILE_ROWS 12
#define DOT_BFLOAT16
#define DOT_INT
#include "isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

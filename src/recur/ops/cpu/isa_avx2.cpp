#include "common.h"
#include "table.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define ISA avx2
#define VECTOR_BYTES 32
#define TILE_ROWS 6
#include "isa.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

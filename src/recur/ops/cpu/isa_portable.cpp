// Any machine: vectors of 16 bytes, which SSE2 and NEON have and the compiler can do without.
#include "common.h"
#include "table.h"

#define ISA portable
#define VECTOR_BYTES 16
#define TILE_ROWS 6
#include "isa.h"

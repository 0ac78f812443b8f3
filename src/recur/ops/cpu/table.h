// What one instruction set offers for a form of numbers: one of core.h's.
#pragma once

#include "core.h"

struct Entries {
    int64_t (*workspace_bytes)(const Scan*, int backward);
    int64_t (*packed_bytes)(const Scan*);
    void (*pack)(const Scan*);
    void (*forward)(const Scan*);
    void (*backward)(const Scan*);
    int64_t (*grid_workspace_bytes)(const Grid*, int backward);
    void (*grid_forward)(const Grid*);
    void (*grid_backward)(const Grid*);
    void (*staged)(const Staged*);
};

namespace portable { Entries entries(int numbers); }
namespace avx2 { Entries entries(int numbers); }
namespace avx512 { Entries entries(int numbers); }
namespace avx512bf16 { Entries entries(int numbers); }

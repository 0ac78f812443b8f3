// What one instruction set offers, by dtype: float, then double.
#pragma once

#include "core.h"

struct Table {
    int64_t (*workspace_bytes[2])(const Scan*, int backward);
    int64_t (*packed_bytes[2])(const Scan*);
    void (*pack[2])(const Scan*);
    void (*forward[2])(const Scan*);
    void (*backward[2])(const Scan*);
    int64_t (*grid_workspace_bytes[2])(const Grid*, int backward);
    void (*grid_forward[2])(const Grid*);
    void (*grid_backward[2])(const Grid*);
};

namespace portable { Table table(); }
namespace avx2 { Table table(); }
namespace avx512 { Table table(); }

// What one instruction set offers, by dtype: float, then double.
#pragma once

#include "core.h"

struct Table {
    int64_t (*workspace_bytes[2])(const Scan*, int backward);
    int64_t (*packed_bytes[2])(const Scan*);
    void (*pack[2])(const Scan*);
    void (*forward[2])(const Scan*);
    void (*backward[2])(const Scan*);
};

namespace portable { Table table(); }
namespace avx2 { Table table(); }
namespace avx512 { Table table(); }

// What one instruction set offers, by dtype: float, then double.
#pragma once

#include "core.h"

struct Table {
    int64_t (*bytes[2])(const Scan*, int way_back);
    void (*forward[2])(const Scan*);
    void (*backward[2])(const Scan*);
};

namespace portable { Table table(); }
namespace avx2 { Table table(); }
namespace avx512 { Table table(); }

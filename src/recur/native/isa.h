// One instruction set: everything below it compiled for it, in a namespace of its own.
//
// The including file sets ISA, VECTOR_BYTES and TILE_ROWS, after common.h and under its own target flags.

namespace ISA {
#include "vector.h"

#include "tile.h"

#include "pack.h"

#include "product.h"

#include "interpreter.h"

#include "frame.h"

#include "forward.h"

#include "backward.h"

template <typename T> int64_t bytes(const Scan* s, int way_back) { return Frame<T>(*s, way_back != 0).used; }

struct Table table() {
    return {{bytes<float>, bytes<double>},
            {[](const Scan* s) { Forward<float>(*s).run(); }, [](const Scan* s) { Forward<double>(*s).run(); }},
            {[](const Scan* s) { Backward<float>(*s).run(); }, [](const Scan* s) { Backward<double>(*s).run(); }}};
}
}  // namespace ISA

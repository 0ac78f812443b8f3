// One instruction set: everything below is compiled for it, in a namespace of its own.
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

#include "grid.h"

template <typename T> int64_t workspace_bytes(const Scan* s, int backward) { return Frame<T>(*s, backward != 0).used; }
template <typename T> int64_t packed_bytes(const Scan* s) {
    Scan asked = *s;
    asked.workspace = nullptr;
    asked.packed = &asked;  // any address: only the distance from it counts
    return Frame<T>(asked, false).packed_used;
}
template <typename T> void pack(const Scan* s) {
    const Forward<T> scan(*s);
    prefer_large_pages(s->packed, scan.packed_used);  // read at every step from then on
    scan.pack();
}
template <typename T> void forward(const Scan* s) { Forward<T>(*s).run(); }
template <typename T> void backward(const Scan* s) { Backward<T>(*s).run(); }

template <typename T> int64_t grid_workspace_bytes(const Grid* g, int backward) {
    return GridFrame<T>(*g, backward != 0).used;
}
template <typename T> void grid_forward(const Grid* g) { GridForward<T>(*g).run(); }
template <typename T> void grid_backward(const Grid* g) { GridBackward<T>(*g).run(); }

struct Table table() {
    return {{workspace_bytes<float>, workspace_bytes<double>},
            {packed_bytes<float>, packed_bytes<double>},
            {pack<float>, pack<double>},
            {forward<float>, forward<double>},
            {backward<float>, backward<double>},
            {grid_workspace_bytes<float>, grid_workspace_bytes<double>},
            {grid_forward<float>, grid_forward<double>},
            {grid_backward<float>, grid_backward<double>}};
}
}  // namespace ISA

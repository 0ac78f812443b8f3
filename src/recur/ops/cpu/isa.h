// All code for one instruction set, in its own namespace.
//
// The including file defines ISA, VECTOR_BYTES and TILE_ROWS, after common.h and under its target flags.

namespace ISA {
#include "vector.h"

#include "formats.h"

#include "quantised.h"

#include "tile.h"

#include "pack.h"

#include "product.h"

#include "interpreter.h"

#include "frame.h"

#include "forward.h"

#include "backward.h"

#include "affine.h"

#include "grid.h"

#include "stages.h"

template <typename P> int64_t workspace_bytes(const Scan* s, int backward) { return Frame<P>(*s, backward != 0).used; }
template <typename P> int64_t packed_bytes(const Scan* s) {
    Scan asked = *s;
    asked.workspace = nullptr;
    asked.packed = &asked;  // any address: only the distance from it counts
    return Frame<P>(asked, false).packed_used;
}
template <typename P> void pack(const Scan* s) {
    const Forward<P> scan(*s);
    prefer_large_pages(s->packed, scan.packed_used);  // read at every step from then on
    scan.pack();
}
template <typename P> void forward(const Scan* s) { s->along_time ? AffineForward<P>(*s).run() : Forward<P>(*s).run(); }
template <typename P> void backward(const Scan* s) {
    if constexpr (std::is_same_v<P, Quantised>)
        throw std::invalid_argument("weights of 8 bits have no backward pass");
    else
        s->along_time ? AffineBackward<P>(*s).run() : Backward<P>(*s).run();
}

template <typename T> int64_t grid_workspace_bytes(const Grid* g, int backward) {
    return GridFrame<T>(*g, backward != 0).used;
}
template <typename T> void grid_forward(const Grid* g) { GridForward<T>(*g).run(); }
template <typename T> void grid_backward(const Grid* g) { GridBackward<T>(*g).run(); }

template <typename T> void staged(const Staged* s) { StagedScan<T>(*s).run(); }

template <typename P> Entries entries() {
    using T = Sum<P>;  // grids read their numbers as they are
    return {workspace_bytes<P>, packed_bytes<P>, pack<P>, forward<P>, backward<P>,
            grid_workspace_bytes<T>, grid_forward<T>, grid_backward<T>, staged<T>};
}
Entries entries(int numbers) {
    if (numbers == RECUR_FLOAT64) return entries<double>();
    if (numbers == RECUR_BFLOAT16) return entries<Rounded>();
    if (numbers == RECUR_INT8) return entries<Quantised>();
    return entries<float>();
}
}  // namespace ISA

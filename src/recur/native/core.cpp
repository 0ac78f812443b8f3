// The door: chooses the code for an instruction set.
#include "core.h"

#include "common.h"
#include "table.h"

namespace {
enum { portable_isa, avx2_isa, avx512_isa };

int best() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return avx512_isa;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_isa;
#endif
    return portable_isa;
}

// Only the table that is asked for: even building another one may need instructions that this machine lacks.
Table table(int isa) {
#if defined(__x86_64__)
    if (isa == avx512_isa) return avx512::table();
    if (isa == avx2_isa) return avx2::table();
#endif
    (void)isa;
    return portable::table();
}
}  // namespace

extern "C" {
int recur_best_isa() { return best(); }
const char* recur_operations() { return OPERATIONS(AS_TEXT); }
const char* recur_places() { return PLACES(AS_TEXT); }

int64_t recur_workspace_bytes(const Scan* s, int isa, int is_double, int backward) {
    return table(isa).bytes[is_double](s, backward);
}
void recur_forward(const Scan* s, int isa, int is_double) { table(isa).forward[is_double](s); }
void recur_stack(const Scan* const* scans, int64_t count, int isa, int is_double) {
    const auto forward = table(isa).forward[is_double];
    for (int64_t k = 0; k < count; ++k) forward(scans[k]);
}
void recur_backward(const Scan* s, int isa, int is_double) { table(isa).backward[is_double](s); }
}

// The entry points: each chooses the code for an instruction set, and turns exceptions into a status.
#include "core.h"

#include <cstdio>
#include <exception>
#include <new>

#include "common.h"
#include "table.h"

#ifndef RECUR_SOURCES
#define RECUR_SOURCES ""  // built by hand
#endif

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

thread_local char message[200];

int fail(Status status, const char* what) noexcept {
    std::snprintf(message, sizeof message, "%s", what);
    return status;
}

// ctypes knows no C++ exceptions: one that reached it would end the process.
template <typename F> int status_of(F run) noexcept {
    try {
        run();
        return RECUR_OK;
    } catch (const std::bad_alloc& error) {
        return fail(RECUR_OUT_OF_MEMORY, error.what());
    } catch (const std::exception& error) {
        return fail(RECUR_FAILED, error.what());
    } catch (...) {
        return fail(RECUR_FAILED, "an exception that is no std::exception");
    }
}
}  // namespace

extern "C" {
int recur_best_isa() { return best(); }
const char* recur_sources() { return RECUR_SOURCES; }
int64_t recur_scan_bytes() { return sizeof(Scan); }
int64_t recur_grid_bytes() { return sizeof(Grid); }
const char* recur_operations() { return OPERATIONS(AS_TEXT); }
const char* recur_places() { return PLACES(AS_TEXT); }
const char* recur_error() { return message; }

int recur_workspace_bytes(const Scan* s, int isa, int is_double, int backward, int64_t* bytes) {
    return status_of([&] { *bytes = table(isa).workspace_bytes[is_double](s, backward); });
}
int recur_packed_bytes(const Scan* s, int isa, int is_double, int64_t* bytes) {
    return status_of([&] { *bytes = table(isa).packed_bytes[is_double](s); });
}
int recur_pack(const Scan* s, int isa, int is_double) {
    return status_of([&] { table(isa).pack[is_double](s); });
}
int recur_forward(const Scan* s, int isa, int is_double) {
    return status_of([&] { table(isa).forward[is_double](s); });
}
int recur_stack(const Scan* const* scans, int64_t count, int isa, int is_double) {
    return status_of([&] {
        const auto forward = table(isa).forward[is_double];
        for (int64_t k = 0; k < count; ++k) forward(scans[k]);
    });
}
int recur_backward(const Scan* s, int isa, int is_double) {
    return status_of([&] { table(isa).backward[is_double](s); });
}
int recur_grid_workspace_bytes(const Grid* g, int isa, int is_double, int backward, int64_t* bytes) {
    return status_of([&] { *bytes = table(isa).grid_workspace_bytes[is_double](g, backward); });
}
int recur_grid_forward(const Grid* g, int isa, int is_double) {
    return status_of([&] { table(isa).grid_forward[is_double](g); });
}
int recur_grid_backward(const Grid* g, int isa, int is_double) {
    return status_of([&] { table(isa).grid_backward[is_double](g); });
}
}

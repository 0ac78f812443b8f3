// Entry points of the library: each calls the code of one instruction set and turns exceptions into a status.
#include "core.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <vector>

#include "common.h"
#include "table.h"

#ifndef RECUR_SOURCES
#define RECUR_SOURCES ""  // built by hand
#endif

namespace {
enum { portable_isa, avx2_isa, avx512_isa, avx512bf16_isa };

int best() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl"))
        return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") ? avx512bf16_isa
                                                                                            : avx512_isa;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_isa;
#endif
    return portable_isa;
}

// Only those that are asked for: even naming another's may need instructions that this machine lacks.
Entries entries(int isa, int numbers) {
#if defined(__x86_64__)
    if (isa == avx512bf16_isa) return avx512bf16::entries(numbers);
    if (isa == avx512_isa) return avx512::entries(numbers);
    if (isa == avx2_isa) return avx2::entries(numbers);
#endif
    (void)isa;
    return portable::entries(numbers);
}

thread_local char message[200];

int fail(Status status, const char* what) noexcept {
    std::snprintf(message, sizeof message, "%s", what);
    return status;
}

// ctypes cannot handle C++ exceptions: one that reached it would end the process.
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
// As aligned as tensors are.
struct Scratch {
    static constexpr auto alignment = std::align_val_t(64);
    void* const memory;

    explicit Scratch(int64_t bytes) : memory(bytes ? ::operator new(bytes, alignment) : nullptr) {}
    ~Scratch() { ::operator delete(memory, alignment); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};
}  // namespace

extern "C" {
int recur_best_isa() { return best(); }
const char* recur_sources() { return RECUR_SOURCES; }
int64_t recur_scan_bytes() { return sizeof(Scan); }
int64_t recur_grid_bytes() { return sizeof(Grid); }
const char* recur_operations() { return OPERATIONS(AS_TEXT); }
const char* recur_places() { return PLACES(AS_TEXT); }
const char* recur_error() { return message; }

int recur_workspace_bytes(const Scan* s, int isa, int numbers, int backward, int64_t* bytes) {
    return status_of([&] { *bytes = entries(isa, numbers).workspace_bytes(s, backward); });
}
int recur_packed_bytes(const Scan* s, int isa, int numbers, int64_t* bytes) {
    return status_of([&] { *bytes = entries(isa, numbers).packed_bytes(s); });
}
int recur_pack(const Scan* s, int isa, int numbers) {
    return status_of([&] { entries(isa, numbers).pack(s); });
}
void recur_bind(const Prepared* p, const int64_t* addresses, void* scratch, int64_t* words) {
    std::copy_n(p->words, p->count, words);
    const int64_t own = reinterpret_cast<int64_t>(words), scratch_at = reinterpret_cast<int64_t>(scratch);
    for (const Binding* b = p->bindings; b != p->bindings + p->bound; ++b) {
        const int64_t at = b->tensor == RECUR_OWN ? own : b->tensor == RECUR_SCRATCH ? scratch_at : addresses[b->tensor];
        words[b->word] = at + b->offset;
    }
}
int recur_run(const Prepared* calls, int64_t count, const int64_t* addresses) {
    return status_of([&] {
        std::vector<int64_t> words;
        for (const Prepared* p = calls; p != calls + count; ++p) {
            words.resize(p->count);
            const Scratch scratch(p->scratch);
            recur_bind(p, addresses, scratch.memory, words.data());
            const Entries found = entries(int(p->isa), int(p->numbers));
            (p->backward ? found.backward : found.forward)(reinterpret_cast<const Scan*>(words.data()));
        }
    });
}
int recur_staged(const Staged* s, int isa, int double_numbers) {
    return status_of([&] { entries(isa, double_numbers).staged(s); });
}
int recur_grid_workspace_bytes(const Grid* g, int isa, int numbers, int backward, int64_t* bytes) {
    return status_of([&] { *bytes = entries(isa, numbers).grid_workspace_bytes(g, backward); });
}
int recur_grid_forward(const Grid* g, int isa, int numbers) {
    return status_of([&] { entries(isa, numbers).grid_forward(g); });
}
int recur_grid_backward(const Grid* g, int isa, int numbers) {
    return status_of([&] { entries(isa, numbers).grid_backward(g); });
}
}

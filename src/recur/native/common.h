// What does not depend on the instruction set: memory, threads, and the names of operations and places.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core.h"

// Python reads these lists by name when it loads the library, so their order is no one else's business.
#define OPERATIONS(X) \
    X(copy) X(neg) X(add) X(sub) X(mul) X(div) X(multiply_add) X(multiply_sub) X(sub_multiply) X(relu) X(sigmoid) X(sigmoid_sum) \
    X(tanh) X(tanh_sum) X(d_sigmoid) X(d_tanh) X(exp) X(log) X(log1p) X(expm1) X(sqrt) X(sin) X(cos) X(erf) X(abs) X(sign) \
    X(less) X(less_equal) X(equal) X(select) X(minimum) X(maximum) X(sum)
#define PLACES(X) \
    X(temp) X(constant) X(extra) X(share) X(kept) X(product) X(before) X(after) X(d_after) X(d_share) X(d_product) \
    X(d_before) X(sum)
#define AS_NAME(name) name,
#define AS_TEXT(name) #name " "

// A piece of memory handed out from its start. A copy hands out from where the original stood.
class Arena {
  public:
    explicit Arena(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}
    template <typename T> T* take(long count) {
        used_ = (used_ + 63) / 64 * 64;
        T* at = reinterpret_cast<T*>(base_ + used_);
        used_ += long(sizeof(T)) * count;
        return at;
    }
    long used() const { return used_ + 64; }

  private:
    std::uintptr_t base_;
    long used_ = 0;
};

// Large pages for large memory that was not touched yet: a fresh page costs about as much as filling it.
inline void prefer_large_pages(void* memory, long bytes) {
#if defined(__linux__)
    const std::uintptr_t page = 2 << 20, at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t from = (at + page - 1) / page * page, to = (at + bytes) / page * page;
    if (memory && to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

// Parts of a job, each taken by whichever thread comes first: right for any number of threads that turn up.
struct Parts {
    std::atomic<long> next{0};
    long count;
    void (*call)(void*, long);
    void* work;

    static void take(void* self) {
        Parts& parts = *static_cast<Parts*>(self);
        for (long p; (p = parts.next.fetch_add(1)) < parts.count;) parts.call(parts.work, p);
    }
};

// On torch's own threads where they were found: a second pool on the same cores would fight with it.
template <typename F> void run_parallel(const Scan& s, long count, F& work) {
    if (count <= 1) {
        for (long p = 0; p < count; ++p) work(p);
        return;
    }
    Parts parts;
    parts.count = count;
    parts.call = [](void* work, long p) { (*static_cast<F*>(work))(p); };
    parts.work = &work;
    if (s.parallel) {
        s.parallel(Parts::take, &parts, unsigned(count), 0);
        return;
    }
    std::vector<std::thread> others;
    for (long p = 1; p < count; ++p) others.emplace_back(Parts::take, &parts);
    Parts::take(&parts);
    for (std::thread& other : others) other.join();
}

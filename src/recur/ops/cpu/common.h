// Code that does not depend on the instruction set: memory, and the names of operations and operands.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core.h"
#include "threads.h"

// Python reads these lists by name when it loads the library, so the order is free. The names are those of its assembler.
#define OPERATIONS(X) \
    X(copy) X(neg) X(add) X(sub) X(mul) X(div) X(multiply_add) X(multiply_sub) X(sub_multiply) X(relu) X(sigmoid) \
    X(sigmoid_sum) X(tanh) X(tanh_sum) X(d_sigmoid) X(d_tanh) X(exp) X(log) X(log1p) X(expm1) X(sqrt) X(sin) X(cos) \
    X(erf) X(atan) X(floor) X(round) X(pow) X(remainder) X(abs) X(sign) X(less) X(less_equal) X(equal) X(select) \
    X(minimum) X(maximum) X(sum) X(scan_state) X(scan_back_state) X(scan_factor) X(shift)
#define PLACES(X) \
    X(temp) X(constant) X(extra) X(share) X(saved) X(product) X(before) X(after) X(d_after) X(d_share) X(d_product) \
    X(d_before) X(d_state) X(sum) X(xi) X(value)
#define AS_NAME(name) name,
#define AS_TEXT(name) #name " "

// Bump allocator. A copy continues at the position of the original. With a null pointer it only counts the memory.
class Arena {
  public:
    explicit Arena(void* base) : base_(reinterpret_cast<std::uintptr_t>(base)) {}

    // Memory for count · factors… numbers; std::bad_alloc where their bytes do not fit into a long.
    template <typename T, typename... Factors> T* take(long count, Factors... factors) {
        bool overflow = __builtin_add_overflow(used_, 63, &used_);
        used_ = used_ / 64 * 64;
        T* at = reinterpret_cast<T*>(base_ + used_);
        for (const long factor : {long(sizeof(T)), long(factors)...})
            overflow = __builtin_mul_overflow(count, factor, &count) || overflow;
        if (overflow || __builtin_add_overflow(used_, count, &used_)) throw std::bad_alloc();
        return at;
    }
    long used() const { return used_ + 64; }

  private:
    std::uintptr_t base_;
    long used_ = 0;
};

// Ask for large pages for memory that was not touched yet: a page fault costs about as much as filling the page.
inline void prefer_large_pages(void* memory, long bytes) {
#if defined(__linux__)
    const std::uintptr_t page = 2 << 20, at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t from = (at + page - 1) / page * page, to = (at + bytes) / page * page;
    if (memory && to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}

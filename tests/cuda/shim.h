// What a kernel's text needs of CUDA, for a compiler of the CPU: CTAs one after the other, their threads as fibers of one
// thread, which take turns where they wait for each other. All of a CTA pass the same barriers, so a turn is a barrier.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <ucontext.h>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__
#define __align__(bytes)
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
static Index threadIdx, blockIdx, blockDim, gridDim;
static ucontext_t scheduler, fibers[1024];

static void __syncthreads() {
    const unsigned t = threadIdx.x;
    swapcontext(&fibers[t], &scheduler);
}

template <typename T> T shuffled(T value, unsigned from) {
    static T passed[1024];
    passed[threadIdx.x] = value;
    __syncthreads();
    const T found = passed[from];
    __syncthreads();
    return found;
}
template <typename T> T __shfl_up_sync(unsigned, T value, unsigned lanes) {
    return shuffled(value, threadIdx.x % 32 >= lanes ? threadIdx.x - lanes : threadIdx.x);
}
template <typename T> T __shfl_xor_sync(unsigned, T value, unsigned lanes) { return shuffled(value, threadIdx.x ^ lanes); }

struct uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
alignas(128) static unsigned char memory[1 << 20];
template <typename T> T __ldg(const T* at) { return *at; }
static void __threadfence() {}
static unsigned long __cvta_generic_to_shared(const void*) { return 0; }
static unsigned atomicAdd(unsigned* at, unsigned more) { return (*at += more) - more; }
static float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }

using std::min;

static void (*entry)(void*);
static void* of_entry;
static std::vector<bool> running;
static void fiber() {
    entry(of_entry);
    running[threadIdx.x] = false;
}

template <typename Kernel> void launch(Kernel kernel, unsigned grid, unsigned threads, bool meets) {
    constexpr int STACK = 1 << 17;
    static std::unique_ptr<char[]> stacks(new char[1024l * STACK]);
    entry = [](void* k) { (*static_cast<Kernel*>(k))(); };
    of_entry = &kernel, blockDim.x = threads, gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        if (!meets) {
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
            continue;
        }
        running.assign(threads, true);
        for (unsigned t = 0; t < threads; ++t) {
            getcontext(&fibers[t]);
            fibers[t].uc_stack.ss_sp = stacks.get() + long(t) * STACK, fibers[t].uc_stack.ss_size = STACK;
            fibers[t].uc_link = &scheduler;
            makecontext(&fibers[t], fiber, 0);
        }
        for (bool more = true; more;) {
            more = false;
            for (unsigned t = 0; t < threads; ++t)
                if (running[t]) threadIdx.x = t, swapcontext(&scheduler, &fibers[t]), more |= running[t];
        }
    }
}

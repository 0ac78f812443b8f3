// What a kernel's text needs of CUDA, for a compiler of the CPU: CTAs one after the other, their threads as fibers of one
// thread, which take turns where they wait for each other. All of a CTA pass the same barriers, so a turn is a barrier.
// Few headers, since every kernel is compiled with them; turns by longjmp, since swapcontext calls the system each time.
#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
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
static jmp_buf scheduler, fibers[1024];

static void __syncthreads() {
    if (!_setjmp(fibers[threadIdx.x])) _longjmp(scheduler, 1);
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

template <typename T> constexpr T min(T a, T b) { return b < a ? b : a; }

static void (*entry)(void*);
static void* of_entry;
static bool running[1024];
static void fiber() {
    entry(of_entry);
    running[threadIdx.x] = false;
    _longjmp(scheduler, 1);
}
static void begin(char* stack, long size) {
    static ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = stack, context.uc_stack.ss_size = size, context.uc_link = nullptr;
    makecontext(&context, fiber, 0);
    if (!_setjmp(scheduler)) setcontext(&context);
}
static void resume(unsigned t) {
    if (!_setjmp(scheduler)) _longjmp(fibers[t], 1);
}

template <typename Kernel> void launch(Kernel kernel, unsigned grid, unsigned threads, bool meets) {
    constexpr int STACK = 1 << 17;
    static char* const stacks = static_cast<char*>(std::malloc(1024l * STACK));
    entry = [](void* k) { (*static_cast<Kernel*>(k))(); };
    of_entry = &kernel, blockDim.x = threads, gridDim.x = grid;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        if (!meets) {
            for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) kernel();
            continue;
        }
        std::memset(running, true, threads);
        for (unsigned t = 0; t < threads; ++t) threadIdx.x = t, begin(stacks + long(t) * STACK, STACK);
        for (bool more = true; more;) {
            more = false;
            for (unsigned t = 0; t < threads; ++t)
                if (running[t]) threadIdx.x = t, resume(t), more |= running[t];
        }
    }
}

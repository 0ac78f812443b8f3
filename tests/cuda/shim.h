// What a kernel's text needs of CUDA, for a compiler of the CPU: CTAs one after the other, their threads as threads
// where they wait for each other.
#include <barrier>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__
#define __launch_bounds__(...)

struct Index {
    unsigned x;
};
static thread_local Index threadIdx;
static Index blockIdx, blockDim;
static std::barrier<>* meeting;

static void __syncthreads() { meeting->arrive_and_wait(); }

template <typename T> T __shfl_up_sync(unsigned, T value, unsigned lanes) {
    static double passed[1024];
    const unsigned t = threadIdx.x;
    passed[t] = value;
    __syncthreads();
    const T found = T(passed[t % 32 >= lanes ? t - lanes : t]);
    __syncthreads();
    return found;
}

template <typename Kernel> void launch(Kernel kernel, unsigned grid, unsigned threads, bool meets) {
    blockDim.x = threads;
    std::barrier<> all(threads);
    meeting = &all;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {
        const auto run = [&](unsigned t) { threadIdx.x = t, kernel(); };
        std::vector<std::thread> others;
        for (unsigned t = 0; t < threads; ++t)
            if (meets)
                others.emplace_back(run, t);
            else
                run(t);
        for (std::thread& other : others) other.join();
    }
}

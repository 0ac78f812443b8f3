// Many launches on a GPU in one call: Python needs about ten microseconds for each launch, this code a few for all.
//
// Nothing of CUDA is linked: the functions of the driver and of cuBLASLt come as addresses. launches.py and per_step.py
// hold the Python half of each struct; tests compare the sizes.
#include <cstdint>
#include <cstring>

namespace {
constexpr int64_t most_bytes = 4096;  // limit of a kernel's arguments
constexpr int too_many = 1;           // CUDA_ERROR_INVALID_VALUE

struct Config {  // CUlaunchConfig
    uint32_t grid[3], block[3], shared;
    void* stream;
    void* attributes;
    uint32_t count;
};

struct Product {                // C = A B in row-major order; for cuBLAS, which is column-major, Cᵀ = Bᵀ Aᵀ
    void *how, *left, *right, *out;
    uint64_t algorithms[2][8];  // for matrices aligned to 16 bytes, and for others
    uint64_t one, beta;         // each a float or a double
};

struct Where {
    int64_t address, offset;    // index into a call's addresses, and an offset in bytes
};

struct Launch {
    const Product* product;     // null for a kernel
    Where a, b, c;
    void* kernel;
    const Config* config;
    const char* numbers;        // start of its argument struct, followed by pointers
    int64_t bytes;
    const int32_t* pointers;    // index into a call's addresses for each pointer; negative: null
    int64_t count;
};

struct Library {
    int (*launch)(const Config*, void* kernel, void** arguments, void** extra);
    int (*multiply)(void* handle, void* how, const void* one, const void* left, void* left_how, const void* right,
                    void* right_how, const void* beta, const void* from, void* from_how, void* to, void* to_how,
                    const void* algorithm, void* workspace, uint64_t bytes, void* stream);
    void* handle;
};

struct Steps {
    void* kernel;
    Config config;
    void* clip;                 // null, or the kernel that clips the gradient of a step
    Config clip_config;
    uint64_t bound;             // second argument of clip
    char* arguments;            // argument struct of both kernels; the fields at these offsets change:
    int64_t step, rows, later, product;
    const Product* products;    // matmuls with W for at most product_rows rows, the fewest first
    const int64_t* product_rows;
    int64_t product_count;
    const int32_t* taken;       // number of rows of each step
    int64_t steps, H;
    int64_t backward, started;  // started: there is an initial state
    int64_t a, b, c, workspace, workspace_bytes;
};

template <typename T> T* pointer(int64_t address) { return reinterpret_cast<T*>(address); }

int multiply(const Library& with, const Product& p, int64_t a, int64_t b, int64_t c, int64_t workspace, int64_t bytes,
             void* stream) {
    static constexpr uint64_t none[8] = {};
    const uint64_t* chosen = p.algorithms[((a | b | c) & 15) != 0];
    const bool known = std::memcmp(chosen, none, sizeof none) != 0;
    return with.multiply(with.handle, p.how, &p.one, pointer<void>(b), p.left, pointer<void>(a), p.right, &p.beta,
                         pointer<void>(c), p.out, pointer<void>(c), p.out, known ? chosen : nullptr,
                         pointer<void>(workspace), uint64_t(bytes), stream);
}

int launch(const Library& with, const Launch& it, const int64_t* addresses, void* stream) {
    alignas(16) char memory[most_bytes];
    if (it.bytes + 8 * it.count > most_bytes) return too_many;
    std::memcpy(memory, it.numbers, it.bytes);
    for (int64_t k = 0; k < it.count; ++k) {
        const int64_t address = it.pointers[k] < 0 ? 0 : addresses[it.pointers[k]];
        std::memcpy(memory + it.bytes + 8 * k, &address, 8);
    }
    Config config = *it.config;
    config.stream = stream;
    void* arguments[] = {memory};
    return with.launch(&config, it.kernel, arguments, nullptr);
}

void put(const Steps& s, int64_t at, int32_t number) { std::memcpy(s.arguments + at, &number, sizeof number); }
void put_product(const Steps& s, int64_t address) { std::memcpy(s.arguments + s.product, &address, sizeof address); }

int multiply_state(const Library& with, const Steps& s, int64_t rows, void* stream) {
    int64_t k = 0;
    while (s.product_rows[k] < rows) ++k;
    return multiply(with, s.products[k], s.a, s.b, s.c, s.workspace, s.workspace_bytes, stream);
}

int launch_step(const Library& with, const Steps& s, int64_t rows, void* stream) {
    Config config = s.config;
    config.grid[0] = uint32_t((rows * s.H + config.block[0] - 1) / config.block[0]);
    config.stream = stream;
    void* arguments[] = {s.arguments};
    return with.launch(&config, s.kernel, arguments, nullptr);
}

int launch_clip(const Library& with, const Steps& s, int64_t rows, void* stream) {
    Config config = s.clip_config;
    config.grid[0] = uint32_t(rows);
    config.stream = stream;
    uint64_t bound = s.bound;
    void* arguments[] = {s.arguments, &bound};
    return with.launch(&config, s.clip, arguments, nullptr);
}
}  // namespace

extern "C" {
int64_t recur_launch_bytes() { return sizeof(Launch); }
int64_t recur_steps_bytes() { return sizeof(Steps); }

// Make all launches. Returns 0, or the status of the first launch that failed, whose index is written to `at`.
int recur_launch(const Library* with, const Launch* all, int64_t count, const int64_t* addresses, int64_t workspace,
                 int64_t bytes, void* stream, int64_t* at) {
    for (*at = 0; *at < count; ++*at) {
        const Launch& it = all[*at];
        const auto address = [&](const Where& where) { return addresses[where.address] + where.offset; };
        const int status = it.product ? multiply(*with, *it.product, address(it.a), address(it.b), address(it.c),
                                                 addresses[workspace], bytes, stream)
                                      : launch(*with, it, addresses, stream);
        if (status) return status;
    }
    return 0;
}

// Launch all steps of a scan: at each step, the matmul of the previous step's state with W, and the kernel of the step.
// `at` tells what failed: 0 the kernel of a step, 1 a matmul, 2 the kernel that clips gradients. Launches are ordered by
// the stream, so that a step sees all that the previous one wrote.
int recur_launch_steps(const Library* with, const Steps* all, void* stream, int64_t* at) {
    const Steps& s = *all;
    int64_t before = s.backward ? 0 : s.started ? s.taken[0] : 0;
    for (int64_t n = 0; n < s.steps; ++n) {
        const int64_t k = s.backward ? s.steps - 1 - n : n, rows = s.taken[k];
        const int64_t multiplied = !s.product_count || !before ? 0 : s.backward ? before : rows;
        *at = 1;
        if (multiplied)
            if (const int status = multiply_state(*with, s, multiplied, stream)) return status;
        *at = 0;
        put(s, s.step, int32_t(k));
        put(s, s.rows, int32_t(rows));
        put_product(s, multiplied ? s.c : 0);
        if (s.backward) put(s, s.later, int32_t(before));
        if (s.clip && before) {
            *at = 2;
            if (const int status = launch_clip(*with, s, before, stream)) return status;
            *at = 0;
            put(s, s.later, 0);
            put_product(s, 0);
        }
        if (const int status = launch_step(*with, s, rows, stream)) return status;
        before = rows;
    }
    return 0;
}
}

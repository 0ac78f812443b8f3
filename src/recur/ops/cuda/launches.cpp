// Launches on a GPU, many in one call: Python takes some ten microseconds for each of them, this a few.
//
// Nothing of CUDA is linked; the functions of its driver and of cuBLASLt come by their addresses. `cuda/launches.py`
// holds the other half of each struct.
#include <cstdint>
#include <cstring>

namespace {
constexpr int64_t most_bytes = 4096;  // that a kernel may be given
constexpr int too_many = 1;           // the driver's own status for what it cannot take

struct Config {  // CUlaunchConfig
    uint32_t grid[3], block[3], shared;
    void* stream;
    void* attributes;
    uint32_t count;
};

struct Product {                // C = A B, all of them row after row: to cuBLAS, which goes by columns, Cᵀ = Bᵀ Aᵀ
    void *how, *left, *right, *out;
    uint64_t algorithms[2][8];  // where all three matrices begin at whole 16 bytes, and where they may not
    uint64_t one, beta;         // a float or a double each
};

struct Where {
    int64_t address, offset;    // which of a call's addresses, and how many bytes behind it
};

struct Launch {
    const Product* product;     // or null: a kernel
    Where a, b, c;
    void* kernel;
    const Config* config;
    const char* numbers;        // its argument: these bytes, then pointers
    int64_t bytes;
    const int32_t* pointers;    // which of a call's addresses each of them is; below 0 it is null
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
    void* clip;                 // or null: bounds the gradient that a step carries back
    Config clip_config;
    uint64_t bound;             // its second argument
    char* arguments;            // of both, of which these parts change:
    int64_t step, rows, later, product;
    const Product* products;    // with W, for so many rows at most, the fewest first
    const int64_t* product_rows;
    int64_t product_count;
    const int32_t* taken;       // rows of each step
    int64_t steps, H;
    int64_t backward, started;  // started: there is a state before the first step
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

// Status 0, or that of the first which failed, whose number is `at`.
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

// All steps of a scan, one by one: the product of what the one before left with W, and a kernel. `at` is 1 where a
// product failed, 0 where a step's kernel did, 2 where the one that bounds gradients did.
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

// Gradients that are sums over rows: those of the biases and of a cell's extra weights.
//
// A CTA sums 32 columns over one part of the rows. The last CTA of a column block (it draws the last ticket) adds the
// parts in a fixed order, so results are the same bits in every run. __threadfence orders the writes of partial sums
// before the ticket, and the ticket before the reads.
struct ReduceArgs {
    int H, S, N;
    int splits;           // number of parts of the rows
    const num* d_share;   // (N, GATES · H)
    const num* d_own;     // (N, OWN · H)
    const real* sums;     // (S, EXTRAS · H)
    real* partial;        // (splits, columns): used if there are several parts
    unsigned* tickets;    // one per block of columns, zero at first
    num* d_bias_ih;       // or null, like d_bias_hh
    num* d_bias_hh;
    num* d_extra[EXTRAS + 1];
};

#define WIDE 32
#define HIGH 16
#define AT_ONCE 8

FUNCTION real real_of(num x) { return read(x); }
#if NUM == BFLOAT16 || NUM == FLOAT16
FUNCTION real real_of(real x) { return x; }
#endif

template <typename T> FUNCTION real sum_of(const T* from, long pitch, int rows, int split, int splits, int lane) {
    const int each = (rows + splits - 1) / splits, end = min(rows, (split + 1) * each);
    real found[AT_ONCE] = {};
    int r = split * each + lane;
    for (; r + (AT_ONCE - 1) * HIGH < end; r += AT_ONCE * HIGH)
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) found[i] += real_of(from[(r + i * HIGH) * pitch]);
    for (; r < end; r += HIGH) found[0] += real_of(from[r * pitch]);
    real sum = found[0];
#pragma unroll
    for (int i = 1; i < AT_ONCE; ++i) sum += found[i];
    return sum;
}

FUNCTION void write(const ReduceArgs& a, int kind, int u, real sum) {
    if (kind < GATES && a.d_bias_ih) a.d_bias_ih[kind * a.H + u] = rounded(sum);
#pragma unroll
    for (int r = 0; r < PRODUCTS; ++r)
        if (PRODUCT_PLACE(r) == kind && a.d_bias_hh) a.d_bias_hh[r * a.H + u] = rounded(sum);
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e)
        if (GATES + OWN + e == kind) a.d_extra[e][u] = rounded(sum);
}

extern "C" __global__ void __launch_bounds__(WIDE * HIGH) reduce_gradients(const ReduceArgs a) {
    extern __shared__ __align__(128) byte memory[];
    real(*part)[WIDE + 1] = reinterpret_cast<real(*)[WIDE + 1]>(memory);
    int* last = reinterpret_cast<int*>(part + HIGH);
    const int H = a.H, all = (GATES + OWN + EXTRAS) * H, blocks = (all + WIDE - 1) / WIDE;
    const int block = blockIdx.x % blocks, split = blockIdx.x / blocks;
    const int x = threadIdx.x % WIDE, y = threadIdx.x / WIDE, column = block * WIDE + x;
    const int kind = column / H, u = column % H;
    const bool biased = a.d_bias_ih || a.d_bias_hh;
    real sum = real(0);
    if (kind < GATES) {
        if (biased) sum = sum_of(a.d_share + column, long(GATES) * H, a.N, split, a.splits, y);
    } else if (kind < GATES + OWN) {
        if (biased) sum = sum_of(a.d_own + column - GATES * H, long(OWN) * H, a.N, split, a.splits, y);
    } else if (column < all)
        sum = sum_of(a.sums + column - (GATES + OWN) * H, long(EXTRAS) * H, a.S, split, a.splits, y);
    part[y][x] = sum;
    __syncthreads();
    if (y == 0) {
        for (int i = 1; i < HIGH; ++i) sum += part[i][x];
        if (column < all) {
            if (a.splits == 1)
                write(a, kind, u, sum);
            else
                a.partial[long(split) * all + column] = sum;
        }
        __threadfence();
    }
    if (a.splits == 1) return;
    __syncthreads();
    if (threadIdx.x == 0) *last = atomicAdd(a.tickets + block, 1u) == unsigned(a.splits - 1);
    __syncthreads();
    if (!*last || y || column >= all) return;
    __threadfence();
    sum = real(0);
    for (int i = 0; i < a.splits; ++i) sum += *(volatile const real*)(a.partial + long(i) * all + column);
    write(a, kind, u, sum);
}

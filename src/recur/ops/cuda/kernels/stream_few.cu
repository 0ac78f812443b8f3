// Small batches: one warp, or several that divide K, multiplies the rows of U and W of one unit, 16 bytes per thread.
//
// The time is that of reading U and W once from memory; all multiprocessors read at the same time. See stream.cu.
constexpr int WARPS_K = WARPS / UNITS, SUMS = GATES + PRODUCTS;

union Piece {
    uint4 all;
    num at[PER];
    FUNCTION Piece() {}
};

FUNCTION Piece piece_of(const num* from) {
    Piece found;
    found.all = __ldg(reinterpret_cast<const uint4*>(from));
    return found;
}

// Load PER numbers of a vector of `width`, aligned or not; zeros beyond its end.
template <bool aligned> FUNCTION Piece vector_piece(const num* from, int at, int width) {
    if (aligned) return piece_of(from + at);
    Piece found;
#pragma unroll
    for (int q = 0; q < PER; ++q) found.at[q] = at + q < width ? from[at + q] : rounded(real(0));
    return found;
}

// Add this thread's part of the products of `count` matrix rows, `apart` numbers from each other, with each vector.
template <int first, int count, bool aligned>
FUNCTION void multiply(real (&sum)[SUMS][ROWS], const num* matrix, long apart, int width, const num* const (&v)[ROWS]) {
    const int warp_k = (threadIdx.x >> 5) / UNITS, lane = threadIdx.x & 31;
#pragma unroll 2
    for (int at = (warp_k * 32 + lane) * PER; at < width; at += WARPS_K * 32 * PER) {
        Piece w[count], x[ROWS];
#pragma unroll
        for (int g = 0; g < count; ++g) w[g] = piece_of(matrix + g * apart + at);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) x[r] = vector_piece<aligned>(v[r], at, width);
#pragma unroll
        for (int q = 0; q < PER; ++q)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int g = 0; g < count; ++g) sum[first + g][r] += read(w[g].at[q]) * read(x[r].at[q]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) stream_step(const Step a) {
    extern __shared__ __align__(16) byte memory[];
    real(*part)[UNITS][ROWS][SUMS] = reinterpret_cast<real(*)[UNITS][ROWS][SUMS]>(memory);
    const int ctas = (a.H + UNITS - 1) / UNITS, cta = blockIdx.x % ctas, tile = blockIdx.x / ctas;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, mine = warp % UNITS;
    const int u = cta * UNITS + mine < a.H ? cta * UNITS + mine : a.H - 1;  // results beyond the last unit are not used
    real sum[SUMS][ROWS] = {};
    const num* v[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = tile * ROWS + r;
        v[r] = a.x + long(row < a.n ? row : a.n - 1) * a.x_pitch;
    }
    const int D = padded(a.D), H = padded(a.H);
    multiply<0, GATES, X_ALIGNED>(sum, a.U + long(u) * D, long(a.H) * D, a.D, v);
#if PRODUCTS
#pragma unroll
    for (int r = 0; r < ROWS; ++r) v[r] = a.v + current(a, tile * ROWS + r) * H;
    multiply<GATES, PRODUCTS, true>(sum, a.W + long(u) * H, long(a.H) * H, a.H, v);
#endif
#pragma unroll
    for (int s = 0; s < SUMS; ++s)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int other = 16; other; other >>= 1) sum[s][r] += __shfl_xor_sync(~0u, sum[s][r], other);
            if (lane == 0) part[warp / UNITS][mine][r][s] = sum[s][r];
        }
    __syncthreads();
    const int e = threadIdx.x, unit = cta * UNITS + e % UNITS, row = tile * ROWS + e / UNITS;
    if (e < UNITS * ROWS && unit < a.H && row < a.n) {
        real share[GATES], product[PRODUCTS + 1];
#pragma unroll
        for (int s = 0; s < SUMS; ++s) {
            real found = 0;
#pragma unroll
            for (int k = 0; k < WARPS_K; ++k) found += part[k][e % UNITS][e / UNITS][s];
            (s < GATES ? share[s < GATES ? s : 0] : product[s < GATES ? 0 : s - GATES]) = found;
        }
        finish(a, row, unit, share, product);
    }
    done(a, tile, ROWS, ctas, reinterpret_cast<volatile int*>(memory));
}

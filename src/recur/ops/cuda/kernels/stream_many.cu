// Large batches: matmuls by tensor cores; both operands pass through shared memory in chunks of K that are prefetched.
//
// A CTA has UNITS units of ROWS rows. WARPS_U warps divide the units, WARPS_N the rows and WARPS_K every chunk. Rows of U
// and W come in blocks of 8 units of one gate: two blocks fill the 16 rows of an mma, and one thread finds all gates of
// its units. With an odd number of blocks, half of the last mma is padding; BLOCKS blocks of units reduce that loss.
constexpr int SIZE = sizeof(num);
constexpr int UNITS = 8 * BLOCKS * WARPS_U, ROWS = 8 * TILES * WARPS_N;
constexpr int SHARE_TILES = (GATES * BLOCKS + 1) / 2, PRODUCT_TILES = (PRODUCTS * BLOCKS + 1) / 2;
constexpr int M_TILES = SHARE_TILES + PRODUCT_TILES;
constexpr int MOST_TILES = SHARE_TILES > PRODUCT_TILES ? SHARE_TILES : PRODUCT_TILES;
constexpr int PITCH = CHUNK * 64 + (CHUNK % 2 ? 0 : 64);  // bytes: rows start in different banks
constexpr int MATRIX_ROWS = WARPS_U * 16 * MOST_TILES, STAGE_BYTES = (MATRIX_ROWS + ROWS) * PITCH;
constexpr int SUM_BYTES = WARPS * M_TILES * TILES * 32 * 16;
constexpr int BUFFER = STAGES * STAGE_BYTES > SUM_BYTES ? STAGES * STAGE_BYTES : SUM_BYTES;
static_assert(WARPS_U * WARPS_N * WARPS_K == WARPS && CHUNK % WARPS_K == 0, "warps divide the work evenly");
static_assert(BUFFER + ROWS * 8 == SHARED_BYTES, "config.py computes another size");

typedef float Sums[M_TILES][TILES][4];

// Chunks of U and x, followed by those of W and h.
struct Chunks {
    const Step& a;
    byte* memory;
    const long long* rows;  // index in v of each row of the tile
    int first_unit, first_row, of_x, all;

    // Start a copy of 16 bytes; zeros beyond the end of a row.
    FUNCTION static void fetch(byte* to, const num* row, int at, int width) {
        fetch_or_zero(to, at < width ? row + at : row, at < width);
    }

    template <int gates, bool of_input> FUNCTION void ask(int c, byte* to) const {
        constexpr int BLOCKS_HERE = gates * BLOCKS, TILES_HERE = (BLOCKS_HERE + 1) / 2, PIECES = CHUNK * 4;
        const int width = padded(of_input ? a.D : a.H);
        const num* matrix = of_input ? a.U : a.W;
        for (int i = threadIdx.x; i < WARPS_U * BLOCKS_HERE * 8 * PIECES; i += THREADS) {
            const int piece = i % PIECES, r = i / PIECES, block = r / 8 % BLOCKS_HERE, warp = r / 8 / BLOCKS_HERE;
            const int unit = first_unit + (warp * BLOCKS + block % BLOCKS) * 8 + r % 8;
            const long row = long(block / BLOCKS) * a.H + (unit < a.H ? unit : a.H - 1);
            byte* there = to + (warp * 16 * TILES_HERE + block * 8 + r % 8) * PITCH + piece * 16;
            fetch(there, matrix + row * width, (c * PIECES + piece) * PER, width);
        }
        to += MATRIX_ROWS * PITCH;
        for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
            const int piece = i % PIECES, r = i / PIECES, at = (c * PIECES + piece) * PER;
            byte* there = to + r * PITCH + piece * 16;
            if (!of_input) {
                fetch(there, a.v + rows[r] * width, at, width);
                continue;
            }
            const num* row = a.x + long(first_row + r < a.n ? first_row + r : a.n - 1) * a.x_pitch;
            if (X_ALIGNED)
                fetch(there, row, at, width);
            else
                for (int q = 0; q < PER; ++q)
                    reinterpret_cast<num*>(there)[q] = at + q < a.D ? row[at + q] : rounded(real(0));
        }
    }

    FUNCTION void ask(int c) const {
        byte* to = memory + c % STAGES * STAGE_BYTES;
        if (c < of_x)
            ask<GATES, true>(c, to);
#if PRODUCTS
        else if (c < all)
            ask<PRODUCTS, false>(c - of_x, to);
#endif
        end_group();
    }

    // Wait for a chunk and return it. The barrier also frees the previous chunk's buffer, which is filled again.
    FUNCTION const byte* receive(int c) const {
        arrived<STAGES - 2>();
        __syncthreads();
        ask(c + STAGES - 1);
        return memory + c % STAGES * STAGE_BYTES;
    }
};

FUNCTION void mma_group(float (&c)[4], const Weights& w, const uint4& b) {
    mma(c, w.upper.x, w.lower.x, w.upper.y, w.lower.y, b.x, b.y);
    mma(c, w.upper.z, w.lower.z, w.upper.w, w.lower.w, b.z, b.w);
}

FUNCTION uint4 shared_piece(const byte* at) { return *reinterpret_cast<const uint4*>(at); }

// Multiply one group of K of a chunk into `count` tiles of sums, from tile `first` on.
template <int first, int count> FUNCTION void add(Sums& sum, const byte* chunk, int group, int warp_u, int warp_n) {
    const int lane = threadIdx.x & 31, within = (lane >> 2) * PITCH + group * 64 + (lane & 3) * 16;
    const byte* matrix = chunk + warp_u * 16 * count * PITCH + within;
    const byte* v = chunk + (MATRIX_ROWS + warp_n * 8 * TILES) * PITCH + within;
    Weights w[count], low[count];
#pragma unroll
    for (int t = 0; t < count; ++t) {
        w[t].upper = shared_piece(matrix + t * 16 * PITCH), w[t].lower = shared_piece(matrix + (t * 16 + 8) * PITCH);
#if NUM == FLOAT32
        const Weights whole = w[t];
        w[t].upper = tf32(whole.upper), w[t].lower = tf32(whole.lower);
        if (EXACT) low[t].upper = less(whole.upper, w[t].upper), low[t].lower = less(whole.lower, w[t].lower);
#endif
    }
#pragma unroll
    for (int n = 0; n < TILES; ++n) {
        const uint4 whole = shared_piece(v + n * 8 * PITCH);
#if NUM == FLOAT32
        const uint4 b = tf32(whole), b_low = less(whole, b);
#else
        const uint4 b = whole;
#endif
#pragma unroll
        for (int t = 0; t < count; ++t) {
#if NUM == FLOAT32 && EXACT
            mma_group(sum[first + t][n], low[t], b);
            mma_group(sum[first + t][n], w[t], b_low);
#endif
            mma_group(sum[first + t][n], w[t], b);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) stream_step(const Step a) {
    extern __shared__ __align__(16) byte memory[];
    long long* rows = reinterpret_cast<long long*>(memory + BUFFER);
    const int ctas = (a.H + UNITS - 1) / UNITS, cta = blockIdx.x % ctas, tile = blockIdx.x / ctas;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const int warp_u = warp % WARPS_U, warp_n = warp / WARPS_U % WARPS_N, warp_k = warp / (WARPS_U * WARPS_N);
    const int groups_x = (a.D + 4 * PER - 1) / (4 * PER), groups_h = PRODUCTS ? (a.H + 4 * PER - 1) / (4 * PER) : 0;
    const int of_x = (groups_x + CHUNK - 1) / CHUNK, all = of_x + (groups_h + CHUNK - 1) / CHUNK;
    for (int r = threadIdx.x; r < ROWS; r += THREADS) rows[r] = current(a, tile * ROWS + r);
    __syncthreads();
    const Chunks chunks{a, memory, rows, cta * UNITS, tile * ROWS, of_x, all};
    for (int c = 0; c < STAGES - 1; ++c) chunks.ask(c);
    Sums sum = {};
    for (int c = 0; c < of_x; ++c) {
        const byte* chunk = chunks.receive(c);
#pragma unroll
        for (int i = 0; i < CHUNK / WARPS_K; ++i) add<0, SHARE_TILES>(sum, chunk, i * WARPS_K + warp_k, warp_u, warp_n);
    }
#if PRODUCTS
    for (int c = of_x; c < all; ++c) {
        const byte* chunk = chunks.receive(c);
#pragma unroll
        for (int i = 0; i < CHUNK / WARPS_K; ++i)
            add<SHARE_TILES, PRODUCT_TILES>(sum, chunk, i * WARPS_K + warp_k, warp_u, warp_n);
    }
#endif
    arrived<0>();
    __syncthreads();
    // Sums go through shared memory, so that the rest is a loop and each of the warps that divided K finishes some rows.
    float4* sums = reinterpret_cast<float4*>(memory);
#pragma unroll
    for (int t = 0; t < M_TILES; ++t)
#pragma unroll
        for (int n = 0; n < TILES; ++n)
            sums[((warp * M_TILES + t) * TILES + n) * 32 + lane] = {sum[t][n][0], sum[t][n][1], sum[t][n][2], sum[t][n][3]};
    __syncthreads();
    const float* of_team = reinterpret_cast<const float*>(memory) + (warp % (WARPS_U * WARPS_N)) * M_TILES * TILES * 128;
    constexpr int APART = WARPS_U * WARPS_N * M_TILES * TILES * 128;  // distance between the parts of warps that divided K
    for (int i = warp_k; i < TILES * 2 * BLOCKS; i += WARPS_K) {
        const int n = i / (2 * BLOCKS), block = i / 2 % BLOCKS, column = i % 2;
        const int unit = cta * UNITS + (warp_u * BLOCKS + block) * 8 + (lane >> 2);
        const int row = tile * ROWS + (warp_n * TILES + n) * 8 + (lane & 3) * 2 + column;
        if (unit >= a.H || row >= a.n) continue;
        real share[GATES], product[PRODUCTS + 1];
#pragma unroll
        for (int s = 0; s < GATES + PRODUCTS; ++s) {
            const int b = (s < GATES ? s : s - GATES) * BLOCKS + block, t = (s < GATES ? 0 : SHARE_TILES) + b / 2;
            const float* at = of_team + ((t * TILES + n) * 32 + lane) * 4 + b % 2 * 2 + column;
            real found = 0;
#pragma unroll
            for (int k = 0; k < WARPS_K; ++k) found += at[k * APART];
            (s < GATES ? share[s < GATES ? s : 0] : product[s < GATES ? 0 : s - GATES]) = found;
        }
        finish(a, row, unit, share, product);
    }
    done(a, tile, ROWS, ctas, reinterpret_cast<volatile int*>(rows));
}

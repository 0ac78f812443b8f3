// All steps in one launch: W stays on the chip, and the vector v that W multiplies travels between the CTAs.
//
// A team of CTAS CTAs scans USED rows of the batch (a matmul tile has room for ROWS). Each CTA owns UNITS units: their
// rows of W, and their states in registers. At every step the CTA multiplies its part of W with the whole v of the
// previous step, runs the cell's program on its units, and publishes its part of the next v:
//
//     forward    v = h           sums: W h, one for every product          UNITS · PRODUCTS rows of W,  K = H
//     backward   v = δ           sum:  Wᵀ δ, the gradient of h             UNITS rows of Wᵀ,  K = PRODUCTS · H
//
// EXCHANGE says how v travels: SINGLE_CTA (the CTA's own shared memory), CLUSTER (written into the shared memory of the
// other CTAs of a cluster) or GRID (through L2 with a counter; all CTAs must be resident at once, or they would wait for
// each other forever). See exchange.cu.
//
// GRID splits v into chunks of CHUNK groups of K and a ring of RING buffers: while one chunk is multiplied, others are in
// flight. MULTICAST neighbouring CTAs each fetch a part for all of them.
//
// PARTIAL (backward, CLUSTER): δ stays where it is computed. A CTA multiplies its own part of δ with its columns of Wᵀ,
// for all units of the team, and sends the partial sums to their owners straight from registers. Each owner adds them in
// the order of CTAs, so results are reproducible; a row moves H float32 numbers, whatever the number of products.
//
// K is processed in groups of 64 bytes per row. A thread holds 16 bytes of a group; the order of K within a group does
// not matter, because both operands use the same one. WARPS_M warps divide the rows of the sums and WARPS_K warps divide
// K; their parts are added in a fixed order. A warp keeps IN_REGISTERS groups of W in registers and IN_SHARED groups in
// shared memory, and reads the rest from L2 at every step.
#define SINGLE_CTA 0
#define CLUSTER 1
#define GRID 2

#if BACKWARD
#define SUMS 1
#define PARTS PRODUCTS
#else
#define SUMS PRODUCTS
#define PARTS 1
#endif

constexpr int ROWS = 8 * TILES, SIZE = sizeof(num), GROUP = 64 / SIZE, PER_CHUNK = 16 / SIZE;
constexpr int WIDTH = (CTAS * UNITS + GROUP - 1) / GROUP * GROUP;  // width of a part of v, padded
constexpr int COLUMNS = PARTS * WIDTH;                               // columns of the packed W
constexpr int GROUPS = PARTIAL ? (PARTS * UNITS + GROUP - 1) / GROUP : COLUMNS / GROUP;
constexpr int GROUPS_EACH = (GROUPS + WARPS_K - 1) / WARPS_K;
constexpr int M = PARTIAL ? CTAS * UNITS : SUMS * UNITS, M_TILES = (M + 15) / 16, M_EACH = (M_TILES + WARPS_M - 1) / WARPS_M;
constexpr int CHUNKS = (GROUPS + CHUNK - 1) / CHUNK, EACH = (CHUNK + WARPS_K - 1) / WARPS_K;
static_assert(CHUNKS == 1 || CHUNK % WARPS_K == 0, "every warp needs groups of every chunk");
static_assert(CHUNKS == 1 || RING > 1, "a chunk is requested while the previous one is read");
constexpr int PITCH = CHUNK * 64 + (CHUNK % 2 ? 0 : 64);  // bytes: rows of v start in different banks
constexpr int CHUNK_BYTES = ROWS * PITCH, V_BYTES = CHUNKS * CHUNK_BYTES;
constexpr int V_PUBLISHED = CTAS * UNITS * USED * (PARTIAL ? sizeof(float) : PARTS * SIZE);
static_assert(!PARTIAL || (EXCHANGE == CLUSTER && BACKWARD && WARPS_K == 1 && UNITS % 16 == 0), "see above");
constexpr int M_PITCH = (M_TILES * 16 + 31) / 32 * 32 + 4;
constexpr int ELEMENTS = (UNITS * USED + THREADS - 1) / THREADS;
static_assert(USED <= ROWS && (USED == ROWS || (USED % 2 == 0 && UNITS * USED % 32 == 0)), "warps send whole rows");
constexpr bool PREFETCH = ELEMENTS <= 2;  // read the operands of a step while v is in flight; with more elements, registers run out
constexpr int KEPT = IN_REGISTERS < GROUPS_EACH ? IN_REGISTERS : GROUPS_EACH;
constexpr int KEPT_SHARED = IN_SHARED < GROUPS_EACH - KEPT ? IN_SHARED : GROUPS_EACH - KEPT;

// Kernel argument: one direction, or two directions with independent teams.
template <typename Pass> struct Directions {
    Pass of[DIRECTIONS];
};

// Row of segment s at the k-th step in scan order.
template <typename Pass> FUNCTION long row_at(const Pass& a, int k, int s) {
    return row_of(a.offset, a.S, DIRECTIONS > 1 && a.reversed ? a.steps - 1 - k : k, s);
}

struct Shared {
    byte v[RING][CHUNK_BYTES];
    uint4 weights[KEPT_SHARED * M_EACH * 2 * THREADS + 1];
#if PARTIAL
    float mail[2][CTAS][UNITS * ROWS];  // one box per sender; the layout is that of the accumulators
#else
    float part[WARPS_K][ROWS][M_PITCH];
#endif
    __align__(16) num stage[THREADS / 32][PARTS][32];
    __align__(16) bits64 full[RING];
    bits64 empty[RING];
};
static_assert((sizeof(Shared) + 15) / 16 * 16 == SHARED_BYTES, "config.py computes another size");

// An mma waits for the previous mma on the same accumulators. A warp with few accumulators has two sets, to overlap them.
constexpr int TWICE = M_EACH * TILES <= 4 ? 2 : 1;
typedef float Sums[TWICE][4];

FUNCTION void mma_group(Sums& c, const Weights& w, const uint4& b) {
    mma(c[0], w.upper.x, w.lower.x, w.upper.y, w.lower.y, b.x, b.y);
    mma(c[TWICE - 1], w.upper.z, w.lower.z, w.upper.w, w.lower.w, b.z, b.w);
}

FUNCTION Weights read_weights(const num* W, int H, int cta, int tile, int group) {
    const int lane = threadIdx.x & 31;
    int at = group * GROUP + (lane & 3) * PER_CHUNK;
    Weights w;
#if PARTIAL
    if (at >= PARTS * UNITS) return {{0, 0, 0, 0}, {0, 0, 0, 0}};
    at = at / UNITS * WIDTH + cta * UNITS + at % UNITS;
#endif
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int m = tile * 16 + half * 8 + (lane >> 2), unit = PARTIAL ? m : cta * UNITS + m % UNITS;
        const long row = m < M ? long(PARTIAL ? 0 : m / UNITS) * H + min(unit, H - 1) : 0;  // rows beyond M are never read
        const uint4 found = __ldg(reinterpret_cast<const uint4*>(W + row * COLUMNS + at));
        (half ? w.lower : w.upper) = found;
    }
#if NUM == FLOAT32 && !EXACT
    w.upper = tf32(w.upper), w.lower = tf32(w.lower);
#endif
    return w;
}

struct Product {
    Weights kept[KEPT ? KEPT : 1][M_EACH];

    FUNCTION static int warp_m() { return (threadIdx.x >> 5) % WARPS_M; }
    FUNCTION static int warp_k() { return (threadIdx.x >> 5) / WARPS_M; }
    FUNCTION static int group(int i) { return i * WARPS_K + warp_k(); }
    FUNCTION static bool there(int i) { return GROUPS % WARPS_K == 0 || group(i) < GROUPS; }
    // The j-th tile of sums of this warp. PARTIAL starts at the CTA's own tile, so that no two CTAs send to one CTA at once.
    FUNCTION static int tile(int j, int cta) {
        const int raw = warp_m() + j * WARPS_M;
        return PARTIAL ? (raw + cta * (UNITS / 16)) % M_TILES : raw;
    }

    FUNCTION void load(Shared& shared, const num* W, int H, int cta) {
#pragma unroll
        for (int i = 0; i < KEPT; ++i)
#pragma unroll
            for (int j = 0; j < M_EACH; ++j)
                if (there(i)) kept[i][j] = read_weights(W, H, cta, tile(j, cta), group(i));
        for (int i = 0; i < KEPT_SHARED; ++i)
            for (int j = 0; j < M_EACH; ++j)
                if (there(KEPT + i)) {
                    const Weights w = read_weights(W, H, cta, tile(j, cta), group(KEPT + i));
                    uint4* to = shared.weights + (i * M_EACH + j) * 2 * THREADS + threadIdx.x;
                    to[0] = w.upper, to[THREADS] = w.lower;
                }
    }

    FUNCTION void add(Sums (&sum)[M_EACH][TILES], const Weights (&w)[M_EACH], const byte* v, int group) const {
        const int lane = threadIdx.x & 31;
        const byte* at = v + (lane >> 2) * PITCH + group * 64 + (lane & 3) * 16;
#if NUM == FLOAT32 && EXACT
        Weights high[M_EACH], low[M_EACH];
#pragma unroll
        for (int j = 0; j < M_EACH; ++j) {
            high[j].upper = tf32(w[j].upper), high[j].lower = tf32(w[j].lower);
            low[j].upper = less(w[j].upper, high[j].upper), low[j].lower = less(w[j].lower, high[j].lower);
        }
#endif
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
            const uint4 b = *reinterpret_cast<const uint4*>(at + n * 8 * PITCH);
#pragma unroll
            for (int j = 0; j < M_EACH; ++j) {
#if NUM == FLOAT32 && EXACT
                const uint4 b_high = tf32(b), b_low = less(b, b_high);
                mma_group(sum[j][n], low[j], b_high);
                mma_group(sum[j][n], high[j], b_low);
                mma_group(sum[j][n], high[j], b_high);
#else
                mma_group(sum[j][n], w[j], b);
#endif
            }
        }
    }

    FUNCTION void fetch(Weights (&w)[M_EACH], const Shared& shared, const num* W, int H, int cta, int i) const {
#pragma unroll
        for (int j = 0; j < M_EACH; ++j) {
            if (i < KEPT + KEPT_SHARED) {
                const uint4* from = shared.weights + ((i - KEPT) * M_EACH + j) * 2 * THREADS + threadIdx.x;
                w[j] = {from[0], from[THREADS]};
            } else
                w[j] = read_weights(W, H, cta, tile(j, cta), group(i));
        }
    }

    // Compute this warp's part of W v and write it to shared memory. `chunks` supplies v.
    template <typename Chunks> FUNCTION void multiply(Shared& shared, Chunks& chunks, const num* W, int H, int cta) const {
        Sums sum[M_EACH][TILES] = {};
#pragma unroll
        for (int c = 0; c < CHUNKS; ++c) {
            const byte* v = chunks.receive(c);
#pragma unroll
            for (int j = 0; j < EACH; ++j) {
                const int i = c * EACH + j;
                if (i >= GROUPS_EACH || !there(i)) continue;
                if (i < KEPT) {
                    add(sum, kept[i < KEPT ? i : 0], v, j * WARPS_K + warp_k());
                } else {
                    Weights w[M_EACH];
                    fetch(w, shared, W, H, cta, i);
                    add(sum, w, v, j * WARPS_K + warp_k());
                }
            }
            chunks.release(c);
        }
        const int lane = threadIdx.x & 31;
#pragma unroll
        for (int j = 0; j < M_EACH; ++j) {
            const int m = (warp_m() + j * WARPS_M) * 16 + (lane >> 2);
            if (M_TILES % WARPS_M && m >= M_TILES * 16) continue;
#pragma unroll
            for (int n = 0; n < TILES; ++n) {
#if PARTIAL
                uint4 found;
                bits32* words = &found.x;
#pragma unroll
                for (int q = 0; q < 4; ++q) words[q] = __float_as_uint(sum[j][n][0][q] + (TWICE > 1 ? sum[j][n][TWICE - 1][q] : 0));
                chunks.send_sums(tile(j, cta), n, found);
#else
                float(*to)[M_PITCH] = shared.part[warp_k()] + n * 8 + (lane & 3) * 2;
#pragma unroll
                for (int q = 0; q < 4; ++q) to[q & 1][m + (q & 2) * 4] = sum[j][n][0][q] + (TWICE > 1 ? sum[j][n][TWICE - 1][q] : 0);
#endif
            }
        }
    }
};

// Offset of a thread's numbers of a tile of 16 units and 8 rows. Rows are adjacent, so that readers use different banks.
FUNCTION int mail_slot(int tile, int n, int unit, int row) {
    return ((tile * TILES + n) * 32 + row / 2 * 8 + unit) * 4;
}

// Return the sum of a row and a unit of this CTA. `which` is the mailbox of partial sums.
FUNCTION real sum_of(const Shared& shared, int row, int m, int which = 0) {
    float found = 0;
#if PARTIAL
    const int at = mail_slot(m / 16, row / 8, m % 8, row % 8) + (m & 8) / 4 + (row & 1);
#pragma unroll
    for (int c = 0; c < CTAS; ++c) found += shared.mail[which][c][at];
#else
#pragma unroll
    for (int w = 0; w < WARPS_K; ++w) found += shared.part[w][row][m];
#endif
    return found;
}

// Round a number as matmuls read it: once, where it is produced.
FUNCTION num multiplied(real x) {
#if NUM == FLOAT32 && !EXACT
    return __uint_as_float(tf32(__float_as_uint(x)));
#else
    return rounded(x);
#endif
}

constexpr int AHEAD = 4;  // number of steps by which operands are prefetched into L2
// Prefetch a sector of 32 bytes; only the thread of its first unit does.
FUNCTION void bring(const num* at) {
    if (threadIdx.x % (32 / SIZE) == 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// For tests. The lower 16 bits of DELAYS seed pseudo-random waits. EXTRA_BARRIER repeats the ordering of the cluster
// exchange with a barrier that racecheck knows. MISSING_BARRIER leaves out the barrier between the warps that write sums
// and those that read them: a test that does not notice it is worthless.
#define EXTRA_BARRIER (DELAYS >> 16 & 1)
#define MISSING_BARRIER (DELAYS >> 17 & 1)
FUNCTION void delay(int k, int who = 0) {
#if DELAYS & 0xffff  // every CTA and every warp runs at its own pace
    unsigned x = ((blockIdx.x + who * 977u) * 2654435761u) ^ (k * 40503u + DELAYS * 7919u);
    x ^= x >> 13, x *= 0x5bd1e995u, x ^= x >> 15;
    if ((x & 7) == 0) __nanosleep(x % 4000);
#endif
}


// One thread for each unit of a segment, or several, each with a slice of time: what the two passes have in common.
//
// A CTA has UNITS columns (a column is VECTOR units of a segment, side by side) and SLICES threads for each. Time goes by in tiles of
// SLICES · BLOCK steps; thread `slice` of a column takes BLOCK consecutive ones of each. What it reads is fetched
// STAGES − 1 tiles ahead. With one slice a thread just goes from step to step. With several, a step has to be affine in
// the states that it carries: each thread finds the map of its steps, the maps of a tile are put together in the order
// of time, and each thread takes its steps from the state that they lead to. Memory is read once.
//
// Where a function has a `whole`, it takes BLOCK steps that are all there, without a branch, so that what does not wait
// for the states runs ahead of them.
#define THREADS (UNITS * SLICES)

struct Column {
    bool live;
    int s, u, length, longest;  // its first unit; the steps of its segment, and of the longest in this CTA
    int slice;
    long own;  // the place of its first unit among (S, H)
};

FUNCTION Column column_of(const int* lengths, int S, int H, int steps) {
    Column c;
    const long first = long(blockIdx.x) * UNITS * VECTOR;
    c.own = first + threadIdx.x % UNITS * VECTOR;
    c.live = c.own < long(S) * H;
    c.s = c.live ? int(c.own / H) : 0;
    c.u = c.live ? int(c.own % H) : 0;
    c.length = !c.live ? 0 : RAGGED ? lengths[c.s] : steps;
    c.longest = RAGGED ? lengths[first / H] : steps;  // they come in order
    c.slice = threadIdx.x / UNITS;
    return c;
}

// The row of step k of segment s, as row_of; which of the two it is was known when this was compiled.
FUNCTION long row(const int* offset, int S, int k, int s) { return RAGGED ? long(offset[k]) + s : long(k) * S + s; }

FUNCTION constexpr int ones(unsigned bits) { return bits ? int(bits & 1) + ones(bits >> 1) : 0; }

// Which of the places named by `bits` place k is.
FUNCTION constexpr int rank_in(unsigned bits, int k) { return ones(bits & ((1u << k) - 1)); }

// What is fetched at once.
constexpr int SLOT = VECTOR * sizeof(num) < 4 ? 4 : VECTOR * sizeof(num);
struct __align__(SLOT) slot {
    byte bytes[SLOT];
};

// The slot of value `load` of step l of a stage, of this thread.
template <int loads> FUNCTION slot* slot_of(slot* ring, int stage, int l, int load) {
    return ring + ((stage * BLOCK + l) * loads + load) * THREADS + threadIdx.x;
}

FUNCTION void fetch(slot* to, const num* from) {
    if (VECTOR * sizeof(num) < 4)  // so few cannot be copied
        *(num*)to = *from;
    else
        fetch_bytes<SLOT>(to, from);
}

FUNCTION void fetch_real(slot* to, const real* from) { fetch_bytes<sizeof(real)>(to, from); }

FUNCTION void fetch_zero(slot* to) {
#pragma unroll
    for (int i = 0; i < SLOT / 4; ++i) ((bits32*)to)[i] = 0;
}

FUNCTION real real_in(const slot* from) { return *(const real*)from; }

#define IN_PAIRS (VECTOR == 2 && (NUM == BFLOAT16 || NUM == FLOAT16))

// Of numbers side by side, each.
FUNCTION void numbers_in(const slot* from, real (&x)[VECTOR]) {
#if IN_PAIRS
    const bits32 both = *(const bits32*)from;
    num low, high;
    low.bits = bits16(both), high.bits = bits16(both >> 16);
    x[0] = read(low), x[1] = read(high);
#else
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) x[v] = read(((const num*)from)[v]);
#endif
}

// Numbers side by side to memory: value(v) each.
template <typename Value> FUNCTION void put(num* to, const Value& value) {
#if IN_PAIRS
    bits32 both;
#if NUM == BFLOAT16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(value(1)), "f"(value(0)));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(value(1)), "f"(value(0)));
#endif
    *(bits32*)to = both;
#else
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) to[v] = rounded(value(v));
#endif
}

// Where ξ is 0, so is A, and nothing passes, NaN neither.
FUNCTION real times(real A, real s) { return WEIGHTED && A == real(0) ? real(0) : A * s; }

// An affine map s ↦ A s + b of n numbers.
template <int n> struct Map {
    real A[n * n], b[n];

    FUNCTION void be_identity() {
#pragma unroll
        for (int i = 0; i < n; ++i) {
            b[i] = real(0);
#pragma unroll
            for (int j = 0; j < n; ++j) A[i * n + j] = real(i == j);
        }
    }

    FUNCTION void apply(real* s) const {
        real t[n];
#pragma unroll
        for (int i = 0; i < n; ++i) {
            t[i] = b[i];
#pragma unroll
            for (int j = 0; j < n; ++j) t[i] += times(A[i * n + j], s[j]);
        }
#pragma unroll
        for (int i = 0; i < n; ++i) s[i] = t[i];
    }

    // First `before`, then this.
    FUNCTION void follow(const Map& before) {
        Map made;
#pragma unroll
        for (int i = 0; i < n; ++i) {
            made.b[i] = b[i];
#pragma unroll
            for (int k = 0; k < n; ++k) made.b[i] += times(A[i * n + k], before.b[k]);
#pragma unroll
            for (int j = 0; j < n; ++j) {
                real sum = times(A[i * n], before.A[j]);
#pragma unroll
                for (int k = 1; k < n; ++k) sum += times(A[i * n + k], before.A[k * n + j]);
                made.A[i * n + j] = sum;
            }
        }
        *this = made;
    }
};

#if SLICES > 1
#define IN_WARP (UNITS < 32 ? 32 / UNITS : 1)  // slices that a warp has
#define WARPS (SLICES / IN_WARP)               // that share a column
#define BOARD(n) (WARPS * (n) * ((n) + 1) * UNITS)

template <int n> FUNCTION void shift_up(Map<n>& to, const Map<n>& from, int lanes) {
#pragma unroll
    for (int i = 0; i < n * n; ++i) to.A[i] = __shfl_up_sync(~0u, from.A[i], lanes);
#pragma unroll
    for (int i = 0; i < n; ++i) to.b[i] = __shfl_up_sync(~0u, from.b[i], lanes);
}

// From the state before a tile (`carry`) and the map of each slice to the state before this slice (`start`), and after
// the tile (`carry`). `board`: (WARPS, n · (n + 1), UNITS); two tiles in a row have two.
template <int n> FUNCTION void connect(Map<n> map, real* carry, real* start, real* board, int slice) {
    const int unit = threadIdx.x % UNITS, warp = slice / IN_WARP, within = slice % IN_WARP;
    Map<n> before;  // of those before this one in its warp
#pragma unroll
    for (int far = 1; far < IN_WARP; far *= 2) {
        shift_up(before, map, far * UNITS);
        if (within >= far) map.follow(before);
    }
    if (IN_WARP > 1) shift_up(before, map, UNITS);
    if (within == IN_WARP - 1) {
        real* to = board + warp * n * (n + 1) * UNITS + unit;
#pragma unroll
        for (int i = 0; i < n * n; ++i) to[i * UNITS] = map.A[i];
#pragma unroll
        for (int i = 0; i < n; ++i) to[(n * n + i) * UNITS] = map.b[i];
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        if (w == warp)
#pragma unroll
            for (int i = 0; i < n; ++i) start[i] = carry[i];
        Map<n> whole;
        const real* from = board + w * n * (n + 1) * UNITS + unit;
#pragma unroll
        for (int i = 0; i < n * n; ++i) whole.A[i] = from[i * UNITS];
#pragma unroll
        for (int i = 0; i < n; ++i) whole.b[i] = from[(n * n + i) * UNITS];
        whole.apply(carry);
    }
    if (IN_WARP > 1 && within) before.apply(start);
}
#endif

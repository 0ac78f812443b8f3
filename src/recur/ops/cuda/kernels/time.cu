// Shared part of the element-wise kernels: one thread per unit of a segment, or several that each take a slice of time.
//
// A CTA has UNITS columns (a column is VECTOR adjacent units of a segment) and SLICES threads for each. Time is processed
// in tiles of SLICES · BLOCK steps; thread `slice` of a column takes BLOCK consecutive steps of each tile. Operands are
// fetched STAGES − 1 tiles ahead. With one slice, a thread goes from step to step.
//
// With several slices this is a parallel scan, and a step must be affine in the states that it carries: s' = A s + b. Each
// thread composes the maps of its steps, the threads combine the maps of a tile in the order of time, and each thread
// then takes its steps from the state that it starts with. Memory is read only once.
//
// A function with the template argument `whole` takes BLOCK complete steps without a branch, so that the compiler can run
// the instructions that do not depend on the states ahead of time.
#define THREADS (UNITS * SLICES)

struct Column {
    bool live;
    int s, u, length, longest;  // first unit; steps of its segment, and of the longest segment of this CTA
    int slice;
    long own;  // offset of its first unit in (S, H)
};

FUNCTION Column column_of(const int* lengths, int S, int H, int steps) {
    Column c;
    const long first = long(blockIdx.x) * UNITS * VECTOR;
    c.own = first + threadIdx.x % UNITS * VECTOR;
    c.live = c.own < long(S) * H;
    c.s = c.live ? int(c.own / H) : 0;
    c.u = c.live ? int(c.own % H) : 0;
    c.length = !c.live ? 0 : RAGGED ? lengths[c.s] : steps;
    c.longest = RAGGED ? lengths[first / H] : steps;  // segments are sorted by length
    c.slice = threadIdx.x / UNITS;
    return c;
}

// Row of step k of segment s, like row_of, with the case known at compile time.
FUNCTION long row(const int* offset, int S, int k, int s) { return RAGGED ? long(offset[k]) + s : long(k) * S + s; }

FUNCTION constexpr int ones(unsigned bits) { return bits ? int(bits & 1) + ones(bits >> 1) : 0; }

// Rank of bit k among the set bits of `bits`.
FUNCTION constexpr int rank_in(unsigned bits, int k) { return ones(bits & ((1u << k) - 1)); }

// Unit of a copy.
constexpr int SLOT = VECTOR * sizeof(num) < 4 ? 4 : VECTOR * sizeof(num);
struct __align__(SLOT) slot {
    byte bytes[SLOT];
};

// This thread's slot for value `load` of step l of a stage.
template <int loads> FUNCTION slot* slot_of(slot* ring, int stage, int l, int load) {
    return ring + ((stage * BLOCK + l) * loads + load) * THREADS + threadIdx.x;
}

FUNCTION void fetch(slot* to, const num* from) {
    if (VECTOR * sizeof(num) < 4)  // cp.async copies at least 4 bytes
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

// Unpack adjacent numbers.
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

// Store adjacent numbers: value(v) for each v.
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

// Where ξ is 0, A is 0 too, and not even NaN passes.
FUNCTION real times(real A, real s) { return WEIGHTED && A == real(0) ? real(0) : A * s; }

// Affine map s ↦ A s + b of n numbers.
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

    // Compose: first `before`, then this map.
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
#define IN_WARP (UNITS < 32 ? 32 / UNITS : 1)  // slices per warp
#define WARPS (SLICES / IN_WARP)               // warps per column
#define BOARD(n) (WARPS * (n) * ((n) + 1) * UNITS)

template <int n> FUNCTION void shift_up(Map<n>& to, const Map<n>& from, int lanes) {
#pragma unroll
    for (int i = 0; i < n * n; ++i) to.A[i] = __shfl_up_sync(~0u, from.A[i], lanes);
#pragma unroll
    for (int i = 0; i < n; ++i) to.b[i] = __shfl_up_sync(~0u, from.b[i], lanes);
}

// Parallel scan over the slices of a tile: from the state before the tile (`carry`) and the map of each slice, compute the
// state before this slice (`start`) and after the tile (`carry`). Within a warp maps are combined with shuffles, between
// warps through `board`, (WARPS, n · (n + 1), UNITS). Consecutive tiles use two boards in turn, so one barrier suffices.
template <int n> FUNCTION void connect(Map<n> map, real* carry, real* start, real* board, int slice) {
    const int unit = threadIdx.x % UNITS, warp = slice / IN_WARP, within = slice % IN_WARP;
    Map<n> before;  // composed map of the earlier slices in this warp
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

// Forward pass of a cell without a recurrent matmul, all steps in one launch: see time.cu.
#define READS_SHARE (TRAIN ? TRAIN_READS_SHARE : USE_READS_SHARE)
#define LOADS (ones(READS_SHARE) ? ones(READS_SHARE) : 1)

template <bool whole> FUNCTION void fetch_block(const Forward& a, const Column& c, slot* ring, int stage, int first) {
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        const int k = first + l;
        if (!whole && k >= c.length) return;
        const num* gates = a.share + row(a.offset, a.S, k, c.s) * GATES * a.H + c.u;
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (READS_SHARE >> g & 1)
                fetch(slot_of<LOADS>(ring, stage, l, rank_in(READS_SHARE, g)), gates + long(g) * a.H);
    }
}

FUNCTION void fetch_tile(const Forward& a, const Column& c, slot* ring, int tile) {
    const int first = (tile * SLICES + c.slice) * BLOCK;
    if (first + BLOCK <= c.length)
        fetch_block<true>(a, c, ring, tile % STAGES, first);
    else
        fetch_block<false>(a, c, ring, tile % STAGES, first);
    end_group();
}

// Weights of a unit, and its states before the current step.
struct Unit {
    real extra[EXTRAS + 1], bias[GATES], state[STATES];
};

typedef real Shares[VECTOR][GATES];  // of one step

// Run a block of steps: update the states and store the results.
template <bool whole>
FUNCTION void take_block(const Forward& a, const Column& c, int first, Shares* share, Unit (&unit)[VECTOR]) {
    const int H = a.H;
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        if (!whole && first + l >= c.length) return;
        const long at = row(a.offset, a.S, first + l, c.s);
        real after[VECTOR][STATES], saved[VECTOR][SAVED + 1], product[1];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
#if TRAIN
            train_step(share[l][v], product, unit[v].state, unit[v].extra, after[v], saved[v]);
#else
            use_step(share[l][v], product, unit[v].state, unit[v].extra, after[v], saved[v]);
#endif
        }
        if (TRAIN) {
#pragma unroll
            for (int g = 0; g < GATES; ++g)
                if (TRAIN_WRITES_SHARE >> g & 1)
                    put(a.share + (at * GATES + g) * H + c.u, [&](int v) { return share[l][v][g]; });
#pragma unroll
            for (int q = 0; q < SAVED; ++q)
                put(a.tape + (at * SAVED + q) * H + c.u, [&](int v) { return saved[v][q]; });
        }
#pragma unroll
        for (int j = 0; j < STATES; ++j) {
            if (KEPT >> j & 1) put(a.state[j] + at * H + c.u, [&](int v) { return after[v][j]; });
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) unit[v].state[j] = after[v][j];
        }
    }
}

#if SLICES > 1
// Map of a block of steps. It has no branch, so the compiler reuses most of its values when the steps are run.
FUNCTION Map<FORWARD_STAGE> map_of(const Column& c, int first, Shares* share, Unit& unit, int v) {
    Map<FORWARD_STAGE> map, one;
    real scratch[STATES];
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        forward_map(share[l][v], unit.extra, scratch, one.A, one.b);
        if (first + l >= c.length) one.be_identity();
        if (l) one.follow(map);
        map = one;
    }
    return map;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) elementwise_forward(const Forward a) {
    extern __shared__ __align__(128) byte memory[];
    slot* const ring = reinterpret_cast<slot*>(memory);
    const Column c = column_of(a.length, a.S, a.H, a.steps);
    const int tiles = (c.longest + SLICES * BLOCK - 1) / (SLICES * BLOCK);
    Unit unit[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        const int u = c.u + v;
#pragma unroll
        for (int e = 0; e < EXTRAS; ++e) unit[v].extra[e] = read(a.extra[e][u]);
#pragma unroll
        for (int g = 0; g < GATES; ++g) unit[v].bias[g] = a.input_bias ? read(a.input_bias[g * a.H + u]) : real(0);
#pragma unroll
        for (int j = 0; j < STATES; ++j)
            unit[v].state[j] = a.initial[j] && c.live ? read(a.initial[j][c.own + v]) : real(0);
    }
#if SLICES > 1
    real* const board = (real*)(ring + STAGES * BLOCK * LOADS * THREADS);
    real carry[VECTOR][FORWARD_STAGE];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v)
#pragma unroll
        for (int i = 0; i < FORWARD_STAGE; ++i) carry[v][i] = unit[v].state[FORWARD_STATE(i)];
#endif
    for (int tile = 0; tile < STAGES - 1; ++tile) fetch_tile(a, c, ring, tile);
    for (int tile = 0; tile < tiles; ++tile) {
        const int first = (tile * SLICES + c.slice) * BLOCK;
        const bool whole = first + BLOCK <= c.length;
        fetch_tile(a, c, ring, tile + STAGES - 1);
        arrived<STAGES - 1>();
        Shares share[BLOCK];
#pragma unroll
        for (int l = 0; l < BLOCK; ++l)
#pragma unroll
            for (int g = 0; g < GATES; ++g)
                if (READS_SHARE >> g & 1) {
                    real found[VECTOR];
                    numbers_in(slot_of<LOADS>(ring, tile % STAGES, l, rank_in(READS_SHARE, g)), found);
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) share[l][v][g] = found[v] + unit[v].bias[g];
                }
#if SLICES > 1
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            real start[FORWARD_STAGE];
            real* const mine = board + (tile % 2 * VECTOR + v) * BOARD(FORWARD_STAGE);
            connect(map_of(c, first, share, unit[v], v), carry[v], start, mine, c.slice);
#pragma unroll
            for (int i = 0; i < FORWARD_STAGE; ++i) unit[v].state[FORWARD_STATE(i)] = start[i];
        }
#endif
        if (whole)
            take_block<true>(a, c, first, share, unit);
        else
            take_block<false>(a, c, first, share, unit);
        if (first < c.length && c.length <= first + BLOCK)
#pragma unroll
            for (int j = 0; j < STATES; ++j) put(a.final_state[j] + c.own, [&](int v) { return unit[v].state[j]; });
    }
}

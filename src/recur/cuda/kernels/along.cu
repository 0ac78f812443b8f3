// The steps of a cell without a recurrent product, all of them in one launch: see time.cu.
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

// From the states before a block of steps to those after it, and to memory.
template <bool whole>
FUNCTION void take_block(const Forward& a, const Column& c, int first, real (*share)[GATES], real* state, real* extra) {
    const int H = a.H;
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        if (!whole && first + l >= c.length) return;
        const long at = row(a.offset, a.S, first + l, c.s);
        real after[STATES], saved[SAVED + 1], product[1];
#if TRAIN
        train_step(share[l], product, state, extra, after, saved);
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (TRAIN_WRITES_SHARE >> g & 1) a.share[(at * GATES + g) * H + c.u] = rounded(share[l][g]);
#pragma unroll
        for (int q = 0; q < SAVED; ++q) a.tape[(at * SAVED + q) * H + c.u] = rounded(saved[q]);
#else
        use_step(share[l], product, state, extra, after, saved);
#endif
#pragma unroll
        for (int j = 0; j < STATES; ++j) {
            state[j] = after[j];
            if (KEPT >> j & 1) a.state[j][at * H + c.u] = rounded(after[j]);
        }
    }
}

#if SLICES > 1
// The map of a block of steps. Without a branch: taking the steps finds most of it computed.
FUNCTION Map<FORWARD_STAGE> map_of(const Column& c, int first, real (*share)[GATES], real* extra) {
    Map<FORWARD_STAGE> map, one;
    real scratch[STATES];
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        forward_map(share[l], extra, scratch, one.A, one.b);
        if (first + l >= c.length) one.be_identity();
        if (l) one.follow(map);
        map = one;
    }
    return map;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS) along_forward(const Forward a) {
    extern __shared__ slot ring[];
    const Column c = column_of(a.length, a.S, a.H, a.steps);
    const int tiles = (c.longest + SLICES * BLOCK - 1) / (SLICES * BLOCK);
    real extra[EXTRAS + 1], state[STATES], bias[GATES];
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) extra[e] = read(a.extra[e][c.u]);
#pragma unroll
    for (int g = 0; g < GATES; ++g) bias[g] = a.input_bias ? read(a.input_bias[g * a.H + c.u]) : real(0);
#pragma unroll
    for (int j = 0; j < STATES; ++j) state[j] = a.initial[j] && c.live ? read(a.initial[j][c.own]) : real(0);
#if SLICES > 1
    real* const board = (real*)(ring + STAGES * BLOCK * LOADS * THREADS);
    real carry[FORWARD_STAGE];
#pragma unroll
    for (int i = 0; i < FORWARD_STAGE; ++i) carry[i] = state[FORWARD_STATE(i)];
#endif
    for (int tile = 0; tile < STAGES - 1; ++tile) fetch_tile(a, c, ring, tile);
    for (int tile = 0; tile < tiles; ++tile) {
        const int first = (tile * SLICES + c.slice) * BLOCK;
        const bool whole = first + BLOCK <= c.length;
        fetch_tile(a, c, ring, tile + STAGES - 1);
        arrived<STAGES - 1>();
        real share[BLOCK][GATES];
#pragma unroll
        for (int l = 0; l < BLOCK; ++l)
#pragma unroll
            for (int g = 0; g < GATES; ++g)
                if (READS_SHARE >> g & 1)
                    share[l][g] = bias[g] + number_in(slot_of<LOADS>(ring, tile % STAGES, l, rank_in(READS_SHARE, g)), c.u);
#if SLICES > 1
        real start[FORWARD_STAGE];
        connect(map_of(c, first, share, extra), carry, start, board + tile % 2 * BOARD(FORWARD_STAGE), c.slice);
#pragma unroll
        for (int i = 0; i < FORWARD_STAGE; ++i) state[FORWARD_STATE(i)] = start[i];
#endif
        if (whole)
            take_block<true>(a, c, first, share, state, extra);
        else
            take_block<false>(a, c, first, share, state, extra);
        if (first < c.length && c.length <= first + BLOCK)
#pragma unroll
            for (int j = 0; j < STATES; ++j) a.final_state[j][c.own] = rounded(state[j]);
    }
}

// Backward pass of a cell without a recurrent matmul: see time.cu. Steps are counted from the end of each segment
// (q = length − 1 − k).
#define LOAD_SHARE 0
#define LOAD_TAPE (LOAD_SHARE + ones(BACK_READS_SHARE))
#define LOAD_AFTER (LOAD_TAPE + SAVED)
#define LOAD_BEFORE (LOAD_AFTER + ones(BACK_READS_AFTER))
#define LOAD_ARRIVING (LOAD_BEFORE + ones(BACK_READS_BEFORE))
#define LOAD_XI (LOAD_ARRIVING + ones(OUTPUTS))
#define LOADS (LOAD_XI + WEIGHTED ? LOAD_XI + WEIGHTED : 1)

// Operands of one step of one unit.
struct Read {
    real share[GATES], saved[SAVED + 1], after[STATES], before[STATES], arriving[STATES], xi;
};
typedef Read Reads[VECTOR];

struct Unit {
    real extra[EXTRAS + 1], sums[EXTRAS + GATES + 1];
    real bias[GATES];  // added to input projections that were stored without it
    real end[STATES], state[STATES];  // gradients of the final states, and of the current ones
};

// `whole`: all BLOCK steps exist, and one more before them.
template <bool whole> FUNCTION void fetch_block(const Backward& a, const Column& c, slot* ring, int stage, int first) {
    const int H = a.H;
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        const int k = c.length - 1 - first - l;
        if (!whole && k < 0) return;
        const long at = row(a.offset, a.S, k, c.s);
        const auto into = [&](int load) { return slot_of<LOADS>(ring, stage, l, load); };
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (BACK_READS_SHARE >> g & 1)
                fetch(into(LOAD_SHARE + rank_in(BACK_READS_SHARE, g)), a.share + (at * GATES + g) * H + c.u);
#pragma unroll
        for (int q = 0; q < SAVED; ++q) fetch(into(LOAD_TAPE + q), a.tape + (at * SAVED + q) * H + c.u);
#pragma unroll
        for (int j = 0; j < STATES; ++j) {
            if (BACK_READS_AFTER >> j & 1)
                fetch(into(LOAD_AFTER + rank_in(BACK_READS_AFTER, j)), a.state[j] + at * H + c.u);
            if (BACK_READS_BEFORE >> j & 1) {
                slot* to = into(LOAD_BEFORE + rank_in(BACK_READS_BEFORE, j));
                if (whole || k)
                    fetch(to, a.state[j] + row(a.offset, a.S, k - 1, c.s) * H + c.u);
                else if (a.initial[j])
                    fetch(to, a.initial[j] + c.own);
                else
                    fetch_zero(to);
            }
            if (OUTPUTS >> j & 1 && a.d_outputs[j])
                fetch(into(LOAD_ARRIVING + rank_in(OUTPUTS, j)), a.d_outputs[j] + at * H + c.u);
        }
        if (WEIGHTED) fetch_real(into(LOAD_XI), a.xi + at);
    }
}

FUNCTION void fetch_tile(const Backward& a, const Column& c, slot* ring, int tile) {
    const int first = (tile * SLICES + c.slice) * BLOCK;
    if (first + BLOCK < c.length)
        fetch_block<true>(a, c, ring, tile % STAGES, first);
    else
        fetch_block<false>(a, c, ring, tile % STAGES, first);
    end_group();
}

FUNCTION void read_step(const Backward& a, slot* ring, int stage, int l, const Unit (&unit)[VECTOR], Reads& r) {
    real found[VECTOR];
    const auto read_at = [&](int load) { numbers_in(slot_of<LOADS>(ring, stage, l, load), found); };
#pragma unroll
    for (int g = 0; g < GATES; ++g)
        if (BACK_READS_SHARE >> g & 1) {
            read_at(LOAD_SHARE + rank_in(BACK_READS_SHARE, g));
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) r[v].share[g] = found[v] + unit[v].bias[g];
        }
#pragma unroll
    for (int q = 0; q < SAVED; ++q) {
        read_at(LOAD_TAPE + q);
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) r[v].saved[q] = found[v];
    }
#pragma unroll
    for (int j = 0; j < STATES; ++j) {
        if (BACK_READS_AFTER >> j & 1) {
            read_at(LOAD_AFTER + rank_in(BACK_READS_AFTER, j));
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) r[v].after[j] = found[v];
        }
        if (BACK_READS_BEFORE >> j & 1) {
            read_at(LOAD_BEFORE + rank_in(BACK_READS_BEFORE, j));
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) r[v].before[j] = found[v];
        }
        const bool arrives = OUTPUTS >> j & 1 && a.d_outputs[j];
        if (arrives) read_at(LOAD_ARRIVING + rank_in(OUTPUTS, j));
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) r[v].arriving[j] = arrives ? found[v] : real(0);
    }
    if (WEIGHTED)
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) r[v].xi = real_in(slot_of<LOADS>(ring, stage, l, LOAD_XI));
}

// g times ξ; 0 where ξ is 0, even if g is NaN.
FUNCTION real weighted(const Read& r, real g) {
    if (!WEIGHTED) return g;
    return r.xi == real(0) ? real(0) : g * r.xi;
}

// Run a block of steps: pass the gradient back through it and store the results.
template <bool whole>
FUNCTION void take_block(const Backward& a, const Column& c, int first, Reads* r, Unit (&unit)[VECTOR]) {
    const int H = a.H;
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        const int k = c.length - 1 - first - l;
        if (!whole && k < 0) return;
        const long at = row(a.offset, a.S, k, c.s);
        real d_share[VECTOR][GATES], d_product[1], d_state[VECTOR][STATES];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            Read& here = r[l][v];
            real d_after[STATES], d_before[STATES];
#pragma unroll
            for (int j = 0; j < STATES; ++j)
                d_after[j] = unit[v].state[j] + here.arriving[j], d_before[j] = real(0);
#if TRACE
            trace_step(here.share, here.saved, here.before, here.after, unit[v].extra, d_after, d_share[v], d_product,
                       d_before, d_state[v], unit[v].sums);
#else
            back_step(here.share, here.saved, here.before, here.after, unit[v].extra, d_after, d_share[v], d_product,
                      d_before, d_state[v], unit[v].sums);
#endif
#pragma unroll
            for (int j = 0; j < STATES; ++j) unit[v].state[j] = weighted(here, d_before[j]);
        }
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            put(a.d_share + (at * GATES + g) * H + c.u, [&](int v) { return d_share[v][g]; });
        if (TRACE)
#pragma unroll
            for (int j = 0; j < STATES; ++j) put(a.d_state[j] + at * H + c.u, [&](int v) { return d_state[v][j]; });
    }
}

#if SLICES > 1
// Map of a block, from the gradient that enters to the gradient that leaves. `end`: gradient of the final states.
FUNCTION Map<BACKWARD_STAGE> map_of(const Column& c, int first, Reads* reads, int v, const real* end, real* extra) {
    Map<BACKWARD_STAGE> map, one;
#pragma unroll
    for (int l = 0; l < BLOCK; ++l) {
        Read& r = reads[l][v];
        real d_after[STATES], arriving[BACKWARD_STAGE];
#pragma unroll
        for (int j = 0; j < STATES; ++j) d_after[j] = l ? r.arriving[j] : end[j] + r.arriving[j];
        backward_map(r.share, r.saved, r.before, r.after, extra, d_after, one.A, one.b);
#pragma unroll
        for (int i = 0; i < BACKWARD_STAGE; ++i) arriving[i] = r.arriving[BACKWARD_STATE(i)];
        one.apply(arriving);
#pragma unroll
        for (int i = 0; i < BACKWARD_STAGE; ++i) one.b[i] = weighted(r, arriving[i]);
#pragma unroll
        for (int i = 0; i < BACKWARD_STAGE * BACKWARD_STAGE; ++i) one.A[i] = weighted(r, one.A[i]);
        if (first + l >= c.length) one.be_identity();
        if (l) one.follow(map);
        map = one;
    }
    return map;
}
#endif

// Add the sums of a column's slices in the order of time.
FUNCTION void sum_extras(const Backward& a, const Column& c, const Unit (&unit)[VECTOR], byte* memory) {
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e)
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            real total = unit[v].sums[e];
#if SLICES > 1
            real* const parts = (real*)memory;
            __syncthreads();
            parts[threadIdx.x] = total;
            __syncthreads();
            for (int i = 1; i < SLICES; ++i) total += parts[i * UNITS + threadIdx.x % UNITS];
#endif
            if (c.live && c.slice == 0) a.sums[(long(c.s) * EXTRAS + e) * a.H + c.u + v] = total;
        }
}

extern "C" __global__ void __launch_bounds__(THREADS) elementwise_backward(const Backward a) {
    extern __shared__ __align__(128) byte memory[];
    slot* const ring = reinterpret_cast<slot*>(memory);
    const Column c = column_of(a.length, a.S, a.H, a.steps);
    const int tiles = (c.longest + SLICES * BLOCK - 1) / (SLICES * BLOCK);
    Unit unit[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v) {
        Unit& here = unit[v];
        const int u = c.u + v;
#pragma unroll
        for (int e = 0; e < EXTRAS; ++e) here.extra[e] = read(a.extra[e][u]), here.sums[e] = real(0);
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            here.bias[g] = BACK_READS_GIVEN >> g & 1 && a.input_bias ? read(a.input_bias[g * a.H + u]) : real(0);
#pragma unroll
        for (int j = 0; j < STATES; ++j) {
            here.end[j] = a.d_final[j] && c.live ? read(a.d_final[j][c.own + v]) : real(0);
            here.state[j] = here.end[j];
        }
    }
#if SLICES > 1
    real* const board = (real*)(ring + STAGES * BLOCK * LOADS * THREADS);
    real carry[VECTOR][BACKWARD_STAGE];
#pragma unroll
    for (int v = 0; v < VECTOR; ++v)
#pragma unroll
        for (int i = 0; i < BACKWARD_STAGE; ++i) carry[v][i] = unit[v].end[BACKWARD_STATE(i)];
#endif
    for (int tile = 0; tile < STAGES - 1; ++tile) fetch_tile(a, c, ring, tile);
    for (int tile = 0; tile < tiles; ++tile) {
        const int first = (tile * SLICES + c.slice) * BLOCK;
        const bool whole = first + BLOCK <= c.length;
        fetch_tile(a, c, ring, tile + STAGES - 1);
        arrived<STAGES - 1>();
        Reads r[BLOCK];
#pragma unroll
        for (int l = 0; l < BLOCK; ++l) read_step(a, ring, tile % STAGES, l, unit, r[l]);
#if SLICES > 1
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
            Unit& here = unit[v];
            // The gradient of a state that is not carried ends at the step that returned the state.
#pragma unroll
            for (int j = 0; j < STATES; ++j) here.state[j] = first == 0 ? here.end[j] : real(0);
            real start[BACKWARD_STAGE];
            real* const mine = board + (tile % 2 * VECTOR + v) * BOARD(BACKWARD_STAGE);
            connect(map_of(c, first, r, v, here.state, here.extra), carry[v], start, mine, c.slice);
#pragma unroll
            for (int i = 0; i < BACKWARD_STAGE; ++i) here.state[BACKWARD_STATE(i)] = start[i];
        }
#endif
        if (whole)
            take_block<true>(a, c, first, r, unit);
        else
            take_block<false>(a, c, first, r, unit);
        if (first < c.length && c.length <= first + BLOCK)
#pragma unroll
            for (int j = 0; j < STATES; ++j)
                if (a.carry[j])
#pragma unroll
                    for (int v = 0; v < VECTOR; ++v) a.carry[j][c.own + v] = unit[v].state[j];
    }
    sum_extras(a, c, unit, memory);
}

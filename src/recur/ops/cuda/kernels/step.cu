// One launch per step, for any cell on any GPU; the matmul with W runs before each step. All other kernels are tested
// against this one.

FUNCTION void load_extras(real* extra, const num* const* from, int u) {
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) extra[e] = read(from[e][u]);
}

template <bool train> FUNCTION void forward_element(const Forward& a, int s, int u) {
    const int H = a.H;
    const long at = row_of(a.offset, a.S, a.step, s), own = long(s) * H + u;
    real share[GATES], product[PRODUCTS + 1], before[STATES], extra[EXTRAS + 1], after[STATES], saved[SAVED + 1];
    num* gates = a.share + at * GATES * H + u;
#pragma unroll
    for (int g = 0; g < GATES; ++g)
        if ((train ? TRAIN_READS_SHARE : USE_READS_SHARE) >> g & 1) share[g] = read(gates[g * H]);
#pragma unroll
    for (int r = 0; r < PRODUCTS; ++r)
        product[r] = (a.product ? a.product[(long(s) * PRODUCTS + r) * H + u] : real(0)) +
                     (a.bias ? read(a.bias[r * H + u]) : real(0));
#pragma unroll
    for (int j = 0; j < STATES; ++j) before[j] = a.carry[j][own];
    load_extras(extra, a.extra, u);
    if (train)
        train_step(share, product, before, extra, after, saved);
    else
        use_step(share, product, before, extra, after, saved);
#pragma unroll
    for (int j = 0; j < STATES; ++j) {
        a.carry[j][own] = after[j];
        if (a.state[j]) a.state[j][at * H + u] = rounded(after[j]);
    }
    if (train) {
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (TRAIN_WRITES_SHARE >> g & 1) gates[g * H] = rounded(share[g]);
#pragma unroll
        for (int k = 0; k < SAVED; ++k) a.tape[(at * SAVED + k) * H + u] = rounded(saved[k]);
    }
    if (a.exchange) a.exchange[own] = rounded(after[0] * (a.mask ? read(a.mask[own]) : real(1)));
}

FUNCTION bool element(int H, int rows, int& s, int& u) {
    const long e = long(blockIdx.x) * blockDim.x + threadIdx.x;
    s = int(e / H);
    u = int(e % H);
    return s < rows;
}

extern "C" __global__ void forward_use(const Forward a) {
    int s, u;
    if (element(a.H, a.rows, s, u)) forward_element<false>(a, s, u);
}

extern "C" __global__ void forward_train(const Forward a) {
    int s, u;
    if (element(a.H, a.rows, s, u)) forward_element<true>(a, s, u);
}

// Gradient that step k + 1 passes to step k, through W and directly, times ξ.
FUNCTION real carried(const Backward& a, int j, int s, int u) {
    real g = a.carry[j][long(s) * a.H + u];
    if (s >= a.later) return g;  // this segment ends at step k
    if (j == 0 && a.product) g += a.product[long(s) * a.H + u] * (a.mask ? read(a.mask[long(s) * a.H + u]) : real(1));
    if (a.xi) {
        const real xi = a.xi[row_of(a.offset, a.S, a.step + 1, s)];
        g = xi == real(0) ? real(0) : g * xi;  // also if g is NaN: nothing passes where ξ is 0
    }
    return g;
}

template <bool trace> FUNCTION void backward_element(const Backward& a, int s, int u) {
    const int H = a.H, k = a.step;
    const long at = row_of(a.offset, a.S, k, s), own = long(s) * H + u;
    const long earlier = k ? row_of(a.offset, a.S, k - 1, s) : 0;
    real share[GATES], saved[SAVED + 1], before[STATES], after[STATES], extra[EXTRAS + 1], d_after[STATES];
    real d_share[GATES], d_product[OWN + 1], d_before[STATES], d_state[STATES], sum[EXTRAS + GATES + OWN + 1];
#pragma unroll
    for (int g = 0; g < GATES; ++g)
        if (BACK_READS_SHARE >> g & 1) share[g] = read(a.share[(at * GATES + g) * H + u]);
#pragma unroll
    for (int q = 0; q < SAVED; ++q) saved[q] = read(a.tape[(at * SAVED + q) * H + u]);
    load_extras(extra, a.extra, u);
#pragma unroll
    for (int j = 0; j < STATES; ++j) {
        if (BACK_READS_AFTER >> j & 1) after[j] = read(a.state[j][at * H + u]);
        if (BACK_READS_BEFORE >> j & 1)
            before[j] = k ? read(a.state[j][earlier * H + u]) : a.initial[j] ? read(a.initial[j][own]) : real(0);
        d_after[j] = carried(a, j, s, u) + (a.d_outputs[j] ? read(a.d_outputs[j][at * H + u]) : real(0));
        d_before[j] = real(0);
    }
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) sum[e] = real(0);
    if (trace)
        trace_step(share, saved, before, after, extra, d_after, d_share, d_product, d_before, d_state, sum);
    else
        back_step(share, saved, before, after, extra, d_after, d_share, d_product, d_before, d_state, sum);
#pragma unroll
    for (int g = 0; g < GATES; ++g) a.d_share[(at * GATES + g) * H + u] = rounded(d_share[g]);
#pragma unroll
    for (int o = 0; o < OWN; ++o) a.d_own[(at * OWN + o) * H + u] = rounded(d_product[o]);
#pragma unroll
    for (int j = 0; j < STATES; ++j) {
        a.carry[j][own] = d_before[j];
        if (trace) a.d_state[j][at * H + u] = rounded(d_state[j]);
    }
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) a.sums[(long(s) * EXTRAS + e) * H + u] += sum[e];
#pragma unroll
    for (int r = 0; r < PRODUCTS; ++r)
        a.exchange[(long(s) * PRODUCTS + r) * H + u] =
            rounded(PRODUCT_PLACE(r) < GATES ? d_share[PRODUCT_PLACE(r) % GATES] : d_product[PRODUCT_PLACE(r) - GATES]);
}

extern "C" __global__ void backward_back(const Backward a) {
    int s, u;
    if (element(a.H, a.rows, s, u)) backward_element<false>(a, s, u);
}

extern "C" __global__ void backward_trace(const Backward a) {
    int s, u;
    if (element(a.H, a.rows, s, u)) backward_element<true>(a, s, u);
}

// g ← min(1, θ/‖g‖) g for the gradient that step k + 1 passes back, with ‖g‖ over all states of a row. One CTA per row.
// Afterwards `carry` holds the total gradient.
extern "C" __global__ void clip_carried(const Backward a, const real bound) {
    __shared__ real total[32];
    const int s = blockIdx.x;
    real square = 0;
    for (int u = threadIdx.x; u < a.H; u += blockDim.x)
        for (int j = 0; j < STATES; ++j) {
            const real g = carried(a, j, s, u);
            a.carry[j][long(s) * a.H + u] = g;
            square += g * g;
        }
    for (int lane = 16; lane; lane >>= 1) square += __shfl_xor_sync(~0u, square, lane);
    if (threadIdx.x % 32 == 0) total[threadIdx.x / 32] = square;
    __syncthreads();
    square = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) square += total[w];
    const real norm = sqrt_of(square);
    if (!(norm > bound)) return;
    for (int u = threadIdx.x; u < a.H; u += blockDim.x)
        for (int j = 0; j < STATES; ++j) a.carry[j][long(s) * a.H + u] *= bound / norm;
}

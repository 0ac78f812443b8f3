// Backward pass of all steps in one launch: see persistent.cu.
struct Element {
    real carry[STATES];  // gradient of the states after the current step, without the part that passes through W
    num share[GATES], saved[SAVED + 1], before[STATES], after[STATES], d_outputs[STATES];  // kept as loaded
    real sum[EXTRAS + 1];
    real mask, xi;
    int s, length;
    bool alive;

    FUNCTION void fetch(const Backward& a, int k, int u) {
        const int H = a.H;
        const long at = row_at(a, k, s), own = long(s) * H + u;
        const long earlier = k ? row_at(a, k - 1, s) : 0;
        const bool more = k > AHEAD;
        const long next = more ? row_at(a, k - AHEAD, s) : at;
        xi = a.xi && k + 1 < length ? a.xi[row_at(a, k + 1, s)] : real(1);
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (BACK_READS_SHARE >> g & 1) {
                share[g] = a.share[(at * GATES + g) * H + u];
                if (more) bring(a.share + (next * GATES + g) * H + u);
            }
#pragma unroll
        for (int q = 0; q < SAVED; ++q) {
            saved[q] = a.tape[(at * SAVED + q) * H + u];
            if (more) bring(a.tape + (next * SAVED + q) * H + u);
        }
#pragma unroll
        for (int j = 0; j < STATES; ++j) {
            if (BACK_READS_AFTER >> j & 1) after[j] = a.state[j][at * H + u];
            if (BACK_READS_BEFORE >> j & 1)
                before[j] = k ? a.state[j][earlier * H + u] : a.initial[j] ? a.initial[j][own] : rounded(real(0));
            if (((BACK_READS_AFTER | BACK_READS_BEFORE) >> j & 1) && more) bring(a.state[j] + next * H + u);
            d_outputs[j] = a.d_outputs[j] ? a.d_outputs[j][at * H + u] : rounded(real(0));
            if (a.d_outputs[j] && more) bring(a.d_outputs[j] + next * H + u);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) carry_backward(const Directions<Backward> both) {
    extern __shared__ __align__(128) byte memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int blocks = gridDim.x / DIRECTIONS, block = blockIdx.x % blocks;
#if DIRECTIONS > 1
    const Backward a = both.of[blockIdx.x / blocks ? 1 : 0];
#else
    const Backward& a = both.of[0];
#endif
    const int H = a.H, cta = block % CTAS, u = cta * UNITS + threadIdx.x % UNITS, mine = min(u, H - 1);
    Product W;
    W.load(shared, a.W, H, cta);
    Exchange exchange(shared, cta);
    exchange.begin();
    real extra[EXTRAS + 1];
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) extra[e] = read(a.extra[e][mine]);

    for (int team = block / CTAS; team * USED < a.S; team += blocks / CTAS) {
        const int first = team * USED, steps = a.length ? a.length[first] : a.steps;
        exchange.join(a.exchange, a.arrived, team);
        Element element[ELEMENTS];
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) {
            Element& here = element[e];
            const int index = threadIdx.x + e * THREADS, s = first + index / UNITS;
            const bool inside = index < UNITS * USED && s < a.S && u < H;
            here.s = inside ? s : first;
            here.length = !inside ? 0 : a.length ? a.length[s] : a.steps;
            const long own = long(here.s) * H + mine;
            here.mask = a.mask ? read(a.mask[own]) : real(1);
#pragma unroll
            for (int j = 0; j < STATES; ++j) here.carry[j] = a.d_final[j] ? read(a.d_final[j][own]) : real(0);
#pragma unroll
            for (int q = 0; q < EXTRAS; ++q) here.sum[q] = real(0);
        }

        for (int k = steps - 1; k >= 0; --k) {
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e) {
                Element& here = element[e];
                here.alive = k < here.length;
                if (PREFETCH && here.alive) here.fetch(a, k, u);
            }
            delay(k);
            const bool multiplies = k + 1 < steps;
            if (multiplies) W.multiply(shared, exchange, a.W, H, cta);
            exchange.sums_ready(k, multiplies);
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e) {
                Element& here = element[e];
                const int index = threadIdx.x + e * THREADS;
                real d_share[GATES], d_product[OWN + 1];
                if (here.alive) {
                    if (!PREFETCH) here.fetch(a, k, u);
                    real share[GATES], saved[SAVED + 1], before[STATES], after[STATES];
#pragma unroll
                    for (int g = 0; g < GATES; ++g)
                        if (BACK_READS_SHARE >> g & 1) share[g] = read(here.share[g]);
#pragma unroll
                    for (int q = 0; q < SAVED; ++q) saved[q] = read(here.saved[q]);
#pragma unroll
                    for (int j = 0; j < STATES; ++j) {
                        if (BACK_READS_AFTER >> j & 1) after[j] = read(here.after[j]);
                        if (BACK_READS_BEFORE >> j & 1) before[j] = read(here.before[j]);
                    }
                    real d_after[STATES], d_before[STATES], d_state[STATES], sum[EXTRAS + GATES + OWN + 1];
#pragma unroll
                    for (int j = 0; j < STATES; ++j) {
                        real g = here.carry[j];
                        if (k + 1 < here.length) {
                            if (j == 0) g += here.mask * sum_of(shared, index / UNITS, index % UNITS, exchange.last());
                            g = here.xi == real(0) ? real(0) : g * here.xi;  // also if g is NaN: nothing passes where ξ is 0
                        }
                        d_after[j] = g + read(here.d_outputs[j]);
                        d_before[j] = real(0);
                    }
#pragma unroll
                    for (int q = 0; q < EXTRAS; ++q) sum[q] = here.sum[q];
                    const long at = row_at(a, k, here.s);
#if TRACE
                    trace_step(share, saved, before, after, extra, d_after, d_share, d_product, d_before, d_state, sum);
#pragma unroll
                    for (int j = 0; j < STATES; ++j) a.d_state[j][at * H + u] = rounded(d_state[j]);
#else
                    back_step(share, saved, before, after, extra, d_after, d_share, d_product, d_before, d_state, sum);
#endif
#pragma unroll
                    for (int q = 0; q < EXTRAS; ++q) here.sum[q] = sum[q];
#pragma unroll
                    for (int j = 0; j < STATES; ++j) here.carry[j] = d_before[j];
#pragma unroll
                    for (int g = 0; g < GATES; ++g) a.d_share[(at * GATES + g) * H + u] = rounded(d_share[g]);
#pragma unroll
                    for (int o = 0; o < OWN; ++o) a.d_own[(at * OWN + o) * H + u] = rounded(d_product[o]);
                }
                if (k) {
                    num next[PRODUCTS];
#pragma unroll
                    for (int r = 0; r < PRODUCTS; ++r) {
                        const real d = PRODUCT_PLACE(r) < GATES ? d_share[PRODUCT_PLACE(r) % GATES] : d_product[PRODUCT_PLACE(r) - GATES];
                        next[r] = multiplied(here.alive ? d : real(0));
                    }
                    exchange.publish(e, next);
                }
            }
            if (k) exchange.published();
        }
#pragma unroll
        for (int e = 0; e < ELEMENTS; ++e) {
            const Element& here = element[e];
            if (!here.length) continue;
            const long own = long(here.s) * H + u;
#pragma unroll
            for (int j = 0; j < STATES; ++j)
                if (a.carry[j]) a.carry[j][own] = here.carry[j];
#pragma unroll
            for (int q = 0; q < EXTRAS; ++q) a.sums[(long(here.s) * EXTRAS + q) * H + u] = here.sum[q];
        }
        __syncthreads();  // the next team reuses the buffers of v
    }
    exchange.end();
}

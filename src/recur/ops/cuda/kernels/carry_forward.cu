// Forward pass of all steps in one launch: see persistent.cu.
#if TRAIN
#define READS_SHARE (TRAIN_READS_SHARE | BACK_READS_GIVEN)  // stored again with their bias
#else
#define READS_SHARE USE_READS_SHARE
#endif

struct Element {
    real state[STATES];  // before the step
    num share[GATES];    // kept as loaded: converting it here would wait for the load
    real mask;
    int s, length;  // its segment and the segment's number of steps; 0 outside the batch
    bool alive;     // whether the segment has the current step

    FUNCTION void fetch(const Forward& a, int k, int u) {
        const num* gates = a.share + row_at(a, k, s) * GATES * a.H + u;
        const bool more = k + AHEAD < length;
        const num* later = a.share + row_at(a, more ? k + AHEAD : k, s) * GATES * a.H + u;
#pragma unroll
        for (int g = 0; g < GATES; ++g)
            if (READS_SHARE >> g & 1) {
                share[g] = gates[g * a.H];
                if (more) bring(later + g * a.H);
            }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) carry_forward(const Directions<Forward> both) {
    extern __shared__ __align__(128) byte memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int blocks = gridDim.x / DIRECTIONS, block = blockIdx.x % blocks;
#if DIRECTIONS > 1
    const Forward a = both.of[blockIdx.x / blocks ? 1 : 0];
#else
    const Forward& a = both.of[0];
#endif
    const int H = a.H, cta = block % CTAS, u = cta * UNITS + threadIdx.x % UNITS, mine = min(u, H - 1);
    Product W;
    W.load(shared, a.W, H, cta);
    Exchange exchange(shared, cta);
    exchange.begin();
    real input_bias[GATES], bias[PRODUCTS], extra[EXTRAS + 1];
#pragma unroll
    for (int g = 0; g < GATES; ++g) input_bias[g] = a.input_bias ? read(a.input_bias[g * H + mine]) : real(0);
#pragma unroll
    for (int r = 0; r < PRODUCTS; ++r) bias[r] = a.bias ? read(a.bias[r * H + mine]) : real(0);
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
            for (int j = 0; j < STATES; ++j) here.state[j] = a.initial[j] ? read(a.initial[j][own]) : real(0);
        }
        if (a.initial[0]) {
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e)
                exchange.publish(e, {multiplied(element[e].length ? element[e].state[0] * element[e].mask : real(0))});
            exchange.published();
        }

        for (int k = 0; k < steps; ++k) {
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e) {
                Element& here = element[e];
                here.alive = k < here.length;
                if (PREFETCH && here.alive) here.fetch(a, k, u);
            }
            delay(k);
            const bool multiplies = k > 0 || a.initial[0];
            if (multiplies) W.multiply(shared, exchange, a.W, H, cta);
            exchange.sums_ready(k, multiplies);
#pragma unroll
            for (int e = 0; e < ELEMENTS; ++e) {
                Element& here = element[e];
                const int index = threadIdx.x + e * THREADS;
                num next = multiplied(real(0));
                if (here.alive) {
                    if (!PREFETCH) here.fetch(a, k, u);
                    real share[GATES], product[PRODUCTS], after[STATES], saved[SAVED + 1];
#pragma unroll
                    for (int g = 0; g < GATES; ++g)
                        if (READS_SHARE >> g & 1) share[g] = read(here.share[g]) + input_bias[g];
#pragma unroll
                    for (int r = 0; r < PRODUCTS; ++r)
                        product[r] = bias[r] + (multiplies ? sum_of(shared, index / UNITS, r * UNITS + index % UNITS) : real(0));
                    const long at = row_at(a, k, here.s), own = long(here.s) * H + u;
#if TRAIN
                    train_step(share, product, here.state, extra, after, saved);
                    num* gates = a.share + at * GATES * H + u;
#pragma unroll
                    for (int g = 0; g < GATES; ++g)
                        if ((TRAIN_WRITES_SHARE | BACK_READS_GIVEN) >> g & 1) gates[g * H] = rounded(share[g]);
#pragma unroll
                    for (int q = 0; q < SAVED; ++q) a.tape[(at * SAVED + q) * H + u] = rounded(saved[q]);
#else
                    use_step(share, product, here.state, extra, after, saved);
#endif
                    next = multiplied(after[0] * here.mask);
#pragma unroll
                    for (int j = 0; j < STATES; ++j) {
                        here.state[j] = after[j];
                        if (a.state[j]) a.state[j][at * H + u] = rounded(after[j]);
                        if (k + 1 == here.length) a.final_state[j][own] = rounded(after[j]);
                    }
                }
                if (k + 1 < steps) exchange.publish(e, {next});
            }
            if (k + 1 < steps) exchange.published();
        }
        __syncthreads();  // the next team reuses the buffers of v
    }
    exchange.end();
}

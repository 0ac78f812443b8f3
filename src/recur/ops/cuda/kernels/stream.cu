// One step of many sessions, their states in pools by slot: U x, W h, biases and the cell's program in one launch.
//
// What W multiplies lies twice in its pool: other CTAs may still read h of a slot while its next one is written. A slot's
// parity says which of the two counts; of each tile of rows, the CTA that is done last turns it for all slots of the
// tile. All other states are read and written by one thread alone.
struct Step {
    int n, slots, D, H, x_pitch, out_pitch;
    const long long* index;  // (n,): the slot of each row; a row with one that there is not is idle
    const num* x;            // (n, x_pitch)
    const num* U;            // (GATES · H, D), rows padded with zeros to 16 bytes
    const num* W;            // (PRODUCTS · H, H), padded likewise
    const num* bias_ih;      // or null
    const num* bias_hh;
    const num* extra[EXTRAS + 1];
    num* v;                  // (2, slots, H padded): h as W multiplies it
    int* parity;             // (slots,)
    unsigned* tickets;       // (tiles,), zero between launches; null where a later launch turns the parity
    real* state[STATES];     // (slots, H) each
    num* out;                // (n, out_pitch)
};

#define THREADS 256
#define WARPS 8

constexpr int PER = 16 / int(sizeof(num));  // numbers of 16 bytes
FUNCTION int padded(int width) { return (width + PER - 1) / PER * PER; }

FUNCTION bool idle(const Step& a, int row) { return row >= a.n || a.index[row] < 0 || a.index[row] >= a.slots; }

// Which row of v counts for a row of the call.
FUNCTION long current(const Step& a, int row) {
    return idle(a, row) || !PRODUCTS ? 0 : long(a.parity[a.index[row]] & 1) * a.slots + a.index[row];
}

// The program on a unit of a row, whose sums are known but for the biases.
FUNCTION void finish(const Step& a, int row, int u, real (&share)[GATES], real (&product)[PRODUCTS + 1]) {
    num* out = a.out + long(row) * a.out_pitch + u;
    if (idle(a, row)) {
#pragma unroll
        for (int k = 0; k < OUTPUTS; ++k) out[k * a.H] = rounded(real(0));
        return;
    }
    real before[STATES], extra[EXTRAS + 1], after[STATES], saved[SAVED + 1];
    const long slot = a.index[row], own = slot * a.H + u;
#pragma unroll
    for (int j = 0; j < STATES; ++j) before[j] = a.state[j][own];
#pragma unroll
    for (int g = 0; g < GATES; ++g) share[g] += a.bias_ih ? read(a.bias_ih[g * a.H + u]) : real(0);
#pragma unroll
    for (int r = 0; r < PRODUCTS; ++r) product[r] += a.bias_hh ? read(a.bias_hh[r * a.H + u]) : real(0);
#pragma unroll
    for (int e = 0; e < EXTRAS; ++e) extra[e] = read(a.extra[e][u]);
    use_step(share, product, before, extra, after, saved);
#pragma unroll
    for (int j = 0; j < STATES; ++j) {
        a.state[j][own] = after[j];
        if (OUTPUT_PLACE(j) >= 0) out[OUTPUT_PLACE(j) * a.H] = rounded(after[j]);
    }
    if (PRODUCTS) {
        const long next = long(~a.parity[slot] & 1) * a.slots + slot;
        a.v[next * padded(a.H) + u] = rounded(after[0]);
    }
}

// This CTA, one of so many, is done with a tile of rows. `last`: in shared memory, free for this.
FUNCTION void done(const Step& a, int tile, int rows, int ctas, volatile int* last) {
    if (!PRODUCTS || !a.tickets) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *last = atomicAdd(a.tickets + tile, 1u) == unsigned(ctas - 1);
    }
    __syncthreads();
    if (!*last) return;
    for (int r = threadIdx.x; r < rows; r += THREADS) {
        const int row = tile * rows + r;
        if (!idle(a, row)) a.parity[a.index[row]] ^= 1;
    }
    if (threadIdx.x == 0) a.tickets[tile] = 0;
}

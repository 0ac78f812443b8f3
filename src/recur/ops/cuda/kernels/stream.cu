// One step for many sessions whose states are in pools, indexed by slot: U x, W h, biases and the cell's program.
//
// The pool holds two copies of h, because other CTAs may still read h of a slot while its next value is written. A slot's
// parity tells which copy is current. The last CTA to finish a tile of rows (it draws the last ticket) flips the parity
// of the tile's slots. Every other state is read and written by one thread only.
struct Step {
    int n, slots, D, H, x_pitch, out_pitch;
    const long long* index;  // (n,): the slot of each row; a row with an invalid slot is idle
    const num* x;            // (n, x_pitch)
    const num* U;            // (GATES · H, D), rows padded with zeros to 16 bytes
    const num* W;            // (PRODUCTS · H, H), padded in the same way
    const num* bias_ih;      // or null
    const num* bias_hh;
    const num* extra[EXTRAS + 1];
    num* v;                  // (2, slots, H padded): h, rounded for the matmul
    int* parity;             // (slots,)
    unsigned* tickets;       // (tiles,), zero between launches; null if a later launch flips the parity
    real* state[STATES];     // (slots, H) each
    num* out;                // (n, out_pitch)
};

#define THREADS 256
#define WARPS 8

constexpr int PER = 16 / int(sizeof(num));  // numbers in 16 bytes
FUNCTION int padded(int width) { return (width + PER - 1) / PER * PER; }

FUNCTION bool idle(const Step& a, int row) { return row >= a.n || a.index[row] < 0 || a.index[row] >= a.slots; }

// Index in v of the current h of a row.
FUNCTION long current(const Step& a, int row) {
    return idle(a, row) || !PRODUCTS ? 0 : long(a.parity[a.index[row]] & 1) * a.slots + a.index[row];
}

// Add the biases to the sums of one unit of one row, run the program and store its results.
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

// Mark a tile of rows as finished by this CTA. `last` is a free word of shared memory.
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

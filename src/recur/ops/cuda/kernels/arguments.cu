// Arguments of the forward and backward kernels. `codegen.py` holds the Python half of each struct.
//
// Rows are in packed order: the rows of step k follow those of step k − 1, and the longest segments come first. If all S
// segments have the same length, row s of step k is k · S + s, and `offset` is null.
struct Forward {
    int steps, S, H;
    int step;             // kernels of one step: the step, and its number of rows
    int rows;
    int reversed;         // kernels of two directions: scan from the last step to the first
    const int* offset;    // (steps,): the first row of each step
    const int* length;    // (S,): the steps of each segment
    num* share;           // (N, GATES · H): U x + b; a training step overwrites it with what the backward pass reads
    num* tape;            // (N, SAVED · H)
    num* state[STATES];   // (N, H) each, or null if only the final state is needed
    num* final_state[STATES];          // (S, H) each
    const num* initial[STATES];        // (S, H) each, or null for zero
    const num* bias;      // (PRODUCTS · H,), or null
    const num* input_bias;             // (GATES · H,), or null if `share` includes it
    const num* extra[EXTRAS + 1];      // (H,) each
    const num* mask;      // (S, H), or null
    const num* W;         // (PRODUCTS · H, columns), padded with zeros
    num* exchange;        // operand of the next matmul; see each kernel
    unsigned* arrived;    // counters, zero at first
    real* carry[STATES];  // (S, H) each: states between kernels that take one step
    const real* product;  // (rows, PRODUCTS · H)
};

struct Backward {
    int steps, S, H;
    int step, rows;
    int later;            // rows of the step after this one
    int reversed;
    const int* offset;
    const int* length;
    const num* share;
    const num* tape;
    const num* state[STATES];
    const num* initial[STATES];
    const num* extra[EXTRAS + 1];
    const num* mask;
    const num* W;         // (H, PRODUCTS · columns): transposed, padded with zeros
    const num* input_bias;             // (GATES · H,), or null if `share` includes it
    const num* d_outputs[STATES];      // (N, H) each, or null
    const num* d_final[STATES];        // (S, H) each, or null
    const real* xi;       // (N,), or null
    num* d_share;         // (N, GATES · H), or share itself
    num* d_own;           // (N, OWN · H)
    num* d_state[STATES]; // (N, H) each: total gradient of every state, for traces
    real* sums;           // (S, EXTRAS · H): gradients of extra weights, summed over steps
    real* carry[STATES];  // (S, H) each: gradient that is carried to the previous states
    num* exchange;
    unsigned* arrived;
    const real* product;  // (rows of the later step, H): Wᵀ δ
};

FUNCTION long row_of(const int* offset, int S, int k, int s) { return offset ? long(offset[k]) + s : long(k) * S + s; }

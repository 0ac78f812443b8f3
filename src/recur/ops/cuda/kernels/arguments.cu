// What the kernels of a pass are given: `arguments.py` holds the other half of each struct.
//
// Rows are in packed order: those of step k follow those of step k − 1, and the first of them belong to the longest
// segments. Where all S segments are equally long, row s of step k is k · S + s, and `offset` is null.
struct Forward {
    int steps, S, H;
    int step;             // of kernels that take one step: which, and of how many rows
    int rows;
    int reversed;         // of kernels that take all steps of two directions: whether from the end
    const int* offset;    // (steps,): the first row of each step
    const int* length;    // (S,): the steps of each segment
    num* share;           // (N, GATES · H): U x + b, then what a step saves in its place
    num* tape;            // (N, SAVED · H)
    num* state[STATES];   // (N, H) each, or null where only its end is wanted
    num* final_state[STATES];          // (S, H) each
    const num* initial[STATES];        // (S, H) each, or null for zero
    const num* bias;      // (PRODUCTS · H,), or null
    const num* input_bias;             // (GATES · H,), or null where `share` has it
    const num* extra[EXTRAS + 1];      // (H,) each
    const num* mask;      // (S, H), or null
    const num* W;         // (PRODUCTS · H, columns), padded with zeros
    num* exchange;        // what is multiplied next; see each kernel
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
    const num* input_bias;             // (GATES · H,), or null where `share` has it
    const num* d_outputs[STATES];      // (N, H) each, or null
    const num* d_final[STATES];        // (S, H) each, or null
    const real* xi;       // (N,), or null
    num* d_share;         // (N, GATES · H), or share itself
    num* d_own;           // (N, OWN · H)
    num* d_state[STATES]; // (N, H) each: the whole gradient of every state, where a trace wants it
    real* sums;           // (S, EXTRAS · H): of what the program sums up, over the steps
    real* carry[STATES];  // (S, H) each: what is carried to the states before
    num* exchange;
    unsigned* arrived;
    const real* product;  // (rows of the later step, H): Wᵀ δ
};

FUNCTION long row_of(const int* offset, int S, int k, int s) { return offset ? long(offset[k]) + s : long(k) * S + s; }

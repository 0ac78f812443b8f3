// What Python hands over: plain numbers and pointers. `program.py` and `library.py` hold the other half of each struct.
#pragma once

#include <cstdint>

extern "C" {

// An operation on operands, given as indices into the program's places.
struct Instruction {
    int32_t op, to, a, b, c;
};

// Where an operand lives. What is read is brought in, what is written is taken out, where a block is cut by the edge.
struct Place {
    int32_t kind, index, read, written;
};

struct Program {
    const Instruction* code;
    int64_t length;
    const Place* places;
    int64_t count;
    int64_t temps;
};

typedef void (*Task)(void*);
typedef void (*Parallel)(Task, void*, unsigned threads, unsigned flags);  // OpenMP's GOMP_parallel

// A scan: N steps of S segments; step k is taken by the first sizes[k] of them. In packed order the rows of a step stand
// side by side; batch-major, which needs all segments to be equally long, those of a segment. Matrices are row-major.
struct Scan {
    int64_t D, H, gates, products, states, extras, constants;
    int64_t kept;      // values of the tape beyond the gates' own places
    int64_t own;       // gradients of products that are not those of the gate of the same name
    int64_t steps, N, S;
    const int64_t* sizes;
    int64_t batch_major;
    int64_t biased;    // whether gates and products have biases
    int64_t threads;
    Parallel parallel; // torch's own pool, or null
    void* workspace;   // of recur_workspace_bytes()
    int64_t packed;    // whether it holds the weights as an earlier call packed them

    const void* data;             // (N, D)
    const void* weight_ih;        // (gates · H, D)
    const void* weight_hh;        // (products · H, H)
    const void* bias_ih;
    const void* bias_hh;
    const void* const* extra;     // (H,) each
    const double* constant;
    const void* const* initial;   // (S, H) each, or null for zero
    const void* mask;             // (S, H) or null
    const double* xi;             // (N,) or null
    double clip;                  // 0 for none

    void* share;                  // (N, gates · H): U x + b, and then what is kept of each step; or state[0]
    int64_t share_step;           // from one of its rows to the next, and in d_share
    void* tape;                   // (N, kept · H)
    void* const* state;           // (N, H) each; null where no step's value is wanted but the last, never the first's
    void* const* final_state;     // (S, H) each, or null
    Program program;

    // The way back
    const void* d_outputs;        // (N, H) or null
    const void* const* d_final;   // (S, H) each, or null
    void* d_share;                // (N, gates · H), or share itself
    void* d_product;              // (N, own · H)
    const int32_t* product_place; // for each product: its gate, or gates + its place in d_product
    int64_t adds_to_first;        // whether the program itself passes something on to the first state
    void* d_data;                 // (N, D) or null
    void* d_weight_ih;
    void* d_weight_hh;
    int64_t roomy;                // 1, 2: there is room behind the first, the second, for rows of a multiple of 32 columns
    void* d_bias_ih;
    void* d_bias_hh;
    void* const* d_extra;
    void* const* d_initial;       // (S, H) each, or null where it is not wanted
    void* const* norms;           // (N,) each, or null
};

int64_t recur_workspace_bytes(const Scan*, int isa, int is_double, int backward);
void recur_forward(const Scan*, int isa, int is_double);
// One scan after another, each on what the one before it wrote: one step of a stack of layers.
void recur_stack(const Scan* const*, int64_t count, int isa, int is_double);
void recur_backward(const Scan*, int isa, int is_double);
int64_t recur_scan_bytes();  // of the struct, which Python holds a copy of
const char* recur_operations();
const char* recur_places();
int recur_best_isa();
}

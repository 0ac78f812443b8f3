// What Python hands over: plain numbers and pointers. `library.py` holds the other half of each struct.
//
// Letters as in the book: U is the input's matrix (weight_ih), W the state's (weight_hh).
#pragma once

#include <cstdint>

extern "C" {

// An operation on operands, given as indices into the program's places.
struct Instruction {
    int32_t op, to, a, b, c;
};

// Where an operand lives. A block that is cut by its matrix's edge is copied: in if it is read, out if it is written.
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

// A scan: N steps of S segments; step k is taken by the first sizes[k] of them. In packed order the rows of a step lie
// side by side; batch-major, which needs all segments to be equally long, those of a segment. Matrices are row-major.
struct Scan {
    int64_t D, H, gates, products, states, extras, constants;
    int64_t saved;     // values saved for the backward pass beyond those in the gates' columns of `share`
    int64_t own;       // products whose gradient is not that of the gate of the same name
    int64_t heads;      // W has a block for each, which multiplies its part of the first state; 1 where it has but one
    int64_t projection; // P, where weight_hr makes the first state of what the program returns; 0 where nothing does
    int64_t steps, N, S;
    const int64_t* sizes;
    int64_t batch_major;
    int64_t biased;    // whether gates and products have biases
    int64_t along_time; // whether the program's rows are steps of one segment: see affine.h
    int64_t threads;
    Parallel parallel; // torch's own pool, or null
    void* workspace;   // of recur_workspace_bytes()
    void* packed;      // weights as recur_pack() left them; or null: a call packs them into its workspace

    const void* data;             // (N, D)
    const void* weight_ih;        // U: (gates · H, D)
    const void* weight_hh;        // W: (products · H, H), or (products · H, P); with heads, so many times fewer columns
    const void* weight_hr;        // (P, H)
    const void* bias_ih;
    const void* bias_hh;
    const void* const* extra;     // (H,) each
    const double* constant;
    const void* const* initial;   // (S, H) each, or null for zero; with a projection the first is (S, P), here and below
    const void* mask;             // (S, H) or null; (S, P) with a projection
    const double* xi;             // (N,) or null
    double clip;                  // 0 for none

    void* share;                  // (N, gates · H): the input's share U x + b, then what a step saves in its place;
                                  // or state[0], whose outputs overwrite it
    int64_t share_stride;         // from one of its rows to the next, and in d_share
    void* tape;                   // (N, saved · H)
    void* const* state;           // (N, H) each; null where only the last step's value is wanted, but never the first
    void* projected;              // (N, P): the first state; `state` holds what it was made of
    void* const* final_state;     // (S, H) each, or null
    Program program;

    // The backward pass
    const void* const* d_outputs; // (N, H) for each state, or null where it is no output
    const void* const* d_final;   // (S, H) each, or null
    void* d_share;                // (N, gates · H), or share itself
    void* d_product;              // (N, own · H)
    void* d_projected;            // (N, P): the whole gradient of the first state, where it is projected
    const int32_t* product_place; // for each product: its gate, or gates + its column block in d_product
    int64_t adds_to_first;        // whether the program itself writes a gradient of the first state before the step
    void* d_data;                 // (N, D) or null
    void* d_weight_ih;
    void* d_weight_hh;
    void* d_weight_hr;
    int64_t padded_rows;          // bits 1, 2: the memory of d_weight_ih, d_weight_hh has rows padded to 32 columns
    void* d_bias_ih;
    void* d_bias_hh;
    void* const* d_extra;
    void* const* d_initial;       // (S, H) each, or null where it is not wanted
    void* const* d_state;         // (N, H) each: the whole gradient of every state; where the program writes it
};

// A composition over B grids of R × C points, each point made of those above it and to its left, from Q corners.
struct Grid {
    int64_t Q, B, R, C, D, H, gates, states, constants;
    int64_t saved;        // values saved for the backward pass beyond those in the gates' places
    int64_t reads_share;  // whether any are saved in the gates' places
    int64_t rows;         // of the batch in each of its parts, which are taken one by one; the last may have fewer
    int64_t threads;
    Parallel parallel;    // torch's own pool, or null
    void* workspace;      // of recur_grid_workspace_bytes()
    const int64_t* turns; // for each corner: 1 where it reads from the last row up, and 2 from the last column
    const void* x;        // (B, R, C, D)
    const void* M;        // (Q, gates · H, 2H + D + 1): W_1, W_2, U and b side by side
    const double* constant;
    Program program;
    void* h;              // (B, R, C, Q · H)
    void* tape;           // for each corner and part, all states and what is saved: see grid.h; or null where nothing is

    // The backward pass
    const void* d_h;      // (B, R, C, Q · H)
    void* d_x;            // (Q, B, R, C, D), a sum to be taken over Q; or null
    void* d_M;
};

// A scan that is prepared: its struct, whole but for the addresses of what a call is given.
//
// Word `word` of the struct becomes the address of this tensor of the call, `offset` bytes on. In the place of a tensor
// OWN is the struct itself, behind which the arrays of pointers stand that it points to, and SCRATCH is memory that is
// there for as long as the call is.
struct Binding {
    int64_t word, tensor, offset;
};
enum { RECUR_OWN = -1, RECUR_SCRATCH = -2 };

struct Prepared {
    const int64_t* words;  // a Scan, and room for its arrays of pointers
    int64_t count;
    const Binding* bindings;
    int64_t bound;
    int64_t scratch;  // bytes
    int64_t isa, numbers, backward;
};

// What is in memory, and what products read of it: float32, float64; or float32 that products round to bfloat16; or
// that they read from 8 bits, forward alone.
enum Numbers { RECUR_FLOAT32 = 0, RECUR_FLOAT64 = 1, RECUR_BFLOAT16 = 2, RECUR_INT8 = 3 };

// No exception leaves these: they return a status, and recur_error() says what went wrong in this thread's last call.
enum Status { RECUR_OK = 0, RECUR_OUT_OF_MEMORY = 1, RECUR_FAILED = 2 };

int recur_workspace_bytes(const Scan*, int isa, int numbers, int backward, int64_t* bytes);
int recur_packed_bytes(const Scan*, int isa, int numbers, int64_t* bytes);
int recur_pack(const Scan*, int isa, int numbers);
// One call after another, each on what the one before it wrote, as the layers of a stack do.
int recur_run(const Prepared*, int64_t count, const int64_t* addresses);
void recur_bind(const Prepared*, const int64_t* addresses, void* scratch, int64_t* words);  // what a call runs on
int recur_grid_workspace_bytes(const Grid*, int isa, int numbers, int backward, int64_t* bytes);
int recur_grid_forward(const Grid*, int isa, int numbers);
int recur_grid_backward(const Grid*, int isa, int numbers);
const char* recur_error();

const char* recur_sources();  // the digest of the sources it was built from
int64_t recur_scan_bytes();   // of the struct, which Python holds a copy of
int64_t recur_grid_bytes();
const char* recur_operations();
const char* recur_places();
int recur_best_isa();
}

// Structs that Python passes: plain numbers and pointers. `library.py` declares the same structs for ctypes.
//
// U is the input matrix (weight_ih), W the recurrent matrix (weight_hh).
#pragma once

#include <cstdint>

extern "C" {

// One operation; operands are indices into the places of the program.
struct Instruction {
    int32_t op, to, a, b, c;
};

// An operand. A block that crosses the edge of its matrix is copied: in if it is read, out if it is written.
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

// A scan: N steps of S segments; the first sizes[k] segments take step k. In packed order the rows of a step are
// contiguous; batch-major, where all segments have the same length, the rows of a segment are. Matrices are row-major.
struct Scan {
    int64_t D, H, gates, products, states, extras, constants;
    int64_t saved;      // saved values that are not stored in `share`
    int64_t own;        // recurrent projections whose gradient differs from that of every input projection
    int64_t heads;      // the number of diagonal blocks of W, each for its part of the first state
    int64_t projection; // P, if weight_hr projects the first state; otherwise 0
    int64_t steps, N, S;
    const int64_t* sizes;
    int64_t batch_major;
    int64_t biased;     // whether there are bias_ih and bias_hh
    int64_t along_time; // whether the program is time-blocked: see affine.h
    int64_t threads;
    Parallel parallel; // torch's thread pool, or null
    void* workspace;   // of recur_workspace_bytes()
    void* packed;      // weights packed by recur_pack(); if null, every call packs them into its workspace

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

    void* share;                  // (N, gates · H): the input projection U x + b, later the values that a step saves there;
                                  // or state[0], if the outputs overwrite it
    int64_t share_stride;         // the row stride of share and d_share
    void* tape;                   // (N, saved · H): other saved values
    void* const* state;           // (N, H) each; null if only the final value is needed; the first is never null
    void* projected;              // (N, P): the projected first state; state[0] is the unprojected one
    void* const* final_state;     // (S, H) each, or null
    Program program;

    // The backward pass
    const void* const* d_outputs; // (N, H) for each state, or null if it is not an output
    const void* const* d_final;   // (S, H) each, or null
    void* d_share;                // (N, gates · H), or share itself
    void* d_product;              // (N, own · H)
    void* d_projected;            // (N, P): the full gradient of the projected first state
    const int32_t* product_place; // for each recurrent projection: its gate, or gates + its column block in d_product
    int64_t adds_to_first;        // whether the program computes a gradient of the previous first state
    void* d_data;                 // (N, D) or null
    void* d_weight_ih;
    void* d_weight_hh;
    void* d_weight_hr;
    int64_t padded_rows;          // bits 1, 2: the memory of d_weight_ih, d_weight_hh has rows padded to 32 columns
    void* d_bias_ih;
    void* d_bias_hh;
    void* const* d_extra;
    void* const* d_initial;       // (S, H) each, or null if not needed
    void* const* d_state;         // (N, H) each: the full gradient of every state, written by program `trace`
};

// A recurrence over B grids of R × C points; each point reads the points above and to the left of it, from Q corners.
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

// One value of a step that is a list of stages: a matrix with a row for each segment of the step. See stages.h.
enum StagedKind { RECUR_STEP, RECUR_SEGMENT, RECUR_VECTOR, RECUR_TEMP, RECUR_STATE, RECUR_SUM };

struct StagedValue {
    int64_t kind;       // rows of all steps, a row for each segment, one row for all, scratch memory, the state that the
                        // previous step left in rows of all steps, or a sum over all rows
    int64_t width;
    int64_t room;       // columns of a row that may be read and written beyond its width, the width included
    int64_t stride;     // the distance between two rows
    void* base;
    const void* first;  // of a state: its start (S, width), or null for zero
};

struct StagedMatrix {
    const void* base;
    int64_t rows, columns, stride;
    int64_t transposed;  // a · M instead of a · Mᵀ
};

enum StageKind { RECUR_POINTWISE, RECUR_PRODUCT, RECUR_TOTAL, RECUR_MEAN, RECUR_MAXIMUM };

// to = program(values), to = onto + a · matrix, or to = a reduction of a over each of `groups` groups of units.
struct StagedStage {
    int64_t kind, to, a, onto, matrix, groups, width;
    Program program;
    const double* constant;
    int64_t constants;
};

// A scan whose step is a list of stages; a backward scan runs the steps from the last to the first.
struct Staged {
    int64_t steps, N, S;
    const int64_t* sizes;
    int64_t backward;
    int64_t threads;
    Parallel parallel;  // torch's thread pool, or null
    const StagedValue* values;
    int64_t value_count;
    const StagedStage* stages;
    int64_t stage_count;
    const StagedMatrix* matrices;
    int64_t matrix_count;

    // The backward pass
    int64_t states;
    const int64_t* widths;
    void* const* carried;         // (S, width) each: zero at first, the gradients of the initial states at last
    void* const* next;            // (S, width) each: what a step writes
    const void* const* d_outputs; // (N, width) each, or null
    const double* xi;             // (N,) or null
    double clip;                  // 0 for none
};

// A prepared scan: its struct, complete except for the addresses of the tensors of a call.
//
// Word `word` of the struct is set to the address of a tensor of the call plus `offset` bytes. OWN stands for the struct
// itself, which its arrays of pointers follow, and SCRATCH for temporary memory of the call.
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

// Number formats: float32 and float64 as stored; float32 that products round to bfloat16; float32 with 8-bit weights
// (forward only).
enum Numbers { RECUR_FLOAT32 = 0, RECUR_FLOAT64 = 1, RECUR_BFLOAT16 = 2, RECUR_INT8 = 3 };

// The functions return a status and never throw; recur_error() describes the last failure in this thread.
enum Status { RECUR_OK = 0, RECUR_OUT_OF_MEMORY = 1, RECUR_FAILED = 2 };

int recur_workspace_bytes(const Scan*, int isa, int numbers, int backward, int64_t* bytes);
int recur_packed_bytes(const Scan*, int isa, int numbers, int64_t* bytes);
int recur_pack(const Scan*, int isa, int numbers);
// Run several calls in order, each on the results of the one before, as the layers of a stack do.
int recur_run(const Prepared*, int64_t count, const int64_t* addresses);
void recur_bind(const Prepared*, const int64_t* addresses, void* scratch, int64_t* words);  // what a call runs on
int recur_staged(const Staged*, int isa, int double_numbers);
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

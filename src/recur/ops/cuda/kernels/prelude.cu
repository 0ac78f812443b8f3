// Common start of every kernel: number types and the functions that a cell's program calls.
//
// `num` is a number in memory, `real` the same number in registers. No header is included, because a user's machine has
// no CUDA headers. NUM is one of the types below; FAST selects the GPU's approximate tanh, which is precise enough for
// 16-bit results.
#define FLOAT32 0
#define FLOAT64 1
#define BFLOAT16 2
#define FLOAT16 3
#define FUNCTION __device__ __forceinline__
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#endif

typedef unsigned char byte;
typedef unsigned short bits16;
typedef unsigned int bits32;
typedef unsigned long long bits64;

#if NUM == FLOAT64
typedef double real;
typedef double num;
FUNCTION real read(num x) { return x; }
FUNCTION num rounded(real x) { return x; }
#elif NUM == FLOAT32
typedef float real;
typedef float num;
FUNCTION real read(num x) { return x; }
FUNCTION num rounded(real x) { return x; }
#else
typedef float real;
struct __align__(2) num { bits16 bits; };
#if NUM == BFLOAT16
FUNCTION real read(num x) { return __uint_as_float(bits32(x.bits) << 16); }
FUNCTION num rounded(real x) {
    num y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
#else
FUNCTION real read(num x) {
    real y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
FUNCTION num rounded(real x) {
    num y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
#endif
#endif

#if NUM == FLOAT64
FUNCTION real exp_of(real x) { return exp(x); }
FUNCTION real tanh_of(real x) { return tanh(x); }
FUNCTION real sigmoid_of(real x) { return 1.0 / (1.0 + exp(-x)); }
FUNCTION real log_of(real x) { return log(x); }
FUNCTION real log1p_of(real x) { return log1p(x); }
FUNCTION real expm1_of(real x) { return expm1(x); }
FUNCTION real sqrt_of(real x) { return sqrt(x); }
FUNCTION real sin_of(real x) { return sin(x); }
FUNCTION real cos_of(real x) { return cos(x); }
FUNCTION real erf_of(real x) { return erf(x); }
FUNCTION real atan_of(real x) { return atan(x); }
FUNCTION real floor_of(real x) { return floor(x); }
FUNCTION real round_of(real x) { return rint(x); }
FUNCTION real pow_of(real x, real y) { return pow(x, y); }
FUNCTION real fmod_of(real x, real y) { return fmod(x, y); }
#else
FUNCTION real exp_of(real x) { return expf(x); }
FUNCTION real log_of(real x) { return logf(x); }
FUNCTION real log1p_of(real x) { return log1pf(x); }
FUNCTION real expm1_of(real x) { return expm1f(x); }
FUNCTION real sqrt_of(real x) { return sqrtf(x); }
FUNCTION real sin_of(real x) { return sinf(x); }
FUNCTION real cos_of(real x) { return cosf(x); }
FUNCTION real erf_of(real x) { return erff(x); }
FUNCTION real atan_of(real x) { return atanf(x); }
FUNCTION real floor_of(real x) { return floorf(x); }
FUNCTION real round_of(real x) { return rintf(x); }
FUNCTION real pow_of(real x, real y) { return powf(x, y); }
FUNCTION real fmod_of(real x, real y) { return fmodf(x, y); }
#if FAST
FUNCTION real tanh_of(real x) {
    real y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
FUNCTION real sigmoid_of(real x) { return 0.5f * tanh_of(0.5f * x) + 0.5f; }
#else
FUNCTION real tanh_of(real x) { return tanhf(x); }
FUNCTION real sigmoid_of(real x) { return 1.0f / (1.0f + expf(-x)); }
#endif
#endif

// The remainder of a division has the sign of the divisor.
FUNCTION real remainder_of(real x, real y) {
    const real rest = fmod_of(x, y);
    return rest != real(0) && (rest < real(0)) != (y < real(0)) ? rest + y : rest;
}

/* Functions of a header: matrix products, exp, tanh, sigmoid, sorting.

   Section `head` begins every header; the sections behind it are included where they are called. `sort` is filled in for
   float and double. exp, tanh and sigmoid of float32 are polynomials without branches, accurate to about one unit in the
   last place, so that compilers vectorize them; those of double are math.h's. A float product works on 32 rows at a time
   (storage: see c_graphs.py), so that a vector register holds several rows and no horizontal sum is needed. An 8-bit
   product is an integer dot product per row: its input is rounded to 16 bits relative to the largest input, as recur's
   own 8-bit product does, and 512 products of 8 and 16 bits fit into 32. */

/// head
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__cplusplus)
#define @@_RESTRICT __restrict
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
#define @@_RESTRICT restrict
#else
#define @@_RESTRICT
#endif
#if defined(__GNUC__) && !defined(__TINYC__)
#define @@_API static __attribute__((unused))
#define @@_INLINE static __inline__ __attribute__((always_inline, unused))
#define @@_DATA static const __attribute__((unused, aligned(64)))
#define @@_VECTORS
#else
#define @@_API static
#define @@_INLINE static
#define @@_DATA static const
#endif
#if defined(__TINYC__) /* tcc: INFINITY is not a constant expression */
#define @@_ABOVE_ALL (1e38f * 1e38f)
#define @@_BELOW_ALL (-1e38f * 1e38f)
#else
#define @@_ABOVE_ALL INFINITY
#define @@_BELOW_ALL (-INFINITY)
#endif

/// exp_f
@@_INLINE float @_exp_f(float x) {
    const float low = x < -105.0f ? -105.0f : x;
    const float y = low > 89.0f ? 89.0f : low;
    const float z = y * 1.44269504f + 12582912.0f; /* rounds: adding 1.5 * 2^23 leaves the integer in the low bits */
    uint32_t bits, a, b;
    int32_t n, half;
    float k, r, p, s, t;
    memcpy(&bits, &z, sizeof bits);
    n = (int32_t)(bits - 0x4B400000u);
    k = (float)n;
    r = y - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    half = n / 2; /* scale in two steps, so that denormals and the largest results are exact */
    a = (uint32_t)(half + 127) << 23;
    b = (uint32_t)(n - half + 127) << 23;
    memcpy(&s, &a, sizeof s);
    memcpy(&t, &b, sizeof t);
    return p * s * t;
}

/// sigmoid_f
@@_INLINE float @_sigmoid_f(float x) {
    return 1.0f / (1.0f + @_exp_f(-x));
}

/// tanh_f
@@_INLINE float @_tanh_f(float x) {
    const float size = x < 0.0f ? -x : x, z = x * x;
    float near, far;
    near = -5.70498872745e-3f;
    near = near * z + 2.06390887954e-2f;
    near = near * z - 5.37397155531e-2f;
    near = near * z + 1.33314422036e-1f;
    near = near * z - 3.33332819422e-1f;
    near = near * z * x + x;
    far = 1.0f - 2.0f / (@_exp_f(2.0f * size) + 1.0f);
    far = x < 0.0f ? -far : far;
    return size < 0.625f ? near : far;
}

/// relu_f
@@_INLINE float @_relu_f(float x) { return x < 0.0f ? 0.0f : x; }

/// sign_f
@@_INLINE float @_sign_f(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == x ? 0.0f : x; }

/// maximum_f
@@_INLINE float @_maximum_f(float a, float b) { return a != a || a > b ? a : b; }

/// minimum_f
@@_INLINE float @_minimum_f(float a, float b) { return a != a || a < b ? a : b; }

/// exp_d
@@_INLINE double @_exp_d(double x) { return exp(x); }

/// tanh_d
@@_INLINE double @_tanh_d(double x) { return tanh(x); }

/// sigmoid_d
@@_INLINE double @_sigmoid_d(double x) { return 1.0 / (1.0 + exp(-x)); }

/// relu_d
@@_INLINE double @_relu_d(double x) { return x < 0.0 ? 0.0 : x; }

/// sign_d
@@_INLINE double @_sign_d(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x == x ? 0.0 : x; }

/// maximum_d
@@_INLINE double @_maximum_d(double a, double b) { return a != a || a > b ? a : b; }

/// minimum_d
@@_INLINE double @_minimum_d(double a, double b) { return a != a || a < b ? a : b; }

/// maximum_i
@@_INLINE int32_t @_maximum_i(int32_t a, int32_t b) { return a > b ? a : b; }

/// minimum_i
@@_INLINE int32_t @_minimum_i(int32_t a, int32_t b) { return a < b ? a : b; }

/// remainder_f
@@_INLINE float @_remainder_f(float a, float b) {
    const float r = fmodf(a, b);
    return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

/// remainder_d
@@_INLINE double @_remainder_d(double a, double b) {
    const double r = fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}

/// remainder_i
static int32_t @_remainder_i(int32_t a, int32_t b) {
    const int32_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/// product_d
static void @_product_d(
    const double *w, const double *bias, const double *x, double *y, int32_t rows, int32_t columns) {
    for (int32_t n = 0; n < rows; ++n) {
        const int32_t first = n / 32 * 32, some = rows - first < 32 ? rows - first : 32;
        const double *own = w + first * columns + n - first;
        double total = bias ? bias[n] : 0.0;
        for (int32_t d = 0; d < columns; ++d) total += own[d * some] * x[d];
        y[n] = total;
    }
}

/// product_f
#ifdef @@_VECTORS
#ifdef __AVX__
#define @@_WIDE 8
#else
#define @@_WIDE 4
#endif
typedef float @_several __attribute__((vector_size(4 * @@_WIDE), aligned(4), may_alias));
#endif
static void @_product_f(
    const float *@@_RESTRICT w, const float *bias, const float *@@_RESTRICT x, float *@@_RESTRICT y, int32_t rows,
    int32_t columns) {
    int32_t n = 0;
#ifdef @@_VECTORS
    for (; n + 32 <= rows; n += 32, w += 32 * columns) {
        @_several a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, a4 = {0}, a5 = {0}, a6 = {0}, a7 = {0};
        const @_several *v = (const @_several *)w;
        @_several *to = (@_several *)(y + n);
        int32_t d = 0;
#ifdef __AVX__
        for (; d + 2 <= columns; d += 2, v += 8) {
            const float p = x[d], q = x[d + 1];
#else
        for (; d < columns; ++d, v += 8) {
            const float p = x[d], q = p;
#endif
            a0 += v[0] * p;
            a1 += v[1] * p;
            a2 += v[2] * p;
            a3 += v[3] * p;
            a4 += v[4] * q;
            a5 += v[5] * q;
            a6 += v[6] * q;
            a7 += v[7] * q;
        }
#ifdef __AVX__
        if (d < columns) {
            const float p = x[d];
            a0 += v[0] * p;
            a1 += v[1] * p;
            a2 += v[2] * p;
            a3 += v[3] * p;
        }
        a0 += a4;
        a1 += a5;
        a2 += a6;
        a3 += a7;
#else
        to[4] = a4;
        to[5] = a5;
        to[6] = a6;
        to[7] = a7;
#endif
        to[0] = a0;
        to[1] = a1;
        to[2] = a2;
        to[3] = a3;
        if (bias)
            for (int32_t r = n; r < n + 32; ++r) y[r] += bias[r];
    }
#endif
    for (; n < rows; n += 32, w += 32 * columns) {
        const int32_t some = rows - n < 32 ? rows - n : 32;
        float total[32];
        for (int32_t r = 0; r < 32; ++r) total[r] = 0.0f;
        for (int32_t d = 0; d < columns; ++d) {
            const float p = x[d];
            for (int32_t r = 0; r < some; ++r) total[r] += w[d * some + r] * p;
        }
        for (int32_t r = 0; r < some; ++r) y[n + r] = bias ? total[r] + bias[n + r] : total[r];
    }
}

/// product_q
static void @_product_q(
    const signed char *@@_RESTRICT w, const float *@@_RESTRICT scale, const float *bias, const float *@@_RESTRICT x,
    float *@@_RESTRICT y, int32_t rows, int32_t columns) {
    float most = 0.0f, wrong = 0.0f, up, down;
    for (int32_t d = 0; d < columns; ++d) {
        const float size = x[d] < 0.0f ? -x[d] : x[d];
        most = size > most ? size : most;
        wrong += x[d] - x[d]; /* NaN if any input is NaN or infinite */
    }
    up = most > 0.0f && wrong == 0.0f ? 32767.0f / most : 0.0f;
    down = most / 32767.0f;
    for (int32_t n = 0; n < rows; ++n) y[n] = wrong;
    for (int32_t first = 0; first < columns; first += 512) { /* 512 products of 8 and 16 bits fit into 32 bits */
        const int32_t some = columns - first < 512 ? columns - first : 512;
        int16_t q[512];
        for (int32_t d = 0; d < some; ++d) {
            const float v = wrong == 0.0f ? x[first + d] * up : 0.0f;
            q[d] = (int16_t)(int32_t)(v < 0.0f ? v - 0.5f : v + 0.5f);
        }
        for (int32_t n = 0; n < rows; ++n) {
            const signed char *own = w + (size_t)n * (size_t)columns + first;
            int32_t total = 0;
            for (int32_t d = 0; d < some; ++d) total += (int16_t)own[d] * q[d];
            y[n] += (float)total;
        }
    }
    for (int32_t n = 0; n < rows; ++n) y[n] = (bias ? bias[n] : 0.0f) + y[n] * (scale[n] * down);
}

/// at_f
@@_INLINE float @_at_f(const float *w, int32_t row, int32_t column, int32_t rows, int32_t columns) {
    const int32_t first = row / 32 * 32, some = rows - first < 32 ? rows - first : 32;
    return w[first * columns + column * some + row - first];
}

/// at_q
@@_INLINE float @_at_q(
    const signed char *w, const float *scale, int32_t row, int32_t column, int32_t rows, int32_t columns) {
    (void)rows;
    return (float)w[(size_t)row * (size_t)columns + (size_t)column] * scale[row];
}

/// sort
static void @_sort_%(letter)s(%(kind)s *x, int32_t rows, int32_t width) {
    for (int32_t r = 0; r < rows; ++r, x += width)
        for (int32_t i = 1; i < width; ++i) {
            const %(kind)s one = x[i];
            int32_t at = i;
            for (; at > 0 && x[at - 1] > one; --at) x[at] = x[at - 1];
            x[at] = one;
        }
}

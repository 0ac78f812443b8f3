// Vector registers of one instruction set, and the functions of cells on whole vectors.
//
// Included once per instruction set, inside a namespace and under the target flags of that set: see isa.h. Vectors are
// the extension of GCC and Clang, so +, * and ?: are written as for numbers. a * b + c becomes a fused multiply-add where
// the instruction exists.

#define INLINE inline __attribute__((always_inline))

template <typename T> struct Lanes;

template <> struct Lanes<float> {
    static constexpr int count = VECTOR_BYTES / sizeof(float);
    typedef float Vector __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    typedef int32_t Ints __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    static constexpr int exponent_bias = 127, mantissa_bits = 23;
};

template <> struct Lanes<double> {
    static constexpr int count = VECTOR_BYTES / sizeof(double);
    typedef double Vector __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
    typedef int64_t Ints __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
    static constexpr int exponent_bias = 1023, mantissa_bits = 52;
};

template <typename T> using Vector = typename Lanes<T>::Vector;
template <typename T> using Ints = typename Lanes<T>::Ints;

template <typename T> INLINE Vector<T> load(const T* p) { return *reinterpret_cast<const Vector<T>*>(p); }
template <typename T> INLINE void store(T* p, Vector<T> v) { *reinterpret_cast<Vector<T>*>(p) = v; }
INLINE Ints<float> load_ints(const void* p) { return *reinterpret_cast<const Ints<float>*>(p); }
INLINE void store_ints(void* p, Ints<float> v) { *reinterpret_cast<Ints<float>*>(p) = v; }
template <typename T> INLINE Vector<T> all(T value) { return Vector<T>{} + value; }

// A product that is rounded before it is added to anything, on every instruction set.
INLINE Vector<float> product_alone(Vector<float> x, float by) {
    Vector<float> y = x * by;
#if defined(__x86_64__)
    asm("" : "+x"(y));
#elif defined(__aarch64__)
    asm("" : "+w"(y));
#endif
    return y;
}

// Comparisons that leave a NaN as it is: it is never above or below a bound.
template <typename T> INLINE Vector<T> at_most(Vector<T> x, T bound) { return x > bound ? all(bound) : x; }
template <typename T> INLINE Vector<T> at_least(Vector<T> x, T bound) { return x < bound ? all(bound) : x; }

template <typename T> struct Exponential;  // eʳ − 1 = r + r² q(r) for |r| ≤ ln 2 / 2, and ln 2 in two parts

template <> struct Exponential<float> {
    static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, rounder = 12582912.0f;  // 1.5 · 2²³
    static INLINE Vector<float> q(Vector<float> r) {
        Vector<float> p = all(1.9875691500e-4f);
        p = p * r + 1.3981999507e-3f;
        p = p * r + 8.3334519073e-3f;
        p = p * r + 4.1665795894e-2f;
        p = p * r + 1.6666665459e-1f;
        return p * r + 5.0000001201e-1f;
    }
};

template <> struct Exponential<double> {
    static constexpr double ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    static constexpr double rounder = 6755399441055744.0;  // 1.5 · 2⁵²
    // Taylor's series: the first term left out, r¹⁴/14!, is below 5e-18.
    static INLINE Vector<double> q(Vector<double> r) {
        Vector<double> p = all(1.0 / 6227020800.0);
        p = p * r + 1.0 / 479001600.0;
        p = p * r + 1.0 / 39916800.0;
        p = p * r + 1.0 / 3628800.0;
        p = p * r + 1.0 / 362880.0;
        p = p * r + 1.0 / 40320.0;
        p = p * r + 1.0 / 5040.0;
        p = p * r + 1.0 / 720.0;
        p = p * r + 1.0 / 120.0;
        p = p * r + 1.0 / 24.0;
        p = p * r + 1.0 / 6.0;
        return p * r + 0.5;
    }
};

// x = n ln 2 + r: the whole number n, and eʳ − 1.
template <typename T> INLINE void split_exponent(Vector<T> x, Ints<T>& n, Vector<T>& rest) {
    using E = Exponential<T>;
    const Vector<T> whole = (x * T(1.44269504088896340736) + E::rounder) - E::rounder;
    const Vector<T> r = (x - whole * E::ln2_high) - whole * E::ln2_low;
    n = __builtin_convertvector(whole, Ints<T>);
    rest = r * r * E::q(r) + r;
}

// 2ⁿ, where that is a normal number.
template <typename T> INLINE Vector<T> power_of_two(Ints<T> n) {
    return (Vector<T>)((n + Lanes<T>::exponent_bias) << Lanes<T>::mantissa_bits);
}

template <typename T> INLINE Vector<T> exp_of(Vector<T> x) {
    const T bound = sizeof(T) == 4 ? T(120) : T(800);  // beyond, 0 or infinity, which two factors reach by themselves
    Ints<T> n;
    Vector<T> rest;
    split_exponent<T>(at_least(at_most(x, bound), -bound), n, rest);
    return (rest + T(1)) * power_of_two<T>(n >> 1) * power_of_two<T>(n - (n >> 1));
}

// e/(e + 2) with e = e²ˣ − 1, which keeps its precision near 0.
template <typename T> INLINE Vector<T> tanh_of(Vector<T> x) {
    const T bound = sizeof(T) == 4 ? T(9.1) : T(19.1);  // beyond, ±1 to the last bit
    Ints<T> n;
    Vector<T> rest;
    split_exponent<T>(at_least(at_most(x, bound), -bound) * T(2), n, rest);
    const Vector<T> power = power_of_two<T>(n), e = power * rest + (power - T(1));
    return e / (e + T(2));
}

template <typename T> INLINE Vector<T> sigmoid_of(Vector<T> x) {
    const T bound = sizeof(T) == 4 ? T(87.3) : T(708.3);  // where e⁻ˣ is still a normal number
    Ints<T> n;
    Vector<T> rest;
    split_exponent<T>(at_least(at_most(-x, bound), -bound), n, rest);
    const Vector<T> power = power_of_two<T>(n);
    return T(1) / (power * rest + (power + T(1)));
}

// Element by element: rare in a cell, and the compiler's library knows them to the last bit.
template <typename T, typename F> INLINE Vector<T> each(Vector<T> x, F f) {
    Vector<T> y;
    for (int k = 0; k < Lanes<T>::count; ++k) y[k] = f(x[k]);
    return y;
}
template <typename T, typename F> INLINE Vector<T> each(Vector<T> x, Vector<T> y, F f) {
    Vector<T> z;
    for (int k = 0; k < Lanes<T>::count; ++k) z[k] = f(x[k], y[k]);
    return z;
}

// x − y ⌊x / y⌋ without a rounding: the remainder of a division has the sign of the divisor.
template <typename T> INLINE T remainder_of(T x, T y) {
    const T rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define HAS_SHUFFLE
#endif
#endif

#ifdef HAS_SHUFFLE
// A square block, a vector for each row, transposed: for each bit of a place, the two quarters where row and column
// differ in it change sides.
template <typename T, int bit, int... lane>
INLINE void swap_quarters(Vector<T>* rows, std::integer_sequence<int, lane...>) {
    constexpr int lanes = sizeof...(lane);
    for (int i = 0; i < lanes; ++i) {
        if (i & bit) continue;
        const Vector<T> upper = rows[i], lower = rows[i | bit];
        rows[i] = __builtin_shufflevector(upper, lower, (lane & bit ? lanes + lane - bit : lane)...);
        rows[i | bit] = __builtin_shufflevector(upper, lower, (lane & bit ? lanes + lane : lane + bit)...);
    }
}

template <typename T, int bit = 1> INLINE void transpose(Vector<T>* rows) {
    constexpr int lanes = Lanes<T>::count;
    swap_quarters<T, bit>(rows, std::make_integer_sequence<int, lanes>());
    if constexpr (2 * bit < lanes) transpose<T, 2 * bit>(rows);
}
#endif

// Number formats of matrix products: as stored, or in fewer bits.
//
// P is the type of packed weights: float, double, Rounded (bfloat16) or Quantised (8 bits). Left<P> is the type that the
// other factor is converted to, Sum<P> the type of the unconverted numbers and of sums. Panels and rows are counted in
// units: the part of K that one instruction takes from each row and column.

template <typename P> struct Format {
    using Sum = P;
    using Left = P;
    static constexpr bool converts = false;
    static constexpr long units(long K) { return K; }                              // that K numbers make
    static constexpr long row(long K) { return K; }                                // units of a row, as it is stored
    static constexpr long panel(long K) { return K * (2 * Lanes<P>::count); }      // units of a panel, as it is stored
    static constexpr long deepest(long K, long deep) { return std::min(K, deep); }  // numbers in one block of K
};

template <typename P> using Sum = typename Format<P>::Sum;
template <typename P> using Left = typename Format<P>::Left;

// What a product is added to: rows of C itself, one row for all (a bias), or nothing.
template <typename T> struct From {
    const T* base = nullptr;
    long stride = 0;
    INLINE From at(long row, long column = 0) const {
        return base ? From{base + row * stride + column, stride} : From{};
    }
};

// Panels are prefetched a page ahead of their use: the processor's own prefetching ends at the end of a page.
constexpr long BYTES_AHEAD = 5120;

template <typename T> INLINE Vector<T> units_at(const T* p) { return load<T>(p); }
template <typename T> INLINE void add_product(Vector<T>& sum, T number, Vector<T> numbers) { sum += number * numbers; }

// Rows at a multiple of 2 KiB from each other compete for the same few sets of the L1 cache.
template <typename T> constexpr bool conflicts(long stride) { return stride * sizeof(T) % 2048 == 0; }

// How far a converted row is from the next one.
template <typename P> constexpr long row_stride_of(long K) {
    const long row = Format<P>::row(K);
    return row + (conflicts<Left<P>>(row) ? 64 / long(sizeof(Left<P>)) : 0);
}

// A float, rounded to the nearest bfloat16, to even where there are two: as a float again.
INLINE Ints<float> rounded_bits(Vector<float> x) {
    const Ints<float> bits = (Ints<float>)x, rest = (bits >> 16) & 1;
    const Ints<float> nearest = (bits + 0x7fff + rest) & ~0xffff;
    return x == x ? nearest : bits | 0x400000;  // or NaN could round to infinity
}

#ifdef DOT_BFLOAT16
// Two numbers, which one instruction multiplies with two others and adds to a float.
struct __attribute__((may_alias)) Rounded {
    uint16_t two[2];
};
constexpr long ROUNDED_TOGETHER = 2;

INLINE Ints<float> units_at(const Rounded* p) { return load_ints(p); }
INLINE void add_product(Vector<float>& sum, Rounded number, Ints<float> numbers) {
    int32_t pair;
    std::memcpy(&pair, &number, sizeof pair);
    sum = (Vector<float>)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)numbers);
}

INLINE Ints<float> round_lanes(Vector<float> x) {  // in the lower half of each lane
    typedef uint16_t Halves __attribute__((vector_size(VECTOR_BYTES / 2)));
    return __builtin_convertvector((Halves)_mm512_cvtneps_pbh((__m512)x), Ints<float>);
}
// The same lane of two vectors in one unit.
INLINE void store_units(Rounded* to, Vector<float> first, Vector<float> second) {
    store_ints(to, round_lanes(first) | (round_lanes(second) << 16));
}
// Numbers beside each other.
INLINE void store_row(Rounded* to, Vector<float> numbers) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh((__m512)numbers));
}
#else
// Without the instruction, one number, rounded, in as many bits as it had: the same products at the speed of float.
struct __attribute__((may_alias)) Rounded {
    float one;
};
constexpr long ROUNDED_TOGETHER = 1;

INLINE Vector<float> units_at(const Rounded* p) { return load<float>(reinterpret_cast<const float*>(p)); }
INLINE void add_product(Vector<float>& sum, Rounded number, Vector<float> numbers) { sum += number.one * numbers; }
INLINE void store_units(Rounded* to, Vector<float> numbers, Vector<float>) { store_ints(to, rounded_bits(numbers)); }
INLINE void store_row(Rounded* to, Vector<float> numbers) { store_ints(to, rounded_bits(numbers)); }
#endif

template <> struct Format<Rounded> {
    using Sum = float;
    using Left = Rounded;
    static constexpr bool converts = true;
    static constexpr long units(long K) { return (K + ROUNDED_TOGETHER - 1) / ROUNDED_TOGETHER; }
    static constexpr long row(long K) { return units(K); }
    static constexpr long panel(long K) { return units(K) * (2 * Lanes<float>::count); }
    static constexpr long deepest(long K, long deep) { return std::min(K, deep * ROUNDED_TOGETHER); }
};

// A row of K numbers; what is missing of the last unit is zero.
INLINE void convert_row(const float* from, long K, Rounded* to) {
    constexpr int lanes = Lanes<float>::count;
    long k = 0;
    for (; k + lanes <= K; k += lanes) store_row(to + k / ROUNDED_TOGETHER, load<float>(from + k));
    if (k == K) return;
    float rest[lanes] = {};
    alignas(64) Rounded converted[lanes];
    std::memcpy(rest, from + k, sizeof(float) * (K - k));
    store_row(converted, load<float>(rest));
    std::memcpy(to + k / ROUNDED_TOGETHER, converted, sizeof(Rounded) * Format<Rounded>::units(K - k));
}

// `columns` of so many rows (1 to ROUNDED_TOGETHER) in units.
INLINE void convert_columns(const float* from, long stride, long rows, long columns, Rounded* to) {
    constexpr int lanes = Lanes<float>::count;
    for (long j = 0; j < columns; j += lanes) {
        const long have = std::min<long>(lanes, columns - j);
        float numbers[2][lanes] = {};
        if (have == lanes) {
            store_units(to + j, load<float>(from + j), rows > 1 ? load<float>(from + stride + j) : Vector<float>{});
            continue;
        }
        alignas(64) Rounded converted[lanes];
        for (long k = 0; k < rows; ++k) std::memcpy(numbers[k], from + k * stride + j, sizeof(float) * have);
        store_units(converted, load<float>(numbers[0]), load<float>(numbers[1]));
        std::memcpy(to + j, converted, sizeof(Rounded) * have);
    }
}

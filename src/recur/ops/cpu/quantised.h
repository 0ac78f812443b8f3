// 8-bit weights for inference: one scale per column of B, which is a row of the weight, and rows of A in 16 bits with one
// scale each. Products and sums are integers, exact on every instruction set.
//
// 8-bit rows of A would be one sixth faster when weights come from the L3 cache, and double the error. Reading the
// weights takes most of the time: with 16-bit rows, 80 % of the bandwidth of the cache is used.

struct __attribute__((may_alias)) Quantised {
    int8_t two[2];
};
struct __attribute__((may_alias)) Short {
    int16_t two[2];
};

template <> struct Format<Quantised> {
    using Sum = float;
    using Left = Short;
    static constexpr int width = 2 * Lanes<float>::count;
    static constexpr bool converts = true;
    static constexpr long units(long K) { return (K + 1) / 2; }
    static constexpr long row(long K) { return 1 + units(K); }  // its scale first
    static constexpr long panel(long K) { return units(K) * width + width * sizeof(float) / sizeof(Quantised); }
    static constexpr long deepest(long K, long) { return K; }  // a scale is for all of K
};

constexpr float BYTE_MOST = 127, SHORT_MOST = 32767;
constexpr long UNITS_BEFORE_OVERFLOW = 256;  // 2 · 127 · 32767 · 256 < 2³¹

typedef int8_t HalfBytes __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1), may_alias));
typedef int16_t Shorts __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));

INLINE Shorts widened(const HalfBytes* p) {
#if VECTOR_BYTES == 64
    return (Shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif VECTOR_BYTES == 32
    return (Shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
    return __builtin_convertvector(*p, Shorts);
#endif
}

// sum += a₀ b₀ + a₁ b₁ in every lane.
INLINE void add_shorts(Ints<float>& sum, int32_t pair, Shorts b) {
#if defined(DOT_INT)
    sum = (Ints<float>)_mm512_dpwssd_epi32((__m512i)sum, _mm512_set1_epi32(pair), (__m512i)b);
#elif VECTOR_BYTES == 64
    sum += (Ints<float>)_mm512_madd_epi16(_mm512_set1_epi32(pair), (__m512i)b);
#elif VECTOR_BYTES == 32
    sum += (Ints<float>)_mm256_madd_epi16(_mm256_set1_epi32(pair), (__m256i)b);
#elif defined(__SSE2__)
    sum += (Ints<float>)_mm_madd_epi16(_mm_set1_epi32(pair), (__m128i)b);
#else
    const int32_t first = int16_t(uint32_t(pair) & 0xffff), second = pair >> 16;
    for (int k = 0; k < Lanes<float>::count; ++k) sum[k] += first * b[2 * k] + second * b[2 * k + 1];
#endif
}

INLINE Vector<float> whole(Vector<float> x) { return (x + 12582912.0f) - 12582912.0f; }  // to the nearest, below 2²²

template <int M, int steps>
INLINE void quantised_sums(const Short* a, long lda, const Quantised* panel, From<float> from, float* c, long ldc,
                           long K) {
    constexpr int lanes = Lanes<float>::count, width = 2 * lanes;
    Vector<float> total[M][2] = {};
    for (long begin = 0; begin < K; begin += steps * UNITS_BEFORE_OVERFLOW) {
        Ints<float> sum[steps][M][2] = {};
        const auto unit = [&](int s, long k) __attribute__((always_inline)) {
            const HalfBytes* here = reinterpret_cast<const HalfBytes*>(panel + k * width);
            const Shorts left = widened(here), right = widened(here + 1);
            if (M > 3) __builtin_prefetch(reinterpret_cast<const char*>(here) + BYTES_AHEAD, 0, 2);
            for (int i = 0; i < M; ++i) {
                int32_t pair;
                std::memcpy(&pair, a + i * lda + 1 + k, sizeof pair);
                add_shorts(sum[s][i][0], pair, left);
                add_shorts(sum[s][i][1], pair, right);
            }
        };
        const long end = std::min(K, begin + steps * UNITS_BEFORE_OVERFLOW);
        long k = begin;
        for (; k + steps <= end; k += steps)
            for (int s = 0; s < steps; ++s) unit(s, k + s);
        for (; k < end; ++k) unit(0, k);
        for (int i = 0; i < M; ++i)
            for (int half = 0; half < 2; ++half)
                for (int s = 0; s < steps; ++s)
                    total[i][half] += __builtin_convertvector(sum[s][i][half], Vector<float>);
    }
    const float* scales = reinterpret_cast<const float*>(panel + K * width);
    for (int i = 0; i < M; ++i) {
        float scale;
        std::memcpy(&scale, a + i * lda, sizeof scale);
        for (int half = 0; half < 2; ++half) {
            const Vector<float> product = total[i][half] * (scale * load<float>(scales + half * lanes));
            const float* onto = from.base + i * from.stride + half * lanes;
            store<float>(c + i * ldc + half * lanes, from.base ? load<float>(onto) + product : product);
        }
    }
}

// A row of K numbers, its largest as 32767; all zero with a scale that is no number, where one of them is not finite.
INLINE void convert_row(const float* from, long K, Short* to) {
    constexpr int lanes = Lanes<float>::count;
    Vector<float> most = {}, wrong = {};
    const auto each = [&](auto work) __attribute__((always_inline)) {
        long k = 0;
        for (; k + lanes <= K; k += lanes) work(k, load<float>(from + k));
        float rest[lanes] = {};
        if (k == K) return;
        std::memcpy(rest, from + k, sizeof(float) * (K - k));
        work(k, load<float>(rest));
    };
    each([&](long, Vector<float> x) __attribute__((always_inline)) {
        const Vector<float> size = x < 0 ? -x : x;
        most = size > most ? size : most;
        wrong += x * 0.0f;
    });
    float largest = 0, sum = 0;
    for (int k = 0; k < lanes; ++k) largest = std::max(largest, most[k]), sum += wrong[k];
    const bool finite = sum == 0;
    const bool counts = largest > 1e-30f;  // else its inverse would overflow
    const float scale = !finite ? sum : counts ? largest / SHORT_MOST : 0.0f;
    const float inverse = counts ? SHORT_MOST / largest : 0.0f;
    std::memcpy(to, &scale, sizeof scale);
    int16_t* numbers = (to + 1)->two;
    each([&](long k, Vector<float> x) __attribute__((always_inline)) {
        const Vector<float> scaled = finite ? whole(product_alone(x, inverse)) : Vector<float>{};
        typedef int16_t Half __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));
        const Half shorts = __builtin_convertvector(__builtin_convertvector(scaled, Ints<float>), Half);
        std::memcpy(numbers + k, &shorts, sizeof(int16_t) * std::min<long>(lanes, K - k + (K & 1)));
    });
}

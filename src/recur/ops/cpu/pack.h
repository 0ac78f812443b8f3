// Packing of both sides of a product into the layout that tiles read.

// Block sizes that keep reused data in the cache: units of K, and rows of A.
constexpr long DEEP = 512, TALL = 8 * TILE_ROWS;

// The source of B: a matrix, a transposed matrix, or rows at arbitrary addresses, with a factor for each number.
template <typename T> struct Source {
    const T* base = nullptr;
    long k_stride = 0, n_stride = 0;
    const T* const* rows = nullptr;
    const T* const* factors = nullptr;
    long column = 0;  // of those rows, the first that counts

    INLINE const T* row(long k) const { return rows ? rows[k] : base + k * k_stride; }
};

// Pack a panel of a transposed matrix: square blocks are transposed in registers, the rest number by number.
template <typename T> void pack_transposed(const T* b, long n_stride, long K, long have, T* to) {
    constexpr int lanes = Tile<T>::lanes, width = Tile<T>::width;
    long whole = 0;
#ifdef HAS_SHUFFLE
    for (; whole + lanes <= have; whole += lanes)
        for (long k = 0; k + lanes <= K; k += lanes) {
            Vector<T> block[lanes];
            for (int j = 0; j < lanes; ++j) block[j] = load<T>(b + (whole + j) * n_stride + k);
            transpose<T>(block);
            for (int i = 0; i < lanes; ++i) store<T>(to + (k + i) * width + whole, block[i]);
        }
#endif
    for (long from = 0; from < K; from += 16)  // a few at a time, to stay in the cache
        for (long j = 0; j < have; ++j)
            for (long k = std::max(from, j < whole ? K / lanes * lanes : 0); k < std::min(K, from + 16); ++k)
                to[k * width + j] = b[j * n_stride + k];
}

// Pack B[k0 … k0 + K)[n … n + have) as one panel; missing columns are zero.
template <typename T> void pack_panel(const Source<T>& b, long k0, long K, long n, long have, T* to) {
    constexpr int width = Tile<T>::width;
    n += b.column;
    if (have < width) std::memset(to, 0, sizeof(T) * K * width);
    if (!b.rows && b.k_stride == 1) {
        pack_transposed<T>(b.base + n * b.n_stride + k0, b.n_stride, K, have, to);
    } else if (b.factors) {
        for (long k = 0; k < K; ++k)
            for (long j = 0; j < have; ++j) to[k * width + j] = b.rows[k0 + k][n + j] * b.factors[k0 + k][n + j];
    } else if (have == width) {
        for (long k = 0; k < K; ++k) std::memcpy(to + k * width, b.row(k0 + k) + n, sizeof(T) * width);
    } else {
        for (long k = 0; k < K; ++k) std::memcpy(to + k * width, b.row(k0 + k) + n, sizeof(T) * have);
    }
}

// Pack a panel in two stages: some numbers at a time are packed unchanged and then converted.
constexpr long STRIP = 64;

template <typename F> void by_strips(const Source<float>& b, long k0, long K, long n, long have, F convert) {
    constexpr int width = Tile<float>::width;
    alignas(64) float numbers[STRIP * width];
    for (long k = 0; k < K; k += STRIP) {
        const long here = std::min(STRIP, K - k);
        pack_panel<float>(b, k0 + k, here, n, have, numbers);
        convert(numbers, k, here);
    }
}

INLINE void pack_panel(const Source<float>& b, long k0, long K, long n, long have, Rounded* to) {
    constexpr int width = Tile<float>::width;
    by_strips(b, k0, K, n, have, [&](const float* numbers, long k, long here) {
        for (long j = 0; j < here; j += ROUNDED_TOGETHER)
            convert_columns(numbers + j * width, width, std::min(ROUNDED_TOGETHER, here - j), width,
                            to + (k + j) / ROUNDED_TOGETHER * width);
    });
}

// Quantise each column so that its largest number is 127; the scales are stored after the panel.
INLINE void pack_panel(const Source<float>& b, long k0, long K, long n, long have, Quantised* to) {
    constexpr int width = Tile<float>::width;
    float most[width] = {}, wrong[width] = {}, inverse[width];
    float* scales = reinterpret_cast<float*>(to + Format<Quantised>::units(K) * width);
    by_strips(b, k0, K, n, have, [&](const float* numbers, long, long here) {
        for (long k = 0; k < here; ++k)
            for (int j = 0; j < width; ++j) {
                most[j] = std::max(most[j], std::abs(numbers[k * width + j]));
                wrong[j] += numbers[k * width + j] * 0.0f;  // no number, if one of them is infinite or none
            }
    });
    for (int j = 0; j < width; ++j) {
        const bool counts = wrong[j] == 0 && most[j] > 1e-30f;  // else its inverse would overflow
        scales[j] = counts ? most[j] / BYTE_MOST : wrong[j];
        inverse[j] = counts ? BYTE_MOST / most[j] : 0.0f;
    }
    by_strips(b, k0, K, n, have, [&](const float* numbers, long k, long here) {
        for (long at = 0; at < here + (here & 1); ++at)
            for (int j = 0; j < width; ++j)
                to[(k + at) / 2 * width + j].two[at & 1] =
                    at < here && inverse[j] ? int8_t(std::nearbyint(numbers[at * width + j] * inverse[j])) : int8_t(0);
    });
}

// Pack columns [m0, m0 + M) of A (K, …), transposed, unit by unit within a tile.
template <typename P> void pack_columns(const Sum<P>* a, long k_stride, long M, long K, Left<P>* to) {
    using T = Sum<P>;
    const long units = Format<P>::units(K);
    Left<P> converted[TALL];
    for (long k = 0; k < units; ++k) {
        const Left<P>* row;
        if constexpr (Format<P>::converts) {
            const long first = k * ROUNDED_TOGETHER;
            convert_columns(a + first * k_stride, k_stride, std::min(ROUNDED_TOGETHER, K - first), M, converted);
            row = converted;
        } else {
            row = a + k * k_stride;
        }
        Left<P>* tile = to;
        for (long i = 0; i < M;) {
            const int rows = next_rows<T>(M - i);
            if (rows == TILE_ROWS)
                std::memcpy(tile + k * rows, row + i, sizeof(T) * TILE_ROWS);
            else
                for (int r = 0; r < rows; ++r) tile[k * rows + r] = row[i + r];
            tile += rows * units;
            i += rows;
        }
    }
}

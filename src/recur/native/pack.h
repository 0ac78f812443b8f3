// Both sides of a product as the tiles read them.

// Where B lies: a matrix, a transposed one, or rows at any addresses, with a factor for each number.
template <typename T> struct Source {
    const T* base = nullptr;
    long k_stride = 0, n_stride = 0;
    const T* const* rows = nullptr;
    const T* const* factors = nullptr;

    INLINE const T* row(long k) const { return rows ? rows[k] : base + k * k_stride; }
};

// A panel of a matrix that lies transposed: square blocks of it in registers, and what is left number by number.
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

// B[k0 … k0 + K)[n … n + have) as one panel; columns that are not there are zero.
template <typename T> void pack_panel(const Source<T>& b, long k0, long K, long n, long have, T* to) {
    constexpr int width = Tile<T>::width;
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

// Columns [m0, m0 + M) of A (K, …), transposed, as the tiles take them: k after k within a tile.
template <typename T> void pack_columns(const T* a, long k_stride, long M, long K, T* to) {
    for (long k = 0; k < K; ++k) {
        const T* row = a + k * k_stride;
        T* tile = to;
        for (long i = 0; i < M;) {
            const int rows = next_rows<T>(M - i);
            if (rows == TILE_ROWS)
                std::memcpy(tile + k * rows, row + i, sizeof(T) * TILE_ROWS);
            else
                for (int r = 0; r < rows; ++r) tile[k * rows + r] = row[i + r];
            tile += rows * K;
            i += rows;
        }
    }
}

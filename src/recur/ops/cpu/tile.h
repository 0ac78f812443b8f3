// Register-blocked tiles of matrix products: C (M, N) = from + A (M, K) · B (K, N), with B packed.
//
// B is packed in panels of `width` columns (two vector registers), k by k: panel p holds B[k][p·width …] at k · width.
// A tile multiplies up to `TILE_ROWS` rows of A by one panel. Its 2 · TILE_ROWS sums stay in registers for all of K, so
// each k costs two vector loads from the panel, one broadcast per row of A, and no store: the multiply-add units, not
// the memory, limit the speed. If numbers are converted for a product, k and K count units of them: see formats.h.

template <typename T> struct Tile {
    static constexpr int lanes = Lanes<T>::count;
    static constexpr int width = 2 * lanes;
    static constexpr int rows = TILE_ROWS;
};

template <typename T> INLINE long whole_panels(long columns) {
    constexpr int width = Tile<T>::width;
    return (columns + width - 1) / width * width;
}

// K is unrolled by `steps`, each with separate sums: with few rows, a multiply-add would otherwise wait for the result
// of the previous one.
template <typename P, int M, int steps, typename T = Sum<P>>
INLINE void tile_sums(const Left<P>* a, long lda, long k_stride, const P* panel, From<T> from, T* c, long ldc, long K) {
    constexpr int lanes = Tile<T>::lanes, width = Tile<T>::width;
    Vector<T> sum[steps][M][2];
    for (int s = 0; s < steps; ++s)
        for (int i = 0; i < M; ++i) sum[s][i][0] = sum[s][i][1] = Vector<T>{};
    for (int i = 0; i < M; ++i) {  // written when the sums are there, and often not in the cache until then
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + lanes, 1);
    }
    long k = 0;
    for (; k + steps <= K; k += steps)
        for (int s = 0; s < steps; ++s) {
            const P* here = panel + (k + s) * width;
            const auto left = units_at(here), right = units_at(here + lanes);
            const P* later = here + BYTES_AHEAD / sizeof(P);
            if (M > 3) __builtin_prefetch(later, 0, 2);  // else reading takes all of the time, and more would not help
            if (M > 3 && sizeof left == 64) __builtin_prefetch(later + lanes, 0, 2);
            for (int i = 0; i < M; ++i) {
                const Left<P> number = a[i * lda + (k + s) * k_stride];
                add_product(sum[s][i][0], number, left);
                add_product(sum[s][i][1], number, right);
            }
        }
    for (; steps > 1 && k < K; ++k) {
        const auto left = units_at(panel + k * width), right = units_at(panel + k * width + lanes);
        for (int i = 0; i < M; ++i) {
            const Left<P> number = a[i * lda + k * k_stride];
            add_product(sum[0][i][0], number, left);
            add_product(sum[0][i][1], number, right);
        }
    }
    for (int i = 0; i < M; ++i) {
        for (int s = 1; s < steps; ++s) {
            sum[0][i][0] += sum[s][i][0];
            sum[0][i][1] += sum[s][i][1];
        }
        T* to = c + i * ldc;
        const T* onto = from.base + i * from.stride;
        store<T>(to, from.base ? load<T>(onto) + sum[0][i][0] : sum[0][i][0]);
        store<T>(to + lanes, from.base ? load<T>(onto + lanes) + sum[0][i][1] : sum[0][i][1]);
    }
}

template <typename P, int M, typename T = Sum<P>>
void tile(const Left<P>* a, long lda, bool packed, const P* panel, From<T> from, T* c, long ldc, long K) {
    constexpr int steps = M == 1 ? 4 : M <= 3 ? 2 : 1;
    if constexpr (std::is_same_v<P, Quantised>)
        quantised_sums<M, steps>(a, lda, panel, from, c, ldc, K);
    else if (packed)
        tile_sums<P, M, steps>(a, 1, M, panel, from, c, ldc, K);
    else
        tile_sums<P, M, steps>(a, lda, 1, panel, from, c, ldc, K);
}

template <typename P>
using TileOf = void (*)(const Left<P>*, long, bool, const P*, From<Sum<P>>, Sum<P>*, long, long);

template <typename P, int... M> constexpr TileOf<P> tile_of_rows(int rows, std::integer_sequence<int, M...>) {
    constexpr TileOf<P> tiles[] = {tile<P, M + 1>...};
    return tiles[rows - 1];
}

template <typename P> INLINE TileOf<P> tile_of(int rows) {
    return tile_of_rows<P>(rows, std::make_integer_sequence<int, TILE_ROWS>());
}

// Return the number of rows of the next tile: rows are divided evenly, because a tile of one row is the slowest.
template <typename T> INLINE int next_rows(long left) {
    const long tiles = (left + Tile<T>::rows - 1) / Tile<T>::rows;
    return int((left + tiles - 1) / tiles);
}

// Multiply A (rows, K), unpacked, by one panel.
template <typename P, typename T = Sum<P>>
INLINE void rows_by_panel(const Left<P>* a, long lda, long rows, const P* panel, From<T> from, T* c, long ldc, long K) {
    for (long i = 0; i < rows;) {
        const int M = next_rows<T>(rows - i);
        tile_of<P>(M)(a + i * lda, lda, false, panel, from.at(i), c + i * ldc, ldc, K);
        i += M;
    }
}

// Compute one tile, also at the right edge, where a panel has fewer columns.
template <typename P, typename T = Sum<P>>
INLINE void tile_at_edge(int rows, const Left<P>* a, long lda, bool packed, const P* panel, From<T> from, T* c,
                         long ldc, long K, long have) {
    constexpr int width = Tile<T>::width;
    if (have >= width) {
        tile_of<P>(rows)(a, lda, packed, panel, from, c, ldc, K);
        return;
    }
    alignas(64) T edge[TILE_ROWS * width];
    tile_of<P>(rows)(a, lda, packed, panel, {}, edge, width, K);
    for (int i = 0; i < rows; ++i)
        for (long j = 0; j < have; ++j)
            c[i * ldc + j] = edge[i * width + j] + (from.base ? from.base[i * from.stride + j] : T(0));
}

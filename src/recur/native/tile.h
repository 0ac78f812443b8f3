// The tiles that matrix products are made of: C (M, N) = from + A (M, K) · B (K, N), with B packed.
//
// B is packed in panels of `width` columns, two vectors of them, k after k: panel p holds B[k][p·width …] at k · width.
// A tile is up to `TILE_ROWS` rows of A against one panel. Its sums stay in registers over the whole of K; every k
// costs two loads from the panel and one number from each row of A.

template <typename T> struct Tile {
    static constexpr int lanes = Lanes<T>::count;
    static constexpr int width = 2 * lanes;
    static constexpr int rows = TILE_ROWS;
};

template <typename T> INLINE long whole_panels(long columns) {
    constexpr int width = Tile<T>::width;
    return (columns + width - 1) / width * width;
}

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

// K is taken `steps` at a time, each with sums of its own: a tile of few rows would otherwise wait for its own results.
template <typename T, int M, int steps>
INLINE void tile_sums(const T* a, long lda, long k_stride, const T* panel, From<T> from, T* c, long ldc, long K) {
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
            const T* here = panel + (k + s) * width;
            const Vector<T> left = load<T>(here), right = load<T>(here + lanes);
            const T* later = here + BYTES_AHEAD / sizeof(T);
            if (M > 3) __builtin_prefetch(later, 0, 2);  // else reading takes all of the time, and more would not help
            if (M > 3 && sizeof left == 64) __builtin_prefetch(later + lanes, 0, 2);
            for (int i = 0; i < M; ++i) {
                const T number = a[i * lda + (k + s) * k_stride];
                sum[s][i][0] += number * left;
                sum[s][i][1] += number * right;
            }
        }
    for (; steps > 1 && k < K; ++k) {
        const Vector<T> left = load<T>(panel + k * width), right = load<T>(panel + k * width + lanes);
        for (int i = 0; i < M; ++i) {
            const T number = a[i * lda + k * k_stride];
            sum[0][i][0] += number * left;
            sum[0][i][1] += number * right;
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

template <typename T, int M>
void tile(const T* a, long lda, bool packed, const T* panel, From<T> from, T* c, long ldc, long K) {
    constexpr int steps = M == 1 ? 4 : M <= 3 ? 2 : 1;
    if (packed)
        tile_sums<T, M, steps>(a, 1, M, panel, from, c, ldc, K);
    else
        tile_sums<T, M, steps>(a, lda, 1, panel, from, c, ldc, K);
}

template <typename T> using TileOf = void (*)(const T*, long, bool, const T*, From<T>, T*, long, long);

template <typename T, int... M> constexpr TileOf<T> tile_of_rows(int rows, std::integer_sequence<int, M...>) {
    constexpr TileOf<T> tiles[] = {tile<T, M + 1>...};
    return tiles[rows - 1];
}

template <typename T> INLINE TileOf<T> tile_of(int rows) {
    return tile_of_rows<T>(rows, std::make_integer_sequence<int, TILE_ROWS>());
}

// How many rows the next tile takes: as even as they come, since a tile of one row is the slowest.
template <typename T> INLINE int next_rows(long left) {
    const long tiles = (left + Tile<T>::rows - 1) / Tile<T>::rows;
    return int((left + tiles - 1) / tiles);
}

// A (rows, K), as it lies, against one panel.
template <typename T>
INLINE void rows_by_panel(const T* a, long lda, long rows, const T* panel, From<T> from, T* c, long ldc, long K) {
    for (long i = 0; i < rows;) {
        const int M = next_rows<T>(rows - i);
        tile_of<T>(M)(a + i * lda, lda, false, panel, from.at(i), c + i * ldc, ldc, K);
        i += M;
    }
}

// One tile, whatever part of its panel is there.
template <typename T>
INLINE void tile_at_edge(int rows, const T* a, long lda, bool packed, const T* panel, From<T> from, T* c, long ldc,
                         long K, long have) {
    constexpr int width = Tile<T>::width;
    if (have >= width) {
        tile_of<T>(rows)(a, lda, packed, panel, from, c, ldc, K);
        return;
    }
    alignas(64) T edge[TILE_ROWS * width];
    tile_of<T>(rows)(a, lda, packed, panel, {}, edge, width, K);
    for (int i = 0; i < rows; ++i)
        for (long j = 0; j < have; ++j)
            c[i * ldc + j] = edge[i * width + j] + (from.base ? from.base[i * from.stride + j] : T(0));
}

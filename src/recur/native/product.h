// Matrix products: C (M, N) = from + A (M, K) · B (K, N), with B packed.
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
    long step = 0;
    INLINE From at(long row, long column = 0) const {
        return base ? From{base + row * step + column, step} : From{};
    }
};

// Panels are brought from afar a page ahead of their use: at its end the processor itself looks no further.
constexpr long AHEAD = 40;

// K is taken `steps` at a time, each with sums of its own: a tile of few rows would otherwise wait for its own results.
template <typename T, int M, int steps>
INLINE void tile_sums(const T* a, long row_step, long k_step, const T* panel, From<T> from, T* c, long c_step, long K) {
    constexpr int lanes = Tile<T>::lanes, width = Tile<T>::width;
    Vector<T> sum[steps][M][2];
    for (int s = 0; s < steps; ++s)
        for (int i = 0; i < M; ++i) sum[s][i][0] = sum[s][i][1] = Vector<T>{};
    for (int i = 0; i < M; ++i) {  // wanted when the sums are there, and often far away until then
        __builtin_prefetch(c + i * c_step, 1);
        __builtin_prefetch(c + i * c_step + lanes, 1);
    }
    long k = 0;
    for (; k + steps <= K; k += steps)
        for (int s = 0; s < steps; ++s) {
            const T* here = panel + (k + s) * width;
            const Vector<T> left = load<T>(here), right = load<T>(here + lanes);
            __builtin_prefetch(here + AHEAD * width, 0, 2);
            __builtin_prefetch(here + AHEAD * width + lanes, 0, 2);
            for (int i = 0; i < M; ++i) {
                const T number = a[i * row_step + (k + s) * k_step];
                sum[s][i][0] += number * left;
                sum[s][i][1] += number * right;
            }
        }
    for (; steps > 1 && k < K; ++k) {
        const Vector<T> left = load<T>(panel + k * width), right = load<T>(panel + k * width + lanes);
        for (int i = 0; i < M; ++i) {
            const T number = a[i * row_step + k * k_step];
            sum[0][i][0] += number * left;
            sum[0][i][1] += number * right;
        }
    }
    for (int i = 0; i < M; ++i) {
        for (int s = 1; s < steps; ++s) {
            sum[0][i][0] += sum[s][i][0];
            sum[0][i][1] += sum[s][i][1];
        }
        T* to = c + i * c_step;
        const T* onto = from.base + i * from.step;
        store<T>(to, from.base ? load<T>(onto) + sum[0][i][0] : sum[0][i][0]);
        store<T>(to + lanes, from.base ? load<T>(onto + lanes) + sum[0][i][1] : sum[0][i][1]);
    }
}

template <typename T, int M>
void tile(const T* a, long row_step, bool packed, const T* panel, From<T> from, T* c, long c_step, long K) {
    constexpr int steps = M == 1 ? 4 : M <= 3 ? 2 : 1;
    if (packed)
        tile_sums<T, M, steps>(a, 1, M, panel, from, c, c_step, K);
    else
        tile_sums<T, M, steps>(a, row_step, 1, panel, from, c, c_step, K);
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
INLINE void rows_by_panel(const T* a, long a_step, long rows, const T* panel, From<T> from, T* c, long c_step, long K) {
    for (long i = 0; i < rows;) {
        const int M = next_rows<T>(rows - i);
        tile_of<T>(M)(a + i * a_step, a_step, false, panel, from.at(i), c + i * c_step, c_step, K);
        i += M;
    }
}

// Where B stands: a matrix, a transposed one, or rows that lie here and there with a factor for each number.
template <typename T> struct Source {
    const T* base = nullptr;
    long k_step = 0, n_step = 0;
    const T* const* rows = nullptr;
    const T* const* factors = nullptr;

    INLINE const T* row(long k) const { return rows ? rows[k] : base + k * k_step; }
};

// A panel of a matrix that lies transposed: square blocks of it in registers, and what is left number by number.
template <typename T> void pack_transposed(const T* b, long n_step, long K, long have, T* to) {
    constexpr int lanes = Tile<T>::lanes, width = Tile<T>::width;
    long whole = 0;
#ifdef HAS_SHUFFLE
    for (; whole + lanes <= have; whole += lanes)
        for (long k = 0; k + lanes <= K; k += lanes) {
            Vector<T> block[lanes];
            for (int j = 0; j < lanes; ++j) block[j] = load<T>(b + (whole + j) * n_step + k);
            transpose<T>(block);
            for (int i = 0; i < lanes; ++i) store<T>(to + (k + i) * width + whole, block[i]);
        }
#endif
    for (long j = 0; j < have; ++j)
        for (long k = j < whole ? K / lanes * lanes : 0; k < K; ++k) to[k * width + j] = b[j * n_step + k];
}

// B[k0 … k0 + K)[n … n + have) as one panel; columns that are not there are zero.
template <typename T> void pack_panel(const Source<T>& b, long k0, long K, long n, long have, T* to) {
    constexpr int width = Tile<T>::width;
    if (have < width) std::memset(to, 0, sizeof(T) * K * width);
    if (!b.rows && b.k_step == 1) {
        pack_transposed<T>(b.base + n * b.n_step + k0, b.n_step, K, have, to);
    } else if (b.factors) {
        for (long k = 0; k < K; ++k)
            for (long j = 0; j < have; ++j) to[k * width + j] = b.rows[k0 + k][n + j] * b.factors[k0 + k][n + j];
    } else if (have == width) {
        for (long k = 0; k < K; ++k) std::memcpy(to + k * width, b.row(k0 + k) + n, sizeof(T) * width);
    } else {
        for (long k = 0; k < K; ++k) std::memcpy(to + k * width, b.row(k0 + k) + n, sizeof(T) * have);
    }
}

// One tile, whatever part of its panel is there.
template <typename T>
INLINE void tile_at_edge(int rows, const T* a, long a_step, bool packed, const T* panel, From<T> from, T* c, long c_step,
                         long K, long have) {
    constexpr int width = Tile<T>::width;
    if (have >= width) {
        tile_of<T>(rows)(a, a_step, packed, panel, from, c, c_step, K);
        return;
    }
    alignas(64) T edge[TILE_ROWS * width];
    tile_of<T>(rows)(a, a_step, packed, panel, {}, edge, width, K);
    for (int i = 0; i < rows; ++i)
        for (long j = 0; j < have; ++j)
            c[i * c_step + j] = edge[i * width + j] + (from.base ? from.base[i * from.step + j] : T(0));
}

// Sizes that keep what is used again in the cache: K and rows of A in a block.
constexpr long DEEP = 512, TALL = 8 * TILE_ROWS;

// Rows of a matrix that stand in groups: `rows` of them `step` apart, and so again, `groups` times, `group` apart.
struct Grouped {
    long rows, step, groups, group;
};

// C = bias + A · B for these rows of A and C, with A as it lies and B (K, …) packed whole, panel after panel; columns
// [begin, end) of it, of which the first begins a panel.
template <typename T>
void by_panels(const T* a, long a_step, const T* panels, const T* bias, T* c, long c_step, const Grouped& at, long K, long begin,
               long end) {
    constexpr int width = Tile<T>::width;
    const long all = at.rows * at.groups;
    const long deep = all > TILE_ROWS ? DEEP : K;  // a panel that is read once is best read from end to end
    const long at_once = std::max(1L, TALL / at.rows);
    for (long g0 = 0; g0 < at.groups; g0 += at_once)
        for (long m0 = 0; m0 < at.rows; m0 += TALL)
            for (long k0 = 0; k0 < K; k0 += deep) {
                const long g_end = std::min(at.groups, g0 + at_once), m_end = std::min(at.rows, m0 + TALL);
                const long k_here = std::min(deep, K - k0);
                for (long n = begin; n < end; n += width)
                    for (long g = g0; g < g_end; ++g)
                        for (long i = m0; i < m_end;) {
                            const int rows = next_rows<T>(m_end - i);
                            const long row = i * at.step + g * at.group;
                            T* to = c + row * c_step + n;
                            const From<T> from = k0 ? From<T>{to, at.step * c_step} : bias ? From<T>{bias + n, 0} : From<T>{};
                            tile_at_edge<T>(rows, a + row * a_step + k0, at.step * a_step, false, panels + n * K + k0 * width,
                                            from, to, at.step * c_step, k_here, end - n);
                            i += rows;
                        }
            }
}

// Columns [m0, m0 + M) of A (K, …), transposed, as the tiles take them: k after k within a tile.
template <typename T> void pack_columns(const T* a, long k_step, long M, long K, T* to) {
    for (long k = 0; k < K; ++k) {
        const T* row = a + k * k_step;
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

// One matrix that a transposed product multiplies, and where the result goes, row by row.
template <typename T> struct Target {
    Source<T> b;
    T* c;
    long N;
};

// How much a transposed product packs of both sides, to keep it in the cache; less, all threads together, where A is so
// small that this would count among the memory. K is taken in equal parts, since every part reads and writes all of C.
struct Packing {
    long deep, wide, tall;
    Packing(long K, long A_size, long threads) {
        const bool large = A_size >= 1 << 19;
        const long parts = (K + (large ? 383 : 255)) / (large ? 384 : 256);
        deep = (K + parts - 1) / parts;
        wide = large ? 512 : std::max(64L, 256 / threads / 64 * 64);
        tall = large ? TALL : std::max(TALL / 4, TALL / threads / TILE_ROWS * TILE_ROWS);
    }
};

// Which part of a product: rows [from, from + rows), and panels [first, end) of columns, counted through all its targets.
struct Part {
    long from, rows, first, end;
};

// C (M, N) = Aᵀ · B for A (K, M) and one or two B: a sum over all steps, which is what the gradient of a weight is.
// Two share the work of packing A. A part of it.
template <typename T, int count>
void transposed_product(const T* a, long a_step, const Target<T> (&targets)[count], const Part& part, long K,
                        const Packing& packing, Arena arena) {
    constexpr int width = Tile<T>::width;
    const auto [deep, wide, tall] = packing;
    const long at_once = wide / width, M = part.rows;
    a += part.from;
    T* panels = arena.take<T>(deep * std::min(wide, (part.end - part.first) * width));
    T* block = arena.take<T>(std::min(tall, M) * deep);
    const auto find = [&](long p, long& n) -> const Target<T>& {  // the p-th panel of all: its matrix and first column
        long before = 0;
        for (int t = 0; t + 1 < count && p >= before + whole_panels<T>(targets[t].N) / width; ++t)
            before += whole_panels<T>(targets[t].N) / width;
        n = (p - before) * width;
        return targets[before ? count - 1 : 0];
    };
    for (long p0 = part.first; p0 < part.end; p0 += at_once)
        for (long k0 = 0; k0 < K; k0 += deep) {
            const long p_end = std::min(part.end, p0 + at_once), k_here = std::min(deep, K - k0);
            for (long p = p0; p < p_end; ++p) {
                long n;
                const Target<T>& target = find(p, n);
                pack_panel<T>(target.b, k0, k_here, n, std::min<long>(width, target.N - n), panels + (p - p0) * width * k_here);
            }
            for (long m0 = 0; m0 < M; m0 += tall) {
                const long m_here = std::min(tall, M - m0);
                pack_columns<T>(a + k0 * a_step + m0, a_step, m_here, k_here, block);
                for (long p = p0; p < p_end; ++p) {
                    long n;
                    const Target<T>& target = find(p, n);
                    const T* tile = block;
                    for (long i = 0; i < m_here;) {
                        const int rows = next_rows<T>(m_here - i);
                        T* to = target.c + (part.from + m0 + i) * target.N + n;
                        const From<T> onto = k0 ? From<T>{to, target.N} : From<T>{};
                        tile_at_edge<T>(rows, tile, 0, true, panels + (p - p0) * width * k_here, onto, to, target.N, k_here,
                                        target.N - n);
                        tile += rows * k_here;
                        i += rows;
                    }
                }
            }
        }
}

template <typename T> long transposed_product_bytes(const Part& part, const Packing& packing) {
    const long columns = std::min(packing.wide, (part.end - part.first) * Tile<T>::width);
    return packing.deep * (columns + std::min(packing.tall, part.rows)) * long(sizeof(T)) + 192;
}

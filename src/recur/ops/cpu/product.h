// Matrix products of any size, computed tile by tile in blocks that stay in the cache.

// Rows of a matrix in `groups` groups: `rows` rows at a stride, and the groups at a stride of `group`.
struct Grouped {
    long rows, stride, groups, group;
};

// Return the block size of K for a product by panels: all of K if a panel is read once, because sequential reads are
// the fastest.
template <typename P> long depth(long rows, long K) { return rows > TILE_ROWS ? Format<P>::deepest(K, DEEP) : K; }

// Return the memory that products of up to so many rows need to convert a block of rows of A.
template <typename P> long block_units(long rows, long K) {
    if (!Format<P>::converts) return 0;
    return std::max(std::min<long>(rows, TILE_ROWS) * row_stride_of<P>(K),
                    std::min(rows, TALL) * row_stride_of<P>(depth<P>(rows, K)));
}

// Compute C = bias + A · B for some rows of A and C, with A unpacked and B (K, …) packed panel by panel; only columns
// [begin, end) of B, where `begin` is the start of a panel.
template <typename P>
void by_panels(const Sum<P>* a, long lda, const P* panels, const Sum<P>* bias, Sum<P>* c, long ldc, const Grouped& at,
               long K, long begin, long end, Left<P>* block) {
    using T = Sum<P>;
    constexpr int width = Tile<T>::width;
    const long deep = depth<P>(at.rows * at.groups, K), at_once = std::max(1L, TALL / at.rows);
    for (long g0 = 0; g0 < at.groups; g0 += at_once)
        for (long m0 = 0; m0 < at.rows; m0 += TALL)
            for (long k0 = 0; k0 < K; k0 += deep) {
                const long g_end = std::min(at.groups, g0 + at_once), m_end = std::min(at.rows, m0 + TALL);
                const long k_here = std::min(deep, K - k0), stride = row_stride_of<P>(deep);
                const auto left = [&](long g, long i) { return block + ((g - g0) * (m_end - m0) + i - m0) * stride; };
                if constexpr (Format<P>::converts)
                    for (long g = g0; g < g_end; ++g)
                        for (long i = m0; i < m_end; ++i)
                            convert_row(a + (i * at.stride + g * at.group) * lda + k0, k_here, left(g, i));
                for (long n = begin; n < end; n += width)
                    for (long g = g0; g < g_end; ++g)
                        for (long i = m0; i < m_end;) {
                            const int rows = next_rows<T>(m_end - i);
                            const long row = i * at.stride + g * at.group;
                            T* to = c + row * ldc + n;
                            const From<T> start = bias ? From<T>{bias + n, 0} : From<T>{};
                            const From<T> from = k0 ? From<T>{to, at.stride * ldc} : start;
                            const P* panel = panels + n / width * Format<P>::panel(K) + Format<P>::units(k0) * width;
                            const long units = Format<P>::units(k_here);
                            if constexpr (Format<P>::converts)
                                tile_at_edge<P>(rows, left(g, i), stride, false, panel, from, to, at.stride * ldc,
                                                units, end - n);
                            else
                                tile_at_edge<P>(rows, a + row * lda + k0, at.stride * lda, false, panel, from, to,
                                                at.stride * ldc, units, end - n);
                            i += rows;
                        }
            }
}

// One right-hand matrix of a transposed product, and the rows of its result.
template <typename T> struct Target {
    Source<T> b;
    T* c;
    long N;
};

// Block sizes of a transposed product, chosen so that the packed blocks stay in the cache; smaller if A is so small that
// the packed memory of all threads would matter. K is divided evenly, because every block of K reads and writes all of C.
struct Packing {
    long deep, wide, tall;
    Packing(long K, long A_size, long threads) {
        const bool large = A_size >= 1 << 19;
        const long parts = (K + (large ? 383 : 255)) / (large ? 384 : 256);
        deep = (K + parts - 1) / parts;
        deep += deep & 1;  // whole units
        wide = large ? 512 : std::max(64L, 256 / threads / 64 * 64);
        tall = large ? TALL : std::max(TALL / 4, TALL / threads / TILE_ROWS * TILE_ROWS);
    }
};

// A part of a product: rows [from, from + rows) and panels [first, end) of columns, numbered across all targets.
struct Part {
    long from, rows, first, end;
};

// Compute a part of C (M, N) = Aᵀ · B for A (K, M) and one or two B: a sum over all steps, as in the gradient of
// a weight. Two right-hand matrices share the work of packing A.
template <typename P, int count, typename T = Sum<P>>
void transposed_product(const T* a, long lda, const Target<T> (&targets)[count], const Part& part, long K,
                        const Packing& packing, Arena arena) {
    constexpr int width = Tile<T>::width;
    const auto [deep, wide, tall] = packing;
    const long at_once = wide / width, M = part.rows;
    a += part.from;
    P* panels = arena.take<P>(Format<P>::units(deep) * std::min(wide, (part.end - part.first) * width));
    Left<P>* block = arena.take<Left<P>>(std::min(tall, M) * Format<P>::units(deep));
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
            const long units = Format<P>::units(k_here);
            for (long p = p0; p < p_end; ++p) {
                long n;
                const Target<T>& target = find(p, n);
                const long have = std::min<long>(width, target.N - n);
                pack_panel(target.b, k0, k_here, n, have, panels + (p - p0) * width * units);
            }
            for (long m0 = 0; m0 < M; m0 += tall) {
                const long m_here = std::min(tall, M - m0);
                pack_columns<P>(a + k0 * lda + m0, lda, m_here, k_here, block);
                for (long p = p0; p < p_end; ++p) {
                    long n;
                    const Target<T>& target = find(p, n);
                    const Left<P>* tile = block;
                    for (long i = 0; i < m_here;) {
                        const int rows = next_rows<T>(m_here - i);
                        T* to = target.c + (part.from + m0 + i) * target.N + n;
                        const From<T> onto = k0 ? From<T>{to, target.N} : From<T>{};
                        tile_at_edge<P>(rows, tile, 0, true, panels + (p - p0) * width * units, onto, to, target.N,
                                        units, target.N - n);
                        tile += rows * units;
                        i += rows;
                    }
                }
            }
        }
}

template <typename P> long transposed_product_bytes(const Part& part, const Packing& packing) {
    const long columns = std::min(packing.wide, (part.end - part.first) * Tile<Sum<P>>::width);
    return Format<P>::units(packing.deep) * (columns + std::min(packing.tall, part.rows)) * long(sizeof(P)) + 192;
}

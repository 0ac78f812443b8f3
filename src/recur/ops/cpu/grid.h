// Recurrences over 2-D grids, forward and backward, all anti-diagonals in one call.
//
// Vector registers hold rows, not units. A row is a point of a diagonal in one grid of the batch. The rows of a diagonal
// are contiguous for each unit. The predecessors of a diagonal are two slices of the previous diagonal, which has a point
// of zeros at both ends for points outside the grid. So tiles multiply weights by panels of rows for any number of units,
// and the pointwise part has no edges inside a diagonal.
//
// Corners and parts of the batch are independent tasks. The parts do not depend on the number of threads, so neither does
// any sum.

constexpr long GRID_PAD = 32;    // how far a panel may go beyond the last of a diagonal's points
constexpr long GRID_DEEP = 256;  // rows that the weights' gradient takes at a time: each time it reads all of its sums

// Rows of memory into the lanes of a panel, `count` numbers of each; lanes without a row are zero.
template <typename T>
void gather_rows(const T* base, long stride, const long* at, long have, long count, T* to, long ld) {
    constexpr int lanes = Lanes<T>::count, width = Tile<T>::width;
    long whole = 0;
#ifdef HAS_SHUFFLE
    const long units = count / lanes * lanes;
    for (; units && whole + lanes <= have; whole += lanes)
        for (long u = 0; u < units; u += lanes) {
            Vector<T> block[lanes];
            for (int k = 0; k < lanes; ++k) block[k] = load<T>(base + at[whole + k] * stride + u);
            transpose<T>(block);
            for (int k = 0; k < lanes; ++k) store<T>(to + (u + k) * ld + whole, block[k]);
        }
#else
    const long units = 0;
#endif
    for (long k = 0; k < have; ++k)
        for (long u = k < whole ? units : 0; u < count; ++u) to[u * ld + k] = base[at[k] * stride + u];
    if (have < width)
        for (long u = 0; u < count; ++u) std::memset(to + u * ld + have, 0, sizeof(T) * (width - have));
}

// And back.
template <typename T>
void scatter_rows(const T* from, long ld, long count, T* base, long stride, const long* at, long have) {
    constexpr int lanes = Lanes<T>::count;
    long whole = 0;
#ifdef HAS_SHUFFLE
    const long units = count / lanes * lanes;
    for (; units && whole + lanes <= have; whole += lanes)
        for (long u = 0; u < units; u += lanes) {
            Vector<T> block[lanes];
            for (int k = 0; k < lanes; ++k) block[k] = load<T>(from + (u + k) * ld + whole);
            transpose<T>(block);
            for (int k = 0; k < lanes; ++k) store<T>(base + at[whole + k] * stride + u, block[k]);
        }
#else
    const long units = 0;
#endif
    for (long k = 0; k < have; ++k)
        for (long u = k < whole ? units : 0; u < count; ++u) base[at[k] * stride + u] = from[u * ld + k];
}

template <typename T> struct GridFrame {
    static constexpr int width = Tile<T>::width;
    static constexpr long chunk = 16;  // units that the program takes at a time

    const Grid& g;
    const long H, GH, K, parts, steps;
    const long values;     // of each unit that a diagonal holds: its states, and what is saved
    const long widest;     // the longest row of a diagonal
    const long padded_GH;
    const bool one_thread;
    T *weights, *sums;
    long used, scratch_size, tape_size;
    char* scratch_base;

    GridFrame(const Grid& grid, bool backward)
        : g(grid), H(g.H), GH(g.gates * H), K(2 * H + g.D + 1), parts((g.B + g.rows - 1) / g.rows),
          steps(g.R + g.C - 1), values(g.states + (g.tape || backward ? (g.reads_share ? g.gates : 0) + g.saved : 0)),
          widest(row_length(std::min(g.R, g.C))), padded_GH(whole_panels<T>(GH)),
          one_thread(g.workspace && g.threads > 1 && g.Q * parts > 1 && Contention::prefers_one_thread()) {
        tape_size = diagonal_size(0);
        for (long d = 0; d < steps; ++d) tape_size += diagonal_size(std::min(d, g.R - 1) - std::max(0L, d - g.C + 1) + 1);
        Arena arena(g.workspace);
        weights = backward ? arena.take<T>(g.Q, GH, K) : nullptr;
        sums = backward ? arena.take<T>(g.Q, parts, K, padded_GH) : nullptr;
        Arena counted(nullptr);
        Scratch(*this, counted, backward);
        scratch_size = (counted.used() + 63) / 64 * 64;
        scratch_base = arena.take<char>(scratch_size, members());
        used = arena.used();
    }

    // Python knows these formulas too. A panel that is written may go beyond the last point into that of zeros behind
    // it, which is cleared afterwards, and one that is read into what comes next. An odd multiple of 16 numbers: rows do
    // not compete for the same sets of the cache.
    long row_length(long points) const {
        return ((points + 1) * g.rows + std::max<long>(g.rows, GRID_PAD) + 47) / 32 * 32 - 16;
    }
    long diagonal_size(long points) const { return values * H * row_length(points) + GRID_PAD; }
    long members() const { return one_thread ? 1 : std::max(1L, std::min<long>(g.threads, g.Q * parts)); }

    static const T* as(const void* p) { return static_cast<const T*>(p); }
    static T* as(void* p) { return static_cast<T*>(p); }

    struct Scratch {
        Operand<T>* operand;
        long* at;
        T *temps, *constants, *inputs, *a, *ring[2];
        T *total = nullptr, *d_before = nullptr, *d_x = nullptr, *stash = nullptr, *slopes = nullptr;

        Scratch(const GridFrame& f, Arena& arena, bool backward) {
            const Grid& g = f.g;
            operand = arena.take<Operand<T>>(g.program.count);
            at = arena.take<long>(width);
            temps = arena.take<T>(g.program.temps, chunk * width);
            constants = arena.take<T>(g.constants, width);
            inputs = arena.take<T>(f.K, width);
            a = arena.take<T>(f.GH, width);  // or its gradient
            for (T*& side : ring) side = g.tape && !backward ? nullptr : arena.take<T>(g.states * f.H * f.widest + GRID_PAD);
            if (!backward) return;
            total = arena.take<T>(f.H, width);
            d_before = arena.take<T>(2 * g.states, chunk * width);
            d_x = arena.take<T>(g.D, width);
            stash = arena.take<T>(f.K, stash_length);
            slopes = arena.take<T>(f.padded_GH, GRID_DEEP);
        }
        static constexpr long stash_length = GRID_DEEP + 16;
    };

    // A diagonal: where its rows lie, and the points before them.
    struct Diagonal {
        long index, top, points, above;  // above: where the points above begin in the diagonal before
        long length;
        T* base;
        T* row(long value, long unit, long H) const { return base + (value * H + unit) * length; }
    };

    // The one at `index` behind the one before; at index −1, one without points.
    Diagonal next(const Diagonal& before, T* base) const {
        const long d = before.index + 1, top = std::max(0L, d - g.C + 1), bottom = std::min(g.R - 1, d);
        return {d, top, bottom - top + 1, top - before.top, row_length(bottom - top + 1), base};
    }
    Diagonal first(T* base) const { return {-1, 0, 0, 0, row_length(0), base}; }

    // Part of a batch, seen from a corner.
    struct Task {
        long q, part;
        int64_t from, rows;
        bool down_up, right_left;
    };

    // Where the rows of a panel lie in (B, R, C, …).
    void locate(const Task& task, const Diagonal& now, long lane, long have, long* at) const {
        long p = lane / task.rows, b = lane % task.rows;
        for (long k = 0; k < have; ++k) {
            const long i = now.top + p, j = now.index - i;
            const long row = task.down_up ? g.R - 1 - i : i, column = task.right_left ? g.C - 1 - j : j;
            at[k] = ((task.from + b) * g.R + row) * g.C + column;
            if (++b == task.rows) b = 0, ++p;
        }
    }

    // h_1, h_2 and x of a panel, and the 1 that the bias is multiplied with; so many numbers from one row to the next.
    void gather_inputs(const Task& task, const Diagonal& before, const Diagonal& now, long lane, const long* at,
                       long have, T* to, long ld) const {
        for (long k = 0; k < 2 * H; ++k) {
            const long slice = (now.above + (k >= H)) * task.rows + lane;
            std::memcpy(to + k * ld, before.row(0, k % H, H) + slice, sizeof(T) * width);
        }
        gather_rows<T>(as(g.x), g.D, at, have, g.D, to + 2 * H * ld, ld);
        std::fill_n(to + (K - 1) * ld, width, T(1));
    }

    // The program on a panel, some units at a time; `find` knows where the places that hold states and gates lie.
    template <typename Find, typename Then> void run_program(Scratch& s, Find find, Then then) const {
        for (long unit = 0; unit < H; unit += chunk) {
            const long units = std::min(chunk, H - unit);
            for (long q = 0; q < g.program.count; ++q) {
                const Place& place = g.program.places[q];
                switch (Kind(place.kind)) {
                    case Kind::temp: s.operand[q] = {s.temps + place.index * chunk * width, width}; break;
                    case Kind::constant: s.operand[q] = {s.constants + place.index * width, 0}; break;
                    default: s.operand[q] = find(Kind(place.kind), place.index, unit);
                }
            }
            execute<T>(g.program.code, g.program.length, s.operand, units);
            then(unit, units);
        }
    }

    template <typename F> void each_task(bool backward, F work) const {
        const long tasks = g.Q * parts, count = members();
        std::atomic<long> next{0};
        auto member = [&](long m) {
            Arena arena(scratch_base + m * scratch_size);
            Scratch scratch(*this, arena, backward);
            for (long c = 0; c < g.constants; ++c) std::fill_n(scratch.constants + c * width, width, T(g.constant[c]));
            for (long t; (t = next.fetch_add(1)) < tasks;) {
                const long q = t / parts, part = t % parts, from = part * g.rows;
                work(Task{q, part, from, std::min(g.rows, g.B - from), bool(g.turns[q] & 1), bool(g.turns[q] & 2)},
                     scratch);
            }
        };
        if (count > 1) return run_parallel(g, count, member, tasks % count == 0);
        member(0);
    }

    T* tape_of(const Task& task) const { return as(g.tape) + (task.q * parts + task.part) * tape_size; }
};

template <typename T> struct GridForward : GridFrame<T> {
    using Base = GridFrame<T>;
    using Base::as, Base::each_task, Base::g, Base::GH, Base::H, Base::K, Base::parts, Base::steps;
    using Base::tape_size, Base::values, Base::width;
    using Scratch = typename Base::Scratch;
    using Diagonal = typename Base::Diagonal;
    using Task = typename Base::Task;

    explicit GridForward(const Grid& grid) : Base(grid, false) {}

    void run() const {
        prefer_large_pages(g.tape, sizeof(T) * g.Q * parts * tape_size);
        each_task(false, [&](const Task& task, Scratch& scratch) {
            T* base = g.tape ? this->tape_of(task) : scratch.ring[1];
            Diagonal before = this->first(base);
            std::memset(base, 0, sizeof(T) * this->diagonal_size(0));
            for (long d = 0; d < steps; ++d) {
                base = g.tape ? base + this->diagonal_size(before.points) : scratch.ring[d % 2];
                const Diagonal now = this->next(before, base);
                diagonal(task, before, now, scratch);
                before = now;
            }
        });
    }

    void diagonal(const Task& task, const Diagonal& before, const Diagonal& now, Scratch& s) const {
        const long rows = now.points * task.rows, lead = task.rows;
        const T* M = as(g.M) + task.q * GH * K;
        for (long lane = 0; lane < rows; lane += width) {
            const long have = std::min<long>(width, rows - lane);
            this->locate(task, now, lane, have, s.at);
            this->gather_inputs(task, before, now, lane, s.at, have, s.inputs, width);
            const bool on_tape = g.tape && g.reads_share;
            const Operand<T> a = on_tape ? Operand<T>{now.row(g.states, 0, H) + lead + lane, now.length}
                                         : Operand<T>{s.a, width};
            rows_by_panel<T>(M, K, GH, s.inputs, {}, a.base, a.stride, K);
            const auto find = [&](Kind kind, long index, long unit) -> Operand<T> {
                switch (kind) {
                    case Kind::share: return {a.base + (index * H + unit) * a.stride, a.stride};
                    case Kind::before:
                        return {before.row(index / 2, unit, H) + (now.above + index % 2) * lead + lane, before.length};
                    case Kind::saved: index += g.states + (g.reads_share ? g.gates : 0); break;
                    default: break;
                }
                return {now.row(index, unit, H) + lead + lane, now.length};
            };
            this->run_program(s, find, [](long, long) {});
            scatter_rows<T>(now.row(0, 0, H) + lead + lane, now.length, H, as(g.h) + task.q * H, g.Q * H, s.at, have);
        }
        for (long k = 0; k < values * H; ++k) {  // the points outside the grid
            T* row = now.base + k * now.length;
            std::memset(row, 0, sizeof(T) * lead);
            std::memset(row + lead + rows, 0, sizeof(T) * (now.length - lead - rows));
        }
        std::memset(now.base + values * H * now.length, 0, sizeof(T) * GRID_PAD);
    }
};

// The diagonals from the last, each adding its gradient to that of the one before; what sums over rows, the weights'
// gradient, is a product whenever enough of them have come together.
template <typename T> struct GridBackward : GridFrame<T> {
    using Base = GridFrame<T>;
    using Base::as, Base::chunk, Base::each_task, Base::g, Base::GH, Base::H, Base::K, Base::padded_GH, Base::parts;
    using Base::steps, Base::sums, Base::values, Base::weights, Base::width;
    using Scratch = typename Base::Scratch;
    using Diagonal = typename Base::Diagonal;
    using Task = typename Base::Task;

    explicit GridBackward(const Grid& grid) : Base(grid, true) {}

    void run() const {
        for (long q = 0; q < g.Q; ++q) pack(as(g.M) + q * GH * K, weights + q * GH * K);
        std::memset(sums, 0, sizeof(T) * g.Q * parts * K * padded_GH);
        each_task(true, [&](const Task& task, Scratch& scratch) { backward(task, scratch); });
        for (long q = 0; q < g.Q; ++q) reduce(q);
    }

    // Mᵀ in three pieces, for h_1, h_2 and x: their gradients go to different places.
    void pack(const T* M, T* to) const {
        pack_columns<T>(M, K, H, GH, to);
        pack_columns<T>(M + H, K, H, GH, to + H * GH);
        if (g.d_x) pack_columns<T>(M + 2 * H, K, g.D, GH, to + 2 * H * GH);
    }

    // Rows [0, M) of such a piece against a panel.
    static void product(const T* packed, long M, const T* panel, From<T> from, T* c, long ldc, long K) {
        for (long i = 0; i < M;) {
            const int rows = next_rows<T>(M - i);
            tile_of<T>(rows)(packed + i * K, 0, true, panel, from.at(i), c + i * ldc, ldc, K);
            i += rows;
        }
    }

    void backward(const Task& task, Scratch& s) const {
        std::vector<Diagonal> path{this->first(this->tape_of(task))};
        for (long d = 0; d < steps; ++d)
            path.push_back(this->next(path[d], path[d].base + this->diagonal_size(path[d].points)));
        long filled = 0;
        T *d_now = s.ring[0], *d_before = s.ring[1];
        std::memset(d_now, 0, sizeof(T) * g.states * H * path[steps].length);
        for (long d = steps; d > 0; --d) {
            std::memset(d_before, 0, sizeof(T) * g.states * H * path[d - 1].length);
            Diagonal gradient = path[d], gradient_before = path[d - 1];
            gradient.base = d_now, gradient_before.base = d_before;
            const long rows = path[d].points * task.rows;
            for (long lane = 0; lane < rows; lane += width) {
                panel(task, path[d - 1], path[d], gradient_before, gradient, lane,
                      std::min<long>(width, rows - lane), filled, s);
                filled += width;
                if (filled < GRID_DEEP && (d > 1 || lane + width < rows)) continue;
                weight_gradient(task, filled, s);
                filled = 0;
            }
            std::swap(d_now, d_before);
        }
    }

    void panel(const Task& task, const Diagonal& before, const Diagonal& now, const Diagonal& d_before,
               const Diagonal& d_now, long lane, long have, long filled, Scratch& s) const {
        const long lead = task.rows, above = now.above * lead + lane, here = lead + lane;
        this->locate(task, now, lane, have, s.at);
        gather_rows<T>(as(g.d_h) + task.q * H, g.Q * H, s.at, have, H, s.total, width);
        for (long u = 0; u < H; ++u) {
            T* to = s.total + u * width;
            const T* carried = d_now.row(0, u, H) + here;
            for (int k = 0; k < width; k += Lanes<T>::count) store<T>(to + k, load<T>(to + k) + load<T>(carried + k));
        }
        const auto find = [&](Kind kind, long index, long unit) -> Operand<T> {
            switch (kind) {
                case Kind::d_share: return {s.a + (index * H + unit) * width, width};
                case Kind::d_before: return {s.d_before + index * chunk * width, width};
                case Kind::d_after:
                    if (!index) return {s.total + unit * width, width};
                    return {d_now.row(index, unit, H) + here, d_now.length};
                case Kind::before: return {before.row(index / 2, unit, H) + above + index % 2 * lead, before.length};
                case Kind::share: index += g.states; break;
                case Kind::saved: index += g.states + (g.reads_share ? g.gates : 0); break;
                default: break;
            }
            return {now.row(index, unit, H) + here, now.length};
        };
        this->run_program(s, find, [&](long unit, long units) {
            for (long q = 0; q < g.program.count; ++q) {
                const Place& place = g.program.places[q];
                if (Kind(place.kind) != Kind::d_before) continue;
                const long state = place.index / 2, slice = above + place.index % 2 * lead;
                for (long u = 0; u < units; ++u) {
                    const T* from = s.operand[q].base + u * width;
                    T* to = d_before.row(state, unit + u, H) + slice;
                    for (long k = 0; k < have; ++k) to[k] += from[k];
                }
            }
        });
        for (long r = 0; r < GH && have < width; ++r)  // no rows: they add nothing
            std::memset(s.a + r * width + have, 0, sizeof(T) * (width - have));
        const T* M = weights + task.q * GH * K;
        for (long k = 0; k < 2 && now.index; ++k) {
            T* to = d_before.row(0, 0, H) + above + k * lead;
            product(M + k * H * GH, H, s.a, {to, d_before.length}, to, d_before.length, GH);
        }
        if (g.d_x) {
            product(M + 2 * H * GH, g.D, s.a, {}, s.d_x, width, GH);
            scatter_rows<T>(s.d_x, width, g.D, as(g.d_x) + task.q * g.B * g.R * g.C * g.D, g.D, s.at, have);
        }
        this->gather_inputs(task, before, now, lane, s.at, have, s.stash + filled, Scratch::stash_length);
        for (long n = 0; n < GH; n += width)
            pack_panel<T>(Source<T>{s.a, 1, width}, 0, width, n, std::min<long>(width, GH - n),
                          s.slopes + n * GRID_DEEP + filled * width);
    }

    // ∂Mᵀ += [h_1; h_2; x; 1] · ∂aᵀ over the rows that came together.
    void weight_gradient(const Task& task, long filled, Scratch& s) const {
        T* sum = sums + (task.q * parts + task.part) * K * padded_GH;
        for (long n = 0; n < GH; n += width)
            rows_by_panel<T>(s.stash, Scratch::stash_length, K, s.slopes + n * GRID_DEEP, {sum + n, padded_GH}, sum + n,
                             padded_GH, filled);
    }

    // The sums of all parts, in one order, transposed.
    void reduce(long q) const {
        T* total = sums + q * parts * K * padded_GH;
        for (long part = 1; part < parts; ++part) {
            const T* more = total + part * K * padded_GH;
            for (long k = 0; k < K * padded_GH; ++k) total[k] += more[k];
        }
        T* to = as(g.d_M) + q * GH * K;
        for (long r = 0; r < GH; ++r)
            for (long k = 0; k < K; ++k) to[r * K + k] = total[k * padded_GH + r];
    }
};

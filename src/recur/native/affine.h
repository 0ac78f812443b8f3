// Cells that are affine in their states, along time: the rows that a program takes at once are steps of one segment, not
// segments at one step. A segment and a block of units need nothing of the others, so threads share the pairs of them.
//
// Time is taken in pieces whose input products stay in the cache until they are read.

template <typename Packed> struct AlongTime {
    using T = Sum<Packed>;
    static constexpr int width = Tile<T>::width;
    static constexpr long PIECE = 1 << 19;  // bytes of U x + b in a piece, about

    const Frame<Packed>& f;
    const Scan& s;
    explicit AlongTime(const Frame<Packed>& frame) : f(frame), s(frame.s) {}

    long pairs() const { return s.S * f.blocks; }
    long steps_in_piece() const {
        const long wanted = PIECE / std::max<long>(1, s.S * s.gates * f.H * long(sizeof(T)));
        return std::max<long>(f.chunk, wanted / f.chunk * f.chunk);
    }
    long pieces() const { return (s.steps + steps_in_piece() - 1) / steps_in_piece(); }

    // The steps of segment i: those that more than i segments take.
    long length(long i) const {
        return std::partition_point(s.sizes, s.sizes + s.steps, [&](int64_t size) { return size > i; }) - s.sizes;
    }

    // From the row of step k to that of the next, and how many steps from k on lie so, at most `most`.
    long stride(long k) const { return s.batch_major ? 1 : s.sizes[k]; }
    long alike(long k, long most) const {
        if (s.batch_major) return most;
        long n = 1;
        while (n < most && s.sizes[k + n - 1] == s.sizes[k]) ++n;
        return n;
    }

    // What a state of a segment has come to, or its gradient; a block of it, zero beyond its edge.
    T* carry(long segment, long state, long block) const {
        return f.carry + (segment * s.states + state) * f.padded_H + block * width;
    }
    void load_carry(const void* from, long segment, long state, long block) const {
        const long have = std::min<long>(width, f.H - block * width);
        T* to = carry(segment, state, block);
        std::memset(to, 0, sizeof(T) * width);
        if (from) std::memcpy(to, f.as(from) + segment * f.H + block * width, sizeof(T) * have);
    }
    void store_carry(void* to, long segment, long state, long block) const {
        if (!to) return;
        const long have = std::min<long>(width, f.H - block * width);
        std::memcpy(f.as(to) + segment * f.H + block * width, carry(segment, state, block), sizeof(T) * have);
    }

    // The rows of steps [from, to), for all segments, divided among the threads.
    template <typename F> void product_rows(long from, long to, F work) const {
        if (!s.batch_major) {
            const long first = f.offset[from], rows = f.offset[to] - first;
            return f.by_rows(rows, [&](long p, long at, long count) {
                work(f.scratch(p), first + at, Grouped{count, 1, 1, 0});
            });
        }
        f.by_rows(to - from, [&](long p, long at, long count) {
            work(f.scratch(p), from + at, Grouped{count, 1, s.S, s.steps});
        });
    }

    // Calls work(thread, scratch, segment, block) for every pair.
    template <typename F> void each_pair(F work) const {
        const long count = f.parts();
        f.parallel(count, [&](long p) {
            for (long q = p; q < pairs(); q += count) work(p, f.scratch(p), q / f.blocks, q % f.blocks);
        });
    }
};

template <typename Packed> struct AffineForward : Forward<Packed> {
    using Base = Forward<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::chunk, Base::H, Base::s, Base::width;
    using Bindings = typename Frame<Packed>::Bindings;
    using In = typename Frame<Packed>::In;
    const AlongTime<Packed> along;

    explicit AffineForward(const Scan& scan) : Base(scan), along(*this) {}

    void run() const {
        prefer_large_pages(s.share, sizeof(T) * s.N * s.share_stride);
        for (long j = 0; j < s.states; ++j) prefer_large_pages(s.state[j], sizeof(T) * s.N * H);
        if (!s.packed) this->pack();
        along.each_pair([&](long, Arena, long i, long b) {
            for (long j = 0; j < s.states; ++j) along.load_carry(s.initial[j], i, j, b);
        });
        const long many = along.steps_in_piece();
        for (long from = 0; from < s.steps; from += many) {
            const long to = std::min(s.steps, from + many);
            along.product_rows(from, to, [&](Arena arena, long at, const Grouped& rows) {
                this->input_product(arena, at, rows, 0, s.gates * H);
            });
            along.each_pair([&](long, Arena arena, long i, long b) { steps(arena, i, b, from, to); });
        }
        along.each_pair([&](long, Arena, long i, long b) {
            for (long j = 0; j < s.states && s.final_state; ++j) along.store_carry(s.final_state[j], i, j, b);
        });
    }

    // Steps [from, to) of a segment, a block of its units.
    void steps(Arena arena, long i, long b, long from, long to) const {
        const long end = std::min(to, along.length(i)), unit = b * width, KH = s.saved * H;
        Bindings bound(s, arena);
        T* before = arena.take<T>(s.states * (chunk + 1) * width);
        T* after = arena.take<T>(s.states * chunk * width);
        const auto row_of = [&](T* base, long state, long row) { return base + (state * (chunk + 1) + row) * width; };
        for (long k = from, n; k < end; k += n) {
            n = along.alike(k, std::min<long>(chunk, end - k));
            const long at = this->row(k, i), Q = along.stride(k);
            for (long j = 0; j < s.states; ++j)
                std::memcpy(row_of(before, j, 0), along.carry(i, j, b), sizeof(T) * width);
            this->run_program(bound, b, n, [&](const Place& place, In& in) -> Operand<T> {
                const long q = place.index;
                switch (Kind(place.kind)) {
                    case Kind::share: return {as(s.share) + at * s.share_stride + q * H + unit, Q * s.share_stride};
                    case Kind::saved: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                    case Kind::after:
                        if (s.state[q]) return {as(s.state[q]) + at * H + unit, Q * H};
                        in = In::scratch;
                        return {after + q * chunk * width, width};
                    default: in = In::scratch; return {row_of(before, q, 0), width};
                }
            });
            for (long j = 0; j < s.states; ++j) {
                const long have = std::min<long>(width, H - unit);
                const T* last = s.state[j] ? as(s.state[j]) + (at + (n - 1) * Q) * H + unit
                                           : after + (j * chunk + n - 1) * width;
                std::memcpy(along.carry(i, j, b), last, sizeof(T) * have);
            }
        }
    }
};

template <typename Packed> struct AffineBackward : Backward<Packed> {
    using Base = Backward<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::chunk, Base::H, Base::padded_H, Base::s, Base::summed, Base::sums, Base::width;
    using Bindings = typename Frame<Packed>::Bindings;
    using In = typename Frame<Packed>::In;
    const AlongTime<Packed> along;

    explicit AffineBackward(const Scan& scan) : Base(scan), along(*this) {}

    void run() const {
        prefer_large_pages(s.d_share, sizeof(T) * s.N * s.share_stride);
        prefer_large_pages(s.d_data, sizeof(T) * s.N * s.D);
        if (s.d_data) this->pack_all(Source<T>{as(s.weight_ih), s.D, 1}, s.gates * H, s.D, this->U);
        this->pack_recurrent(true);
        if (summed) std::memset(sums, 0, sizeof(T) * this->parts() * summed * padded_H);
        along.each_pair([&](long, Arena, long i, long b) {
            for (long j = 0; j < s.states; ++j) along.load_carry(s.d_final[j], i, j, b);
        });
        const long many = along.steps_in_piece();
        for (long p = along.pieces() - 1; p >= 0; --p) {
            const long from = p * many, to = std::min(s.steps, from + many);
            along.each_pair([&](long part, Arena arena, long i, long b) { steps(part, arena, i, b, from, to); });
            if (s.d_data)
                along.product_rows(from, to, [&](Arena arena, long at, const Grouped& rows) {
                    this->input_gradient(arena, at, rows);
                });
        }
        along.each_pair([&](long, Arena, long i, long b) {
            for (long j = 0; j < s.states && s.d_initial; ++j) along.store_carry(s.d_initial[j], i, j, b);
        });
        this->reduce_sums();
        this->weight_gradients();
    }

    bool moves(long state) const {
        for (long q = 0; q < s.program.count; ++q)
            if (Kind(s.program.places[q].kind) == Kind::d_before && s.program.places[q].index == state) return true;
        return false;
    }

    void steps(long part, Arena arena, long i, long b, long from, long to) const {
        const long length = along.length(i), unit = b * width, GS = s.share_stride, KH = s.saved * H;
        const long have = std::min<long>(width, H - unit);
        Bindings bound(s, arena);
        T* arriving = arena.take<T>(s.states * chunk * width);
        T* xi = arena.take<T>(chunk * width);
        T* sum = sums + part * summed * padded_H;
        for (long end = std::min(to, length), k, n; end > from; end = k) {
            k = std::max({from, end - chunk, end > 1 ? 1L : 0L});  // the first step alone: what is before it lies elsewhere
            while (end - k > 1 && along.alike(k - 1, end - k + 1) <= end - k) ++k;  // with the row before the first
            n = end - k;
            const long at = this->row(k, i), Q = along.stride(k);
            for (long j = 0; j < s.states; ++j)
                for (long r = 0; r < n; ++r) {
                    T* row = arriving + (j * chunk + r) * width;
                    std::memset(row, 0, sizeof(T) * width);
                    if (s.d_outputs[j])
                        std::memcpy(row, as(s.d_outputs[j]) + (at + r * Q) * H + unit, sizeof(T) * have);
                }
            if (end == length)  // what the program does not carry ends here
                for (long j = 0; j < s.states; ++j) {
                    if (moves(j)) continue;
                    T *row = arriving + (j * chunk + n - 1) * width, *last = along.carry(i, j, b);
                    for (long v = 0; v < width; ++v) row[v] += last[v], last[v] = 0;
                }
            for (long r = 0; r < n; ++r) std::fill_n(xi + r * width, width, s.xi ? T(s.xi[at + r * Q]) : T(1));
            this->run_program(bound, b, n, [&](const Place& place, In& in) -> Operand<T> {
                const long q = place.index;
                switch (Kind(place.kind)) {
                    case Kind::share: return {as(s.share) + at * GS + q * H + unit, Q * GS};
                    case Kind::saved: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                    case Kind::before: {
                        if (k) return {as(s.state[q]) + this->row(k - 1, i) * H + unit, along.stride(k - 1) * H};
                        const Operand<T> start = this->initial(q, i);
                        return {start.base + unit, start.stride};
                    }
                    case Kind::after: return {as(s.state[q]) + at * H + unit, Q * H};
                    case Kind::d_share:
                        if (s.d_share == s.share) in = In::memory_afterwards;  // what is saved there is still read
                        return {as(s.d_share) + at * GS + q * H + unit, Q * GS};
                    case Kind::d_state: return {as(s.d_state[q]) + at * H + unit, Q * H};
                    case Kind::d_after: in = In::scratch; return {arriving + q * chunk * width, width};
                    case Kind::d_before: in = In::scratch; return {along.carry(i, q, b), width};
                    case Kind::xi: in = In::scratch; return {xi, width};
                    default: in = In::scratch; return {sum + q * padded_H + unit, 0};
                }
            });
        }
    }
};

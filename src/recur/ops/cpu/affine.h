// Time-blocked programs, for cells that are affine in their states: the rows of a program are consecutive steps of one
// segment, not segments at one step.
//
// Time is split into pieces of `chunk` steps of any segment. A thread takes a piece, computes its U x + b and then runs
// its program, while both are in the cache. Only the scan instructions of a program need the previous piece. They are one
// multiply-add per step next to many other operations, so a thread waits for its turn only there. A single narrow
// sequence keeps all threads busy, and every result is bit-identical to that of one thread, because no step is combined
// in another order than in a loop over time.

template <typename Packed> struct AlongTime {
    using T = Sum<Packed>;
    static constexpr int width = Tile<T>::width, chunk = Frame<Packed>::chunk;

    // Instructions [begin, end); pieces take those of a turn in the order of time.
    struct Stretch {
        long begin, end;
        bool in_turn;
    };

    // Steps [k, k + n) of segment i, a block b of its units; and the thread that takes them.
    struct Steps {
        Relay& relay;
        long member, i, b, k, n;
    };

    const Frame<Packed>& f;
    const Scan& s;
    std::vector<long> length;  // of every segment: how many steps it takes
    std::vector<Stretch> stretches;

    explicit AlongTime(const Frame<Packed>& frame) : f(frame), s(frame.s) {
        for (long i = 0; i < s.S; ++i)
            length.push_back(std::partition_point(s.sizes, s.sizes + s.steps, [&](long n) { return n > i; }) - s.sizes);
        const Program& program = s.program;
        for (long q = 0, end; q < program.length; q = end) {
            end = end_of_turn(program, q);
            const bool in_turn = end > q;
            while (!in_turn && end < program.length && end_of_turn(program, end) == end) ++end;
            stretches.push_back({q, end, in_turn});
        }
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
    Turn* turns(long segment, long block) const { return f.turns + (segment * f.blocks + block) * f.turn_count; }

    void start(const void* const* from, bool backward) const {
        for (long i = 0; i < s.S; ++i) {
            for (long j = 0; j < s.states; ++j)
                if (from[j])
                    f.pad(f.as(from[j]) + i * f.H, carry(i, j, 0));
                else
                    std::memset(carry(i, j, 0), 0, sizeof(T) * f.padded_H);
            for (long z = 0; z < f.blocks * f.turn_count; ++z) new (turns(i, 0) + z) Turn{{backward ? length[i] : 0}};
        }
    }
    void finish(void* const* to) const {
        for (long i = 0; i < s.S && to; ++i)
            for (long j = 0; j < s.states; ++j)
                if (to[j]) std::memcpy(f.as(to[j]) + i * f.H, carry(i, j, 0), sizeof(T) * f.H);
    }

    // Calls work(scratch, steps, next) on every thread, where next() has `steps` be a piece of a segment that is to be
    // done, all units of it, and returns whether there is one. It has no steps where the segment ended before.
    template <typename F> void each_thread(bool backward, F work) const {
        const long many = (s.steps + chunk - 1) / chunk, pieces = many * s.S;
        Relay relay(pieces);
        const auto run = [&](long p) {
            Steps steps{relay, p, 0, 0, 0, 0};
            const auto next = [&] {
                const long piece = relay.take(p);
                if (piece < 0) return false;
                steps.i = piece % s.S, steps.k = (backward ? many - 1 - piece / s.S : piece / s.S) * chunk;
                steps.n = std::min<long>(chunk, length[steps.i] - steps.k);
                return true;
            };
            try {
                work(f.scratch(p), steps, next);
            } catch (...) {
                relay.abandon();
                throw;
            }
        };
        f.parallel(std::min({f.parts(), pieces, Relay::max_members}), run);
    }

    // The program on some steps. `enter` and `leave` are called around each turn, with its instructions. Returns whether
    // to go on.
    template <typename Enter, typename Leave>
    bool run_in_turn(const Steps& at, bool backward, const Operand<T>* operands, Enter enter, Leave leave) const {
        const long end = at.k + at.n, begins = backward ? end : at.k, comes_to = backward ? at.k : end;
        Turn* turn = turns(at.i, at.b);
        for (const Stretch& part : stretches) {
            const Instruction *first = s.program.code + part.begin, *last = s.program.code + part.end;
            if (part.in_turn && !at.relay.wait(at.member, *turn, begins)) return false;
            if (part.in_turn) enter(first, last);
            execute<T>(first, last - first, operands, at.n, f.vectors_of(at.b));
            if (part.in_turn) leave(first, last), (turn++)->at.store(comes_to, std::memory_order_release);
        }
        return true;
    }
};

template <typename Packed> struct AffineForward : Forward<Packed> {
    using Base = Forward<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::blocks, Base::chunk, Base::H, Base::s, Base::width;
    using Bindings = typename Frame<Packed>::Bindings;
    using In = typename Frame<Packed>::In;
    using Steps = typename AlongTime<Packed>::Steps;
    const AlongTime<Packed> along;

    explicit AffineForward(const Scan& scan) : Base(scan), along(*this) {}

    void run() const {
        prefer_large_pages(s.share, sizeof(T) * s.N * s.share_stride);
        for (long j = 0; j < s.states; ++j) prefer_large_pages(s.state[j], sizeof(T) * s.N * H);
        if (!s.packed) this->pack();
        along.start(s.initial, false);
        along.each_thread(false, [&](Arena arena, Steps& at, auto&& next) {
            Scratch scratch(s, arena);
            while (next())
                for (const long end = at.k + at.n; at.k < end; at.k += at.n) {
                    at.n = along.alike(at.k, end - at.k);
                    const Grouped rows{at.n, along.stride(at.k), 1, 0};
                    this->input_product(arena, this->row(at.k, at.i), rows, 0, s.gates * H);
                    for (at.b = 0; at.b < blocks; ++at.b)
                        if (!steps(scratch, at)) return;
                }
        });
        along.finish(s.final_state);
    }

    struct Scratch {
        Bindings bound;
        T *before, *after;
        Scratch(const Scan& s, Arena& arena)
            : bound(s, arena), before(arena.take<T>(s.states * (chunk + 1) * width)),
              after(arena.take<T>(s.states * chunk * width)) {}
    };

    bool steps(Scratch& scratch, const Steps& piece) const {
        const long i = piece.i, b = piece.b, k = piece.k, n = piece.n;
        const long at = this->row(k, i), Q = along.stride(k), unit = b * width, KH = s.saved * H;
        const long units = sizeof(T) * Tile<T>::lanes * this->vectors_of(b);
        const Place* places = s.program.places;
        const Operand<T>* operands = scratch.bound.operand;
        const auto first_row = [&](long j) { return scratch.before + j * (chunk + 1) * width; };
        const auto enter = [&](const Instruction* code, const Instruction* end) {
            for (; code != end; ++code) {
                if (Op(code->op) == Op::scan_factor) continue;
                const long j = places[Op(code->op) == Op::shift ? code->to : code->a].index;
                std::memcpy(first_row(j), along.carry(i, j, b), units);
            }
        };
        const auto leave = [&](const Instruction* code, const Instruction* end) {
            for (; code != end; ++code) {
                if (Op(code->op) == Op::scan_factor) continue;
                const long after = Op(code->op) == Op::shift ? code->a : code->to;
                const Operand<T>& from = operands[after];
                std::memcpy(along.carry(i, places[after].index, b), from.base + (n - 1) * from.stride, units);
            }
        };
        const auto find = [&](const Place& place, In& in) -> Operand<T> {
            const long q = place.index;
            switch (Kind(place.kind)) {
                case Kind::share: return {as(s.share) + at * s.share_stride + q * H + unit, Q * s.share_stride};
                case Kind::saved: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                case Kind::after:
                    if (s.state[q]) return {as(s.state[q]) + at * H + unit, Q * H};
                    in = In::scratch;
                    return {scratch.after + q * chunk * width, width};
                default: in = In::scratch; return {first_row(q), width};
            }
        };
        const bool on = this->run_program(scratch.bound, b, n, find, [&] {
            return along.run_in_turn(piece, false, operands, enter, leave);
        });
        for (long j = 0; j < s.states && on && k + n == along.length[i]; ++j) {  // those that nobody carries, too
            const T* last = s.state[j] ? as(s.state[j]) + (at + (n - 1) * Q) * H + unit
                                       : scratch.after + (j * chunk + n - 1) * width;
            std::memcpy(along.carry(i, j, b), last, sizeof(T) * std::min<long>(width, H - unit));
        }
        return on;
    }
};

template <typename Packed> struct AffineBackward : Backward<Packed> {
    using Base = Backward<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::blocks, Base::chunk, Base::H, Base::padded_H, Base::s, Base::summed, Base::sums, Base::width;
    using Bindings = typename Frame<Packed>::Bindings;
    using In = typename Frame<Packed>::In;
    using Steps = typename AlongTime<Packed>::Steps;
    const AlongTime<Packed> along;

    explicit AffineBackward(const Scan& scan) : Base(scan), along(*this) {}

    void run() const {
        prefer_large_pages(s.d_share, sizeof(T) * s.N * s.share_stride);
        prefer_large_pages(s.d_data, sizeof(T) * s.N * s.D);
        if (s.d_data) this->pack_all(Source<T>{as(s.weight_ih), s.D, 1}, s.gates * H, s.D, this->U);
        this->pack_recurrent(true);
        this->clear_sums();
        along.start(s.d_final, true);
        along.each_thread(true, [&](Arena arena, Steps& at, auto&& next) {
            Scratch scratch(s, arena);
            while (next()) {
                const long from = at.k;
                for (long end = at.k + at.n; end > from; end = at.k) {
                    at.k = std::max(from, end > 1 ? 1L : 0L);  // the first step alone: what is before it lies elsewhere
                    // As far from each other as the first is from the row before it.
                    while (end - at.k > 1 && along.alike(at.k - 1, end - at.k + 1) <= end - at.k) ++at.k;
                    at.n = end - at.k;
                    for (at.b = 0; at.b < blocks; ++at.b)
                        if (!steps(scratch, at)) return;
                    const Grouped rows{at.n, along.stride(at.k), 1, 0};
                    if (s.d_data) this->input_gradient(arena, this->row(at.k, at.i), rows);
                }
            }
        });
        along.finish(s.d_initial);
        this->reduce_sums();
        this->weight_gradients();
    }

    struct Scratch {
        Bindings bound;
        T *arriving, *xi;
        Scratch(const Scan& s, Arena& arena)
            : bound(s, arena), arriving(arena.take<T>(s.states * chunk * width)), xi(arena.take<T>(chunk * width)) {}
    };

    bool moves(long state) const {
        for (long q = 0; q < s.program.count; ++q)
            if (Kind(s.program.places[q].kind) == Kind::d_before && s.program.places[q].index == state) return true;
        return false;
    }

    bool steps(Scratch& scratch, const Steps& piece) const {
        const long i = piece.i, b = piece.b, k = piece.k, n = piece.n;
        const long at = this->row(k, i), Q = along.stride(k), unit = b * width, GS = s.share_stride, KH = s.saved * H;
        const long have = std::min<long>(width, H - unit);
        for (long j = 0; j < s.states; ++j)
            for (long r = 0; r < n; ++r) {
                T* row = scratch.arriving + (j * chunk + r) * width;
                std::memset(row, 0, sizeof(T) * width);
                if (s.d_outputs[j]) std::memcpy(row, as(s.d_outputs[j]) + (at + r * Q) * H + unit, sizeof(T) * have);
            }
        if (k + n == along.length[i])  // what the program does not carry ends here
            for (long j = 0; j < s.states; ++j) {
                if (moves(j)) continue;
                T *row = scratch.arriving + (j * chunk + n - 1) * width, *last = along.carry(i, j, b);
                for (long v = 0; v < width; ++v) row[v] += last[v], last[v] = 0;
            }
        for (long r = 0; r < n; ++r) std::fill_n(scratch.xi + r * width, width, s.xi ? T(s.xi[at + r * Q]) : T(1));
        const auto find = [&](const Place& place, In& in) -> Operand<T> {
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
                case Kind::d_after: in = In::scratch; return {scratch.arriving + q * chunk * width, width};
                case Kind::d_before: in = In::scratch; return {along.carry(i, q, b), width};
                case Kind::xi: in = In::scratch; return {scratch.xi, width};
                default: in = In::scratch; return {sums + (i * summed + q) * padded_H + unit, 0};
            }
        };
        const auto nothing = [](const Instruction*, const Instruction*) {};  // carried in place
        return this->run_program(scratch.bound, b, n, find, [&] {
            return along.run_in_turn(piece, true, scratch.bound.operand, nothing, nothing);
        });
    }
};

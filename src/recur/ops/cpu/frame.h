// The parts of a scan that the forward and the backward pass share.
//
// Rows of a batch are independent, so each of P threads runs every P-th segment through all of its steps and never waits:
// a thread that the machine delays does not stop the others at every step. Inside a step the units are processed in
// blocks of `width`: first the recurrent product of the gates of the block, then the program of the cell, while the block
// is in the L1 cache. Sums over steps, the gradients of the weights, are matrix products after the loop.
//
// With few rows, every thread would read all of W from memory for a handful of rows. Then the threads share every step,
// block by block, and wait for each other after it: each core keeps its part of W in its own cache.

constexpr long FEW_ROWS[] = {7, 16};       // for a thread, forward and backward
constexpr double WORTH_SHARING = 1 << 17;  // about a microsecond for each of two threads

// Sizes, packed weights, scratch memory and the operands of a program. Packed is the number format of matrix products,
// T the type of all other numbers.
template <typename Packed> struct Frame {
    using T = Sum<Packed>;
    static constexpr int width = Tile<T>::width;
    static constexpr int chunk = 2 * TILE_ROWS;  // rows that the program takes at a time

    const Scan& s;
    const long H, blocks, padded_H;
    const long first_width;  // of the first state: H, or P where it is projected
    const long panel_depth;  // how many numbers a panel of W has at most, for each of its columns
    const bool shared;      // whether all threads take a step together
    const bool one_thread;  // whether this call leaves the other threads out
    long* offset;  // where the rows of each step begin
    Packed *W, *U;  // packed weights, for all threads
    T *R, *bias, *extra;  // the projection, packed, and vectors padded to whole blocks; for all threads
    T* sums = nullptr;
    T* carry = nullptr;     // along time: the states of every segment, or their gradients, from one piece to the next
    Turn* turns = nullptr;  // and how far every block of its units has come, for each turn of the program
    long turn_count = 0;
    T* zeros;  // one row, for sequences that start from zero
    long summed, used, packed_used, scratch_size, state_size;
    char *scratch_base, *gradient_base;
    T* state_base;

    Frame(const Scan& scan, bool backward)
        : s(scan), H(s.H), blocks((H + width - 1) / width), padded_H(blocks * width),
          first_width(s.projection ? s.projection : H), panel_depth(deepest_reach(backward)),
          shared(shares_steps(backward)),
          one_thread(s.workspace && (shared || parts() > 1) && Contention::prefers_one_thread()) {
        summed = s.extras + (s.biased ? s.gates + s.own : 0);
        Arena arena(s.workspace), packed(s.packed);
        offset = arena.take<long>(s.steps + 1);
        zeros = arena.take<T>(std::max(padded_H, first_width));
        gradient_base = arena.take<char>(0);
        const long before_loop = arena.used();
        Arena& weights = s.packed ? packed : arena;
        if (backward) {
            W = s.heads > 1 ? arena.take<Packed>(s.products, panels_of(first_width), Format<Packed>::panel(panel_depth))
                            : packed_weight(s.d_weight_hh, s.padded_rows & 2, s.products * H, first_width, arena);
            U = packed_weight(s.d_weight_ih, s.padded_rows & 1, s.gates * H, s.D, arena);
        } else {
            W = weights.take<Packed>(s.products, blocks, Format<Packed>::panel(panel_depth));
            U = weights.take<Packed>(panels_of(s.gates * H), Format<Packed>::panel(s.D));
        }
        R = weights.take<T>(s.projection ? backward ? panels_of(H) : panels_of(s.projection) : 0,
                            Format<T>::panel(backward ? s.projection : H));
        bias = weights.take<T>(s.products, padded_H);
        extra = weights.take<T>(s.extras, padded_H);
        packed_used = weights.used();
        if (backward) sums = arena.take<T>(sum_parts(), summed, padded_H);
        scratch_size = (scratch_bytes(backward) + 63) / 64 * 64;
        scratch_base = arena.take<char>(scratch_size, s.threads);
        if (s.along_time) {
            for (long q = 0, end; q < s.program.length; q = std::max(end, q + 1))
                if ((end = end_of_turn(s.program, q)) > q) ++turn_count;
            carry = arena.take<T>(s.S, s.states, padded_H);
            turns = arena.take<Turn>(s.S, blocks, turn_count);
        }
        state_size = s.along_time ? 0 : state_numbers(backward);
        state_base = arena.take<T>(parts(), state_size);
        used = arena.used();
        if (backward) used = std::max(used, before_loop + s.threads * gradient_bytes());
        if (!s.workspace) return;  // only asked how much it would be, or to pack
        std::memset(zeros, 0, sizeof(T) * std::max(padded_H, first_width));
        offset[0] = 0;
        for (long k = 0; k < s.steps; ++k) offset[k + 1] = offset[k] + s.sizes[k];
    }

    // What a block of a recurrent product reads of its other side: all of it, or what its heads read, from an even number
    // on, where two make a unit. A row that is rounded with one scale is read whole.
    struct Reach {
        long from, count;
    };
    Reach reach(long block, bool backward) const {
        const long columns = backward ? first_width : H, numbers = backward ? H : first_width;
        if (s.heads == 1 || std::is_same_v<Packed, Quantised>) return {0, numbers};
        const long own = columns / s.heads, read = numbers / s.heads, last = std::min((block + 1) * width, columns) - 1;
        const long from = block * width / own * read / 2 * 2;
        return {from, (last / own + 1) * read - from};
    }
    long deepest_reach(bool backward) const {
        long most = reach(0, backward).count;
        for (long b = 1; b < panels_of(backward ? first_width : H) && s.heads > 1; ++b) most = std::max(most, reach(b, backward).count);
        return most;
    }

    // Packed weights are read until the loop ends, and their gradients are written after it: into the same memory,
    // where its rows are whole panels or there is room to pad them. What is converted never takes more.
    Packed* packed_weight(void* gradient, bool padded, long rows, long columns, Arena& arena) const {
        if (gradient && (padded || columns == whole_panels<T>(columns))) return static_cast<Packed*>(gradient);
        return arena.take<Packed>(rows, whole_panels<T>(columns));
    }

    // The weights' gradients begin when the loop has ended: they take over all of its memory.
    long gradient_bytes() const {
        long most = 0;  // whichever weights are taken together
        const auto count_in = [&](auto format, long rows, long panels) {
            const long count = sharers(rows, panels);  // of which the last has the most
            const Part part = part_of(count - 1, count, rows, panels);
            most = std::max(most, transposed_product_bytes<decltype(format)>(part, packing()));
        };
        for (const long panels : {panels_of(s.D), panels_of(first_width), panels_of(s.D) + panels_of(first_width)})
            for (long rows = H; rows <= std::max(s.gates, s.products) * H; rows += H) count_in(Packed(), rows, panels);
        if (s.projection) count_in(T(), s.projection, panels_of(H));
        const Part head{0, H / s.heads, 0, panels_of(first_width / s.heads)};
        if (s.heads > 1) most = std::max(most, transposed_product_bytes<Packed>(head, packing()));
        return (most + (s.mask ? 2 : 1) * long(sizeof(void*)) * s.N + 191) / 64 * 64;
    }
    Packing packing() const { return Packing(s.N, s.gates * H * s.N, s.threads); }
    Arena gradient_arena(long part) const { return Arena(gradient_base + part * gradient_bytes()); }

    Arena scratch(long part) const { return Arena(scratch_base + part * scratch_size); }

    // A step has work for all threads, and is worth waiting for; a row's norm needs all of the row in one thread.
    bool shares_steps(bool backward) const {
        const double work = double(s.S) * H * H * s.products / s.heads;  // multiplications in a step
        if (s.threads < 2 || blocks < 2 || s.S > FEW_ROWS[backward] * s.threads || work < WORTH_SHARING) return false;
        return !s.projection && !(backward && s.clip > 0);
    }

    // Into how many parts the rows are divided: one for each thread, but never more than there are rows.
    long parts() const { return shared ? 1 : std::max(1L, s.along_time ? s.threads : std::min<long>(s.threads, s.S)); }
    // What is summed over steps is summed apart for each of them; along time, for each segment.
    long sum_parts() const { return s.along_time ? s.S : parts(); }
    long rows_of(long part, long n) const { return n > part ? (n - part + parts() - 1) / parts() : 0; }

    // The states carried from step to step, two buffers of each, for all threads of a part; and the copies below.
    long state_numbers(bool backward) const {
        return (2 * rows_of(0, s.S) * (s.states * widest() + copy_stride(backward)) + 15) / 16 * 16;
    }
    T* state_buffer(long part, long state, long side) const {
        return state_base + part * state_size + (2 * state + side) * rows_of(0, s.S) * widest();
    }
    long widest() const { return std::max(H, first_width); }
    long width_of(long state) const { return state ? H : first_width; }

    // A product reads copies of rows that would drive each other out of the cache, with a better stride, or of rows
    // that it reads in another form. Backward, they hold the gradients of all gates, each `copy_units` long.
    static bool conflicts(long stride) { return ISA::conflicts<T>(stride); }
    long copy_units() const { return Format<Packed>::units(H); }
    long copy_stride(bool backward) const {
        const long wide = backward ? (s.gates + s.own) * copy_units() : copy_units();
        return wide + (ISA::conflicts<Left<Packed>>(wide) ? 64 / long(sizeof(T)) : 0);
    }
    Left<Packed>* row_copy(long part, long side, bool backward) const {
        auto* copies = reinterpret_cast<Left<Packed>*>(state_buffer(part, s.states, 0));
        return copies + side * rows_of(0, s.S) * copy_stride(backward);
    }

    // Calls work(part, scratch, blocks), where blocks(phase, f) runs f(block) for those that are this thread's to do,
    // and returns whether to go on.
    template <typename F> void each_part(F work) const {
        if (!shared) {
            const auto whole_part = [&](long part) {
                work(part, scratch(part), [&](long, auto&& block) {
                    for (long b = 0; b < blocks; ++b) block(b);
                    return true;
                });
            };
            return parallel(parts(), whole_part, s.S % parts() == 0 && s.sizes[s.steps - 1] == s.S);
        }
        const long members = one_thread ? 1 : std::min({long(s.threads), blocks, Team::max_members});
        Team team(members, blocks);
        const auto join = [&](long member) {
            try {
                work(0, scratch(member), [&](long phase, auto&& block) { return team.phase(member, phase, block); });
            } catch (...) {
                team.abandon();
                throw;
            }
        };
        parallel(members, join, false);  // a team measures its waits itself
    }

    long scratch_bytes(bool backward) const {
        const long along_time = s.along_time ? 2 * s.states + 2 : 0;
        const long values = s.program.temps + s.products + 1 + s.states + s.program.count + along_time;
        const long masked = backward || !s.mask ? 0 : rows_of(0, s.S) * first_width;
        const long state = backward || !Format<Packed>::converts ? 0 : rows_of(0, s.S) * row_stride_of<Packed>(first_width);
        const long converted = state + block_units<Packed>(s.N, backward ? s.gates * H : s.D);
        const long tables = sizeof(Operand<T>) * (2 * s.program.count + 4 * s.states) + 64 * (16 + 3 * s.states);
        return sizeof(T) * (values * chunk * width + s.constants * width + masked + converted) + tables;
    }

    // Input products are computed inside the loop over time, some steps at once, while what they touch is in the cache;
    // unless that would leave threads without work.
    bool interleaved() const { return s.along_time || (!shared && parts() == s.threads); }
    long interleaved_steps(long part) const {
        return s.batch_major ? TILE_ROWS / 2 : std::max(1L, TALL / std::max(1L, rows_of(part, s.S)));
    }

    // The row of segment i at step k, and the stride between two neighbours' rows.
    long row(long k, long i) const { return s.batch_major ? i * s.steps + k : offset[k] + i; }
    long row_stride() const { return s.batch_major ? s.steps : 1; }

    // Where segment i starts, and the stride between two neighbours' rows.
    Operand<T> initial(long state, long i) const {
        const T* given = as(s.initial[state]);
        return given ? Operand<T>{const_cast<T*>(given) + i * width_of(state), width_of(state)} : Operand<T>{zeros, 0};
    }

    // Steps [from, to) of a part: the first row, and how the rows lie.
    template <typename F> void rows_of_steps(long part, long from, long to, F work) const {
        const long rows = rows_of(part, s.sizes[from]), P = parts();
        if (s.batch_major) {
            work(row(from, part), Grouped{to - from, 1, rows, P * s.steps});
        } else if (s.sizes[from] == s.sizes[to - 1] && s.sizes[from] % P == 0) {
            work(row(from, part), Grouped{rows * (to - from), P, 1, 0});
        } else {
            for (long k = from; k < to; ++k)
                if (const long here = rows_of(part, s.sizes[k])) work(row(k, part), Grouped{here, P, 1, 0});
        }
    }

    template <typename F> void parallel(long count, F work, bool even = true) const {
        if (count > 1 && !one_thread) return run_parallel(s, count, work, even);
        for (long p = 0; p < count; ++p) work(p);
    }

    static const T* as(const void* p) { return static_cast<const T*>(p); }
    static T* as(void* p) { return static_cast<T*>(p); }

    // Rows [from, to) of part p when M rows are divided evenly among all threads.
    template <typename F> void by_rows(long M, F work) const {
        const long count = std::max(1L, std::min<long>(s.threads, M / TILE_ROWS));
        parallel(count, [&](long p) {
            const long from = M * p / count, to = M * (p + 1) / count;
            work(p, from, to - from);
        });
    }

    static long panels_of(long columns) { return whole_panels<T>(columns) / width; }

    // The gradient of weights, M rows and so many panels of columns, is divided along its longer side: the other one is
    // packed by every thread.
    long sharers(long M, long panels) const {
        return std::max(1L, std::min<long>(s.threads, panels * width > M ? panels : M / TILE_ROWS));
    }
    static Part part_of(long p, long count, long M, long panels) {
        const bool by_columns = panels * width > M;
        const long side = by_columns ? panels : M, from = side * p / count, to = side * (p + 1) / count;
        return by_columns ? Part{0, M, from, to} : Part{from, to - from, 0, panels};
    }
    template <typename F> void by_parts(long M, long panels, F work) const {
        const long count = sharers(M, panels);
        parallel(count, [&](long p) { work(p, part_of(p, count, M, panels)); });
    }

    // B (K, N) as panels, by all threads.
    template <typename Form> void pack_all(const Source<T>& b, long K, long N, Form* to) const {
        const long panels = whole_panels<T>(N) / width, count = std::min<long>(s.threads, panels);
        parallel(count, [&](long part) {
            for (long p = part; p < panels; p += count)
                pack_panel(b, 0, K, p * width, std::min<long>(width, N - p * width), to + p * Format<Form>::panel(K));
        });
    }

    // W once, as the loop will read it. Forward: block after block, its gates, their columns of Wᵀ. Backward: block
    // after block of the state's units, the columns of W, gate after gate.
    void pack_recurrent(bool backward) const {
        const long K = backward ? H : first_width, N = backward ? first_width : H, panels = panels_of(N);
        const long count = std::min<long>(s.threads, panels);
        parallel(count, [&](long part) {
            for (long b = part; b < panels; b += count)
                for (long r = 0; r < s.products; ++r) {
                    const T* weight = as(s.weight_hh) + r * H * (first_width / s.heads);
                    if (s.heads > 1) {
                        pack_heads(weight, b, backward, panel(b, r));
                        continue;
                    }
                    const Source<T> from = backward ? Source<T>{weight, N, 1} : Source<T>{weight, 1, K};
                    pack_panel(from, 0, K, b * width, std::min<long>(width, N - b * width), panel(b, r));
                }
        });
        if (s.projection && backward) pack_all(Source<T>{as(s.weight_hr), H, 1}, s.projection, H, R);
        if (s.projection && !backward) pack_all(Source<T>{as(s.weight_hr), 1, H}, H, s.projection, R);
        for (long r = 0; r < s.products && s.biased; ++r) pad(as(s.bias_hh) + r * H, bias + r * padded_H);
        for (long e = 0; e < s.extras; ++e) pad(as(s.extra[e]), extra + e * padded_H);
    }

    // A panel of W's blocks, with zeros where its heads do not meet.
    void pack_heads(const T* weight, long block, bool backward, Packed* to) const {
        const long N = backward ? first_width : H, have = std::min<long>(width, N - block * width);
        const long rows = H / s.heads, columns = first_width / s.heads;  // of a block of W
        const long own = backward ? columns : rows, read = backward ? rows : columns;
        const auto [from, count] = reach(block, backward);
        std::vector<T> numbers(count * width);
        for (long j = 0; j < have; ++j) {
            const long unit = block * width + j, head = unit / own;
            const T* first = backward ? weight + head * rows * columns + unit % own : weight + unit * columns;
            T* column = numbers.data() + (head * read - from) * width + j;
            for (long k = 0; k < read; ++k) column[k * width] = first[k * (backward ? columns : 1)];
        }
        pack_panel(Source<T>{numbers.data(), width, 1}, 0, count, 0, have, to);
    }

    Packed* panel(long block, long product) const {
        return W + (block * s.products + product) * Format<Packed>::panel(panel_depth);
    }

    void pad(const T* from, T* to) const {
        std::memset(to, 0, sizeof(T) * padded_H);
        std::memcpy(to, from, sizeof(T) * H);
    }

    // The operands of a program for one block, and where those that are staged lie in memory.
    struct Bindings {
        Operand<T>*operand, *memory;
        T *temps, *constants, *stage;

        Bindings(const Scan& s, Arena& arena) {
            operand = arena.take<Operand<T>>(s.program.count);
            memory = arena.take<Operand<T>>(s.program.count);
            temps = arena.take<T>(s.program.temps * chunk * width);
            constants = arena.take<T>(s.constants * width);
            stage = arena.take<T>(s.program.count * chunk * width);
            for (long c = 0; c < s.constants; ++c) std::fill_n(constants + c * width, width, T(s.constant[c]));
        }
    };

    // As much of a block as its units need.
    int vectors_of(long block) const { return H - block * width <= Tile<T>::lanes ? 1 : 2; }

    // Where an operand lies: in memory; in scratch, which holds a whole block; or in memory that must not be written
    // before the program has ended.
    enum class In { memory, scratch, memory_afterwards };

    // `find` knows the places that depend on the step. `run` executes the program on them, and returns whether to go on.
    template <typename Find> void run_program(Bindings& bound, long block, long rows, Find find) const {
        run_program(bound, block, rows, find, [&] {
            execute<T>(s.program.code, s.program.length, bound.operand, rows, vectors_of(block));
            return true;
        });
    }
    template <typename Find, typename Run>
    bool run_program(Bindings& bound, long block, long rows, Find find, Run run) const {
        const long have = std::min<long>(width, H - block * width);
        const bool whole = have == vectors_of(block) * Tile<T>::lanes;
        const Program& program = s.program;
        bool staged = false;
        for (long q = 0; q < program.count; ++q) {
            const Place& place = program.places[q];
            Operand<T>&at = bound.operand[q], &memory = bound.memory[q];
            memory = {nullptr, 0};
            switch (Kind(place.kind)) {
                case Kind::temp: at = {bound.temps + place.index * chunk * width, width}; continue;
                case Kind::constant: at = {bound.constants + place.index * width, 0}; continue;
                case Kind::extra: at = {extra + place.index * padded_H + block * width, 0}; continue;
                default: break;
            }
            In in = In::memory;
            at = find(place, in);
            if (in == In::scratch || (in == In::memory && whole)) continue;
            staged = true;  // also where the block goes beyond the edge of what is in memory
            memory = at;
            at = {bound.stage + q * chunk * width, width};
            if (in == In::memory_afterwards) continue;
            for (long i = 0; i < rows; ++i) {
                T* row = at.base + i * width;
                std::memset(row, 0, sizeof(T) * width);
                if (place.read) std::memcpy(row, memory.base + i * memory.stride, sizeof(T) * have);
            }
        }
        if (!run()) return false;
        for (long q = 0; q < program.count && staged; ++q) {
            const Operand<T>&from = bound.operand[q], &to = bound.memory[q];
            if (!program.places[q].written || !to.base) continue;
            for (long i = 0; i < rows; ++i)
                std::memcpy(to.base + i * to.stride, from.base + i * width, sizeof(T) * have);
        }
        return true;
    }
};

// A scan, forward and back.
//
// Rows of a batch never meet inside a scan, so each thread takes every P-th segment through all of its steps and waits
// for nobody: what a busy machine does to one thread does not stop the others at every step. Inside a step the units
// are taken a block of `width` at a time: the recurrent product of the block's gates, then the cell's program on it
// while it is in the nearest cache. All that sums over steps, the weights' gradients, is a product after the loop.
//
// Where there are few rows, each thread would bring all of W from memory for a handful of them. There the threads share
// a step instead, block by block, and wait for each other after each: each core keeps its part of W in its own cache.

constexpr long FEW_ROWS[] = {7, 16};       // for a thread, forward and back
constexpr double WORTH_SHARING = 1 << 17;  // about a microsecond for each of two threads

// What both ways share: sizes, the packed recurrent matrix, scratch memory, and how a program meets its block.
template <typename T> struct Frame {
    static constexpr int width = Tile<T>::width;
    static constexpr int chunk = 2 * TILE_ROWS;  // rows that the program takes at a time

    const Scan& s;
    const long H, blocks, padded;
    const bool shared;  // whether all threads take a step together
    const bool alone;   // whether the other threads are left out of it this time
    long* offset;  // where the rows of each step begin
    T *packed, *input, *bias, *extra, *sums = nullptr;  // W, U and the vectors as the loops read them; for all threads
    T* zeros;  // one row, for sequences that start from nothing
    long summed, used, scratch_size, memory_each;
    char *scratch_base, *after_base;
    T* memory_base;

    Frame(const Scan& scan, bool backward)
        : s(scan), H(s.H), blocks((H + width - 1) / width), padded(blocks * width), shared(shares_steps(backward)),
          alone(s.workspace && (shared || parts() > 1) && Crowd::leaves_us_alone()) {
        summed = s.extras + (s.biased ? s.gates + s.own : 0);
        Arena arena(s.workspace);
        offset = arena.take<long>(s.steps + 1);
        zeros = arena.take<T>(padded);
        after_base = arena.take<char>(0);
        const long kept = arena.used();
        if (backward) {
            packed = lent(s.d_weight_hh, s.roomy & 2, s.products * H, H, arena);
            input = lent(s.d_weight_ih, s.roomy & 1, s.gates * H, s.D, arena);
        } else {
            packed = arena.take<T>(s.products * H * padded);
            input = arena.take<T>(s.D * whole_panels<T>(s.gates * H));
        }
        bias = arena.take<T>(s.products * padded);
        extra = arena.take<T>(s.extras * padded);
        if (backward) sums = arena.take<T>(parts() * summed * padded);
        scratch_size = (scratch_bytes(backward) + 63) / 64 * 64;
        scratch_base = arena.take<char>(scratch_size * s.threads);
        memory_each = memory_size(backward);
        memory_base = arena.take<T>(parts() * memory_each);
        used = arena.used();
        if (backward) used = std::max(used, kept + s.threads * after_bytes());
        if (!s.workspace) return;  // only asked how much it would be
        std::memset(zeros, 0, sizeof(T) * padded);
        offset[0] = 0;
        for (long k = 0; k < s.steps; ++k) offset[k + 1] = offset[k] + s.sizes[k];
    }

    // Packed weights are read until the loop is through, and their gradients written afterwards: into the same memory.
    T* lent(void* gradient, bool roomy, long rows, long columns, Arena& arena) const {
        if (gradient && (roomy || columns == whole_panels<T>(columns))) return as(gradient);
        return arena.take<T>(rows * whole_panels<T>(columns));
    }

    // The products over all steps begin when the loop is through: they take all of its memory.
    long after_bytes() const {
        long most = 0;  // whatever weights are taken together
        for (const long panels : {panels_of(s.D), panels_of(H), panels_of(s.D) + panels_of(H)})
            for (long rows = H; rows <= std::max(s.gates, s.products) * H; rows += H) {
                const long count = sharers(rows, panels);  // of whom the last has the most
                most = std::max(most, transposed_product_bytes<T>(part_of(count - 1, count, rows, panels), packing()));
            }
        return (most + (s.mask ? 2 : 1) * long(sizeof(void*)) * s.N + 191) / 64 * 64;
    }
    Packing packing() const { return Packing(s.N, s.gates * H * s.N, s.threads); }
    Arena after(long part) const { return Arena(after_base + part * after_bytes()); }

    Arena scratch(long part) const { return Arena(scratch_base + part * scratch_size); }

    // A step has work for all threads, and is worth waiting for; a row's norm is known only to who has all of it.
    bool shares_steps(bool backward) const {
        const double work = double(s.S) * H * H * s.products;  // multiplications in a step
        if (s.threads < 2 || blocks < 2 || s.S > FEW_ROWS[backward] * s.threads || work < WORTH_SHARING) return false;
        return !backward || !(s.clip > 0 || s.norms);
    }

    // Into how many parts the rows are divided: one for each thread, but never more than there are rows.
    long parts() const { return shared ? 1 : std::max(1L, std::min<long>(s.threads, s.S)); }
    long rows_of(long part, long n) const { return n > part ? (n - part + parts() - 1) / parts() : 0; }

    // States on their way from step to step, two of each: for all who work on a part. And what the next product reads.
    long memory_size(bool backward) const {
        return (2 * rows_of(0, s.S) * (s.states * H + lined_step(backward)) + 15) / 16 * 16;
    }
    T* memory(long part, long state, long side) const {
        return memory_base + part * memory_each + (2 * state + side) * rows_of(0, s.S) * H;
    }

    // Rows that stand half a page apart fall on the same few places of the nearest cache and drive each other out: a product
    // reads a copy of them that stands better.
    static bool collide(long step) { return step * sizeof(T) % 2048 == 0; }
    long lined_step(bool backward) const {
        const long wide = backward ? (s.gates + s.own) * H : H;
        return wide + (collide(wide) ? 64 / long(sizeof(T)) : 0);
    }
    T* lined(long part, long side, bool backward) const {
        return memory(part, s.states, 0) + side * rows_of(0, s.S) * lined_step(backward);
    }

    // Calls work(part, scratch, blocks), where blocks(phase, f) does f(block) for all that are this thread's to do, and
    // says whether to go on.
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
        const long members = alone ? 1 : std::min({long(s.threads), blocks, Team::most});
        Team team(members, blocks);
        const auto join = [&](long member) {
            work(0, scratch(member), [&](long phase, auto&& block) { return team.phase(member, phase, block); });
        };
        parallel(members, join, false);  // a team judges for itself
    }

    long scratch_bytes(bool backward) const {
        const long values = s.program.temps + s.products + 2 + s.program.count;
        const long masked = backward || !s.mask ? 0 : rows_of(0, s.S) * H;
        const long tables = sizeof(Operand<T>) * (2 * s.program.count + 4 * s.states) + 64 * (16 + 3 * s.states);
        return sizeof(T) * (values * chunk * width + s.constants * width + masked) + tables;
    }

    // Input products ride along with the loop over time, some steps at a time, while what they touch is in the cache;
    // unless that would leave threads without work.
    bool rides() const { return !shared && parts() == s.threads; }
    long riding_steps(long part) const {
        return s.batch_major ? TILE_ROWS / 2 : std::max(1L, TALL / std::max(1L, rows_of(part, s.S)));
    }

    // Where segment i takes step k, and how far apart the rows of two neighbours stand.
    long row(long k, long i) const { return s.batch_major ? i * s.steps + k : offset[k] + i; }
    long apart() const { return s.batch_major ? s.steps : 1; }

    // Where segment i starts, and how far apart two neighbours' rows stand.
    Operand<T> initial(long state, long i) const {
        const T* given = as(s.initial[state]);
        return given ? Operand<T>{const_cast<T*>(given) + i * H, H} : Operand<T>{zeros, 0};
    }

    // Steps [from, to) of a part: the first row, and how the rows stand.
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
        if (count > 1 && !alone) return run_parallel(s, count, work, even);
        for (long p = 0; p < count; ++p) work(p);
    }

    static const T* as(const void* p) { return static_cast<const T*>(p); }
    static T* as(void* p) { return static_cast<T*>(p); }

    // Rows [from, to) of part p when M rows are shared out evenly among all threads.
    template <typename F> void by_rows(long M, F work) const {
        const long count = std::max(1L, std::min<long>(s.threads, M / TILE_ROWS));
        parallel(count, [&](long p) {
            const long from = M * p / count, to = M * (p + 1) / count;
            work(p, from, to - from);
        });
    }

    static long panels_of(long columns) { return whole_panels<T>(columns) / width; }

    // The gradient of weights, M rows and so many panels of columns, is shared out along its longer side: the other one is
    // packed by everyone.
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
    void pack_all(const Source<T>& b, long K, long N, T* to) const {
        const long panels = whole_panels<T>(N) / width, count = std::min<long>(s.threads, panels);
        parallel(count, [&](long part) {
            for (long p = part; p < panels; p += count)
                pack_panel<T>(b, 0, K, p * width, std::min<long>(width, N - p * width), to + p * width * K);
        });
    }

    // W once, as the loop will read it. Forward: block after block, its gates, their columns of Wᵀ. Back: block after
    // block of the state's units, the columns of W, gate after gate.
    void pack_recurrent(bool backward) const {
        const long count = std::min<long>(s.threads, blocks);
        parallel(count, [&](long part) {
            for (long b = part; b < blocks; b += count)
                for (long r = 0; r < s.products; ++r) {
                    const T* W = as(s.weight_hh) + r * H * H;
                    const Source<T> from = backward ? Source<T>{W, H, 1} : Source<T>{W, 1, H};
                    pack_panel<T>(from, 0, H, b * width, std::min<long>(width, H - b * width), panel(b, r));
                }
        });
        for (long r = 0; r < s.products && s.biased; ++r) pad(as(s.bias_hh) + r * H, bias + r * padded);
        for (long e = 0; e < s.extras; ++e) pad(as(s.extra[e]), extra + e * padded);
    }

    T* panel(long block, long product) const { return packed + (block * s.products + product) * H * width; }

    void pad(const T* from, T* to) const {
        std::memset(to, 0, sizeof(T) * padded);
        std::memcpy(to, from, sizeof(T) * H);
    }

    // The operands of a program for one block. `find` knows the places that depend on the step.
    struct Bound {
        Operand<T>*operand, *memory;
        T *temps, *constants, *stage;

        Bound(const Scan& s, Arena& arena) {
            operand = arena.take<Operand<T>>(s.program.count);
            memory = arena.take<Operand<T>>(s.program.count);
            temps = arena.take<T>(s.program.temps * chunk * width);
            constants = arena.take<T>(s.constants * width);
            stage = arena.take<T>(s.program.count * chunk * width);
            for (long c = 0; c < s.constants; ++c) std::fill_n(constants + c * width, width, T(s.constant[c]));
        }
    };

    // Where an operand lies: in memory; in scratch, which has room for a whole block; or in memory that must not be
    // written before the program is through.
    enum class In { memory, scratch, memory_afterwards };

    template <typename Find> void run_program(Bound& bound, long block, long rows, Find find) const {
        const long have = std::min<long>(width, H - block * width);
        const Program& program = s.program;
        bool staged = false;
        for (long q = 0; q < program.count; ++q) {
            const Place& place = program.places[q];
            Operand<T>&at = bound.operand[q], &memory = bound.memory[q];
            memory = {nullptr, 0};
            switch (Kind(place.kind)) {
                case Kind::temp: at = {bound.temps + place.index * chunk * width, width}; continue;
                case Kind::constant: at = {bound.constants + place.index * width, 0}; continue;
                case Kind::extra: at = {extra + place.index * padded + block * width, 0}; continue;
                default: break;
            }
            In in = In::memory;
            at = find(place, in);
            if (in == In::scratch || (in == In::memory && have == width)) continue;
            staged = true;  // also where the block hangs over the edge of what is in memory
            memory = at;
            at = {bound.stage + q * chunk * width, width};
            if (in == In::memory_afterwards) continue;
            for (long i = 0; i < rows; ++i) {
                T* row = at.base + i * width;
                std::memset(row, 0, sizeof(T) * width);
                if (place.read) std::memcpy(row, memory.base + i * memory.step, sizeof(T) * have);
            }
        }
        execute<T>(program.code, program.length, bound.operand, rows);
        for (long q = 0; q < program.count && staged; ++q) {
            const Operand<T>&from = bound.operand[q], &to = bound.memory[q];
            if (!program.places[q].written || !to.base) continue;
            for (long i = 0; i < rows; ++i)
                std::memcpy(to.base + i * to.step, from.base + i * width, sizeof(T) * have);
        }
    }
};

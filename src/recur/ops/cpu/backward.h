// The backward loop, from the last step to the first, and then the gradients of the weights as large products.
template <typename Packed> struct Backward : Frame<Packed> {
    using Base = Frame<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::blocks, Base::chunk, Base::each_part, Base::H, Base::padded_H, Base::panel, Base::parts;
    using Base::by_parts, Base::by_rows, Base::gradient_arena, Base::packing, Base::panels_of, Base::rows_of, Base::U;
    using Base::conflicts, Base::copy_stride, Base::copy_units, Base::initial, Base::row, Base::row_copy, Base::row_stride;
    using Base::first_width, Base::R, Base::width_of;
    using Base::interleaved, Base::interleaved_steps, Base::pack_all, Base::pack_recurrent, Base::rows_of_steps;
    using Base::run_program, Base::s, Base::state_buffer, Base::summed, Base::sums, Base::width;
    using Bindings = typename Base::Bindings;
    using In = typename Base::In;

    explicit Backward(const Scan& scan) : Base(scan, true) {}

    void run() const {
        prefer_large_pages(s.d_share, sizeof(T) * s.N * s.share_stride);
        prefer_large_pages(s.d_data, sizeof(T) * s.N * s.D);
        if (s.d_data) pack_all(Source<T>{as(s.weight_ih), s.D, 1}, s.gates * H, s.D, U);
        pack_recurrent(true);
        clear_sums();
        each_part([&](long part, Arena arena, auto&& for_blocks) { steps(part, arena, for_blocks); });
        reduce_sums();
        weight_gradients();
    }

    // A block of units takes the gradient that step k + 1 carries back to it, and runs its own step on it: both need no
    // other block of the same step. Unless a whole row is needed in between, for its norm or for the projection.
    template <typename ForBlocks> void steps(long part, Arena arena, ForBlocks&& for_blocks) const {
        const bool needs_rows = s.clip > 0 || s.projection;
        const long at_once = interleaved_steps(part);
        Scratch scratch(s, arena);
        const long last = s.d_initial ? -1 : 0;
        for (long k = s.steps - 1; k >= last; --k) {
            if (needs_rows) {
                for (long b = 0; b < std::max(blocks, panels_of(first_width)); ++b) receive(scratch, part, k, b * width);
                if (k + 1 < s.steps) scale_carried(part, k, 0, this->widest());
                if (s.projection && k >= 0) whole_gradient_of_first(part, k);
            }
            const auto block = [&](long b) {
                if (!needs_rows) {
                    receive(scratch, part, k, b * width);
                    if (s.xi && k + 1 < s.steps)
                        scale_carried(part, k, b * width, std::min<long>(width, H - b * width));
                }
                if (k < 0) return store_initial(part, b * width);
                step(scratch, part, k, b);
                if (copies_rows()) copy_rows(part, k, b * width);
            };
            if (!for_blocks(s.steps - 1 - k, block)) return;
            if (s.d_data && interleaved() && k >= 0 && k % at_once == 0 && rows_of(part, s.sizes[k]))
                rows_of_steps(part, k, std::min(s.steps, k + at_once),
                              [&](long at, const Grouped& which) { input_gradient(arena, at, which); });
        }
    }

    struct Scratch {
        Bindings bound;
        T *total, *product;
        Scratch(const Scan& s, Arena& arena)
            : bound(s, arena), total(arena.take<T>(s.states * chunk * width)), product(arena.take<T>(chunk * width)) {}
    };

    // ∂L/∂s_k as it comes from later steps.
    T* carried(long part, long k, long state) const { return state_buffer(part, state, k & 1); }
    long rows_at(long part, long k) const { return k < s.steps ? rows_of(part, s.sizes[std::max(0L, k)]) : 0; }

    // ∂L/∂s_k for a block of units: through the products of step k + 1, and from outside for segments that end here.
    void receive(Scratch& scratch, long part, long k, long unit) const {
        const long had = rows_at(part, k + 1), rows = rows_at(part, k);
        if (s.products && had && unit < first_width)
            through_recurrent(carried(part, k, 0), scratch.product, part, k + 1, had, unit);
        for (long j = 0; j < s.states; ++j) {
            const long wide = width_of(j), size = sizeof(T) * std::min<long>(width, wide - unit);
            for (long i = had; i < rows && unit < wide; ++i) {
                T* to = carried(part, k, j) + i * wide + unit;
                if (s.d_final[j])
                    std::memcpy(to, as(s.d_final[j]) + (part + i * parts()) * wide + unit, size);
                else
                    std::memset(to, 0, size);
            }
        }
    }

    // ∂L/∂h_k of a projected state, from later steps and from outside: what goes back through the projection.
    void whole_gradient_of_first(long part, long k) const {
        const long P = first_width, Q = parts() * row_stride();
        for (long i = 0; i < rows_at(part, k); ++i) {
            const long at = row(k, part) + i * Q;
            const T *from_later = carried(part, k, 0) + i * P, *out = s.d_outputs[0] ? as(s.d_outputs[0]) + at * P : nullptr;
            T* to = as(s.d_projected) + at * P;
            for (long u = 0; u < P; ++u) to[u] = from_later[u] + (out ? out[u] : T(0));
        }
    }

    void step(Scratch& scratch, long part, long k, long b) const {
        const long P = parts(), Q = P * row_stride(), rows = rows_at(part, k), first = row(k, part);
        const long GS = s.share_stride, KH = s.saved * H, OH = s.own * H, unit = b * width;
        T* sum = sums + part * summed * padded_H;
        for (long from = 0; from < rows; from += chunk) {
            const long here = std::min<long>(chunk, rows - from), at = first + from * Q;
            if (s.projection)
                rows_by_panel<T>(as(s.d_projected) + at * first_width, Q * first_width, here,
                                 R + b * Format<T>::panel(first_width), {}, scratch.total, width, first_width);
            for (long j = s.projection ? 1 : 0; j < s.states; ++j)
                if (s.d_outputs[j])
                    add_outputs(scratch.total + j * chunk * width, as(s.d_outputs[j]), carried(part, k, j) + from * H + unit,
                                at, unit, here);
            run_program(scratch.bound, b, here, [&](const Place& place, In& in) -> Operand<T> {
                const long q = place.index;
                switch (Kind(place.kind)) {
                    case Kind::share: return {as(s.share) + at * GS + q * H + unit, Q * GS};
                    case Kind::saved: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                    case Kind::before: {
                        const Operand<T> start = initial(q, part + from * P);
                        if (!k) return {start.base + unit, P * start.stride};
                        return {as(s.state[q]) + (row(k - 1, part) + from * Q) * H + unit, Q * H};
                    }
                    case Kind::after: return {as(s.state[q]) + at * H + unit, Q * H};
                    case Kind::d_after:
                        if (!s.d_outputs[q] && (q || !s.projection)) return {carried(part, k, q) + from * H + unit, H};
                        in = In::scratch;
                        return {scratch.total + q * chunk * width, width};
                    case Kind::d_share:
                        if (s.d_share == s.share) in = In::memory_afterwards;  // what is saved there is still read
                        return {as(s.d_share) + at * GS + q * H + unit, Q * GS};
                    case Kind::d_product: return {as(s.d_product) + at * OH + q * H + unit, Q * OH};
                    case Kind::d_before: return {carried(part, k - 1, q) + from * H + unit, H};
                    case Kind::d_state: return {as(s.d_state[q]) + at * H + unit, Q * H};
                    default: in = In::scratch; return {sum + q * padded_H + unit, 0};
                }
            });
        }
    }

    // ∂L/∂s_0, for a block of units.
    void store_initial(long part, long unit) const {
        for (long j = 0; j < s.states; ++j) {
            // All of a projected state with the first block: it has blocks of its own.
            const bool whole = !j && s.projection;
            const long wide = width_of(j), have = whole ? (unit ? 0 : wide) : std::min<long>(width, wide - unit);
            for (long i = 0; i < rows_of(part, s.S) && have; ++i)
                std::memcpy(as(s.d_initial[j]) + (part + i * parts()) * wide + unit,
                            carried(part, -1, j) + i * wide + unit, sizeof(T) * have);
        }
    }

    // ∂L/∂x = d · U for rows that lie like this from the first on.
    void input_gradient(Arena arena, long first, const Grouped& rows) const {
        auto* block = arena.take<Left<Packed>>(block_units<Packed>(s.N, s.gates * H));
        by_panels<Packed>(as(s.d_share) + first * s.share_stride, s.share_stride, U, nullptr,
                          as(s.d_data) + first * s.D, s.D, rows, s.gates * H, 0, s.D, block);
    }

    void add_outputs(T* total, const T* d_outputs, const T* carried, long first, long unit, long rows) const {
        const long have = std::min<long>(width, H - unit);
        for (long i = 0; i < rows; ++i) {
            const T *out = d_outputs + (first + i * parts() * row_stride()) * H + unit, *in = carried + i * H;
            if (have == width)
                for (int v = 0; v < width; v += Tile<T>::lanes)
                    store<T>(total + i * width + v, load<T>(in + v) + load<T>(out + v));
            else
                for (long v = 0; v < width; ++v) total[i * width + v] = v < have ? in[v] + out[v] : T(0);
        }
    }

    // The gradient of a gate, or of a product that has its own, at step k.
    Operand<Left<Packed>> gradient(long place, long part, long k) const {
        if (copies_rows()) return {row_copy(part, k & 1, true) + place * copy_units(), copy_stride(true)};
        const long Q = parts() * row_stride(), first = row(k, part);
        if constexpr (!Format<Packed>::converts) {  // else they are always copied
            if (place < s.gates) return {as(s.d_share) + first * s.share_stride + place * H, Q * s.share_stride};
            return {as(s.d_product) + first * s.own * H + (place - s.gates) * H, Q * s.own * H};
        }
        return {};
    }

    bool copies_rows() const {
        return s.products && (Format<Packed>::converts || conflicts(parts() * row_stride() * s.share_stride));
    }

    void copy_rows(long part, long k, long unit) const {
        const long Q = parts() * row_stride(), rows = rows_at(part, k), count = std::min<long>(width, H - unit);
        const auto copy = [&](const T* from, Left<Packed>* to) {
            if constexpr (Format<Packed>::converts)
                convert_row(from, count, to);
            else
                std::memcpy(to, from, sizeof(T) * count);
        };
        for (long i = 0; i < rows; ++i) {
            Left<Packed>* to = row_copy(part, k & 1, true) + i * copy_stride(true) + Format<Packed>::units(unit);
            const long at = row(k, part) + i * Q;
            for (long g = 0; g < s.gates; ++g)
                copy(as(s.d_share) + at * s.share_stride + g * H + unit, to + g * copy_units());
            for (long o = 0; o < s.own; ++o)
                copy(as(s.d_product) + (at * s.own + o) * H + unit, to + (s.gates + o) * copy_units());
        }
    }

    // ∂L/∂h_{t−1} through the products, a block of it: Σ over them of d · W, and the mask after it.
    void through_recurrent(T* passed, T* product, long part, long k, long rows, long unit) const {
        const long P = parts(), wide = first_width, have = std::min<long>(width, wide - unit);
        const auto [first_read, read] = this->reach(unit / width, true);
        const bool direct = have == width && !s.mask;
        for (long from = 0; from < rows; from += chunk) {
            const long here = std::min<long>(chunk, rows - from);
            T* at = passed + from * wide + unit;
            T* to = direct ? at : product;
            const long stride = direct ? wide : width;
            From<T> onto = direct && s.adds_to_first ? From<T>{at, wide} : From<T>{};
            for (long r = 0; r < s.products; ++r, onto = {to, stride}) {
                const Operand<Left<Packed>> d = gradient(s.product_place[r], part, k);
                rows_by_panel<Packed>(d.base + Format<Packed>::units(first_read) + from * d.stride, d.stride, here,
                                      panel(unit / width, r), onto, to, stride, Format<Packed>::units(read));
            }
            if (direct) continue;
            for (long i = 0; i < here; ++i)
                for (long v = 0; v < have; ++v) {
                    const T m = s.mask ? as(s.mask)[(part + (from + i) * P) * wide + unit + v] : T(1);
                    const T old = s.adds_to_first ? at[i * wide + v] : T(0);
                    at[i * wide + v] = old + m * product[i * width + v];
                }
        }
    }

    // g ← ξ g, then g ← min(1, θ/‖g‖) g for each row that step k + 1 carries back to k, ‖g‖ over
    // all states; some units of it.
    void scale_carried(long part, long k, long unit, long units) const {
        for (long i = 0; i < rows_at(part, k + 1); ++i) {
            double scale = s.xi ? s.xi[row(k + 1, part + i * parts())] : 1.0;
            const bool cut = scale == 0;  // whatever g is, NaN too
            if (s.clip > 0) {
                double square = 0;
                for (long j = 0; j < s.states; ++j) square += squares(carried(part, k, j) + i * width_of(j), width_of(j));
                const double norm = std::sqrt(square) * std::abs(scale);
                if (norm > s.clip) scale *= s.clip / norm;
            }
            if (scale == 1.0) continue;
            for (long j = 0; j < s.states; ++j) {
                T* g = carried(part, k, j) + i * width_of(j) + unit;
                for (long u = 0; u < std::min(units, width_of(j)); ++u) g[u] = cut ? T(0) : T(g[u] * scale);
            }
        }
    }

    static double squares(const T* g, long H) {
        double square = 0;
        for (long u = 0; u < H; ++u) square += double(g[u]) * double(g[u]);
        return square;
    }

    void clear_sums() const {
        if (summed) std::memset(sums, 0, sizeof(T) * this->sum_parts() * summed * padded_H);
    }

    // What the programs summed over rows and steps, summed over the parts in one fixed order.
    void reduce_sums() const {
        const auto into = [&](long q, void* to, long at) {
            if (!to) return;
            for (long u = 0; u < H; ++u) {
                T value = 0;
                for (long p = 0; p < this->sum_parts(); ++p) value += sums[(p * summed + q) * padded_H + u];
                as(to)[at + u] = value;
            }
        };
        for (long e = 0; e < s.extras; ++e) into(e, s.d_extra[e], 0);
        for (long g = 0; g < s.gates && s.biased; ++g) into(s.extras + g, s.d_bias_ih, g * H);
        for (long r = 0; r < s.products && s.biased; ++r) into(s.extras + s.product_place[r], s.d_bias_hh, r * H);
    }

    // Large products over all steps.
    void weight_gradients() const {
        const long GH = s.gates * H, GS = s.share_stride, D = s.D;
        if (s.d_data && !interleaved())
            by_rows(s.N, [&](long p, long from, long rows) {
                input_gradient(this->scratch(p), from, {rows, 1, 1, 0});
            });
        bool alike = s.products == s.gates && s.heads == 1;  // each product's gradient is that of its gate
        for (long r = 0; r < s.products; ++r) alike = alike && s.product_place[r] == r;
        const Target<T> for_U{Source<T>{as(s.data), D, 1}, as(s.d_weight_ih), D};
        by_parts(GH, panels_of(D) + (alike ? panels_of(first_width) : 0), [&](long p, const Part& part) {
            Arena arena = gradient_arena(p);
            if (!alike) return transposed_product<Packed>(as(s.d_share), GS, {for_U}, part, s.N, packing(), arena);
            const Target<T> for_W{states_before(arena), as(s.d_weight_hh), first_width};
            transposed_product<Packed>(as(s.d_share), GS, {for_U, for_W}, part, s.N, packing(), arena);
        });
        if (s.heads > 1) head_gradients();
        for (long r = 0; r < s.products && !alike && s.heads == 1;) {  // products whose gradients lie side by side together
            long many = 1;
            while (r + many < s.products && s.product_place[r + many] == s.product_place[r] + many &&
                   (s.product_place[r] < s.gates) == (s.product_place[r + many] < s.gates))
                ++many;
            const auto [d, ld] = gradients_of(r);
            by_parts(many * H, panels_of(first_width), [&](long p, const Part& part) {
                Arena arena = gradient_arena(p);
                const Target<T> for_W{states_before(arena), as(s.d_weight_hh) + r * H * first_width, first_width};
                transposed_product<Packed>(d, ld, {for_W}, part, s.N, packing(), arena);
            });
            r += many;
        }
        if (!s.projection) return;
        const Target<T> for_R{Source<T>{as(s.state[0]), H, 1}, as(s.d_weight_hr), H};
        by_parts(s.projection, panels_of(H), [&](long p, const Part& part) {
            Arena arena = gradient_arena(p);
            transposed_product<T>(as(s.d_projected), s.projection, {for_R}, part, s.N, packing(), arena);
        });
    }

    // The gradient of a product, and how far its rows are from each other.
    std::pair<const T*, long> gradients_of(long product) const {
        const long q = s.product_place[product];
        if (q < s.gates) return {as(s.d_share) + q * H, s.share_stride};
        return {as(s.d_product) + (q - s.gates) * H, s.own * H};
    }

    // Of W in blocks: each a product of its own.
    void head_gradients() const {
        const long rows = H / s.heads, columns = first_width / s.heads, jobs = s.products * s.heads;
        const long count = std::min<long>(s.threads, jobs);
        this->parallel(count, [&](long p) {
            Arena arena = gradient_arena(p);
            Source<T> before = states_before(arena);
            for (long job = p; job < jobs; job += count) {
                const long head = job % s.heads;
                const auto [d, ld] = gradients_of(job / s.heads);
                before.column = head * columns;
                const Target<T> target{before, as(s.d_weight_hh) + job * rows * columns, columns};
                transposed_product<Packed>(d + head * rows, ld, {target}, {0, rows, 0, panels_of(columns)}, s.N,
                                           packing(), arena);
            }
        });
    }

    // The rows of h_{t−1} of every step, where they lie.
    Source<T> states_before(Arena& arena) const {
        const T* first = as(s.projection ? s.projected : s.state[0]);
        const T** rows = arena.take<const T*>(s.N);
        const T** factors = s.mask ? arena.take<const T*>(s.N) : nullptr;
        for (long k = 0; k < s.steps; ++k)
            for (long i = 0; i < s.sizes[k]; ++i) {
                rows[row(k, i)] = k ? first + row(k - 1, i) * first_width : initial(0, i).base;
                if (s.mask) factors[row(k, i)] = as(s.mask) + i * first_width;
            }
        Source<T> source;
        source.rows = rows;
        source.factors = factors;
        return source;
    }
};

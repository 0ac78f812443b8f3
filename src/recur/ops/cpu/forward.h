// The forward loop over time. U x + b is computed some steps ahead, or before the loop if threads share a step.
template <typename Packed> struct Forward : Frame<Packed> {
    using Base = Frame<Packed>;
    using T = Sum<Packed>;
    using Base::as, Base::blocks, Base::chunk, Base::each_part, Base::H, Base::padded_H, Base::panel, Base::parts;
    using Base::bias, Base::by_rows, Base::pack_all, Base::pack_recurrent, Base::rows_of, Base::run_program, Base::U;
    using Base::conflicts, Base::copy_stride, Base::initial, Base::R, Base::row, Base::row_copy, Base::row_stride;
    using Base::interleaved, Base::interleaved_steps, Base::rows_of_steps, Base::s, Base::shared, Base::width;
    using Base::first_width;
    using Bindings = typename Base::Bindings;
    using In = typename Base::In;

    explicit Forward(const Scan& scan) : Base(scan, false) {}

    void run() const {
        prefer_large_pages(s.share, sizeof(T) * s.N * s.share_stride);
        for (long j = 0; j < s.states; ++j) prefer_large_pages(s.state[j], sizeof(T) * s.N * H);
        if (!s.packed) pack();
        if (!interleaved() && !shared)
            by_rows(s.N, [&](long p, long from, long rows) {
                input_product(this->scratch(p), from, {rows, 1, 1, 0}, 0, s.gates * H);
            });
        each_part([&](long part, Arena arena, auto&& for_blocks) { steps(part, arena, for_blocks); });
    }

    void pack() const {
        pack_all(Source<T>{as(s.weight_ih), 1, s.D}, s.D, s.gates * H, U);
        pack_recurrent(false);
    }

    // U x + b for rows that lie like this from the first on; some of its columns.
    void input_product(Arena arena, long first, const Grouped& rows, long begin, long end) const {
        auto* block = arena.take<Left<Packed>>(block_units<Packed>(s.N, s.D));
        by_panels<Packed>(as(s.data) + first * s.D, s.D, U, s.biased ? as(s.bias_ih) : nullptr,
                          as(s.share) + first * s.share_stride, s.share_stride, rows, s.D, begin, end, block);
    }

    template <typename ForBlocks> void steps(long part, Arena arena, ForBlocks&& for_blocks) const {
        const long P = parts(), Q = P * row_stride(), GH = s.gates * H, KH = s.saved * H, most = rows_of(part, s.S);
        const long at_once = interleaved_steps(part);
        Bindings bound(s, arena);
        T* product = arena.take<T>(s.products * chunk * width);
        T* masked = s.mask ? arena.take<T>(most * first_width) : nullptr;
        const long converted_stride = row_stride_of<Packed>(first_width);
        Left<Packed>* converted = arena.take<Left<Packed>>(Format<Packed>::converts ? most * converted_stride : 0);
        const bool copies = !Format<Packed>::converts && !s.mask && !s.projection && s.products && conflicts(Q * H);
        Operand<T>*before = arena.take<Operand<T>>(s.states), *after = arena.take<Operand<T>>(s.states);
        for (long j = 0; j < s.states; ++j) {
            const Operand<T> start = initial(j, part);
            before[j] = {start.base, P * start.stride};
        }

        const auto input_share = [&](long b) {
            const long panels = whole_panels<T>(GH) / width;
            const long begin = panels * b / blocks * width, end = panels * (b + 1) / blocks * width;
            input_product(arena, 0, {s.N, 1, 1, 0}, begin, std::min(end, GH));
        };
        if (shared && !for_blocks(0, input_share)) return;
        for (long k = 0; k < s.steps; ++k) {
            const long rows = rows_of(part, s.sizes[k]), first = row(k, part);
            const long remain = k + 1 < s.steps ? rows_of(part, s.sizes[k + 1]) : 0;
            if (!rows) return;
            if (interleaved() && k % at_once == 0)
                rows_of_steps(part, k, std::min(s.steps, k + at_once),
                              [&](long at, const Grouped& which) { input_product(arena, at, which, 0, GH); });
            for (long j = 0; j < s.states; ++j)
                after[j] = s.state[j] ? Operand<T>{as(s.state[j]) + first * H, Q * H}
                                      : Operand<T>{this->state_buffer(part, j, k % 2), H};  // only its end is wanted
            Operand<T> state = before[0];
            if (s.mask) {
                for (long i = 0; i < rows; ++i) {
                    const T *h = state.base + i * state.stride, *m = as(s.mask) + (part + i * P) * first_width;
                    for (long u = 0; u < first_width; ++u) masked[i * first_width + u] = h[u] * m[u];
                }
                state = {masked, first_width};
            }
            Operand<Left<Packed>> left;  // what W multiplies
            if constexpr (Format<Packed>::converts) {
                for (long i = 0; i < rows && s.products; ++i)
                    convert_row(state.base + i * state.stride, first_width, converted + i * converted_stride);
                left = {converted, converted_stride};
            } else {
                left = state;
                if (k && copies) left = {row_copy(part, k % 2, false), copy_stride(false)};
            }
            const auto block = [&](long b) {
                const long unit = b * width;
                const auto [first_read, read] = this->reach(b, false);
                for (long from = 0; from < rows; from += chunk) {
                    const long here = std::min<long>(chunk, rows - from);
                    for (long r = 0; r < s.products; ++r)
                        rows_by_panel<Packed>(left.base + Format<Packed>::units(first_read) + from * left.stride,
                                              left.stride, here, panel(b, r),
                                              {s.biased ? bias + r * padded_H + unit : nullptr, 0},
                                              product + r * chunk * width, width, Format<Packed>::units(read));
                    run_program(bound, b, here, [&](const Place& place, In& in) -> Operand<T> {
                        const long q = place.index, at = first + from * Q;
                        switch (Kind(place.kind)) {
                            case Kind::share:
                                return {as(s.share) + at * s.share_stride + q * H + unit, Q * s.share_stride};
                            case Kind::saved: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                            case Kind::before:
                                return {before[q].base + from * before[q].stride + unit, before[q].stride};
                            case Kind::after: return {after[q].base + from * after[q].stride + unit, after[q].stride};
                            default: in = In::scratch; return {product + q * chunk * width, width};
                        }
                    });
                }
                store_final(part, after, unit, remain, rows);
                if constexpr (!Format<Packed>::converts)
                    if (copies) copy_rows(part, after[0], (k + 1) % 2, unit, remain);
            };
            if (!for_blocks(k + 1, block)) return;
            if (s.projection) after[0] = project(part, first, remain, rows);
            std::swap(before, after);
        }
    }

    void copy_rows(long part, const Operand<T>& state, long side, long unit, long rows) const {
        T* to = row_copy(part, side, false) + unit;
        const long size = sizeof(T) * std::min<long>(width, H - unit);
        for (long i = 0; i < rows; ++i)
            std::memcpy(to + i * copy_stride(false), state.base + i * state.stride + unit, size);
    }

    // The first state is a product of what the step made, which has to be there whole.
    Operand<T> project(long part, long first, long remain, long rows) const {
        const long P = s.projection, Q = parts() * row_stride();
        T* to = as(s.projected) + first * P;
        by_panels<T>(as(s.state[0]) + first * H, H, R, nullptr, to, P, {rows, Q, 1, 0}, H, 0, P, nullptr);
        for (long i = remain; i < rows && s.final_state; ++i)
            std::memcpy(as(s.final_state[0]) + (part + i * parts()) * P, to + i * Q * P, sizeof(T) * P);
        return {to, Q * P};
    }

    // The states of the segments that end here, rows [from, to) of a part; a block of their units.
    void store_final(long part, const Operand<T>* last, long unit, long from, long to) const {
        if (!s.final_state) return;
        const long size = sizeof(T) * std::min<long>(width, H - unit);
        for (long j = s.projection ? 1 : 0; j < s.states; ++j)
            for (long i = from; i < to; ++i)
                std::memcpy(as(s.final_state[j]) + (part + i * parts()) * H + unit,
                            last[j].base + i * last[j].stride + unit, size);
    }
};

// The loop over time from its end, then the weights' gradients as large products.
template <typename T> struct Backward : Frame<T> {
    using Base = Frame<T>;
    using Base::as, Base::blocks, Base::chunk, Base::H, Base::apart, Base::row, Base::padded, Base::panel, Base::parts, Base::rows_of;
    using Base::s, Base::scratch, Base::width, Base::run_program, Base::pack_recurrent, Base::parallel, Base::by_rows;
    using Bound = typename Base::Bound;
    using In = typename Base::In;
    using Base::after, Base::input, Base::pack_all, Base::rides, Base::riding_steps, Base::rows_of_steps, Base::summed, Base::sums;

    explicit Backward(const Scan& scan) : Base(scan, true) {}

    void run() const {
        prefer_large_pages(s.d_share, sizeof(T) * s.N * s.gates * H);
        prefer_large_pages(s.d_data, sizeof(T) * s.N * s.D);
        if (s.d_data) pack_all(Source<T>{as(s.weight_ih), s.D, 1}, s.gates * H, s.D, input);
        pack_recurrent(true);
        if (summed) std::memset(sums, 0, sizeof(T) * parts() * summed * padded);
        parallel(parts(), [&](long part) { steps(part, scratch(part)); });
        reduce_sums();
        weight_gradients();
    }

    void steps(long part, Arena arena) const {
        const long P = parts(), Q = P * apart(), GH = s.gates * H, KH = s.kept * H, OH = s.own * H, most = rows_of(part, s.S);
        const long riding = riding_steps(part);
        Bound bound(s, arena);
        T* total = arena.take<T>(chunk * width);
        T* product = arena.take<T>(chunk * width);
        std::vector<T*> carried(s.states), passed(s.states);  // ∂L/∂s_t from later steps, and for the step before
        for (long j = 0; j < s.states; ++j) {
            carried[j] = arena.take<T>(most * H);
            passed[j] = arena.take<T>(most * H);
        }
        T* sum = sums + part * summed * padded;

        for (long k = s.steps - 1, had = 0; k >= 0; --k) {
            const long rows = rows_of(part, s.sizes[k]), first = row(k, part);
            for (long j = 0; j < s.states && had < rows; ++j)  // segments that end here
                for (long i = had; i < rows; ++i)
                    if (s.d_final[j])
                        std::memcpy(carried[j] + i * H, as(s.d_final[j]) + (part + i * P) * H, sizeof(T) * H);
                    else
                        std::memset(carried[j] + i * H, 0, sizeof(T) * H);
            had = rows;
            if (!rows) continue;
            if (s.norms) record_norms(carried, k, part, rows);
            for (long b = 0; b < blocks; ++b)
                for (long from = 0; from < rows; from += chunk) {
                    const long here = std::min<long>(chunk, rows - from), unit = b * width, at = first + from * Q;
                    if (s.d_outputs) add_outputs(total, carried[0] + from * H + unit, at, unit, here);
                    run_program(bound, b, here, [&](const Place& place, In& in) -> Operand<T> {
                        const long q = place.index;
                        switch (Kind(place.kind)) {
                            case Kind::share: return {as(s.share) + at * GH + q * H + unit, Q * GH};
                            case Kind::kept: return {as(s.tape) + at * KH + q * H + unit, Q * KH};
                            case Kind::before: {
                                const T* was = k ? as(s.state[q]) + (row(k - 1, part) + from * Q) * H
                                                 : as(s.initial[q]) + (part + from * P) * H;
                                return {const_cast<T*>(was) + unit, (k ? Q : P) * H};
                            }
                            case Kind::after: return {as(s.state[q]) + at * H + unit, Q * H};
                            case Kind::d_after:
                                if (q || !s.d_outputs) return {carried[q] + from * H + unit, H};
                                in = In::scratch;
                                return {total, width};
                            case Kind::d_share:
                                if (s.d_share == s.share) in = In::memory_afterwards;  // what is kept there is still read
                                return {as(s.d_share) + at * GH + q * H + unit, Q * GH};
                            case Kind::d_product: return {as(s.d_product) + at * OH + q * H + unit, Q * OH};
                            case Kind::d_before: return {passed[q] + from * H + unit, H};
                            default: in = In::scratch; return {sum + q * padded + unit, 0};
                        }
                    });
                }
            if (s.products) through_recurrent(passed[0], product, part, first, rows);
            if (s.xi || s.clip > 0) bound_carried(passed, first, rows);
            std::swap(carried, passed);
            if (s.d_data && rides() && k % riding == 0)
                rows_of_steps(part, k, std::min(s.steps, k + riding),
                              [&](long at, const Grouped& which) { input_gradient(at, which); });
        }
        for (long j = 0; j < s.states; ++j)
            for (long i = 0; i < most; ++i)
                std::memcpy(as(s.d_initial[j]) + (part + i * P) * H, carried[j] + i * H, sizeof(T) * H);
    }

    // ∂L/∂x = d · W for rows that stand like this from the first on.
    void input_gradient(long first, const Grouped& rows) const {
        const long GH = s.gates * H;
        by_panels<T>(as(s.d_share) + first * GH, input, nullptr, as(s.d_data) + first * s.D, rows, s.D, GH);
    }

    void add_outputs(T* total, const T* carried, long first, long unit, long rows) const {
        const long have = std::min<long>(width, H - unit);
        for (long i = 0; i < rows; ++i) {
            const T *out = as(s.d_outputs) + (first + i * parts() * apart()) * H + unit, *in = carried + i * H;
            if (have == width)
                for (int v = 0; v < width; v += Tile<T>::lanes)
                    store<T>(total + i * width + v, load<T>(in + v) + load<T>(out + v));
            else
                for (long v = 0; v < width; ++v) total[i * width + v] = v < have ? in[v] + out[v] : T(0);
        }
    }

    // ∂L/∂h_{t−1} through the products: Σ over them of d · U, and the mask on the way.
    void through_recurrent(T* passed, T* product, long part, long first, long rows) const {
        const long P = parts(), Q = P * apart();
        for (long b = 0; b < blocks; ++b)
            for (long from = 0; from < rows; from += chunk) {
                const long here = std::min<long>(chunk, rows - from), unit = b * width;
                const long have = std::min<long>(width, H - unit);
                T* at = passed + from * H + unit;
                const bool direct = have == width && !s.mask;
                T* to = direct ? at : product;
                const long step = direct ? H : width;
                From<T> onto = direct && s.adds_to_first ? From<T>{at, H} : From<T>{};
                for (long r = 0; r < s.products; ++r, onto = {to, step}) {
                    const long q = s.product_place[r], own = q - s.gates;
                    const T* d = q < s.gates ? as(s.d_share) + q * H : as(s.d_product) + own * H;
                    const long ld = (q < s.gates ? s.gates : s.own) * H;
                    rows_by_panel<T>(d + (first + from * Q) * ld, Q * ld, here, panel(b, r), onto, to, step, H);
                }
                if (direct) continue;
                for (long i = 0; i < here; ++i)
                    for (long v = 0; v < have; ++v) {
                        const T m = s.mask ? as(s.mask)[(part + (from + i) * P) * H + unit + v] : T(1);
                        const T old = s.adds_to_first ? at[i * H + v] : T(0);
                        at[i * H + v] = old + m * product[i * width + v];
                    }
            }
    }

    // g ← ξ g, then g ← min(1, θ/‖g‖) g for each row, ‖g‖ over all states.
    void bound_carried(const std::vector<T*>& passed, long first, long rows) const {
        for (long i = 0; i < rows; ++i) {
            double scale = s.xi ? s.xi[first + i * parts() * apart()] : 1.0;
            const bool cut = scale == 0;  // whatever comes, even if it is no number
            if (s.clip > 0) {
                double square = 0;
                for (T* g : passed) square += squares(g + i * H);
                const double norm = std::sqrt(square) * std::abs(scale);
                if (norm > s.clip) scale *= s.clip / norm;
            }
            if (scale == 1.0) continue;
            for (T* g : passed)
                for (long u = 0; u < H; ++u) g[i * H + u] = cut ? T(0) : T(g[i * H + u] * scale);
        }
    }

    static double squares(const T* g, const T* more, long H) {
        double square = 0;
        for (long u = 0; u < H; ++u) {
            const double value = double(g[u]) + (more ? double(more[u]) : 0.0);
            square += value * value;
        }
        return square;
    }
    double squares(const T* g) const { return squares(g, nullptr, H); }

    void record_norms(const std::vector<T*>& carried, long k, long part, long rows) const {
        for (long j = 0; j < s.states; ++j)
            for (long i = 0; i < rows; ++i) {
                const long at = row(k, part + i * parts());
                const T* out = j == 0 && s.d_outputs ? as(s.d_outputs) + at * H : nullptr;
                as(s.norms[j])[at] = T(std::sqrt(squares(carried[j] + i * H, out, H)));
            }
    }

    // What the programs summed over rows and steps, over the threads too, in one fixed order.
    void reduce_sums() const {
        const auto into = [&](long q, void* to, long at) {
            if (!to) return;
            for (long u = 0; u < H; ++u) {
                T value = 0;
                for (long p = 0; p < parts(); ++p) value += sums[(p * summed + q) * padded + u];
                as(to)[at + u] = value;
            }
        };
        for (long e = 0; e < s.extras; ++e) into(e, s.d_extra[e], 0);
        for (long g = 0; g < s.gates && s.biased; ++g) into(s.extras + g, s.d_bias_ih, g * H);
        for (long r = 0; r < s.products && s.biased; ++r) into(s.extras + s.product_place[r], s.d_bias_hh, r * H);
    }

    // What is left: large products over all steps.
    void weight_gradients() const {
        const long GH = s.gates * H, D = s.D;
        if (s.d_data && !rides()) by_rows(s.N, [&](long, long from, long rows) { input_gradient(from, {rows, 1, 1, 0}); });
        bool alike = s.products == s.gates;  // each product's gradient is that of its gate
        for (long r = 0; r < s.products; ++r) alike = alike && s.product_place[r] == r;
        by_rows(GH, [&](long part, long from, long rows) {
            Arena arena = after(part);
            const T* d = as(s.d_share) + from;
            const Target<T> W{Source<T>{as(s.data), D, 1}, as(s.d_weight_ih) + from * D, D};
            if (!alike) {
                transposed_product<T>(d, GH, {W}, rows, s.N, arena);
                return;
            }
            const Target<T> U{states_before(arena), as(s.d_weight_hh) + from * H, H};
            transposed_product<T>(d, GH, {W, U}, rows, s.N, arena);
        });
        for (long r = 0; r < s.products && !alike;) {  // products whose gradients lie side by side together
            long many = 1;
            while (r + many < s.products && s.product_place[r + many] == s.product_place[r] + many &&
                   (s.product_place[r] < s.gates) == (s.product_place[r + many] < s.gates))
                ++many;
            const long q = s.product_place[r], ld = (q < s.gates ? s.gates : s.own) * H;
            const T* d = q < s.gates ? as(s.d_share) + q * H : as(s.d_product) + (q - s.gates) * H;
            by_rows(many * H, [&](long part, long from, long rows) {
                Arena arena = after(part);
                const Target<T> U{states_before(arena), as(s.d_weight_hh) + (r * H + from) * H, H};
                transposed_product<T>(d + from, ld, {U}, rows, s.N, arena);
            });
            r += many;
        }
    }

    // h_{t−1} of every step, where it lies.
    Source<T> states_before(Arena& arena) const {
        const T** rows = arena.take<const T*>(s.N);
        const T** factors = s.mask ? arena.take<const T*>(s.N) : nullptr;
        for (long k = 0; k < s.steps; ++k)
            for (long i = 0; i < s.sizes[k]; ++i) {
                rows[row(k, i)] = k ? as(s.state[0]) + row(k - 1, i) * H : as(s.initial[0]) + i * H;
                if (s.mask) factors[row(k, i)] = as(s.mask) + i * H;
            }
        Source<T> source;
        source.rows = rows;
        source.factors = factors;
        return source;
    }
};

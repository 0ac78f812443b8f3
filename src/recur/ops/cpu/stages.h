// Scans of a step that is a list of stages: matrix products, reductions over units, and pointwise programs.
//
// A stage reads and writes values: matrices with a row for each segment of the step, of any width. Values between two
// stages are in scratch memory; values that the backward pass reads are in rows of all steps. Threads divide the rows of
// a batch; with few rows they share every stage, block by block. The gradient of a matrix is a product over all steps,
// which the caller computes from the values that the stages wrote.

template <typename T> struct StagedScan {
    static constexpr int width = Tile<T>::width, lanes = Tile<T>::lanes;
    static constexpr long chunk = 2 * TILE_ROWS;  // rows that a pointwise program takes at a time

    const Staged& s;
    const bool shared, one_thread;
    long most_places = 1, most_temps = 0, most_constants = 0, temp_width = 0, sum_width = 0, widest = 0;
    std::vector<long> offset, where;  // the first row of each step; where a value begins in the memory of a part
    std::vector<T*> panels;           // the packed matrices
    T *zeros = nullptr, *sums = nullptr, *temps = nullptr;
    char* scratch = nullptr;
    long scratch_size = 0;

    explicit StagedScan(const Staged& scan)
        : s(scan), shared(shares_steps()), one_thread((shared || parts() > 1) && Contention::prefers_one_thread()),
          offset(s.steps + 1), where(s.value_count), panels(s.matrix_count) {
        for (long k = 0; k < s.steps; ++k) offset[k + 1] = offset[k] + s.sizes[k];
        for (long v = 0; v < s.value_count; ++v) {
            const StagedValue& value = s.values[v];
            const long padded = whole_panels<T>(value.width);
            widest = std::max(widest, padded);
            if (value.kind == RECUR_TEMP) where[v] = std::exchange(temp_width, temp_width + padded);
            if (value.kind == RECUR_SUM) where[v] = std::exchange(sum_width, sum_width + padded);
        }
        for (long q = 0; q < s.stage_count; ++q) {
            most_places = std::max<long>(most_places, s.stages[q].program.count);
            most_temps = std::max<long>(most_temps, s.stages[q].program.temps);
            most_constants = std::max<long>(most_constants, s.stages[q].constants);
        }
        scratch_size = Bindings(*this, Arena(nullptr)).used;
    }

    // The operands of a pointwise program, and where those that are staged are in memory.
    struct Bindings {
        Operand<T>*operand, *memory;
        T *temps, *constants, *stage;
        long used;

        Bindings(const StagedScan& of, Arena arena) {
            operand = arena.take<Operand<T>>(of.most_places);
            memory = arena.take<Operand<T>>(of.most_places);
            temps = arena.take<T>(of.most_temps, chunk, width);
            constants = arena.take<T>(of.most_constants, width);
            stage = arena.take<T>(of.most_places, chunk, width);
            used = (arena.used() + 63) / 64 * 64;
        }
    };

    bool shares_steps() const {
        double work = 0;  // multiplications in a step
        for (long q = 0; q < s.stage_count; ++q)
            if (s.stages[q].kind == RECUR_PRODUCT) {
                const StagedMatrix& m = s.matrices[s.stages[q].matrix];
                work = std::max(work, double(s.S) * m.rows * m.columns);
            }
        return s.threads > 1 && s.S <= FEW_ROWS[s.backward != 0] * s.threads && work >= WORTH_SHARING;
    }
    long parts() const { return shared ? 1 : std::max(1L, std::min<long>(s.threads, s.S)); }
    long rows_of(long part, long n) const { return n > part ? (n - part + parts() - 1) / parts() : 0; }
    long members() const { return one_thread || !shared ? 1 : std::min<long>(s.threads, Team::max_members); }

    void run() {
        const auto lay_out = [&](Arena arena) {
            for (long m = 0; m < s.matrix_count; ++m)
                panels[m] = arena.take<T>(outputs_of(m) / width, Format<T>::panel(inputs_of(m)));
            zeros = arena.take<T>(widest);
            sums = arena.take<T>(parts(), sum_width);
            temps = arena.take<T>(parts(), rows_of(0, s.S), temp_width);
            scratch = arena.take<char>(std::max(parts(), members()), scratch_size);
            return arena.used();
        };
        const std::unique_ptr<char[]> memory(new char[lay_out(Arena(nullptr)) + 64]);
        lay_out(Arena(reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(memory.get()) + 63) / 64 * 64)));
        std::fill_n(zeros, widest, T(0));
        std::fill_n(sums, parts() * sum_width, T(0));
        for (long m = 0; m < s.matrix_count; ++m) pack(m);
        if (!shared) {
            const auto whole_part = [&](long part) {
                steps(part, scratch + part * scratch_size, [&](long count, auto&& task) {
                    for (long t = 0; t < count; ++t) task(t);
                    return true;
                });
            };
            parallel(parts(), whole_part);
        } else {
            const long count = members();
            Team team(count, count);
            parallel(count, [&](long member) {
                long phase = 0;
                try {
                    steps(0, scratch + member * scratch_size, [&](long tasks, auto&& task) {
                        return team.phase(member, phase++, [&](long share) {
                            for (long t = tasks * share / count; t < tasks * (share + 1) / count; ++t) task(t);
                        });
                    });
                } catch (...) {
                    team.abandon();
                    throw;
                }
            });
        }
        for (long v = 0; v < s.value_count; ++v) {
            const StagedValue& value = s.values[v];
            if (value.kind != RECUR_SUM) continue;
            for (long u = 0; u < value.width; ++u) {
                T total = 0;
                for (long p = 0; p < parts(); ++p) total += sums[p * sum_width + where[v] + u];
                static_cast<T*>(value.base)[u] = total;
            }
        }
    }

    template <typename F> void parallel(long count, F work) const {
        if (count > 1 && !one_thread) return run_parallel(s, count, work, false);
        for (long p = 0; p < count; ++p) work(p);
    }

    long inputs_of(long m) const { return s.matrices[m].transposed ? s.matrices[m].rows : s.matrices[m].columns; }
    long outputs_of(long m) const {
        return whole_panels<T>(s.matrices[m].transposed ? s.matrices[m].columns : s.matrices[m].rows);
    }

    void pack(long m) const {
        const StagedMatrix& of = s.matrices[m];
        const T* base = static_cast<const T*>(of.base);
        const Source<T> from = of.transposed ? Source<T>{base, of.stride, 1} : Source<T>{base, 1, of.stride};
        const long N = of.transposed ? of.columns : of.rows, K = inputs_of(m), count = outputs_of(m) / width;
        parallel(std::min<long>(s.threads, count), [&](long part) {
            for (long p = part; p < count; p += std::min<long>(s.threads, count))
                pack_panel(from, 0, K, p * width, std::min<long>(width, N - p * width),
                           panels[m] + p * Format<T>::panel(K));
        });
    }

    // A value at row `from` of a part in step k.
    Operand<T> at(long v, long k, long part, long from = 0) const {
        const StagedValue& value = s.values[v];
        T* base = static_cast<T*>(value.base);
        const long P = parts(), row = part + from * P, stride = value.stride;
        switch (value.kind) {
            case RECUR_STEP: return {base + (offset[k] + row) * stride, P * stride};
            case RECUR_SEGMENT: return {base + row * stride, P * stride};
            case RECUR_VECTOR: return {base, 0};
            case RECUR_STATE:
                if (k) return {base + (offset[k - 1] + row) * stride, P * stride};
                if (!value.first) return {zeros, 0};
                return {static_cast<T*>(const_cast<void*>(value.first)) + row * value.width, P * value.width};
            case RECUR_SUM: return {sums + part * sum_width + where[v], 0};
            default: {
                const long padded = whole_panels<T>(value.width), rows = rows_of(0, s.S);
                return {temps + (part * temp_width + where[v]) * rows + from * padded, padded};
            }
        }
    }
    long room(long v, long k) const {
        const StagedValue& value = s.values[v];
        return value.kind == RECUR_TEMP || value.kind == RECUR_SUM ? whole_panels<T>(value.width)
               : value.kind == RECUR_STATE && !k                    ? value.width
                                                                    : value.room;
    }

    template <typename ForTasks> void steps(long part, char* own, ForTasks&& for_tasks) const {
        const Bindings bound(*this, Arena(own));
        for (long turn = 0; turn < s.steps; ++turn) {
            const long k = s.backward ? s.steps - 1 - turn : turn, rows = rows_of(part, s.sizes[k]);
            if (!rows && s.backward) continue;
            if (!rows) return;
            if (s.backward && !for_tasks(rows, [&](long i) { add_incoming(part, k, i); })) return;
            for (long q = 0; q < s.stage_count; ++q) {
                const StagedStage& stage = s.stages[q];
                const StagedValue& to = s.values[stage.to];
                if (stage.kind == RECUR_POINTWISE) {
                    for (long c = 0; c < stage.constants; ++c)
                        std::fill_n(bound.constants + c * width, width, T(stage.constant[c]));
                    const auto block = [&](long b) { pointwise(stage, bound, b, part, k, rows); };
                    if (!for_tasks(whole_panels<T>(stage.width) / width, block)) return;
                } else if (stage.kind == RECUR_PRODUCT) {
                    const auto panel = [&](long b) { product(stage, b, part, k, rows); };
                    if (!for_tasks(whole_panels<T>(to.width) / width, panel)) return;
                } else if (!for_tasks(rows, [&](long i) { reduce(stage, part, k, i); })) {
                    return;
                }
            }
            if (s.backward && !for_tasks(rows, [&](long i) { carry(part, k, i); })) return;
        }
    }

    void pointwise(const StagedStage& stage, const Bindings& bound, long block, long part, long k, long rows) const {
        const long unit = block * width, have = std::min<long>(width, stage.width - unit);
        const int vectors = have <= lanes ? 1 : 2;
        for (long from = 0; from < rows; from += chunk) {
            const long here = std::min(chunk, rows - from);
            bool staged = false;
            for (long p = 0; p < stage.program.count; ++p) {
                const Place& place = stage.program.places[p];
                Operand<T>&operand = bound.operand[p], &memory = bound.memory[p];
                memory = {nullptr, 0};
                if (Kind(place.kind) == Kind::temp) {
                    operand = {bound.temps + place.index * chunk * width, width};
                    continue;
                }
                if (Kind(place.kind) == Kind::constant) {
                    operand = {bound.constants + place.index * width, 0};
                    continue;
                }
                operand = at(place.index, k, part, from);
                operand.base += unit;
                if (unit + vectors * lanes <= room(place.index, k)) continue;
                staged = true;  // the block goes beyond the edge of what is in memory
                memory = operand;
                operand = {bound.stage + p * chunk * width, width};
                for (long i = 0; i < here; ++i) {
                    T* row = operand.base + i * width;
                    std::memset(row, 0, sizeof(T) * width);
                    if (place.read) std::memcpy(row, memory.base + i * memory.stride, sizeof(T) * have);
                }
            }
            execute<T>(stage.program.code, stage.program.length, bound.operand, here, vectors);
            for (long p = 0; p < stage.program.count && staged; ++p) {
                const Operand<T>&operand = bound.operand[p], &memory = bound.memory[p];
                if (!stage.program.places[p].written || !memory.base) continue;
                for (long i = 0; i < here; ++i)
                    std::memcpy(memory.base + i * memory.stride, operand.base + i * width, sizeof(T) * have);
            }
        }
    }

    // Columns of one panel of a product, for all rows.
    void product(const StagedStage& stage, long block, long part, long k, long rows) const {
        const long unit = block * width, K = inputs_of(stage.matrix);
        const Operand<T> left = at(stage.a, k, part), to = at(stage.to, k, part);
        From<T> onto;
        long whole = room(stage.to, k) - unit;
        if (stage.onto >= 0) {
            const Operand<T> added = at(stage.onto, k, part);
            onto = {added.base + unit, added.stride};
            whole = std::min(whole, room(stage.onto, k) - unit);
        }
        const long have = whole >= width ? width : std::min<long>(width, s.values[stage.to].width - unit);
        const T* panel = panels[stage.matrix] + block * Format<T>::panel(K);
        for (long i = 0; i < rows;) {
            const int M = next_rows<T>(rows - i);
            tile_at_edge<T>(M, left.base + i * left.stride, left.stride, false, panel, onto.at(i),
                            to.base + i * to.stride + unit, to.stride, K, have);
            i += M;
        }
    }

    // A sum, mean or maximum over the units of each group, written to all of its units.
    void reduce(const StagedStage& stage, long part, long k, long i) const {
        const Operand<T> a = at(stage.a, k, part, i), to = at(stage.to, k, part, i);
        const long size = s.values[stage.to].width / stage.groups;
        for (long g = 0; g < stage.groups; ++g) {
            const T* from = a.base + g * size;
            T total = 0;
            if (stage.kind == RECUR_MAXIMUM) {
                total = from[0];
                for (long u = 1; u < size; ++u) total = total != total || from[u] < total ? total : from[u];
            } else {
                Vector<T> sum[2] = {};
                long u = 0;
                for (; u + width <= size; u += width) {
                    sum[0] += load<T>(from + u);
                    sum[1] += load<T>(from + u + lanes);
                }
                sum[0] += sum[1];
                for (int lane = 0; lane < lanes; ++lane) total += sum[0][lane];
                for (; u < size; ++u) total += from[u];
                if (stage.kind == RECUR_MEAN) total /= T(size);
            }
            std::fill_n(to.base + g * size, size, total);
        }
    }

    // The incoming gradient of the outputs is added to the gradient that later steps carried back.
    void add_incoming(long part, long k, long i) const {
        const long segment = part + i * parts();
        for (long j = 0; j < s.states; ++j) {
            const T* incoming = static_cast<const T*>(s.d_outputs[j]);
            if (!incoming) continue;
            T* carried = static_cast<T*>(s.carried[j]) + segment * s.widths[j];
            incoming += (offset[k] + segment) * s.widths[j];
            for (long u = 0; u < s.widths[j]; ++u) carried[u] += incoming[u];
        }
    }

    // g ← ξ g, then g ← min(1, θ/‖g‖) g over all states of a segment.
    void carry(long part, long k, long i) const {
        const long segment = part + i * parts();
        double scale = s.xi ? s.xi[offset[k] + segment] : 1.0;
        const bool cut = scale == 0;  // whatever g is, NaN too
        if (s.clip > 0) {
            double square = 0;
            for (long j = 0; j < s.states; ++j) {
                const T* next = static_cast<const T*>(s.next[j]) + segment * s.widths[j];
                for (long u = 0; u < s.widths[j]; ++u) square += double(next[u]) * double(next[u]);
            }
            const double norm = std::sqrt(square) * std::abs(scale);
            if (norm > s.clip) scale *= s.clip / norm;
        }
        for (long j = 0; j < s.states; ++j) {
            const T* next = static_cast<const T*>(s.next[j]) + segment * s.widths[j];
            T* carried = static_cast<T*>(s.carried[j]) + segment * s.widths[j];
            for (long u = 0; u < s.widths[j]; ++u) carried[u] = cut ? T(0) : T(next[u] * scale);
        }
    }
};

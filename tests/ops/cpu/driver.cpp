// The C++ core without Python: runs calls that were recorded from the operator, on buffers of their exact size, so that
// a sanitizer sees every step over an edge and every race. Written for test_sanitizers.py, which reads what it writes.
//
//   driver THREADS CALL…     for each file CALL, all that the call writes goes to CALL.out
//   driver THREADS           exceptions thrown by work on these threads reach the caller
//
// A file is a list of fields: name (16 bytes), kind (1 read, 2 written, 3 both), how many bytes in how many rows, how
// many lie between two rows, and how many behind the last; then the bytes, unless the field is only written. Numbers are
// fields of one int64. What is only written starts as NaN, in every bit 1. What lies between rows must not be touched.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#endif

namespace {
enum { is_read = 1, is_written = 2 };

struct Field {
    int64_t kind = 0, bytes = 0, rows = 0, gap = 0, room = 0;
    std::unique_ptr<char[]> memory;  // no byte more than there is

    int64_t row() const { return bytes / rows; }
    char* at(int64_t k) const { return memory.get() + k * (row() + gap); }
    void allocate() {
        const int64_t all = bytes + (rows - 1) * gap + room;
        memory.reset(new char[all]);
        std::memset(memory.get(), 0xff, all);
        for (int64_t k = 0; k + 1 < rows && gap; ++k) ASAN_POISON_MEMORY_REGION(at(k) + row(), gap);
    }
    void forget() {
        for (int64_t k = 0; k < rows; ++k) std::memset(at(k), 0xff, row());
        std::memset(at(rows) - gap, 0xff, room);
    }
    // Where no sanitizer watches what is between rows.
    bool gaps_are_untouched() const {
#if !defined(__SANITIZE_ADDRESS__)
        for (int64_t k = 0; k + 1 < rows; ++k)
            for (int64_t b = 0; b < gap; ++b)
                if (at(k)[row() + b] != char(0xff)) return false;
#endif
        return true;
    }
};

class Call {
  public:
    explicit Call(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        if (!file) std::abort();
        char name[16];
        while (std::fread(name, 1, sizeof name, file) == sizeof name) {
            Field& field = fields_[name];
            for (int64_t* number : {&field.kind, &field.bytes, &field.rows, &field.gap, &field.room})
                read(number, sizeof *number, file);
            field.allocate();
            for (int64_t k = 0; k < field.rows && field.kind & is_read; ++k) read(field.at(k), field.row(), file);
        }
        std::fclose(file);
    }

    void write(const std::string& path) const {
        std::FILE* file = std::fopen(path.c_str(), "wb");
        for (const auto& [name, field] : fields_)
            for (int64_t k = 0; k < field.rows && field.kind & is_written; ++k)
                std::fwrite(field.at(k), 1, field.row(), file);
        std::fclose(file);
        for (const auto& [name, field] : fields_)
            if (!field.gaps_are_untouched()) std::fprintf(stderr, "%s: %s between its rows\n", path.c_str(), name.c_str());
    }

    // As if it had not run yet. Returns what it had written.
    std::string forget() {
        std::string written;
        for (auto& [name, field] : fields_)
            if (field.kind == is_written) {
                for (int64_t k = 0; k < field.rows; ++k) written.append(field.at(k), field.row());
                field.forget();
            }
        return written;
    }

    template <typename T = void> T* at(const std::string& name) const {
        const auto found = fields_.find(name);
        return found == fields_.end() ? nullptr : reinterpret_cast<T*>(found->second.memory.get());
    }
    int64_t number(const std::string& name) const { return *at<int64_t>(name); }

    std::vector<void*> all(const std::string& name, int64_t count) const {
        std::vector<void*> found;
        for (int64_t k = 0; k < count; ++k) found.push_back(at(name + std::to_string(k)));
        found.push_back(nullptr);  // never empty
        return found;
    }

  private:
    static void read(void* to, size_t bytes, std::FILE* file) {
        if (std::fread(to, 1, bytes, file) != bytes) std::abort();
    }

    std::map<std::string, Field> fields_;
};

void check(int status) {
    if (status != RECUR_OK) std::fprintf(stderr, "%s\n", recur_error());
}

std::unique_ptr<char[]> memory_of(const Scan& s, int isa, int numbers, int backward) {
    int64_t bytes = 0;
    check(recur_workspace_bytes(&s, isa, numbers, backward, &bytes));
    return std::unique_ptr<char[]>(new char[bytes]);
}

void run_scan(const Scan& s, int isa, int numbers, int backward) {
    const Prepared whole = {reinterpret_cast<const int64_t*>(&s), sizeof s / 8, nullptr, 0, 0, isa, numbers, backward};
    check(recur_run(&whole, 1, nullptr));
}

// The same call on weights that are packed beforehand, as a step of a stack takes them.
void run_packed(Scan s, int isa, int numbers) {
    int64_t bytes = 0;
    s.workspace = nullptr;
    check(recur_packed_bytes(&s, isa, numbers, &bytes));
    const std::unique_ptr<char[]> packed(new char[bytes]);
    s.packed = packed.get();
    check(recur_pack(&s, isa, numbers));
    const auto workspace = memory_of(s, isa, numbers, 0);
    s.workspace = workspace.get();
    run_scan(s, isa, numbers, 0);
}

struct Thrown {};

template <typename F> void expect_thrown(F work) {
    try {
        work();
    } catch (const Thrown&) {
        return;
    }
    std::fprintf(stderr, "the exception was lost\n");
}

// As `run` below, of a call over grids.
void run_grid(Call& call, const char* path, int64_t threads) {
    Grid g = {};
#define GRID_NUMBER(name) g.name = call.number(#name);
    GRID_NUMBER(Q) GRID_NUMBER(B) GRID_NUMBER(R) GRID_NUMBER(C) GRID_NUMBER(D) GRID_NUMBER(H) GRID_NUMBER(gates)
    GRID_NUMBER(states) GRID_NUMBER(constants) GRID_NUMBER(saved) GRID_NUMBER(reads_share) GRID_NUMBER(rows)
#define GRID_ARRAY(name) g.name = call.at<std::remove_pointer_t<decltype(g.name)>>(#name);
    GRID_ARRAY(turns) GRID_ARRAY(x) GRID_ARRAY(M) GRID_ARRAY(constant) GRID_ARRAY(h) GRID_ARRAY(tape) GRID_ARRAY(d_h)
    GRID_ARRAY(d_x) GRID_ARRAY(d_M)
    g.program.code = call.at<Instruction>("code"), g.program.length = call.number("length");
    g.program.places = call.at<Place>("places"), g.program.count = call.number("count");
    g.program.temps = call.number("temps");
    g.threads = threads;
    const bool backward = call.number("backward");
    const int numbers = int(call.number("numbers"));
    const int isa = int(call.number("isa"));
    int64_t bytes = 0;
    check(recur_grid_workspace_bytes(&g, isa, numbers, backward, &bytes));
    const std::unique_ptr<char[]> workspace(new char[bytes]);
    std::memset(workspace.get(), 0xff, bytes);  // what is read before it is written shows
    g.workspace = workspace.get();
    const auto work = backward ? recur_grid_backward : recur_grid_forward;
    check(work(&g, isa, numbers));
    call.write(std::string(path) + ".out");
    const std::string with_threads = call.forget();
    while (!Contention::prefers_one_thread()) Contention::report();
    check(work(&g, isa, numbers));
    while (Contention::prefers_one_thread()) {}
    if (call.forget() != with_threads) std::fprintf(stderr, "%s: not the same on one thread\n", path);
}

void run(const char* path, int64_t threads) {
    Call call(path);
    if (call.at("Q")) return run_grid(call, path, threads);
    Scan s = {};
#define NUMBER(name) s.name = call.number(#name);
    NUMBER(D) NUMBER(H) NUMBER(gates) NUMBER(products) NUMBER(states) NUMBER(extras) NUMBER(constants) NUMBER(saved)
    NUMBER(own) NUMBER(steps) NUMBER(N) NUMBER(S) NUMBER(batch_major) NUMBER(biased) NUMBER(adds_to_first)
    NUMBER(share_stride) NUMBER(heads) NUMBER(projection) NUMBER(along_time) NUMBER(padded_rows)
#define ARRAY(name) s.name = call.at<std::remove_pointer_t<decltype(s.name)>>(#name);
    ARRAY(sizes) ARRAY(data) ARRAY(weight_ih) ARRAY(weight_hh) ARRAY(weight_hr) ARRAY(bias_ih) ARRAY(bias_hh) ARRAY(constant) ARRAY(mask)
    ARRAY(xi) ARRAY(share) ARRAY(tape) ARRAY(d_share) ARRAY(d_product) ARRAY(product_place) ARRAY(d_data)
    ARRAY(d_weight_ih) ARRAY(d_weight_hh) ARRAY(d_weight_hr) ARRAY(projected) ARRAY(d_projected) ARRAY(d_bias_ih) ARRAY(d_bias_hh)
    const bool backward = call.number("backward");
    const int isa = int(call.number("isa")), numbers = int(call.number("numbers"));
    if (backward && !s.d_share) s.d_share = s.share;  // gradients overwrite what was saved
    if (!backward && !s.share) s.share = call.at("state0");  // and outputs U x + b
    s.clip = *call.at<double>("clip");
    s.threads = threads;

    const auto extra = call.all("extra", s.extras), d_extra = call.all("d_extra", s.extras);
    const auto initial = call.all("initial", s.states), d_initial = call.all("d_initial", s.states);
    const auto state = call.all("state", s.states), final_state = call.all("final_state", s.states);
    const auto d_final = call.all("d_final", s.states), d_state = call.all("d_state", s.states);
    s.extra = extra.data(), s.initial = initial.data(), s.state = state.data();
    const auto d_outputs = call.all("d_outputs", s.states);
    s.d_outputs = d_outputs.data(), s.d_final = d_final.data(), s.d_extra = d_extra.data();
    s.d_initial = d_initial[0] ? d_initial.data() : nullptr;
    s.final_state = backward ? nullptr : final_state.data();
    s.d_state = d_state[0] ? d_state.data() : nullptr;
    s.program.code = call.at<Instruction>("code"), s.program.length = call.number("length");
    s.program.places = call.at<Place>("places"), s.program.count = call.number("count");
    s.program.temps = call.number("temps");

    const auto workspace = memory_of(s, isa, numbers, backward);
    s.workspace = workspace.get();
    run_scan(s, isa, numbers, backward);
    if (!backward) {
        const std::string packing_itself = call.forget();
        run_packed(s, isa, numbers);
        if (call.forget() != packing_itself) std::fprintf(stderr, "%s: not the same on packed weights\n", path);
        run_scan(s, isa, numbers, backward);
    }
    call.write(std::string(path) + ".out");
    if (backward && s.d_share == s.share) return;  // what it read is overwritten
    const std::string with_threads = call.forget();
    while (!Contention::prefers_one_thread()) Contention::report();
    run_scan(s, isa, numbers, backward);
    while (Contention::prefers_one_thread()) {}
    if (call.forget() != with_threads) std::fprintf(stderr, "%s: not the same on one thread\n", path);
}

// Work that throws on some thread: run_parallel passes the exception on, and nobody waits for what will not be done.
void run_throwing(int64_t threads) {
    Scan s = {};
    s.threads = threads;
    for (long bad = 0; bad < threads; ++bad) {
        auto part = [&](long p) {
            if (p == bad) throw Thrown();
        };
        expect_thrown([&] { run_parallel(s, threads, part, false); });
        Team team(threads, 2 * threads);
        auto member = [&](long m) {
            try {
                for (long phase = 0; phase < 3; ++phase) {
                    const auto task = [&](long t) {
                        if (phase == 1 && t == bad) throw Thrown();
                    };
                    if (!team.phase(m, phase, task)) return;
                }
            } catch (...) {
                team.abandon();
                throw;
            }
        };
        expect_thrown([&] { run_parallel(s, threads, member, false); });
        Relay relay(4 * threads);
        Turn turn{{0}};
        auto runner = [&](long m) {
            try {
                for (long piece; (piece = relay.take(m)) >= 0; turn.at.store(piece + 1)) {
                    if (piece == 2 * bad) throw Thrown();
                    if (!relay.wait(m, turn, piece)) return;
                }
            } catch (...) {
                relay.abandon();
                throw;
            }
        };
        expect_thrown([&] { run_parallel(s, threads, runner, false); });
    }
}
}  // namespace

int main(int count, char** arguments) {
    const int64_t threads = std::atoll(arguments[1]);
    if (count == 2) run_throwing(threads);
    for (int k = 2; k < count; ++k) run(arguments[k], threads);
}

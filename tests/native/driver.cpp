// The C++ core without Python: runs calls that were recorded from the operator, on buffers of their exact size, so that
// a sanitizer sees every step over an edge and every race. Written for test_sanitizers.py, which reads what it writes.
//
//   driver THREADS CALL…     for each file CALL, all that the call writes goes to CALL.out
//
// A file is a list of fields: name (16 bytes), kind (1 read, 2 written, 3 both), how many bytes; then the bytes, unless
// the field is only written. Numbers are fields of one int64. What is only written starts as NaN, in every bit 1.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common.h"

namespace {
enum { is_read = 1, is_written = 2 };

struct Field {
    int64_t kind = 0, bytes = 0;
    std::unique_ptr<char[]> memory;  // no byte more than there is
};

class Call {
  public:
    explicit Call(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        if (!file) std::abort();
        char name[16];
        while (std::fread(name, 1, sizeof name, file) == sizeof name) {
            Field& field = fields_[name];
            read(&field.kind, sizeof field.kind, file);
            read(&field.bytes, sizeof field.bytes, file);
            field.memory.reset(new char[field.bytes]);
            poison(field);
            if (field.kind & is_read) read(field.memory.get(), field.bytes, file);
        }
        std::fclose(file);
    }

    void write(const std::string& path) const {
        std::FILE* file = std::fopen(path.c_str(), "wb");
        for (const auto& [name, field] : fields_)
            if (field.kind & is_written) std::fwrite(field.memory.get(), 1, field.bytes, file);
        std::fclose(file);
    }

    // As if it had not run yet. Returns what it had written.
    std::string forget() {
        std::string written;
        for (auto& [name, field] : fields_)
            if (field.kind == is_written) {
                written.append(field.memory.get(), field.bytes);
                poison(field);
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
    static void poison(Field& field) { std::memset(field.memory.get(), 0xff, field.bytes); }

    std::map<std::string, Field> fields_;
};

void run(const char* path, int64_t threads) {
    Call call(path);
    Scan s = {};
#define NUMBER(name) s.name = call.number(#name);
    NUMBER(D) NUMBER(H) NUMBER(gates) NUMBER(products) NUMBER(states) NUMBER(extras) NUMBER(constants) NUMBER(kept)
    NUMBER(own) NUMBER(steps) NUMBER(N) NUMBER(S) NUMBER(batch_major) NUMBER(biased) NUMBER(adds_to_first)
    NUMBER(share_step)
#define ARRAY(name) s.name = call.at<std::remove_pointer_t<decltype(s.name)>>(#name);
    ARRAY(sizes) ARRAY(data) ARRAY(weight_ih) ARRAY(weight_hh) ARRAY(bias_ih) ARRAY(bias_hh) ARRAY(constant) ARRAY(mask)
    ARRAY(xi) ARRAY(share) ARRAY(tape) ARRAY(d_outputs) ARRAY(d_share) ARRAY(d_product) ARRAY(product_place) ARRAY(d_data)
    ARRAY(d_weight_ih) ARRAY(d_weight_hh) ARRAY(d_bias_ih) ARRAY(d_bias_hh)
    const bool backward = call.number("backward"), is_double = call.number("is_double");
    const int isa = int(call.number("isa"));
    if (backward && !s.d_share) s.d_share = s.share;  // the way back writes over what was kept
    if (!backward && !s.share) s.share = call.at("state0");  // and the outputs over W x + b
    s.clip = *call.at<double>("clip");
    s.threads = threads;

    const auto extra = call.all("extra", s.extras), d_extra = call.all("d_extra", s.extras);
    const auto initial = call.all("initial", s.states), d_initial = call.all("d_initial", s.states);
    const auto state = call.all("state", s.states), final_state = call.all("final_state", s.states);
    const auto d_final = call.all("d_final", s.states), norms = call.all("norms", s.states);
    s.extra = extra.data(), s.initial = initial.data(), s.state = state.data();
    s.d_final = d_final.data(), s.d_extra = d_extra.data();
    s.d_initial = d_initial[0] ? d_initial.data() : nullptr;
    s.final_state = backward ? nullptr : final_state.data();
    s.norms = norms[0] ? norms.data() : nullptr;
    s.program.code = call.at<Instruction>("code"), s.program.length = call.number("length");
    s.program.places = call.at<Place>("places"), s.program.count = call.number("count");
    s.program.temps = call.number("temps");

    const std::unique_ptr<char[]> workspace(new char[recur_workspace_bytes(&s, isa, is_double, backward)]);
    s.workspace = workspace.get();
    if (backward) {
        recur_backward(&s, isa, is_double);
    } else {
        recur_forward(&s, isa, is_double);
        call.forget();
        s.packed = 1;  // and once more, on weights that were packed before
        const Scan* once = &s;
        recur_stack(&once, 1, isa, is_double);
    }
    call.write(std::string(path) + ".out");
    if (backward && s.d_share == s.share) return;  // what it read is spent
    const std::string together = call.forget();
    while (!Crowd::leaves_us_alone()) Crowd::seen();
    s.packed = 0;
    (backward ? recur_backward : recur_forward)(&s, isa, is_double);
    while (Crowd::leaves_us_alone()) {}
    if (call.forget() != together) std::fprintf(stderr, "%s: not the same when done alone\n", path);
}
}  // namespace

int main(int count, char** arguments) {
    for (int k = 2; k < count; ++k) run(arguments[k], std::atoll(arguments[1]));
}

// Interpreter of programs on a block: some rows of `width` units, or of half as many for narrow layers. Every operand is
// a block with its own stride between rows, which is zero for an operand that all rows share. Each instruction loops over
// the whole block, so the cost of decoding it is small.

enum class Op : int32_t { OPERATIONS(AS_NAME) };
enum class Kind : int32_t { PLACES(AS_NAME) };

template <typename T> struct Operand {
    T* base;
    long stride;
};

template <typename T, int vectors, typename F> INLINE void map_block(long rows, Operand<T> to, F f) {
    constexpr int lanes = Tile<T>::lanes;
    for (long i = 0; i < rows; ++i) {
        T* p = to.base + i * to.stride;
        const Vector<T> left = f(i, 0);
        if constexpr (vectors == 2) {
            const Vector<T> right = f(i, lanes);
            store<T>(p + lanes, right);
        }
        store<T>(p, left);
    }
}

// Run a stage of n states that read each other's past, row by row; compiler/assembly.py explains the instructions.
// Forward: row 0 of `before` is given, and row r becomes the state after row r − 1. Backward: the carried gradient of
// later rows is added to the incoming gradient of a row, and the single row of `before` receives what is carried on.
template <typename T, int vectors, int most, bool back>
void scan_rows(const Instruction* it, int states, const Operand<T>* operands, long rows) {
    constexpr int lanes = Tile<T>::lanes;
    const int n = most <= 2 ? most : states;  // known to the compiler where it counts
    Operand<T> to[most], before[most], b[most], xi[most], A[most][most];  // copies, which no store to a row can change
    for (int j = 0; j < n; ++j) {
        to[j] = operands[it[j].to], before[j] = operands[it[j].a], b[j] = operands[it[j].b], xi[j] = operands[it[j].c];
        for (int l = 0; l < n; ++l) A[j][l] = operands[it[n + j * n + l].a];
    }
    Vector<T> carried[vectors][most];  // both halves of a row side by side: each waits for its own results
    for (int half = 0; half < vectors; ++half)
        for (int j = 0; j < n; ++j) carried[half][j] = load<T>(before[j].base + half * lanes);
    for (long row = 0; row < rows; ++row) {
        const long i = back ? rows - 1 - row : row;
        for (int half = 0; half < vectors; ++half) {
            const auto at = [&](const Operand<T>& operand) { return operand.base + i * operand.stride + half * lanes; };
            Vector<T>*now = carried[half], next[most];
            for (int j = 0; j < n && back; ++j) {
                now[j] += load<T>(at(to[j]));
                store<T>(at(to[j]), now[j]);
            }
            for (int j = 0; j < n; ++j) {
                next[j] = load<T>(at(b[j]));
                for (int l = 0; l < n; ++l) next[j] += load<T>(at(A[j][l])) * now[l];
                if (back) {
                    const Vector<T> scale = load<T>(at(xi[j]));
                    next[j] = scale == T(0) ? all(T(0)) : next[j] * scale;
                } else {
                    store<T>(at(to[j]), next[j]);
                    store<T>(at(before[j]) + before[j].stride, next[j]);
                }
            }
            for (int j = 0; j < n; ++j) now[j] = next[j];
        }
    }
    for (int half = 0; half < vectors; ++half)
        for (int j = 0; j < n && back; ++j) store<T>(before[j].base + half * lanes, carried[half][j]);
}

constexpr int MOST_CARRIED = 8;  // states of a stage: MOST_STATES in compiler/assembly.py

template <typename T, int vectors, bool back>
void scan_rows(const Instruction* it, int n, const Operand<T>* operands, long rows) {
    (n == 1   ? scan_rows<T, vectors, 1, back>
     : n == 2 ? scan_rows<T, vectors, 2, back>
              : scan_rows<T, vectors, MOST_CARRIED, back>)(it, n, operands, rows);
}

// Where the instructions end that begin at q and that pieces of time take in turn: the group of a scan, a shift, or
// sums; q itself where it begins none.
inline long end_of_turn(const Program& program, long q) {
    const auto after = [&](Op op, long k) {
        while (k < program.length && Op(program.code[k].op) == op) ++k;
        return k;
    };
    for (const Op op : {Op::shift, Op::sum, Op::scan_state, Op::scan_back_state})
        if (const long end = after(op, q); end > q) return after(Op::scan_factor, end);
    return q;
}

template <typename T, int vectors>
void execute(const Instruction* code, long length, const Operand<T>* operands, long rows) {
    constexpr int lanes = Tile<T>::lanes;
    for (const Instruction* it = code; it != code + length; ++it) {
        const Operand<T> to = operands[it->to], x = operands[it->a], y = operands[it->b], z = operands[it->c];
#define FIRST load<T>(x.base + i * x.stride + k)
#define SECOND load<T>(y.base + i * y.stride + k)
#define THIRD load<T>(z.base + i * z.stride + k)
#define CASE(name, value) \
    case Op::name: \
        map_block<T, vectors>(rows, to, [&](long i, int k) __attribute__((always_inline)) -> Vector<T> { return value; }); \
        break
        switch (Op(it->op)) {
            CASE(copy, FIRST);
            CASE(neg, -FIRST);
            CASE(add, FIRST + SECOND);
            CASE(sub, FIRST - SECOND);
            CASE(mul, FIRST * SECOND);
            CASE(div, FIRST / SECOND);
            CASE(multiply_add, FIRST * SECOND + THIRD);
            CASE(multiply_sub, FIRST * SECOND - THIRD);
            CASE(sub_multiply, THIRD - FIRST * SECOND);
            CASE(relu, FIRST < T(0) ? all(T(0)) : FIRST);
            CASE(sigmoid, sigmoid_of<T>(FIRST));
            CASE(sigmoid_sum, sigmoid_of<T>(FIRST + SECOND));
            CASE(tanh, tanh_of<T>(FIRST));
            CASE(tanh_sum, tanh_of<T>(FIRST + SECOND));
            CASE(d_sigmoid, FIRST * SECOND * (T(1) - SECOND));
            CASE(d_tanh, FIRST * (T(1) - SECOND * SECOND));
            CASE(exp, exp_of<T>(FIRST));
            CASE(log, each<T>(FIRST, [](T v) { return std::log(v); }));
            CASE(log1p, each<T>(FIRST, [](T v) { return std::log1p(v); }));
            CASE(expm1, each<T>(FIRST, [](T v) { return std::expm1(v); }));
            CASE(sqrt, each<T>(FIRST, [](T v) { return std::sqrt(v); }));
            CASE(sin, each<T>(FIRST, [](T v) { return std::sin(v); }));
            CASE(cos, each<T>(FIRST, [](T v) { return std::cos(v); }));
            CASE(erf, each<T>(FIRST, [](T v) { return std::erf(v); }));
            CASE(atan, each<T>(FIRST, [](T v) { return std::atan(v); }));
            CASE(floor, each<T>(FIRST, [](T v) { return std::floor(v); }));
            CASE(round, each<T>(FIRST, [](T v) { return std::nearbyint(v); }));
            CASE(pow, each<T>(FIRST, SECOND, [](T v, T w) { return std::pow(v, w); }));
            CASE(remainder, each<T>(FIRST, SECOND, remainder_of<T>));
            CASE(abs, FIRST < T(0) ? -FIRST : FIRST);
            CASE(sign, FIRST > T(0) ? all(T(1)) : FIRST < T(0) ? all(T(-1)) : FIRST == FIRST ? all(T(0)) : FIRST);
            CASE(less, FIRST < SECOND ? all(T(1)) : all(T(0)));
            CASE(less_equal, FIRST <= SECOND ? all(T(1)) : all(T(0)));
            CASE(equal, FIRST == SECOND ? all(T(1)) : all(T(0)));
            CASE(select, FIRST != T(0) ? SECOND : THIRD);
            CASE(minimum, FIRST != FIRST ? FIRST : SECOND != SECOND ? SECOND : FIRST < SECOND ? FIRST : SECOND);
            CASE(maximum, FIRST != FIRST ? FIRST : SECOND != SECOND ? SECOND : FIRST > SECOND ? FIRST : SECOND);
            case Op::scan_state:
            case Op::scan_back_state: {
                int n = 1;
                while (it[n].op == it->op) ++n;
                if (Op(it->op) == Op::scan_state)
                    scan_rows<T, vectors, false>(it, n, operands, rows);
                else
                    scan_rows<T, vectors, true>(it, n, operands, rows);
                it += n + n * n - 1;  // the rest of its group
                break;
            }
            case Op::scan_factor: break;
            case Op::shift:
                for (long i = 0; i < rows; ++i)
                    for (int k = 0; k < vectors * lanes; k += lanes)
                        store<T>(to.base + (i + 1) * to.stride + k, FIRST);
                break;
            case Op::sum: {  // onto one row: first the block's rows, then what came before, which loses fewer digits
                Vector<T> total[2][vectors] = {};
                for (long i = 0; i < rows; ++i)
                    for (int half = 0, k = 0; half < vectors; ++half, k += lanes) total[i % 2][half] += FIRST;
                for (int half = 0, k = 0; half < vectors; ++half, k += lanes)
                    store<T>(to.base + k, load<T>(to.base + k) + (total[0][half] + total[1][half]));
                break;
            }
        }
#undef FIRST
#undef SECOND
#undef THIRD
#undef CASE
    }
}

template <typename T>
void execute(const Instruction* code, long length, const Operand<T>* operands, long rows, int vectors = 2) {
    (vectors == 1 ? execute<T, 1> : execute<T, 2>)(code, length, operands, rows);
}

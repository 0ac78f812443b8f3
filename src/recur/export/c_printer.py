"""Printer of loops as C99: one function per graph, with pointers to its inputs, outputs and work memory.

Nothing is allocated: work buffers are in one struct, where buffers with disjoint lifetimes share memory. Names start
with the model's prefix, so that several models can be compiled into one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from recur.compiler.assembly import Code
from recur.export.loop_ir import (
    Buffer,
    Constant,
    CumulativeSum,
    ElementLoop,
    Expr,
    Load,
    LoopFunction,
    MatMul,
    NumberKind,
    ReduceLoop,
    ScanLoop,
    SortRows,
    Statement,
    Variable,
    buffers_read,
    buffers_written,
    constant_value,
    is_read,
    loads,
    max_size,
)

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&&", "or": "||",
    "equal": "==", "unequal": "!=", "less": "<", "less_equal": "<=",
}  # fmt: skip
PRELUDE_FUNCTIONS = ("tanh", "sigmoid", "exp", "relu", "sign", "maximum", "minimum", "remainder")
"""Functions of c/prelude.c; all others are those of math.h."""
MATH_FUNCTIONS = {
    **{name: name for name in ("log", "log1p", "expm1", "sqrt", "sin", "cos", "erf", "atan", "floor", "pow")},
    "abs": "fabs",
    "round": "rint",
}

INSTRUCTIONS = {
    "copy": "{0}", "neg": "-{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}", "multiply_sub": "{0} * {1} - {2}", "sub_multiply": "{2} - {0} * {1}",
    "less": "{0} < {1} ? 1.0f : 0.0f", "less_equal": "{0} <= {1} ? 1.0f : 0.0f", "equal": "{0} == {1} ? 1.0f : 0.0f",
    "select": "{0} != 0.0f ? {1} : {2}",
}  # fmt: skip
"""Instructions of a cell's program; a missing one is the function of its name."""


def c_number(value: float, kind: NumberKind) -> str:
    if kind in ("int", "bool"):
        return str(int(value))
    if math.isnan(value):
        return "(float)NAN" if kind == "float" else "(double)NAN"
    if math.isinf(value):
        return f"({'-' if value < 0 else ''}{'(float)' if kind == 'float' else '(double)'}INFINITY)"
    text = f"{value:.9g}" if kind == "float" else repr(float(value))
    text = text if any(c in text for c in ".en") else f"{text}.0"
    text += "f" if kind == "float" else ""
    return f"({text})" if value < 0 or text.startswith("-") else text


C_KINDS: dict[NumberKind, str] = {"float": "float", "double": "double", "int": "int32_t", "bool": "int32_t"}
WORK_FIELDS = {"float": "f", "double": "d", "int": "n", "bool": "n"}
"""Member of the work struct for each kind of buffer."""


class WeightLayout:
    """Storage of the weights: which are matrices for products, and which of those are in 8 bits."""

    def __init__(self, prefix: str, functions: Iterable[LoopFunction], is_matrix: Callable[[Buffer], bool]) -> None:
        self.prefix = prefix
        self.matrices: dict[Buffer, bool] = {}
        """Whether each matrix is in 8 bits."""
        self.weights: dict[Buffer, None] = {}
        functions = list(functions)
        for function in functions:
            self.weights |= dict.fromkeys(function.weights)
            for one in function.body:
                for weight in _matrices_of(one):
                    self.matrices[weight] = is_matrix(weight)
        for weight in self.weights:  # embeddings can be in 8 bits too
            if weight not in self.matrices and is_matrix(weight) and self._only_rows(functions, weight):
                self.matrices[weight] = True

    @staticmethod
    def _only_rows(functions: Iterable[LoopFunction], weight: Buffer) -> bool:
        """Return True if the weight is always read by row and column."""
        found = [
            part
            for function in functions
            for one in function.body
            if isinstance(one, ElementLoop | ReduceLoop | CumulativeSum)
            for part in loads(one.value)
            if part.buffer is weight
        ]
        return bool(found) and all(part.row is not None for part in found)

    def load(self, load: Load, text: Callable[[Expr], str]) -> str:
        buffer = load.buffer
        if buffer not in self.matrices or load.row is None or load.column is None:
            return f"{self.name(buffer)}[{text(load.at)}]"
        rows, columns = (int(constant_value(size) or 0) for size in buffer.shape)
        kind = "q" if self.matrices[buffer] else "f"
        scale = f", {self.name(buffer)}_scale" if self.matrices[buffer] else ""
        where = f"{text(load.row)}, {text(load.column)}, {rows}, {columns}"
        return f"{self.prefix}_at_{kind}({self.name(buffer)}{scale}, {where})"

    def name(self, buffer: Buffer) -> str:
        return f"{self.prefix}_{buffer.name}"

    def product(self, weight: Buffer, bias: str, x: str, y: str) -> str:
        """Return the call for y = bias + weight · x."""
        rows, columns = (constant_value(size) for size in weight.shape)
        name, narrow = self.name(weight), self.matrices[weight]
        if weight.kind == "double":
            return f"{self.prefix}_product_d({name}, {bias}, {x}, {y}, {rows}, {columns});"
        scale = f"{name}_scale, " if narrow else ""
        return f"{self.prefix}_product_{'q' if narrow else 'f'}({name}, {scale}{bias}, {x}, {y}, {rows}, {columns});"


def _matrices_of(one: Statement) -> list[Buffer]:
    if isinstance(one, MatMul):
        return [one.weight]
    if isinstance(one, ScanLoop):
        return [one.U, *(block.weight for block in one.W), *([] if one.projection is None else [one.projection])]
    return []


class WorkMemory:
    """Offsets of a function's buffers in the work memory.

    Buffers are placed first-fit, the largest first; two buffers may overlap if no statement needs both.
    """

    ALIGNMENT = 16

    def __init__(self, function: LoopFunction, scratch: dict[int, int]) -> None:
        """scratch: floats that a statement needs for itself, by its position in the body."""
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for k, one in enumerate(function.body):
            for buffer in buffers_written(one):
                first.setdefault(buffer, k)
                last[buffer] = k
            for buffer in buffers_read(one):
                last[buffer] = k
        self.sizes = {"f": 0, "d": 0, "n": 0}
        self.at: dict[Buffer, int] = {}
        self.scratch: dict[int, int] = {}
        taken: list[tuple[str, int, int, int, int]] = []  # field, begin, end, first, last
        wanted: list[tuple[str, int, int, int, Buffer | int]] = []
        for buffer in function.work:
            size = max(max_size(buffer.size, function.letters), 1)
            wanted.append((WORK_FIELDS[buffer.kind], size, first[buffer], last[buffer], buffer))
        wanted += [("f", size, k, k, k) for k, size in scratch.items()]
        for field, size, begin, end, what in sorted(wanted, key=lambda one: -one[1]):
            size = -(-size // self.ALIGNMENT) * self.ALIGNMENT
            at = 0
            for other, low, high, since, until in sorted(taken, key=lambda one: one[1]):
                if other == field and since <= end and begin <= until and low < at + size and at < high:
                    at = high
            taken.append((field, at, at + size, begin, end))
            self.sizes[field] = max(self.sizes[field], at + size)
            if isinstance(what, Buffer):
                self.at[what] = at
            else:
                self.scratch[what] = at


class CPrinter:
    """One function in C."""

    def __init__(self, function: LoopFunction, layout: WeightLayout) -> None:
        self.function, self.layout, self.prefix = function, layout, layout.prefix
        self.cells: list[str] = []
        """Functions of the cells' steps; filled while the function is printed."""
        scratch = {k: _scratch(one) for k, one in enumerate(function.body) if isinstance(one, ScanLoop)}
        self.places = WorkMemory(function, scratch)
        self._names = {buffer: f"in_{buffer.name}" for buffer in function.inputs}
        self._names |= {buffer: f"out_{buffer.name}" for buffer in function.outputs}
        self._names |= {buffer: f"b{k}" for k, buffer in enumerate(function.work)}

    @property
    def signature(self) -> str:
        f = self.function
        inputs = [f"const {C_KINDS[b.kind]} *{self._names[b]}" for b in f.inputs]
        outputs = [f"{C_KINDS[b.kind]} *{self._names[b]}" for b in f.outputs]
        sizes = [f"int32_t {letter}" for letter in f.letters]
        work = [f"{self.prefix}_work *work"] if any(self.places.sizes.values()) else []
        return f"static void {self.prefix}_do_{f.name}({', '.join([*inputs, *outputs, *sizes, *work])})"

    def call(self, inputs: Sequence[str], outputs: Sequence[str], letters: Sequence[str] = ()) -> str:
        """Return a call of the function."""
        work = ["work"] if any(self.places.sizes.values()) else []
        return f"{self.prefix}_do_{self.function.name}({', '.join([*inputs, *outputs, *letters, *work])});"

    def text(self) -> str:
        lines = [f"{self.signature} {{"]
        for buffer, at in self.places.at.items():
            field = WORK_FIELDS[buffer.kind]
            lines.append(f"    {C_KINDS[buffer.kind]} *const {self._names[buffer]} = work->{field} + {at};")
        body = [f"    {line}" for k, one in enumerate(self.function.body) for line in self._statement(k, one)]
        # A table without categories gives the graph an input without columns, which nothing reads.
        unread = [name for b in self.function.inputs if (name := self._names[b]) not in "\n".join(body)]
        lines += [*(f"    (void){name};" for name in unread), *body]
        return "\n".join([*lines, "}"])

    # Statements -------------------------------------------------------------------------------------------------

    def _statement(self, k: int, one: Statement) -> list[str]:
        if isinstance(one, ElementLoop):
            sign = "+=" if one.adds else "="
            return self._loops(
                "i", one.shape, [f"{self.name(one.to)}[{self.expr(one.at)}] {sign} {self.expr(one.value)};"]
            )
        if isinstance(one, ReduceLoop):
            return self._loops("i", one.shape, self._reduce(one))
        if isinstance(one, CumulativeSum):
            kind = C_KINDS[one.to.kind]
            inner = [f"total += {self.expr(one.value)};", f"{self.name(one.to)}[{self.expr(one.at)}] = total;"]
            return self._loops("i", one.shape, [f"{kind} total = 0;", *self._loops("j", [one.along], inner, bare=True)])
        if isinstance(one, SortRows):
            return [f"{self._own('sort', one.to.kind)}({self.name(one.to)}, {self.expr(one.rows)}, {one.width});"]
        if isinstance(one, MatMul):
            return self._product(one)
        return self._scan(k, one)

    def _loops(self, letter: str, shape: Sequence[Expr], body: list[str], bare: bool = False) -> list[str]:
        """Return loops around lines, one per size that is not 1."""
        lines: list[str] = []
        for k, size in enumerate(shape):
            if constant_value(size) != 1:
                i = f"{letter}{k}"
                indent = "    " * len(lines)
                lines.append(f"{indent}for (int32_t {i} = 0; {i} < {self.expr(size)}; ++{i})")
        if not lines:
            return body if bare or len(body) == 1 else ["{", *(f"    {line}" for line in body), "}"]
        depth = "    " * (len(lines) - 1)
        if len(body) == 1:
            return [*lines, f"{depth}    {body[0]}"]
        lines[-1] += " {"
        return [*lines, *(f"{depth}    {line}" for line in body), f"{depth}}}"]

    def _reduce(self, one: ReduceLoop) -> list[str]:
        kind, to = C_KINDS[one.value.kind], f"{self.name(one.to)}[{self.expr(one.at)}]"
        value = self.expr(one.value)
        if one.op == "sum":
            body = [f"total += {value};"]
            return [f"{kind} total = 0;", *self._loops("j", one.over, body, bare=True), f"{to} = total;"]
        low = {"float": "-(float)INFINITY", "double": "-(double)INFINITY"}.get(one.value.kind, "INT32_MIN")
        if one.op == "min":
            low = {"float": "(float)INFINITY", "double": "(double)INFINITY"}.get(one.value.kind, "INT32_MAX")
        better = "<" if one.op == "min" else ">"
        lines = [f"{kind} best = {low};"]
        if one.op == "argmax":
            body = [
                f"const {kind} value = {value};",
                "if (value > best) {",
                "    best = value;",
                "    place = j0;",
                "}",
            ]
            return [*lines, "int32_t place = 0;", *self._loops("j", one.over, body, bare=True), f"{to} = place;"]
        body = [f"const {kind} value = {value};", f"if (value {better} best || value != value) best = value;"]
        if one.value.kind in ("int", "bool"):
            body[1] = f"if (value {better} best) best = value;"
        return [*lines, *self._loops("j", one.over, body, bare=True), f"{to} = best;"]

    def _product(self, one: MatMul) -> list[str]:
        rows, columns = (constant_value(size) for size in one.weight.shape)
        bias = "0" if one.bias is None else self.name(one.bias)
        if constant_value(one.rows) == 1:
            return [self.layout.product(one.weight, bias, self.name(one.x), self.name(one.to))]
        x, y = f"{self.name(one.x)} + r * {columns}", f"{self.name(one.to)} + r * {rows}"
        return [
            f"for (int32_t r = 0; r < {self.expr(one.rows)}; ++r)",
            f"    {self.layout.product(one.weight, bias, x, y)}",
        ]

    def _scan(self, k: int, one: ScanLoop) -> list[str]:
        H = one.H
        widths = [max_size(buffer.size, {}) for buffer in one.finals]
        states = [f"s{j}" for j in range(len(widths))]
        lines = ["{", f"    float *const share = work->f + {self.places.scratch[k]};"]
        if one.products:
            lines.append(f"    float *const product = share + {one.gates * H};")
        if one.projection is not None:
            lines.append(f"    float *const hidden = share + {(one.gates + one.products) * H};")
        for j, (state, buffer) in enumerate(zip(states, one.finals, strict=True)):
            lines.append(f"    float *const {state} = {self.name(buffer)};")
            size = f"{widths[j]} * sizeof(float)"
            start = (
                f"memcpy({state}, {self.name(one.start[j])}, {size});" if one.start else f"memset({state}, 0, {size});"
            )
            lines.append(f"    {start}")
        D = constant_value(one.U.shape[1])
        steps, several = self.expr(one.steps), constant_value(one.steps) != 1
        at = f"{self.name(one.data)} + t * {D}" if several else self.name(one.data)
        bias = "0" if one.share_bias is None else self.name(one.share_bias)
        body = [self.layout.product(one.U, bias, at, "share")]
        for block in one.W:
            bias = "0" if one.product_bias is None else f"{self.name(one.product_bias)} + {block.to}"
            body.append(self.layout.product(block.weight, bias, f"s0 + {block.of}", f"product + {block.to}"))
        unit = self._unit(one, states)
        arguments = ["share", *(["product"] if one.products else []), *(self.name(e) for e in one.extras)]
        arguments += ["hidden", *states[1:]] if one.projection is not None else states
        name = f"{self.prefix}_{self.function.name}_cell{k}"
        self.cells.append(unit)
        body.append(f"{name}({', '.join(arguments)});")
        if one.projection is not None:
            body.append(self.layout.product(one.projection, "0", "hidden", "s0"))
        for j, buffer in one.outputs:
            to = f"{self.name(buffer)} + t * {widths[j]}" if several else self.name(buffer)
            body.append(f"memcpy({to}, s{j}, {widths[j]} * sizeof(float));")
        if several:
            lines += [f"    for (int32_t t = 0; t < {steps}; ++t) {{", *(f"        {line}" for line in body), "    }"]
        else:
            lines += [f"    {line}" for line in body]
        return [*lines, "}"]

    def _unit(self, one: ScanLoop, states: Sequence[str]) -> str:
        """Return one step of all units as a function. Its pointers are `restrict`, so that compilers vectorize over
        units."""
        k = self.function.body.index(one)
        P, code = self.prefix.upper(), one.code
        projected = one.projection is not None
        names = ["share", *(["product"] if one.products else []), *(f"e{j}" for j in range(len(one.extras)))]
        names += ["hidden", *states[1:]] if projected else list(states)
        constant = {"share", "product", *(f"e{j}" for j in range(len(one.extras)))}
        arguments = [f"{'const ' if name in constant else ''}float *{P}_RESTRICT {name}" for name in names]
        lines = [f"static void {self.prefix}_{self.function.name}_cell{k}({', '.join(arguments)}) {{"]
        lines.append(f"    for (int32_t u = 0; u < {one.H}; ++u) {{")
        declared: set[str] = set()
        for place, (kind, index) in enumerate(code.places):
            if kind == "before" and is_read(code, place):
                lines.append(f"        const float before{index} = s{index}[u];")
        for op, (to, *operands) in code.instructions:
            target = self._place(code, to, one)
            value = self._instruction(op, [self._place(code, p, one) for p in operands])
            fresh = "" if target in declared else "float "
            declared.add(target)
            lines.append(f"        {fresh}{target} = {value};")
        ends = (code.places[operands[0]] for _, operands in code.instructions)
        made = {index for kind, index in ends if kind == "after"}
        for index in sorted(made):
            state = "hidden" if projected and index == 0 else f"s{index}"
            lines.append(f"        {state}[u] = after{index};")
        return "\n".join([*lines, "    }", "}"])

    def _place(self, code: Code, p: int, one: ScanLoop) -> str:
        kind, index = code.places[p]
        match kind:
            case "constant":
                return c_number(code.numbers[index], "float")
            case "share" | "product":
                return f"{kind}[{index * one.H} + u]" if index else f"{kind}[u]"
            case "extra":
                return f"e{index}[u]"
        return f"{'t' if kind == 'temp' else kind}{index}"

    def _instruction(self, op: str, operands: list[str]) -> str:
        if op in ("sigmoid_sum", "tanh_sum"):
            return f"{self._own(op[:-4], 'float')}({operands[0]} + {operands[1]})"
        if op in INSTRUCTIONS:
            return INSTRUCTIONS[op].format(*operands)
        return self._function(op, operands, "float")

    # Expressions ------------------------------------------------------------------------------------------------

    def name(self, buffer: Buffer) -> str:
        return self._names.get(buffer) or self.layout.name(buffer)

    def expr(self, expr: Expr) -> str:
        if isinstance(expr, Constant):
            return c_number(expr.value, expr.kind)
        if isinstance(expr, Variable):
            return expr.name
        if isinstance(expr, Load):
            if expr.buffer in self._names:
                return f"{self._names[expr.buffer]}[{self.expr(expr.at)}]"
            return self.layout.load(expr, self.expr)
        args = [self.expr(arg) for arg in expr.args]
        if expr.op in INFIX:
            return f"({args[0]} {INFIX[expr.op]} {args[1]})"
        match expr.op:
            case "neg":
                return f"(-{args[0]})"
            case "not":
                return f"(!{args[0]})"
            case "select":
                return f"({args[0]} ? {args[1]} : {args[2]})"
            case "to_bool":
                return f"({args[0]} != 0)"
            case "to_float" | "to_double" | "to_int":
                return f"(({C_KINDS[expr.kind]}){args[0]})"
        return self._function(expr.op, args, expr.kind)

    def _function(self, op: str, args: list[str], kind: NumberKind) -> str:
        if op in PRELUDE_FUNCTIONS:
            return f"{self._own(op, kind)}({', '.join(args)})"
        return f"{MATH_FUNCTIONS[op]}{'f' if kind == 'float' else ''}({', '.join(args)})"

    def _own(self, op: str, kind: NumberKind) -> str:
        """Return the name of a function of c/prelude.c."""
        return f"{self.prefix}_{op}_{'i' if kind == 'bool' else kind[0]}"


def _scratch(one: ScanLoop) -> int:
    return (one.gates + one.products + (one.projection is not None)) * one.H

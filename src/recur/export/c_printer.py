"""The lowered form in C99: a function for each graph, with pointers to its inputs, outputs and work memory.

Nothing is allocated: work buffers lie in one struct, where those that are not needed at the same time share their
place. Names begin with the model's, so that several models live in one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from recur.export.lowered import (
    Buffer,
    Call,
    Each,
    Expr,
    Function,
    Kind,
    Load,
    Name,
    Number,
    Product,
    Reduce,
    Running,
    Scan,
    Sort,
    Statement,
    largest,
    number_of,
    read,
    written,
)
from recur.program.writer import Code

TYPES: dict[Kind, str] = {"float": "float", "double": "double", "int": "int32_t", "bool": "int32_t"}
FIELDS = {"float": "f", "double": "d", "int": "n", "bool": "n"}
"""Where in the struct of work memory a kind of buffers lies."""

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "divide": "/", "rest": "%", "and": "&&", "or": "||",
    "equal": "==", "unequal": "!=", "less": "<", "less_equal": "<=",
}  # fmt: skip
OWN = ("tanh", "sigmoid", "exp", "relu", "sign", "maximum", "minimum", "remainder")
"""Functions of the prelude; the others are those of math.h."""
LIBRARY = {"log": "log", "log1p": "log1p", "expm1": "expm1", "sqrt": "sqrt", "sin": "sin", "cos": "cos", "erf": "erf",
           "abs": "fabs", "pow": "pow"}  # fmt: skip

STEP = {
    "copy": "{0}", "neg": "-{0}", "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}", "multiply_sub": "{0} * {1} - {2}", "sub_multiply": "{2} - {0} * {1}",
    "less": "{0} < {1} ? 1.0f : 0.0f", "less_equal": "{0} <= {1} ? 1.0f : 0.0f", "equal": "{0} == {1} ? 1.0f : 0.0f",
    "select": "{0} != 0.0f ? {1} : {2}", "sigmoid_sum": "sigmoid({0} + {1})", "tanh_sum": "tanh({0} + {1})",
}  # fmt: skip
"""Instructions of a cell's program; those that are missing are functions of their name."""


def number(value: float, kind: Kind) -> str:
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


class Layout:
    """Which weights are matrices, laid out for products, which of those are in 8 bits, and how an element is read."""

    def __init__(self, prefix: str, functions: Iterable[Function], is_matrix: Callable[[Buffer], bool]) -> None:
        self.prefix = prefix
        self.matrices: dict[Buffer, bool] = {}
        """Whether each is in 8 bits."""
        self.weights: dict[Buffer, None] = {}
        functions = list(functions)
        for function in functions:
            self.weights |= dict.fromkeys(function.weights)
            for one in function.body:
                for weight in _matrices(one):
                    self.matrices[weight] = is_matrix(weight)
        for weight in self.weights:  # tables of vectors, too, can be in 8 bits
            if weight not in self.matrices and is_matrix(weight) and self._only_rows(functions, weight):
                self.matrices[weight] = True

    @staticmethod
    def _only_rows(functions: Iterable[Function], weight: Buffer) -> bool:
        """Whether all that is read of it is read by row and column."""
        loads = [
            part
            for function in functions
            for one in function.body
            if isinstance(one, Each | Reduce | Running)
            for part in _loads(one.value)
            if part.buffer is weight
        ]
        return bool(loads) and all(part.row is not None for part in loads)

    def load(self, load: Load, text: Callable[[Expr], str]) -> str:
        buffer = load.buffer
        if buffer not in self.matrices or load.row is None or load.column is None:
            return f"{self.name(buffer)}[{text(load.at)}]"
        rows, columns = (int(number_of(size) or 0) for size in buffer.shape)
        kind = "q" if self.matrices[buffer] else "f"
        scale = f", {self.name(buffer)}_scale" if self.matrices[buffer] else ""
        where = f"{text(load.row)}, {text(load.column)}, {rows}, {columns}"
        return f"{self.prefix}_at_{kind}({self.name(buffer)}{scale}, {where})"

    def name(self, buffer: Buffer) -> str:
        return f"{self.prefix}_{buffer.name}"

    def product(self, weight: Buffer, bias: str, x: str, y: str) -> str:
        """y = bias + W x."""
        rows, columns = (number_of(size) for size in weight.shape)
        name, narrow = self.name(weight), self.matrices[weight]
        if weight.kind == "double":
            return f"{self.prefix}_product_d({name}, {bias}, {x}, {y}, {rows}, {columns});"
        scale = f"{name}_scale, " if narrow else ""
        return f"{self.prefix}_product_{'q' if narrow else 'f'}({name}, {scale}{bias}, {x}, {y}, {rows}, {columns});"


def _loads(expr: Expr) -> list[Load]:
    found: list[Load] = []
    todo = [expr]
    while todo:
        part = todo.pop()
        if isinstance(part, Load):
            found.append(part)
            todo.append(part.at)
        elif isinstance(part, Call):
            todo += part.args
    return found


def _matrices(one: Statement) -> list[Buffer]:
    if isinstance(one, Product):
        return [one.weight]
    if isinstance(one, Scan):
        return [one.U, *(block.weight for block in one.W), *([] if one.projection is None else [one.projection])]
    return []


class Places:
    """Where in the work memory each buffer of a function lies."""

    ALIGNMENT = 16

    def __init__(self, function: Function, scratch: dict[int, int]) -> None:
        """`scratch`: numbers that a statement needs for itself, by its place in the body."""
        first: dict[Buffer, int] = {}
        last: dict[Buffer, int] = {}
        for k, one in enumerate(function.body):
            for buffer in written(one):
                first.setdefault(buffer, k)
                last[buffer] = k
            for buffer in read(one):
                last[buffer] = k
        self.sizes = {"f": 0, "d": 0, "n": 0}
        self.at: dict[Buffer, int] = {}
        self.scratch: dict[int, int] = {}
        taken: list[tuple[str, int, int, int, int]] = []  # field, begin, end, first, last
        wanted: list[tuple[str, int, int, int, Buffer | int]] = []
        for buffer in function.work:
            size = max(largest(buffer.size, function.letters), 1)
            wanted.append((FIELDS[buffer.kind], size, first[buffer], last[buffer], buffer))
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


class Printer:
    """One function in C."""

    def __init__(self, function: Function, layout: Layout) -> None:
        self.function, self.layout, self.prefix = function, layout, layout.prefix
        self.used: set[tuple[str, Kind]] = set()
        scratch = {k: _scratch(one) for k, one in enumerate(function.body) if isinstance(one, Scan)}
        self.places = Places(function, scratch)
        self._names = {buffer: f"in_{buffer.name}" for buffer in function.inputs}
        self._names |= {buffer: f"out_{buffer.name}" for buffer in function.outputs}
        self._names |= {buffer: f"b{k}" for k, buffer in enumerate(function.work)}

    @property
    def signature(self) -> str:
        f = self.function
        inputs = [f"const {TYPES[b.kind]} *{self._names[b]}" for b in f.inputs]
        outputs = [f"{TYPES[b.kind]} *{self._names[b]}" for b in f.outputs]
        sizes = [f"int32_t {letter}" for letter in f.letters]
        work = [f"{self.prefix}_work *work"] if any(self.places.sizes.values()) else []
        return f"static void {self.prefix}_do_{f.name}({', '.join([*inputs, *outputs, *sizes, *work])})"

    def call(self, inputs: Sequence[str], outputs: Sequence[str], letters: Sequence[str] = ()) -> str:
        """A call of it."""
        work = ["work"] if any(self.places.sizes.values()) else []
        return f"{self.prefix}_do_{self.function.name}({', '.join([*inputs, *outputs, *letters, *work])});"

    def text(self) -> str:
        lines = [f"{self.signature} {{"]
        for buffer, at in self.places.at.items():
            field = FIELDS[buffer.kind]
            lines.append(f"    {TYPES[buffer.kind]} *const {self._names[buffer]} = work->{field} + {at};")
        for k, one in enumerate(self.function.body):
            lines += [f"    {line}" for line in self._statement(k, one)]
        return "\n".join([*lines, "}"])

    # Statements -------------------------------------------------------------------------------------------------

    def _statement(self, k: int, one: Statement) -> list[str]:
        if isinstance(one, Each):
            sign = "+=" if one.adds else "="
            return self._loops(
                "i", one.shape, [f"{self.name(one.to)}[{self.expr(one.at)}] {sign} {self.expr(one.value)};"]
            )
        if isinstance(one, Reduce):
            return self._loops("i", one.shape, self._reduce(one))
        if isinstance(one, Running):
            kind = TYPES[one.to.kind]
            inner = [f"total += {self.expr(one.value)};", f"{self.name(one.to)}[{self.expr(one.at)}] = total;"]
            return self._loops("i", one.shape, [f"{kind} total = 0;", *self._loops("j", [one.along], inner, bare=True)])
        if isinstance(one, Sort):
            return [f"{self._own('sort', one.to.kind)}({self.name(one.to)}, {self.expr(one.rows)}, {one.width});"]
        if isinstance(one, Product):
            return self._product(one)
        return self._scan(k, one)

    def _loops(self, letter: str, shape: Sequence[Expr], body: list[str], bare: bool = False) -> list[str]:
        """Loops over what is more than 1, around lines."""
        lines: list[str] = []
        for k, size in enumerate(shape):
            if number_of(size) != 1:
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

    def _reduce(self, one: Reduce) -> list[str]:
        kind, to = TYPES[one.value.kind], f"{self.name(one.to)}[{self.expr(one.at)}]"
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

    def _product(self, one: Product) -> list[str]:
        rows, columns = (number_of(size) for size in one.weight.shape)
        bias = "0" if one.bias is None else self.name(one.bias)
        if number_of(one.rows) == 1:
            return [self.layout.product(one.weight, bias, self.name(one.x), self.name(one.to))]
        x, y = f"{self.name(one.x)} + r * {columns}", f"{self.name(one.to)} + r * {rows}"
        return [
            f"for (int32_t r = 0; r < {self.expr(one.rows)}; ++r)",
            f"    {self.layout.product(one.weight, bias, x, y)}",
        ]

    def _scan(self, k: int, one: Scan) -> list[str]:
        H = one.H
        widths = [largest(buffer.size, {}) for buffer in one.finals]
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
        D = number_of(one.U.shape[1])
        steps, several = self.expr(one.steps), number_of(one.steps) != 1
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

    @property
    def cells(self) -> list[str]:
        """The functions of its cells' steps, once it is printed."""
        found: list[str] = self.__dict__.setdefault("_cells", [])
        return found

    def _unit(self, one: Scan, states: Sequence[str]) -> str:
        """One step of all units, as a function: pointers that do not overlap, so that a compiler takes many at once."""
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
            if kind == "before" and _is_read(code, place):
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

    def _place(self, code: Code, p: int, one: Scan) -> str:
        kind, index = code.places[p]
        match kind:
            case "constant":
                return number(code.numbers[index], "float")
            case "share" | "product":
                return f"{kind}[{index * one.H} + u]" if index else f"{kind}[u]"
            case "extra":
                return f"e{index}[u]"
        return f"{'t' if kind == 'temp' else kind}{index}"

    def _instruction(self, op: str, operands: list[str]) -> str:
        if op in ("sigmoid_sum", "tanh_sum"):
            return f"{self._own(op[:-4], 'float')}({operands[0]} + {operands[1]})"
        if op in STEP:
            return STEP[op].format(*operands)
        return self._function(op, operands, "float")

    # Expressions ------------------------------------------------------------------------------------------------

    def name(self, buffer: Buffer) -> str:
        return self._names.get(buffer) or self.layout.name(buffer)

    def expr(self, expr: Expr) -> str:
        if isinstance(expr, Number):
            return number(expr.value, expr.kind)
        if isinstance(expr, Name):
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
                return f"(({TYPES[expr.kind]}){args[0]})"
        return self._function(expr.op, args, expr.kind)

    def _function(self, op: str, args: list[str], kind: Kind) -> str:
        if op in OWN:
            return f"{self._own(op, kind)}({', '.join(args)})"
        return f"{LIBRARY[op]}{'f' if kind == 'float' else ''}({', '.join(args)})"

    def _own(self, op: str, kind: Kind) -> str:
        """A function of the prelude."""
        kind = "int" if kind == "bool" else kind
        self.used.add((op, kind))
        return f"{self.prefix}_{op}_{kind[0]}"


def _is_read(code: Code, place: int) -> bool:
    return any(place in operands[1:] for _, operands in code.instructions)


def _scratch(one: Scan) -> int:
    return (one.gates + one.products + (one.projection is not None)) * one.H

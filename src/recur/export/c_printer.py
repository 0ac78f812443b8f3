"""The lowered form in C99: a function for each graph, with pointers to its inputs, outputs and work memory.

Nothing is allocated: work buffers lie in one struct, where those that are not needed at the same time share their
place. Names begin with the model's, so that several models live in one program.
"""

from __future__ import annotations

from collections.abc import Sequence

from recur.export.c_layout import FIELDS, TYPES, Layout, Places
from recur.export.c_scalars import INFIX, LIBRARY, OWN, STEP, number
from recur.export.lowered import Each, Function, Product, Reduce, Running, Scan, Sort, Statement, largest
from recur.export.lowered_values import Buffer, Expr, Kind, Load, Name, Number, number_of
from recur.program.writer import Code


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

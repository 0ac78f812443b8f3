"""Printer of loops as JavaScript.

Buffers are offsets in one memory (page/runtime.js): float32 (F), float64 and integers (D), bytes (U). Values between
two stores are computed in float64, as JavaScript does, and differ from PyTorch by rounding. A cell's program reads all
operands first and stores its results last, so that a state can be updated in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recur.compiler.assembly import Code
from recur.errors import OptionError
from recur.export.loop_ir import (
    ONE,
    Buffer,
    Call,
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
    constant_value,
)

CELL_OPERATIONS = {
    "copy": "{0}",
    "neg": "-{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "multiply_add": "{0} * {1} + {2}",
    "multiply_sub": "{0} * {1} - {2}",
    "sub_multiply": "{2} - {0} * {1}",
    "relu": "{0} < 0 ? 0 : {0}",
    "sigmoid": "sigmoid({0})",
    "sigmoid_sum": "sigmoid({0} + {1})",
    "tanh": "Math.tanh({0})",
    "tanh_sum": "Math.tanh({0} + {1})",
    "d_sigmoid": "{0} * {1} * (1 - {1})",
    "d_tanh": "{0} * (1 - {1} * {1})",
    "exp": "Math.exp({0})",
    "log": "Math.log({0})",
    "log1p": "Math.log1p({0})",
    "expm1": "Math.expm1({0})",
    "sqrt": "Math.sqrt({0})",
    "sin": "Math.sin({0})",
    "cos": "Math.cos({0})",
    "erf": "erf({0})",
    "abs": "Math.abs({0})",
    "sign": "Math.sign({0})",
    "less": "{0} < {1} ? 1 : 0",
    "less_equal": "{0} <= {1} ? 1 : 0",
    "equal": "{0} === {1} ? 1 : 0",
    "select": "{0} ? {1} : {2}",
    "minimum": "least({0}, {1})",
    "maximum": "most({0}, {1})",
}
"""Operations of recur.compiler as templates. Operands are names or numbers, or expressions in parentheses."""


def js_number(value: float) -> str:
    """Return a constant that is exact to the last bit; negative numbers are in parentheses."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "(-Infinity)"
    text = repr(float(value)).removesuffix(".0")
    return f"({text})" if text.startswith("-") else text


def cell_lines(code: Code, places: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of a cell's forward program.

    places: JavaScript expressions for the operands by kind: share, product, before, extra, after.
    """
    names: dict[int, str] = {}
    lines: list[str] = []
    made = {operands[0] for _, operands in code.instructions}
    for p, (kind, k) in enumerate(code.places):
        if kind == "constant":
            names[p] = js_number(code.numbers[k])
        elif kind == "temp":
            names[p] = f"t{k}"
        else:
            names[p] = f"{kind}{k}"
            if kind in places and kind != "after" and _is_read(code, p):
                lines.append(f"{'let' if p in made else 'const'} {kind}{k} = {places[kind][k]};")
    temps = sorted({names[p] for p in made if code.places[p][0] in ("temp", "after")})
    if temps:
        lines.append(f"let {', '.join(temps)};")
    for op, (to, *operands) in code.instructions:
        lines.append(f"{names[to]} = {CELL_OPERATIONS[op].format(*(names[p] for p in operands))};")
    lines += [f"{places['after'][k]} = {names[p]};" for p, (kind, k) in enumerate(code.places) if kind == "after"]
    return lines


def _is_read(code: Code, p: int) -> bool:
    return any(p in operands[1:] for _, operands in code.instructions)


VIEWS: dict[NumberKind, str] = {"float": "f", "double": "d", "int": "d", "bool": "u"}
BYTES: dict[NumberKind, int] = {"float": 4, "double": 8, "int": 8, "bool": 1}

GRAPH_OPERATIONS = {
    "divide": "Math.floor({0} / {1})",
    "rest": "{0} % {1}",
    "remainder": "({0} - {1} * Math.floor({0} / {1}))",
    "and": "({0} && {1}) ? 1 : 0",
    "or": "({0} || {1}) ? 1 : 0",
    "not": "{0} ? 0 : 1",
    "unequal": "{0} !== {1} ? 1 : 0",
    "pow": "Math.pow({0}, {1})",
}
"""Operations of graphs that cells do not have."""


class JavaScriptPrinter:
    """One function; weights are constants w0, w1, … of the enclosing function."""

    def __init__(self, function: LoopFunction) -> None:
        self.function = function
        self.lines: list[str] = []
        self.names: dict[Buffer, str] = {}
        self.scans: list[tuple[ScanLoop, tuple[Buffer, ...]]] = []
        self.depth = 2

    def write(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def text(self) -> str:
        f = self.function
        self.write(f"{f.name}: (given) => {{")
        self.depth += 1
        for letter in f.letters:
            self.write(f"const {letter} = {self._letter(letter)};")
        self.scans = [(one, scan_buffers(one)) for one in f.body if isinstance(one, ScanLoop)]
        extra = [buffer for _, work in self.scans for buffer in work]
        for k, buffer in enumerate(dict.fromkeys((*f.inputs, *f.outputs, *f.work, *extra))):
            if buffer.value is None:
                self.names[buffer] = f"b{k}"
                self.write(
                    f"const b{k} = reserve({BYTES[buffer.kind]} * {self.expr(buffer.size)}) / {BYTES[buffer.kind]};"
                )
        self.write("settle();")
        self.write("const f = F, d = D, u = U;")
        for buffer in f.inputs:
            self.write(f"{VIEWS[buffer.kind]}.set(given.{buffer.name}, {self.names[buffer]});")
        for one in f.body:
            self.statement(one)
        found = ", ".join(f"{b.name}: {self._copy(b)}" for b in f.outputs)
        self.write(f"return {{ {found} }};")
        self.depth -= 1
        self.write("},")
        return "\n".join(self.lines)

    def _copy(self, buffer: Buffer) -> str:
        at = self.place(buffer)
        return f"{VIEWS[buffer.kind]}.slice({at}, {at} + {self.expr(buffer.size)})"

    def _letter(self, letter: str) -> str:
        """Return a dynamic size, computed from the length of an input."""
        for buffer in self.function.inputs:
            rest = [size for size in buffer.shape if not isinstance(size, Constant)]
            if rest == [Variable(letter)]:
                others = math.prod(int(size.value) for size in buffer.shape if isinstance(size, Constant))
                return f"given.{buffer.name}.length / {others}"
        raise OptionError(f"no input of {self.function.name} tells the size {letter}")

    # Expressions --------------------------------------------------------------------------------------------

    def place(self, buffer: Buffer) -> str:
        return buffer.name if buffer.value is not None else self.names[buffer]

    def expr(self, expr: Expr) -> str:
        match expr:
            case Constant(value, kind):
                return str(int(value)) if kind in ("int", "bool") else js_number(value)
            case Variable(name):
                return name
            case Load(buffer, at):
                return f"{VIEWS[buffer.kind]}[{self.sum(self.place(buffer), at)}]"
            case Call(op, args, kind):
                return f"({self._call(op, [self.expr(arg) for arg in args], args, kind)})"

    def _call(self, op: str, args: list[str], given: Sequence[Expr], kind: NumberKind) -> str:
        if op.startswith("to_"):
            return self._cast(args[0], given[0].kind, kind)
        template = GRAPH_OPERATIONS.get(op) or CELL_OPERATIONS.get(op)
        if template is None:
            raise OptionError(f"JavaScript has no {op} yet")
        return template.format(*args)

    @staticmethod
    def _cast(value: str, before: NumberKind, after: NumberKind) -> str:
        if after == "float" and before in ("double", "int"):
            return f"Math.fround({value})"
        if after == "int" and before in ("float", "double"):
            return f"Math.trunc({value})"
        if after == "bool":
            return f"{value} ? 1 : 0"
        return value

    def sum(self, base: str, at: Expr) -> str:
        return base if at == Constant(0) else f"{base} + {self.expr(at)}"

    # Statements ---------------------------------------------------------------------------------------------

    def statement(self, one: Statement) -> None:
        match one:
            case ElementLoop():
                with LoopBlock(self, "i", one.shape):
                    self.write(f"{self._at(one.to, one.at)} {'+=' if one.adds else '='} {self.expr(one.value)};")
            case ReduceLoop():
                self._reduce(one)
            case CumulativeSum():
                with LoopBlock(self, "i", one.shape):
                    self.write("let s = 0;")
                    with LoopBlock(self, "j", (one.along,)):
                        self.write(f"{self._at(one.to, one.at)} = s += {self.expr(one.value)};")
            case SortRows():
                view, at, rows = VIEWS[one.to.kind], self.place(one.to), self.expr(one.rows)
                self.write(
                    f"for (let r = 0, p = {at}; r < {rows}; r++, p += {one.width}) "
                    f"{view}.subarray(p, p + {one.width}).sort();"
                )
            case MatMul():
                self._product(one)
            case ScanLoop():
                self._scan(one)

    def _at(self, buffer: Buffer, at: Expr) -> str:
        return f"{VIEWS[buffer.kind]}[{self.sum(self.place(buffer), at)}]"

    def _reduce(self, one: ReduceLoop) -> None:
        start = {"sum": "0", "max": "-Infinity", "min": "Infinity", "argmax": "-Infinity"}[one.op]
        with LoopBlock(self, "i", one.shape):
            self.write(f"let s = {start}{', k = 0' if one.op == 'argmax' else ''};")
            with LoopBlock(self, "j", one.over):
                value = self.expr(one.value)
                if one.op == "sum":
                    self.write(f"s += {value};")
                elif one.op == "argmax":
                    self.write(f"const v = {value};")
                    self.write("if (v > s) [s, k] = [v, j0];")
                else:
                    self.write(f"s = {'most' if one.op == 'max' else 'least'}(s, {value});")
            self.write(f"{self._at(one.to, one.at)} = {'k' if one.op == 'argmax' else 's'};")

    def _product(self, one: MatMul) -> None:
        N, D = (self.expr(size) for size in one.weight.shape)
        rows, to = self.expr(one.rows), self.place(one.to)
        if one.to.kind != "float":
            self._plain_product(one, rows, N, D)
            return
        self._preset(to, rows, N, one.bias)
        self.write(f"product({self.place(one.x)}, {self.place(one.weight)}, {to}, {rows}, {N}, {D});")

    def _plain_product(self, one: MatMul, rows: str, N: str, D: str) -> None:
        """Print a float64 product, which the WebAssembly kernel does not have."""
        x, weight, to = self.place(one.x), self.place(one.weight), self.place(one.to)
        start = "0" if one.bias is None else f"d[{self.place(one.bias)} + n]"
        self.write(f"for (let r = 0; r < {rows}; r++) for (let n = 0; n < {N}; n++) {{")
        self.write(f"  let s = {start};")
        self.write(f"  for (let k = 0; k < {D}; k++) s += d[{x} + r * {D} + k] * d[{weight} + n * {D} + k];")
        self.write(f"  d[{to} + r * {N} + n] = s;")
        self.write("}")

    def _preset(self, to: str, rows: str, width: str, bias: Buffer | None) -> None:
        """Fill rows with biases or zeros; a product adds to them."""
        if bias is None:
            self.write(f"f.fill(0, {to}, {to} + {rows} * {width});")
        else:
            at = self.place(bias)
            self.write(f"for (let r = 0; r < {rows}; r++) f.copyWithin({to} + r * {width}, {at}, {at} + {width});")

    def _scan(self, one: ScanLoop) -> None:
        share, products, full = (self.place(buffer) for buffer in next(work for own, work in self.scans if own is one))
        steps, H, (_, D) = self.expr(one.steps), one.H, one.U.shape
        states = [self.place(buffer) for buffer in one.finals]
        for state, buffer, start in zip(states, one.finals, one.start or [None] * len(states), strict=True):
            size = self.expr(buffer.size)
            if start is None:
                self.write(f"f.fill(0, {state}, {state} + {size});")
            else:
                self.write(f"f.copyWithin({state}, {self.place(start)}, {self.place(start)} + {size});")
        self._preset(share, steps, str(one.gates * H), one.share_bias)
        self.write(
            f"product({self.place(one.data)}, {self.place(one.U)}, {share}, {steps}, {one.gates * H}, {self.expr(D)});"
        )
        self.write(f"for (let t = 0; t < {steps}; t++) {{")
        self.depth += 1
        if one.products:
            self._preset(products, "1", str(one.products * H), one.product_bias)
        for block in one.W:
            rows, columns = (self.expr(size) for size in block.weight.shape)
            self.write(
                f"product({states[0]} + {block.of}, {self.place(block.weight)}, {products} + {block.to}, "
                f"1, {rows}, {columns});"
            )
        after = [full if one.projection is not None and j == 0 else state for j, state in enumerate(states)]
        places = {
            "share": [f"f[{share} + t * {one.gates * H} + {g * H} + i]" for g in range(one.gates)],
            "product": [f"f[{products} + {k * H} + i]" for k in range(one.products)],
            "before": [f"f[{state} + i]" for state in states],
            "extra": [f"f[{self.place(extra)} + i]" for extra in one.extras],
            "after": [f"f[{state} + i]" for state in after],
        }
        self.write(f"for (let i = 0; i < {H}; i++) {{")
        self.depth += 1
        for line in cell_lines(one.code, places):
            self.write(line)
        self.depth -= 1
        self.write("}")
        if one.projection is not None:
            P = self.expr(one.projection.shape[0])
            self.write(f"f.fill(0, {states[0]}, {states[0]} + {P});")
            self.write(f"product({full}, {self.place(one.projection)}, {states[0]}, 1, {P}, {H});")
        for j, buffer in one.outputs:
            width = self.expr(one.finals[j].size)
            self.write(f"f.copyWithin({self.place(buffer)} + t * {width}, {states[j]}, {states[j]} + {width});")
        self.depth -= 1
        self.write("}")


class LoopBlock:
    """Context of loops with counters i0, i1, … or j0, j1, …; a plain block if every size is 1."""

    def __init__(self, printer: JavaScriptPrinter, letter: str, shape: Sequence[Expr]) -> None:
        self.printer, self.letter = printer, letter
        counted = [(k, size) for k, size in enumerate(shape) if constant_value(size) != 1]  # what counts to 1 is 0
        self.counted = counted or [(-1, ONE)]

    def __enter__(self) -> None:
        p = self.printer
        for k, size in self.counted:
            name = f"{self.letter}{k}"
            p.write(f"for (let {name} = 0; {name} < {p.expr(size)}; {name}++) {{" if k >= 0 else "{")
            p.depth += 1

    def __exit__(self, *_: object) -> None:
        p = self.printer
        for _ in self.counted:
            p.depth -= 1
            p.write("}")


def scan_buffers(one: ScanLoop) -> tuple[Buffer, ...]:
    """Return the work buffers of a scan: gate projections of all steps, recurrent products of one step, and the first
    state before its projection."""
    return (
        Buffer("share", (one.steps, Constant(one.gates * one.H)), "float"),
        Buffer("products", (Constant(max(one.products, 1) * one.H),), "float"),
        Buffer("full", (Constant(one.H),), "float"),
    )


def print_functions(functions: Sequence[LoopFunction], weights: Sequence[Buffer]) -> str:
    """Return `makeGraphs(places)`: the functions by name, given the byte offset of each weight."""
    lines = ["function makeGraphs(places) {"]
    for k, weight in enumerate(weights):
        lines.append(f"  const {weight.name} = places[{k}] / {BYTES[weight.kind]};")
    lines.append("  return {")
    lines += [JavaScriptPrinter(function).text() for function in functions]
    lines += ["  };", "}"]
    return "\n".join(lines)

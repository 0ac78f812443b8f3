"""A model's functions in JavaScript, printed from their lowered form.

Buffers are places in one memory (page/runtime.js), as float32 (F), float64 (D, whole numbers too) or bytes (U). What is
between two stores is computed in float64, as JavaScript does: it differs from PyTorch by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from recur.errors import OptionError
from recur.export.javascript_cells import OPERATIONS, cell_lines, number
from recur.export.lowered import Each, Function, Product, Reduce, Running, Scan, Sort, Statement
from recur.export.lowered_values import ONE, Buffer, Call, Expr, Kind, Load, Name, Number, number_of

VIEWS: dict[Kind, str] = {"float": "f", "double": "d", "int": "d", "bool": "u"}
BYTES: dict[Kind, int] = {"float": 4, "double": 8, "int": 8, "bool": 1}

MORE = {
    "divide": "Math.floor({0} / {1})",
    "rest": "{0} % {1}",
    "remainder": "({0} - {1} * Math.floor({0} / {1}))",
    "and": "({0} && {1}) ? 1 : 0",
    "or": "({0} || {1}) ? 1 : 0",
    "not": "{0} ? 0 : 1",
    "unequal": "{0} !== {1} ? 1 : 0",
    "pow": "Math.pow({0}, {1})",
}
"""Operations that graphs have beside those of cells."""


class Printer:
    """One function; weights are consts w0, w1, … of the text around it."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.lines: list[str] = []
        self.names: dict[Buffer, str] = {}
        self.scans: list[tuple[Scan, tuple[Buffer, ...]]] = []
        self.depth = 2

    def write(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def text(self) -> str:
        f = self.function
        self.write(f"{f.name}: (given) => {{")
        self.depth += 1
        for letter in f.letters:
            self.write(f"const {letter} = {self._letter(letter)};")
        self.scans = [(one, scan_work(one)) for one in f.body if isinstance(one, Scan)]
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
        """A size that is left open, from the length of an input that has it."""
        for buffer in self.function.inputs:
            rest = [size for size in buffer.shape if not isinstance(size, Number)]
            if rest == [Name(letter)]:
                others = math.prod(int(size.value) for size in buffer.shape if isinstance(size, Number))
                return f"given.{buffer.name}.length / {others}"
        raise OptionError(f"no input of {self.function.name} tells the size {letter}")

    # Expressions --------------------------------------------------------------------------------------------

    def place(self, buffer: Buffer) -> str:
        return buffer.name if buffer.value is not None else self.names[buffer]

    def expr(self, expr: Expr) -> str:
        match expr:
            case Number(value, kind):
                return str(int(value)) if kind in ("int", "bool") else number(value)
            case Name(name):
                return name
            case Load(buffer, at):
                return f"{VIEWS[buffer.kind]}[{self.sum(self.place(buffer), at)}]"
            case Call(op, args, kind):
                return f"({self._call(op, [self.expr(arg) for arg in args], args, kind)})"

    def _call(self, op: str, args: list[str], given: Sequence[Expr], kind: Kind) -> str:
        if op.startswith("to_"):
            return self._cast(args[0], given[0].kind, kind)
        template = MORE.get(op) or OPERATIONS.get(op)
        if template is None:
            raise OptionError(f"JavaScript has no {op} yet")
        return template.format(*args)

    @staticmethod
    def _cast(value: str, before: Kind, after: Kind) -> str:
        if after == "float" and before in ("double", "int"):
            return f"Math.fround({value})"
        if after == "int" and before in ("float", "double"):
            return f"Math.trunc({value})"
        if after == "bool":
            return f"{value} ? 1 : 0"
        return value

    def sum(self, base: str, at: Expr) -> str:
        return base if at == Number(0) else f"{base} + {self.expr(at)}"

    # Statements ---------------------------------------------------------------------------------------------

    def statement(self, one: Statement) -> None:
        match one:
            case Each():
                with Loops(self, "i", one.shape):
                    self.write(f"{self._at(one.to, one.at)} {'+=' if one.adds else '='} {self.expr(one.value)};")
            case Reduce():
                self._reduce(one)
            case Running():
                with Loops(self, "i", one.shape):
                    self.write("let s = 0;")
                    with Loops(self, "j", (one.along,)):
                        self.write(f"{self._at(one.to, one.at)} = s += {self.expr(one.value)};")
            case Sort():
                view, at, rows = VIEWS[one.to.kind], self.place(one.to), self.expr(one.rows)
                self.write(
                    f"for (let r = 0, p = {at}; r < {rows}; r++, p += {one.width}) "
                    f"{view}.subarray(p, p + {one.width}).sort();"
                )
            case Product():
                self._product(one)
            case Scan():
                self._scan(one)

    def _at(self, buffer: Buffer, at: Expr) -> str:
        return f"{VIEWS[buffer.kind]}[{self.sum(self.place(buffer), at)}]"

    def _reduce(self, one: Reduce) -> None:
        start = {"sum": "0", "max": "-Infinity", "min": "Infinity", "argmax": "-Infinity"}[one.op]
        with Loops(self, "i", one.shape):
            self.write(f"let s = {start}{', k = 0' if one.op == 'argmax' else ''};")
            with Loops(self, "j", one.over):
                value = self.expr(one.value)
                if one.op == "sum":
                    self.write(f"s += {value};")
                elif one.op == "argmax":
                    self.write(f"const v = {value};")
                    self.write("if (v > s) [s, k] = [v, j0];")
                else:
                    self.write(f"s = {'most' if one.op == 'max' else 'least'}(s, {value});")
            self.write(f"{self._at(one.to, one.at)} = {'k' if one.op == 'argmax' else 's'};")

    def _product(self, one: Product) -> None:
        N, D = (self.expr(size) for size in one.weight.shape)
        rows, to = self.expr(one.rows), self.place(one.to)
        if one.to.kind != "float":
            self._plain_product(one, rows, N, D)
            return
        self._preset(to, rows, N, one.bias)
        self.write(f"product({self.place(one.x)}, {self.place(one.weight)}, {to}, {rows}, {N}, {D});")

    def _plain_product(self, one: Product, rows: str, N: str, D: str) -> None:
        """Of float64, which the kernel does not know."""
        x, weight, to = self.place(one.x), self.place(one.weight), self.place(one.to)
        start = "0" if one.bias is None else f"d[{self.place(one.bias)} + n]"
        self.write(f"for (let r = 0; r < {rows}; r++) for (let n = 0; n < {N}; n++) {{")
        self.write(f"  let s = {start};")
        self.write(f"  for (let k = 0; k < {D}; k++) s += d[{x} + r * {D} + k] * d[{weight} + n * {D} + k];")
        self.write(f"  d[{to} + r * {N} + n] = s;")
        self.write("}")

    def _preset(self, to: str, rows: str, width: str, bias: Buffer | None) -> None:
        """Rows of biases, or of zeros, which a product adds to."""
        if bias is None:
            self.write(f"f.fill(0, {to}, {to} + {rows} * {width});")
        else:
            at = self.place(bias)
            self.write(f"for (let r = 0; r < {rows}; r++) f.copyWithin({to} + r * {width}, {at}, {at} + {width});")

    def _scan(self, one: Scan) -> None:
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


class Loops:
    """Loops around what is written inside: counters i0, i1, … or j0, j1, …, and a block where none counts."""

    def __init__(self, printer: Printer, letter: str, shape: Sequence[Expr]) -> None:
        self.printer, self.letter = printer, letter
        counted = [(k, size) for k, size in enumerate(shape) if number_of(size) != 1]  # what counts to 1 is 0
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


def scan_work(one: Scan) -> tuple[Buffer, ...]:
    """What a scan needs beside its own buffers: the gates' shares of all steps, the products of one, and the first
    state before it is projected."""
    return (
        Buffer("share", (one.steps, Number(one.gates * one.H)), "float"),
        Buffer("products", (Number(max(one.products, 1) * one.H),), "float"),
        Buffer("full", (Number(one.H),), "float"),
    )


def printed(functions: Sequence[Function], weights: Sequence[Buffer]) -> str:
    """`makeGraphs(places)`: the functions by name, given where each weight lies, in bytes."""
    lines = ["function makeGraphs(places) {"]
    for k, weight in enumerate(weights):
        lines.append(f"  const {weight.name} = places[{k}] / {BYTES[weight.kind]};")
    lines.append("  return {")
    lines += [Printer(function).text() for function in functions]
    lines += ["  };", "}"]
    return "\n".join(lines)

"""Printer of loops as JavaScript, and the matrix product in WebAssembly that the printed code calls.

Buffers are offsets in one memory (page/runtime.js): float32 (F), float64 and integers (D), bytes (U). Values between
two stores are computed in float64, as JavaScript does, and differ from PyTorch by rounding. A cell's program reads all
operands first and stores its results last, so that a state can be updated in place.

JavaScript has no vector instructions, so the product of float32 matrices runs several times faster in WebAssembly:

    product(a, w, y, M, N, K, lda, ldw, ldy)      y[m, n] += Σ_k a[m, k] · w[n, k]

a, w and y are byte addresses, the K numbers of a row are adjacent, and rows are lda, ldw and ldy bytes apart. Four rows
of w are read at once, four numbers at a time; the remainder is read one by one. Each of the four vector lanes has its
own sum; the lanes are added in the order (0 + 1) + (2 + 3), then the remainder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

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
    is_read,
)

OPERATIONS = {
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
    "exp": "Math.exp({0})",
    "log": "Math.log({0})",
    "log1p": "Math.log1p({0})",
    "expm1": "Math.expm1({0})",
    "sqrt": "Math.sqrt({0})",
    "sin": "Math.sin({0})",
    "cos": "Math.cos({0})",
    "erf": "erf({0})",
    "atan": "Math.atan({0})",
    "floor": "Math.floor({0})",
    "round": "even({0})",
    "abs": "Math.abs({0})",
    "sign": "Math.sign({0})",
    "less": "{0} < {1} ? 1 : 0",
    "less_equal": "{0} <= {1} ? 1 : 0",
    "equal": "{0} === {1} ? 1 : 0",
    "select": "{0} ? {1} : {2}",
    "minimum": "least({0}, {1})",
    "maximum": "most({0}, {1})",
    "remainder": "remainder({0}, {1})",
    "and": "({0} && {1}) ? 1 : 0",
    "or": "({0} || {1}) ? 1 : 0",
    "not": "{0} ? 0 : 1",
    "unequal": "{0} !== {1} ? 1 : 0",
    "pow": "Math.pow({0}, {1})",
}
"""Operations of cells and graphs as templates. Operands are names or numbers, or expressions in parentheses."""


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
            if kind in places and kind != "after" and is_read(code, p):
                lines.append(f"{'let' if p in made else 'const'} {kind}{k} = {places[kind][k]};")
    temps = sorted({names[p] for p in made if code.places[p][0] in ("temp", "after")})
    if temps:
        lines.append(f"let {', '.join(temps)};")
    for op, (to, *operands) in code.instructions:
        lines.append(f"{names[to]} = {OPERATIONS[op].format(*(names[p] for p in operands))};")
    lines += [f"{places['after'][k]} = {names[p]};" for p, (kind, k) in enumerate(code.places) if kind == "after"]
    return lines


VIEWS: dict[NumberKind, str] = {"float": "f", "double": "d", "int": "d", "bool": "u"}
BYTES: dict[NumberKind, int] = {"float": 4, "double": 8, "int": 8, "bool": 1}


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
        if op not in OPERATIONS:
            raise OptionError(f"JavaScript has no {op} yet")
        return OPERATIONS[op].format(*args)

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


I32, F32, V128 = 0x7F, 0x7D, 0x7B

PARAMETERS = ("a", "w", "y", "M", "N", "K", "lda", "ldw", "ldy")
POINTERS = ("n", "to", "p", "q0", "q1", "q2", "q3", "wide", "whole")
"""p runs along a row of a up to `wide` (the last multiple of four) and `whole` (the end); q0 … q3 run along rows of w.
"""
SUMS, VECTORS = ("s0", "s1", "s2", "s3"), ("v0", "v1", "v2", "v3", "x")
WASM_NAMES = {name: k for k, name in enumerate((*PARAMETERS, *POINTERS, *SUMS, *VECTORS))}

OPCODES = {
    "i32.add": b"\x6a",
    "i32.sub": b"\x6b",
    "i32.mul": b"\x6c",
    "i32.and": b"\x71",
    "i32.shl": b"\x74",
    "i32.lt_u": b"\x49",
    "i32.ge_s": b"\x4e",
    "i32.eqz": b"\x45",
    "f32.add": b"\x92",
    "f32.mul": b"\x94",
    "f32.load": b"\x2a\x02\x00",
    "f32.store": b"\x38\x02\x00",
    "v128.load": b"\xfd\x00\x02\x00",
    "f32x4.add": b"\xfd\xe4\x01",
    "f32x4.mul": b"\xfd\xe6\x01",
    "block": b"\x02\x40",
    "loop": b"\x03\x40",
    "end": b"\x0b",
    "return": b"\x0f",
}


def signed_leb128(value: int) -> bytes:
    """Encode a signed integer in the fewest bytes."""
    found = b""
    while True:
        byte, value = value & 127, value >> 7
        last = (value == 0 and not byte & 64) or (value == -1 and byte & 64)
        found += bytes([byte if last else byte | 128])
        if last:
            return found


def unsigned_leb128(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + unsigned_leb128(value >> 7)


def assemble(text: str) -> bytes:
    """Assemble instructions: names of OPCODES, `name` reads a variable, `=name` sets it, integers, 0f, zero, br:n,
    br_if:n, lane:n."""
    found = b""
    for word in text.split():
        if word in OPCODES:
            found += OPCODES[word]
        elif word in WASM_NAMES:
            found += b"\x20" + unsigned_leb128(WASM_NAMES[word])
        elif word[0] == "=":
            found += b"\x21" + unsigned_leb128(WASM_NAMES[word[1:]])
        elif word.startswith("br_if:"):
            found += b"\x0d" + unsigned_leb128(int(word[6:]))
        elif word.startswith("br:"):
            found += b"\x0c" + unsigned_leb128(int(word[3:]))
        elif word.startswith("lane:"):
            found += b"\xfd\x1f" + bytes([int(word[5:])])
        elif word == "zero":
            found += b"\xfd\x0c" + bytes(16)
        elif word == "0f":
            found += b"\x43" + bytes(4)
        else:
            found += b"\x41" + signed_leb128(int(word))
    return found


def multiply_rows(count: int) -> str:
    """Return code for y[m, n …] += a[m] · w[n …] for `count` rows of w; n advances by as many."""
    rows = range(count)
    lines = ["a =p w =q0"]
    lines += [f"q{k - 1} ldw i32.add =q{k}" for k in rows[1:]]
    lines += [f"zero =v{k}" for k in rows]
    lines.append("block loop p wide i32.lt_u i32.eqz br_if:1 p v128.load =x")
    lines += [f"v{k} q{k} v128.load x f32x4.mul f32x4.add =v{k}" for k in rows]
    lines += [f"q{k} 16 i32.add =q{k}" for k in rows]
    lines.append("p 16 i32.add =p br:0 end end")
    lines += [f"v{k} lane:0 v{k} lane:1 f32.add v{k} lane:2 v{k} lane:3 f32.add f32.add =s{k}" for k in rows]
    lines.append("block loop p whole i32.lt_u i32.eqz br_if:1")
    lines += [f"s{k} p f32.load q{k} f32.load f32.mul f32.add =s{k} q{k} 4 i32.add =q{k}" for k in rows]
    lines.append("p 4 i32.add =p br:0 end end")
    for k in rows:
        lines.append(f"to to f32.load s{k} f32.add f32.store to 4 i32.add =to")
    lines.append(f"q{count - 1} ldw i32.add K 2 i32.shl i32.sub =w n {count} i32.sub =n")
    return " ".join(lines)


def product_body() -> bytes:
    """Return the body of the function; the address w advances along the rows and is reset for each m."""
    body = f"""
        block loop  M i32.eqz br_if:1
            y =to  N =n
            a K -4 i32.and 2 i32.shl i32.add =wide  a K 2 i32.shl i32.add =whole
            block loop  n 4 i32.ge_s i32.eqz br_if:1  {multiply_rows(4)}  br:0 end end
            block loop  n i32.eqz br_if:1  {multiply_rows(1)}  br:0 end end
            w N ldw i32.mul i32.sub =w
            a lda i32.add =a  y ldy i32.add =y  M 1 i32.sub =M  br:0
        end end
    """
    declared = [(len(POINTERS), I32), (len(SUMS), F32), (len(VECTORS), V128)]
    locals_ = unsigned_leb128(len(declared)) + b"".join(unsigned_leb128(n) + bytes([kind]) for n, kind in declared)
    return locals_ + assemble(body) + OPCODES["end"]


def wasm_module() -> bytes:
    """Return a module that imports the memory `env.memory` and exports `product`."""
    kind = b"\x60" + wasm_vector([bytes([I32])] * len(PARAMETERS)) + wasm_vector([])
    memory = wasm_string("env") + wasm_string("memory") + b"\x02\x00\x01"
    code = product_body()
    sections = {
        1: wasm_vector([kind]),
        2: wasm_vector([memory]),
        3: wasm_vector([b"\x00"]),
        7: wasm_vector([wasm_string("product") + b"\x00\x00"]),
        10: wasm_vector([unsigned_leb128(len(code)) + code]),
    }
    found = b"".join(bytes([number]) + unsigned_leb128(len(part)) + part for number, part in sections.items())
    return b"\x00asm\x01\x00\x00\x00" + found


def wasm_vector(parts: Iterable[bytes]) -> bytes:
    found = list(parts)
    return unsigned_leb128(len(found)) + b"".join(found)


def wasm_string(name: str) -> bytes:
    return unsigned_leb128(len(name)) + name.encode()

"""Where the numbers of a header lie: weights in static arrays, work buffers in one struct."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recur.export.lowered import Each, Function, Product, Reduce, Running, Scan, Statement, largest, read, written
from recur.export.lowered_values import Buffer, Call, Expr, Kind, Load, number_of

TYPES: dict[Kind, str] = {"float": "float", "double": "double", "int": "int32_t", "bool": "int32_t"}
FIELDS = {"float": "f", "double": "d", "int": "n", "bool": "n"}
"""Where in the struct of work memory a kind of buffers lies."""


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
        """y = bias + weight · x."""
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

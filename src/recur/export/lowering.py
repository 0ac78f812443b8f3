"""Lowering of a graph of PyTorch's basic operations to loops over buffers (loop_ir.py), for one row.

Nodes are visited in order. A node that depends on weights alone is computed here, once. A node that only moves numbers
(slice, transpose) becomes an index, and a pointwise node becomes part of the loop that reads it. A node gets a buffer
of its own where several loops read it, or one loop reads it repeatedly. The operations are a closed set: the pointwise
ones are here, the others in operations.py, and any other is refused by name.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, fx

from recur.errors import OptionError
from recur.export.graphs import Graph, dequantize, silence_torch, split_size
from recur.export.loop_ir import (
    ONE,
    ZERO,
    Buffer,
    Call,
    Constant,
    ElementLoop,
    Expr,
    Load,
    LoopFunction,
    NumberKind,
    ReduceLoop,
    Statement,
    Variable,
    WeightTable,
    add,
    buffers_read,
    buffers_written,
    constant_value,
    flat_index,
    mul,
    sub,
)

NUMBER_KINDS: dict[torch.dtype, NumberKind] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int",
    torch.int32: "int",
    torch.bool: "bool",
}

Index: TypeAlias = Sequence[Expr]


@dataclass(eq=False)
class LazyTensor:
    """Tensor as a function of its index, or contiguous in a buffer."""

    shape: tuple[Expr, ...]
    kind: NumberKind
    at: Callable[[Index], Expr]
    buffer: Buffer | None = None
    computed: bool = False
    """Whether an element costs more than a load."""


NodeValue: TypeAlias = Any
"""Value of a node: LazyTensor, constant Tensor, size, or list of those."""


def loop_counters(letter: str, shape: Sequence[Expr]) -> list[Expr]:
    """Return the counters of loops; a counter with bound 1 is the constant 0."""
    return [ZERO if constant_value(size) == 1 else Variable(f"{letter}{k}") for k, size in enumerate(shape)]


class Lowering:
    """Lowering of one graph.

    weights: shared by all graphs of a model.
    longest: bound of the dynamic sizes.
    """

    def __init__(self, graph: Graph, weights: WeightTable, longest: int, quantize: bool = False) -> None:
        self.graph, self.weights, self.quantize = graph, weights, quantize
        self.body: list[Statement] = []
        self.work: list[Buffer] = []
        self.uses: dict[fx.Node, int] = {}
        self._symbols: dict[sympy.Symbol, Expr] = {}
        open_letters = {split_size(s)[0] for v in graph.inputs for s in v.shape if isinstance(s, str)} - {"B"}
        self.letters = dict.fromkeys(sorted(open_letters), longest)

    # The pass ---------------------------------------------------------------------------------------------------

    def lower(self) -> LoopFunction:
        program = self.graph.decomposed
        inputs = self._inputs(program)
        nodes = self._needed(program.graph)
        values: dict[fx.Node, NodeValue] = {}
        for node in nodes:
            if node.op == "placeholder":
                known = self._constant(program, node.name)
                values[node] = known if known is not None else self.of_buffer(inputs[self._names.index(node.name)])
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                with silence_torch():
                    values[node] = self._computed(node, args, dict(kwargs))
        (results,) = program.graph.output_node().args
        outputs = self._outputs([values[node] for node in results], inputs)
        body = _remove_dead_code(self.body, outputs)
        made = {buffer for one in body for buffer in buffers_written(one)}
        work = tuple(buffer for buffer in self.work if buffer in made and buffer not in outputs)
        return LoopFunction(self.graph.name, inputs, outputs, work, tuple(body), self.letters)

    def _inputs(self, program: Any) -> tuple[Buffer, ...]:
        self._names = list(program.graph_signature.user_inputs)
        by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        for name, value in zip(self._names, self.graph.inputs, strict=True):
            for size, symbol in zip(value.shape, by_name[name].meta["val"].shape, strict=True):
                if isinstance(size, str) and isinstance(symbol, torch.SymInt):
                    letter, more = split_size(size)
                    if not more:
                        self._symbols[symbol.node.expr] = ONE if letter == "B" else Variable(letter)
        return tuple(
            Buffer(value.name, tuple(self.size(s) for s in by_name[name].meta["val"].shape), NUMBER_KINDS[value.dtype])
            for name, value in zip(self._names, self.graph.inputs, strict=True)
        )

    def _needed(self, graph: fx.Graph) -> list[fx.Node]:
        """Return the nodes that the outputs depend on, in order, and count the readers of each."""
        needed: set[fx.Node] = set()
        todo = list(graph.output_node().all_input_nodes)
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += node.all_input_nodes
        for node in needed:
            self.uses[node] = sum(user in needed or user.op == "output" for user in node.users)
        return [node for node in graph.nodes if node in needed]

    def _constant(self, program: Any, name: str) -> Tensor | None:
        signature, constants = program.graph_signature, {**program.constants, **program.state_dict}
        if name in signature.inputs_to_parameters:
            weight: Tensor = constants[signature.inputs_to_parameters[name]].detach()
            return dequantize(weight) if self.quantize else weight
        others = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        return constants[others[name]].detach() if name in others else None

    def _computed(self, node: fx.Node, args: Any, kwargs: dict[str, Any]) -> NodeValue:
        from recur.export import operations  # noqa: F401  # which say what they are for

        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if target in SIZE_OPERATIONS:
            return SIZE_OPERATIONS[target](self, *args)
        flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
        if not any(
            isinstance(one, LazyTensor) or (not isinstance(one, Constant) and isinstance(one, Expr)) for one in flat
        ):
            numbers = (args, kwargs)
            known = torch.utils._pytree.tree_map(lambda x: int(x.value) if isinstance(x, Constant) else x, numbers)
            return target(*known[0], **known[1])  # type: ignore[operator]
        name = getattr(target, "__name__", str(target))
        if name not in OPERATIONS:
            where = f"the graph {self.graph.name}"
            raise OptionError(f"{where} has the operation {target}, which C and JavaScript exports do not support")
        found = OPERATIONS[name](self, node, *args, **kwargs)
        if isinstance(found, LazyTensor) and found.computed and self.uses.get(node, 1) > 1:
            return self.stored(found)
        return found

    def _outputs(self, results: Sequence[NodeValue], inputs: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Return one buffer per output, with the names of the graph."""
        taken: set[Buffer] = set(inputs)
        found: list[Buffer] = []
        for result, value in zip(results, self.graph.outputs, strict=True):
            lazy = self.lazy(result)
            if lazy.buffer is None or lazy.buffer in taken or lazy.buffer.value is not None:
                lazy = LazyTensor(lazy.shape, lazy.kind, lazy.at)
            buffer = self.buffer(lazy)
            taken.add(buffer)
            object.__setattr__(buffer, "name", value.name)
            found.append(buffer)
        return tuple(found)

    # Interface of the operations -------------------------------------------------------------------------------------

    def size(self, value: Any) -> Expr:
        """Return a size of the graph as an expression of the dynamic sizes."""
        if isinstance(value, int):
            return Constant(value)
        if isinstance(value, Constant | Variable | Call | Load):
            return value
        return self._size(value.node.expr)

    def _size(self, value: Any) -> Expr:
        if isinstance(value, sympy.Integer):
            return Constant(int(value))
        if isinstance(value, sympy.Symbol):
            return self._symbols[value]
        if isinstance(value, sympy.Add):
            return add(*map(self._size, value.args))
        if isinstance(value, sympy.Mul):
            found: Expr = ONE
            for arg in value.args:
                found = mul(found, self._size(arg))
            return found
        raise OptionError(f"the graph {self.graph.name} has a size {value}, which is not exported to C or JavaScript")

    def shape(self, node: fx.Node) -> tuple[Expr, ...]:
        return tuple(map(self.size, node.meta["val"].shape))

    def kind(self, node: fx.Node) -> NumberKind:
        return NUMBER_KINDS[node.meta["val"].dtype]

    def new(self, shape: Sequence[Expr], kind: NumberKind) -> Buffer:
        buffer = Buffer(f"b{len(self.work)}", tuple(shape), kind)
        self.work.append(buffer)
        return buffer

    def of_buffer(self, buffer: Buffer, shape: Sequence[Expr] | None = None) -> LazyTensor:
        own = tuple(buffer.shape if shape is None else shape)
        matrix = buffer.value is not None and len(own) == 2 and own == buffer.shape

        def at(index: Index) -> Expr:
            place = flat_index(index, own)
            return Load(buffer, place, *index) if matrix else Load(buffer, place)

        return LazyTensor(own, buffer.kind, at, buffer)

    def lazy(self, value: NodeValue) -> LazyTensor:
        """Return a constant tensor or a number as a LazyTensor."""
        if isinstance(value, LazyTensor):
            return value
        if isinstance(value, bool | int | float):
            kind: NumberKind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
            return LazyTensor((), kind, lambda index: Constant(value, kind))
        if isinstance(value, Tensor):
            kind = NUMBER_KINDS[value.dtype]
            if value.numel() == 1:
                number = Constant(value.item(), kind)
                return LazyTensor(tuple(map(Constant, value.shape)), kind, lambda index: number)
            return self.of_buffer(self.weights.of(value, kind))
        assert isinstance(value, Expr), value
        return LazyTensor((), "int", lambda index: value)

    def stored(self, value: LazyTensor) -> LazyTensor:
        """Return the tensor in a buffer."""
        if value.buffer is not None:
            return value
        buffer = self.new(value.shape, value.kind)
        index = loop_counters("i", value.shape)
        self.body.append(ElementLoop(buffer, value.shape, flat_index(index, value.shape), value.at(index)))
        return self.of_buffer(buffer)

    def buffer(self, value: LazyTensor) -> Buffer:
        """Return the buffer of a tensor, stored if it has none."""
        found = self.stored(value).buffer
        assert found is not None
        return found

    def cheap(self, value: NodeValue) -> LazyTensor:
        """Return the tensor in a form that may be read repeatedly."""
        lazy = self.lazy(value)
        return self.stored(lazy) if lazy.computed else lazy

    def reduce(self, op: Any, value: LazyTensor, dims: Sequence[int], kind: NumberKind | None = None) -> LazyTensor:
        """Reduce over some dimensions, which stay with size 1."""
        kept = tuple(ONE if k in dims else size for k, size in enumerate(value.shape))
        over = tuple(size for k, size in enumerate(value.shape) if k in dims)
        buffer, outer, inner = (
            self.new(kept, kind or value.kind),
            loop_counters("i", kept),
            iter(loop_counters("j", over)),
        )
        index = [next(inner) if k in dims else outer[k] for k in range(len(kept))]
        self.body.append(ReduceLoop(op, buffer, kept, over, flat_index(outer, kept), value.at(index)))
        return self.of_buffer(buffer)


def _remove_dead_code(body: Sequence[Statement], outputs: Sequence[Buffer]) -> list[Statement]:
    """Return the statements that the outputs depend on."""
    needed, kept = set(outputs), list[Statement]()
    for one in reversed(body):
        if any(buffer in needed for buffer in buffers_written(one)):
            kept.append(one)
            needed.update(buffers_read(one))
    return kept[::-1]


def lower_graphs(
    graphs: Mapping[str, Graph], longest: int, quantize: bool = False
) -> tuple[dict[str, LoopFunction], WeightTable]:
    """Lower all graphs of a model for one row; return the functions and the weights that they share.

    longest: bound of the dynamic sizes.
    quantize: round matrices to 8 bits per row.
    """
    weights = WeightTable()
    return {name: Lowering(graph, weights, longest, quantize).lower() for name, graph in graphs.items()}, weights


SIZE_OPERATIONS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.sym_size.int: lambda low, x, k: _shape_of(low, x)[k],
    operator.add: lambda low, a, b: add(low.size(a), low.size(b)),
    operator.sub: lambda low, a, b: sub(low.size(a), low.size(b)),
    operator.mul: lambda low, a, b: mul(low.size(a), low.size(b)),
}
"""Arithmetic of sizes."""


def _shape_of(low: Lowering, x: NodeValue) -> tuple[Expr, ...]:
    return tuple(map(Constant, x.shape)) if isinstance(x, Tensor) else x.shape


OPERATIONS: dict[str, Callable[..., Any]] = {}


def operation(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return keep


# Number by number -------------------------------------------------------------------------------------------------


def broadcast(low: Lowering, value: NodeValue, shape: Sequence[Expr]) -> Callable[[Index], Expr]:
    """Return an operand as a function of the result's index. A computed operand that is read more than once is stored
    first."""
    lazy = low.lazy(value)
    missing = len(shape) - len(lazy.shape)
    own = (*[Constant(1)] * missing, *lazy.shape)
    stretched = any(
        constant_value(size) != 1 and constant_value(mine) == 1 for size, mine in zip(shape, own, strict=True)
    )
    if stretched and lazy.computed:
        lazy = low.stored(lazy)

    def at(index: Index) -> Expr:
        tail = zip(index[missing:], lazy.shape, strict=True)
        return lazy.at([Constant(0) if constant_value(size) == 1 else i for i, size in tail])

    return at


def cast(expr: Expr, kind: NumberKind) -> Expr:
    if expr.kind == kind:
        return expr
    if isinstance(expr, Constant):
        made = {"bool": bool, "int": int}.get(kind, float)
        return Constant(made(expr.value), kind)
    return Call(f"to_{kind}", (expr,), kind)


def pointwise(op: str, compares: bool = False) -> Callable[..., LazyTensor]:
    def made(low: Lowering, node: fx.Node, *args: NodeValue, **kwargs: Any) -> LazyTensor:
        alpha = kwargs.pop("alpha", 1)
        shape, kind = low.shape(node), low.kind(node)
        reads = [broadcast(low, arg, shape) for arg in args]
        lazies = [low.lazy(arg) for arg in args]
        inside = _wider([lazy.kind for lazy in lazies]) if compares else kind

        def at(index: Index) -> Expr:
            values = [cast(read(index), inside) for read in reads]
            if alpha != 1:
                values[1] = Call("mul", (cast(Constant(alpha), inside), values[1]), inside)
            return Call("and" if (op, kind) == ("mul", "bool") else op, tuple(values), kind)

        costly = kind in ("float", "double") or any(lazy.computed for lazy in lazies)
        return LazyTensor(shape, kind, at, computed=costly)

    return made


def _wider(kinds: Sequence[NumberKind]) -> NumberKind:
    order: tuple[NumberKind, ...] = ("bool", "int", "float", "double")
    return max(kinds, key=order.index)


for _name, _op in {
    "add.Tensor": "add", "sub.Tensor": "sub", "mul.Tensor": "mul", "div.Tensor": "div", "neg.default": "neg",
    "tanh.default": "tanh", "sigmoid.default": "sigmoid", "relu.default": "relu", "exp.default": "exp",
    "log.default": "log", "log1p.default": "log1p", "expm1.default": "expm1", "sqrt.default": "sqrt",
    "sin.default": "sin", "cos.default": "cos", "erf.default": "erf", "atan.default": "atan",
    "floor.default": "floor", "round.default": "round", "pow.Tensor_Tensor": "pow", "remainder.Tensor": "remainder",
    "abs.default": "abs", "sign.default": "sign",
    "maximum.default": "maximum", "minimum.default": "minimum", "remainder.Scalar": "remainder",
    "logical_and.default": "and", "logical_or.default": "or", "logical_not.default": "not",
    "bitwise_and.Tensor": "and", "bitwise_or.Tensor": "or", "bitwise_not.default": "not",
}.items():  # fmt: skip
    OPERATIONS[_name] = pointwise(_op)
for _name, _op in {"eq": "equal", "ne": "unequal", "lt": "less", "le": "less_equal"}.items():
    OPERATIONS[f"{_name}.Scalar"] = OPERATIONS[f"{_name}.Tensor"] = pointwise(_op, compares=True)


def _turned(op: str) -> Callable[..., LazyTensor]:
    made = pointwise(op, compares=True)
    return lambda low, node, a, b: made(low, node, b, a)


for _name, _op in {"gt": "less", "ge": "less_equal"}.items():
    OPERATIONS[f"{_name}.Scalar"] = OPERATIONS[f"{_name}.Tensor"] = _turned(_op)


@operation("where.self")
def where(low: Lowering, node: fx.Node, which: NodeValue, a: NodeValue, b: NodeValue) -> LazyTensor:
    shape, kind = low.shape(node), low.kind(node)
    reads = [broadcast(low, arg, shape) for arg in (which, a, b)]

    def at(index: Index) -> Expr:
        chosen, one, other = (read(index) for read in reads)
        return Call("select", (chosen, cast(one, kind), cast(other, kind)), kind)

    return LazyTensor(shape, kind, at, computed=True)


@operation("clamp.default", "clamp.Tensor")
def clamp(low: Lowering, node: fx.Node, x: NodeValue, least: NodeValue = None, most: NodeValue = None) -> LazyTensor:
    found = low.lazy(x)
    if least is not None:
        found = pointwise("maximum")(low, node, found, least)
    return found if most is None else pointwise("minimum")(low, node, found, most)


@operation("pow.Tensor_Scalar")
def power(low: Lowering, node: fx.Node, x: NodeValue, exponent: float) -> LazyTensor:
    if exponent == 2:
        x = low.cheap(x)
        return pointwise("mul")(low, node, x, x)
    return pointwise("pow")(low, node, x, exponent)


@operation("reciprocal.default")
def reciprocal(low: Lowering, node: fx.Node, x: NodeValue) -> LazyTensor:
    return pointwise("div")(low, node, 1.0, x)


@operation("_to_copy.default")
def to_copy(low: Lowering, node: fx.Node, x: NodeValue, **_: Any) -> LazyTensor:
    lazy, kind = low.lazy(x), low.kind(node)
    if lazy.kind == kind:
        return lazy
    return LazyTensor(lazy.shape, kind, lambda index: cast(lazy.at(index), kind), computed=lazy.computed)


@operation("clone.default", "alias.default", "lift_fresh_copy.default", "detach.default", "contiguous.default")
def identity(low: Lowering, node: fx.Node, x: NodeValue, **_: Any) -> NodeValue:
    return x


@operation("full.default", "full_like.default", "zeros_like.default", "ones_like.default")
def full(low: Lowering, node: fx.Node, like: Any, value: NodeValue = 0, **_: Any) -> LazyTensor:
    """Fill a tensor. `like` is a shape or a tensor; the shape of the node says the same."""
    kind = low.kind(node)
    number = cast(low.lazy(1 if "ones" in str(node.target) else value).at([]), kind)
    return LazyTensor(low.shape(node), kind, lambda index: number)


@operation("arange.start_step")
def arange(low: Lowering, node: fx.Node, start: NodeValue, end: NodeValue, step: NodeValue = 1, **_: Any) -> LazyTensor:
    kind = low.kind(node)
    return LazyTensor(
        low.shape(node), kind, lambda index: cast(add(low.size(start), mul(index[0], low.size(step))), kind)
    )


def dim_of(lazy: LazyTensor, dim: int) -> int:
    return dim % len(lazy.shape)


def in_range(index: Expr, size: Expr) -> Expr:
    """Return the expression 0 ≤ index < size."""
    above = Call("less_equal", (Constant(0), index), "bool")
    return Call("and", (above, Call("less", (index, size), "bool")), "bool")

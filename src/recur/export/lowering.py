"""From a graph of PyTorch's basic operations to loops over buffers (lowered.py), for one row.

Nodes are taken in their order. What depends on weights alone is computed here, once. Whatever only says where numbers
stand (a slice, a transposition) becomes an index, and what is made of single numbers becomes a part of the loop that
reads it; it gets a buffer of its own where several read it, or one reads it again and again. The operations are a
closed set, operations.py: any other is refused by its name.
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
from recur.export.graphs import Graph, quiet, split_size
from recur.export.lowered import Each, Function, Reduce, Statement, read, written
from recur.export.lowered_values import (
    ONE,
    ZERO,
    Buffer,
    Call,
    Expr,
    Kind,
    Load,
    Name,
    Number,
    Weights,
    add,
    linear,
    mul,
    number_of,
)
from recur.export.quantise import dequantised

KINDS: dict[torch.dtype, Kind] = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int",
    torch.int32: "int",
    torch.bool: "bool",
}

Index: TypeAlias = Sequence[Expr]


@dataclass(eq=False)
class Lazy:
    """A tensor as a function of its index, or in a buffer, where its numbers lie one behind the other."""

    shape: tuple[Expr, ...]
    kind: Kind
    at: Callable[[Index], Expr]
    buffer: Buffer | None = None
    computed: bool = False
    """Whether a number costs more than to look it up."""


Value: TypeAlias = Any
"""Of a node: a Lazy, a Tensor that is known, a size, or a list of those."""


def counters(letter: str, shape: Sequence[Expr]) -> list[Expr]:
    """The counters of loops; one that counts to 1 is 0."""
    return [ZERO if number_of(size) == 1 else Name(f"{letter}{k}") for k, size in enumerate(shape)]


class Lowering:
    """One graph at work. `weights` are shared by all graphs of a model; `longest` bounds the open sizes."""

    def __init__(self, graph: Graph, weights: Weights, longest: int, quantize: bool = False) -> None:
        self.graph, self.weights, self.quantize = graph, weights, quantize
        self.body: list[Statement] = []
        self.work: list[Buffer] = []
        self.uses: dict[fx.Node, int] = {}
        self._symbols: dict[sympy.Symbol, Expr] = {}
        open_letters = {split_size(s)[0] for v in graph.inputs for s in v.shape if isinstance(s, str)} - {"B"}
        self.letters = dict.fromkeys(sorted(open_letters), longest)

    # The pass ---------------------------------------------------------------------------------------------------

    def lower(self) -> Function:
        program = self.graph.decomposed
        inputs = self._inputs(program)
        nodes = self._needed(program.graph)
        values: dict[fx.Node, Value] = {}
        for node in nodes:
            if node.op == "placeholder":
                known = self._constant(program, node.name)
                values[node] = known if known is not None else self.of_buffer(inputs[self._names.index(node.name)])
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                with quiet():
                    values[node] = self._computed(node, args, dict(kwargs))
        (results,) = program.graph.output_node().args
        outputs = self._outputs([values[node] for node in results], inputs)
        body = _without_unread(self.body, outputs)
        made = {buffer for one in body for buffer in written(one)}
        work = tuple(buffer for buffer in self.work if buffer in made and buffer not in outputs)
        return Function(self.graph.name, inputs, outputs, work, tuple(body), self.letters)

    def _inputs(self, program: Any) -> tuple[Buffer, ...]:
        self._names = list(program.graph_signature.user_inputs)
        by_name = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        for name, value in zip(self._names, self.graph.inputs, strict=True):
            for size, symbol in zip(value.shape, by_name[name].meta["val"].shape, strict=True):
                if isinstance(size, str) and isinstance(symbol, torch.SymInt):
                    letter, more = split_size(size)
                    if not more:
                        self._symbols[symbol.node.expr] = ONE if letter == "B" else Name(letter)
        return tuple(
            Buffer(value.name, tuple(self.size(s) for s in by_name[name].meta["val"].shape), KINDS[value.dtype])
            for name, value in zip(self._names, self.graph.inputs, strict=True)
        )

    def _needed(self, graph: fx.Graph) -> list[fx.Node]:
        """Nodes that the outputs are made of, in their order, and how many read each of them."""
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
            return dequantised(weight) if self.quantize else weight
        others = {**signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        return constants[others[name]].detach() if name in others else None

    def _computed(self, node: fx.Node, args: Any, kwargs: dict[str, Any]) -> Value:
        from recur.export import operations_index, operations_scan, operations_sums  # noqa: F401  # which say what they are for
        from recur.export.operations import OPERATIONS, SIZES

        target = node.target
        if target is operator.getitem:
            return args[0][args[1]]
        if target in SIZES:
            return SIZES[target](self, *args)
        flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
        if not any(isinstance(one, Lazy) or (not isinstance(one, Number) and isinstance(one, Expr)) for one in flat):
            numbers = (args, kwargs)
            known = torch.utils._pytree.tree_map(lambda x: int(x.value) if isinstance(x, Number) else x, numbers)
            return target(*known[0], **known[1])  # type: ignore[operator]
        name = getattr(target, "__name__", str(target))
        if name not in OPERATIONS:
            where = f"the graph {self.graph.name}"
            raise OptionError(f"{where} has the operation {target}, which is not written in C or JavaScript yet")
        found = OPERATIONS[name](self, node, *args, **kwargs)
        if isinstance(found, Lazy) and found.computed and self.uses.get(node, 1) > 1:
            return self.stored(found)
        return found

    def _outputs(self, results: Sequence[Value], inputs: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Buffers of their own, each once, with our names."""
        taken: set[Buffer] = set(inputs)
        found: list[Buffer] = []
        for result, value in zip(results, self.graph.outputs, strict=True):
            lazy = self.lazy(result)
            if lazy.buffer is None or lazy.buffer in taken or lazy.buffer.value is not None:
                lazy = self.stored(Lazy(lazy.shape, lazy.kind, lazy.at))
            assert lazy.buffer is not None
            taken.add(lazy.buffer)
            object.__setattr__(lazy.buffer, "name", value.name)
            found.append(lazy.buffer)
        return tuple(found)

    # What operations ask for ------------------------------------------------------------------------------------

    def size(self, value: Any) -> Expr:
        """A size of the graph as an expression of letters."""
        if isinstance(value, int):
            return Number(value)
        if isinstance(value, Number | Name | Call | Load):
            return value
        return self._size(value.node.expr)

    def _size(self, value: Any) -> Expr:
        if isinstance(value, sympy.Integer):
            return Number(int(value))
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

    def kind(self, node: fx.Node) -> Kind:
        return KINDS[node.meta["val"].dtype]

    def new(self, shape: Sequence[Expr], kind: Kind) -> Buffer:
        buffer = Buffer(f"b{len(self.work)}", tuple(shape), kind)
        self.work.append(buffer)
        return buffer

    def of_buffer(self, buffer: Buffer, shape: Sequence[Expr] | None = None) -> Lazy:
        own = tuple(buffer.shape if shape is None else shape)
        matrix = buffer.value is not None and len(own) == 2 and own == buffer.shape

        def at(index: Index) -> Expr:
            place = linear(index, own)
            return Load(buffer, place, *index) if matrix else Load(buffer, place)

        return Lazy(own, buffer.kind, at, buffer)

    def lazy(self, value: Value) -> Lazy:
        """Of a tensor that is known, or of a number."""
        if isinstance(value, Lazy):
            return value
        if isinstance(value, bool | int | float):
            kind: Kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "float"
            return Lazy((), kind, lambda index: Number(value, kind))
        if isinstance(value, Tensor):
            kind = KINDS[value.dtype]
            if value.numel() == 1:
                number = Number(value.item(), kind)
                return Lazy(tuple(map(Number, value.shape)), kind, lambda index: number)
            return self.of_buffer(self.weights.of(value, kind))
        assert isinstance(value, Expr), value
        return Lazy((), "int", lambda index: value)

    def stored(self, value: Lazy) -> Lazy:
        """The same in a buffer."""
        if value.buffer is not None:
            return value
        buffer = self.new(value.shape, value.kind)
        index = counters("i", value.shape)
        self.body.append(Each(buffer, value.shape, linear(index, value.shape), value.at(index)))
        return self.of_buffer(buffer)

    def cheap(self, value: Value) -> Lazy:
        """What may be read again and again."""
        lazy = self.lazy(value)
        return self.stored(lazy) if lazy.computed else lazy

    def reduce(self, op: Any, value: Lazy, dims: Sequence[int], kind: Kind | None = None) -> Lazy:
        """Over some dimensions, which stay with a size of 1."""
        kept = tuple(ONE if k in dims else size for k, size in enumerate(value.shape))
        over = tuple(size for k, size in enumerate(value.shape) if k in dims)
        buffer, outer, inner = self.new(kept, kind or value.kind), counters("i", kept), iter(counters("j", over))
        index = [next(inner) if k in dims else outer[k] for k in range(len(kept))]
        self.body.append(Reduce(op, buffer, kept, over, linear(outer, kept), value.at(index)))
        return self.of_buffer(buffer)


def _without_unread(body: Sequence[Statement], outputs: Sequence[Buffer]) -> list[Statement]:
    """Only what the outputs need."""
    needed, kept = set(outputs), list[Statement]()
    for one in reversed(body):
        if any(buffer in needed for buffer in written(one)):
            kept.append(one)
            needed.update(read(one))
    return kept[::-1]


def lowered(graphs: Mapping[str, Graph], longest: int, quantize: bool = False) -> tuple[dict[str, Function], Weights]:
    """All graphs of a model, for one row, with open sizes up to `longest`; and the weights that they share, matrices
    rounded to 8 bits a row if asked for."""
    weights = Weights()
    return {name: Lowering(graph, weights, longest, quantize).lower() for name, graph in graphs.items()}, weights

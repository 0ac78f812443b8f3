"""Tracing of a step that is not pointwise into a graph with products and reductions over units.

torch.fx records the step, and `multiplied` before it. Besides the pointwise functions a step may use:

    linear(a, w.M)   a @ w.M   a @ w.M.T          products with an extra weight
    a.mean(-1, keepdim=True)   sum, amax, var, norm, softmax, logsumexp, layer_norm, rms_norm
    a.unflatten(-1, (heads, -1)) … .flatten(-2)   the same within each head
    w.p[k]                                        a row of an extra weight of shape (n, H)

The graph is compared with the step itself on random numbers: values, and gradients of all arguments and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn.functional import linear

from recur.cells._cache import cache_of
from recur.cells.cell import Cell, Tensors
from recur.cells.contract import check_step
from recur.cells.matrix import MatrixCell
from recur.compat import constant_when_compiled
from recur.compiler.expressions import Expressions, Node, differentiate
from recur.compiler.formulas import FORMULAS
from recur.compiler.stages import (
    BARRIERS,
    Matrix,
    Size,
    StagedStep,
    StageTerms,
    schedule_step,
    stage_sizes,
)
from recur.compiler.tracing import NotPointwiseError, SharedMemory, StepTracer, call_step, formula_of, name_of
from recur.errors import RecurError


def staged(cell: Cell) -> bool:
    """Return True if a cell needs stages, or reads values of its own at each step."""
    if isinstance(cell, MatrixCell):
        return False
    return not cell.pointwise or bool(cell.call_inputs or cell.noise) or type(cell).multiplied is not Cell.multiplied


@constant_when_compiled
def stage_programs(cell: Cell, biased: bool, masked: bool) -> tuple[StagedStep, str] | str:
    """Return the step and the program text of a cell, compiled once; or why there are none."""
    programs = cache_of(cell).programs
    key: Any = ("stages", biased, masked)
    if key not in programs:
        # Tracing must not see the modes of the caller's thread: compiling, checkpointing, inference mode.
        with ThreadPoolExecutor(1) as thread:
            programs[key] = thread.submit(_stage_programs, cell, biased, masked).result()
    found: tuple[StagedStep, str] | str = programs[key]
    return found


def _stage_programs(cell: Cell, biased: bool, masked: bool) -> tuple[StagedStep, str] | str:
    try:
        step = trace_stages(cell, biased, masked)
        widths: list[Size] = ["H"] * len(cell.states)
        return step, schedule_step(step, cell, stage_sizes(cell), widths, masked).dumps()
    except NotPointwiseError as error:
        return str(error)


@dataclass(frozen=True)
class _MatrixValue:
    index: int
    transposed: bool = False


@dataclass(frozen=True)
class _Rows:
    """A weight of shape (n, H): rows that the step indexes, or a matrix that it multiplies by."""

    leaf: int
    name: str
    count: int
    transposed: bool = False


class _Shape:
    """The shape of a traced value, or a part of it."""


@dataclass
class _Context:
    """What the tracer knows of the values so far."""

    terms: StageTerms
    weights: list[tuple[str, int | None]]
    values: dict[fx.Node, Any]
    groups: dict[fx.Node, int]
    """The groups of an unflattened value: reductions are within each group."""
    single: set[fx.Node]
    """Values with one number for each group of units."""


def trace_stages(cell: Cell, biased: bool, masked: bool) -> StagedStep:
    terms, states, weights = _trace(cell, biased, masked)
    numbers = torch.Generator().manual_seed(0)
    for low, high in ((0.1, 2.0), (-3.0, 3.0)):
        _compare(cell, terms, states, weights, numbers, low, high, biased, masked)
    return _prepared(terms, states, weights)


def _trace(cell: Cell, biased: bool, masked: bool) -> tuple[StageTerms, list[int], list[tuple[str, int | None]]]:
    if any(size not in ("H", "D") and not isinstance(size, int) for s in cell.extras.values() for size in s):
        raise NotPointwiseError("an extra weight has a size that is not known")
    tracer, terms = StepTracer(), StageTerms()
    context = _Context(terms, [], {}, {}, set())
    values, memory = context.values, SharedMemory(context.values)
    sizes = stage_sizes(cell)
    arguments: dict[str, Tensors] = {}
    for role in "xsw":
        proxies = []
        for k, name in enumerate(cell.tuple_of(role)._fields):
            if role == "x" and k < len(cell.gates) and cell.multiplies_inside:
                continue
            proxy = tracer.create_proxy("placeholder", f"{role}_{name}", (), {})
            if role == "w":
                values[proxy.node] = _weight(context, name, cell.extras[name])
            elif role == "x" and k >= len(cell.gates) + len(cell.call_inputs) + len(cell.noise):  # training
                context.weights.append(("", None))
                values[proxy.node] = terms.leaf("w", len(context.weights) - 1)
            else:
                values[proxy.node] = terms.leaf(role, k)
                if role == "x" and k >= len(cell.gates):
                    terms.sizes[role, k] = sizes[k - len(cell.gates)]
            proxies.append(proxy)
        kind = "i" if role == "x" and cell.multiplies_inside else role
        arguments[role] = cell.tuple_of(kind)._make(proxies)  # type: ignore[arg-type]
    factor: Any = None
    if cell.multiplies_inside:
        factor = _followed(cell.multiplied_input, "multiplied_input", arguments)
        inside = [tracer.create_proxy("placeholder", f"u_{name}", (), {}) for name in cell.gates]
        arguments["x"] = cell.tuple_of("x")._make([*inside, *arguments["x"]])  # type: ignore[list-item]
    before: Any = None
    if cell.recurrent_gates:
        before = _followed(cell.multiplied, "multiplied", arguments)
    projections = [tracer.create_proxy("placeholder", f"h_{name}", (), {}) for name in cell.recurrent_gates]
    h = cell.tuple_of("h")._make(projections)  # type: ignore[arg-type]
    result = call_step(cell, [arguments["x"], h, arguments["s"], arguments["w"]])
    gate = {"u": 0, "h": 0}
    for node in tracer.graph.nodes:
        if node.op != "placeholder":
            values[node] = _value(node, context)
            memory.record(node)
        elif node not in values:  # U_g m + b_g, or W_r m + b_r
            side = str(node.target)[0]
            m = _number(values[(before if side == "h" else factor).node])
            if masked and side == "h":
                m = terms("mul", m, terms.leaf("x", len(cell.gates) + len(sizes)))
            name, columns = ("hh", "H") if side == "h" else ("ih", "D")
            terms.matrices.append(Matrix(f"weight_{name}", gate[side], "H", columns))
            product = terms.product(m, len(terms.matrices) - 1)
            if biased:
                context.weights.append((f"bias_{name}", gate[side]))
                product = terms("add", product, terms.leaf("w", len(context.weights) - 1))
            values[node] = product
            gate[side] += 1
    parts = result if isinstance(result, tuple | list) else ()
    if len(parts) != len(cell.states) or not all(isinstance(part, fx.Proxy) for part in parts):
        raise NotPointwiseError("its step does not return one tensor for each state")
    return terms, [_number(values[part.node]) for part in parts], context.weights


def _followed(method: Callable[..., Any], name: str, arguments: dict[str, Tensors]) -> fx.Proxy:
    try:
        found = method(arguments["x"], arguments["s"], arguments["w"])
    except RecurError:
        raise
    except Exception as error:
        raise NotPointwiseError(f"its method {name} cannot be followed: {error}".splitlines()[0]) from error
    if not isinstance(found, fx.Proxy):
        raise NotPointwiseError(f"its method {name} does not return a tensor")
    return found


def _weight(context: _Context, name: str, shape: Sequence[Size]) -> Any:
    terms = context.terms
    if len(shape) == 1:
        context.weights.append((name, None))
        terms.sizes["w", len(context.weights) - 1] = shape[0]
        return terms.leaf("w", len(context.weights) - 1)
    if len(shape) == 2 and isinstance(shape[0], int) and shape[1] == "H":
        first = len(context.weights)
        context.weights.extend((name, k) for k in range(shape[0]))
        return _Rows(first, name, shape[0])
    if len(shape) != 2:
        raise NotPointwiseError(f"the extra weight {name} has {len(shape)} dimensions")
    terms.matrices.append(Matrix(name, -1, *shape))
    return _MatrixValue(len(terms.matrices) - 1)


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise NotPointwiseError("its step uses a matrix other than in a product")
    return value


def _value(node: fx.Node, context: _Context) -> Any:
    """Convert one traced operation."""
    name, terms, values = name_of(node), context.terms, context.values
    args = [values.get(a, a) if isinstance(a, fx.Node) else a for a in node.args]
    groups = max((context.groups.get(a, 1) for a in node.all_input_nodes), default=1)
    if groups > 1:
        context.groups[node] = groups
    single = [context.single.__contains__(a) or not isinstance(values[a], int) for a in node.all_input_nodes]
    if node.all_input_nodes and all(single) and any(a in context.single for a in node.all_input_nodes):
        context.single.add(node)
    if name == "getattr":
        return _attribute(args[0], str(args[1]))
    if name == "getitem" and isinstance(args[0], _Rows) and isinstance(args[1], int):
        return terms.leaf("w", args[0].leaf + args[1])
    if name in ("getitem", "size") and (name == "size" or isinstance(args[0], _Shape)):
        return _Shape()
    if isinstance(args[0], _MatrixValue | _Rows) and name in ("t", "transpose"):
        return replace(args[0], transposed=not args[0].transposed)
    if name in ("linear", "matmul"):
        return _product(node, args, context)
    options = {key: values.get(v, v) if isinstance(v, fx.Node) else v for key, v in node.kwargs.items()}
    if name in _REDUCING and isinstance(args[0], int) and terms.number_of(args[0]) is None:
        return _REDUCING[name](node, context, *args, **options)
    if name == "unflatten":
        shape = args[2] if len(args) > 2 else ()
        if args[1:2] == [-1] and isinstance(shape, tuple | list) and len(shape) == 2 and isinstance(shape[0], int):
            context.groups[node] = shape[0]
            return args[0]
        raise NotPointwiseError("its step unflattens other than by unflatten(-1, (heads, -1))")
    if name == "flatten" and args[1:] in ([-2], [-2, -1]):
        context.groups.pop(node, None)
        return args[0]
    name = formula_of(node)
    if name not in FORMULAS:
        raise NotPointwiseError(f"its step uses {name}, which is not among the operations of a compiled step")

    def operand(argument: object) -> object:
        if isinstance(argument, bool) or not isinstance(argument, int | float):
            return argument
        return terms.number(argument)

    plain = [values[a] if isinstance(a, fx.Node) else operand(a) for a in node.args]
    named = {key: values[v] if isinstance(v, fx.Node) else operand(v) for key, v in node.kwargs.items()}
    if any(isinstance(a, _MatrixValue | _Rows | _Shape) for a in (*plain, *named.values())):
        raise NotPointwiseError(f"its step uses {name} of a matrix")
    widths = {w for a in node.all_input_nodes if (w := terms.width(_number(values[a]))) is not None}
    if len(widths) > 1:
        raise NotPointwiseError(f"its step uses {name} of values of different widths")
    try:
        return FORMULAS[name](terms, *plain, **named)
    except (TypeError, ValueError) as error:
        raise NotPointwiseError(f"its step uses {name} in a way that is not known: {error}") from error


def _attribute(value: Any, name: str) -> Any:
    if isinstance(value, _MatrixValue | _Rows) and name in ("T", "mT"):
        return replace(value, transposed=not value.transposed)
    if name == "shape":
        return _Shape()
    raise NotPointwiseError(f"its step reads the attribute {name}")


def _product(node: fx.Node, args: list[Any], context: _Context) -> int:
    """linear(a, M, b) = a · Mᵀ + b, matmul(a, M) = a · M."""
    terms, name = context.terms, name_of(node)
    options = {key: context.values.get(v, v) if isinstance(v, fx.Node) else v for key, v in node.kwargs.items()}
    bias = args[2] if len(args) > 2 else options.get("bias")
    if len(args) > 1 and isinstance(args[1], _Rows):
        whole = Matrix(args[1].name, -1, args[1].count, "H")
        if whole not in terms.matrices:
            terms.matrices.append(whole)
        args[1] = _MatrixValue(terms.matrices.index(whole), args[1].transposed)
    if len(args) < 2 or not isinstance(args[0], int) or not isinstance(args[1], _MatrixValue):
        raise NotPointwiseError(f"its step uses {name} other than of a value and an extra weight")
    a, matrix = args[0], args[1]
    transposed = matrix.transposed if name == "linear" else not matrix.transposed
    of = terms.matrices[matrix.index]
    inner = of.rows if transposed else of.columns
    if terms.width(a) != inner or node.args[0] in context.single or node in context.groups:
        raise NotPointwiseError(f"its step multiplies a value of width {terms.width(a)} by a matrix for {inner}")
    product = terms.product(a, matrix.index, transposed)
    return product if bias is None else terms("add", product, _number(bias))


def _axis(dim: Any, keepdim: bool) -> None:
    if dim not in (-1, [-1], (-1,)) or not keepdim:
        raise NotPointwiseError("its step reduces other than over the units: write (-1, keepdim=True)")


def _reduction(op: str) -> Callable[..., int]:
    def reduce(node: fx.Node, c: _Context, a: int, dim: Any = None, keepdim: bool = False, **rest: Any) -> int:
        _axis(dim, keepdim)
        c.single.add(node)
        return _reduce(c, node, op, a)

    return reduce


def _reduce(c: _Context, node: fx.Node, op: str, a: int) -> int:
    if node.args[0] in c.single:  # one number already: the sum, the mean and the maximum of it
        return a
    return c.terms.reduce(op, a, c.groups.get(node, 1))


def _variance(
    node: fx.Node, c: _Context, a: int, dim: Any = None, unbiased: bool = True, keepdim: bool = False, **rest: Any
) -> int:
    if "correction" in rest:
        unbiased = rest["correction"] != 0
    _axis(dim, keepdim)
    if unbiased:
        raise NotPointwiseError("its step uses the unbiased variance; write unbiased=False")
    c.single.add(node)
    off = c.terms("sub", a, _reduce(c, node, "mean", a))
    return _reduce(c, node, "mean", c.terms("mul", off, off))


def _norm(node: fx.Node, c: _Context, a: int, *rest: Any, **options: Any) -> int:
    ord, dim = options.get("ord", options.get("p", rest[0] if rest else 2)), options.get("dim", (*rest, None, None)[1])
    if ord not in (2, 2.0, "fro", None):
        raise NotPointwiseError("its step uses a norm other than the Euclidean one")
    _axis(dim, options.get("keepdim", (*rest, None, None, False)[2]))
    c.single.add(node)
    return c.terms("sqrt", _reduce(c, node, "total", c.terms("mul", a, a)))


def _softmax(node: fx.Node, c: _Context, a: int, dim: Any = None, *rest: Any, **options: Any) -> int:
    _axis(dim, True)
    t = c.terms
    power = t("exp", t("sub", a, _constant(t, _reduce(c, node, "largest", a))))
    return t("div", power, _reduce(c, node, "total", power))


def _logsumexp(node: fx.Node, c: _Context, a: int, dim: Any = None, keepdim: bool = False) -> int:
    _axis(dim, keepdim)
    c.single.add(node)
    t, most = c.terms, _constant(c.terms, _reduce(c, node, "largest", a))
    return t("add", t("log", _reduce(c, node, "total", t("exp", t("sub", a, most)))), most)


def _constant(t: StageTerms, value: int) -> int:
    """Return a value to which no gradient flows: the result does not depend on it."""
    return t("custom", value)


def _layer_norm(
    node: fx.Node, c: _Context, a: int, _: Any, weight: int | None = None, bias: int | None = None, eps: float = 1e-5
) -> int:
    t = c.terms
    off = t("sub", a, _reduce(c, node, "mean", a))
    variance = _reduce(c, node, "mean", t("mul", off, off))
    return _affine(t, t("div", off, t("sqrt", t("add", variance, t.number(eps)))), weight, bias)


def _rms_norm(node: fx.Node, c: _Context, a: int, _: Any, weight: int | None = None, eps: float | None = None) -> int:
    t = c.terms
    least = t.number(torch.finfo(torch.float32).eps if eps is None else eps)
    square = t("add", _reduce(c, node, "mean", t("mul", a, a)), least)
    return _affine(t, t("div", a, t("sqrt", square)), weight, None)


def _affine(t: StageTerms, value: int, weight: int | None, bias: int | None) -> int:
    value = value if weight is None else t("mul", value, weight)
    return value if bias is None else t("add", value, bias)


_REDUCING: dict[str, Callable[..., int]] = {
    "mean": _reduction("mean"),
    "sum": _reduction("total"),
    "amax": _reduction("largest"),
    "var": _variance,
    "norm": _norm,
    "vector_norm": _norm,
    "linalg_vector_norm": _norm,
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}


def _compare(
    cell: Cell,
    terms: StageTerms,
    states: list[int],
    rows: list[tuple[str, int | None]],
    numbers: torch.Generator,
    low: float,
    high: float,
    biased: bool,
    masked: bool,
) -> None:
    """Refuse the graph if the step itself gives other values, or autograd other gradients."""
    H, D, B = 2 * max(2, cell.heads) * math.lcm(*_groups(terms)), 3, 2
    sizes = {"H": H, "D": D}

    def random(*shape: Size) -> Tensor:
        whole = [sizes[n] if isinstance(n, str) else n for n in shape]
        return torch.empty(whole, dtype=torch.float64).uniform_(low, high, generator=numbers).requires_grad_()

    weights = {name: random(*shape) for name, shape in cell.shapes(D, H, biased).items()}
    x = [random(B, "H") for _ in cell.gates]
    x += [random(B, size) for size in [*cell.call_inputs.values(), *["H"] * len(cell.noise)]]
    s, mask = [random(B, "H") for _ in cell.states], random(B, "H")
    training = torch.ones(H, dtype=torch.float64)
    inside = () if cell.multiplies_inside else ("weight_ih", "bias_ih")
    given = [*x, *[weights[name] for name in weights if name not in inside], *s]
    with torch.enable_grad():
        s_t = cell.state([p.clone() for p in s])
        w_t = cell.tuple_of("w")._make(weights[name].clone() for name in cell.extras)
        own = [p.clone() for p in x[len(cell.gates) :]] + [training.expand(B, H)] * bool(cell.noise)
        shares = [p.clone() for p in x[: len(cell.gates)]]
        if cell.multiplies_inside:
            factor = cell.multiplied_input(cell.tuple_of("i")._make(own), s_t, w_t)
            shares = list(linear(factor, weights["weight_ih"], weights.get("bias_ih")).chunk(len(cell.gates), dim=-1))
        x_t = cell.tuple_of("x")._make([*shares, *own])
        projections: Sequence[Tensor] = ()
        if cell.recurrent_gates:
            m = cell.multiplied(x_t, s_t, w_t)
            product = cell.product(m * mask if masked else m, weights)
            projections = product.chunk(len(cell.recurrent_gates), dim=-1)
        h_t = cell.tuple_of("h")._make(projections)
        versions = [part._version for part in s_t]
        result = cell.advance(x_t, h_t, s_t, w_t)
        check_step(cell, result, s_t, versions)
        arriving = [torch.empty_like(part).uniform_(-1, 1, generator=numbers) for part in result]
        reached = [(part, g) for part, g in zip(result, arriving, strict=True) if part.requires_grad]
        wanted: Sequence[Tensor | None] = [None] * len(given)
        if reached:
            outputs, gradients = zip(*reached, strict=True)
            wanted = torch.autograd.grad(outputs, given, gradients, allow_unused=True)
        leaves: dict[tuple[str, int], Tensor] = {}
        for k, part in enumerate(x):
            size = [*["H"] * len(cell.gates), *cell.call_inputs.values(), *["H"] * len(cell.noise)][k]
            leaves["x", k] = part.expand(B, H) if size == 1 else part
        if masked:
            leaves["x", len(x)] = mask
        leaves |= {("s", k): part for k, part in enumerate(s)}
        leaves |= {("w", k): part for k, part in enumerate(weight_rows(weights, rows, training))}
        matrices = weight_matrices(cell, weights, terms.matrices)
        known: dict[int, Tensor] = {}
        ours = terms.evaluate(states, leaves, known, matrices)
    for name, value, part in zip(cell.states, ours, result, strict=True):
        if not torch.allclose(value.expand_as(part), part, rtol=1e-8, atol=1e-8, equal_nan=True):
            raise NotPointwiseError(f"{type(cell).__name__}.step gives {name} by another formula for other numbers")
    again = _copy(terms)
    found = differentiate(again, states, [again.leaf("g", j) for j in range(len(states))])
    with torch.no_grad():
        leaves |= {("g", j): g for j, g in enumerate(arriving)}
        flat: list[tuple[Tensor, Tensor]] = []
        keys = [key for key in found.leaves if key[0] != "g"]
        slopes = again.evaluate([found.leaves[key] for key in keys], leaves, known, matrices)
        for key, slope in zip(keys, slopes, strict=True):
            leaf = leaves[key]
            slope = slope.expand(B, slope.shape[-1] if slope.dim() else H)
            flat.append((leaf, slope.sum(0) if leaf.dim() == 1 else slope))
        products = [v for v in again.reached_from(states) if again[v].op in BARRIERS[:2] and v in found.values]
        d_products = again.evaluate([found.values[y] for y in products], leaves, known, matrices)
        for y, dy in zip(products, d_products, strict=True):
            a, matrix = known[again[y].args[0]], matrices[int(again[y].leaf)]
            dy = dy.expand(B, matrix.shape[0] if again[y].op == "product" else matrix.shape[1])
            a = a.expand(B, matrix.shape[1] if again[y].op == "product" else matrix.shape[0])
            flat.append((matrix, dy.T @ a if again[y].op == "product" else a.T @ dy))
    with torch.enable_grad():
        reached = [(leaf, slope) for leaf, slope in flat if leaf.requires_grad]
        got: Sequence[Tensor | None] = [None] * len(given)
        if reached:
            leaves_reached, their_slopes = zip(*reached, strict=True)
            got = torch.autograd.grad(leaves_reached, given, their_slopes, allow_unused=True)
    for leaf, ours_of, theirs in zip(given, got, wanted, strict=True):
        zero = torch.zeros_like(leaf)
        ours_of, theirs = zero if ours_of is None else ours_of, zero if theirs is None else theirs
        if not torch.allclose(ours_of, theirs, rtol=1e-7, atol=1e-7, equal_nan=True):
            raise NotPointwiseError(f"{type(cell).__name__}.step has a derivative that is not that of its formula")


def _groups(terms: StageTerms) -> list[int]:
    return [1, *(int(node.leaf) for node in terms.nodes if node.op in BARRIERS[2:])]


def _copy(terms: StageTerms) -> StageTerms:
    made = StageTerms()
    made.nodes, made._index = list(terms.nodes), dict(terms._index)
    made.sizes, made.matrices = dict(terms.sizes), list(terms.matrices)
    return made


def weight_rows(weights: Any, rows: Sequence[tuple[str, int | None]], training: Tensor) -> list[Tensor]:
    """Return the vectors that a step reads: weights, rows of them, bias_hh gate by gate, and whether it is training."""
    split: dict[str, Sequence[Tensor]] = {}
    found = []
    for name, row in rows:
        if not name:
            found.append(training)
        elif row is None:
            found.append(weights[name])
        else:
            if name not in split:
                whole: Tensor = weights[name]
                split[name] = (whole.view(-1, training.shape[-1]) if whole.dim() == 1 else whole).unbind(0)
            found.append(split[name][row])
    return found


def weight_matrices(cell: Cell, weights: Any, matrices: Sequence[Matrix]) -> list[Tensor]:
    """Return the matrices that a step multiplies by: the blocks of W gate by gate, and extra weights."""
    blocks: dict[str, Sequence[Tensor]] = {}
    if any(matrix.name == "weight_hh" for matrix in matrices):
        dense = cell.dense(weights["weight_hh"])
        blocks["weight_hh"] = dense.unflatten(0, (len(cell.recurrent_gates), -1)).unbind(0)
    if any(matrix.name == "weight_ih" for matrix in matrices):
        blocks["weight_ih"] = weights["weight_ih"].unflatten(0, (len(cell.gates), -1)).unbind(0)
    return [weights[m.name] if m.block < 0 else blocks[m.name][m.block] for m in matrices]


def _prepared(terms: StageTerms, states: list[int], rows: list[tuple[str, int | None]]) -> StagedStep:
    """Replace every value that depends on vectors of weights only by a leaf `w`: PyTorch computes it once per scan."""
    uniform = set()
    for value, node in enumerate(terms.nodes):
        pointwise = node.op not in BARRIERS
        if node.op in ("w", "number") or (pointwise and node.args and all(arg in uniform for arg in node.args)):
            uniform.add(value)
    made, renamed, prepared = StageTerms(), dict[int, int](), list[int]()
    made.sizes = {key: size for key, size in terms.sizes.items() if key[0] != "w"}
    made.matrices = terms.matrices

    def prepare(value: int) -> None:
        if value not in renamed:
            made.sizes["w", len(prepared)] = terms.width(value) or "H"
            renamed[value] = made.leaf("w", len(prepared))
            prepared.append(value)

    for value in terms.reached_from(states):
        op, args, leaf = terms[value]
        if op == "number":
            renamed[value] = made.number(leaf)
        elif value in uniform:
            continue
        elif not args:
            renamed[value] = made.leaf(op, int(leaf))
        else:
            for arg in args:
                if arg in uniform and terms[arg].op != "number":
                    prepare(arg)
            if op in BARRIERS:
                renamed[value] = made._make(Node(op, tuple(renamed[arg] for arg in args), leaf))
            else:
                renamed[value] = made(op, *(renamed[arg] for arg in args))
    for state in states:
        if state not in renamed:
            prepare(state)
    vectors = Expressions()
    vectors.nodes, vectors._index = list(terms.nodes), dict(terms._index)
    return StagedStep(made, [renamed[state] for state in states], vectors, prepared, rows)

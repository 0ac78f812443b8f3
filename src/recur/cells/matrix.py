"""The contract of a cell with a matrix state: one step over S, a K × V matrix per head.

A matrix cell names its inputs with their sizes and writes one step over them:

    x.q               the input projection of q at this step, (…, heads, K)
    S.scale(a)        diag(a) S; a is a number per head, or a vector over K. S.scale(log=g) is S.scale(exp(g))
    S.write(k, y)     S + k yᵀ
    S.read(q)         Sᵀ q, (…, heads, V)

`a * S`, `S + outer(k, y)` and `q @ S` are the same three operations. The step returns the new state and the output,
(…, heads, V). What is written may contain what was read (the delta rule); the output may be any function of it.

Called with tensors, the operations compute one step: this is the definition, which the backend `loop` repeats.
`recur.compiler.matrix` calls the same step once for all tokens with a symbolic S and derives the chunkwise form.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from recur.cells.cell import Cell, Weights
from recur.cells.tensors import Tensors
from recur.errors import CellError, OptionError, ShapeError

HEAD_SIZE = 64
"""The size of a head unless `num_heads` is given; the nearest divisor of H if this is none."""


class Dims(NamedTuple):
    """Sizes of a matrix state for one number of units H."""

    heads: int
    K: int
    V: int
    columns: int
    """V and the additional columns of the state."""


class Outer(NamedTuple):
    """The outer product k yᵀ, not yet added to a state."""

    k: Any
    y: Any

    def __neg__(self) -> Outer:
        return Outer(-self.k, self.y)


def outer(k: Any, y: Any) -> Outer:
    """Return k yᵀ, which `S + outer(k, y)` writes."""
    return Outer(k, y)


class MatrixState:
    """State S of one step, (…, heads, K, V). All operations return new states.

    A state with a stabiliser m stands for e^m S: `scale(log=…)` and `write(…, log=…)` then take the logarithms of
    unbounded gates, and m keeps all stored numbers finite.
    """

    def __init__(self, S: Tensor, m: Tensor | None = None) -> None:
        self.S, self._m = S, m

    @property
    def m(self) -> Tensor:
        """The stabiliser, (…, heads, 1): what is stored and read is divided by e^m."""
        if self._m is None:
            raise CellError("the state has no stabiliser m; declare `stabilised = True`")
        return self._m

    def scale(self, a: Any = None, *, log: Any = None) -> MatrixState:
        """Return diag(a) S. a is (…, heads, 1), (…, heads, K) or a number; `log` is its logarithm."""
        self._check_scale(a, log)
        if self._m is not None:
            if log is None or torch.as_tensor(log).shape[-1:] not in ((), (1,)):
                raise CellError("a stabilised state is scaled by S.scale(log=…), one number per head")
            return MatrixState(self.S, self._m + log)
        factor = torch.exp(log) if a is None else a
        if isinstance(factor, Tensor) and factor.dim() < self.S.dim():
            factor = factor[..., None]
        return MatrixState(factor * self.S)

    def write(self, k: Any, y: Any, *, log: Any = None) -> MatrixState:
        """Return S + e^log k yᵀ. `log` needs a stabilised state."""
        if log is None:
            if self._m is not None:
                raise CellError("a stabilised state is written by S.write(k, y, log=…)")
            return MatrixState(self.S + k[..., None] * y[..., None, :])
        m = torch.maximum(self.m, log)
        old = torch.exp(self.m - m)[..., None]
        return MatrixState(old * self.S + (torch.exp(log - m) * k)[..., None] * y[..., None, :], m)

    def read(self, q: Any) -> Any:
        """Return Sᵀ q, (…, heads, V); of a stabilised state, divided by e^m."""
        return (q[..., None] * self.S).sum(-2)

    @staticmethod
    def _check_scale(a: Any, log: Any) -> None:
        if (a is None) == (log is None):
            raise CellError("S.scale takes the decay a, or log=its logarithm")

    def __mul__(self, a: Any) -> MatrixState:
        return self.scale(a)

    __rmul__ = __mul__

    def __add__(self, written: Any) -> MatrixState:
        if not isinstance(written, Outer):
            raise CellError(f"only outer(k, y) can be added to the state S, got {type(written).__name__}")
        return self.write(written.k, written.y)

    __radd__ = __add__

    def __sub__(self, written: Any) -> MatrixState:
        return self + (-written if isinstance(written, Outer) else written)

    def __rmatmul__(self, q: Any) -> Any:
        return self.read(q)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Handle `tensor @ S`, `tensor * S`; refuse every other function of S with its name."""
        name = getattr(func, "__name__", str(func)).strip("_")
        if len(args) == 2 and isinstance(args[1], MatrixState):
            if name in ("matmul", "rmatmul"):
                return args[1].read(args[0])
            if name in ("mul", "rmul"):
                return args[1].scale(args[0])
        raise CellError(
            f"the step applies {name} to the state S, which is not linear in S; "
            "use S.scale, S.write and S.read (or a * S, S + outer(k, y), q @ S)"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise CellError(
            f"the step uses S.{name}; a state has S.scale(a), S.write(k, y) and S.read(q): anything else is not linear"
        )


@dataclass
class HeadedCell(Cell):
    """Base of cells with a K × V matrix per head: inputs of different widths, states that are carried flat.

    >>> recur.make_cell("kda:num_heads=2,key_size=3").dims(8)         # K is 3, V is 8 / 2
    Dims(heads=2, K=3, V=4, columns=4)
    """

    num_heads: int = 0
    """The number of heads; 0 for heads of about 64 units."""
    key_size: int = 0
    """The size K of a key; 0 for that of a value, V."""

    inputs: ClassVar[Mapping[str, str | int]] = {}
    call_inputs: ClassVar[Mapping[str, str | int]] = {}  # a call gives nothing but x
    """The input projections by name, and their size per head: "K", "V" or a number."""

    shared: ClassVar[tuple[str, ...]] = ()
    """The inputs that all heads share: (…, 1, size)."""

    columns: ClassVar[int] = 0
    """Columns of S in addition to V, such as one for a normaliser."""

    state_gates = ()
    states = ("h", "S")
    initial = {"h": 0.0}
    pointwise = False
    sizes = ("H", "D", "heads", "K", "V")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if isinstance(declared := vars(cls).get("inputs"), Mapping):
            cls.gates = tuple(declared)
        super().__init_subclass__(**kwargs)

    def __post_init__(self) -> None:
        for name in ("num_heads", "key_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise OptionError(f"{type(self).__name__}: {name} must be a whole number ≥ 0, got {value!r}")
        found: object = getattr(self, "inputs", None)
        if not isinstance(found, Mapping) or not found:
            raise CellError(
                f'{type(self).__name__}.inputs must map names to sizes, such as {{"q": "K", "v": "V", "f": 1}}'
            )
        for name, size in found.items():
            if size not in ("K", "V") and not (isinstance(size, int) and size > 0):
                raise CellError(f'{type(self).__name__}.inputs[{name!r}] must be "K", "V" or a number, got {size!r}')
        self.gates = tuple(found)

    # Sizes ------------------------------------------------------------------------------------------------

    def dims(self, H: int) -> Dims:
        """Return the sizes for H units."""
        heads = self.num_heads or H // nearest_divisor(H, HEAD_SIZE)
        if H % heads:
            raise OptionError(f"hidden_size {H} cannot be divided into {heads} heads")
        V = H // heads
        return Dims(heads, self.key_size or V, V, V + self.columns)

    def gate_widths(self, H: int) -> list[int]:
        """Return the widths of the input projections."""
        dims = self.dims(H)
        size_of = {"K": dims.K, "V": dims.V}
        sizes = ((name, size_of[size] if isinstance(size, str) else size) for name, size in self.inputs.items())
        return [size if name in self.shared else dims.heads * size for name, size in sizes]

    def units(self, rows: int) -> int:
        """Return H for weight_ih with this number of rows."""
        inputs = tuple(zip(self.inputs.items(), (name in self.shared for name in self.inputs), strict=True))
        fitting = _fitting(inputs, self.num_heads, self.key_size, rows)
        if not fitting:
            who = type(self).__name__
            raise ShapeError(f"{who}: weight_ih has {rows} rows, which fit no hidden size of this cell")
        return fitting[0]

    def shapes(self, D: int, H: int, bias: bool = True, projection: int = 0) -> dict[str, tuple[int, ...]]:
        rows, dims = sum(self.gate_widths(H)), self.dims(H)
        if (other := self.units(rows)) != H:
            who = type(self).__name__
            raise OptionError(f"{who}: hidden_size {H} has weights of the same shape as {other}; give num_heads")
        sizes = {"H": H, "D": D, "heads": dims.heads, "K": dims.K, "V": dims.V}
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, D)}
        if bias:
            shapes["bias_ih"] = (rows,)
        return shapes | {
            name: tuple(sizes[size] if isinstance(size, str) else size for size in shape)
            for name, shape in self.extras.items()
        }

    def widths(self, H: int, projection: int = 0) -> tuple[int, ...]:
        dims = self.dims(H)
        return (H, dims.heads * dims.K * dims.columns, *[dims.heads] * (len(self.states) - 2))

    def split(self, share: Tensor) -> Sequence[Tensor]:
        H = self.units(share.shape[-1])
        heads = self.dims(H).heads
        parts: Sequence[Tensor] = share.split(self.gate_widths(H), dim=-1)
        return [
            part.unflatten(-1, (1 if name in self.shared else heads, -1))
            for name, part in zip(self.gates, parts, strict=True)
        ]

    def blocks(self, rows: Tensor) -> Sequence[Tensor]:
        blocks: Sequence[Tensor] = rows.split(self.gate_widths(self.units(len(rows))))
        return blocks

    def init_extras(self, weights: Weights) -> None:
        """Initialise extra weights: 1 for those named `norm`, as torch's default otherwise."""
        for name in self.extras:
            if name == "norm":
                torch.nn.init.ones_(weights[name])
            else:
                bound = weights[name].shape[-1] ** -0.5
                torch.nn.init.uniform_(weights[name], -bound, bound)


@dataclass
class MatrixCell(HeadedCell):
    """Recurrence with a matrix state per head. Subclass it, declare `inputs`, write `step(self, x, S)`.

    The size V of a head is H / heads, K is `key_size`, or V by default. States are carried flat: h (…, H), the output,
    and S (…, heads · K · V).

    >>> class Fast(recur.MatrixCell):
    ...     inputs = {"q": "K", "k": "K", "v": "V", "f": 1}
    ...     def step(self, x, S):
    ...         S = S.scale(torch.sigmoid(x.f)).write(x.k, x.v)
    ...         return S, S.read(x.q)
    >>> net = recur.Recurrent(Fast(num_heads=2), 3, 8)
    >>> net(torch.randn(2, 50, 3)).trace[0].backend
    'chunk'
    """

    stabilised: ClassVar[bool] = False
    """Whether S has a stabiliser m for exponential gates; see MatrixState."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if vars(cls).get("stabilised"):
            setattr(cls, "states", ("h", "S", "m"))  # noqa: B010  # of another length than above
            cls.initial = {"h": 0.0, "m": 0.0}
        super().__init_subclass__(**kwargs)

    @property
    def arguments(self) -> str:
        return "x, S, w" if self.extras else "x, S"

    # One step ---------------------------------------------------------------------------------------------

    def call_step(self, x: Tensors, S: Any, w: Tensors) -> tuple[Any, Any]:
        """Run the step on any kind of state, and check that it returns a state of that kind and an output."""
        result = self.step(x, S, w) if self.extras else self.step(x, S)
        if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[0], MatrixState):
            named = "the state alone" if isinstance(result, MatrixState) else type(result).__name__
            got = f"{len(result)} values" if isinstance(result, tuple | list) else named
            raise CellError(f"{type(self).__name__}.step must return the state and the output, (S, o), got {got}")
        return result[0], result[1]

    def advance(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> Sequence[Tensor]:
        dims = self.dims(s[0].shape[-1])
        S = s[1].unflatten(-1, (dims.heads, dims.K, dims.columns))
        state, o = self.call_step(x, MatrixState(S, s[2][..., None] if self.stabilised else None), w)
        self.check_output(o, (*s[0].shape[:-1], dims.heads, dims.V))
        after = [o.flatten(-2), state.S.expand(S.shape).flatten(-3)]
        return [*after, state.m.expand(*s[2].shape, 1).squeeze(-1)] if self.stabilised else after

    def check_output(self, o: object, shape: tuple[int, ...]) -> None:
        if not isinstance(o, Tensor) or tuple(o.shape) != shape:
            got = f"a tensor {tuple(o.shape)}" if isinstance(o, Tensor) else type(o).__name__
            raise CellError(f"{type(self).__name__}.step must return an output of {shape}, (…, heads, V), got {got}")


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of `number` whose ratio to `wanted` is nearest to 1."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return min((*small, *(number // d for d in small)), key=lambda d: abs(math.log(d / wanted)))


@functools.cache
def _fitting(
    inputs: tuple[tuple[tuple[str, str | int], bool], ...], num_heads: int, key_size: int, rows: int
) -> list[int]:
    """Return the hidden sizes whose input projections have this number of rows, heads of about 64 units first."""
    found = []
    for H in range(num_heads or 1, rows + 1, num_heads or 1):
        heads = num_heads or H // nearest_divisor(H, HEAD_SIZE)
        V = H // heads
        size_of = {"K": key_size or V, "V": V}
        sizes = ((size_of[size] if isinstance(size, str) else size, shared) for (_, size), shared in inputs)
        if sum(size if shared else heads * size for size, shared in sizes) == rows:
            found.append(H)
    return sorted(found, key=lambda H: abs(math.log(nearest_divisor(H, HEAD_SIZE) / HEAD_SIZE)))


# Functions that many steps use ----------------------------------------------------------------------------


def unit(k: Any, eps: float = 1e-6) -> Any:
    """Return k divided by its length, per head."""
    return k * torch.rsqrt(k.square().sum(-1, keepdim=True) + eps)


def head_norm(o: Any, gain: Any = None, eps: float = 1e-5) -> Any:
    """Return o divided by its root mean square, per head (RMSNorm), times a gain."""
    normed = o * torch.rsqrt(o.square().mean(-1, keepdim=True) + eps)
    return normed if gain is None else normed * gain

"""Steps over a matrix state in normal form: one call of the step with a symbolic S, for all tokens at once.

    S' = diag(a) S + Σ_j p_j y_jᵀ      e_i = Sᵀ r_i      y_j = u_j + Σ_i A_ji e_i

S is the state before the step; the reads e_i are unknown until the chunks are solved (`recur.ops.chunk`). Reading an
intermediate state expands by linearity: (diag(a) S + p yᵀ)ᵀ q = Sᵀ (a q) + (pᵀ q) y. A function of a read that is not
linear is postponed until the reads are known: it may reach the output, and is refused where it would be written to S.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from recur.cells._cache import cache_of
from recur.cells.matrix import MatrixCell, MatrixState
from recur.cells.tensors import Tensors
from recur.errors import CellError, RecurError


class NotLinearError(CellError):
    """A step whose new state is not linear in the old one, or has no chunkwise form; the message is the reason."""


CLASSES = ("none", "scalar", "vector")
"""The classes of decay that have a chunkwise form, by how much they need: 1, one a, K numbers per head."""


@dataclass
class NormalForm:
    """The coefficients of a step for all tokens; B rows, T steps."""

    decay: str
    """The class of the decay: none, scalar or vector."""
    log_a: Tensor | None
    """(B, T, heads, 1 or K): the logarithm of the decay; None without one."""
    P: list[Tensor]
    """(B, T, heads, K) each: the keys that are written."""
    R: list[Tensor]
    """(B, T, heads, K) each: the keys that are read."""
    U: list[Tensor | None]
    """(B, T, heads, V) each: the part of what is written that no read enters."""
    A: list[dict[int, Tensor | float]]
    """For every write, the coefficient of each read, (B, T, heads, 1)."""
    output: Any
    """The output, with postponed reads."""
    m: Tensor | None = None
    """(B, T, heads): the stabiliser after every step."""
    notes: list[str] = field(default_factory=list)


class Postponed:
    """Value that depends on reads: a function and its arguments, called once the reads are known."""

    why = ""

    def __init__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.why = getattr(func, "__name__", str(func)).strip("_")

    def resolve(self, reads: list[Tensor]) -> Any:
        args, kwargs = (_resolved(part, reads) for part in (self.args, dict(self.kwargs)))
        return self.func(*args, **kwargs)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        affine = AFFINE.get(getattr(func, "__name__", "").strip("_"))
        if affine is not None and not kwargs and len(args) == 2:
            return affine(*args)
        return Postponed(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not callable(getattr(Tensor, name, None)):
            raise AttributeError(
                f"what was read from S has no attribute {name!r} yet: it is known only after all writes; "
                "take sizes from the inputs"
            )
        method = getattr(Tensor, name)
        return lambda *args, **kwargs: Postponed.__torch_function__(method, (), (self, *args), kwargs)

    def __getitem__(self, index: Any) -> Any:
        return Postponed(Tensor.__getitem__, (self, index), {})

    def __add__(self, other: Any) -> Any:
        return _add(self, other)

    def __radd__(self, other: Any) -> Any:
        return _add(other, self)

    def __sub__(self, other: Any) -> Any:
        return _subtract(self, other)

    def __rsub__(self, other: Any) -> Any:
        return _subtract(other, self)

    def __mul__(self, other: Any) -> Any:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _divide(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return Postponed(torch.div, (other, self), {})

    def __neg__(self) -> Any:
        return _multiply(self, -1.0)


class Read(Postponed):
    """Row over V that is affine in the reads: u + Σ_i c_i e_i, with one number c_i per token and head."""

    def __init__(self, u: Any, c: dict[int, Any]) -> None:
        self.u, self.c = u, c

    def resolve(self, reads: list[Tensor]) -> Any:
        total = self.u
        for i, c in self.c.items():
            term = reads[i] if isinstance(c, float) and c == 1 else c * reads[i]
            total = term if total is None else total + term
        return total


def _resolved(value: Any, reads: list[Tensor]) -> Any:
    if isinstance(value, Postponed):
        return value.resolve(reads)
    if isinstance(value, tuple | list):
        return type(value)(_resolved(part, reads) for part in value)
    if isinstance(value, dict):
        return {key: _resolved(part, reads) for key, part in value.items()}
    return value


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, Read) and isinstance(b, Read):
        joined = {i: _sum(a.c.get(i), b.c.get(i)) for i in {**a.c, **b.c}}
        return Read(_sum(a.u, b.u), joined)
    if type(a) is Postponed or type(b) is Postponed:
        return Postponed(torch.add, (a, b), {})
    return Read(_sum(a.u, b), a.c) if isinstance(a, Read) else Read(_sum(a, b.u), b.c)


def _subtract(a: Any, b: Any) -> Any:
    if type(a) is Postponed or type(b) is Postponed:
        return Postponed(torch.sub, (a, b), {})
    return _add(a, _multiply(b, -1.0) if isinstance(b, Read) else -b)


def _multiply(a: Any, b: Any) -> Any:
    read, factor = (a, b) if isinstance(a, Read) else (b, a)
    if isinstance(read, Read) and not isinstance(factor, Postponed):
        if not isinstance(factor, Tensor) or factor.shape[-1:] in ((), (1,)):
            return Read(None if read.u is None else read.u * factor, {i: c * factor for i, c in read.c.items()})
        found = Postponed(torch.mul, (a, b), {})
        found.why = "multiplied by a vector over V"
        return found
    return Postponed(torch.mul, (a, b), {})


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, Read) and not isinstance(b, Postponed):
        return _multiply(a, 1 / b)
    return Postponed(torch.div, (a, b), {})


AFFINE: dict[str, Callable[..., Any]] = {
    "add": _add, "radd": lambda a, b: _add(b, a), "sub": _subtract, "subtract": _subtract,
    "rsub": lambda a, b: _subtract(b, a), "mul": _multiply, "multiply": _multiply, "rmul": _multiply,
    "div": _divide, "truediv": _divide, "true_divide": _divide,
}  # fmt: skip


Maximum = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass
class Tape:
    """What the symbolic states of one trace share."""

    like: Tensor
    """(B, T, heads, 1), of the dtype and device of the inputs."""
    K: int
    pad: Tensor | None
    """(B, T, 1, 1), bool: steps after the end of a row, which must leave the state as it is."""
    m_start: Tensor | None
    """(B, heads, 1): the stabiliser before the first step."""
    maximum: Maximum
    """Computes the stabiliser of every step, and that before every step."""
    reads: list[Tensor] = field(default_factory=list)
    decay: str = "none"
    m: Tensor | None = None


class SymbolicState(MatrixState):
    """S of a trace: diag(a) S₀ + Σ_j p_j y_jᵀ, with S₀ the state before the step."""

    def __init__(self, tape: Tape, log_a: Tensor | None = None, writes: tuple[tuple[Tensor, Any], ...] = ()) -> None:
        self._tape, self._log_a, self._writes = tape, log_a, writes

    @property
    def m(self) -> Tensor:
        """The stabiliser after the write of this step."""
        if self._tape.m_start is None:
            raise CellError("the state has no stabiliser m; declare `stabilised = True`")
        if self._tape.m is None:
            raise NotLinearError("the stabiliser m is read before the write, where it has no parallel form")
        return self._tape.m

    def scale(self, a: Any = None, *, log: Any = None) -> SymbolicState:
        self._check_scale(a, log)
        tape = self._tape
        if isinstance(a, Postponed) or isinstance(log, Postponed):
            raise NotLinearError("its decay depends on what was read from S: not linear in S")
        if tape.m_start is not None and (self._writes or self._log_a is not None):
            raise NotLinearError("a stabilised state has a chunkwise form for one scale before one write")
        found = _log(tape.like.new_tensor(a) if not isinstance(a, Tensor) else a) if log is None else log
        found = found if isinstance(found, Tensor) else tape.like.new_tensor(found)
        if found.dim() > tape.like.dim():
            raise NotLinearError(
                "its decay is a full K × V matrix: an element-wise recurrence without a chunkwise form"
            )
        if found.shape[-1:] not in ((), (1,), (tape.K,)):
            raise CellError(f"S.scale takes one number per head or K={tape.K}, got {tuple(found.shape)}")
        if found.shape[-1:] == (tape.K,) and tape.K > 1:
            tape.decay = "vector"
        elif tape.decay == "none":
            tape.decay = "scalar"
        found = found.expand(torch.broadcast_shapes(found.shape, tape.like.shape))
        if tape.m_start is None:  # e^log is 0 there; the gradient would be a rounding error times the logarithm
            found = found.clamp_min(math.log(torch.finfo(found.dtype).tiny))
        if tape.pad is not None:
            found = found.masked_fill(tape.pad, 0.0)
        factor = found.exp() if self._writes else None
        writes = tuple((p * factor, y) for p, y in self._writes) if factor is not None else ()
        return SymbolicState(tape, found if self._log_a is None else self._log_a + found, writes)

    def write(self, k: Any, y: Any, *, log: Any = None) -> SymbolicState:
        tape, log_a = self._tape, self._log_a
        if isinstance(k, Postponed) or isinstance(log, Postponed):
            raise NotLinearError("it writes along a key that depends on what was read from S: not linear in S")
        if type(y) is Postponed:
            raise NotLinearError(f"it writes {y.why} of what was read from S: not linear in S with a number per head")
        if log is not None:
            k, log_a = self._stabilise(k, log)
        elif tape.m_start is not None:
            raise CellError("a stabilised state is written by S.write(k, y, log=…)")
        k = k.expand(torch.broadcast_shapes(k.shape, (*tape.like.shape[:-1], tape.K)))
        if tape.pad is not None:
            k = k.masked_fill(tape.pad, 0.0)
        return SymbolicState(tape, log_a, (*self._writes, (k, y)))

    def _stabilise(self, k: Any, log: Any) -> tuple[Tensor, Tensor]:
        """Return the key and the decay divided by e^m; m is a running maximum, computed for all tokens."""
        tape = self._tape
        if tape.m_start is None:
            raise CellError(
                "the state has no stabiliser m, which S.write(k, y, log=…) needs; declare `stabilised = True`"
            )
        if self._writes:
            raise NotLinearError("a stabilised state has a chunkwise form for one scale before one write")
        log = log.expand(torch.broadcast_shapes(log.shape, tape.like.shape))
        log_f = torch.zeros_like(tape.like) if self._log_a is None else self._log_a
        if tape.pad is not None:
            log = log.masked_fill(tape.pad, -torch.inf)
        m, before = tape.maximum(log_f, log, tape.m_start)
        tape.m, tape.decay = m, "scalar"
        return k * torch.exp(log - m), log_f + before - m

    def read(self, q: Any) -> Any:
        tape = self._tape
        if isinstance(q, Postponed):
            raise NotLinearError("it reads along a key that depends on what was read from S: not linear in S")
        q = q.expand(torch.broadcast_shapes(q.shape, (*tape.like.shape[:-1], tape.K)))
        tape.reads.append(q if self._log_a is None else q * self._log_a.exp())
        found: Any = Read(None, {len(tape.reads) - 1: 1.0})
        for p, y in self._writes:
            c = (p * q).sum(-1, keepdim=True)
            found = found + (_multiply(y, c) if isinstance(y, Read) else y * c)
        return found


def running_maximum(log_f: Tensor, log_i: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """Return m_t = max(log f_t + m_{t−1}, log i_t) and m_{t−1} for all t, (B, T, …), from m_0 (B, …)."""
    F = log_f.cumsum(1)
    m = F + torch.maximum((log_i - F).cummax(1).values, start[:, None])
    return m, torch.cat([start[:, None], m[:, :-1]], dim=1)


def _log(a: Tensor) -> Tensor:
    """Return log a. Where a = 0, the logarithm of a tiny number, with the gradient of a chunkwise form of a itself."""
    tiny = torch.finfo(a.dtype).tiny ** 0.5
    with torch.no_grad():
        if bool((a < 0).any()):
            raise NotLinearError("a decay is negative, and the chunkwise form needs its logarithm")
    return torch.log(a.clamp_min(tiny))


def trace_matrix(
    cell: MatrixCell,
    x: Tensors,
    w: Tensors,
    K: int,
    pad: Tensor | None = None,
    m_start: Tensor | None = None,
    maximum: Maximum = running_maximum,
) -> NormalForm:
    """Call the step with all tokens, x (B, T, heads, …), and return its normal form."""
    heads = next((part.shape[-2] for part, name in zip(x, x._fields, strict=True) if name not in cell.shared), 1)
    lead = x[0].shape[:2]
    tape = Tape(x[0].new_zeros(1).expand(*lead, heads, 1), K, pad, m_start, maximum)
    try:
        state, output = cell.call_step(x, SymbolicState(tape), w)
    except RecurError:
        raise
    except AttributeError as error:
        raise NotLinearError(str(error)) from error
    assert isinstance(state, SymbolicState)
    full = (*tape.like.shape[:-1], K)
    form = NormalForm(tape.decay, state._log_a, [], tape.reads, [], [], output, tape.m)
    for p, y in state._writes:
        form.P.append(p.expand(full))
        form.U.append(y.u if isinstance(y, Read) else y)
        form.A.append(y.c if isinstance(y, Read) else {})
    return form


def resolve_output(form: NormalForm, reads: list[Tensor]) -> Any:
    """Return the output, once the reads are known."""
    return _resolved(form.output, reads)


@dataclass(frozen=True)
class MatrixForm:
    """What the compiler found in the step of a matrix cell."""

    decay: str
    reads: int
    writes: int
    coupled: bool
    """Whether a write contains a read: then each chunk is one triangular system."""
    stabilised: bool

    @property
    def lines(self) -> list[str]:
        """The normal form as equations, and its class, for `recur cell`."""
        scaled = {"none": "S", "scalar": "a S", "vector": "diag(a) S"}[self.decay]
        names = [""] if self.writes == 1 else [f"_{j + 1}" for j in range(self.writes)]
        written = "".join(f" + p{n} y{n}ᵀ" for n in names)
        lines = [f"S' = {scaled}{written}", f"e_i = Sᵀ r_i, i = 1 … {self.reads}"]
        if self.coupled:
            lines.append("y contains reads: one unit lower triangular system per chunk")
        else:
            lines.append("y contains no read: linear attention, no system to solve")
        why = {
            "none": "no decay: no masks but the causal one",
            "scalar": "one number per head: masks from sums of log a",
            "vector": "a vector over K: sums of log a for each key, in chunks of 16",
        }[self.decay]
        lines.append(f"decay: {self.decay}, {why}")
        if self.stabilised:
            lines.append("stabiliser: m is a running maximum, computed for all tokens before the chunks")
        return lines


def matrix_form(cell: MatrixCell) -> MatrixForm | str:
    """Return the class of a cell's normal form, or why it has none."""
    cache = cache_of(cell)
    if cache.matrix is None:
        # Tracing must not see the modes of the caller's thread: transforms, exporting, inference mode.
        with ThreadPoolExecutor(1) as thread:
            cache.matrix = thread.submit(_find_form, cell).result()
    found: MatrixForm | str = cache.matrix
    return found


def _find_form(cell: MatrixCell) -> MatrixForm | str:
    H = cell.num_heads * 4 if cell.num_heads else 4
    dims = cell.dims(H)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        shapes = cell.shapes(2, H)
        share = torch.rand(1, 2, shapes["weight_ih"][0], generator=generator) * 0.5 + 0.25
        x = cell.tuple_of("x")._make(cell.split(share))
        w = cell.tuple_of("w")._make(torch.rand(shapes[name], generator=generator) for name in cell.extras)
        start = torch.zeros(1, dims.heads, 1) if cell.stabilised else None
        try:
            form = trace_matrix(cell, x, w, dims.K, m_start=start)
        except NotLinearError as error:
            return str(error)
    if not form.R or not form.P:
        return "its step never writes to S" if form.R else "its step never reads S"
    return MatrixForm(form.decay, len(form.R), len(form.P), any(form.A), form.m is not None)

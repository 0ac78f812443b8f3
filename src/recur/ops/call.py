"""Arguments of a scan: their checks, and one call as a backend sees it, with nothing left to decide."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recur.cells.cell import Cell, State, Weights, check_projection
from recur.compat import in_forward_mode, unwrap
from recur.errors import DeviceError, DtypeError, OptionError, ShapeError, shown, unknown
from recur.ops.bptt import BPTT
from recur.ops.packing import Packing
from recur.ops.trace import Trace

StepXi = float | Tensor | None
"""ξ of one step: None if it is 1, a number if all segments share it, otherwise a column."""


class _computed_once:  # used as a decorator
    """functools.cached_property without its lock, which torch.compile cannot trace."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.compute, self.name = compute, compute.__name__

    def __get__(self, call: Any, owner: type | None = None) -> Any:
        value = self.compute(call)
        setattr(call, self.name, value)  # found before this descriptor from now on
        return value


@dataclass
class ScanCall:
    """N steps of S segments in packed order: the rows of step k follow the rows of step k − 1."""

    cell: Cell
    weights: Weights
    x: Tensor
    """(B, T, D): the inputs."""
    packing: Packing | None
    """The order of the steps; None if all rows have all steps."""
    widths: tuple[int, ...]
    """The widths of the states: H, or P for a first state that is projected."""
    start: State | None
    """(S, H) each: the start of every segment, longest segment first. None is zero."""
    mask: Tensor | None
    """(S, H): multiplies the state that W multiplies, the same at every step."""
    xi: Tensor | None
    """(N,), float64, on the CPU: factors of the carried gradient. None is 1 everywhere."""
    bptt: BPTT
    dtype: torch.dtype
    """The dtype of the results. A backend may compute in another one."""
    trace: Trace
    matmul_dtype: str = ""
    """The dtype of matrix products, if not that of x: bfloat16 or int8."""
    autocast: bool = False
    """Whether autocast chose the dtype."""
    flipped: bool = False
    """Whether time runs backwards over unpacked rows."""
    copies: int = 1
    """The number of copies of the batch, of sliding truncation."""
    step_inputs: tuple[Tensor, ...] = ()
    """(N, size) each, in packed order: the inputs of each step, then its noise."""
    training: bool = False
    """Whether noise is drawn."""

    def to(self, dtype: torch.dtype) -> ScanCall:
        """Return the call with its tensors in another dtype."""
        return dataclasses.replace(
            self,
            weights={name: weight.to(dtype) for name, weight in self.weights.items()},
            x=self.x.to(dtype),
            start=None if self.start is None else tuple(part.to(dtype) for part in self.start),
            mask=None if self.mask is None else self.mask.to(dtype),
            step_inputs=tuple(part.to(dtype) for part in self.step_inputs),
        )

    @_computed_once
    def sizes(self) -> list[int]:
        """The number of segments that take step k; never increasing. The sum is N."""
        B, T, _ = self.x.shape
        return [B] * T if self.packing is None else self.packing.sizes

    @_computed_once
    def state(self) -> State:
        """(S, H) each: the start of every segment, zeros included."""
        return self.start if self.start is not None else self.cell.start(self.x, self.sizes[0], self.widths)

    @_computed_once
    def data(self) -> Tensor:
        """(N, D): the inputs in packed order."""
        if self.packing is not None:
            return self.packing.pack(self.x)
        return self.x.transpose(0, 1).reshape(-1, self.x.shape[-1])

    @_computed_once
    def edges(self) -> list[StepXi]:
        """ξ of every step; see `StepXi`."""
        if self.xi is None:
            return [None] * len(self.sizes)
        edges: list[StepXi] = []
        for xi in self.xi.split(self.sizes):
            column = xi.to(self.x.device, self.x.dtype)[:, None]
            if torch.compiler.is_compiling():  # a graph cannot depend on the numbers
                edges.append(column)
                continue
            first = float(xi[0])
            alike = bool((xi == first).all())
            edges.append((None if first == 1 else first) if alike else column)
        return edges


def split_inputs(call: ScanCall) -> list[tuple[Tensor, ...]]:
    """Return what every step reads as x besides its gates: inputs, noise, and whether it is training."""
    cell = call.cell
    if not (cell.call_inputs or cell.noise):
        return [()] * len(call.sizes)
    steps = list(zip(*(part.split(call.sizes) for part in call.step_inputs), strict=True))
    if not cell.noise:
        return steps
    training = call.x.new_full((), float(call.training))
    return [(*parts, training.expand(parts[-1].shape)) for parts in steps]


class FinalStates:
    """Collector of the states of segments that end: the shortest segments are last in the batch and end first."""

    def __init__(self) -> None:
        self._ended: list[Sequence[Tensor]] = []

    def end(self, state: Sequence[Tensor], still: int) -> Sequence[Tensor]:
        """Collect all but the first `still` segments, and return the states of the first ones."""
        if still == state[0].shape[0]:
            return state
        self._ended.append([part[still:] for part in state])
        return [part[:still] for part in state]

    def all(self, state: Sequence[Tensor]) -> State:
        if not self._ended:
            return tuple(state)
        return tuple(torch.cat(parts) for parts in zip(state, *reversed(self._ended), strict=True))


class ScaleGradient(torch.autograd.Function):
    """Identity in the forward pass; in the backward pass g ← ξ g, then g ← min(1, θ/‖g‖) g for each sequence.

    ‖g‖ is taken over all states of the cell: the carried gradient is one vector.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(xi: StepXi, clip: float | None, *states: Tensor) -> State:
        # A view, except in forward mode: PyTorch requires the tangent of a view to be a view too.
        return tuple(state.clone() if in_forward_mode() else state.view_as(state) for state in states)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: State) -> None:
        ctx.xi, ctx.clip = inputs[:2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        carried = list(grads) if ctx.xi is None else [grad * ctx.xi for grad in grads]
        if ctx.clip is not None:
            norm = torch.linalg.vector_norm(torch.cat(carried, dim=-1), dim=-1, keepdim=True)
            carried = [grad * (ctx.clip / norm.clamp_min(ctx.clip)) for grad in carried]
        return None, None, *carried


class ScaleTangent(ScaleGradient):
    """`ScaleGradient` with a forward-mode derivative, which torch.compile cannot trace."""

    @staticmethod
    def jvp(ctx: Any, _xi: None, _clip: None, *tangents: Tensor) -> State:
        """Multiply the tangent by ξ: the transpose of the backward pass."""
        if ctx.clip is not None:
            raise OptionError("bptt: clip bounds the gradient of a backward pass; a forward-mode derivative has none")
        return tuple(tangent * ctx.xi for tangent in tangents)


GivenState = Tensor | Sequence[Tensor]
"""A state as callers give it: one tensor if the cell has one state, otherwise a sequence or named tuple of tensors."""


def check_input(cell: Cell, x: object) -> tuple[int, int, int]:
    """Check x (B, T, D), and return B, T and D. `scan` gives a batch of no rows one row."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"{_who(cell)}: x must be a tensor (B, T, D), got {type(x).__name__}")
    check_dense(cell, "x", x)
    if x.dim() != 3:
        hint = {1: "; add batch and time with x[None, None]", 2: "; add a time axis with x[:, None]"}.get(x.dim(), "")
        raise ShapeError(f"{_who(cell)}: x must be (B, T, D), got {tuple(x.shape)}{hint}")
    if not x.is_floating_point():
        raise DtypeError(f"{_who(cell)}: x must hold real numbers, got {_dtype(x)}; use x.float() or an embedding")
    B, T, D = x.shape
    if B == 0 or T == 0 or D == 0:
        raise ShapeError(f"{_who(cell)}: x needs at least one sequence, step and number, got {tuple(x.shape)}")
    return B, T, D


def check_dense(cell: Cell, name: str, value: Tensor) -> Tensor:
    """Raise if a tensor is sparse or nested."""
    if value.layout is not torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        cure = "pad it, and give lengths" if value.is_nested else f"use {name}.to_dense()"
        raise DtypeError(f"{_who(cell)}: {name} must be a plain tensor, got a {kind} one; {cure}")
    return value


def check_weights(cell: Cell, weights: Weights, x: Tensor) -> tuple[int, ...]:
    """Check that all weights are there with fitting shapes, and return the widths of the states."""
    who, D = _who(cell), x.shape[-1]
    if not isinstance(weights, Mapping) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ShapeError(f"{who}: weights must map names to tensors, got {type(weights).__name__}; see cell.shapes")
    U = weights.get("weight_ih")
    if U is None or U.dim() != 2:
        raise ShapeError(f"{who}: weights must hold weight_ih of (G·H, D), got {_shapes(weights)}")
    H = cell.units(U.shape[0])
    if U.shape[1] != D:
        raise ShapeError(f"{who}: x must be (B, T, D={U.shape[1]}), got {tuple(x.shape)}")
    if H % cell.heads:
        raise ShapeError(f"{who}: H={H} units cannot be divided into {cell.heads} heads")
    projection = 0
    if "weight_hr" in weights:
        check_projection(cell)
        projection = weights["weight_hr"].shape[0] if weights["weight_hr"].dim() else 0
    expected = cell.shapes(D, H, bias="bias_ih" in weights or "bias_hh" in weights, projection=projection)
    if {name: value.shape for name, value in weights.items()} != expected:
        got = {name: tuple(value.shape) for name, value in weights.items()}
        wrong = [
            f"{name} {got.get(name, 'missing')} for {expected.get(name, 'none')}"
            for name in sorted({*expected, *got})
            if got.get(name) != expected.get(name)
        ]
        raise ShapeError(f"{who}: weights for D={D}, H={H} do not fit: {'; '.join(wrong)}")
    dtype, device = x.dtype, x.device
    for name, value in weights.items():
        if value.dtype != dtype or value.device != device or value.layout is not torch.strided:
            check_like(cell, name, value, x, weight=True)
    return cell.widths(H, projection)


def check_like(cell: Cell, name: str, value: Tensor, x: Tensor, weight: bool = False) -> None:
    """Raise if a tensor has another dtype or device than x; weight: it belongs to the layer, and x may be wrong."""
    check_dense(cell, name, value)
    if value.dtype != x.dtype:
        cure = f"x with x.to({value.dtype}) or the layer with layer.to({x.dtype})"
        cure = cure if weight else f"{name} with .to({x.dtype})"
        raise DtypeError(f"{_who(cell)}: x is {_dtype(x)} and {name} {_dtype(value)}; convert {cure}")
    if value.device != x.device:
        cure = f"x with x.to('{value.device}') or the layer with layer.to('{x.device}')"
        cure = cure if weight else f"{name} with .to('{x.device}')"
        raise DeviceError(f"{_who(cell)}: x is on {x.device} and {name} on {value.device}; move {cure}")


def check_state(cell: Cell, name: str, state: GivenState, B: int, widths: Sequence[int], x: Tensor) -> State:
    """Check a state, and return it as a tuple of (B, H) tensors; (H,) is expanded to all rows."""
    parts = (state,) if isinstance(state, Tensor) else state
    H = widths[-1]
    form = f"({', '.join(cell.states)}), each (B={B}, H={H})"
    if widths[0] != H:
        form = f"{form}, the first (B={B}, {widths[0]})"
    if not isinstance(parts, tuple | list) or not all(isinstance(part, Tensor) for part in parts):
        raise ShapeError(f"{_who(cell)}: {name} must be {form}, got {type(state).__name__}")
    if len(parts) != len(cell.states):
        raise ShapeError(f"{_who(cell)}: {name} must be {form}, got {len(parts)} tensors")
    for state_name, part, width in zip(cell.states, parts, widths, strict=True):
        check_dense(cell, f"{name}.{state_name}", part)
        if part.shape not in ((B, width), (width,)):
            raise ShapeError(
                f"{_who(cell)}: {name}.{state_name} must be (B={B}, H={width}) or (H,), got {tuple(part.shape)}"
            )
        check_like(cell, f"{name}.{state_name}", part, x)
    return tuple(part.expand(B, width) for part, width in zip(parts, widths, strict=True))


def check_step_inputs(cell: Cell, inputs: Mapping[str, Tensor] | None, x: Tensor, H: int) -> dict[str, Tensor]:
    """Check the inputs of each step, and return them by name as (B, T, size).

    `raw` is x itself, and an input that is not given is 1.
    """
    given = dict(inputs or {})
    names = [name for name in cell.call_inputs if name != "raw"]
    if strange := given.keys() - set(names):
        known = f"its inputs: {', '.join(names)}" if names else "it has none"
        raise OptionError(f"{_who(cell)} has no input {', '.join(sorted(strange))}; {known}")
    B, T, _ = x.shape
    found: dict[str, Tensor] = {}
    for name, size in cell.call_inputs.items():
        if name == "raw":
            found[name] = x
            continue
        width = 1 if size == 1 else H
        if name not in given:
            found[name] = x.new_ones(1, 1, 1).expand(B, T, width)
            continue
        part = given[name]
        if not isinstance(part, Tensor):
            raise ShapeError(f"{_who(cell)}: {name} must be a tensor (B, T), got {type(part).__name__}")
        part = part[..., None] if part.dim() == 2 and size == 1 else part
        if part.shape != (B, T, width):
            wanted = f"(B={B}, T={T})" if size == 1 else f"(B={B}, T={T}, H={H})"
            raise ShapeError(f"{_who(cell)}: {name} must be {wanted}, got {tuple(given[name].shape)}")
        check_like(cell, name, part, x)
        found[name] = part
    return found


def check_lengths(cell: Cell, lengths: Tensor | Sequence[int] | None, B: int, T: int) -> Tensor | None:
    """Check lengths, one per row in 0 … T, and return them on the CPU."""
    if lengths is None:
        return None
    if isinstance(lengths, Tensor):
        check_dense(cell, "lengths", lengths)
        lengths = _plain(cell, "lengths", lengths)
    try:
        given = torch.as_tensor(lengths, device="cpu")
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise OptionError(f"{_who(cell)}: lengths must be {B} whole numbers, got {shown(lengths)}") from error
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise DtypeError(f"{_who(cell)}: lengths must be whole numbers, got {_dtype(given)}")
    if given.shape != (B,):
        raise ShapeError(f"{_who(cell)}: lengths must be one for each row, (B={B},), got {tuple(given.shape)}")
    given = given.long()
    low, high = int(given.min()), int(given.max())
    if low < 0 or high > T:
        raise OptionError(f"{_who(cell)}: lengths must lie in 0 … T={T}, got {low if low < 0 else high}")
    return given


def check_reset(cell: Cell, reset: Tensor | None, B: int, T: int) -> Tensor | None:
    if reset is None:
        return None
    if not isinstance(reset, Tensor) or reset.dtype != torch.bool:
        got = _dtype(reset) if isinstance(reset, Tensor) else type(reset).__name__
        raise DtypeError(f"{_who(cell)}: reset must be a bool tensor (B={B}, T={T}), got {got}")
    check_dense(cell, "reset", reset)
    reset = _plain(cell, "reset", reset)
    if reset.shape != (B, T):
        raise ShapeError(f"{_who(cell)}: reset must be (B={B}, T={T}), got {tuple(reset.shape)}")
    return reset


MATMUL_DTYPES = ("bfloat16", "int8")


def check_matmul_dtype(matmul_dtype: str) -> str:
    """Raise if a matmul dtype is unknown; empty is the dtype of the data."""
    if not isinstance(matmul_dtype, str) or matmul_dtype not in ("", *MATMUL_DTYPES):
        raise OptionError(unknown("matmul_dtype", matmul_dtype, MATMUL_DTYPES))
    return matmul_dtype


def check_mask(cell: Cell, mask: Tensor, B: int, H: int, x: Tensor) -> None:
    if not cell.recurrent_gates:
        raise OptionError(f"{_who(cell)} has no product with W, so a mask on the recurrent state has nothing to act on")
    if cell.own_products:
        raise OptionError(f"{_who(cell)} multiplies its state inside the step too, where a mask does not reach")
    if not isinstance(mask, Tensor) or mask.shape != (B, H):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ShapeError(f"{_who(cell)}: mask must be (B={B}, H={H}), got {got}")
    check_like(cell, "mask", mask, x)


def _plain(cell: Cell, name: str, value: Tensor) -> Tensor:
    """Remove the wrappers of torch.func transforms from a tensor whose numbers decide which steps follow each other."""
    unwrapped = unwrap(value)
    if unwrapped is None:
        raise OptionError(
            f"{_who(cell)}: {name} must be the same for all samples of a vmap; give the samples to scan as its rows"
        )
    return unwrapped


def _who(cell: Cell) -> str:
    return type(cell).__name__


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _shapes(weights: Weights) -> str:
    return ", ".join(f"{name} {tuple(value.shape)}" for name, value in weights.items()) or "none"

"""Checks of the arguments of a scan: shapes, dtypes, devices and ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from recur.cells.cell import Cell, State, Weights, check_projection
from recur.compat import unwrap
from recur.errors import DeviceError, DtypeError, OptionError, ShapeError, shown, unknown

GivenState = Tensor | Sequence[Tensor]
"""A state as callers give it: one tensor if the cell has one state, otherwise a sequence or named tuple of tensors."""


def check_input(cell: Cell, x: object) -> tuple[int, int, int]:
    """Check x (B, T, D), and return B, T and D."""
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
    H, rest = divmod(U.shape[0], len(cell.gates))
    if rest or not H:
        raise ShapeError(f"{who}: weight_ih must have H rows for each of {len(cell.gates)} gates, got {U.shape[0]}")
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
            check_like(cell, name, value, x)
    return cell.widths(H, projection)


def check_like(cell: Cell, name: str, value: Tensor, x: Tensor) -> None:
    check_dense(cell, name, value)
    if value.dtype != x.dtype:
        raise DtypeError(
            f"{_who(cell)}: x is {_dtype(x)} and {name} {_dtype(value)}; "
            f"convert x with x.to({value.dtype}) or the layer with layer.to({x.dtype})"
        )
    if value.device != x.device:
        raise DeviceError(
            f"{_who(cell)}: x is on {x.device} and {name} on {value.device}; "
            f"move x with x.to('{value.device}') or the layer with layer.to('{x.device}')"
        )


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


def check_lengths(cell: Cell, lengths: Tensor | Sequence[int] | None, B: int, T: int) -> Tensor | None:
    """Check lengths, one per row in 1 … T, and return them on the CPU."""
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
    if low < 1 or high > T:
        raise OptionError(f"{_who(cell)}: lengths must lie in 1 … T={T}, got {low if low < 1 else high}")
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

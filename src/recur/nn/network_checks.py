"""What a recurrent network refuses: options that have nothing to act on, inputs and states of other shapes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from recur.errors import OptionError, ShapeError
from recur.ops import GivenState
from recur.ops.checks import check_dense

if TYPE_CHECKING:
    from recur.nn.recurrent import Recurrent


def check_dropout(net: Recurrent) -> None:
    who, drops = type(net.cell).__name__, net.dropout
    if drops.layers and net.layers == 1:
        warnings.warn("dropout acts between layers, and there is one layer", stacklevel=4)
    if (drops.state or drops.weights) and not net.cell.recurrent_gates:
        raise OptionError(f"{who} has no product with W for dropout of its state or weights to act on")
    if drops.state and net.cell.own_products:
        raise OptionError(f"{who} multiplies its state inside the step too, where dropout of the state cannot act")


def check_given(net: Recurrent, x: Tensor, state: Sequence[GivenState] | None) -> None:
    who, n = type(net.cell).__name__, len(net._names)
    if not isinstance(x, Tensor) or x.is_nested or x.dim() != 3 or x.shape[-1] != net.input_size:
        got: object = tuple(check_dense(net.cell, "x", x).shape) if isinstance(x, Tensor) else type(x).__name__
        hint = "; add a time axis with x[:, None]" if isinstance(x, Tensor) and x.dim() == 2 else ""
        raise ShapeError(f"{who}: x must be (B, T, D={net.input_size}), got {got}{hint}")
    if state is not None and (not isinstance(state, tuple | list) or len(state) != n):
        got = len(state) if isinstance(state, tuple | list) else type(state).__name__
        each = f"a tuple with one entry for each of {n} layers and directions"
        raise ShapeError(f"{who}: state must be {each}, got {got}")


def check_forward(net: Recurrent) -> None:
    if net.direction != "forward":
        raise OptionError(f"one step at a time needs direction='forward', this network has {net.direction!r}")

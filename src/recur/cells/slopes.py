"""Functions with a derivative of their own, for steps: spikes with surrogate gradients, and values without a gradient.

    custom(f, df)(v)      the value f(v), the derivative df(v)
    spike(v, "atan")      1 where v ≥ 0, else 0; the derivative is that of a smooth function
    detach(v)             v, without a gradient

A compiled step has them as nodes of its program; on tensors they are functions of autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from recur.errors import OptionError, unknown

Function = Callable[[Tensor], Tensor]


class _Custom(torch.autograd.Function):
    """The value y with the derivative `slope` with respect to v."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor, v: Tensor, slope: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.save_for_forward(inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        (slope,) = ctx.saved_tensors
        return None, grad * slope, None

    @staticmethod
    def jvp(ctx: Any, _y: Any, tangent: Tensor | None, _slope: Any) -> Tensor:
        (slope,) = ctx.saved_tensors
        return torch.zeros_like(slope) if tangent is None else tangent * slope


class LinearSteps:
    """Replacement of functions with a derivative of their own by their tangents, to check gradients by differences.

    The first call inside records every value y, argument v and slope d in order; later calls return y + d (v − v₀).
    """

    active: LinearSteps | None = None

    def __init__(self) -> None:
        self.recorded: list[tuple[Tensor, Tensor, Tensor]] = []
        self.position: int | None = None

    def __enter__(self) -> LinearSteps:
        LinearSteps.active = self
        self.position = 0 if self.recorded else None
        return self

    def __exit__(self, *_: object) -> None:
        LinearSteps.active = None

    def value(self, y: Tensor, v: Tensor, slope: Tensor) -> Tensor:
        if self.position is None:
            self.recorded.append((y.detach(), v.detach(), slope.detach()))
            return y.detach()
        y, before, slope = self.recorded[self.position]
        self.position += 1
        return y + slope * (v - before)


def custom_slope(y: Tensor, v: Tensor, slope: Tensor) -> Tensor:
    """Return y, with the derivative `slope` with respect to v and none with respect to anything else."""
    if LinearSteps.active is not None:
        return LinearSteps.active.value(y, v, slope)
    traced: Any = v
    if isinstance(traced, fx.Proxy):
        made: Any = traced.tracer.create_proxy("call_function", custom_slope, (y, v, slope), {})
        return made  # type: ignore[no-any-return]
    found: Tensor = _Custom.apply(y.detach(), v, slope)
    return found


def custom(f: Function, df: Function) -> Function:
    """Return a function with the values of f and the derivative df, both pointwise.

    >>> step = recur.cells.custom(lambda v: (v > 0).to(v.dtype), lambda v: torch.ones_like(v))  # straight-through
    >>> v = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> step(v).sum().backward()
    >>> v.grad
    tensor([1., 1.])
    """
    return lambda v: custom_slope(f(v), v, df(v))


def detach(v: Tensor) -> Tensor:
    """Return v without a gradient.

    >>> recur.cells.detach(torch.ones(2, requires_grad=True)).requires_grad
    False
    """
    if LinearSteps.active is not None:
        return LinearSteps.active.value(v, v, torch.zeros_like(v))
    return v.detach()


def _atan(v: Tensor, alpha: float) -> Tensor:
    return (alpha / 2) / (1 + (math.pi / 2 * alpha * v) ** 2)


def _fast_sigmoid(v: Tensor, alpha: float) -> Tensor:
    return 1 / (1 + alpha * torch.abs(v)) ** 2


def _sigmoid(v: Tensor, alpha: float) -> Tensor:
    y = torch.sigmoid(alpha * v)
    return alpha * y * (1 - y)


def _triangle(v: Tensor, alpha: float) -> Tensor:
    return alpha * torch.relu(1 - torch.abs(v))


def _straight_through(v: Tensor, alpha: float) -> Tensor:
    return torch.ones_like(v)


SURROGATES: dict[str, tuple[Callable[[Tensor, float], Tensor], float]] = {
    "atan": (_atan, 2.0),
    "fast_sigmoid": (_fast_sigmoid, 25.0),
    "sigmoid": (_sigmoid, 4.0),
    "triangle": (_triangle, 1.0),
    "straight_through": (_straight_through, 1.0),
}
"""Surrogate derivatives of a spike, and their default sharpness α.

    atan           α/2 / (1 + (π α v / 2)²)          Fang et al. 2021
    fast_sigmoid   1 / (1 + α |v|)²                  Zenke and Ganguli 2018
    sigmoid        α σ(α v) (1 − σ(α v))
    triangle       α max(0, 1 − |v|)                 Bellec et al. 2018
    straight_through   1
"""


def spike(v: Tensor, surrogate: str = "atan", alpha: float | None = None) -> Tensor:
    """Return 1 where v ≥ 0, else 0; the backward pass uses the derivative of a smooth surrogate.

    >>> v = torch.tensor([-0.5, 0.0, 3.0], requires_grad=True)
    >>> recur.cells.spike(v, "triangle")
    tensor([0., 1., 1.], grad_fn=<_CustomBackward>)
    """
    if surrogate not in SURROGATES:
        raise OptionError(unknown("surrogate", surrogate, SURROGATES))
    slope, usual = SURROGATES[surrogate]
    one = torch.where(v >= 0, torch.ones_like(v), torch.zeros_like(v))
    return custom_slope(one, v, slope(v, usual if alpha is None else alpha))

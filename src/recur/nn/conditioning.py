"""Recurrent networks with a context.

A context vector c (Deep Learning, section 10.2.4) reaches the network at every step, as the initial state, or both:

    input      h_t = f(U x_t + R c + W h_{t−1})      one bias per sequence
    initial    h_0 = tanh(B c + b)                   for every layer and every state of the cell

A sequence of contexts c_1 … c_T has one context per step:

    aligned    h_t = f(U x_t + R c_t + W h_{t−1})

If x_t is the previous output y_{t−1}, the outputs depend on each other; if it is constant, they are independent given
c. U and R are one matrix, the weight_ih of the cell, so that one product computes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from recur.cells import CellLike
from recur.errors import OptionError, ShapeError, unknown
from recur.nn.options import Depth
from recur.nn.output_recurrence import FeedForward
from recur.nn.recurrent import NetworkState, Recurrent, RecurrentOutput
from recur.ops import GivenState

CONDITIONING_MODES = ("none", "initial", "input", "both", "aligned")


class Conditioned(nn.Module):
    """`Recurrent` with a context of width C. Further keywords are options of `Recurrent`.

    >>> net = recur.nn.Conditioned("gru", 3, 4, context_size=5, way="input")     # R c at every step
    >>> net(torch.randn(2, 6, 3), torch.randn(2, 5)).outputs.shape
    torch.Size([2, 6, 4])
    """

    def __init__(
        self,
        cell: CellLike,
        input_size: int,
        hidden_size: int,
        context_size: int,
        way: str = "both",
        recurrence: str = "hidden",
        **options: Any,
    ) -> None:
        """Create the network.

        way          none, initial, input, both or aligned; see the module
        recurrence   "hidden"; or "output": hidden states do not read each other, and x_t must contain the previous
        output
        """
        super().__init__()
        if way not in CONDITIONING_MODES:
            raise OptionError(unknown("condition", way, CONDITIONING_MODES))
        if options.get("direction", "forward") != "forward":
            raise OptionError("a network with a context needs direction='forward': the context is its start")
        self.way, self.context_size = way, context_size
        self.by_input, self.by_start = way in ("input", "both", "aligned"), way in ("initial", "both")
        width = input_size + (context_size if self.by_input else 0)
        self.recurrent: Recurrent | FeedForward
        self.bridge: nn.Linear | None = None
        if recurrence == "output":
            if self.by_start:
                raise OptionError(f"a network without a hidden state has no h₀: take --condition input, got {way!r}")
            self.recurrent = FeedForward(width, hidden_size, depth=options.get("depth", Depth()))
            return
        self.recurrent = Recurrent(cell, width, hidden_size, **options)
        self._widths = [
            width
            for name, width in zip(self.recurrent.cell.states, self.recurrent.state_widths, strict=True)
            if name not in self.recurrent.cell.initial
        ]
        if self.by_start:
            like = {key: options[key] for key in ("device", "dtype") if key in options}
            self.bridge = nn.Linear(context_size, self.recurrent.layers * sum(self._widths), **like)

    def start(self, context: Tensor) -> NetworkState | None:
        """Return the initial state of every layer for a context (B, C); None for zeros."""
        net = self.recurrent
        if self.bridge is None or not isinstance(net, Recurrent):
            return None
        parts = iter(torch.tanh(self.bridge(context)).split(self._widths * net.layers, dim=-1))
        own = net.cell.start(context, context.shape[0], net.state_widths)
        return tuple(
            net.cell.state(
                [
                    part if name in net.cell.initial else next(parts)
                    for name, part in zip(net.cell.states, own, strict=True)
                ]
            )
            for _ in range(net.layers)
        )

    def forward(self, x: Tensor, context: Tensor, state: Sequence[GivenState] | None = None) -> RecurrentOutput:
        """Run the network over x (B, T, D) with a context (B, C), or (B, T, C) if `way` is aligned."""
        if state is None and self.by_start:
            state = self.start(context)
        recurred: RecurrentOutput = self.recurrent(self._beside(x, context), state)
        return recurred

    def step(self, x: Tensor, context: Tensor, state: Sequence[Sequence[Tensor]] | None) -> tuple[Tensor, NetworkState]:
        """Compute one step for inference: x (B, D) and the context of this step (B, C)."""
        if state is None and self.by_start:
            state = self.start(context)
        return self.recurrent.step(torch.cat([x, context], dim=-1) if self.by_input else x, state)

    def _beside(self, x: Tensor, context: Tensor) -> Tensor:
        if not self.by_input:
            return x
        if self.way != "aligned":
            context = context[:, None].expand(-1, x.shape[1], -1)
        if context.shape[:2] != x.shape[:2]:
            raise ShapeError(
                f"a context that is aligned has as many steps as the inputs, {x.shape[1]}; got {tuple(context.shape)}"
            )
        return torch.cat([x, context], dim=-1)

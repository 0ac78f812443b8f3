"""Deep transition: a cell with additional layers between the state and W."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, tanh
from torch.nn.functional import linear

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.errors import CellError, OptionError


@dataclass
class DeepTransition(Cell):
    """m = tanh(M_depth … tanh(M_1 h + k_1) … + k_depth)   (+ h, with skip)
    the step of the inner cell, with W m instead of W h

    Pascanu, Gulcehre, Cho and Bengio, How to construct deep recurrent neural networks, ICLR 2014; Deep Learning,
    section 10.5, figure 10.13 b, and 10.13 c with `skip`, a residual connection around the new layers. The layers mix
    units, so the cell is not pointwise: depth + 1 products in sequence.

    >>> net = recur.Recurrent(recur.cells.DeepTransition(recur.cells.GRU(), depth=2), 3, 4)
    >>> net(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    cell: Cell
    depth: int = 1
    skip: bool = False

    pointwise = False

    def __post_init__(self) -> None:
        if not isinstance(self.depth, int) or self.depth < 1:
            raise OptionError(f"DeepTransition: depth must be a whole number ≥ 1, got {self.depth!r}")
        if not isinstance(self.cell, Cell):
            raise CellError(f"DeepTransition goes around a Cell, got {self.cell!r}; make one with make_cell")
        if isinstance(self.cell, DeepTransition):
            raise OptionError(f"DeepTransition: the cell is deep already; ask for depth={self.depth + self.cell.depth}")
        if not self.cell.recurrent_gates:
            who = type(self.cell).__name__
            raise CellError(f"{who} has no product with W, so there is no transition to deepen; use another cell")
        self.gates, self.state_gates = self.cell.gates, self.cell.state_gates
        self.states, self.forget_gate, self.input_gate = self.cell.states, self.cell.forget_gate, self.cell.input_gate
        self.own_products = self.cell.own_products
        self.noise = self.cell.noise
        self.outputs, self.initial, self.heads = self.cell.outputs, self.cell.initial, self.cell.heads
        own = {f"M_{k}": ("H", "H") for k in range(1, self.depth + 1)}
        own_bias = {f"k_{k}": ("H",) for k in range(1, self.depth + 1)}
        if taken := self.cell.extras.keys() & {*own, *own_bias}:
            raise CellError(f"{type(self.cell).__name__}.extras has {', '.join(taken)}, which DeepTransition needs")
        self.extras = {**self.cell.extras, **own, **own_bias}

    def multiplied(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        h: Tensor = self.cell.multiplied(x, s, w)
        m = h
        for k in range(1, self.depth + 1):
            m = tanh(linear(m, getattr(w, f"M_{k}"), getattr(w, f"k_{k}")))
        return m + h if self.skip else m

    @property
    def call_inputs(self) -> Mapping[str, int | str]:
        return self.cell.call_inputs

    @property
    def multiplies_inside(self) -> bool:
        return self.cell.multiplies_inside

    def multiplied_input(self, x: Tensors, s: Tensors, w: Tensors) -> Tensor:
        return self.cell.multiplied_input(x, s, w)

    def init_extras(self, weights: Weights) -> None:
        self.cell.init_extras(weights)
        for k in range(1, self.depth + 1):
            torch.nn.init.xavier_uniform_(weights[f"M_{k}"])
            torch.nn.init.zeros_(weights[f"k_{k}"])

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> State:
        return tuple(self.cell.advance(x, h, s, w))

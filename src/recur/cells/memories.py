"""Memories: any pointwise cell with a matrix state, one row of it for every key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from recur.cells.cell import Cell, Weights
from recur.cells.contract import check_step, versions_of
from recur.cells.matrix import HeadedCell
from recur.cells.tensors import Tensors
from recur.errors import CellError, OptionError


@dataclass(init=False)
class Memories(HeadedCell):
    """row i of the state takes a step of the inner cell, i = 1 … K, from
        x_g = k_i v_g for every gate g but the forget gate, which all rows share
        h_g = W_g h_i, one W per head
    y = Σ_i q_i h_i'

    The rows of Mishra et al., M²RNN: non-linear RNNs with matrix-valued states, 2026, with any pointwise cell in place
    of theirs, such as an LSTM with K memories. It is not linear in its state: steps run one after another on the loop.
    Not in torch.nn.

    >>> cell = recur.cells.Memories(recur.cells.LSTM(), key_size=2)
    >>> recur.Recurrent(cell, 3, 4)(torch.randn(2, 5, 3)).state[0].c.shape         # 2 memories of 4 units
    torch.Size([2, 8])
    """

    cell: Cell | None = None
    """The pointwise cell of every row."""

    def __init__(self, cell: Cell, num_heads: int = 0, key_size: int = 0) -> None:
        self.cell, self.num_heads, self.key_size = cell, num_heads, key_size
        self.__post_init__()

    def __post_init__(self) -> None:
        if not isinstance(self.cell, Cell):
            raise CellError(f"Memories goes around a Cell, got {self.cell!r}; make one with make_cell")
        who = type(self.cell).__name__
        if not self.cell.pointwise or self.cell.extras or self.cell.outputs or self.cell.heads != 1:
            raise CellError(f"Memories goes around a pointwise cell without extra weights or heads, got {who}")
        if taken := {"q", "k"} & set(self.cell.gates):
            raise OptionError(f"{who} has a gate {', '.join(taken)}, a name that Memories needs")
        super().__post_init__()
        self.states = ("y", *self.cell.states)  # type: ignore[assignment]
        self.initial = {"y": 0.0, **self.cell.initial}
        R = len(self.cell.recurrent_gates)
        self.extras = {"W": ("heads", R, "V", "V")} if R else {}

    @property
    def inputs(self) -> Mapping[str, str | int]:  # type: ignore[override]
        assert self.cell is not None
        return {"q": "K", "k": "K", **dict.fromkeys(self.cell.gates, "V")}

    @property
    def arguments(self) -> str:
        return "x, h, s, w"

    def widths(self, H: int, projection: int = 0) -> tuple[int, ...]:
        dims = self.dims(H)
        return (H, *[dims.heads * dims.K * dims.V] * (len(self.states) - 1))

    def init_extras(self, weights: Weights) -> None:
        for name in self.extras:
            bound = weights[name].shape[-1] ** -0.5
            torch.nn.init.uniform_(weights[name], -bound, bound)

    def advance(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> Sequence[Tensor]:
        return self.step(x, h, s, w)

    def step(self, x: Tensors, h: Tensors, s: Tensors, w: Tensors) -> Sequence[Tensor]:
        cell = self.cell
        assert cell is not None
        dims = self.dims(s[0].shape[-1])
        before = [part.unflatten(-1, (dims.heads, dims.K, dims.V)) for part in s[1:]]
        rows = before[0].shape
        given = [self.row_input(gate, x).expand(rows) for gate in cell.gates]
        products: Sequence[Tensor] = ()
        if cell.recurrent_gates:
            products = torch.einsum("...nkv,nruv->...rnku", before[0], w.W).unbind(-4)
        of, versions = cell.tuple_of, versions_of(before)
        after = cell.advance(of("x")._make(given), of("h")._make(products), of("s")._make(before), ())  # type: ignore[arg-type]
        check_step(cell, after, before, versions)
        y = (x.q[..., None] * after[0]).sum(-2)
        return y.flatten(-2), *(part.flatten(-3) for part in after)

    def row_input(self, gate: str, x: Tensors) -> Tensor:
        """Return the input of a gate of every row, (…, heads, K or 1, V)."""
        assert self.cell is not None
        value: Any = getattr(x, gate)
        row: Tensor = value[..., None, :]
        return row if gate == self.cell.forget_gate else x.k[..., None] * row

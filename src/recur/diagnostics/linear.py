"""A layer's steps linearised, along the states of one pass.

    ds_t^a  =  Σ_b  E_t^{ab} ⊙ ds_{t−1}^b  +  Σ_g  D_t^{ag} ⊙ (W_g dh_{t−1})          a, b states, g gates

Of a pointwise cell, E and D are numbers for every unit, computed for all steps at once; its Jacobian is never formed,
only multiplied with. Of any other cell, and with a projection, the Jacobian of each step is formed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from recur.diagnostics.layer import Layer


class Linearised:
    """One row of a layer; steps count from 1, since the first has no state before it that was recorded."""

    def __init__(self, layer: Layer, row: int = 0) -> None:
        self.layer, self.row = layer, row
        self.H = next(iter(layer.states.values())).shape[-1]
        self.S = len(layer.states)
        self.N = sum(part.shape[-1] for part in layer.states.values())
        self.steps = layer.inputs.shape[1] - 1
        self.W: Tensor | None = None
        self.by_unit = by_unit(layer)
        if self.by_unit:
            self._slopes()

    def _slopes(self) -> None:
        layer = self.layer
        x, h, s, w = layer.step_arguments(layer.inputs[self.row, 1:], [part[self.row] for part in layer.previous])
        s = layer.cell.state([part.detach().clone().requires_grad_() for part in s])
        h = type(h)._make(part.detach().clone().requires_grad_() for part in h)
        with torch.enable_grad():
            after = layer.cell.advance(x, h, s, w)
        self.E: list[Tensor] = []
        self.D: list[Tensor | None] = []
        for part in after:
            slopes: list[Tensor | None] = [None] * (len(s) + len(h))
            if part.requires_grad:
                slopes = list(torch.autograd.grad(part.sum(), (*s, *h), allow_unused=True, retain_graph=True))
            filled = [torch.zeros_like(s[0]) if g is None else g for g in slopes]
            self.E.append(torch.stack(filled[: len(s)], dim=1).double().detach())  # (T − 1, b, H)
            self.D.append(torch.stack(filled[len(s) :], dim=1).double().detach() if len(h) else None)  # (T − 1, g, H)
        self._after = after
        if len(h):
            self.W = layer.cell.dense(layer.weights["weight_hh"]).double()

    def own_slope(self, state: int) -> Tensor:
        """∂m_t/∂m_{t−1} of one state, everything else held: (T − 1, H); of c of an LSTM, the forget gate."""
        return self.E[state][:, state]

    def within(self, state: int) -> Tensor:
        """∂s_t^a/∂m_t of one state m, which the others of its step may be made of: (T − 1, a, H); 1 for itself."""
        m = self._after[state]
        return torch.stack([torch.ones_like(m).double() if a is m else _within(a, m) for a in self._after], dim=1)

    def push(self, t: int, X: Tensor) -> Tensor:
        """J_t X; X is (N, M), float64, the states one below the other."""
        if not self.by_unit:
            return self._jacobian(t) @ X
        parts = X.view(self.S, self.H, -1)
        WX = None if self.W is None else (self.W @ parts[0]).view(-1, self.H, X.shape[1])
        moved = []
        for E, D in zip(self.E, self.D, strict=True):
            out = torch.einsum("bh,bhm->hm", E[t - 1], parts)
            if WX is not None and D is not None:
                out = out + torch.einsum("gh,ghm->hm", D[t - 1], WX)
            moved.append(out)
        return torch.cat(moved)

    def pull(self, t: int, g: Tensor) -> Tensor:
        """J_tᵀ g; g is (N,)."""
        if not self.by_unit:
            return self._jacobian(t).t() @ g
        parts = g.view(self.S, self.H)
        back = torch.stack([E[t - 1] for E in self.E])  # (a, b, H)
        out = torch.einsum("abh,ah->bh", back, parts)
        if self.W is not None:
            gates = torch.stack([D[t - 1] for D in self.D if D is not None])
            out[0] += self.W.t() @ torch.einsum("agh,ah->gh", gates, parts).reshape(-1)
        return out.reshape(-1)

    def _jacobian(self, t: int) -> Tensor:
        """J_t as a matrix: row i is the gradient of output i, taken in row i of a batch of copies."""
        before = [part[self.row, t - 1].repeat(self.N, 1).requires_grad_() for part in self.layer.states.values()]
        x = self.layer.inputs[self.row, t].expand(self.N, -1)
        with torch.enable_grad():
            after = torch.cat(self.layer.advance(x, before), dim=-1)
            rows = torch.autograd.grad(after.diagonal().sum(), before, allow_unused=True)
        filled = [torch.zeros_like(part) if g is None else g for part, g in zip(before, rows, strict=True)]
        return torch.cat(filled, dim=-1).double()


def by_unit(layer: Layer) -> bool:
    """Whether a step mixes units by W as a whole and by nothing else."""
    return layer.cell.pointwise and "weight_hr" not in layer.weights


def _within(part: Tensor, memory: Tensor) -> Tensor:
    slope = None
    if part.requires_grad and memory.requires_grad:
        (slope,) = torch.autograd.grad(part.sum(), memory, allow_unused=True, retain_graph=True)
    return torch.zeros_like(memory, dtype=torch.float64) if slope is None else slope.double()

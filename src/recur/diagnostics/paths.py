"""The gradient along the memory alone, against that of all other paths.

The gradient of a memory c is the sum over all paths through time. One of them never leaves c: of an LSTM,

    ∂c_t/∂c_{t−1} along c alone  =  f_t,   so   g_k^memory  =  g_0 ⊙ f_T ⊙ f_{T−1} ⊙ … ⊙ f_{T−k+1}

with g_0 = ∂L_T/∂c_T, through h_T of the same step. All others go through h, W and the gates, and shrink as in an Elman
network. As long as one path does not vanish, the sum does not. Here for every cell: the path of its memory (c; or its
last state, h of a GRU along z) that crosses no units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.cells import Cell
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.flow import Curve, fit_decay
from recur.diagnostics.layer import Layer, layers_of
from recur.diagnostics.linear import Linearised
from recur.diagnostics.subject import Subject
from recur.i18n import said

HALF = 0.5
LAG = 10
"""Steps back at which the share is taken: the gradient of an Elman network would have shrunk by then."""


class Paths(NamedTuple):
    """The norm of a memory's gradient by lag, of one layer."""

    total: Curve
    memory: Curve
    """Along the memory alone."""
    others: Curve

    @property
    def lag(self) -> int:
        return min(LAG, len(self.total) - 1)

    @property
    def share(self) -> float:
        """Of the squared gradient at that lag, the part along the memory alone."""
        memory, others = float(self.memory[self.lag]) ** 2, float(self.others[self.lag]) ** 2
        return memory / (memory + others) if memory + others else 0.0


def memory_of(cell: Cell) -> int:
    """Which of the states is the memory: c, or the last."""
    return cell.states.index("c") if "c" in cell.states else len(cell.states) - 1


def memory_gradients(layer: Layer, start: Tensor, row: int = 0) -> tuple[Tensor, Tensor]:
    """∂L_T/∂m by lag, (T − 1, H), from ∂L_T of the output, `start`: along all paths, and along the memory m alone."""
    steps, k = Linearised(layer, row), memory_of(layer.cell)
    slopes, within, outputs = steps.own_slope(k), steps.within(k), list(layer.cell.output_states)
    by_state = torch.zeros(steps.S, steps.H, dtype=torch.float64)
    by_state[outputs] = start.view(len(outputs), steps.H).double()
    g = by_state.view(-1)
    total = [(within[-1] * by_state).sum(0)]
    memory = total[:]
    for t in range(steps.steps, 1, -1):
        g = steps.pull(t, g)
        total.append((within[t - 2] * g.view(steps.S, -1)).sum(0))
        memory.append(memory[-1] * slopes[t - 1])
    return torch.stack(total), torch.stack(memory)


def paths_of(layer: Layer, starts: Tensor) -> Paths:
    """Norms by lag, root mean square over the rows, from ∂L_T of each row's last output."""
    T, B = layer.inputs.shape[1], len(starts)
    squares = np.zeros((3, T - 1))
    for row in range(B):
        total, memory = memory_gradients(layer, starts[row], row)
        for k, g in enumerate((total, memory, total - memory)):
            squares[k] += g.square().sum(dim=-1).numpy() / B
    return Paths(*np.sqrt(squares))


def memory_path(subject: Subject, *, rows: int = 4, steps: int = 100) -> Measurement:
    """How much of the gradient flows along the memory alone, in every layer, by lag."""
    cell = subject.net.cell
    if not cell.pointwise or subject.net.projection:
        verdict = said("{cell} mixes units inside its step: no path is the memory's own", cell=type(cell).__name__)
        if cell.pointwise:
            verdict = said("measured for networks without a projection only")
        return Measurement(Finding("memory path", Level.OK, 0.0, HALF, verdict))
    if subject.net.direction != "forward":
        verdict = said("measured for networks of one direction only")
        return Measurement(Finding("memory path", Level.OK, 0.0, HALF, verdict))
    found = memory_paths(subject, rows, steps)
    numbers = {}
    for name, paths in found.items():
        curves = paths._asdict()
        numbers[name] = {key: curve.tolist() for key, curve in curves.items()}
        numbers[name] |= {"decay": {key: fit_decay(curve).decay for key, curve in curves.items()}}
        numbers[name] |= {"share": paths.share, "lag": paths.lag}
    name = max(found, key=lambda key: found[key].share)
    best, decay, memory = found[name], numbers[name]["decay"], cell.states[memory_of(cell)]
    detail = said(
        "{share:.0%} of the gradient {lag} steps back came along {memory} of {name} alone (× {own:.3g} a step; along "
        "all other paths × {others:.3g})",
        share=best.share, lag=best.lag, memory=memory, name=name, own=decay["memory"], others=decay["others"],
    )  # fmt: skip
    if best.share > HALF:
        verdict = said("{memory} carries the gradient: {detail}", memory=memory, detail=detail)
    else:
        verdict = said("other paths carry the gradient: {detail}", detail=detail)
    return Measurement(Finding("memory path", Level.OK, best.share, HALF, verdict), numbers)


def memory_paths(subject: Subject, rows: int, steps: int) -> dict[str, Paths]:
    """The paths of every layer, by its name."""
    x, loss = subject.last_loss(rows, steps)
    with subject.traced() as results:
        value = loss(subject.model(x))
        cell = subject.net.cell
        read = [state[k] for state in results[-1].state for k in cell.output_states]
        found = torch.autograd.grad(value, read)
    starts = torch.stack(found).cpu().unflatten(0, (-1, len(cell.output_states))).transpose(1, 2).flatten(2)
    return {
        layer.name: paths_of(layer, start)
        for layer, start in zip(layers_of(subject.net, results[-1]), starts, strict=True)
    }

"""The memory's own path against all others.

The gradient of a memory c is the sum over all paths through time. One of them never leaves c: of an LSTM,

    ∂c_t/∂c_{t−1} along c alone  =  f_t,   so   g_k^path  =  g_1 ⊙ f_{T−1} ⊙ f_{T−2} ⊙ … ⊙ f_{T−k+1}

All others go through h, W and the gates, and shrink as in a plain network. As long as one path holds, the sum does.
Here for every cell: the path of its last state (c; or h, of a GRU along z) on which no unit meets another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.probes.finding import Finding, Level, Seen
from recur.probes.flow import describe
from recur.probes.linear import Linearised
from recur.probes.subject import Layer, Subject, layers_of

SHARE = 0.5


def along(layer: Layer, start: Tensor, row: int = 0) -> tuple[Tensor, Tensor]:
    """∂L_T/∂m by lag, (T, H), from ∂L_T/∂h_T = `start`: all paths together, and m's own alone."""
    steps = Linearised(layer, row)
    slopes, H = steps.own_slope(), steps.H
    g = torch.zeros(steps.N, dtype=torch.float64)
    g[:H] = start
    whole, path = [g[-H:]], [g[-H:]]
    entered = steps.S == 1  # a memory that is not the output gets its first gradient one step back
    for t in range(steps.steps, 0, -1):
        g = steps.pull(t, g)
        whole.append(g[-H:])
        path.append(path[-1] * slopes[t - 1] if entered else g[-H:])
        entered = True
    return torch.stack(whole), torch.stack(path)


def memory_path(subject: Subject, *, rows: int = 4, steps: int = 100) -> Seen:
    """How much of the gradient travels through the memory alone, in every layer, by lag."""
    if not subject.net.cell.pointwise:
        verdict = f"{type(subject.net.cell).__name__} mixes units inside its step: no path is a memory's own"
        return Seen(Finding("memory path", Level.SOUND, 0.0, SHARE, verdict))
    if subject.net.direction != "forward":
        verdict = "the memory's path is followed in networks of one direction"
        return Seen(Finding("memory path", Level.SOUND, 0.0, SHARE, verdict))
    x, loss = subject.last_loss(rows, steps)
    with subject.watched() as seen:
        value = loss(subject.model(x))
        tops = [state[0] for state in seen[-1].state]
        starts = torch.autograd.grad(value, tops)
    numbers: dict[str, Any] = {}
    for layer, start in zip(layers_of(subject.net, seen[-1]), starts, strict=True):
        squares: dict[str, Any] = {"total": 0.0, "path": 0.0, "others": 0.0}
        for row in range(len(start)):
            whole, path = along(layer, start[row], row)
            for key, g in (("total", whole), ("path", path), ("others", whole - path)):
                squares[key] = squares[key] + g.square().sum(dim=-1).numpy() / len(start)
        curves = {key: np.sqrt(part) for key, part in squares.items()}
        numbers[layer.name] = {key: curve.tolist() for key, curve in curves.items()}
        numbers[layer.name]["decay"] = {key: describe(curve)["decay"] for key, curve in curves.items()}
        # Taken where a plain network's gradient would have shrunk already.
        lag = min(10, len(whole) - 1)
        both = curves["path"][lag] ** 2 + curves["others"][lag] ** 2
        numbers[layer.name]["share"] = float(curves["path"][lag] ** 2 / both) if both else 0.0
        numbers[layer.name]["lag"] = lag
    name = max(numbers, key=lambda key: numbers[key]["share"])
    part, memory = numbers[name], subject.net.cell.states[-1]
    decay = part["decay"]
    said = (
        f"{part['share']:.0%} of the gradient {part['lag']} steps back came through {memory} of {name} alone "
        f"(× {decay['path']:.3g} a step; other paths × {decay['others']:.3g})"
    )
    word = f"the path of {memory} carries the gradient" if part["share"] > SHARE else "gradients take other paths"
    return Seen(Finding("memory path", Level.SOUND, part["share"], SHARE, f"{word}: {said}"), numbers)

"""How far a gradient flows back: ‖∂L_T/∂s_t‖ against the lag T − t.

L_T is the loss of the last step only. With g_k the norm k steps back (root mean square over the rows),

    decay     ρ, from the line log g_k ≈ a + k log ρ fitted to what is above the floor of the arithmetic
    memory    the first lag at which 1 % is left of the norm that it had where it first arrives

∂L_T/∂s_t is whole: that of c of an LSTM includes its way through h_t, which is made of it in the same step, so that c
has one at lag 0 as h does. A state that no output reads, of a cell of one's own, may get its first one further back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recur.diagnostics.advice import gated as gated_cell
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.layer import layer_name
from recur.diagnostics.subject import Subject
from recur.i18n import Said, said
from recur.ops.bptt import BPTT

VANISHED = 0.01
"""The share of a gradient below which it counts as vanished."""
SHORT, LONGER = 8, 16
"""A memory of fewer steps is called vanishing: a fault below the first, a warning below the second, which is × 0.75 a
step."""
EXPLODING, GROWTH = 1.02, 10.0
"""A decay of more per step is called exploding, if the norm grows by such a factor in all."""
Curve = NDArray[np.float64]


class Decay(NamedTuple):
    """How a curve of norms falls with the lag."""

    decay: float
    """A factor per step."""
    memory: int | None
    """None where more than 1 % is left at the last lag."""


class Flow(NamedTuple):
    """The gradient of one state, by lag."""

    norms: list[float]
    decay: float
    memory: int | None

    @property
    def growth(self) -> float:
        """The largest norm over the one at the lag where a gradient first arrives."""
        return max(self.norms) / next((norm for norm in self.norms if norm > 0), 1.0)

    @property
    def reach(self) -> Said:
        if self.memory is None:
            return said("more than 1 % is left after {steps} steps", steps=len(self.norms) - 1)
        return said("1 % is left after {steps} steps", steps=self.memory)


def flow(subject: Subject, *, rows: int = 8, steps: int = 200, bptt: str | BPTT = "full") -> dict[str, Flow]:
    """The flow of every layer and state, by name."""
    x, loss = subject.last_loss(rows, steps)
    with subject.traced(bptt) as results:
        loss(subject.model(x)).backward()
    found = {}
    for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True):
        for state, norms in trace.norms.items():
            by_lag = _root_mean_square(norms if suffix.endswith("_reverse") else norms.flip(1))
            found[f"{layer_name(suffix)}, {state}"] = Flow(by_lag.tolist(), *fit_decay(by_lag))
    return found


def fit_decay(norms: Curve) -> Decay:
    """Decay per step and memory of a curve of norms by lag."""
    arrived = np.nonzero(norms > 0)[0]
    if not len(arrived):
        return Decay(0.0, 0)
    first = int(arrived[0])
    if not np.isfinite(norms[first]):  # nothing can be told in shares of it
        return Decay(math.inf, None)
    curve = norms[first:] / norms[first]
    vanished = np.nonzero(curve <= VANISHED)[0]
    memory = first + int(vanished[0]) if len(vanished) else None
    unusable = np.nonzero(~((curve > 1e-12) & np.isfinite(curve)))[0]
    fitted = curve[: int(unusable[0]) if len(unusable) else None]
    if len(fitted) < 2:
        return Decay(0.0, memory)
    slope = np.polyfit(np.arange(len(fitted)), np.log(fitted), 1)[0]
    return Decay(float(np.exp(slope)), memory)


def gradient_flow(subject: Subject, *, rows: int = 8, steps: int = 200) -> Measurement:
    """Full backpropagation: does the gradient vanish, explode or stay? Truncated modes are measured beside it."""
    full = flow(subject, rows=rows, steps=steps)
    lags = max(len(part.norms) for part in full.values())
    modes = {"full": full}
    short = max(2, min(lags // 4, 20))
    randomized = BPTT(keep=0.9, generator=torch.Generator().manual_seed(subject.seed))
    for mode in (BPTT(window=short), randomized):
        modes[str(mode)] = flow(subject, rows=rows, steps=lags - lags % short, bptt=mode)
    numbers = {mode: {name: part._asdict() for name, part in found.items()} for mode, found in modes.items()}
    finding = _flow_finding(full, lags, subject.net.cell.forget_gate is not None)
    return Measurement(finding, {"lags": lags, "window": subject.backpropagated, "modes": numbers})


def _flow_finding(flows: dict[str, Flow], lags: int, gated: bool) -> Finding:
    fastest = max(flows, key=lambda name: flows[name].growth)
    explodes = flows[fastest].decay > EXPLODING and flows[fastest].growth > GROWTH
    if explodes or not all(math.isfinite(norm) for part in flows.values() for norm in part.norms):
        verdict = said(
            "gradients explode: × {decay:.3g} a step in {name}, × {growth:.3g} at most",
            decay=flows[fastest].decay, name=fastest, growth=flows[fastest].growth,
        )  # fmt: skip
        return Finding("gradient flow", Level.FAULT, flows[fastest].decay, EXPLODING, verdict)
    # The state that reaches furthest decides: as long as one path is open, the network can learn along it.
    name = max(flows, key=lambda key: math.inf if flows[key].memory is None else flows[key].memory or 0)
    best = flows[name]
    detail = said("× {decay:.3g} a step in {name}, {reach}", decay=best.decay, name=name, reach=best.reach)
    if best.memory is not None and best.memory < min(LONGER, lags - 1):
        level = Level.FAULT if best.memory < min(SHORT, lags - 1) else Level.WARNING
        verdict = said("gradients vanish: {detail}", detail=detail)
        return Finding("gradient flow", level, best.memory, LONGER, verdict, () if gated else (gated_cell(),))
    if best.memory is None:
        verdict = said("gradients are preserved: {detail}", detail=detail)
        return Finding("gradient flow", Level.OK, math.inf, LONGER, verdict)
    verdict = said("gradients decay slowly: {detail}", detail=detail)
    return Finding("gradient flow", Level.OK, best.memory, LONGER, verdict)


def _root_mean_square(norms: Tensor) -> Curve:
    rms: Curve = norms.detach().double().square().mean(dim=0).sqrt().cpu().numpy()
    return rms

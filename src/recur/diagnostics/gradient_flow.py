"""Gradient flow: ‖∂L_T/∂s_t‖ against the lag T − t.

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

from recur.cells import Cell
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.finding import gated as gated_cell
from recur.diagnostics.jacobian import Linearised
from recur.diagnostics.subject import Layer, Subject, layer_name, layers_of, part_name
from recur.i18n import Message
from recur.ops import Trace
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
    """Fitted decay of a curve of gradient norms with the lag."""

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
    def reach(self) -> Message:
        if self.memory is None:
            return Message("more than 1 % is left after {steps} steps", steps=len(self.norms) - 1)
        return Message("1 % is left after {steps} steps", steps=self.memory)


def flow(subject: Subject, *, rows: int = 8, steps: int = 200, bptt: str | BPTT = "full") -> dict[str, Flow]:
    """The flow of every layer and state, by name."""
    x, loss = subject.last_loss(rows, steps)
    with subject.traced(bptt) as results:
        loss(subject.model(x)).backward()
    found = {}
    for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True):
        for state, norms in trace.norms.items():
            by_lag = _root_mean_square(norms if suffix.endswith("_reverse") else norms.flip(1))
            found[part_name(layer_name(suffix), state)] = Flow(by_lag.tolist(), *fit_decay(by_lag))
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
        verdict = Message(
            "gradients explode: × {decay:.3g} per step in {name}, × {growth:.3g} at most",
            decay=flows[fastest].decay, name=fastest, growth=flows[fastest].growth,
        )  # fmt: skip
        return Finding("gradient flow", Level.FAULT, flows[fastest].decay, EXPLODING, verdict)
    # The state that reaches furthest decides: as long as one path is open, the network can learn along it.
    name = max(flows, key=lambda key: math.inf if flows[key].memory is None else flows[key].memory or 0)
    best = flows[name]
    detail = Message("× {decay:.3g} per step in {name}, {reach}", decay=best.decay, name=name, reach=best.reach)
    if best.memory is not None and best.memory < min(LONGER, lags - 1):
        level = Level.FAULT if best.memory < min(SHORT, lags - 1) else Level.WARNING
        verdict = Message("gradients vanish: {detail}", detail=detail)
        return Finding("gradient flow", level, best.memory, LONGER, verdict, () if gated else (gated_cell(),))
    if best.memory is None:
        verdict = Message("gradients are preserved: {detail}", detail=detail)
        return Finding("gradient flow", Level.OK, math.inf, LONGER, verdict)
    verdict = Message("gradients decay slowly: {detail}", detail=detail)
    return Finding("gradient flow", Level.OK, best.memory, LONGER, verdict)


def _root_mean_square(norms: Tensor) -> Curve:
    rms: Curve = norms.detach().double().square().mean(dim=0).sqrt().cpu().numpy()
    return rms


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
        """Share of the squared gradient at that lag that flows along the memory alone."""
        memory, others = float(self.memory[self.lag]) ** 2, float(self.others[self.lag]) ** 2
        return memory / (memory + others) if memory + others else 0.0


def memory_of(cell: Cell) -> int:
    """Return the name of the state that is the memory: c, or the last state."""
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
    """Measure the share of the gradient that flows along the memory alone, per layer and lag."""
    cell = subject.net.cell
    if not cell.pointwise or subject.net.projection:
        verdict = Message("{cell} mixes units inside a step: it has no separate memory path", cell=type(cell).__name__)
        if cell.pointwise:
            verdict = Message("this probe supports networks without a projection only")
        return Measurement(Finding("memory path", Level.OK, 0.0, HALF, verdict))
    if subject.net.direction != "forward":
        verdict = Message("this probe supports unidirectional networks only")
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
    detail = Message(
        "{share:.0%} of the gradient {lag} steps back came along {memory} of {name} (× {own:.3g} per step; all other "
        "paths × {others:.3g})",
        share=best.share, lag=best.lag, memory=memory, name=name, own=decay["memory"], others=decay["others"],
    )  # fmt: skip
    if best.share > HALF:
        verdict = Message("{memory} carries the gradient: {detail}", memory=memory, detail=detail)
    else:
        verdict = Message("other paths carry the gradient: {detail}", detail=detail)
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


MISSING = 0.1
"""The share of the gradient that may be missing where it is called whole."""
FEW = 3
"""A sum that is whole with fewer steps teaches no memory."""
LETTERS = {"weight_hh": "W", "weight_ih": "U"}


class Terms(NamedTuple):
    """The terms of one matrix's gradient, by lag."""

    norms: list[float]
    cumulated: list[float]
    """After the last 1, 2, … steps, as `missing` and `cosine` are."""
    missing: list[float]
    cosine: list[float]
    alignment: float
    largest: int
    """The lag of the largest term."""
    steps: int
    """How many of the last steps the gradient needs."""

    @property
    def share(self) -> float:
        """The largest term's share of the sum of all norms."""
        total = sum(self.norms)
        return self.norms[self.largest] / total if total > 0 else 0.0

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, (*self.norms, self.alignment)))


def terms_of(trace: Trace, *, reverse: bool = False, together: bool = False) -> dict[str, Terms]:
    """Return the terms of U and W by letter, after a backward pass.

    Args:
        reverse: the layer reads from the end
        together: the rows read the same, and each has its own loss
    """
    return {LETTERS[name]: _terms(trace.term_products(name, together), reverse) for name in sorted(trace.terms)}


def _terms(products: Tensor, reverse: bool) -> Terms:
    by_lag = products if reverse else products.flip(1, 2)
    K = by_lag.mean(dim=0).cpu().numpy()  # of the rows together: their gradients side by side are one vector
    T, norms = len(K), np.sqrt(np.diagonal(K))
    total, nothing = float(norms.sum()), [0.0] * T
    if not np.isfinite(K).all() or not math.isfinite(float(np.abs(K).sum())):
        return Terms(norms.tolist(), nothing, nothing, nothing, math.nan, T - 1, T)
    with_whole = np.cumsum(K.sum(axis=1))  # ⟨Σ_{last k} G, ΣG⟩
    squares = np.diagonal(np.cumsum(np.cumsum(K, axis=0), axis=1))  # ‖Σ_{last k} G‖²
    whole = math.sqrt(max(float(squares[-1]), 0.0))
    if not whole:
        return Terms(norms.tolist(), nothing, nothing, nothing, 0.0, 0, 0)
    missing = np.sqrt(np.maximum(whole**2 - 2 * with_whole + squares, 0)) / whole
    missing[-1] = 0.0  # not the rounding of it
    parts = np.sqrt(np.maximum(squares, 0))
    cosine = np.divide(with_whole, parts * whole, out=np.zeros(T), where=parts > 0)
    steps = int(np.nonzero(missing > MISSING)[0].max(initial=-1)) + 2
    cumulated = np.cumsum(norms) / total
    return Terms(
        norms.tolist(), cumulated.tolist(), missing.tolist(), np.clip(cosine, -1, 1).tolist(),
        whole / total, int(norms.argmax()), min(steps, T),
    )  # fmt: skip


def gradient_terms(subject: Subject, *, rows: int = 8, steps: int = 200) -> Measurement:
    """Measure which steps each matrix learns from, per layer, and how many of the last steps are enough."""
    x, loss = subject.last_loss(rows, steps)
    with subject.traced() as results:
        loss(subject.model(x)).backward()
    found = {
        layer_name(suffix): terms_of(trace, reverse=suffix.endswith("_reverse"))
        for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True)
    }
    numbers = {
        name: {letter: {**part._asdict(), "share": part.share} for letter, part in layer.items()}
        for name, layer in found.items()
    }
    return Measurement(terms_finding(found, "W" if subject.net.cell.recurrent_gates else "U"), numbers)


def terms_finding(found: dict[str, dict[str, Terms]], letter: str) -> Finding:
    """The conclusion from the terms of one matrix, of every layer."""
    probe = "gradient terms"
    terms = {name: layer[letter] for name, layer in found.items()}
    if not all(part.finite for part in terms.values()):
        verdict = Message("the terms of {letter} overflow: gradients explode", letter=letter)
        return Finding(probe, Level.WARNING, math.inf, FEW, verdict)
    # The layer whose gradient needs the most steps: what any of them can learn from far back, the network can.
    name = max(terms, key=lambda key: terms[key].steps)
    part = terms[name]
    T = len(part.norms)
    if not part.norms or not max(part.norms):
        return Finding(probe, Level.OK, 0.0, FEW, Message("no gradient reaches {letter}", letter=letter))
    detail = Message(
        "the last {steps} of {T} steps give ∂L/∂{letter} of {name} to within {missing:.0%}; the largest term is "
        "{largest} steps back and has {share:.0%} of the sum",
        steps=part.steps, T=T, letter=letter, name=name, missing=MISSING, largest=part.largest, share=part.share,
    )  # fmt: skip
    if part.largest >= max(FEW, T // 2) and part.norms[part.largest] > GROWTH * part.norms[0]:
        verdict = Message("the most distant steps dominate the gradient: {detail}", detail=detail)
        return Finding(probe, Level.WARNING, part.largest, T // 2, verdict)
    if part.steps < min(FEW, T):
        verdict = Message("{letter} learns from the last step only: {detail}", letter=letter, detail=detail)
        return Finding(probe, Level.WARNING, part.steps, FEW, verdict)
    if part.steps > 0.9 * T:
        return Finding(probe, Level.OK, part.steps, FEW, Message("all steps contribute: {detail}", detail=detail))
    verdict = Message("{letter} learns from {steps} steps: {detail}", letter=letter, steps=part.steps, detail=detail)
    return Finding(probe, Level.OK, part.steps, FEW, verdict)

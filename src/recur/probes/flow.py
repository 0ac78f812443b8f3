"""How far a gradient comes: ‖∂L_T/∂s_t‖ against the lag T − t.

The loss of one step only, carried back. With g_k the norm k steps back (root mean square over the rows),

    decay     ρ, from the line log g_k ≈ a + k log ρ fitted to what is above the floor of the arithmetic
    memory    the first lag at which 1 % of the norm is left that it had where it first arrives

A state that the last output does not read itself, such as c of an LSTM, first gets a gradient one step back.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.bptt import BPTT
from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Subject, layer_name

LEFT = 0.01
SHORT = 8
"""A memory of fewer steps is called vanishing."""
GROWS = 1.02
"""A decay of more per step is called exploding, if it comes to a factor of ten."""
CUT = 0.3
"""The share of the gradient behind the window that is too much to lose; half of it where the window is shorter than
SHORT, and teaches no memory that could show more."""


def flow(subject: Subject, *, rows: int = 8, steps: int = 200, bptt: str | BPTT = "full") -> dict[str, Any]:
    """For every layer and state: norms by lag, decay and memory (None if more than 1 % is left at the last lag)."""
    x, loss = subject.last_loss(rows, steps)
    with subject.watched(bptt) as seen:
        value = loss(subject.model(x))
        value.backward()
    found: dict[str, Any] = {}
    for suffix, trace in zip(subject.net.suffixes(), seen[-1].trace, strict=True):
        for state, norms in trace.norms.items():
            by_lag = _rms(norms if suffix.endswith("_reverse") else norms.flip(1))
            found[f"{layer_name(suffix)}, {state}"] = {"norms": by_lag.tolist(), **describe(by_lag)}
    return found


def describe(g: np.ndarray[Any, Any]) -> dict[str, float | int | None]:
    """Decay per step and memory of a curve of norms by lag."""
    arrived = np.nonzero(g > 0)[0]
    if not len(arrived):
        return {"decay": 0.0, "memory": 0}
    first = int(arrived[0])
    curve = g[first:] / g[first]
    below = np.nonzero(curve <= LEFT)[0]
    memory = first + int(below[0]) if len(below) else None
    sound = np.nonzero(~((curve > 1e-12) & np.isfinite(curve)))[0]
    fitted = curve[: int(sound[0]) if len(sound) else None]
    decay = float(np.exp(np.polyfit(np.arange(len(fitted)), np.log(fitted), 1)[0])) if len(fitted) > 1 else 0.0
    return {"decay": decay, "memory": memory}


def gradient_flow(subject: Subject, *, rows: int = 8, steps: int = 200) -> Seen:
    """Full backpropagation: does a gradient vanish, explode or hold?"""
    found = flow(subject, rows=rows, steps=steps)
    length = max(len(part["norms"]) for part in found.values())
    modes = {"full": found}
    short = max(2, min(length // 4, 20))
    drawn = BPTT(keep=0.9, generator=torch.Generator().manual_seed(subject.seed))
    for mode in (BPTT(window=short), drawn):
        modes[str(mode)] = flow(subject, rows=rows, steps=length - length % short, bptt=mode)
    numbers = {"lags": length, "modes": modes}
    name, part = max(found.items(), key=lambda item: item[1]["memory"] or math.inf)  # the way that reaches furthest
    grew = {key: max(p["norms"]) / next((n for n in p["norms"] if n > 0), 1.0) for key, p in found.items()}
    worst = max(grew, key=lambda key: grew[key])
    decay, memory = part["decay"], part["memory"]
    if not all(math.isfinite(n) for p in found.values() for n in p["norms"]) or (
        found[worst]["decay"] > GROWS and grew[worst] > 10
    ):
        decay = found[worst]["decay"]
        verdict = f"gradients explode: × {decay:.3g} a step in {worst}, × {grew[worst]:.3g} at most"
        advice = "clip the gradient (--clip 1, or --bptt full,clip:1 at every step); init=orthogonal; a smaller rate"
        return Seen(Finding("gradient flow", Level.FAULT, decay, GROWS, verdict, advice), numbers)
    if memory is not None and memory < min(SHORT, length - 1):
        verdict = f"gradients vanish: × {decay:.3g} a step in {name}, 1 % is left after {memory} steps"
        advice = "a cell with a gated memory (--cell lstm or gru), a forget bias (--forget-bias 1), init=orthogonal"
        return Seen(Finding("gradient flow", Level.FAULT, memory, SHORT, verdict, advice), numbers)
    reach = f"1 % is left after {memory} steps" if memory is not None else f"more than 1 % is left after {length - 1}"
    word = "hold" if memory is None else "fade slowly"
    verdict = f"gradients {word}: × {decay:.3g} a step in {name}, {reach}"
    value = float(memory) if memory is not None else math.inf
    return Seen(Finding("gradient flow", Level.SOUND, value, SHORT, verdict), numbers)


def window(subject: Subject, *, rows: int = 8, steps: int = 200) -> Seen:
    """How much of the gradient lies behind the window that the run was trained with, and was never seen."""
    trained = subject.run.config.window if subject.run is not None else 0
    mode = subject.net.bptt.window
    trained = min(t for t in (trained or math.inf, mode or math.inf))  # type: ignore[assignment]
    if not math.isfinite(trained):
        return Seen(Finding("window", Level.SOUND, 0.0, CUT, "no window: nothing is cut off"))
    found = flow(subject, rows=rows, steps=max(steps, 2 * int(trained)))
    shares = {}
    for name, part in found.items():
        g = np.array(part["norms"])
        total = g.sum()
        shares[name] = float(g[int(trained) :].sum() / total) if np.isfinite(total) and total > 0 else 0.0
    name = max(shares, key=lambda key: shares[key])
    share, memory = shares[name], found[name]["memory"]
    numbers = {"window": trained, "share_behind": shares}
    reach = f"{memory} steps" if memory is not None else f"more than {len(found[name]['norms']) - 1} steps"
    said = f"{share:.0%} of the gradient of {name} lies behind the window of {trained} (1 % is left after {reach})"
    narrow = trained < SHORT
    limit, level = (CUT / 2, Level.FAULT) if narrow else (CUT, Level.CONCERN)
    if share > limit:
        wider = max(2 * int(trained), min(memory or 200, 200)) if narrow else 2 * int(trained)
        advice = f"a longer window (--window {wider})"
        if not narrow:
            advice += ", and more time, since its steps are longer"
        if mode is not None:
            advice += f", or --bptt full in place of {subject.net.bptt}"
        return Seen(Finding("window", level, share, limit, f"the window cuts memory off: {said}", advice), numbers)
    return Seen(Finding("window", Level.SOUND, share, limit, f"the window is wide enough: {said}"), numbers)


def _rms(norms: Tensor) -> np.ndarray[Any, Any]:
    rms: np.ndarray[Any, Any] = norms.detach().double().square().mean(dim=0).sqrt().cpu().numpy()
    return rms

"""Gates by name: where they stand, which are stuck, which units are dead.

A cell only writes its step, so its gates are found by watching it: an activation function applied to what comes from
one gate's shares of input and state (x.g, h.g) and from no other gate directly is that gate's activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recur.probes.finding import Finding, Level, Seen
from recur.probes.subject import Layer, Subject

SLOPES: dict[str, tuple[Any, float]] = {
    "sigmoid": (lambda a: a * (1 - a), 0.25),
    "tanh": (lambda a: 1 - a * a, 1.0),
    "relu": (lambda a: (a > 0).to(a.dtype), 1.0),
    "softplus": (lambda a: 1 - torch.exp(-a), 1.0),
    "hardsigmoid": (lambda a: ((a > 0) & (a < 1)).to(a.dtype) / 6, 1 / 6),
}
"""φ′ in terms of φ, and the most it can be."""

_PLACES = (torch, Tensor, torch.nn.functional)
_KINDS: dict[Any, str] = {getattr(p, kind): kind for kind in SLOPES for p in _PLACES if hasattr(p, kind)}

SHUT, OPEN = 0.05, 0.95
ERASES = 0.1
"""A gate that keeps the state and is lower on average is called stuck."""
SATURATED = 0.95
"""A gate of which a larger share stands below SHUT or above OPEN is called saturated."""
DEAD = 0.25
"""A larger share of dead units is called a fault."""
SWELLS = 4.0
"""The last quarter of a text over its first, from which a state is said to keep growing; steady growth makes it 7."""
STILL = 1e-4
"""A unit whose state moves by less along the whole text carries nothing."""


@dataclass
class Activation:
    """One gate's activation along the text."""

    gate: str
    kind: str
    values: Tensor
    """(T, H), for the first row."""

    @property
    def slopes(self) -> Tensor:
        slope: Tensor = SLOPES[self.kind][0](self.values)
        return slope

    @property
    def low(self) -> float:
        """The share of values near the lower end: below 0.05 for σ, −0.95 for tanh; 0 for ReLU."""
        least = {"tanh": -OPEN, "relu": 0.0}.get(self.kind, SHUT)
        return float((self.values <= least).double().mean())

    @property
    def high(self) -> float:
        return float((self.values >= OPEN).double().mean()) if self.kind in ("sigmoid", "tanh", "hardsigmoid") else 0.0


class _Provenance(TorchFunctionMode):
    """Follows which gates' shares a tensor comes from, up to the next activation."""

    def __init__(self, sources: dict[int, str]) -> None:
        super().__init__()
        self.of: dict[int, frozenset[str]] = {key: frozenset([gate]) for key, gate in sources.items()}
        self.found: list[tuple[frozenset[str], str, Tensor]] = []
        self.kept: list[Any] = []  # an id is a tensor's own only while the tensor lives

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor):
            return out
        gates = frozenset[str]().union(*(self.of.get(id(a), frozenset()) for a in args if isinstance(a, Tensor)))
        kind = _KINDS.get(func)
        if kind is not None:
            self.found.append((gates, kind, out.detach()))
            gates = frozenset()
        self.of[id(out)] = gates
        self.kept.append((args, out))
        return out


@torch.no_grad()
def activations(layer: Layer) -> dict[str, Activation]:
    """The activations of a layer's gates along the text, by gate; gates without one are left out."""
    cell = layer.cell
    x, h, s, w = layer.shares(layer.inputs[0, 1:], [part[0] for part in layer.before])
    sources = {id(t): g for t, g in zip((*x, *h), (*cell.gates, *cell.recurrent_gates), strict=True)}
    with _Provenance(sources) as watching:
        cell.advance(x, h, s, w)
    found: dict[str, Activation] = {}
    for gates, kind, values in watching.found:
        if len(gates) == 1:
            (gate,) = gates
            found.setdefault(gate, Activation(gate, kind, values))
    return found


def distributions(layer: Layer) -> dict[str, Any]:
    """For each gate: mean, share at either end, a histogram, and the same two shares for every unit."""
    found = {}
    for gate, seen in activations(layer).items():
        low, high = (-1.0, 1.0) if seen.kind == "tanh" else (0.0, max(1.0, float(seen.values.max())))
        counts = torch.histc(seen.values.float(), 20, low, high)
        found[gate] = {
            "activation": seen.kind,
            "mean": float(seen.values.mean()),
            "low": seen.low,
            "high": seen.high,
            "range": [low, high],
            "histogram": (counts / counts.sum()).tolist(),
            "unit_means": seen.values.mean(dim=0).tolist(),
        }
    return found


def forgetting(subject: Subject) -> Seen:
    """Whether the gate that keeps the state does keep it."""
    gate = subject.net.cell.forget_gate
    if gate is None:
        return Seen(Finding("forgetting", Level.SOUND, 1.0, ERASES, "the cell has no gate that keeps its state"))
    means = {}
    for layer in subject.layers:
        seen = activations(layer).get(gate)
        if seen is not None:
            means[layer.name] = float(seen.values.mean())
    if not means:
        return Seen(Finding("forgetting", Level.SOUND, 1.0, ERASES, f"gate {gate} has no activation to look at"))
    name = min(means, key=lambda key: means[key])
    value = means[name]
    if value < ERASES:
        verdict = f"gate {gate} of {name} is shut: {value:.3f} on average, so every step erases the memory"
        advice = "a forget bias (--forget-bias 1); weights that start smaller"
        return Seen(Finding("forgetting", Level.FAULT, value, ERASES, verdict, advice), means)
    verdict = f"gate {gate}, which keeps the state, is {value:.2f} on average in {name}"
    return Seen(Finding("forgetting", Level.SOUND, value, ERASES, verdict), means)


def saturation(subject: Subject) -> Seen:
    """Gates that stand at one end, whatever is read: their slope is nearly 0, so nothing can be learnt through them."""
    numbers = {layer.name: distributions(layer) for layer in subject.layers}
    ends = {
        (name, gate): seen["low"] + seen["high"]
        for name, gates in numbers.items()
        for gate, seen in gates.items()
        if seen["activation"] != "relu"
    }
    if not ends:
        return Seen(Finding("saturation", Level.SOUND, 0.0, SATURATED, "no gate here can saturate"), numbers)
    (name, gate), share = max(ends.items(), key=lambda item: item[1])
    seen = numbers[name][gate]
    where = f"{seen['low']:.0%} low, {seen['high']:.0%} high"
    said = f"gate {gate} of {name} stands at an end for {share:.0%} of the text ({where})"
    if share > SATURATED:
        advice = "a smaller rate, weights that start smaller (--init glorot), weight decay"
        finding = Finding("saturation", Level.CONCERN, share, SATURATED, f"{said}: hardly any gradient passes", advice)
    else:
        finding = Finding("saturation", Level.SOUND, share, SATURATED, said)
    return Seen(finding, numbers)


def dead_units(subject: Subject) -> Seen:
    """Units whose output never moves along the text: a ReLU that is never on, a tanh that is always at its end."""
    numbers: dict[str, Any] = {}
    for layer in subject.layers:
        h = next(iter(layer.states.values())).flatten(0, 1)
        still = (h.amax(dim=0) - h.amin(dim=0)) < STILL
        numbers[layer.name] = {"dead": still.nonzero()[:, 0].tolist(), "units": h.shape[1]}
        at_end = (h.abs() > 0.99).double().mean(dim=0) > OPEN
        numbers[layer.name]["saturated"] = (at_end & ~still).nonzero()[:, 0].tolist()
    shares = {name: len(part["dead"]) / part["units"] for name, part in numbers.items()}
    name = max(shares, key=lambda key: shares[key])
    share, part = shares[name], numbers[name]
    stuck = sum(len(p["saturated"]) for p in numbers.values())
    said = f"{len(part['dead'])} of {part['units']} units of {name} never move along the text; {stuck} stand at ±1"
    if share > DEAD:
        advice = "a smaller rate, init=identity or orthogonal, tanh in place of ReLU"
        return Seen(Finding("dead units", Level.FAULT, share, DEAD, said, advice), numbers)
    return Seen(Finding("dead units", Level.SOUND, share, DEAD, said), numbers)


def states(subject: Subject) -> Seen:
    """How long the states are along the text, and whether they keep growing."""
    numbers: dict[str, Any] = {}
    growth = {}
    for layer in subject.layers:
        for name, part in layer.states.items():
            norms = torch.linalg.vector_norm(part.double(), dim=-1).mean(dim=0)
            numbers[f"{layer.name}, {name}"] = norms.tolist()
            quarter = max(1, len(norms) // 4)
            growth[f"{layer.name}, {name}"] = float(norms[-quarter:].mean() / norms[:quarter].mean().clamp_min(1e-30))
    name = max(growth, key=lambda key: growth[key])
    value = growth[name]
    said = f"‖s_t‖ of {name} is × {value:.3g} at the end of the text what it was at the beginning"
    if not value < SWELLS:
        advice = "a cell that forgets (--cell lstm, gru), resets between texts, weight decay"
        finding = Finding("states", Level.CONCERN, value, SWELLS, f"the state keeps growing: {said}", advice)
    else:
        finding = Finding("states", Level.SOUND, value, SWELLS, f"states stay within bounds: {said}")
    return Seen(finding, numbers)

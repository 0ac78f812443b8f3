"""Gates by name: their activations, and which of them are saturated.

A cell only writes its step, so its gates are found by watching it: an activation function applied to what comes from
one gate's shares of input and state (x.g, h.g) and from no other gate directly is that gate's activation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recur.diagnostics.advice import opened
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.layer import Layer
from recur.diagnostics.subject import Subject
from recur.i18n import said

CLOSED, OPEN = 0.05, 0.95
ERASES = 0.1
"""A forget gate that is lower on average is called closed."""
SATURATED = 0.95
"""A gate is called saturated if a larger share of its values is below CLOSED or above OPEN."""


class Slope(NamedTuple):
    """The derivative of an activation function φ."""

    of: Callable[[Tensor], Tensor]
    """φ′ in terms of φ."""
    bound: float
    """The most it can be."""


SLOPES = {
    "sigmoid": Slope(lambda a: a * (1 - a), 0.25),
    "tanh": Slope(lambda a: 1 - a * a, 1.0),
    "relu": Slope(lambda a: (a > 0).to(a.dtype), 1.0),
    "softplus": Slope(lambda a: 1 - torch.exp(-a), 1.0),
    "hardsigmoid": Slope(lambda a: ((a > 0) & (a < 1)).to(a.dtype) / 6, 1 / 6),
}

_MODULES = (torch, Tensor, torch.nn.functional)
_KINDS: dict[Callable[..., object], str] = {
    getattr(module, kind): kind for kind in SLOPES for module in _MODULES if hasattr(module, kind)
}


@dataclass
class Activation:
    """One gate's activation along the text."""

    gate: str
    kind: str
    values: Tensor
    """(T, H), for the first row."""

    @property
    def slopes(self) -> Tensor:
        return SLOPES[self.kind].of(self.values)

    @property
    def low(self) -> float:
        """The share of values near the lower end: below 0.05 for σ, −0.95 for tanh; 0 for ReLU."""
        least = {"tanh": -OPEN, "relu": 0.0}.get(self.kind, CLOSED)
        return float((self.values <= least).double().mean())

    @property
    def high(self) -> float:
        return float((self.values >= OPEN).double().mean()) if self.kind in ("sigmoid", "tanh", "hardsigmoid") else 0.0


class _Provenance(TorchFunctionMode):
    """Follows which gates' shares a tensor comes from, up to the next activation function."""

    def __init__(self, sources: dict[int, str]) -> None:
        super().__init__()
        self.gates_of: dict[int, frozenset[str]] = {key: frozenset([gate]) for key, gate in sources.items()}
        self.found: list[tuple[frozenset[str], str, Tensor]] = []
        self.alive: list[object] = []  # an id is a tensor's own only while the tensor lives

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, Tensor):
            return out
        gates = frozenset[str]().union(*(self.gates_of.get(id(a), frozenset()) for a in args if isinstance(a, Tensor)))
        kind = _KINDS.get(func)
        if kind is not None:
            self.found.append((gates, kind, out.detach()))
            gates = frozenset()
        self.gates_of[id(out)] = gates
        self.alive.append((args, out))
        return out


@torch.no_grad()
def activations(layer: Layer) -> dict[str, Activation]:
    """The activations of a layer's gates along the text, by gate; gates without one are left out."""
    cell = layer.cell
    x, h, s, w = layer.step_arguments(layer.inputs[0, 1:], [part[0] for part in layer.previous])
    sources = {id(t): g for t, g in zip((*x, *h), (*cell.gates, *cell.recurrent_gates), strict=True)}
    with _Provenance(sources) as followed:
        cell.advance(x, h, s, w)
    found: dict[str, Activation] = {}
    for gates, kind, values in followed.found:
        if len(gates) == 1:
            (gate,) = gates
            found.setdefault(gate, Activation(gate, kind, values))
    return found


class Distribution(NamedTuple):
    """The values of one gate along the text."""

    activation: str
    mean: float
    low: float
    high: float
    range: tuple[float, float]
    """Of the histogram."""
    histogram: list[float]
    unit_means: list[float]


def distributions(layer: Layer) -> dict[str, Distribution]:
    """For each gate: mean, share at either end, a histogram, and the mean of every unit."""
    found = {}
    for gate, activation in activations(layer).items():
        values = activation.values
        low, high = (-1.0, 1.0) if activation.kind == "tanh" else (0.0, max(1.0, float(values.max())))
        counts = torch.histc(values.float(), 20, low, high)
        found[gate] = Distribution(
            activation=activation.kind,
            mean=float(values.mean()),
            low=activation.low,
            high=activation.high,
            range=(low, high),
            histogram=(counts / counts.sum()).tolist(),
            unit_means=values.mean(dim=0).tolist(),
        )
    return found


def forgetting(subject: Subject) -> Measurement:
    """Whether the forget gate lets the state persist."""
    gate = subject.net.cell.forget_gate
    if gate is None:
        return Measurement(Finding("forgetting", Level.OK, 1.0, ERASES, said("the cell has no forget gate")))
    found = {layer.name: activations(layer).get(gate) for layer in subject.layers}
    means = {name: float(part.values.mean()) for name, part in found.items() if part is not None}
    if not means:
        verdict = said("gate {gate} has no activation function", gate=gate)
        return Measurement(Finding("forgetting", Level.OK, 1.0, ERASES, verdict))
    name = min(means, key=lambda key: means[key])
    value = means[name]
    if value < ERASES:
        verdict = said(
            "forget gate {gate} of {name} is closed: {value:.3f} on average, so every step erases the memory",
            gate=gate, name=name, value=value,
        )  # fmt: skip
        tries = (opened(subject.net.cell.name),)
        return Measurement(Finding("forgetting", Level.FAULT, value, ERASES, verdict, tries), means)
    verdict = said("forget gate {gate} is {value:.2f} on average in {name}", gate=gate, value=value, name=name)
    return Measurement(Finding("forgetting", Level.OK, value, ERASES, verdict), means)


def saturation(subject: Subject) -> Measurement:
    """Gates that are at one end for any input: their slope is nearly 0, so no gradient passes through them."""
    found = {layer.name: distributions(layer) for layer in subject.layers}
    numbers = {name: {gate: part._asdict() for gate, part in gates.items()} for name, gates in found.items()}
    ends = {
        (name, gate): part.low + part.high
        for name, gates in found.items()
        for gate, part in gates.items()
        if part.activation != "relu"
    }
    if not ends:
        verdict = said("no activation of one gate alone can saturate")
        return Measurement(Finding("saturation", Level.OK, 0.0, SATURATED, verdict), numbers)
    name, gate = max(ends, key=lambda key: ends[key])
    share, part = ends[name, gate], found[name][gate]
    detail = said(
        "gate {gate} of {name} is saturated {share:.0%} of the time ({low:.0%} shut, {high:.0%} open)",
        gate=gate, name=name, share=share, low=part.low, high=part.high,
    )  # fmt: skip
    if share > SATURATED:
        verdict = said("{detail}: hardly any gradient passes through it", detail=detail)
        return Measurement(Finding("saturation", Level.WARNING, share, SATURATED, verdict), numbers)
    return Measurement(Finding("saturation", Level.OK, share, SATURATED, detail), numbers)

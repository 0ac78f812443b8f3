"""The states along a text: units that are dead, and norms that keep growing."""

from __future__ import annotations

from typing import NamedTuple

import torch

from recur.diagnostics.advice import other_units
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.layer import Layer
from recur.diagnostics.subject import Subject
from recur.i18n import said

DEAD = 0.25
"""A larger share of dead units is called a fault."""
STILL = 1e-4
"""A unit whose state changes by less along the whole text is dead."""
SATURATED = 0.99, 0.95
"""A unit is saturated if |h| is above the first of these for a larger share of the text than the second."""
FEWEST = 8
"""Steps, before a unit that does not change is called dead."""
GROWING = 4.0
"""The last quarter of a text over its first, from which a state is said to keep growing; steady growth makes it 7."""


class Units(NamedTuple):
    """The units of a layer that carry no information."""

    dead: list[int]
    saturated: list[int]
    units: int


def idle_units(layer: Layer) -> Units:
    h = next(iter(layer.states.values())).flatten(0, 1)
    size, share = SATURATED
    still = (h.amax(dim=0) - h.amin(dim=0)) < STILL
    at_end = (h.abs() > size).double().mean(dim=0) > share
    dead, saturated = (mask.nonzero()[:, 0].tolist() for mask in (still, at_end & ~still))
    return Units(dead, saturated, h.shape[1])


def dead_units(subject: Subject) -> Measurement:
    """Units whose output is constant along the text: a ReLU that is never on, a tanh that is always at its end."""
    found = {layer.name: idle_units(layer) for layer in subject.layers}
    numbers = {name: part._asdict() for name, part in found.items()}
    shares = {name: len(part.dead) / part.units for name, part in found.items()}
    name = max(shares, key=lambda key: shares[key])
    share, worst = shares[name], found[name]
    saturated = sum(len(part.saturated) for part in found.values())
    if subject.length < FEWEST:
        few = said("not known: {steps} steps are too few to call a unit dead", steps=subject.length)
        return Measurement(Finding("dead units", Level.UNKNOWN, share, DEAD, few), numbers)
    verdict = said(
        "{dead} of {units} units of {name} are dead: their output never changes; {saturated} stay at ±1",
        dead=len(worst.dead), units=worst.units, name=name, saturated=saturated,
    )  # fmt: skip
    if share > DEAD:
        return Measurement(Finding("dead units", Level.FAULT, share, DEAD, verdict, (other_units(),)), numbers)
    return Measurement(Finding("dead units", Level.OK, share, DEAD, verdict), numbers)


def states(subject: Subject) -> Measurement:
    """The norm of each state along the text, and whether it keeps growing."""
    numbers = {}
    growth = {}
    for layer in subject.layers:
        for state, values in layer.states.items():
            norms = torch.linalg.vector_norm(values.double(), dim=-1).mean(dim=0)
            quarter = max(1, len(norms) // 4)
            numbers[f"{layer.name}, {state}"] = norms.tolist()
            first, last = norms[:quarter].mean(), norms[-quarter:].mean()
            growth[f"{layer.name}, {state}"] = float(last / first.clamp_min(1e-30))
    name = max(growth, key=lambda key: growth[key])
    value = growth[name]
    detail = said(
        "‖s_t‖ of {name} in the last quarter is × {value:.3g} that in the first", name=name, value=value
    )  # fmt: skip
    if not value < GROWING:
        verdict = said("the state keeps growing: {detail}", detail=detail)
        finding = Finding("states", Level.WARNING, value, GROWING, verdict)
    else:
        finding = Finding("states", Level.OK, value, GROWING, said("states are bounded: {detail}", detail=detail))
    return Measurement(finding, numbers)

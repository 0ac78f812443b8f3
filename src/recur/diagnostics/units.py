"""Single units: what they follow along a text, and where the state was similar before.

A unit is ranked by |r|, the correlation of its state along the text with a feature of the text:

    column      how far into its line        line length   of the line around it
    position    how far into the text        brackets      how many are open
    quotes      inside a pair or not         a label       numbers of the user's own, one for each token
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recur.diagnostics.finding import Finding, Level, Measurement, other_units
from recur.diagnostics.subject import Layer, Subject, part_name
from recur.errors import OptionError, ShapeError
from recur.i18n import Message

Series = NDArray[np.float64]

CLEAR = 0.6
"""|r| from which a unit is said to follow a feature."""
LINE_ENDS = ("\n", "<eos>")
OPENING, CLOSING, QUOTE = "([{（【「《", ")]}）】」》", '"'
DIRECTED_QUOTES = {"“": 1, "”": 0}
TAIL = 4
"""Tokens at the end of a span whose states are compared: how it ended, and how it came there."""


class UnitCorrelation(NamedTuple):
    """Correlation of one unit with a feature of the text."""

    layer: str
    state: str
    unit: int
    r: float


class SimilarSpan(NamedTuple):
    """Tokens begin … end (exclusive), and the cosine similarity of their states."""

    begin: int
    end: int
    similarity: float


# Features of a text -------------------------------------------------------------------------------------


def features(tokens: Sequence[str], labels: Mapping[str, Sequence[float]] | None = None) -> dict[str, Series]:
    """Features of a text, token by token, as they are after each; those that never change are left out."""
    N = len(tokens)
    column = np.array(list(_columns(tokens)), np.float64)
    found = {
        "position": np.arange(N, dtype=np.float64),
        "column": column,
        "line length": _line_lengths(column),
        "brackets": np.array(list(_open_brackets(tokens)), np.float64),
        "quotes": np.array(list(_inside_quotes(tokens)), np.float64),
    }
    for name, values in (labels or {}).items():
        if len(values) != N:
            raise ShapeError(f"label {name!r} must have a number for each of {N} tokens, got {len(values)}")
        found[name] = np.asarray(values, np.float64)
    return {name: series for name, series in found.items() if series.std() > 0}


def _columns(tokens: Sequence[str]) -> Iterator[int]:
    column = 0
    for token in tokens:
        column = 0 if token in LINE_ENDS else column + 1
        yield column


def _line_lengths(column: Series) -> Series:
    """The length of the line around each token; a line begins where the column goes back to 0."""
    lengths = np.zeros(len(column))
    starts = [0, *(k for k in range(1, len(column)) if column[k] == 0), len(column)]
    for begin, end in pairwise(starts):
        lengths[begin:end] = column[end - 1] if end else 0
    return lengths


def _characters(token: str) -> str:
    """Return the characters of a token; a special token such as <unk> has none."""
    return "" if len(token) >= 4 and token[0] == "<" else token


def _open_brackets(tokens: Sequence[str]) -> Iterator[int]:
    depth = 0
    for token in tokens:
        for character in _characters(token):
            depth = max(0, depth + (character in OPENING) - (character in CLOSING))
        yield depth


def _inside_quotes(tokens: Sequence[str]) -> Iterator[int]:
    inside = 0
    for token in tokens:
        for character in _characters(token):
            inside = 1 - inside if character == QUOTE else DIRECTED_QUOTES.get(character, inside)
        if token in LINE_ENDS:
            inside = 0  # a mark that is never closed ends with its line
        yield inside


# Units --------------------------------------------------------------------------------------------------


def correlations(states: Tensor, series: Series) -> Tensor:
    """r of each unit, (T, H) → (H,); 0 for a unit that is constant."""
    s = states.double() - states.double().mean(dim=0)
    f = torch.from_numpy(series - series.mean())
    norms = torch.linalg.vector_norm(s, dim=0) * torch.linalg.vector_norm(f)
    r: Tensor = (f @ s) / norms.clamp_min(1e-30)
    return r


def unit_values(subject: Subject, layer: int = 0, state: str = "", unit: int = 0) -> Tensor:
    """(T,): one unit of a state along the text, to colour it by."""
    if not 0 <= layer < len(subject.layers):
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}",
                name="layer",
                low="0",
                high=len(subject.layers) - 1,
                given=layer,
            )
        )
    states = subject.layers[layer].states
    name = state or next(iter(states))
    if name not in states:
        raise OptionError(
            Message(
                "{name} must be one of {known}, got {given}", name="state", known=", ".join(states), given=repr(name)
            )
        )
    values = states[name][0]
    if not 0 <= unit < values.shape[1]:
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}",
                name="unit",
                low="0",
                high=values.shape[1] - 1,
                given=unit,
            )
        )
    return values[:, unit]


def rank_units(
    subject: Subject, labels: Mapping[str, Sequence[float]] | None = None, top: int = 5
) -> dict[str, list[UnitCorrelation]]:
    """For each feature of the text, the units that follow it best."""
    found = {}
    for name, series in features(tokens_read(subject), labels).items():
        best: list[UnitCorrelation] = []
        for layer in subject.layers:
            for state, values in layer.states.items():
                r = correlations(values[0], series)
                for k in r.abs().topk(min(top, len(r))).indices.tolist():
                    best.append(UnitCorrelation(layer.name, state, k, float(r[k])))
        found[name] = sorted(best, key=lambda unit: -abs(unit.r))[:top]
    return found


def unit_features(subject: Subject, labels: Mapping[str, Sequence[float]] | None = None, top: int = 5) -> Measurement:
    """Find the unit that follows each feature of the text best."""
    ranked = rank_units(subject, labels, top)
    numbers = {"ranked": {name: [unit._asdict() for unit in units] for name, units in ranked.items()}}
    if not ranked:
        return Measurement(
            Finding("units", Level.OK, 0.0, CLEAR, Message("the text has no feature to follow")), numbers
        )
    name = max(ranked, key=lambda key: abs(ranked[key][0].r))
    best = ranked[name][0]
    about = {"unit": best.unit, "state": best.state, "layer": best.layer, "feature": name, "r": best.r}
    if abs(best.r) > CLEAR:
        verdict = Message("unit {unit} of {state}, {layer}, follows {feature}: r = {r:.2f}", **about)
    else:
        verdict = Message(
            "no unit clearly follows a feature; the closest is unit {unit} of {state}, {layer}, with {feature}: r = "
            "{r:.2f}",
            **about,
        )
    return Measurement(Finding("units", Level.OK, abs(best.r), CLEAR, verdict), numbers)


def similar_spans(subject: Subject, begin: int, end: int, layer: int = -1, top: int = 8) -> list[SimilarSpan]:
    """Find spans whose state is similar to the state at the end of tokens begin … end (exclusive), best first."""
    return _similar(subject, subject, begin, end, layer, top)


def similar_elsewhere(
    subject: Subject, other: Subject, begin: int, end: int, layer: int = -1, top: int = 8
) -> list[SimilarSpan]:
    """Find similar spans in another text that the same network has read."""
    return _similar(subject, other, begin, end, layer, top)


def _similar(subject: Subject, other: Subject, begin: int, end: int, layer: int, top: int) -> list[SimilarSpan]:
    here, there = (
        torch.cat([part[0] for part in each.layers[layer].states.values()], dim=-1).double()
        for each in (subject, other)
    )
    N, width = len(here), end - begin
    if not 0 <= begin < end <= N:
        raise OptionError(
            Message(
                "a span must lie in {low} … {high} and hold at least one token, got {begin} … {end}",
                low="0",
                high=N,
                begin=begin,
                end=end,
            )
        )
    mean = there.mean(dim=0)  # the same at all places, it tells none apart
    here, there = (
        part / torch.linalg.vector_norm(part, dim=-1, keepdim=True).clamp_min(1e-30)
        for part in (here - mean, there - mean)
    )
    tail, M = min(width, TAIL, len(there)), len(there)
    cosines = [there[tail - 1 - k : M - k] @ here[end - 1 - k] for k in range(tail)]
    score = torch.full((M,), -torch.inf, dtype=torch.float64)
    score[tail - 1 :] = torch.stack(cosines).mean(dim=0)
    if other is subject:
        score[begin : end + width] = -torch.inf
    found: list[SimilarSpan] = []
    while len(found) < top and score.max() > -torch.inf:
        k = int(score.argmax())
        found.append(SimilarSpan(max(0, k + 1 - width), k + 1, float(score[k])))
        score[max(0, k - width) : k + width + 1] = -torch.inf
    return found


def tokens_read(subject: Subject) -> list[str]:
    """The tokens as the network read them: the one that precedes the text first."""
    return [subject.token(k) for k in subject.rows(1, len(subject.inputs))[0][0].tolist()]


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
        few = Message("unknown: {steps} steps are too few to call a unit dead", steps=subject.length)
        return Measurement(Finding("dead units", Level.UNKNOWN, share, DEAD, few), numbers)
    verdict = Message(
        "{dead} of {units} units of {name} are dead (constant output); {saturated} are saturated at ±1",
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
            numbers[part_name(layer.name, state)] = norms.tolist()
            first, last = norms[:quarter].mean(), norms[-quarter:].mean()
            growth[part_name(layer.name, state)] = float(last / first.clamp_min(1e-30))
    name = max(growth, key=lambda key: growth[key])
    value = growth[name]
    detail = Message(
        "‖s_t‖ of {name} is × {value:.3g} in the last quarter compared with the first", name=name, value=value
    )  # fmt: skip
    if not value < GROWING:
        verdict = Message("the hidden state keeps growing: {detail}", detail=detail)
        finding = Finding("states", Level.WARNING, value, GROWING, verdict)
    else:
        finding = Finding(
            "states", Level.OK, value, GROWING, Message("the hidden state is bounded: {detail}", detail=detail)
        )
    return Measurement(finding, numbers)

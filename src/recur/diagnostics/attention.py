"""Where a model that writes from a source looks: how sharply, and whether it looks at all of it.

sharpness    exp of the entropy of a symbol's weights: at how many places of the source it looks, as it were; over
             the length of the source it is 1 where it looks everywhere alike
coverage     the share of the source's places that got at least half a look in all, Σ_t α_ts ≥ 0.5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recur.data.text import Pair
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.i18n import said
from recur.tasks.seq2seq.predictor import Transducer

PAIRS = 64
"""Of the validation part."""
BLURRED = 0.5
"""Places looked at over the source's length, from which on attention chooses nothing."""
LEFT_OUT = 0.3
"""The share of places without half a look, from which on parts of the source are left out."""
LOOK = 0.5
SHOWN = 40
"""Symbols of the map that is drawn, at most."""


def attention(predictor: Transducer) -> Measurement:
    if predictor.model.decoder.attention is None:
        verdict = said("it has no attention: all that it knows of its source is one state")
        return Measurement(Finding("attention", Level.OK, 0.0, BLURRED, verdict))
    pairs = predictor.task.read(predictor.run.vocabs).valid_pairs[:PAIRS]
    found = list(predictor.predictions([pair.source for pair in pairs], attention=True))
    wrote = [(row, pair) for row, pair in zip(found, pairs, strict=True) if row["attention"]["weights"]]
    if not wrote:
        return Measurement(Finding("attention", Level.UNKNOWN, 0.0, BLURRED, said("not known: it wrote nothing")))
    places, covered, right = [], [], []
    for row, pair in wrote:
        weights = np.array(row["attention"]["weights"])
        entropy = -(weights * np.log(np.maximum(weights, 1e-12))).sum(-1)
        places.append(float(np.exp(entropy).mean() / weights.shape[1]))
        covered.append(float((weights.sum(0) >= LOOK).mean()))
        right.append(row["output"] == pair.target)
    numbers: dict[str, Any] = {"places": places, "coverage": covered, "right": right, "example": _clearest(wrote)}
    blurred, left_out = float(np.mean(places)), 1 - float(np.mean(covered))
    detail = said(
        "a symbol looks at {blurred:.0%} of the places of its source, and {covered:.0%} of them get half a "
        "look or more",
        blurred=blurred, covered=1 - left_out,
    )  # fmt: skip
    if blurred > BLURRED:
        verdict = said("attention is blurred: {detail}", detail=detail)
        return Measurement(Finding("attention", Level.WARNING, blurred, BLURRED, verdict), numbers)
    if left_out > LEFT_OUT:
        verdict = said("parts of the source are left out: {detail}", detail=detail)
        return Measurement(Finding("attention", Level.WARNING, left_out, LEFT_OUT, verdict), numbers)
    verdict = said("attention is sharp and covers its source: {detail}", detail=detail)
    return Measurement(Finding("attention", Level.OK, blurred, BLURRED, verdict), numbers)


def _clearest(wrote: Sequence[tuple[Mapping[str, Any], Pair]]) -> dict[str, Any]:
    """A map of a size that can be drawn."""
    looked = [row["attention"] for row, _ in wrote]
    fitting = [one for one in looked if len(one["source"]) <= SHOWN and len(one["target"]) <= SHOWN] or looked[:1]
    return max(fitting, key=lambda one: len(one["source"]))

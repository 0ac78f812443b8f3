"""States and gates along a text: one unit of them, all units as a map, and where else the state was similar."""

from __future__ import annotations

import base64
import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recur.diagnostics import Subject
from recur.diagnostics.gates import Activation, activations
from recur.diagnostics.subject import Layer
from recur.diagnostics.units import correlations, features, similar_elsewhere, similar_spans, tokens_read
from recur.errors import OptionError
from recur.i18n import Message
from recur.serve.http.fields import field, number
from recur.studio.fields import text_of
from recur.studio.loaded import LoadedModel, shown_text
from recur.studio.looking import Looked, look
from recur.tasks.language.data import corpora, in_reading_order
from recur.tasks.language.predictor import Language
from recur.utils.types import JsonObject

SIMILAR = 0.3
"""The least cosine of states that are called similar."""
BOUNDED = ("sigmoid", "hardsigmoid", "tanh")
COLUMNS, UNITS = 240, 512
"""Tokens and units of the map, at most: the last tokens, the first units."""
SEARCHED = 6000
"""Tokens of the training text in which similar states are looked for."""
AROUND = 12
"""Tokens of the training text on either side of a place that is shown."""


class Signal(NamedTuple):
    """One state or gate along a text."""

    values: Tensor
    """(T, H), in the order of the text."""
    bounded: bool
    """Whether they lie in ± 1 by themselves."""
    names: list[str]
    """Of all signals of the layer."""
    layer: int
    layers: list[str]


def _signal(subject: Subject, request: JsonObject) -> Signal:
    layers = subject.layers
    number_ = field(request, "layer", 0, 0, len(layers) - 1)
    layer = layers[number_]
    gates = activations(layer)
    names = [*(f"state {name}" for name in layer.states), *(f"gate {name}" for name in gates)]
    signal = field(request, "signal", names[0])
    if signal not in names:
        raise OptionError(
            Message(
                "{name} must be one of {known}, got {given}", name="signal", known=", ".join(names), given=repr(signal)
            )
        )
    values, bounded = _values(layer, gates, signal)
    if layer.name.endswith("backward"):  # which read the text from its end
        values = values.flip(0)
    return Signal(values, bounded, names, number_, [part.name for part in layers])


def _values(layer: Layer, gates: dict[str, Activation], signal: str) -> tuple[Tensor, bool]:
    """(T, H) of `state h` or `gate f`, and whether its values lie in ±1."""
    kind, name = signal.split(" ", 1)
    if kind == "state":
        return layer.states[name][0], False
    values = gates[name].values
    # The state before the first step is not recorded: its gate is shown as that of the second.
    return torch.cat([values[:1], values]), gates[name].kind in BOUNDED


def unit_activations(model: LoadedModel, request: JsonObject) -> JsonObject:
    """One unit of a state or gate along a text, and the unit that follows each feature of the text best."""
    looked = look(model, text_of(request))
    tokens, signal = looked.tokens, _signal(looked.subject, request)
    values = signal.values
    unit = field(request, "unit", 0, 0, values.shape[1] - 1)
    scale = 1.0 if signal.bounded else max(float(values[:, unit].abs().max()), 1e-9)
    best = {}
    for name, series in (features(tokens) if looked.features is None else looked.features).items():
        r = correlations(values, series)
        k = int(r.abs().argmax())
        best[name] = {"unit": k, "r": float(r[k])}
    return {
        "tokens": tokens,
        "words": looked.words,
        "values": [number(value) for value in (values[:, unit] / scale).tolist()],
        "scale": scale,
        "unit": unit,
        "units": values.shape[1],
        "layers": signal.layers,
        "signals": signal.names,
        "features": best,
    }


def unit_map(model: LoadedModel, request: JsonObject) -> JsonObject:
    """All units × time: bytes, 127 for the largest absolute value, in base64."""
    tokens, subject, *_ = look(model, text_of(request))
    signal = _signal(subject, request)
    values = signal.values[-COLUMNS:, :UNITS].double()
    scale = 1.0 if signal.bounded else max(float(values.abs().max()), 1e-9)
    cells = (values / scale).clamp(-1, 1).mul(127).round().to(torch.int8).t().contiguous()
    return {
        "tokens": tokens[-COLUMNS:],
        "units": cells.shape[0],
        "all_units": signal.values.shape[1],
        "scale": number(scale),
        "cells": base64.b64encode(cells.numpy().tobytes()).decode(),
    }


# Similar states ---------------------------------------------------------------------------------------------


def similar(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Spans whose state is similar to that at the end of a span: in the text itself, and in what it learned from."""
    subject = look(model, text_of(request)).subject
    begin, end = field(request, "begin", 0), field(request, "end", 1)
    layer = field(request, "layer", 0, 0, len(subject.layers) - 1)
    spans = similar_spans(subject, begin, end, layer)
    found: JsonObject = {"spans": [span._asdict() for span in spans if span.similarity >= SIMILAR], "training": None}
    learned = model.kept("training text", lambda: _training_text(model))
    if learned is not None:
        places = similar_elsewhere(subject, learned.subject, begin, end, layer)
        found["training"] = [
            {
                "before": "".join(_spaced(model, learned.tokens[max(0, span.begin - AROUND) : span.begin])),
                "text": "".join(_spaced(model, learned.tokens[span.begin : span.end])),
                "after": "".join(_spaced(model, learned.tokens[span.end : span.end + AROUND])),
                "similarity": span.similarity,
                "at": span.begin,
            }
            for span in places
            if span.similarity >= SIMILAR
        ]
        found["searched"] = len(learned.tokens)
    return found


def _spaced(model: LoadedModel, tokens: list[str]) -> list[str]:
    between = "" if model.predictor.run.vocab.tokenizer.kind in ("char", "subword") else " "
    return [token + between for token in tokens]


def _training_text(model: LoadedModel) -> Looked | None:
    """The beginning of what a language model learned from, read; None where that is not here."""
    if not isinstance(model.predictor, Language) or not model.predictor.has_training_texts():
        return None
    language = model.language
    ids, read = [], 0
    for piece in language.vocab.encode_pieces(itertools.islice(corpora(language.options)[0].pieces(), 50)):
        ids.append(piece)
        read += len(piece)
        if read >= SEARCHED:
            break
    ordered = in_reading_order(np.concatenate(ids)[:SEARCHED], language.options)
    subject = model.subject_of(torch.from_numpy(np.asarray(ordered, np.int64).copy()))
    return Looked([shown_text(token) for token in tokens_read(subject)], subject)

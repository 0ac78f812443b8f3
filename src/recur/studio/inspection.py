"""Inside a model: saliency of tokens, units along a text, similar states, and the shapes of the unrolled network.

Saliency is gradient × input:

    s_k  =  ⟨∂ log P(token) / ∂x_k, x_k⟩          x_k the vector of the k-th token read

It is computed over the last tokens, from the state before them; all earlier tokens are one value, ⟨∂ log P / ∂s, s⟩.
So its cost does not depend on the length of the text.
"""

from __future__ import annotations

import base64
import inspect
import itertools
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from recur.decoding.sampling import forbidden_tokens
from recur.diagnostics import Subject
from recur.diagnostics.gates import Activation, activations
from recur.diagnostics.subject import Layer
from recur.diagnostics.units import correlations, features, similar_elsewhere, similar_spans, tokens_read
from recur.errors import OptionError
from recur.i18n import Message
from recur.models.layers import append_time, split_state, time_positions
from recur.serve.http import RequestModel, check_range, finite_or_none, validate
from recur.studio.loaded_model import EncodedText, LoadedModel, get_text, shown_text
from recur.studio.prediction import ModelTrace, trace_model
from recur.tasks.language.data import corpora, in_reading_order
from recur.tasks.language.predictor import Language
from recur.utils.types import JsonObject

SPAN = 48
"""Tokens with a value of their own."""


Natural = Annotated[int, Field(ge=0, le=10**9)]


class SaliencyRequest(RequestModel):
    """Next token that saliency explains; "" is the likeliest."""

    token: str = ""


class UnitRequest(RequestModel):
    """Layer, signal and unit whose activations are shown."""

    layer: int = 0
    signal: str = ""
    unit: int = 0


class SpanRequest(RequestModel):
    """Span of a text, and the layer whose states are compared."""

    begin: Natural = 0
    end: Natural = 1
    layer: int = 0


def saliency(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return how much each of the last tokens adds to the log probability of the likeliest or the named next token."""
    vocab = model.language.vocab
    _, reading = model.read(request)
    token = validate(SaliencyRequest, request).token
    if token and token not in vocab.ids:
        raise OptionError(Message("token {token} is not in the vocabulary", token=repr(token[:40])))
    target = vocab.ids[token] if token else likeliest(model, reading)
    network, first = model.language.model, max(1, len(reading.ids) - SPAN)
    mark = reading.before(first)
    ids = torch.from_numpy(reading.ids[mark.tokens :].astype("int64"))[None]
    start, earlier_ids, ids = mark.state, ids[:, : first - mark.tokens], ids[:, first - mark.tokens :]
    if earlier_ids.shape[1]:
        with torch.no_grad():
            start = network(earlier_ids, start).state
    about: JsonObject = {"target": shown_text(vocab.tokens[target]), "token": vocab.tokens[target]}
    about |= {"words": vocab.tokenizer.kind != "char", "backward": model.language.backward}
    if not ids.shape[1]:  # nothing but what precedes every text
        return {
            **about,
            "tokens": [],
            "values": [],
            "before": 0.0,
            "p": finite_or_none(float(mark.logits.softmax(-1)[target])),
        }
    state = tuple(tuple(part.detach().requires_grad_(part.is_floating_point()) for part in s) for s in start)
    x = network.embedding.vectors(ids).detach().requires_grad_()
    with torch.enable_grad():
        if network.clock is None:
            out = network.recurrent(x, state)[0]
        else:
            own, t = split_state(state, ids)
            out = network.recurrent(append_time(x, time_positions(t, ids.shape[1]), network.clock), own)[0]
        logp = network.logits_of(out[:, -1])[0].log_softmax(-1)[target]
        parts = [part for layer in state for part in layer if part.requires_grad]
        grads = torch.autograd.grad(logp, [x, *parts], allow_unused=True)
    values = [0.0] * ids.shape[1] if grads[0] is None else (grads[0] * x).sum(-1)[0].tolist()
    earlier = [float((g * part).detach().sum()) for g, part in zip(grads[1:], parts, strict=True) if g is not None]
    return {
        **about,
        "tokens": [shown_text(vocab.tokens[k]) for k in ids[0].tolist()],
        "values": [finite_or_none(value) for value in values],
        "before": finite_or_none(sum(earlier)),
        "p": finite_or_none(float(logp.detach().exp())),
    }


def likeliest(model: LoadedModel, reading: EncodedText) -> int:
    """Return the likeliest next token; after an unfinished word, among the words with this prefix."""
    logits = reading.end.logits.clone()
    logits[forbidden_tokens(model.language.model)] = -torch.inf
    among = model.readings.completions(reading.half) if reading.half else None
    return int(logits.argmax()) if among is None else among[int(logits[among].argmax())]


SIMILAR = 0.3
"""The least cosine of states that are called similar."""
BOUNDED = ("sigmoid", "hardsigmoid", "tanh")
MAP_TOKENS, MAP_UNITS = 240, 512
"""Tokens and units of the map, at most: the last tokens, the first units."""
SEARCHED = 6000
"""Tokens of the training text in which similar states are looked for."""
AROUND = 12
"""Tokens of the training text on either side of a place that is shown."""


class UnitSignal(NamedTuple):
    """One state or gate along a text, for all units."""

    values: Tensor
    """(T, H), in the order of the text."""
    bounded: bool
    """Whether the values are in ±1 by construction."""
    names: list[str]
    """Names of all signals of the layer."""
    layer: int
    layers: list[str]


def _unit_signal(subject: Subject, request: JsonObject) -> UnitSignal:
    layers, asked = subject.layers, validate(UnitRequest, request)
    number_ = check_range("layer", asked.layer, 0, len(layers) - 1)
    layer = layers[number_]
    gates = activations(layer)
    names = [*(f"state {name}" for name in layer.states), *(f"gate {name}" for name in gates)]
    signal = asked.signal if "signal" in request else names[0]
    if signal not in names:
        raise OptionError(
            Message(
                "{name} must be one of {known}, got {given}", name="signal", known=", ".join(names), given=repr(signal)
            )
        )
    values, bounded = _values(layer, gates, signal)
    if layer.name.endswith("backward"):  # which read the text from its end
        values = values.flip(0)
    return UnitSignal(values, bounded, names, number_, [part.name for part in layers])


def _values(layer: Layer, gates: dict[str, Activation], signal: str) -> tuple[Tensor, bool]:
    """Return the values (T, H) of `state h` or `gate f`, and whether they are in ±1."""
    kind, name = signal.split(" ", 1)
    if kind == "state":
        return layer.states[name][0], False
    values = gates[name].values
    # The state before the first step is not recorded: its gate is shown as that of the second.
    return torch.cat([values[:1], values]), gates[name].kind in BOUNDED


def unit_activations(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return one unit of a state or gate along a text, and the unit that correlates best with each feature."""
    looked = trace_model(model, get_text(request))
    tokens, signal = looked.tokens, _unit_signal(looked.subject, request)
    values = signal.values
    unit = check_range("unit", validate(UnitRequest, request).unit, 0, values.shape[1] - 1)
    scale = 1.0 if signal.bounded else max(float(values[:, unit].abs().max()), 1e-9)
    best = {}
    for name, series in (features(tokens) if looked.features is None else looked.features).items():
        r = correlations(values, series)
        k = int(r.abs().argmax())
        best[name] = {"unit": k, "r": float(r[k])}
    return {
        "tokens": tokens,
        "words": looked.words,
        "values": [finite_or_none(value) for value in (values[:, unit] / scale).tolist()],
        "scale": scale,
        "unit": unit,
        "units": values.shape[1],
        "layers": signal.layers,
        "signals": signal.names,
        "features": best,
    }


def unit_map(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return all units × time as int8 in base64, 127 for the largest absolute value."""
    tokens, subject, *_ = trace_model(model, get_text(request))
    signal = _unit_signal(subject, request)
    values = signal.values[-MAP_TOKENS:, :MAP_UNITS].double()
    scale = 1.0 if signal.bounded else max(float(values.abs().max()), 1e-9)
    cells = (values / scale).clamp(-1, 1).mul(127).round().to(torch.int8).t().contiguous()
    return {
        "tokens": tokens[-MAP_TOKENS:],
        "units": cells.shape[0],
        "all_units": signal.values.shape[1],
        "scale": finite_or_none(scale),
        "cells": base64.b64encode(cells.numpy().tobytes()).decode(),
    }


# Similar states ---------------------------------------------------------------------------------------------


def similar(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return spans with a state similar to that at the end of a span, in the text and in the training text."""
    subject = trace_model(model, get_text(request)).subject
    asked = validate(SpanRequest, request)
    begin, end, layer = asked.begin, asked.end, check_range("layer", asked.layer, 0, len(subject.layers) - 1)
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


def _training_text(model: LoadedModel) -> ModelTrace | None:
    """Read the beginning of the training text; return None if its files are gone."""
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
    return ModelTrace([shown_text(token) for token in tokens_read(subject)], subject)


LETTERS = {"weight_ih": "U", "weight_hh": "W"}
"""Of the recurrent weights, as the docs write them; the output matrix is V."""


def unfold(model: LoadedModel, _: JsonObject) -> JsonObject:
    """The parts of the unrolled network and their shapes."""
    network = model.language.model
    net: Any = network.recurrent
    if network.options.recurrence == "output":
        raise OptionError(Message("--recurrence output has no hidden state that goes from step to step"))
    return {
        "cell": type(net.cell).__name__,
        "equations": (inspect.getdoc(type(net.cell)) or "").split("\n\n")[0],
        "states": list(net.cell.states),
        "gates": list(net.cell.gates),
        "layers": net.num_layers,
        "H": net.hidden_size,
        "K": network.K,
        "D": network.embedding.width,
        "weights": [
            {"name": name, "letter": _letter(name, network.output is None), "shape": list(p.shape)}
            for name, p in network.named_parameters()
        ],
        "size": network.size,
    }


def _letter(name: str, tied: bool) -> str:
    """U, W or V for the matrices that have one."""
    if name == ("embedding.weight" if tied else "output"):
        return "V"
    return next((letter for kind, letter in LETTERS.items() if name.startswith(f"recurrent.{kind}")), "")

"""States and gates along a text: one unit of them, and where the state was similar."""

from __future__ import annotations

import torch
from torch import Tensor

from recur.errors import OptionError
from recur.probes.gates import Activation, activations
from recur.probes.layer import Layer
from recur.probes.units import correlations, features, similar_spans, tokens_read
from recur.studio.fields import text_of
from recur.studio.loaded import LoadedModel, display_text
from recur.typedefs import JsonObject
from recur.web.fields import field, number

SIMILAR = 0.3
"""The least cosine of states that are called similar."""
BOUNDED = ("sigmoid", "hardsigmoid", "tanh")


def unit_activations(model: LoadedModel, request: JsonObject) -> JsonObject:
    """One unit of a state or gate along a text, and the unit that follows each feature of the text best."""
    subject = model.subject(text_of(request))
    layer = subject.layers[field(request, "layer", 0, 0, len(subject.layers) - 1)]
    gates = activations(layer)
    signals = [*(f"state {name}" for name in layer.states), *(f"gate {name}" for name in gates)]
    signal = field(request, "signal", signals[0])
    if signal not in signals:
        raise OptionError(f"signal must be one of {', '.join(signals)}, got {signal!r}")
    values, bounded = _signal(layer, gates, signal)
    unit = field(request, "unit", 0, 0, values.shape[1] - 1)
    scale = 1.0 if bounded else max(float(values[:, unit].abs().max()), 1e-9)
    tokens = tokens_read(subject)
    best = {}
    for name, series in features(tokens).items():
        r = correlations(values, series)
        k = int(r.abs().argmax())
        best[name] = {"unit": k, "r": float(r[k])}
    return {
        "tokens": [display_text(token) for token in tokens],
        "values": [number(value) for value in (values[:, unit] / scale).tolist()],
        "unit": unit,
        "units": values.shape[1],
        "layers": [part.name for part in subject.layers],
        "signals": signals,
        "features": best,
    }


def _signal(layer: Layer, gates: dict[str, Activation], signal: str) -> tuple[Tensor, bool]:
    """(T, H) of `state h` or `gate f`, and whether its values lie in ±1."""
    kind, name = signal.split(" ", 1)
    if kind == "state":
        return layer.states[name][0], False
    values = gates[name].values
    # The state before the first step is not recorded: its gate is shown as that of the second.
    return torch.cat([values[:1], values]), gates[name].kind in BOUNDED


def similar(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Spans whose state is similar to that at the end of a span."""
    subject = model.subject(text_of(request))
    begin, end = field(request, "begin", 0), field(request, "end", 1)
    layer = field(request, "layer", 0, 0, len(subject.layers) - 1)
    spans = similar_spans(subject, begin, end, layer)
    return {"spans": [span._asdict() for span in spans if span.similarity >= SIMILAR]}

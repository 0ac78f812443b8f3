"""The views of the page: plain functions of a loaded model and a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.bptt import BPTT
from recur.decode import encode_prompt
from recur.decode.sampling import NEVER_WRITTEN
from recur.errors import OptionError
from recur.probes.flow import fit_decay
from recur.probes.gates import Activation, activations
from recur.probes.layer import Layer, layer_name
from recur.probes.terms import terms_of
from recur.probes.units import correlations, features, similar_spans, tokens_read
from recur.studio.fields import choice_of, text_of
from recur.studio.loaded import LoadedModel, display_text, without_specials
from recur.typedefs import JsonObject
from recur.web.fields import field, number

LENGTH = 2000
"""Tokens generated for one request, at most."""
BARS = 12
"""Likeliest next tokens."""
SIMILAR = 0.3
"""The least cosine of states that are called similar."""
FLOW_STEPS = 120
"""Steps of the heat map, at most."""
CLIPS = 200
"""Measurements of clipping, at most."""

BOUNDED = ("sigmoid", "hardsigmoid", "tanh")
LETTERS = {"weight_ih": "U", "weight_hh": "W"}
"""Of the recurrent weights, as the docs write them; the output matrix is V."""


# Writing --------------------------------------------------------------------------------------------------


def next_tokens(model: LoadedModel, request: JsonObject) -> JsonObject:
    """The likeliest next tokens: their probability, and that after temperature, top-k and top-p."""
    vocab = model.language.vocab
    logits = model.logits(encode_prompt(vocab, text_of(request)))
    logits = logits.index_fill(0, torch.tensor(NEVER_WRITTEN), -torch.inf)
    probability = logits.softmax(-1)
    drawn = choice_of(request).probabilities(logits)
    bars = []
    for k in probability.topk(min(BARS, len(probability))).indices.tolist():
        token = vocab.tokens[k]
        p, after = float(probability[k]), float(drawn[k])
        bars.append({"token": token, "text": display_text(token), "p": p, "drawn": after})
    positive = probability[probability > 0]
    entropy = float(-(positive * positive.log()).sum())
    space = vocab.tokenizer.kind == "word"
    return {"bars": bars, "entropy": entropy, "space": space, "backward": model.language.backward}


def generate(model: LoadedModel, request: JsonObject) -> Generator[str, None, None]:
    """A continuation, piece by piece. A bad request is refused before the first one."""
    language = model.language
    choice, text = choice_of(request), text_of(request)
    length = field(request, "length", 200, 1, LENGTH)
    seed = field(request, "seed", 0) if "seed" in request else None
    encode_prompt(language.vocab, text)
    pieces = language.stream(
        text, length, seed=seed, temperature=choice.temperature, top_k=choice.top_k, top_p=choice.top_p
    )
    return _in_order(pieces, language.backward, language.vocab.tokenizer.kind == "char")


def _in_order(pieces: Iterator[str], backward: bool, characters: bool) -> Generator[str, None, None]:
    """Pieces as they stand in the text. Those of a model that reads from the end stand each before the last one: they
    come once all are there, and nothing for each until then, so that whoever asks can give up."""
    held: list[str] = []
    for piece in pieces:
        if characters:  # <eos> is a token of words and ends a line; the page sends back known characters only
            piece = without_specials(piece)
        if backward:
            held.append(piece)
        yield "" if backward else piece
    if backward:
        yield "".join(held[::-1])


def example(model: LoadedModel, _: JsonObject) -> JsonObject:
    """A text to start from."""
    return {"text": model.example()}


# Activations ------------------------------------------------------------------------------------------------


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


# Gradients --------------------------------------------------------------------------------------------------


def gradients(model: LoadedModel, request: JsonObject) -> JsonObject:
    """‖∂L_T/∂s_t‖ for each layer, state and time, L_T the loss of the text's last token, with windows of τ steps; and
    the norm of every step's term of ∂L_T/∂W and ∂L_T/∂U."""
    subject = model.subject(text_of(request))
    steps = min(len(subject.inputs), FLOW_STEPS)
    tau = field(request, "tau", 0, 0, steps)
    x, y = (ids[:, -steps:] for ids in subject.rows(1, len(subject.inputs)))
    with subject.traced(_truncation(tau, steps)) as results:
        cross_entropy(subject.model(x).logits[:, -1], y[:, -1]).backward()
    rows, terms = [], []
    for suffix, trace in zip(subject.net.suffixes(), results[-1].trace, strict=True):
        for letter, found in sorted(terms_of(trace).items(), reverse=True):  # W before U
            facts = {"largest": found.largest, "share": number(found.share), "needed": found.steps}
            by_time = [number(norm) for norm in reversed(found.norms)]
            terms.append({"name": f"{letter}, {layer_name(suffix)}", "norms": by_time, **facts})
        for state, norms in trace.norms.items():
            line = norms[0].double()
            decay = fit_decay(line.flip(0).numpy())
            name, values = f"{state}, {layer_name(suffix)}", [number(norm) for norm in line.tolist()]
            rows.append({"name": name, "norms": values, "decay": number(decay.decay), "memory": decay.memory})
    return {
        "rows": rows,
        "terms": terms,
        "tokens": [display_text(subject.token(k)) for k in x[0].tolist()],
        "target": display_text(subject.token(int(y[0, -1]))),
        "tau": tau,
        "steps": steps,
        "clips": _clips(model),
    }


def _truncation(tau: int, steps: int) -> BPTT:
    """Windows of τ steps counted from the end, so that the last one is whole."""
    if not 0 < tau < steps:
        return BPTT()
    xi = torch.ones(steps)
    xi[list(range(steps - tau, 0, -tau))] = 0
    return BPTT(xi=xi)


def _clips(model: LoadedModel) -> list[JsonObject]:
    """How often training clipped the gradient, over time."""
    entries = model.language.run.metrics()[-CLIPS:]
    names = {"step": "step", "clipped": "clipped", "norm": "grad_norm"}
    return [{name: number(entry.get(key)) for name, key in names.items()} for entry in entries]


# Architecture -----------------------------------------------------------------------------------------------


def unfold(model: LoadedModel, _: JsonObject) -> JsonObject:
    """The parts of the unrolled network and their shapes."""
    network = model.language.model
    net: Any = network.recurrent
    if network.options.recurrence == "output":
        raise OptionError("--recurrence output has no hidden state that goes from step to step")
    return {
        "cell": type(net.cell).__name__,
        "equations": (inspect.getdoc(type(net.cell)) or "").split("\n\n")[0],
        "states": list(net.cell.states),
        "gates": list(net.cell.gates),
        "layers": net.layers,
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


VIEWS: dict[str, Callable[[LoadedModel, JsonObject], JsonObject]] = {
    "next": next_tokens,
    "example": example,
    "activations": unit_activations,
    "similar": similar,
    "gradients": gradients,
    "unfold": unfold,
}

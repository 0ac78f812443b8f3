"""What each view of the page asks for, computed: plain functions of a run and a request."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from recur.bptt import BPTT
from recur.decode import Choice, encode_prompt
from recur.errors import OptionError
from recur.probes.flow import describe
from recur.probes.gates import activations
from recur.probes.units import features, read_tokens, similar
from recur.studio.folder import Opened, shown, without_specials

TEXT = 4000
"""Characters that a view looks at, at most; of a longer prompt the end is read."""
LENGTH = 2000
"""Tokens written for one request, at most."""
BARS = 12
FLOW_STEPS = 120


def field(asked: dict[str, Any], name: str, kind: type, default: Any, low: float = 0, high: float = 1e9) -> Any:
    """A value of a request, of the right kind and within its bounds."""
    value: Any = asked.get(name, default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise OptionError(f"{name} must be {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, int | float) and not low <= value <= high:
        raise OptionError(f"{name} must lie in {low:g} … {high:g}, got {value}")
    return value


def text_of(asked: dict[str, Any], default: str = "") -> str:
    text: str = field(asked, "text", str, default)
    if len(text) > TEXT:
        raise OptionError(f"the text has {len(text):,} characters; {TEXT:,} are looked at, at most")
    return text


def choice_of(asked: dict[str, Any]) -> Choice:
    return Choice(
        temperature=field(asked, "temperature", float, 1.0, 0.05, 5),
        top_k=field(asked, "top_k", int, 0, 0, 10**6),
        top_p=field(asked, "top_p", float, 1.0, 0.01, 1),
    )


def next_tokens(opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    """The likeliest next tokens: what the model says, and what is left of it after temperature, top-k and top-p."""
    language = opened.language
    logits = opened.logits(encode_prompt(language.vocab, text_of(asked)))
    logits = logits.index_fill(0, torch.tensor([0, 1]), -torch.inf)
    chance = logits.softmax(-1)
    drawn = choice_of(asked).probabilities(logits)
    top = chance.topk(min(BARS, len(chance)))
    tokens = language.vocab.tokens
    bars = [
        {"token": tokens[k], "text": shown(tokens[k]), "p": float(chance[k]), "drawn": float(drawn[k])}
        for k in top.indices.tolist()
    ]
    kept = chance[chance > 0]
    return {
        "bars": bars,
        "entropy": float(-(kept * kept.log()).sum()),
        "space": language.vocab.tokenizer.kind == "word",
    }


def write(opened: Opened, asked: dict[str, Any]) -> Iterator[str]:
    """A continuation, piece by piece. What is wrong with a request is said before anything is written."""
    choice, text = choice_of(asked), text_of(asked)
    length = field(asked, "length", int, 200, 1, LENGTH)
    seed = field(asked, "seed", int, 0) if "seed" in asked else None
    encode_prompt(opened.language.vocab, text)
    options: dict[str, Any] = {"temperature": choice.temperature, "top_k": choice.top_k, "top_p": choice.top_p}
    pieces = opened.language.stream(text, length, seed=seed, **options)
    if opened.language.vocab.tokenizer.kind != "char":  # to words, an end is a word
        return pieces
    return (without_specials(piece) for piece in pieces)  # the page sends its text back, and characters know none


def see(opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    """One unit of a state or gate along a text, and which units follow what."""
    subject = opened.subject(text_of(asked))
    layer = field(asked, "layer", int, 0, 0, len(subject.layers) - 1)
    chosen = subject.layers[layer]
    gates = activations(chosen)
    names = [*(f"state {name}" for name in chosen.states), *(f"gate {name}" for name in gates)]
    what = field(asked, "what", str, names[0])
    if what not in names:
        raise OptionError(f"what must be one of {', '.join(names)}, got {what!r}")
    kind, name = what.split(" ", 1)
    series = chosen.states[name][0] if kind == "state" else gates[name].values
    if kind == "gate":  # the first step has no state before it that was recorded
        series = torch.cat([series[:1], series])
    unit = field(asked, "unit", int, 0, 0, series.shape[1] - 1)
    tokens = read_tokens(subject)
    low, high = (0.0, 1.0) if kind == "gate" and gates[name].kind == "sigmoid" else (-1.0, 1.0)
    bound = max(float(series[:, unit].abs().max()), 1e-9)
    scale = 1.0 if kind == "gate" else bound
    follow = {}
    for feature, values in features(tokens).items():
        centred = series.double() - series.double().mean(dim=0)
        target = torch.from_numpy(values - values.mean())
        r = (target @ centred) / (centred.norm(dim=0) * target.norm()).clamp_min(1e-30)
        best = int(r.abs().argmax())
        follow[feature] = {"unit": best, "r": float(r[best])}
    return {
        "tokens": [shown(token) for token in tokens],
        "values": (series[:, unit] / scale).tolist(),
        "range": [low, high],
        "unit": unit,
        "units": series.shape[1],
        "layers": [part.name for part in subject.layers],
        "what": names,
        "follow": follow,
    }


def alike(opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    """Places whose state is like that at the end of a span."""
    subject = opened.subject(text_of(asked))
    begin, end = field(asked, "begin", int, 0), field(asked, "end", int, 1)
    layer = field(asked, "layer", int, 0, 0, len(subject.layers) - 1)
    return {"spans": similar(subject, begin, end, layer)}


def gradients(opened: Opened, asked: dict[str, Any]) -> dict[str, Any]:
    """‖∂L_T/∂s_t‖ for each layer, state and time, L_T the loss of the text's last token, with windows of τ steps."""
    subject = opened.subject(text_of(asked))
    steps = min(len(subject.inputs), FLOW_STEPS)
    tau = field(asked, "tau", int, 0, 0, steps)
    x, y = subject.rows(1, len(subject.inputs))
    x, y = x[:, -steps:], y[:, -steps:]
    mode = BPTT()
    if tau and tau < steps:  # windows counted from the end, so that the last one is whole
        xi = torch.ones(steps)
        xi[list(range(steps - tau, 0, -tau))] = 0
        mode = BPTT(xi=xi)
    with subject.watched(mode) as seen:
        logits = subject.model(x).logits[0, -1]
        torch.nn.functional.cross_entropy(logits[None], y[:, -1]).backward()
    rows = []
    for layer, trace in enumerate(seen[-1].trace):
        for state, norms in trace.norms.items():
            line = norms[0].double()
            rows.append(
                {"name": f"{state}, layer {layer + 1}", "norms": line.tolist(), **describe(line.flip(0).numpy())}
            )
    assert subject.vocab is not None
    tokens = [shown(subject.vocab.tokens[k]) for k in x[0].tolist()]
    target = shown(subject.vocab.tokens[int(y[0, -1])])
    entries = opened.language.run.metrics()
    clips = [{"step": e.get("step"), "clipped": e.get("clipped"), "norm": e.get("grad_norm")} for e in entries]
    return {"rows": rows, "tokens": tokens, "target": target, "tau": tau, "steps": steps, "clips": clips[-200:]}


def example(opened: Opened, _: dict[str, Any]) -> dict[str, Any]:
    """Something to look at before one has typed: what the model itself writes, made of tokens that it knows."""
    return {"text": opened.example()}


def unfold(opened: Opened, _: dict[str, Any]) -> dict[str, Any]:
    """What the drawing of the unrolled network needs: its parts and their shapes."""
    model = opened.language.model
    net, options = model.recurrent, model.options
    return {
        "cell": type(net.cell).__name__,
        "equations": (inspect.getdoc(type(net.cell)) or "").split("\n\n")[0],
        "states": list(net.cell.states),
        "gates": list(net.cell.gates),
        "layers": net.layers,
        "hidden": net.hidden_size,
        "vocabulary": model.V,
        "input": options.embedding or model.V,
        "embedded": bool(options.embedding),
        "tied": options.tied,
        "weights": {name: list(p.shape) for name, p in model.named_parameters()},
        "size": model.size,
    }


VIEWS: dict[str, Callable[[Opened, dict[str, Any]], dict[str, Any]]] = {
    "next": next_tokens,
    "example": example,
    "see": see,
    "alike": alike,
    "gradients": gradients,
    "unfold": unfold,
}

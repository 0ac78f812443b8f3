"""Gates by name: their activations, and which of them are saturated.

A cell only writes its step, so its gates are found by watching it: an activation function applied to what comes from
one gate's shares of input and state (x.g, h.g) and from no other gate directly is that gate's activation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recur.cells.matrix import HeadedCell
from recur.diagnostics.finding import Finding, Level, Measurement, opened
from recur.diagnostics.subject import Layer, Subject
from recur.i18n import Message
from recur.nn import Recurrent
from recur.tasks.classify.predictor import TextClassifier
from recur.tasks.common.predictor import Predictor
from recur.tasks.language.data import valid_text
from recur.tasks.language.predictor import Language
from recur.tasks.tag.predictor import TextTagger

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
    """(T, H), for the first row; of a matrix cell (T, heads · size)."""

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
    parts = zip((*x, *h), (*x._fields, *cell.recurrent_gates), strict=True)
    sources = {id(t): g for t, g in parts if g in cell.gates}  # x also has the raw input, Δt and noise
    with _Provenance(sources) as followed:
        cell.advance(x, h, s, w)
    found: dict[str, Activation] = {}
    for gates, kind, values in followed.found:
        if kind == "softplus" and isinstance(cell, HeadedCell):  # a step size, which is small on purpose
            continue
        if values.dim() > 2 and not isinstance(cell, HeadedCell):  # of pairs of units, as in an LTC
            continue
        if len(gates) == 1:
            (gate,) = gates
            found.setdefault(gate, Activation(gate, kind, values.flatten(1)))
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
        return Measurement(Finding("forgetting", Level.OK, 1.0, ERASES, Message("the cell has no forget gate")))
    found = {layer.name: activations(layer).get(gate) for layer in subject.layers}
    means = {name: float(part.values.mean()) for name, part in found.items() if part is not None}
    if not means:
        verdict = Message("gate {gate} has no activation function", gate=gate)
        return Measurement(Finding("forgetting", Level.OK, 1.0, ERASES, verdict))
    name = min(means, key=lambda key: means[key])
    value = means[name]
    if value < ERASES:
        verdict = Message(
            "the forget gate {gate} of {name} is closed: its mean is {value:.3f}, so every step erases the memory",
            gate=gate, name=name, value=value,
        )  # fmt: skip
        tries = (opened(subject.net.cell.name),)
        return Measurement(Finding("forgetting", Level.FAULT, value, ERASES, verdict, tries), means)
    verdict = Message("the mean of the forget gate {gate} of {name} is {value:.2f}", gate=gate, value=value, name=name)
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
        verdict = Message("the cell has no gate that can saturate")
        return Measurement(Finding("saturation", Level.OK, 0.0, SATURATED, verdict), numbers)
    name, gate = max(ends, key=lambda key: ends[key])
    share, part = ends[name, gate], found[name][gate]
    detail = Message(
        "gate {gate} of {name} is saturated in {share:.0%} of its values ({low:.0%} near 0, {high:.0%} near 1)",
        gate=gate, name=name, share=share, low=part.low, high=part.high,
    )  # fmt: skip
    if share > SATURATED:
        verdict = Message("{detail}: almost no gradient passes", detail=detail)
        return Measurement(Finding("saturation", Level.WARNING, share, SATURATED, verdict), numbers)
    return Measurement(Finding("saturation", Level.OK, share, SATURATED, detail), numbers)


TURNS = re.compile(r"\b(but|however|although|yet|aber|doch|jedoch)\b|但是|然而|不过|可是|却|但", re.IGNORECASE)
"""Words after which a sentence turns."""
SENTENCE = re.compile(r"[^.!?。！？\n]{8,160}[.!?。！？]?")
READ = 200_000
"""Characters of a text in which such a sentence is looked for."""
MOST = 120
"""Tokens that are shown."""


def turning_sentence(text: str) -> str:
    """The first that turns, or the first of all."""
    found = [match.group().strip() for match in SENTENCE.finditer(text)]
    return next(
        (one for one in found if TURNS.search(one)), found[0] if found else text.strip().partition("\n")[0][:80]
    )


def own_sentence(predictor: Predictor[Any]) -> str:
    """Return a sentence of the run's validation text."""
    if isinstance(predictor, Language):
        text = ""
        for piece in valid_text(predictor.options).pieces():
            text += piece
            if len(text) > READ:
                break
        return turning_sentence(text)
    data = predictor.task.read(predictor.run.vocabs)
    lines = [example.text for example in data.valid] if isinstance(predictor, TextClassifier) else [
        " ".join(sentence.words) for sentence in data.valid_sentences
    ]  # fmt: skip
    short = [line for line in lines if 20 <= len(line) <= 160] or lines
    return next((line for line in short if TURNS.search(line)), short[0])


def sentence(predictor: Predictor[Any], subject: Subject, text: str = "") -> Measurement | None:
    """The mean of the forget gate at each token; None for a model that reads no sentences, or a cell without one."""
    gate = subject.net.cell.forget_gate
    if gate is None or not isinstance(predictor, Language | TextClassifier | TextTagger):
        return None
    text = text or own_sentence(predictor)
    tokens, net, x = _read(predictor, subject.net, text)
    if x.shape[1] < 4 or x.shape[1] != len(tokens):  # a network that reads the letters of words, and not the words
        return None
    found = activations(Subject(net, net, x).layers[0]).get(gate)
    if found is None:
        return None
    values = found.values.mean(-1).tolist()  # from the second token on: the first had nothing to forget
    tokens = tokens[1 : 1 + len(values)]
    numbers = {"tokens": tokens[:MOST], "values": values[:MOST], "gate": gate, "sentence": text}
    turn = TURNS.search(text)
    mean = sum(values) / len(values)
    least = min(range(len(values)), key=lambda k: values[k])
    verdict = Message(
        "the mean of gate {gate} over “{text}” is {mean:.2f}; its minimum is {value:.2f}, at {token!r}",
        gate=gate, mean=mean, text=text if len(text) < 60 else text[:57] + "…",
        token=tokens[least], value=values[least],
    )  # fmt: skip
    if turn is not None:
        at = _token_at(tokens, turn.group())
        if at is not None:
            verdict = Message(
                "{first}; at the turn, {token!r}, it is {value:.2f}", first=verdict, token=tokens[at], value=values[at]
            )
    return Measurement(Finding("sentence", Level.OK, values[least], mean, verdict), numbers)


def _token_at(tokens: list[str], turn: str) -> int | None:
    """Return the index where the contrast begins: its word, or its first letter followed by the others."""
    for k, token in enumerate(tokens):
        if token.strip().lower() == turn.lower() or "".join(tokens[k : k + len(turn)]).lower() == turn.lower():
            return k
    return None


def _read(predictor: Predictor[Any], net: Recurrent, text: str) -> tuple[list[str], Recurrent, torch.Tensor]:
    """The tokens of a sentence, and what the network reads of them, (1, T, D)."""
    seen: list[torch.Tensor] = []
    hook = net.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    try:
        with torch.no_grad():
            if isinstance(predictor, Language):
                ids = torch.from_numpy(predictor.vocab.encode(text).astype("int64")).to(predictor.device)
                predictor.model(ids[None])
            else:
                predictor.predict(text)
    finally:
        hook.remove()
    vocab = predictor.run.vocab
    return [vocab.tokens[int(k)] for k in vocab.encode(text)], net, seen[0][:1]

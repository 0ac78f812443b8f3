"""Gradients through time of a text, and the eigenvalues that explain them.

∂L/∂s_t at every step, and ∂L/∂W as a sum of one term per step. L is the loss of the last token, or the mean over all
tokens as in training. The factor ξ multiplies what crosses time in the backward pass (recur.ops.bptt): truncation modes
and detached states are zeros in ξ. The full gradient of the trained network is always computed as well, for comparison.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.diagnostics import Subject
from recur.diagnostics.gradient_flow import LETTERS, fit_decay, terms_of
from recur.diagnostics.jacobian import Linearised, recurrent_blocks
from recur.diagnostics.subject import Layer, layer_name
from recur.errors import OptionError
from recur.i18n import Message
from recur.ops.bptt import BPTT
from recur.serve.http import RequestModel, check_range, finite_or_none, validate
from recur.studio.loaded_model import LoadedModel, get_text, shown_text
from recur.utils.types import JsonObject

WIDEST = 768
"""Largest size of a matrix whose eigenvalues are computed."""


def spectral_radius(layer: Layer) -> float:
    """Return the largest |λ| of the blocks of W."""
    radii = [float(_eigenvalues(W).abs().max()) for W in recurrent_blocks(layer).values() if len(W) <= WIDEST]
    return max(radii, default=0.0)


def rescale(subject: Subject, radius: float) -> Subject:
    """Return a copy with W of every layer scaled to this spectral radius; the subject itself if the radius is 0."""
    if not radius:
        return subject
    model = copy.deepcopy(subject.model)
    net = next(module for module in model.modules() if type(module) is type(subject.net))
    for suffix, layer in zip(net.suffixes(), subject.layers, strict=True):
        own = spectral_radius(layer)
        for name in net.cell.recurrent_matrices:
            with torch.no_grad():
                net.weights(suffix)[name].mul_(radius / own if own else 1.0)
    return Subject(model, net, subject.inputs, subject.language, start=subject.start)


Radius = Annotated[float, Field(ge=0, le=10)]


class EigenvalueRequest(RequestModel):
    """Layer and step whose eigenvalues are shown; the last step by default."""

    layer: int = 0
    step: int = 0
    radius: Radius = 0.0


def eigenvalues(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return the eigenvalues of each block of W of a layer, and of ∂s_t/∂s_{t−1} at one step."""
    asked = validate(EigenvalueRequest, request)
    subject = rescale(model.subject(get_text(request), fewest=2), asked.radius)
    layers = subject.layers
    layer = layers[check_range("layer", asked.layer, 0, len(layers) - 1)]
    steps = Linearised(layer)
    step = check_range("step", asked.step if "step" in request else steps.steps, 1, steps.steps)
    blocks = recurrent_blocks(layer)
    if not blocks and steps.N > WIDEST:
        raise OptionError(
            Message(
                "eigenvalues are shown of matrices up to {n} × {m}, and this state has {size}",
                n=WIDEST,
                m=WIDEST,
                size=steps.N,
            )
        )
    found = [_block(f"W_{gate}" if len(blocks) > 1 else "W", W) for gate, W in blocks.items() if len(W) <= WIDEST]
    if steps.N <= WIDEST:
        found.append(_block("J", steps.push(step, torch.eye(steps.N, dtype=torch.float64))))
    return {"blocks": found, "layers": [part.name for part in layers], "step": step, "steps": steps.steps}


def _block(name: str, matrix: Tensor) -> JsonObject:
    values = _eigenvalues(matrix)
    pairs = [[finite_or_none(round(float(v.real), 5)), finite_or_none(round(float(v.imag), 5))] for v in values]
    return {"name": name, "values": pairs, "radius": finite_or_none(float(values.abs().max()))}


def _eigenvalues(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvals(matrix.double())
    return values


LAST, ALL = 120, 48
"""Steps at most: of the last loss, and of all losses, each of which is followed back by itself."""
CLIPS = 200
"""Measurements of clipping, at most."""
MODES = ("full", "truncated", "sliding", "randomized")
DIGITS = 6
"""Of a norm, as the page is told."""


class GradientFields(RequestModel):
    """Fields of a request for gradients; GradientRequest checks them against the text."""

    losses: str = "last"
    mode: str = "full"
    tau: Annotated[int, Field(ge=1, le=LAST)] = 8
    keep: Annotated[float, Field(ge=0.05, le=1)] = 0.9
    seed: Annotated[int, Field(ge=0, le=2**31)] = 0
    cuts: list[Any] = []
    radius: Radius = 0.0


@dataclass(frozen=True)
class GradientRequest:
    """Request of the gradients view: which losses, and how the backward pass is truncated."""

    every: bool
    """Use the mean of all losses, not the last loss."""
    steps: int
    mode: str = "full"
    tau: int = 1
    keep: float = 0.9
    seed: int = 0
    cuts: tuple[int, ...] = ()
    """Steps before which the state is detached."""
    radius: float = 0.0
    """Spectral radius that W is rescaled to; 0 keeps W."""

    @staticmethod
    def of(request: JsonObject, length: int) -> GradientRequest:
        asked = validate(GradientFields, request)
        for name, value, known in (("losses", asked.losses, ("last", "all")), ("mode", asked.mode, MODES)):
            if value not in known:
                raise OptionError(
                    Message(
                        "{name} must be one of {known}, got {given}",
                        name=name,
                        known=", ".join(known),
                        given=repr(value[:40]),
                    )
                )
        every = asked.losses == "all"
        steps = min(length, ALL if every else LAST)
        if not all(type(cut) is int and 0 < cut < steps for cut in asked.cuts):
            raise OptionError(
                Message("cuts must be steps in 1 … {last}, before each of which the state is detached", last=steps - 1)
            )
        return GradientRequest(
            every, steps, asked.mode, asked.tau, asked.keep, asked.seed, tuple(asked.cuts), asked.radius
        )

    @property
    def changed(self) -> bool:
        return self.mode != "full" or bool(self.cuts) or self.radius > 0

    def xi(self, losses: Tensor) -> Tensor:
        """ξ (R, T) for rows whose loss stands at the steps given (R,)."""
        T = self.steps
        xi = torch.ones(len(losses), T, dtype=torch.float64)
        if self.mode == "truncated":
            xi[:, list(range(T - self.tau, 0, -self.tau))] = 0  # counted from the end, so that the last one is whole
        elif self.mode == "sliding":
            xi[torch.arange(T) == losses[:, None] - self.tau + 1] = 0
        elif self.mode == "randomized":
            drawn = torch.bernoulli(torch.full((T,), self.keep), generator=torch.Generator().manual_seed(self.seed))
            xi = (drawn.double() / self.keep).expand(len(losses), T).clone()
        xi[:, list(self.cuts)] = 0
        xi[:, 0] = 1
        return xi


def gradients(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Norms of ∂L/∂s_t and of every step's term of ∂L/∂W and ∂L/∂U, beside those of the full gradient."""
    subject = model.subject(get_text(request), fewest=2)
    asked = GradientRequest.of(request, len(subject.inputs))
    x, y = (ids[:, -asked.steps :] for ids in subject.rows(1, len(subject.inputs)))
    plain = GradientRequest(asked.every, asked.steps)
    full = GradientTrace(subject, x, y, plain)
    found = GradientTrace(rescale(subject, asked.radius), x, y, asked) if asked.changed else full
    return {
        "rows": [_state_entry(*pair) for pair in zip(found.states(), full.states(), strict=True)],
        "terms": [_term_entry(*pair) for pair in zip(found.terms(), full.terms(), strict=True)],
        "tokens": [shown_text(subject.token(k)) for k in x[0].tolist()],
        "targets": [shown_text(subject.token(k)) for k in y[0].tolist()],
        "losses": _rounded(found.losses),
        "steps": asked.steps,
        "length": len(subject.inputs),
        "xi": asked.xi(torch.tensor([asked.steps - 1]))[0].tolist(),
        "radius": max((spectral_radius(layer) for layer in subject.layers), default=0.0),
        "norm": finite_or_none(found.norm),
        "theta": finite_or_none(getattr(model.language.options, "grad_clip", None)),
        "clips": _clips(model),
    }


class GradientTrace:
    """Backward pass through a text: traced per step, and the whole gradient."""

    def __init__(self, subject: Subject, x: Tensor, y: Tensor, asked: GradientRequest) -> None:
        self.subject, self.asked, self.x, self.y = subject, asked, x, y
        T = asked.steps
        rows = torch.arange(T) if asked.every else torch.tensor([T - 1])
        with subject.traced(BPTT(xi=asked.xi(rows))) as results:
            out = subject.model(x.expand(len(rows), -1))
            logits = subject.model.logits_of(out.outputs[torch.arange(len(rows)), rows])  # type: ignore[operator]
            losses = cross_entropy(logits, y[0, rows], reduction="none")
            losses.mean().backward()
        self.losses = losses.detach()
        self.trace = results[-1].trace
        self.weights, self.norm = self._whole(rows)

    def _whole(self, rows: Tensor) -> tuple[dict[str, Tensor], float]:
        """∂L/∂W and ∂L/∂U themselves, by name, and the norm of the gradient of all weights."""
        network: Any = self.subject.model
        before, network.recurrent.bptt = network.recurrent.bptt, BPTT(xi=self.asked.xi(rows))
        try:
            out = network(self.x.expand(len(rows), -1))
            logits = network.logits_of(out.outputs[torch.arange(len(rows)), rows])
            named = dict(network.named_parameters())
            loss = cross_entropy(logits, self.y[0, rows])
            grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        finally:
            network.recurrent.bptt = before
        found = {name: grad.detach() for name, grad in zip(named, grads, strict=True) if grad is not None}
        return found, float(torch.stack([grad.double().square().sum() for grad in found.values()]).sum().sqrt())

    def states(self) -> list[JsonObject]:
        found = []
        for suffix, trace in zip(self.subject.net.suffixes(), self.trace, strict=True):
            for state, grads in trace.gradients.items():
                line = grads.double().sum(0).norm(dim=-1)  # rows read the same, and each has its own loss
                decay = fit_decay(line.flip(0).numpy())
                about = {"name": f"{state}, {layer_name(suffix)}", "norms": _rounded(line)}
                found.append({**about, "decay": finite_or_none(decay.decay), "memory": decay.memory})
        return found

    def terms(self) -> list[tuple[JsonObject, Tensor]]:
        """Return the terms of every matrix, with its whole gradient."""
        found = []
        for suffix, trace in zip(self.subject.net.suffixes(), self.trace, strict=True):
            norms = trace.terms
            names = {LETTERS[name]: name for name in norms}
            for letter, terms in sorted(terms_of(trace, together=True).items(), reverse=True):  # W before U
                about: JsonObject = {"name": f"{letter}, {layer_name(suffix)}", "norms": _rounded(terms.norms[::-1])}
                about |= {"largest": terms.largest, "share": finite_or_none(terms.share), "needed": terms.steps}
                if self.asked.every:
                    about["by_loss"] = [_rounded(row[: k + 1]) for k, row in enumerate(norms[names[letter]])]
                found.append((about, self.weights[f"recurrent.{names[letter]}{suffix}"]))
        return found


def _state_entry(found: JsonObject, full: JsonObject) -> JsonObject:
    return {**found, "full": full["norms"]}


def _term_entry(found: tuple[JsonObject, Tensor], full: tuple[JsonObject, Tensor]) -> JsonObject:
    (about, G), (of_full, whole) = found, full
    size, most = float(G.double().norm()), float(whole.double().norm())
    cosine = float((G.double() * whole.double()).sum()) / (size * most) if size * most > 0 else None
    sums = {
        "whole": finite_or_none(size),
        "whole_full": finite_or_none(most),
        "cosine": None if cosine is None else finite_or_none(cosine),
    }
    return {**about, "full": of_full["norms"], **sums}


def _rounded(values: Tensor | list[float]) -> list[float | None]:
    given = values.tolist() if isinstance(values, Tensor) else values
    return [finite_or_none(float(f"{value:.{DIGITS}g}")) for value in given]


def _clips(model: LoadedModel) -> list[JsonObject]:
    """Return how often training clipped the gradient, over time."""
    entries = model.language.run.metrics()[-CLIPS:]
    names = {"step": "step", "clipped": "clipped", "norm": "grad_norm"}
    return [{name: finite_or_none(entry.get(key)) for name, key in names.items()} for entry in entries]

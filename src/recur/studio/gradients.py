"""Gradients through time of a text: ∂L/∂s_t at every step, and ∂L/∂W as the sum of what each step adds to it.

L is the loss of the text's last token, or the mean over all of its tokens as in training. What crosses time on the way
back is ξ (recur.ops.bptt): modes of truncation and cuts between two steps, `detach`, are zeros in it. Whatever is cut
or rescaled, the full gradient of the network as it was trained comes with it, to be drawn behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.diagnostics import Subject
from recur.diagnostics.gradient_flow import LETTERS, fit_decay, terms_of
from recur.diagnostics.subject import layer_name
from recur.errors import OptionError
from recur.i18n import Message
from recur.ops.bptt import BPTT
from recur.serve.http.fields import field, number
from recur.studio.fields import text_of
from recur.studio.loaded import LoadedModel, shown_text
from recur.studio.rescaled import radius_of, rescaled
from recur.utils.types import JsonObject

LAST, ALL = 120, 48
"""Steps at most: of the last loss, and of all losses, each of which is followed back by itself."""
CLIPS = 200
"""Measurements of clipping, at most."""
MODES = ("full", "truncated", "sliding", "randomized")
DIGITS = 6
"""Of a norm, as the page is told."""


@dataclass(frozen=True)
class Asked:
    """What is measured: which losses, and what crosses time."""

    every: bool
    """The mean of all losses, and not the last."""
    steps: int
    mode: str = "full"
    tau: int = 1
    keep: float = 0.9
    seed: int = 0
    cuts: tuple[int, ...] = ()
    """Steps before which the state is detached."""
    radius: float = 0.0
    """Of W, rescaled; 0 as it was trained."""

    @staticmethod
    def of(request: JsonObject, length: int) -> Asked:
        losses, mode = field(request, "losses", "last"), field(request, "mode", "full")
        for name, value, known in (("losses", losses, ("last", "all")), ("mode", mode, MODES)):
            if value not in known:
                raise OptionError(
                    Message(
                        "{name} must be one of {known}, got {given}",
                        name=name,
                        known=", ".join(known),
                        given=repr(value[:40]),
                    )
                )
        every = losses == "all"
        steps = min(length, ALL if every else LAST)
        cuts = request.get("cuts", [])
        if not isinstance(cuts, list) or not all(type(cut) is int and 0 < cut < steps for cut in cuts):
            raise OptionError(
                Message("cuts must be steps in 1 … {last}, before each of which the state is detached", last=steps - 1)
            )
        return Asked(
            every, steps, mode, field(request, "tau", 8, 1, LAST), field(request, "keep", 0.9, 0.05, 1.0),
            field(request, "seed", 0, 0, 2**31), tuple(cuts), field(request, "radius", 0.0, 0.0, 10.0),
        )  # fmt: skip

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
    subject = model.subject(text_of(request), fewest=2)
    asked = Asked.of(request, len(subject.inputs))
    x, y = (ids[:, -asked.steps :] for ids in subject.rows(1, len(subject.inputs)))
    plain = Asked(asked.every, asked.steps)
    full = Measured(subject, x, y, plain)
    found = Measured(rescaled(subject, asked.radius), x, y, asked) if asked.changed else full
    return {
        "rows": [_row(*pair) for pair in zip(found.states(), full.states(), strict=True)],
        "terms": [_term(*pair) for pair in zip(found.terms(), full.terms(), strict=True)],
        "tokens": [shown_text(subject.token(k)) for k in x[0].tolist()],
        "targets": [shown_text(subject.token(k)) for k in y[0].tolist()],
        "losses": _numbers(found.losses),
        "steps": asked.steps,
        "length": len(subject.inputs),
        "xi": asked.xi(torch.tensor([asked.steps - 1]))[0].tolist(),
        "radius": max((radius_of(layer) for layer in subject.layers), default=0.0),
        "norm": number(found.norm),
        "theta": number(getattr(model.language.options, "clip", None)),
        "clips": _clips(model),
    }


class Measured:
    """One way back through a text, traced and whole."""

    def __init__(self, subject: Subject, x: Tensor, y: Tensor, asked: Asked) -> None:
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
                about = {"name": f"{state}, {layer_name(suffix)}", "norms": _numbers(line)}
                found.append({**about, "decay": number(decay.decay), "memory": decay.memory})
        return found

    def terms(self) -> list[tuple[JsonObject, Tensor]]:
        """Of every matrix, with its whole gradient."""
        found = []
        for suffix, trace in zip(self.subject.net.suffixes(), self.trace, strict=True):
            norms = trace.terms
            names = {LETTERS[name]: name for name in norms}
            for letter, terms in sorted(terms_of(trace, together=True).items(), reverse=True):  # W before U
                about: JsonObject = {"name": f"{letter}, {layer_name(suffix)}", "norms": _numbers(terms.norms[::-1])}
                about |= {"largest": terms.largest, "share": number(terms.share), "needed": terms.steps}
                if self.asked.every:
                    about["by_loss"] = [_numbers(row[: k + 1]) for k, row in enumerate(norms[names[letter]])]
                found.append((about, self.weights[f"recurrent.{names[letter]}{suffix}"]))
        return found


def _row(found: JsonObject, full: JsonObject) -> JsonObject:
    return {**found, "full": full["norms"]}


def _term(found: tuple[JsonObject, Tensor], full: tuple[JsonObject, Tensor]) -> JsonObject:
    (about, G), (of_full, whole) = found, full
    size, most = float(G.double().norm()), float(whole.double().norm())
    cosine = float((G.double() * whole.double()).sum()) / (size * most) if size * most > 0 else None
    sums = {"whole": number(size), "whole_full": number(most), "cosine": None if cosine is None else number(cosine)}
    return {**about, "full": of_full["norms"], **sums}


def _numbers(values: Tensor | list[float]) -> list[float | None]:
    given = values.tolist() if isinstance(values, Tensor) else values
    return [number(float(f"{value:.{DIGITS}g}")) for value in given]


def _clips(model: LoadedModel) -> list[JsonObject]:
    """How often training clipped the gradient, over time."""
    entries = model.language.run.metrics()[-CLIPS:]
    names = {"step": "step", "clipped": "clipped", "norm": "grad_norm"}
    return [{name: number(entry.get(key)) for name, key in names.items()} for entry in entries]

"""Experiments on gradients along time: vanishing, exploding, the forget gate, clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recur.diagnostics.figures import canvas, legend, level
from recur.diagnostics.gradient_flow import fit_decay, flow, memory_paths
from recur.diagnostics.labs.truncation import Experiment, Recall, recall_batch
from recur.diagnostics.subject import Subject
from recur.i18n import Message
from recur.nn import Init, Recurrent
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def vanishing(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """The gradient's norm by lag for σ, for tanh, and along the memory of an LSTM."""
    torch.manual_seed(seed)
    x = torch.randn(8, T, 4)
    curves: dict[str, list[float]] = {
        name: flow(Subject.of(Recurrent(cell, 4, H), x))["layer 1, h"].norms
        for name, cell in ((Message("Elman, σ"), "elman-sigmoid"), (Message("Elman, tanh"), "elman"))
    }
    lstm = Subject.of(Recurrent("lstm", 4, H, init=Init(forget_bias=4.0)), x)
    curves["LSTM, along c"] = memory_paths(lstm, rows=8, steps=T)["layer 1"].memory[1:].tolist()
    figure = shares_figure(curves, "share of the gradient left", "how gradients vanish")
    s, t, c = (fit_decay(np.array(curve)) for curve in curves.values())
    kept = curves["LSTM, along c"][-1] / curves["LSTM, along c"][0]
    paragraph = Message(
        "The gradient of the loss at one step, followed back through {T} steps of random input. With σ, whose slope "
        "is at most 1/4, each step multiplies it by {sigma:.2f}, and 1 % is left after {sigma_steps}. With tanh, "
        "whose slope is at most 1, the factor is {tanh:.2f}, and 1 % is left after {tanh_steps}. Along the memory of "
        "an LSTM with forget bias 4 the forget gate alone multiplies it, by {lstm:.3f} per step: {kept:.0%} is left "
        "after {n} steps.",
        T=T,
        sigma=s.decay,
        sigma_steps=s.memory,
        tanh=t.decay,
        tanh_steps=t.memory,
        lstm=c.decay,
        kept=kept,
        n=T - 2,
    )
    return Experiment(figure, paragraph, {name: found._asdict() for name, found in zip(curves, (s, t, c), strict=True)})


def shares_figure(curves: dict[str, list[float]], label: str, title: str) -> Figure:
    """Curves by lag, each over its first value."""
    figure, (axis,) = canvas(width=7.2)
    for name, curve in curves.items():
        axis.semilogy(np.maximum(np.array(curve) / curve[0], 1e-20), label=name)
    level(axis, 0.01, "1 % is left")
    axis.set(xlabel="steps back", ylabel=label, ylim=(1e-12, 10), title=title)
    legend(axis, "beside")
    return figure


def exploding(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """‖h_t‖ forward and ‖∂L_T/∂h_t‖ back, for an orthogonal W scaled to three spectral radii, and what tanh makes of
    the largest."""
    torch.manual_seed(seed)
    W = torch.linalg.qr(torch.randn(H, H, dtype=torch.float64)).Q
    h0 = torch.nn.functional.normalize(torch.randn(H, dtype=torch.float64), dim=0)
    figure, (left, right) = canvas(2, width=9.0)
    numbers: JsonObject = {}
    gradients: JsonObject = {}
    for name, radius, bounded in (
        ("|λ| = 0.9", 0.9, False), ("|λ| = 1.0", 1.0, False), ("|λ| = 1.1", 1.1, False), ("tanh, |λ| = 1.1", 1.1, True),
    ):  # fmt: skip
        forward, back = carried_on(radius * W, h0, T, torch.tanh if bounded else None)
        numbers[name], gradients[name] = forward[-1], back[-1]
        style = "--" if bounded else "-"
        left.semilogy(forward, style, label=name)
        right.semilogy(back, style, label=name)
    left.set(xlabel="step t", ylabel="‖$h_t$‖", title="forward: the state")
    right.set(xlabel="steps back, T − t", ylabel=r"‖$\partial L_T / \partial h_t$‖", title="back: the gradient")
    legend(left)
    legend(right)
    low, one, high, held = numbers.values()
    small, same, large, saturated = gradients.values()
    numbers["gradient"] = gradients
    paragraph = Message(
        "h_t = W h_{{t−1}}, where every eigenvalue of W has the absolute value 0.9, 1 or 1.1. After {T} steps the "
        "norm of the state is {low:.2g}, {one:.2g} and {high:.3g}: 0.9^{T} = {low_power:.2g}, 1.1^{T} = "
        "{high_power:.3g}. In the backward pass each step multiplies the gradient by Wᵀ, and after {T} steps "
        "{small:.2g}, {same:.2g} and {large:.3g} of it are left: what grows forward explodes backward. tanh bounds "
        "the state ({held:.2g}). Where units saturate, its slope is below 1: the same W then multiplies the gradient "
        "by {saturated:.2g} instead of {large:.3g}.",
        T=T,
        low=low,
        one=one,
        high=high,
        low_power=0.9**T,
        high_power=1.1**T,
        small=small,
        same=same,
        large=large,
        held=held,
        saturated=saturated,
    )
    return Experiment(figure, paragraph, numbers)


def carried_on(
    W: Tensor, h: Tensor, T: int, activation: Callable[[Tensor], Tensor] | None
) -> tuple[list[float], list[float]]:
    """‖h_t‖ of h_t = φ(W h_{t−1}) by t, and ‖∂L_T/∂h_t‖ by T − t, for L_T the state's share of one fixed direction."""
    states = [h.detach().requires_grad_()]
    for _ in range(T):
        after = W @ states[-1]
        states.append(after if activation is None else activation(after))
    direction = torch.ones_like(h) / len(h) ** 0.5
    found = torch.autograd.grad(states[-1] @ direction, states)
    return [float(s.detach().norm()) for s in states], [float(g.norm()) for g in reversed(found)]


def forget_gate(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """The gradient along c by lag, for forget biases from shut to open."""
    torch.manual_seed(seed)
    x = torch.randn(8, T, 4)
    curves = {}
    for bias in (-2.0, 0.0, 1.0, 3.0, 5.0):
        torch.manual_seed(seed)
        subject = Subject.of(Recurrent("lstm", 4, H, init=Init(forget_bias=bias)), x)
        path = memory_paths(subject, rows=8, steps=T)["layer 1"].memory
        curves[f"b = {bias:g}, σ(b) = {1 / (1 + np.exp(-bias)):.2f}".replace("-", "−")] = path[1:].tolist()
    figure = shares_figure(curves, "share of the gradient left along c", "the forget gate decides what is left")
    decays = {name: fit_decay(np.array(curve)) for name, curve in curves.items()}
    paragraph = Message(
        "∂c_t/∂c_{{t−1}} = f_t along the memory, so the forget gate is the decay of the gradient. The factor per step "
        "for each forget bias b, measured over {T} steps: {factors}. With f near 0 the past is cut off on purpose. "
        "With f near 1 it is kept, as in the LSTM of 1997, which had no forget gate. For this reason the bias is "
        "often initialised to 1 or more.",
        T=T,
        factors="; ".join(f"{name}: × {found.decay:.3f}" for name, found in decays.items()),
    )
    return Experiment(figure, paragraph, {name: found._asdict() for name, found in decays.items()})


def clipping(seed: int = 0, H: int = 16, T: int = 10, steps: int = 150, theta: float = 0.5) -> Experiment:
    """Gradient descent beside the cliff: an Elman network of radius 1.6 on recall, with and without clipping."""
    bounded = f"θ = {theta:g}"
    curves, norms = {}, {}
    for name, bound in (("no clipping", float("inf")), (bounded, theta)):
        torch.manual_seed(seed)
        model = Recall(Recurrent("elman", 3, H, init="orthogonal"))
        with torch.no_grad():
            model.net.weights()["weight_hh"].mul_(1.6)
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        losses, sizes = [], []
        for _ in range(steps):
            x, y = recall_batch(64, T)
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y)
            loss.backward()
            sizes.append(float(nn.utils.clip_grad_norm_(model.parameters(), bound).detach()))
            optimizer.step()
            losses.append(float(loss.detach()))
        curves[name], norms[name] = losses, sizes
    figure, (left, right) = canvas(2, width=9.0)
    for name in curves:
        left.plot(curves[name], label=name)
        right.semilogy(norms[name], label=name)
    level(left, math.log(2), "chance, log 2")
    left.set(xlabel="step of training", ylabel="loss", title="what is learned")
    legend(left)
    level(right, theta, Message("clipped above {bound}", bound=bounded))
    right.set(xlabel="step of training", ylabel="‖g‖ before clipping", ylim=(1e-4, None), title="the gradient's norm")
    legend(right, "lower left")
    numbers: JsonObject = {
        name: {
            "largest_loss": max(curves[name]),
            "last_loss": float(np.mean(curves[name][-10:])),
            "norm": max(norms[name]),
        }
        for name in curves
    }
    share = float(np.mean([n > theta for n in norms[bounded]]))
    free, bound_ = numbers["no clipping"], numbers[bounded]
    numbers["clipped"] = share
    paragraph = Message(
        "Gradient descent on an Elman network whose W has spectral radius 1.6 and which must recall the first of {T} "
        "symbols; guessing has a loss of {guess:.2f}. Without clipping the gradient norm reaches {norm:.3g}. One step "
        "over the cliff undoes what was learned, and the mean of the last ten losses is {last:.3g}. With g ← min(1, "
        "θ/‖g‖) g and {bound}, {share:.0%} of the steps are shortened, none changes its direction, and the loss falls "
        "to {loss:.2g}.",
        T=T,
        guess=math.log(2),
        norm=free["norm"],
        last=free["last_loss"],
        bound=bounded,
        share=share,
        loss=bound_["last_loss"],
    )
    return Experiment(figure, paragraph, numbers)

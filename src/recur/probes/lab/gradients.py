"""Gradients along time: why they vanish and explode, and what the forget gate and clipping do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from recur.layers import Init, Recurrent
from recur.probes.figures import canvas
from recur.probes.flow import fit_decay, flow
from recur.probes.lab.experiment import Experiment
from recur.probes.lab.recall import Recall, recall_batch
from recur.probes.paths import memory_paths
from recur.probes.subject import Subject
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def vanishing(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """The gradient's norm by lag for σ, for tanh, and along the memory of an LSTM."""
    torch.manual_seed(seed)
    x = torch.randn(8, T, 4)
    curves = {
        f"Elman, {name}": flow(Subject.of(Recurrent(cell, 4, H), x))["layer 1, h"].norms
        for name, cell in (("σ", "elman-sigmoid"), ("tanh", "elman"))
    }
    lstm = Subject.of(Recurrent("lstm", 4, H, init=Init(forget_bias=4.0)), x)
    curves["LSTM, along c"] = memory_paths(lstm, rows=8, steps=T)["layer 1"].memory[1:].tolist()
    figure = shares_figure(curves, "share of the gradient left")
    s, t, c = (fit_decay(np.array(curve)) for curve in curves.values())
    kept = curves["LSTM, along c"][-1] / curves["LSTM, along c"][0]
    paragraph = (
        f"The gradient of one step's loss, followed back through {T} steps of random input. With σ, whose slope is at "
        f"most 1/4, it is multiplied by {s.decay:.2f} a step and 1 % is left after {s.memory}; with tanh, "
        f"slope at most 1, by {t.decay:.2f}, and after {t.memory}. Along the memory of an LSTM with forget bias "
        f"4 it is multiplied by the forget gate alone, {c.decay:.3f} a step: {kept:.0%} is left after {T - 2}."
    )
    return Experiment(figure, paragraph, {name: found._asdict() for name, found in zip(curves, (s, t, c), strict=True)})


def shares_figure(curves: dict[str, list[float]], label: str) -> Figure:
    """Curves by lag, each over its first value."""
    figure, (axis,) = canvas()
    for name, curve in curves.items():
        axis.semilogy(np.maximum(np.array(curve) / curve[0], 1e-20), label=name)
    axis.set(xlabel="steps back", ylabel=label, ylim=(1e-12, 10))
    axis.legend(fontsize=8)
    return figure


def exploding(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """‖Wᵗ h_0‖ for an orthogonal W scaled to three spectral radii, and what tanh makes of the largest."""
    torch.manual_seed(seed)
    W = torch.linalg.qr(torch.randn(H, H, dtype=torch.float64)).Q
    h0 = torch.nn.functional.normalize(torch.randn(H, dtype=torch.float64), dim=0)
    figure, (axis,) = canvas()
    numbers = {}
    for radius in (0.9, 1.0, 1.1):
        h, norms = h0, [1.0]
        for _ in range(T):
            h = radius * W @ h
            norms.append(float(h.norm()))
        numbers[f"|λ| = {radius}"] = norms[-1]
        axis.semilogy(norms, label=f"linear, |λ| = {radius}")
    h, norms = h0, [1.0]
    for _ in range(T):
        h = torch.tanh(1.1 * W @ h)
        norms.append(float(h.norm()))
    numbers["tanh, |λ| = 1.1"] = norms[-1]
    axis.semilogy(norms, "--", label="tanh, |λ| = 1.1")
    axis.set(xlabel="t", ylabel="‖h_t‖")
    axis.legend()
    low, one, high, bounded = numbers.values()
    paragraph = (
        f"h_t = Wᵗ h_0 with every eigenvalue of W at 0.9, 1 or 1.1 in absolute value. After {T} steps its norm is "
        f"{low:.2g}, {one:.2g} and {high:.3g}: 0.9^{T} = {0.9**T:.2g} and 1.1^{T} = {1.1**T:.3g}. Gradients meet Wᵀ on "
        f"the way back and fare alike. tanh bounds the state itself ({bounded:.2g}); where units saturate its slope is "
        f"small, and the explosion turns into vanishing."
    )
    return Experiment(figure, paragraph, numbers)


def forget_gate(seed: int = 0, H: int = 32, T: int = 60) -> Experiment:
    """The gradient along c by lag, for forget biases from shut to open."""
    torch.manual_seed(seed)
    x = torch.randn(8, T, 4)
    curves = {}
    for bias in (-2.0, 0.0, 1.0, 3.0, 5.0):
        torch.manual_seed(seed)
        subject = Subject.of(Recurrent("lstm", 4, H, init=Init(forget_bias=bias)), x)
        path = memory_paths(subject, rows=8, steps=T)["layer 1"].memory
        curves[f"bias {bias:g}, σ(bias) = {1 / (1 + np.exp(-bias)):.2f}"] = path[1:].tolist()
    figure = shares_figure(curves, "share of the gradient left along c")
    decays = {name: fit_decay(np.array(curve)) for name, curve in curves.items()}
    listed = "; ".join(f"{name}: × {found.decay:.3f} a step" for name, found in decays.items())
    paragraph = (
        f"∂c_t/∂c_{{t−1}} = f_t along the memory, so the forget gate is the gradient's decay. Measured over {T} steps: "
        f"{listed}. With f near 0 the past is cut off on purpose; with f near 1 it is kept as in the LSTM of 1997, "
        f"which had no forget gate. This is why its bias is often initialised to 1 or more."
    )
    return Experiment(figure, paragraph, {name: found._asdict() for name, found in decays.items()})


def clipping(seed: int = 0, H: int = 16, T: int = 40, steps: int = 60) -> Experiment:
    """Gradient descent beside the cliff: an Elman network of radius 1.6 on recall, with and without clipping."""
    curves, norms = {}, {}
    for theta in (0.0, 1.0):
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
            sizes.append(float(nn.utils.clip_grad_norm_(model.parameters(), theta or float("inf"))))
            optimizer.step()
            losses.append(float(loss.detach()))
        name = f"θ = {theta:g}" if theta else "no clipping"
        curves[name], norms[name] = losses, sizes
    figure, (left, right) = canvas(2)
    for name in curves:
        left.plot(curves[name], label=name)
        right.semilogy(norms[name], label=name)
    left.set(xlabel="step", ylabel="loss")
    left.legend(fontsize=8)
    right.set(xlabel="step", ylabel="‖g‖ before clipping")
    numbers: JsonObject = {
        name: {
            "largest_loss": max(curves[name]),
            "last_loss": float(np.mean(curves[name][-10:])),
            "norm": max(norms[name]),
        }
        for name in curves
    }
    share = float(np.mean([n > 1 for n in norms["θ = 1"]]))
    free, bound = numbers["no clipping"], numbers["θ = 1"]
    numbers["clipped"] = share
    paragraph = (
        f"Plain gradient descent on an Elman network whose W has radius 1.6. Without clipping the gradient's norm "
        f"reaches {free['norm']:.3g} and the loss {free['largest_loss']:.3g} (last ten: {free['last_loss']:.3g}). "
        f"With g ← min(1, θ/‖g‖) g and θ = 1, {share:.0%} of the steps are shortened, none turned: the loss reaches "
        f"{bound['largest_loss']:.3g} at most, and {bound['last_loss']:.3g} in the end."
    )
    return Experiment(figure, paragraph, numbers)

"""Five experiments on synthetic tasks: the textbook's arguments about gradients, measured.

vanishing     φ′ ≤ 1/4 for σ and ≤ 1 for tanh: a product of small numbers; the memory c of an LSTM is not one
exploding     h_t = Wᵗ h_0: eigenvalues inside the unit circle vanish, those outside grow
truncation    windows of τ cannot learn what lies further back; a random cut is unbiased, and noisy
forget-gate   f near 1 keeps the gradient, f near 0 cuts it
clipping      g ← min(1, θ/‖g‖) g turns a step over a cliff into a small one in the same direction
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recur.layers import Init, Recurrent
from recur.probes.figures import canvas
from recur.probes.flow import fit_decay, flow
from recur.probes.paths import memory_paths
from recur.probes.subject import Subject
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Experiment:
    figure: Figure
    paragraph: str
    numbers: JsonObject


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


class Recall(nn.Module):
    """Predict at the end which of two symbols came first: a dependency of exactly T − 1 steps."""

    def __init__(self, net: Recurrent) -> None:
        super().__init__()
        self.net = net
        self.head = nn.Linear(net.output_size, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.net(x).outputs[:, -1])
        return logits


def recall_batch(B: int, T: int) -> tuple[Tensor, Tensor]:
    y = torch.randint(2, (B,))
    x = torch.zeros(B, T, 3)
    x[torch.arange(B), 0, y] = 1.0
    x[:, 1:, 2] = torch.randn(B, T - 1)
    return x, y


def recall_accuracy(T: int, steps: int, seed: int, bptt: str) -> float:
    """Of an LSTM after training with a mode of backpropagation."""
    torch.manual_seed(seed)
    model = Recall(Recurrent("lstm", 3, 24, bptt=bptt, init=Init(forget_bias=0.0)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(steps):
        x, y = recall_batch(32, T)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    x, y = recall_batch(512, T)
    with torch.no_grad():
        return float((model(x).argmax(-1) == y).float().mean())


def truncation(seed: int = 0, lag: int = 10, steps: int = 150) -> Experiment:
    """Recall over a fixed lag, learnt with windows shorter and longer than it, and with randomized truncation."""
    modes = {"truncated:3": "τ = 3", "truncated:5": "τ = 5", "truncated:20": "τ = 20", "randomized:0.9": "π = 0.9"}
    modes["full"] = "full"
    numbers = {name: recall_accuracy(lag + 1, steps, seed, mode) for mode, name in modes.items()}
    figure, (axis,) = canvas()
    axis.bar(list(numbers), list(numbers.values()), color="#2f6fde")
    axis.axhline(0.5, color="#6b7280", lw=1)
    axis.set(ylabel="right answers", ylim=(0, 1.05))
    short = ", ".join(f"{numbers[name]:.0%} with {name}" for name in ("τ = 3", "τ = 5"))
    paragraph = (
        f"The first of {lag + 1} symbols has to be named at the end; chance is 50 %. After {steps} steps an LSTM is "
        f"right {short}: no gradient crosses the window's edge, so nothing teaches it to keep the symbol. With τ = 20, "
        f"wider than the lag, it is right {numbers['τ = 20']:.0%}, with full backpropagation {numbers['full']:.0%}. "
        f"Cut at random and scaled by 1/π, the gradient is right on average, and noisier: {numbers['π = 0.9']:.0%}."
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


EXPERIMENTS: dict[str, Callable[[int], Experiment]] = {
    "vanishing": vanishing,
    "exploding": exploding,
    "truncation": truncation,
    "forget-gate": forget_gate,
    "clipping": clipping,
}

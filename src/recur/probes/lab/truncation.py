"""What truncation costs: learning what lies further back than a window."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from recur.layers import Init, Recurrent
from recur.probes.figures import canvas
from recur.probes.lab.experiment import Experiment
from recur.probes.lab.recall import Recall, recall_batch


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

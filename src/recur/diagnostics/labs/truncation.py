"""Experiments on truncated BPTT: what is learned of a dependency longer than the window, and the gradient error."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recur.diagnostics.figures import COLOURS, INK, canvas, legend
from recur.i18n import Message
from recur.nn import Init, Recurrent
from recur.ops.bptt import BPTT
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass
class Experiment:
    """Result of a lab: a figure, a paragraph and the numbers behind both."""

    figure: Figure
    paragraph: str
    """The conclusion in words, with the numbers that came out."""
    numbers: JsonObject


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


LEARNED = ("truncated:3", "truncated:5", "sliding:5", "truncated:20", "randomized:0.9", "full")
MEASURED = ("full", "truncated:5", "sliding:5", "randomized:0.8")
DRAWS = 200
"""Gradients of a mode that draws."""
TURNS = 9
"""Of timing."""


def truncation(seed: int = 0, lag: int = 10, steps: int = 150, T: int = 40) -> Experiment:
    """Recall over a fixed lag, learned in each mode; and one network's gradients, in each mode beside the full one."""
    accuracy = {mode: recall_accuracy(lag + 1, steps, seed, mode) for mode in LEARNED}
    gradients = gradient_errors(seed, T)
    figure, (left, right) = canvas(2, width=9.0)
    left.barh(list(accuracy), list(accuracy.values()), color=COLOURS[0])
    left.axvline(0.5, color=INK, lw=1, ls="--")
    left.annotate(
        "chance", (0.5, "truncated:3"), (6, 0), textcoords="offset points", color=INK, fontsize=9, va="center"
    )
    left.set(xlabel="share of right answers", xlim=(0, 1.05), title=Message("recall over {lag} steps", lag=lag))
    _draw_errors(right, gradients)
    cut, slid, drawn = (gradients[mode] for mode in MEASURED[1:])
    paragraph = Message(
        "The network must recall the first of {n} symbols at the end; guessing is right in 50 %. After {steps} "
        "training steps an LSTM is right in {t3:.0%} with truncated:3, {t5:.0%} with truncated:5 and {s5:.0%} with "
        "sliding:5: no gradient spans {lag} steps, so nothing teaches it to keep the symbol. With truncated:20, wider "
        "than the lag, it is right in {t20:.0%}, with full backpropagation in {full:.0%}, and with random truncation "
        "(randomized:0.9) in {r9:.0%}. Gradients of one network with a loss at each of {T} steps, compared with the "
        "full gradient: truncated:5 reaches back {cut_reach:.1f} steps on average and has a bias of {cut_bias:.0%}. "
        "sliding:5 reaches back {slid_reach:.1f} steps and has a bias of {slid_bias:.0%}; it needs {rows} rows "
        "instead of one and {slid_time:.1f} times the processor time of full backpropagation (truncated: "
        "{cut_time:.1f}). The mean of {draws} draws of randomized:0.8 is off by {drawn_bias:.0%}, of which "
        "{noise:.0%} is the sampling error of that many draws; a single draw is off by {spread:.0%}: unbiased, but "
        "noisy.",
        n=lag + 1,
        steps=steps,
        t3=accuracy["truncated:3"],
        t5=accuracy["truncated:5"],
        s5=accuracy["sliding:5"],
        lag=lag,
        t20=accuracy["truncated:20"],
        full=accuracy["full"],
        r9=accuracy["randomized:0.9"],
        T=T,
        cut_reach=cut.reach,
        cut_bias=cut.bias,
        slid_reach=slid.reach,
        slid_bias=slid.bias,
        rows=slid.rows,
        slid_time=slid.time,
        cut_time=cut.time,
        drawn_bias=drawn.bias,
        draws=DRAWS,
        noise=drawn.noise,
        spread=drawn.spread,
    )
    numbers = {"accuracy": accuracy, "gradient": {mode: found._asdict() for mode, found in gradients.items()}}
    return Experiment(figure, paragraph, numbers)


def recall_accuracy(T: int, steps: int, seed: int, bptt: str) -> float:
    """Return the accuracy of an LSTM after training with a mode of backpropagation."""
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


class GradientError(NamedTuple):
    """Difference between a mode's gradient of U and W and the full gradient, relative to its norm."""

    bias: float
    """‖E g − g_full‖, the mean over draws, where the mode draws."""
    spread: float
    """√E‖g − E g‖²; 0 for a mode that does not draw."""
    noise: float
    """What is left of the spread in the mean of so many draws."""
    reach: float
    """Over how many steps a loss reaches back, on average over all steps, its own included."""
    rows: int
    """That stand for one."""
    time: float
    """The processor's, of a forward and a backward pass, over that of full backpropagation: the least of turns."""


def gradient_errors(seed: int, T: int, B: int = 16) -> dict[str, GradientError]:
    """Return the gradient errors of an untrained network whose target at every step is the first symbol."""
    torch.manual_seed(seed)
    net = Recurrent("lstm", 3, 16, init=Init(forget_bias=1.0))
    head = nn.Linear(16, 2)
    x, y = recall_batch(B, T)

    def gradient(mode: str) -> Tensor:
        net.bptt = BPTT.parse(mode)
        loss = cross_entropy(head(net(x).outputs).flatten(0, 1), y.repeat_interleave(T))
        found = torch.autograd.grad(loss, [net.weights()["weight_ih"], net.weights()["weight_hh"]])
        return torch.cat([part.flatten() for part in found]).double()

    full = gradient("full")
    times = _times(gradient)
    found = {}
    for mode in MEASURED:
        draws = DRAWS if mode.startswith("randomized") else 1
        drawn = torch.stack([gradient(mode) for _ in range(draws)])
        spread = float((drawn - drawn.mean(0)).square().sum(1).mean().sqrt() / full.norm())
        bias = float((drawn.mean(0) - full).norm() / full.norm())
        rows = BPTT.parse(mode).copies(T)
        found[mode] = GradientError(bias, spread, spread / draws**0.5, reach(mode, T), rows, times[mode])
    return found


def reach(mode: str, T: int) -> float:
    """Over how many steps a loss reaches back, its own included, on average over T losses; of a mode that draws,
    expected."""
    bptt = BPTT.parse(mode)
    if bptt.sliding is not None:
        return float(np.mean([min(t + 1, bptt.sliding) for t in range(T)]))
    if bptt.window is not None:
        return float(np.mean([t % bptt.window + 1 for t in range(T)]))
    keep = 1.0 if bptt.keep is None else bptt.keep
    return float(np.mean([sum(keep**k for k in range(t + 1)) for t in range(T)]))


def _times(gradient: Callable[[str], Tensor]) -> dict[str, float]:
    """The least of turns taken one after the other, over full backpropagation's."""
    seconds: dict[str, list[float]] = {mode: [] for mode in MEASURED}
    for _ in range(TURNS):
        for mode, taken in seconds.items():
            begun = time.process_time()  # what other programs take does not count
            gradient(mode)
            taken.append(time.process_time() - begun)
    return {mode: min(taken) / min(seconds["full"]) for mode, taken in seconds.items()}


def _draw_errors(axis: Axes, gradients: dict[str, GradientError]) -> None:
    at = np.arange(len(MEASURED))
    axis.barh(at - 0.2, [gradients[mode].bias for mode in MEASURED], 0.4, color=COLOURS[1], label="bias")
    axis.barh(at + 0.2, [gradients[mode].spread for mode in MEASURED], 0.4, color=COLOURS[2], label="spread")
    rows = [gradients[mode].rows for mode in MEASURED]
    axis.set_yticks(at, [f"{mode}, {n} rows" if n > 1 else mode for mode, n in zip(MEASURED, rows, strict=True)])
    axis.invert_yaxis()  # full on top, as beside it
    axis.set(xlabel="error, over the full gradient's norm", title="how far a gradient is off")
    legend(axis)

"""A weight of its own for each step (Deep Learning, section 10.7).

With one weight w for all steps the state after n of them is wⁿ h_0, and no variance of w suits every n. With weights
w^(1) … w^(n) drawn apart, of mean 0 and variance v,

    Var Π_t w^(t)  =  vⁿ                                        so v = ⁿ√v* gives v* after n steps
    Var wⁿ         =  vⁿ ((2n − 1)!! − [n even] ((n − 1)!!)²)    for one normal w

and for matrices with entries of variance v/H: E‖W^(n) … W^(1) h_0‖² = vⁿ ‖h_0‖². A recurrent network cannot have this
remedy, since it shares W; a deep feedforward network can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from recur.diagnostics.figures import COLOURS, INK, canvas, legend
from recur.diagnostics.labs.truncation import Experiment
from recur.errors import OptionError
from recur.i18n import Message

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWS = 400_000
"""Of a product of single weights. Its variance rests on rare draws: more than SHORT factors would need millions."""
SHORT = 6
LONGEST = 200
"""Steps; beyond them float64 could not hold what one weight gives."""


def product_variance(n: int, v: float) -> float:
    """Return the variance of the product of n independent weights with mean 0 and variance v."""
    return v**n


def power_variance(n: int, v: float) -> float:
    """Return the variance of wⁿ for one normal w with mean 0 and variance v."""
    mean = double_factorial(n - 1) if n % 2 == 0 else 0
    return v**n * float(double_factorial(2 * n - 1) - mean**2)


def double_factorial(n: int) -> int:
    """n (n − 2) (n − 4) …, 1 for n ≤ 0."""
    return 1 if n <= 0 else n * double_factorial(n - 2)


def variance_for(n: int, target: float) -> float:
    """v = ⁿ√v*: what each of n weights needs so that their product has the variance v*."""
    return float(target ** (1 / n))


def variance(seed: int = 0, steps: int = 60, target: float = 0.1, H: int = 64, networks: int = 400) -> Experiment:
    """One weight for all steps beside one for each, single weights and matrices; `target` is v*."""
    if not 1 <= steps <= LONGEST:
        raise OptionError(
            Message(
                "{name} must lie in {low} … {high}, got {given}", name="--steps", low="1", high=LONGEST, given=steps
            )
        )
    if not 0 < target < float("inf"):
        raise OptionError(Message("{name} must be above {low}, got {value}", name="--target", low="0", value=target))
    v = variance_for(steps, target)
    draw = torch.Generator().manual_seed(seed)
    figure, (left, right) = canvas(2)
    single = _single_weights(left, target, draw)
    own, shared = (_squared_norms(v, steps, H, networks, draw, shared=one) for one in (False, True))
    _draw_networks(right, own, shared, v)
    measured, spread = float(own[-1].mean()), _quantiles(own[-1])
    power_spread = _quantiles(shared[-1])
    numbers = {
        "steps": steps,
        "target": target,
        "v": v,
        "single": single,
        "matrices": {
            "own": {"theory": v**steps, "measured": measured, "from": spread[0], "to": spread[2]},
            "shared": {"median": power_spread[1], "from": power_spread[0], "to": power_spread[2]},
        },
    }
    last = single[-1]
    paragraph = Message(
        "Single weights first. One w for all steps: with v = ⁿ√v* the variance of wⁿ should be v* = {target:g}, and "
        "after {short} steps it is {shared:.3g} (theory {shared_theory:.3g}): the error grows with the steps. One "
        "weight per step: {own:.3g} (theory {target:g}). Next, networks of {H} units with entries of variance v/{H} "
        "and v = {target:g}^(1/{steps}) = {v:.3f}. With one matrix per step the mean of ‖h‖² after {steps} steps is "
        "{measured:.3g} (theory v^{steps} = {power:.3g}), and of {networks} networks 80 % are between {a:.2g} and "
        "{b:.2g}. With one matrix for all steps 80 % are between {c:.2g} and {d:.2g}: each draw of W has its own "
        "largest eigenvalue, whose powers vanish or explode. The gradient is multiplied by the same factors in "
        "reverse order and behaves alike. One weight per step, with a variance chosen for the length, is a remedy for "
        "deep networks of a fixed depth. A recurrent network shares W; its remedies are W near orthogonal (--init "
        "orthogonal), gates and clipping.",
        target=target,
        short=SHORT,
        shared=last["shared"],
        shared_theory=last["shared_theory"],
        own=last["own"],
        H=H,
        steps=steps,
        v=v,
        measured=measured,
        power=v**steps,
        networks=networks,
        a=spread[0],
        b=spread[2],
        c=power_spread[0],
        d=power_spread[2],
    )
    return Experiment(figure, paragraph, numbers)


def _single_weights(axis: Axes, target: float, draw: torch.Generator) -> list[dict[str, float]]:
    """For 1 … SHORT steps, v chosen for each: the variance of the product, measured and in theory."""
    rows = []
    for n in range(1, SHORT + 1):
        v = variance_for(n, target)
        factors = torch.randn(n, DRAWS, generator=draw, dtype=torch.float64) * v**0.5
        row = {"steps": n, "v": v, "own": float(factors.prod(0).var()), "own_theory": product_variance(n, v)}
        row |= {"shared": float((factors[0] ** n).var()), "shared_theory": power_variance(n, v)}
        rows.append(row)
    at = [row["steps"] for row in rows]
    for name, label, colour in (("shared", "one w", COLOURS[1]), ("own", "one for each step", COLOURS[0])):
        axis.semilogy(at, [row[f"{name}_theory"] for row in rows], color=colour, label=label)
        axis.semilogy(at, [row[name] for row in rows], "o", color=colour, ms=4)
    axis.set(xlabel="n, with v = ⁿ√v*", ylabel="variance of the product", title="single weights")
    legend(axis)
    return rows


def _squared_norms(v: float, steps: int, H: int, networks: int, draw: torch.Generator, *, shared: bool) -> Tensor:
    """(steps + 1, networks): ‖h_t‖² of linear networks with entries of variance v/H, from ‖h_0‖ = 1."""

    def matrices() -> Tensor:
        drawn: Tensor = torch.randn(networks, H, H, generator=draw) * (v / H) ** 0.5
        return drawn

    W = matrices()
    h = torch.zeros(networks, H, 1)
    h[:, 0] = 1.0
    norms = [torch.ones(networks, dtype=torch.float64)]
    for t in range(steps):
        h = (W if shared or t == 0 else matrices()) @ h
        norms.append(h.double().square().sum((1, 2)))
    return torch.stack(norms)


def _quantiles(values: Tensor) -> list[float]:
    found: list[float] = torch.quantile(values, values.new_tensor([0.1, 0.5, 0.9])).tolist()
    return found


def _draw_networks(axis: Axes, own: Tensor, shared: Tensor, v: float) -> None:
    t = np.arange(len(own))
    for values, label, colour in ((shared, "one W", COLOURS[1]), (own, "one for each step", COLOURS[0])):
        low, middle, high = np.array([_quantiles(row) for row in values]).T
        axis.fill_between(t, low, high, color=colour, alpha=0.2, lw=0)
        axis.semilogy(t, middle, color=colour, label=label)
    axis.semilogy(t, v**t, ":", color=INK, lw=1, label="theory of its mean, vⁿ")
    axis.set(xlabel="steps", ylabel="‖h‖², median, 8 in 10", title="matrices")
    legend(axis)

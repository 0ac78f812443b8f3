"""The average of weights over the steps, which is measured and kept in their place.

    a ← a + (1 − β_t) (w − a)        β_t = min(β, (1 + t) / (10 + t))

Polyak and Juditsky 1992, with a window that moves along: the noise of single steps falls out, as in an ensemble of the
weights of many steps. In its first steps, when weights still change much, it looks back over fewer of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from recur.tasks.forms import parse_schedule
from recur.tasks.options import TaskOptions
from recur.tasks.places import Places


class WeightAverage:
    """The average of each parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter], beta: float) -> None:
        self.beta, self.parameters = beta, list(parameters)
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """With the weights after a step, of which `step` came before."""
        beta = min(self.beta, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - beta)

    def pairs(self) -> dict[Tensor, Tensor]:
        return dict(zip(self.parameters, self.values, strict=True))


@torch.no_grad()
def swap_weights(averages: dict[Tensor, Tensor]) -> None:
    """Exchange weights with their averages."""
    for p, average in averages.items():
        kept = p.clone()
        p.copy_(average)
        average.copy_(kept)


ParamGroups = list[dict[str, Any]]
"""Parameters by layer: `factor` is on their rate, and they learn once so much of the budget is spent (`opens`)."""


def make_param_groups(
    options: TaskOptions, model: nn.Module, places: Places | None
) -> Iterable[nn.Parameter] | ParamGroups:
    """A network that begins with a language model's layers learns by layer, from the top (Howard and Ruder 2018):

        rate of a layer = rate of the layer above / layer_rate       open from (layers above) · unfreeze of the budget

    What was drawn is uppermost, be it the direction that a network of both has not from its language model. Any other
    network is one group.
    """
    o: Any = options
    carried, frozen = bool(getattr(o, "from_", ())), bool(getattr(o, "freeze_vectors", False))
    if places is None or not (carried or frozen):
        return model.parameters()
    layers: dict[int, list[nn.Parameter]] = {}
    depths = {name: places.depth(name) for name, _ in model.named_parameters()}
    if carried and len(o.from_) == 1 and getattr(o, "direction", "") == "both":
        depths = {name: None if name.endswith("_reverse") else depth for name, depth in depths.items()}
    top = 1 + max((depth for depth in depths.values() if depth is not None), default=0)
    for name, p in model.named_parameters():
        depth = depths[name]
        layers.setdefault(top if depth is None else depth, []).append(p)
    return [
        {
            "params": layers[depth],
            "factor": o.layer_rate ** (depth - top) if carried else 1.0,
            "opens": math.inf if frozen and not depth else o.unfreeze * (top - depth) if carried else 0.0,
        }
        for depth in sorted(layers)
    ]


def unfreeze_groups(optimizer: torch.optim.Optimizer, progress: float) -> None:
    """Let those layers learn whose turn it is; of the others no gradient is computed."""
    for group in optimizer.param_groups:
        if "opens" in group:
            for p in group["params"]:
                p.requires_grad_(progress >= group["opens"])


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The rate of the uppermost layer, from which the others follow. On a GPU it lies there, where graphs read it."""
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_optimizer(options: TaskOptions, model: nn.Module, places: Places | None = None) -> torch.optim.Optimizer:
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    parameters = make_param_groups(options, model, places)
    common: dict[str, Any] = {"lr": options.rate, "weight_decay": options.weight_decay or 0.0}
    if on_gpu and options.optimizer != "asgd":
        common["lr"] = torch.tensor(options.rate, device=device)
    if options.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
        momentum = 0.9 if options.momentum is None else options.momentum
        made = kind(parameters, betas=(momentum, 0.99), fused=True, capturable=on_gpu, **common)
        made._warned_capturable_if_run_uncaptured = True  # a step may be either
        return made
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=options.momentum or 0.0, fused=on_gpu, **common)
    # Plain SGD until `start_averaging`: with t0 out of reach the average is the weights themselves.
    return torch.optim.ASGD(parameters, lambd=0.0, t0=1e15, **common)


def start_averaging(optimizer: torch.optim.Optimizer) -> None:
    """Average the weights from here on (Polyak; Merity et al. 2018)."""
    for group in optimizer.param_groups:
        steps = [float(optimizer.state[p]["step"]) for p in group["params"] if p in optimizer.state]
        group["t0"] = max(steps, default=0.0)


def asgd_averages(optimizer: torch.optim.Optimizer) -> dict[Tensor, Tensor]:
    return {p: s["ax"] for p, s in optimizer.state.items() if "ax" in s}


class Schedule:
    """The factor on the rate: of progress (0 … 1), of epochs, and of earlier measurements."""

    def __init__(self, spec: str, warmup: int) -> None:
        self.name, self.numbers = parse_schedule(spec)
        self.warmup = warmup
        self.factor = 1.0
        self.history: list[float] = []
        self.triggered = False

    def __call__(self, step: int, epoch: int, progress: float) -> float:
        rise = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.name == "cosine":
            return rise * max(0.5 * (1 + math.cos(math.pi * min(progress, 1.0))), 1e-3)
        if self.name == "flat":
            (cut,) = self.numbers
            return rise * max(0.5 * (1 + math.cos(math.pi * max(0.0, min(progress, 1.0) - cut) / (1 - cut))), 1e-3)
        if self.name == "slanted":
            return _slanted(min(progress, 1.0), *self.numbers)
        if self.name == "step":
            gamma, after = self.numbers
            with suppress(OverflowError):
                return float(rise * gamma ** max(0.0, epoch + 1 - after))
            return math.inf  # which the next loss says
        return float(rise * self.factor)

    def measured(self, loss: float) -> bool:
        """Take note of a validation loss; true where weights are to be averaged from now on."""
        earlier = self.history[: -int(self.numbers[0])] if self.name == "nonmono" else self.history
        worse = bool(earlier) and loss > min(earlier)
        self.history.append(loss)
        if self.name == "plateau" and worse:
            self.factor *= self.numbers[0]
        if self.name == "nonmono" and worse and not self.triggered:
            self.triggered = True
            return True
        return False

    def state(self) -> dict[str, Any]:
        return {"factor": self.factor, "history": list(self.history), "triggered": self.triggered}

    def load(self, state: dict[str, Any]) -> None:
        self.factor, self.history = float(state["factor"]), [float(loss) for loss in state["history"]]
        self.triggered = bool(state["triggered"])


def _slanted(progress: float, cut: float = 0.1) -> float:
    """Up over the first part of the budget and down over the rest, to 1/32 (Howard and Ruder 2018, equation 3)."""
    height = progress / cut if progress < cut else 1 - (progress - cut) / (1 - cut)
    return (1 + 31 * height) / 32


def clip_gradients(parameters: list[nn.Parameter], norm: float, value: float) -> Tensor:
    """Clip in place: entries first, then the whole, g ← min(1, θ/‖g‖) g. The norm it had before is returned."""
    if value:
        before = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        torch.nn.utils.clip_grad_value_(parameters, value)
        if norm:
            torch.nn.utils.clip_grad_norm_(parameters, norm)
        return before
    return torch.nn.utils.clip_grad_norm_(parameters, norm or math.inf)

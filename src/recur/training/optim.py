"""Optimization: optimizers, learning rate schedules, gradient clipping and weight averaging."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from recur.compat import allow_uncaptured_steps, foreach_lerp_
from recur.models.options import EncoderDecoderOptions, ReaderOptions
from recur.tasks.common.contract import PretrainedSlots
from recur.tasks.common.options import TaskOptions, WarmStartOptions, parse_schedule


class WeightAverage:
    """Exponential moving average of the weights, which is evaluated and saved in their place.

        a ← a + (1 − β_t) (w − a)        β_t = min(β, (1 + t) / (10 + t))

    Polyak and Juditsky 1992, with a moving window: the noise of single steps averages out. In the first steps, when
    the weights change fast, the window is shorter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], beta: float) -> None:
        self.beta, self.parameters = beta, list(parameters)
        self.values = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step; `step` is the number of steps before it."""
        beta = min(self.beta, (1 + step) / (10 + step))
        foreach_lerp_(self.values, [p.detach() for p in self.parameters], 1 - beta)

    def pairs(self) -> dict[Tensor, Tensor]:
        return dict(zip(self.parameters, self.values, strict=True))


@torch.no_grad()
def swap_weights(averages: dict[Tensor, Tensor]) -> None:
    """Exchange weights with their averages; a second call restores them."""
    for p, average in averages.items():
        kept = p.clone()
        p.copy_(average)
        average.copy_(kept)


ParamGroups = list[dict[str, Any]]
"""Parameters by layer: `factor` multiplies their learning rate, and they learn from the progress `opens` on."""


def make_param_groups(
    options: TaskOptions, model: nn.Module, places: PretrainedSlots | None
) -> Iterable[nn.Parameter] | ParamGroups:
    """Return parameter groups by layer for a network that starts from a language model (Howard and Ruder 2018):

        rate of a layer = rate of the layer above / layer_rate       opens at (layers above) · unfreeze of the budget

    Newly initialised layers are on top; so is the second direction of a bidirectional network if the language model has
    one direction. Return the parameters themselves, one group, for any other network.
    """
    o = options
    if places is None or not isinstance(o, WarmStartOptions) or not (o.from_ or o.freeze_vectors):
        return model.parameters()
    carried, frozen = bool(o.from_), o.freeze_vectors
    layers: dict[int, list[nn.Parameter]] = {}
    depths = {name: places.depth(name) for name, _ in model.named_parameters()}
    bidirectional = isinstance(o, ReaderOptions | EncoderDecoderOptions) and o.direction == "both"
    if bidirectional and len(o.from_) == 1:
        depths = {name: None if name.endswith("_reverse") else depth for name, depth in depths.items()}
    top = 1 + max((depth for depth in depths.values() if depth is not None), default=0)
    for name, p in model.named_parameters():
        depth = depths[name]
        layers.setdefault(top if depth is None else depth, []).append(p)
    return [
        {
            "params": layers[depth],
            "factor": o.layer_lr_decay ** (depth - top) if carried else 1.0,
            "opens": math.inf if frozen and not depth else o.unfreeze * (top - depth) if carried else 0.0,
        }
        for depth in sorted(layers)
    ]


def unfreeze_groups(optimizer: torch.optim.Optimizer, progress: float) -> None:
    """Unfreeze the layers whose turn has come; frozen layers compute no gradient."""
    for group in optimizer.param_groups:
        if "opens" in group:
            for p in group["params"]:
                p.requires_grad_(progress >= group["opens"])


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of the top layer, and with it those of the others.

    On a GPU the rate is a tensor, so that captured CUDA graphs read its new value.
    """
    for group in optimizer.param_groups:
        own = rate * group.get("factor", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(own)
        else:
            group["lr"] = own


def make_optimizer(
    options: TaskOptions, model: nn.Module, places: PretrainedSlots | None = None
) -> torch.optim.Optimizer:
    device = next(model.parameters()).device
    on_gpu = device.type == "cuda"
    parameters = make_param_groups(options, model, places)
    common: dict[str, Any] = {"lr": options.lr, "weight_decay": options.weight_decay or 0.0}
    if on_gpu and options.optimizer != "asgd":
        common["lr"] = torch.tensor(options.lr, device=device)
    if options.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if options.optimizer == "adam" else torch.optim.AdamW
        momentum = 0.9 if options.momentum is None else options.momentum
        made = kind(parameters, betas=(momentum, 0.99), fused=True, capturable=on_gpu, **common)
        allow_uncaptured_steps(made)
        return made
    if options.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=options.momentum or 0.0, fused=on_gpu, **common)
    # SGD until `start_averaging`: while t0 is out of reach, the average equals the weights.
    return torch.optim.ASGD(parameters, lambd=0.0, t0=1e15, **common)


def start_averaging(optimizer: torch.optim.Optimizer) -> None:
    """Average the weights from this step on (Polyak; Merity et al. 2018)."""
    for group in optimizer.param_groups:
        steps = [float(optimizer.state[p]["step"]) for p in group["params"] if p in optimizer.state]
        group["t0"] = max(steps, default=0.0)


def asgd_averages(optimizer: torch.optim.Optimizer) -> dict[Tensor, Tensor]:
    """Return the averages that ASGD keeps, by parameter."""
    return {p: s["ax"] for p, s in optimizer.state.items() if "ax" in s}


class Schedule:
    """Learning rate schedule: a factor that depends on progress (0 … 1), epochs and earlier validation losses."""

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
            return math.inf  # the next loss reports the divergence
        return float(rise * self.factor)

    def measured(self, loss: float) -> bool:
        """Record a validation loss; return True if averaging starts now."""
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
    """Return the slanted triangular factor: it rises until `cut`, then falls to 1/32 (Howard and Ruder 2018, eq. 3)."""
    height = progress / cut if progress < cut else 1 - (progress - cut) / (1 - cut)
    return (1 + 31 * height) / 32


def clip_gradients(parameters: list[nn.Parameter], norm: float, value: float) -> Tensor:
    """Clip gradients in place: entries first, then the norm, g ← min(1, θ/‖g‖) g. Return the norm before clipping."""
    if value:
        before = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        torch.nn.utils.clip_grad_value_(parameters, value)
        if norm:
            torch.nn.utils.clip_grad_norm_(parameters, norm)
        return before
    return torch.nn.utils.clip_grad_norm_(parameters, norm or math.inf)

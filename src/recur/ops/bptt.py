"""BPTT modes: which gradients cross time in the backward pass.

Backpropagation through time carries ∂L/∂s_t from step to step. One mechanism serves every mode: from step t to the
previous state, the carried gradient is multiplied by ξ_t,

    ∂L/∂s_{t−1}  =  ∂L_{t−1}/∂s_{t−1}  +  ξ_t (∂s_t/∂s_{t−1})ᵀ ∂L/∂s_t

    full            ξ_t = 1
    truncated:τ     ξ_t = 0 where t is a multiple of τ: windows of τ steps, their states carried but detached
    sliding:τ       each loss reaches back τ steps, to a state s_{t−τ} that is detached, for every t
    randomized:π    ξ_t = 1/π with probability π, else 0: E[ξ_t] = 1, so the gradient stays unbiased
                    (Tallec and Ollivier, Unbiasing truncated backpropagation through time, 2017)

There are two kinds of truncation. Textbooks truncate at t − τ for every t: this is `sliding`. In practice a text is
split into windows, `truncated`, and a loss reaches back to the start of its window only: 1 to τ steps, (τ + 1)/2 on
average. Sliding truncation makes τ copies of each row, which have the same values and are truncated at t ≡ j (mod τ) in
copy j; the loss of step t counts in the copy whose window ends at t. No kernel needs to know this mode. It costs
τ times the time and memory of a truncated pass; see docs/performance.md.

Steps count from 0 in scan order. Windows count from the start of each sequence, so a reset inside a row gives the same
result as two separate sequences. In the modes with a name, ξ_0 = 1: the edge before the first step of a sequence leads
to a learned or carried state, which the caller may detach. A given tensor ξ multiplies that edge too, by its ξ_0.

`clip` bounds the carried gradient: after ξ, the gradient of each sequence, over all states of the cell, is scaled to
a norm of at most θ, g ← min(1, θ/‖g‖) g. This clips inside the backward pass, step by step. To clip the gradient of the
weights afterwards, use `torch.nn.utils.clip_grad_norm_`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import torch
from torch import Tensor

from recur.errors import OptionError, ShapeError, shown

__all__ = ["BPTT"]

SPEC = "full, truncated:τ, sliding:τ (whole, ≥ 1) or randomized:π (0 < π ≤ 1), and ,clip:θ (> 0) after it"


@dataclass(frozen=True)
class BPTT:
    """A BPTT mode: at most one of `window` τ, `sliding` τ, `keep` π and `xi`; `clip` bounds the carried gradient.

    >>> BPTT.parse("truncated:20,clip:1") == BPTT(window=20, clip=1.0)
    True
    >>> net = recur.Recurrent("elman", 3, 4, bptt="truncated:5")
    >>> x = torch.randn(1, 10, 3, requires_grad=True)
    >>> net(x).outputs[:, -1].sum().backward()
    >>> x.grad[0].abs().sum(1).gt(0).int().tolist()    # only the last window has gradients
    [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    """

    window: int | None = None
    keep: float | None = None
    xi: Tensor | None = field(default=None, compare=False)
    clip: float | None = None
    generator: torch.Generator | None = None
    sliding: int | None = None

    def __post_init__(self) -> None:
        if sum(option is not None for option in (self.window, self.sliding, self.keep, self.xi)) > 1:
            raise OptionError("bptt: window, sliding, keep and xi exclude each other; give one")
        if self.xi is not None and not isinstance(self.xi, Tensor):
            raise OptionError(f"bptt: ξ must be a tensor of (T,) or (B, T), got {type(self.xi).__name__}")
        if self.xi is not None and (self.xi.layout is not torch.strided or self.xi.is_nested):
            raise OptionError("bptt: ξ must be a plain tensor of (T,) or (B, T), got a sparse or nested one")
        for mode, steps in (("truncated", self.window), ("sliding", self.sliding)):
            if steps is not None and (not _whole(steps) or steps < 1):
                raise OptionError(f"bptt: {mode} needs τ, a whole number ≥ 1, got {shown(steps)}")
        if self.keep is not None and not (_number(self.keep) and 0 < self.keep <= 1):
            raise OptionError(f"bptt: randomized needs π in (0, 1], got {shown(self.keep)}")
        if self.clip is not None and not (_number(self.clip) and self.clip > 0):
            raise OptionError(f"bptt: clip needs θ, a number above 0, got {shown(self.clip)}")

    @staticmethod
    def parse(spec: str | Tensor | BPTT) -> BPTT:
        """Return the mode of a string such as `full`, `truncated:20` or `randomized:0.9,clip:1`, of ξ, or of a BPTT."""
        if isinstance(spec, BPTT):
            return spec
        if isinstance(spec, Tensor):
            return BPTT(xi=spec)
        if isinstance(spec, str) and spec in _PARSED:
            return _PARSED[spec]
        form = r"(?:full|(truncated|sliding|randomized):([^,]+))(?:,clip:([^,]+))?|clip:([^,]+)"
        found = re.fullmatch(form, spec.replace(" ", "")) if isinstance(spec, str) else None
        if found is not None:
            mode, number, *clips = found.groups()
            try:
                clip = next((float(clip) for clip in clips if clip), None)
                window = int(number) if mode == "truncated" else None
                sliding = int(number) if mode == "sliding" else None
                keep = float(number) if mode == "randomized" else None
            except ValueError:
                pass  # not a number: the error below quotes the string
            else:
                made = BPTT(window, keep, clip=clip, sliding=sliding)
                if len(_PARSED) < MOST_PARSED:
                    _PARSED[spec] = made
                return made
        raise OptionError(f"bptt {shown(spec)} is not of the form: {SPEC}; or a tensor ξ of (T,) or (B, T)")

    def __str__(self) -> str:
        mode = "full"
        if self.window is not None:
            mode = f"truncated:{self.window}"
        elif self.sliding is not None:
            mode = f"sliding:{self.sliding}"
        elif self.keep is not None:
            mode = f"randomized:{self.keep:g}"
        elif self.xi is not None:
            mode = "ξ given"
        return mode if self.clip is None else f"{mode},clip:{self.clip:g}"

    @property
    def full(self) -> bool:
        """Whether ξ is 1 everywhere."""
        return self.window is None and self.keep is None and self.xi is None and self.sliding is None

    @property
    def by_sequence(self) -> bool:
        """Whether ξ depends on the distance of a step from the start of its sequence."""
        return self.window is not None or self.sliding is not None

    def copies(self, T: int) -> int:
        """Return the number of copies of each row: τ for sliding truncation of sequences longer than τ, else 1."""
        return self.sliding if self.sliding is not None and self.sliding < T else 1

    def draw(self, B: int, T: int, copies: int = 1) -> Tensor | None:
        """Return ξ (B, T) on the CPU; None if it is 1 everywhere. B counts all copies of the batch."""
        if self.xi is not None:
            if self.xi.shape not in ((T,), (B, T)):
                raise ShapeError(f"bptt: ξ must be (T={T},) or (B={B}, T={T}), got {tuple(self.xi.shape)}")
            if not bool(torch.isfinite(self.xi).all()):
                raise OptionError("bptt: ξ must be finite")
            return self.xi.detach().to("cpu", torch.float64).expand(B, T)
        window = 1 if self.sliding == 1 else self.window  # sliding:1 is truncated:1
        if window is not None and window < T:
            xi = torch.ones(T, dtype=torch.float64, device="cpu")
            xi[window::window] = 0
            return xi.expand(B, T)
        if copies > 1:
            t, copy = torch.arange(T, device="cpu"), torch.arange(copies, device="cpu")[:, None]
            xi = ((t - copy) % copies != 0).double()
            xi[:, 0] = 1
            return xi.repeat_interleave(B // copies, dim=0)
        if self.keep is not None and self.keep < 1:
            # One draw per sequence: independent draws reduce the variance of the mean over the batch.
            chance = torch.full((B, T), float(self.keep), dtype=torch.float64, device="cpu")
            xi = torch.bernoulli(chance, generator=self.generator) / self.keep
            xi[:, 0] = 1
            return xi
        return None


_PARSED: dict[str, BPTT] = {}
"""Modes of strings that were parsed before: a scan parses its argument at every call."""
MOST_PARSED = 256


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # 10⁴⁰⁰ is no float


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

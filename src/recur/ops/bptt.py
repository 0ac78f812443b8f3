"""What crosses time in the backward pass.

Backpropagation through time carries ∂L/∂s_t from step to step. One mechanism serves every mode: on its way from
step t to the state before it, the carried gradient is multiplied by ξ_t,

    ∂L/∂s_{t−1}  =  ∂L_{t−1}/∂s_{t−1}  +  ξ_t (∂s_t/∂s_{t−1})ᵀ ∂L/∂s_t

    full            ξ_t = 1
    truncated:τ     ξ_t = 0 where t is a multiple of τ: windows of τ steps, their states carried but detached
    sliding:τ       each loss reaches back τ steps, to a state s_{t−τ} that is detached, for every t
    randomized:π    ξ_t = 1/π with probability π, else 0: E[ξ_t] = 1, so the gradient stays unbiased
                    (Tallec and Ollivier, Unbiasing truncated backpropagation through time, 2017)

Truncation has two forms. The books cut at t − τ for every t: that is `sliding`. In practice a text is cut into
windows, `truncated`, and a loss reaches back to its window's start only: over 1 to τ steps, (τ + 1)/2 on average.
Sliding is τ rows for each row, which share their numbers and differ in where they are cut, at t ≡ j (mod τ) in row j;
the loss of step t counts in the row whose window ends with t. It needs no mode of its own in a kernel, and costs
τ times a truncated pass and τ times its memory; docs/performance.md has how much, and what is left of the gradient.

Steps count from 0 in the order in which the scan takes them; windows count from the start of each sequence, so that
a reset inside a row is what two separate sequences would be. ξ is 1 before the first step of a sequence in all modes:
that edge leads out of it, to a learned or carried state, and is the caller's to cut.

`clip` bounds what is carried: after ξ, each sequence's carried gradient, all states of a cell taken together, is
scaled to norm θ at most, g ← min(1, θ/‖g‖) g. This is clipping inside the backward pass, step by step; clipping
of the weights' gradient after it is `torch.nn.utils.clip_grad_norm_`.
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
    """A mode, at most one of `window` τ, `sliding` τ, `keep` π and `xi` itself, and a bound on what is carried.

    >>> BPTT.parse("truncated:20,clip:1") == BPTT(window=20, clip=1.0)
    True
    >>> net = recur.Recurrent("elman", 3, 4, bptt="truncated:5")
    >>> x = torch.randn(1, 10, 3, requires_grad=True)
    >>> net(x).outputs[:, -1].sum().backward()
    >>> x.grad[0].abs().sum(1).gt(0).int().tolist()    # the last window alone is reached
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
        """From a line such as `full`, `truncated:20` or `randomized:0.9,clip:1`; from ξ; or a BPTT as it is."""
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
                pass  # not a number: the error below has the whole line
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
        """Whether ξ depends on how far a step is from the start of its own sequence."""
        return self.window is not None or self.sliding is not None

    def copies(self, T: int) -> int:
        """How many rows stand for one: τ where truncation slides and cuts anything."""
        return self.sliding if self.sliding is not None and self.sliding < T else 1

    def draw(self, B: int, T: int, copies: int = 1) -> Tensor | None:
        """ξ of (B, T) on the CPU, or None where it is 1 everywhere. Copies of a batch follow each other whole."""
        if self.xi is not None:
            if self.xi.shape not in ((T,), (B, T)):
                raise ShapeError(f"bptt: ξ must be (T={T},) or (B={B}, T={T}), got {tuple(self.xi.shape)}")
            if not bool(torch.isfinite(self.xi).all()):
                raise OptionError("bptt: ξ must be finite")
            return self.xi.detach().to("cpu", torch.float64).expand(B, T)
        window = 1 if self.sliding == 1 else self.window  # which are the same
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
            # A draw for each sequence of the batch: rows are independent, which a shared draw would waste.
            chance = torch.full((B, T), float(self.keep), dtype=torch.float64, device="cpu")
            xi = torch.bernoulli(chance, generator=self.generator) / self.keep
            xi[:, 0] = 1
            return xi
        return None


_PARSED: dict[str, BPTT] = {}
"""Lines that were read before, which a scan would otherwise read at every call."""
MOST_PARSED = 256


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # 10⁴⁰⁰ is no float


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

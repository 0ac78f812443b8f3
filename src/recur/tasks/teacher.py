"""Teacher forcing: how often a network that writes reads the target instead of what it wrote before.

    always, never         at every step, or at none: then each step reads the network's own likeliest symbol
    constant:p            with probability p
    linear:a:b            p falls from a to b in a straight line over the run
    exponential:k         p = k^i at step i of training, k < 1
    sigmoid:k             p = k / (k + exp(i / k)), the inverse sigmoid, k ≥ 1

The last three are those of Bengio et al., Scheduled sampling, 2015. Each step of each sequence is drawn on its own;
with `,sequence` behind it, as in `linear:1:0.5,sequence`, each sequence as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recur.errors import OptionError, shown

if TYPE_CHECKING:
    from torch import Tensor

FORMS = "always, never, constant:p, linear:a:b, exponential:k (k < 1), sigmoid:k (k ≥ 1); ,sequence may follow"


@dataclass(frozen=True)
class Teacher:
    kind: str
    numbers: tuple[float, ...] = ()
    whole: bool = False
    """Whether a sequence reads all of its target or nothing."""

    @staticmethod
    def parse(spec: str) -> Teacher:
        form, _, per = spec.partition(",")
        kind, *written = form.split(":")
        try:
            numbers = tuple(float(number) for number in written)
        except ValueError:
            numbers = (math.nan,)
        takes = {"always": 0, "never": 0, "constant": 1, "linear": 2, "exponential": 1, "sigmoid": 1}
        sound = all(0 <= n <= 1 for n in numbers) if kind != "sigmoid" else all(1 <= n < math.inf for n in numbers)
        if len(numbers) != takes.get(kind, -1) or not sound or per not in ("", "sequence", "step"):
            raise OptionError(f"teacher {shown(spec)} is not one of: {FORMS}")
        return Teacher(kind, numbers, per == "sequence")

    def probability(self, step: int, progress: float) -> float:
        """Of reading the target, at a step of training and 0 … 1 of the way through it."""
        if self.kind in ("always", "never"):
            return float(self.kind == "always")
        k = self.numbers[0]
        if self.kind == "linear":
            return k + (self.numbers[1] - k) * min(progress, 1.0)
        if self.kind == "exponential":
            return float(k**step)
        if self.kind == "sigmoid":
            return k / (k + math.exp(min(step / k, 700.0)))
        return k

    def draw(self, rows: int, steps: int, step: int, progress: float) -> Tensor | None:
        """(rows, steps), bool, on the CPU: where the target is read; None is everywhere."""
        import torch  # options are parsed without it

        p = self.probability(step, progress)
        if p >= 1:
            return None
        return (torch.rand(rows, 1 if self.whole else steps) < p).expand(rows, steps)

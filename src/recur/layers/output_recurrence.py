"""Output recurrence: the hidden state sees the output of the step before, and nothing else of the past.

    h_t = φ(U x_t + W y_{t−1} + b)
    o_t = V h_t + c

the second design pattern of Deep Learning, section 10.2. With a teacher, y_{t−1} is the target of the step before:
no step waits for another, and training takes all of them at once, without backpropagation through time. In use,
y_{t−1} is made of the network's own o_{t−1}, step by step. It is weaker than a recurrence between hidden states, for
the outputs, trained to match the targets, must carry all that is remembered.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from recur.errors import OptionError, ShapeError, unknown


def _likeliest(o: Tensor) -> Tensor:
    return one_hot(o.argmax(-1), o.shape[-1]).to(o.dtype)


FED_BACK: dict[str, Callable[[Tensor], Tensor]] = {
    "output": lambda o: o,
    "softmax": lambda o: o.softmax(-1),
    "likeliest": _likeliest,
}
"""How o_{t−1} becomes y_{t−1} where there is no teacher: as it is, as probabilities, or as the likeliest one."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class OutputRecurrent(nn.Module):
    """Inputs (B, T, D) → outputs o (B, T, O)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        *,
        feed: str = "likeliest",
        activation: str = "tanh",
    ) -> None:
        super().__init__()
        if feed not in FED_BACK:
            raise OptionError(unknown("feed", feed, FED_BACK))
        if activation not in ACTIVATIONS:
            raise OptionError(unknown("activation", activation, ACTIVATIONS))
        self.input_size, self.output_size, self.feed, self.activation = input_size, output_size, feed, activation
        self.hidden = nn.Linear(input_size, hidden_size)  # U and b
        self.back = nn.Linear(output_size, hidden_size, bias=False)  # W
        self.output = nn.Linear(hidden_size, output_size)  # V and c

    def forward(self, x: Tensor, targets: Tensor | None = None, first: Tensor | None = None) -> Tensor:
        """With a teacher's targets (B, T, O), all steps at once; without, free running. `first` (B, O) is y_0, or 0."""
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"OutputRecurrent: x must be (B, T, D={self.input_size}), got {tuple(x.shape)}")
        before = x.new_zeros(len(x), self.output_size) if first is None else first
        if targets is None:
            return self.run(x, lambda t, o: FED_BACK[self.feed](o), before)
        if targets.shape != (*x.shape[:2], self.output_size):
            shape = (*x.shape[:2], self.output_size)
            raise ShapeError(f"OutputRecurrent: targets must be {shape}, got {tuple(targets.shape)}")
        before = torch.cat([before[:, None], targets[:, :-1]], dim=1)
        outputs: Tensor = self.output(ACTIVATIONS[self.activation](self.hidden(x) + self.back(before)))
        return outputs

    def run(self, x: Tensor, next_fed: Callable[[int, Tensor], Tensor], before: Tensor) -> Tensor:
        """Step by step: `next_fed(t, o_t)` is what step t + 1 reads of step t. With the teacher's targets it gives
        what `forward` gives at once."""
        outputs = []
        for t, share in enumerate(self.hidden(x).unbind(1)):
            h = ACTIVATIONS[self.activation](share + linear(before, self.back.weight))
            outputs.append(self.output(h))
            before = next_fed(t, outputs[-1])
        return torch.stack(outputs, dim=1)

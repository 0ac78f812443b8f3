"""Numbers in, one number out: ŷ = V h_τ + c, h the recurrent network along (B, T, D)."""

from __future__ import annotations

from torch import Tensor, nn

from recur.models.options import SequenceOptions
from recur.models.stack import plain_stack
from recur.models.time import beside, whole
from recur.nn import Recurred, initialise_linear


class Regressor(nn.Module):
    """(B, T, D) to (B,), read at the last step."""

    def __init__(self, D: int, options: SequenceOptions) -> None:
        super().__init__()
        self.clock = options.clock
        self.recurrent = plain_stack(options, D + (self.clock is not None))
        self.output = nn.Linear(self.recurrent.output_size, 1)
        initialise_linear(options.init, self.output.weight, self.output.bias)
        self.backend = ""
        """Which backend ran last."""

    def forward(self, x: Tensor) -> Tensor:
        if self.clock is not None:
            x = beside(x, whole(x), self.clock)
        found: Recurred = self.recurrent(x)
        self.backend = found.trace[0].backend
        predicted: Tensor = self.output(found.outputs[:, -1]).squeeze(-1)
        return predicted

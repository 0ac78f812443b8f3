"""Numbers in, one number out: ŷ = V h_τ + c, h the recurrent network along (B, T, D)."""

from __future__ import annotations

from torch import Tensor, nn

from recur.layers import Recurred, Recurrent
from recur.models.reader import ReaderOptions


class Regressor(nn.Module):
    """(B, T, D) to (B,), read at the last step. Of the options, those of the network count."""

    def __init__(self, D: int, options: ReaderOptions) -> None:
        super().__init__()
        o = options
        self.recurrent = Recurrent(
            o.cell,
            D,
            o.hidden,
            layers=o.layers,
            init=o.init,
            forget_bias=o.forget_bias,
            bptt=o.bptt,
            backend=o.backend,
        )
        self.output = nn.Linear(o.hidden, 1)
        self.backend = ""

    def forward(self, x: Tensor) -> Tensor:
        found: Recurred = self.recurrent(x)
        self.backend = found.trace[0].backend
        predicted: Tensor = self.output(found.outputs[:, -1]).squeeze(-1)
        return predicted

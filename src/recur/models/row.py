"""Network for table rows: one input, one output, no recurrence.

h = tanh(U x + b)          further such layers by option
o = V h + c
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout

from recur.models.options import RowModelOptions
from recur.nn import Depth, FeedForward


class RowModel(nn.Module):
    """Network from rows (B, D) to outputs (B, O)."""

    def __init__(self, D: int, outputs: int, options: RowModelOptions) -> None:
        super().__init__()
        self.options = options
        self.network = FeedForward(D, options.hidden, depth=Depth(input=options.layers - 1))
        self.output = nn.Linear(options.hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = self.network(x[:, None]).outputs[:, 0]  # one step
        found: Tensor = self.output(dropout(h, self.options.dropout_output, self.training))
        return found

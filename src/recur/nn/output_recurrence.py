"""Output recurrence: the hidden state reads the output of the previous step, not its hidden state.

    h_t = φ(U x_t + W y_{t−1} + b)
    o_t = V h_t + c

This is the second design pattern of Deep Learning, section 10.2. With teacher forcing, y_{t−1} is the previous target:
all steps are computed in parallel, without backpropagation through time. In free running, y_{t−1} is computed from
o_{t−1}, step by step. The pattern is weaker than a recurrence between hidden states, because the outputs, which are
trained to match the targets, must carry everything that is remembered.

`OutputRecurrent` is the whole network. Where the previous output is already the input, as in a language model,
`FeedForward` is its hidden layer, in place of a `Recurrent`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from recur.errors import OptionError, ShapeError, unknown
from recur.nn.functional import apply_mlp, make_mlp, padding_mask, reset_mlp, sequence_dropout
from recur.nn.options import Depth, check_integer
from recur.nn.recurrent import NetworkState, RecurrentOutput
from recur.ops import GivenState, Trace

PARALLEL_BACKEND = "all at once"
"""Name of the backend in traces: all steps are computed in parallel."""


def _likeliest(o: Tensor) -> Tensor:
    return one_hot(o.argmax(-1), o.shape[-1]).to(o.dtype)


FEEDBACK_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "output": lambda o: o,
    "softmax": lambda o: o.softmax(-1),
    "likeliest": _likeliest,
}
"""How o_{t−1} becomes y_{t−1} in free running: unchanged, as probabilities, or as the one-hot argmax."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class OutputRecurrent(nn.Module):
    """Network with output recurrence: inputs (B, T, D) to outputs (B, T, O).

    >>> net = recur.nn.OutputRecurrent(3, 8, output_size=4)
    >>> net(torch.randn(2, 5, 3)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        *,
        feed: str = "likeliest",
        activation: str = "tanh",
        depth: Depth = Depth(),  # noqa: B008  # frozen
        dropout: float = 0.0,
    ) -> None:
        """Create the network.

        feed     output, softmax or likeliest: what the next step reads in free running
        depth    `depth.input` and `depth.output` tanh layers before U and before V
        dropout  probability for the input of V
        """
        super().__init__()
        if depth.transition:
            raise OptionError("depth.transition needs a recurrence between hidden states; output recurrence has none")
        if feed not in FEEDBACK_FUNCTIONS:
            raise OptionError(unknown("feed", feed, FEEDBACK_FUNCTIONS))
        if activation not in ACTIVATIONS:
            raise OptionError(unknown("activation", activation, ACTIVATIONS))
        self.input_size, self.output_size, self.feed, self.activation = input_size, output_size, feed, activation
        self.dropout = dropout
        self.input_mlp = make_mlp(input_size, hidden_size, depth.input, None, None)
        self.output_mlp = make_mlp(hidden_size, hidden_size, depth.output, None, None)
        reset_mlp(self.input_mlp)
        reset_mlp(self.output_mlp)
        self.hidden = nn.Linear(hidden_size if depth.input else input_size, hidden_size)  # U and b
        self.back = nn.Linear(output_size, hidden_size, bias=False)  # W
        self.output = nn.Linear(hidden_size, output_size)  # V and c

    def forward(self, x: Tensor, targets: Tensor | None = None, first: Tensor | None = None) -> Tensor:
        """Return outputs (B, T, O).

        targets   (B, T, O): teacher forcing, all steps in parallel; None: free running, step by step
        first     y_0 (B, O); zeros if not given
        """
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"OutputRecurrent: x must be (B, T, D={self.input_size}), got {tuple(x.shape)}")
        before = x.new_zeros(len(x), self.output_size) if first is None else first
        if targets is None:
            return self.run(x, lambda t, o: FEEDBACK_FUNCTIONS[self.feed](o), before)
        if targets.shape != (*x.shape[:2], self.output_size):
            shape = (*x.shape[:2], self.output_size)
            raise ShapeError(f"OutputRecurrent: targets must be {shape}, got {tuple(targets.shape)}")
        before = torch.cat([before[:, None], targets[:, :-1]], dim=1)
        return self._read_out(self._share(x) + self.back(before))

    def step(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Compute one step for inference from x (B, D) and y_{t−1} (B, O) or None; return o_t and y_t."""
        share = self._share(x)
        o = self._read_out(share if before is None else share + self.back(before))
        return o, FEEDBACK_FUNCTIONS[self.feed](o)

    def _share(self, x: Tensor) -> Tensor:
        found: Tensor = self.hidden(apply_mlp(self.input_mlp, x, None))
        return found

    def _read_out(self, a: Tensor) -> Tensor:
        h = apply_mlp(self.output_mlp, ACTIVATIONS[self.activation](a), None)
        found: Tensor = self.output(sequence_dropout(h, self.dropout, training=self.training, variational=False))
        return found

    def run(self, x: Tensor, next_fed: Callable[[int, Tensor], Tensor], before: Tensor) -> Tensor:
        """Run step by step; `next_fed(t, o_t)` returns what step t + 1 reads of step t.

        With `next_fed` returning the targets, the result equals teacher forcing in `forward`.
        """
        outputs = []
        for t, share in enumerate(self._share(x).unbind(1)):
            outputs.append(self._read_out(share + linear(before, self.back.weight)))
            before = next_fed(t, outputs[-1])
        return torch.stack(outputs, dim=1)


class FeedForward(nn.Module):
    """Feed-forward layer h_t = tanh(U x_t + b), (B, T, D) to (B, T, H), with the interface of `Recurrent` and no state.

    If x_t contains y_{t−1}, this is the hidden layer of a network with output recurrence, with [U W] in one matrix.

    >>> recur.nn.FeedForward(3, 4)(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, input_size: int, hidden_size: int, *, depth: Depth = Depth()) -> None:  # noqa: B008  # frozen
        super().__init__()
        if depth.transition:
            raise OptionError("depth.transition needs a recurrence between hidden states; output recurrence has none")
        self.input_size, self.hidden_size = (
            check_integer("input_size", input_size, 1),
            check_integer("hidden_size", hidden_size, 1),
        )
        self.output_size, self.layers, self.depth = hidden_size, 1, depth
        self.input_mlp = make_mlp(input_size, hidden_size, depth.input, None, None)
        self.output_mlp = make_mlp(hidden_size, hidden_size, depth.output, None, None)
        reset_mlp(self.input_mlp)
        reset_mlp(self.output_mlp)
        self.hidden = nn.Linear(hidden_size if depth.input else input_size, hidden_size)

    def forward(
        self,
        x: Tensor,
        state: Sequence[GivenState] | None = None,
        *,
        lengths: Tensor | Sequence[int] | None = None,
        reset: Tensor | None = None,
        trace: bool = False,
    ) -> RecurrentOutput:
        """Compute the layer with the signature of `Recurrent.forward`; there is no state to carry, reset or trace."""
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(f"FeedForward: x must be (B, T, D={self.input_size}), got {tuple(x.shape)}")
        h = self._hidden(x)
        if lengths is not None:
            h = h.masked_fill(padding_mask(x, lengths), 0)
        record = Trace(None, x, None)
        record.backend = PARALLEL_BACKEND
        return RecurrentOutput(h, (), (record,))

    @torch.no_grad()
    def step(self, x: Tensor, state: Sequence[Sequence[Tensor]] | None = None) -> tuple[Tensor, NetworkState]:
        """Return outputs (B, H) for x (B, D), and an empty state."""
        return self._hidden(x), ()

    def _hidden(self, x: Tensor) -> Tensor:
        return apply_mlp(self.output_mlp, torch.tanh(self.hidden(apply_mlp(self.input_mlp, x, None))), None)

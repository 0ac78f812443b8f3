"""Networks that are conditioned on a context or on their previous output.

**Output recurrence.** The hidden state reads the output of the previous step, not its hidden state.

    h_t = φ(U x_t + W y_{t−1} + b)
    o_t = V h_t + c

This is the second design pattern of Deep Learning, section 10.2. With teacher forcing, y_{t−1} is the previous target:
all steps are computed in parallel, without backpropagation through time. In free running, y_{t−1} is computed from
o_{t−1}, step by step. The pattern is weaker than a recurrence between hidden states, because the outputs, which are
trained to match the targets, must carry everything that is remembered.

`OutputRecurrent` is the whole network. Where the previous output is already the input, as in a language model,
`FeedForward` is its hidden layer, in place of a `Recurrent`.

**Context.** A context vector c (Deep Learning, section 10.2.4) reaches the network at every step, as the initial state,
or both:

    input      h_t = f(U x_t + R c + W h_{t−1})      one bias per sequence
    initial    h_0 = tanh(B c + b)                   for every layer and every state of the cell

A sequence of contexts c_1 … c_T has one context per step:

    aligned    h_t = f(U x_t + R c_t + W h_{t−1})

If x_t is the previous output y_{t−1}, the outputs depend on each other; if it is constant, they are independent given
c. U and R are one matrix, the weight_ih of the cell, so that one product computes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from recur.cells import CellLike
from recur.errors import OptionError, ShapeError, unknown
from recur.nn.functional import apply_mlp, make_mlp, padding_mask, reset_mlp, sequence_dropout
from recur.nn.options import Depth, check_integer
from recur.nn.recurrent import NetworkState, Recurrent, RecurrentOutput
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


class _HiddenLayer(nn.Module):
    """Hidden layer U x + b, with MLPs before and after it."""

    def __init__(self, input_size: int, hidden_size: int, depth: Depth) -> None:
        super().__init__()
        if depth.transition:
            raise OptionError("depth.transition needs a recurrence between hidden states; output recurrence has none")
        self.input_size = check_integer("input_size", input_size, 1)
        self.hidden_size = check_integer("hidden_size", hidden_size, 1)
        self.input_mlp = make_mlp(input_size, hidden_size, depth.input, None, None)
        self.output_mlp = make_mlp(hidden_size, hidden_size, depth.output, None, None)
        reset_mlp(self.input_mlp)
        reset_mlp(self.output_mlp)
        self.hidden = nn.Linear(hidden_size if depth.input else input_size, hidden_size)  # U and b

    def _share(self, x: Tensor) -> Tensor:
        """Return the input projection U x + b."""
        found: Tensor = self.hidden(apply_mlp(self.input_mlp, x, None))
        return found


class OutputRecurrent(_HiddenLayer):
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
        super().__init__(input_size, hidden_size, depth)
        if feed not in FEEDBACK_FUNCTIONS:
            raise OptionError(unknown("feed", feed, FEEDBACK_FUNCTIONS))
        if activation not in ACTIVATIONS:
            raise OptionError(unknown("activation", activation, ACTIVATIONS))
        self.output_size, self.feed, self.activation, self.dropout = output_size, feed, activation, dropout
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


class FeedForward(_HiddenLayer):
    """Feed-forward layer h_t = tanh(U x_t + b), (B, T, D) to (B, T, H), with the interface of `Recurrent` and no state.

    If x_t contains y_{t−1}, this is the hidden layer of a network with output recurrence, with [U W] in one matrix.

    >>> recur.nn.FeedForward(3, 4)(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, input_size: int, hidden_size: int, *, depth: Depth = Depth()) -> None:  # noqa: B008  # frozen
        super().__init__(input_size, hidden_size, depth)
        self.output_size, self.num_layers, self.depth = hidden_size, 1, depth

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
        return apply_mlp(self.output_mlp, torch.tanh(self._share(x)), None)


CONDITIONING_MODES = ("none", "initial", "input", "both", "aligned")


class Conditioned(nn.Module):
    """`Recurrent` with a context of width C. Further keywords are options of `Recurrent`.

    >>> net = recur.nn.Conditioned("gru", 3, 4, context_size=5, way="input")     # R c at every step
    >>> net(torch.randn(2, 6, 3), torch.randn(2, 5)).outputs.shape
    torch.Size([2, 6, 4])
    """

    def __init__(
        self,
        cell: CellLike,
        input_size: int,
        hidden_size: int,
        context_size: int,
        way: str = "both",
        recurrence: str = "hidden",
        **options: Any,
    ) -> None:
        """Create the network.

        way          none, initial, input, both or aligned; see the module
        recurrence   "hidden"; or "output": hidden states do not read each other, and x_t must contain the previous
        output
        """
        super().__init__()
        if way not in CONDITIONING_MODES:
            raise OptionError(unknown("condition", way, CONDITIONING_MODES))
        if options.get("direction", "forward") != "forward":
            raise OptionError("a network with a context needs direction='forward': the context is its start")
        self.way, self.context_size = way, context_size
        self.by_input, self.by_start = way in ("input", "both", "aligned"), way in ("initial", "both")
        width = input_size + (context_size if self.by_input else 0)
        self.recurrent: Recurrent | FeedForward
        self.bridge: nn.Linear | None = None
        if recurrence == "output":
            if self.by_start:
                raise OptionError(f"a network without a hidden state has no h₀: take --condition input, got {way!r}")
            self.recurrent = FeedForward(width, hidden_size, depth=options.get("depth", Depth()))
            return
        self.recurrent = Recurrent(cell, width, hidden_size, **options)
        self._widths = [
            width
            for name, width in zip(self.recurrent.cell.states, self.recurrent.state_widths, strict=True)
            if name not in self.recurrent.cell.initial
        ]
        if self.by_start:
            like = {key: options[key] for key in ("device", "dtype") if key in options}
            self.bridge = nn.Linear(context_size, self.recurrent.num_layers * sum(self._widths), **like)

    def start(self, context: Tensor) -> NetworkState | None:
        """Return the initial state of every layer for a context (B, C); None for zeros."""
        net = self.recurrent
        if self.bridge is None or not isinstance(net, Recurrent):
            return None
        parts = iter(torch.tanh(self.bridge(context)).split(self._widths * net.num_layers, dim=-1))
        own = net.cell.start(context, context.shape[0], net.state_widths)
        named = list(zip(net.cell.states, own, strict=True))
        layers = [
            [part if name in net.cell.initial else next(parts) for name, part in named] for _ in range(net.num_layers)
        ]
        return tuple(net.cell.state(layer) for layer in layers)

    def forward(self, x: Tensor, context: Tensor, state: Sequence[GivenState] | None = None) -> RecurrentOutput:
        """Run the network over x (B, T, D) with a context (B, C), or (B, T, C) if `way` is aligned."""
        if state is None and self.by_start:
            state = self.start(context)
        recurred: RecurrentOutput = self.recurrent(self._beside(x, context), state)
        return recurred

    def step(self, x: Tensor, context: Tensor, state: Sequence[Sequence[Tensor]] | None) -> tuple[Tensor, NetworkState]:
        """Compute one step for inference: x (B, D) and the context of this step (B, C)."""
        if state is None and self.by_start:
            state = self.start(context)
        return self.recurrent.step(torch.cat([x, context], dim=-1) if self.by_input else x, state)

    def _beside(self, x: Tensor, context: Tensor) -> Tensor:
        if not self.by_input:
            return x
        if self.way != "aligned":
            context = context[:, None].expand(-1, x.shape[1], -1)
        if context.shape[:2] != x.shape[:2]:
            raise ShapeError(
                f"a context that is aligned has as many steps as the inputs, {x.shape[1]}; got {tuple(context.shape)}"
            )
        return torch.cat([x, context], dim=-1)

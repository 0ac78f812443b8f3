"""A language model: which token comes next, given all before it.

    x_t  = one-hot or embedding of token t
    h_t  = the recurrent network
    P(token t + 1) = softmax(V h_t + c)            V may be the embedding itself (tied: Press and Wolf 2017)

Dropout has all the places of AWD-LSTM (Merity, Keskar and Socher 2018): whole tokens of the embedding, the input,
between layers, the output (each one mask a sequence), and the weights of U. So has its activation regularisation:
α times the mean square of the outputs after dropout, β times that of their change from step to step, before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, linear, one_hot

from recur.errors import OptionError
from recur.layers import Recurrent, drop_steps
from recur.scan import Trace


@dataclass(frozen=True)
class LanguageOptions:
    """What a language model is made of; fields of the same names are in a training configuration."""

    cell: str = "lstm"
    hidden: int = 256
    layers: int = 1
    embedding: int = 0
    tied: bool = False
    dropout_embedding: float = 0.0
    dropout_input: float = 0.0
    dropout_hidden: float = 0.0
    dropout_weight: float = 0.0
    dropout_output: float = 0.0
    variational: bool = True
    residual: bool = False
    initial: str = "zero"
    init: str = "torch"
    init_range: float = 0.0
    forget_bias: float | None = None
    bptt: str = "full"
    backend: str = "auto"
    alpha: float = 0.0
    beta: float = 0.0


class Predicted(NamedTuple):
    """What a pass over a batch gives."""

    logits: Tensor
    """(B, T, V)"""
    state: tuple[Any, ...]
    trace: tuple[Trace, ...]
    penalty: Tensor | float
    """Activation regularisation, to be added to the loss while training."""


class LanguageModel(nn.Module):
    """Ids (B, T) in, logits (B, T, V) out, state in and out."""

    def __init__(self, V: int, options: LanguageOptions) -> None:
        super().__init__()
        o = self.options = options
        self.V = V
        if o.embedding < 0 or (o.tied and not o.embedding):
            raise OptionError(f"tied weights need an embedding; set embedding to a width above 0, got {o.embedding}")
        for name in ("dropout_embedding", "dropout_input", "dropout_output"):
            if not 0 <= getattr(o, name) <= 1:
                raise OptionError(f"{name} must lie in 0 … 1, got {getattr(o, name)}")
        self.embedding = nn.Parameter(torch.empty(V, o.embedding)) if o.embedding else None
        self.recurrent = Recurrent(
            o.cell,
            o.embedding or V,
            o.hidden,
            layers=o.layers,
            dropout=o.dropout_hidden if o.layers > 1 else 0.0,
            variational=o.variational,
            weight_drop=o.dropout_weight,
            residual=o.residual,
            initial=o.initial,
            init=o.init,
            forget_bias=o.forget_bias,
            bptt=o.bptt,
            backend=o.backend,
        )
        # Tied to an embedding of another width, the output goes through a matrix of its own first.
        self.narrow = nn.Linear(o.hidden, o.embedding, bias=False) if o.tied and o.embedding != o.hidden else None
        self.output = None if o.tied else nn.Parameter(torch.empty(V, o.hidden))
        self.bias = nn.Parameter(torch.zeros(V))
        self._draw()

    def _draw(self) -> None:
        o = self.options
        if self.embedding is not None:
            nn.init.uniform_(self.embedding, -0.1, 0.1)
        if self.output is not None:
            bound = o.hidden**-0.5
            nn.init.uniform_(self.output, -bound, bound)
        if o.init_range:  # all weights from one range, as Zaremba et al. 2014 draw them
            for p in self.parameters():
                nn.init.uniform_(p, -o.init_range, o.init_range)

    def forward(self, ids: Tensor, state: Any = None, *, reset: Tensor | None = None, trace: bool = False) -> Predicted:
        o = self.options
        x = self._input(ids)
        out, state, traces = self.recurrent(x, state, reset=reset, trace=trace)
        kept = self._locked(out, o.dropout_output)
        penalty: Tensor | float = 0.0
        if self.training and (o.alpha or o.beta):
            penalty = o.alpha * kept.square().mean()
            if o.beta and out.shape[1] > 1:
                penalty = penalty + o.beta * (out[:, 1:] - out[:, :-1]).square().mean()
        top = kept if self.narrow is None else self.narrow(kept)
        weight = self.embedding if self.output is None else self.output
        return Predicted(linear(top, weight, self.bias), state, traces, penalty)  # type: ignore[arg-type]

    @torch.no_grad()
    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One token of each row, (B,), for use: logits (B, V) of the next, and the state."""
        x = one_hot(ids, self.V).to(self.bias.dtype) if self.embedding is None else embedding(ids, self.embedding)
        out, state = self.recurrent.step(x, state)
        top = out if self.narrow is None else self.narrow(out)
        weight = self.embedding if self.output is None else self.output
        return linear(top, weight, self.bias), state  # type: ignore[arg-type]

    def _input(self, ids: Tensor) -> Tensor:
        o = self.options
        if self.embedding is None:
            return self._locked(one_hot(ids, self.V).to(self.bias.dtype), o.dropout_input)
        weight: Tensor = self.embedding
        if self.training and o.dropout_embedding:  # whole tokens, everywhere in the batch
            weight = weight * dropout(weight.new_ones(self.V, 1), o.dropout_embedding)
        return self._locked(embedding(ids, weight), o.dropout_input)

    def _locked(self, x: Tensor, p: float) -> Tensor:
        return drop_steps(x, p, training=self.training, variational=self.options.variational)

    def loss(self, predicted: Predicted, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets (B, T)."""
        return cross_entropy(predicted.logits.flatten(0, 1), targets.flatten())

    def detached(self, state: Any) -> Any:
        """The same state, cut off from how it came about."""
        if state is None:
            return None
        return tuple(self.recurrent.cell.state([part.detach() for part in layer]) for layer in state)

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters())

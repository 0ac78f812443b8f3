"""Tokens in, states out: what models that classify and tag share, and their two heads.

    x_t = one-hot or embedding of token t          h_t = the recurrent network, in one or both directions

    Classifier   n → 1:   P(class) = softmax(V pool(h_1 … h_τ) + c)
    Tagger       n → n:   P(tag of token t) = softmax(V h_t + c)

With one direction both can be streamed: `step` takes one token and says what is known so far, in constant memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, one_hot

from recur.errors import OptionError
from recur.layers import Pooling, Recurred, Recurrent, drop_steps


@dataclass(frozen=True)
class ReaderOptions:
    """What a reader is made of; fields of the same names are in a training configuration."""

    cell: str = "lstm"
    hidden: int = 256
    layers: int = 1
    embedding: int = 0
    directions: int = 1
    pool: str = "last"
    dropout_embedding: float = 0.0
    dropout_input: float = 0.0
    dropout_hidden: float = 0.0
    dropout_weight: float = 0.0
    dropout_output: float = 0.0
    variational: bool = True
    residual: bool = False
    initial: str = "zero"
    init: str = "torch"
    forget_bias: float | None = None
    bptt: str = "full"
    backend: str = "auto"


class Reader(nn.Module):
    """Ids (B, T) and lengths (B,) to states (B, T, H), and a head over classes whose losses may weigh differently."""

    class_weights: Tensor | None

    def __init__(self, V: int, classes: int, options: ReaderOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        self.V = V
        for name in ("dropout_embedding", "dropout_input", "dropout_output"):
            if not 0 <= getattr(o, name) <= 1:
                raise OptionError(f"{name} must lie in 0 … 1, got {getattr(o, name)}")
        if o.embedding < 0:
            raise OptionError(f"embedding must be a width, or 0 for one-hot, got {o.embedding}")
        self.embedding = nn.Parameter(torch.empty(V, o.embedding).uniform_(-0.1, 0.1)) if o.embedding else None
        self.recurrent = Recurrent(
            o.cell,
            o.embedding or V,
            o.hidden,
            layers=o.layers,
            bidirectional=o.directions == 2,
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
        self.output = nn.Linear(self.recurrent.output_size, classes)
        self.backend = ""
        """Which backend ran last."""
        self.register_buffer("class_weights", class_weights, persistent=False)

    def read(self, ids: Tensor, lengths: Tensor) -> Tensor:
        o = self.options
        if self.embedding is None:
            x = one_hot(ids, self.V).to(self.output.bias.dtype)
        else:
            weight: Tensor = self.embedding
            if self.training and o.dropout_embedding:  # whole tokens, everywhere in the batch
                weight = weight * dropout(weight.new_ones(self.V, 1), o.dropout_embedding)
            x = embedding(ids, weight)
        x = drop_steps(x, o.dropout_input, training=self.training, variational=o.variational)
        found: Recurred = self.recurrent(x, lengths=lengths)
        self.backend = found.trace[0].backend
        return found.outputs

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Of logits (n, classes), by the weights of their classes."""
        return cross_entropy(logits, classes, self.class_weights)

    def read_step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        x = one_hot(ids, self.V).to(self.output.bias.dtype) if self.embedding is None else self.embedding[ids]
        return self.recurrent.step(x, state)


class Classifier(Reader):
    """Logits (B, classes) of whole sequences."""

    def __init__(self, V: int, classes: int, options: ReaderOptions, class_weights: Tensor | None = None) -> None:
        super().__init__(V, classes, options, class_weights)
        self.pooling = Pooling(options.pool, self.recurrent.output_size, bidirectional=options.directions == 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        pooled = self.pooling(self.read(ids, lengths), lengths)
        logits: Tensor = self.output(dropout(pooled, self.options.dropout_output, self.training))
        return logits

    @torch.no_grad()
    def step(self, ids: Tensor, carried: Any = None) -> tuple[Tensor, Any]:
        """One token of each row, (B,): logits of all read so far, and what to hand back in with the next."""
        state, pool = carried or (None, None)
        h, state = self.read_step(ids, state)
        pooled, pool = self.pooling.step(h, pool)
        return self.output(pooled), (state, pool)


class Tagger(Reader):
    """Logits (n, classes) at n chosen steps: of flattened (B · T) steps, those numbered `at`."""

    def forward(self, ids: Tensor, lengths: Tensor, at: Tensor) -> Tensor:
        o = self.options
        states = drop_steps(
            self.read(ids, lengths), o.dropout_output, training=self.training, variational=o.variational
        )
        logits: Tensor = self.output(states.flatten(0, 1)[at])
        return logits

    @torch.no_grad()
    def step(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """One token of each row, (B,): its logits, and the state."""
        h, state = self.read_step(ids, state)
        return self.output(h), state

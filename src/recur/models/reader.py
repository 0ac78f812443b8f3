"""Tokens in, states out: what models that classify and tag share, and their two heads.

    x_t = one-hot or embedding of token t          h_t = the recurrent network, in one or both directions

    Classifier   n → 1:   P(class) = softmax(V pool(h_1 … h_τ) + c)
    Tagger       n → n:   P(tag of token t) = softmax(V h_t + c)

With one direction both can be streamed: `step` takes one token and says what is known so far, in constant memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, one_hot

from recur.errors import OptionError
from recur.layers import OutputRecurrent, Pooling, Recurred, drop_steps, initialise_linear
from recur.layers.output_recurrence import AT_ONCE
from recur.models.embedding import TokenEmbedding
from recur.models.options import ClassifierOptions, ReaderOptions, TaggerOptions
from recur.models.stack import State, depth, stack
from recur.models.time import beside, split_state, whole
from recur.text import UNK


class Reader(nn.Module):
    """Ids (B, T) and lengths (B,) to states (B, T, H), and a head over classes whose losses may weigh differently."""

    class_weights: Tensor | None

    def __init__(self, K: int, classes: int, options: ReaderOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = TokenEmbedding(
            K,
            o.embedding,
            o.embedding_init,
            drop=o.dropout_input,
            drop_tokens=o.dropout_embedding,
            variational=o.variational,
        )
        self.clock = o.clock
        self.recurrent = stack(o, self.embedding.width + (self.clock is not None), o.direction)
        self.output = nn.Linear(self.recurrent.output_size, classes)
        initialise_linear(o.init, self.output.weight, self.output.bias)
        self.backend = ""
        """Which backend ran last."""
        self.register_buffer("class_weights", class_weights, persistent=False)

    def read(self, ids: Tensor, lengths: Tensor) -> Tensor:
        if self.training and self.options.dropout_words:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.options.dropout_words, UNK)
        x = self.embedding(ids)
        if self.clock is not None:
            x = beside(x, whole(ids), self.clock)
        found: Recurred = self.recurrent(x, lengths=lengths)
        self.backend = found.trace[0].backend
        return found.outputs

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Of logits (n, classes), by the weights of their classes."""
        return cross_entropy(logits, classes, self.class_weights)

    def read_step(self, ids: Tensor, state: State | None) -> tuple[Tensor, State]:
        x = self.embedding.vectors(ids)
        if self.clock is None:
            return self.recurrent.step(x, state)
        own, t = split_state(state, ids)
        h, own = self.recurrent.step(beside(x, t, self.clock), own)
        return h, (*own, (t + 1,))


Carried = tuple[State, "tuple[Tensor, ...]"]
"""What a classifier hands on from step to step: its network's state, and what it has pooled."""


class Classifier(Reader):
    """Logits (B, classes) of whole sequences."""

    def __init__(self, K: int, classes: int, options: ClassifierOptions, class_weights: Tensor | None = None) -> None:
        super().__init__(K, classes, options, class_weights)
        o, width = options, self.recurrent.output_size
        self.pooling = Pooling(o.pool, width, direction=o.direction, heads=o.heads)
        if self.pooling.output_size != width:
            self.output = nn.Linear(self.pooling.output_size, classes)
            initialise_linear(o.init, self.output.weight, self.output.bias)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        pooled = self.pooling(self.read(ids, lengths), lengths)
        logits: Tensor = self.output(dropout(pooled, self.options.dropout_output, self.training))
        return logits

    @torch.no_grad()
    def step(self, ids: Tensor, carried: Carried | None = None) -> tuple[Tensor, Carried]:
        """One token of each row, (B,): logits of all read so far, and what to hand back in with the next."""
        state, pool = carried or (None, None)
        h, state = self.read_step(ids, state)
        pooled, pool = self.pooling.step(h, pool)
        return self.output(pooled), (state, pool)


class Tagger(Reader):
    """Logits (n, classes) at n chosen steps: of flattened (B · T) steps, those numbered `at`."""

    def forward(self, ids: Tensor, lengths: Tensor, at: Tensor, classes: Tensor | None = None) -> Tensor:
        """`classes` (n,), those to learn, are not looked at: the states know nothing of them."""
        o = self.options
        states = drop_steps(
            self.read(ids, lengths), o.dropout_output, training=self.training, variational=o.variational
        )
        logits: Tensor = self.output(states.flatten(0, 1)[at])
        return logits

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One token of each row, (B,): its logits, and the state."""
        h, state = self.read_step(ids, state)
        return self.output(h), state


class OutputTagger(nn.Module):
    """A tagger whose steps see the class of the step before, and no hidden state: h_t = tanh(U x_t + W y_{t−1} + b).

    With the classes to learn all steps are computed at once; without, one after the other, each behind the likeliest
    class of the one before. A class is read at every step.
    """

    class_weights: Tensor | None

    def __init__(self, K: int, classes: int, options: TaggerOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        if o.direction != "forward":
            raise OptionError(f"--recurrence output reads forward, got --direction {o.direction}")
        self.embedding = TokenEmbedding(
            K, o.embedding, o.embedding_init, drop=o.dropout_input, drop_tokens=o.dropout_embedding
        )
        self.clock = o.clock
        width = self.embedding.width + (self.clock is not None)
        self.network = OutputRecurrent(width, o.hidden, classes, depth=depth(o), dropout=o.dropout_output)
        self.backend = AT_ONCE
        self.register_buffer("class_weights", class_weights, persistent=False)

    @property
    def output(self) -> nn.Linear:
        return self.network.output

    def forward(self, ids: Tensor, lengths: Tensor, at: Tensor, classes: Tensor | None = None) -> Tensor:
        """Logits (n, classes) at the steps `at` of B · T, all there are; with their `classes` (n,), behind those."""
        x = self.embedding(ids)
        if self.clock is not None:
            x = beside(x, whole(ids), self.clock)
        targets = None
        if classes is not None:
            width = self.network.output_size
            targets = x.new_zeros(ids.numel(), width).index_put((at,), one_hot(classes, width).to(x))
            targets = targets.view(*ids.shape, width)
        logits: Tensor = self.network(x, targets)
        return logits.flatten(0, 1)[at]

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        return cross_entropy(logits, classes, self.class_weights)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """One token of each row, (B,): its logits, and what the next step reads."""
        x = self.embedding.vectors(ids)
        fed, t = split_state(state, ids)
        if self.clock is not None:
            x = beside(x, t, self.clock)
        logits, y = self.network.step(x, None if fed is None else fed[0][0])
        return logits, ((y,), (t + 1,))

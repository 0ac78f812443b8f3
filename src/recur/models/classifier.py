"""Sequence encoder that classifiers and taggers share, and the classifier (the taggers are in tagger.py).

    x_t = one-hot or embedding of token t          h_t = recurrent network, in one or both directions

    Classifier   n → 1:   P(class) = softmax(V pool(h_1 … h_τ) + c)

Networks with direction forward can be streamed: `step` reads one token in constant memory.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout

from recur.data.text import UNK
from recur.models.inputs import SignalInput, TokenEmbedding, append_time, split_state, step_indices
from recur.models.options import ClassifierOptions, ReaderOptions
from recur.models.stack import State, make_recurrent
from recur.nn import Pooling, RecurrentOutput, initialise_linear


class SequenceEncoder(nn.Module):
    """Network from ids (B, T) and lengths (B,) to states (B, T, H), with an output layer over classes."""

    class_weights: Tensor | None

    def __init__(
        self, K: int, classes: int, options: ReaderOptions, class_weights: Tensor | None = None, *, beside: int = 0
    ) -> None:
        """Create the network.

        K               size of the vocabulary
        class_weights   weights of the classes in the loss
        beside          width of further features of a token, concatenated with its embedding
        """
        super().__init__()
        o = self.options = options
        self.embedding = self.new_input(K, o)
        self.clock = o.clock
        self.recurrent = make_recurrent(o, self.embedding.width + beside + (self.clock is not None), o.direction)
        self.output = nn.Linear(self.recurrent.output_size, classes)
        initialise_linear(o.init, self.output.weight, self.output.bias)
        self.backend = ""
        """Backend of the last call."""
        self.register_buffer("class_weights", class_weights, persistent=False)

    def new_input(self, K: int, o: ReaderOptions) -> TokenEmbedding | SignalInput:
        """Return the module that maps ids to vectors."""
        return TokenEmbedding(
            K,
            o.embedding,
            o.embedding_init,
            drop=o.dropout_input,
            drop_tokens=o.dropout_embedding,
            variational=o.variational,
        )

    def read(self, ids: Tensor, lengths: Tensor | None, more: Tensor | None = None) -> Tensor:
        """Return the states (B, T, H) of tokens (B, T).

        more   (B, T, width): features concatenated with the embeddings
        Without lengths, all tokens count.
        """
        if self.training and self.options.dropout_words:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.options.dropout_words, UNK)
        x = self.embedding(ids) if more is None else torch.cat([self.embedding(ids), more], dim=-1)
        if self.clock is not None:
            x = append_time(x, step_indices(ids), self.clock)
        found: RecurrentOutput = self.recurrent(x, lengths=lengths)
        self.backend = found.trace[0].backend
        return found.outputs

    def read_step(self, ids: Tensor, state: State | None, more: Tensor | None = None) -> tuple[Tensor, State]:
        x = self.embedding.vectors(ids) if more is None else torch.cat([self.embedding.vectors(ids), more], dim=-1)
        if self.clock is None:
            return self.recurrent.step(x, state)
        own, t = split_state(state, ids)
        h, own = self.recurrent.step(append_time(x, t, self.clock), own)
        return h, (*own, (t + 1,))


ClassifierState = tuple[State, "tuple[Tensor, ...]"]
"""State that a classifier carries from step to step: the state of its network and of its pooling."""


class Classifier(SequenceEncoder):
    """Classifier of sequences: ids (B, T) and lengths (B,) to logits (B, classes)."""

    def __init__(self, K: int, classes: int, options: ClassifierOptions, class_weights: Tensor | None = None) -> None:
        super().__init__(K, classes, options, class_weights)
        o, width = options, self.recurrent.output_size
        self.pooling = Pooling(o.pool, width, direction=o.direction, heads=o.heads)
        if self.pooling.output_size != width:
            self.output = nn.Linear(self.pooling.output_size, classes)
            initialise_linear(o.init, self.output.weight, self.output.bias)

    def forward(self, ids: Tensor, lengths: Tensor | None) -> Tensor:
        pooled = self.pooling(self.read(ids, lengths), lengths)
        logits: Tensor = self.output(dropout(pooled, self.options.dropout_output, self.training))
        return logits

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        """Return the cross-entropy of logits (n, classes), weighted by class."""
        return cross_entropy(logits, classes, self.class_weights)

    @torch.no_grad()
    def step(self, ids: Tensor, carried: ClassifierState | None = None) -> tuple[Tensor, ClassifierState]:
        """Read one token per row (B,). Return the logits of all tokens so far, and the state for the next step."""
        state, pool = carried or (None, None)
        h, state = self.read_step(ids, state)
        pooled, pool = self.pooling.step(h, pool)
        return self.output(pooled), (state, pool)

"""Networks that read sequences, trees and images: the encoder that classifiers and taggers share, classifiers, signals.

    x_t = one-hot or embedding of token t, or step t of a signal
    h_t = recurrent network of x_1 … x_t, in one or both directions

    Classifier, SignalClassifier   n → 1:   P(class) = softmax(V pool(h_1 … h_τ) + c)
    SignalTagger                   n → n:   P(label of step t) = softmax(V h_t + c)
    Transcriber                    n → m:   P(label or blank at step t) = softmax(V h_t + c), summed over the paths of
                                            the labels (CTC, Graves et al. 2006; decoding: recur/decoding/ctc.py)
    Regressor                      n → 1:   a number read from the last state
    TreeModel                      words at the leaves, a composition above them: P(class of node) = softmax(V h + c)
    GridClassifier                 grids of recurrent points over an image, pooled: P(class) = softmax(V pool(h) + c)

The steps of a signal are standardised by the training set: (step t − mean) / deviation, projected by A x_t + a if an
embedding size is set. Networks with direction forward can be streamed: `step` reads one token in constant memory. The
taggers of words are in tagger.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, ctc_loss, dropout, embedding, pad

from recur.data.text import UNK
from recur.models.calibration import Mixture
from recur.models.layers import (
    SignalInput,
    State,
    TokenEmbedding,
    append_positions,
    draw_embedding,
    make_plain_recurrent,
    make_recurrent,
    step_with_time,
    token_embedding,
)
from recur.models.options import ClassifierOptions, GridModelOptions, ReaderOptions, SequenceOptions, TreeModelOptions
from recur.nn import Forest, Grid, Pooling, RecurrentOutput, Recursive
from recur.nn.functional import initialise_linear, sequence_dropout


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
        return token_embedding(K, o)

    def read(self, ids: Tensor, lengths: Tensor | None, more: Tensor | None = None) -> Tensor:
        """Return the states (B, T, H) of tokens (B, T).

        more   (B, T, width): features concatenated with the embeddings
        Without lengths, all tokens count.
        """
        if self.training and self.options.dropout_words:
            ids = ids.masked_fill(torch.rand(ids.shape, device=ids.device) < self.options.dropout_words, UNK)
        x = self.embedding(ids) if more is None else torch.cat([self.embedding(ids), more], dim=-1)
        found: RecurrentOutput = self.recurrent(append_positions(x, self.clock), lengths=lengths)
        self.backend = found.trace[0].backend
        return found.outputs

    def read_step(self, ids: Tensor, state: State | None, more: Tensor | None = None) -> tuple[Tensor, State]:
        x = self.embedding.vectors(ids) if more is None else torch.cat([self.embedding.vectors(ids), more], dim=-1)
        return step_with_time(self.recurrent, x, state, self.clock)


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


NO_LABEL = -1
"""Value in place of a label: a label that is not in the training set, or padding."""


class SignalEncoder(SequenceEncoder):
    """`SequenceEncoder` of steps (B, T, K) in place of ids."""

    def new_input(self, K: int, o: ReaderOptions) -> SignalInput:
        noise = float(getattr(o, "noise", 0.0))  # an option of tasks, not of all readers
        return SignalInput(K, o.embedding_size, noise=noise, drop=o.dropout_input, variational=o.variational)

    @property
    def device(self) -> torch.device:
        return self.output.bias.device


class SignalClassifier(SignalEncoder, Classifier):
    """Classifier of steps (B, T, D): logits (B, classes)."""


class SignalTagger(SignalEncoder):
    """Tagger of steps (B, T, D): logits (B, T, classes)."""

    def forward(self, x: Tensor, lengths: Tensor | None) -> Tensor:
        o = self.options
        states = sequence_dropout(
            self.read(x, lengths), o.dropout_output, training=self.training, variational=o.variational
        )
        logits: Tensor = self.output(states)
        return logits

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy over all steps with a label (B, T), weighted by class."""
        return cross_entropy(logits.flatten(0, 1), labels.flatten(), self.class_weights, ignore_index=NO_LABEL)

    @torch.no_grad()
    def step(self, x: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read one step per row (B, D). Return its logits and the state."""
        h, state = self.read_step(x, state)
        return self.output(h), state


class Transcriber(SignalTagger):
    """CTC network: logits (B, T, classes + 1), the last of which is the blank."""

    def __init__(self, K: int, classes: int, options: ReaderOptions) -> None:
        super().__init__(K, classes + 1, options)
        self.blank = classes

    def negative_log_likelihood(self, logits: Tensor, lengths: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """Return −log P (B,) of labels (B, L) with counts (B,); 0 if the input is too short for its labels."""
        logp = logits.float().log_softmax(-1).transpose(0, 1)
        return ctc_loss(
            logp, labels.clamp(min=0), lengths, counts, blank=self.blank, reduction="none", zero_infinity=True
        )


class Regressor(nn.Module):
    """Network from (B, T, D) to (B,), read at the last step."""

    def __init__(self, D: int, options: SequenceOptions) -> None:
        super().__init__()
        self.clock = options.clock
        self.recurrent = make_plain_recurrent(options, D + (self.clock is not None))
        self.output = nn.Linear(self.recurrent.output_size, 1)
        initialise_linear(options.init, self.output.weight, self.output.bias)
        self.backend = ""
        """Backend of the last call."""

    def forward(self, x: Tensor) -> Tensor:
        found: RecurrentOutput = self.recurrent(append_positions(x, self.clock))
        self.backend = found.trace[0].backend
        predicted: Tensor = self.output(found.outputs[:, -1]).squeeze(-1)
        return predicted


class TreeModel(nn.Module):
    """Classifier of tree nodes: word ids (leaves,) and their forest to logits (nodes, classes)."""

    def __init__(self, K: int, classes: int, options: TreeModelOptions) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = nn.Parameter(draw_embedding(K, o.embedding_size, o.embedding_init))
        self.recursive = Recursive(o.compose, o.embedding_size, o.hidden_size)
        self.output = nn.Linear(o.hidden_size, classes)
        self.temperature = Mixture()

    def forward(self, ids: Tensor, forest: Forest) -> Tensor:
        o = self.options
        x = dropout(embedding(ids, self.embedding), o.dropout_input, self.training)
        h = self.recursive(x, forest)[0]
        logits: Tensor = self.output(dropout(h, o.dropout_output, self.training))
        return logits


class GridClassifier(nn.Module):
    """Classifier of standardised images (B, R, C, D), of any R and C: logits (B, classes)."""

    class_weights: Tensor | None

    def __init__(self, D: int, classes: int, options: GridModelOptions, class_weights: Tensor | None = None) -> None:
        super().__init__()
        o = self.options = options
        self.patch = o.patch or 1
        widths = [D * self.patch**2] + [o.corners * o.hidden_size] * (o.num_layers - 1)
        self.grids = nn.ModuleList(Grid(o.compose, width, o.hidden_size, corners=o.corners) for width in widths)
        width = o.corners * o.hidden_size
        self.pooling = Pooling(o.pool, width) if o.pool != "last" else None
        self.output = nn.Linear(width, classes)
        self.temperature = Mixture()
        self.register_buffer("class_weights", class_weights, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        o = self.options
        h = dropout(image_patches(images, self.patch), o.dropout_input, self.training)
        for k, grid in enumerate(self.grids):
            h = grid(dropout(h, o.dropout_hidden, self.training) if k else h)
        logits: Tensor = self.output(dropout(self._pooled(h), o.dropout_output, self.training))
        return logits

    def _pooled(self, h: Tensor) -> Tensor:
        if self.pooling is not None:
            points = h.flatten(1, 2)
            found: Tensor = self.pooling(points, torch.full((len(h),), points.shape[1]))
            return found
        last = self.grids[-1]
        assert isinstance(last, Grid)
        ends = [h[:, 0 if 1 in turn else -1, 0 if 2 in turn else -1] for turn in last.turns]
        H = self.options.hidden_size
        return torch.cat([end[:, q * H : (q + 1) * H] for q, end in enumerate(ends)], dim=-1)

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        return cross_entropy(logits, classes, self.class_weights)


def image_patches(images: Tensor, k: int) -> Tensor:
    """Return patches of k × k pixels as points: (B, R, C, D) to (B, ⌈R/k⌉, ⌈C/k⌉, k · k · D).

    Missing pixels at the far edges are 0, the mean of the training set.
    """
    if k == 1:
        return images
    _, R, C, _ = images.shape
    x = pad(images, (0, 0, 0, -C % k, 0, -R % k))
    found: Tensor = x.unflatten(2, (-1, k)).unflatten(1, (-1, k)).permute(0, 1, 3, 2, 4, 5).flatten(3)
    return found

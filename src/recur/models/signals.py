"""Networks over sequences of numbers: a step is a vector, standardised by the training set.

x_t = (step t − mean) / deviation, projected by A x_t + a if an embedding size is set

SignalClassifier   n → 1:   P(class) = softmax(V pool(h_1 … h_τ) + c)
SignalTagger       n → n:   P(label of step t) = softmax(V h_t + c)
Transcriber        n → m:   P(label or blank at step t) = softmax(V h_t + c), summed over the paths of the labels
                            (CTC, Graves et al. 2006; the sum is in recur/reference/ctc.py, the decoding in
                            recur/decoding/ctc.py)
Regressor          n → 1:   a number read from the last state
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, ctc_loss

from recur.models.classifier import Classifier, SequenceEncoder
from recur.models.inputs import SignalInput, append_time, step_indices
from recur.models.options import ReaderOptions, SequenceOptions
from recur.models.stack import State, make_plain_recurrent
from recur.nn import RecurrentOutput, initialise_linear, sequence_dropout

NO_LABEL = -1
"""Value in place of a label: a label that is not in the training set, or padding."""


class SignalEncoder(SequenceEncoder):
    """`SequenceEncoder` of steps (B, T, K) in place of ids."""

    def new_input(self, K: int, o: ReaderOptions) -> SignalInput:
        noise = float(getattr(o, "noise", 0.0))  # an option of tasks, not of all readers
        return SignalInput(K, o.embedding, noise=noise, drop=o.dropout_input, variational=o.variational)

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
        if self.clock is not None:
            x = append_time(x, step_indices(x), self.clock)
        found: RecurrentOutput = self.recurrent(x)
        self.backend = found.trace[0].backend
        predicted: Tensor = self.output(found.outputs[:, -1]).squeeze(-1)
        return predicted

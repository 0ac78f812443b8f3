"""The network that classifies, with what mends its probabilities: a temperature, and plain models mixed in.

    log P(class) = a · log p_network + b · log p_naive_Bayes + c · log p_regression + const

a, b and c are fitted on the validation part whenever the model is measured, and kept with the weights, as the plain
models' own are. A network that follows a text as it comes in has its temperature alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from recur.data.batching import in_order
from recur.models import Classifier
from recur.models.calibration import Mixture, calibrated
from recur.models.options import ClassifierOptions
from recur.tasks.classify.data import Example, TextBatch
from recur.tasks.classify.tfidf import LinearText

ROWS = 256
"""Texts measured as one batch."""


class TextModel(Classifier):
    """A classifier of texts; with `linear`, mixed with that."""

    def __init__(
        self,
        K: int,
        classes: int,
        options: ClassifierOptions,
        class_weights: Tensor | None = None,
        linear: LinearText | None = None,
    ) -> None:
        super().__init__(K, classes, options, class_weights)
        self.linear = linear
        self.temperature = Mixture()
        # Naive Bayes counts what comes together as if it did not, and is too sure of itself to be trusted unheard.
        self.blend = None if linear is None else Mixture(0.5, 0.0, 0.5)

    @property
    def device(self) -> torch.device:
        return self.output.bias.device

    @torch.no_grad()
    def parts(self, examples: Sequence[Example]) -> list[Tensor]:
        """Log-probabilities (examples, classes), on the CPU: the network's own, and the plain models' if there
        are any."""
        batches = in_order(examples, ROWS, TextBatch.of)
        found = [[self(batch.ids.to(self.device), batch.lengths).log_softmax(-1).cpu() for batch in batches]]
        if self.linear is not None:
            found += [[log_p.cpu()] for log_p in self.linear([example.text for example in examples])]
        return [torch.cat(part) for part in found]

    def mixed(self, parts: Sequence[Tensor]) -> Tensor:
        """… as what is used."""
        mixture: Mixture = self.temperature if self.blend is None else self.blend
        log_p: Tensor = mixture(*parts)
        return log_p

    def calibrate(self, parts: Sequence[Tensor], targets: Sequence[int]) -> list[Tensor]:
        """Fit the mixtures to examples. What is returned, of the mixture and of the network alone, is of shares that
        were fitted to the other half each."""
        alone = calibrated(self.temperature, parts[:1], targets, self.class_weights)
        if self.blend is None:
            return [alone]
        return [calibrated(self.blend, parts, targets, self.class_weights), alone]


@torch.no_grad()
def log_probabilities(models: Sequence[TextModel], examples: Sequence[Example]) -> Tensor:
    """(examples, classes): of several models, of the mean of their probabilities."""
    return mean_of([model.mixed(model.parts(examples)) for model in models])


def mean_of(log_ps: Sequence[Tensor]) -> Tensor:
    """The log of the mean probability."""
    return torch.stack(list(log_ps)).logsumexp(0) - torch.tensor(float(len(log_ps))).log()

"""Classifier of texts that have any number of labels.

    P(label k | text) = σ(v_k · pool(h_1 … h_τ) + c_k)

A label is predicted if its probability is at least its threshold, which the validation set decides: the one with the
highest F1 of that label.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from recur.models.classifiers import Classifier
from recur.models.options import ClassifierOptions


class MultiLabelClassifier(Classifier):
    """Classifier of sequences: ids (B, T) and lengths (B,) to logits (B, labels), one sigmoid each."""

    thresholds: Tensor

    def __init__(self, K: int, labels: int, options: ClassifierOptions, positive_weights: Tensor | None = None) -> None:
        """Create the network; `positive_weights` (labels,) multiply the loss of the labels that a text has."""
        super().__init__(K, labels, options, positive_weights)
        self.register_buffer("thresholds", torch.full((labels,), 0.5))

    @property
    def device(self) -> torch.device:
        return self.output.bias.device

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean binary cross-entropy of logits (n, labels) and targets 0 or 1."""
        return binary_cross_entropy_with_logits(logits, targets, pos_weight=self.class_weights)

    def likeliest(self, probabilities: Tensor) -> Tensor:
        """Return which labels are predicted, (n, labels), bool."""
        return probabilities >= self.thresholds.to(probabilities)


def best_thresholds(probabilities: Tensor, targets: Tensor) -> Tensor:
    """Return for each label the threshold with the highest F1; 0.5 for a label that no text has.

    Args:
        probabilities: (n, labels).
        targets: (n, labels), 0 or 1.

    A threshold lies halfway between two probabilities, so that a small change of either changes no prediction. Of equal
    F1, the threshold nearest to 0.5 is taken.
    """
    found = torch.full((probabilities.shape[1],), 0.5)
    for k in range(probabilities.shape[1]):
        p, order = probabilities[:, k].double().sort(descending=True)
        there = targets[:, k].double()[order]
        if not bool(there.any()):
            continue
        right = there.cumsum(0)
        f1 = 2 * right / (torch.arange(1, len(p) + 1, dtype=torch.double) + there.sum())
        below = torch.cat([p[1:], p.new_zeros(1)])
        middle = (p + below) / 2
        f1[p == below] = -1  # no threshold lies between equal probabilities
        best = f1 == f1.max()
        found[k] = float(middle[best][(middle[best] - 0.5).abs().argmin()])
    return found

"""Networks over trees and images.

TreeModel        words at the leaves, a composition above them: P(class of node) = softmax(V h_node + c)
GridClassifier   grids of recurrent points over an image, pooled: P(class) = softmax(V pool(h) + c)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, pad

from recur.models.calibration import Mixture
from recur.models.inputs import draw_embedding
from recur.models.options import GridModelOptions, TreeModelOptions
from recur.nn import Forest, Grid, Pooling, Recursive


class TreeModel(nn.Module):
    """Classifier of tree nodes: word ids (leaves,) and their forest to logits (nodes, classes)."""

    def __init__(self, K: int, classes: int, options: TreeModelOptions) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = nn.Parameter(draw_embedding(K, o.embedding, o.embedding_init))
        self.recursive = Recursive(o.compose, o.embedding, o.hidden)
        self.output = nn.Linear(o.hidden, classes)
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
        widths = [D * self.patch**2] + [o.corners * o.hidden] * (o.layers - 1)
        self.grids = nn.ModuleList(Grid(o.compose, width, o.hidden, corners=o.corners) for width in widths)
        width = o.corners * o.hidden
        self.pooling = Pooling(o.pool, width) if o.pool != "last" else None
        self.output = nn.Linear(width, classes)
        self.temperature = Mixture()
        self.register_buffer("class_weights", class_weights, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        o = self.options
        h = dropout(patches(images, self.patch), o.dropout_input, self.training)
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
        H = self.options.hidden
        return torch.cat([end[:, q * H : (q + 1) * H] for q, end in enumerate(ends)], dim=-1)

    def loss(self, logits: Tensor, classes: Tensor) -> Tensor:
        return cross_entropy(logits, classes, self.class_weights)


def patches(images: Tensor, k: int) -> Tensor:
    """Return patches of k × k pixels as points: (B, R, C, D) to (B, ⌈R/k⌉, ⌈C/k⌉, k · k · D).

    Missing pixels at the far edges are 0, the mean of the training set.
    """
    if k == 1:
        return images
    _, R, C, _ = images.shape
    x = pad(images, (0, 0, 0, -C % k, 0, -R % k))
    found: Tensor = x.unflatten(2, (-1, k)).unflatten(1, (-1, k)).permute(0, 1, 3, 2, 4, 5).flatten(3)
    return found

"""Images to classes by a network in two dimensions.

    x_ij  = the k × k pixels of point (i, j), standardised
    h_ij  = the grid: recurrence from one, two or four corners, in layers     see recur.nn.grid
    P(class) = softmax(V pool(h) + c)

The pool is the mean or the maximum over all points, a weighted mean (attention), or of every corner the point where its
reading ends.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, pad

from recur.models.calibration import Mixture
from recur.models.structures import GridModelOptions
from recur.nn import Grid, Pooling


class GridClassifier(nn.Module):
    """Standardised images (B, R, C, D) to logits (B, classes); R and C may be any."""

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
    """(B, R, C, D) as points of k × k pixels, (B, ⌈R/k⌉, ⌈C/k⌉, k · k · D); what is missing at the far edges is 0, the
    mean of what was learned from."""
    if k == 1:
        return images
    _, R, C, _ = images.shape
    x = pad(images, (0, 0, 0, -C % k, 0, -R % k))
    found: Tensor = x.unflatten(2, (-1, k)).unflatten(1, (-1, k)).permute(0, 1, 3, 2, 4, 5).flatten(3)
    return found

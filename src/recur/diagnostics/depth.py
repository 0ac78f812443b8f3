"""Along a tree in place of along time: how the root's gradient reaches leaves far below, and which nodes are right."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, embedding

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.i18n import said
from recur.tasks.tree.predictor import TreeClassifier
from recur.tasks.tree.task import NONE, Encoded, TreeBatch

TREES = 64
FEWEST = 20
"""Leaves of a depth, before their mean is one."""
VANISHED = 0.01


def leaf_depths(tree: Encoded) -> list[int]:
    """How far each leaf lies below the root; nodes are numbered so that children come before their parents."""
    depth = [0] * len(tree.children)
    for node in range(len(tree.children) - 1, -1, -1):
        for child in tree.children[node]:
            depth[child] = depth[node] + 1
    return [d for d, below in zip(depth, tree.children, strict=True) if not below]


def heights(tree: Encoded) -> list[int]:
    """How far each node stands above its lowest leaf."""
    found: list[int] = []
    for below in tree.children:
        found.append(1 + max(found[child] for child in below) if below else 0)
    return found


def tree_depth(predictor: TreeClassifier) -> Measurement:
    """‖∂L_root/∂x_leaf‖ by the depth of the leaf, and the accuracy at nodes by their height."""
    model, device = predictor.model, predictor.device
    trees = predictor.task.read(predictor.run.vocabs).valid[:TREES]
    by_depth: dict[int, list[float]] = defaultdict(list)
    by_height: dict[int, list[bool]] = defaultdict(list)
    for tree in trees:
        batch = TreeBatch.of([tree]).to(device)
        x = embedding(batch.ids, model.embedding).detach().requires_grad_()
        logits = model.output(model.recursive(x, batch.forest)[0])
        loss = cross_entropy(logits[batch.forest.roots], batch.classes[batch.forest.roots])
        (grad,) = torch.autograd.grad(loss, x)
        for depth, norm in zip(leaf_depths(tree), torch.linalg.vector_norm(grad, dim=-1).tolist(), strict=True):
            by_depth[depth].append(norm)
        for height, wanted, said_class in zip(heights(tree), tree.classes, logits.argmax(-1).tolist(), strict=True):
            if wanted != NONE:
                by_height[height].append(wanted == said_class)
    norms = {d: float(np.sqrt(np.mean(np.square(v)))) for d, v in sorted(by_depth.items()) if len(v) >= FEWEST}
    right = {h: float(np.mean(v)) for h, v in sorted(by_height.items()) if len(v) >= FEWEST}
    numbers: dict[str, Any] = {
        "depths": list(norms), "norms": list(norms.values()), "heights": list(right), "right": list(right.values()),
    }  # fmt: skip
    if len(norms) < 2:
        few = said("not known: the trees are too shallow or too few to compare depths")
        return Measurement(Finding("tree depth", Level.UNKNOWN, 0.0, VANISHED, few), numbers)
    first, last = min(norms), max(norms)
    left = norms[last] / norms[first] if norms[first] else 0.0
    factor = left ** (1 / (last - first)) if left > 0 else 0.0
    detail = said(
        "from leaves {first} to {last} below the root the gradient changes by × {left:.2g}, × {factor:.2g} a level",
        first=first, last=last, left=left, factor=factor,
    )  # fmt: skip
    if left < VANISHED:
        verdict = said("gradients vanish on the way down: {detail}", detail=detail)
        return Measurement(Finding("tree depth", Level.WARNING, left, VANISHED, verdict), numbers)
    verdict = said("gradients reach deep leaves: {detail}", detail=detail)
    return Measurement(Finding("tree depth", Level.OK, left, VANISHED, verdict), numbers)

"""Options of the tasks that give labels, to texts, tokens and trees: a part of Config, apart from it for its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class LabellingFields:
    directions: Literal[1, 2] = 1
    """Classify, tag: read from the start only, which can be streamed, or from both ends."""

    pool: Literal["last", "mean", "max", "attention"] = "last"
    """Classify: which of a text's states the class is read from."""

    class_weights: Literal["none", "balanced"] = "none"
    """Classify, tag: count rare classes as much as frequent ones, or every example alike."""

    compose: Literal["net", "rntn", "tree-lstm", "child-sum"] = "tree-lstm"
    """Tree: how a node is made of its children."""

    structure: Literal["given", "balanced", "left", "right"] = "given"
    """Tree: the file's own trees, halves of halves, or a chain from one end."""

    labels: Literal["all", "root"] = "all"
    """Tree: learn from the labels of all nodes, or of the root only."""

"""A tree's nodes, classified: words at the leaves, a composition above them, a class at every node.

P(class of node) = softmax(V h_node + c)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from recur.layers import Forest, Recursive


@dataclass(frozen=True)
class TreeOptions:
    """What a tree classifier is made of; fields of the same names are in a training configuration."""

    compose: str = "tree-lstm"
    hidden: int = 150
    embedding: int = 300
    dropout_input: float = 0.0
    dropout_output: float = 0.0


class TreeModel(nn.Module):
    """Word ids (leaves,) and their forest in, logits (nodes, classes) out."""

    def __init__(self, V: int, classes: int, options: TreeOptions) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = nn.Parameter(torch.empty(V, o.embedding))
        self.recursive = Recursive(o.compose, o.embedding, o.hidden)
        self.output = nn.Linear(o.hidden, classes)
        nn.init.uniform_(self.embedding, -0.1, 0.1)

    def forward(self, ids: Tensor, forest: Forest) -> Tensor:
        o = self.options
        x = dropout(embedding(ids, self.embedding), o.dropout_input, self.training)
        h = self.recursive(x, forest)[0]
        logits: Tensor = self.output(dropout(h, o.dropout_output, self.training))
        return logits

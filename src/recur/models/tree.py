"""A tree's nodes, classified: words at the leaves, a composition above them, a class at every node.

P(class of node) = softmax(V h_node + c)
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import dropout, embedding

from recur.models.calibration import Mixture
from recur.models.embedding import drawn
from recur.models.structures import TreeModelOptions
from recur.nn import Forest, Recursive


class TreeModel(nn.Module):
    """Word ids (leaves,) and their forest in, logits (nodes, classes) out."""

    def __init__(self, K: int, classes: int, options: TreeModelOptions) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = nn.Parameter(drawn(K, o.embedding, o.embedding_init))
        self.recursive = Recursive(o.compose, o.embedding, o.hidden)
        self.output = nn.Linear(o.hidden, classes)
        self.temperature = Mixture()

    def forward(self, ids: Tensor, forest: Forest) -> Tensor:
        o = self.options
        x = dropout(embedding(ids, self.embedding), o.dropout_input, self.training)
        h = self.recursive(x, forest)[0]
        logits: Tensor = self.output(dropout(h, o.dropout_output, self.training))
        return logits

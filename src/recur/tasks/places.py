"""Where in a task's network the parts of a language model go: what `--from` carries over, and what learns last."""

from __future__ import annotations

import re
from typing import NamedTuple


class Places(NamedTuple):
    """Names in a task's vocabularies and of its network's parameters."""

    vocab: str = "vocab"
    """The vocabulary that begins with the language model's."""
    embedding: str = "embedding.weight"
    recurrent: str = "recurrent"
    """The module of the layers; none, if empty."""
    output: tuple[str, str] | None = None
    """The matrix V and the bias of a softmax over that vocabulary, where the network has one."""
    lines: bool = False
    """Whether sequences are lines that <bos> begins and <eos> ends, where a text has the end of a line."""
    token: str = "token"
    """The option that says what a token of that vocabulary is."""
    layers: str = "layers"
    """The option that says how many layers there are."""

    def depth(self, name: str) -> int | None:
        """Of a parameter: 0 for the embedding, 1 … for the layers above it, None for what no language model has."""
        if name == self.embedding:
            return 0
        if not self.recurrent or not name.startswith(f"{self.recurrent}."):
            return None
        layer = re.search(r"_l(\d+)(_reverse)?$", name)
        if layer is not None:
            return int(layer[1]) + 1
        return 1 if ".input_mlp." in name else None

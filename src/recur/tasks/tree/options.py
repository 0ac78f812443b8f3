"""Options of the task tree, and its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from recur.models.options import TreeModelOptions
from recur.options import Between, Count, Fraction, OneOf, Positive
from recur.tasks.common.options import FoldOptions, TaskOptions, WarmStartOptions


@dataclass(frozen=True, kw_only=True)
class TreeOptions(TaskOptions, FoldOptions, TreeModelOptions, WarmStartOptions):
    """Classify every node of a tree. Input: bracketed trees."""

    title = "tree"
    reads = "trees"

    structure: Literal["given", "balanced", "left", "right"] = "given"
    """The file's own trees, halves of halves, or a chain from one end."""

    labels: Literal["all", "root"] = "all"
    """Learn from the labels of all nodes, or of the root only."""

    lower: bool = False
    """Drop case."""

    min_freq: Count = 1
    """Words seen less often in training are unknown."""

    max_vocab_size: Count | None = None
    """Keep this many words at most, the four special ones included."""

    # Defaults of its own ---------------------------------------------------------------------------------

    dropout_input: Fraction = 0.3
    dropout_output: Fraction = 0.5
    lr: Positive = 0.003

    cpu_batch = 25
    default_epochs = 5.0

    search = MappingProxyType(
        {
            "hidden_size": Between(32, 256, log=True),
            "lr": Between(0.0005, 0.015, log=True),
            "batch_size": OneOf((16, 25, 50)),
            "dropout_input": Between(0.0, 0.6),
            "dropout_output": Between(0.0, 0.6),
        }
    )


OPTIONS = TreeOptions

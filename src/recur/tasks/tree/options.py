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
    """Tree structure: given by the file, balanced, or a chain from the left or the right."""

    labels: Literal["all", "root"] = "all"
    """Train on the labels of all nodes, or of the root only."""

    lower: bool = False
    """Convert to lower case."""

    min_freq: Count = 1
    """Words with fewer training occurrences become unknown."""

    max_vocab_size: Count | None = None
    """Maximum vocabulary size, including the four special tokens."""

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

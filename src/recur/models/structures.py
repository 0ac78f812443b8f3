"""What networks over trees, grids and single rows are made of, as options; those along sequences are in options.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from recur.models.forms import EmbeddingInit
from recur.options import Count, Layers, Options, Share, Width


@dataclass(frozen=True, kw_only=True)
class TreeModelOptions(Options):
    title = "Network"

    compose: Literal["net", "rntn", "tree-lstm", "child-sum"] = "tree-lstm"
    """How a node is made of its children."""

    hidden: Width = 150
    """Units of a node."""

    embedding: Width = 300
    """Width of the embedding."""

    embedding_init: EmbeddingInit = "scaled"
    """How embeddings start: scaled (normal with σ = 4/√K, at most 1), uniform:a in ± a, or normal:σ."""

    dropout_input: Share = 0.0
    """Drop parts of the embeddings."""

    dropout_output: Share = 0.0
    """Drop parts of what classes are read from."""


@dataclass(frozen=True, kw_only=True)
class GridModelOptions(Options):
    title = "Network"

    compose: Literal["net", "lstm"] = "lstm"
    """How a point is made of its pixels and of the points before it: tanh of a linear map, or a memory with gates."""

    corners: Literal[1, 2, 4] = 4
    """From how many corners the image is read; with four every point has seen all of it."""

    hidden: Width = 16
    """Units of a point, for each corner."""

    layers: Layers = 1
    """How many grids, each of which reads the one below."""

    patch: Count | None = None
    """So many pixels by as many are a point; if not given, as few as leave 16 points along the longer side."""

    pool: Literal["mean", "max", "attention", "last"] = "mean"
    """Which of an image's states the class is read from; last is where reading from each corner ends."""

    dropout_input: Share = 0.0
    """Drop pixels."""

    dropout_hidden: Share = 0.0
    """Drop between layers."""

    dropout_output: Share = 0.0
    """Drop parts of what classes are read from."""


@dataclass(frozen=True, kw_only=True)
class RowModelOptions(Options):
    """A recurrent network without its recurrence."""

    title = "Network"

    hidden: Width = 64
    """Units in a layer."""

    layers: Layers = 1
    """How many hidden layers of tanh."""

    dropout_output: Share = 0.0
    """Drop parts of what the output is read from."""

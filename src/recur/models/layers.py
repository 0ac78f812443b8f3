"""Parts of networks: recurrent layers built from options, token embeddings, standardised signals, time as an input."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, one_hot

from recur.cells.registry import configured_cell
from recur.compat import tree_leaves, tree_map
from recur.data.series.dates import compress_time
from recur.data.text import UNK
from recur.models.options import NetworkOptions, SequenceOptions, StackOptions, parse_embedding
from recur.nn import Connections, Depth, Dropout, FeedForward, Init, Recurrent
from recur.nn.functional import sequence_dropout

State = tuple[tuple[Tensor, ...], ...]
"""State of a network: for each layer and direction, the states of its cell."""


def map_state(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """Return the state with `change` applied to every tensor."""
    changed: State = tree_map(change, state)
    return changed


def copy_state(to: Any, state: Any) -> None:
    """Copy the tensors of a nested state into those of another one with the same structure."""
    for buffer, value in zip(tree_leaves(to), tree_leaves(state), strict=True):
        buffer.copy_(value)


def make_recurrent(o: StackOptions, width: int, direction: str = "forward", top: int = 0) -> Recurrent:
    """Return the recurrent layers of a language model or an encoder."""
    return Recurrent(
        configured_cell(o.cell),
        width,
        o.hidden_size,
        num_layers=o.num_layers,
        top=top,
        direction=direction,
        dropout=Dropout(
            layers=o.dropout_hidden if o.num_layers > 1 else 0.0, weights=o.dropout_weight, variational=o.variational
        ),
        connections=Connections(residual=o.residual),
        depth=make_depth(o),
        init=Init(o.init, o.forget_bias, o.initial, o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def make_plain_recurrent(o: SequenceOptions, width: int) -> Recurrent:
    """Return recurrent layers without dropout and connections, for numbers."""
    return Recurrent(
        configured_cell(o.cell),
        width,
        o.hidden_size,
        num_layers=o.num_layers,
        depth=make_depth(o),
        init=Init(o.init, o.forget_bias, chrono=o.chrono),
        bptt=o.bptt,
        backend=o.backend,
    )


def make_output_recurrent(o: NetworkOptions, width: int) -> FeedForward:
    """Return a feed-forward layer in place of recurrent layers, for output recurrence."""
    return FeedForward(width, o.hidden_size, depth=make_depth(o))


def decoder_network_options(o: NetworkOptions, layers: int, dropout: float) -> dict[str, Any]:
    """Return keywords of `Recurrent` for an encoder or a decoder: one dropout mask per step, full BPTT."""
    return {
        "num_layers": layers,
        "dropout": Dropout(layers=dropout if layers > 1 else 0.0, variational=False),
        "depth": make_depth(o),
        "init": Init(o.init, o.forget_bias, chrono=o.chrono),
        "backend": o.backend,
    }


def make_depth(o: NetworkOptions) -> Depth:
    """Return the depth of the MLPs around recurrent layers."""
    return Depth(o.depth_input, o.depth_transition, o.depth_output, o.depth_between)


class TokenEmbedding(nn.Module):
    """Embedding of ids (B, T) as vectors (B, T, width); one-hot vectors (B, T, K) if width is 0.

    drop_tokens   probability of dropping a token everywhere in a batch (Gal and Ghahramani 2016)
    drop          dropout of entries; with `variational`, one mask per sequence
    """

    def __init__(
        self,
        K: int,
        width: int,
        init: str = "scaled",
        *,
        drop: float = 0.0,
        drop_tokens: float = 0.0,
        variational: bool = False,
    ) -> None:
        super().__init__()
        self.K, self.drop, self.drop_tokens, self.variational = K, drop, drop_tokens, variational
        self.weight = nn.Parameter(draw_embedding(K, width, init)) if width else None
        self.register_buffer("_like", torch.empty(0), persistent=False)  # dtype and device of one-hot vectors

    @property
    def width(self) -> int:
        return self.K if self.weight is None else self.weight.shape[1]

    def forward(self, ids: Tensor) -> Tensor:
        if self.weight is not None and self.training and self.drop_tokens:
            kept = dropout(self.weight.new_ones(self.K, 1), self.drop_tokens)
            x = embedding(ids, self.weight * kept)
        else:
            x = self.vectors(ids)
        return sequence_dropout(x, self.drop, training=self.training, variational=self.variational)

    def vectors(self, ids: Tensor) -> Tensor:
        """Return vectors of ids of any shape without dropout, for inference."""
        if self.weight is None:
            like: Tensor = self._like  # type: ignore[assignment]
            return one_hot(ids, self.K).to(like.dtype)
        return embedding(ids, self.weight)


def token_embedding(K: int, o: StackOptions) -> TokenEmbedding:
    """Return the embedding of K tokens with the dropout of these options."""
    drops = {"drop": o.dropout_input, "drop_tokens": o.dropout_embedding}
    return TokenEmbedding(K, o.embedding_size, o.embedding_init, **drops, variational=o.variational)


def embedding_scale(K: int) -> float:
    """Return the standard deviation of an embedding of K tokens: 4/√K, at most 1.

    With few tokens each one is seen often, so its initial vector hardly matters, and distinct vectors help from the
    first step. With thousands of tokens each one is seen rarely, and its initial vector stays in it as noise.
    """
    return min(1.0, 4 / math.sqrt(K))


def draw_embedding(K: int, width: int, init: str) -> Tensor:
    """Draw a matrix (K, width): uniform:a, normal:σ, or scaled (normal with `embedding_scale`); the row of <unk> is
    zero.
    """
    kind, scale = parse_embedding(init)
    if kind == "scaled":
        kind, scale = "normal", embedding_scale(K)
    weight = torch.empty(K, width)
    weight = nn.init.uniform_(weight, -scale, scale) if kind == "uniform" else nn.init.normal_(weight, std=scale)
    weight[UNK] = 0  # where nothing is unknown in training, no gradient ever reaches it, and a random row is noise
    return weight


class SignalInput(nn.Module):
    """Standardisation of steps (B, T, D), and projection to width if it is not 0. Mean and deviation are saved
    buffers."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, D: int, width: int = 0, *, noise: float = 0.0, drop: float = 0.0, variational: bool = False
    ) -> None:
        super().__init__()
        self.D, self.noise, self.drop, self.variational = D, noise, drop, variational
        self.register_buffer("mean", torch.zeros(D))
        self.register_buffer("deviation", torch.ones(D))
        self.project = nn.Linear(D, width) if width else None

    @torch.no_grad()
    def fit(self, mean: Tensor, deviation: Tensor) -> None:
        """Set mean and standard deviation, (D,) each."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    @property
    def width(self) -> int:
        return self.D if self.project is None else self.project.out_features

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.deviation
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        return sequence_dropout(self._projected(x), self.drop, training=self.training, variational=self.variational)

    def vectors(self, x: Tensor) -> Tensor:
        """Return vectors of steps (…, D) without noise and dropout, for inference."""
        return self._projected((x - self.mean) / self.deviation)

    def _projected(self, x: Tensor) -> Tensor:
        projected: Tensor = x if self.project is None else self.project(x)
        return projected


def scale_time(t: Tensor, scale: float) -> Tensor:
    """Return the time input for step numbers t ≥ 0 of any shape; see `recur.data.series.dates.compress_time`."""
    return compress_time(t.to(torch.float64) / scale, torch.log).to(torch.get_default_dtype())


def time_positions(start: Tensor, T: int, reset: Tensor | None = None) -> Tensor:
    """Return step numbers (B, T) of rows that start at `start` (B,); they restart at 0 where `reset` (B, T) is True."""
    steps = torch.arange(T, device=start.device)
    t = start[:, None] + steps
    if reset is None:
        return t
    last = torch.where(reset, steps, -1).cummax(1).values
    return torch.where(last >= 0, steps - last, t)


def append_time(x: Tensor, t: Tensor, scale: float) -> Tensor:
    """Append the time input of steps t (…) to inputs (…, D): (…, D + 1)."""
    return torch.cat([x, scale_time(t, scale)[..., None].to(x)], dim=-1)


def append_positions(x: Tensor, clock: float | None) -> Tensor:
    """Append the time input to sequences (B, T, D) that are read from their start; unchanged without a clock."""
    if clock is None:
        return x
    return append_time(x, torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1), clock)


def step_with_time(
    network: Recurrent | FeedForward, x: Tensor, state: State | None, clock: float | None
) -> tuple[Tensor, State]:
    """Read one step per row (B, D), with the time as an input if there is a clock; its state is then (…, (t,))."""
    if clock is None:
        return network.step(x, state)
    own, t = split_state(state, x)
    h, own = network.step(append_time(x, t, clock), own)
    return h, (*own, (t + 1,))


def split_state(state: State | None, rows: Tensor) -> tuple[State | None, Tensor]:
    """Split a state into the state of the network and the step numbers (B,); zeros without a state."""
    if state is None:
        return None, torch.zeros(len(rows), dtype=torch.long, device=rows.device)
    *layers, (t,) = state
    return tuple(layers), t

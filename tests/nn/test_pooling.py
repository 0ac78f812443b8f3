"""Pooling: against its definition row by row, blind to padding, and carried along a sequence."""

from __future__ import annotations

import pytest
import torch

from recur.errors import OptionError, ShapeError
from recur.nn import Pooling
from recur.nn.attention import POOLING_KINDS
from tests.support import close

LENGTHS = torch.tensor([5, 1, 3])


def states() -> torch.Tensor:
    return torch.randn(3, 5, 4, dtype=torch.float64)


@pytest.mark.parametrize("name", POOLING_KINDS)
def test_each_row_is_pooled_by_its_definition_over_its_own_length(name: str) -> None:
    pool, h = Pooling(name, 4).double(), states()
    found = pool(h, LENGTHS)
    for row, n in enumerate(LENGTHS.tolist()):
        own = h[row, :n]
        if name == "last":
            expected = own[-1]
        elif name == "mean":
            expected = own.sum(0) / n
        elif name == "max":
            expected = torch.stack([max(own[:, k]) for k in range(4)])
        elif name == "concat":
            expected = torch.cat([own[-1], own.sum(0) / n, torch.stack([max(own[:, k]) for k in range(4)])])
        else:
            assert pool.key is not None
            assert pool.query is not None
            heads = []
            for query in pool.query.weight:
                scores = torch.tanh(own @ pool.key.weight.T + pool.key.bias) @ query
                weights = scores.exp() / scores.exp().sum()
                heads.append(sum(w * state for w, state in zip(weights, own, strict=True)))
            assert len(heads) == (4 if name == "self-attention" else 1)
            expected = torch.cat(heads)  # type: ignore[arg-type]
        close(found[row].detach(), expected.detach())


@pytest.mark.parametrize("name", POOLING_KINDS)
def test_what_lies_behind_a_length_changes_nothing(name: str) -> None:
    pool, h = Pooling(name, 4).double(), states()
    spoiled = h.clone()
    spoiled[1, 1:], spoiled[2, 3:] = 1e6, -1e6
    close(pool(spoiled, LENGTHS).detach(), pool(h, LENGTHS).detach())


@pytest.mark.parametrize("name", POOLING_KINDS)
def test_carried_along_a_sequence_it_is_the_pool_of_all_so_far(name: str) -> None:
    pool, h = Pooling(name, 4).double(), states() * 50  # scores far apart: exponents would overflow
    carried = None
    for t in range(5):
        found, carried = pool.step(h[:, t], carried)
        close(found.detach(), pool(h[:, : t + 1], torch.full((3,), t + 1)).detach())


def test_the_last_state_of_two_directions_is_where_each_ended() -> None:
    h = states()
    found = Pooling("last", 4, direction="both")(h, LENGTHS)
    for row, n in enumerate(LENGTHS.tolist()):
        close(found[row], torch.cat([h[row, n - 1, :2], h[row, 0, 2:]]))


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(OptionError, match="unknown pooling 'average'"):
        Pooling("average", 4)
    with pytest.raises(ShapeError, match="each in 1 … T=5"):
        Pooling("mean", 4)(states(), torch.tensor([5, 0, 3]))
    with pytest.raises(OptionError, match="needs direction='forward'"):
        Pooling("mean", 4, direction="both").step(states()[:, 0])


def test_the_last_state_of_reading_backward_is_the_first() -> None:
    h = states()
    close(Pooling("last", 4, direction="backward")(h, LENGTHS), h[:, 0])

"""Conditional random fields: against every path written out, against torchcrf, and their slopes by differences."""

from __future__ import annotations

import itertools

import pytest
import torch
import torchcrf
from torch import Tensor

from recur.errors import ShapeError
from recur.nn.crf import CRF, FORBIDDEN, Transitions, log_partition, plain_log_partition
from tests.support import close

B, T, K = 3, 5, 4
LENGTHS = torch.tensor([5, 1, 3])


def made(allowed: Transitions | None = None) -> tuple[CRF, Tensor]:
    torch.manual_seed(0)
    crf = CRF(K, allowed).double()
    for weight in crf.parameters():
        torch.nn.init.normal_(weight)
    return crf, torch.randn(B, T, K, dtype=torch.float64)


def every_path(crf: CRF, x: Tensor, length: int, constrained: bool) -> dict[tuple[int, ...], float]:
    """The score of every path through a row, from the definition; without those that break a rule, if asked."""
    start, between, end = (part.detach() for part in crf.moves(constrained))
    found = {}
    for path in itertools.product(range(K), repeat=length):
        score = start[path[0]] + end[path[-1]] + sum(x[t, k] for t, k in enumerate(path))
        score = score + sum(between[a, b] for a, b in itertools.pairwise(path))
        if score > FORBIDDEN / 2:
            found[path] = float(score)
    return found


RULES = Transitions(
    torch.tensor([True, True, False, True]),
    torch.tensor([[1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 0]]).bool(),
    torch.tensor([True, True, True, False]),
)


@pytest.mark.parametrize("allowed", [None, RULES])
def test_likelihood_best_paths_and_marginals_are_those_of_all_paths(allowed: Transitions | None) -> None:
    crf, x = made(allowed)
    tags = torch.randint(K, (B, T))
    likelihood, probability = crf.log_likelihood(x, LENGTHS, tags), crf.marginals(x, LENGTHS)
    n = 7
    nbest = crf.nbest(x, LENGTHS, n)
    first = crf.nbest(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        free = every_path(crf, x[b], length, constrained=False)
        total = torch.tensor(list(free.values()), dtype=torch.float64).logsumexp(0)
        close(likelihood[b].detach(), free[tuple(tags[b, :length].tolist())] - total)

        paths = every_path(crf, x[b], length, constrained=True)
        total = torch.tensor(list(paths.values()), dtype=torch.float64).logsumexp(0)
        expected = torch.zeros(T, K, dtype=torch.float64)
        for path, score in paths.items():
            expected[torch.arange(length), list(path)] += float(torch.exp(score - total))
        close(probability[b], expected)

        ranked = sorted(paths, key=lambda path: -paths[path])[:n]
        some = len(ranked)
        assert [tuple(path) for path in nbest.tags[b, :some, :length].tolist()] == ranked
        close(
            nbest.scores[b, :some].detach(), torch.tensor([paths[path] for path in ranked], dtype=torch.float64) - total
        )
        assert (nbest.scores[b, some:] < FORBIDDEN / 2).all(), "there are no more"
        assert (nbest.tags[b, :some, length:] == 0).all()
        assert tuple(first.tags[b, 0, :length].tolist()) == ranked[0]


def test_it_is_torchcrf() -> None:
    crf, x = made()
    theirs = torchcrf.CRF(K, batch_first=True).double()
    with torch.no_grad():
        theirs.start_transitions.copy_(crf.start)
        theirs.transitions.copy_(crf.transitions)
        theirs.end_transitions.copy_(crf.end)
    tags, mask = torch.randint(K, (B, T)), torch.arange(T) < LENGTHS[:, None]
    ours = crf.log_likelihood(x.requires_grad_(), LENGTHS, tags)
    expected = theirs(x, tags, mask, reduction="none")
    close(ours.detach(), expected.detach())
    g = torch.randn(B, dtype=torch.float64)
    mine = torch.autograd.grad(ours, [x, crf.start, crf.transitions, crf.end], g)
    other = [x, theirs.start_transitions, theirs.transitions, theirs.end_transitions]
    for a, b in zip(mine, torch.autograd.grad(expected, other, g), strict=True):
        close(a, b)
    found = [row[:length].tolist() for row, length in zip(crf.nbest(x, LENGTHS).tags[:, 0], LENGTHS, strict=True)]
    assert found == theirs.decode(x, mask)


def test_its_slopes() -> None:
    crf, x = made()
    moves = [part.detach().clone().requires_grad_() for part in crf.moves()]
    assert torch.autograd.gradcheck(
        lambda x, *moves: log_partition(x, LENGTHS, Transitions(*moves)), (x.requires_grad_(), *moves)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_products_of_probabilities_give_what_logarithms_give(scale: float) -> None:
    crf, x = made(RULES)
    x = (x * scale).requires_grad_()
    for dtype in (torch.float64, torch.float32):
        given = x.detach().to(dtype).requires_grad_()
        moves = Transitions(*(part.detach().to(dtype) for part in crf.moves()))
        fast, plain = log_partition(given, LENGTHS, moves), plain_log_partition(given.double(), LENGTHS, moves)
        close(fast.detach(), plain.detach().to(dtype))
        (a,), (b,) = torch.autograd.grad(fast.sum(), given), torch.autograd.grad(plain.sum(), given)
        close(a, b)


def test_where_probabilities_underflow_logarithms_do_not() -> None:
    crf, x = made(RULES)
    x = x.clone()
    x[:, 1, 0] = 2000.0  # from where tag 2 cannot follow
    x[:, 2, 2] = 5000.0
    moves = Transitions(*(part.detach() for part in crf.moves()))
    close(log_partition(x, LENGTHS, moves), plain_log_partition(x, LENGTHS, moves))
    assert torch.isfinite(crf.marginals(x, LENGTHS)).all()
    # no path at all is allowed: the least forbidden one is taken
    nothing = Transitions(torch.zeros(K).bool(), torch.zeros(K, K).bool(), torch.zeros(K).bool())
    crf, x = made(nothing)
    close(crf.marginals(x, LENGTHS).sum((1, 2)), LENGTHS.double(), tolerance=1e-9)  # numbers of 1e5 stand in these sums


def test_wrong_shapes() -> None:
    crf, x = made()
    with pytest.raises(ShapeError, match=r"x must be \(B, T, K=4\), got \(3, 5, 3\)"):
        crf.marginals(x[..., :3], LENGTHS)
    with pytest.raises(ShapeError, match=r"lengths must be \(3,\), each 1 … 5, got \[5, 0, 3\]"):
        crf.nbest(x, torch.tensor([5, 0, 3]))

"""CTC: the loss by hand, torch's and an enumeration of all paths agree; so do the beam and the best of all labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import ctc_loss

from recur.decoding.ctc import best_path, collapse_path, prefix_beam_search
from recur.errors import OptionError
from recur.reference.network import ctc
from tests.support import TOLERANCE, close


def logits(T: int, K: int, seed: int = 0, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(T, K)) * spread


def normalised(u: np.ndarray) -> np.ndarray:
    return u - np.logaddexp.reduce(u, axis=1, keepdims=True)


def enumerated(u: np.ndarray, blank: int) -> dict[tuple[int, ...], float]:
    """P of all label sequences, path by path."""
    y, found = np.exp(normalised(u)), dict[tuple[int, ...], float]()
    for path in itertools.product(range(u.shape[1]), repeat=len(u)):
        labels = tuple(k for k, _ in itertools.groupby(path) if k != blank)
        found[labels] = found.get(labels, 0.0) + float(np.prod([y[t, k] for t, k in enumerate(path)]))
    return found


@pytest.mark.parametrize("blank", [0, 2])
def test_the_loss_is_a_sum_over_paths(blank: int) -> None:
    u = logits(5, 3)
    found = enumerated(u, blank)
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    for labels, p in found.items():
        assert ctc(u, labels, blank)[0] == pytest.approx(-np.log(p), rel=1e-12)
    assert ctc(u, [1, 1, 1, 1], blank)[0] == np.inf  # which takes seven steps


@pytest.mark.parametrize(
    ("T", "labels"),
    [(1, [0]), (1, []), (4, []), (6, [0, 0, 1]), (7, [3, 3, 3, 3]), (12, [0, 1, 2, 2, 0]), (60, [1, 1, 2, 0] * 4)],
)
def test_value_and_gradient_are_torchs(T: int, labels: list[int]) -> None:
    u = torch.tensor(logits(T, 5, seed=T, spread=2.0), requires_grad=True)
    targets = torch.tensor([labels], dtype=torch.long)
    loss = ctc_loss(u.log_softmax(-1)[:, None], targets, [T], [len(labels)], blank=4, reduction="sum")
    loss.backward()
    value, gradient = ctc(u.detach().numpy(), labels, 4)
    close(torch.tensor(value, dtype=torch.float64), loss.detach(), "loss")
    close(torch.from_numpy(gradient), u.grad, "gradient")


def test_the_gradient_is_the_slope() -> None:
    u, labels, step = logits(6, 4), [1, 1, 2], 1e-6
    gradient = ctc(u, labels, 0)[1]
    for at in np.ndindex(u.shape):
        above, below = u.copy(), u.copy()
        above[at] += step
        below[at] -= step
        slope = (ctc(above, labels, 0)[0] - ctc(below, labels, 0)[0]) / (2 * step)
        assert gradient[at] == pytest.approx(slope, abs=1e-8)


# Decoding -------------------------------------------------------------------------------------------------------


def test_paths_and_what_they_stand_for() -> None:
    assert collapse_path([0, 1, 1, 0, 1, 2, 2, 0, 0], 0) == (1, 1, 2)
    assert collapse_path([3, 3, 0, 0], 3) == (0,)
    assert collapse_path([0, 0], 0) == ()
    found = best_path(normalised(np.log(np.array([[0.6, 0.4], [0.6, 0.4]]))), 0)
    assert found.labels == ()
    assert found.logp == pytest.approx(np.log(0.36))


def test_many_paths_are_likelier_than_the_best_one() -> None:
    """Two steps of 0.6 and 0.4: the blanks' path has 0.36, the three paths of the label have 0.64."""
    first, second = prefix_beam_search(np.log(np.array([[0.6, 0.4], [0.6, 0.4]])), 0, 2)
    assert (first.labels, second.labels) == ((1,), ())
    assert np.exp([first.logp, second.logp]) == pytest.approx([0.64, 0.36])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("blank", [0, 1, 2])
def test_a_wide_beam_finds_all_label_sequences_in_order(seed: int, blank: int) -> None:
    u = logits(6, 3, seed, spread=1.5)
    expected = sorted(enumerated(u, blank).items(), key=lambda item: -item[1])
    found = prefix_beam_search(normalised(u), blank, 10_000)
    assert [labelling.labels for labelling in found] == [labels for labels, _ in expected]
    close(np.exp([labelling.logp for labelling in found]), np.array([p for _, p in expected]))


def test_a_narrow_beam_follows_no_more_than_its_width() -> None:
    u = normalised(logits(40, 6, 3))
    exact = {labelling.labels: labelling.logp for labelling in prefix_beam_search(u, 5, 3000)}
    found = prefix_beam_search(u, 5, 4)
    assert len(found) == 4
    assert [labelling.logp for labelling in found] == sorted((labelling.logp for labelling in found), reverse=True)
    for labels, logp in found:  # of which some paths were lost, and none is counted twice
        assert logp <= -ctc(u, labels, 5)[0] + TOLERANCE[torch.float64]
        assert labels not in exact or logp <= exact[labels] + 0.5


def test_a_beam_of_one_follows_the_best_path_where_it_is_clear() -> None:
    path = [0, 0, 3, 1, 1, 3, 1, 2, 3]
    u = np.full((len(path), 4), -9.0)
    u[np.arange(len(path)), path] = 0.0
    (found,) = prefix_beam_search(normalised(u), 3, 1)
    assert found.labels == best_path(normalised(u), 3).labels == (0, 1, 1, 2)


@pytest.mark.parametrize(("weight", "bonus"), [(0.5, 0.0), (1.0, 0.7), (2.0, -0.3)])
def test_a_language_model_ranks_with_it(weight: float, bonus: float) -> None:
    u, blank = logits(5, 3, 9), 2

    def language(prefix: tuple[int, ...]) -> np.ndarray:
        return normalised(logits(1, 3, seed=1 + len(prefix) + 10 * (prefix[-1] if prefix else 5)))[0]

    def score(labels: tuple[int, ...], p: float) -> float:
        terms = [language(labels[:k])[label] for k, label in enumerate(labels)] + [language(labels)[blank]]
        return float(np.log(p) + weight * sum(terms) + bonus * len(labels))

    expected = sorted(enumerated(u, blank).items(), key=lambda item: -score(*item))
    found = prefix_beam_search(normalised(u), blank, 10_000, language=language, weight=weight, bonus=bonus)
    assert [labelling.labels for labelling in found] == [labels for labels, _ in expected]
    close(np.exp([labelling.logp for labelling in found]), np.array([p for _, p in expected]))


def test_a_width_below_one_is_refused() -> None:
    with pytest.raises(OptionError, match="beam must be a whole number ≥ 1, got 0"):
        prefix_beam_search(normalised(logits(3, 3)), 0, 0)

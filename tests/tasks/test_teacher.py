"""Teacher forcing by its formulas."""

from __future__ import annotations

import math

import pytest
import torch

from recur.errors import OptionError
from recur.tasks.common.options import TeacherForcing


def test_probabilities_by_their_formulas() -> None:
    def p(spec: str, step: int = 0, progress: float = 0.0) -> float:
        return TeacherForcing.parse(spec).probability(step, progress)

    assert (p("always", 9, 0.9), p("never", 9, 0.9), p("constant:0.3", 9, 0.9)) == (1.0, 0.0, 0.3)
    assert [p("linear:1.0:0.5", progress=at) for at in (0.0, 0.5, 1.0, 1.2)] == [1.0, 0.75, 0.5, 0.5]
    assert [p("exponential:0.9", step) for step in (0, 1, 10)] == pytest.approx([1.0, 0.9, 0.9**10])
    assert [p("sigmoid:10", step) for step in (0, 20, 60)] == pytest.approx(
        [10 / 11, 10 / (10 + math.e**2), 10 / (10 + math.e**6)]
    )
    assert p("sigmoid:1", 10**6) < 1e-300


def test_steps_are_drawn_one_by_one_and_sequences_whole() -> None:
    assert TeacherForcing.parse("always").draw(3, 4, 0, 0.0) is None
    never = TeacherForcing.parse("never").draw(3, 4, 0, 0.0)
    assert never is not None
    assert not never.any()
    steps = TeacherForcing.parse("constant:0.3").draw(400, 50, 0, 0.0)
    whole = TeacherForcing.parse("constant:0.3,sequence").draw(4000, 5, 0, 0.0)
    assert steps is not None
    assert whole is not None
    assert steps.float().mean().item() == pytest.approx(0.3, abs=0.015)
    assert whole.float().mean().item() == pytest.approx(0.3, abs=0.035)
    assert bool((whole == whole[:, :1]).all())
    assert not bool((steps == steps[:, :1]).all())
    torch.manual_seed(5)
    first = TeacherForcing.parse("linear:1:0").draw(5, 5, 0, 0.5)
    torch.manual_seed(5)
    again = TeacherForcing.parse("linear:1:0").draw(5, 5, 0, 0.5)
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)


@pytest.mark.parametrize(
    "spec", ["", "often", "constant", "constant:2", "linear:1", "linear:1:x", "sigmoid:0.5", "always,word", "never:1"]
)
def test_out_of_range(spec: str) -> None:
    with pytest.raises(OptionError, match="teacher .* is not one of: always, never"):
        TeacherForcing.parse(spec)

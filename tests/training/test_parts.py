"""The parts of training by their definitions: schedules, clipping, averaging, measuring, configurations."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from recur.errors import OptionError
from recur.models import LanguageModel
from recur.models.options import LanguageModelOptions
from recur.tasks import make_options
from recur.tasks.common.metrics import perplexity
from recur.tasks.language.data import load_data
from recur.tasks.language.evaluation import free_running_gap, mean_loss
from recur.tasks.language.options import LanguageOptions
from recur.training import session
from recur.training.optim import (
    Schedule,
    WeightAverage,
    asgd_averages,
    clip_gradients,
    make_optimizer,
    start_averaging,
    swap_weights,
)


def test_schedules_by_their_formulas() -> None:
    assert [Schedule("constant", 4)(step, 0, 0.0) for step in (0, 1, 3, 9)] == [0.25, 0.5, 1.0, 1.0]
    flat = [Schedule("flat:0.5", 4)(step, 0, progress) for step, progress in ((0, 0.0), (9, 0.5), (9, 0.75), (9, 1.0))]
    assert flat == pytest.approx([0.25, 1.0, 0.5, 1e-3])
    cosine = Schedule("cosine", 0)
    assert cosine(0, 0, 0.0) == 1.0
    assert cosine(0, 0, 0.5) == pytest.approx(0.5)
    assert cosine(0, 0, 1.0) == pytest.approx(0.001)
    step = Schedule("step:0.5:4", 0)
    assert [step(0, epoch, 0.0) for epoch in range(7)] == [1, 1, 1, 1, 0.5, 0.25, 0.125]
    plateau = Schedule("plateau:0.25", 0)
    factors = []
    for loss in (3.0, 2.0, 2.5, 1.9, 1.95):
        plateau.measured(loss)
        factors.append(plateau(0, 0, 0.0))
    assert factors == [1, 1, 0.25, 0.25, 0.0625]
    nonmono = Schedule("nonmono:2", 0)
    assert [nonmono.measured(loss) for loss in (3.0, 2.0, 2.1, 2.2, 2.3)] == [False] * 4 + [True]
    again = Schedule("nonmono:2", 0)
    again.load(nonmono.state())
    assert again.triggered


@pytest.mark.parametrize("spec", ["often", "step", "step:0.5", "step:x:1", "plateau:0", "cosine:1", "nonmono:-1", ""])
def test_a_schedule_out_of_range(spec: str) -> None:
    with pytest.raises(OptionError, match="schedule"):
        Schedule(spec, 0)


def test_clipping_by_norm_and_by_value() -> None:
    def clipped(norm: float, value: float) -> tuple[list[float], float]:
        p = nn.Parameter(torch.zeros(2))
        p.grad = torch.tensor([3.0, -4.0])
        before = clip_gradients([p], norm, value)
        return p.grad.tolist(), float(before)

    assert clipped(0.0, 0.0) == ([3.0, -4.0], 5.0)
    assert clipped(10.0, 0.0) == ([3.0, -4.0], 5.0)
    grad, before = clipped(1.0, 0.0)
    assert grad == pytest.approx([0.6, -0.8], abs=1e-5)
    assert before == 5.0
    assert clipped(0.0, 3.5) == ([3.0, -3.5], 5.0)


def test_averaging_starts_where_it_is_told_to() -> None:
    p = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(make_options("adding", {"optimizer": "asgd", "lr": 1.0}), torch.nn.ParameterList([p]))
    seen = []
    for k in range(6):
        if k == 3:
            start_averaging(optimizer)
        p.grad = torch.tensor([-1.0])  # a step of one
        optimizer.step()
        seen.append(p.item())
        if k < 3:
            assert asgd_averages(optimizer)[p].item() == p.item()
    assert seen == [1, 2, 3, 4, 5, 6]
    assert asgd_averages(optimizer)[p].item() == pytest.approx(
        5.5
    )  # of 5 and 6: torch sets the weight of a step one ahead


def test_every_token_is_measured_with_the_state_carried() -> None:
    model = LanguageModel(
        9, LanguageModelOptions(cell="gru", hidden_size=6, embedding_size=0, dropout_output=0.5)
    ).double()
    ids = np.random.default_rng(0).integers(9, size=1200)
    x = torch.from_numpy(np.concatenate([[3], ids[:-1]]))[None]
    expected = cross_entropy(model.eval()(x).logits[0], torch.from_numpy(ids)).item()
    model.train()
    done: list[int] = []
    assert mean_loss(model, ids, first=3, progress=done.append) == pytest.approx(expected, rel=1e-12)
    assert sum(done) == 1200
    assert model.training, "it is left as it was"
    assert perplexity(1e9) == math.inf


@torch.no_grad()
def test_the_gap_between_hearing_the_text_and_hearing_itself() -> None:
    model = LanguageModel(7, LanguageModelOptions(cell="lstm", hidden_size=6, embedding_size=0)).double()
    ids = np.random.default_rng(0).integers(7, size=80)
    got = free_running_gap(model, ids, lead=5, steps=3, rows=4)
    model.eval()
    free, told = [], []
    for at in np.linspace(0, 80 - 9, 4).astype(int):
        text = torch.from_numpy(ids[at : at + 9])
        heard = text[:6].tolist()
        for target in text[6:]:
            free.append(cross_entropy(model(torch.tensor([heard])).logits[0, -1], target).item())
            heard.append(int(model(torch.tensor([heard])).logits[0, -1].argmax()))
        told += cross_entropy(model(text[None, :-1]).logits[0, 5:], text[6:], reduction="none").tolist()
    assert got == pytest.approx(np.mean(free) - np.mean(told), rel=1e-9)
    assert math.isnan(free_running_gap(model, ids[:20]))


def test_files_given_for_validation_and_test_leave_the_rest_to_training(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name} {name}\n" * 50)
    a, b, c = (str(tmp_path / name) for name in "abc")
    whole = load_data(LanguageOptions(texts=(a,), valid=(b,), test=(c,)))
    assert len(whole.train) == 200
    assert whole.valid_text.text().startswith("b b")
    part = load_data(LanguageOptions(texts=(a,), valid=(b,)))
    assert 180 < len(part.train) < 200
    assert "b" not in part.vocab.ids, "the vocabulary is the training text's"


def test_the_average_of_weights_is_the_sum_of_its_definition() -> None:
    p, beta, steps = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64)), 0.7, 12
    average, path = WeightAverage([p], beta), [p.detach().clone()]
    for t in range(steps):
        with torch.no_grad():
            p.copy_(torch.tensor([math.sin(t), t * t], dtype=torch.float64))
        average.update(t)
        path.append(p.detach().clone())
    expected = path[0]
    for t in range(steps):
        kept = min(beta, (1 + t) / (10 + t))
        expected = kept * expected + (1 - kept) * path[t + 1]
    torch.testing.assert_close(average.values[0], expected, rtol=1e-12, atol=0)
    weights = p.detach().clone()
    swap_weights(average.pairs())
    torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=0)
    swap_weights(average.pairs())
    assert torch.equal(p.detach(), weights)


def test_a_run_is_trained_from_a_folder_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise session.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(session.metadata, "version", missing)
    assert session._version() == ""

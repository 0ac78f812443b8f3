"""Networks of numbers: what they standardise, their sums over paths, and one step at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recur.models.classifiers import SignalClassifier, SignalTagger, Transcriber
from recur.models.layers import SignalInput
from recur.reference.network import ctc
from recur.tasks import options_class
from tests.support import close

LENGTHS = torch.tensor([7, 4, 5])


def options(task: str = "tag", **fields: Any) -> Any:
    return options_class(task)(
        **{"hidden_size": 6, "embedding_size": 0, "dropout_input": 0.0, "dropout_output": 0.0, **fields}
    )


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 7, 2, dtype=torch.float64)


def test_steps_are_standardised_and_projected(x: torch.Tensor) -> None:
    plain = SignalInput(2).double()
    plain.fit(torch.tensor([3.0, -1.0]), torch.tensor([2.0, 0.5]))
    close(plain(x), (x - torch.tensor([3.0, -1.0])) / torch.tensor([2.0, 0.5]))
    assert set(plain.state_dict()) == {"mean", "deviation"}
    wide = SignalInput(2, 5).double()
    assert wide.project is not None
    close(wide.vectors(x[:, 0]), x[:, 0] @ wide.project.weight.T + wide.project.bias)
    assert (plain.width, wide.width) == (2, 5)


def test_noise_is_for_learning(x: torch.Tensor) -> None:
    noisy = SignalInput(2, noise=0.5).double()
    apart = torch.stack([noisy(x) - x for _ in range(200)])
    assert float(apart.std()) == pytest.approx(0.5, rel=0.05)
    close(noisy.eval()(x), x)


def test_the_loss_is_the_sum_over_paths_of_every_row(x: torch.Tensor) -> None:
    model = Transcriber(2, 3, options(direction="both")).double()
    labels = [[0, 0, 2], [], [1, 2, 1]]
    padded = torch.tensor([[0, 0, 2], [-1, -1, -1], [1, 2, 1]])
    logits = model(x, LENGTHS).detach().requires_grad_()
    found = model.negative_log_likelihood(logits, LENGTHS, padded, torch.tensor([3, 0, 3]))
    found.sum().backward()
    assert logits.grad is not None
    for k, n in enumerate(LENGTHS.tolist()):
        value, gradient = ctc(logits[k, :n].detach().numpy(), labels[k], model.blank)
        close(found[k].detach(), torch.tensor(value, dtype=found.dtype), tolerance=2e-5)
        close(logits.grad[k, :n], torch.from_numpy(gradient), tolerance=2e-5)
        assert not logits.grad[k, n:].any()


def test_what_no_path_can_say_costs_nothing_and_teaches_nothing(x: torch.Tensor) -> None:
    model = Transcriber(2, 2, options()).double()
    logits = model(x, LENGTHS).detach().requires_grad_()
    found = model.negative_log_likelihood(logits, LENGTHS, torch.tensor([[0] * 5] * 3), torch.tensor([5, 5, 5]))
    assert found.tolist() == [0.0, 0.0, 0.0]
    found.sum().backward()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_one_step_at_a_time(x: torch.Tensor) -> None:
    for time_input in ({}, {"time_input": True, "time_scale": 7.0}):
        model = SignalTagger(2, 3, options(direction="forward", **time_input)).double().eval()
        at_once, state = model(x, torch.tensor([7, 7, 7])), None
        for t in range(7):
            logits, state = model.step(x[:, t], state)
            close(logits, at_once[:, t].detach())
        chosen = (
            SignalClassifier(2, 4, options("classify", direction="forward", pool="max", **time_input)).double().eval()
        )
        carried = None
        for t in range(7):
            logits, carried = chosen.step(x[:, t], carried)
        close(logits, chosen(x, torch.tensor([7, 7, 7])).detach())


def test_the_loss_of_steps_leaves_out_those_without_a_label(x: torch.Tensor) -> None:
    model = SignalTagger(2, 3, options()).double()
    logits, labels = model(x, LENGTHS), torch.full((3, 7), -1)
    labels[0, 2], labels[2, 4] = 1, 0
    expected = -(logits[0, 2].log_softmax(-1)[1] + logits[2, 4].log_softmax(-1)[0]) / 2
    close(model.loss(logits, labels).detach(), expected.detach())

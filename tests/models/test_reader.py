"""Classifiers: against torch.nn with the same weights, streamed, and by the weights of classes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from recur.errors import OptionError
from recur.models import Classifier, Regressor
from recur.models.options import ClassifierOptions
from tests.support import close

K, CLASSES = 7, 3
IDS = torch.tensor([[1, 4, 2, 6, 5], [3, 3, 1, 0, 0]])
LENGTHS = torch.tensor([5, 3])


def options(**more: object) -> ClassifierOptions:
    return ClassifierOptions(**{"cell": "lstm", "hidden_size": 6, "num_layers": 2, "embedding_size": 4, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("pool", ["last", "mean", "max", "attention"])
def test_one_direction_can_be_streamed(pool: str) -> None:
    model = Classifier(K, CLASSES, options(pool=pool)).double().eval()
    carried = None
    for t in range(5):
        logits, carried = model.step(IDS[:1, t], carried)
        close(logits, model(IDS[:1, : t + 1], torch.tensor([t + 1])).detach())
    with pytest.raises(OptionError, match="one step at a time needs direction='forward'"):
        Classifier(K, CLASSES, options(direction="both")).step(IDS[:, 0])


def test_padding_changes_nothing() -> None:
    model = Classifier(K, CLASSES, options(direction="both")).double().eval()
    close(model(IDS, LENGTHS)[1].detach(), model(IDS[1:, :3], torch.tensor([3]))[0].detach())


def test_the_loss_weighs_classes() -> None:
    weights = torch.tensor([1.0, 2.0, 4.0])
    model = Classifier(K, CLASSES, options(), weights)
    logits, classes = torch.randn(4, CLASSES), torch.tensor([0, 1, 2, 2])
    each = -logits.log_softmax(-1)[torch.arange(4), classes]
    close(model.loss(logits, classes), (each * weights[classes]).sum() / weights[classes].sum())
    close(Classifier(K, CLASSES, options()).loss(logits, classes), cross_entropy(logits, classes))
    assert "class_weights" not in model.state_dict()


def test_a_regressor_reads_the_last_state() -> None:
    model = Regressor(2, options(num_layers=1)).double()
    lstm = nn.LSTM(2, 6, batch_first=True).double()
    lstm.load_state_dict(model.recurrent.state_dict())
    x = torch.randn(3, 8, 2, dtype=torch.float64)
    close(model(x).detach(), model.output(lstm(x)[0][:, -1])[:, 0].detach())

"""Graphs of the models of the adding and copying problems."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recur.export.graphs import Portable, Value, capture, ready
from recur.export.reading import tagger_of
from recur.models.signals import Regressor
from recur.models.tagger import OutputTagger, Tagger
from recur.tasks.common.predictor import Predictor
from recur.tasks.copy.predictor import Copier
from recur.tasks.copy.task import BLANK, GO, MESSAGE, SYMBOLS


class Whole(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> tuple[Tensor]:
        return (self.model(*given),)


def adder(predictor: Predictor[Regressor]) -> Portable:
    graph = capture("sequence", Whole(ready(predictor.model)), [Value("x", ("B", "T", 2))], [Value("value", ("B",))])
    settings = {"reads": "numbers", "features": 2, "stack": 1}
    return Portable("adding", "numbers", predictor.name, {"sequence": graph}, settings=settings)


def copier(predictor: Copier) -> Portable:
    """A tagger of tokens that are numbers: 0 … 7, silence, and the sign to recall."""
    model = ready(predictor.model)
    assert isinstance(model, Tagger | OutputTagger)
    tokens, token = (
        Value(name, shape, torch.int64, SYMBOLS + 2) for name, shape in (("tokens", ("B", "T")), ("token", ("B",)))
    )
    labels = (*tuple(str(k) for k in range(SYMBOLS)), "")
    settings = {
        "reads": "tokens",
        "words": False,
        "silence": BLANK,
        "go": GO,
        "message": MESSAGE,
        "length": predictor.task.length,
    }
    return tagger_of("copy", predictor, model, tokens, token, labels, settings)

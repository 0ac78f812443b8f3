"""Small models of numbers as graphs: sums of marked numbers, recalled messages, rows of a table."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from recur.export.graphs import Portable, Value, capture, ready
from recur.export.reading import tagger_of
from recur.models.row import RowModel
from recur.models.signals import Regressor
from recur.models.tagger import OutputTagger, Tagger
from recur.tasks.classes import classes_of
from recur.tasks.copy.predictor import Copier
from recur.tasks.copy.task import BLANK, GO, MESSAGE, SYMBOLS
from recur.tasks.predictor import Predictor
from recur.tasks.table.predictor import RowPredictor


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


class Row(nn.Module):
    """Numbers as they stand in a table (B, D), not a number where none does, and words as ones and zeros (B, W)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: RowModel, options: Any) -> None:
        super().__init__()
        self.model, self.classes = model, bool(options.classes)
        self.register_buffer("mean", torch.tensor(options.column_mean, dtype=torch.float64))
        self.register_buffer("deviation", torch.tensor(options.column_deviation, dtype=torch.float64))

    def forward(self, numbers: Tensor, words: Tensor) -> tuple[Tensor]:
        D = numbers.shape[1]
        x = (numbers - self.mean[:D]) / self.deviation[:D]
        found: Tensor = self.model(torch.cat([torch.where(x == x, x, 0.0).float(), words], dim=1))
        if self.classes:
            return (found.log_softmax(-1),)
        return (found[:, 0].to(torch.float64) * self.deviation[-1] + self.mean[-1],)


def row(predictor: RowPredictor) -> Portable:
    model, o, vocabs = ready(predictor.model), predictor.task.options, predictor.run.vocabs
    assert isinstance(model, RowModel)
    numbers, words = (classes_of(vocabs[name]) for name in ("numbers", "words"))
    labels = classes_of(vocabs["labels"]) if o.classes else ()
    output = Value("log_p", ("B", len(labels))) if labels else Value("value", ("B",), torch.float64)
    inputs = [Value("numbers", ("B", len(numbers)), torch.float64), Value("words", ("B", len(words)))]
    graph = capture("row", Row(model, o), inputs, [output])
    settings = {"numbers": list(numbers), "words": list(words), "target": o.target}
    kind = "classifier" if labels else "numbers"
    return Portable("table", kind, predictor.name, {"row": graph}, vocabs=vocabs, labels=labels, settings=settings)

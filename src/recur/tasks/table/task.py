"""One column of a table from the others of its row, 1 → 1: a class or a number, by a network of one step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from recur.models import RowModel
from recur.run import Vocabs
from recur.tasks.classes import class_of, classes_of, label_vocab, numbers_of, validation
from recur.tasks.contract import Baseline, Moment, Task, TrainingStep, Validation
from recur.tasks.examples import Shuffled, split
from recur.tasks.linear import softmax_regression
from recur.tasks.table.data import (
    Inputs,
    Row,
    check_targets,
    find_inputs,
    is_class,
    moments,
    numbers_in,
    read_rows,
    target_of,
    vectors,
)
from recur.tasks.table.options import TableOptions
from recur.tasks.watching import FEW, with_classes
from recur.typedefs import Metrics


class RowBatch(NamedTuple):
    x: Tensor
    y: Tensor
    """(B,): classes, or standardised numbers."""

    @classmethod
    def of(cls, rows: Sequence[RowBatch]) -> Self:
        return cls(torch.stack([row.x for row in rows]), torch.stack([row.y for row in rows]))


@dataclass(frozen=True)
class RowData:
    vocabs: Vocabs
    train: list[RowBatch]
    valid: list[RowBatch]


class TableTask(Task[TableOptions, RowData, RowModel, RowBatch]):
    name = "table"
    unit = "rows"
    likelihood = False

    @property
    def curve(self) -> str:
        return "valid_error" if self.options.classes else "valid_unexplained"

    @classmethod
    def settle(cls, options: TableOptions) -> TableOptions:
        train = split(options, read_rows)[0]
        target = target_of(train, options.target)
        check_targets(train, target)
        classes = options.classes if options.classes is not None else is_class(train, target)
        options = options.changed(target=target, classes=classes)
        if not options.column_mean:
            columns = [*Inputs.of(find_inputs(train, target)).numbers, *([] if classes else [target])]
            mean, deviation = moments(train, columns) if columns else ((), ())
            options = options.changed(column_mean=mean, column_deviation=deviation)
        return super().settle(options)

    @property
    def architecture(self) -> str:
        return "feed-forward"

    def read(self, vocabs: Vocabs | None = None) -> RowData:
        train, valid, _ = split(self.options, read_rows)
        check_targets([*train, *valid], self.options.target)
        if vocabs is None:
            vocabs = find_inputs(train, self.options.target)
            if self.options.classes:
                vocabs = {**vocabs, "labels": label_vocab(row.cells[self.options.target] for row in train)}
        return RowData(vocabs, self.encode(train, vocabs), self.encode(valid, vocabs))

    def encode(self, rows: Sequence[Row], vocabs: Vocabs, known: bool = True) -> list[RowBatch]:
        """Rows as vectors with their targets; where those are not known, 0."""
        o = self.options
        x = torch.tensor(vectors(rows, Inputs.of(vocabs), o.column_mean, o.column_deviation)).float()
        if not known:
            y = torch.zeros(len(rows))
        elif o.classes:
            classes = numbers_of(vocabs["labels"])
            y = torch.tensor([class_of(row.cells.get(o.target, ""), classes, row.where) for row in rows])
        else:
            y = torch.tensor(self.scaled_targets(rows)).float()
        return [RowBatch(*pair) for pair in zip(x, y, strict=True)]

    def scaled_targets(self, rows: Sequence[Row]) -> np.ndarray[Any, Any]:
        o = self.options
        found: np.ndarray[Any, Any] = (numbers_in(rows, [o.target])[:, 0] - o.column_mean[-1]) / o.column_deviation[-1]
        return found

    def describe(self, data: RowData) -> str:
        inputs = Inputs.of(data.vocabs)
        kind = f"one of {len(classes_of(data.vocabs['labels']))} classes" if self.options.classes else "a number"
        columns = f"{len(inputs.numbers)} columns of numbers and {len(inputs.words)} words"
        return f"{len(data.train):,} rows to learn from, {columns}; {self.options.target} is {kind}"

    def baselines(self, data: RowData) -> list[Baseline]:
        valid = RowBatch.of(data.valid)
        plain = plain_outputs(RowBatch.of(data.train), valid.x, self._outputs(data.vocabs), bool(self.options.classes))
        found = []
        for name, outputs in plain.items():
            metrics = {f"valid_{metric}": value for metric, value in self.score(outputs, valid.y).items()}
            found.append(Baseline(name, metrics[self.curve], metrics))
        return found

    def _outputs(self, vocabs: Vocabs) -> int:
        return len(classes_of(vocabs["labels"])) if self.options.classes else 1

    def new_model(self, vocabs: Vocabs) -> RowModel:
        inputs = Inputs.of(vocabs)
        return RowModel(len(inputs.numbers) + len(inputs.words), self._outputs(vocabs), self.options)

    def batches(self, data: RowData) -> Shuffled[RowBatch, RowBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, RowBatch.of)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(outputs, y) if self.options.classes else mse_loss(outputs[:, 0], y)

    def training_step(
        self, model: RowModel, batch: RowBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        device = model.output.bias.device
        loss = self.loss(model(batch.x.to(device)), batch.y.to(device))
        return TrainingStep(loss, len(batch.y), "one step")

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(self._outputs(vocabs), 3)) if self.options.classes else math.inf

    def score(self, outputs: Tensor, y: Tensor) -> Metrics:
        """Of classes the share that is wrong; of numbers the share of their variance that is left, which is 1 − R²."""
        if self.options.classes:
            return {"error": float((outputs.argmax(-1) != y).float().mean())}
        left = float((outputs[:, 0] - y).square().mean() / (y - y.mean()).square().mean().clamp_min(1e-12))
        rmse = float((outputs[:, 0] - y).square().mean().sqrt()) * self.options.column_deviation[-1]
        return {"unexplained": left, "r2": 1 - left, "rmse": rmse}

    def validate(self, model: RowModel, data: RowData) -> Validation:
        outputs, y = outputs_of(model, data.valid)
        if self.options.classes:
            return validation(outputs, y.tolist())
        found = self.score(outputs, y)
        metrics = {f"valid_{name}": value for name, value in found.items()}
        return Validation(found["unexplained"], metrics, f"valid R² {found['r2']:.4f}, RMSE {found['rmse']:.4g}")

    def sample(self, model: RowModel, data: RowData) -> str:
        outputs, y = outputs_of(model, data.valid[:FEW])
        shown = [f"row {n}" for n in range(1, len(y) + 1)]
        if self.options.classes:
            return with_classes(shown, outputs.argmax(-1).tolist(), y.tolist(), classes_of(data.vocabs["labels"]))
        mean, deviation = self.options.column_mean[-1], self.options.column_deviation[-1]
        pairs = zip(shown, (outputs[:, 0] * deviation + mean).tolist(), (y * deviation + mean).tolist(), strict=True)
        return "\n".join(f"{row} → {found:.4g}   it is {true:.4g}" for row, found, true in pairs)


@torch.no_grad()
def outputs_of(model: RowModel, rows: Sequence[RowBatch]) -> tuple[Tensor, Tensor]:
    """The outputs (n, O) for rows, and their targets."""
    batch = RowBatch.of(rows)
    return model(batch.x.to(model.output.bias.device)).cpu(), batch.y


def plain_outputs(train: RowBatch, x: Tensor, outputs: int, classes: bool) -> dict[str, Tensor]:
    """What plain models of the training rows say of others, (n, outputs) each: always the same, and the linear one."""
    if classes:
        same = torch.zeros(len(x), outputs).index_fill(1, train.y.bincount().argmax(), 1.0)
    else:
        same = train.y.mean().expand(len(x), 1)
    name = "the most frequent class" if classes else "the mean"
    return {name: same, "linear": linear_model(train, x, outputs, classes)}


def linear_model(train: RowBatch, x: Tensor, outputs: int, classes: bool) -> Tensor:
    """What a linear model of the training rows says of others, (n, outputs)."""
    if not classes:
        ones = [torch.cat([part, part.new_ones(len(part), 1)], 1).double() for part in (train.x, x)]
        ridge = 1e-6 * torch.eye(ones[0].shape[1], dtype=torch.float64)
        w = torch.linalg.solve(ones[0].T @ ones[0] + ridge, ones[0].T @ train.y.double())
        found: Tensor = (ones[1] @ w)[:, None].float()
        return found
    return softmax_regression(train.x, train.y, outputs, x, decay=1e-3)


TASK = TableTask

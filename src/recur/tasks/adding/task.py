"""The adding problem: the sum of two marked numbers in a long row of numbers (Hochreiter and Schmidhuber 1997).

x_t = (u_t, m_t)     u uniform in 0 … 1, m one at two steps, one in each half, and zero elsewhere
y = Σ_t u_t m_t      who always says 1 has a mean squared error of 1/6; below 0.01 it is solved
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from recur.models import Regressor
from recur.runs import Vocabs
from recur.tasks.adding.options import AddingOptions
from recur.tasks.common.batching import FEW, with_time_scale
from recur.tasks.common.contract import Baseline, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.synthetic import VALID, GeneratedData, SyntheticTask
from recur.utils.types import Metrics

SOLVED = 0.01


class Sums(NamedTuple):
    x: Tensor
    y: Tensor


class AddingTask(SyntheticTask[AddingOptions, Sums, Regressor]):
    name = "adding"
    curve = "valid_mse"
    likelihood = False

    @property
    def length(self) -> int:
        return self.options.length

    @classmethod
    def settle(cls, options: AddingOptions) -> AddingOptions:
        return super().settle(with_time_scale(options, lambda: [options.length]))

    def draw(self, random: np.random.Generator, rows: int) -> Sums:
        T, half = self.length, self.length // 2
        numbers, marks = random.random((rows, T)), np.zeros((rows, T))
        every = np.arange(rows)
        marks[every, random.integers(0, half, rows)] = 1
        marks[every, random.integers(half, T, rows)] = 1
        x = torch.from_numpy(np.stack([numbers, marks], axis=-1)).float()
        return Sums(x, torch.from_numpy((numbers * marks).sum(1)).float())

    def describe(self, data: GeneratedData[Sums]) -> str:
        return f"rows of {self.length} numbers, two of them to add; always saying 1 has an error of 0.167"

    def baselines(self, data: GeneratedData[Sums]) -> list[Baseline]:
        return [Baseline("always 1", 1 / 6, {"mse": 1 / 6})]

    def new_model(self, vocabs: Vocabs) -> Regressor:
        return Regressor(2, self.options)

    def training_step(
        self, model: Regressor, batch: Sums, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        device = model.output.bias.device
        loss = mse_loss(model(batch.x.to(device)), batch.y.to(device))
        return TrainingStep(loss, len(batch.y), model.backend)

    def score(self, model: Regressor, batch: Sums) -> Metrics:
        device = model.output.bias.device
        return {"mse": float(mse_loss(model(batch.x.to(device)), batch.y.to(device)))}

    def is_solved(self, scores: Metrics) -> bool:
        return scores["mse"] < SOLVED

    def validate(self, model: Regressor, data: GeneratedData[Sums]) -> Validation:
        error = self.score(model, data.held_out(VALID))["mse"]
        return Validation(error, {"valid_mse": error}, f"valid squared error {error:.4f}")

    def sample(self, model: Regressor, data: GeneratedData[Sums]) -> str:
        x, y = (part[:FEW] for part in data.held_out(VALID))
        found = model(x.to(model.output.bias.device)).cpu()
        marked = [" + ".join(f"{u:.3f}" for u, m in row if m) for row in x.tolist()]
        rows = zip(marked, found.tolist(), y.tolist(), strict=True)
        return "\n".join(f"{what} → {said:.3f}   it is {true:.3f}" for what, said, true in rows)


TASK = AddingTask

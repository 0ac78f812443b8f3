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

from recur.errors import OptionError
from recur.models import Regressor
from recur.train.config import Config
from recur.train.tasks.synthetic import VALID, Generated, SyntheticTask
from recur.train.tasks.task import Learned, Measured, Moment, Vocabs

SOLVED = 0.01


class Sums(NamedTuple):
    x: Tensor
    y: Tensor


class AddingTask(SyntheticTask):
    title = "the task adding"
    reads = frozenset({"length", "bptt"})
    curve = "valid_mse"
    likelihood = False

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.length < 2:
            raise OptionError(f"adding needs a row of at least 2 numbers, got --length {config.length}")

    def draw(self, random: np.random.Generator, rows: int) -> Sums:
        T, half = self.config.length, self.config.length // 2
        numbers, marks = random.random((rows, T)), np.zeros((rows, T))
        every = np.arange(rows)
        marks[every, random.integers(0, half, rows)] = 1
        marks[every, random.integers(half, T, rows)] = 1
        x = torch.from_numpy(np.stack([numbers, marks], axis=-1)).float()
        return Sums(x, torch.from_numpy((numbers * marks).sum(1)).float())

    def about(self, data: Generated) -> str:
        return f"rows of {self.config.length} numbers, two of them to add; always saying 1 has an error of 0.167"

    def new_model(self, vocabs: Vocabs) -> Regressor:
        return Regressor(2, self.options())

    def learn(self, model: Regressor, batch: Sums, state: Any, moment: Moment) -> Learned:
        device = model.output.bias.device
        loss = mse_loss(model(batch.x.to(device)), batch.y.to(device))
        return Learned(loss, len(batch.y), model.backend)

    def score(self, model: Regressor, batch: Sums) -> dict[str, float]:
        device = model.output.bias.device
        return {"mse": float(mse_loss(model(batch.x.to(device)), batch.y.to(device)))}

    def is_solved(self, scores: dict[str, float]) -> bool:
        return scores["mse"] < SOLVED

    def measure(self, model: Regressor, data: Generated) -> Measured:
        error = self.score(model, data.held(VALID))["mse"]
        return Measured(error, {"valid_mse": error}, f"valid squared error {error:.4f}")


TASK = AddingTask

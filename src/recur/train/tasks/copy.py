"""The copying problem: ten symbols, a long silence, and the ten again (Hochreiter and Schmidhuber 1997; Arjovsky, Shah
and Bengio 2016).

    in    s_1 … s_10   blank × (T − 1)   go   blank × 10
    out   blank × (T + 10)                    s_1 … s_10

Who remembers nothing has a loss of 10 ln 8 / (T + 20) and is right about one symbol in eight; 99 % is solved.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.models import Tagger
from recur.train.tasks.synthetic import VALID, Generated, SyntheticTask
from recur.train.tasks.task import Learned, Measured, Moment, Vocabs

SYMBOLS, MESSAGE = 8, 10
BLANK, GO = SYMBOLS, SYMBOLS + 1
SOLVED = 0.99


class Messages(NamedTuple):
    x: Tensor
    y: Tensor


class CopyTask(SyntheticTask):
    title = "the task copy"
    reads = frozenset({"length", "bptt", "embedding"})
    network = (*SyntheticTask.network, "embedding")
    curve = "valid_error"

    def draw(self, random: np.random.Generator, rows: int) -> Messages:
        T = self.config.length
        x = np.full((rows, T + 2 * MESSAGE), BLANK)
        y = x.copy()
        x[:, :MESSAGE] = y[:, -MESSAGE:] = random.integers(0, SYMBOLS, (rows, MESSAGE))
        x[:, MESSAGE + T - 1] = GO
        return Messages(torch.from_numpy(x), torch.from_numpy(y))

    def about(self, data: Generated) -> str:
        forgetful = MESSAGE * math.log(SYMBOLS) / (self.config.length + 2 * MESSAGE)
        said = f"{MESSAGE} symbols to recall after {self.config.length} steps"
        return f"{said}; remembering nothing has a loss of {forgetful:.4f}"

    def new_model(self, vocabs: Vocabs) -> Tagger:
        return Tagger(SYMBOLS + 2, SYMBOLS + 1, self.options())

    def logits(self, model: Tagger, batch: Messages) -> Tensor:
        rows, T = batch.x.shape
        device = model.output.bias.device
        every = torch.arange(rows * T, device=device)
        found: Tensor = model(batch.x.to(device), torch.full((rows,), T), every)
        return found

    def learn(self, model: Tagger, batch: Messages, state: Any, moment: Moment) -> Learned:
        logits = self.logits(model, batch)
        return Learned(cross_entropy(logits, batch.y.flatten().to(logits.device)), batch.y.numel(), model.backend)

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(SYMBOLS + 1)

    def score(self, model: Tagger, batch: Messages) -> dict[str, float]:
        logits = self.logits(model, batch).cpu()
        given = logits.argmax(-1).view_as(batch.y)
        right = (given == batch.y)[:, -MESSAGE:].float().mean()
        return {"accuracy": float(right), "loss": float(cross_entropy(logits, batch.y.flatten()))}

    def is_solved(self, scores: dict[str, float]) -> bool:
        return scores["accuracy"] >= SOLVED

    def measure(self, model: Tagger, data: Generated) -> Measured:
        found = self.score(model, data.held(VALID))
        metrics = {f"valid_{name}": value for name, value in found.items()} | {"valid_error": 1 - found["accuracy"]}
        said = f"valid accuracy {found['accuracy']:6.2%} of recalled symbols"
        return Measured(found["loss"], metrics, said)


TASK = CopyTask

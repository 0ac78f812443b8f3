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

from recur.cells.registry import configured_cell
from recur.models import OutputTagger, Tagger, WordBatch
from recur.runs import Vocabs
from recur.tasks.common.batching import FEW, example_line, with_time_scale
from recur.tasks.common.contract import Baseline, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.synthetic import VALID, GeneratedData, SyntheticTask
from recur.tasks.copy.options import CopyOptions
from recur.utils.types import Metrics

SYMBOLS, MESSAGE = 8, 10
BLANK, GO = SYMBOLS, SYMBOLS + 1
SOLVED = 0.99

OPEN = 4.0
"""Where a forget gate starts: who forgets within a few steps never sees what it should have kept."""


class Messages(NamedTuple):
    x: Tensor
    y: Tensor


class CopyTask(SyntheticTask[CopyOptions, Messages, Tagger | OutputTagger]):
    name = "copy"
    unit = "symbols"
    curve = "valid_error"

    @property
    def length(self) -> int:
        return self.options.length

    @classmethod
    def settle(cls, options: CopyOptions) -> CopyOptions:
        if (
            options.recurrence == "hidden"
            and options.forget_bias is None
            and options.chrono is None
            and configured_cell(options.cell).forget_gate is not None
        ):
            options = options.changed(forget_bias=OPEN)
        return super().settle(with_time_scale(options, lambda: [options.length + 2 * MESSAGE]))

    def draw(self, random: np.random.Generator, rows: int) -> Messages:
        return self.asked(random.integers(0, SYMBOLS, (rows, MESSAGE)))

    def asked(self, messages: np.ndarray[Any, Any]) -> Messages:
        """Messages (B, 10), the silence behind each, and when they are to be recalled."""
        T = self.length
        x = np.full((len(messages), T + 2 * MESSAGE), BLANK)
        y = x.copy()
        x[:, :MESSAGE] = y[:, -MESSAGE:] = messages
        x[:, MESSAGE + T - 1] = GO
        return Messages(torch.from_numpy(x), torch.from_numpy(y))

    def describe(self, data: GeneratedData[Messages]) -> str:
        forgetful = MESSAGE * math.log(SYMBOLS) / (self.length + 2 * MESSAGE)
        return (
            f"{MESSAGE} symbols to recall after {self.length} steps; remembering nothing has a loss of {forgetful:.4f}"
        )

    def baselines(self, data: GeneratedData[Messages]) -> list[Baseline]:
        return [Baseline("remembering nothing", 1 - 1 / SYMBOLS, {"accuracy": 1 / SYMBOLS})]

    def new_model(self, vocabs: Vocabs) -> Tagger | OutputTagger:
        kind = OutputTagger if self.options.recurrence == "output" else Tagger
        return kind(SYMBOLS + 2, SYMBOLS + 1, self.options)

    def logits(self, model: Tagger | OutputTagger, batch: Messages, y: Tensor | None = None) -> Tensor:
        """With the outputs y (B, T), behind those, where a step reads the output before."""
        device = model.output.bias.device
        words = WordBatch.of_tokens(batch.x).to(device)
        found: Tensor = model(words, None if y is None else y.to(device))
        return found.flatten(0, 1)

    def training_step(
        self, model: Tagger | OutputTagger, batch: Messages, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        logits = self.logits(model, batch, batch.y)
        return TrainingStep(cross_entropy(logits, batch.y.flatten().to(logits.device)), batch.y.numel(), model.backend)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(SYMBOLS + 1)

    def score(self, model: Tagger | OutputTagger, batch: Messages) -> Metrics:
        logits = self.logits(model, batch)
        y = batch.y.to(logits.device)
        right = (logits.argmax(-1).view_as(y) == y)[:, -MESSAGE:].float().mean()
        return {"accuracy": float(right), "loss": float(cross_entropy(logits, y.flatten()))}

    def is_solved(self, scores: Metrics) -> bool:
        return scores["accuracy"] >= SOLVED

    def validate(self, model: Tagger | OutputTagger, data: GeneratedData[Messages]) -> Validation:
        found = self.score(model, data.held_out(VALID))
        metrics = {f"valid_{name}": value for name, value in found.items()} | {"valid_error": 1 - found["accuracy"]}
        summary = f"valid accuracy {found['accuracy']:6.2%} of recalled symbols"
        return Validation(found["loss"], metrics, summary)

    def sample(self, model: Tagger | OutputTagger, data: GeneratedData[Messages]) -> str:
        few = Messages(*(part[:FEW] for part in data.held_out(VALID)))
        found = self.logits(model, few).argmax(-1).cpu().view_as(few.y)[:, -MESSAGE:].tolist()
        spelled = [" ".join("·" if k == BLANK else str(k) for k in row) for row in found]
        true = [" ".join(map(str, row)) for row in few.y[:, -MESSAGE:].tolist()]
        return "\n".join(example_line(what, said, what) for what, said in zip(true, spelled, strict=True))


TASK = CopyTask

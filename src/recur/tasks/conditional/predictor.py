"""What a trained conditional language model can do: write lines of a label, and be measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from recur.decode import Choice, greedy, sample, search
from recur.errors import OptionError, unknown
from recur.models import ConditionalModel
from recur.run import Run
from recur.tasks.conditional.task import ConditionalTask
from recur.tasks.contract import Predictor
from recur.tasks.examples import split
from recur.text import SPECIALS, read_pairs
from recur.typedefs import JsonObject


class ConditionalWriter(Predictor[ConditionalModel]):
    """A trained language model of lines with labels."""

    task: ConditionalTask

    def __init__(self, task: ConditionalTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.vocab = self.run.vocab
        self.labels = self.run.vocabs["labels"].tokens[len(SPECIALS) :]

    def __repr__(self) -> str:
        return f"ConditionalWriter({str(self.run.path)!r}, {len(self.labels)} labels, {len(self.vocab)} tokens)"

    @torch.no_grad()
    def generate(
        self, label: str, *, samples: int = 1, seed: int | None = None, width: int = 0, **choice: Any
    ) -> list[str]:
        """Lines of a label, drawn as one batch; with `width`, the likeliest that beam search finds."""
        if label not in self.labels:
            raise OptionError(unknown("label", label, self.labels))
        k = torch.tensor([self.run.vocabs["labels"].ids[label]], device=self.model.labels.weight.device)
        writer = self.model.writer(k)
        if width:
            found = search(writer, width, width)[0] if width > 1 else greedy(writer)
        else:
            found = sample(writer, Choice(**choice), samples, seed)[0]
        return [self.vocab.decode(made.ids) for made in found]

    @torch.no_grad()
    def evaluate(self, texts: Sequence[str] | None = None, **options: Any) -> JsonObject:
        """Perplexity of lines given their labels, ends included."""
        self.refuse(options)
        pairs = read_pairs(texts) if texts else split(self.task.options, read_pairs)[2]
        encoded = self.task.encode(pairs, self.run.vocabs["labels"], self.vocab, training=False)
        found = self.task.losses(self.model, encoded)
        predictions = sum(len(line) + 1 for _, line in encoded)
        bits = found["loss"] / math.log(2) * predictions / sum(len(pair.target) for pair in pairs)
        counts = {"tokens": predictions, "sequences": len(pairs)}
        return {"model": self.name, **found, "bits_per_character": bits, **counts}


PREDICTOR = ConditionalWriter

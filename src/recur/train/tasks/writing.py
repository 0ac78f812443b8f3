"""What the tasks that write sequences share: pairs, a decoder, a teacher."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from recur.models import Decoder, Scores
from recur.text import Pair, Vocab
from recur.text.tokens import Ids
from recur.train.config import Config
from recur.train.measure import perplexity
from recur.train.pairs import PairBatch, PairBatches, PairData, batch_of, encode_pairs
from recur.train.tasks.task import Learned, Moment, Task, Vocabs
from recur.train.teacher import Teacher

ROWS = 128
"""Sequences measured or written as one batch."""

MANY = 2000
"""While training, no more validation pairs than this are measured."""


class WritingTask(Task):
    """Pairs; the second half is written by a decoder."""

    target_name = "target"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.teacher = Teacher.parse(config.teacher)

    def encode(self, pairs: list[Pair], source: Vocab, target: Vocab, *, training: bool) -> list[tuple[Ids, Ids]]:
        """Ids of pairs, or what is wrong with one. To be measured, a target may be longer than what is ever written."""
        bounded = training or self.config.stop == "length"
        return encode_pairs(
            pairs,
            source,
            target,
            longest=self.config.longest if bounded else None,
            equal=self.config.stop == "source",
        )

    def batches(self, data: PairData) -> PairBatches:
        return PairBatches(data.train, self.config.batch, self.config.seed)

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs[self.target_name]), 3))

    @abstractmethod
    def score(self, model: Any, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        """The model's scores of a batch."""

    def learn(self, model: Any, batch: PairBatch, state: Any, moment: Moment) -> Learned:
        decoder: Decoder = model.decoder
        predictions = int(decoder.predictions(batch.lengths).sum())
        batch = batch.to(decoder.symbols.weight.device)
        rows, steps = len(batch.target), batch.target.shape[1] + 1
        forced = self.teacher.draw(rows, steps, moment.step, moment.progress)
        scores = self.score(model, batch, None if forced is None else forced.to(batch.target.device))
        loss = decoder.loss(scores, batch.target, batch.lengths).sum() / predictions
        penalty: Tensor | float = 0.0
        if self.config.smoothing:
            smoothed = decoder.loss(scores, batch.target, batch.lengths, self.config.smoothing).sum() / predictions
            penalty = smoothed - loss  # the loss that is shown stays a likelihood
        return Learned(loss, predictions, scores.backend, penalty)

    def losses(self, model: Any, pairs: Sequence[tuple[Ids, Ids]]) -> dict[str, float]:
        """Mean loss with a teacher, mean loss without one, and the gap between them."""
        device, total = model.decoder.symbols.weight.device, {"loss": 0.0, "free_loss": 0.0}
        count = 0
        for batch in batches_of(pairs):
            count += int(model.decoder.predictions(batch.lengths).sum())
            batch = batch.to(device)
            never = torch.zeros(len(batch.target), batch.target.shape[1] + 1, dtype=torch.bool, device=device)
            for name, forced in (("loss", None), ("free_loss", never)):
                scores = self.score(model, batch, forced)
                total[name] += float(model.decoder.loss(scores, batch.target, batch.lengths).double().sum())
        found = {name: value / count for name, value in total.items()}
        return found | {"gap": found["free_loss"] - found["loss"], "perplexity": perplexity(found["loss"])}


def batches_of(pairs: Sequence[tuple[Ids, Ids]]) -> Iterator[PairBatch]:
    """Pairs in their order, in batches to measure or write with."""
    for at in range(0, len(pairs), ROWS):
        yield batch_of(pairs[at : at + ROWS])

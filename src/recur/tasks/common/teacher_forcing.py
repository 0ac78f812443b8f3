"""What the tasks that write sequences share: pairs, a decoder, a teacher."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from recur.data.batching import Shuffled, in_order
from recur.data.text import Pair, Vocab
from recur.models import Decoder, Scores
from recur.runs import Vocabs
from recur.tasks.common.batching import EncodedPair, PairBatch, PairData, encode_pairs, pair_batch, pair_size
from recur.tasks.common.contract import Task, TrainingProgress, TrainingStep
from recur.tasks.common.metrics import perplexity
from recur.tasks.common.options import DecoderTaskOptions, TeacherForcing
from recur.utils.types import Metrics

ROWS = 128
"""Sequences measured or written as one batch."""

MEASURED = 500
"""While training, about so many validation pairs are measured at most."""


Item = TypeVar("Item")
OptionsT = TypeVar("OptionsT", bound=DecoderTaskOptions)
WriterT = TypeVar("WriterT", bound=nn.Module)


class DecoderTask(Task[OptionsT, PairData, WriterT, PairBatch]):
    """Pairs; the second half is written by a decoder."""

    unit = "symbols"
    target_name: ClassVar[str] = "target"
    """The vocabulary of what is written."""

    def __init__(self, options: OptionsT) -> None:
        super().__init__(options)
        self.teacher = TeacherForcing.parse(options.teacher)

    def encode(self, pairs: Sequence[Pair], source: Vocab, target: Vocab, *, training: bool) -> list[EncodedPair]:
        """Ids of pairs, or what is wrong with one. To be measured, a target may be longer than what is ever written."""
        bounded = training or self.options.stop == "length"
        return encode_pairs(
            pairs,
            source,
            target,
            longest=self.options.longest if bounded else None,
            equal=self.options.stop == "source",
        )

    def batches(self, data: PairData) -> Shuffled[EncodedPair, PairBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, pair_batch, pair_size)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs[self.target_name]), 3))

    @abstractmethod
    def score(self, model: WriterT, batch: PairBatch, forced: Tensor | None = None) -> Scores:
        """The model's scores of a batch."""

    def training_step(
        self, model: WriterT, batch: PairBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        decoder = _decoder(model)
        predictions = int(decoder.predictions(batch.lengths).sum())
        batch = batch.to(decoder.symbols.weight.device)
        rows, steps = len(batch.target), batch.target.shape[1] + 1
        forced = self.teacher.draw(rows, steps, moment.step, moment.progress)
        scores = self.score(model, batch, None if forced is None else forced.to(batch.target.device))
        plain, smoothed = decoder.losses(scores, batch.target, batch.lengths, self.options.smoothing)
        loss = plain.sum() / predictions
        penalty = (
            smoothed.sum() / predictions - loss if self.options.smoothing else 0.0
        )  # the loss shown is a likelihood
        return TrainingStep(loss, predictions, scores.backend, penalty)

    def losses(self, model: WriterT, pairs: Sequence[EncodedPair]) -> Metrics:
        """Mean loss with a teacher, mean loss without one, and the gap between them."""
        decoder, total = _decoder(model), {"loss": 0.0, "free_loss": 0.0}
        device, count = decoder.symbols.weight.device, 0
        for batch in pair_batches(pairs):
            count += int(decoder.predictions(batch.lengths).sum())
            batch = batch.to(device)
            never = torch.zeros(len(batch.target), batch.target.shape[1] + 1, dtype=torch.bool, device=device)
            for name, forced in (("loss", None), ("free_loss", never)):
                scores = self.score(model, batch, forced)
                total[name] += float(decoder.loss(scores, batch.target, batch.lengths).double().sum())
        found = {name: value / count for name, value in total.items()}
        return found | {"gap": found["free_loss"] - found["loss"], "perplexity": perplexity(found["loss"])}


def _decoder(model: nn.Module) -> Decoder:
    decoder = model.decoder
    assert isinstance(decoder, Decoder)
    return decoder


def sample_evenly(items: Sequence[Item]) -> Sequence[Item]:
    """Evenly spread ones, not many more than are measured while training."""
    return items[:: -(-len(items) // MEASURED)]


def pair_batches(pairs: Sequence[EncodedPair]) -> Iterator[PairBatch]:
    """Pairs in their order, in batches to measure or write with."""
    return in_order(pairs, ROWS, pair_batch)

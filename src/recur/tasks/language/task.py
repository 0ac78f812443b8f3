"""Language modelling: one long text in windows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from recur.baselines.text_ngrams import fit_best_ngram
from recur.data.text import Batch, Corpus
from recur.decoding import SamplingOptions, generate
from recur.i18n import Message
from recur.models import LanguageModel
from recur.runs import Vocabs, pick_device
from recur.tasks.common.batching import with_time_scale
from recur.tasks.common.contract import (
    Baseline,
    Batches,
    PretrainedSlots,
    Task,
    TrainingProgress,
    TrainingStep,
    Validation,
    cpu_sampling_blocker,
)
from recur.tasks.common.metrics import perplexity
from recur.tasks.common.splits import reading_of
from recur.tasks.language import sizing
from recur.tasks.language.data import (
    LanguageData,
    TextWindow,
    TextWindows,
    cut_windows,
    first_input,
    has_room,
    in_reading_order,
    load_data,
    make_stream,
    place_of,
)
from recur.tasks.language.evaluation import free_running_gap, mean_loss
from recur.tasks.language.options import LanguageOptions
from recur.utils.types import JsonObject

SMALL = 250_000
"""Texts of fewer tokens are learned by heart within the budget, and want more dropout."""

WORD = 6
"""Characters of a word and its space, about."""

ALPHABET = 1000
"""Texts with more characters, such as Chinese ones, have the defaults of words."""


class LanguageTask(Task[LanguageOptions, LanguageData, LanguageModel, Batch | TextWindow]):
    """Task on one long text, split into windows."""

    name = "language"
    verb = "sample"
    on_text = True
    places = PretrainedSlots(output=("output", "bias"))
    sizes = sizing.FIELDS

    @classmethod
    def settle(cls, options: LanguageOptions) -> LanguageOptions:
        text = Corpus.of(*options.texts, reading=reading_of(options))
        wide = options.token != "char" or has_many_characters(text)
        options = options.for_token("word") if wide else options
        if options.tuned_on:
            data = load_data(options)
            return super().settle(sizing.for_text(options, len(data.train), len(data.vocab)))
        if text.characters < SMALL * (1 if options.token == "char" else WORD):  # read many times in a minute
            options = options.with_defaults(dropout_input=0.4 if wide else 0.1, dropout_output=0.5 if wide else 0.3)
        return super().settle(with_time_scale(options, lambda: [len(load_data(options).train)]))

    @classmethod
    def settled_words(cls, before: LanguageOptions, after: LanguageOptions) -> str:
        return sizing.describe_rule(before, after) if before.tuned_on else ""

    @classmethod
    def sizes_itself(cls, asked: LanguageOptions) -> bool:
        return sizing.applies(asked)

    def sized(self, asked: LanguageOptions, data: LanguageData, speed: sizing.Speed) -> tuple[JsonObject, str]:
        words = self.options.token != "char" or len(data.vocab) > ALPHABET
        text = sizing.TextStatistics(len(data.train), len(data.vocab), words)
        found = sizing.size(asked, self.options, text, speed)
        return sizing.fields_of(asked, found.options), sizing.describe_size(asked, found)

    def read(self, vocabs: Vocabs | None = None) -> LanguageData:
        return load_data(self.options, vocabs["vocab"] if vocabs else None, self.new_reading())

    def describe(self, data: LanguageData) -> str:
        text = data.train_text
        way = ", read from the end" if self.options.direction == "backward" else ""
        size = f"{text.characters:,} training characters ({text.notes}), vocabulary of {len(data.vocab):,} tokens"
        lost = [(data.unseen[0], "training"), (data.unseen[1], "validation")]
        left_out = [f"; {n:,} unseen symbols of the {part} text left out" for n, part in lost if n]
        return f"{text.name}: {size}{way}{''.join(left_out)}"

    def baselines(self, data: LanguageData) -> list[Baseline]:
        backward = self.options.direction == "backward"
        model, found = fit_best_ngram(data.vocab, data.train_text, data.valid_text, backward)
        name = Message("{n}-gram, from the end", n=model.order) if backward else Message("{n}-gram", n=model.order)
        return [Baseline(name, found)]

    def new_model(self, vocabs: Vocabs) -> LanguageModel:
        return LanguageModel(len(vocabs["vocab"]), self.options, vocabs["vocab"].writable().tolist())

    def start(self, model: LanguageModel, data: LanguageData) -> None:
        """Initialise the output bias with the token frequencies."""
        if self.options.bias_init == "unigram" and not self.options.init_range and model.bias is not None:
            seen = torch.tensor(data.vocab.counts, dtype=torch.float64) + 1
            with torch.no_grad():
                model.bias.copy_((seen / seen.sum()).log())

    def batches(self, data: LanguageData) -> Batches[Batch | TextWindow]:
        stream, device = make_stream(self.options, self.batch, data), pick_device(self.options.device)
        return TextWindows(stream, device) if device.type == "cuda" and has_room(stream, device) else stream

    def unrecordable(self, data: LanguageData) -> str:
        if self.options.softmax == "adaptive":
            return "an adaptive softmax asks which tokens came"
        return cpu_sampling_blocker(self.options)

    def training_step(
        self, model: LanguageModel, batch: Batch | TextWindow, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        x, y, at, fresh = cut_windows(batch, model.device)
        predicted = model(x, None if fresh else state, start=at if self.options.time_input else None)
        return TrainingStep(
            loss=model.loss(predicted, y),
            predictions=y.numel(),
            backend=predicted.trace[0].backend,
            penalty=predicted.penalty,
            state=model.detached(predicted.state) if self.options.partition == "sequential" else None,
            rate=y.shape[1] / self.options.window if self.options.jitter else 1.0,
        )

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["vocab"]), 3))

    def validate(self, model: LanguageModel, data: LanguageData) -> Validation:
        at = place_of(data.valid_text, len(data.valid), self.options)
        loss = mean_loss(model, data.valid, first_input(data.vocab), at=at)
        metrics = {"valid_loss": loss, "valid_perplexity": perplexity(loss)}
        if not math.isnan(gap := free_running_gap(model, data.valid, at=at)):
            metrics["valid_gap"] = gap
        summary = f"valid perplexity {perplexity(loss):8.3f}  loss {loss:.3f} nats"
        if data.vocab.tokenizer.kind == "char":
            metrics["valid_bits_per_character"] = loss / math.log(2)
            summary += f"  {loss / math.log(2):.3f} bits/char"
        return Validation(loss, metrics, summary)

    def measured(self, data: LanguageData) -> int:
        return 0 if self.options.time_input else len(data.valid)

    def thinned(self, data: LanguageData, every: int) -> LanguageData:
        """Return the data with the beginning of the validation text, because a text has no examples to leave out."""
        return data if every == 1 else replace(data, valid=data.valid[: len(data.valid) // every])

    def sample(self, model: LanguageModel, data: LanguageData) -> str:
        drawn = generate(model, [first_input(data.vocab)], 120, SamplingOptions(temperature=0.8), seed=0)
        return data.vocab.decode(in_reading_order(np.array([tokens[0] for tokens in drawn]), self.options))


def has_many_characters(text: Corpus) -> bool:
    """Return True if the first million characters have more kinds than an alphabet."""
    seen: set[str] = set()
    done = 0
    for piece in text.pieces():
        seen.update(piece)
        done += len(piece)
        if done > 1_000_000:
            break
    return len(seen) > ALPHABET


TASK = LanguageTask

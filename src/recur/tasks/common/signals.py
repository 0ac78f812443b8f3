"""Sequences of vectors (signals) as examples: stacking, batches, and the base of tasks that read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from recur.data.batching import Shuffled, in_order
from recur.data.signals import Signal, Values, as_values, labels_of, read_signals
from recur.errors import TextError
from recur.models.classifiers import NO_LABEL, SignalEncoder
from recur.models.layers import SignalInput
from recur.runs import Vocabs
from recur.tasks.common.batching import with_time_scale
from recur.tasks.common.classification import class_names, class_numbers, label_vocab, names_vocab
from recur.tasks.common.contract import Task, variable_length_blocker
from recur.tasks.common.options import with_input
from recur.tasks.common.splits import split

ROWS = 64
"""Number of sequences in an evaluation batch."""


class SignalExample(NamedTuple):
    values: Values
    """(T, D), neighbours stacked where they are to be."""
    labels: list[int]
    """Their numbers; NONE for those that training did not have."""
    names: tuple[str, ...]
    where: str

    @property
    def size(self) -> int:
        return len(self.values)


class SignalBatch(NamedTuple):
    x: Tensor
    """(B, T, D), 0 behind the ends."""
    lengths: Tensor | None
    """(B,), on the CPU, where scans want them; None where all are as long."""
    labels: Tensor
    """(B, L), NONE behind the ends."""
    counts: Tensor

    @classmethod
    def of(cls, examples: Sequence[SignalExample]) -> Self:
        lengths, counts = [example.size for example in examples], [len(example.labels) for example in examples]
        x = np.zeros((len(examples), max(lengths), examples[0].values.shape[1]), np.float32)
        labels = np.full((len(examples), max(1, *counts)), NO_LABEL)
        for row, marks, example in zip(x, labels, examples, strict=True):
            row[: example.size] = example.values
            marks[: len(example.labels)] = example.labels
        ends = torch.tensor(lengths) if min(lengths) < max(lengths) else None
        return cls(torch.from_numpy(x), ends, torch.from_numpy(labels), torch.tensor(counts))

    @property
    def steps(self) -> Tensor:
        """Return the number of steps of each sequence, (B,)."""
        return torch.full(self.x.shape[:1], self.x.shape[1]) if self.lengths is None else self.lengths


@dataclass(frozen=True)
class SignalData:
    vocabs: Vocabs
    train: list[SignalExample]
    valid: list[SignalExample]


def stacked(values: Values, k: int) -> Values:
    """Return (T, D) as (⌈T / k⌉, k · D): k neighbouring steps become one; the last step is repeated as padding."""
    T, D = values.shape
    found: Values = np.pad(values, ((0, -T % k), (0, 0)), mode="edge").reshape(-1, k * D)
    return found


def mean_and_deviation(examples: Sequence[SignalExample]) -> tuple[Tensor, Tensor]:
    """Return the mean and deviation of every feature over all steps; deviation 1 for a constant feature."""
    steps = sum(example.size for example in examples)
    mean = sum(example.values.sum(0, dtype=np.float64) for example in examples) / steps
    squares = sum(np.square(example.values - mean).sum(0) for example in examples) / steps
    deviation = np.sqrt(squares)
    flat = deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-30)
    return torch.from_numpy(mean).float(), torch.from_numpy(np.where(flat, 1.0, deviation)).float()


OptionsT = TypeVar("OptionsT", bound=Any)
ModelT = TypeVar("ModelT", bound=SignalEncoder)


class SignalTask(Task[OptionsT, SignalData, ModelT, SignalBatch]):
    """Base of tasks on signals: from files to batches, for any kind of label."""

    defaults: dict[str, Any] = {}
    """Where they differ from those for texts."""

    @classmethod
    def settle(cls, options: OptionsT) -> OptionsT:
        options = with_input(options).with_defaults(embedding_size=0, **cls.defaults)
        options = with_time_scale(options, lambda: [example.size for example in cls(options).read().train])
        return super().settle(options)

    @staticmethod
    def targets(signal: Signal) -> tuple[str, ...]:
        """Return the labels of a sequence."""
        return labels_of(signal)

    def read(self, vocabs: Vocabs | None = None) -> SignalData:
        train, valid, _ = split(self.options, read_signals, self.new_reading())
        if vocabs is None:
            steps = sum(len(signal.values) for signal in train)
            names = {str(k): steps for k in range(1, train[0].values.shape[1] + 1)}
            labels = label_vocab(label for signal in train for label in self.targets(signal))
            vocabs = {"features": names_vocab(names), "labels": labels}
        return SignalData(vocabs, self.encode(train, vocabs), self.encode(valid, vocabs))

    def encode(self, signals: Iterable[Signal], vocabs: Vocabs) -> list[SignalExample]:
        """Encode sequences; those without labels get none."""
        numbers, width = class_numbers(vocabs["labels"]), len(class_names(vocabs["features"]))
        found = []
        for signal in signals:
            if signal.values.shape[1] != width:
                here = signal.values.shape[1]
                raise TextError(f"{signal.where} has {here} features per step, and this model was trained on {width}")
            names = () if signal.target is None else self.targets(signal)
            labels = [numbers.get(name, NO_LABEL) for name in names]
            found.append(SignalExample(stacked(signal.values, self.options.stack), labels, names, signal.where))
        return found

    def describe(self, data: SignalData) -> str:
        steps = sum(example.size for example in data.train)
        D, classes = len(class_names(data.vocabs["features"])), len(class_names(data.vocabs["labels"]))
        many = f"{D} features a step" if D > 1 else "one feature a step"
        return f"{len(data.train):,} training sequences of {steps:,} steps, {many}, {classes} classes"

    def width(self, vocabs: Vocabs) -> int:
        return len(class_names(vocabs["features"])) * int(self.options.stack)

    def start(self, model: ModelT, data: SignalData) -> None:
        assert isinstance(model.embedding, SignalInput)
        model.embedding.fit(*mean_and_deviation(data.train))

    def batches(self, data: SignalData) -> Shuffled[SignalExample, SignalBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, SignalBatch.of, lambda example: example.size)

    def unrecordable(self, data: SignalData) -> str:
        return variable_length_blocker((example.size for example in data.train), self.options)

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(vocabs["labels"]), 3))


def signals_of(given: str | Path | np.ndarray[Any, Any]) -> list[Signal]:
    """Yield the sequences of a file, a folder or an archive, or one given as an array (T, D) or (T,)."""
    if isinstance(given, np.ndarray):
        return [Signal(as_values(given, "the sequence"), None, "the sequence")]
    return read_signals([str(given)], labelled=False)


def by_length(
    examples: Sequence[SignalExample], run: Callable[[SignalBatch], Iterable[Any]], rows: int = ROWS
) -> list[Any]:
    """Run batches of examples of similar length, and return the results in the order of the examples."""
    order = sorted(range(len(examples)), key=lambda k: examples[k].size)
    found: list[Any] = [None] * len(examples)
    batches = in_order([examples[k] for k in order], rows, SignalBatch.of)
    for k, one in zip(order, (one for batch in batches for one in run(batch)), strict=True):
        found[k] = one
    return found


def steps_in_turn(steps: Iterable[np.ndarray[Any, Any]], k: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield steps as they arrive, k of them stacked: (1, k · D) each."""
    kept: list[np.ndarray[Any, Any]] = []
    for step in steps:
        kept.append(np.asarray(step, np.float32).reshape(1, -1))
        if len(kept) == k:
            yield stacked(np.concatenate(kept), k)
            kept = []
    if kept:
        yield stacked(np.concatenate(kept), k)

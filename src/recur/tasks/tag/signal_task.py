"""Labels of a sequence of numbers: one for each step, n → n, or label sequences without alignment, n → m (CTC).

.npz, or a folder of .npy and .csv (recur/signals).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import cross_entropy

from recur.data.signals import labels_of, read_signals
from recur.decoding.ctc import Labelling, Language, best_path, prefix_beam
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models.signals import NO_LABEL, SignalTagger, Transcriber
from recur.runs import Vocabs
from recur.tasks.classes import TIE, class_scores, class_weights, classes_of, confusion, weight_of
from recur.tasks.contract import Baseline, Moment, Remark, TrainingStep, Validation
from recur.tasks.metrics import show
from recur.tasks.scores import edits_per_symbol, error_rates
from recur.tasks.signal_plain import Guesses, plain_sequences, plain_steps
from recur.tasks.signals import Example, SignalBatch, SignalData, SignalTask, by_length
from recur.tasks.tag.options import TagOptions
from recur.tasks.watching import FEW, examples_line
from recur.utils.types import Metrics

WORD_ENDS = ("_", "|", "<space>", "▁", "␣")
"""Labels that stand between words, where there are words."""

DEFAULTS = {"hidden": 128, "dropout_input": 0.0, "dropout_output": 0.2, "variational": False, "rate": 0.003}


class SignalTag(SignalTask[TagOptions, SignalTagger]):
    """A label for each step."""

    name = "tag"
    unit = "steps"
    defaults = DEFAULTS

    @property
    def curve(self) -> str:
        return "valid_error"

    @classmethod
    def settle(cls, options: TagOptions) -> TagOptions:
        if options.loss is None:
            signals = read_signals(options.texts)
            aligned = all(len(labels_of(signal)) == len(signal.values) for signal in signals)
            options = options.changed(loss="steps" if aligned else "ctc")
        if options.loss == "steps" and options.stack > 1:
            raise OptionError(f"--stack {options.stack} leaves fewer steps than there are labels: one for each step")
        if options.loss == "ctc" and options.class_weights == "balanced":
            raise OptionError("--class-weights balanced is for labels of steps: CTC has no loss of a single label")
        if options.loss == "ctc" and cls is SignalTag:
            return Transcribe.settle(options)
        return super().settle(options)

    def encode(self, signals: Any, vocabs: Vocabs) -> list[Example]:
        found = super().encode(signals, vocabs)
        for example in found:
            if example.names and len(example.names) != example.size:
                each = f"{len(example.names)} labels for {example.size} steps"
                raise TextError(f"{example.where} has {each}; label sequences without alignment take --loss ctc")
        return found

    def baselines(self, data: SignalData) -> Iterator[Baseline]:
        classes = classes_of(data.vocabs["labels"])
        for guess in plain_steps(data.train, data.valid, data.valid, classes):
            scores = step_scores(data.valid, guess.labels, classes)
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, 1 - scores["accuracy"], metrics)

    def new_model(self, vocabs: Vocabs) -> SignalTagger:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return SignalTagger(self.width(vocabs), len(classes_of(labels)), self.options, weights)

    def training_step(
        self, model: SignalTagger, batch: SignalBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        logits = model(batch.x.to(model.device), batch.lengths)
        loss, weight = model.loss(logits, batch.labels.to(model.device)), weight_of(batch.labels, model.class_weights)
        count = batch.labels.numel() if batch.lengths is None else int(batch.counts.sum())
        return TrainingStep(loss, count, model.backend, weight=weight)

    def validate(self, model: SignalTagger, data: SignalData) -> Validation:
        found = label_steps(model, data.valid)
        scores = step_scores(data.valid, found.labels, classes_of(data.vocabs["labels"]))
        error = 1 - scores["accuracy"]
        metrics = {"valid_error": error, "valid_loss": found.loss}
        metrics |= {f"valid_{name}": value for name, value in scores.items()}
        summary = f"valid accuracy {scores['accuracy']:6.2%}, macro F1 {scores['macro_f1']:.3f}"
        return Validation(error + TIE * found.loss, metrics, summary)

    def sample(self, model: SignalTagger, data: SignalData) -> str:
        few = data.valid[:FEW]
        return _compared(few, label_steps(model, few).labels, data.vocabs)


class Found(NamedTuple):
    """What a model makes of sequences."""

    labels: list[list[int]]
    loss: float
    """Nats a label, of those that it knows."""


@torch.no_grad()
def label_steps(model: SignalTagger, examples: Sequence[Example]) -> Found:
    """The likeliest label of every step."""

    def run(batch: SignalBatch) -> Iterator[tuple[list[int], float, int]]:
        logits = model(batch.x.to(model.device), batch.lengths).cpu()
        for row, labels, n in zip(logits, batch.labels, batch.steps.tolist(), strict=True):
            known = labels[:n][: len(row)]
            loss = (
                cross_entropy(row[: len(known)], known, ignore_index=NO_LABEL, reduction="sum")
                if len(known) == n
                else 0
            )
            yield row[:n].argmax(-1).tolist(), float(loss), int((known != NO_LABEL).sum())

    found = by_length(examples, run)
    return Found([labels for labels, _, _ in found], sum(f[1] for f in found) / max(sum(f[2] for f in found), 1))


def step_scores(examples: Sequence[Example], guesses: Sequence[Sequence[int]], classes: Sequence[str]) -> Metrics:
    """Accuracy and macro F1 over steps; a label that training did not have is one more class, which nobody says."""
    targets = [len(classes) if k == NO_LABEL else k for example in examples for k in example.labels]
    return class_scores(confusion(targets, [k for row in guesses for k in row], len(classes) + 1))


# Without alignment ----------------------------------------------------------------------------------------------


class Transcribe(SignalTag):
    """Label sequences, each shorter than its steps."""

    unit = "labels"
    defaults = DEFAULTS | {"layers": 2}

    @property
    def curve(self) -> str:
        return "valid_symbol_error_rate"

    def encode(self, signals: Any, vocabs: Vocabs) -> list[Example]:
        return SignalTask.encode(self, signals, vocabs)

    def read(self, vocabs: Vocabs | None = None) -> SignalData:
        data = super().read(vocabs)
        for example in data.train:
            needed = len(example.labels) + sum(a == b for a, b in zip(example.names, example.names[1:], strict=False))
            if needed > example.size:
                few = f"its {len(example.labels)} labels need {needed} steps, and it has {example.size}"
                raise TextError(f"{example.where}: {few}{'; take a smaller --stack' * (self.options.stack > 1)}")
        return data

    def baselines(self, data: SignalData) -> Iterator[Baseline]:
        classes = classes_of(data.vocabs["labels"])
        for guess in plain_sequences(data.train, data.valid):
            scores = sequence_scores(data.valid, guess.labels, classes)
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, scores["symbol_error_rate"], metrics)

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        if metrics.get("empty", 0) > 0.5:
            more = f"--epochs {2 * (self.options.epochs or 30):g}"
            yield Remark(Message("most outputs are empty: CTC begins with blanks and has not left them"), more)

    def new_model(self, vocabs: Vocabs) -> Transcriber:
        return Transcriber(self.width(vocabs), len(classes_of(vocabs["labels"])), self.options)

    def training_step(
        self, model: SignalTagger, batch: SignalBatch, state: tuple[Any, ...] | None, moment: Moment
    ) -> TrainingStep:
        assert isinstance(model, Transcriber)
        logits = model(batch.x.to(model.device), batch.lengths)
        nll = model.negative_log_likelihood(logits, batch.steps, batch.labels.to(model.device), batch.counts)
        labels = int(batch.counts.sum())
        return TrainingStep(nll.sum() / max(labels, 1), labels, model.backend)

    def unrecordable(self, data: SignalData) -> str:
        return "CTC asks how many labels each sequence has"

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        """A label may be spread over many steps, and all of them are wrong at first."""
        return 1e4

    def validate(self, model: SignalTagger, data: SignalData) -> Validation:
        assert isinstance(model, Transcriber)
        found = transcribe(model, data.valid)
        labels = [list(row[0].labels) for row in found.labellings]
        scores = sequence_scores(data.valid, labels, classes_of(data.vocabs["labels"]))
        metrics = {"valid_loss": found.loss} | {f"valid_{name}": value for name, value in scores.items()}
        words = [f"{name.removesuffix('_error_rate')}s wrong {show(name, value)}" for name, value in scores.items()]
        summary = f"valid {', '.join(words[:-1])}"
        return Validation(scores["symbol_error_rate"] + TIE * found.loss, metrics, summary)

    def sample(self, model: SignalTagger, data: SignalData) -> str:
        assert isinstance(model, Transcriber)
        few = data.valid[:FEW]
        return _compared(few, [list(row[0].labels) for row in transcribe(model, few).labellings], data.vocabs)


def _compared(examples: Sequence[Example], guesses: Sequence[Sequence[int]], vocabs: Vocabs) -> str:
    """Labels of sequences, beside what they should be."""
    names = classes_of(vocabs["labels"])
    return "\n".join(
        examples_line(f"sequence {n}, {one.size} steps", " ".join(names[k] for k in row), " ".join(one.names))
        for n, (one, row) in enumerate(zip(examples, guesses, strict=True), 1)
    )


class Transcribed(NamedTuple):
    labellings: list[list[Labelling]]
    """Of each sequence, the best first."""
    loss: float


@torch.no_grad()
def transcribe(
    model: Transcriber,
    examples: Sequence[Example],
    beam: int = 1,
    language: Language | None = None,
    weight: float = 0.0,
) -> Transcribed:
    """By the best path, or by a prefix beam of a width above 1, which a model of label sequences may rank too."""

    def run(batch: SignalBatch) -> Iterator[tuple[list[Labelling], float, int]]:
        logits = model(batch.x.to(model.device), batch.lengths)
        nll = model.negative_log_likelihood(logits, batch.steps, batch.labels.to(model.device), batch.counts)
        unknown = (batch.labels == NO_LABEL).sum(1) > batch.labels.shape[1] - batch.counts
        rows = logits.log_softmax(-1).double().cpu().numpy()
        of_each = zip(rows, batch.steps.tolist(), nll.tolist(), batch.counts.tolist(), unknown.tolist(), strict=True)
        for logp, n, loss, count, strange in of_each:
            if beam == 1:
                found = [best_path(logp[:n], model.blank)]
            else:
                found = prefix_beam(logp[:n], model.blank, beam, language=language, weight=weight)
            strange = strange or (count > 0 and loss == 0.0)  # labels that no path of so few steps leaves
            yield found, 0.0 if strange else loss, 0 if strange else count

    found = by_length(examples, run)
    loss = sum(f[1] for f in found) / max(sum(f[2] for f in found), 1)
    return Transcribed([f[0] for f in found], loss)


def sequence_scores(examples: Sequence[Example], guesses: Sequence[Sequence[int]], classes: Sequence[str]) -> Metrics:
    """Sequences wrong, edits for each label and, where some labels stand between words, for each word; and how many
    outputs are empty that should not be."""
    targets = [list(example.names) for example in examples]
    written = [[classes[k] for k in row] for row in guesses]
    found: Metrics = error_rates(targets, written)
    if between := set(WORD_ENDS) & set(classes):
        true, made = ([_words(row, between) for row in side] for side in (targets, written))
        found["word_error_rate"] = edits_per_symbol(true, made)
    empty = sum(not row and bool(target) for row, target in zip(written, targets, strict=True))
    return found | {"empty": empty / max(len(targets), 1)}


def _words(labels: Sequence[str], between: set[str]) -> list[str]:
    return "".join(" " if label in between else label for label in labels).split()


def beside(
    task: SignalTag, data: SignalData, measured: Sequence[Example], classes: Sequence[str]
) -> Iterator[tuple[Guesses, Metrics]]:
    """Plain models on what is measured, with their figures."""
    if isinstance(task, Transcribe):
        for guess in plain_sequences(data.train, measured):
            yield guess, sequence_scores(measured, guess.labels, classes)
        return
    for guess in plain_steps(data.train, data.valid, measured, classes):
        yield guess, step_scores(measured, guess.labels, classes)


def task_for(options: TagOptions) -> SignalTag:
    """By the loss."""
    return (Transcribe if options.loss == "ctc" else SignalTag)(options)


TASK = task_for

"""Tagging of signals: one label per step, or label sequences by CTC; tasks and predictors.

A prefix beam can use an n-gram model of label sequences: an ARPA file whose tokens are the labels.

recur ngram labels.txt --token word --save labels.arpa        one sequence per line, labels between spaces
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from recur.baselines.classifiers import BaselineLabels, sequence_baselines, step_baselines
from recur.baselines.ngram import NGram, read_arpa
from recur.data.signals import labels_of, read_signals
from recur.data.text import BOS, EOS, UNK
from recur.data.text.stream import Floats
from recur.decoding.ctc import LabelLanguageModel, Labelling, best_path, prefix_beam_search
from recur.errors import OptionError, TextError
from recur.i18n import Message
from recur.models.classifiers import NO_LABEL, SignalTagger, Transcriber
from recur.options import Count, NonNegative, checked
from recur.runs import Vocabs
from recur.tasks.common.batching import FEW, example_line
from recur.tasks.common.classification import TIE, class_names, class_scores, class_weights, confusion, total_weight
from recur.tasks.common.contract import Baseline, Remark, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.metrics import edits_per_symbol, error_rates, format_metric
from recur.tasks.common.predictor import Prediction, Predictor
from recur.tasks.common.signals import (
    SignalBatch,
    SignalData,
    SignalExample,
    SignalTask,
    by_length,
    signals_of,
    steps_in_turn,
)
from recur.tasks.tag.options import TagOptions
from recur.utils.types import JsonObject, Metrics

LEAST = 1e-10
"""The probability of what the model has never seen, at least: the network may know better."""


def label_language_model(model: NGram, labels: Sequence[str]) -> LabelLanguageModel:
    """Return a function from a prefix of labels to log P of each next label and, last, of the end."""
    known = model.vocab.ids
    if model.backward or not any(label in known for label in labels):
        why = "reads from the end" if model.backward else f"knows none of the labels {', '.join(labels[:5])}"
        raise OptionError(f"the n-gram model {why}: count lines of labels between spaces, recur ngram --token word")
    columns = [known.get(label, UNK) for label in labels]
    start = [] if model.vocab.line_end is None else [BOS]

    def language(prefix: tuple[int, ...]) -> Floats:
        p = model.distribution([*start, *(columns[k] for k in prefix)])
        found: Floats = np.log(np.maximum(p[[*columns, EOS]], LEAST))
        return found

    return language


WORD_ENDS = ("_", "|", "<space>", "▁", "␣")
"""Labels that stand between words, where there are words."""

DEFAULTS = {"hidden_size": 128, "dropout_input": 0.0, "dropout_output": 0.2, "variational": False, "lr": 0.003}


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

    def encode(self, signals: Any, vocabs: Vocabs) -> list[SignalExample]:
        found = super().encode(signals, vocabs)
        for example in found:
            if example.names and len(example.names) != example.size:
                each = f"{len(example.names)} labels for {example.size} steps"
                raise TextError(f"{example.where} has {each}; label sequences without alignment take --loss ctc")
        return found

    def baselines(self, data: SignalData) -> Iterator[Baseline]:
        classes = class_names(data.vocabs["labels"])
        for guess in step_baselines(data.train, data.valid, data.valid, classes):
            scores = step_scores(data.valid, guess.labels, classes)
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, 1 - scores["accuracy"], metrics)

    def new_model(self, vocabs: Vocabs) -> SignalTagger:
        labels = vocabs["labels"]
        weights = class_weights(labels) if self.options.class_weights == "balanced" else None
        return SignalTagger(self.width(vocabs), len(class_names(labels)), self.options, weights)

    def training_step(
        self, model: SignalTagger, batch: SignalBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        logits = model(batch.x.to(model.device), batch.lengths)
        loss, weight = (
            model.loss(logits, batch.labels.to(model.device)),
            total_weight(batch.labels, model.class_weights),
        )
        count = batch.labels.numel() if batch.lengths is None else int(batch.counts.sum())
        return TrainingStep(loss, count, model.backend, weight=weight)

    def validate(self, model: SignalTagger, data: SignalData) -> Validation:
        found = label_steps(model, data.valid)
        scores = step_scores(data.valid, found.labels, class_names(data.vocabs["labels"]))
        error = 1 - scores["accuracy"]
        metrics = {"valid_error": error, "valid_loss": found.loss}
        metrics |= {f"valid_{name}": value for name, value in scores.items()}
        summary = f"valid accuracy {scores['accuracy']:6.2%}, macro F1 {scores['macro_f1']:.3f}"
        return Validation(error + TIE * found.loss, metrics, summary)

    def sample(self, model: SignalTagger, data: SignalData) -> str:
        few = data.valid[:FEW]
        return _compared(few, label_steps(model, few).labels, data.vocabs)


class StepLabels(NamedTuple):
    """Labels that a model predicts for sequences."""

    labels: list[list[int]]
    loss: float
    """Nats a label, of those that it knows."""


@torch.no_grad()
def label_steps(model: SignalTagger, examples: Sequence[SignalExample]) -> StepLabels:
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
    return StepLabels([labels for labels, _, _ in found], sum(f[1] for f in found) / max(sum(f[2] for f in found), 1))


def step_scores(examples: Sequence[SignalExample], guesses: Sequence[Sequence[int]], classes: Sequence[str]) -> Metrics:
    """Accuracy and macro F1 over steps; a label that training did not have is one more class, which nobody says."""
    targets = [len(classes) if k == NO_LABEL else k for example in examples for k in example.labels]
    return class_scores(confusion(targets, [k for row in guesses for k in row], len(classes) + 1))


# Without alignment ----------------------------------------------------------------------------------------------


class Transcribe(SignalTag):
    """Label sequences, each shorter than its steps."""

    unit = "labels"
    defaults = DEFAULTS | {"num_layers": 2}

    @property
    def curve(self) -> str:
        return "valid_symbol_error_rate"

    def encode(self, signals: Any, vocabs: Vocabs) -> list[SignalExample]:
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
        classes = class_names(data.vocabs["labels"])
        for guess in sequence_baselines(data.train, data.valid):
            scores = sequence_scores(data.valid, guess.labels, classes)
            metrics = {f"valid_{name}": value for name, value in scores.items()}
            yield Baseline(guess.name, scores["symbol_error_rate"], metrics)

    def remarks(self, metrics: Metrics) -> Iterator[Remark]:
        if metrics.get("empty", 0) > 0.5:
            more = f"--epochs {2 * (self.options.epochs or 30):g}"
            yield Remark(Message("most outputs are empty: CTC still predicts blanks only"), more)

    def new_model(self, vocabs: Vocabs) -> Transcriber:
        return Transcriber(self.width(vocabs), len(class_names(vocabs["labels"])), self.options)

    def training_step(
        self, model: SignalTagger, batch: SignalBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
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
        scores = sequence_scores(data.valid, labels, class_names(data.vocabs["labels"]))
        metrics = {"valid_loss": found.loss} | {f"valid_{name}": value for name, value in scores.items()}
        words = [
            f"{name.removesuffix('_error_rate')}s wrong {format_metric(name, value)}" for name, value in scores.items()
        ]
        summary = f"valid {', '.join(words[:-1])}"
        return Validation(scores["symbol_error_rate"] + TIE * found.loss, metrics, summary)

    def sample(self, model: SignalTagger, data: SignalData) -> str:
        assert isinstance(model, Transcriber)
        few = data.valid[:FEW]
        return _compared(few, [list(row[0].labels) for row in transcribe(model, few).labellings], data.vocabs)


def _compared(examples: Sequence[SignalExample], guesses: Sequence[Sequence[int]], vocabs: Vocabs) -> str:
    """Labels of sequences, beside what they should be."""
    names = class_names(vocabs["labels"])
    return "\n".join(
        example_line(f"sequence {n}, {one.size} steps", " ".join(names[k] for k in row), " ".join(one.names))
        for n, (one, row) in enumerate(zip(examples, guesses, strict=True), 1)
    )


class Transcripts(NamedTuple):
    labellings: list[list[Labelling]]
    """Of each sequence, the best first."""
    loss: float


@torch.no_grad()
def transcribe(
    model: Transcriber,
    examples: Sequence[SignalExample],
    beam: int = 1,
    language: LabelLanguageModel | None = None,
    weight: float = 0.0,
) -> Transcripts:
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
                found = prefix_beam_search(logp[:n], model.blank, beam, language=language, weight=weight)
            strange = strange or (count > 0 and loss == 0.0)  # labels that no path of so few steps leaves
            yield found, 0.0 if strange else loss, 0 if strange else count

    found = by_length(examples, run)
    loss = sum(f[1] for f in found) / max(sum(f[2] for f in found), 1)
    return Transcripts([f[0] for f in found], loss)


def sequence_scores(
    examples: Sequence[SignalExample], guesses: Sequence[Sequence[int]], classes: Sequence[str]
) -> Metrics:
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
    task: SignalTag, data: SignalData, measured: Sequence[SignalExample], classes: Sequence[str]
) -> Iterator[tuple[BaselineLabels, Metrics]]:
    """Plain models on what is measured, with their figures."""
    if isinstance(task, Transcribe):
        for guess in sequence_baselines(data.train, measured):
            yield guess, sequence_scores(measured, guess.labels, classes)
        return
    for guess in step_baselines(data.train, data.valid, measured, classes):
        yield guess, step_scores(measured, guess.labels, classes)


def task_for(options: TagOptions) -> SignalTag:
    """By the loss."""
    return (Transcribe if options.loss == "ctc" else SignalTag)(options)


TASK = task_for


Given = str | Path | np.ndarray[Any, Any]
"""A file, a folder or an archive of sequences, or the numbers of one, (T, D) or (T,)."""

LM_WEIGHT = 0.5
"""Of an n-gram model's log-probabilities beside the network's."""


class SignalTagPredictor(Predictor[SignalTagger]):
    """A trained tagger of steps."""

    takes_files = True
    task: SignalTag
    counted = "steps"

    @property
    def labels(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    def _answer(self, found: Prediction) -> list[str]:
        """The labels of a sequence."""
        labels: list[str] = found["labels"]
        return labels

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Its figures, and beside them plain models'."""
        signals = self.examples(texts, read_signals)
        measured = self.task.encode(signals, self.run.vocabs)
        begun = time.perf_counter()
        figures = self._measure(measured, **options)
        count = sum(example.size for example in measured)
        found: JsonObject = {"model": self.name, **figures, "sequences": len(measured), "steps": count}
        found["steps_per_second"] = count / (time.perf_counter() - begun)
        if self.has_training_texts():
            data = self.task.read(self.run.vocabs)
            found["beside"] = [
                {"model": guess.name, **scores} for guess, scores in beside(self.task, data, measured, self.labels)
            ]
        return found

    def _measure(self, measured: Any, **options: Any) -> Metrics:
        self.refuse(options)
        found = label_steps(self.model, measured)
        return {**step_scores(measured, found.labels, self.labels), "loss": found.loss}

    def _predict(self, lines: Iterable[Given], **options: Any) -> Iterator[JsonObject]:
        """The likeliest label of every step."""
        self.refuse(options)
        for given in lines:
            signals = [signal._replace(target=None) for signal in signals_of(given)]
            found = label_steps(self.model, self.task.encode(signals, self.run.vocabs)).labels
            for signal, numbers in zip(signals, found, strict=True):
                labels = [self.labels[k] for k in numbers]
                yield {"input": signal.where, "output": " ".join(labels), "labels": labels}

    def stream(self, steps: Iterable[np.ndarray[Any, Any]]) -> Iterator[str]:
        """The label of each step as soon as it is read, in constant memory; for a network that reads forward."""
        state = None
        for x in steps_in_turn(steps, self.task.options.stack):
            logits, state = self.model.step(torch.from_numpy(x).to(self.device), state)
            yield self.labels[int(logits.argmax())]


class TranscriberPredictor(SignalTagPredictor):
    """A trained network of label sequences."""

    task: Transcribe

    def _measure(self, measured: Any, **options: Any) -> Metrics:
        found = transcribe(self._transcriber, measured, **self._search(options))
        labels = [list(row[0].labels) for row in found.labellings]
        return {**sequence_scores(measured, labels, self.labels), "loss": found.loss}

    def _search(self, options: JsonObject) -> dict[str, Any]:
        """How labels are looked for: by a beam of this width, ranked by an n-gram model too, as an ARPA file."""
        beam, lm = checked("beam", options.pop("beam", 1), Count), options.pop("lm", None)
        weight = options.pop("lm_weight", None)
        self.refuse(options)
        if lm is None and weight is not None:
            raise OptionError("--lm-weight is for --lm, which is not given")
        if lm is not None and beam == 1:
            raise OptionError("--lm ranks what a beam search finds: give a --beam above 1")
        language = None if lm is None else label_language_model(read_arpa(str(lm)), self.labels)
        weight = checked("lm_weight", LM_WEIGHT if weight is None else weight, NonNegative)
        return {"beam": beam, "language": language, "weight": weight}

    @property
    def _transcriber(self) -> Transcriber:
        assert isinstance(self.model, Transcriber)
        return self.model

    def _predict(self, lines: Iterable[Given], **options: Any) -> Iterator[JsonObject]:
        """The likeliest labels of each sequence; `nbest` of what a prefix beam of width `beam` finds."""
        nbest = checked("nbest", options.pop("nbest", 1), Count)
        search = self._search(options)
        if nbest > search["beam"]:
            raise OptionError(f"nbest must lie in 1 … {search['beam']}, the width of the beam, got {nbest}")
        for given in lines:
            signals = [signal._replace(target=None) for signal in signals_of(given)]
            found = transcribe(self._transcriber, self.task.encode(signals, self.run.vocabs), **search).labellings
            for signal, labellings in zip(signals, found, strict=True):
                made = [
                    {"output": " ".join(labels), "labels": labels, "score": logp}
                    for labels, logp in (([self.labels[k] for k in ids], logp) for ids, logp in labellings[:nbest])
                ]
                yield {"input": signal.where, **made[0], "nbest": made}

    def stream(self, steps: Iterable[np.ndarray[Any, Any]]) -> Iterator[str]:
        """Each label of the best path as soon as it begins."""
        state, before = None, self._transcriber.blank
        for x in steps_in_turn(steps, self.task.options.stack):
            logits, state = self.model.step(torch.from_numpy(x).to(self.device), state)
            label = int(logits.argmax())
            if label not in (before, self._transcriber.blank):
                yield self.labels[label]
            before = label


def predictor_for(task: SignalTag, *arguments: Any) -> SignalTagPredictor:
    """By the loss."""
    return (TranscriberPredictor if isinstance(task, Transcribe) else SignalTagPredictor)(task, *arguments)


PREDICTOR = predictor_for

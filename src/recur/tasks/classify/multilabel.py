"""Text classification with several labels per text: lines `a|b TAB text`, or lists of labels."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from recur.baselines.multilabel import MultiLabelBaseline, fit_logistic_regressions, frequent_labels
from recur.data.batching import Shuffled, in_order, padded
from recur.data.text import LabelledText, fit_lines, read_labelled
from recur.data.text.labelled import LABEL_MARK, TableInputs, read_inputs, several_labels
from recur.data.text.stream import Ids
from recur.errors import TextError, shown
from recur.models.multilabel import MultiLabelClassifier, best_thresholds
from recur.runs import Vocabs
from recur.tasks.classify.data import ROWS, encode_text, ngram_vocab
from recur.tasks.classify.options import ClassifyOptions
from recur.tasks.common.batching import FEW, choose_token, example_line, with_time_scale
from recur.tasks.common.classification import class_names, class_numbers, label_vocab
from recur.tasks.common.contract import (
    Baseline,
    PretrainedSlots,
    Task,
    TrainingProgress,
    TrainingStep,
    Validation,
)
from recur.tasks.common.predictor import Prediction, Predictor
from recur.tasks.common.splits import reading_of, split, with_columns
from recur.utils.types import JsonObject, Metrics


class MultiLabelExample(NamedTuple):
    ids: Ids
    labels: tuple[int, ...]
    text: str
    unseen: int = 0
    """Number of its labels that training did not have: none of them can be predicted."""

    @property
    def size(self) -> int:
        return len(self.ids)


class MultiLabelBatch(NamedTuple):
    ids: Tensor
    lengths: Tensor | None
    labels: Tensor
    """(labels of all rows,): numbers, those of the first row first."""
    rows: Tensor
    """(labels of all rows,): the row of each."""

    @classmethod
    def of(cls, examples: Sequence[MultiLabelExample]) -> Self:
        ids, lengths = padded([e.ids for e in examples])
        ends = None if bool((lengths == ids.shape[1]).all()) else lengths
        pairs = [(row, label) for row, e in enumerate(examples) for label in e.labels]
        rows, labels = zip(*pairs, strict=True) if pairs else ((), ())
        return cls(ids, ends, torch.tensor(labels, dtype=torch.long), torch.tensor(rows, dtype=torch.long))

    def targets(self, labels: int) -> Tensor:
        """Return 1 for each label that a row has, (B, labels)."""
        found = torch.zeros(len(self.ids), labels)
        found[self.rows, self.labels] = 1.0
        return found


@dataclass(frozen=True)
class MultiLabelData:
    vocabs: Vocabs
    train: list[MultiLabelExample]
    valid: list[MultiLabelExample]


def encode(examples: Sequence[LabelledText], vocabs: Vocabs) -> list[MultiLabelExample]:
    """Encode texts; labels that training did not have are counted."""
    classes = class_numbers(vocabs["labels"])
    found = []
    for one in examples:
        labels = several_labels(one.label)
        known = tuple(classes[label] for label in labels if label in classes)
        ids = encode_text(vocabs["vocab"], one.text, one.where)
        found.append(MultiLabelExample(ids, known, one.text, len(labels) - len(known)))
    return found


def targets_of(examples: Sequence[MultiLabelExample], labels: int) -> Tensor:
    found = torch.zeros(len(examples), labels)
    for row, example in enumerate(examples):
        found[row, list(example.labels)] = 1.0
    return found


def label_scores(predicted: Tensor, targets: Tensor, unseen: int = 0) -> Metrics:
    """Return F1 over all decisions (micro), its mean over labels that occur (macro), and the share of texts with
    exactly the right labels.

    Args:
        predicted, targets: (n, labels), bool or 0 and 1.
        unseen: number of further labels of the texts, none of which is predicted.
    """
    predicted, there = predicted.bool(), targets.bool()
    right = (predicted & there).sum(0).double()
    total = (predicted.sum(0) + there.sum(0)).double()
    occurs = total > 0
    f1 = 2 * right[occurs] / total[occurs]
    micro = 2 * float(right.sum()) / max(float(total.sum()) + unseen, 1.0)
    exact = float((predicted == there).all(1).double().mean()) if len(there) else 0.0
    return {"micro_f1": micro, "macro_f1": float(f1.mean()) if len(f1) else 0.0, "exact": exact}


def probability_scores(p: Tensor, predicted: Tensor, examples: Sequence[MultiLabelExample]) -> Metrics:
    targets = targets_of(examples, p.shape[1])
    loss = float(binary_cross_entropy(p.double().clamp(1e-12, 1 - 1e-12), targets.double()))
    return {**label_scores(predicted, targets, sum(e.unseen for e in examples)), "loss": loss}


def cross_fitted(p: Tensor, targets: Tensor) -> Tensor:
    """Return predictions of each half of the examples by thresholds of the other half, so that F1 is not optimistic."""
    found = torch.zeros_like(p, dtype=torch.bool)
    for half in (0, 1):
        mine, other = slice(half, None, 2), slice(1 - half, None, 2)
        found[mine] = p[mine] >= best_thresholds(p[other], targets[other])
    return found


@torch.no_grad()
def probabilities(models: Sequence[MultiLabelClassifier], examples: Sequence[MultiLabelExample]) -> Tensor:
    """Return probabilities (examples, labels), the mean over models."""
    found = []
    for model in models:
        batches = in_order(examples, ROWS, MultiLabelBatch.of)
        found.append(torch.cat([model(b.ids.to(model.device), b.lengths).sigmoid().cpu() for b in batches]))
    return torch.stack(found).mean(0)


class MultiLabelTask(Task[ClassifyOptions, MultiLabelData, MultiLabelClassifier, MultiLabelBatch]):
    """Classification of texts with any number of labels."""

    name = "classify"
    curve = "valid_micro_f1"
    unit = "texts"
    places = PretrainedSlots()

    @classmethod
    def settle(cls, options: ClassifyOptions) -> ClassifyOptions:
        options = with_columns(options)
        if options.token is None:
            texts = (example.text for example in read_labelled(options.texts, reading=reading_of(options)))
            options = options.changed(token=choose_token(texts))
        options = options.for_token(str(options.token))
        return super().settle(with_time_scale(options, lambda: [text.size for text in cls(options).read().train]))

    def read(self, vocabs: Vocabs | None = None) -> MultiLabelData:
        train, valid, _ = split(self.options, read_labelled, self.new_reading())
        if vocabs is None:
            texts, token = [example.text for example in train], self.options.token or "char"
            labels = [label for example in train for label in several_labels(example.label)]
            if not labels:
                raise TextError("no training example has a label")
            words = fit_lines(texts, token, **self.options.vocab_options())
            vocabs = {"vocab": words, "labels": label_vocab(labels)}
        data = MultiLabelData(vocabs, encode(train, vocabs), encode(valid, vocabs))
        if unseen := sum(example.unseen for example in data.valid):
            self.reading.add_note(f"{unseen:,} validation labels that training does not have count as errors")
        return data

    def describe(self, data: MultiLabelData) -> str:
        words, kind = len(data.vocabs["vocab"]), data.vocabs["vocab"].tokenizer.kind
        labels = len(class_names(data.vocabs["labels"]))
        mean = sum(len(example.labels) for example in data.train) / max(len(data.train), 1)
        return (
            f"{len(data.train):,} training texts, {words:,} tokens ({kind}s), {labels} labels, {mean:.2f} of them "
            "per text"
        )

    def baselines(self, data: MultiLabelData) -> Iterator[Baseline]:
        targets = targets_of(data.valid, len(class_names(data.vocabs["labels"])))
        for plain in fitted_baselines(data):
            p = plain.probabilities([example.text for example in data.valid])
            scores = probability_scores(p, cross_fitted(p, targets), data.valid)
            yield Baseline(plain.name, scores["micro_f1"], {f"valid_{name}": value for name, value in scores.items()})

    def new_model(self, vocabs: Vocabs) -> MultiLabelClassifier:
        labels = vocabs["labels"]
        weights = None
        if self.options.class_weights == "balanced":
            counts = torch.tensor(labels.counts[-len(class_names(labels)) :], dtype=torch.get_default_dtype())
            weights = (counts.sum() / counts - 1).clamp(1.0, 100.0)
        return MultiLabelClassifier(len(vocabs["vocab"]), len(class_names(labels)), self.options, weights)

    def start(self, model: MultiLabelClassifier, data: MultiLabelData) -> None:
        """Start the output's bias at the log odds of each label, so that rare labels are not predicted at first."""
        share = targets_of(data.train, len(model.thresholds)).mean(0).clamp(1e-4, 1 - 1e-4)
        with torch.no_grad():
            model.output.bias.copy_(share.logit().to(model.device))

    def batches(self, data: MultiLabelData) -> Shuffled[MultiLabelExample, MultiLabelBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, MultiLabelBatch.of, lambda example: example.size)

    def training_step(
        self,
        model: MultiLabelClassifier,
        batch: MultiLabelBatch,
        state: tuple[Any, ...] | None,
        moment: TrainingProgress,
    ) -> TrainingStep:
        logits = model(batch.ids.to(model.device), batch.lengths)
        loss = model.loss(logits, batch.targets(logits.shape[1]).to(model.device))
        return TrainingStep(loss, len(batch.ids), model.backend)

    def unrecordable(self, data: MultiLabelData) -> str:
        return "texts have several numbers of labels"

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(2)

    def validate(self, model: MultiLabelClassifier, data: MultiLabelData) -> Validation:
        p = probabilities([model], data.valid)
        targets = targets_of(data.valid, p.shape[1])
        model.thresholds.copy_(best_thresholds(p, targets))
        scores = probability_scores(p, cross_fitted(p, targets), data.valid)
        summary = (
            f"valid micro F1 {scores['micro_f1']:6.2%}, macro F1 {scores['macro_f1']:.1%}, exact {scores['exact']:.1%}"
        )
        return Validation(scores["loss"], {f"valid_{name}": value for name, value in scores.items()}, summary)

    def sample(self, model: MultiLabelClassifier, data: MultiLabelData) -> str:
        few, names = data.valid[:FEW], class_names(data.vocabs["labels"])
        found = model.likeliest(probabilities([model], few))
        lines = []
        for example, row in zip(few, found, strict=True):
            said, true = (
                LABEL_MARK.join(names[k] for k in which) or "none"
                for which in (row.nonzero()[:, 0].tolist(), example.labels)
            )
            lines.append(example_line(example.text, said, true))
        return "\n".join(lines)


def fitted_baselines(data: MultiLabelData) -> Iterator[MultiLabelBaseline]:
    labels = len(class_names(data.vocabs["labels"]))
    train, valid = ([example.text for example in part] for part in (data.train, data.valid))
    y, held = (targets_of(part, labels) for part in (data.train, data.valid))
    yield frequent_labels(y)
    yield fit_logistic_regressions(train, y, valid, held, ngram_vocab(train))


TASK = MultiLabelTask


class MultiLabelPredictor(Predictor[MultiLabelClassifier]):
    """Trained text classifier with several labels per text, or an ensemble."""

    ensembles = True

    @property
    def classes(self) -> tuple[str, ...]:
        return class_names(self.run.vocabs["labels"])

    @property
    def thresholds(self) -> Tensor:
        """Return the threshold of each label; for an ensemble, the mean."""
        return torch.stack([model.thresholds.cpu() for model in self.models]).mean(0)

    def _answer(self, found: Prediction) -> list[str]:
        labels: list[str] = found["labels"]
        return labels

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Return micro and macro F1, the share of texts with exactly the right labels, and the F1 of each label, with
        baselines."""
        self.refuse(options)
        measured = encode(self.examples(texts, partial(read_labelled, classes=self.classes)), self.run.vocabs)
        targets = targets_of(measured, len(self.classes))
        begun = time.perf_counter()
        p = probabilities(self.models, measured)
        rate = len(measured) / (time.perf_counter() - begun)
        predicted = p >= self.thresholds
        found: JsonObject = {"model": self.name, **probability_scores(p, predicted, measured)}
        found |= {"texts": len(measured), "texts_per_second": rate}
        found["labels"] = {
            name: {
                "f1": label_scores(predicted[:, k : k + 1], targets[:, k : k + 1])["micro_f1"],
                "texts": int(targets[:, k].sum()),
                "threshold": float(self.thresholds[k]),
            }
            for k, name in enumerate(self.classes)
        }
        beside = []
        if self.has_training_texts():
            data = self.task.read(self.run.vocabs)
            held = targets_of(data.valid, len(self.classes))
            for plain in fitted_baselines(data):
                cuts = best_thresholds(plain.probabilities([e.text for e in data.valid]), held)
                q = plain.probabilities([e.text for e in measured])
                beside.append({"model": plain.name, **probability_scores(q, q >= cuts, measured)})
        return found | {"beside": beside}

    def read_inputs(self, name: str) -> TableInputs | None:
        """Read the texts of a table, as the training files were read; None if each line of the file is a text."""
        known = Counter(self.classes)
        rows = read_inputs(name, self.new_reading(), known)
        return None if rows is None else TableInputs(name, rows)

    def label_scores(self, labels: Sequence[str], outputs: Sequence[Any]) -> Metrics:
        """Return micro and macro F1, and the share of texts with exactly the right labels."""
        numbers = class_numbers(self.run.vocabs["labels"])
        sets = [[several_labels(one) for one in side] for side in (labels, outputs)]
        targets, predicted = torch.zeros(2, len(labels), len(numbers))
        unseen = 0
        for table, side in zip((targets, predicted), sets, strict=True):
            for row, own in enumerate(side):
                for label in own:
                    if label in numbers:
                        table[row, numbers[label]] = 1
                    else:
                        unseen += 1
        return label_scores(predicted, targets, unseen)

    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """Yield the labels of each line whose probabilities reach their thresholds, and all probabilities."""
        self.refuse(options)
        numbered = enumerate(lines, start=1)
        thresholds = self.thresholds
        while some := list(itertools.islice(numbered, ROWS)):
            ids = [encode_text(self.run.vocab, line.strip(), f"line {number}") for number, line in some]
            examples = [MultiLabelExample(row, (), line.strip()) for row, (_, line) in zip(ids, some, strict=True)]
            for (_, line), p in zip(some, probabilities(self.models, examples), strict=True):
                labels = [name for name, chosen in zip(self.classes, (p >= thresholds).tolist(), strict=True) if chosen]
                chances = dict(zip(self.classes, p.tolist(), strict=True))
                yield {
                    "input": line,
                    "output": LABEL_MARK.join(labels),
                    "labels": labels,
                    "probabilities": chances,
                }

    def stream(self, text: str) -> Iterator[dict[str, float]]:
        """Yield the probability of each label after every token, in constant memory, if the network reads forward."""
        if len(self.models) > 1:
            raise TextError(f"an ensemble does not stream; open one of {shown(self.name)}")
        carried = None
        for k in encode_text(self.run.vocab, text, "the text"):
            logits, carried = self.model.step(torch.tensor([int(k)], device=self.device), carried)
            yield dict(zip(self.classes, logits[0].sigmoid().tolist(), strict=True))


PREDICTOR = MultiLabelPredictor

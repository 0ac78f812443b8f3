"""Tree classification: a class for every node of bracketed trees; baselines on the words of the root."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.baselines.classifiers import LabelledTexts, count_ngrams, fit_best_linear, most_frequent
from recur.data.batching import Shuffled, in_order
from recur.data.text import UNK, Tree, Vocab, Words, read_trees, restructured
from recur.errors import TextError
from recur.i18n import Message
from recur.models import TreeModel
from recur.models.calibration import calibrate, calibration_error
from recur.models.classifiers import NO_LABEL
from recur.nn import Forest
from recur.runs import Vocabs
from recur.tasks.common.batching import FEW, class_examples
from recur.tasks.common.classification import (
    class_names,
    class_number,
    class_numbers,
    class_scores,
    confusion,
    label_vocab,
    score_baselines,
)
from recur.tasks.common.contract import Baseline, PretrainedSlots, Task, TrainingProgress, TrainingStep, Validation
from recur.tasks.common.splits import split
from recur.tasks.tree.options import TreeOptions
from recur.utils.types import JsonObject

Guess = Callable[[Sequence[str]], list[int]]
"""From the words of trees, as texts, to classes of their roots."""


def tree_baselines(train: LabelledTexts, valid: LabelledTexts, classes: Sequence[str]) -> dict[str, Guess]:
    """Return the baselines by name, simplest first."""
    always = most_frequent([k for _, k in train])
    linear = fit_best_linear(train, valid, count_ngrams([text for text, _ in train], "word"), len(classes))

    def guess(texts: Sequence[str]) -> list[int]:
        with torch.no_grad():
            found: list[int] = linear.model(texts)[1].argmax(-1).tolist()
        return found

    return {
        Message("always {answer}", answer=classes[always]): lambda texts: [always] * len(texts),
        linear.regression: guess,
    }


ROWS = 128
"""Trees measured as one forest."""


class EncodedTree(NamedTuple):
    ids: list[int]
    children: tuple[tuple[int, ...], ...]
    classes: list[int]


class TreeBatch(NamedTuple):
    ids: Tensor
    forest: Forest
    classes: Tensor
    """(nodes,): NONE for no label."""

    @classmethod
    def of(cls, trees: Sequence[EncodedTree]) -> Self:
        ids = torch.tensor([k for tree in trees for k in tree.ids])
        classes = torch.tensor([k for tree in trees for k in tree.classes])
        return cls(ids, Forest.of([tree.children for tree in trees]), classes)

    def to(self, device: torch.device) -> TreeBatch:
        return TreeBatch(self.ids.to(device), self.forest.to(device), self.classes.to(device))


@dataclass(frozen=True)
class TreeData:
    vocabs: Vocabs
    train: list[EncodedTree]
    valid: list[EncodedTree]
    train_texts: list[tuple[str, int]]
    """The words of each, and the class of its root."""
    valid_texts: list[tuple[str, int]]


class TreeTask(Task[TreeOptions, TreeData, TreeModel, TreeBatch]):
    """Task on bracketed trees: the model classifies every node."""

    name = "tree"
    curve = "valid_error"
    unit = "nodes"
    places = PretrainedSlots(embedding="embedding", recurrent="")

    @property
    def architecture(self) -> str:
        return self.options.compose

    def read(self, vocabs: Vocabs | None = None) -> TreeData:
        train, valid, _ = split(self.options, read_trees, self.new_reading())
        if vocabs is None:
            counts = Counter(self.word(word) for tree in train for word in tree.words)
            labels = [label for tree in train for label in tree.labels if label is not None]
            if not labels:
                raise TextError(f"{train[0].where}: no node of any tree has a label; one is (label (label word) …)")
            words = Vocab.from_counts(
                counts, Words(lower=self.options.lower), self.options.min_freq, self.options.max_vocab_size
            )
            vocabs = {"vocab": words, "labels": label_vocab(labels, 2)}
        learned, measured = (self.encode(part, vocabs) for part in (train, valid))
        return TreeData(vocabs, learned, measured, as_texts(train, learned), as_texts(valid, measured))

    def encode(self, trees: Iterable[Tree], vocabs: Vocabs) -> list[EncodedTree]:
        ids = vocabs["vocab"].ids
        classes = class_numbers(vocabs["labels"])
        found = []
        for given in trees:
            for label, column in zip(given.labels, given.columns, strict=True):
                if label is not None:
                    class_number(label, classes, f"{given.where}:{column}")
            tree = restructured(given, self.options.structure)
            if self.options.compose != "child-sum" and any(len(below) not in (0, 2) for below in tree.children):
                raise TextError(
                    f"{tree.where}: {self.options.compose} joins two children, and a node has another number of them; "
                    "take --compose child-sum, or --structure balanced"
                )
            if tree.labels[-1] is None:
                raise TextError(f"{tree.where}: the root has no label")
            known = [NO_LABEL if label is None else classes[label] for label in tree.labels]
            if self.options.labels == "root":
                known[:-1] = [NO_LABEL] * (len(known) - 1)
            found.append(EncodedTree([ids.get(self.word(word), UNK) for word in tree.words], tree.children, known))
        return found

    def word(self, word: str) -> str:
        return word.lower() if self.options.lower else word

    def describe(self, data: TreeData) -> str:
        nodes = sum(len(tree.children) for tree in data.train)
        words, classes = len(data.vocabs["vocab"]), len(class_names(data.vocabs["labels"]))
        return f"{len(data.train):,} training trees of {nodes:,} nodes, {words:,} words, {classes} classes"

    def baselines(self, data: TreeData) -> list[Baseline]:
        classes, (train, valid) = class_names(data.vocabs["labels"]), (data.train_texts, data.valid_texts)
        texts, targets = [text for text, _ in valid], [k for _, k in valid]
        plain = tree_baselines(train, valid, classes)
        return score_baselines({name: guess(texts) for name, guess in plain.items()}, targets, len(classes))

    def new_model(self, vocabs: Vocabs) -> TreeModel:
        return TreeModel(len(vocabs["vocab"]), len(class_names(vocabs["labels"])), self.options)

    def batches(self, data: TreeData) -> Shuffled[EncodedTree, TreeBatch]:
        return Shuffled(data.train, self.batch, self.options.seed, TreeBatch.of, lambda tree: len(tree.ids))

    def training_step(
        self, model: TreeModel, batch: TreeBatch, state: tuple[Any, ...] | None, moment: TrainingProgress
    ) -> TrainingStep:
        predictions = int((batch.classes != NO_LABEL).sum())
        batch = batch.to(model.embedding.device)
        loss = cross_entropy(model(batch.ids, batch.forest), batch.classes, ignore_index=NO_LABEL)
        return TrainingStep(loss, predictions, "levels")

    def divergence_threshold(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(class_names(vocabs["labels"])), 3))

    def validate(self, model: TreeModel, data: TreeData) -> Validation:
        found = tree_scores(model, data.valid, fit=True)
        metrics = {"valid_error": 1 - found["accuracy"], "valid_accuracy": found["accuracy"]}
        metrics |= {
            f"valid_{name}": found[name]
            for name in ("loss", "ece", "node_accuracy", "binary_accuracy")
            if name in found
        }
        return Validation(metrics["valid_error"], metrics, f"valid accuracy {found['accuracy']:6.2%}")

    def sample(self, model: TreeModel, data: TreeData) -> str:
        batch = TreeBatch.of(data.valid[:FEW]).to(model.embedding.device)
        found = model(batch.ids, batch.forest)[batch.forest.roots].argmax(-1).tolist()
        few = data.valid_texts[:FEW]
        return class_examples([text for text, _ in few], found, [k for _, k in few], class_names(data.vocabs["labels"]))


def as_texts(trees: Sequence[Tree], encoded: Sequence[EncodedTree]) -> list[tuple[str, int]]:
    """Return the words of trees, each with the class of its root."""
    return [(" ".join(tree.words), known.classes[-1]) for tree, known in zip(trees, encoded, strict=True)]


@torch.no_grad()
def tree_scores(model: TreeModel, trees: Sequence[EncodedTree], fit: bool = False) -> JsonObject:
    """Accuracy at the roots and at all labelled nodes; on a scale with a middle, of its two halves too, the middle left
    out (of sentiment: positive or negative). To fit is to set the temperature of its probabilities by the roots."""
    device = model.embedding.device
    root_logits, root_classes = [], []
    right = nodes = 0
    loss = 0.0
    for batch in in_order(trees, ROWS, TreeBatch.of):
        batch = batch.to(device)
        logits = model(batch.ids, batch.forest)
        labelled = batch.classes != NO_LABEL
        loss += float(cross_entropy(logits[labelled], batch.classes[labelled], reduction="sum"))
        right += int((logits.argmax(-1) == batch.classes)[labelled].sum())
        nodes += int(labelled.sum())
        root_logits.append(logits[batch.forest.roots].cpu())
        root_classes.append(batch.classes[batch.forest.roots].cpu())
    scores, targets = torch.cat(root_logits), torch.cat(root_classes)
    classes, log_p = scores.shape[1], scores.log_softmax(-1)
    log_p = calibrate(model.temperature, [log_p], targets.tolist()) if fit else model.temperature(log_p)
    table = confusion(targets.tolist(), scores.argmax(-1).tolist(), classes)
    found: JsonObject = {**class_scores(table), "confusion": table.tolist(), "trees": len(trees)}
    found |= {"node_accuracy": right / nodes, "nodes": nodes, "loss": loss / nodes}
    found["ece"] = calibration_error(log_p.exp(), targets)
    if classes > 2 and classes % 2:
        middle = classes // 2
        upper = scores[:, middle + 1 :].logsumexp(-1) > scores[:, :middle].logsumexp(-1)
        clear = targets != middle
        found["binary_accuracy"] = float((upper == (targets > middle))[clear].float().mean())
    return found


TASK = TreeTask

"""Trees whose nodes have classes, such as the sentiment of every phrase of a sentence."""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.errors import OptionError, TextError
from recur.layers import Forest
from recur.models import TreeModel, TreeOptions
from recur.text import UNK, Tree, Vocab, Words, parse_tree, read_trees, restructured, structure_of
from recur.train.classes import class_scores, confusion
from recur.train.config import Config
from recur.train.examples import Shuffled, class_of, classes_of, label_vocab, split
from recur.train.machine import pick_device
from recur.train.tasks.task import Learned, Measured, Moment, Opened, Task, Vocabs

if TYPE_CHECKING:
    from recur.train.run import Run

NONE = -1
"""The class of a node that has no label, or whose label is not learned from."""

ROWS = 128
"""Trees measured as one forest."""


class Encoded(NamedTuple):
    ids: list[int]
    children: tuple[tuple[int, ...], ...]
    classes: list[int]


class TreeBatch(NamedTuple):
    ids: Tensor
    forest: Forest
    classes: Tensor
    """(nodes,): NONE for no label."""

    def to(self, device: torch.device) -> TreeBatch:
        return TreeBatch(self.ids.to(device), self.forest.to(device), self.classes.to(device))


def batch_of(trees: list[Encoded]) -> TreeBatch:
    ids = torch.tensor([k for tree in trees for k in tree.ids])
    classes = torch.tensor([k for tree in trees for k in tree.classes])
    return TreeBatch(ids, Forest.of([tree.children for tree in trees]), classes)


@dataclass(frozen=True)
class TreeData:
    vocabs: Vocabs
    train: list[Encoded]
    valid: list[Encoded]


class TreeTask(Task):
    """Bracketed trees; the model classifies every node."""

    title = "the task tree"
    reads = frozenset({*TreeOptions.__dataclass_fields__, "structure", "labels", "lower", "min_freq", "max_size"})
    vocab_names = ("vocab", "labels")
    curve = "valid_error"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        for name in ("cell", "layers", "init", "forget_bias", "backend"):
            if getattr(config, name) != getattr(Config, name):
                raise OptionError(f"--{name.replace('_', '-')} is for chains; a tree has --compose and --structure")

    @property
    def architecture(self) -> str:
        return self.config.compose

    def read(self, vocabs: Vocabs | None = None) -> TreeData:
        train, valid, _ = split(self.config, read_trees)
        if vocabs is None:
            counts = Counter(self._word(word) for tree in train for word in tree.words)
            labels = [label for tree in train for label in tree.labels if label is not None]
            if not labels:
                raise TextError(f"{train[0].where}: no node of any tree has a label; one is (label (label word) …)")
            words = Vocab.from_counts(
                counts, Words(lower=self.config.lower), self.config.min_freq, self.config.max_size
            )
            vocabs = {"vocab": words, "labels": label_vocab(labels)}
        return TreeData(vocabs, self.encode(train, vocabs), self.encode(valid, vocabs))

    def encode(self, trees: Iterable[Tree], vocabs: Vocabs) -> list[Encoded]:
        ids = vocabs["vocab"].ids
        classes = {label: k for k, label in enumerate(classes_of(vocabs["labels"]))}
        found = []
        for given in trees:
            for label, column in zip(given.labels, given.columns, strict=True):
                if label is not None:
                    class_of(label, classes, f"{given.where}:{column}")
            tree = restructured(given, self.config.structure)
            if self.config.compose != "child-sum" and any(len(below) not in (0, 2) for below in tree.children):
                raise TextError(
                    f"{tree.where}: {self.config.compose} joins two children, and a node has another number of them; "
                    "take --compose child-sum, or --structure balanced"
                )
            if tree.labels[-1] is None:
                raise TextError(f"{tree.where}: the root has no label")
            known = [NONE if label is None else classes[label] for label in tree.labels]
            if self.config.labels == "root":
                known[:-1] = [NONE] * (len(known) - 1)
            found.append(Encoded([ids.get(self._word(word), UNK) for word in tree.words], tree.children, known))
        return found

    def _word(self, word: str) -> str:
        return word.lower() if self.config.lower else word

    def about(self, data: TreeData) -> str:
        nodes = sum(len(tree.children) for tree in data.train)
        words, labels = (len(data.vocabs[name]) for name in self.vocab_names)
        return f"{len(data.train):,} trees of {nodes:,} nodes to learn from, {words:,} words, {labels - 4} classes"

    def new_model(self, vocabs: Vocabs) -> TreeModel:
        options = TreeOptions(**{name: getattr(self.config, name) for name in TreeOptions.__dataclass_fields__})
        return TreeModel(len(vocabs["vocab"]), len(classes_of(vocabs["labels"])), options)

    def batches(self, data: TreeData) -> Shuffled[Encoded]:
        return Shuffled(data.train, self.config.batch, self.config.seed, batch_of, lambda tree: len(tree.ids))

    def learn(self, model: TreeModel, batch: TreeBatch, state: Any, moment: Moment) -> Learned:
        predictions = int((batch.classes != NONE).sum())
        batch = batch.to(model.embedding.device)
        loss = cross_entropy(model(batch.ids, batch.forest), batch.classes, ignore_index=NONE)
        return Learned(loss, predictions, "levels")

    def limit(self, vocabs: Vocabs) -> float:
        return 10 * math.log(max(len(classes_of(vocabs["labels"])), 3))

    def measure(self, model: TreeModel, data: TreeData) -> Measured:
        found = tree_scores(model, data.valid)
        metrics = {"valid_error": 1 - found["accuracy"], "valid_accuracy": found["accuracy"]}
        metrics |= {
            f"valid_{name}": found[name] for name in ("loss", "node_accuracy", "binary_accuracy") if name in found
        }
        return Measured(metrics["valid_error"], metrics, f"valid accuracy {found['accuracy']:6.2%}")

    def open(self, run: Run, device: str = "cpu", also: Sequence[Run] = ()) -> Trees:
        if also:
            raise OptionError("tree classifiers do not classify as one; name one run")
        return Trees(run, device)


@torch.no_grad()
def tree_scores(model: TreeModel, trees: list[Encoded]) -> dict[str, Any]:
    """Accuracy at the roots and at all labelled nodes; on a scale with a middle, of its two halves too, the middle left
    out (of sentiment: positive or negative)."""
    device = model.embedding.device
    root_logits, root_classes = [], []
    right = nodes = 0
    loss = 0.0
    for batch in Shuffled(trees, ROWS, 0, batch_of).in_order():
        batch = batch.to(device)
        logits = model(batch.ids, batch.forest)
        labelled = batch.classes != NONE
        loss += float(cross_entropy(logits[labelled], batch.classes[labelled], reduction="sum"))
        right += int((logits.argmax(-1) == batch.classes)[labelled].sum())
        nodes += int(labelled.sum())
        root_logits.append(logits[batch.forest.roots].cpu())
        root_classes.append(batch.classes[batch.forest.roots].cpu())
    scores, wanted = torch.cat(root_logits), torch.cat(root_classes)
    classes = scores.shape[1]
    table = confusion(wanted.tolist(), scores.argmax(-1).tolist(), classes)
    found: dict[str, Any] = {**class_scores(table), "confusion": table.tolist(), "trees": len(trees)}
    found |= {"node_accuracy": right / nodes, "nodes": nodes, "loss": loss / nodes}
    if classes > 2 and classes % 2:
        middle = classes // 2
        upper = scores[:, middle + 1 :].logsumexp(-1) > scores[:, :middle].logsumexp(-1)
        clear = wanted != middle
        found["binary_accuracy"] = float((upper == (wanted > middle))[clear].float().mean())
    return found


class Trees(Opened):
    """A trained tree classifier."""

    def __init__(self, run: Run, device: str = "cpu") -> None:
        self.run = run
        self.model: TreeModel = run.load_model(str(pick_device(device)))
        self.classes = classes_of(run.vocabs["labels"])

    def evaluate(self, texts: list[str] | None = None, **options: Any) -> dict[str, Any]:
        """Accuracy, macro F1 and the confusion matrix at the roots, and the accuracy at all nodes."""
        self.refuse(options)
        task = self.run.task
        assert isinstance(task, TreeTask)
        trees = read_trees(texts) if texts else split(self.run.config, read_trees)[2]
        encoded = task.encode(trees, self.run.vocabs)
        begun = time.perf_counter()
        found = tree_scores(self.model, encoded)
        rate = len(trees) / (time.perf_counter() - begun)
        return {"model": str(self.run.path), **found, "classes": list(self.classes), "trees_per_second": rate}

    @torch.no_grad()
    def predict(self, lines: Iterable[str], **options: Any) -> Iterator[dict[str, Any]]:
        """The class of the root, its probabilities, and the tree with a class at every node.

        A line is a tree, whose labels are not looked at; or words, if the structure is not the given one.
        """
        self.refuse(options)
        structure, vocab = self.run.config.structure, self.run.vocab
        for number, line in enumerate(lines, start=1):
            if line.lstrip().startswith("(") or structure == "given":
                tree = restructured(parse_tree(line, f"line {number}"), structure)
            else:
                words = tuple(line.split())
                if not words:
                    raise TextError(f"line {number} has no word")
                children = structure_of(structure, len(words))
                tree = Tree(words, children, (None,) * len(children))
            ids = [vocab.ids.get(w.lower() if self.run.config.lower else w, UNK) for w in tree.words]
            batch = batch_of([Encoded(ids, tree.children, [NONE] * len(tree.children))])
            batch = batch.to(self.model.embedding.device)
            p = self.model(batch.ids, batch.forest).softmax(-1).cpu()
            given = [self.classes[k] for k in p.argmax(-1).tolist()]
            labelled = dataclasses.replace(tree, labels=tuple(given))
            chances = dict(zip(self.classes, p[-1].tolist(), strict=True))
            yield {"input": line, "output": given[-1], "probabilities": chances, "tree": labelled.bracketed()}


TASK = TreeTask

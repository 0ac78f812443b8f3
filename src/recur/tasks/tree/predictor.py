"""Trained tree classifier: classification of trees, and of sentences that it parses into trees."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from recur.data.text import UNK, Tree, parse_tree, read_trees, restructured, structure_of
from recur.errors import TextError
from recur.i18n import Message
from recur.models import TreeModel
from recur.models.classifiers import NO_LABEL
from recur.runs import Run
from recur.tasks.common.classification import class_names, class_scores, confusion
from recur.tasks.common.predictor import Predictor
from recur.tasks.tree.task import EncodedTree, TreeBatch, TreeTask, as_texts, tree_baselines, tree_scores
from recur.utils.types import JsonObject


class TreeClassifier(Predictor[TreeModel]):
    """A trained tree classifier."""

    task: TreeTask

    def __init__(self, task: TreeTask, runs: Sequence[Run], device: str = "auto") -> None:
        super().__init__(task, runs, device)
        self.classes = class_names(self.run.vocabs["labels"])

    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject:
        """Accuracy, macro F1 and the confusion matrix at the roots, and the accuracy at all nodes; plain models of the
        roots' words beside them."""
        self.refuse(options)
        trees = self.examples(texts, read_trees)
        encoded = self.task.encode(trees, self.run.vocabs)
        begun = time.perf_counter()
        found = tree_scores(self.model, encoded)
        rate = len(trees) / (time.perf_counter() - begun)
        found |= {"classes": list(self.classes), "trees_per_second": rate}
        if self.has_training_texts():
            data, (texts_measured, targets) = (
                self.task.read(self.run.vocabs),
                zip(*as_texts(trees, encoded), strict=True),
            )
            plain = tree_baselines(data.train_texts, data.valid_texts, self.classes)
            found["beside"] = [
                {"model": name, **class_scores(confusion(targets, guess(texts_measured), len(self.classes)))}
                for name, guess in plain.items()
            ]
        return {"model": self.name, **found}

    @torch.no_grad()
    def _predict(self, lines: Iterable[str], **options: Any) -> Iterator[JsonObject]:
        """The class of the root, its probabilities, and the tree with a class at every node.

        A line is a tree, whose labels are not looked at; or words, if the structure is not the given one.
        """
        self.refuse(options)
        for number, line in enumerate(lines, start=1):
            tree = self._tree(line, number)
            ids = [self.run.vocab.ids.get(self.task.word(word), UNK) for word in tree.words]
            batch = TreeBatch.of([EncodedTree(ids, tree.children, [NO_LABEL] * len(tree.children))]).to(self.device)
            p = self.model.temperature(self.model(batch.ids, batch.forest).log_softmax(-1)).exp().cpu()
            predictions = [self.classes[k] for k in p.argmax(-1).tolist()]
            labelled = dataclasses.replace(tree, labels=tuple(predictions))
            chances = dict(zip(self.classes, p[-1].tolist(), strict=True))
            yield {"input": line, "output": predictions[-1], "probabilities": chances, "tree": labelled.bracketed()}

    def _tree(self, line: str, number: int) -> Tree:
        structure = self.task.options.structure
        if line.lstrip().startswith("(") or structure == "given":
            return restructured(parse_tree(line, f"line {number}"), structure)
        words = tuple(line.split())
        if not words:
            raise TextError(Message("line {n} has no word", n=number))
        children = structure_of(structure, len(words))
        return Tree(words, children, (None,) * len(children))


PREDICTOR = TreeClassifier

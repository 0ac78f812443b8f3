"""What a model that tells classes apart gets wrong, on its validation part: which classes it confuses, whether it is as
sure as it is right, and whether long inputs are harder."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch

from recur.diagnostics.finding import Finding, Level, Measurement
from recur.i18n import said
from recur.models.signals import NONE
from recur.tasks.classes import classes_of, confusion
from recur.tasks.classify.model import log_probabilities
from recur.tasks.classify.predictor import TextClassifier
from recur.tasks.classify.signal_predictor import SignalClassifierPredictor
from recur.tasks.classify.signal_task import probabilities as signal_probabilities
from recur.tasks.classify.signal_task import targets_of
from recur.tasks.examples import in_order
from recur.tasks.grid.predictor import ImageClassifier
from recur.tasks.grid.task import probabilities as image_probabilities
from recur.tasks.predictor import Predictor
from recur.tasks.tag.predictor import TextTagger
from recur.tasks.tag.signal_predictor import SignalTagPredictor, TranscriberPredictor
from recur.tasks.tag.signal_task import label_steps
from recur.tasks.tag.task import table_of, tag
from recur.tasks.tree.predictor import TreeClassifier
from recur.tasks.tree.task import TreeBatch

MOST = 2000
"""Examples that are looked at."""
UNSURE = 0.1
"""Calibration error from which on probabilities are not to be trusted."""
HARDER = 0.1
"""How much more of the longest quarter may be wrong than of the shortest."""
BINS = 10
SHOWN = 12
"""Classes in a figure, at most: the most frequent."""


class Judged(NamedTuple):
    """What a model says of examples."""

    classes: Sequence[str]
    targets: list[int]
    predictions: list[int]
    sure: list[float]
    """The probability of what it says; empty where it gives none."""
    sizes: list[int]
    """How long each is, in steps."""


def judge(predictor: Predictor[Any]) -> Judged | None:
    """On the validation part; None for a model that tells no classes apart."""
    found = JUDGES.get(type(predictor))
    return None if found is None else found(predictor, predictor.task.read(predictor.run.vocabs))


def _texts(predictor: TextClassifier, data: Any) -> Judged:
    examples = data.valid[:MOST]
    p = log_probabilities(predictor.models, examples).exp()
    targets = [example.label for example in examples]
    return Judged(predictor.classes, targets, *_best(p), [example.size for example in examples])


def _tags(predictor: TextTagger, data: Any) -> Judged:
    sentences = data.valid_sentences[: MOST // 4]
    found = tag(predictor.tagger, data.valid[: len(sentences)], predictor.run.vocabs).tags
    wanted = [sentence.tags for sentence in sentences]
    names, _ = table_of(wanted, found, predictor.tags)
    number = {name: k for k, name in enumerate(names)}
    sizes = [len(tags) for tags in wanted for _ in tags]
    targets, predictions = ([number[name] for name in chain.from_iterable(rows)] for rows in (wanted, found))
    return Judged(names, targets, predictions, [], sizes)


def _signals(predictor: SignalClassifierPredictor, data: Any) -> Judged:
    examples = data.valid[:MOST]
    targets, _ = targets_of(examples, len(predictor.classes))
    names = [*predictor.classes, *["not learned from"] * (len(predictor.classes) in targets)]
    best = _best(signal_probabilities(predictor.models, examples))
    return Judged(names, targets, *best, [example.size for example in examples])


def _steps(predictor: SignalTagPredictor, data: Any) -> Judged:
    examples = data.valid[: MOST // 4]
    found = label_steps(predictor.model, examples).labels
    rows = [
        (k, guess, example.size)
        for example, guesses in zip(examples, found, strict=True)
        for k, guess in zip(example.labels, guesses, strict=False)
        if k != NONE
    ]
    targets, predictions, sizes = ([row[k] for row in rows] for k in range(3))
    return Judged(predictor.labels, targets, predictions, [], sizes)


@torch.no_grad()
def _trees(predictor: TreeClassifier, data: Any) -> Judged:
    trees, model, found = data.valid[:MOST], predictor.model, []
    for batch in in_order(trees, 128, TreeBatch.of):
        batch = batch.to(predictor.device)
        found.append(model.temperature(model(batch.ids, batch.forest)[batch.forest.roots].log_softmax(-1)).exp().cpu())
    targets = [tree.classes[-1] for tree in trees]
    return Judged(predictor.classes, targets, *_best(torch.cat(found)), [len(tree.ids) for tree in trees])


def _images(predictor: ImageClassifier, data: Any) -> Judged:
    examples = data.valid[:MOST]
    best = _best(image_probabilities(predictor.models, examples, predictor.task.options))
    return Judged(classes_of(predictor.run.vocabs["labels"]), [e.label for e in examples], *best, [])


def _best(p: torch.Tensor) -> tuple[list[int], list[float]]:
    sure, predictions = p.max(-1)
    return predictions.tolist(), sure.tolist()


JUDGES: dict[type, Any] = {
    TextClassifier: _texts,
    TextTagger: _tags,
    SignalClassifierPredictor: _signals,
    SignalTagPredictor: _steps,
    TreeClassifier: _trees,
    ImageClassifier: _images,
}
"""By the model. Label sequences without alignment have no class a step: see TranscriberPredictor."""
assert TranscriberPredictor not in JUDGES


def classes(judged: Judged) -> Measurement:
    """Which class is missed most, which it is taken for, and whether any is never said."""
    K = len(judged.classes)
    table = confusion(judged.targets, judged.predictions, K)
    occurring = table.sum(1)
    recall = np.divide(np.diag(table), occurring, out=np.ones(K), where=occurring > 0)
    wrong = table - np.diag(np.diag(table))
    numbers: dict[str, Any] = {"classes": list(judged.classes), "confusion": table.tolist(), "recall": recall.tolist()}
    ece = 0.0
    if judged.sure:
        numbers["calibration"], ece = calibration(judged)
        numbers["ece"] = ece
    never = [judged.classes[k] for k in range(K) if occurring[k] and not table[:, k].any()]
    if never:
        verdict = said(
            "it never says {names}, {count} of {classes} classes that occur",
            names=", ".join(map(str, never[:5])), count=len(never), classes=int((occurring > 0).sum()),
        )  # fmt: skip
        return Measurement(Finding("classes", Level.WARNING, len(never), 0, verdict), numbers)
    if not wrong.any():
        return Measurement(Finding("classes", Level.OK, 0.0, 0.0, said("all validation examples are right")), numbers)
    i, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
    mistake = said(
        "most often {right} is taken for {wrong}, {count:,} times; {worst} is found least, {recall:.0%} of the time",
        right=judged.classes[int(i)], wrong=judged.classes[int(j)], count=int(wrong[i, j]),
        worst=judged.classes[int(recall.argmin())], recall=float(recall.min()),
    )  # fmt: skip
    if ece > UNSURE:
        verdict = said("{mistake}; its probabilities are off by {ece:.0%} on average", mistake=mistake, ece=ece)
        return Measurement(Finding("classes", Level.WARNING, ece, UNSURE, verdict), numbers)
    return Measurement(Finding("classes", Level.OK, ece, UNSURE, mistake), numbers)


def calibration(judged: Judged) -> tuple[list[dict[str, float]], float]:
    """How sure it is and how often right, by tenths of the former; and the mean difference."""
    sure, right = np.array(judged.sure), np.array(judged.targets) == np.array(judged.predictions)
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    rows, total = [], 0.0
    for k in range(BINS):
        mine = bins == k
        if mine.any():
            row = {"sure": float(sure[mine].mean()), "right": float(right[mine].mean()), "share": float(mine.mean())}
            rows.append(row)
            total += row["share"] * abs(row["sure"] - row["right"])
    return rows, total


def length(judged: Judged) -> Measurement:
    """Whether long inputs are harder: a memory that is too short shows here first."""
    sizes, right = np.array(judged.sizes), np.array(judged.targets) == np.array(judged.predictions)
    edges = np.unique(np.quantile(sizes, [0, 0.25, 0.5, 0.75, 1.0]))
    if len(edges) < 3 or len(sizes) < 40:
        few = said("not known: {count} examples of nearly one length are too few to compare", count=len(sizes))
        return Measurement(Finding("length", Level.UNKNOWN, 0.0, HARDER, few))
    group = np.clip(np.searchsorted(edges, sizes, side="right") - 1, 0, len(edges) - 2)
    rows = [
        {"from": int(edges[k]), "to": int(edges[k + 1]), "right": float(right[group == k].mean())}
        for k in range(len(edges) - 1)
        if (group == k).any()
    ]
    drop = rows[0]["right"] - rows[-1]["right"]
    detail = said(
        "{short:.0%} right at up to {low} steps, {long:.0%} at {high} and more",
        short=rows[0]["right"], low=rows[0]["to"], long=rows[-1]["right"], high=rows[-1]["from"],
    )  # fmt: skip
    if drop > HARDER:
        verdict = said("long inputs are harder: {detail}", detail=detail)
        return Measurement(Finding("length", Level.WARNING, drop, HARDER, verdict), {"rows": rows})
    verdict = said("long inputs are no harder: {detail}", detail=detail)
    return Measurement(Finding("length", Level.OK, drop, HARDER, verdict), {"rows": rows})

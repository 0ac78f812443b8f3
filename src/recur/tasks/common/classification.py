"""Class labels and their numbers; accuracy, F1 and confusion matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from recur.baselines.classifiers import LEAST
from recur.data.text import SPECIALS, Vocab
from recur.data.text.tokenizers import Lines
from recur.errors import TextError, shown
from recur.i18n import Message
from recur.models.calibration import calibration_error
from recur.tasks.common.contract import Baseline, Validation
from recur.utils.types import Metrics

ConfusionTable = np.ndarray[tuple[int, int], np.dtype[np.int64]]

TIE = 1e-4
"""Factor of the loss in the score, so that of two models with equal errors the one with the lower loss wins."""


def label_vocab(labels: Iterable[str], least: int = 1) -> Vocab:
    """Return a vocabulary of sorted labels after the special tokens; class k has id 4 + k.

    Raise a TextError for fewer than `least` different labels.
    """
    counts = Counter(labels)
    if 0 < len(counts) < least:
        raise TextError(
            Message(
                "every training example has the label {label}: a model needs at least two different labels",
                label=shown(next(iter(counts))),
            )
        )
    return names_vocab({label: counts[label] for label in sorted(counts, key=_numbers_first)})


def names_vocab(counts: Mapping[str, int]) -> Vocab:
    """Return a vocabulary of names in the given order, so that the run folder stores them."""
    if taken := next((name for name in SPECIALS if name in counts), None):
        raise TextError(f"{taken} cannot be the name of a class or a column: it is one of the special tokens")
    return Vocab((*SPECIALS, *counts), (0, 0, 0, 0, *counts.values()), Lines())


def _numbers_first(label: str) -> tuple[float, str]:
    """Return the sort key of a label: numbers in numerical order, then other labels in alphabetical order."""
    return (float(label), label) if label.isdecimal() else (float("inf"), label)


def class_names(vocab: Vocab) -> tuple[str, ...]:
    return vocab.tokens[len(SPECIALS) :]


def class_numbers(vocab: Vocab) -> dict[str, int]:
    return {label: k for k, label in enumerate(class_names(vocab))}


def class_weights(vocab: Vocab) -> Tensor:
    """Return the weights N / (classes · n_k): every class has the same total weight, and all examples together N."""
    counts = torch.tensor(vocab.counts[len(SPECIALS) :], dtype=torch.get_default_dtype())
    return counts.sum() / (len(counts) * counts)


def total_weight(classes: Tensor, weights: Tensor | None) -> Tensor | None:
    """Return the denominator of a weighted mean loss; classes below 0 are ignored. None without weights."""
    if weights is None:
        return None
    classes = classes.to(weights.device)
    return torch.where(classes >= 0, weights[classes.clamp_min(0)], 0.0).sum()


def class_number(label: str, classes: Mapping[str, int], where: str) -> int:
    """Return the number of a label, or raise a TextError if it is unknown."""
    if label in classes:
        return classes[label]
    names = list(classes)
    known = f"{names[0]} … {names[-1]}" if all(name.isdecimal() for name in names) else ", ".join(names[:20])
    raise TextError(f"{where}: label {shown(label)} is not in the training set; its labels are {known}")


def class_numbers_with_unseen(labels: Iterable[str], vocab: Vocab) -> dict[str, int]:
    """Return the numbers of all classes, followed by numbers for labels outside the training set."""
    known = class_numbers(vocab)
    return known | {label: len(known) + k for k, label in enumerate(sorted({*labels} - known.keys()))}


def unseen_labels_note(labels: Iterable[str], vocab: Vocab, what: str) -> str:
    """Return a message about labels outside the training set; empty if there are none."""
    known = class_numbers(vocab)
    unseen = Counter(label for label in labels if label not in known)
    if not unseen:
        return ""
    named, count = ", ".join(list(unseen)[:5]) + ", …" * (len(unseen) > 5), unseen.total()
    examples = f"{count:,} {what}{'s' * (count > 1)}"
    return f"{examples} with labels that are not in the training set ({named}) count as errors"


# Scores ---------------------------------------------------------------------------------------------------------


def confusion(targets: Sequence[int], predictions: Sequence[int], classes: int) -> ConfusionTable:
    """Return the confusion matrix (classes, classes): how often class i (row) was predicted as j (column)."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (np.asarray(targets, np.int64), np.asarray(predictions, np.int64)), 1)
    return table


def class_scores(table: ConfusionTable) -> Metrics:
    """Return the accuracy and the macro F1: the mean over classes of 2 · right / (predicted + occurring)."""
    right, predicted, occurring = np.diag(table), table.sum(0), table.sum(1)
    present = predicted + occurring > 0
    f1 = 2 * right[present] / (predicted + occurring)[present]
    return {"accuracy": float(right.sum() / max(table.sum(), 1)), "macro_f1": float(f1.mean()) if len(f1) else 0.0}


def probability_scores(log_p: Tensor, targets: Sequence[int]) -> Metrics:
    """Return accuracy, macro F1, loss in nats and calibration error of log-probabilities (n, classes).

    Targets above the last class are labels outside the training set: they count as errors and are left out of the loss.
    """
    K, classes = log_p.shape[1], torch.tensor(targets)
    scores = class_scores(confusion(targets, log_p.argmax(-1).tolist(), max(K, *(k + 1 for k in targets))))
    seen = classes < K
    loss = float(cross_entropy(log_p[seen].clamp_min(LEAST), classes[seen])) if bool(seen.any()) else -LEAST
    return {**scores, "loss": loss, "ece": calibration_error(log_p.exp(), classes)}


def validate_classes(logits: Tensor, targets: Sequence[int]) -> Validation:
    """Return error, loss, accuracy, F1 and calibration error of logits (n, classes)."""
    scores = probability_scores(logits.log_softmax(-1), targets)
    error = 1 - scores["accuracy"]
    metrics = {"valid_error": error, **{f"valid_{name}": value for name, value in scores.items()}}
    summary = f"valid accuracy {scores['accuracy']:6.2%}, macro F1 {scores['macro_f1']:.1%}, ECE {scores['ece']:.1%}"
    return Validation(error + TIE * scores["loss"], metrics, summary)


def score_baselines(guesses: Mapping[str, Sequence[int]], targets: Sequence[int], classes: int) -> list[Baseline]:
    """Score the classes that each baseline predicts."""
    found = []
    for name, predictions in guesses.items():
        scores = class_scores(confusion(targets, predictions, classes))
        metrics = {f"valid_{metric}": value for metric, value in scores.items()}
        found.append(Baseline(name, 1 - scores["accuracy"], metrics))
    return found

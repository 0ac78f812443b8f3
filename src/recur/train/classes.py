"""How well classes are told: accuracy, F1 and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def confusion(wanted: Sequence[int], given: Sequence[int], classes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(classes, classes): how often class i (row) was given as j (column)."""
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (np.asarray(wanted, np.int64), np.asarray(given, np.int64)), 1)
    return table


def class_scores(table: np.ndarray[Any, Any]) -> dict[str, float]:
    """Accuracy, and F1 = 2 · right / (given + wanted) averaged over the classes that occur, each counted alike."""
    right, given, wanted = np.diag(table), table.sum(0), table.sum(1)
    occur = given + wanted > 0
    f1 = 2 * right[occur] / (given + wanted)[occur]
    return {"accuracy": float(right.sum() / max(table.sum(), 1)), "macro_f1": float(f1.mean()) if len(f1) else 0.0}

"""What the steps of training gave, until it is reported and measured.

A checkpoint keeps what was not measured yet, so that after a stop in the middle a measurement still sums up all steps
since the one before.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from recur.utils.types import JsonObject


class StepRecord(NamedTuple):
    """One step of the optimiser."""

    loss: Tensor
    norm: Tensor
    predictions: int


class Records:
    """The steps since the last report, and those since the last measurement."""

    def __init__(self) -> None:
        self._since_report: list[StepRecord] = []
        self._since_measure: list[StepRecord] = []

    def add(self, record: StepRecord) -> None:
        self._since_report.append(record)

    def drop(self) -> None:
        """The last step was none."""
        self._since_report.pop()

    def take_report(self) -> list[StepRecord]:
        """Those since the last report; the measurement that follows sums them up too."""
        seen, self._since_report = self._since_report, []
        self._since_measure += seen
        return seen

    def take_measure(self) -> list[StepRecord]:
        """Those since the last measurement that were reported."""
        seen, self._since_measure = self._since_measure, []
        return seen

    def to_tensors(self) -> dict[str, Tensor]:
        seen = [*self._since_measure, *self._since_report]
        losses, norms = ([getattr(record, name) for record in seen] for name in ("loss", "norm"))
        return {
            "losses": torch.stack(losses) if seen else torch.empty(0),
            "norms": torch.stack(norms) if seen else torch.empty(0),
            "predictions": torch.tensor([record.predictions for record in seen], dtype=torch.int64),
        }

    def from_tensors(self, kept: dict[str, Tensor], device: torch.device) -> None:
        losses, norms, predictions = (kept[name] for name in ("losses", "norms", "predictions"))
        if not (losses.dim() == 1 and losses.shape == norms.shape == predictions.shape):
            raise ValueError("the records of its steps are of several lengths")
        self._since_report = []
        self._since_measure = list(
            map(StepRecord, losses.to(device).unbind(), norms.to(device).unbind(), map(int, predictions.tolist()))
        )


def summed_up(seen: list[StepRecord], clip: float) -> JsonObject:
    """The mean loss of what was predicted, the mean norm of the gradient, and the share of steps it was clipped in."""
    losses, norms = torch.stack([record.loss for record in seen]), torch.stack([record.norm for record in seen])
    weights = torch.tensor([float(record.predictions) for record in seen], device=losses.device)
    return {
        "train_loss": float((losses * weights).sum() / weights.sum()),
        "grad_norm": float(norms[norms.isfinite()].mean()) if bool(norms.isfinite().any()) else math.inf,
        "clipped": float((norms > clip).float().mean()) if clip else 0.0,
    }

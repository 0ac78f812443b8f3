"""What a training came to: what `recur train --json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training.trainer import Trainer


def summary_of(trainer: Trainer) -> JsonObject:
    return {
        "run": str(trainer.run.path),
        "task": trainer.task.name,
        **trainer.best_metrics,
        "steps": trainer.step,
        "epochs": trainer.epochs,
        "seconds": trainer.seconds,
        "measuring_seconds": trainer.measuring,
        "last_measuring_seconds": trainer.last_measuring,
        "predictions_per_second": trainer.predictions / trainer.seconds if trainer.seconds else 0.0,
        "unit": trainer.task.unit,
        "parameters": sum(p.numel() for p in trainer.parameters),
        "architecture": trainer.task.architecture,
        "backend": trainer.backend,
        "device": str(trainer.device),
        "precision": trainer.stepper.precision,
        "graph": trainer.graphs is not None,
        "threads": torch.get_num_threads(),
        "ranks": trainer.ranks.size,
        "skipped": trainer.skipped,
    }

"""Whether a step may be taken with what a batch gave, or training has diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recur.errors import TrainingError

if TYPE_CHECKING:
    from recur.train.trainer import Trainer

SKIP_AT_MOST = 20
"""Bad batches in a row that `on_nan=skip` passes over."""


def usable(trainer: Trainer, loss: Tensor, norm: Tensor) -> bool:
    """Whether a step may be taken; a batch that must not be is passed over, or ends training."""
    threshold = trainer.task.divergence_threshold(trainer.run.vocabs)
    # What float16 cannot hold, its scaler passes over, and lowers the scale.
    scaled = trainer.stepper.scaler.is_enabled()
    if (scaled or bool(torch.isfinite(norm))) and float(loss) < threshold:
        trainer.bad_in_a_row = 0
        return True
    trainer.bad_in_a_row += 1
    if trainer.options.on_nan == "skip" and trainer.bad_in_a_row <= SKIP_AT_MOST:
        trainer.skipped += 1
        trainer.records.drop()
        trainer.state = None
        return False
    diverged = not float(loss) < threshold
    what = f"the loss is {float(loss):.3g}" if diverged else f"the gradient's norm is {float(norm):.3g}"
    clip, rate = trainer.options.clip / 4 or 1, trainer.options.rate / 4
    advice = f"clip the gradient (--clip {clip:g}) or lower the rate (--rate {rate:g})"
    if trainer.options.on_nan == "stop":
        advice += "; --on-nan skip passes over bad batches"
    trainer.run.log({"step": trainer.step, "diverged": what})
    raise TrainingError(
        f"training diverged at step {trainer.step}: {what}. The best weights so far are kept in {trainer.run.path}; "
        f"try to {advice}"
    )

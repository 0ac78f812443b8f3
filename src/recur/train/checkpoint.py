"""What it takes to go on: everything of a trainer that changes from step to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from recur.train.trainer import Trainer

NUMBERS = (
    *("step", "epoch", "index", "predictions", "skipped", "seconds", "measuring"),
    *("best", "best_metrics", "since_best", "next_measure"),
)
"""What is saved as it is."""


def save_checkpoint(trainer: Trainer) -> None:
    state: dict[str, Any] = {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": trainer.schedule.state(),
        "random": torch.get_rng_state(),
        "hidden": _each_tensor(trainer.state, lambda part: part),
        "grads": [p.grad for p in trainer.parameters],  # between the steps of an accumulation
    }
    state |= {name: getattr(trainer, name) for name in NUMBERS}
    if trainer.device.type == "cuda":
        state["random_cuda"] = torch.cuda.get_rng_state()
    trainer.run.save_checkpoint(state)


def restore_checkpoint(trainer: Trainer) -> list[str]:
    """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
    state, complaints = trainer.run.load_checkpoint()
    trainer.run.put_weights(trainer.model, state["model"], f"{trainer.run.path}/resume")
    trainer.optimizer.load_state_dict(state["optimizer"])
    trainer.schedule.load(state["schedule"])
    torch.set_rng_state(state["random"])
    if "random_cuda" in state and trainer.device.type == "cuda":
        torch.cuda.set_rng_state(state["random_cuda"])
    for name in NUMBERS:
        setattr(trainer, name, state[name])
    trainer.state = _each_tensor(state["hidden"], lambda part: part.to(trainer.device))
    for p, grad in zip(trainer.parameters, state["grads"], strict=True):
        p.grad = None if grad is None else grad.to(trainer.device)
    trainer.run.forget_after(trainer.step)
    return complaints


def _each_tensor(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same nest of tuples, plain ones, so that a checkpoint names no class, with each tensor changed."""
    if state is None:
        return None
    return change(state) if isinstance(state, Tensor) else tuple(_each_tensor(part, change) for part in state)

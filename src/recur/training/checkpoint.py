"""Checkpoints: everything of a trainer that changes from step to step.

A checkpoint is a safetensors file with JSON metadata: tensors and numbers only. Its content is checked against the
model before any of it is used, because the kernels of the optimizer trust the shapes of its state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recur.compat import tree_map_only
from recur.data.text.stream import ProcessShard
from recur.errors import RunError
from recur.training.events import Event
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training.trainer import Trainer

NUMBERS: dict[str, type] = {
    **dict.fromkeys(("step", "epoch", "index", "predictions", "skipped", "bad_in_a_row", "since_best", "thin"), int),
    **dict.fromkeys(("seconds", "measuring", "next_measure", "best"), float),
    "measured_at": int,
}
"""Attributes of the trainer that are saved as they are, and their types."""

RANDOM = ("cpu", "cuda")

LIKE_WEIGHTS = ("exp_avg", "exp_avg_sq", "momentum_buffer", "ax")
KEPT = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "adamw": {"step", "exp_avg", "exp_avg_sq"},
    "sgd": {"momentum_buffer"},
    "asgd": {"step", "eta", "mu", "ax"},
}
"""State that each optimizer keeps of a parameter that has had a gradient; entries not LIKE_WEIGHTS are scalars."""

Tensors = dict[str, Tensor]


def save_checkpoint(trainer: Trainer) -> None:
    """Write the trainer's state as the newest checkpoint of its run."""
    # All ranks take part in these two messages, in this order; only rank 0 writes.
    parts = trainer.group.gather(_rank_state(trainer))
    grads = [None if p.grad is None else trainer.group.mean(p.grad) for p in trainer.parameters]
    if not trainer.group.is_main:
        return
    names = [name for name, _ in trainer.model.named_parameters()]
    tensors = {f"model/{name}": value for name, value in trainer.model.state_dict().items()}
    for name, p, grad in zip(names, trainer.parameters, grads, strict=True):
        kept = trainer.optimizer.state.get(p, {})
        tensors |= {f"optimizer/{name}/{key}": value for key, value in kept.items() if isinstance(value, Tensor)}
        if grad is not None:  # some batches of an accumulation are done
            tensors[f"grad/{name}"] = grad
    if trainer.average is not None:
        tensors |= {f"average/{name}": value for name, value in zip(names, trainer.average.values, strict=True)}
    tensors |= {f"records/{name}": value for name, value in trainer.records.to_tensors().items()}
    state: JsonObject = {name: getattr(trainer, name) for name in NUMBERS}
    state["best_metrics"] = trainer.best_metrics
    state["schedule"] = trainer.schedule.state()
    state["scaler"] = trainer.stepper.scaler.state_dict()
    state["averaging_from"] = [group.get("t0") for group in trainer.optimizer.param_groups]
    state["budget"] = _budget(trainer)
    state["hidden"] = _names(trainer.state, "hidden", {})
    state["ranks"] = len(parts)
    for name in parts[0]:
        if name.startswith("hidden"):  # concatenate the rows of all ranks, as one process has them
            tensors[name] = torch.cat([part[name].cpu() for part in parts])
    for rank, part in enumerate(parts):
        tensors |= {
            f"random/{kind}{_rank_suffix(rank)}": part[f"random/{kind}"] for kind in RANDOM if f"random/{kind}" in part
        }
    trainer.run.save_checkpoint(trainer.step, {k: v.detach().cpu() for k, v in tensors.items()}, state)


def _rank_state(trainer: Trainer) -> Tensors:
    """Return the tensors that differ between ranks: random and hidden states."""
    tensors: Tensors = {"random/cpu": torch.get_rng_state()}
    if trainer.device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    _names(trainer.state, "hidden", tensors)
    return tensors


def _rank_suffix(rank: int) -> str:
    return f"/{rank}" if rank else ""


def restore_checkpoint(trainer: Trainer) -> list[Event]:
    """Restore the newest intact checkpoint; return notes on newer ones, and warnings of what is lost."""
    weights = sum(value.numel() * value.element_size() for value in trainer.model.state_dict().values())
    entry, tensors, state, complaints = trainer.run.load_checkpoint(most=16 * weights + (1 << 28))
    where = f"{trainer.run.path / entry.file}"
    try:
        complaints += _restore(trainer, tensors, state, where)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{where} does not fit this run: {error}") from None
    # Training from an older checkpoint has the same result, but lost evaluations change the verdict.
    notes = [Event("note", {"text": complaint}) for complaint in complaints]
    return [*notes, *(Event("warning", {"text": lost}) for lost in trainer.run.rewind(entry))]


def _restore(trainer: Trainer, tensors: Tensors, state: JsonObject, where: str) -> list[str]:
    """Restore a checkpoint; return notes for the user."""
    # First everything is read and checked, so that a damaged file changes nothing.
    parts = _by_part(tensors)
    parameters = dict(trainer.model.named_parameters())
    order = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    numbered = {p: k for k, p in enumerate(order)}  # the optimizer numbers parameters group by group
    kept: dict[int, dict[str, Tensor]] = {}
    for name, value in parts.get("optimizer", {}).items():
        owner, _, key = name.rpartition("/")
        like = parameters[owner] if key in LIKE_WEIGHTS else torch.zeros(())
        if value.shape != like.shape or value.dtype != like.dtype:
            raise RunError(f"{where} does not fit this run: the optimizer's {key} of {owner} is {tuple(value.shape)}")
        kept.setdefault(numbered[parameters[owner]], {})[key] = value
    if any(set(keys) != KEPT[trainer.options.optimizer] for keys in kept.values()):
        raise RunError(
            f"{where} does not fit this run: it was saved with another optimizer than {trainer.options.optimizer}"
        )
    grads, averages = parts.get("grad", {}), parts.get("average", {})
    for what, values in (("gradient", grads), ("average", averages)):
        for name, value in values.items():
            if value.shape != parameters[name].shape or value.dtype != parameters[name].dtype:
                raise RunError(f"{where} does not fit this run: the {what} of {name} is {tuple(value.shape)}")
    if trainer.average is not None and set(averages) != set(parameters):
        raise RunError(f"{where} does not fit this run: it has no averaged weights")
    numbers = {name: _number(name, state[name], kind) for name, kind in NUMBERS.items()}
    metrics = {str(name): float(value) for name, value in state["best_metrics"].items()}
    share = ProcessShard(trainer.group.rank, trainer.group.size)
    hidden = tree_map_only(Tensor, lambda rows: rows[share.lanes(len(rows))], _tensors(state["hidden"], tensors))
    before = _number("ranks", state["ranks"], int)

    # Then it is applied. The optimizer's state comes after the weights, and the random state last: nothing below it may
    # draw a random number, or the resumed run would differ from one that was not stopped.
    trainer.run.put_weights(trainer.model, parts["model"], where)
    optimizer = trainer.optimizer.state_dict()
    for group, t0 in zip(optimizer["param_groups"], state["averaging_from"], strict=True):
        if "t0" in group:
            group["t0"] = float(t0)
    trainer.optimizer.load_state_dict({**optimizer, "state": kept})
    trainer.schedule.load(state["schedule"])
    trainer.stepper.scaler.load_state_dict(_scaler(state["scaler"], trainer.stepper.scaler.state_dict()))
    for name, number in numbers.items():
        setattr(trainer, name, number)
    trainer.best_metrics = metrics
    if state["budget"] != _budget(trainer):  # the budget was changed, and the run stopped before the next checkpoint
        trainer.plan_evaluations()
    trainer.state = tree_map_only(Tensor, lambda rows: rows.to(trainer.device), hidden)
    trainer.records.from_tensors(parts["records"], trainer.device)
    for name, p in parameters.items():
        p.grad = grads[name].to(trainer.device) if name in grads else None
    if trainer.average is not None:
        trainer.average.values = [averages[name].to(trainer.device) for name in parameters]
    own = _rank_suffix(trainer.group.rank)
    if f"cpu{own}" in parts["random"]:
        torch.set_rng_state(_random(parts["random"][f"cpu{own}"]))
        if f"cuda{own}" in parts["random"] and trainer.device.type == "cuda":
            torch.cuda.set_rng_state(parts["random"][f"cuda{own}"])
    else:  # a new rank
        trainer.group.seed(trainer.options.seed + trainer.step)
    if before == trainer.group.size:
        return []
    return [
        f"trained with {_processes(before)} until now, resumed with {_processes(trainer.group.size)}: batches and "
        "hidden states are redistributed, no data is lost or read twice; dropout draws other random numbers"
    ]


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def _budget(trainer: Trainer) -> list[float | None]:
    o = trainer.options
    return [o.epochs, o.steps, o.minutes]


def _scaler(kept: JsonObject, own: JsonObject) -> JsonObject:
    """Return the saved scale of float16's loss; the initial one for a checkpoint of another precision."""
    found: dict[str, Any] = {name: kept.get(name, value) for name, value in own.items()}
    if any(type(value) not in (int, float) or not 0 <= value < 1e30 for value in found.values()):
        raise ValueError("the loss scale is not a valid number")
    return found


def _random(state: Tensor) -> Tensor:
    """Return a state of PyTorch's generator after checking it.

    The number of words left (of 624) and the index of the next one must fit together. PyTorch checks each alone, and
    would read beyond the words if both are large.
    """
    if state.dtype != torch.uint8 or state.shape != torch.get_rng_state().shape:
        raise ValueError("the random state is invalid")
    left, following = state[8:12].view(torch.int32).item(), state[16:24].view(torch.int64).item()
    if not (0 < left <= 624 and 0 <= following <= 624 and left + following <= 625):
        raise ValueError("the random state is invalid")
    return state


def _by_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensors]:
    parts: dict[str, Tensors] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def _number(name: str, value: Any, kind: type) -> Any:
    """Return a number of the expected type; raise TypeError for anything else."""
    if type(value) not in (kind, int) or math.isnan(value) or (type(value) is int and not 0 <= value < 2**63):
        raise TypeError(f"{name} is {value!r}")
    return value


def _names(state: Any, name: str, tensors: Tensors) -> Any:
    """Return nested tuples of tensors as nested lists of names, and add the tensors under these names."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        tensors[name] = state
        return name
    return [_names(part, f"{name}/{k}", tensors) for k, part in enumerate(state)]


def _tensors(names: Any, tensors: Tensors) -> Any:
    """Return nested tuples of tensors for the nested lists of their names."""
    if names is None:
        return None
    return tensors[names] if isinstance(names, str) else tuple(_tensors(part, tensors) for part in names)

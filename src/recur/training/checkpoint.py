"""What it takes to go on: everything of a trainer that changes from step to step.

Tensors and numbers, nothing else: a checkpoint is safetensors with JSON beside them. What is read is checked against
the model before any of it is used, since the optimiser's kernels trust the shapes of its state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from recur.data.text.stream import Share
from recur.errors import RunError
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training.trainer import Trainer

NUMBERS: dict[str, type] = {
    **dict.fromkeys(("step", "epoch", "index", "predictions", "skipped", "bad_in_a_row", "since_best", "thin"), int),
    **dict.fromkeys(("seconds", "measuring", "next_measure", "best"), float),
    "measured_at": int,
}
"""What is saved as it is, and of which type."""

RANDOM = ("cpu", "cuda")

LIKE_WEIGHTS = ("exp_avg", "exp_avg_sq", "momentum_buffer", "ax")
KEPT = {
    "adam": {"step", "exp_avg", "exp_avg_sq"},
    "adamw": {"step", "exp_avg", "exp_avg_sq"},
    "sgd": {"momentum_buffer"},
    "asgd": {"step", "eta", "mu", "ax"},
}
"""What optimisers keep of each parameter that has had a gradient: all of it, or nothing. The rest are scalars."""

Tensors = dict[str, Tensor]


def save_checkpoint(trainer: Trainer) -> None:
    parts = trainer.ranks.gather(_of_rank(trainer))
    grads = [None if p.grad is None else trainer.ranks.average(p.grad) for p in trainer.parameters]
    if not trainer.ranks.writes:
        return
    names = [name for name, _ in trainer.model.named_parameters()]
    tensors = {f"model/{name}": value for name, value in trainer.model.state_dict().items()}
    for name, p, grad in zip(names, trainer.parameters, grads, strict=True):
        kept = trainer.optimizer.state.get(p, {})
        tensors |= {f"optimizer/{name}/{key}": value for key, value in kept.items() if isinstance(value, Tensor)}
        if grad is not None:  # between the steps of an accumulation
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
        if name.startswith("hidden"):  # the lanes of all ranks, one behind the other, as one process has them
            tensors[name] = torch.cat([part[name].cpu() for part in parts])
    for rank, part in enumerate(parts):
        tensors |= {f"random/{kind}{_of(rank)}": part[f"random/{kind}"] for kind in RANDOM if f"random/{kind}" in part}
    trainer.run.save_checkpoint(trainer.step, {k: v.detach().cpu() for k, v in tensors.items()}, state)


def _of_rank(trainer: Trainer) -> Tensors:
    """What each rank has of its own."""
    tensors: Tensors = {"random/cpu": torch.get_rng_state()}
    if trainer.device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    _names(trainer.state, "hidden", tensors)
    return tensors


def _of(rank: int) -> str:
    return f"/{rank}" if rank else ""


def restore_checkpoint(trainer: Trainer) -> list[str]:
    """Go back to the newest whole checkpoint; what was wrong with newer ones is returned."""
    weights = sum(value.numel() * value.element_size() for value in trainer.model.state_dict().values())
    entry, tensors, state, complaints = trainer.run.load_checkpoint(most=16 * weights + (1 << 28))
    where = f"{trainer.run.path / entry.file}"
    try:
        complaints += _restore(trainer, tensors, state, where)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{where} does not fit this run: {error}") from None
    return [*complaints, *trainer.run.rewind(entry)]


def _restore(trainer: Trainer, tensors: Tensors, state: JsonObject, where: str) -> list[str]:
    """What there is to say of it."""
    parts = _by_part(tensors)
    parameters = dict(trainer.model.named_parameters())
    order = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    numbered = {p: k for k, p in enumerate(order)}  # as the optimiser counts them, group by group
    kept: dict[int, dict[str, Tensor]] = {}
    for name, value in parts.get("optimizer", {}).items():
        owner, _, key = name.rpartition("/")
        like = parameters[owner] if key in LIKE_WEIGHTS else torch.zeros(())
        if value.shape != like.shape or value.dtype != like.dtype:
            raise RunError(f"{where} does not fit this run: the optimiser's {key} of {owner} is {tuple(value.shape)}")
        kept.setdefault(numbered[parameters[owner]], {})[key] = value
    if any(set(keys) != KEPT[trainer.options.optimizer] for keys in kept.values()):
        raise RunError(f"{where} does not fit this run: it is of another optimiser than {trainer.options.optimizer}")
    grads, averages = parts.get("grad", {}), parts.get("average", {})
    for what, values in (("gradient", grads), ("average", averages)):
        for name, value in values.items():
            if value.shape != parameters[name].shape or value.dtype != parameters[name].dtype:
                raise RunError(f"{where} does not fit this run: the {what} of {name} is {tuple(value.shape)}")
    if trainer.average is not None and set(averages) != set(parameters):
        raise RunError(f"{where} does not fit this run: it has no average of the weights")
    numbers = {name: _number(name, state[name], kind) for name, kind in NUMBERS.items()}
    metrics = {str(name): float(value) for name, value in state["best_metrics"].items()}
    hidden = _lanes(_tensors(state["hidden"], tensors), Share(trainer.ranks.rank, trainer.ranks.size))
    before = _number("ranks", state["ranks"], int)

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
    if state["budget"] != _budget(trainer):  # it was given another one, and left before it was saved again
        trainer.plan_measurements()
    trainer.state = _moved(hidden, trainer.device)
    trainer.records.from_tensors(parts["records"], trainer.device)
    for name, p in parameters.items():
        p.grad = grads[name].to(trainer.device) if name in grads else None
    if trainer.average is not None:
        trainer.average.values = [averages[name].to(trainer.device) for name in parameters]
    own = _of(trainer.ranks.rank)
    if f"cpu{own}" in parts["random"]:
        torch.set_rng_state(_random(parts["random"][f"cpu{own}"]))
        if f"cuda{own}" in parts["random"] and trainer.device.type == "cuda":
            torch.cuda.set_rng_state(parts["random"][f"cuda{own}"])
    else:  # a rank that was not there before
        trainer.ranks.seed(trainer.options.seed + trainer.step)
    if before == trainer.ranks.size:
        return []
    return [
        f"it was trained by {_processes(before)} until now, and goes on with {_processes(trainer.ranks.size)}: batches "
        "are dealt again, lanes with their state, nothing of the data lost or read twice; dropout draws other numbers"
    ]


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def _budget(trainer: Trainer) -> list[float | None]:
    o = trainer.options
    return [o.epochs, o.steps, o.minutes]


def _scaler(kept: JsonObject, own: JsonObject) -> JsonObject:
    """Where the scale of float16's loss was; its own, in a checkpoint of another precision."""
    found: dict[str, Any] = {name: kept.get(name, value) for name, value in own.items()}
    if any(type(value) not in (int, float) or not 0 <= value < 1e30 for value in found.values()):
        raise ValueError("the scale of its loss is none")
    return found


def _random(state: Tensor) -> Tensor:
    """A state of torch's generator that is one: how many of its 624 words are left, and which is next, fit together.

    torch looks at each of the two and would read behind the words where both are large.
    """
    if state.dtype != torch.uint8 or state.shape != torch.get_rng_state().shape:
        raise ValueError("the state of its random numbers is none")
    left, following = state[8:12].view(torch.int32).item(), state[16:24].view(torch.int64).item()
    if not (0 < left <= 624 and 0 <= following <= 624 and left + following <= 625):
        raise ValueError("the state of its random numbers is none")
    return state


def _by_part(tensors: Mapping[str, Tensor]) -> dict[str, Tensors]:
    parts: dict[str, Tensors] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def _number(name: str, value: Any, kind: type) -> Any:
    """A number of its type; anything else is damage."""
    if type(value) not in (kind, int) or math.isnan(value) or (type(value) is int and not 0 <= value < 2**63):
        raise TypeError(f"{name} is {value!r}")
    return value


def _names(state: Any, name: str, tensors: Tensors) -> Any:
    """A nest of tuples of tensors as one of their names, with the tensors put under them."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        tensors[name] = state
        return name
    return [_names(part, f"{name}/{k}", tensors) for k, part in enumerate(state)]


def _tensors(names: Any, tensors: Tensors) -> Any:
    """… and back."""
    if names is None:
        return None
    return tensors[names] if isinstance(names, str) else tuple(_tensors(part, tensors) for part in names)


def _lanes(state: Any, share: Share) -> Any:
    """Those of a rank."""
    if state is None:
        return None
    return state[share.lanes(len(state))] if isinstance(state, Tensor) else tuple(_lanes(part, share) for part in state)


def _moved(state: Any, device: torch.device) -> Any:
    if state is None:
        return None
    return state.to(device) if isinstance(state, Tensor) else tuple(_moved(part, device) for part in state)

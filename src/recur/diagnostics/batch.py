"""What the recurrent parts of a task's network read: one batch of the task's own, as training gives it.

A task is known by its contract: it reads data, makes batches of it and has a loss of one. Whatever network computes
that loss, each `Recurrent` in it is seen with the input that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.i18n import said
from recur.nn import Recurrent
from recur.tasks.contract import Moment
from recur.tasks.predictor import Predictor
from recur.tasks.signals import SignalBatch, SignalTask, signals_of

ROWS = 16
"""Sequences of a batch that are looked at: its longest."""


class Part(NamedTuple):
    """A recurrent part of a network and what it read."""

    name: str
    net: Recurrent
    inputs: Tensor
    """(B, T, D), all of one length."""


def recurrent_parts(predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any] = ()) -> list[Part]:
    """The recurrent parts that a batch goes through, the one of most weights first; of files, or of what the run
    learned from; of sequences of numbers, which need no labels here, also of one as an array. None for a network
    without a recurrence in time."""
    model: nn.Module = predictor.model
    nets = {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}
    if not nets:
        return []
    read = _read(predictor, files, nets)
    parts = [Part(name, nets[name], _rows(*read[name])) for name in nets if name in read]
    return sorted(parts, key=lambda part: -sum(p.numel() for p in part.net.parameters()))


def why_none(predictor: Predictor[Any]) -> str:
    """What is and is not looked at in a network without a recurrence in time."""
    task = predictor.task
    return said(
        "the network of this {task} run ({network}) has no recurrent layer that reads along time: gradient "
        "flow, gates, "
        "saturation, states and the spectrum of W are not measured; how its training went is",
        task=task.name, network=task.architecture,
    )  # fmt: skip


def chosen(parts: Sequence[Part], name: str) -> Part:
    """A part by its name; the largest, if none is given."""
    found = [part for part in parts if name in ("", part.name)]
    if not found:
        raise OptionError(f"no recurrent part {name!r}; this network has {', '.join(part.name for part in parts)}")
    return found[0]


def _read(
    predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any], nets: dict[str, Recurrent]
) -> dict[str, tuple[Tensor, Sequence[int] | None]]:
    """What each of them read, and how long its rows are."""
    found: dict[str, tuple[Tensor, Sequence[int] | None]] = {}

    def watch(name: str) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any]) -> None:
            lengths = kwargs.get("lengths")
            found.setdefault(name, (args[0].detach(), None if lengths is None else [int(n) for n in lengths]))

        return hook

    run = _pass(predictor, files)
    hooks = [net.register_forward_pre_hook(watch(name), with_kwargs=True) for name, net in nets.items()]
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _pass(predictor: Predictor[Any], files: Sequence[str] | np.ndarray[Any, Any]) -> Callable[[], object]:
    """One pass of the network over a batch."""
    task = predictor.task
    if len(files) and isinstance(task, SignalTask):
        given = [files] if isinstance(files, np.ndarray) else files
        signals = [signal._replace(target=None) for one in given for signal in signals_of(one)]
        examples = task.encode(signals, predictor.run.vocabs)
        numbers = SignalBatch.of(sorted(examples, key=lambda example: -example.size)[:ROWS])
        return lambda: predictor.model(numbers.x.to(predictor.device), numbers.lengths)
    if isinstance(files, np.ndarray):
        raise OptionError(f"a model of the task {task.name} reads files, got an array")
    if files:
        parts = [part for part in ("texts", "valid", "test") if part in task.options.names()]
        # A task that cuts its validation part off itself may join the test part to the others.
        own = {part: () if part == "test" and "valid" not in parts else tuple(files) for part in parts}
        task = type(task)(task.options.changed(**own))
    else:
        predictor.find_texts(*(part for part in ("texts", "valid") if part in task.options.names()))
    data = task.read(predictor.run.vocabs)
    batch = next(iter(task.batches(data).batches(0)))
    return lambda: task.training_step(predictor.model, batch, None, Moment(0, 0, 0.0))


def _rows(x: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """The longest rows, as far as the shortest of them reaches."""
    if lengths is None:
        return x[:ROWS]
    order = sorted(range(len(lengths)), key=lambda k: -lengths[k])
    kept = [k for k in order if lengths[k] >= 0.8 * lengths[order[0]]][:ROWS]
    return x[kept, : min(lengths[k] for k in kept)]

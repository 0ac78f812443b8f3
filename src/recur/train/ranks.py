"""Processes that train one model together: which rows are whose, what they agree on, and who writes.

Every rank has the whole model and its rows of each batch. Gradients are averaged while the rest of the backward pass
runs (together.py), or behind it, where they are few (one_message.py), so that weights stay the same on all of them.
What is decided by a clock, a validation or a signal is decided once: rank 0 measures, writes and tells; a stop that any
rank hears of, all of them follow after the same step. A single process is the same with nobody to ask.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recur.errors import OptionError, RankError
from recur.launch import Launch
from recur.run import pick_device
from recur.run.tensors import from_bytes, to_bytes
from recur.tasks.contract import Batches, Moment, Task, TrainingStep
from recur.text.shares import Share
from recur.train.one_message import OneMessage, fits_one_message, same_start
from recur.train.together import Together

T = TypeVar("T")

FAILED = "failed"
"""Where the rank that fails first says so."""

LOOK = timedelta(seconds=2)
"""Between two looks at whether another rank has failed, while the first one works by itself for as long as it takes."""


NOTHING = TrainingStep(torch.zeros(()), 0, "")
"""Of a rank that has no row of a batch."""


class Agreed(NamedTuple):
    """Of a step of all ranks."""

    loss: Tensor
    """The mean over what all of them predicted."""
    predictions: int


class Ranks:
    """A process by itself."""

    def __init__(self, at: Launch | None = None) -> None:
        self.at = at or Launch()
        self.rank, self.size = self.at.rank, self.at.size

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def begin(self) -> None:
        """Before a training: nothing is agreed on yet."""

    def device(self, name: str) -> torch.device:
        return pick_device(name)

    def shared(self, batches: Batches[Any]) -> Batches[Any]:
        """This rank's rows of every batch."""
        return batches

    def seed(self, seed: int) -> None:
        """After all ranks have drawn the same weights: each draws dropout of its own."""

    def training_step(
        self, task: Task[Any, Any, Any, Any], model: nn.Module, batch: Any, state: Any, moment: Moment, last: bool
    ) -> TrainingStep:
        """A task's step; the last before the optimiser's averages gradients on its way back."""
        return task.training_step(model, batch, state, moment)

    def scale(self, done: TrainingStep, stop: threading.Event, several: bool) -> float:
        """On this rank's loss, on the way back, which one of 0 need not go: so that the average over ranks is the mean
        over what all of them predicted. Gradients of `several` batches are added up."""
        return 1.0

    def agree(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> Agreed:
        """Behind the way back; the last before the optimiser's step leaves gradients that are averaged."""
        return Agreed(done.loss.detach(), done.predictions)

    def spent(self, seconds: float) -> float:
        """What a step took, by the first rank's clock."""
        return seconds

    def stopping(self, stop: threading.Event) -> bool:
        """Whether any was stopped when they agreed last."""
        return stop.is_set()

    def first(self, work: Callable[[], T]) -> T:
        """What the first rank finds (of what JSON has), however long it takes; the others wait for it."""
        return work()

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Those of every rank, in their order, on the first; elsewhere nothing of use."""
        return [tensors]

    def average(self, tensor: Tensor) -> Tensor:
        return tensor

    def check_same(self, what: str, content: str) -> None:
        """Refuse to go on where ranks read different things."""


class SeveralRanks(Ranks):
    """One of several."""

    def __init__(self, at: Launch, store: dist.Store, compress: str) -> None:  # type: ignore[name-defined]
        super().__init__(at)
        self.store, self.together = store, Together(compress)
        self.message = OneMessage(self, at.locals == at.size, compress)
        self._model: nn.Module | None = None
        self._small = False
        """Whether its gradients are one message."""
        self._agreed: Agreed | None = None
        self._told = self._met = 0
        self.begin()

    def begin(self) -> None:
        self._pending = self._spent = 0.0
        self._stop = False

    def device(self, name: str) -> torch.device:
        """Every rank of a machine has a GPU of its own."""
        return local_device(name, self.at)

    def shared(self, batches: Batches[Any]) -> Batches[Any]:
        return batches.shared(Share(self.rank, self.size))

    def seed(self, seed: int) -> None:
        if self.rank:
            words = hashlib.sha256(f"{seed} {self.rank}".encode()).digest()
            torch.manual_seed(int.from_bytes(words[:8], "little") >> 1)

    def training_step(
        self, task: Task[Any, Any, Any, Any], model: nn.Module, batch: Any, state: Any, moment: Moment, last: bool
    ) -> TrainingStep:
        if model is not self._model:
            self._model, self._small = model, fits_one_message(model)
            if self._small:
                same_start(model)
        if not self._small:
            return self.together(task, model, batch, state, moment, last)
        return task.training_step(model, batch, state, moment) if batch is not None else NOTHING

    def scale(self, done: TrainingStep, stop: threading.Event, several: bool) -> float:
        """Where gradients of one batch are one message, that says the rest; else ranks meet before the way back."""
        self._agreed, weight = None, _weight(done)
        if self._small and not several:
            return float(weight > 0)
        words = torch.tensor([weight, *self._words(done, weight, stop)], dtype=torch.float64)
        dist.all_reduce(words)
        total, *sums = words.tolist()
        self._agreed = self._read(done, weight, total, sums)
        return self.size * weight / (total or 1.0)

    def agree(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> Agreed:
        if self._agreed is None:
            weight = _weight(done)
            return self._read(done, weight, *self.message.average(model, weight, self._words(done, weight, stop)))
        if self._small and last:
            self.message.average(model, 1.0, ())
        return self._agreed

    def _words(self, done: TrainingStep, weight: float, stop: threading.Event) -> list[float]:
        """What this rank says in a step; a loss on a GPU would have to be waited for."""
        known = float(done.loss.detach()) * weight if done.loss.device.type == "cpu" and weight else 0.0
        return [known, done.predictions, float(stop.is_set()), self._pending if self.rank == 0 else 0.0]

    def _read(self, done: TrainingStep, weight: float, total: float, sums: list[float]) -> Agreed:
        """… and what all of them have said."""
        known, predictions, stopped, clock = sums
        self._stop, self._spent, self._pending = stopped > 0, self._spent + clock, 0.0
        loss, total = done.loss.detach(), total or 1.0
        if loss.device.type == "cpu":
            mean = torch.tensor(known / total, dtype=loss.dtype)
        else:
            mean = loss * (weight / total) if weight else torch.zeros_like(loss)
            dist.all_reduce(mean)
        return Agreed(mean, round(predictions))

    def spent(self, seconds: float) -> float:
        """One step late: what the first rank said when they agreed last."""
        self._pending += seconds
        told, self._spent = self._spent, 0.0
        return told

    def stopping(self, stop: threading.Event) -> bool:
        return self._stop

    def first(self, work: Callable[[], T]) -> T:
        self._told += 1
        key = f"told/{self._told}"
        if self.rank == 0:
            found = work()
            self.store.set(key, json.dumps(found))
            return found
        told: T = json.loads(self._waited(key))
        return told

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        content = to_bytes({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {})
        if self.rank:
            mine = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            dist.send(torch.tensor([len(content)]), 0)
            dist.send(mine, 0)
            return []
        found = [tensors]
        for rank in range(1, self.size):
            size = torch.zeros(1, dtype=torch.int64)
            dist.recv(size, rank)
            part = torch.empty(int(size), dtype=torch.uint8)
            dist.recv(part, rank)
            found.append(from_bytes(part.numpy().tobytes(), Path(f"rank {rank}"))[0])
        return found

    def average(self, tensor: Tensor) -> Tensor:
        mean = tensor / self.size
        dist.all_reduce(mean)
        return mean

    def everyone(self, value: T) -> list[T]:
        """What each rank says (of what JSON has), in their order."""
        self._met += 1
        self.store.set(f"met/{self._met}/{self.rank}", json.dumps(value))
        return [json.loads(self._waited(f"met/{self._met}/{rank}")) for rank in range(self.size)]

    def check_same(self, what: str, content: str) -> None:
        digests = self.everyone(hashlib.sha256(content.encode()).hexdigest())
        if others := [rank for rank, digest in enumerate(digests) if digest != digests[0]]:
            line = f"rank {others[0]} has {what} other than rank 0's: all of them need the same files and flags"
            raise OptionError(line) if self.writes else RankError(line, mine=False)

    def _waited(self, key: str) -> bytes:
        while True:
            try:
                self.store.wait([key], LOOK)
            except dist.DistStoreError:  # it is not there yet
                if self.store.check([FAILED]):
                    raise RankError(self.store.get(FAILED).decode(), mine=False) from None
                continue
            content: bytes = self.store.get(key)
            return content


def _weight(done: TrainingStep) -> float:
    return float(done.predictions if done.weight is None else done.weight)


def local_device(name: str, at: Launch) -> torch.device:
    device = pick_device(name)
    if device.type != "cuda":
        return device
    if ":" in name:
        raise OptionError(
            f"--device {name} is one GPU, and there are {at.size} processes: --device cuda gives each its own"
        )
    if at.locals > torch.cuda.device_count():
        many = f"{at.locals} processes on this machine and {torch.cuda.device_count()} GPU(s)"
        raise OptionError(f"{many}: start one for each (torchrun --nproc-per-node), or take --device cpu")
    return torch.device("cuda", at.local)


ALONE = Ranks()

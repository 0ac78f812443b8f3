"""Gradients that fit into one bucket, averaged by one message of a step.

There is nothing to overlap then: the bucket is whole when the way back is over. So what ranks agree on in each step
travels at its end, which spares a second meeting before the way back, and with it what the faster rank waits there; so
does which parameters had a gradient at all (a learned first state has none in the middle of a text). Each rank sends

    w g,  w,  what else is agreed on          g the gradient of its mean loss, w what that is a mean over

and divides the sum of the first by that of the second.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from recur.data.text.stream import Share
from recur.errors import OptionError, RankError, RecurError
from recur.runs import Run, Vocabs, pick_device
from recur.runs.manifest import Checkpoint, Manifest
from recur.runs.weights import from_bytes, to_bytes
from recur.tasks.contract import Batches, Moment, Task, TrainingStep
from recur.utils.launch import Launch
from recur.utils.types import JsonObject

BUCKET_BYTES = 25 * 2**20
"""Bytes; above, DistributedDataParallel has several and sends the first ones early."""


def fits_one_bucket(model: nn.Module) -> bool:
    """On a GPU it would have to be waited for."""
    parameters = list(model.parameters())
    alike = {(p.device.type, p.dtype) for p in parameters} in ({("cpu", torch.float32)}, {("cpu", torch.float64)})
    return alike and sum(p.numel() * p.element_size() for p in parameters) <= BUCKET_BYTES


def broadcast_weights(model: nn.Module) -> None:
    """Weights drawn or read by another machine may differ in their last bits: the first rank's count."""
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


class FusedAllReduce:
    """Memory for a step's gradients, in which they stay until the optimiser has used them."""

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._memory = torch.empty(0)

    def average(self, model: nn.Module, weight: float, also: Sequence[float]) -> tuple[float, list[float]]:
        """Every gradient becomes the mean over ranks, by their weights; the sum of the weights, and that of `also`."""
        learning = [p for p in model.parameters() if p.requires_grad]
        head = [weight, *also, *(float(p.grad is not None) for p in learning)]
        memory = self._of(len(head) + sum(p.numel() for p in learning), learning[0].dtype)
        first, *parts = memory.split([len(head), *(p.numel() for p in learning)])
        first.copy_(torch.tensor(head, dtype=torch.float64))
        for p, part in zip(learning, parts, strict=True):
            part.zero_() if p.grad is None else torch.mul(p.grad, weight, out=part.view_as(p))
        self._send(memory, len(head))
        total, *rest = first.tolist()
        memory[len(head) :].mul_(1 / total if total else 0.0)
        for p, part, seen in zip(learning, parts, rest[len(also) :], strict=True):
            p.grad = part.view_as(p) if seen else None
        return total, rest[: len(also)]

    def _send(self, memory: Tensor, head: int) -> None:
        if self.compress == "none":
            dist.all_reduce(memory)
            return
        agreed, gradients = memory[:head], memory[head:]
        short = gradients.to(torch.bfloat16)
        under_way = [dist.all_reduce(part, async_op=True) for part in (agreed, short)]
        for work in under_way:
            work.wait()
        gradients.copy_(short)

    def _of(self, size: int, dtype: torch.dtype) -> Tensor:
        if self._memory.numel() != size or self._memory.dtype != dtype:
            self._memory = torch.empty(size, dtype=dtype)
        return self._memory


# Without `annotations` of __future__: torch looks at those of a hook, and wants them as they are.


_NAMES = inspect.signature(DistributedDataParallel).parameters
_BUFFERS_STAY: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}
"""What is fitted to the validation part is the first rank's, and no training step reads it. Its name has changed."""


class _Step(nn.Module):
    def __init__(self, task: Task[Any, Any, Any, Any], model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Any, state: Any, moment: Moment) -> TrainingStep:
        if batch is not None:
            return self.task.training_step(self.model, batch, state, moment)
        # Of a batch with fewer rows than there are ranks, this one has none: it brings a gradient of zero.
        some = next(p for p in self.model.parameters() if p.requires_grad)
        return TrainingStep((some * 0.0).sum(), 0, "", weight=torch.zeros(()))


class DDPStep:
    """Steps whose gradients are those of all ranks."""

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._wrapped: DistributedDataParallel | None = None
        self._learns: tuple[bool, ...] = ()

    def __call__(
        self, task: Task[Any, Any, Any, Any], model: nn.Module, batch: Any, state: Any, moment: Moment, last: bool
    ) -> TrainingStep:
        step = self._of(task, model)
        with nullcontext() if last else step.no_sync():  # batches that are added up travel once
            done: TrainingStep = step(batch, state, moment)
        return done

    def _of(self, task: Task[Any, Any, Any, Any], model: nn.Module) -> DistributedDataParallel:
        """Made anew whenever other layers learn, which all ranks see in the same step."""
        learns = tuple(p.requires_grad for p in model.parameters())
        if self._wrapped is None or self._wrapped.module.model is not model or learns != self._learns:
            self._learns = learns
            self._wrapped = DistributedDataParallel(
                _Step(task, model), find_unused_parameters=True, gradient_as_bucket_view=True, **_BUFFERS_STAY
            )
            if self.compress == "bfloat16":
                self._wrapped.register_comm_hook(None, _average_in_bfloat16)
        return self._wrapped


def _average_in_bfloat16(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses string annotations
    """Half the bytes: averaged in bfloat16, added to weights in their own precision."""
    sent = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    travelled: torch.futures.Future[list[Tensor]] = dist.all_reduce(sent, async_op=True).get_future()

    def received(future: torch.futures.Future[list[Tensor]]) -> Tensor:
        whole: Tensor = bucket.buffer()
        return whole.copy_(future.value()[0])

    return travelled.then(received)


T = TypeVar("T")

FAILURE_KEY = "failed"
"""Where the rank that fails first says so."""

POLL_INTERVAL = timedelta(seconds=2)
"""Between two looks at whether another rank has failed, while the first one works by itself for as long as it takes."""


EMPTY_STEP = TrainingStep(torch.zeros(()), 0, "")
"""Of a rank that has no row of a batch."""


class GlobalStep(NamedTuple):
    """Of a step of all ranks."""

    loss: Tensor
    """The mean over what all of them predicted."""
    predictions: int


class ProcessGroup:
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

    def agree(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> GlobalStep:
        """Behind the way back; the last before the optimiser's step leaves gradients that are averaged."""
        return GlobalStep(done.loss.detach(), done.predictions)

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


class MultiProcessGroup(ProcessGroup):
    """One of several."""

    def __init__(self, at: Launch, store: dist.Store, compress: str) -> None:  # type: ignore[name-defined]
        super().__init__(at)
        self.store, self.together = store, DDPStep(compress)
        self.message = FusedAllReduce(compress)
        self._model: nn.Module | None = None
        self._small = False
        """Whether its gradients are one message."""
        self._agreed: GlobalStep | None = None
        self._told = self._met = 0
        store.set(f"process/{self.rank}", json.dumps([socket.gethostname(), os.getpid()]))
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
            self._model, self._small = model, fits_one_bucket(model)
            if self._small:
                broadcast_weights(model)
        if not self._small:
            return self.together(task, model, batch, state, moment, last)
        return task.training_step(model, batch, state, moment) if batch is not None else EMPTY_STEP

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

    def agree(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> GlobalStep:
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

    def _read(self, done: TrainingStep, weight: float, total: float, sums: list[float]) -> GlobalStep:
        """… and what all of them have said."""
        known, predictions, stopped, clock = sums
        self._stop, self._spent, self._pending = stopped > 0, self._spent + clock, 0.0
        loss, total = done.loss.detach(), total or 1.0
        if loss.device.type == "cpu":
            mean = torch.tensor(known / total, dtype=loss.dtype)
        else:
            mean = loss * (weight / total) if weight else torch.zeros_like(loss)
            dist.all_reduce(mean)
        return GlobalStep(mean, round(predictions))

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
        told: T = json.loads(self._waited(key, 0))
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
        return [json.loads(self._waited(f"met/{self._met}/{rank}", rank)) for rank in range(self.size)]

    def check_same(self, what: str, content: str) -> None:
        digests = self.everyone(hashlib.sha256(content.encode()).hexdigest())
        if others := [rank for rank, digest in enumerate(digests) if digest != digests[0]]:
            line = f"rank {others[0]} has {what} other than rank 0's: all of them need the same files and flags"
            raise OptionError(line) if self.writes else RankError(line, mine=False)

    def _waited(self, key: str, rank: int) -> bytes:
        """Return what a rank stores, however long it takes; a rank that failed or ended is not waited for."""
        while True:
            try:
                self.store.wait([key], POLL_INTERVAL)
            except dist.DistStoreError:  # it is not there yet
                if self.store.check([FAILURE_KEY]):
                    raise RankError(self.store.get(FAILURE_KEY).decode(), mine=False) from None
                if self._has_ended(rank):
                    raise RankError(f"rank {rank} has ended, and rank {self.rank} waits for it no longer") from None
                continue
            content: bytes = self.store.get(key)
            return content

    def _has_ended(self, rank: int) -> bool:
        """Return True if the process of a rank on this machine is gone; killed, it cannot say so itself."""
        first = self.rank - self.at.local  # the ranks of this machine follow each other
        key = f"process/{rank}"
        if not first <= rank < first + self.at.locals or not self.store.check([key]):
            return False
        host, process = json.loads(self.store.get(key))
        if host != socket.gethostname():
            return False
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # somebody else's process: the number is in use again
            return True
        return False


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


SINGLE_PROCESS = ProcessGroup()


TIMEOUT = timedelta(minutes=5)
"""What a step of another rank may take; one that takes longer hangs."""

_JOINED = itertools.count()


@contextmanager
def process_group(at: Launch, device: str = "cpu", compress: str = "none") -> Iterator[ProcessGroup]:
    """The processes of a launch, while they train. An error of one of them ends all, each with a `RankError`, which is
    that rank's own to say."""
    if at.size == 1:
        yield ProcessGroup(at)
        return
    ranks = connect(at, device, compress)
    try:
        yield ranks
    except BaseException as error:
        failed = _failed(ranks, error)
        if failed is None:
            raise
        raise failed from (None if isinstance(error, RecurError) or not failed.mine else error)
    dist.destroy_process_group()


def connect(at: Launch, device: str = "cpu", compress: str = "none") -> MultiProcessGroup:
    """Find the others, and meet: by gloo, and on GPUs by NCCL too."""
    kind = local_device(device, at)
    if kind.type == "cuda":
        torch.cuda.set_device(kind)
    try:
        url = f"tcp://{at.address}:{at.port}" if not _by_torchrun() else "env://"
        store, _, _ = next(rendezvous(url, at.rank, at.size, timeout=TIMEOUT))
        store = PrefixStore(f"recur/{at.restarts}/{at.size}/{next(_JOINED)}", store)  # it outlives restarts
        backend = "gloo" if kind.type == "cpu" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(
            backend, store=PrefixStore("group", store), rank=at.rank, world_size=at.size, timeout=TIMEOUT
        )
    except (RuntimeError, ValueError) as error:  # torch's own
        why = f"process {at.rank} of {at.size} does not find the others at {at.address}:{at.port}"
        raise OptionError(f"{why}: {_first_line(error)}") from None
    return MultiProcessGroup(at, store, compress)


def _by_torchrun() -> bool:
    return dist.is_torchelastic_launched()


def _failed(ranks: MultiProcessGroup, error: BaseException) -> RankError | None:
    """Tell the others; or find that one of them has failed before, which is why this one did. None where the error
    itself says all."""
    if isinstance(error, RankError | SystemExit | GeneratorExit):
        return None
    if isinstance(error, KeyboardInterrupt) and ranks.stopping(threading.Event()):
        return None  # all of them have stopped after the same step
    line = f"rank {ranks.rank}: {_first_line(error)}"
    try:
        said = ranks.store.compare_set(FAILURE_KEY, "", line).decode()
    except RuntimeError:  # who keeps the store is gone
        said = line if ranks.rank == 0 else ""
    if said != line:
        return RankError(said, mine=False)
    if _is_of_network(error):
        why = "another process of this training has ended, or hangs"
        return RankError(f"rank {ranks.rank}: {why}; recur resume goes on from the newest checkpoint")
    return RankError(line) if isinstance(error, RecurError) else None


def _is_of_network(error: BaseException) -> bool:
    words = str(error)
    return isinstance(error, RuntimeError) and (
        isinstance(error, dist.DistError)
        or any(name in words for name in ("gloo", "NCCL", "Connection", "ncclUnhandled"))
    )


def _first_line(error: BaseException) -> str:
    words = str(error).strip()
    return words.splitlines()[0] if words else type(error).__name__


class NullRun(Run):
    """Everything that would change the folder does nothing."""

    @classmethod
    def of(cls, path: Path, task: str, vocabs: Vocabs) -> NullRun:
        """Of a run that the first rank has begun, maybe on a disk that this one does not see."""
        return cls(path, Manifest(task, list(vocabs)), vocabs)

    def replace(self, name: str, content: bytes) -> None: ...

    def add_machine(self, entry: JsonObject) -> None: ...

    def commit(self) -> None: ...

    def save_weights(self, model: nn.Module, **about: object) -> None: ...

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None: ...

    def save_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: JsonObject) -> None: ...

    def rewind(self, to: Checkpoint) -> list[str]:
        return []

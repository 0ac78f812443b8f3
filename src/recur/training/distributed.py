"""Data-parallel training with several processes: the process group, gradient averaging and failures.

Every rank has the whole model and its rows of each batch. DistributedDataParallel averages gradients during the
backward pass (`DDPStep`); on the CPU, gradients that fit into one bucket are averaged by one all-reduce after it
(`FusedAllReduce`). So the weights stay equal on all ranks. Decisions that depend on a clock, a validation or a signal
are made once: rank 0 evaluates and writes, and the other ranks receive its decision. A stop that reaches any rank ends
all ranks after the same step.
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

from recur.data.text.stream import ProcessShard
from recur.errors import OptionError, RankError, RecurError
from recur.runs import Run, Vocabs, pick_device
from recur.runs.manifest import Checkpoint, Manifest
from recur.runs.weights import from_bytes, to_bytes
from recur.tasks.common.contract import Batches, Task, TrainingProgress, TrainingStep
from recur.utils.processes import Launch
from recur.utils.types import JsonObject

T = TypeVar("T")
AnyTask = Task[Any, Any, Any, Any]

TIMEOUT = timedelta(minutes=5)
"""Longest step of another rank; a rank that takes longer hangs."""

POLL_INTERVAL = timedelta(seconds=2)
"""Time between two checks whether another rank has failed, while this rank waits for it."""

FAILURE_KEY = "failed"
"""Key of the store under which the rank that fails first writes its message."""

BUCKET_BYTES = 25 * 2**20
"""Bytes of gradients in one bucket of DistributedDataParallel, which sends the first of several buckets early."""


# Gradients -------------------------------------------------------------------------------------------------------


def fits_one_bucket(model: nn.Module) -> bool:
    """Return True if the gradients of a model on the CPU are of one dtype and fit into one bucket."""
    parameters = list(model.parameters())
    uniform = {(p.device.type, p.dtype) for p in parameters} in ({("cpu", torch.float32)}, {("cpu", torch.float64)})
    return uniform and sum(p.numel() * p.element_size() for p in parameters) <= BUCKET_BYTES


def broadcast_weights(model: nn.Module) -> None:
    """Send the weights of rank 0 to all ranks: those of another machine may differ in their last bits."""
    for tensor in (*model.parameters(), *model.buffers()):
        dist.broadcast(tensor.detach(), 0)


class FusedAllReduce:
    """Average of all gradients, and of a step's other values, by one message after the backward pass.

    Gradients in one bucket leave nothing to overlap with the backward pass. Each rank sends

        w g,  w,  other values          g the gradient of its mean loss, w the weight of that mean

    and divides the sum of the first by the sum of the second. So the step needs no message before the backward pass.
    The message also says which parameters have a gradient on any rank: a learned initial state has none inside a text.
    """

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._buffer = torch.empty(0)
        """Buffer of the gradients, which stay in it until the optimizer has used them."""

    def average(self, model: nn.Module, weight: float, values: Sequence[float]) -> tuple[float, list[float]]:
        """Replace every gradient by its weighted mean over ranks; return the sum of the weights and of `values`."""
        learning = [p for p in model.parameters() if p.requires_grad]
        head = [weight, *values, *(float(p.grad is not None) for p in learning)]
        buffer = self._allocate(len(head) + sum(p.numel() for p in learning), learning[0].dtype)
        first, *parts = buffer.split([len(head), *(p.numel() for p in learning)])
        first.copy_(torch.tensor(head, dtype=torch.float64))
        for p, part in zip(learning, parts, strict=True):
            part.zero_() if p.grad is None else torch.mul(p.grad, weight, out=part.view_as(p))
        self._all_reduce(buffer, len(head))
        total, *rest = first.tolist()
        buffer[len(head) :].mul_(1 / total if total else 0.0)
        for p, part, used in zip(learning, parts, rest[len(values) :], strict=True):
            p.grad = part.view_as(p) if used else None
        return total, rest[: len(values)]

    def _all_reduce(self, buffer: Tensor, head: int) -> None:
        if self.compress == "none":
            dist.all_reduce(buffer)
            return
        values, gradients = buffer[:head], buffer[head:]
        short = gradients.to(torch.bfloat16)
        for work in [dist.all_reduce(part, async_op=True) for part in (values, short)]:
            work.wait()
        gradients.copy_(short)

    def _allocate(self, size: int, dtype: torch.dtype) -> Tensor:
        if self._buffer.numel() != size or self._buffer.dtype != dtype:
            self._buffer = torch.empty(size, dtype=dtype)
        return self._buffer


class _StepModule(nn.Module):
    """A task's training step as a module, since a loss is more than a model's `forward`."""

    def __init__(self, task: AnyTask, model: nn.Module) -> None:
        super().__init__()
        self.task, self.model = task, model

    def forward(self, batch: Any, state: Any, moment: TrainingProgress) -> TrainingStep:
        if batch is not None:
            return self.task.training_step(self.model, batch, state, moment)
        # The batch has fewer rows than there are ranks, and this rank has none: it adds a gradient of zero.
        some = next(p for p in self.model.parameters() if p.requires_grad)
        return TrainingStep((some * 0.0).sum(), 0, "", weight=torch.zeros(()))


# The argument that turns off the broadcast of buffers before each step was renamed in PyTorch. The buffers are fitted
# to the validation set by rank 0 alone, and no training step reads them.
_DDP_ARGUMENTS = inspect.signature(DistributedDataParallel).parameters
_KEEP_BUFFERS: dict[str, Any] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _DDP_ARGUMENTS else "broadcast_buffers": False
}


class DDPStep:
    """Training step whose gradients DistributedDataParallel averages over all ranks, bucket by bucket."""

    def __init__(self, compress: str = "none") -> None:
        self.compress = compress
        self._wrapped: DistributedDataParallel | None = None
        self._learning: tuple[bool, ...] = ()

    def __call__(
        self, task: AnyTask, model: nn.Module, batch: Any, state: Any, moment: TrainingProgress, last: bool
    ) -> TrainingStep:
        step = self._wrap(task, model)
        with nullcontext() if last else step.no_sync():  # accumulated gradients are sent once
            done: TrainingStep = step(batch, state, moment)
        return done

    def _wrap(self, task: AnyTask, model: nn.Module) -> DistributedDataParallel:
        """Return the wrapped step; wrap it again when other layers learn, which all ranks see in the same step."""
        learning = tuple(p.requires_grad for p in model.parameters())
        if self._wrapped is None or self._wrapped.module.model is not model or learning != self._learning:
            self._learning = learning
            self._wrapped = DistributedDataParallel(
                _StepModule(task, model), find_unused_parameters=True, gradient_as_bucket_view=True, **_KEEP_BUFFERS
            )
            if self.compress == "bfloat16":
                self._wrapped.register_comm_hook(None, _average_in_bfloat16)
        return self._wrapped


def _average_in_bfloat16(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are strings
    """Average a bucket in bfloat16, which halves its bytes; weights are updated in their own dtype."""
    sent = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(sent, async_op=True).get_future().then(lambda done: bucket.buffer().copy_(done.value()[0]))


# Process groups --------------------------------------------------------------------------------------------------


class GlobalStep(NamedTuple):
    """Loss and predictions of one step over all ranks."""

    loss: Tensor
    """Mean over the predictions of all ranks."""
    predictions: int


class ProcessGroup:
    """Processes that train one model. This class is the group of a single process."""

    def __init__(self, launch: Launch | None = None) -> None:
        self.launch = launch or Launch()
        self.rank, self.size = self.launch.rank, self.launch.size

    @property
    def is_main(self) -> bool:
        """Whether this process is rank 0, which evaluates, writes the run and calls back."""
        return self.rank == 0

    def reset(self) -> None:
        """Forget the clock and the stop of an earlier training."""

    def device(self, name: str) -> torch.device:
        return pick_device(name)

    def shard(self, batches: Batches[Any]) -> Batches[Any]:
        """Return this rank's rows of every batch."""
        return batches

    def seed(self, seed: int) -> None:
        """Seed this rank's dropout; call it after all ranks have drawn the same weights."""

    def training_step(
        self, task: AnyTask, model: nn.Module, batch: Any, state: Any, moment: TrainingProgress, last: bool
    ) -> TrainingStep:
        """Run a task's forward pass. The backward pass of the `last` batch before an update averages gradients."""
        return task.training_step(model, batch, state, moment)

    def loss_scale(self, done: TrainingStep, stop: threading.Event, accumulating: bool) -> float:
        """Return the factor on this rank's loss that makes the mean over ranks the mean over all predictions.

        Call it before the backward pass, which a factor of 0 makes needless.
        """
        return 1.0

    def sync_step(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> GlobalStep:
        """Exchange a step's results after the backward pass; gradients of the `last` batch are then averaged."""
        return GlobalStep(done.loss.detach(), done.predictions)

    def add_seconds(self, seconds: float) -> float:
        """Report the seconds of a step on this rank; return the seconds to count, by the clock of rank 0."""
        return seconds

    def should_stop(self, stop: threading.Event) -> bool:
        """Return True if any rank was stopped when the last step was exchanged."""
        return stop.is_set()

    def from_rank0(self, work: Callable[[], T]) -> T:
        """Return the result of `work` on rank 0, a JSON value, on all ranks; the others wait as long as it takes."""
        return work()

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return the tensors of every rank, in rank order, on rank 0; an empty list elsewhere."""
        return [tensors]

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a tensor over ranks."""
        return tensor

    def check_equal(self, name: str, content: str) -> None:
        """Refuse to train if ranks have different contents."""


class MultiProcessGroup(ProcessGroup):
    """Process group of one of several ranks.

    Messages of a step go through torch.distributed, with a timeout. Decisions of rank 0, which may take minutes, go
    through the store, where a waiting rank can check whether the other one is alive.
    """

    def __init__(self, launch: Launch, store: dist.Store, compress: str) -> None:  # type: ignore[name-defined]
        super().__init__(launch)
        self.store, self._ddp, self._fused = store, DDPStep(compress), FusedAllReduce(compress)
        self._model: nn.Module | None = None
        self._one_bucket = False
        self._step: GlobalStep | None = None
        """The step's results, if they were exchanged before the backward pass."""
        self._decisions = self._gathers = 0
        store.set(f"process/{self.rank}", json.dumps([socket.gethostname(), os.getpid()]))
        self.reset()

    def reset(self) -> None:
        self._pending = self._spent = 0.0
        self._stop = False

    def device(self, name: str) -> torch.device:
        """Return the GPU of this rank: every rank of a machine has its own."""
        return local_device(name, self.launch)

    def shard(self, batches: Batches[Any]) -> Batches[Any]:
        return batches.shared(ProcessShard(self.rank, self.size))

    def seed(self, seed: int) -> None:
        if self.rank:
            digest = hashlib.sha256(f"{seed} {self.rank}".encode()).digest()
            torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)

    def training_step(
        self, task: AnyTask, model: nn.Module, batch: Any, state: Any, moment: TrainingProgress, last: bool
    ) -> TrainingStep:
        if model is not self._model:
            self._model, self._one_bucket = model, fits_one_bucket(model)
            if self._one_bucket:
                broadcast_weights(model)
        if not self._one_bucket:
            return self._ddp(task, model, batch, state, moment, last)
        if batch is None:  # it has fewer rows than there are ranks
            return TrainingStep(torch.zeros(()), 0, "")
        return task.training_step(model, batch, state, moment)

    def loss_scale(self, done: TrainingStep, stop: threading.Event, accumulating: bool) -> float:
        # The fused message carries the weights of all ranks, so nothing is exchanged before the backward pass. DDP and
        # accumulated gradients need the sum of the weights in advance.
        self._step, weight = None, _weight(done)
        if self._one_bucket and not accumulating:
            return float(weight > 0)
        values = torch.tensor([weight, *self._values(done, weight, stop)], dtype=torch.float64)
        dist.all_reduce(values)
        total, *sums = values.tolist()
        self._step = self._receive(done, weight, total, sums)
        return self.size * weight / (total or 1.0)

    def sync_step(self, model: nn.Module, done: TrainingStep, stop: threading.Event, last: bool) -> GlobalStep:
        if self._step is None:
            weight = _weight(done)
            return self._receive(done, weight, *self._fused.average(model, weight, self._values(done, weight, stop)))
        if self._one_bucket and last:
            self._fused.average(model, 1.0, ())
        return self._step

    def _values(self, done: TrainingStep, weight: float, stop: threading.Event) -> list[float]:
        """Return what this rank adds to a step's message. A loss on a GPU is left out: it would have to be awaited."""
        loss = float(done.loss.detach()) * weight if done.loss.device.type == "cpu" and weight else 0.0
        return [loss, done.predictions, float(stop.is_set()), self._pending if self.rank == 0 else 0.0]

    def _receive(self, done: TrainingStep, weight: float, total: float, sums: list[float]) -> GlobalStep:
        """Read the sums over ranks of what `_values` returned."""
        losses, predictions, stopped, clock = sums
        self._stop, self._spent, self._pending = stopped > 0, self._spent + clock, 0.0
        loss, total = done.loss.detach(), total or 1.0
        if loss.device.type == "cpu":
            mean = torch.tensor(losses / total, dtype=loss.dtype)
        else:
            mean = loss * (weight / total) if weight else torch.zeros_like(loss)
            dist.all_reduce(mean)
        return GlobalStep(mean, round(predictions))

    def add_seconds(self, seconds: float) -> float:
        """Return the seconds that rank 0 sent with the last message, which are one step late."""
        self._pending += seconds
        spent, self._spent = self._spent, 0.0
        return spent

    def should_stop(self, stop: threading.Event) -> bool:
        return self._stop

    def from_rank0(self, work: Callable[[], T]) -> T:
        self._decisions += 1
        key = f"decision/{self._decisions}"
        if self.rank == 0:
            found = work()
            self.store.set(key, json.dumps(found))
            return found
        received: T = json.loads(self._wait_for(key, 0))
        return received

    def gather(self, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        content = to_bytes({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {})
        if self.rank:
            dist.send(torch.tensor([len(content)]), 0)
            dist.send(torch.frombuffer(bytearray(content), dtype=torch.uint8), 0)
            return []
        found = [tensors]
        for rank in range(1, self.size):
            size = torch.zeros(1, dtype=torch.int64)
            dist.recv(size, rank)
            part = torch.empty(int(size), dtype=torch.uint8)
            dist.recv(part, rank)
            found.append(from_bytes(part.numpy().tobytes(), Path(f"rank {rank}"))[0])
        return found

    def mean(self, tensor: Tensor) -> Tensor:
        mean = tensor / self.size
        dist.all_reduce(mean)
        return mean

    def all_gather(self, value: T) -> list[T]:
        """Return the value of each rank, a JSON value, in rank order."""
        self._gathers += 1
        key = f"gather/{self._gathers}"
        self.store.set(f"{key}/{self.rank}", json.dumps(value))
        return [json.loads(self._wait_for(f"{key}/{rank}", rank)) for rank in range(self.size)]

    def check_equal(self, name: str, content: str) -> None:
        digests = self.all_gather(hashlib.sha256(content.encode()).hexdigest())
        if others := [rank for rank, digest in enumerate(digests) if digest != digests[0]]:
            line = f"rank {others[0]} has different {name} than rank 0: all ranks need the same files and flags"
            raise OptionError(line) if self.is_main else RankError(line, mine=False)

    def _wait_for(self, key: str, rank: int) -> bytes:
        """Return what a rank stores under a key, however long it takes; raise RankError if a rank failed or ended."""
        while True:
            try:
                self.store.wait([key], POLL_INTERVAL)
            except dist.DistStoreError:  # the key is not there yet
                if self.store.check([FAILURE_KEY]):
                    raise RankError(self.store.get(FAILURE_KEY).decode(), mine=False) from None
                if self._has_ended(rank):
                    raise RankError(f"rank {rank} has ended, and rank {self.rank} was waiting for it") from None
                continue
            content: bytes = self.store.get(key)
            return content

    def _has_ended(self, rank: int) -> bool:
        """Return True if the process of a rank on this machine is gone; a killed process cannot report it."""
        first = self.rank - self.launch.local  # the ranks of a machine are consecutive
        key = f"process/{rank}"
        if not first <= rank < first + self.launch.locals or not self.store.check([key]):
            return False
        host, process = json.loads(self.store.get(key))
        if host != socket.gethostname():
            return False
        try:
            os.kill(process, 0)
        except (ProcessLookupError, PermissionError):  # of another user: the process id is in use again
            return True
        return False


def _weight(done: TrainingStep) -> float:
    return float(done.predictions if done.weight is None else done.weight)


def local_device(name: str, launch: Launch) -> torch.device:
    """Return the device of a process; with --device cuda, the GPU of its number on this machine."""
    device = pick_device(name)
    if device.type != "cuda":
        return device
    if ":" in name:
        raise OptionError(
            f"--device {name} is one GPU, but {launch.size} processes were started; --device cuda gives each its own"
        )
    if launch.locals > torch.cuda.device_count():
        found = f"{launch.locals} processes on this machine, but {torch.cuda.device_count()} GPU(s)"
        raise OptionError(f"{found}: start one process per GPU (torchrun --nproc-per-node), or use --device cpu")
    return torch.device("cuda", launch.local)


SINGLE_PROCESS = ProcessGroup()


# Start and failure -----------------------------------------------------------------------------------------------

_CONNECTIONS = itertools.count()


@contextmanager
def process_group(launch: Launch, device: str = "cpu", compress: str = "none") -> Iterator[ProcessGroup]:
    """Connect the processes of a launch while they train.

    An error on one rank ends all ranks, each with a `RankError`, which only the failed rank prints.
    """
    if launch.size == 1:
        yield ProcessGroup(launch)
        return
    group = connect(launch, device, compress)
    try:
        yield group
    except BaseException as error:
        failed = _report_failure(group, error)
        if failed is None:
            raise
        raise failed from (None if isinstance(error, RecurError) or not failed.mine else error)
    dist.destroy_process_group()


def connect(launch: Launch, device: str = "cpu", compress: str = "none") -> MultiProcessGroup:
    """Find the other ranks and initialise torch.distributed: gloo, and NCCL for GPUs."""
    kind = local_device(device, launch)
    if kind.type == "cuda":
        torch.cuda.set_device(kind)
    try:
        url = f"tcp://{launch.address}:{launch.port}" if not dist.is_torchelastic_launched() else "env://"
        store, _, _ = next(rendezvous(url, launch.rank, launch.size, timeout=TIMEOUT))
        # The store outlives restarts, so that every connection needs keys of its own.
        store = PrefixStore(f"recur/{launch.restarts}/{launch.size}/{next(_CONNECTIONS)}", store)
        dist.init_process_group(
            "gloo" if kind.type == "cpu" else "cpu:gloo,cuda:nccl",
            store=PrefixStore("group", store),
            rank=launch.rank,
            world_size=launch.size,
            timeout=TIMEOUT,
        )
    except (RuntimeError, ValueError) as error:  # raised by torch
        line = f"process {launch.rank} of {launch.size} cannot connect to {launch.address}:{launch.port}"
        raise OptionError(f"{line}: {_first_line(error)}") from None
    return MultiProcessGroup(launch, store, compress)


def _report_failure(group: MultiProcessGroup, error: BaseException) -> RankError | None:
    """Tell the other ranks of an error, or find that another rank failed before and caused it.

    Return None if the error itself is to be raised.
    """
    if isinstance(error, RankError | SystemExit | GeneratorExit):
        return None
    if isinstance(error, KeyboardInterrupt) and group.should_stop(threading.Event()):
        return None  # all ranks have stopped after the same step
    line = f"rank {group.rank}: {_first_line(error)}"
    try:
        first = group.store.compare_set(FAILURE_KEY, "", line).decode()
    except RuntimeError:  # the process that keeps the store is gone
        first = line if group.rank == 0 else ""
    if first != line:
        return RankError(first, mine=False)
    if _is_network_error(error):
        reason = "another process of this training has ended or hangs"
        return RankError(f"rank {group.rank}: {reason}; recur resume continues from the newest checkpoint")
    return RankError(line) if isinstance(error, RecurError) else None


def _is_network_error(error: BaseException) -> bool:
    words = str(error)
    return isinstance(error, RuntimeError) and (
        isinstance(error, dist.DistError)
        or any(name in words for name in ("gloo", "NCCL", "Connection", "ncclUnhandled"))
    )


def _first_line(error: BaseException) -> str:
    words = str(error).strip()
    return words.splitlines()[0] if words else type(error).__name__


class NullRun(Run):
    """Run of a rank that does not write: it reads the folder, and every change does nothing."""

    @classmethod
    def of(cls, path: Path, task: str, vocabs: Vocabs) -> NullRun:
        """Return the run that rank 0 has begun, whose disk this rank may not see."""
        return cls(path, Manifest(task, list(vocabs)), vocabs)

    def replace(self, name: str, content: bytes) -> None: ...

    def add_machine(self, entry: JsonObject) -> None: ...

    def commit(self) -> None: ...

    def save_weights(self, model: nn.Module, **about: object) -> None: ...

    def log(self, entry: Mapping[str, object], file: str = "metrics.jsonl") -> None: ...

    def save_checkpoint(self, step: int, tensors: Mapping[str, Tensor], state: JsonObject) -> None: ...

    def rewind(self, to: Checkpoint) -> list[str]:
        return []

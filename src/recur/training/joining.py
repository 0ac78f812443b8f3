"""How processes find each other, and what becomes of all when one fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from recur.errors import OptionError, RankError, RecurError
from recur.training.ranks import FAILED, Ranks, SeveralRanks, local_device
from recur.utils.launch import Launch

STEP = timedelta(minutes=5)
"""What a step of another rank may take; one that takes longer hangs."""

_JOINED = itertools.count()


@contextmanager
def joined(at: Launch, device: str = "cpu", compress: str = "none") -> Iterator[Ranks]:
    """The processes of a launch, while they train. An error of one of them ends all, each with a `RankError`, which is
    that rank's own to say."""
    if at.size == 1:
        yield Ranks(at)
        return
    ranks = join(at, device, compress)
    try:
        yield ranks
    except BaseException as error:
        failed = _failed(ranks, error)
        if failed is None:
            raise
        raise failed from (None if isinstance(error, RecurError) or not failed.mine else error)
    dist.destroy_process_group()


def join(at: Launch, device: str = "cpu", compress: str = "none") -> SeveralRanks:
    """Find the others, and meet: by gloo, and on GPUs by NCCL too."""
    kind = local_device(device, at)
    if kind.type == "cuda":
        torch.cuda.set_device(kind)
    try:
        url = f"tcp://{at.address}:{at.port}" if not _by_torchrun() else "env://"
        store, _, _ = next(rendezvous(url, at.rank, at.size, timeout=STEP))
        store = PrefixStore(f"recur/{at.restarts}/{at.size}/{next(_JOINED)}", store)  # it outlives restarts
        backend = "gloo" if kind.type == "cpu" else "cpu:gloo,cuda:nccl"
        dist.init_process_group(
            backend, store=PrefixStore("group", store), rank=at.rank, world_size=at.size, timeout=STEP
        )
    except (RuntimeError, ValueError) as error:  # torch's own
        why = f"process {at.rank} of {at.size} does not find the others at {at.address}:{at.port}"
        raise OptionError(f"{why}: {_first_line(error)}") from None
    return SeveralRanks(at, store, compress)


def _by_torchrun() -> bool:
    return dist.is_torchelastic_launched()


def _failed(ranks: SeveralRanks, error: BaseException) -> RankError | None:
    """Tell the others; or find that one of them has failed before, which is why this one did. None where the error
    itself says all."""
    if isinstance(error, RankError | SystemExit | GeneratorExit):
        return None
    if isinstance(error, KeyboardInterrupt) and ranks.stopping(threading.Event()):
        return None  # all of them have stopped after the same step
    line = f"rank {ranks.rank}: {_first_line(error)}"
    try:
        said = ranks.store.compare_set(FAILED, "", line).decode()
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

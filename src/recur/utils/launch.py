"""Rank and size of a launch with several processes, from the environment of torchrun or Slurm.

    torchrun    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
    srun        SLURM_PROCID SLURM_NTASKS SLURM_LOCALID, if torchrun's are absent; processes connect to the first node
                of the list, at a port made of the job's number, unless MASTER_ADDR and MASTER_PORT are set

A script of sbatch has Slurm's variables too, but is one process: only srun starts several.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from recur.errors import OptionError


class Launch(NamedTuple):
    """Position of this process among those that train together."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Rank on this machine."""
    locals: int = 1
    """Number of processes on this machine."""
    address: str = ""
    """Address of rank 0."""
    port: int = 0
    restarts: int = 0
    """Number of restarts: by torchrun --max-restarts, or by Slurm, which requeues a job."""


def launch(given: Mapping[str, str] | None = None) -> Launch:
    """Return the launch that the environment describes."""
    given = os.environ if given is None else given
    if all(name in given for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        rank, size = _number(given, "RANK"), _number(given, "WORLD_SIZE")
        local, locals_ = _number(given, "LOCAL_RANK", rank), _number(given, "LOCAL_WORLD_SIZE", size)
        address, port = given["MASTER_ADDR"], _number(given, "MASTER_PORT")
        restarts = _number(given, "TORCHELASTIC_RESTART_COUNT", 0)
        return _checked(Launch(rank, size, local, locals_, address, port, restarts))
    restarts = _number(given, "SLURM_RESTART_COUNT", 0)
    size = _number(given, "SLURM_STEP_NUM_TASKS", _number(given, "SLURM_NTASKS", 1))
    started = any(name in given for name in ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID", "MASTER_ADDR"))
    if size < 2 or not started or "SLURM_PROCID" not in given:
        return Launch(restarts=restarts)
    nodes = given.get("SLURM_STEP_NODELIST") or given.get("SLURM_JOB_NODELIST") or given.get("SLURM_NODELIST", "")
    address = given.get("MASTER_ADDR") or first_node(nodes) or "localhost"
    port = _number(given, "MASTER_PORT", 20_000 + _number(given, "SLURM_JOB_ID", 0) % 20_000)
    each = given.get("SLURM_STEP_TASKS_PER_NODE") or given.get("SLURM_TASKS_PER_NODE") or str(size)
    rank, local = _number(given, "SLURM_PROCID"), _number(given, "SLURM_LOCALID", 0)
    return _checked(
        Launch(rank, size, local, _of_node(each, _number(given, "SLURM_NODEID", 0)), address, port, restarts)
    )


def hush(at: Launch) -> None:
    """Silence the warning of DDP that all parameters were used; call it before torch is imported."""
    if at.size > 1:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def first_node(nodes: str) -> str:
    """Return the first node of a Slurm list: gpu07 of gpu[07-09,12],other1."""
    found = re.match(r"([^\[,]+)(?:\[(\d+)[^\]]*\]([^,]*))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else ""


def _of_node(each: str, node: int) -> int:
    """Return the number of tasks of a node, from a Slurm list: 4(x2),3 is 4, 4 and 3."""
    counts: list[int] = []
    for part in re.finditer(r"(\d+)(?:\(x(\d+)\))?", each):
        counts += [int(part[1])] * int(part[2] or 1)
    return counts[min(node, len(counts) - 1)] if counts else 1


def _number(given: Mapping[str, str], name: str, default: int | None = None) -> int:
    value = given.get(name, "")
    if not value and default is not None:
        return default
    if not re.fullmatch(r"\d{1,9}", value):
        raise OptionError(f"the environment's {name} must be a whole number, got {value!r}")
    return int(value)


def _checked(found: Launch) -> Launch:
    if not (found.rank < found.size and found.local < found.locals <= found.size):
        raise OptionError(
            f"the environment says process {found.rank} of {found.size}, {found.local} of {found.locals} on this "
            "machine: start all of them by torchrun or srun"
        )
    return found

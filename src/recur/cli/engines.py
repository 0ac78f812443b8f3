"""Commands of recur on existing engines: Ray for training and sweeps, submitit for Slurm.

An engine runs `recur train …` or `recur sweep …` in other processes with the same arguments, files and current folder:
the machines share a file system. Exact resume and one writer per run hold as for any other process.

    train on Ray     Ray Train starts one process per worker and tells each its rank, as torchrun does
    sweep on Ray     every worker is a process of one search, whose trials are in a journal file of the sweep folder
    submit           one job of Slurm; a job that is interrupted is queued again and resumes its run
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recur.errors import OptionError, RecurError

JOURNAL = "trials.log"
"""Journal file of a sweep on Ray, in the sweep folder."""


def take_flag(arguments: Sequence[str], name: str, *, first: bool = False) -> tuple[str | None, list[str]]:
    """Return the value of a flag and the arguments without it; with `first`, leave later uses of the flag."""
    kept, value, rest = list[str](), None, iter(arguments)
    for argument in rest:
        if first and value is not None:
            kept.append(argument)
        elif argument == f"--{name}":
            value = next(rest, None)
            if value is None:
                raise OptionError(f"--{name} needs a value")
        elif argument.startswith(f"--{name}="):
            value = argument.partition("=")[2]
        else:
            kept.append(argument)
    return value, kept


def requested_engine(arguments: Sequence[str]) -> tuple[int, list[str]] | None:
    """Return the number of Ray workers and the other arguments; None if no engine is requested."""
    engine, rest = take_flag(arguments, "engine")
    if engine is None:
        return None
    if engine != "ray":
        raise OptionError(f"engine must be ray, got {engine!r}; torchrun and srun start recur themselves")
    workers, rest = take_flag(rest, "workers")
    if workers is None or not workers.isdecimal() or not 1 <= int(workers) <= 4096:
        raise OptionError(f"--engine ray needs --workers, a whole number ≥ 1, got {workers}")
    return int(workers), rest


def _out(arguments: Sequence[str], folder: str) -> tuple[Path, list[str]]:
    """Return the output folder and arguments that name it: every process needs the same."""
    out, _ = take_flag(arguments, "out")
    if out is not None:
        return Path(out), list(arguments)
    path = Path(folder) / f"job-{time.strftime('%Y%m%d-%H%M%S')}"
    return path, [*arguments, "--out", str(path)]


# Ray --------------------------------------------------------------------------------------------------------------


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise RecurError("Ray is not installed: pip install 'recur[ray]'") from None
    return ray


def _connect() -> Any:
    """Connect to the cluster of RAY_ADDRESS, or start a local one, on this machine alone."""
    ray = _import_ray()
    if not ray.is_initialized():
        local = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(log_to_driver=False, logging_level="ERROR", **local)
    return ray


def train_on_ray(arguments: Sequence[str], workers: int) -> Path:
    """Run `recur train` in several processes that Ray Train starts; return the run folder."""
    out, arguments = _out(arguments, "runs")
    from recur.runs import check_free

    check_free(out)
    ray = _connect()
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    state = (out.parent / ".ray").resolve()
    refused = state / f"{out.name}.error"
    refused.unlink(missing_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"arguments": arguments, "folder": os.getcwd(), "out": str(out), "refused": str(refused)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=ray.cluster_resources().get("GPU", 0) >= workers),
        run_config=RunConfig(name=out.name, storage_path=str(state), failure_config=FailureConfig(max_failures=2)),
    )
    try:
        trainer.fit()
    except ray.train.TrainingFailedError as error:
        causes = getattr(error, "worker_failures", None) or {0: error}
        raise RecurError(f"training on Ray failed: {str(next(iter(causes.values()))).splitlines()[-1]}") from None
    if refused.is_file():
        raise RecurError(refused.read_text())
    return out


def train_worker(config: dict[str, Any]) -> None:
    """Train as one rank of a Ray Train job, or resume if an earlier attempt has begun the run."""
    import contextlib
    import io

    import torch.distributed as dist

    from recur.cli.app import run
    from recur.runs import is_run

    os.chdir(config["folder"])
    # Ray has connected the ranks. recur connects them with its own time limit and error report, at a free port.
    with socket.socket() as found:
        found.bind(("", 0))
        port = [found.getsockname()[1]]
    dist.broadcast_object_list(port, src=0)
    dist.destroy_process_group()
    os.environ["MASTER_PORT"] = str(port[0])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    resumes = is_run(Path(config["out"]))
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = run(["resume", config["out"]] if resumes else ["train", *config["arguments"]])
    message = (errors.getvalue().strip().splitlines() or [""])[-1].removeprefix("recur: ")
    if code == 2:  # the user's mistake, which another attempt would repeat
        if message:
            Path(config["refused"]).write_text(message)
    elif code:
        raise RuntimeError(message or f"recur train ended with {code}")


def sweep_on_ray(arguments: Sequence[str], workers: int) -> Path:
    """Run one sweep in several Ray workers that share its trials; return the sweep folder."""
    out, arguments = _out(arguments, "sweeps")
    ray = _connect()
    out.mkdir(parents=True, exist_ok=True)
    command = [*arguments, "--storage", str(out / JOURNAL), "-q"]
    worker = ray.remote(sweep_worker)
    asked = [worker.options(num_cpus=1).remote(command, os.getcwd()) for _ in range(workers)]
    failed = [message for message in ray.get(asked) if message]
    if failed:
        raise RecurError(failed[0])
    return out


def sweep_worker(arguments: Sequence[str], folder: str) -> str:
    """Run the trials of a shared sweep; return the error message, empty if there is none."""
    import contextlib
    import io

    from recur.cli.app import run

    os.chdir(folder)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = run(["sweep", *arguments])
    return errors.getvalue().strip().removeprefix("recur: ") if code else ""


# Slurm, by submitit -----------------------------------------------------------------------------------------------


class Job:
    """A command of recur as a job: a run that exists is resumed, and an interrupted job is queued again."""

    def __init__(self, arguments: Sequence[str], folder: str, out: str) -> None:
        self.arguments, self.folder, self.out = list(arguments), folder, out

    def __call__(self) -> int:
        from recur.cli.app import run
        from recur.runs import is_run

        os.chdir(self.folder)
        if self.arguments[0] == "train" and is_run(Path(self.out)):
            return run(["resume", self.out])
        return run(self.arguments)

    def checkpoint(self, *_: Any) -> Any:
        """Return the job that Slurm queues when this one is preempted or out of time."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_job(arguments: Sequence[str], cluster: str, logs: Path, settings: Mapping[str, Any]) -> tuple[Any, Path]:
    """Submit `recur train …` or `recur sweep …`; return submitit's job and the output folder."""
    try:
        import submitit
    except ImportError:
        raise RecurError("submitit is not installed: pip install 'recur[slurm]'") from None
    if not arguments or arguments[0] not in ("train", "sweep"):
        raise OptionError("name a command, train or sweep, as in: recur submit train book.txt --minutes 60")
    command, rest = arguments[0], arguments[1:]
    out, rest = _out(rest, "runs" if command == "train" else "sweeps")
    if command == "train":
        from recur.runs import check_free

        check_free(out)  # the job would resume that run
    try:
        executor = submitit.AutoExecutor(folder=logs, cluster=cluster)
    except RuntimeError as error:
        raise RecurError(f"cannot submit: {error}") from None
    try:
        executor.update_parameters(**{"name": f"recur-{out.name}", **settings})
    except (NameError, TypeError, ValueError, AssertionError) as error:  # submitit has no type of its own for these
        raise OptionError(f"--set: submitit refuses it: {str(error).splitlines()[0]}") from None
    return executor.submit(Job([command, *rest], os.getcwd(), str(out))), out

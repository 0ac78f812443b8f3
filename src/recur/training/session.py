"""Training sessions: `train` starts a run, `resume` continues one. The command line and `recur.fit` call these."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch

from recur.errors import OptionError, RunError, TooLargeError
from recur.i18n import Message
from recur.runs import Run, Vocabs, check_free, is_run, pick_device
from recur.tasks import (
    config_text,
    name_of,
    options_of_run,
    task_class,
    task_of,
    text_fingerprints,
    with_carried_cell,
    with_run_texts,
)
from recur.tasks.common.contract import Baseline, Task
from recur.tasks.common.metrics import is_better
from recur.tasks.common.options import DataOptions, TaskOptions
from recur.tasks.common.pretrained import WarmStart
from recur.tasks.common.registry import PATHS
from recur.tasks.common.verdict import verdict
from recur.training.autoconfig import move_options, resolve_options
from recur.training.distributed import SINGLE_PROCESS, NullRun, ProcessGroup
from recur.training.events import Callback, Event
from recur.training.optim import Schedule
from recur.training.trainer import Trainer
from recur.utils.types import JsonObject


class Outcome(NamedTuple):
    """Result of a training."""

    run: Run
    task: Task[Any, Any, Any, Any]
    summary: JsonObject
    """What `recur train --json` prints."""
    stopped: bool
    """Whether training was stopped before its budget was spent."""


def train(
    options: TaskOptions,
    out: Path | str | None = None,
    callback: Callback | None = None,
    stop: threading.Event | None = None,
    trust: bool = False,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Outcome:
    """Train a new run in the folder `out` (default: runs/NAME-TIME).

    Args:
        callback: function that receives every `Event`, on rank 0.
        stop: set it from another thread to save a checkpoint and end after the current step.
        trust: execute a custom cell of the run that this one starts from (`from_`).
        group: processes that train together; each calls this function. If the launcher restarts them, they resume the
            run that they had begun in `out`.

    The number of threads and the random state of the calling process are restored at the end.
    """
    callback = _on_main(callback, group)
    if out is not None and group.launch.restarts and group.from_rank0(lambda: is_run(Path(out))):
        callback(Event("note", {"text": f"restarted: resuming {out} from its newest checkpoint"}))
        return resume(out, callback=callback, stop=stop, trust=trust, group=group)
    if out is not None and group.is_main:
        check_free(Path(out))
    _check_files(options, group)
    with _process_restored():
        # Data is read with the settled options, the machine is measured with the data, and only then are the options
        # final. The task is built from these, once; earlier ones serve to read the data and to time steps.
        start = WarmStart.of(options, trust)
        requested = start.followed(options)
        settled = task_class(name_of(requested)).settle(requested)
        Schedule(settled.schedule, settled.warmup_steps)  # an invalid option is reported before anything is written
        reader: Task[Any, Any, Any, Any] = task_of(settled)
        data = start.read(reader)
        said = [reader.describe(data), reader.reading.note()]
        callback(Event("data", {"text": "; ".join(filter(None, said))}))
        options, notes = resolve_options(requested, settled, data, group)
        for note in notes:
            callback(Event("note", {"text": note}))
        path = Path(out) if out is not None else Path("runs") / f"{reader.run_name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = Path(group.from_rank0(lambda: str(path)))
        options, cell = with_carried_cell(options, folder)
        task: Task[Any, Any, Any, Any] = task_of(options)
        _check_equal(group, options, data.vocabs, task.describe(data))

        def create() -> Run:
            if not group.is_main:
                return NullRun.of(folder, task.name, data.vocabs)
            texts = text_fingerprints(options, folder) | start.fingerprints(folder)
            return Run.create(folder, task.name, config_text(options, folder), data.vocabs, cell, texts)

        with _writing(folder, create) as run:
            trainer = Trainer(run, task, data, callback, stop, group)
            for note in start.fill(trainer.model, task, data.vocabs):
                callback(Event("note", {"text": note}))
            trainer.checkpoint()  # from here on the folder is a run, which can be stopped and resumed at any time
            return _run(trainer, callback)


def resume(
    path: Path | str,
    *,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str | None = None,
    threads: int | None = None,
    trust: bool = False,
    changed_text: bool = False,
    allow_path: Sequence[str | Path] = (),
    callback: Callback | None = None,
    stop: threading.Event | None = None,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Outcome:
    """Resume a run exactly where it stopped.

    Args:
        epochs, steps, minutes: additional budget (default: the rest of its budget).
        device: train on another device than before.
        threads: number of CPU threads (default: as before); another number rounds differently.
        trust: execute the custom cell of the run, though this user has not trained with it.
        changed_text: train with texts that were changed since; by default they are refused.
        allow_path: files outside of the run's folder that may be opened, though this user has not trained with them.
        group: processes that train together, all of which see the folder; their number may differ from before.
    """
    callback = _on_main(callback, group)
    for name, value in (("epochs", epochs), ("steps", steps), ("minutes", minutes)):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(Message("{name} must be above {low}, got {value}", name=name, low="0", value=value))
    if group.launch.restarts and (epochs or steps or minutes):
        callback(Event("note", {"text": "restarted: training for the rest of the budget, which was extended before"}))
        epochs = steps = minutes = None

    def open_run() -> Run:
        return Run.open(path, writing=True, trust=trust) if group.is_main else NullRun.open(path, trust=trust)

    with _process_restored(), _writing(Path(path), lambda: _main_first(group, open_run)) as run:
        if not run.manifest.checkpoints:
            raise RunError(
                f"{path} has no checkpoint to resume from: it was saved to be used; train a new run --from it"
            )
        options = options_of_run(run)
        if device is not None:
            options = move_options(options, pick_device(device))
        if threads is not None:
            options = options.changed(threads=threads)
        here = with_run_texts(run, options, ("texts", "valid"), changed_text, allow_path)
        task: Task[Any, Any, Any, Any] = task_of(here)
        data = task.read(run.vocabs)
        trainer = Trainer(run, task, data, callback, stop, group)
        for event in trainer.restore():
            callback(event)
        _check_equal(group, options, run.vocabs, f"{task.describe(data)}, step {trainer.step}")
        more = bool(epochs or steps or minutes)
        if more:
            options = options.changed(**trainer.extend(epochs, steps, minutes))
        if changed_text:
            run.manifest.texts |= text_fingerprints(here, run.path, ("texts", "valid"))
        if more or changed_text or device is not None or threads is not None:
            run.write_config(config_text(options, run.path))
        return _run(trainer, callback)


def _run(trainer: Trainer, callback: Callback) -> Outcome:
    """Evaluate the baselines, train, and summarise the results."""
    task, run = trainer.task, trainer.run
    run.add_machine(describe_machine(trainer))
    run.commit()
    baselines = _baselines(trainer)
    for baseline in baselines:
        callback(Event("baseline", {"metric": task.curve, **baseline._asdict()}))
    callback(Event("started", {"run": str(run.path), "curve": task.curve, "unit": task.unit}))
    trainer.train()
    summary, value = trainer.summary(), trainer.best_metrics.get(task.curve)
    if not trainer.group.is_main:
        return Outcome(run, task, summary, trainer.stopped)
    summary["baselines"] = [
        {**baseline._asdict(), "passed": value is not None and is_better(task.curve, value, baseline.value)}
        for baseline in baselines
    ]
    summary |= verdict(task, trainer.best_metrics, baselines, run.metrics()).as_json()
    callback(Event("finished", summary))
    return Outcome(run, task, summary, trainer.stopped)


def _baselines(trainer: Trainer) -> list[Baseline]:
    """Return the baselines of a run: those that it has stored, or newly evaluated ones."""
    run, task = trainer.run, trainer.task

    def evaluate() -> list[JsonObject]:
        stored = run.baselines()
        if stored is not None:
            return stored
        try:
            found = [baseline._asdict() for baseline in task.baselines(trainer.data)] if task.options.baseline else []
        except TooLargeError as error:
            trainer.callback(Event("note", {"text": Message("no baseline: {why}", why=error)}))
            return []
        if found:
            run.write_baselines(task.curve, found)
        return found

    entries = trainer.group.from_rank0(evaluate)
    return [Baseline(str(entry["name"]), float(entry["value"]), entry["metrics"]) for entry in entries]


def _check_files(options: TaskOptions, group: ProcessGroup) -> None:
    """Refuse a task that reads files without any, and a pipe that several processes would have to read."""
    if not isinstance(options, DataOptions):
        return
    if not options.texts:
        raise OptionError(f"the task {name_of(options)} trains on files; name one: recur train FILE")
    names = [name for part in PATHS if part in options.names() for name in getattr(options, part)]
    piped = [name for name in names if name in ("-", "/dev/stdin") or Path(name).is_fifo()]
    if group.size > 1 and piped:
        raise OptionError(
            f"{piped[0]} can be read only once, but {group.size} processes train: write it to a file first"
        )


def _check_equal(group: ProcessGroup, options: TaskOptions, vocabs: Vocabs, data: str) -> None:
    """Refuse to train if ranks have different options or data."""
    if group.size > 1:
        group.check_equal("options", options.to_toml())
        group.check_equal("data", f"{data} {[vocab.digest for vocab in vocabs.values()]}")


@contextmanager
def _writing(path: Path, open_run: Callable[[], Run]) -> Iterator[Run]:
    """Hold the lock of a run; if its disk is full or gone, say how to continue."""
    run = None
    try:
        run = open_run()
        yield run
    except OSError as error:
        if not error.filename or not Path(error.filename).is_relative_to(path):
            raise  # not an error of the run's folder: it may come from a callback
        then = f"continue with recur resume {path}" if is_run(path) else "train again"
        raise RunError(f"{error.strerror or error}: {error.filename}; when that is fixed, {then}") from error
    finally:
        if run is not None:
            run.release()


@contextmanager
def _process_restored() -> Iterator[None]:
    """Restore the number of threads and the random states when the block ends."""
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(random)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def _on_main(callback: Callback | None, group: ProcessGroup) -> Callback:
    """Return the callback on rank 0, and a function that does nothing elsewhere."""
    return callback if callback is not None and group.is_main else lambda event: None


def _main_first(group: ProcessGroup, open_run: Callable[[], Run]) -> Run:
    """Open a run on rank 0, which may repair it, before the other ranks open it."""
    run = open_run() if group.is_main else None
    group.from_rank0(lambda: None)
    return run or open_run()


# The machine -----------------------------------------------------------------------------------------------------


def describe_machine(trainer: Trainer) -> JsonObject:
    """Return the machine and the versions that train a run, for its model card."""
    device = trainer.device
    return {
        "from_step": trainer.step,
        "date": time.strftime("%Y-%m-%d"),
        "recur": _version(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "processes": trainer.group.size,
    }


def _version() -> str:
    """Return the installed version; empty if recur is used from its source folder."""
    try:
        return metadata.version("recur")
    except metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    """Return the name of the CPU: from /proc on Linux, elsewhere from Python."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()

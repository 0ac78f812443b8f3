"""One way to train: `train` begins a run, `resume` goes on with one. The command line and `recur.fit` call these."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from recur.errors import OptionError, RunError, TooLargeError
from recur.run import Run, Vocabs, check_free, is_run, pick_device
from recur.tasks import (
    config_text,
    name_of,
    options_of_run,
    task_class,
    task_of,
    texts_of,
    with_carried_cell,
    with_own_texts,
)
from recur.tasks.carry import Beginning
from recur.tasks.contract import Baseline, Task
from recur.tasks.metrics import better
from recur.tasks.options import FoldOptions, SplitOptions, TaskOptions
from recur.tasks.registry import PATHS
from recur.tasks.verdict import verdict
from recur.train.bystander import Bystander
from recur.train.events import Callback, Event
from recur.train.here import on_device, sized, with_threads
from recur.train.machine import machine_of
from recur.train.optimise import Schedule
from recur.train.ranks import ALONE, Ranks
from recur.train.trainer import Trainer
from recur.typedefs import JsonObject


class Outcome(NamedTuple):
    """What became of a run."""

    run: Run
    task: Task[Any, Any, Any, Any]
    summary: JsonObject
    """What `recur train --json` prints."""
    stopped: bool
    """Whether it was stopped before its budget was spent."""


def train(
    options: TaskOptions,
    out: Path | str | None = None,
    callback: Callback | None = None,
    stop: threading.Event | None = None,
    trust: bool = False,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Train from the start, into a new folder (runs/NAME-TIME, if not given).

    To `trust` the run that it begins with is to execute a cell that it carries. Set `stop` from elsewhere to save
    and end after the step in progress. The process is left as it was: thread count and random state are the
    caller's again. Of several `ranks` each calls this; the first one writes and is called back. Started again, they
    go on with the run that they had begun in `out`.
    """
    callback = _of_first(callback, ranks)
    if out is not None and ranks.at.restarts and ranks.first(lambda: is_run(Path(out))):
        callback(Event("note", {"text": f"started again: {out} goes on from its newest checkpoint"}))
        return resume(out, callback=callback, stop=stop, trust=trust, ranks=ranks)
    if out is not None and ranks.writes:
        check_free(Path(out))
    _check_shared(options, ranks)
    if not getattr(options, "texts", True):
        raise OptionError(f"the task {name_of(options)} learns from a file; name one: recur train FILE")
    with _process_restored():
        began = Beginning.of(options, trust)
        asked = began.followed(options)
        options = task_class(name_of(options)).settle(asked)
        task: Task[Any, Any, Any, Any] = task_of(options)
        Schedule(options.schedule, options.warmup)  # what is wrong with an option is said before anything is written
        data = began.read(task)
        callback(Event("data", {"text": task.describe(data)}))
        if words := task.settled_words(asked, options):
            callback(Event("note", {"text": words}))
        if asked.precision is None and options.precision != "float32":
            text = (
                f"products of {options.precision}, the fastest here that costs no quality; exact: --precision float32"
            )
            callback(Event("note", {"text": text}))
        if both := _learned_and_measured(options):
            text = f"{', '.join(both)}: learned from and measured on, so that these figures are of what it knows"
            callback(Event("note", {"text": text}))
        if _keeps_a_test_part(options):
            text = (
                "a part is held out of what it learns from, for recur eval; with --test FILE all of it is learned from"
            )
            callback(Event("note", {"text": text}))
        options = sized(asked, task, data, callback, ranks)
        task = task_of(options)
        task.check_size(data.vocabs)
        options = with_threads(task, data, options, callback, ranks)
        task = task_of(options)
        named = Path(out) if out is not None else Path("runs") / f"{task.run_name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = Path(ranks.first(lambda: str(named)))
        options, cell = with_carried_cell(options, folder)
        task = task_of(options)
        _check_same(ranks, options, data.vocabs, task.describe(data))

        def begin() -> Run:
            if not ranks.writes:
                return Bystander.of(folder, task.name, data.vocabs)
            texts = texts_of(options, folder) | began.fingerprints(folder)
            return Run.create(folder, task.name, config_text(options, folder), data.vocabs, cell, texts)

        with _writing(folder, begin) as run:
            trainer = Trainer(run, task, data, callback, stop, ranks)
            for note in began.fill(trainer.model, task, data.vocabs):
                callback(Event("note", {"text": note}))
            trainer.checkpoint()  # from here on it is a run, which can be left at any moment and gone on with
            return _run(trainer, callback)


def resume(
    path: Path | str,
    *,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str | None = None,
    trust: bool = False,
    changed_text: bool = False,
    callback: Callback | None = None,
    stop: threading.Event | None = None,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Go on with a run exactly where it stopped: with what was left of its budget, or so much more; on its device, or
    on another. To `trust` a run is to execute a cell that it carries, though one has not trained with it. A text that
    was changed since is refused; with `changed_text` training goes on with it. Of several `ranks` each calls this, and
    all of them see the folder; there may be as many as before, or not."""
    callback = _of_first(callback, ranks)
    for name, value in (("epochs", epochs), ("steps", steps), ("minutes", minutes)):
        if value is not None and not 0 < value < float("inf"):
            raise OptionError(f"{name} must be above 0, got {value}")
    if ranks.at.restarts and (epochs or steps or minutes):
        callback(Event("note", {"text": "started again: with what is left of the budget, which was raised before"}))
        epochs = steps = minutes = None

    def opened() -> Run:
        return Run.open(path, writing=True, trust=trust) if ranks.writes else Bystander.open(path, trust=trust)

    with _process_restored(), _writing(Path(path), lambda: _after_first(ranks, opened)) as run:
        options = options_of_run(run)
        if device is not None:
            options = on_device(options, pick_device(device))
        here = with_own_texts(run, options, ("texts", "valid"), changed_text)
        data = task_of(here).read(run.vocabs)
        trainer = Trainer(run, task_of(here), data, callback, stop, ranks)
        for complaint in trainer.restore():
            callback(Event("note", {"text": complaint}))
        _check_same(ranks, options, run.vocabs, f"{task_of(here).describe(data)}, step {trainer.step}")
        more = bool(epochs or steps or minutes)
        if more:
            budget = trainer.extend(epochs, steps, minutes)
            options = options.changed(**budget)
        if changed_text:
            run.manifest.texts |= texts_of(here, run.path, ("texts", "valid"))
        if more or changed_text or device is not None:
            run.write_config(config_text(options, run.path))
        return _run(trainer, callback)


def _run(trainer: Trainer, callback: Callback) -> Outcome:
    task, run = trainer.task, trainer.run
    run.add_machine(machine_of(trainer))
    run.commit()
    plain = _baselines(trainer)
    for baseline in plain:
        callback(Event("baseline", {"metric": task.curve, **baseline._asdict()}))
    callback(Event("started", {"run": str(run.path), "curve": task.curve, "unit": task.unit}))
    trainer.train()
    summary, found = trainer.summary(), trainer.best_metrics.get(task.curve)
    if not trainer.ranks.writes:
        return Outcome(run, task, summary, trainer.stopped)
    summary["baselines"] = [
        {**baseline._asdict(), "passed": found is not None and better(task.curve, found, baseline.value)}
        for baseline in plain
    ]
    summary |= verdict(task, trainer.best_metrics, plain, run.metrics()).as_json()
    callback(Event("finished", summary))
    return Outcome(run, task, summary, trainer.stopped)


def _baselines(trainer: Trainer) -> list[Baseline]:
    """What the run has to beat: measured before its first step, or, if it was left before that was done, now."""
    run, task = trainer.run, trainer.task

    def measured() -> list[JsonObject]:
        known = run.baselines()
        if known is not None:
            return known
        try:
            found = [baseline._asdict() for baseline in task.baselines(trainer.data)] if task.options.baseline else []
        except TooLargeError as error:
            trainer.callback(Event("note", {"text": f"nothing to beat: {error}"}))
            return []
        if found:
            run.write_baselines(task.curve, found)
        return found

    return [Baseline(str(one["name"]), float(one["value"]), one["metrics"]) for one in trainer.ranks.first(measured)]


def _learned_and_measured(options: TaskOptions) -> list[str]:
    """Files that stand on both sides."""
    texts = {Path(name).resolve() for name in getattr(options, "texts", ())}
    return [name for name in getattr(options, "valid", ()) if Path(name).resolve() in texts]


def _keeps_a_test_part(options: TaskOptions) -> bool:
    """Who names what to measure on may think that all of the rest is learned from."""
    folds = isinstance(options, FoldOptions) and options.fold
    return isinstance(options, SplitOptions) and bool(options.valid) and not options.test and not folds


@contextmanager
def _writing(path: Path, opened: Callable[[], Run]) -> Iterator[Run]:
    """Hold a run while it is written; where its disk is full or gone, say how to go on."""
    run = None
    try:
        run = opened()
        yield run
    except OSError as error:
        if not error.filename or not Path(error.filename).is_relative_to(path):
            raise  # a callback's, say
        then = f"go on with recur resume {path}" if is_run(path) else "begin again"
        raise RunError(f"{error.strerror or error}: {error.filename}; when that is mended, {then}") from error
    finally:
        if run is not None:
            run.release()


@contextmanager
def _process_restored() -> Iterator[None]:
    threads, random = torch.get_num_threads(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(random)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def _ignore(event: Event) -> None:
    """For who does not want to know."""


# Several processes ----------------------------------------------------------------------------------------------


def _of_first(callback: Callback | None, ranks: Ranks) -> Callback:
    return callback if callback is not None and ranks.writes else _ignore


def _after_first(ranks: Ranks, opened: Callable[[], Run]) -> Run:
    """The first opens a run, and may mend it, before the others look."""
    run = opened() if ranks.writes else None
    ranks.first(lambda: None)
    return run or opened()


def _check_shared(options: TaskOptions, ranks: Ranks) -> None:
    """What one process can do and several cannot."""
    names = [name for part in PATHS for name in getattr(options, part, ())]
    piped = [name for name in names if name in ("-", "/dev/stdin") or Path(name).is_fifo()]
    if ranks.size > 1 and piped:
        raise OptionError(f"{piped[0]} can be read once, and {ranks.size} processes train: write it to a file first")


def _check_same(ranks: Ranks, options: TaskOptions, vocabs: Vocabs, data: str) -> None:
    if ranks.size > 1:
        ranks.check_same("options", options.to_toml())
        ranks.check_same("data", f"{data} {[vocab.digest for vocab in vocabs.values()]}")

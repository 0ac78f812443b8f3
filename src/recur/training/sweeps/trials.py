"""Sweeps: search for good options by training one run per trial, with pruning and resuming."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recur.data.frames import is_in_memory
from recur.errors import OptionError, RecurError, RunError, TrainingError
from recur.i18n import Message
from recur.options import Count, Positive, checked
from recur.options.fields import OneOf
from recur.runs import Run, is_run
from recur.runs.safe_dir import Lock
from recur.tasks import make_options, options_of_run, task_class, task_of
from recur.tasks.common.options import DataOptions
from recur.tasks.common.predictor import file_names
from recur.tasks.common.registry import choose_task, with_paths, without_paths
from recur.tasks.common.runs import check_texts_of_file
from recur.training import Callback, Event, Outcome, resume, train
from recur.training.in_memory_data import InMemoryData
from recur.training.sweeps.record import PRUNERS, Pruner, SweepRecord, Trial, is_sweep
from recur.training.sweeps.results import Sweep
from recur.training.sweeps.search import (
    SearchRequest,
    Study,
    TrialMonitor,
    import_optuna,
    resolve_search,
    silence_optuna,
)
from recur.training.sweeps.storage import StorageTrials
from recur.utils.trust import check_cells, name_cell

Watcher = Callable[[Trial], object]
"""Function that is called with a trial when it starts and when it has ended."""


def sweep(
    texts: Any = None,
    answers: Any = None,
    *,
    task: str | None = None,
    trials: int = 30,
    search: SearchRequest = None,
    pruner: Pruner = "median",
    total_minutes: float | None = None,
    storage: str | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    callback: Callback | None = None,
    interrupt: threading.Event | None = None,
    trust: bool = False,
    **options: Any,
) -> Sweep:
    """Search for good options of a task: train several runs, and return which is best on the validation set.

    texts, answers, task and options   as for `recur.fit`; an option that is given is not searched. The budget
                     (`minutes`, `epochs`, `steps`) is that of each trial
    search           options to search: names, `"lr=0.001:0.01:log"`, or a mapping to Between and OneOf; by default
                     the task's own search
    pruner           median: stop a trial that is worse than the median of the others at this point; hyperband; or none
    total_minutes    start no trial after so many minutes
    storage          Optuna storage that several processes share: a database URL, or a journal file
    out              folder of the sweep; by default sweeps/NAME. An existing sweep is resumed
    trust            execute custom cells that an existing sweep folder names, even if you have not trained with them

    The first trial has the task's defaults. Set `interrupt` from another thread to end after the current step. To
    resume a sweep that was stopped or killed, or to add trials, call this function again with the same arguments, or
    call `recur.training.sweeps.resume_sweep`.

    >>> found = recur.sweep("names.tsv", task="classify", trials=2, steps=2, search=["lr"], hidden_size=8, out="sweep")
    >>> len(found.trials), found.command.split()[:2]
    (2, ['recur', 'train'])
    """
    import_optuna()
    checked("trials", trials, Count)
    if pruner not in PRUNERS:
        raise OptionError(
            Message(
                "{name} must be one of {known}, got {given}",
                name="pruner",
                known=", ".join(PRUNERS),
                given=repr(pruner),
            )
        )
    name_cell(options.get("cell"))
    given = texts if answers is None else (texts, answers)
    data = InMemoryData.of(given, options) if answers is not None or is_in_memory(given) else None
    if data is None:
        names = [] if texts is None else file_names(texts)
        task = task or choose_task(names)[0]
        fields = options | ({"texts": names} if names else {})
    else:
        task, fields = task or data.task(), data.options
    checked_options = make_options(task, fields if data is None else data.task_options(task))
    if data is None and isinstance(checked_options, DataOptions) and not checked_options.texts:
        raise OptionError(f"the task {task} trains on files; name one: recur sweep FILE")
    spaces = resolve_search(task, search, fields, checked_options.unused())
    name = task_of(checked_options).run_name if data is None else task
    folder = Path("sweeps") / name if out is None else Path(checked("out", out, str))
    if isinstance(cells := spaces.get("cell"), OneOf):
        for cell in cells.values:
            name_cell(cell)
        spaces["cell"] = OneOf(tuple(without_paths({"cell": cell}, folder)["cell"] for cell in cells.values))  # type: ignore[misc]
    if data is not None:
        fields = data.write(task, folder) if not is_sweep(folder) else _written_before(data, task, folder)
    record = SweepRecord(
        task, without_paths(fields, folder), spaces, task_of(checked_options).curve, checked_options.seed, pruner
    )
    _begin(folder, record)
    check_texts_of_file(with_paths(dict(record.options), folder), folder, named_by_user=True)
    runner = _SweepRunner(folder, SweepRecord.read(folder), watcher, callback, interrupt, trust, storage)
    return runner.run(trials, total_minutes)


def resume_sweep(
    folder: str | Path,
    *,
    trials: int = 30,
    total_minutes: float | None = None,
    storage: str | None = None,
    allow_path: Sequence[str | Path] = (),
    watcher: Watcher | None = None,
    callback: Callback | None = None,
    interrupt: threading.Event | None = None,
    trust: bool = False,
) -> Sweep:
    """Resume a sweep until it has so many trials; with `trust`, execute custom cells that its folder names.

    A text outside of the sweep's folder that this user has not trained with is opened only if `allow_path` has it.
    """
    import_optuna()
    checked("trials", trials, Count)
    record = SweepRecord.read(Path(folder))
    check_texts_of_file(with_paths(dict(record.options), Path(folder)), Path(folder), allow_path)
    return _SweepRunner(Path(folder), record, watcher, callback, interrupt, trust, storage).run(trials, total_minutes)


def open_sweep(folder: str | Path, storage: str | None = None) -> Sweep:
    """Open a sweep to look at its results; its trials may be in an Optuna storage."""
    record = SweepRecord.read(Path(folder))
    if storage is not None:
        record.trials = StorageTrials(Path(folder), record, storage).trials()
    return Sweep(Path(folder), record)


def _begin(folder: Path, record: SweepRecord) -> None:
    """Create the folder of a sweep; an existing one must hold the same sweep."""
    if is_sweep(folder):
        before, now = SweepRecord.read(folder).request(), record.request()
        differ = [name for name in now if now[name] != before[name]]
        if differ:
            raise RunError(
                f"{folder} holds a sweep with different settings ({', '.join(differ)}); resume it "
                f"(recur sweep --resume {folder}) or name another folder: --out"
            )
        return
    if is_run(folder) or (folder.exists() and not folder.is_dir()):
        raise RunError(f"{folder} is in the way: a sweep needs its own folder; name another: --out")
    folder.mkdir(parents=True, exist_ok=True)
    record.write(folder)


def _written_before(data: InMemoryData, task: str, folder: Path) -> dict[str, Any]:
    """Return the options of in-memory data that an existing sweep has written; refuse different data."""
    import filecmp
    import tempfile

    with tempfile.TemporaryDirectory(prefix="recur-") as elsewhere:
        fields = data.write(task, Path(elsewhere) / "run")
        for part in data.parts:
            (new,) = fields[part]
            old = folder / "data" / Path(new).name
            if not old.is_file() or not filecmp.cmp(new, old, shallow=False):
                raise RunError(f"{folder} holds a sweep with different data; name another folder: --out")
            fields[part] = [str(old)]
    return fields


class _TrialStop(threading.Event):
    """Event that is set for one trial, or by the caller for the whole sweep."""

    def __init__(self, outer: threading.Event) -> None:
        super().__init__()
        self.outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self.outer.is_set()


class FolderTrials:
    """Trials of a sweep in the sweep.json of its folder, which one process at a time runs."""

    def __init__(self, folder: Path, record: SweepRecord) -> None:
        self.folder, self.record = folder, record

    def trials(self) -> list[Trial]:
        return self.record.trials

    def begin(self, trials: int) -> tuple[Trial, TrialMonitor | None] | None:
        """Return the trial that was stopped, or a new one; None if there are enough."""
        unfinished = next((trial for trial in self.record.trials if trial.state == "running"), None)
        if unfinished is None and len(self.record.trials) >= trials:
            return None
        number = len(self.record.trials) if unfinished is None else unfinished.number
        monitor = None
        if number:  # the first trial has the task's defaults
            monitor = Study(self.record).ask(number, None if unfinished is None else unfinished.params)
        return unfinished or Trial(number, {} if monitor is None else monitor.params), monitor

    def keep(self, trial: Trial) -> None:
        """Store the state of a trial."""
        self.record.trials[trial.number :] = [trial]
        self.record.write(self.folder)

    def release(self) -> None:
        """Nothing is claimed: the folder is locked as a whole."""


class _SweepRunner:
    """Process that runs the trials of a sweep, one after the other."""

    def __init__(
        self,
        folder: Path,
        record: SweepRecord,
        watcher: Watcher | None,
        callback: Callback | None,
        stop: threading.Event | None,
        trust: bool,
        storage: str | None = None,
    ) -> None:
        self.folder, self.record, self.trust = folder, record, trust
        self.watcher, self.callback = watcher or (lambda trial: None), callback or (lambda event: None)
        self.stop = stop or threading.Event()
        self.shared = storage is not None
        self.source = FolderTrials(folder, record) if storage is None else StorageTrials(folder, record, storage)

    def run(self, trials: int, total_minutes: float | None) -> Sweep:
        if total_minutes is not None:
            checked("total_minutes", total_minutes, Positive)
        begun = time.monotonic()
        check_cells([with_paths({"cell": cell}, self.folder)["cell"] for cell in self.record.cells()], self.trust)
        with self._held(), silence_optuna():
            while not self.stop.is_set() and (total_minutes is None or time.monotonic() - begun < 60 * total_minutes):
                if (found := self.source.begin(trials)) is None:
                    break
                try:
                    self._trial(*found)
                finally:
                    self.source.release()
            if self.shared:
                self.record.trials = self.source.trials()
        return Sweep(self.folder, self.record, self.stop.is_set())

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the lock of the folder: one process at a time, unless a storage decides who runs what."""
        lock = None if self.shared else Lock(self.folder)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _trial(self, trial: Trial, monitor: TrialMonitor | None) -> None:
        """Run a new trial, or resume one."""
        self._keep(trial)
        self.watcher(trial)
        measured: list[float] = []
        stop, path = _TrialStop(self.stop), self.folder / trial.run
        if path.is_symlink():
            raise RunError(f"{path} is a link; a sweep must contain its trials")

        def callback(event: Event) -> None:
            if event.kind in ("started", "measured"):
                entries = Run.open(path).metrics() if event.kind == "started" else [event.content]
                found = [entry.get(self.record.metric) for entry in entries]
                measured.extend(float(value) for value in found if isinstance(value, int | float))
                if measured and monitor is not None and monitor.should_prune(measured):
                    stop.set()
            self.callback(event)

        try:
            outcome = self._resume(path, callback, stop) if is_run(path) else self._train(trial, callback, stop)
        except TrainingError as error:
            trial = dataclasses.replace(trial, state="failed", measured=tuple(measured), why=str(error))
        except RecurError as error:
            if not any(trial.state == "complete" for trial in self.source.trials()):
                if self.shared:
                    self._keep(dataclasses.replace(trial, state="failed", why=str(error)))
                else:
                    self._forget(trial)  # the options of this trial are not the cause
                raise
            trial = dataclasses.replace(trial, state="failed", measured=tuple(measured), why=str(error))
        else:
            if self.stop.is_set() and outcome.stopped:
                return  # it is resumed later
            trial = self._ended(trial, outcome, measured)
        self._keep(trial)
        self.watcher(trial)

    def _resume(self, path: Path, callback: Callback, stop: threading.Event) -> Outcome:
        return resume(path, callback=callback, stop=stop, trust=self.trust)

    def _train(self, trial: Trial, callback: Callback, stop: threading.Event) -> Outcome:
        fields = with_paths({**self.record.options, **trial.params}, self.folder)
        if trial.number:
            fields["baseline"] = False  # the first trial has evaluated the baselines
            fields = self._sizes() | fields
        return train(make_options(self.record.task, fields), self.folder / trial.run, callback, stop, self.trust)

    def _sizes(self) -> dict[str, object]:
        """Return the sizes that were auto-configured for the first trial; the others use them if not searched."""
        sizes = task_class(self.record.task).sizes
        path = self.folder / "trial-000"
        if not sizes or not is_run(path):
            return {}
        o = options_of_run(Run.open(path, trust=self.trust))
        found = {name: getattr(o, name) for name in sizes if name not in o.unused()}
        return {name: value for name, value in found.items() if value is not None} | {"auto_size": False}

    def _ended(self, trial: Trial, outcome: Outcome, measured: list[float]) -> Trial:
        params = trial.params
        if not trial.number:
            settled = options_of_run(outcome.run)
            params = {name: getattr(settled, name) for name in self.record.search}
            params = {name: value for name, value in params.items() if isinstance(value, str | bool | int | float)}
        value = outcome.summary.get(self.record.metric)
        return dataclasses.replace(
            trial,
            params=params,
            state="pruned" if outcome.stopped else "complete" if isinstance(value, int | float) else "failed",
            value=float(value) if isinstance(value, int | float) else None,
            measured=tuple(measured),
            seconds=round(outcome.summary["seconds"] + outcome.summary["measuring_seconds"], 3),
        )

    def _keep(self, trial: Trial) -> None:
        self.source.keep(trial)

    def _forget(self, trial: Trial) -> None:
        del self.record.trials[trial.number :]
        self.record.write(self.folder)
        if not is_run(self.folder / trial.run):
            shutil.rmtree(self.folder / trial.run, ignore_errors=True)

"""The trials of a sweep, one after the other: each a run, left early where it is hopeless, gone on with where it was
stopped."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recur.data import Data
from recur.errors import OptionError, RecurError, RunError, TrainingError
from recur.frames import is_data
from recur.options import Count, Positive, checked
from recur.run import Run, is_run
from recur.run.lock import Lock
from recur.sweeps.folder import PRUNERS, Pruner, Record, Trial, is_sweep
from recur.sweeps.outcome import Sweep
from recur.sweeps.space import Asked, search_of
from recur.sweeps.study import Study, import_optuna, quiet
from recur.tasks import make_options, options_of_run, task_class, task_of
from recur.tasks.predictor import file_names
from recur.tasks.recognise import choose_task
from recur.tasks.registry import check_cell_of_file, with_paths, without_paths
from recur.train import Callback, Event, Outcome, resume, train

Watcher = Callable[[Trial], object]
"""Called with a trial when it begins, and when it has ended."""


def sweep(
    texts: Any = None,
    answers: Any = None,
    *,
    task: str | None = None,
    trials: int = 30,
    search: Asked = None,
    pruner: Pruner = "median",
    total_minutes: float | None = None,
    out: str | Path | None = None,
    watcher: Watcher | None = None,
    callback: Callback | None = None,
    interrupt: threading.Event | None = None,
    **options: Any,
) -> Sweep:
    """Search for good options of a task: train so many runs, and say which is best on the validation part.

    texts, answers, task and options   as `recur.fit` takes them; an option that is given is not searched for. The
                     budget (`minutes`, `epochs`, `steps`) is that of each trial
    search           which options to search for: names, `"rate=0.001:0.01:log"`, or a mapping to Between and OneOf;
                     what the task's options say, if not given
    pruner           median: leave a trial that is worse than most were by then; hyperband; or none
    total_minutes    begin no trial after so many
    out              the sweep's folder; sweeps/NAME, if not given. One that is there is gone on with

    The first trial has the task's own defaults. Set `interrupt` from elsewhere to end after the step in progress; a
    sweep that was stopped, killed or is to have more trials goes on by the same call, or by
    `recur.sweeps.resume_sweep`.

    >>> found = recur.sweep("names.tsv", task="classify", trials=2, steps=2, search=["rate"], hidden=8, out="sweep")
    >>> len(found.trials), found.command.split()[:2]
    (2, ['recur', 'train'])
    """
    import_optuna()
    checked("trials", trials, Count)
    if pruner not in PRUNERS:
        raise OptionError(f"pruner must be one of {', '.join(PRUNERS)}, got {pruner!r}")
    given = texts if answers is None else (texts, answers)
    data = Data.of(given, options) if answers is not None or is_data(given) else None
    if data is None:
        names = [] if texts is None else file_names(texts)
        task = task or choose_task(names)[0]
        fields = options | ({"texts": names} if names else {})
    else:
        task, fields = task or data.task(), data.options
    checked_options = make_options(task, fields if data is None else data.plain(task))
    if not getattr(checked_options, "texts", True) and data is None:
        raise OptionError(f"the task {task} learns from a file; name one: recur sweep FILE")
    spaces = search_of(task, search, fields, checked_options.unused())
    name = task_of(checked_options).run_name if data is None else task
    folder = Path("sweeps") / name if out is None else Path(checked("out", out, str))
    if data is not None:
        fields = data.written(task, folder) if not is_sweep(folder) else _written_before(data, task, folder)
    record = Record(
        task, without_paths(fields, folder), spaces, task_of(checked_options).curve, checked_options.seed, pruner
    )
    _begin(folder, record)
    return _Sweeping(folder, Record.read(folder), watcher, callback, interrupt).run(trials, total_minutes)


def resume_sweep(
    folder: str | Path,
    *,
    trials: int = 30,
    total_minutes: float | None = None,
    watcher: Watcher | None = None,
    callback: Callback | None = None,
    interrupt: threading.Event | None = None,
) -> Sweep:
    """Go on with a sweep until it has so many trials."""
    import_optuna()
    checked("trials", trials, Count)
    record = Record.read(Path(folder))
    return _Sweeping(Path(folder), record, watcher, callback, interrupt).run(trials, total_minutes)


def _begin(folder: Path, record: Record) -> None:
    """A folder for it; one that is there must be of the same sweep."""
    if is_sweep(folder):
        before, now = Record.read(folder).asked(), record.asked()
        differ = [name for name in now if now[name] != before[name]]
        if differ:
            raise RunError(
                f"{folder} holds a sweep that was asked for otherwise ({', '.join(differ)}); go on with it "
                f"(recur sweep --resume {folder}) or name another: --out"
            )
        return
    if is_run(folder) or (folder.exists() and not folder.is_dir()):
        raise RunError(f"{folder} is in the way: a sweep has a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    record.write(folder)


def _written_before(data: Data, task: str, folder: Path) -> dict[str, Any]:
    """The options of data in memory that a sweep wrote before; other data than that is another sweep."""
    import filecmp
    import tempfile

    with tempfile.TemporaryDirectory(prefix="recur-") as elsewhere:
        fields = data.written(task, Path(elsewhere) / "run")
        for part in data.parts:
            (new,) = fields[part]
            old = folder / "data" / Path(new).name
            if not old.is_file() or not filecmp.cmp(new, old, shallow=False):
                raise RunError(f"{folder} holds a sweep of other data; name another: --out")
            fields[part] = [str(old)]
    return fields


class _Stop(threading.Event):
    """Set from outside, or for one trial."""

    def __init__(self, outer: threading.Event) -> None:
        super().__init__()
        self.outer = outer

    def is_set(self) -> bool:
        return super().is_set() or self.outer.is_set()


class _Sweeping:
    """One process at a sweep."""

    def __init__(
        self,
        folder: Path,
        record: Record,
        watcher: Watcher | None,
        callback: Callback | None,
        stop: threading.Event | None,
    ) -> None:
        self.folder, self.record = folder, record
        self.watcher, self.callback = watcher or (lambda trial: None), callback or (lambda event: None)
        self.stop = stop or threading.Event()

    def run(self, trials: int, total_minutes: float | None) -> Sweep:
        if total_minutes is not None:
            checked("total_minutes", total_minutes, Positive)
        begun = time.monotonic()
        check_cell_of_file(with_paths(dict(self.record.options), self.folder))
        with self._held(), quiet():
            while not self.stop.is_set():
                unfinished = [trial for trial in self.record.trials if trial.state == "running"]
                if not unfinished and len(self.record.trials) >= trials:
                    break
                if total_minutes is not None and time.monotonic() - begun > 60 * total_minutes:
                    break
                self._trial(unfinished[0] if unfinished else None)
        return Sweep(self.folder, self.record, self.stop.is_set())

    @contextmanager
    def _held(self) -> Iterator[None]:
        """One process at a time."""
        lock = Lock(self.folder)
        try:
            yield
        finally:
            lock.release()

    def _trial(self, begun: Trial | None) -> None:
        """One more, or the rest of one."""
        number = len(self.record.trials) if begun is None else begun.number
        watched = None
        if number:  # the first has the task's defaults
            watched = Study(self.record).ask(number, None if begun is None else begun.params)
        trial = begun or Trial(number, {} if watched is None else watched.params)
        self._keep(trial)
        self.watcher(trial)
        measured: list[float] = []
        stop, path = _Stop(self.stop), self.folder / trial.run

        def callback(event: Event) -> None:
            if event.kind in ("started", "measured"):
                entries = Run.open(path).metrics() if event.kind == "started" else [event.content]  # before it was left
                found = [entry.get(self.record.metric) for entry in entries]
                measured.extend(float(value) for value in found if isinstance(value, int | float))
                if measured and watched is not None and watched.hopeless(measured):
                    stop.set()
            self.callback(event)

        try:
            outcome = resume(path, callback=callback, stop=stop) if is_run(path) else self._train(trial, callback, stop)
        except TrainingError as error:
            trial = dataclasses.replace(trial, state="failed", measured=tuple(measured), why=str(error))
        except RecurError as error:
            if not any(trial.state == "complete" for trial in self.record.trials):
                self._forget(trial)  # what is wrong is not these options'
                raise
            trial = dataclasses.replace(trial, state="failed", measured=tuple(measured), why=str(error))
        else:
            if self.stop.is_set() and outcome.stopped:
                return  # it is gone on with later
            trial = self._ended(trial, outcome, measured)
        self._keep(trial)
        self.watcher(trial)

    def _train(self, trial: Trial, callback: Callback, stop: threading.Event) -> Outcome:
        fields = with_paths({**self.record.options, **trial.params}, self.folder)
        if trial.number:
            fields["baseline"] = False  # the first has measured it
            fields = self._sizes() | fields
        return train(make_options(self.record.task, fields), self.folder / trial.run, callback, stop)

    def _sizes(self) -> dict[str, object]:
        """What the first trial has found for this machine and the others share, where they do not search for it."""
        sizes = task_class(self.record.task).sizes
        path = self.folder / self.record.trials[0].run
        if not sizes or not is_run(path):
            return {}
        o = options_of_run(Run.open(path))
        found = {name: getattr(o, name) for name in sizes if name not in o.unused()}
        return {name: value for name, value in found.items() if value is not None} | {"sized": False}

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
        self.record.trials[trial.number :] = [trial]
        self.record.write(self.folder)

    def _forget(self, trial: Trial) -> None:
        del self.record.trials[trial.number :]
        self.record.write(self.folder)
        if not is_run(self.folder / trial.run):
            shutil.rmtree(self.folder / trial.run, ignore_errors=True)

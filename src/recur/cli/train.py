"""recur train: train a model from a file."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from recur.cli.engines import requested_engine, train_on_ray
from recur.cli.options import Opening, Output
from recur.cli.screen import Screen
from recur.cli.task_flags import call, flag_app, split_arguments
from recur.errors import OptionError
from recur.tasks import make_options
from recur.tasks.common.options import TaskOptions
from recur.utils.processes import hush, launch
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training import Callback, Event, Outcome

EXAMPLES = """Examples:
  recur train                                  language model of the Python documentation
  recur train book.txt --cell gru --minutes 5 --out runs/book
  recur train names.tsv --task classify        lines `label TAB text`
  recur train airline.csv --horizon 12         forecast of a dated table
  recur train book.txt --token word --embedding-size 256 --hidden-size 512 --num-layers 2
  recur train book.txt --cell mine.py:MyCell --bptt truncated:20
  recur train ptb/train.txt --config recipes/ptb-zaremba-small.toml
  recur train pairs.tsv --task seq2seq
  recur train names.tsv --task conditional     text for a given label
  recur train tagged.conll                     CoNLL columns and trees need no --task
  recur train digits.npz                       images; or one folder per class
  recur train --task adding --length 200"""

SAME = 1.0
"""Seconds within which a second signal counts as the first: a terminal signals every process, and torchrun forwards
the same signal once more."""

verb = App(help_flags=[], version_flags=[])
"""The flags depend on the task, so the arguments are parsed in two passes."""


@verb.default
def train(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Train a model from a file."""
    if (engine := requested_engine(arguments)) is not None:
        out = train_on_ray(engine[1], engine[0])
        show_trained(Screen(Output(json="--json" in arguments, quiet="-q" in arguments or "--quiet" in arguments)), out)
        return
    task, why, fields, rest = split_arguments(arguments)

    def begin(
        fields: dict[str, object],
        *,
        out: Path | None,
        folds: int | None,
        log: list[str] | None,
        opening: Opening,
        output: Output,
        **engine: object,  # was read before
    ) -> None:
        hush(launch())
        screen = Screen(output, silent=launch().rank > 0)
        if why:
            screen.note(why)
        assert task is not None
        options = make_options(task, fields)
        if folds is not None:
            cross_validate(screen, options, folds, out, opening.trust)
        else:
            start(screen, options, out, log or (), opening.trust)

    call(flag_app(task, fields, begin, EXAMPLES, everything="--help-all" in arguments), task, rest)


def show_trained(screen: Screen, out: Path) -> None:
    """Print where a run is that other processes have trained, and its metrics."""
    from recur.runs import Run
    from recur.tasks.common.metrics import format_metric, metric_label

    run = Run.open(out, words=False)
    found = {name: value for name, value in run.weights_about().items() if name.startswith("valid_")}
    screen.show(", ".join(f"{metric_label(name)} {format_metric(name, value)}" for name, value in found.items()))
    screen.note(f"trained: {out}")
    screen.result({"run": str(out), "task": run.task, **found})


def start(screen: Screen, options: TaskOptions, out: Path | None, log: Sequence[str], trust: bool = False) -> None:
    from recur.training import process_group
    from recur.training import train as train_run

    with process_group(launch(), options.device, options.compress) as ranks:
        watch(screen, lambda callback, stop: train_run(options, out, callback, stop, trust, ranks), log)


def cross_validate(screen: Screen, options: TaskOptions, folds: int, out: Path | None, trust: bool) -> None:
    """Print each fold when it ends, then the mean over folds."""
    if launch().size > 1:
        raise OptionError("--folds trains the folds in one process: run it without torchrun or srun")
    from recur.cli.display import show_folds
    from recur.training.cross_validation import cross_validate as each_fold

    with interruptible(screen) as stop:
        found = each_fold(options, folds, out, lambda row: screen.note(_fold_line(row)), stop, trust)
    show_folds(screen, found)
    screen.result(found)
    if stop.is_set():
        raise KeyboardInterrupt


def _fold_line(row: JsonObject) -> str:
    from recur.tasks.common.metrics import format_metric, metric_label

    metric = str(row["metric"])
    best = [f"{one['model']} {format_metric(metric, one[metric])}" for one in row.get("beside") or () if metric in one][
        -1:
    ]
    figures = ", ".join([f"{metric_label(metric)} {format_metric(metric, row[metric])}", *best])
    return f"fold {row['fold']}: {figures}"


def watch(screen: Screen, run: Callable[[Callback, threading.Event], Outcome], log: Sequence[str] = ()) -> None:
    """Train with a live display; Ctrl-C saves a checkpoint and prints how to resume."""
    from recur.cli.display import Display
    from recur.training.trackers import Tracker

    trackers = [] if screen.silent else [Tracker(name) for name in log]
    with Display(screen) as display, interruptible(screen) as stop:
        callbacks: list[Callback] = [display, *trackers]

        def callback(event: Event) -> None:
            for each in callbacks:
                each(event)

        try:
            outcome = run(callback, stop)
        finally:
            for tracker in trackers:
                tracker.close()
    if not screen.silent:
        display.finish(outcome)
        screen.result(outcome.summary)
    if outcome.stopped:
        raise KeyboardInterrupt


@contextmanager
def interruptible(screen: Screen) -> Iterator[threading.Event]:
    """Set an event at Ctrl-C or SIGTERM, which schedulers and containers send; a second signal interrupts as usual."""
    stop, first = threading.Event(), 0.0
    if threading.current_thread() is not threading.main_thread():  # Ray trains in a thread, and gets the signals itself
        yield stop
        return

    def interrupt(*_: object) -> None:
        nonlocal first
        if stop.is_set():
            if launch().size > 1 and time.monotonic() - first < SAME:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        stop.set()
        screen.note("stopping after the current step; press Ctrl-C again to exit at once")

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

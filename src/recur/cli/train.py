"""recur train: one command from a file to a model."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from recur.cli.options import Opening, Output
from recur.cli.screen import Screen
from recur.cli.task_flags import call, flag_app, split_arguments
from recur.errors import OptionError, RecurError
from recur.i18n import Message
from recur.tasks import make_options
from recur.tasks.options import TaskOptions
from recur.utils.launch import hush, launch
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training import Callback, Event, Outcome

EXAMPLES = """Examples:
  recur train                                 the language reference, about a minute
  recur train book.txt --cell gru --minutes 5 --out runs/book
  recur train book.txt --token word --embedding 256 --hidden 512 --layers 2
  recur train book.txt --cell mine.py:MyCell --bptt truncated:20
  recur train ptb/train.txt --config recipes/ptb-zaremba-small.toml --valid ptb/valid.txt
  recur train pairs.tsv --task seq2seq
  recur train names.tsv --task classify       or --task conditional: a name of a given label
  recur train tagged.conll                    CoNLL columns, trees and dated tables need no --task
  recur train airline.csv --horizon 12
  recur train digits.npz                      images and labels; or a folder with a folder of images for each class
  recur train rows.csv --task table           one column from the others of its row
  recur train --task adding --length 200"""

SAME = 1.0
"""Seconds within which a second signal is the first once more: a terminal's, and torchrun's, which passes it on."""

verb = App(help_flags=[], version_flags=[])
"""What it takes depends on the task, which its own arguments say: they are looked at first."""


@verb.default
def train(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Learn a model from a file."""
    task, why, fields, rest = split_arguments(arguments)

    def begin(
        fields: dict[str, object],
        *,
        out: Path | None,
        folds: int | None,
        tensorboard: bool,
        opening: Opening,
        output: Output,
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
            start(screen, options, out, tensorboard, opening.trust)

    call(flag_app(task, fields, begin, EXAMPLES), task, rest)


def start(screen: Screen, options: TaskOptions, out: Path | None, tensorboard: bool, trust: bool = False) -> None:
    from recur.training import joined
    from recur.training import train as train_run

    with joined(launch(), options.device, options.compress) as ranks:
        watch(screen, lambda callback, stop: train_run(options, out, callback, stop, trust, ranks), tensorboard)


def cross_validate(screen: Screen, options: TaskOptions, folds: int, out: Path | None, trust: bool) -> None:
    """Every fold on the screen as it is done, and then their mean."""
    if launch().size > 1:
        raise OptionError("--folds trains one fold behind the other in one process: leave torchrun or srun away")
    from recur.cli.results import show_folds
    from recur.training.folds import cross_validate as each_fold

    with interruptible(screen) as stop:
        found = each_fold(options, folds, out, lambda row: screen.note(_fold_line(row)), stop, trust)
    show_folds(screen, found)
    screen.result(found)
    if stop.is_set():
        raise KeyboardInterrupt


def _fold_line(row: JsonObject) -> str:
    from recur.tasks.metrics import show, words

    metric = str(row["metric"])
    best = [f"{one['model']} {show(metric, one[metric])}" for one in row.get("beside") or () if metric in one][-1:]
    figures = ", ".join([f"{words(metric)} {show(metric, row[metric])}", *best])
    return f"fold {row['fold']}: {figures}"


def watch(screen: Screen, run: Callable[[Callback, threading.Event], Outcome], tensorboard: bool = False) -> None:
    """Train on the screen; Ctrl-C saves and says how to go on."""
    from recur.cli.display import Display

    with Display(screen) as display, interruptible(screen) as stop:
        callbacks: list[Callback] = [display]
        if tensorboard and not screen.silent:
            callbacks.append(_tensorboard())

        def callback(event: Event) -> None:
            for each in callbacks:
                each(event)

        outcome = run(callback, stop)
    if not screen.silent:
        display.finish(outcome)
        screen.result(outcome.summary)
    if outcome.stopped:
        raise KeyboardInterrupt


@contextmanager
def interruptible(screen: Screen) -> Iterator[threading.Event]:
    """Ctrl-C sets an event while this lasts, and so does SIGTERM, by which schedulers and containers stop a process; a
    second one interrupts as usual."""
    stop, first = threading.Event(), 0.0

    def interrupt(*_: object) -> None:
        nonlocal first
        if stop.is_set():
            if launch().size > 1 and time.monotonic() - first < SAME:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        stop.set()
        screen.note(Message("stopping after the step in progress; Ctrl-C once more leaves at once"))

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tensorboard() -> Callback:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise RecurError("TensorBoard is not installed: pip install 'recur[tensorboard]'") from None
    writers: list[SummaryWriter] = []

    def callback(event: Event) -> None:
        if event.kind == "started":
            writers.append(SummaryWriter(str(Path(event.content["run"]) / "tensorboard")))
        elif event.kind in ("progress", "measured"):
            for name, value in event.content.items():
                if isinstance(value, float):
                    writers[0].add_scalar(name, value, event.content["step"])
            writers[0].flush()

    return callback

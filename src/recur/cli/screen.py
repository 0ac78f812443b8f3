"""What a person sees: notes and progress on standard error, results on standard output, colours on a terminal only."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from recur.cli.options import Output

if TYPE_CHECKING:
    from recur.text import Corpus

PATIENCE = 1.0
"""Seconds before a progress bar is worth its place."""


class Screen:
    def __init__(self, common: Output, silent: bool = False) -> None:
        """A `silent` one shows nothing: of several processes, the first has the screen."""
        self.silent = silent
        self.json, self.quiet = common.json, common.quiet or common.json or silent
        self.out = Console(highlight=False, soft_wrap=True, emoji=False)
        self.err = Console(highlight=False, soft_wrap=True, emoji=False, stderr=True)

    def note(self, text: str) -> None:
        """Something worth knowing that is not the result."""
        if not self.quiet:
            self.err.print(text, style="dim", markup=False, soft_wrap=not self.err.is_terminal)

    def show(self, *things: Any) -> None:
        """A part of the result, for a person to read."""
        if not self.json:
            for thing in things:
                # On a terminal sentences and tables are fitted to its width; elsewhere each is a line.
                fitted = self.out.is_terminal
                if isinstance(thing, Table) and thing.title and fitted:
                    self.out.print(str(thing.title), style="bold", markup=False)  # which may be wider than the table
                    thing.title = None
                self.out.print(thing, markup=False, soft_wrap=not fitted)

    def paragraph(self, text: str, indent: int = 0) -> None:
        """A sentence as part of the result: on a terminal wrapped between words, elsewhere a line."""
        if self.json:
            return
        if not self.out.is_terminal:
            self.out.print(" " * indent + text, markup=False)
            return
        from rich.padding import Padding
        from rich.text import Text

        self.out.print(Padding(Text(text), (0, 0, 0, indent)), soft_wrap=False, markup=False)

    def result(self, content: dict[str, Any]) -> None:
        """The result, for a machine to read."""
        if self.json:
            line = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False)
            sys.stdout.write(line.encode("utf-8", "backslashreplace").decode() + "\n")  # a file's name may be any bytes

    def write(self, text: str) -> None:
        """Text of a model's or a user's, exactly as it is."""
        if not self.json:
            self.out.file.write(text + "\n")

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """A sign of life for work whose end cannot be foreseen, if it takes more than a second."""
        if self.quiet or not self.err.is_terminal:
            yield
            return
        status = self.err.status(what)
        timer = threading.Timer(PATIENCE, status.start)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            status.stop()

    @contextmanager
    def counting(self, what: str, total: int | None = None) -> Iterator[Callable[[int], object] | None]:
        """A callback that counts characters on a progress bar, which appears if that takes more than a second; None
        where there is no screen to show it on."""
        if self.quiet or not self.err.is_terminal:
            yield None
            return
        from rich.progress import Progress

        begun, done = time.monotonic(), 0
        with Progress(console=self.err, transient=True, disable=False, auto_refresh=False) as bar:
            task = bar.add_task(what, total=total, visible=False)

            def progress(characters: int) -> None:
                nonlocal done
                done += characters
                late = time.monotonic() - begun > PATIENCE
                bar.update(task, completed=done, visible=late, refresh=late)

            yield progress

    @contextmanager
    def reading(self, corpus: Corpus, what: str, total: int | None = None) -> Iterator[Corpus]:
        """The same corpus, with a progress bar while it is read."""
        with self.counting(what, total) as progress:
            yield dataclasses.replace(corpus, progress=progress)


def table(title: str, *columns: str) -> Table:
    """A first column of names, and numbers behind it."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for k, column in enumerate(columns):
        made.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    return made


def printable(token: str) -> str:
    """A token that does not disturb a table: white space and control characters as Python writes them."""
    return token if token.isprintable() and token.strip() else repr(token)


def facts(title: str, pairs: dict[str, str]) -> Table:
    """Names and what is to be said of them, a line each."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        made.add_row(name, value)
    return made


def _plain(value: Any) -> Any:
    """What JSON can hold: NumPy's numbers as Python's; null for what is infinite or not a number."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

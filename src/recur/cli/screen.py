"""Terminal output: notes and progress on standard error, results on standard output, colours only on a terminal.

Text from files, names and models is escaped before a terminal shows it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recur.cli.options import Output
from recur.i18n import printed
from recur.utils.progress import ProgressLine

if TYPE_CHECKING:
    from rich.status import Status

    from recur.data.text import Corpus

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that control a terminal (C0, DEL, C1), reorder or break its lines (Unicode Bidi_Control, line separators),
or have no UTF-8 encoding (surrogates). Newlines and tabs are not among them."""


def visible(text: str) -> str:
    r"""Return the text with every unsafe character as `\uXXXX`, the escape that JSON, Python and C share.

    >>> visible("a\x1b[31mb")
    'a\\u001b[31mb'
    """
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class VisibleFormatter(logging.Formatter):
    """Formatter of log records for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record with unsafe characters escaped."""
        return visible(super().format(record))


def escape_messages() -> None:
    """Escape unsafe characters in Python warnings and in log records that no handler takes: both may quote names."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(VisibleFormatter())
    original = warnings.formatwarning

    def formatted(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return visible(original(message, category, filename, lineno, line))

    warnings.formatwarning = formatted


PATIENCE = 1.0
"""Seconds before a progress bar is shown."""


class DataConsole(Console):
    """Console that prints every string as data: no markup, no emoji names, unsafe characters escaped.

    Tables, titles, groups and plain strings all pass through `render_str`. A `rich.text.Text` does not, so no other
    module makes one from data.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, soft_wrap=True, emoji=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the string as styled text with its unsafe characters escaped."""
        return super().render_str(visible(text), **options)


class Screen:
    """Output of one command: notes, progress, results and JSON."""

    def __init__(self, common: Output, silent: bool = False) -> None:
        """silent: print nothing; of several processes only the first prints."""
        self.silent = silent
        self.json, self.quiet = common.json, common.quiet or common.json or silent
        self.out = DataConsole()
        self.err = DataConsole(stderr=True)

    def note(self, text: str) -> None:
        """Print a note on standard error; --quiet hides it."""
        if not self.quiet:
            self.err.print(printed(text), style="dim", soft_wrap=not self.err.is_terminal)

    def warn(self, text: str) -> None:
        """Print a warning on standard error, also with --quiet and --json."""
        if not self.silent:
            self.err.print(printed(text), style="yellow", soft_wrap=not self.err.is_terminal)

    def show(self, *things: Any) -> None:
        """Print a part of the result for people."""
        if not self.json:
            for thing in things:
                # On a terminal sentences and tables are fitted to its width; elsewhere each is a line.
                fitted = self.out.is_terminal
                if isinstance(thing, Table):
                    fit_columns(thing, self.out)
                if isinstance(thing, Table) and thing.title and fitted:
                    self.out.print(str(thing.title), style="bold")  # which may be wider than the table
                    thing.title = None
                self.out.print(thing, soft_wrap=not fitted)

    def paragraph(self, text: str, indent: int = 0) -> None:
        """Print a sentence of the result: wrapped on a terminal, one line elsewhere."""
        if self.json:
            return
        if not self.out.is_terminal:
            self.out.print(" " * indent + text)
            return
        from rich.padding import Padding

        self.out.print(Padding(text, (0, 0, 0, indent)), soft_wrap=False)

    def result(self, content: dict[str, Any]) -> None:
        """Print the result as JSON if --json is set."""
        if self.json:
            line = json.dumps(_plain(content), ensure_ascii=False, allow_nan=False)
            sys.stdout.write(visible(line) + "\n")  # the same data: each escape is one of JSON's own

    def write(self, text: str, end: str = "\n") -> None:
        """Write text of a model or of the user: exact to a file or a pipe, escaped on a terminal."""
        if not self.json:
            self.out.file.write((visible(text) if self.out.is_terminal else text) + end)

    def status(self, what: str) -> Status:
        """Return a spinner with a line of text beside it, not started yet."""
        return self.err.status(Text(visible(what)))

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Show a spinner while work without a known end takes more than a second."""
        if self.quiet or not self.err.is_terminal:
            yield
            return
        status = self.status(what)
        timer = threading.Timer(PATIENCE, status.start)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            status.stop()

    @contextmanager
    def working(self, what: str) -> Iterator[Callable[[str, float], object] | None]:
        """Yield a callback that shows what is done now and which share is done; None with --quiet or --json."""
        if self.quiet:
            yield None
            return
        line = ProgressLine(what)
        try:
            yield line
        finally:
            line.close()

    @contextmanager
    def counting(self, what: str, total: int | None = None) -> Iterator[Callable[[int], object] | None]:
        """Yield a callback that advances a progress bar by a number of characters; None without a terminal."""
        if self.quiet or not self.err.is_terminal:
            yield None
            return
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        begun, done = time.monotonic(), 0
        shown = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
        with Progress(*shown, console=self.err, transient=True, disable=False, auto_refresh=False) as bar:
            task = bar.add_task(visible(what), total=total, visible=False)

            def progress(characters: int) -> None:
                nonlocal done
                done += characters
                late = time.monotonic() - begun > PATIENCE
                bar.update(task, completed=done, visible=late, refresh=late)

            yield progress

    @contextmanager
    def reading(self, corpus: Corpus, what: str, total: int | None = None) -> Iterator[Corpus]:
        """Yield the corpus with a progress bar while it is read."""
        with self.counting(what, total) as progress:
            yield dataclasses.replace(corpus, progress=progress)


def table(title: str, *columns: str) -> Table:
    """Return a table with a left-aligned first column and right-aligned numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for k, column in enumerate(columns):
        made.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    return made


SHORTEST = 16
"""Characters of a first column that is shortened, at least."""


def fit_columns(shown: Table, console: Console) -> None:
    """Fit a table to the width of the screen, or to 80 columns: shorten names, then leave out the last columns."""
    title, shown.title = shown.title, None
    unbounded, most = console.options.update(width=10_000), console.width if console.is_terminal else COLUMNS

    def width() -> int:
        return console.measure(shown, options=unbounded).maximum

    # The last column of a table of facts holds sentences, which are wrapped.
    if shown.show_header and len(shown.columns) > 1 and width() > most:
        shown.padding = (0, 1)
        shown.pad_edge = False
        names = shown.columns[0]
        longest = max((len(str(cell)) for cell in (names.header, *names.cells)), default=0)
        room = max(SHORTEST, longest - max(0, width() - most))
        names._cells = [_shortened(cell, room) if isinstance(cell, str) else cell for cell in names.cells]
        left_out = 0
        while width() > most and len(shown.columns) > 2:
            shown.columns.pop()
            left_out += 1
        if left_out:
            shown.caption = f"{left_out} more columns: --json"
            shown.caption_justify = "left"
    shown.title = title


COLUMNS = 80
"""Width of tables where the output is no terminal."""


def _shortened(cell: str, most: int) -> str:
    """Return a name without its middle if it is too long: the ends of paths and options tell them apart."""
    if len(cell) <= most:
        return cell
    head = (most - 1) // 3
    return f"{cell[:head]}…{cell[len(cell) - (most - 1 - head) :]}"


def printable(token: str) -> str:
    """Return a token with white space and control characters as Python escapes."""
    return token if token.isprintable() and token.strip() else repr(token)


def facts(title: str, pairs: dict[str, str]) -> Table:
    """Return a table of names and values, one row each."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        made.add_row(name, value)
    return made


def _plain(value: Any) -> Any:
    """Convert to JSON types: NumPy numbers to Python's, infinities and NaN to null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

"""Data in memory on its way into a run: with its parts held out by whoever gives it, and the columns that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recur.data.frames import NAMES, is_data, write_data
from recur.errors import OptionError
from recur.i18n import Message
from recur.runs import data_folder
from recur.tasks import make_options, options_class
from recur.training import Event

Callback = Callable[[Event], object]


class Data(NamedTuple):
    """What to learn from, and measure on."""

    parts: dict[str, Any]
    """By the option that names files in their place: texts, valid, test."""
    options: dict[str, Any]
    """All other options; a column's name among them, until the task is known."""

    @staticmethod
    def of(given: Any, options: Mapping[str, Any]) -> Data:
        parts = {"texts": given} | {name: options[name] for name in ("valid", "test") if is_data(options.get(name))}
        return Data(parts, {name: value for name, value in options.items() if name not in parts})

    def task(self) -> str:
        """The task that columns stand for, where their names say it."""
        kinds = {"text": "classify", "label": "classify", "source": "seq2seq", "words": "tag", "tags": "tag"}
        found = {kinds[name] for name in self.options if name in kinds}
        if len(found) != 1:
            raise OptionError("say what to learn from this data: task='classify', 'tag', 'seq2seq', 'forecast' …")
        return found.pop()

    def written(self, task: str, run: Path, callback: Callback | None = None) -> dict[str, Any]:
        """Its options, with files inside of a run's folder that hold the data."""
        fields = self.plain(task)
        make_options(task, fields)  # what is wrong with an option is said before anything is written
        columns = {name: str(value) for name, value in self.options.items() if name not in fields}
        with data_folder(run) as folder:
            for part, given in self.parts.items():
                kind: str = getattr(options_class(task), "reads")  # noqa: B009  of those that learn from files
                path, notes = write_data(kind, given, folder, "train" if part == "texts" else part, columns)
                fields[part] = [str(path)]
                for text in notes:
                    if callback is not None:
                        callback(Event("note", {"text": text}))
        return fields

    def plain(self, task: str) -> dict[str, Any]:
        """Its options without the names of columns."""
        cls = options_class(task)
        if "texts" not in cls.names():
            raise OptionError(Message("the task {task} makes its own data; leave {text} out", task=task, text="yours"))
        columns = [name for name in NAMES.get(getattr(cls, "reads", ""), ("text",)) if name not in cls.names()]
        return {name: value for name, value in self.options.items() if name not in columns}

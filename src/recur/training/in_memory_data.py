"""In-memory data for training: frames, arrays and lists that `fit` and `sweep` write into the folder of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recur.data.frames import EXTRA_COLUMNS, column_roles, has_label_lists, is_in_memory, write_data
from recur.errors import OptionError
from recur.i18n import Message
from recur.runs import data_folder
from recur.tasks import make_options, options_class
from recur.tasks.common.options import DataOptions
from recur.training.events import Callback, Event


class InMemoryData(NamedTuple):
    """Training data in memory, with its validation and test sets."""

    parts: dict[str, Any]
    """Data by the option that would name files: texts, valid, test."""
    options: dict[str, Any]
    """All other options; names of columns among them, until the task is known."""

    @staticmethod
    def of(given: Any, options: Mapping[str, Any]) -> InMemoryData:
        parts = {"texts": given} | {
            name: options[name] for name in ("valid", "test") if is_in_memory(options.get(name))
        }
        return InMemoryData(parts, {name: value for name, value in options.items() if name not in parts})

    def task(self) -> str:
        """Return the task that the names of columns imply."""
        kinds = {"text": "classify", "label": "classify", "source": "seq2seq", "words": "tag", "tags": "tag"}
        found = {kinds[name] for name in self.options if name in kinds}
        if len(found) != 1:
            raise OptionError("name the task of this data: task='classify', 'tag', 'seq2seq', 'forecast' …")
        return found.pop()

    def write(self, task: str, run: Path, callback: Callback | None = None) -> dict[str, Any]:
        """Write the data to files inside of a run's folder; return the options, with the names of these files."""
        fields, cls = self.task_options(task), self._options_class(task)
        make_options(task, fields)  # an invalid option is reported before anything is written
        columns = {name: str(value) for name, value in self.options.items() if name in column_roles(cls.reads)}
        columns = {name: value for name, value in columns.items() if name not in fields}
        fields |= {role: role for role in EXTRA_COLUMNS.get(cls.reads, ()) if role in columns}
        if cls.reads == "labelled" and "multi_label" in cls.names() and has_label_lists(self.parts["texts"], columns):
            fields.setdefault("multi_label", True)
        with data_folder(run) as folder:
            for part, given in self.parts.items():
                path, notes = write_data(cls.reads, given, folder, "train" if part == "texts" else part, columns)
                fields[part] = [str(path)]
                for text in notes:
                    if callback is not None:
                        callback(Event("note", {"text": text}))
        return fields

    def task_options(self, task: str) -> dict[str, Any]:
        """Return the options without the names of columns."""
        columns = column_roles(self._options_class(task).reads)
        return {name: value for name, value in self.options.items() if name not in columns}

    @staticmethod
    def _options_class(task: str) -> type[DataOptions]:
        cls = options_class(task)
        if not issubclass(cls, DataOptions):
            raise OptionError(Message("the task {task} generates its data; leave {text} out", task=task, text="yours"))
        return cls

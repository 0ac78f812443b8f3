"""A job of the queue: a training that was asked for, checked whoever asks, and what `recur` is given for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from recur.errors import OptionError
from recur.studio.schema import checked_options
from recur.studio.texts import Texts
from recur.tasks import arguments_of, options_class
from recur.typedefs import JsonObject

State = Literal["waiting", "held", "running", "stopping", "stopped", "done", "failed"]
AT_WORK: tuple[State, ...] = ("running", "stopping")


@dataclass(frozen=True)
class Job:
    name: str
    """Of the run."""
    task: str = ""
    text: str = ""
    options: JsonObject = field(default_factory=dict)
    resumes: bool = False
    """Whether the run is there, and is gone on with; `options` are how much more, then."""
    keep: bool = False
    """Whether it goes on without the studio."""
    state: State = "waiting"
    """held: was waiting when the studio ended, or was stopped before its first step."""
    process: int = 0
    error: str = ""

    def arguments(self, texts: Texts) -> list[str]:
        """Of recur. Checked here, whoever the job comes from."""
        if self.resumes:
            more = {name: value for name, value in self.options.items() if name in ("minutes", "steps", "epochs")}
            if more != self.options or not all(type(value) in (int, float) for value in more.values()):
                raise OptionError("a run goes on for minutes, steps or epochs")
            return ["resume", self.name, *(word for name, n in more.items() for word in (f"--{name}", repr(n)))]
        fields = checked_options(self.task, self.options)
        if "texts" in options_class(self.task).names():
            fields["texts"] = texts.file(self.text)
        elif self.text:
            raise OptionError(f"the task {self.task} makes its own data; leave {self.text} out")
        return ["train", *arguments_of(self.task, fields), "--out", self.name]

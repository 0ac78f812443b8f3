"""A trained model for use: what every task's model can do, in the same words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np
import torch
from torch import nn

from recur.errors import OptionError, RecurError, TextError, shown
from recur.layers import Recurrent
from recur.run import Run, pick_device
from recur.tasks.runs import task_of_run, with_own_texts
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from recur.tasks.contract import Task

ModelT = TypeVar("ModelT", bound=nn.Module)


class Inputs:
    """What is to be predicted, each checked when its turn comes: a line, or an image's file or pixels."""

    def __init__(self, given: Iterable[Any], files: bool) -> None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise TextError(f"inputs come as a list of them, got {type(given).__name__} {shown(given)}")
        self.given, self.kinds = given, (str, Path, np.ndarray) if files else (str,)
        self.name = str(getattr(given, "name", "the table"))
        """Of the file that they come from, for messages."""

    def __iter__(self) -> Iterator[Any]:
        for one in self.given:
            if not isinstance(one, self.kinds):
                raise TextError(f"an input is a {self.kinds[0].__name__}, got {type(one).__name__} {shown(one)}")
            yield one


def source_name(lines: object) -> str:
    """Of the file that lines come from, where they say so."""
    return str(getattr(lines, "name", "the table"))


def file_names(texts: object) -> list[str]:
    """Of files: arrays and other data are no names."""
    given = [texts] if isinstance(texts, str | Path) else texts
    if not isinstance(given, Sequence) or not all(isinstance(name, str | Path) for name in given):
        kind = type(texts).__name__ if not isinstance(given, Sequence) else "a list of other things"
        raise OptionError(f"texts must name files or folders, got {kind}; arrays go into an .npz: numpy.savez")
    return [str(name) for name in given]


class Predictor(ABC, Generic[ModelT]):
    """A trained model for use, or several runs' as one: what `recur.fit` and `recur.load` return."""

    ensembles: ClassVar[bool] = False
    """Whether several runs can serve as one."""
    takes_lines: ClassVar[bool] = True
    """Whether each line is an input of its own; else they are one table."""
    takes_files: ClassVar[bool] = False
    """Whether an input is a file, such as an image, and no line."""

    def __init__(self, task: Task[Any, Any, ModelT, Any], runs: Sequence[Run], device: str = "auto") -> None:
        self.task, self.runs, self.run = task, tuple(runs), runs[0]
        self.device = pick_device(device)
        self.changed_text = False
        """Whether a text of the run may have been changed since it learned from it."""
        if len(runs) > 1 and not self.ensembles:
            raise OptionError(f"runs of the task {task.name} do not serve as one model; name one run")
        for other in runs[1:]:
            if other.task != self.run.task or other.vocabs != self.run.vocabs:
                raise OptionError(
                    f"{other.path} and {self.run.path} differ in task or vocabulary: they are not one model"
                )
        self.models = [self._load(run) for run in runs]

    def _load(self, run: Run) -> ModelT:
        task_of_run(run).check_size(run.vocabs)
        with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
            model = cast(ModelT, task_of_run(run).new_model(run.vocabs))
        run.load_weights(model)
        return model.to(self.device).eval()

    @property
    def model(self) -> ModelT:
        """The network; the first, of several."""
        return self.models[0]

    @property
    def name(self) -> str:
        return " + ".join(str(run.path) for run in self.runs)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(str(run.path)) for run in self.runs)})"

    def evaluate(self, texts: Sequence[str] | None = None, **options: Any) -> JsonObject:
        """Its figures on files, or on the run's own test part, which is refused where it was changed since."""
        texts = None if texts is None else file_names(texts)
        if not texts:
            self.find_texts("test" if getattr(self.task.options, "test", ()) else "texts")
        return self._evaluate(texts, **options)

    @abstractmethod
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject: ...

    def find_texts(self, *parts: str) -> None:
        """Have the options name texts of the run where they are now; they must be as they were when it learned."""
        self.task.options = with_own_texts(self.run, self.task.options, parts, self.changed_text)

    def has_training_texts(self) -> bool:
        """Whether what it learned from is here, for something plainer to learn from too."""
        try:
            self.find_texts("texts", "valid")
        except RecurError:
            return False
        return True

    def predict(self, lines: Iterable[Any], **options: Any) -> Iterator[JsonObject]:
        """What it makes of each line: objects with at least `input` and `output`."""
        return self._predict(Inputs(lines, self.takes_files), **options)

    def _predict(self, lines: Iterable[Any], **options: Any) -> Iterator[JsonObject]:
        raise OptionError(f"{self.run.path} is a run of the task {self.task.name}, which predicts no lines")

    def use_products(self, products: str) -> None:
        """Have its recurrent layers read weights as `bfloat16` or `int8` from now on; as they are, if nothing."""
        layers = [layer for model in self.models for layer in model.modules() if isinstance(layer, Recurrent)]
        if not layers:
            raise OptionError(f"{self.name} has no recurrent layers whose weights could be read in fewer bits")
        for layer in layers:
            layer.products = products

    def refuse(self, options: JsonObject) -> None:
        """For options that this task's models have no use for."""
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for the task {self.task.name}")

"""A trained model for use: what every task's model can do, in the same words.

    model(x)                 the plain answer: a class, tags, a text, a number
    model.predict(x)         the answer with what is known of it: probabilities, quantiles, scores
    model.predictions(xs)    the same one by one as inputs come, in constant memory
    model.probabilities(x)   of every class
    model.evaluate()         its figures on the test part, beside plain models
    model.xray()             what its network does, and what is wrong

One input gives one answer and a list of them a list. What one input is, is the task's: a text, an image, a table. A
task's own predictor writes `_evaluate` and `_predict`, and says with `_answer` what the plain answer is.
"""

from __future__ import annotations

import importlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import torch
from torch import nn

from recur.errors import OptionError, RecurError
from recur.frames import NAMES, is_data, write_data
from recur.layers import Recurrent
from recur.run import Precision, Run, check_precision, computing_in, pick_device
from recur.tasks.inputs import Inputs, inputs_of, table_of
from recur.tasks.metrics import best_of, show, words
from recur.tasks.predictions import Prediction, Predictions, html_table
from recur.tasks.runs import task_of_run, with_own_texts
from recur.text import SPECIALS
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from recur.tasks.contract import Task

ModelT = TypeVar("ModelT", bound=nn.Module)

FEW = 5
"""Classes that are named; more are counted."""


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
    takes_arrays: ClassVar[bool] = False
    """Whether an input can be an array of numbers too."""
    takes_words: ClassVar[bool] = False
    """Whether an input can be a list of words too."""

    def __init__(self, task: Task[Any, Any, ModelT, Any], runs: Sequence[Run], device: str = "auto") -> None:
        self.task, self.runs, self.run = task, tuple(runs), runs[0]
        self.device = pick_device(device)
        self.precision: Precision = "tf32" if self.device.type == "cuda" else "float32"
        """What products read while it is measured."""
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

    # What it is -------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelT:
        """The network; the first, of several."""
        return self.models[0]

    @property
    def name(self) -> str:
        return " + ".join(str(run.path) for run in self.runs)

    def facts(self) -> dict[str, str]:
        """What there is to know of it, in words."""
        found = {"task": self.task.name, "network": self.task.architecture, "weights": f"{self._weights():,}"}
        if len(self.models) > 1:
            found["networks"] = str(len(self.models))
        return found | dict(self.sizes()) | self._validation() | {"run": self.name}

    def __repr__(self) -> str:
        several = [f"{len(self.models)} networks"] if len(self.models) > 1 else []
        sizes = [
            f"{known} {kind}" if known[0].isdigit() and " " not in known else f"{kind} {known}"
            for kind, known in self.sizes()
        ]
        measured = [f"{name} {value}" for name, value in self._validation().items()]
        said = [self.task.architecture, *several, f"{self._weights():,} weights", *sizes, *measured, repr(self.name)]
        return f"{type(self).__name__}({'; '.join(said)})"

    def _weights(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def sizes(self) -> list[tuple[str, str]]:
        """What is in its vocabularies, or how many there are."""
        found = []
        for name, vocab in self.run.vocabs.items():
            kind = {"labels": "classes", "vocab": "tokens"}.get(name, name)
            known = [token for token in vocab.tokens if token not in SPECIALS]
            if known:
                few = len(known) <= FEW and kind != "tokens"
                found.append((kind, ", ".join(known) if few else f"{len(known):,}"))
        return found

    def _validation(self) -> dict[str, str]:
        """The best that was measured on the validation part while it trained."""
        curve = self.task.curve
        measured = [float(entry[curve]) for entry in self.run.metrics() if isinstance(entry.get(curve), int | float)]
        return {words(curve): show(curve, best_of(curve, measured))} if measured else {}

    def _repr_html_(self) -> str:
        return html_table(list(self.facts().items()))

    # What it makes of inputs ------------------------------------------------------------------------------

    def __call__(self, given: Any, **options: Any) -> Any:
        """The plain answer to an input, or a list of those to several."""
        if options.get("anomalies") and not self.takes_lines:
            raise OptionError("how surprising values are is no plain answer: ask with predict(table, anomalies=True)")
        found = self.predict(given, **options)
        if isinstance(found, Prediction):
            return self._answer(found)
        if self.takes_lines:
            return [self._answer(one) for one in found]
        return self._table_answer(found) if isinstance(found, Predictions) else [*map(self._table_answer, found)]

    def _answer(self, found: Prediction) -> Any:
        """The plain answer of a prediction."""
        return found["output"]

    def _table_answer(self, found: Predictions) -> Any:
        """The plain answer of what was made of a table."""
        return [self._answer(row) for row in found]

    def predict(self, given: Any, **options: Any) -> Any:
        """What it makes of one input (a `Prediction`), or of several (`Predictions`): objects with at least `input` and
        `output`. Of a table, be it a frame or a file, it makes `Predictions`: one for each of its rows or steps."""
        if not self.takes_lines:
            return self._predict_tables(given, **options)
        one, several = inputs_of(given, self.takes_files)
        found = Predictions(self.predictions(several, **options))
        return found[0] if one and len(found) == 1 else found

    def _predict_tables(self, given: Any, **options: Any) -> Any:
        tables, kind = table_of(given)
        found = [Predictions(self.predictions(table, **options)) for table in tables]
        return found if kind == "several" else found[0][0] if kind == "row" and len(found[0]) == 1 else found[0]

    def predictions(self, inputs: Iterable[Any], **options: Any) -> Iterator[Prediction]:
        """What it makes of inputs, one by one as they come: of lines, or of files; of a table's lines, where a table is
        what its task reads."""
        return map(
            Prediction, self._predict(Inputs(inputs, self.takes_files, self.takes_arrays, self.takes_words), **options)
        )

    def read_inputs(self, name: str) -> Iterable[Any] | None:
        """The inputs in a file; None where each of its lines is one."""
        return None

    def write(self, found: JsonObject, made: JsonObject, score: float | None = None) -> str:
        """A prediction as a line, or the one `made` of several with its score."""
        return f"{found['input']}\t{made['output']}" + ("" if score is None else f"\t{score:.4f}")

    def probabilities(self, given: Any) -> Any:
        """Of every class, for one input; or a list of those for several."""
        found = self.predict(given)
        some = [found] if isinstance(found, Prediction) else found
        if any("probabilities" not in one for one in some):
            has = ", ".join(sorted(set(some[0]) - {"input", "output"})) or "nothing"
            raise OptionError(
                f"a model of the task {self.task.name} gives no probabilities; predict gives {has} instead"
            )
        chances = [one["probabilities"] for one in some]
        return chances[0] if isinstance(found, Prediction) else chances

    def _predict(self, lines: Iterable[Any], **options: Any) -> Iterator[JsonObject]:
        raise OptionError(f"{self.run.path} is a run of the task {self.task.name}, which predicts no lines")

    # How good it is, and why ------------------------------------------------------------------------------

    def evaluate(self, texts: Any = None, **options: Any) -> JsonObject:
        """Its figures on files, on data in memory as `recur.fit` takes it, or on the run's own test part, which is
        refused where it was changed since."""
        with computing_in(self.precision, self.device):
            if is_data(texts):
                return self._evaluate_data(texts, **options)
            texts = None if texts is None else file_names(texts)
            if not texts:
                self.find_texts("test" if getattr(self.task.options, "test", ()) else "texts")
            return self._evaluate(texts, **options)

    def _evaluate_data(self, given: Any, **options: Any) -> JsonObject:
        kind = getattr(self.task.options, "reads", "")
        if not kind:
            raise OptionError(f"the task {self.task.name} makes its own data; leave yours out")
        columns = {name: str(options.pop(name)) for name in NAMES.get(kind, ("text",)) if name in options}
        with tempfile.TemporaryDirectory(prefix="recur-") as folder:
            return self._evaluate([str(write_data(kind, given, Path(folder), "given", columns)[0])], **options)

    @abstractmethod
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject: ...

    def xray(self, text: Any = None, **options: Any) -> Any:
        """What its network does while it reads, and what is wrong with it: `recur.xray(model)`."""
        return importlib.import_module("recur.probes").xray(self, text, **options)  # which looks at predictors

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

    def use_precision(self, precision: Precision | None) -> None:
        """Measure in another precision than float32, or tf32 on a GPU."""
        if precision is not None:
            check_precision(precision, self.device)
            self.precision = precision

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

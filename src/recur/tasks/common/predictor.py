"""Trained model in use; every task's predictor has the same methods.

    model(x)                 the answer: a class, tags, a text, a number
    model.predict(x)         the answer with probabilities, quantiles or scores
    model.predictions(xs)    predictions one by one as inputs arrive, in constant memory
    model.probabilities(x)   the probability of every class
    model.evaluate()         metrics on the test set, compared with baselines
    model.xray()             diagnostics of the network

One input gives one answer, and a list of inputs a list. The task decides what one input is: a text, an image, a table.
The predictor of a task implements `_evaluate` and `_predict`; `_answer` returns the answer of a prediction.
"""

from __future__ import annotations

import importlib
import itertools
import math
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np
import torch
from torch import nn

from recur.data.frames import DEFAULT_COLUMNS, columns_of, csv_lines, is_frame, is_in_memory, is_series, write_data
from recur.data.reading import Reading
from recur.data.text import SPECIALS
from recur.data.text.labelled import read_lines
from recur.errors import OptionError, RecurError, TextError, shown
from recur.i18n import Message
from recur.nn import Recurrent
from recur.runs import Precision, Run, autocast_in, check_precision, pick_device
from recur.tasks.common.metrics import best_value, format_metric, metric_label
from recur.tasks.common.options import DataOptions, SplitOptions
from recur.tasks.common.runs import task_of_run, with_run_texts
from recur.tasks.common.splits import Item, Reader, evaluation_set, reading_of
from recur.utils.types import JsonObject, Metrics

if TYPE_CHECKING:
    from recur.tasks.common.contract import Task


class PredictionInputs:
    """Inputs of a model, each checked when it is read: a line, words, or an image's file or pixels."""

    def __init__(self, given: Iterable[Any], files: bool, arrays: bool = False, words: bool = False) -> None:
        if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
            raise TextError(f"inputs come as a list of them, got {type(given).__name__} {shown(given)}")
        self.given = given
        self.kinds: tuple[type, ...] = (str, Path, np.ndarray) if files else (str, np.ndarray) if arrays else (str,)
        self.kinds += (list, tuple) if words else ()
        self.name = str(getattr(given, "name", None) or "the table")
        """Of the file that they come from, for messages."""

    def __iter__(self) -> Iterator[Any]:
        for one in self.given:
            if not isinstance(one, self.kinds):
                raise TextError(f"an input is a {self.kinds[0].__name__}, got {type(one).__name__} {shown(one)}")
            yield one


def source_name(lines: object) -> str:
    """Return the name of the file that lines come from, or `the table`."""
    return str(getattr(lines, "name", "the table"))


def read_inputs(given: Any, files: bool) -> tuple[bool, Iterable[Any]]:
    """Return whether this is one input, and the inputs. A text, a file or an image is one; a list is several."""
    if is_frame(given):
        names = [str(name) for name in given.columns]
        if len(names) != 1:
            raise TextError(f"which column is the input? Give frame[name]; the frame has {', '.join(names)}")
        return False, [str(value) for value in next(iter(columns_of(given).values()))]
    if isinstance(given, np.ndarray) and given.dtype.kind in "OUT":
        return False, given.tolist()
    if isinstance(given, Path) and not files:
        raise TextError(f"an input is a str, got the path {given}; read it: Path.read_text")
    if isinstance(given, str | Path | np.ndarray):
        return not (files and _holds_several(given)), [given]
    return False, given


def _holds_several(given: str | Path | np.ndarray[Any, Any]) -> bool:
    """Return True for a folder or an archive of images."""
    return isinstance(given, str | Path) and (Path(given).suffix == ".npz" or Path(given).is_dir())


class NamedLines:
    """Lines with the name of their source, which messages print."""

    def __init__(self, lines: Iterable[str], name: str) -> None:
        self.lines, self.name = lines, name

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)


TableKind = Literal["table", "row", "several"]


def read_tables(given: Any) -> tuple[list[NamedLines], TableKind]:
    """Return tables as lines of CSV, and their kind.

    A table is a file name, a frame, an array, columns by name or a list of rows.
    """
    if isinstance(given, str | Path):
        return [NamedLines(read_lines(str(given)), str(given))], "table"
    if _is_row(given):
        return [_lines({name: [value] for name, value in given.items()})], "row"
    if is_frame(given) or is_series(given) or isinstance(given, Mapping | np.ndarray):
        return [_lines(given)], "table"
    if isinstance(given, Sequence) and not isinstance(given, bytes) and given:
        if all(_is_row(row) for row in given):
            names = list(dict.fromkeys(itertools.chain.from_iterable(given)))
            return [_lines({name: [row.get(name) for row in given] for name in names})], "table"
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
            return [_lines(given)], "table"
        return [read_tables(one)[0][0] for one in given], "several"
    raise TextError(
        f"a table is a file, a frame, an array or columns by name, got {type(given).__name__} {shown(given)}"
    )


def _is_row(given: Any) -> bool:
    """Return True if this is one value for each column."""
    return isinstance(given, Mapping) and bool(given) and all(v is None or np.isscalar(v) for v in given.values())


def _lines(given: Any) -> NamedLines:
    return NamedLines(list(csv_lines(columns_of(given))), "the table")


SHOWN = 20
"""Number of predictions that are shown."""
LIKELIEST = 3
"""Number of classes whose probability is shown."""
WIDTH = 60
"""Number of characters of a text that are shown."""


class Prediction(dict[str, Any]):
    """Prediction for one input: at least `input` and `output`; `probabilities`, `quantiles` and more by task.

    It is a dict that JSON can store.
    """

    def __repr__(self) -> str:
        cells = cells_of(self)
        more = "   ".join(text if name in ("likeliest", "score") else f"{name} {text}" for name, text in _rest(cells))
        return f"{cells['input']} → {cells['output']}" + (f"   {more}" if more else "")

    def _repr_html_(self) -> str:
        if "words" in self and "tags" in self:
            return html_table([self["words"], self["tags"]])
        return html_table([*([name, text] for name, text in cells_of(self, html=True).items())])


class Predictions(list[Prediction]):
    """Predictions for several inputs, in their order."""

    def __repr__(self) -> str:
        rows = [repr(found) for found in self[:SHOWN]]
        left = len(self) - SHOWN
        return "\n".join([*rows, *([f"… and {left:,} more"] if left > 0 else [])]) or "no predictions"

    def _repr_html_(self) -> str:
        cells = [cells_of(found, html=True) for found in self[:SHOWN]]
        names = list(dict.fromkeys(name for row in cells for name in row))
        left = len(self) - SHOWN
        rows = [[row.get(name, "") for name in names] for row in cells]
        return html_table(rows, names) + (f"<p>… and {left:,} more</p>" if left > 0 else "")


def _rest(cells: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((name, text) for name, text in cells.items() if name not in ("input", "output"))


def cells_of(found: Mapping[str, Any], html: bool = False) -> dict[str, str]:
    """Return the fields of a prediction as short texts."""
    cells = {name: _clipped(found.get(name, "")) for name in ("input", "output")}
    if "error" in found:
        cells["output"] = _clipped(found["error"])
    chances = found.get("probabilities")
    if isinstance(chances, Mapping) and chances:
        best = sorted(chances.items(), key=lambda item: -item[1])[:LIKELIEST]
        cells["likeliest"] = ", ".join(f"{_clipped(name)} {100 * p:.1f} %" for name, p in best)
    quantiles = found.get("quantiles")
    if isinstance(quantiles, Mapping) and len(quantiles) > 1:
        if html:
            cells |= {f"{100 * float(q):g} %": f"{x:,.4g}" for q, x in quantiles.items()}
        else:
            low, high = (list(quantiles.items())[k] for k in (0, -1))
            cells[f"{100 * float(low[0]):g} … {100 * float(high[0]):g} %"] = f"{low[1]:,.4g} … {high[1]:,.4g}"
    if isinstance(found.get("score"), float):
        cells["score"] = f"log P {found['score']:.2f}"
    if found.get("cut"):
        cells["cut"] = "did not end by itself"
    if found.get("unknown"):
        cells["unknown"] = _clipped(", ".join(map(str, found["unknown"])))
    return cells


def _clipped(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def html_table(rows: Sequence[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Return an HTML table of escaped texts."""

    def row(cells: Iterable[object], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(str(cell))}</{kind}>" for cell in cells) + "</tr>"

    head = f"<thead>{row(header, 'th')}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(row(cells, 'td') for cells in rows)}</tbody></table>"


ModelT = TypeVar("ModelT", bound=nn.Module)

FEW = 5
"""Number of classes that are named; more are counted."""


def file_names(texts: object) -> list[str]:
    """Return the names of files; raise an error for arrays and other data."""
    given = [texts] if isinstance(texts, str | Path) else texts
    if not isinstance(given, Sequence) or not all(isinstance(name, str | Path) for name in given):
        kind = type(texts).__name__ if not isinstance(given, Sequence) else "a list of other things"
        raise OptionError(f"texts must name files or folders, got {kind}; arrays go into an .npz: numpy.savez")
    return [str(name) for name in given]


class Predictor(ABC, Generic[ModelT]):
    """Trained model, or an ensemble of several runs: the result of `recur.fit` and `recur.load`."""

    ensembles: ClassVar[bool] = False
    """Whether several runs can form an ensemble."""
    takes_lines: ClassVar[bool] = True
    """Whether each line is an input; else all lines are one table."""
    takes_files: ClassVar[bool] = False
    """Whether an input is a file, such as an image."""
    takes_arrays: ClassVar[bool] = False
    """Whether an input can be an array of numbers."""
    takes_words: ClassVar[bool] = False
    """Whether an input can be a list of words."""

    def __init__(self, task: Task[Any, Any, ModelT, Any], runs: Sequence[Run], device: str = "auto") -> None:
        self.task, self.runs, self.run = task, tuple(runs), runs[0]
        self.device = pick_device(device)
        self.precision: Precision = "tf32" if self.device.type == "cuda" else "float32"
        """What products read while it is measured."""
        self.changed_text = False
        self.reading = Reading()
        """Report of the latest files that were read."""
        self._reading_settings: dict[str, Any] = {}
        self.allow_path: Sequence[str | Path] = ()
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
        run.load_weights(model.float())  # weights of a run are float32, whatever the default dtype is
        return model.to(self.device).eval()

    # What it is -------------------------------------------------------------------------------------------

    @property
    def model(self) -> ModelT:
        """The network; the first one of an ensemble."""
        return self.models[0]

    @property
    def name(self) -> str:
        return " + ".join(str(run.path) for run in self.runs)

    def facts(self) -> dict[str, str]:
        """Return a description of the model as labelled texts."""
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
        """Return the content of its vocabularies, or their sizes."""
        found = []
        for name, vocab in self.run.vocabs.items():
            kind = {"labels": "classes", "vocab": "tokens"}.get(name, name)
            known = [token for token in vocab.tokens if token not in SPECIALS]
            if known:
                few = len(known) <= FEW and kind != "tokens"
                found.append((kind, ", ".join(known) if few else f"{len(known):,}"))
        return found

    def _validation(self) -> dict[str, str]:
        """Return the best value of the task's metric on the validation set."""
        curve = self.task.curve
        measured = [float(entry[curve]) for entry in self.run.metrics() if isinstance(entry.get(curve), int | float)]
        return {metric_label(curve): format_metric(curve, best_value(curve, measured))} if measured else {}

    def _repr_html_(self) -> str:
        return html_table(list(self.facts().items()))

    # What it makes of inputs ------------------------------------------------------------------------------

    def __call__(self, given: Any, **options: Any) -> Any:
        """Return the answer for one input, or a list of answers for several."""
        if options.get("anomalies") and not self.takes_lines:
            raise OptionError("how surprising values are is no plain answer: ask with predict(table, anomalies=True)")
        found = self.predict(given, **options)
        if isinstance(found, Prediction):
            return self._answer(found)
        if self.takes_lines:
            return [None if "error" in one else self._answer(one) for one in found]
        return self._table_answer(found) if isinstance(found, Predictions) else [*map(self._table_answer, found)]

    def _answer(self, found: Prediction) -> Any:
        """Return the answer of a prediction."""
        return found["output"]

    def _table_answer(self, found: Predictions) -> Any:
        """Return the answer for a table."""
        return [self._answer(row) for row in found]

    def predict(self, given: Any, **options: Any) -> Any:
        """Predict one input (returns a `Prediction`) or several (returns `Predictions`).

        For a table, a frame or a file, the result is `Predictions` with one entry per row or step.
        """
        if not self.takes_lines:
            return self._predict_tables(given, **options)
        one, several = read_inputs(given, self.takes_files)
        found = Predictions(self.predictions(several, **options))
        return found[0] if one and len(found) == 1 else found

    def _predict_tables(self, given: Any, **options: Any) -> Any:
        tables, kind = read_tables(given)
        found = [Predictions(self.predictions(table, **options)) for table in tables]
        return found if kind == "several" else found[0][0] if kind == "row" and len(found[0]) == 1 else found[0]

    def predictions(self, inputs: Iterable[Any], **options: Any) -> Iterator[Prediction]:
        """Yield predictions one by one as inputs arrive: lines, files, or the lines of one table."""
        on_bad_rows = options.pop("on_bad_rows", None) or self._reading_settings.get("on_bad_rows", "error")
        if on_bad_rows not in ("error", "skip", "warn"):
            raise OptionError(f"on_bad_rows must be error, skip or warn, got {shown(on_bad_rows)}")
        given = PredictionInputs(inputs, self.takes_files, self.takes_arrays, self.takes_words)
        if on_bad_rows == "error" or not self.takes_lines:
            return map(Prediction, self._predict(given, **options))
        return self._tolerant_predictions(given, on_bad_rows == "warn", **options)

    def _tolerant_predictions(
        self, given: PredictionInputs, placeholders: bool, **options: Any
    ) -> Iterator[Prediction]:
        """Yield predictions; an input that cannot be read is counted in `reading`, and does not stop the others.

        With `placeholders` it has a prediction without an output, so that predictions and inputs correspond.
        """
        bad: deque[tuple[int, Prediction]] = deque()
        passed = 0

        def reject(number: int, one: object, why: str) -> None:
            self.reading.count(f"input {number}: {why}")
            bad.append((passed, Prediction({"input": one, "output": None, "error": why})))

        def readable() -> Iterator[Any]:
            nonlocal passed
            for number, one in enumerate(given, start=1):
                if why := self.input_error(one):
                    reject(number, one, why)
                else:
                    passed += 1
                    yield one

        def waiting(before: float) -> Iterator[Prediction]:
            while bad and bad[0][0] <= before:
                found = bad.popleft()[1]
                if placeholders:
                    yield found

        if self.takes_files:
            for number, one in enumerate(given, start=1):
                try:
                    yield from map(Prediction, self._predict([one], **options))
                except TextError as error:
                    reject(number, one, str(error))
                    yield from waiting(math.inf)
            return
        inputs = NamedLines(readable(), given.name)
        for good, found in enumerate(self._predict(inputs, **options)):
            yield from waiting(good)
            yield Prediction(found)
        yield from waiting(math.inf)

    def input_error(self, given: object) -> str:
        """Return why an input cannot be predicted; empty if it can."""
        return "the input is empty" if isinstance(given, str | list | tuple) and not "".join(given).strip() else ""

    def read_inputs(self, name: str) -> Iterable[Any] | None:
        """Read the inputs in a file; None if each line is an input. `TableInputs` may have labels."""
        return None

    def label_scores(self, labels: Sequence[str], outputs: Sequence[Any]) -> Metrics:
        """Return metrics of outputs compared with the labels of a table."""
        return {}

    def header(self, **options: Any) -> str:
        """Return the first line of the predictions; empty for lines without a header."""
        return ""

    def write(self, found: JsonObject, made: JsonObject, score: float | None = None) -> str:
        """Format a prediction as a line, or one of several outputs with its score."""
        output = "" if made["output"] is None else made["output"]
        return f"{found['input']}\t{output}" + ("" if score is None else f"\t{score:.4f}")

    def probabilities(self, given: Any) -> Any:
        """Return the probability of every class for one input, or a list of them for several."""
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
        """Evaluate on files, on data in memory as `recur.fit` takes it, or on the test set of the run.

        A test set that was changed since training raises an error.
        """
        with autocast_in(self.precision, self.device):
            if is_in_memory(texts):
                return self._evaluate_data(texts, **options)
            texts = None if texts is None else file_names(texts)
            if not texts:
                given = self.task.options
                self.find_texts("test" if isinstance(given, SplitOptions) and given.test else "texts")
            return self._evaluate(texts, **options)

    def _evaluate_data(self, given: Any, **options: Any) -> JsonObject:
        if not isinstance(self.task.options, DataOptions):
            raise OptionError(
                Message("the task {task} generates its data; leave {text} out", task=self.task.name, text="yours")
            )
        kind = self.task.options.reads
        columns = {name: str(options.pop(name)) for name in DEFAULT_COLUMNS.get(kind, ("text",)) if name in options}
        with tempfile.TemporaryDirectory(prefix="recur-") as folder:
            return self._evaluate([str(write_data(kind, given, Path(folder), "given", columns)[0])], **options)

    @abstractmethod
    def _evaluate(self, texts: Sequence[str] | None, **options: Any) -> JsonObject: ...

    def xray(self, text: Any = None, **options: Any) -> Any:
        """Run the diagnostics of the network: `recur.xray(model)`."""
        return importlib.import_module("recur.diagnostics").xray(self, text, **options)  # which looks at predictors

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save the model in the layout of the Hugging Face Hub: no checkpoints, no training data, and a model card."""
        path: Path = importlib.import_module("recur.exchange").save_pretrained(self, folder)  # which opens predictors
        return path

    def find_texts(self, *parts: str) -> None:
        """Update the options to the current paths of the run's texts, which must be unchanged."""
        self.task.options = with_run_texts(self.run, self.task.options, parts, self.changed_text, self.allow_path)

    def has_training_texts(self) -> bool:
        """Return True if the training set is available, so that baselines can be fitted."""
        try:
            self.find_texts("texts", "valid")
        except RecurError:
            return False
        return True

    def use_precision(self, precision: Precision | None) -> None:
        """Set the precision of evaluation; the default is float32, or tf32 on a GPU."""
        if precision is not None:
            check_precision(precision, self.device)
            self.precision = precision

    def use_products(self, products: str) -> None:
        """Store the weights of the recurrent layers as `bfloat16` or `int8`; empty restores them."""
        layers = [layer for model in self.models for layer in model.modules() if isinstance(layer, Recurrent)]
        if not layers:
            raise OptionError(f"{self.name} has no recurrent layers whose weights could be read in fewer bits")
        for layer in layers:
            layer.matmul_dtype = products

    # How files are read -----------------------------------------------------------------------------------

    def read_with(self, **settings: Any) -> None:
        """Set how files are read after training: encoding, delimiter, text, label, on_bad_rows and so on."""
        self._reading_settings = {name: value for name, value in settings.items() if value is not None}

    def new_reading(self) -> Reading:
        """Return the settings of readers for one file or job, whose report is kept in `reading`."""
        options = self.task.options
        if isinstance(options, DataOptions):
            self.reading = reading_of(options, prior=True, **self._reading_settings)
        return self.reading

    def examples(self, texts: Sequence[str] | None, read: Reader[Item]) -> list[Item]:
        """Return the examples of files, or of the test set of the run."""
        reading = self.new_reading()
        if texts:
            return read(texts, reading=reading)
        self.reading = self.task.new_reading()
        return evaluation_set(self.task.options, read, self.reading)

    def refuse(self, options: JsonObject) -> None:
        """Raise an error for options that models of this task do not have."""
        for name in options:
            raise OptionError(f"--{name.replace('_', '-')} is not for the task {self.task.name}")

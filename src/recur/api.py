"""Train a model and use it, from Python: `recur.fit` and `recur.load`.

    recur.fit("names.tsv", task="classify")                                 files, as `recur train` reads them
    recur.fit(frame, task="classify", text="review", label="stars")         columns of a pandas or polars frame
    recur.fit(texts, labels, task="classify", valid=(others, labels))       lists
    recur.fit(frame, task="forecast", horizon=12)                           dates from a column or the index

What they return is the predictor of the task:

    language      Language            generate, stream, perplexity, logprob, step
    conditional   ConditionalWriter   generate(label), logprob(text, label)
    seq2seq       Transducer
    classify      TextClassifier      stream
    tag           TextTagger          stream
    tree          TreeClassifier
    forecast      SeriesForecaster
    grid          ImageClassifier
    table         RowPredictor
    adding, copy  Solver

All of them are called, and have `predict`, `predictions`, `evaluate`, `xray`, `run`, `model` (the network) and `task`;
those with classes `probabilities`. See recur/tasks/predictor.py.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from recur.data import Data
from recur.errors import OptionError, shown
from recur.frames import is_data
from recur.options import checked
from recur.tasks import make_options, open_predictor
from recur.tasks.contract import file_names
from recur.tasks.recognise import choose_task
from recur.train import Callback, train

if TYPE_CHECKING:
    from recur.tasks.classify.predictor import TextClassifier
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.contract import Predictor
    from recur.tasks.forecast.predictor import SeriesForecaster
    from recur.tasks.grid.predictor import ImageClassifier
    from recur.tasks.language.predictor import Language
    from recur.tasks.seq2seq.predictor import Transducer
    from recur.tasks.synthetic import Solver
    from recur.tasks.table.predictor import RowPredictor
    from recur.tasks.tag.predictor import TextTagger
    from recur.tasks.tree.predictor import TreeClassifier

Texts = Any
"""Names of files: str | Path | Sequence[str | Path]; or data: a frame, a series, an array, a list of pairs."""
Out = str | Path | None


@overload
def fit(texts: Texts, *, task: Literal["language"], **options: Any) -> Language: ...
@overload
def fit(texts: Texts, *, task: Literal["conditional"], **options: Any) -> ConditionalWriter: ...
@overload
def fit(texts: Texts, *, task: Literal["seq2seq"], **options: Any) -> Transducer: ...
@overload
def fit(texts: Texts, *, task: Literal["classify"], **options: Any) -> TextClassifier: ...
@overload
def fit(texts: Texts, *, task: Literal["tag"], **options: Any) -> TextTagger: ...
@overload
def fit(texts: Texts, *, task: Literal["tree"], **options: Any) -> TreeClassifier: ...
@overload
def fit(texts: Texts, *, task: Literal["forecast"], **options: Any) -> SeriesForecaster: ...
@overload
def fit(texts: Texts, *, task: Literal["grid"], **options: Any) -> ImageClassifier: ...
@overload
def fit(texts: Texts, *, task: Literal["table"], **options: Any) -> RowPredictor: ...
@overload
def fit(*, task: Literal["adding", "copy"], **options: Any) -> Solver[Any]: ...
@overload
def fit(texts: Texts | None = ..., answers: Any = ..., *, task: str | None = ..., **options: Any) -> Predictor[Any]: ...
def fit(
    texts: Texts | None = None,
    answers: Any = None,
    *,
    task: str | None = None,
    out: Out = None,
    callback: Callback | None = None,
    trust: bool = False,
    **options: Any,
) -> Predictor[Any]:
    """Train on a text or a table, as `recur train` does, and return the model for use.

    Files by name, or data in memory: a frame with columns named by `text` and `label` (pairs: `source` and `target`;
    tags: `words` and `tags`), inputs and their `answers`, or a list of such pairs; a table, a series or an array, for a
    task that reads one. `valid` and `test` are as `texts` is, inputs and answers as a tuple. What is in memory is
    written into the run, which can be resumed and moved like any other.

    Without a task, the file decides, where there is no doubt. Options are those of `recur train --task TASK --help`.
    Without `out`, the run's folder is a temporary one, which goes when the model does. To `trust` the run that this one
    begins with (`from_`) is to execute a cell that it carries, though one has not trained with it.

    >>> texts, labels = ["good", "bad"] * 30, ["pos", "neg"] * 30
    >>> model = recur.fit(texts, labels, task="classify", hidden=8, steps=20, seed=1)
    >>> model("good"), model(["bad", "good"])
    ('pos', ['neg', 'pos'])
    """
    out = None if out is None else _folder("out", out)
    given = texts if answers is None else (texts, answers)
    data = Data.of(given, options) if answers is not None or is_data(given) else None
    if data is None:
        names = [] if texts is None else file_names(texts)
        if texts is not None and not names:
            raise OptionError("texts is an empty list; name at least one file")
        if names:
            options["texts"] = names
        task = task or choose_task(names)[0]
    else:
        task = task or data.task()
    folder = Path(tempfile.mkdtemp(prefix="recur-") if out is None else out)
    run = folder / "run" if out is None else folder
    try:
        fields = options if data is None else data.written(task, run, callback)
        outcome = train(make_options(task, fields), run, callback, trust=trust)
        predictor = open_predictor([outcome.run.path], outcome.summary["device"])
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(predictor, shutil.rmtree, folder, ignore_errors=True)
    return predictor


def _folder(name: str, given: object) -> str | Path:
    """A path that a system can have."""
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise OptionError(f"{name} must be the path of a folder, got {shown(given)}")
    return Path(checked(name, given, str))


@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["language"]
) -> Language: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["conditional"]
) -> ConditionalWriter: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["seq2seq"]
) -> Transducer: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["classify"]
) -> TextClassifier: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["tag"]
) -> TextTagger: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["tree"]
) -> TreeClassifier: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["forecast"]
) -> SeriesForecaster: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["grid"]
) -> ImageClassifier: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["table"]
) -> RowPredictor: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: Literal["adding", "copy"]
) -> Solver[Any]: ...
@overload
def load(
    run: str | Path, device: str = ..., *, trust: bool = ..., changed_text: bool = ..., task: str | None = ...
) -> Predictor[Any]: ...


def load(
    run: str | Path,
    device: str = "auto",
    *,
    trust: bool = False,
    changed_text: bool = False,
    task: str | None = None,
) -> Predictor[Any]:
    """The model of a run, with its best weights, for use. With `task`, a run of another one is refused. To `trust` a
    run is to execute a cell that it carries, though one has not trained with it; with `changed_text`, a text that it
    learned from may have been changed since.

    >>> model = recur.fit("names.tsv", task="classify", hidden=8, steps=2, out="runs/names")
    >>> recur.load("runs/names").probabilities("Nabc7").keys()
    dict_keys(['Greek', 'Irish'])
    """
    predictor = open_predictor([_folder("run", run)], device, trust)
    predictor.changed_text = changed_text
    if task is not None and predictor.task.name != task:
        raise OptionError(f"{run} is a run of the task {predictor.task.name}, not {task}")
    return predictor

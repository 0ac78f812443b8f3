"""Train a model and use it, from Python: `recur.fit` and `recur.load`.

What they return is the predictor of the task:

    language      Language            generate, stream, perplexity, logprob, step
    conditional   ConditionalWriter   generate(label), logprob(text, label)
    seq2seq       Transducer          model(text), predict
    classify      TextClassifier      model(text), predict, stream
    tag           TextTagger          model(text), predict, stream
    tree          TreeClassifier      predict
    forecast      SeriesForecaster    predict
    grid          ImageClassifier     model(image), predict
    table         RowPredictor        predict
    adding, copy  Solver              evaluate

All of them have `evaluate`, `run`, `model` (the network) and `task`.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from recur.errors import OptionError, shown
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

Texts = str | Path | Sequence[str | Path]
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
def fit(texts: Texts | None = ..., *, task: str | None = ..., **options: Any) -> Predictor[Any]: ...
def fit(
    texts: Texts | None = None,
    *,
    task: str | None = None,
    out: Out = None,
    callback: Callback | None = None,
    **options: Any,
) -> Predictor[Any]:
    """Train on a text or a table, as `recur train` does, and return the model for use.

    Without a task, the file decides, where there is no doubt. Options are those of `recur train --task TASK --help`.
    Without `out`, the run's folder is a temporary one, which goes when the model does.
    """
    names = [] if texts is None else file_names(texts)
    out = None if out is None else _folder("out", out)
    if texts is not None and not names:
        raise OptionError("texts is an empty list; name at least one file")
    if task is None:
        task = choose_task(names)[0]
    if names:
        options["texts"] = names
    made = make_options(task, options)
    folder = out or tempfile.mkdtemp(prefix="recur-")
    try:
        outcome = train(made, Path(folder) / "run" if out is None else folder, callback)
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
    learned from may have been changed since."""
    predictor = open_predictor([_folder("run", run)], device, trust)
    predictor.changed_text = changed_text
    if task is not None and predictor.task.name != task:
        raise OptionError(f"{run} is a run of the task {predictor.task.name}, not {task}")
    return predictor

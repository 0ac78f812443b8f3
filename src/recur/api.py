"""Train a model and use it, from Python: `recur.fit` and `recur.load`.

    recur.fit("names.tsv", task="classify")                                 files, as `recur train` reads them
    recur.fit(frame, task="classify", text="review", label="stars")         columns of a pandas or polars frame
    recur.fit(texts, labels, task="classify", valid=(others, labels))       lists
    recur.fit(frame, task="forecast", horizon=12)                           dates from a column or the index

They return the predictor of the task:

    language      Language            generate, stream, perplexity, logprob, step
    conditional   ConditionalWriter   generate(label), logprob(text, label)
    seq2seq       Transducer
    classify      TextClassifier      stream
    tag           TextTagger          stream
    tree          TreeClassifier
    forecast      SeriesForecaster
    grid          ImageClassifier
    adding, copy  Solver

All of them can be called, and have `predict`, `predictions`, `evaluate`, `xray`, `run`, `model` (the network) and
`task`; classifiers also have `probabilities`. See recur/tasks/predictor.py.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from recur.data.frames import is_in_memory
from recur.errors import OptionError, shown
from recur.exchange import pretrained_folder
from recur.options import checked
from recur.tasks import make_options, open_predictor
from recur.tasks.common.predictor import file_names
from recur.tasks.common.registry import choose_task
from recur.training import Callback, train
from recur.training.events import shown_progress
from recur.training.in_memory_data import InMemoryData
from recur.utils.trust import name_cell

if TYPE_CHECKING:
    from recur.tasks.classify.predictor import TextClassifier
    from recur.tasks.common.predictor import Predictor
    from recur.tasks.common.synthetic import Solver
    from recur.tasks.conditional.predictor import ConditionalWriter
    from recur.tasks.forecast.predictor import SeriesForecaster
    from recur.tasks.grid.predictor import ImageClassifier
    from recur.tasks.language.predictor import Language
    from recur.tasks.seq2seq.predictor import Transducer
    from recur.tasks.tag.predictor import TextTagger
    from recur.tasks.tree.predictor import TreeClassifier

Texts = Any
"""Names of files (str | Path | Sequence[str | Path]), or data: a frame, a series, an array, a list of pairs."""
RunPath = str | Path


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
def fit(*, task: Literal["adding", "copy"], **options: Any) -> Solver[Any]: ...
@overload
def fit(texts: Texts | None = ..., answers: Any = ..., *, task: str | None = ..., **options: Any) -> Predictor[Any]: ...
def fit(
    texts: Texts | None = None,
    answers: Any = None,
    *,
    task: str | None = None,
    out: RunPath | None = None,
    callback: Callback | None = None,
    progress: bool | None = None,
    trust: bool = False,
    **options: Any,
) -> Predictor[Any]:
    """Train on files or on data in memory, as `recur train` does, and return the model.

    Args:
        texts: names of files, or data: a frame with columns named by `text` and `label` (pairs: `source` and `target`;
            tags: `words` and `tags`), a list of (input, answer) pairs, or a table, a series or an array for a task that
            reads one. `valid` and `test` are given in the same form. Data is written into the run, which can be resumed
            and moved like any other.
        answers: labels or targets, if `texts` is a list of inputs alone.
        task: by default, the task that the file implies, if that is unambiguous.
        out: folder of the run; by default a temporary one, which is removed with the model.
        progress: show a line with the share of the budget, the time that is left and the metrics; by default, on a
            terminal.
        trust: execute the custom cell of the run that this one starts from (`from_`), though you have not trained with
            it.
        options: those of `recur train --task TASK --help`.

    >>> texts, labels = ["good", "bad"] * 30, ["pos", "neg"] * 30
    >>> model = recur.fit(texts, labels, task="classify", hidden_size=8, steps=20, seed=1)
    >>> model("good"), model(["bad", "good"])
    ('pos', ['neg', 'pos'])
    """
    out = None if out is None else _folder("out", out)
    name_cell(options.get("cell"))
    given = texts if answers is None else (texts, answers)
    data = InMemoryData.of(given, options) if answers is not None or is_in_memory(given) else None
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
        fields = options if data is None else data.write(task, run, callback)
        shown = progress if progress is not None else callback is None and sys.stderr.isatty()
        with shown_progress(callback, shown) as watch:
            outcome = train(make_options(task, fields), run, watch, trust=trust)
        predictor = open_predictor([outcome.run.path], outcome.summary["device"])
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(predictor, shutil.rmtree, folder, ignore_errors=True)
    return predictor


def _folder(name: str, given: object) -> str | Path:
    """Return a path; refuse what cannot be one."""
    if not isinstance(given, str | Path) or "\0" in str(given):
        raise OptionError(f"{name} must be the path of a folder, got {shown(given)}")
    return Path(checked(name, given, str))


class Consent(TypedDict, total=False):
    """Permissions of a run of another user that `load` opens."""

    trust: bool
    changed_text: bool
    allow_path: Sequence[str | Path]


@overload
def load(run: RunPath, device: str = ..., *, task: Literal["language"], **consent: Unpack[Consent]) -> Language: ...
@overload
def load(
    run: RunPath, device: str = ..., *, task: Literal["conditional"], **consent: Unpack[Consent]
) -> ConditionalWriter: ...
@overload
def load(run: RunPath, device: str = ..., *, task: Literal["seq2seq"], **consent: Unpack[Consent]) -> Transducer: ...
@overload
def load(
    run: RunPath, device: str = ..., *, task: Literal["classify"], **consent: Unpack[Consent]
) -> TextClassifier: ...
@overload
def load(run: RunPath, device: str = ..., *, task: Literal["tag"], **consent: Unpack[Consent]) -> TextTagger: ...
@overload
def load(run: RunPath, device: str = ..., *, task: Literal["tree"], **consent: Unpack[Consent]) -> TreeClassifier: ...
@overload
def load(
    run: RunPath, device: str = ..., *, task: Literal["forecast"], **consent: Unpack[Consent]
) -> SeriesForecaster: ...
@overload
def load(run: RunPath, device: str = ..., *, task: Literal["grid"], **consent: Unpack[Consent]) -> ImageClassifier: ...
@overload
def load(
    run: RunPath, device: str = ..., *, task: Literal["adding", "copy"], **consent: Unpack[Consent]
) -> Solver[Any]: ...
@overload
def load(run: RunPath, device: str = ..., *, task: str | None = ..., **consent: Unpack[Consent]) -> Predictor[Any]: ...
def load(
    run: RunPath,
    device: str = "auto",
    *,
    trust: bool = False,
    changed_text: bool = False,
    allow_path: Sequence[str | Path] = (),
    task: str | None = None,
) -> Predictor[Any]:
    """Return the model of a run, with its best weights.

    Args:
        trust: execute the custom cell of the run, even if you have not trained with it.
        changed_text: accept training texts that were changed since.
        allow_path: files outside of the run's folder that may be opened, even if you have not trained with them.
        task: refuse a run of any other task.

    >>> model = recur.fit("names.tsv", task="classify", hidden_size=8, steps=2, out="runs/names")
    >>> recur.load("runs/names").probabilities("Nabc7").keys()
    dict_keys(['Greek', 'Irish'])
    """
    predictor = open_predictor([_folder("run", run)], device, trust)
    predictor.changed_text, predictor.allow_path = changed_text, allow_path
    if task is not None and predictor.task.name != task:
        raise OptionError(f"{run} is a run of the task {predictor.task.name}, not {task}")
    return predictor


def from_pretrained(
    name: RunPath,
    device: str = "auto",
    *,
    revision: str | None = None,
    cache_dir: RunPath | None = None,
    local_files_only: bool = False,
    trust: bool = False,
) -> Predictor[Any]:
    """Return the model in a folder of `save_pretrained`, or a model of the Hugging Face Hub.

    Args:
        name: a folder, or the id `owner/name` of a repository of the Hub (extra `hub`).
        revision: branch, tag or commit of the repository.
        cache_dir: cache folder of the Hub's library.
        local_files_only: read the cache and do not connect to the Hub.
        trust: execute the custom cell of the model, even if you have not trained with it.

    >>> model = recur.fit("names.tsv", task="classify", hidden_size=8, steps=2)
    >>> folder = model.save_pretrained("names-model")
    >>> recur.from_pretrained("names-model")("Nabc7") == model("Nabc7")
    True
    """
    folder, temporary = pretrained_folder(name, revision, cache_dir, local_files_only)
    try:
        predictor = open_predictor([folder], device, trust)
    except BaseException:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if temporary:
        weakref.finalize(predictor, shutil.rmtree, folder, ignore_errors=True)
    return predictor

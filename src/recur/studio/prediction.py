"""Predictions of any task: examples of the validation set, confusion tables, and inputs traced through the network."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from recur.baselines.forecasts import SeasonalNaive
from recur.data.csv_files import format_row
from recur.data.series import fill
from recur.data.text import SPECIALS
from recur.data.text.labelled import LABEL_MARK
from recur.data.text.treebanks import parse_tree, read_trees
from recur.diagnostics import Subject
from recur.diagnostics.task_probes import JUDGES, MOST, judge
from recur.diagnostics.units import Series, tokens_read
from recur.errors import OptionError, RecurError, RunError, TextError
from recur.i18n import Message
from recur.nn import Recurrent
from recur.serve.http import RequestModel, check_range, finite_or_none, validate
from recur.studio.loaded_model import LoadedModel, shown_text
from recur.tasks.classify.multilabel import MultiLabelPredictor
from recur.tasks.common.classification import class_names, confusion
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.splits import split
from recur.tasks.forecast.task import parse_series
from recur.tasks.language.predictor import Language
from recur.utils.types import JsonObject

KINDS = {
    "Language": "text",
    "TextClassifier": "classes",
    "MultiLabelPredictor": "classes",
    "SignalClassifierPredictor": "numbers",
    "ImageClassifier": "image",
    "TextTagger": "tags",
    "SignalTagPredictor": "numbers",
    "TranscriberPredictor": "numbers",
    "Transducer": "pairs",
    "ConditionalWriter": "labels",
    "TreeClassifier": "tree",
    "SeriesForecaster": "series",
    "Adder": "line",
    "Copier": "line",
}
"""Kind of input and output of each predictor class, which the page has a form for."""
EXAMPLES = 40
"""Examples that are offered."""
ROWS = 240
"""Steps of a series that are offered."""
CELL = 30
"""Examples of one cell of a confusion table."""


class FormExample(NamedTuple):
    input: str
    target: str = ""
    """Target, if it is known."""


def kind_of(predictor: Predictor[Any]) -> str:
    return KINDS.get(type(predictor).__name__, "line")


def samples(model: LoadedModel, _: JsonObject) -> JsonObject:
    """Return examples for the form; if the run's files are gone, one made from its vocabulary."""
    predictor = model.predictor
    kind = kind_of(predictor)
    labels = predictor.run.vocabs.get("labels")
    try:
        if kind == "text":  # a language model continues any text: the example is the one its own view starts from
            examples, own = [FormExample(model.example())], True
        else:
            examples, own = READERS[kind](predictor), True
    except (RecurError, OSError, KeyError):
        examples, own = [_make_example(predictor)], False
    return {
        "kind": kind,
        "examples": [example._asdict() for example in examples[:EXAMPLES]],
        "own": own,
        "labels": [] if labels is None else list(class_names(labels)),
        "confusion": type(predictor) in JUDGES,
    }


def _data(predictor: Predictor[Any]) -> Any:
    predictor.find_texts(*(part for part in ("texts", "valid") if part in predictor.task.options.names()))
    return predictor.task.read(predictor.run.vocabs)


def _texts(predictor: Predictor[Any]) -> list[FormExample]:
    names = _names(predictor)
    if isinstance(predictor, MultiLabelPredictor):
        return [
            FormExample(example.text, LABEL_MARK.join(names[k] for k in example.labels))
            for example in _data(predictor).valid
        ]
    return [FormExample(example.text, names[example.label]) for example in _data(predictor).valid]


def _sentences(predictor: Predictor[Any]) -> list[FormExample]:
    return [FormExample(" ".join(one.words), " ".join(one.tags)) for one in _data(predictor).valid_sentences]


def _pair_examples(predictor: Predictor[Any]) -> list[FormExample]:
    return [FormExample(pair.source, pair.target) for pair in _data(predictor).valid_pairs]


def _trees(predictor: Predictor[Any]) -> list[FormExample]:
    predictor.find_texts("texts", "valid")
    return [
        FormExample(tree.bracketed(), str(tree.labels[-1])) for tree in split(predictor.task.options, read_trees)[1]
    ]


def _series_examples(predictor: Predictor[Any]) -> list[FormExample]:
    """Return the history before the last forecasts of the validation set, with the values that followed as targets."""
    predictor.find_texts("texts")
    task: Any = predictor.task
    data = task.read(predictor.run.vocabs)
    found = []
    for one, parts in list(zip(data.panel.series, data.splits, strict=True))[:EXAMPLES]:
        end = max(parts.valid - task.horizon, min(len(one), 2 * task.season + 2))
        while end > 1 and np.isnan(one.values[end - 1]).all():
            end -= 1  # a series ends at its last value: behind a missing one the forecast would begin earlier
        begin = max(0, (end - ROWS) // task.season * task.season)
        dates, ahead = data.panel.dates(one), end if not data.panel.future else min(end + task.horizon, len(one.future))
        header = [*(["date"] if dates else []), *data.panel.targets, *data.panel.future, *data.panel.past]
        lines = [format_row(header)]
        for t in range(begin, ahead):
            known = (one.values[:end], one.future, one.past[:end])
            cells = [v for part in known for v in (part[t] if t < len(part) else [math.nan] * part.shape[1])]
            lines.append(",".join([*dates[t : t + 1], *("" if math.isnan(v) else f"{v:.8g}" for v in cells)]))
        came = one.values[end : end + task.horizon, 0]
        found.append(FormExample("\n".join(lines), " ".join(f"{value:.8g}" for value in came)))
    return found


def _numbers(predictor: Predictor[Any]) -> list[FormExample]:
    return [
        FormExample("\n".join(" ".join(f"{v:.5g}" for v in step) for step in one.values), " ".join(one.names))
        for one in _data(predictor).valid[:EXAMPLES]
    ]


def _images(predictor: Predictor[Any]) -> list[FormExample]:
    """Return images as rows of numbers, the mean over the colour channels."""
    names = _names(predictor)
    return [
        FormExample(
            "\n".join(" ".join(f"{v:.4g}" for v in row) for row in one.pixels.mean(-1).tolist()), names[one.label]
        )
        for one in _data(predictor).valid[:EXAMPLES]
    ]


def _labels(predictor: Predictor[Any]) -> list[FormExample]:
    return [FormExample(label) for label in class_names(predictor.run.vocabs["labels"])]


def _lines(predictor: Predictor[Any]) -> list[FormExample]:
    task: Any = predictor.task
    drawn = task.draw(np.random.default_rng(0), 12)
    if task.name == "adding":
        rows = [" ".join(f"{v:.2f}{'*' * int(mark)}" for v, mark in row) for row in drawn.x.tolist()]
        return [FormExample(row, f"{y:.4f}") for row, y in zip(rows, drawn.y.tolist(), strict=True)]
    messages = [" ".join(map(str, row)) for row in drawn.y[:, -10:].tolist()]
    return [FormExample(message, message) for message in messages]


READERS: dict[str, Callable[[Predictor[Any]], list[FormExample]]] = {
    "classes": _texts,
    "tags": _sentences,
    "pairs": _pair_examples,
    "tree": _trees,
    "series": _series_examples,
    "numbers": _numbers,
    "image": _images,
    "labels": _labels,
    "line": _lines,
}


def _names(predictor: Predictor[Any]) -> Sequence[str]:
    """Return the class names; "?" for classes that the training set did not have."""
    return [*class_names(predictor.run.vocabs["labels"]), *["?"] * MOST]


def _make_example(predictor: Predictor[Any]) -> FormExample:
    vocabs = predictor.run.vocabs
    vocab = vocabs.get("vocab") or vocabs.get("source")
    if vocab is None:
        return FormExample("")
    words = [token for token in vocab.tokens if token not in SPECIALS and token.strip()][:6]
    if kind_of(predictor) == "tree":
        label = class_names(vocabs["labels"])[0]
        return FormExample(f"({label} ({label} {words[0]}) ({label} {words[-1]}))")
    return FormExample(vocab.tokenizer.join(words))


# Confusion table --------------------------------------------------------------------------------------------


class MistakeRequest(RequestModel):
    """Cell of the confusion matrix whose examples are shown: the right class and the predicted one."""

    right: int = 0
    said: int = 0


def mistakes(model: LoadedModel, request: JsonObject) -> JsonObject:
    """The confusion table of the validation part; with `right` and `said`, two classes, examples of that cell."""
    predictor = model.predictor
    if type(predictor) not in JUDGES:
        raise OptionError(Message("a model of the task {task} tells no classes apart", task=predictor.task.name))
    found = model.kept("judged", lambda: _judge_validation(predictor))
    names, targets, predictions, sure = found
    table = confusion(targets, predictions, len(names))
    answer: JsonObject = {"classes": list(names), "table": table.tolist(), "examples": []}
    asked = validate(MistakeRequest, request)
    if "right" in request:
        right = check_range("right", asked.right, 0, len(names) - 1)
        said = check_range("said", asked.said, 0, len(names) - 1)
        places = [k for k, pair in enumerate(zip(targets, predictions, strict=True)) if pair == (right, said)]
        texts = model.kept("judged texts", lambda: _judged_texts(predictor))
        answer["examples"] = [
            {"text": texts[k] if k < len(texts) else "", "sure": finite_or_none(sure[k]) if sure else None}
            for k in places[:CELL]
        ]
        answer["count"] = len(places)
    return answer


def _judge_validation(predictor: Predictor[Any]) -> tuple[Sequence[str], list[int], list[int], list[float]]:
    predictor.find_texts(*(part for part in ("texts", "valid") if part in predictor.task.options.names()))
    found = judge(predictor)
    assert found is not None
    return found.classes, found.targets, found.predictions, found.sure


def _judged_texts(predictor: Predictor[Any]) -> list[str]:
    """Return the text of each judged example in the order of `judge`: a line, or a word within its sentence."""
    kind = kind_of(predictor)
    if kind == "tags":
        sentences = _data(predictor).valid_sentences[: MOST // 4]
        return [
            " ".join(f"[{word}]" if k == at else word for k, word in enumerate(sentence.words))
            for sentence in sentences
            for at in range(len(sentence.words))
        ]
    return [example.input for example in READERS[kind](predictor)[:MOST]]


COLUMNS = 6
"""Input columns that units are compared with."""


class ModelTrace(NamedTuple):
    """Input of a model with the subject for probes."""

    tokens: list[str]
    """Text of each step."""
    subject: Subject
    words: bool = False
    """Whether there is a space between tokens."""
    features: dict[str, Series] | None = None
    """Features that units are compared with; None for the features of a text."""


def trace_model(model: LoadedModel, text: str) -> ModelTrace:
    """Run a text through the model of any task and return its tokens and the subject for probes."""
    predictor = model.predictor
    if isinstance(predictor, Language):
        subject = model.subject(text)
        words = predictor.vocab.tokenizer.kind in ("word", "space")
        return ModelTrace([shown_text(token) for token in tokens_read(subject)], subject, words)
    if not text.strip():
        raise TextError(Message("the input is empty"))
    reading = model.kept("reading copy", lambda: _reading_copy(predictor))
    nets = [module for module in reading.model.modules() if isinstance(module, Recurrent)]
    if not nets:
        raise RunError(
            Message(
                "the network of a run of the task {task} has no layer that reads along time", task=predictor.task.name
            )
        )
    seen: list[Tensor] = []
    hook = nets[0].register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    kind = kind_of(predictor)
    try:
        names = READ_BY_KIND.get(kind, _read_line)(reading, text)
    finally:
        hook.remove()
    subject = Subject(nets[0], nets[0], seen[0][:1])
    steps = subject.length
    tokens = names[-steps:] if len(names) >= steps else [str(k + 1) for k in range(steps)]
    split = predictor.run.vocabs[_vocab(kind)].tokenizer.kind if _vocab(kind) in predictor.run.vocabs else ""
    numbers = seen[0][0].double().cpu().numpy() if kind in NUMERIC else None
    return ModelTrace(
        tokens, subject, split not in ("char", "subword"), None if numbers is None else _column_features(numbers)
    )


def parse_numbers(given: str) -> NDArray[np.float32]:
    """Parse rows of numbers between spaces: the pixels of an image, or the steps of a sequence."""
    try:
        rows = [[float(cell) for cell in line.replace(",", " ").split()] for line in given.strip().split("\n")]
        values = np.array(rows, np.float32)
    except ValueError:
        raise TextError(Message("the input must be rows of numbers, all of one length")) from None
    if values.ndim != 2 or not np.isfinite(values).all():
        raise TextError(Message("the input must be rows of numbers, all of one length"))
    return values


def _reading_copy(predictor: Any) -> Any:
    """Return a copy whose hooks disturb no other request."""
    made = copy.copy(predictor)
    made.models = [copy.deepcopy(predictor.model)]
    if hasattr(made, "tagger"):
        made.tagger = made.models[0]
    return made


def _vocab(kind: str) -> str:
    return "source" if kind == "pairs" else "vocab"


def _column_features(numbers: NDArray[np.float64]) -> dict[str, Series]:
    """Return the position and each input column as features."""
    named = {"position": np.arange(len(numbers), dtype=np.float64)}
    named |= {f"input {k + 1}": numbers[:, k] for k in range(min(numbers.shape[1], COLUMNS))}
    return {name: series for name, series in named.items() if series.std() > 0}


# Readers by the kind of input: each returns the names of the steps, if they are known.


def _read_line(reading: Any, text: str) -> list[str]:
    line = " ".join(text.split())
    reading.predict(line)
    vocab = reading.run.vocabs.get("vocab")
    return line.split() if vocab is None else list(vocab.tokenizer.split(line))


def _read_pair(reading: Any, text: str) -> list[str]:
    reading.predict(text.strip())
    return list(reading.run.vocabs["source"].tokenizer.split(text.strip()))


def _read_signal(reading: Any, text: str) -> list[str]:
    reading.predict(parse_numbers(text))
    return []


def _read_series(reading: Any, text: str) -> list[str]:
    lines = text.strip().split("\n")
    list(reading.predictions(lines))
    panel = parse_series(reading.task.options, lines, "the table")
    return list(panel.dates(panel.series[0]))


READ_BY_KIND: dict[str, Callable[[Any, str], list[str]]] = {
    "pairs": _read_pair,
    "numbers": _read_signal,
    "series": _read_series,
}
NUMERIC = ("numbers", "series", "line")
"""Kinds whose steps are numbers."""


MAX_INPUT_CHARS = 40_000
"""Characters of an input."""
HISTORY = 240
"""Values of a series that are drawn before its forecast."""


class InputRequest(RequestModel):
    """Input of a prediction, as text."""

    input: str = ""


def predict(model: LoadedModel, request: JsonObject) -> JsonObject:
    predictor, given = model.predictor, validate(InputRequest, request).input
    if len(given) > MAX_INPUT_CHARS:
        raise OptionError(
            Message(
                "the input is too long: {n} characters, at most {most}",
                n=f"{len(given):,}",
                most=f"{MAX_INPUT_CHARS:,}",
            )
        )
    kind = kind_of(predictor)
    if not given.strip():
        raise TextError(Message("the input is empty"))
    found = PREDICT_BY_KIND.get(kind, _predict_line)(predictor, given)
    return {"kind": kind, **found, "unknown": found.get("unknown") or _unknown_tokens(predictor, kind, given)}


def _unknown_tokens(predictor: Predictor[Any], kind: str, given: str) -> list[str]:
    """Return the tokens that the model reads as <unk>."""
    vocab = predictor.run.vocabs.get("source" if kind == "pairs" else "vocab")
    if vocab is None or kind in ("labels", "line", "image", "numbers", "table", "series"):
        return []
    if kind == "tree":
        given = " ".join(parse_tree(given).words) if given.lstrip().startswith("(") else given
    words = given.split() if kind == "tags" and vocab.tokenizer.kind != "char" else None
    known = vocab.ids
    if words is not None:
        return [word for word in dict.fromkeys(words) if not any(form in known for form in (word, word.lower()))]
    return list(vocab.unknown_tokens(given))


def _predict_line(predictor: Predictor[Any], given: str) -> JsonObject:
    return dict(predictor.predict(given.strip()))


def _classes(predictor: Predictor[Any], given: str) -> JsonObject:
    """Predict classes, with the probability of each class after every token if the network reads forward."""
    text = " ".join(given.split("\n")).strip()
    found = dict(predictor.predict(text))
    try:
        streamed: Any = predictor
        along = list(streamed.stream(text))
        tokens = predictor.run.vocab.tokenizer.split(text)
    except RecurError:  # it reads from both ends
        return found
    rows = [[round(p, 5) for p in one.values()] for one in along]
    return {**found, "along": {"tokens": tokens, "rows": rows}} if len(rows) == len(tokens) else found


def _tags(predictor: Predictor[Any], given: str) -> JsonObject:
    return dict(predictor.predict(" ".join(given.split()), marginals=True))


def _predict_pairs(predictor: Predictor[Any], given: str) -> JsonObject:
    options = {"beam": 4, "nbest": 4}
    network: Any = predictor.model
    found = dict(predictor.predict(given.strip(), attention=network.decoder.attention is not None, **options))
    found.setdefault("attention", None)
    return found


def _tree(predictor: Predictor[Any], given: str) -> JsonObject:
    found = dict(predictor.predict(" ".join(given.split())))
    tree = parse_tree(found["tree"])
    nodes = [{"label": label, "children": list(below)} for label, below in zip(tree.labels, tree.children, strict=True)]
    return {**found, "nodes": nodes, "words": list(tree.words)}


def _predict_series(predictor: Predictor[Any], given: str) -> JsonObject:
    """Forecast with quantiles, and the seasonal naive forecast (the value one season before) for comparison."""
    rows = [dict(row) for row in predictor.predictions(given.split("\n"))]
    task: Any = predictor.task
    panel = parse_series(task.options, given.split("\n"), "the table")
    one = panel.series[0]
    values = one.values[:, 0]
    season = task.season if len(values) >= task.season else 1
    observed = fill(values[:, None], season)
    naive = SeasonalNaive(season)(observed, np.array([len(observed)]), task.horizon)[0, :, 0]
    first = [row for row in rows if row["series"] == one.id and row["target"] == panel.targets[0]]
    dates = panel.dates(one)
    if not dates:  # the page counts the steps itself
        first = [{name: value for name, value in row.items() if name != "date"} for row in first]
    return {
        "history": [None if np.isnan(value) else float(value) for value in values[-HISTORY:]],
        "dates": list(dates[-HISTORY:]),
        "forecast": first,
        "naive": naive.tolist(),
        "season": season,
        "target": panel.targets[0],
        "others": len(rows) - len(first),
    }


def _table(predictor: Predictor[Any], given: str) -> JsonObject:
    return {"rows": [dict(row) for row in predictor.predictions(given.strip().split("\n"))]}


def _array(predictor: Predictor[Any], given: str) -> JsonObject:
    """Parse rows of numbers between spaces: the pixels of an image, or the steps of a sequence."""
    values = parse_numbers(given)
    return {**dict(predictor.predict(values)), "input": "", "rows": values.tolist()}


PREDICT_BY_KIND = {
    "classes": _classes,
    "tags": _tags,
    "pairs": _predict_pairs,
    "tree": _tree,
    "series": _predict_series,
    "table": _table,
    "image": _array,
    "numbers": _array,
}

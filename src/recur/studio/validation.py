"""Examples of a run's own validation part, as somebody would type them: what a form opens with; and where it errs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from recur.errors import OptionError, RecurError
from recur.probes.classes import JUDGES, MOST, judge
from recur.studio.loaded import LoadedModel
from recur.tasks.classes import classes_of, confusion
from recur.tasks.examples import split
from recur.tasks.predictor import Predictor
from recur.tasks.table.data import read_rows
from recur.text import SPECIALS
from recur.text.trees import read_trees
from recur.typedefs import JsonObject
from recur.web.fields import field, number

KINDS = {
    "TextClassifier": "classes",
    "SignalClassifierPredictor": "numbers",
    "ImageClassifier": "image",
    "TextTagger": "tags",
    "SignalTagPredictor": "numbers",
    "TranscriberPredictor": "numbers",
    "Transducer": "pairs",
    "ConditionalWriter": "labels",
    "TreeClassifier": "tree",
    "SeriesForecaster": "series",
    "RowPredictor": "table",
    "Adder": "line",
    "Copier": "line",
}
"""How the page takes a model's input and shows what it says, by the name of its class."""
EXAMPLES = 40
"""Examples that are offered."""
ROWS = 240
"""Steps of a series that are offered."""
CELL = 30
"""Examples of one cell of a confusion table."""


class Example(NamedTuple):
    input: str
    target: str = ""
    """What it should say, where that is known."""


def kind_of(predictor: Predictor[Any]) -> str:
    return KINDS.get(type(predictor).__name__, "line")


def samples(model: LoadedModel, _: JsonObject) -> JsonObject:
    """What the form opens with, and what else there is to choose from; where the run's files are gone, what its
    vocabulary gives."""
    predictor = model.predictor
    kind = kind_of(predictor)
    labels = predictor.run.vocabs.get("labels")
    try:
        examples, own = READERS[kind](predictor), True
    except (RecurError, OSError, KeyError):
        examples, own = [_made_up(predictor)], False
    return {
        "kind": kind,
        "examples": [example._asdict() for example in examples[:EXAMPLES]],
        "own": own,
        "labels": [] if labels is None else list(classes_of(labels)),
        "confusion": type(predictor) in JUDGES,
    }


def _data(predictor: Predictor[Any]) -> Any:
    predictor.find_texts(*(part for part in ("texts", "valid") if part in predictor.task.options.names()))
    return predictor.task.read(predictor.run.vocabs)


def _texts(predictor: Predictor[Any]) -> list[Example]:
    names = _names(predictor)
    return [Example(example.text, names[example.label]) for example in _data(predictor).valid]


def _sentences(predictor: Predictor[Any]) -> list[Example]:
    return [Example(" ".join(one.words), " ".join(one.tags)) for one in _data(predictor).valid_sentences]


def _pairs(predictor: Predictor[Any]) -> list[Example]:
    return [Example(pair.source, pair.target) for pair in _data(predictor).valid_pairs]


def _trees(predictor: Predictor[Any]) -> list[Example]:
    predictor.find_texts("texts", "valid")
    return [Example(tree.bracketed(), str(tree.labels[-1])) for tree in split(predictor.task.options, read_trees)[1]]


def _rows(predictor: Predictor[Any]) -> list[Example]:
    """A table of all of them: one is a line of it."""
    predictor.find_texts("texts", "valid")
    options: Any = predictor.task.options
    rows = split(options, read_rows)[1][:12]
    columns = [column for column in rows[0].cells if column != options.target]
    lines = [",".join(columns), *(",".join(row.cells[column] for column in columns) for row in rows)]
    return [Example("\n".join(lines), "\n".join(row.cells.get(options.target, "") for row in rows))]


def _series(predictor: Predictor[Any]) -> list[Example]:
    """What came before the last forecasts of the validation part; what came then is the target."""
    predictor.find_texts("texts")
    task: Any = predictor.task
    data = task.read(predictor.run.vocabs)
    found = []
    for one, parts in list(zip(data.panel.series, data.splits, strict=True))[:EXAMPLES]:
        end = max(parts.valid - task.horizon, min(len(one), 2 * task.season + 2))
        begin = max(0, (end - ROWS) // task.season * task.season)
        dates, ahead = data.panel.dates(one), end if not data.panel.future else min(end + task.horizon, len(one.future))
        header = [*(["date"] if dates else []), *data.panel.targets, *data.panel.future, *data.panel.past]
        lines = [",".join(header)]
        for t in range(begin, ahead):
            known = (one.values[:end], one.future, one.past[:end])
            cells = [v for part in known for v in (part[t] if t < len(part) else [math.nan] * part.shape[1])]
            lines.append(",".join([*dates[t : t + 1], *("" if math.isnan(v) else f"{v:.8g}" for v in cells)]))
        came = one.values[end : end + task.horizon, 0]
        found.append(Example("\n".join(lines), " ".join(f"{value:.8g}" for value in came)))
    return found


def _numbers(predictor: Predictor[Any]) -> list[Example]:
    return [
        Example("\n".join(" ".join(f"{v:.5g}" for v in step) for step in one.values), " ".join(one.names))
        for one in _data(predictor).valid[:EXAMPLES]
    ]


def _images(predictor: Predictor[Any]) -> list[Example]:
    """As rows of numbers, the mean over the colours."""
    names = _names(predictor)
    return [
        Example("\n".join(" ".join(f"{v:.4g}" for v in row) for row in one.pixels.mean(-1).tolist()), names[one.label])
        for one in _data(predictor).valid[:EXAMPLES]
    ]


def _labels(predictor: Predictor[Any]) -> list[Example]:
    return [Example(label) for label in classes_of(predictor.run.vocabs["labels"])]


def _lines(predictor: Predictor[Any]) -> list[Example]:
    task: Any = predictor.task
    drawn = task.draw(np.random.default_rng(0), 12)
    if task.name == "adding":
        rows = [" ".join(f"{v:.2f}{'*' * int(mark)}" for v, mark in row) for row in drawn.x.tolist()]
        return [Example(row, f"{y:.4f}") for row, y in zip(rows, drawn.y.tolist(), strict=True)]
    messages = [" ".join(map(str, row)) for row in drawn.y[:, -10:].tolist()]
    return [Example(message, message) for message in messages]


READERS: dict[str, Callable[[Predictor[Any]], list[Example]]] = {
    "classes": _texts,
    "tags": _sentences,
    "pairs": _pairs,
    "tree": _trees,
    "table": _rows,
    "series": _series,
    "numbers": _numbers,
    "image": _images,
    "labels": _labels,
    "line": _lines,
}


def _names(predictor: Predictor[Any]) -> Sequence[str]:
    """Of classes; those that training did not have come behind it."""
    return [*classes_of(predictor.run.vocabs["labels"]), *["?"] * MOST]


def _made_up(predictor: Predictor[Any]) -> Example:
    vocabs = predictor.run.vocabs
    vocab = vocabs.get("vocab") or vocabs.get("source")
    if vocab is None:
        return Example("")
    words = [token for token in vocab.tokens if token not in SPECIALS and token.strip()][:6]
    if kind_of(predictor) == "tree":
        label = classes_of(vocabs["labels"])[0]
        return Example(f"({label} ({label} {words[0]}) ({label} {words[-1]}))")
    return Example(vocab.tokenizer.join(words))


# Where it errs ----------------------------------------------------------------------------------------------


def mistakes(model: LoadedModel, request: JsonObject) -> JsonObject:
    """The confusion table of the validation part; with `right` and `said`, two classes, examples of that cell."""
    predictor = model.predictor
    if type(predictor) not in JUDGES:
        raise OptionError(f"a model of the task {predictor.task.name} tells no classes apart")
    found = model.kept("judged", lambda: _judged(predictor))
    names, targets, predictions, sure = found
    table = confusion(targets, predictions, len(names))
    answer: JsonObject = {"classes": list(names), "table": table.tolist(), "examples": []}
    if "right" in request:
        right = field(request, "right", 0, 0, len(names) - 1)
        said = field(request, "said", 0, 0, len(names) - 1)
        places = [k for k, pair in enumerate(zip(targets, predictions, strict=True)) if pair == (right, said)]
        texts = model.kept("judged texts", lambda: _judged_texts(predictor))
        answer["examples"] = [
            {"text": texts[k] if k < len(texts) else "", "sure": number(sure[k]) if sure else None}
            for k in places[:CELL]
        ]
        answer["count"] = len(places)
    return answer


def _judged(predictor: Predictor[Any]) -> tuple[Sequence[str], list[int], list[int], list[float]]:
    predictor.find_texts(*(part for part in ("texts", "valid") if part in predictor.task.options.names()))
    found = judge(predictor)
    assert found is not None
    return found.classes, found.targets, found.predictions, found.sure


def _judged_texts(predictor: Predictor[Any]) -> list[str]:
    """What each judged example is, in the order of `judge`: a line of text, or a word within its sentence."""
    kind = kind_of(predictor)
    if kind == "tags":
        sentences = _data(predictor).valid_sentences[: MOST // 4]
        return [
            " ".join(f"[{word}]" if k == at else word for k, word in enumerate(sentence.words))
            for sentence in sentences
            for at in range(len(sentence.words))
        ]
    return [example.input for example in READERS[kind](predictor)[:MOST]]

"""What a model of any task makes of one input, with what its task has to show of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from recur.baselines.forecasts import SeasonalNaive
from recur.data.text.trees import parse_tree
from recur.errors import OptionError, RecurError, TextError
from recur.i18n import Message
from recur.serve.http.fields import field
from recur.studio.loaded import LoadedModel
from recur.studio.looking import numbers_of
from recur.studio.validation import kind_of
from recur.tasks.forecast.task import parse_series
from recur.tasks.predictor import Predictor
from recur.utils.types import JsonObject

LONGEST = 40_000
"""Characters of an input."""
HISTORY = 240
"""Values of a series that are drawn before its forecast."""


def predict(model: LoadedModel, request: JsonObject) -> JsonObject:
    predictor, given = model.predictor, field(request, "input", "")
    if len(given) > LONGEST:
        raise OptionError(
            Message("the input is too long: {n} characters, at most {most}", n=f"{len(given):,}", most=f"{LONGEST:,}")
        )
    kind = kind_of(predictor)
    if not given.strip():
        raise TextError(Message("the input is empty"))
    found = SHOWS.get(kind, _line)(predictor, given)
    return {"kind": kind, **found, "unknown": found.get("unknown") or _unknown(predictor, kind, given)}


def _unknown(predictor: Predictor[Any], kind: str, given: str) -> list[str]:
    """What the model reads as <unk>."""
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


def _line(predictor: Predictor[Any], given: str) -> JsonObject:
    return dict(predictor.predict(given.strip()))


def _classes(predictor: Predictor[Any], given: str) -> JsonObject:
    """With the probability of each class after every token, where the network reads forward."""
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


def _pairs(predictor: Predictor[Any], given: str) -> JsonObject:
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


def _series(predictor: Predictor[Any], given: str) -> JsonObject:
    """The forecast with its quantiles, and beside it the seasonal naive one: the value a season before."""
    rows = [dict(row) for row in predictor.predictions(given.split("\n"))]
    task: Any = predictor.task
    panel = parse_series(task.options, given.split("\n"), "the table")
    one = panel.series[0]
    values = one.values[:, 0]
    observed = np.where(np.isnan(values), np.nanmean(values), values)
    season = task.season if len(observed) >= task.season else 1
    naive = SeasonalNaive(season)(observed[:, None], np.array([len(observed)]), task.horizon)[0, :, 0]
    first = [row for row in rows if row["series"] == one.id and row["target"] == panel.targets[0]]
    dates = panel.dates(one)
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
    """Rows of numbers between spaces: the pixels of an image, or the steps of a sequence."""
    values = numbers_of(given)
    return {**dict(predictor.predict(values)), "input": "", "rows": values.tolist()}


SHOWS = {
    "classes": _classes,
    "tags": _tags,
    "pairs": _pairs,
    "tree": _tree,
    "series": _series,
    "table": _table,
    "image": _array,
    "numbers": _array,
}

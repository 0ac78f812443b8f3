"""Whether a table has the columns that were learned from, and the words of its static columns in the places that they
had then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from recur.data.csv_files import parse_number
from recur.data.series import Panel
from recur.data.text.stream import Floats
from recur.errors import RunError, TextError
from recur.runs import Vocabs
from recur.tasks.classes import classes_of
from recur.tasks.forecast.rows import Settings, known_names, past_names


def check_lists(vocabs: Vocabs) -> None:
    if missing := next((name for name in ("columns", "known", "past") if name not in vocabs), None):
        raise RunError(f"the run has no list {missing!r} of what its network reads: an older one; train it again")


def as_learned(panel: Panel, vocabs: Vocabs, s: Settings) -> Panel:
    """The same with the categories that were learned, of which a word that was not seen then is none; refused where
    what the network would read is something else."""
    check_lists(vocabs)
    own, columns = (*panel.targets, *panel.future), classes_of(vocabs["columns"])
    if own != columns:
        raise TextError(
            f"{panel.name} has the columns {', '.join(own)}, where what was learned from has {', '.join(columns)}"
        )
    known = classes_of(vocabs["known"])
    panel = _with_categories(panel, known)
    for names, learned in ((known_names(panel, s), known), (past_names(panel, s), classes_of(vocabs["past"]))):
        if tuple(names) != learned:
            raise TextError(f"{panel.name} {_difference(names, learned)}; its columns and dates must be alike")
    return panel


def _difference(own: Sequence[str], learned: Sequence[str]) -> str:
    missing, more = ([name.strip() for name in a if name not in b] for a, b in ((learned, own), (own, learned)))
    if not missing and not more:
        return f"has its inputs in another order than what was learned from: {', '.join(learned)}"
    said = [f"lacks the inputs {', '.join(missing)} of what was learned from"] if missing else []
    return " and ".join([*said, *([f"has the inputs {', '.join(more)}, which that did not have"] if more else [])])


def _with_categories(panel: Panel, known: Sequence[str]) -> Panel:
    static = np.array([one.static for one in panel.series], dtype=np.float64).reshape(len(panel), len(panel.static))
    categories = dict(panel.categories)
    for k, column in enumerate(panel.static):
        learned = _words(column, panel.static, known)
        if learned and learned != ("",):
            static[:, k] = _places(static[:, k], panel.categories.get(column), learned)
            categories[column] = learned
    series = tuple(replace(one, static=row) for one, row in zip(panel.series, static, strict=True))
    return replace(panel, series=series, categories=categories)


def _words(column: str, columns: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Of a static column, as `known_names` writes them; ("",) of one that held numbers."""
    start = f"static {column} "
    longer = tuple(f"static {other} " for other in columns if other.startswith(f"{column} "))
    return tuple(name.removeprefix(start) for name in known if name.startswith(start) and not name.startswith(longer))


def _places(values: Floats, words: tuple[str, ...] | None, learned: tuple[str, ...]) -> Floats:
    """Of values in the list that was learned, NaN for what is not in it. Where all words of a table happen to be
    numbers, it holds those."""
    if words is None:
        at = {parse_number(word): float(k) for k, word in enumerate(learned)}
        return np.array([at.get(float(value), np.nan) for value in values])
    moved = [float(learned.index(word)) if word in learned else np.nan for word in words]
    return np.array([np.nan if np.isnan(value) else moved[int(value)] for value in values])

"""Figures of trained models as tables on the screen."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.table import Table

from recur.cli.screen import Screen, facts, table
from recur.tasks.common.metrics import format_metric, metric_label, metric_of
from recur.utils.types import JsonObject

TABLES = ("beside", "confusion", "classes", "types", "metric", "verdict", "try")
"""What is shown in a way of its own."""


def show_texts(screen: Screen, rows: Sequence[JsonObject]) -> None:
    """Language models and n-grams, a line each."""
    shown = table("", "model", "perplexity", "bits/char", "tokens", "unknown", "tokens/s")
    for row in rows:
        bits, rate = f"{row['bits_per_character']:.3f}", f"{row['tokens_per_second']:,.0f}"
        shown.add_row(row["model"], f"{row['perplexity']:,.3f}", bits, f"{row['tokens']:,}", f"{row['oov']:,}", rate)
    screen.show(shown)


def show_beside(screen: Screen, metric: str, row: JsonObject, plain: Sequence[JsonObject]) -> None:
    """A model and plain ones in one table: the figure that decides first, and those others that both have."""
    shared = [name for name, value in row.items() if isinstance(value, float) and any(name in entry for entry in plain)]
    columns = [metric, *(name for name in shared if name != metric)]
    where = "On the validation part" if metric.startswith("valid_") else ""
    while len(columns) > 1 and not fits(screen, _beside(where, columns, (row, *plain))):
        columns.pop()  # --json has all of them
    screen.show(_beside(where, columns, (row, *plain)))


def _beside(where: str, columns: Sequence[str], entries: Sequence[JsonObject]) -> Table:
    shown = table(where, "model", *(metric_of(name).words for name in columns))
    shown.columns[0].no_wrap = True
    for entry in entries:
        cells = [format_metric(name, entry[name]) if isinstance(entry.get(name), float) else "" for name in columns]
        shown.add_row(str(entry["model"]), *cells)
    return shown


def fits(screen: Screen, shown: Table) -> bool:
    """Whether a table is as wide as the screen at most, its title aside."""
    title, shown.title = shown.title, None
    unbounded = screen.out.options.update(width=sys.maxsize)
    width = screen.out.measure(shown, options=unbounded).maximum
    shown.title = title
    return width <= screen.out.width


def show_verdict(screen: Screen, remarks: Sequence[str]) -> None:
    if remarks:
        screen.show("", *(f"{remark[0].upper()}{remark[1:]}." for remark in remarks))


def show_folds(screen: Screen, found: JsonObject) -> None:
    """The mean over folds, of the model and of plain ones, and how far folds lie apart."""
    rows = found["models"]
    if not rows:  # it was stopped before the first one ended
        return
    columns = [name for name in rows[0]["mean"] if any(name in row["mean"] for row in rows[1:])] or [found["metric"]]
    shown = table("", f"mean of {found['folds']} folds", *(metric_label(name) for name in columns))
    for row in rows:
        cells = [
            f"{format_metric(name, row['mean'][name])} ± {format_metric(name, row['deviation'][name])}"
            if name in row["mean"]
            else ""
            for name in columns
        ]
        shown.add_row(row["model"], *cells)
    screen.show(shown)


def show_models(screen: Screen, rows: Sequence[JsonObject]) -> None:
    """Each model with the plain ones beside it in one table; what else is known of it; the confusion matrix."""
    for row in rows:
        metric = row.get("metric")
        beside = row.get("beside") or []
        if metric in row and beside:
            show_beside(screen, metric, row, beside)
            screen.show("")
        in_table = {name for entry in beside for name in entry} if metric in row else set()
        plain = {name: value for name, value in row.items() if name not in TABLES and name not in in_table}
        screen.show(facts("", {metric_label(name): figure(value, name) for name, value in plain.items()}))
        if types := row.get("types"):
            screen.show("", types_table(types))
        elif counts := row.get("confusion"):
            screen.show("", confusion_table(screen, row["classes"], counts))
        show_verdict(screen, row.get("verdict") or [])
        if row.get("try"):
            screen.note(f"try: {row['try']}")


def types_table(types: Mapping[str, Mapping[str, float]]) -> Table:
    """Figures of each type, a line each."""
    names = list(next(iter(types.values())))
    shown = table("", "type", *map(metric_label, names))
    for kind, row in types.items():
        shown.add_row(kind, *(figure(row[name], name) for name in names))
    return shown


def confusion_table(screen: Screen, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    """The matrix, its columns by name or else by number; where neither fits the screen, the largest of its mistakes."""
    numbers = [str(k) for k in range(1, len(classes) + 1)]
    numbered = [f"{k} {name}" for k, name in zip(numbers, classes, strict=True)]
    for rows, columns, gap in ((classes, [name[:8] for name in classes], 2), (numbered, numbers, 1)):
        shown = table("", "is, predicted as", *columns)
        shown.padding = (0, 0, 0, gap)
        for name, row in zip(rows, counts, strict=True):
            shown.add_row(name, *(str(n) if n else "·" for n in row))
        unbounded = screen.out.options.update(width=sys.maxsize)
        if screen.out.measure(shown, options=unbounded).maximum <= screen.out.width:
            return shown
    mistakes = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    shown = table("", "is, predicted as (all of it: --json)", "")
    for n, i, j in sorted(mistakes, key=lambda mistake: -mistake[0])[:20]:
        shown.add_row(f"{classes[i]}, {classes[j]}", str(n))
    return shown


def figure(value: object, name: str = "") -> str:
    if isinstance(value, list):
        return "  ".join(figure(item, name) for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {figure(item)}" for key, item in value.items())
    if isinstance(value, float):
        return format_metric(name, value)
    return f"{value:,}" if type(value) is int else str(value)

"""Figures of trained models as tables on the screen."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.table import Table

from recur.cli.screen import Screen, facts, table
from recur.typedefs import JsonObject

TABLES = ("beside", "confusion", "classes")
"""What is shown as a table of its own."""


def show_texts(screen: Screen, rows: Sequence[JsonObject]) -> None:
    """Language models and n-grams, a line each."""
    shown = table("", "model", "perplexity", "bits/char", "tokens", "unknown", "tokens/s")
    for row in rows:
        bits, rate = f"{row['bits_per_character']:.3f}", f"{row['tokens_per_second']:,.0f}"
        shown.add_row(row["model"], f"{row['perplexity']:,.3f}", bits, f"{row['tokens']:,}", f"{row['oov']:,}", rate)
    screen.show(shown)


def show_models(screen: Screen, rows: Sequence[JsonObject]) -> None:
    """Figures, a line each; what stands beside them, and the confusion matrix, as tables."""
    for row in rows:
        plain = {name: value for name, value in row.items() if name not in TABLES}
        screen.show(facts("", {name.replace("_", " "): figure(value) for name, value in plain.items()}))
        if beside := row.get("beside"):
            columns = [name for name, value in beside[0].items() if isinstance(value, float)]
            shown = table("", "beside others", *(name.replace("_", " ") for name in columns))
            for entry in (row, *beside):
                shown.add_row(entry["model"], *(figure(entry[name]) for name in columns))
            screen.show("", shown)
        if counts := row.get("confusion"):
            screen.show("", confusion_table(screen, row["classes"], counts))


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


def figure(value: object) -> str:
    if isinstance(value, list):
        return "  ".join(figure(item) for item in value)
    return f"{value:,.3f}" if isinstance(value, float) else str(value)

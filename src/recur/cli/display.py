"""Display of training and evaluation results: live curve against the baseline, tables, confusion matrices.

On a terminal the training display is redrawn in place; elsewhere each evaluation is one line.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.styled import Styled
from rich.table import Table

from recur.cli.screen import Screen, facts, table
from recur.i18n import Message
from recur.tasks.common.metrics import format_metric, is_better, metric_label, metric_of
from recur.utils.progress import left_of
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from recur.training import Event, Outcome

TABLES = ("beside", "confusion", "classes", "types", "metric", "verdict", "try")
"""Entries that are printed in a table of their own."""


def show_texts(screen: Screen, rows: Sequence[JsonObject]) -> None:
    """Print language models and n-grams, one row each."""
    shown = table("", "model", "perplexity", "bits/char", "tokens", "unknown", "tokens/s")
    for row in rows:
        bits, rate = f"{row['bits_per_character']:.3f}", f"{row['tokens_per_second']:,.0f}"
        shown.add_row(row["model"], f"{row['perplexity']:,.3f}", bits, f"{row['tokens']:,}", f"{row['oov']:,}", rate)
    screen.show(shown)


def show_beside(screen: Screen, metric: str, row: JsonObject, plain: Sequence[JsonObject]) -> None:
    """Print a model and the baselines in one table: the deciding metric first, then the metrics that both have."""
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
    """Return True if a table without its title is not wider than the screen."""
    title, shown.title = shown.title, None
    unbounded = screen.out.options.update(width=sys.maxsize)
    width = screen.out.measure(shown, options=unbounded).maximum
    shown.title = title
    return width <= screen.out.width


def show_verdict(screen: Screen, remarks: Sequence[str], option: str | None = None) -> None:
    """Print the verdict as sentences, with the option to try."""
    if remarks:
        sentences = [f"{remark[0].upper()}{remark[1:]}." for remark in remarks]
        if option:
            sentences[-1] += f" Try {option}."
        screen.show("", *sentences)


def show_folds(screen: Screen, found: JsonObject) -> None:
    """Print the mean and the deviation over folds for the model and the baselines."""
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
    """Print each model with its baselines, other facts, and the confusion matrix."""
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
        show_verdict(screen, row.get("verdict") or [], row.get("try"))


def types_table(types: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the metrics of each type, one row each."""
    names = list(next(iter(types.values())))
    shown = table("", "type", *map(metric_label, names))
    for kind, row in types.items():
        shown.add_row(kind, *(figure(row[name], name) for name in names))
    return shown


def confusion_table(screen: Screen, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    """Return the confusion matrix with columns by name or by number; the most frequent mistakes if it is too wide."""
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


WIDTH, HEIGHT = 60, 8


class Display:
    """Callback of training (recur.training.events) that draws its progress."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.metric, self.unit = "", "predictions"
        self.baseline: JsonObject | None = None
        """The best of the plain models."""
        self.live: Live | None = None
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(30),
            TextColumn("{task.percentage:3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.task = self.bar.add_task("", total=1.0, left="")
        self.last: JsonObject = {}
        self.curve: list[tuple[float, float]] = []

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, event: Event) -> None:
        kind, content = event
        if kind in ("data", "note"):
            self.screen.note(content["text"])
        elif kind == "warning":
            self.screen.warn(content["text"])
        elif kind == "baseline":
            if self.baseline is None or is_better(content["metric"], content["value"], self.baseline["value"]):
                self.baseline = content
            figure = format_metric(content["metric"], content["value"])
            self.screen.note(
                Message(
                    "baseline: {name}, {metric} {figure}",
                    name=content["name"],
                    metric=metric_label(content["metric"]),
                    figure=figure,
                )
            )
        elif kind == "started":
            self.metric, self.unit = content["curve"], content["unit"]
            if self.screen.err.is_terminal and not self.screen.quiet:
                self.live = Live(console=self.screen.err, refresh_per_second=4, transient=True)
                self.live.start()
        elif kind in ("progress", "measured"):
            self._update(content, measured=kind == "measured")

    def _update(self, content: JsonObject, *, measured: bool) -> None:
        self.last |= content
        if measured:
            self.curve.append((content["seconds"], content[self.metric]))
            if self.live is None:
                self.screen.note(self._line())
        if self.live is not None:
            done = content.get("progress", 0.0)
            self.bar.update(self.task, completed=done, left=left_of(content.get("seconds", 0.0), done).lstrip(", "))
            self.live.update(self._screenful())

    def finish(self, outcome: Outcome) -> None:
        """Print the result compared with the baselines, the verdict, and what to do next."""
        content = outcome.summary
        if self.metric in content:
            plain = [
                {"model": each["name"], self.metric: each["value"], **each["metrics"]} for each in content["baselines"]
            ]
            show_beside(self.screen, self.metric, {"model": content["run"], **content}, plain)
        rate = f"{content['predictions_per_second']:,.0f} {content['unit']}/s"
        known = {self.metric, *(name for each in content["baselines"] for name in each["metrics"])}
        others = [name for name in content if name.startswith("valid_") and name not in known]
        shown = {} if self.metric in content else {"run": content["run"], metric_label(self.metric): "not measured yet"}
        if others:
            shown["also"] = ", ".join(
                f"{metric_of(name).words} {format_metric(name, content[name])}" for name in others
            )
        last = f" (the last one {content['last_measuring_seconds']:.1f} s)" if self.metric in content else ""
        shown["training"] = f"{content['steps']:,} steps in {content['seconds']:.0f} s, {rate}"
        shown["evaluation"] = f"{content['measuring_seconds']:.0f} s{last}"
        machine = content["device"] if content["device"] != "cpu" else f"{content['threads']} thread(s)"
        shown["model"] = f"{content['architecture']}, {content['parameters']:,} weights"
        shown["ran on"] = f"backend {content['backend']}, {machine}"
        self.screen.show("", facts("", shown))
        show_verdict(self.screen, content["verdict"], None if outcome.stopped else content["try"])
        if outcome.stopped:
            self.screen.note(f"resume with: recur resume {shlex.quote(content['run'])}")
            return
        what = " FILE" if outcome.task.verb == "predict" else ""
        self.screen.note(f"use it: recur {outcome.task.verb} {shlex.quote(content['run'])}{what}")

    def _line(self) -> str:
        e = self.last
        left = left_of(e["seconds"], e.get("progress", 0.0))
        line = f"step {e['step']:>6}  {e['seconds']:6.1f} s{left}  {e['summary']}"
        if "train_loss" in e:
            line += f"  train loss {e['train_loss']:.3f}  {e['predictions_per_second']:,.0f} {self.unit}/s"
        if self.baseline is not None and is_better(self.metric, e[self.metric], self.baseline["value"]):
            line += f"  better than {self.baseline['name']}"
        return line

    def _screenful(self) -> Group:
        e = self.last
        numbers = {"step": f"{e.get('step', 0):,}, epoch {e.get('epoch', 0)}"}
        if "train_loss" in e:
            beside = f", perplexity {e['train_perplexity']:.3f}" if "train_perplexity" in e else ""
            numbers["loss"] = f"{e['train_loss']:.3f}{' nats' * bool(beside)}{beside} on the training set"
            numbers["gradient"] = f"norm {e['grad_norm']:.3g} before clipping, {e['clipped']:.0%} of steps clipped"
            numbers["speed"] = f"{e['predictions_per_second']:,.0f} {self.unit}/s"
        if "summary" in e:
            numbers["valid"] = " ".join(e["summary"].removeprefix("valid ").split())
        parts: list[RenderableType] = [self.bar, facts("", numbers)]
        if self.curve:
            plain = self.baseline
            drawn = draw(self.curve, self.metric, *((plain["value"], plain["name"]) if plain else ()))
            parts += ["", drawn]
        if e.get("sample"):
            parts += ["", Styled(e["sample"], "dim")]
        return Group(*parts)


def draw(curve: list[tuple[float, float]], metric: str, baseline: float | None = None, name: str = "baseline") -> str:
    """Return a text plot of a metric over seconds, logarithmic if lower is better; the baseline is a dotted line."""
    higher = metric_of(metric).higher
    scale, back = (float, float) if higher else (math.log, math.exp)
    curve = [(seconds, v) for seconds, v in curve if (v >= 0 if higher else v > 0) and v < math.inf]
    values = [scale(v) for _, v in curve]
    if not values:
        return ""
    drawn = baseline is not None and (higher or baseline > 0)
    marks = values + ([scale(baseline)] if drawn and baseline is not None else [])
    low, high = min(marks), max(marks)
    span, last = (high - low) or 1.0, curve[-1][0] or 1.0
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def row(value: float) -> int:
        return round((high - value) / span * (HEIGHT - 1))

    if drawn and baseline is not None:
        grid[row(scale(baseline))] = list("·" * WIDTH)
    for (seconds, _), value in zip(curve, values, strict=True):
        grid[row(value)][min(WIDTH - 1, int(seconds / last * (WIDTH - 1)))] = "●"
    labels = [f"{format_metric(metric, back(high - k * span / (HEIGHT - 1))):>9} " for k in range(HEIGHT)]
    lines = [label + "".join(cells) for label, cells in zip(labels, grid, strict=True)]
    if drawn and baseline is not None:
        lines[row(scale(baseline))] += f" {name} {format_metric(metric, baseline)}"
    return "\n".join(lines)

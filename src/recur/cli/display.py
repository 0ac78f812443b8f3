"""Training as a person watches it: numbers, a curve against the baseline, a sample. On a terminal it is redrawn in
place; elsewhere each measurement is a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from recur.cli.screen import Screen, facts
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from recur.train import Event, Outcome

WIDTH, HEIGHT = 60, 8


class Display:
    """A callback of training (recur.train.events)."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.metric, self.unit = "", "predictions"
        self.baseline: JsonObject | None = None
        self.live: Live | None = None
        self.bar = Progress(
            TextColumn("training"), BarColumn(40), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn()
        )
        self.task = self.bar.add_task("", total=1.0)
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
        elif kind == "baseline":
            self.baseline = content
            self.screen.note(f"to beat: {content['name']}, {_words(content['metric'])} {content['value']:.3f}")
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
            self.bar.update(self.task, completed=content.get("progress", 0.0))
            self.live.update(self._screenful())

    def finish(self, outcome: Outcome) -> None:
        """What it came to, and what to do next."""
        content = outcome.summary
        best = content.get(self.metric)
        shown = {"run": content["run"], _words(self.metric): "not measured yet" if best is None else f"{best:.3f}"}
        if (beside := content.get("baseline")) is not None:
            level = best == beside["value"]
            verdict = "passed" if beside["passed"] else "level with it" if level else "not passed yet; train longer"
            shown[beside["name"]] = f"{beside['value']:.3f}: {verdict}"
        rate = f"{content['predictions_per_second']:,.0f} {content['unit']}/s"
        seconds = content["seconds"] + content["measuring_seconds"]
        shown["steps"] = f"{content['steps']:,} in {seconds:.0f} s, {rate} while training"
        machine = content["device"] if content["device"] != "cpu" else f"{content['threads']} thread(s)"
        shown["model"] = f"{content['architecture']}, {content['parameters']:,} weights"
        shown["ran on"] = f"backend {content['backend']}, {machine}"
        self.screen.show(facts("", shown))
        verb = "resume" if outcome.stopped else outcome.task.verb
        self.screen.note(f"{'go on with' if outcome.stopped else 'try'}: recur {verb} {content['run']}")

    def _line(self) -> str:
        e = self.last
        line = f"step {e['step']:>6}  {e['seconds']:6.1f} s  {e['summary']}"
        if "train_loss" in e:
            train = e.get("train_perplexity", e["train_loss"])
            line += f"  train {train:8.3f}  {e['predictions_per_second']:,.0f} {self.unit}/s"
        if self.baseline is not None and e[self.metric] < self.baseline["value"]:
            line += f"  below {self.baseline['name']}"
        return line

    def _screenful(self) -> Group:
        e = self.last
        numbers = {"step": f"{e.get('step', 0):,}, epoch {e.get('epoch', 0)}"}
        if "train_loss" in e:
            train = "train_perplexity" if "train_perplexity" in e else "train_loss"
            numbers[train.removeprefix("train_")] = f"{e[train]:.3f} on what it learns from"
            numbers["gradient"] = f"norm {e['grad_norm']:.3g} before clipping, {e['clipped']:.0%} of steps clipped"
            numbers["speed"] = f"{e['predictions_per_second']:,.0f} {self.unit}/s"
        if "summary" in e:
            numbers["valid"] = " ".join(e["summary"].removeprefix("valid ").split())
        parts: list[RenderableType] = [self.bar, facts("", numbers)]
        if self.curve:
            beside = self.baseline
            drawn = draw(self.curve, *((beside["value"], beside["name"]) if beside else ()))
            parts += [Text(), Text(drawn)]
        if e.get("sample"):
            parts += [Text(), Text(e["sample"], style="dim")]
        return Group(*parts)


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def draw(curve: list[tuple[float, float]], baseline: float | None = None, name: str = "baseline") -> str:
    """A metric over seconds, on a logarithmic scale, and the baseline's as a dotted line."""
    curve = [(seconds, v) for seconds, v in curve if 0 < v < math.inf]
    values = [math.log(v) for _, v in curve]
    if not values:
        return ""
    marks = values + ([math.log(baseline)] if baseline else [])
    low, high = min(marks), max(marks)
    span, last = (high - low) or 1.0, curve[-1][0] or 1.0
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]

    def row(value: float) -> int:
        return round((high - value) / span * (HEIGHT - 1))

    if baseline:
        grid[row(math.log(baseline))] = list("·" * WIDTH)
    for (seconds, _), value in zip(curve, values, strict=True):
        grid[row(value)][min(WIDTH - 1, int(seconds / last * (WIDTH - 1)))] = "●"
    labels = [f"{math.exp(high - k * span / (HEIGHT - 1)):9.2f} " for k in range(HEIGHT)]
    lines = [label + "".join(cells) for label, cells in zip(labels, grid, strict=True)]
    if baseline:
        lines[row(math.log(baseline))] += f" {name} {baseline:.2f}"
    return "\n".join(lines)

"""Training as a person watches it: numbers, a curve against the baseline, a sample. On a terminal it is redrawn in
place; elsewhere each measurement is a line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from recur.cli.results import show_beside, show_verdict
from recur.cli.screen import Screen, facts
from recur.tasks.metrics import better, metric_of, show, words
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
        """The best of the plain models."""
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
            if self.baseline is None or better(content["metric"], content["value"], self.baseline["value"]):
                self.baseline = content
            figure = show(content["metric"], content["value"])
            self.screen.note(f"to beat: {content['name']}, {words(content['metric'])} {figure}")
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
        """What it came to, beside plain models; what there is to say of it, and what to do next."""
        content = outcome.summary
        if self.metric in content:
            plain = [
                {"model": each["name"], self.metric: each["value"], **each["metrics"]} for each in content["baselines"]
            ]
            show_beside(self.screen, self.metric, {"model": content["run"], **content}, plain)
        rate = f"{content['predictions_per_second']:,.0f} {content['unit']}/s"
        known = {self.metric, *(name for each in content["baselines"] for name in each["metrics"])}
        others = [name for name in content if name.startswith("valid_") and name not in known]
        shown = {} if self.metric in content else {"run": content["run"], words(self.metric): "not measured yet"}
        if others:
            shown["also"] = ", ".join(f"{metric_of(name).words} {show(name, content[name])}" for name in others)
        seconds = f"{content['seconds']:.0f} s and {content['measuring_seconds']:.0f} s of measuring"
        last = f" (the last one {content['last_measuring_seconds']:.1f} s)" if self.metric in content else ""
        shown["steps"] = f"{content['steps']:,} in {seconds}{last}, {rate} while training"
        machine = content["device"] if content["device"] != "cpu" else f"{content['threads']} thread(s)"
        shown["model"] = f"{content['architecture']}, {content['parameters']:,} weights"
        shown["ran on"] = f"backend {content['backend']}, {machine}"
        self.screen.show("", facts("", shown))
        show_verdict(self.screen, content["verdict"])
        if outcome.stopped:
            self.screen.note(f"go on with: recur resume {content['run']}")
            return
        what = " FILE" if outcome.task.verb == "predict" else ""
        self.screen.note(f"use it: recur {outcome.task.verb} {content['run']}{what}")
        if content["try"]:
            self.screen.note(f"try: {content['try']}")

    def _line(self) -> str:
        e = self.last
        line = f"step {e['step']:>6}  {e['seconds']:6.1f} s  {e['summary']}"
        if "train_loss" in e:
            line += f"  train loss {e['train_loss']:.3f}  {e['predictions_per_second']:,.0f} {self.unit}/s"
        if self.baseline is not None and better(self.metric, e[self.metric], self.baseline["value"]):
            line += f"  better than {self.baseline['name']}"
        return line

    def _screenful(self) -> Group:
        e = self.last
        numbers = {"step": f"{e.get('step', 0):,}, epoch {e.get('epoch', 0)}"}
        if "train_loss" in e:
            beside = f", perplexity {e['train_perplexity']:.3f}" if "train_perplexity" in e else ""
            numbers["loss"] = f"{e['train_loss']:.3f}{' nats' * bool(beside)}{beside} on what it learns from"
            numbers["gradient"] = f"norm {e['grad_norm']:.3g} before clipping, {e['clipped']:.0%} of steps clipped"
            numbers["speed"] = f"{e['predictions_per_second']:,.0f} {self.unit}/s"
        if "summary" in e:
            numbers["valid"] = " ".join(e["summary"].removeprefix("valid ").split())
        parts: list[RenderableType] = [self.bar, facts("", numbers)]
        if self.curve:
            plain = self.baseline
            drawn = draw(self.curve, self.metric, *((plain["value"], plain["name"]) if plain else ()))
            parts += [Text(), Text(drawn)]
        if e.get("sample"):
            parts += [Text(), Text(e["sample"], style="dim")]
        return Group(*parts)


def draw(curve: list[tuple[float, float]], metric: str, baseline: float | None = None, name: str = "baseline") -> str:
    """A metric over seconds, on a logarithmic scale where less of it is better, and the baseline's as a dotted line."""
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
    labels = [f"{show(metric, back(high - k * span / (HEIGHT - 1))):>9} " for k in range(HEIGHT)]
    lines = [label + "".join(cells) for label, cells in zip(labels, grid, strict=True)]
    if drawn and baseline is not None:
        lines[row(scale(baseline))] += f" {name} {show(metric, baseline)}"
    return "\n".join(lines)

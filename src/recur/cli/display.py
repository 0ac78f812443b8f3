"""Training as a person watches it: numbers, a curve against the n-gram, a sample. On a terminal it is redrawn in place;
elsewhere each measurement is a line."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from recur.cli.screen import Screen, facts

WIDTH, HEIGHT = 60, 8


class Display:
    """Hears the trainer's events."""

    def __init__(self, screen: Screen, metric: str, baseline: float | None) -> None:
        self.screen, self.metric, self.baseline = screen, metric, baseline
        self.live: Live | None = None
        self.bar = Progress(
            TextColumn("training"), BarColumn(40), TextColumn("{task.percentage:3.0f}%"), TimeElapsedColumn()
        )
        self.task = self.bar.add_task("", total=1.0)
        self.last: dict[str, Any] = {}
        self.curve: list[tuple[float, float]] = []
        self.sample = ""
        if screen.err.is_terminal and not screen.quiet:
            self.live = Live(console=screen.err, refresh_per_second=4, transient=True)

    def __enter__(self) -> Display:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live is not None:
            self.live.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        self.last |= event
        if event["event"] == "measured":
            self.curve.append((event["seconds"], event[self.metric]))
            if self.live is None:
                self.screen.note(self._line())
        if self.live is not None:
            self.bar.update(self.task, completed=event.get("progress", 0.0))
            self.live.update(self._screenful())

    def _line(self) -> str:
        e = self.last
        said = f"step {e['step']:>6}  {e['seconds']:6.1f} s  {e['said']}"
        if "train_loss" in e:
            said += f"  train {e.get('train_perplexity', e['train_loss']):8.3f}  {e['tokens_per_second']:,.0f} tokens/s"
        if self.baseline is not None and e[self.metric] < self.baseline:
            said += "  below the n-gram"
        return said

    def _screenful(self) -> Group:
        e = self.last
        numbers = {"step": f"{e.get('step', 0):,}, epoch {e.get('epoch', 0)}"}
        if "train_loss" in e:
            train = "train_perplexity" if "train_perplexity" in e else "train_loss"
            numbers[train.removeprefix("train_")] = f"{e[train]:.3f} on what it learns from"
            numbers["gradient"] = f"norm {e['grad_norm']:.3g} before clipping, {e['clipped']:.0%} of steps clipped"
            numbers["speed"] = f"{e['tokens_per_second']:,.0f} tokens/s"
        if "said" in e:
            numbers["valid"] = " ".join(e["said"].removeprefix("valid ").split())
        parts: list[Any] = [self.bar, facts("", numbers)]
        if self.curve:
            parts += [Text(), Text(draw(self.curve, self.baseline))]
        if self.sample:
            parts += [Text(), Text(self.sample, style="dim")]
        return Group(*parts)


def draw(curve: list[tuple[float, float]], baseline: float | None) -> str:
    """A metric over seconds, on a logarithmic scale, and the n-gram's as a dotted line."""
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
        lines[row(math.log(baseline))] += f" n-gram {baseline:.2f}"
    return "\n".join(lines)

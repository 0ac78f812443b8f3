"""Panels of the probes that belong to tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from recur.diagnostics.classes import SHOWN
from recur.diagnostics.theme import COLOURS, DIM, INK, Panel, Say, legend
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _confusion(axis: Axes, numbers: JsonObject, say: Say) -> None:
    table = np.array(numbers["confusion"], float)
    kept = sorted(np.argsort(-table.sum(1))[:SHOWN])
    shares = table[np.ix_(kept, kept)] / np.maximum(table[kept].sum(1, keepdims=True), 1)
    names = [str(numbers["classes"][k])[:10] for k in kept]
    axis.grid(False)
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            colour = COLOURS[0] if i == j else COLOURS[1]
            axis.scatter(j, i, s=260 * share, color=colour, marker="s")
    axis.set_xticks(range(len(kept)), names, rotation=90)
    axis.set_yticks(range(len(kept)), names)
    axis.set(xlim=(-0.6, len(kept) - 0.4), ylim=(len(kept) - 0.4, -0.6), xlabel=say("predicted"), ylabel=say("is"))
    axis.set_title(say("right (blue) and confused (orange)"))


def _calibration(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot([0, 100], [0, 100], color=DIM, lw=1.0, ls="--", label=say("as sure as right"))
    rows = numbers["calibration"]
    axis.plot([100 * r["sure"] for r in rows], [100 * r["right"] for r in rows], "o-", lw=1.6, label=say("measured"))
    axis.set(xlabel=say("how sure it is, per cent"), ylabel=say("how often right, per cent"), title=say("calibration"))
    legend(axis)


def _length(axis: Axes, numbers: JsonObject, say: Say) -> None:
    rows = numbers["rows"]
    axis.bar([f"{r['from']}–{r['to']}" for r in rows], [100 * r["right"] for r in rows], color=COLOURS[0])
    axis.set(
        xlabel=say("steps of the input"), ylabel=say("per cent right"), title=say("right by length"), ylim=(0, 100)
    )


def _attention(axis: Axes, numbers: JsonObject, say: Say) -> None:
    one = numbers["example"]
    weights = np.array(one["weights"])
    axis.grid(False)
    for t, row in enumerate(weights):
        for s, weight in enumerate(row):
            if weight > 0.02:
                axis.scatter(s, t, s=120 * weight, color=COLOURS[0], marker="s")
    axis.set_xticks(range(len(one["source"])), one["source"], fontsize=9)
    axis.set_yticks(range(len(one["target"])), one["target"], fontsize=9)
    axis.set(xlim=(-0.6, len(one["source"]) - 0.4), ylim=(len(one["target"]) - 0.4, -0.6))
    axis.set(xlabel=say("source"), ylabel=say("what was written"), title=say("where each symbol looked"))


def _coverage(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for right, label in ((True, "right outputs"), (False, "wrong outputs")):
        mine = [k for k, value in enumerate(numbers["right"]) if value is right]
        axis.plot(
            [100 * numbers["places"][k] for k in mine], [100 * numbers["coverage"][k] for k in mine],
            "o" if right else "x", ms=5, ls="", label=say(label),
        )  # fmt: skip
    axis.set(xlabel=say("per cent of the source looked at by a symbol"), ylabel=say("per cent covered"))
    axis.set_title(say("sharpness and coverage"))
    legend(axis)


def _tree_gradient(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.semilogy(numbers["depths"], np.maximum(numbers["norms"], 1e-12), "o-", ms=4, lw=1.6)
    axis.set(xlabel=say("levels below the root"), ylabel="‖∂L / ∂x‖", title=say("gradient at leaves by depth"))


def _tree_right(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot(numbers["heights"], [100 * value for value in numbers["right"]], "o-", ms=4, lw=1.6)
    axis.set(xlabel=say("levels above the leaves"), ylabel=say("per cent right"), title=say("right nodes by height"))


def _residuals(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot(numbers["residuals"], lw=1.0, color=COLOURS[0])
    axis.axhline(0, color=DIM, lw=1.0, ls="--")
    axis.set(
        xlabel=say("forecast after forecast"), ylabel=say("what came − median"), title=say("residuals, one step ahead")
    )


def _by_step(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot(range(1, len(numbers["by_step"]) + 1), numbers["by_step"], "o-", ms=4, lw=1.6)
    axis.set(
        xlabel=say("steps ahead"),
        ylabel=say("root mean squared error"),
        title=say("error by steps ahead"),
        ylim=(0, None),
    )


def _bands(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot([0, 100], [0, 100], color=DIM, lw=1.0, ls="--", label=say("as it says"))
    x, y = ([100 * value for value in numbers[name]] for name in ("quantiles", "below"))
    axis.plot(x, y, "o-", ms=5, lw=1.6, label=say("measured"))
    axis.set(
        xlabel=say("quantile, per cent"), ylabel=say("values below it, per cent"), title=say("calibration of bands")
    )
    legend(axis)


def _features(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.bar(range(1, len(numbers["features"]) + 1), [100 * v for v in numbers["features"]], color=COLOURS[0])
    axis.set(xlabel=say("feature"), ylabel=say("per cent of the most heard"), title=say("features by gradient"))


def _sentence(axis: Axes, numbers: JsonObject, say: Say) -> None:
    values = numbers["values"]
    axis.bar(range(len(values)), values, color=COLOURS[0], width=0.8)
    mean = sum(values) / len(values)
    axis.axhline(mean, color=DIM, lw=1.0, ls="--")
    axis.set_ylim(0, 1)
    few = len(values) <= 60
    axis.set_xticks(range(len(values)) if few else [], [t.replace("\n", "↵") for t in numbers["tokens"]] if few else [])
    axis.tick_params(axis="x", labelsize=9, labelcolor=INK, rotation=90 if max(map(len, numbers["tokens"])) > 1 else 0)
    axis.set(ylabel=say("1 keeps, 0 forgets"))
    axis.set_title(say("gate {gate} by token; dashed: its mean").format(gate=numbers["gate"]))


TASK_PANELS: dict[str, Callable[[JsonObject], Sequence[Panel]]] = {
    "classes": lambda n: [_confusion, *([_calibration] if "calibration" in n else [])],
    "length": lambda n: [_length],
    "attention": lambda n: [_attention, _coverage],
    "tree depth": lambda n: ([_tree_gradient] if n["norms"] else []) + ([_tree_right] if n["right"] else []),
    "residuals": lambda n: ([_residuals] if "residuals" in n else []) + [_by_step],
    "bands": lambda n: [_bands],
    "inputs": lambda n: [_features],
    "sentence": lambda n: [_sentence],
}

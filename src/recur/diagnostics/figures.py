"""Style of figures: colours that the report also has in dark mode, and type that can be read on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from recur.diagnostics.gradient_flow import MISSING
from recur.diagnostics.jacobian import complex_eigenvalues
from recur.diagnostics.task_probes import MAX_SHOWN_CLASSES
from recur.i18n import Language, translate
from recur.tasks.common.metrics import metric_of
from recur.utils.files import new_figure
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from recur.diagnostics.report import Report

COLOURS = ("#2f6fde", "#d9622b", "#1f9d7a", "#a44fc4", "#b8860b", "#6b7280", "#c2385a", "#3a9ad9")
IN_THE_DARK = ("#7aa7ff", "#ff9a63", "#4fd1a5", "#d58cf0", "#e3b341", "#a9b4c4", "#ff7d9c", "#7cc8f5")
"""The same ones on a dark page."""
INK, DIM, LINE = "#1c2430", "#5d6877", "#d5d9df"
SIZE = 10.0
"""Of type, in points."""

Say = Callable[[str], str]
"""A label in the language of the figure."""
Panel = Callable[["Axes", JsonObject, Say], None]


def dress(axis: Axes) -> None:
    axis.set_prop_cycle(color=COLOURS)
    axis.grid(True, lw=0.6, color=LINE)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(DIM)
    axis.tick_params(which="both", colors=DIM, labelsize=SIZE - 1)
    axis.xaxis.label.set(color=INK, fontsize=SIZE)
    axis.yaxis.label.set(color=INK, fontsize=SIZE)
    axis.title.set(color=INK, fontsize=SIZE + 1)


SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain_powers(axis: Axes) -> None:
    """10⁻⁴ in letters on axes of powers: matplotlib sets them as formulas, a quarter of a report's time for figures."""
    from matplotlib.ticker import LogFormatterSciNotation

    class Letters(LogFormatterSciNotation):
        def __call__(self, x: float, pos: int | None = None) -> str:
            found = re.fullmatch(r"\$\\mathdefault{(.*?)}\$", super().__call__(x, pos))
            plain = "" if found is None else found[1].replace(r"\times", "×")
            return re.sub(r"\^{(-?\d+)}", lambda power: power[1].translate(SUPERSCRIPTS), plain)

    for one in (axis.xaxis, axis.yaxis):
        if one.get_scale() == "log":
            base = one.get_transform().base  # type: ignore[attr-defined]
            one.set_major_formatter(Letters(base))
            one.set_minor_formatter(Letters(base, labelOnlyBase=False))


def legend(axis: Axes, place: Literal["best", "upper left", "lower left", "beside"] = "best") -> None:
    """Add a legend if there is more than one line; `beside` puts it next to the axes."""
    if len(axis.get_legend_handles_labels()[1]) > 1:
        made = axis.legend(fontsize=SIZE - 1, labelcolor=INK, frameon=False, loc=place if place != "beside" else "best")
        if place == "beside":
            made.set_loc("center left")
            made.set_bbox_to_anchor((1.0, 0.5))


def mark(axis: Axes, at: float | None, label: str, *, foot: bool = False) -> None:
    """A vertical line with its name at its head, or at its foot where curves are at the head."""
    if at is None:
        return
    axis.axvline(at, color=INK, lw=1.0, ls=":")
    axis.annotate(
        label,
        (at, 0.02 if foot else 1),
        xycoords=("data", "axes fraction"),
        color=INK,
        fontsize=SIZE - 1,
        rotation=90,
        ha="right",
        va="bottom" if foot else "top",
    )


def level(axis: Axes, at: float, label: str, *, above: bool = False) -> None:
    """A horizontal line with its name below or above its right end."""
    axis.axhline(at, color=DIM, lw=1.0, ls="--")
    axis.annotate(
        label,
        (1, at),
        (-2, 2 if above else -2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=DIM,
        fontsize=SIZE - 1,
        ha="right",
        va="bottom" if above else "top",
    )


def plot(axis: Axes, x: Sequence[float], y: Sequence[float | None], label: str) -> None:
    """A curve with gaps where nothing was measured."""
    axis.plot(x, [np.nan if v is None else v for v in y], "o-", ms=3, lw=1.6, label=label)


SMALLEST = 1e-12
"""Singular values below it are the rounding's."""
SPAN = 0.3
"""Nats that an axis of losses by context spans, at least."""


def canvas(columns: int = 1, width: float = 6.4, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure in the colours of the report, and its axes side by side."""
    figure, axes = new_figure(columns=columns, width=width, height=height)
    for axis in axes:
        dress(axis)
    return figure, axes


def _positive(values: Sequence[float]) -> list[float]:
    return [value if value > 0 else np.nan for value in values]


def _flow(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for name, part in numbers["modes"]["full"].items():
        axis.semilogy(_positive(part["norms"]), lw=1.6, label=say(name))
    mark(axis, numbers.get("window"), say("window {steps}").format(steps=numbers.get("window")), foot=True)
    axis.set(xlabel=say("steps back, T − t"), ylabel="‖∂L_T / ∂s_t‖", title=say("gradient by distance"))
    legend(axis)


def _flow_modes(axis: Axes, numbers: JsonObject, say: Say) -> None:
    first = next(iter(numbers["modes"]["full"]))
    for mode, found in numbers["modes"].items():
        axis.semilogy(_positive(found[first]["norms"]), lw=1.6, label=say(mode))
    axis.set(xlabel=say("steps back, T − t"), ylabel="‖∂L_T / ∂s_t‖")
    axis.set_title(say("truncation modes, {name}").format(name=say(first)))
    legend(axis)


def _terms(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for layer, found in numbers.items():
        for letter, part in sorted(found.items(), reverse=True):  # W before U
            axis.semilogy(_positive(part["norms"]), lw=1.6, label=f"{letter}, {say(layer)}")
    axis.set(xlabel=say("steps back, T − t"), ylabel="‖G_t‖", title=say("contribution of each step to the gradient"))
    legend(axis)


def _missing(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for layer, found in numbers.items():
        for letter, part in sorted(found.items(), reverse=True):
            k = np.arange(1, len(part["missing"]) + 1)
            axis.plot(k, 100 * np.array(part["missing"]), lw=1.6, label=f"{letter}, {say(layer)}")
    level(axis, 100 * MISSING, f"{MISSING:.0%}", above=True)
    axis.set(xlabel=say("number of last steps"), ylabel=say("per cent missing"), xscale="log")
    axis.set_title(say("share of the gradient missing"))
    legend(axis)


def _singular(axis: Axes, numbers: JsonObject, say: Say) -> None:
    layer, part = next(iter(numbers.items()))
    for k, values in part["singular_values"].items():
        axis.semilogy([value if value > SMALLEST else np.nan for value in values], lw=1.6, label=f"k = {k}")
    axis.set(xlabel=say("direction, largest first"), ylabel=say("factor over k steps"))
    axis.set_title(say("∂s_t / ∂s_(t−k), {name}").format(name=say(layer)))
    legend(axis)


def _exponents(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for name, part in numbers.items():
        axis.plot(part["lyapunov"], "o-", ms=4, lw=1.6, label=say(name))
    level(axis, 0, say("above: chaos"), above=True)
    axis.margins(y=0.15)
    axis.set(xlabel=say("direction, largest first"), ylabel="λ", title=say("Lyapunov exponents"))
    legend(axis)


def _eigenvalues(axis: Axes, numbers: JsonObject, say: Say) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axis.plot(np.cos(angle), np.sin(angle), color=DIM, lw=1.0, ls="--")
    for colour, (name, points) in zip(COLOURS, complex_eigenvalues(numbers).items(), strict=False):
        axis.plot(points.real, points.imag, ".", ms=5, color=colour, label=say(name))
    axis.set(title=say("eigenvalues of W, and the unit circle"), xlabel=say("real"), ylabel=say("imaginary"))
    left, right = axis.get_xlim()
    axis.update_datalim([(left - (right - left) / 2, 0.0)])  # room for the legend
    axis.autoscale_view()
    axis.set_aspect("equal", adjustable="datalim")
    legend(axis, "upper left")


def _powers(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for colour, name in zip(COLOURS, complex_eigenvalues(numbers), strict=False):
        powers = numbers[name]["powers"]
        axis.semilogy([int(t) for t in powers], list(powers.values()), "o-", ms=4, color=colour, label=say(name))
    level(axis, 0.01, "1 %", above=True)
    axis.set(title=say("‖Wᵗ‖: norm of the powers of W"), xlabel=say("steps t"), ylabel="‖Wᵗ‖")
    legend(axis)


def _paths(layer: str, axis: Axes, numbers: JsonObject, say: Say) -> None:
    for key, label in (("total", "all paths"), ("memory", "the memory alone"), ("others", "other paths")):
        axis.semilogy(_positive(numbers[layer][key]), lw=1.6, label=say(label))
    axis.set(title=say(layer), xlabel=say("steps back, T − t"), ylabel="‖∂L_T / ∂m_t‖")
    legend(axis)


def _gate(layer: str, gate: str, axis: Axes, numbers: JsonObject, say: Say) -> None:
    part = numbers[layer][gate]
    low, high = part["range"]
    edges = np.linspace(low, high, len(part["histogram"]) + 1)
    shares = [100 * share for share in part["histogram"]]
    axis.bar(
        edges[:-1], shares, width=np.diff(edges), align="edge", color=COLOURS[list(numbers[layer]).index(gate) % 8]
    )
    axis.locator_params(axis="x", nbins=5)
    axis.set(xlabel=say("value of the gate"), ylabel=say("per cent of values"))
    axis.set_title(say("gate {gate}, {name}").format(gate=gate, name=say(layer)))


def _losses(axis: Axes, numbers: JsonObject, say: Say) -> None:
    learned = "what it learns from, with dropout" if numbers.get("dropout") else "what it learns from"
    for name, label in (("train_loss", learned), ("valid_loss", "what it has not seen")):
        plot(axis, numbers["step"], numbers[name], say(label))
    axis.set(xlabel=say("step of training"), ylabel=say("nats"), title=say("loss"))
    legend(axis)


def _curve(axis: Axes, numbers: JsonObject, say: Say) -> None:
    plot(axis, numbers["step"], numbers["curve"]["values"], "")
    axis.set(xlabel=say("step of training"), title=say(metric_of(numbers["curve"]["name"]).words))


def _norms(axis: Axes, numbers: JsonObject, say: Say) -> None:
    plot(axis, numbers["step"], numbers["grad_norm"], say("gradient norm"))
    if numbers.get("clip"):
        level(axis, numbers["clip"], say("clipped above θ = {theta:g}").format(theta=numbers["clip"]))
        axis.margins(y=0.12)
    axis.set(xlabel=say("step of training"), ylabel="‖g‖", title=say("gradient norm before clipping, mean"))


def _clipped(axis: Axes, numbers: JsonObject, say: Say) -> None:
    shares = [None if v is None else 100 * v for v in numbers["clipped"]]
    plot(axis, numbers["step"], shares, say("steps clipped"))
    axis.set(xlabel=say("step of training"), ylabel=say("per cent"), title=say("steps clipped"), ylim=(-2, 102))


def _nudged(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.loglog(numbers["rates"], [max(v - numbers["learned"], 1e-6) for v in numbers["nudged"]], "o-", ms=5, lw=1.6)
    axis.axhline(numbers["limit"], color=DIM, lw=1.0, ls="--")
    axis.annotate(
        say("too coarse above"), (min(numbers["rates"]), numbers["limit"]), color=DIM, fontsize=9, va="bottom"
    )
    mark(axis, max(numbers["rates"]), say("this run"), foot=True)
    axis.set(xlabel=say("learning rate"), ylabel=say("nats lost"), title=say("loss after a random step"))


def _context(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.semilogx(numbers["lengths"], numbers["losses"], "o-", ms=5, lw=1.6, base=2)
    axis.set_xticks(numbers["lengths"], [str(n) for n in numbers["lengths"]])
    axis.minorticks_off()
    mark(axis, numbers.get("window"), say("window {steps}").format(steps=numbers.get("window")))
    low, high = min(numbers["losses"]), max(numbers["losses"])
    margin = max(SPAN - (high - low), 0.1 * (high - low)) / 2  # a difference of nothing is not to look like one
    axis.set_ylim(low - margin, high + margin)
    axis.set(xlabel=say("tokens of context"), ylabel=say("nats per token"), title=say("loss by context"))


def _curves(lines: Mapping[str, str], title: str, x: str, y: str, axis: Axes, numbers: JsonObject, say: Say) -> None:
    for name, label in lines.items():
        axis.plot(numbers[name], lw=1.6, label=say(label))
    axis.set(title=say(title), xlabel=say(x), ylabel=say(y))
    legend(axis)


def _states(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for name, norms in numbers.items():
        axis.plot(norms, lw=1.0, label=say(name))
    axis.set(title=say("size of the state"), xlabel=say("step t"), ylabel="‖s_t‖")
    legend(axis)


def _copying(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for name, label in (("generated", "what it writes"), ("held_out", "new text")):
        axis.plot(numbers["orders"], [100 * share for share in numbers[name]], "o-", ms=4, lw=1.6, label=say(label))
    axis.set(title=say("n-grams that the training text has"), xlabel="n", ylabel=say("per cent"))
    legend(axis)


def panels_of(probe: str, numbers: JsonObject) -> Sequence[Panel]:
    """Return the panels of a probe that has numbers to draw."""
    if probe not in PANELS or not numbers or (probe == "training" and not numbers["step"]):
        return []
    return PANELS[probe](numbers)


def figure_of(probe: str, numbers: JsonObject, language: Language = "en") -> Figure | None:
    """The panels of a probe side by side; None where there is nothing to draw."""
    panels = panels_of(probe, numbers)
    if not panels:
        return None
    figure, axes = canvas(len(panels), width=4.4 * len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        panel(axis, numbers, lambda text: translate(text, language))
    return figure


def figures(report: Report, language: Language = "en") -> dict[str, Figure]:
    """One for each probe that has numbers to draw, in the order of the report."""
    found = {f.probe: figure_of(f.probe, report.numbers(f.probe), language) for f in report.findings}
    return {probe: figure for probe, figure in found.items() if figure is not None}


def _confusion(axis: Axes, numbers: JsonObject, say: Say) -> None:
    table = np.array(numbers["confusion"], float)
    kept = sorted(np.argsort(-table.sum(1))[:MAX_SHOWN_CLASSES])
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
    axis.set_title(say("correct (blue) and confused (orange)"))


def _calibration(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot([0, 100], [0, 100], color=DIM, lw=1.0, ls="--", label=say("perfectly calibrated"))
    rows = numbers["calibration"]
    axis.plot([100 * r["sure"] for r in rows], [100 * r["right"] for r in rows], "o-", lw=1.6, label=say("measured"))
    axis.set(xlabel=say("confidence, per cent"), ylabel=say("accuracy, per cent"), title=say("calibration"))
    legend(axis)


def _length(axis: Axes, numbers: JsonObject, say: Say) -> None:
    rows = numbers["rows"]
    axis.bar([f"{r['from']}–{r['to']}" for r in rows], [100 * r["right"] for r in rows], color=COLOURS[0])
    axis.set(
        xlabel=say("steps of the input"), ylabel=say("per cent right"), title=say("accuracy by length"), ylim=(0, 100)
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
    axis.set(xlabel=say("source"), ylabel=say("output"), title=say("attention weights"))


def _coverage(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for right, label in ((True, "right outputs"), (False, "wrong outputs")):
        mine = [k for k, value in enumerate(numbers["right"]) if value is right]
        axis.plot(
            [100 * numbers["places"][k] for k in mine], [100 * numbers["coverage"][k] for k in mine],
            "o" if right else "x", ms=5, ls="", label=say(label),
        )  # fmt: skip
    axis.set(xlabel=say("per cent of the source attended to"), ylabel=say("per cent covered"))
    axis.set_title(say("sharpness and coverage"))
    legend(axis)


def _tree_gradient(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.semilogy(numbers["depths"], np.maximum(numbers["norms"], 1e-12), "o-", ms=4, lw=1.6)
    axis.set(xlabel=say("levels below the root"), ylabel="‖∂L / ∂x‖", title=say("gradient at leaves by depth"))


def _tree_right(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot(numbers["heights"], [100 * value for value in numbers["right"]], "o-", ms=4, lw=1.6)
    axis.set(xlabel=say("levels above the leaves"), ylabel=say("per cent right"), title=say("accuracy by height"))


def _residuals(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.plot(numbers["residuals"], lw=1.0, color=COLOURS[0])
    axis.axhline(0, color=DIM, lw=1.0, ls="--")
    axis.set(
        xlabel=say("forecast after forecast"), ylabel=say("observed − median"), title=say("residuals, one step ahead")
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
    axis.plot([0, 100], [0, 100], color=DIM, lw=1.0, ls="--", label=say("nominal"))
    x, y = ([100 * value for value in numbers[name]] for name in ("quantiles", "below"))
    axis.plot(x, y, "o-", ms=5, lw=1.6, label=say("measured"))
    axis.set(
        xlabel=say("quantile, per cent"),
        ylabel=say("values below it, per cent"),
        title=say("calibration of the prediction intervals"),
    )
    legend(axis)


def _features(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.bar(range(1, len(numbers["features"]) + 1), [100 * v for v in numbers["features"]], color=COLOURS[0])
    axis.set(xlabel=say("feature"), ylabel=say("per cent of the most used"), title=say("features by gradient"))


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


PANELS: dict[str, Callable[[JsonObject], Sequence[Panel]]] = {
    "training": lambda n: [_losses, _norms, _clipped] if any(n["valid_loss"]) else [_curve],
    "rate": lambda n: [_nudged],
    "gradient flow": lambda n: [_flow, _flow_modes],
    "gradient terms": lambda n: [_terms, _missing],
    "Jacobians": lambda n: [_singular, _exponents],
    "spectrum": lambda n: [_eigenvalues, _powers],
    "memory path": lambda n: [partial(_paths, layer) for layer in n],
    "saturation": lambda n: [partial(_gate, layer, gate) for layer, gates in n.items() for gate in gates],
    "states": lambda n: [_states],
    "window": lambda n: [_context],
    "context": lambda n: [_context],
    "position": lambda n: [
        partial(
            _curves,
            {"zero": "state of zeros", "carried": "carried state"},
            "loss along a window",
            "place in the window",
            "nats per token",
        )
    ],
    "copying": lambda n: [_copying],
    "stationarity": lambda n: [
        partial(_curves, {"by_time": "loss"}, "loss along the text", "twentieth of the text", "nats per token")
    ],
    "classes": lambda n: [_confusion, *([_calibration] if "calibration" in n else [])],
    "length": lambda n: [_length],
    "attention": lambda n: [_attention, _coverage],
    "tree depth": lambda n: ([_tree_gradient] if n["norms"] else []) + ([_tree_right] if n["right"] else []),
    "residuals": lambda n: ([_residuals] if "residuals" in n else []) + [_by_step],
    "bands": lambda n: [_bands],
    "inputs": lambda n: [_features],
    "sentence": lambda n: [_sentence],
}


def figure_labels(figure: Figure) -> dict[str, str]:
    """Return the texts of a figure by what they read; the values are messages where the figure was drawn with some."""
    from matplotlib.text import Text

    return {text.get_text(): text.get_text() for text in figure.findobj(Text)}

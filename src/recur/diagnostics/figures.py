"""Figures, a panel or more for each probe that has something to draw: from its numbers alone, so that each works in a
notebook.

    measured = gradient_flow(Subject.of(model, text))
    figure_of("gradient flow", measured.numbers)

A panel draws on one pair of axes, has a title of its own, and one legend whose colours are its lines'. In a notebook
the panels of a probe stand side by side in one figure; on the report's page each is a figure, so that a phone can stack
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from recur.diagnostics.spectrum import complex_eigenvalues
from recur.diagnostics.task_figures import TASK_PANELS
from recur.diagnostics.terms import MISSING
from recur.diagnostics.theme import COLOURS, DIM, Panel, Say, dress, legend, level, mark, plot
from recur.i18n import Language, in_language
from recur.tasks.metrics import metric_of
from recur.utils.plotting import new_figure
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from recur.diagnostics.report import Report

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
    axis.set_title(say("ways to cut it, of {name}").format(name=say(first)))
    legend(axis)


def _terms(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for layer, found in numbers.items():
        for letter, part in sorted(found.items(), reverse=True):  # W before U
            axis.semilogy(_positive(part["norms"]), lw=1.6, label=f"{letter}, {say(layer)}")
    axis.set(xlabel=say("steps back, T − t"), ylabel="‖G_t‖", title=say("what each step adds to the gradient"))
    legend(axis)


def _missing(axis: Axes, numbers: JsonObject, say: Say) -> None:
    for layer, found in numbers.items():
        for letter, part in sorted(found.items(), reverse=True):
            k = np.arange(1, len(part["missing"]) + 1)
            axis.plot(k, 100 * np.array(part["missing"]), lw=1.6, label=f"{letter}, {say(layer)}")
    level(axis, 100 * MISSING, f"{MISSING:.0%}", above=True)
    axis.set(xlabel=say("last steps taken"), ylabel=say("per cent missing"), xscale="log")
    axis.set_title(say("missing of the gradient"))
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
    axis.set(title=say("‖Wᵗ‖: what W alone leaves"), xlabel=say("steps t"), ylabel="‖Wᵗ‖")
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
    axis.set(xlabel=say("learning rate"), ylabel=say("nats lost"), title=say("what a random step costs"))


def _context(axis: Axes, numbers: JsonObject, say: Say) -> None:
    axis.semilogx(numbers["lengths"], numbers["losses"], "o-", ms=5, lw=1.6, base=2)
    axis.set_xticks(numbers["lengths"], [str(n) for n in numbers["lengths"]])
    axis.minorticks_off()
    mark(axis, numbers.get("window"), say("window {steps}").format(steps=numbers.get("window")))
    low, high = min(numbers["losses"]), max(numbers["losses"])
    margin = max(SPAN - (high - low), 0.1 * (high - low)) / 2  # a difference of nothing is not to look like one
    axis.set_ylim(low - margin, high + margin)
    axis.set(xlabel=say("tokens of context"), ylabel=say("nats a token"), title=say("loss by context"))


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
            "nats a token",
        )
    ],
    "copying": lambda n: [_copying],
    "stationarity": lambda n: [
        partial(_curves, {"by_time": "loss"}, "loss along the text", "twentieth of the text", "nats a token")
    ],
    **TASK_PANELS,
}


def panels_of(probe: str, numbers: JsonObject) -> Sequence[Panel]:
    """Those of a probe that has numbers to draw."""
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
        panel(axis, numbers, lambda text: in_language(text, language))
    return figure


def figures(report: Report, language: Language = "en") -> dict[str, Figure]:
    """One for each probe that has numbers to draw, in the order of the report."""
    found = {f.probe: figure_of(f.probe, report.numbers(f.probe), language) for f in report.findings}
    return {probe: figure for probe, figure in found.items() if figure is not None}

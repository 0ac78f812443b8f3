"""Figures, one for each probe that has something to draw: from its numbers alone, so that each works in a notebook.

measured = gradient_flow(Subject.of(model, text))
flow_figure(measured.numbers)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from recur.plotting import new_figure
from recur.probes.spectrum import complex_eigenvalues
from recur.probes.terms import MISSING
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from recur.probes.report import Report

COLOURS = ("#2f6fde", "#d9622b", "#1f9d7a", "#a44fc4", "#b8860b", "#6b7280", "#c2385a", "#3a9ad9")
STYLES = ("-", "--", ":")

Curve = Sequence[float | None]
"""None where nothing was measured."""


def canvas(columns: int = 1, width: float = 6.4, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure in the colours of the report, and its axes side by side."""
    figure, axes = new_figure(columns=columns, width=width, height=height)
    for axis in axes:
        axis.set_prop_cycle(color=COLOURS)
        axis.grid(True, lw=0.4, alpha=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def flow_figure(numbers: JsonObject) -> Figure:
    """Norms against the lag, full beside truncated and randomized."""
    figure, (axis,) = canvas()
    for style, (mode, found) in zip(STYLES, numbers["modes"].items(), strict=False):
        for colour, (name, part) in zip(COLOURS, found.items(), strict=False):
            norms = np.array(part["norms"])
            norms[norms <= 0] = np.nan
            axis.semilogy(norms, style, color=colour, lw=1.4, label=name if mode == "full" else None)
    for style, mode in zip(STYLES[1:], list(numbers["modes"])[1:], strict=False):
        axis.plot([], [], style, color="#6b7280", label=mode)
    axis.set(xlabel="lag T − t", ylabel="‖∂L_T / ∂s_t‖")
    axis.legend(fontsize=8)
    return figure


def terms_figure(numbers: JsonObject) -> Figure:
    """The norm of every step's term, and how wrong the gradient is without those further back."""
    figure, (left, right) = canvas(2)
    for colour, (layer, found) in zip(COLOURS, numbers.items(), strict=False):
        for style, (letter, part) in zip(STYLES, sorted(found.items(), reverse=True), strict=False):  # W before U
            norms = np.array(part["norms"])
            norms[norms <= 0] = np.nan
            left.semilogy(norms, style, color=colour, lw=1.4, label=f"{letter}, {layer}")
            right.plot(np.arange(1, len(norms) + 1), part["missing"], style, color=colour, lw=1.4)
    left.set(xlabel="lag T − t", ylabel="‖G_t‖", title="terms of the gradient")
    left.legend(fontsize=8)
    right.axhline(MISSING, color="#6b7280", lw=0.8)
    right.set(xlabel="last k steps", ylabel="share", title="missing of ∂L/∂W", xscale="log")
    return figure


def jacobian_figure(numbers: JsonObject) -> Figure:
    """Singular values of ∂s_t/∂s_{t−k} for several k, and Lyapunov exponents."""
    figure, (left, right) = canvas(2)
    layer, part = next(iter(numbers.items()))
    for k, values in part["singular_values"].items():
        left.semilogy(np.maximum(values, 1e-20), label=f"k = {k}")
    left.set(xlabel="index", ylabel="singular value", title=f"∂s_t / ∂s_(t−k), {layer}")
    left.legend(fontsize=8)
    for name, part in numbers.items():
        right.plot(part["lyapunov"], "o-", ms=3, label=name)
    right.axhline(0, color="#6b7280", lw=0.8)
    right.set(xlabel="index", title="Lyapunov exponents")
    right.legend(fontsize=8)
    return figure


def spectrum_figure(numbers: JsonObject) -> Figure:
    """Eigenvalues of W on the unit circle, and ‖Wᵗ‖ as t grows."""
    figure, (left, right) = canvas(2)
    angle = np.linspace(0, 2 * np.pi, 200)
    left.plot(np.cos(angle), np.sin(angle), color="#6b7280", lw=0.8)
    for colour, (name, points) in zip(COLOURS, complex_eigenvalues(numbers).items(), strict=False):
        left.plot(points.real, points.imag, ".", ms=3, color=colour)
        powers = numbers[name]["powers"]
        right.semilogy([int(t) for t in powers], list(powers.values()), "o-", ms=3, color=colour, label=name)
    left.set(title="eigenvalues of W", xlabel="real", ylabel="imaginary")
    left.set_aspect("equal", adjustable="datalim")
    right.set(title="‖Wᵗ‖₂", xlabel="t")
    right.legend(fontsize=7)
    return figure


def path_figure(numbers: JsonObject) -> Figure:
    """The memory's own path, the others, and their sum, by lag."""
    figure, axes = canvas(len(numbers))
    for axis, (layer, part) in zip(axes, numbers.items(), strict=True):
        for key, label in (("total", "all paths"), ("memory", "the memory alone"), ("others", "other paths")):
            curve = np.array(part[key])
            curve[curve <= 0] = np.nan
            axis.semilogy(curve, label=label)
        axis.set(title=layer, xlabel="lag T − t")
    axes[0].set_ylabel("‖∂L_T / ∂m_t‖")
    axes[0].legend(fontsize=8)
    return figure


def gate_figure(numbers: JsonObject) -> Figure:
    """The distribution of each gate, layer by layer."""
    gates = [(layer, gate, part) for layer, found in numbers.items() for gate, part in found.items()]
    figure, axes = canvas(len(gates), width=max(6.4, 1.6 * len(gates)), height=2.2)
    for k, (axis, (layer, gate, part)) in enumerate(zip(axes, gates, strict=True)):
        low, high = part["range"]
        edges = np.linspace(low, high, len(part["histogram"]) + 1)
        axis.bar(edges[:-1], part["histogram"], width=np.diff(edges), align="edge", color=COLOURS[k % len(COLOURS)])
        axis.set_title(f"{gate}, {layer}", fontsize=9)
        axis.set_yticks([])
    return figure


def curves_figure(lines: Mapping[str, Curve], x: Sequence[float] | None = None, **labels: str) -> Figure:
    """Several curves on one pair of axes."""
    figure, (axis,) = canvas()
    for name, values in lines.items():
        axis.plot(np.arange(len(values)) if x is None else x, [np.nan if v is None else v for v in values], label=name)
    axis.set(**labels)
    axis.legend(fontsize=8)
    return figure


def training_figure(numbers: JsonObject) -> Figure:
    """Losses on the left; the gradient's norm and the share of clipped steps on the right."""
    figure, (left, right) = canvas(2)
    for name in ("train_loss", "valid_loss"):
        left.plot(numbers["step"], [np.nan if v is None else v for v in numbers[name]], label=name.replace("_", " "))
    left.set(xlabel="step", ylabel="nats a token")
    left.legend(fontsize=8)
    for name, label in (("grad_norm", "gradient norm"), ("clipped", "share clipped")):
        right.plot(numbers["step"], [np.nan if v is None else v for v in numbers[name]], label=label)
    right.set(xlabel="step")
    right.legend(fontsize=8)
    return figure


def context_figure(numbers: JsonObject) -> Figure:
    figure, (axis,) = canvas()
    axis.semilogx(numbers["lengths"], numbers["losses"], "o-", ms=4, base=2)
    axis.set(xlabel="tokens of context", ylabel="nats a token")
    return figure


FIGURES: dict[str, Callable[[JsonObject], Figure]] = {
    "training": training_figure,
    "gradient flow": flow_figure,
    "gradient terms": terms_figure,
    "Jacobians": jacobian_figure,
    "spectrum": spectrum_figure,
    "memory path": path_figure,
    "saturation": gate_figure,
    "states": lambda n: curves_figure(n, xlabel="t", ylabel="‖s_t‖"),
    "context": context_figure,
    "position": lambda n: curves_figure(
        {"zero state": n["zero"], "carried state": n["carried"]},
        xlabel="position in the window",
        ylabel="nats a token",
    ),
    "copying": lambda n: curves_figure(
        {"generated": n["generated"], "held out": n["held_out"]},
        n["orders"],
        xlabel="n",
        ylabel="share in the training text",
    ),
    "stationarity": lambda n: curves_figure(
        {"error": n["by_time"]}, xlabel="twentieth of the text", ylabel="nats a token"
    ),
}


def figures(report: Report) -> dict[str, Figure]:
    """One for each probe that has numbers to draw, in the order of the report."""
    found = {}
    for finding in report.findings:
        numbers = report.numbers(finding.probe)
        if finding.probe in FIGURES and numbers and not (finding.probe == "training" and not numbers["step"]):
            found[finding.probe] = FIGURES[finding.probe](numbers)
    return found

"""recur cell: check and benchmark of a custom cell."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from cyclopts import App

from recur.cli.options import Common
from recur.cli.screen import Screen, facts, table
from recur.errors import CellError

if TYPE_CHECKING:
    from recur.utils.types import JsonObject

verb = App(
    help_epilogue="""Examples:
  recur cell mine.py:LeakyGRU
  recur cell mine.py:LeakyGRU:rate=0.3 --json
  recur cell slstm --no-speed"""
)


@verb.default
def cell(
    name: str,
    /,
    *,
    speed: bool = True,
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Check a custom cell: interface, gradients against central differences, backends, derivative, speed and memory
    compared with the GRU, and gradient flow.

    Parameters
    ----------
    name
        file.py:Class, or the name of a registered cell; options follow a colon, as in elman:activation=relu.
    speed
        Measure time and memory compared with the GRU.
    """
    from recur.cells import make_cell
    from recur.diagnostics.cell_check import examine

    screen = Screen(common)
    # Standard output is ours: what the cell itself prints is a note, and where it wants to leave is an error of it.
    try:
        with screen.busy("checking and measuring"), redirect_stdout(sys.stderr):
            found = examine(make_cell(name), speed=speed, seed=common.seed)
    except SystemExit as error:
        raise CellError(f"{name}: its step leaves the program (SystemExit: {error})") from None
    _show(screen, found)
    screen.result(found)
    problems = found["gradients"]["problems"]
    if problems:
        raise CellError(f"{found['cell']}: its gradients are wrong: {'; '.join(problems)}")


def _show(screen: Screen, found: JsonObject) -> None:
    screen.show(facts(found["cell"], _facts(found)), "")
    backends = {name: said if said == "runs" else f"no: {said}" for name, said in found["backends"].items()}
    backends[found["auto"]] += "; auto takes it"
    screen.show(facts("backends", backends), "")
    parts = (
        ("normal form of its matrix state, for all tokens at once", found.get("matrix")),
        ("equations as read", found.get("equations")),
        ("derivative", found.get("derivative")),
    )
    for title, lines in parts:
        if lines:
            about = "; g: gradient of the states after the step" if title == "derivative" else ""
            screen.show(f"{title}{about}", *(f"  {line}" for line in lines), "")
    if "speed" in found:
        _show_speed(screen, found["speed"])
    rows = {name: f"× {part['decay']:.3g} a step, {part['reach']}" for name, part in found["flow"].items()}
    screen.show(facts("gradient flow of the untrained cell, by state", rows))


def _facts(found: JsonObject) -> dict[str, str]:
    gradients = found["gradients"]
    numbers = sum(gradients["checked"].values())
    right = f"agree with central differences: {', '.join(gradients['checked'])} ({numbers} numbers)"
    wrong = "; ".join(gradients["problems"])
    products = " ".join(found["state_gates"]) or "none"
    size = found["parameters"]
    said = {
        "gates": f"{' '.join(found['gates'])}; with a product of W: {products}",
        "states": f"{' '.join(found['states'])}; the output: {' '.join(found['outputs'])}",
        "weights": f"{size['count']:,} numbers for D = H = {size['H']}",
        "contract": "holds",
        "gradients": f"WRONG: {wrong}" if wrong else right,
        "pointwise": "yes" if found["pointwise"] else f"no: {found['not_pointwise']}",
        **_stages(found),
        "affine": "yes, in its states: time can run in parallel" if found["affine"] else f"no: {found['not_affine']}",
        "projection": "can be projected" if found["projectable"] else "its step needs its output itself: none",
    }
    if found["extras"]:
        said["weights"] += f"; its own: {', '.join(found['extras'])}"
    if found["initial"]:
        said["states"] += f"; starts: {', '.join(f'{name} = {number}' for name, number in found['initial'].items())}"
    return said


def _show_speed(screen: Screen, measured: list[JsonObject]) -> None:
    title = "compared with the GRU, forward and backward, float32, D = H; medians of alternating rounds"
    made = table(title, "B×T×H", "backend", "ms", "GRU", "ratio, quartiles", "kept KiB", "GRU", "ratio")
    for part in measured:
        ratio, memory = part["seconds"] / part["gru_seconds"], part["bytes"] / max(part["gru_bytes"], 1)
        made.add_row(
            f"{part['B']}×{part['T']}×{part['H']}",
            part["backend"],
            f"{1e3 * part['seconds']:.2f}",
            f"{1e3 * part['gru_seconds']:.2f}",
            f"{ratio:.2f}, " + "{:.2f} … {:.2f}".format(*part["ratio"]),
            f"{part['bytes'] / 1024:.0f}",
            f"{part['gru_bytes'] / 1024:.0f}",
            f"{memory:.2f}",
        )
    screen.show(made, "")


def _stages(found: JsonObject) -> dict[str, str]:
    """Return the row on the stages of a step that is not one pointwise program."""
    if "stages" not in found:
        return {}
    if isinstance(found["stages"], str):
        return {"compiled": f"no: {found['stages']}"}
    return {"compiled": f"on the CPU, {found['stages']} product(s) in sequence per step; on a GPU by the loop"}

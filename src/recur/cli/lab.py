"""recur lab: short experiments that reproduce the textbook's arguments, one figure and one paragraph each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from recur.cli.options import Common
from recur.cli.screen import Screen

verb = App(
    help_epilogue="""Examples:
  recur lab vanishing
  recur lab exploding --figure exploding.svg
  recur lab truncation --json"""
)


@verb.default
def lab(
    experiment: Literal["vanishing", "exploding", "truncation", "forget-gate", "clipping"],
    /,
    *,
    figure: Annotated[
        Path | None, Parameter(help="Where the figure goes (.png, .svg or .pdf); EXPERIMENT.png.")
    ] = None,
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Run one experiment: a figure, and a paragraph with the numbers that came out.

    Parameters
    ----------
    experiment
        Which one to run.
    """
    from recur.plotting import save
    from recur.probes.lab import EXPERIMENTS

    screen = Screen(common)
    path = figure or Path(f"{experiment}.png")
    with screen.busy(experiment):
        found = EXPERIMENTS[experiment](common.seed)
        save(found.figure, path)
    screen.show(found.paragraph)
    screen.note(f"drawn to {path}")
    screen.result(
        {"experiment": experiment, "paragraph": found.paragraph, "figure": str(path), "numbers": found.numbers}
    )

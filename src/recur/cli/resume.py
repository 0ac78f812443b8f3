"""recur resume: go on with a run exactly where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from recur.cli.options import OpeningTexts, Output
from recur.cli.screen import Screen
from recur.cli.train import watch
from recur.launch import hush, launch

verb = App(
    help_epilogue="""Examples:
  recur resume runs/book                      what was left of its budget
  recur resume runs/book --epochs 5           five more epochs"""
)


@verb.default
def resume(
    run: Path,
    /,
    *,
    epochs: float | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str | None = None,
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Go on with a run exactly where it stopped.

    Weights, optimiser, random numbers, the place in the text and the hidden state are those of the checkpoint, so that
    a run that was stopped ends as one that was not.

    Parameters
    ----------
    run
        The run's folder.
    epochs
        So many more passes over the text.
    steps
        So many more steps.
    minutes
        So many more minutes.
    device
        Go on there: cpu, cuda, cuda:N or auto; where it was, if not given.
    """
    hush(launch())
    from recur.tasks import options_of_run
    from recur.train import joined
    from recur.train import resume as resume_run

    at, given = launch(), ("auto", "none")
    if at.size > 1:
        from recur.run import Run

        before = options_of_run(Run.open(run), code=False)
        given = device or before.device, before.compress
    more: dict[str, Any] = {"epochs": epochs, "steps": steps, "minutes": minutes, "device": device}
    more |= {"trust": opening.trust, "changed_text": opening.changed_text}
    screen = Screen(output, silent=at.rank > 0)
    with joined(at, *given) as ranks:
        watch(screen, lambda callback, stop: resume_run(run, **more, callback=callback, stop=stop, ranks=ranks))

"""recur resume: resume a stopped run from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App

from recur.cli.options import OpeningTexts, Output
from recur.cli.screen import Screen
from recur.cli.train import watch
from recur.utils.processes import hush, launch

verb = App(
    help_epilogue="""Examples:
  recur resume runs/book                      the rest of its budget
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
    threads: int | None = None,
    log: tuple[str, ...] = (),
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    output: Output = Output(),  # noqa: B008  frozen
) -> None:
    """Resume a stopped run from its checkpoint.

    The checkpoint holds weights, optimizer, random states, data position and hidden state, so that a resumed run ends
    with the same numbers as an uninterrupted one.

    Parameters
    ----------
    run
        Run folder.
    epochs
        Train this many more epochs.
    steps
        Train this many more steps.
    minutes
        Train this many more minutes.
    device
        cpu, cuda, cuda:N or auto; default: the device of the run.
    threads
        CPU threads; default: those of the run. Another number rounds differently.
    log
        Also log the metrics to tensorboard, mlflow or wandb; repeat it for several.
    """
    hush(launch())
    from recur.tasks import options_of_run
    from recur.training import process_group
    from recur.training import resume as resume_run

    at, given = launch(), ("auto", "none")
    if at.size > 1:
        from recur.runs import Run

        before = options_of_run(Run.open(run), code=False)
        given = device or before.device, before.compress
    more: dict[str, Any] = {"epochs": epochs, "steps": steps, "minutes": minutes, "device": device}
    more["threads"] = threads
    more |= {"trust": opening.trust, "changed_text": opening.changed_text}
    more["allow_path"] = opening.allow_path
    screen = Screen(output, silent=at.rank > 0)
    with process_group(at, *given) as group:
        watch(screen, lambda callback, stop: resume_run(run, **more, callback=callback, stop=stop, group=group), log)

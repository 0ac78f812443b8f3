"""recur resume: go on with a run exactly where it stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cyclopts import App

from recur.cli.options import Output
from recur.cli.screen import Screen
from recur.cli.train import carry_on

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
    """
    from recur.train.run import Run, write_whole

    screen = Screen(output)
    opened = Run.open(run)
    if epochs or steps or minutes:
        done = opened.load_checkpoint()[0]
        more = dataclasses.replace(
            opened.config,
            epochs=epochs and done["epoch"] + epochs,
            steps=steps and done["step"] + steps,
            minutes=minutes and done["seconds"] / 60 + minutes,
        )
        opened = Run(opened.path, more, opened.vocabs)
        write_whole(opened.path / "config.toml", more.to_toml().encode())
    data = opened.task.read(opened.vocabs)
    carry_on(screen, opened, data, baseline=None, resume=True)

"""recur sweep: search for good options of a task; each trial is a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.engines import JOURNAL, requested_engine, sweep_on_ray
from recur.cli.options import PLAIN, Opening, Output
from recur.cli.screen import Screen, table
from recur.cli.task_flags import RUN, call, flag_app, split_arguments
from recur.cli.train import interruptible
from recur.errors import OptionError
from recur.utils.processes import launch

if TYPE_CHECKING:
    from rich.status import Status

    from recur.training.sweeps import Sweep
    from recur.training.sweeps.record import Trial

EXAMPLES = """Examples:
  recur sweep names.tsv --task classify --trials 30
  recur sweep names.tsv --task classify --hidden-size 128 --search lr --search dropout_input=0:0.5
  recur sweep book.txt --minutes 2 --total-minutes 60 --search cell=gru,lstm --search lr=0.002:0.03:log
  recur sweep --resume sweeps/names --trials 60"""

verb = App(help_flags=[], version_flags=[])
"""The flags depend on the task, as with `recur train`."""


@verb.default
def sweep(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Search for good options."""
    if launch().size > 1:
        raise OptionError("a sweep runs its trials in one process: run it without torchrun or srun")
    if (engine := requested_engine(arguments)) is not None:
        from recur.training.sweeps import open_sweep

        out = sweep_on_ray(engine[1], engine[0])
        screen, found = Screen(Output(json="--json" in arguments)), open_sweep(out, str(out / JOURNAL))
        _show(screen, found)
        screen.result(found.as_dict())
        return
    if any(argument == "--resume" or argument.startswith("--resume=") for argument in arguments):
        _resuming()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return
    task, why, fields, rest = split_arguments(arguments)

    def begin(fields: dict[str, Any], *, output: Output, opening: Opening, **asked: Any) -> None:
        from recur.training.sweeps import sweep as search_options

        screen = Screen(output)
        if why:
            screen.note(why)
        asked = {name: value for name, value in asked.items() if value is not None}
        asked["trust"] = opening.trust
        _watch(screen, lambda **watching: search_options(task=task, **asked, **watching, **fields))

    call(flag_app(task, fields, begin, EXAMPLES, _rest, everything="--help-all" in arguments), task, rest)


def _rest(
    *,
    task: Annotated[str | None, Parameter(help="Task; by default recognised from the file.", group=RUN)] = None,
    config: Annotated[Path | None, Parameter(help="TOML file with options; flags override it.", group=RUN)] = None,
    trials: Annotated[int, Parameter(help="Number of trials; the first has the defaults of the task.", group=RUN)] = 30,
    search: Annotated[
        list[str] | None,
        Parameter(
            help="Option to search, by name or with a range: lr=0.001:0.01:log, hidden_size=64:256, cell=gru,lstm. "
            "Default: the search space of the task. Repeat the option for several.",
            group=RUN,
        ),
    ] = None,
    pruner: Annotated[str, Parameter(help="Stop bad trials early: median, hyperband or none.", group=RUN)] = "median",
    total_minutes: Annotated[
        float | None,
        Parameter(help="Start no trial after this many minutes; --minutes is the budget of one trial.", group=RUN),
    ] = None,
    engine: Annotated[str | None, Parameter(help="Run trials on Ray: ray; needs --workers.", group=RUN)] = None,
    workers: Annotated[int | None, Parameter(help="Number of trials that --engine runs at a time.", group=RUN)] = None,
    storage: Annotated[
        str | None,
        Parameter(
            help="Share the search with other processes and machines through an Optuna storage: a database URL, or a "
            "journal file. Start the same command on each.",
            group=RUN,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Parameter(
            name=["--out", "-o"],
            help="Folder of the sweep; default: sweeps/NAME. An existing sweep is resumed.",
            group=RUN,
        ),
    ] = None,
    resume: Annotated[Path | None, Parameter(help="Resume the sweep in this folder.", group=RUN)] = None,
    opening: Annotated[Opening, Parameter(name="*", group=RUN, show_default=False)] = Opening(),  # noqa: B008  frozen
    output: Annotated[Output, Parameter(name="*", group=RUN, show_default=False)] = Output(),  # noqa: B008  frozen
) -> None:
    """Search for good options of a task with Optuna: train many runs, prune the worst, and report the best on the
    validation set with the command that trains it. A stopped sweep is resumed by the same command."""


def _resuming() -> App:
    app = App(
        suppress_keyboard_interrupt=False,
        name="recur sweep",
        help_format="plaintext",
        version_flags=[],
        default_parameter=PLAIN,
    )

    @app.default
    def go_on(
        *,
        resume: Path,
        trials: int = 30,
        total_minutes: float | None = None,
        storage: str | None = None,
        allow_path: tuple[Path, ...] = (),
        opening: Opening = Opening(),  # noqa: B008
        output: Output = Output(),  # noqa: B008
    ) -> None:
        """Resume a sweep until it has so many trials."""
        from recur.training.sweeps import resume_sweep

        asked: dict[str, Any] = {"trials": trials, "total_minutes": total_minutes, "allow_path": allow_path}
        asked["storage"] = storage
        asked["trust"] = opening.trust
        _watch(Screen(output), lambda **watching: resume_sweep(resume, **asked, **watching))

    return app


def _watch(screen: Screen, run: Any) -> None:
    """Print the trials while they run; Ctrl-C stops the sweep and prints how to resume it."""
    from recur.tasks.common.metrics import format_metric, is_better

    best: list[Trial] = []
    spinner: Status | None = None

    def watcher(trial: Trial) -> None:
        nonlocal spinner
        drawn = "  ".join(f"{name} {_short(value)}" for name, value in trial.params.items()) or "the task's defaults"
        if trial.state == "running":
            if screen.err.is_terminal and not screen.quiet:
                spinner = screen.status(f"{trial.run}  {drawn}")
                spinner.start()
            return
        if spinner is not None:
            spinner.stop()
        metric = metrics[0] if metrics else ""  # of a trial that failed before it began
        value = "" if trial.value is None else format_metric(metric, trial.value)
        if trial.state == "complete" and trial.value is not None:
            if not best or best[0].value is None or is_better(metric, trial.value, best[0].value):
                best[:] = [trial]
                value += "  best so far"
        elif trial.state == "pruned":
            value += f"  left after {len(trial.measured)} measurements"
        else:
            value = f"failed: {trial.why}"
        screen.note(f"{trial.run}  {value}  ({drawn}; {trial.seconds:.0f} s)")

    metrics: list[str] = []

    def callback(event: Any) -> None:
        if event.kind == "started":
            metrics[:] = [event.content["curve"]]

    with interruptible(screen) as stop:
        try:
            found: Sweep = run(watcher=watcher, callback=callback, interrupt=stop)
        finally:
            if spinner is not None:
                spinner.stop()
    _show(screen, found)
    screen.result(found.as_dict())
    if found.stopped:
        screen.note(f"resume with: recur sweep --resume {shlex.quote(str(found.path))}")
        raise KeyboardInterrupt


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _show(screen: Screen, found: Sweep) -> None:
    if not found.ranked():
        if not found.stopped:
            why = found.failures or "see its sweep.json"
            raise OptionError(f"no trial of {found.path} went to its end: {why}")
        return
    header, rows = found.rows()
    shown = table("", *header)
    for row in rows:
        shown.add_row(*row)
    screen.show(shown, "")
    if importance := found.importance():
        said = ", ".join(f"{name} {100 * share:.0f} %" for name, share in list(importance.items())[:FIRST])
        screen.show(f"What trials differ by: {said}")
    if found.failures:
        screen.note(found.failures)
    ties = found.ties()
    if len(ties) > 1:
        named = ", ".join(trial.run for trial in ties[:FIRST]) + (", …" if len(ties) > FIRST else "")
        screen.show(f"{len(ties)} trials are level: {named}. The first of them counts as the best.")
    screen.show(f"The best is in {found.path / found.best.run}; train it again with", f"  {found.command}")


FIRST = 5
"""Number of options whose importance is printed."""

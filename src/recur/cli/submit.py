"""recur submit: a training or a sweep as a Slurm job."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from recur.errors import OptionError

verb = App(
    help_flags=["--help"],
    version_flags=[],
    help_epilogue="""Examples:
  recur submit train book.txt --minutes 60 --set timeout_min=90 --set slurm_partition=gpu --set gpus_per_node=1
  recur submit sweep names.tsv --task classify --trials 30 --set timeout_min=240
  recur submit train book.txt --steps 100 --cluster local --wait       a process of this machine""",
)

CLUSTERS = ("slurm", "local")


@verb.default
def submit(*arguments: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Submit `recur train` or `recur sweep` to Slurm by submitit. All machines must see the current folder.

    A job that is preempted or runs out of time is queued again and resumes its run.

    Flags, anywhere among those of the command:
      --cluster slurm|local    slurm (default), or processes of this machine
      --set NAME=VALUE         a parameter of submitit: timeout_min, mem_gb, cpus_per_task, gpus_per_node, nodes,
                               tasks_per_node, slurm_partition …; repeat it for several
      --logs FOLDER            folder of the job's logs; default: jobs
      --wait                   wait for the job, and exit as it does
    """
    from recur.cli.engines import submit_job, take_flag
    from recur.cli.options import Output
    from recur.cli.screen import Screen

    given, wait = list(arguments), "--wait" in arguments
    given = [argument for argument in given if argument != "--wait"]
    cluster, given = take_flag(given, "cluster")
    logs, given = take_flag(given, "logs")
    settings: dict[str, object] = {}
    while True:
        setting, given = take_flag(given, "set", first=True)
        if setting is None:
            break
        name, equal, value = setting.partition("=")
        if not equal:
            raise OptionError(f"--set takes NAME=VALUE, got {setting!r}")
        settings[name] = _typed(value)
    if cluster not in (None, *CLUSTERS):
        raise OptionError(f"--cluster must be one of {', '.join(CLUSTERS)}, got {cluster!r}")
    screen = Screen(Output(json="--json" in given, quiet="-q" in given or "--quiet" in given))
    job, out = submit_job(given, cluster or "slurm", Path(logs or "jobs"), settings)
    screen.note(f"submitted job {job.job_id}; logs: {job.paths.folder}; run: {out}")
    screen.result({"job": str(job.job_id), "out": str(out), "logs": str(job.paths.folder)})
    if wait and (code := job.result()):
        raise SystemExit(code)


def _typed(value: str) -> object:
    """Return a whole number or a number, if the text is one."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value

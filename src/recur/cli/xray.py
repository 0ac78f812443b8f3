"""recur xray: diagnose a trained network while it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from recur.cli.options import Common, OpeningTexts
from recur.cli.screen import Screen
from recur.errors import OptionError

if TYPE_CHECKING:
    from recur.probes import Report

verb = App(
    help_epilogue="""Examples:
  recur xray runs/book                        on its validation text
  recur xray runs/book chapter.txt --html report.html
  recur xray runs/book --json --tokens 1000
  recur xray runs/names                       a classifier, on a batch of what it learned from
  recur xray runs/g2p --part encoder.recurrent"""
)


@verb.default
def xray(
    run: Path,
    file: str | None = None,
    /,
    *,
    html: Path | None = None,
    tokens: int = 4000,
    part: str = "",
    device: str = "auto",
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Diagnose a trained network: findings, worst first, each with what to try. A language model reads a text; what the
    recurrent layers of another task's network do is seen on a batch of its own.

    Parameters
    ----------
    run
        The run's folder.
    file
        A text, or a file of what the task reads; if not given, the run's validation part, or what it learned from.
    html
        Write a report with figures to this file; it opens offline.
    tokens
        How many tokens of the text to read.
    part
        Of a network with several recurrent parts: which; the largest, if not given.
    device
        cpu, cuda, cuda:N or auto.
    """
    from recur.files import write_atomically
    from recur.probes import xray as diagnose
    from recur.tasks import open_predictor
    from recur.text import Corpus

    screen = Screen(common)
    if tokens < 8:
        raise OptionError(f"--tokens must be at least 8, got {tokens}")
    model = open_predictor([run], device, opening.trust)
    model.changed_text = opening.changed_text
    with screen.busy("running probes"):
        text = Corpus.of(file) if file is not None and model.task.on_text else file
        report = diagnose(model, text, tokens=tokens, seed=common.seed, part=part)
    if html is not None:
        with screen.busy("drawing figures"):
            content = report.html()
        write_atomically(html, content.encode())
        screen.note(f"written to {html}")
    _show(screen, report)
    screen.result(report.as_dict())


def _show(screen: Screen, report: Report) -> None:
    from rich.text import Text

    from recur.probes import Level

    styles = {Level.FAULT: "bold red", Level.WARNING: "bold yellow"}
    for finding in report.problems:
        screen.show(Text(finding.level.name.lower(), styles[finding.level]).append(f"  {finding.probe}", "bold"))
        screen.show(f"  {finding.verdict}", f"  try: {finding.advice}", "")
    screen.show(Text("ok" if report.problems else "no problems found", "bold green"))
    for finding in report.findings:
        if finding.level == Level.OK:
            screen.show(f"  {finding.probe}: {finding.verdict}")

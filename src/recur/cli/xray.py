"""recur xray: diagnosis of a trained network while it reads."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from recur.cli.options import Common, OpeningTexts, open_model
from recur.cli.screen import Screen
from recur.errors import OptionError, RecurError
from recur.i18n import Message, translate
from recur.utils.processes import python_command, python_environment

if TYPE_CHECKING:
    from recur.diagnostics import Report
    from recur.diagnostics.finding import Try
    from recur.utils.types import JsonObject

verb = App(
    help_epilogue="""Examples:
  recur xray runs/book                        on its validation text
  recur xray runs/book chapter.txt --html report.html
  recur xray runs/book --html report.html --language zh
  recur xray runs/book --try                  train with the first recommendation, and compare
  recur xray runs/book --json --tokens 1000
  recur xray runs/book --sentence "It was slow, but it worked."
  recur xray runs/names                       a classifier, on a batch of its training set
  recur xray runs/g2p --part encoder.recurrent"""
)

Language = Literal["en", "zh"]


@verb.default
def xray(
    run: Path,
    file: str | None = None,
    /,
    *,
    html: Path | None = None,
    language: Language = "en",
    try_: Annotated[bool, Parameter(name="--try", negative="")] = False,
    tokens: int = 4000,
    part: str = "",
    sentence: str = "",
    device: str = "auto",
    threads: int = 0,
    opening: OpeningTexts = OpeningTexts(),  # noqa: B008  frozen
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Diagnose a trained network: the condition with its measured reason and a recommendation, then all findings.

    Parameters
    ----------
    run
        Run folder.
    file
        A text, or a file of the task; default: the validation set, or the training data.
    html
        Write a report with figures to this file; it opens offline.
    language
        Language of the report: en or zh.
    try_
        Train with the first recommendation into RUN-try, as long as the run, and compare.
    tokens
        Number of tokens of the text to read.
    part
        Part of a network with several recurrent parts; default: the largest.
    sentence
        Show the forget gate along this sentence; default: a sentence of the validation set with a turn (", but").
    device
        cpu, cuda, cuda:N or auto.
    threads
        CPU threads; 0: as many as the run was trained with.
    """
    from recur.data.text import Corpus
    from recur.diagnostics import xray as diagnose
    from recur.utils.files import write_atomically

    screen = Screen(common)
    if tokens < 8:
        raise OptionError(f"--tokens must be at least 8, got {tokens}")
    model = open_model([run], device, opening.trust, threads)
    model.changed_text, model.allow_path = opening.changed_text, opening.allow_path
    with screen.working("probing") as progress:
        text = Corpus.of(file) if file is not None and model.task.on_text else file
        report = diagnose(model, text, tokens=tokens, seed=common.seed, part=part, sentence=sentence, progress=progress)
    if html is not None:
        with screen.busy("drawing figures"):
            content = report.html(language)
        write_atomically(html, content.encode())
        screen.note(translate(Message("written to {path}", path=str(html)), language))
    _show(screen, report, language)
    result = report.as_dict(language)
    if try_:
        result["tried"] = _tried(screen, report, language, opening.trust)
    screen.result(result)


def _show(screen: Screen, report: Report, language: Language) -> None:
    from rich.styled import Styled

    from recur.diagnostics import Level
    from recur.diagnostics.report import LEVELS

    styles = {Level.FAULT: "bold red", Level.WARNING: "bold yellow", Level.OK: "bold green", Level.UNKNOWN: "bold"}

    def say(text: str) -> str:
        return translate(text, language)

    found = report.diagnosis
    if found is not None:
        screen.show(Styled(say(found.condition), styles[found.level]))
        for one in (found.standing, found.reason, *found.also):
            screen.paragraph(say(one), indent=2)
        _show_tries(screen, report, found.tries, language)
        screen.show("")
    for finding in report.problems:
        screen.show(Styled(f"{say(LEVELS[finding.level])}  {say(finding.probe)}", styles[finding.level]))
        screen.paragraph(say(finding.verdict), indent=2)
        if found is None or finding.tries != found.tries:
            _show_tries(screen, report, finding.tries, language)
    for level in (Level.UNKNOWN, Level.OK):
        mine = [finding for finding in report.findings if finding.level is level]
        if mine:
            screen.show(Styled(say(LEVELS[level]), styles[level]))
        for finding in mine:
            colon = "：" if language == "zh" else ": "
            screen.paragraph(f"{say(finding.probe)}{colon}{say(finding.verdict)}", indent=2)


def _show_tries(screen: Screen, report: Report, tries: tuple[Try, ...], language: Language) -> None:
    from recur.diagnostics.finding import command

    for one in tries:
        means, see = translate(one.means, language), translate(one.see, language)
        screen.paragraph(
            translate(Message("try {option}: {means}", option=one.option, means=means), language), indent=2
        )
        screen.paragraph(translate(Message("it helped if {see}", see=see), language), indent=4)
        screen.paragraph(command(report.run, one.option), indent=4)


def _tried(screen: Screen, report: Report, language: Language, trust: bool) -> JsonObject:
    """Train with the first advice in a new process and compare both metrics."""
    from recur.diagnostics.finding import arguments, tried_folder
    from recur.diagnostics.training import best_metrics
    from recur.tasks.common.metrics import format_metric, is_better, metric_label

    found, predictor = report.diagnosis, report.predictor
    tries = found.tries if found is not None else ()
    if predictor is None or not tries:
        raise OptionError("there is nothing to try: no advice was given for this run")
    folder = tried_folder(predictor.run)
    screen.note(
        translate(Message("training {folder} with {option}", folder=str(folder), option=tries[0].option), language)
    )
    given = [*arguments(predictor.run, tries[0].option, folder), "--json", *(["--trust"] if trust else [])]
    ended = subprocess.run(
        python_command("recur.cli", "main", *given),
        env=python_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RecurError(f"training {folder} failed: {ended.stderr.strip().splitlines()[-1] if ended.stderr else ''}")
    curve = predictor.task.curve
    before = best_metrics(predictor, predictor.run.metrics()).get(curve)
    after = best_metrics(predictor, _metrics(folder)).get(curve)
    if before is None or after is None:
        raise RecurError(f"{folder} or {predictor.run.path} has no {metric_label(curve)} to compare")
    helped = is_better(curve, after, before)
    sentence = Message(
        "{metric} {before} before, {after} with {option}: {helped}",
        metric=metric_label(curve), before=format_metric(curve, before), after=format_metric(curve, after),
        option=tries[0].option,
        helped=Message("it helped") if helped else Message("it did not help"),
    )  # fmt: skip
    screen.paragraph(translate(sentence, language))
    return {
        "option": tries[0].option,
        "run": str(folder),
        "metric": curve,
        "before": before,
        "after": after,
        "helped": helped,
    }


def _metrics(folder: Path) -> list[Any]:
    from recur.runs import Run

    return Run.open(folder).metrics()

"""The report as one HTML page without any external resource: no script, no font, no picture.

Figures are SVG whose words are words and whose colours are the page's, so that a dark page has dark figures, and their
type is the page's own.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from recur.diagnostics.context import copying, loss_by_context, loss_by_position, saliency, stationarity, window
from recur.diagnostics.diagnosis import EXPLANATIONS, Diagnosis, consistent, diagnose
from recur.diagnostics.figures import COLOURS, DIM, IN_THE_DARK, INK, LINE, Panel, canvas, panels_of, plain_powers
from recur.diagnostics.finding import Finding, Level, Measurement, Try, command, worst_first
from recur.diagnostics.gates import forgetting, saturation
from recur.diagnostics.gradient_flow import gradient_flow, gradient_terms, memory_path
from recur.diagnostics.jacobian import jacobians, spectrum
from recur.diagnostics.subject import FEWEST, TOKENS, Loss, Subject, Text, why_none
from recur.diagnostics.task_probes import of_task
from recur.diagnostics.training import COARSE, best_metrics, fit_finding, measure_fit, rate_finding, training
from recur.diagnostics.units import UnitCorrelation, dead_units, states, tokens_read, unit_features, unit_values
from recur.i18n import Language, Message, translate
from recur.nn import Recurrent
from recur.tasks.common.predictor import Predictor
from recur.utils.types import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recur.runs import Run

COLOURED = {"word": 150}
"""Tokens of the text that are coloured, by what a token is; of others FEW."""
FEW = 700

_LIGHT = "".join(f" --c{k}: {colour};" for k, colour in enumerate(COLOURS))
_DARK = "".join(f" --c{k}: {colour};" for k, colour in enumerate(IN_THE_DARK))

STYLE = (
    """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5d6877; --paper: #fbfbf9; --card: #fff; --line: #d5d9df;
  --fault: #b3261e; --warning: #8a5a00; --ok: #16693f; --unknown: #4b5563;"""
    + _LIGHT
    + """ }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #a3aebd; --paper: #14181e; --card: #1c222b;
  --line: #38424f; --fault: #ff8a80; --warning: #e3b341; --ok: #56d364; --unknown: #a9b4c4;"""
    + _DARK
    + """ } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.6 system-ui,
  "Noto Sans CJK SC", sans-serif; }
main { margin: 0 auto; max-width: 60rem; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.3; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0; } h3 { font-size: 1rem; margin: 1rem 0 .2rem; }
p { margin: .4rem 0; } .dim { color: var(--dim); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: 1rem 1.1rem; margin: 1rem 0; }
.verdict { border-width: 2px; border-color: currentColor; } .verdict > * { color: var(--ink); }
.verdict h2 { font-size: 1.35rem; color: inherit; }
.head { display: flex; gap: .6rem; align-items: baseline; justify-content: space-between; flex-wrap: wrap; }
.level { padding: .05rem .55rem; border: 1px solid; border-radius: 1rem; font-weight: 600; font-size: .9rem;
  white-space: nowrap; }
.fault { color: var(--fault); } .warning { color: var(--warning); } .ok { color: var(--ok); }
.unknown { color: var(--unknown); }
dl { margin: .4rem 0; } dt { font-weight: 600; } dd { margin: 0 0 .35rem; }
code { font: .9rem/1.5 ui-monospace, monospace; overflow-wrap: anywhere;
  background: color-mix(in srgb, var(--line) 45%, transparent);
  border-radius: .25rem; padding: .1rem .3rem; }
.figures { display: flex; flex-wrap: wrap; gap: .8rem; margin-top: .8rem; }
figure { margin: 0; flex: 0 1 23.4rem; min-width: 0; } svg { width: 100%; height: auto; display: block; }
svg text { font-family: system-ui, "Noto Sans CJK SC", sans-serif; }
.text { font: 15px/1.8 ui-monospace, "Noto Sans Mono CJK SC", monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  margin: .6rem 0 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .95rem; }
td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
"""
)


def page(report: Report, language: Language = "en") -> str:
    def say(text: str) -> str:
        return html.escape(translate(text, language))

    run, subject = report.run, report.subject
    name = run.path.name if run is not None else type(subject and subject.model).__name__
    title = say(Message("X-ray of {name}", name=name))
    about = [] if report.predictor is None else [say(Message("task {task}", task=report.predictor.task.name))]
    if subject is not None:
        net = subject.net
        about.append(html.escape(f"{net.cell!r}, {net.num_layers} × {net.hidden_size}"))
        about += [html.escape(subject.part)] if subject.part else []
        about.append(say(Message("{tokens:,} steps", tokens=subject.length)))
    parts = [f"<h1>{title}</h1>", f'<p class="dim">{" · ".join(about)}</p>', _verdict(report, language)]
    problems = len(report.problems)
    counted = Message("Findings: {problems} of {count} are problems, worst first",
                   problems=problems, count=len(report.findings))  # fmt: skip
    parts.append(f"<p>{say(counted)}</p>")
    for finding in report.findings:
        parts.append(_section(report, finding, language))
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="{"zh-Hans" if language == "zh" else "en"}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n<main>\n{body}\n</main>\n</body></html>\n"
    )


def _verdict(report: Report, language: Language) -> str:
    found = report.diagnosis
    if found is None:
        return ""

    def say(text: str) -> str:
        return html.escape(translate(text, language))

    also = "".join(f"<p>{_sentence(one, language)}</p>" for one in found.also)
    return (
        f'<section class="verdict {found.level.name.lower()}"><h2>{say(found.condition)}</h2>'
        f"<p>{_sentence(found.standing, language)}</p><p>{_sentence(found.reason, language)}</p>{also}"
        f"{_tries(report, found.tries, language)}</section>"
    )


def _sentence(text: str, language: Language) -> str:
    """With a capital letter and a full stop."""
    shown = translate(text, language)
    shown = shown[:1].upper() + shown[1:]
    return html.escape(shown if shown.endswith((".", "。")) else shown + ("。" if language == "zh" else "."))


def _tries(report: Report, tries: tuple[Try, ...], language: Language) -> str:
    shown = []
    for one in tries:
        rows = [
            (Message("What it changes"), html.escape(translate(one.means, language))),
            (Message("How to check that it helped"), html.escape(translate(one.see, language))),
            (Message("Command"), f"<code>{html.escape(command(report.run, one.option))}</code>"),
        ]
        listed = "".join(f"<dt>{html.escape(translate(key, language))}</dt><dd>{value}</dd>" for key, value in rows)
        head = html.escape(translate(Message("Try {option}", option=one.option), language))
        shown.append(f"<h3>{head}</h3><dl>{listed}</dl>")
    return "".join(shown)


LEVELS = {Level.OK: "ok", Level.UNKNOWN: "not known", Level.WARNING: "warning", Level.FAULT: "fault"}


def _section(report: Report, finding: Finding, language: Language) -> str:
    level = finding.level.name.lower()
    numbers = report.numbers(finding.probe)
    drawn = "".join(
        f"<figure>{_svg(panel, numbers, language, f'{finding.probe}-{k}')}</figure>"
        for k, panel in enumerate(panels_of(finding.probe, numbers))
    )
    figures = f'<div class="figures">{drawn}</div>' if drawn else ""
    explained = f'<p class="dim">{html.escape(translate(EXPLANATIONS[finding.probe], language))}</p>'
    name = translate(finding.probe, language)
    known = report.diagnosis.tries if report.diagnosis is not None else ()
    tries = _tries(report, tuple(one for one in finding.tries if one not in known), language)
    return (
        f'<section><div class="head"><h2>{html.escape(name[:1].upper() + name[1:])}</h2>'
        f'<span class="level {level}">{html.escape(translate(LEVELS[finding.level], language))}</span></div>'
        f"<p>{_sentence(finding.verdict, language)}</p>{explained}{tries}{figures}"
        f"{_extra(report, finding, language)}</section>"
    )


def _svg(panel: Panel, numbers: JsonObject, language: Language, name: str) -> str:
    """One panel, its colours those of the page."""
    import matplotlib

    written = io.StringIO()
    with (
        warnings.catch_warnings(),
        matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "axes.titley": 1.0}),  # no title is moved
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # the browser has the letters that matplotlib's font lacks
        figure, (axis,) = canvas(width=3.9, height=2.9)
        figure.set_layout_engine("tight", pad=0.4)  # one pass: a report has dozens of panels
        panel(axis, numbers, lambda text: translate(text, language))
        plain_powers(axis)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    named = {INK: "--ink", DIM: "--dim", LINE: "--line"} | {colour: f"--c{k}" for k, colour in enumerate(COLOURS)}
    for colour, variable in named.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", svg)
    label = html.escape(axis.get_title() or name, quote=True)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _extra(report: Report, finding: Finding, language: Language) -> str:
    """Text and tables of the probes that have no figure."""
    numbers = report.numbers(finding.probe)
    if finding.probe == "saliency" and numbers:
        return _saliency(numbers, report)
    if finding.probe == "units" and numbers["ranked"]:
        ranked = {name: [UnitCorrelation(**unit) for unit in units] for name, units in numbers["ranked"].items()}
        return _ranking(ranked, language) + _best_unit(report, ranked)
    return ""


def _token(report: Report) -> str:
    """Return the kind of token: char, word or subword."""
    vocab = None if report.subject is None else report.subject.vocab
    return "" if vocab is None else vocab.tokenizer.kind


def _saliency(numbers: JsonObject, report: Report) -> str:
    strongest = max(numbers["share"]) or 1.0
    pairs = list(zip(numbers["tokens"], (share / strongest for share in numbers["share"]), strict=True))
    prediction = f"→ {numbers['predicted']!r} (p = {numbers['probability']:.2f})"
    return f'<div class="text">{coloured(pairs, _token(report) == "word")} <b>{html.escape(prediction)}</b></div>'


def _ranking(ranked: dict[str, list[UnitCorrelation]], language: Language) -> str:
    rows = "".join(
        f'<tr><td>{html.escape(translate(name, language))}</td><td class="n">{best.unit}</td><td>{best.state}</td>'
        f'<td>{html.escape(translate(best.layer, language))}</td><td class="n">{best.r:+.2f}</td></tr>'
        for name, units in ranked.items()
        for best in units[:2]
    )
    heads = "".join(
        f"<th>{html.escape(translate(head, language))}</th>" for head in ("follows", "unit", "state", "layer")
    )
    return f'<div class="wide"><table><tr>{heads}<th>r</th></tr>{rows}</table></div>'


def _best_unit(report: Report, ranked: dict[str, list[UnitCorrelation]]) -> str:
    """The text, coloured by the unit that follows one of its features best."""
    best = max((units[0] for units in ranked.values()), key=lambda unit: abs(unit.r))
    subject = report.subject
    assert subject is not None  # units are looked at in texts only
    names = [layer.name for layer in subject.layers]
    series = unit_values(subject, names.index(best.layer), best.state, best.unit)[: COLOURED.get(_token(report), FEW)]
    scale = float(series.abs().max()) or 1.0
    pairs = list(zip(tokens_read(subject), (series / scale).tolist(), strict=False))
    return f'<div class="text">{coloured(pairs, _token(report) == "word")}</div>'


def coloured(pairs: list[tuple[str, float]], apart: bool = False) -> str:
    """Tokens on a background from blue (−1) over none (0) to orange (+1); words stand apart."""
    parts = []
    for token, value in pairs:
        rgb = "217,98,43" if value > 0 else "47,111,222"
        content = html.escape({"<eos>": "\n"}.get(token, token))
        parts.append(f'<span style="background:rgba({rgb},{min(abs(value), 1) * 0.6:.2f})">{content}</span>')
    return (" " if apart else "").join(parts)


Probe = Callable[[Subject], Measurement]

NETWORK_PROBES: tuple[Probe, ...] = (
    gradient_flow, gradient_terms, jacobians, spectrum, memory_path, forgetting, saturation, dead_units, states,
)  # fmt: skip
SHORT_PROBES: tuple[Probe, ...] = (spectrum, forgetting, saturation, dead_units)
"""For sequences of a few steps, along which nothing can be said to vanish."""
LANGUAGE_PROBES: tuple[Probe, ...] = (
    window, loss_by_context, loss_by_position, saliency, unit_features, stationarity,
)  # fmt: skip
TEXT_PROBES: tuple[Probe, ...] = (copying,)


@dataclass
class Report:
    """The measurements of all probes.

    >>> report = recur.xray(recur.Recurrent("gru", 3, 4), torch.randn(2, 20, 3))
    >>> sorted({finding.probe for finding in report.findings})[:2]
    ['Jacobians', 'dead units']
    """

    subject: Subject | None
    """None for a network without a recurrence in time."""
    measurements: list[Measurement]
    predictor: Predictor[Any] | None = None
    """The trained model, of any task."""

    @property
    def run(self) -> Run | None:
        return self.predictor.run if self.predictor is not None else None if self.subject is None else self.subject.run

    @cached_property
    def diagnosis(self) -> Diagnosis | None:
        """The verdict that it opens with; None for a network that no run has trained."""
        if self.predictor is None:
            return None
        learned = self.numbers("fit").get("learned")
        found = [measurement.finding for measurement in self.measurements]
        return diagnose(self.predictor, worst_first(found), self.predictor.run.metrics(), learned)

    @property
    def findings(self) -> list[Finding]:
        """All of them, worst first."""
        return worst_first([measurement.finding for measurement in consistent(self.measurements, self.diagnosis)])

    @property
    def problems(self) -> list[Finding]:
        """Warnings and faults, worst first."""
        return [finding for finding in self.findings if finding.level > Level.UNKNOWN]

    def numbers(self, probe: str) -> JsonObject:
        """Return the numbers of a probe by name; empty if it did not run."""
        return next((m.numbers for m in self.measurements if m.finding.probe == probe), {})

    def as_dict(self, language: Language = "en") -> JsonObject:
        run, subject = self.run, self.subject
        return {
            "run": str(run.path) if run is not None else None,
            "cell": None if subject is None else repr(subject.net.cell),
            "tokens": 0 if subject is None else subject.length,
            "part": "" if subject is None else subject.part,
            "diagnosis": None if self.diagnosis is None else self.diagnosis.as_dict(language),
            "findings": [finding.as_dict(language) for finding in self.findings],
            "numbers": {m.finding.probe: m.numbers for m in self.measurements},
        }

    def figures(self, language: Language = "en") -> dict[str, Figure]:
        """A matplotlib figure for each probe that has one, by the probe's name."""
        from recur.diagnostics.figures import figures

        return figures(self, language)

    def html(self, language: Language = "en") -> str:
        """One page without any external resource."""

        return page(self, language)


def xray(
    model: object,
    text: Text | None = None,
    *,
    loss: Loss | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
    part: str = "",
    sentence: str = "",
    progress: Callable[[str, float], object] | None = None,
) -> Report:
    """Run all probes on a model while it reads a text.

    model     what `recur.load` or `recur.fit` returned, or any module with a `recur.Recurrent` in it
    text      a str, a `Corpus` or ids for a language model; a file, or several, of what another task reads; a tensor
              (B, T, D) for a network; if not given, the run's validation text, or a batch of what it learned from
    loss      for a module of your own: from its output to the loss of its last step, a scalar
    tokens    how many tokens of the text are read
    part      of a network with several recurrent parts, such as an encoder and a decoder: which; the largest, if not
              given
    sentence  to follow the forget gate along, token by token; one of the validation part that turns ("…, but …"), if
              not given
    seed      for random numbers: generated text, and the truncation of randomized BPTT
    progress  called with each probe's name before it starts, and the share of the probes that have run

    >>> report = recur.xray(recur.Recurrent("elman", 3, 4), torch.randn(2, 20, 3))
    >>> report.findings[0].verdict.partition(":")[0]
    'gradients vanish'
    """
    if isinstance(model, Predictor) and not any(isinstance(module, Recurrent) for module in model.model.modules()):
        return Report(None, [_without_time(model), *of_run(model, seed), *of_task(model, None)], model)
    subject = Subject.of(model, text, loss=loss, tokens=tokens, part=part)
    subject.seed = seed
    probes = NETWORK_PROBES if subject.length >= FEWEST else SHORT_PROBES
    if subject.is_language:
        probes += LANGUAGE_PROBES
    if subject.language is not None and subject.language.has_training_texts():
        probes += TEXT_PROBES
    measurements = []
    trained = subject.language or subject.predictor
    count = len(probes) + 2 * (trained is not None)
    report = progress or (lambda name, share: None)
    with torch.enable_grad():
        for k, probe in enumerate(probes):
            report(probe.__name__.replace("_", " "), k / count)
            measurements.append(probe(subject))
    if subject.length < FEWEST:
        short = Message(
            "unknown: sequences of {steps} steps are too short to measure gradient flow; {fewest} steps are needed",
            steps=subject.length, fewest=FEWEST,
        )  # fmt: skip
        measurements.append(Measurement(Finding("network", Level.UNKNOWN, subject.length, FEWEST, short)))
    if trained is not None:
        report("training", len(probes) / count)
        measurements += of_run(trained, seed)
        report("predictions", (len(probes) + 1) / count)
        measurements += of_task(trained, subject, sentence)
    return Report(subject, measurements, trained)


def of_run(predictor: Predictor[Any], seed: int = 0) -> list[Measurement]:
    """Return how a run was trained, and its loss on the training set."""
    entries = predictor.run.metrics()
    found = [training(predictor, entries)]
    fit = measure_fit(predictor, entries, seed)
    if fit is not None:
        nudged = list(fit.nudged.values())
        numbers: JsonObject = {"learned": fit.learned, "rates": list(fit.nudged), "nudged": nudged, "limit": COARSE}
        blended = getattr(predictor.model, "blend", None) is not None  # then what was measured is not the network's
        held_out = None if blended else best_metrics(predictor, entries).get("valid_loss")
        found += [
            Measurement(rate_finding(fit, predictor.task.options), numbers),
            Measurement(fit_finding(fit, held_out), {"learned": fit.learned, "held_out": held_out}),
        ]
    return found


def _without_time(predictor: Predictor[Any]) -> Measurement:
    """Return the report of a network without a recurrence in time, which names the probes that do not apply."""
    return Measurement(Finding("network", Level.UNKNOWN, 0.0, 0.0, why_none(predictor)))

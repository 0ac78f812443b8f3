"""The report as one HTML page without any external resource: no script, no font, no picture."""

from __future__ import annotations

import html
import io
from typing import TYPE_CHECKING

from recur.probes.finding import Finding
from recur.probes.units import UnitCorrelation, tokens_read, unit_values
from recur.typedefs import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recur.probes.report import Report

COLOURED = 1500
"""Tokens of the text that are coloured."""

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --dim: #5d6877; --paper: #fbfbf9; --card: #fff; --line: #e3e5e8;
  --fault: #b3261e; --warning: #9a6700; --ok: #1a7f4b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --dim: #9aa5b4; --paper: #14181e; --card: #1c222b;
  --line: #2e3742; --fault: #ff8a80; --warning: #e3b341; --ok: #56d364; } }
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.05rem; margin: 0; }
p { margin: .4rem 0; } .dim { color: var(--dim); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem 1.2rem;
  margin: 1rem 0; }
.level { float: right; padding: .1rem .5rem; border: 1px solid; border-radius: 1rem; font-weight: 600; }
.fault { color: var(--fault); } .warning { color: var(--warning); } .ok { color: var(--ok); }
figure { margin: .8rem 0 0; background: #fff; border-radius: .3rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; display: block; }
.text { font: 14px/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: .6rem 0 0; }
table { border-collapse: collapse; font-size: .9rem; } td, th { padding: .15rem .8rem .15rem 0; text-align: left; }
"""


def page(report: Report) -> str:
    run, subject = report.run, report.subject
    title = f"X-ray of {run.path.name}" if run is not None else f"X-ray of {type(subject and subject.model).__name__}"
    drawn = report.figures()
    problems = len(report.problems)
    summary = f"{problems} problem{'s' * (problems != 1)}, worst first" if problems else "no problems found"
    about = f"a run of the task {report.predictor.task.name}" if report.predictor is not None else "a network"
    if subject is not None:
        net = subject.net
        about = f"{net.cell!r}, {net.layers} × {net.hidden_size}" + (f", {subject.part}" if subject.part else "")
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="dim">{html.escape(about)} · {summary}</p>',
    ]
    for finding in report.findings:
        parts.append(_section(finding, drawn.get(finding.probe), _extra(report, finding)))
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _section(finding: Finding, figure: Figure | None, extra: str) -> str:
    level = finding.level.name.lower()
    advice = f"<p><b>Try:</b> {html.escape(finding.advice)}</p>" if finding.advice else ""
    drawing = f"<figure>{_svg(figure)}</figure>" if figure is not None else ""
    return (
        f'<section><span class="level {level}">{level}</span><h2>{html.escape(finding.probe)}</h2>'
        f"<p>{html.escape(finding.verdict)}</p>{advice}{drawing}{extra}</section>"
    )


def _svg(figure: Figure) -> str:
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :]


def _extra(report: Report, finding: Finding) -> str:
    """Text and tables of the probes that have no figure."""
    numbers = report.numbers(finding.probe)
    if finding.probe == "saliency" and numbers:
        return _saliency(numbers)
    if finding.probe == "units" and numbers["ranked"]:
        ranked = {name: [UnitCorrelation(**unit) for unit in units] for name, units in numbers["ranked"].items()}
        return _ranking(ranked) + _best_unit(report, ranked)
    return ""


def _saliency(numbers: JsonObject) -> str:
    strongest = max(numbers["share"]) or 1.0
    pairs = list(zip(numbers["tokens"], (share / strongest for share in numbers["share"]), strict=True))
    prediction = f"→ {numbers['predicted']!r} (p = {numbers['probability']:.2f})"
    return f'<div class="text">{coloured(pairs)} <b>{html.escape(prediction)}</b></div>'


def _ranking(ranked: dict[str, list[UnitCorrelation]]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{best.unit}</td><td>{best.state}</td><td>{best.layer}</td>"
        f"<td>{best.r:+.2f}</td></tr>"
        for name, units in ranked.items()
        for best in units[:2]
    )
    return f"<table><tr><th>follows</th><th>unit</th><th>state</th><th>layer</th><th>r</th></tr>{rows}</table>"


def _best_unit(report: Report, ranked: dict[str, list[UnitCorrelation]]) -> str:
    """The text, coloured by the unit that follows one of its features best."""
    best = max((units[0] for units in ranked.values()), key=lambda unit: abs(unit.r))
    subject = report.subject
    assert subject is not None  # units are looked at in texts only
    names = [layer.name for layer in subject.layers]
    series = unit_values(subject, names.index(best.layer), best.state, best.unit)[:COLOURED]
    scale = float(series.abs().max()) or 1.0
    pairs = list(zip(tokens_read(subject), (series / scale).tolist(), strict=False))
    return f'<div class="text">{coloured(pairs)}</div>'


def coloured(pairs: list[tuple[str, float]]) -> str:
    """Tokens on a background from blue (−1) over none (0) to orange (+1)."""
    parts = []
    for token, value in pairs:
        rgb = "217,98,43" if value > 0 else "47,111,222"
        content = html.escape({"<eos>": "\n"}.get(token, token))
        parts.append(f'<span style="background:rgba({rgb},{min(abs(value), 1) * 0.6:.2f})">{content}</span>')
    return "".join(parts)

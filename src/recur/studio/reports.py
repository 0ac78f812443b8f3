"""X-ray reports and labs in the page."""

from __future__ import annotations

import copy
import functools
import html
import io
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from pydantic import create_model

from recur.data.text.tokenizers import SPECIALS
from recur.diagnostics import labs as lab
from recur.diagnostics import xray
from recur.diagnostics.figures import COLOURS, DIM, IN_THE_DARK, INK, LINE, figure_labels
from recur.diagnostics.labs.parameters import Network
from recur.diagnostics.report import Report
from recur.errors import OptionError, unknown
from recur.i18n import Language, Message, translate
from recur.models import LanguageModel
from recur.serve.http import RequestModel, check_range, validate
from recur.studio.loaded_model import LoadedModel
from recur.tasks import make_options
from recur.utils.types import JsonObject

TOKENS = 2000
"""Of the validation text that are read: the report is waited for."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""Of the report: no script, nothing from anywhere, and shown by this page alone."""


def parse_language(asked: str) -> Language:
    """Return the first language of an Accept-Language header."""
    return "zh" if asked.strip().lower().startswith("zh") else "en"


class ReportRequest(RequestModel):
    """Language of a report."""

    language: str = "en"


class LabRequest(ReportRequest):
    """Name of a lab, and the theme of its figure."""

    name: str = "vanishing"
    theme: str = "light"


def diagnosis(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return the diagnosis and the findings of a report."""
    language = parse_language(validate(ReportRequest, request).language)
    report = report_of(model)
    found = report.diagnosis
    return {
        "diagnosis": None if found is None else found.as_dict(language),
        "findings": [finding.as_dict(language) for finding in report.findings],
    }


def report_of(model: LoadedModel) -> Report:
    """Return the report of a model, computed once."""
    return model.kept("report", lambda: _run_report(model))


def _run_report(model: LoadedModel) -> Report:
    looked = copy.copy(model.predictor)  # hooks and gradients must not disturb other requests
    looked.models = [copy.deepcopy(network).requires_grad_(True) for network in model.predictor.models]
    if hasattr(looked, "tagger"):
        looked.tagger = looked.models[0]
    looked.task = copy.copy(looked.task)
    return xray(looked, tokens=TOKENS)


def report_page(model: LoadedModel, language: Language) -> str:
    """Without the name of the folder on this machine, which commands would have."""
    folder = model.predictor.run.path.absolute().parent
    page = model.kept(f"report {language}", lambda: report_of(model).html(language))
    return page.replace(f"{folder}/", f"{folder.name}/").replace(
        f"{model.predictor.run.path.parent}/", f"{folder.name}/"
    )


DARK = {
    INK: "#e6e9ee",
    DIM: "#a3aebd",
    LINE: "#38424f",
    "#000000": "#e6e9ee",
    "#ffffff": "#1c222b",
    "#cccccc": "#38424f",
} | dict(zip(COLOURS, IN_THE_DARK, strict=True))


KEPT = 32
"""Experiments in the cache."""


class LabSetting(NamedTuple):
    """A number of an experiment that can be set."""

    name: str
    low: float
    high: float
    step: float
    value: float


class LabEntry(NamedTuple):
    run: Callable[..., lab.Experiment]
    settings: tuple[LabSetting, ...]


SEED = LabSetting("seed", 0, 20, 1, 0)


def _parameters(seed: int = 0, k: int = 65, tau: int = 6, hidden: int = 128) -> lab.Experiment:
    """Run the lab on the language model that `recur train` makes for k tokens."""
    options: Any = make_options("language", {"hidden_size": hidden})
    with torch.random.fork_rng(devices=[]):
        size = LanguageModel(k + len(SPECIALS), options).size
    return lab.parameters(
        k, Network(Message("A language model of {hidden} {cell} units", hidden=hidden, cell=options.cell), size), tau
    )


LABS = {
    "vanishing": LabEntry(lab.vanishing, (LabSetting("T", 10, 120, 5, 60), LabSetting("H", 8, 64, 8, 32), SEED)),
    "exploding": LabEntry(lab.exploding, (LabSetting("T", 10, 120, 5, 60), LabSetting("H", 8, 64, 8, 32), SEED)),
    "forget-gate": LabEntry(lab.forget_gate, (LabSetting("T", 10, 120, 5, 60), LabSetting("H", 8, 64, 8, 32), SEED)),
    "clipping": LabEntry(
        lab.clipping,
        (
            LabSetting("theta", 0.1, 5, 0.1, 0.5),
            LabSetting("T", 4, 20, 1, 10),
            LabSetting("steps", 50, 300, 50, 150),
            SEED,
        ),
    ),
    "variance": LabEntry(
        lab.variance, (LabSetting("steps", 10, 120, 10, 60), LabSetting("target", 0.05, 2, 0.05, 0.1), SEED)
    ),
    "truncation": LabEntry(lab.truncation, (LabSetting("lag", 4, 16, 1, 10), SEED)),
    "parameters": LabEntry(
        _parameters,
        (LabSetting("k", 2, 30000, 1, 65), LabSetting("tau", 1, 12, 1, 6), LabSetting("hidden", 16, 512, 16, 128)),
    ),
}


def labs(_: JsonObject) -> JsonObject:
    """Return the labs and their settings."""
    return {"labs": {name: [setting._asdict() for setting in one.settings] for name, one in LABS.items()}}


def run_lab(request: JsonObject) -> JsonObject:
    name = validate(LabRequest, request).name
    if name not in LABS:
        raise OptionError(unknown("lab", name[:40], LABS))
    asked = validate(_lab_model(name), request)
    given = {
        one.name: check_range(one.name, getattr(asked, one.name), one.low, one.high) for one in LABS[name].settings
    }
    language = parse_language(asked.language)
    paragraph, svg, labels = _run_experiment(name, **given)
    translated = {text: translate(label, language) for text, label in labels.items()}
    figure = _recolour(svg, asked.theme == "dark", translated)
    return {"name": name, "paragraph": translate(paragraph, language), "figure": figure}


@functools.cache
def _lab_model(name: str) -> type[LabRequest]:
    """Return the model of requests for a lab, whose settings are further fields."""
    fields: dict[str, Any] = {}
    for setting in LABS[name].settings:
        kind = int if float(setting.step).is_integer() else float
        fields[setting.name] = (kind, kind(setting.value))
    return create_model(name, __base__=LabRequest, **fields)


@functools.lru_cache(KEPT)
def _run_experiment(name: str, **given: float) -> tuple[str, str, Mapping[str, str]]:
    """Return the paragraph of an experiment, its figure as SVG, and the figure's labels by their English text."""
    import matplotlib

    with torch.random.fork_rng(devices=[]):  # an experiment sets the seed of its own
        found = LABS[name].run(**given)
    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        found.figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return found.paragraph, svg[svg.index("<svg") :], figure_labels(found.figure)


def _recolour(svg: str, dark: bool, labels: Mapping[str, str]) -> str:
    """Return a figure with the page's colours and translated labels."""

    def translate_label(found: re.Match[str]) -> str:
        text = html.unescape(found[1])
        return f">{html.escape(labels.get(text, text))}</text>"

    if dark:
        for light, colour in DARK.items():
            svg = svg.replace(light, colour)
        svg = re.sub(r'(<text(?![^>]*fill)[^>]*style=")', rf"\1fill: {DARK[INK]}; ", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, 'Noto Sans CJK SC', sans-serif", svg)
    return re.sub(r">([^<>]+)</text>", translate_label, svg)

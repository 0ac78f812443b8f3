"""X-ray in the page: the verdict as JSON, and the whole report as a page of its own, for a frame."""

from __future__ import annotations

import copy

from recur.diagnostics import xray
from recur.diagnostics.report import Report
from recur.i18n import Language
from recur.serve.http.requests import get_field
from recur.studio.loaded import LoadedModel
from recur.utils.types import JsonObject

TOKENS = 2000
"""Of the validation text that are read: the report is waited for."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""Of the report: no script, nothing from anywhere, and shown by this page alone."""


def language_of(asked: str) -> Language:
    """The first of the languages that a browser asks for."""
    return "zh" if asked.strip().lower().startswith("zh") else "en"


def diagnosis(model: LoadedModel, request: JsonObject) -> JsonObject:
    """What it opens with, and the level of every finding."""
    language = language_of(get_field(request, "language", "en"))
    report = report_of(model)
    found = report.diagnosis
    return {
        "diagnosis": None if found is None else found.as_dict(language),
        "findings": [finding.as_dict(language) for finding in report.findings],
    }


def report_of(model: LoadedModel) -> Report:
    """Measured once."""
    return model.kept("report", lambda: _measure(model))


def _measure(model: LoadedModel) -> Report:
    looked = copy.copy(model.predictor)  # whose hooks and gradients disturb no other request
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

"""The labs in the page: an experiment by name, with its numbers to set, its figure and its paragraph."""

from __future__ import annotations

import functools
import html
import io
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from recur.data.text.tokenizers import SPECIALS
from recur.diagnostics import labs as lab
from recur.diagnostics.figures import COLOURS, DIM, IN_THE_DARK, INK, LINE, figure_labels
from recur.diagnostics.labs.parameters import Network
from recur.errors import OptionError, unknown
from recur.i18n import Message, translate
from recur.models import LanguageModel
from recur.serve.http.fields import field
from recur.studio.reporting import language_of
from recur.tasks import make_options
from recur.utils.types import JsonObject

DARK = {
    INK: "#e6e9ee",
    DIM: "#a3aebd",
    LINE: "#38424f",
    "#000000": "#e6e9ee",
    "#ffffff": "#1c222b",
    "#cccccc": "#38424f",
} | dict(zip(COLOURS, IN_THE_DARK, strict=True))


KEPT = 32
"""Experiments that are not measured again."""


class Setting(NamedTuple):
    """A number of an experiment that can be set."""

    name: str
    low: float
    high: float
    step: float
    value: float


class Lab(NamedTuple):
    run: Callable[..., lab.Experiment]
    settings: tuple[Setting, ...]


SEED = Setting("seed", 0, 20, 1, 0)


def _parameters(seed: int = 0, k: int = 65, tau: int = 6, hidden: int = 128) -> lab.Experiment:
    """Of a language model that `recur train` would make for k tokens."""
    options: Any = make_options("language", {"hidden": hidden})
    with torch.random.fork_rng(devices=[]):
        size = LanguageModel(k + len(SPECIALS), options).size
    return lab.parameters(
        k, Network(Message("A language model of {hidden} {cell} units", hidden=hidden, cell=options.cell), size), tau
    )


LABS = {
    "vanishing": Lab(lab.vanishing, (Setting("T", 10, 120, 5, 60), Setting("H", 8, 64, 8, 32), SEED)),
    "exploding": Lab(lab.exploding, (Setting("T", 10, 120, 5, 60), Setting("H", 8, 64, 8, 32), SEED)),
    "forget-gate": Lab(lab.forget_gate, (Setting("T", 10, 120, 5, 60), Setting("H", 8, 64, 8, 32), SEED)),
    "clipping": Lab(
        lab.clipping,
        (Setting("theta", 0.1, 5, 0.1, 0.5), Setting("T", 4, 20, 1, 10), Setting("steps", 50, 300, 50, 150), SEED),
    ),
    "variance": Lab(lab.variance, (Setting("steps", 10, 120, 10, 60), Setting("target", 0.05, 2, 0.05, 0.1), SEED)),
    "truncation": Lab(lab.truncation, (Setting("lag", 4, 16, 1, 10), SEED)),
    "parameters": Lab(
        _parameters, (Setting("k", 2, 30000, 1, 65), Setting("tau", 1, 12, 1, 6), Setting("hidden", 16, 512, 16, 128))
    ),
}  # fmt: skip


def labs(_: JsonObject) -> JsonObject:
    """Which there are, and what can be set."""
    return {"labs": {name: [setting._asdict() for setting in one.settings] for name, one in LABS.items()}}


def run_lab(request: JsonObject) -> JsonObject:
    name = field(request, "name", "vanishing")
    if name not in LABS:
        raise OptionError(unknown("lab", name[:40], LABS))
    given: dict[str, float] = {}
    for setting in LABS[name].settings:
        whole = float(setting.step).is_integer()
        default = int(setting.value) if whole else float(setting.value)
        given[setting.name] = field(request, setting.name, default, setting.low, setting.high)
    language = language_of(field(request, "language", "en"))
    paragraph, svg, labels = _measured(name, **given)
    words = {text: translate(label, language) for text, label in labels.items()}
    figure = _in_colours(svg, field(request, "theme", "light") == "dark", words)
    return {"name": name, "paragraph": translate(paragraph, language), "figure": figure}


@functools.lru_cache(KEPT)
def _measured(name: str, **given: float) -> tuple[str, str, Mapping[str, str]]:
    """Return the paragraph of an experiment, its figure as SVG, and the labels of the figure by their English text."""
    import matplotlib

    with torch.random.fork_rng(devices=[]):  # an experiment sets the seed of its own
        found = LABS[name].run(**given)
    written = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        found.figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return found.paragraph, svg[svg.index("<svg") :], figure_labels(found.figure)


def _in_colours(svg: str, dark: bool, words: Mapping[str, str]) -> str:
    """The figure in the colours of the page and in its language; its words are words."""
    if dark:
        for light, colour in DARK.items():
            svg = svg.replace(light, colour)
        svg = re.sub(r'(<text(?![^>]*fill)[^>]*style=")', rf"\1fill: {DARK[INK]}; ", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px system-ui, 'Noto Sans CJK SC', sans-serif", svg)
    return re.sub(r">([^<>]+)</text>", lambda text: f">{_said(text[1], words)}</text>", svg)


def _said(text: str, words: Mapping[str, str]) -> str:
    label = html.unescape(text)
    return html.escape(words.get(label, label))

"""The views of the page, by name: each is a plain function of a request, in the file of its subject.

    VIEWS     of a loaded model and a request:   POST /api/runs/RUN/NAME
    ALONE     of a request alone:                POST /api/NAME

A new view is a function in a file of its own and a line here; what it raises becomes an answer of one line. A bad value
of the request is an OptionError or a TextError. A view that is quicker than a keystroke does not queue: see QUICK.
"""

from __future__ import annotations

from collections.abc import Callable

from recur.studio.gradients import gradients
from recur.studio.labs import labs, run_lab
from recur.studio.loaded import LoadedModel
from recur.studio.predicting import predict
from recur.studio.reporting import diagnosis
from recur.studio.rescaled import eigenvalues
from recur.studio.saliency import saliency
from recur.studio.states import similar, unit_activations, unit_map
from recur.studio.step import run_step, step
from recur.studio.unfold import unfold
from recur.studio.validation import mistakes, samples
from recur.studio.writing import example, next_tokens
from recur.utils.types import JsonObject

VIEWS: dict[str, Callable[[LoadedModel, JsonObject], JsonObject]] = {
    "next": next_tokens,
    "saliency": saliency,
    "example": example,
    "samples": samples,
    "predict": predict,
    "mistakes": mistakes,
    "activations": unit_activations,
    "map": unit_map,
    "similar": similar,
    "gradients": gradients,
    "eigenvalues": eigenvalues,
    "unfold": unfold,
    "step": run_step,
    "diagnosis": diagnosis,
}
ALONE: dict[str, Callable[[JsonObject], JsonObject]] = {
    "labs": labs,
    "lab": run_lab,
    "step": step,
}
QUICK = frozenset({"next", "saliency", "step", "unfold"})
"""Views that do not queue: a step of a model that nothing else changes, or a few numbers."""
REPORTS = frozenset({"diagnosis"})
"""Views of a report, which queue behind each other and behind nothing else."""

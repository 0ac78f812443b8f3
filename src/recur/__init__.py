"""recur: recurrent networks as equations, carried along sequences, with their gradients in view.

    recur.fit          train a model on a text or a table; recur.load opens one that is trained; recur.from_pretrained
                       opens one that was saved for others, also from the Hugging Face Hub
    recur.sweep        search for good options of a task
    recur.xray         look into a model while it reads a text; recur.diagnostics has the probes one by one
    recur.Recurrent    a network of any cell, deep and in both directions
    recur.nn           RNN, GRU and LSTM as torch.nn has them, and their cells
    recur.Cell         write your own; recur.make_cell finds one by name or file
    recur.scan         apply a cell along a sequence, forward and backward; recur.ops has its backends and traces
    recur.BPTT         which gradients cross time (recur.ops.bptt)
    recur.data         readers: text (corpus, tokenizers, vocabulary, streams), series, signals, images
    recur.baselines    n-gram language models
    recur.reference    the textbook in NumPy, gradients by hand
    recur.errors       what recur raises
    recur.sklearn      estimators for scikit-learn (the extra `sklearn`)

These are public, and what the `__all__` of each of these modules names; everything else is for recur itself and may
change between versions. Every public name has an example in its docstring, which is run: help(recur.Recurrent),
help(recur.data.text.Corpus), help(recur.scan). All of them on pages: `python -m docs` in the repository makes
build/site/en/api/recur.html, with the guides beside them. What a model of `recur.fit` can do: help(recur.api).

Names are imported when they are first used: `import recur` alone does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.imports import allow_saved_models, lazy

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recur import baselines as baselines
    from recur import cells as cells
    from recur import data as data
    from recur import diagnostics as diagnostics
    from recur import nn as nn
    from recur import ops as ops
    from recur import reference as reference
    from recur.api import fit as fit
    from recur.api import from_pretrained as from_pretrained
    from recur.api import load as load
    from recur.cells import Cell as Cell
    from recur.cells import MatrixCell as MatrixCell
    from recur.cells import cell_names as cell_names
    from recur.cells import make_cell as make_cell
    from recur.diagnostics import xray as xray
    from recur.errors import RecurError as RecurError
    from recur.nn import Recurrent as Recurrent
    from recur.ops.bptt import BPTT as BPTT
    from recur.ops.scan import scan as scan
    from recur.training.sweeps import sweep as sweep

_NAMES = {
    "BPTT": "recur.ops.bptt",
    "Cell": "recur.cells",
    "MatrixCell": "recur.cells",
    "RecurError": "recur.errors",
    "Recurrent": "recur.nn",
    "cell_names": "recur.cells",
    "fit": "recur.api",
    "from_pretrained": "recur.api",
    "load": "recur.api",
    "make_cell": "recur.cells",
    "scan": "recur.ops",
    "sweep": "recur.training.sweeps",
    "xray": "recur.diagnostics",
}
_MODULES = ("baselines", "cells", "data", "diagnostics", "nn", "ops", "reference")

__all__ = [*_NAMES, *_MODULES]


allow_saved_models()

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES | {name: f"recur.{name}" for name in _MODULES})


def __dir__() -> list[str]:
    return sorted(__all__)

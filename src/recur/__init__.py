"""recur: recurrent networks as equations, carried along sequences, with their gradients in view.

    recur.fit          train a model on a text or a table; recur.load opens one that is trained
    recur.sweep        search for good options of a task
    recur.xray         look into a model while it reads a text; recur.probes has the probes one by one
    recur.Recurrent    a network of any cell, deep and in both directions
    recur.nn           RNN, GRU and LSTM as torch.nn has them, and their cells
    recur.Cell         write your own; recur.make_cell finds one by name or file
    recur.scan         carry a cell along a sequence: from recur.scan import scan
    recur.bptt         what crosses time on the way back
    recur.text         corpus, tokens, vocabulary, stream
    recur.ngram        models that count
    recur.reference    the textbook in NumPy, gradients by hand
    recur.errors       what recur raises
    recur.sklearn      estimators for scikit-learn (the extra `sklearn`)

These are public, and what the `__all__` of each of these modules names; everything else is for recur itself and may
change between versions. Every public name has an example in its docstring, which is run: help(recur.Recurrent),
help(recur.text.Corpus), help(recur.scan.scan). All of them on pages: `python -m docs` in the repository makes
build/site/en/api/recur.html, with the guides beside them. What a model of `recur.fit` can do: help(recur.api).

Names are imported when they are first used: `import recur` alone does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.lazy import lazy
from recur.trusted import trust

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recur import bptt as bptt
    from recur import cells as cells
    from recur import layers as layers
    from recur import ngram as ngram
    from recur import nn as nn
    from recur import probes as probes
    from recur import reference as reference
    from recur import scan as scan
    from recur import text as text
    from recur.api import fit as fit
    from recur.api import load as load
    from recur.bptt import BPTT as BPTT
    from recur.cells import Cell as Cell
    from recur.cells import cell_names as cell_names
    from recur.cells import make_cell as make_cell
    from recur.errors import RecurError as RecurError
    from recur.layers import Recurrent as Recurrent
    from recur.probes import xray as xray
    from recur.sweeps import sweep as sweep

_NAMES = {
    "BPTT": "recur.bptt",
    "Cell": "recur.cells",
    "RecurError": "recur.errors",
    "Recurrent": "recur.layers",
    "cell_names": "recur.cells",
    "fit": "recur.api",
    "load": "recur.api",
    "make_cell": "recur.cells",
    "sweep": "recur.sweeps",
    "xray": "recur.probes",
}
_MODULES = ("bptt", "cells", "layers", "ngram", "nn", "probes", "reference", "scan", "text")

__all__ = [*_NAMES, *_MODULES]


trust()

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES | {name: f"recur.{name}" for name in _MODULES})


def __dir__() -> list[str]:
    return sorted(__all__)

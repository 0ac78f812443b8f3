"""Cells composed: `recurrent.py` deep and in both directions, with `options.py`; `nn.py` drop-in for torch.nn;
`init.py` how weights start; `conditioning.py` with a context, `attention.py` over a memory, `output_recurrence.py` with
edges from the output only; `tree.py` over trees and `grid.py` over grids, both by the equations of `compose.py`;
`pooling.py` many states to one.

Names are imported when they are first used: options alone need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recur.layers.attention import Attention as Attention
    from recur.layers.conditioning import Conditioned as Conditioned
    from recur.layers.dropout import drop_steps as drop_steps
    from recur.layers.grid import Grid as Grid
    from recur.layers.options import Connections as Connections
    from recur.layers.options import Depth as Depth
    from recur.layers.options import Dropout as Dropout
    from recur.layers.options import Init as Init
    from recur.layers.output_recurrence import OutputRecurrent as OutputRecurrent
    from recur.layers.pooling import Pooling as Pooling
    from recur.layers.recurrent import Recurred as Recurred
    from recur.layers.recurrent import Recurrent as Recurrent
    from recur.layers.tree import Forest as Forest
    from recur.layers.tree import Recursive as Recursive

_MODULES = {
    "Attention": "attention",
    "Conditioned": "conditioning",
    "Connections": "options",
    "Depth": "options",
    "Dropout": "options",
    "Forest": "tree",
    "Grid": "grid",
    "Init": "options",
    "OutputRecurrent": "output_recurrence",
    "Pooling": "pooling",
    "Recurred": "recurrent",
    "Recurrent": "recurrent",
    "Recursive": "tree",
    "drop_steps": "dropout",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

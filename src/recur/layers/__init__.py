"""Cells composed: `recurrent.py` deep and in both directions, with `options.py`; `nn.py` drop-in for torch.nn;
`init.py` how weights start; `conditioning.py` with a context, `attention.py` over a memory, `output_recurrence.py` with
edges from the output only; `tree.py` over trees and `grid.py` over grids, both by the equations of `compose.py`;
`pooling.py` many states to one; `crf.py` tags that know their neighbours.

Names are imported when they are first used: options alone need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.lazy import lazy

if TYPE_CHECKING:
    from recur.layers.attention import Attention as Attention
    from recur.layers.compose import Composition as Composition
    from recur.layers.conditioning import Conditioned as Conditioned
    from recur.layers.crf import CRF as CRF
    from recur.layers.crf import Moves as Moves
    from recur.layers.crf import NBest as NBest
    from recur.layers.dropout import drop_steps as drop_steps
    from recur.layers.grid import Grid as Grid
    from recur.layers.init import initialise_linear as initialise_linear
    from recur.layers.options import Connections as Connections
    from recur.layers.options import Depth as Depth
    from recur.layers.options import Dropout as Dropout
    from recur.layers.options import Init as Init
    from recur.layers.output_recurrence import FeedForward as FeedForward
    from recur.layers.output_recurrence import OutputRecurrent as OutputRecurrent
    from recur.layers.pooling import Pooling as Pooling
    from recur.layers.recurred import Recurred as Recurred
    from recur.layers.recurrent import Recurrent as Recurrent
    from recur.layers.tree import Forest as Forest
    from recur.layers.tree import Recursive as Recursive

_NAMES = {
    "CRF": "recur.layers.crf",
    "Attention": "recur.layers.attention",
    "Composition": "recur.layers.compose",
    "Conditioned": "recur.layers.conditioning",
    "Connections": "recur.layers.options",
    "Depth": "recur.layers.options",
    "Dropout": "recur.layers.options",
    "FeedForward": "recur.layers.output_recurrence",
    "Forest": "recur.layers.tree",
    "Grid": "recur.layers.grid",
    "Init": "recur.layers.options",
    "Moves": "recur.layers.crf",
    "NBest": "recur.layers.crf",
    "OutputRecurrent": "recur.layers.output_recurrence",
    "Pooling": "recur.layers.pooling",
    "Recurred": "recur.layers.recurred",
    "Recurrent": "recur.layers.recurrent",
    "Recursive": "recur.layers.tree",
    "drop_steps": "recur.layers.dropout",
    "initialise_linear": "recur.layers.init",
}

_OWN = {"Moves", "NBest", "drop_steps", "initialise_linear"}
"""For recur itself."""

__all__ = [name for name in _NAMES if name not in _OWN]
if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES)

"""Cells composed: `recurrent.py` deep and bidirectional, `nn.py` drop-in for torch.nn, `init.py` how weights start;
`conditioning.py` with a context, `attention.py` over a memory, `output_recurrence.py` with edges from the output only;
`tree.py` over trees and `grid.py` over grids, both by the equations of `compose.py`; `pooling.py` many states to one.
"""

from recur.layers.attention import Attention
from recur.layers.conditioning import Conditioned
from recur.layers.dropout import drop_steps
from recur.layers.grid import Grid
from recur.layers.output_recurrence import OutputRecurrent
from recur.layers.pooling import Pooling
from recur.layers.recurrent import Recurred, Recurrent
from recur.layers.tree import Forest, Recursive

__all__ = [
    "Attention",
    "Conditioned",
    "Forest",
    "Grid",
    "OutputRecurrent",
    "Pooling",
    "Recurred",
    "Recurrent",
    "Recursive",
    "drop_steps",
]

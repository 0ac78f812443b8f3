"""Cells composed: `recurrent.py` deep and bidirectional, `tree.py` over trees, `grid.py` over grids (`compose.py` has
their equations), `nn.py` drop-in for torch.nn, `init.py` how weights start."""

from recur.layers.grid import Grid
from recur.layers.recurrent import Recurred, Recurrent
from recur.layers.tree import Forest, Recursive

__all__ = ["Forest", "Grid", "Recurred", "Recurrent", "Recursive"]

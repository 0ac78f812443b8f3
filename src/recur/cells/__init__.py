"""Cells: one recurrence a file. `cell.py` is the contract, `registry.py` finds them by name.

Every cell in this folder can be imported from here, `from recur.cells import IndRNN`, because its file is here; there
is no list to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.serialization import add_safe_globals

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.registry import CellLike, cell_classes, cell_names, make_cell

if TYPE_CHECKING:  # with their own types, for the files of recur that name them
    from recur.cells.deep import DeepTransition as DeepTransition
    from recur.cells.elman import Elman as Elman
    from recur.cells.gru import GRU as GRU
    from recur.cells.lstm import LSTM as LSTM

__all__ = ["Cell", "CellLike", "State", "Tensors", "Weights", "cell_names", "make_cell"]
__all__ += sorted(cell_classes())

add_safe_globals(list(cell_classes().values()))  # see recur.utils.safe_globals; not those of a user's own


def __getattr__(name: str) -> type[Cell]:
    if name not in cell_classes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return cell_classes()[name]

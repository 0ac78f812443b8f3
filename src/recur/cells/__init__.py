"""Cells: one recurrence per file. `cell.py` is the contract, `registry.py` finds cells by name.

Every cell in this folder can be imported from here, for example `from recur.cells import IndRNN`. There is no list to
maintain: the package imports the files of the folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.serialization import add_safe_globals

from recur.cells.cell import Cell, State, Tensors, Weights
from recur.cells.registry import CellLike, cell_classes, cell_names, make_cell
from recur.cells.slopes import custom, detach, spike

if TYPE_CHECKING:  # static types of the cells that other packages name
    from recur.cells.deep import DeepTransition as DeepTransition
    from recur.cells.elman import Elman as Elman
    from recur.cells.gru import GRU as GRU
    from recur.cells.lstm import LSTM as LSTM
    from recur.cells.matrix import MatrixCell as MatrixCell

__all__ = ["Cell", "CellLike", "State", "Tensors", "Weights", "cell_names", "custom", "detach", "make_cell", "spike"]
__all__ += sorted(cell_classes())

add_safe_globals(list(cell_classes().values()))  # see recur.utils.imports; user-defined cells are not included


def __getattr__(name: str) -> type[Cell]:
    if name not in cell_classes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return cell_classes()[name]

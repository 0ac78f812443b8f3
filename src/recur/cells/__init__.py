"""Cells: one recurrence a file. `cell.py` is the contract, `registry.py` finds them by name."""

from recur.cells.cell import Cell, Weights
from recur.cells.deep import DeepTransition
from recur.cells.elman import Elman
from recur.cells.gru import GRU
from recur.cells.gru2014 import GRU2014
from recur.cells.indrnn import IndRNN
from recur.cells.leaky import Leaky
from recur.cells.lstm import LSTM
from recur.cells.lstm1997 import LSTM1997
from recur.cells.mgu import MGU
from recur.cells.mingru import MinGRU
from recur.cells.peephole import PeepholeLSTM
from recur.cells.registry import cell_names, make_cell

__all__ = [
    "GRU",
    "GRU2014",
    "LSTM",
    "LSTM1997",
    "MGU",
    "Cell",
    "DeepTransition",
    "Elman",
    "IndRNN",
    "Leaky",
    "MinGRU",
    "PeepholeLSTM",
    "Weights",
    "cell_names",
    "make_cell",
]

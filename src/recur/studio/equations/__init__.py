"""Cells written as in a textbook: parsed, run over a sequence, and differentiated, one number at a time.

    z  = σ(U_z x + W_z h + b_z)
    h' = (1 − z) ⊙ h + z ⊙ tanh(U x + W h + b)

    parser.py        tokens with line and column; equations → trees by recursive descent; no text is executed
    graph.py         operations on vectors and their derivatives; trees → a graph of states, weights and sizes
    network.py       the graph along a text, with a softmax at the end: every value and every gradient
    textbook.py      Elman, LSTM, GRU and others in this language
    python_cell.py   the same equations as a cell for `recur train --cell file.py:Class`

NumPy and float64, for a few units and a few steps: to be inspected rather than to be fast.
"""

from recur.studio.equations.graph import Equations, read_equations
from recur.studio.equations.network import EquationNetwork
from recur.studio.equations.parser import EquationError

__all__ = ["EquationError", "EquationNetwork", "Equations", "read_equations"]

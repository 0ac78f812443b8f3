"""Cells written as a book writes them: read, carried along a sequence and differentiated, one number at a time.

    z  = σ(U_z x + W_z h + b_z)
    h' = (1 − z) ⊙ h + z ⊙ tanh(U x + W h + b)

    tokens.py        names, numbers and signs, each with its line and column
    grammar.py       equations → trees, by recursive descent; no text is ever executed
    graph.py         operations on vectors, and what each passes back
    reading.py       trees → a graph: what is a state, what a weight, how large each is
    network.py       the graph along a text, with a softmax at the end: every value, and every gradient
    textbook.py      Elman, LSTM, GRU and others in this language
    python_cell.py   the same equations as a cell for `recur train --cell file.py:Class`

In NumPy and float64, to be looked at rather than to be fast: a few units, a few steps.
"""

from recur.studio.equations.network import Network
from recur.studio.equations.reading import Equations, read
from recur.studio.equations.tokens import EquationError

__all__ = ["EquationError", "Equations", "Network", "read"]

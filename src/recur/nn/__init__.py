"""Layers made of cells.

recurrent           `Recurrent`: layers, directions, dropout, residual and skip connections; options.py has its options
drop_in             RNN, GRU, LSTM and their cells with the interface of torch.nn
conditioning        networks with a context vector; networks whose next step reads the output, not the hidden state
attention           attention over a memory; pooling of states
recursive, grid     recursive networks over trees and grids; recursive.py has the equations of one node
crf                 linear-chain conditional random field
functional          weight initialisation; dropout, MLPs, memory-saving cross-entropy
streaming           one step at a time for inference

Names are imported on first use, so that reading options does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.imports import lazy

if TYPE_CHECKING:
    from recur.nn.attention import Attention, Pooling
    from recur.nn.conditioning import Conditioned, FeedForward, OutputRecurrent
    from recur.nn.crf import CRF
    from recur.nn.drop_in import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
    from recur.nn.grid import Grid
    from recur.nn.options import Connections, Depth, Dropout, Init
    from recur.nn.recurrent import Recurrent, RecurrentOutput
    from recur.nn.recursive import Composition, Forest, Recursive

__all__ = [
    "CRF",
    "GRU",
    "LSTM",
    "RNN",
    "Attention",
    "Composition",
    "Conditioned",
    "Connections",
    "Depth",
    "Dropout",
    "FeedForward",
    "Forest",
    "GRUCell",
    "Grid",
    "Init",
    "LSTMCell",
    "OutputRecurrent",
    "Pooling",
    "RNNCell",
    "Recurrent",
    "RecurrentOutput",
    "Recursive",
]

_NAMES = {
    "attention": ("Attention", "Pooling"),
    "conditioning": ("Conditioned", "FeedForward", "OutputRecurrent"),
    "crf": ("CRF",),
    "drop_in": ("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNCell"),
    "grid": ("Grid",),
    "options": ("Connections", "Depth", "Dropout", "Init"),
    "recurrent": ("Recurrent", "RecurrentOutput"),
    "recursive": ("Composition", "Forest", "Recursive"),
}
"""Public names by module."""

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, {name: f"recur.nn.{module}" for module, names in _NAMES.items() for name in names})

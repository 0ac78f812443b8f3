"""Layers made of cells.

recurrent           `Recurrent`: layers, directions, dropout, residual and skip connections; options.py has its options
drop_in             RNN, GRU, LSTM and their cells with the interface of torch.nn
conditioning        recurrent networks with a context vector
attention           attention over a memory; pooling of states
output_recurrence   networks whose next step reads the output, not the hidden state
tree, grid          recursive networks over trees and grids; composition.py has the equations of one node
crf                 linear-chain conditional random field
init, functional    weight initialisation; dropout, MLPs, memory-saving cross-entropy
streaming           one step at a time for inference

Names are imported on first use, so that reading options does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recur.utils.lazy import lazy

if TYPE_CHECKING:
    from recur.nn.attention import Attention as Attention
    from recur.nn.attention import Pooling as Pooling
    from recur.nn.composition import Composition as Composition
    from recur.nn.conditioning import Conditioned as Conditioned
    from recur.nn.crf import CRF as CRF
    from recur.nn.crf import NBest as NBest
    from recur.nn.crf import Transitions as Transitions
    from recur.nn.drop_in import GRU as GRU
    from recur.nn.drop_in import LSTM as LSTM
    from recur.nn.drop_in import RNN as RNN
    from recur.nn.drop_in import GRUCell as GRUCell
    from recur.nn.drop_in import LSTMCell as LSTMCell
    from recur.nn.drop_in import RNNCell as RNNCell
    from recur.nn.functional import sequence_dropout as sequence_dropout
    from recur.nn.grid import Grid as Grid
    from recur.nn.init import initialise_linear as initialise_linear
    from recur.nn.options import Connections as Connections
    from recur.nn.options import Depth as Depth
    from recur.nn.options import Dropout as Dropout
    from recur.nn.options import Init as Init
    from recur.nn.output_recurrence import FeedForward as FeedForward
    from recur.nn.output_recurrence import OutputRecurrent as OutputRecurrent
    from recur.nn.recurrent import Recurrent as Recurrent
    from recur.nn.recurrent import RecurrentOutput as RecurrentOutput
    from recur.nn.tree import Forest as Forest
    from recur.nn.tree import Recursive as Recursive

_NAMES = {
    "CRF": "recur.nn.crf",
    "GRU": "recur.nn.drop_in",
    "LSTM": "recur.nn.drop_in",
    "RNN": "recur.nn.drop_in",
    "Attention": "recur.nn.attention",
    "Composition": "recur.nn.composition",
    "Conditioned": "recur.nn.conditioning",
    "Connections": "recur.nn.options",
    "Depth": "recur.nn.options",
    "Dropout": "recur.nn.options",
    "FeedForward": "recur.nn.output_recurrence",
    "GRUCell": "recur.nn.drop_in",
    "LSTMCell": "recur.nn.drop_in",
    "RNNCell": "recur.nn.drop_in",
    "Forest": "recur.nn.tree",
    "Grid": "recur.nn.grid",
    "Init": "recur.nn.options",
    "Transitions": "recur.nn.crf",
    "NBest": "recur.nn.crf",
    "OutputRecurrent": "recur.nn.output_recurrence",
    "Pooling": "recur.nn.attention",
    "RecurrentOutput": "recur.nn.recurrent",
    "Recurrent": "recur.nn.recurrent",
    "Recursive": "recur.nn.tree",
    "sequence_dropout": "recur.nn.functional",
    "initialise_linear": "recur.nn.init",
}

_OWN = {"Transitions", "NBest", "sequence_dropout", "initialise_linear"}
"""Names for use inside recur; not part of the public interface."""

__all__ = [name for name in _NAMES if name not in _OWN]
if not TYPE_CHECKING:
    __getattr__ = lazy(__name__, _NAMES)

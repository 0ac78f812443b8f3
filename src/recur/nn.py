"""`recur.nn`, where a user of torch.nn looks for it."""

from recur.layers.nn import GRU, LSTM, RNN
from recur.layers.nn_cells import GRUCell, LSTMCell, RNNCell

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

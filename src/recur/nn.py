"""`recur.nn`, where a user of torch.nn looks for it."""

from recur.layers.nn import GRU, LSTM, RNN

__all__ = ["GRU", "LSTM", "RNN"]

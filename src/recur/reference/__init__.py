"""Textbook implementation: Elman, LSTM and GRU in NumPy, float64, with every gradient derived by hand.

Written to be read with the notes and to check all other code, not to be fast.

    elman, lstm, gru    one step, forward and backward
    sequence            all steps of a sequence, forward and backward; powers of a linear recurrence in closed form
    network             the softmax output layer and the loss; connectionist temporal classification
"""

from recur.reference import elman, gru, lstm, network, sequence

__all__ = ["elman", "gru", "lstm", "network", "sequence"]

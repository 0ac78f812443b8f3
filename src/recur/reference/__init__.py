"""Textbook implementation: Elman, LSTM and GRU in NumPy, float64, with every gradient derived by hand.

Written to be read with the notes and to check all other code, not to be fast.

    elman, lstm, gru    one step, forward and backward
    sequence            all steps of a sequence, forward and backward
    network             the softmax output layer and the loss
    ctc                 connectionist temporal classification
    linear              powers of the recurrent matrix, in closed form
"""

from recur.reference import ctc, elman, gru, linear, lstm, network, sequence

__all__ = ["ctc", "elman", "gru", "linear", "lstm", "network", "sequence"]

"""The textbook: Elman, LSTM and GRU in NumPy, float64, with every gradient derived by hand.

Written to be read beside the notes and to check everything else against; not to be fast.

    elman, lstm, gru    one step, forward and backward
    sequence            along time, forward and backward
    network             the softmax output layer and the loss
    ctc                 labels without alignment
    linear              powers of the recurrent matrix, in closed form
"""

from recur.reference import ctc, elman, gru, linear, lstm, network, sequence

__all__ = ["ctc", "elman", "gru", "linear", "lstm", "network", "sequence"]

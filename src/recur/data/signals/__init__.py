"""Sequences of numbers, (T, D) each: speech, pens, sensors, rows of an image. No torch.

`files.py` reads one from a file, `arrays.py` many from an .npz, `collection.py` those and folders, with their labels;
`looks.py` says what a name holds without reading all of it.
"""

from recur.data.signals.collection import Signal, is_signals, label_of, labels_of, read_signals
from recur.data.signals.files import SUFFIXES, Values, as_values, read_signal
from recur.data.signals.looks import Look, look_at

__all__ = [
    "SUFFIXES",
    "Look",
    "Signal",
    "Values",
    "as_values",
    "is_signals",
    "label_of",
    "labels_of",
    "look_at",
    "read_signal",
    "read_signals",
]

"""An n-gram model of label sequences, for a prefix beam to rank by: an ARPA file whose tokens are the labels.

recur ngram labels.txt --token word --save labels.arpa        a line a sequence, its labels between spaces
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recur.baselines.ngram import NGram
from recur.data.text import BOS, EOS, UNK
from recur.data.text.stream import Floats
from recur.decoding.ctc import LabelLanguageModel
from recur.errors import OptionError

LEAST = 1e-10
"""The probability of what the model has never seen, at least: the network may know better."""


def language_of(model: NGram, labels: Sequence[str]) -> LabelLanguageModel:
    """log P of each label and, last, of the end behind a prefix of labels by number."""
    known = model.vocab.ids
    if model.backward or not any(label in known for label in labels):
        why = "reads from the end" if model.backward else f"knows none of the labels {', '.join(labels[:5])}"
        raise OptionError(f"the n-gram model {why}: count lines of labels between spaces, recur ngram --token word")
    columns = [known.get(label, UNK) for label in labels]
    start = [] if model.vocab.line_end is None else [BOS]

    def language(prefix: tuple[int, ...]) -> Floats:
        p = model.distribution([*start, *(columns[k] for k in prefix)])
        found: Floats = np.log(np.maximum(p[[*columns, EOS]], LEAST))
        return found

    return language

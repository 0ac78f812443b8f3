"""n-gram language models: counting, three smoothing methods, ARPA files, and text statistics."""

from recur.baselines.ngram.arpa import read_arpa, write_arpa
from recur.baselines.ngram.model import SMOOTHINGS, Evaluation, NGram, fit

__all__ = ["SMOOTHINGS", "Evaluation", "NGram", "fit", "read_arpa", "write_arpa"]

"""Models that count: n-grams of any order, three ways of smoothing, ARPA files, and the statistics of a text."""

from recur.baselines.ngram.arpa import read_arpa, write_arpa
from recur.baselines.ngram.estimation import SMOOTHINGS, fit
from recur.baselines.ngram.model import Evaluation, NGram

__all__ = ["SMOOTHINGS", "Evaluation", "NGram", "fit", "read_arpa", "write_arpa"]

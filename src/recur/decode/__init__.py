"""From distributions to tokens: sampling.py carries a language model on, search.py writes sequences that end."""

from recur.decode.sampling import Choice, beam, encode_prompt, generate, read
from recur.decode.search import greedy, likelihood, sample, search
from recur.decode.writer import Ensemble, Writer, Written

__all__ = [
    "Choice",
    "Ensemble",
    "Writer",
    "Written",
    "beam",
    "encode_prompt",
    "generate",
    "greedy",
    "likelihood",
    "read",
    "sample",
    "search",
]

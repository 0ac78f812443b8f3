"""From distributions to tokens.

sampling.py       the next token of a language model, drawn
search.py         sequences of any writer: the likeliest symbols, drawn ones, beam search
continuation.py   a language model as such a writer
ctc.py            labels from a network that gives a distribution over them at every step
"""

from recur.decoding.continuation import beam
from recur.decoding.sampling import Choice, encode_prompt, generate, read
from recur.decoding.search import greedy, likelihood, likelihoods, sample, search
from recur.decoding.writer import Ensemble, Writer, Written

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
    "likelihoods",
    "read",
    "sample",
    "search",
]

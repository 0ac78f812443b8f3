"""From distributions to tokens.

sampling      the next token of a language model, drawn
beam_search   sequences of any writer: greedy, sampled, or by beam search; a language model as such a writer
ctc           labels from a network that gives a distribution over labels at every step
"""

from recur.decoding.beam_search import (
    Ensemble,
    Writer,
    Written,
    beam,
    beam_search,
    greedy,
    likelihood,
    likelihoods,
    sample,
)
from recur.decoding.sampling import Choice, encode_prompt, generate, read

__all__ = [
    "Choice",
    "Ensemble",
    "Writer",
    "Written",
    "beam",
    "beam_search",
    "encode_prompt",
    "generate",
    "greedy",
    "likelihood",
    "likelihoods",
    "read",
    "sample",
]

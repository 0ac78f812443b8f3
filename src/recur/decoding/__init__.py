"""From distributions to tokens.

sampling      the next token of a language model, drawn
beam_search   sequences of any writer: greedy, sampled, or by beam search; a language model as such a writer
ctc           labels from a network that gives a distribution over labels at every step
"""

from recur.decoding.beam_search import (
    DecodedSequence,
    DecoderEnsemble,
    StepDecoder,
    beam_continuations,
    beam_search,
    greedy_decode,
    likelihood,
    likelihoods,
    sample_decode,
)
from recur.decoding.sampling import SamplingOptions, encode_prompt, generate, read_prompt

__all__ = [
    "DecodedSequence",
    "DecoderEnsemble",
    "SamplingOptions",
    "StepDecoder",
    "beam_continuations",
    "beam_search",
    "encode_prompt",
    "generate",
    "greedy_decode",
    "likelihood",
    "likelihoods",
    "read_prompt",
    "sample_decode",
]

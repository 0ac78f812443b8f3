"""Decoding: from distributions to tokens.

sampling      sampling from a language model: temperature, top-k, top-p, min-p
beam_search   greedy decoding, sampling and beam search for any step decoder
ctc           best path and prefix beam search for CTC outputs
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

"""From distributions to tokens: sampling, beam search."""

from recur.decode.sampling import Choice, beam, encode_prompt, generate, read

__all__ = ["Choice", "beam", "encode_prompt", "generate", "read"]

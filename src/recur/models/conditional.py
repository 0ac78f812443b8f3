"""One to many: a sequence from a label, such as a name of a given language (Deep Learning, section 10.2.4).

c = embedding of the label
y_1 … y_τ = decoder(c)              see recur.models.decoder
"""

from __future__ import annotations

from torch import Tensor, nn

from recur.models.decoder import Context, Decoder, Scores
from recur.models.decoder_options import DecoderOptions
from recur.models.writer import DecoderWriter


class ConditionalModel(nn.Module):
    """Lines of a vocabulary of K, from one of N labels."""

    def __init__(self, N: int, K: int, options: DecoderOptions) -> None:
        super().__init__()
        self.options = options
        self.labels = nn.Embedding(N, options.embedding)
        self.decoder = Decoder(K, options.embedding, 0, options)

    def forward(self, label: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None) -> Scores:
        """Labels (B,), targets (B, T), of which lengths (B,) count; as `Decoder.forward`."""
        scores: Scores = self.decoder(Context(self.labels(label)), target, lengths, forced)
        return scores

    def writer(self, label: Tensor) -> DecoderWriter:
        return DecoderWriter(self.decoder, Context(self.labels(label)))

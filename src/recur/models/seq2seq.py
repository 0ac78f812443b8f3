"""Encoder and decoder: a sequence from another of any length.

    m_1 … m_S = encoder(x_1 … x_S)      a recurrent network, in both directions unless told otherwise
    c = [last state forward; last state backward]
    y_1 … y_τ = decoder(c, m)           see recur.models.decoder

Sutskever, Vinyals and Le 2014; Cho et al. 2014; with attention, Bahdanau, Cho and Bengio 2015.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from recur.layers import Recurrent, drop_steps
from recur.models.decoder import Context, Decoder, DecoderOptions, Scores
from recur.models.writing import Writing


@dataclass(frozen=True)
class Seq2SeqOptions(DecoderOptions):
    """What an encoder–decoder is made of; fields of the same names are in a training configuration."""

    encoder_layers: int = 1
    bidirectional: bool = True


class Seq2Seq(nn.Module):
    """Sources of a vocabulary of V_in, targets of one of V_out."""

    def __init__(self, V_in: int, V_out: int, options: Seq2SeqOptions) -> None:
        super().__init__()
        o = self.options = options
        self.embedding = nn.Embedding(V_in, o.embedding)
        told = o.recurrent() | {"layers": o.encoder_layers}
        told["dropout"] = o.dropout_hidden if o.encoder_layers > 1 else 0.0
        self.encoder = Recurrent(o.cell, o.embedding, o.hidden, bidirectional=o.bidirectional, **told)
        width = self.encoder.output_size
        self.decoder = Decoder(V_out, width, width, o)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def encode(self, source: Tensor, lengths: Tensor) -> Context:
        """The context of sources (B, S), of which lengths (B,), on the CPU, count."""
        x = drop_steps(self.embedding(source), self.options.dropout_input, training=self.training, variational=False)
        memory, state, _ = self.encoder(x, lengths=lengths)
        last = state[-2:] if self.options.bidirectional else state[-1:]
        return Context(torch.cat([part[0] for part in last], dim=-1), memory, lengths.to(source.device))

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None
    ) -> Scores:
        """As `Decoder.forward`, from the source."""
        scores: Scores = self.decoder(self.encode(source, source_lengths), target, lengths, forced)
        return scores

    def writing(self, source: Tensor, lengths: Tensor) -> Writing:
        return Writing(self.decoder, self.encode(source, lengths))

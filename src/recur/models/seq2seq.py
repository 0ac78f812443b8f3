"""Encoder and decoder: a sequence from another of any length.

    m_1 … m_S = encoder(x_1 … x_S)      a recurrent network, in both directions unless asked otherwise
    c = [last state forward; last state backward]
    y_1 … y_τ = decoder(c, m)           see recur.models.decoder

Sutskever, Vinyals and Le 2014; Cho et al. 2014; with attention, Bahdanau, Cho and Bengio 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recur.errors import OptionError
from recur.layers import Recurrent
from recur.models.decoder import Context, Decoder, Scores
from recur.models.decoder_options import EncoderDecoderOptions
from recur.models.embedding import TokenEmbedding
from recur.models.stack import writing_stack
from recur.models.time import beside, whole
from recur.models.writer import DecoderWriter


class Seq2Seq(nn.Module):
    """Sources of a vocabulary of K_in, targets of one of K_out."""

    copies: Tensor | None

    def __init__(
        self, K_in: int, K_out: int, options: EncoderDecoderOptions, copies: Sequence[int] | None = None
    ) -> None:
        """`copies` are the symbols of the target for each of the source, where symbols can be copied."""
        super().__init__()
        o = self.options = options
        if o.copy and copies is None:
            raise OptionError("what is copied needs the target's symbol for each of the source: copies")
        self.embedding = TokenEmbedding(K_in, o.embedding, o.embedding_init, drop=o.dropout_input)
        layers = writing_stack(o, o.encoder_layers, o.dropout_hidden)
        self.clock = o.clock
        read = o.embedding + (self.clock is not None)
        self.encoder = Recurrent(o.cell, read, o.hidden, direction=o.direction, **layers)
        width = self.encoder.output_size
        self.decoder = Decoder(K_out, width, width, o, o.attention, input_feeding=o.input_feeding, copy=o.copy)
        self.register_buffer("copies", torch.tensor(copies) if o.copy else None, persistent=False)

    def encode(self, source: Tensor, lengths: Tensor | None) -> Context:
        """The context of sources (B, S), of which lengths (B,), on the CPU, count; all, if none are given."""
        x = self.embedding(source)
        if self.clock is not None:
            x = beside(x, whole(source), self.clock)
        memory, state, _ = self.encoder(x, lengths=lengths)
        last = state[-2:] if self.options.direction == "both" else state[-1:]
        vector = torch.cat([self.encoder.cell.output(part) for part in last], dim=-1)
        symbols = None if self.copies is None else self.copies[source]
        return Context(vector, memory, None if lengths is None else lengths.to(source.device), symbols)

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None
    ) -> Scores:
        """As `Decoder.forward`, from the source."""
        scores: Scores = self.decoder(self.encode(source, source_lengths), target, lengths, forced)
        return scores

    def writer(self, source: Tensor, lengths: Tensor, longest: int | None = None) -> DecoderWriter:
        return DecoderWriter(self.decoder, self.encode(source, lengths), longest)

"""Sequence generation from a label (`ConditionalModel`) or from a source sequence (`Seq2Seq`).

c = embedding of the label, or encoder of the source          Deep Learning, sections 10.2.4 and 10.4
y_1 … y_τ = decoder(c)                                        see recur.models.decoder
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recur.cells.registry import configured_cell
from recur.errors import OptionError
from recur.models.decoder import BatchDecoder, Decoder, DecoderContext, DecoderScores
from recur.models.inputs import TokenEmbedding, append_time, step_indices
from recur.models.options import DecoderOptions, EncoderDecoderOptions
from recur.models.stack import decoder_network_options
from recur.nn import Recurrent


class ConditionalModel(nn.Module):
    """Generator of sequences over K symbols for one of N labels."""

    def __init__(self, N: int, K: int, options: DecoderOptions) -> None:
        super().__init__()
        self.options = options
        self.labels = nn.Embedding(N, options.embedding)
        self.decoder = Decoder(K, options.embedding, 0, options)

    def forward(self, label: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None) -> DecoderScores:
        """Return scores of targets (B, T) with lengths (B,) for labels (B,); as `Decoder.forward`."""
        scores: DecoderScores = self.decoder(DecoderContext(self.labels(label)), target, lengths, forced)
        return scores

    def writer(self, label: Tensor) -> BatchDecoder:
        return BatchDecoder(self.decoder, DecoderContext(self.labels(label)))


class Seq2Seq(nn.Module):
    """Encoder-decoder from sources over K_in symbols to targets over K_out symbols."""

    copies: Tensor | None

    def __init__(
        self, K_in: int, K_out: int, options: EncoderDecoderOptions, copies: Sequence[int] | None = None
    ) -> None:
        """Create the network. `copies` maps source symbols to target symbols, if symbols can be copied."""
        super().__init__()
        o = self.options = options
        if o.copy and copies is None:
            raise OptionError("copying needs `copies`: the target symbol of every source symbol")
        self.embedding = TokenEmbedding(K_in, o.embedding, o.embedding_init, drop=o.dropout_input)
        layers = decoder_network_options(o, o.encoder_layers, o.dropout_hidden)
        self.clock = o.clock
        read = o.embedding + (self.clock is not None)
        self.encoder = Recurrent(configured_cell(o.cell), read, o.hidden, direction=o.direction, **layers)
        width = self.encoder.output_size
        self.decoder = Decoder(K_out, width, width, o, o.attention, input_feeding=o.input_feeding, copy=o.copy)
        self.register_buffer("copies", torch.tensor(copies) if o.copy else None, persistent=False)

    def encode(self, source: Tensor, lengths: Tensor | None) -> DecoderContext:
        """Return the context of sources (B, S) with lengths (B,) on the CPU; the whole source if not given."""
        x = self.embedding(source)
        if self.clock is not None:
            x = append_time(x, step_indices(source), self.clock)
        memory, state, _ = self.encoder(x, lengths=lengths)
        last = state[-2:] if self.options.direction == "both" else state[-1:]
        vector = torch.cat([self.encoder.cell.output(part) for part in last], dim=-1)
        symbols = None if self.copies is None else self.copies[source]
        return DecoderContext(vector, memory, None if lengths is None else lengths.to(source.device), symbols)

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, lengths: Tensor, forced: Tensor | None = None
    ) -> DecoderScores:
        """Return scores of targets given sources; as `Decoder.forward`."""
        scores: DecoderScores = self.decoder(self.encode(source, source_lengths), target, lengths, forced)
        return scores

    def writer(self, source: Tensor, lengths: Tensor, longest: int | None = None) -> BatchDecoder:
        return BatchDecoder(self.decoder, self.encode(source, lengths), longest)

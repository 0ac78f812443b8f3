"""A window read in segments, and all segments to come written at once (Lin et al. 2023, SegRNN).

    e_i = relu(W_s s_i + b)                      a segment of s steps as one input: a window of 96 is 4 steps of 24
    h_i = g(h_{i−1}, e_i)                        any recurrent network
    q_j = position_j + channel_c + K known_j     what tells the segments to come apart, and what is known of them
    ŷ_j = V g(h_n, q_j)                          one step from the last state, for each of them on its own

Errors do not add up as they do where each forecast is the input of the next. What differs from SegRNN: position and
channel are added rather than laid side by side, and what is known ahead is among the inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, pad

from recur.models.forecast_options import ForecasterOptions
from recur.models.stack import each_part, plain_stack
from recur.nn import Recurred, initialise_linear


class SegmentNetwork(nn.Module):
    """Windows (N, L, F), what is known ahead (N, k, C) and channels (N,) to outputs (N, k, P)."""

    def __init__(self, features: int, known: int, channels: int, horizon: int, outputs: int, o: ForecasterOptions):
        super().__init__()
        self.options, self.outputs, self.horizon = o, outputs, horizon
        s = self.segment = min(o.segment or 1, o.lags or 1)
        self.coming = -(-horizon // s)
        """How many segments are written."""
        self.embed = nn.Linear(s * features, o.hidden)
        self.recurrent = plain_stack(o, o.hidden)
        self.position = nn.Parameter(torch.randn(self.coming, o.hidden))
        self.channel = nn.Parameter(torch.randn(channels, o.hidden)) if channels > 1 else None
        self.known = nn.Linear(s * known, o.hidden, bias=False) if known else None
        self.output = nn.Linear(self.recurrent.output_size, s * outputs)
        for layer in (self.embed, self.output):
            initialise_linear(o.init, layer.weight, layer.bias)
        self.backend = ""

    def forward(self, window: Tensor, ahead: Tensor, channel: Tensor) -> Tensor:
        s, M, (N, L, _) = self.segment, self.coming, window.shape
        segments = window[:, L % s :].reshape(N, L // s, -1)
        read: Recurred = self.recurrent(torch.relu(self.embed(segments)))
        self.backend = read.trace[0].backend
        query = self.position.expand(N, -1, -1)
        if self.channel is not None:
            query = query + self.channel[channel][:, None]
        if self.known is not None:
            query = query + self.known(pad(ahead, (0, 0, 0, M * s - self.horizon)).reshape(N, M, -1))
        state = each_part(read.state, lambda part: part.repeat_interleave(M, 0))
        written: Recurred = self.recurrent(query.reshape(N * M, 1, -1), state)
        hidden = dropout(written.outputs, self.options.dropout_output, self.training)
        found: Tensor = self.output(hidden).view(N, M * s, self.outputs)
        return found[:, : self.horizon]

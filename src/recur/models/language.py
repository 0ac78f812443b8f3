"""Language model, with full, adaptive and sampled softmax.

Adaptive and sampled softmax train without computing all logits and give exact probabilities in use. Both need tokens
ordered by frequency, most frequent first, as vocabularies are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear

from recur.data.text import SPECIALS
from recur.models.layers import (
    State,
    append_time,
    make_output_recurrent,
    make_recurrent,
    map_state,
    split_state,
    step_with_time,
    time_positions,
    token_embedding,
)
from recur.models.options import LanguageModelOptions
from recur.nn.functional import (
    MaskedLinear,
    initialise_linear,
    linear_cross_entropy,
    logit_mask,
    sequence_dropout,
)
from recur.ops import Trace

HEAD, MIDDLE = 20, 4
"""Bounds of the clusters: the first K/20 tokens are the head, those up to K/4 one cluster, the rest another."""


def adaptive_softmax(width: int, K: int, mask: Tensor | None = None) -> nn.AdaptiveLogSoftmaxWithLoss:
    """Return an adaptive softmax: log P(k) = log P(cluster of k) + log P(k | cluster).

    Clusters of rarer tokens have narrower matrices. The head holds all special tokens, the only ones that are masked.
    """
    least = len(SPECIALS)
    cutoffs = sorted({max(cut, least) for cut in (K // HEAD, K // MIDDLE) if 0 < max(cut, least) < K - 1}) or [K - 1]
    narrower = min(4.0, 0.999 * width ** (1 / len(cutoffs)))  # and one number is left for the last
    softmax = nn.AdaptiveLogSoftmaxWithLoss(width, K, cutoffs, div_value=narrower, head_bias=True)
    if mask is not None:
        drawn, short = softmax.head, softmax.shortlist_size
        padding = mask.new_zeros(drawn.out_features - short)
        softmax.head = MaskedLinear(width, drawn.out_features, torch.cat([mask[:short], padding]), device="meta")
        softmax.head.weight, softmax.head.bias = drawn.weight, drawn.bias
    return softmax


def log_uniform(ids: Tensor, K: int) -> Tensor:
    """Return log P(k) of the sampling distribution P(k) = ln((k + 2)/(k + 1)) / ln(K + 1), approximately Zipf's law."""
    k = ids.to(torch.float32)
    return torch.log(torch.log1p(1 / (k + 1))) - math.log(math.log(K + 1))


def adaptive_log_probabilities(softmax: nn.AdaptiveLogSoftmaxWithLoss, outputs: Tensor) -> Tensor:
    """Return log P of every token (…, K), by operations that can be traced; `log_prob` of torch writes in place."""
    head, short = softmax.head(outputs).log_softmax(-1), softmax.shortlist_size
    tails = [tail(outputs).log_softmax(-1) + head[..., short + k, None] for k, tail in enumerate(softmax.tail)]
    return torch.cat([head[..., :short], *tails], -1)


def sampled_cross_entropy(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, samples: int) -> Tensor:
    """Return the mean loss of each target against the same `samples` drawn tokens.

        a'_k = V_k h + c_k − ln(S P(k))        L = −log softmax(a'_y, a'_drawn)_y

    Subtracting the logarithm of the expected number of draws makes the softmax over the sample estimate the full
    softmax (Jean et al. 2015). A drawn token that equals the target is ignored.
    """
    K = len(weight)
    drawn = torch.rand(samples, device=h.device).mul_(math.log(K + 1)).exp_().sub_(1).long().clamp_(0, K - 1)
    correction = math.log(samples)
    own = (h * embedding(targets, weight)).sum(-1) + bias[targets] - log_uniform(targets, K) - correction
    others = h @ embedding(drawn, weight).t() + bias[drawn] - log_uniform(drawn, K) - correction
    others = others.masked_fill(targets[:, None] == drawn, -math.inf)
    logits = torch.cat([own[:, None], others], dim=1)
    return cross_entropy(logits.float(), torch.zeros_like(targets))


MAX_LOGITS = 1 << 24
"""Largest number of logits computed at a time for per-token losses."""


class LanguageModelOutput:
    """Result of a language model. Logits are computed on first access: the loss does not need them."""

    def __init__(
        self, model: LanguageModel, outputs: Tensor, state: State, trace: tuple[Trace, ...], penalty: Tensor | float
    ) -> None:
        self._model = model
        self.outputs = outputs
        """(B, T, H): inputs of the output matrix V."""
        self.state, self.trace = state, trace
        self.penalty = penalty
        """Activation regularisation, to be added to the training loss."""
        self._logits: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """(B, T, K)"""
        if self._logits is None:
            self._logits = self._model.logits_of(self.outputs)
        return self._logits


class LanguageModel(nn.Module):
    """Language model: ids (B, T) to logits (B, T, K), with the state as argument and result."""

    mask: Tensor | None
    """(K,): added to logits, so that tokens that no text has get probability 0."""

    def __init__(self, K: int, options: LanguageModelOptions, writable: Sequence[bool] | None = None) -> None:
        """Create the network. `writable` (K,) are the tokens that a text can consist of; by default, all."""
        super().__init__()
        o = self.options = options
        self.K = K
        mask = logit_mask(writable)
        self.register_buffer("mask", None if o.softmax == "adaptive" else mask, persistent=False)
        self.never = () if writable is None else tuple(k for k, can in enumerate(writable) if not can)
        self.embedding = token_embedding(K, o)
        self.clock = o.clock
        width = self.embedding.width + (self.clock is not None)
        self.recurrent = (
            make_output_recurrent(o, width)
            if o.recurrence == "output"
            else make_recurrent(o, width, top=o.top_hidden_size)
        )
        # Tied to an embedding of another width, the output goes through a matrix of its own first.
        width = self.recurrent.output_size
        self.narrow = (
            nn.Linear(width, o.embedding_size, bias=False) if o.tie_weights and o.embedding_size != width else None
        )
        self.adaptive = adaptive_softmax(width, K, mask) if o.softmax == "adaptive" else None
        self.output = None if o.tie_weights or self.adaptive is not None else nn.Parameter(torch.empty(K, width))
        self.bias = nn.Parameter(torch.zeros(K)) if self.adaptive is None else None
        if self.output is not None:
            bound = width**-0.5
            nn.init.uniform_(self.output, -bound, bound)
            initialise_linear(o.init, self.output, self.bias)
        if self.narrow is not None:
            initialise_linear(o.init, self.narrow.weight)
        if o.init_range:  # all weights from one range, as Zaremba et al. 2014 draw them
            for p in self.parameters():
                nn.init.uniform_(p, -o.init_range, o.init_range)

    def forward(
        self,
        ids: Tensor,
        state: State | None = None,
        *,
        start: Tensor | None = None,
        reset: Tensor | None = None,
        trace: bool = False,
    ) -> LanguageModelOutput:
        """Run the model over ids (B, T).

        start   (B,): position of the rows in their texts, for networks with a time input; by default where the state
        ended
        """
        o = self.options
        x = self.embedding(ids)
        if self.clock is None:
            out, state, traces = self.recurrent(x, state, reset=reset, trace=trace)
        else:
            own, t = split_state(state, ids)
            steps = time_positions(t if start is None else start, ids.shape[1], reset)
            out, own, traces = self.recurrent(append_time(x, steps, self.clock), own, reset=reset, trace=trace)
            state = (*own, (steps[:, -1] + 1,))
        kept = sequence_dropout(out, o.dropout_output, training=self.training, variational=o.variational)
        penalty: Tensor | float = 0.0
        if self.training and (o.alpha or o.beta):
            penalty = o.alpha * kept.square().mean()
            if o.beta and out.shape[1] > 1:
                penalty = penalty + o.beta * (out[:, 1:] - out[:, :-1]).square().mean()
        return LanguageModelOutput(self, kept, state, traces, penalty)

    @torch.no_grad()
    def step(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read one token per row (B,) for inference. Return logits (B, K) of the next token, and the state."""
        out, state = self.output_step(ids, state)
        return self.logits_of(out), state

    @torch.no_grad()
    def output_step(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Compute `step` up to the outputs (B, H), without the logits."""
        return step_with_time(self.recurrent, self.embedding.vectors(ids), state, self.clock)

    @torch.no_grad()
    def output_scan(self, ids: Tensor, lengths: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Read tokens (B, T) for inference. Return outputs (B, T, H) and the state at the end of each row."""
        x = self.embedding.vectors(ids)
        if self.clock is None:
            out, state, _ = self.recurrent(x, state, lengths=lengths)
            return out, state
        own, t = split_state(state, ids)
        out, own, _ = self.recurrent(append_time(x, time_positions(t, ids.shape[1]), self.clock), own, lengths=lengths)
        return out, (*own, (t + lengths.to(t),))

    def output_matrix(self) -> Tensor:
        """Return V (K, H), the product of its factors if it has several."""
        weight = self._output()
        return weight if self.narrow is None else weight @ self.narrow.weight

    def output_bias(self) -> Tensor | None:
        """Return c (K,) with the mask; None for an adaptive softmax, whose clusters have biases of their own."""
        return self.bias if self.bias is None or self.mask is None else self.bias + self.mask

    def fold_mask(self) -> None:
        """Add the mask to the bias, for use without training."""
        bias = self.output_bias()
        if self.mask is not None and bias is not None:
            self.bias, self.mask = nn.Parameter(bias.detach(), requires_grad=False), None

    def _output(self) -> Tensor:
        weight = self.embedding.weight if self.output is None else self.output
        assert weight is not None
        return weight

    def logits_of(self, outputs: Tensor) -> Tensor:
        """Return logits of outputs; for an adaptive softmax, log-probabilities."""
        if self.adaptive is not None:
            return adaptive_log_probabilities(self.adaptive, outputs)
        return linear(self._narrowed(outputs), self._output(), self.output_bias())

    def _narrowed(self, outputs: Tensor) -> Tensor:
        return outputs if self.narrow is None else self.narrow(outputs)

    def loss(self, predicted: LanguageModelOutput, targets: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of targets (B, T); while training, the loss of the chosen softmax."""
        outputs, targets = predicted.outputs.flatten(0, 1), targets.flatten().long()
        if self.adaptive is not None:
            with torch.autocast(outputs.device.type, enabled=False):
                loss: Tensor = self.adaptive(outputs.to(self.adaptive.head.weight.dtype), targets).loss
            return loss
        h, V, c = self._narrowed(outputs), self._output(), self.output_bias()
        assert c is not None
        if self.training and self.options.softmax == "sampled":
            return sampled_cross_entropy(h, V, c, targets, self.options.softmax_samples)
        return linear_cross_entropy(h, V, c, targets)

    @torch.no_grad()
    def losses(self, predicted: LanguageModelOutput, targets: Tensor) -> Tensor:
        """Return −log P of each target (B, T), without all logits in memory."""
        found = []
        rows = max(1, MAX_LOGITS // self.K)
        for h, y in zip(predicted.outputs.flatten(0, 1).split(rows), targets.flatten().split(rows), strict=True):
            logits = self.logits_of(h)
            logp = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
            found.append(-logp.gather(1, y.long()[:, None])[:, 0])
        return torch.cat(found).view(targets.shape)

    def detached(self, state: State) -> State:
        """Return the state detached from the autograd graph."""
        return map_state(state, Tensor.detach)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters())

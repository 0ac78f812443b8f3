"""Softmaxes that learn a next token without all of them: adaptive and sampled. Both give exact probabilities in use.

Both take tokens by how frequent they are, the most frequent first, as vocabularies have them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding, linear

from recur.models.inputs import TokenEmbedding, append_time, split_state, time_positions
from recur.models.options import LanguageModelOptions
from recur.models.stack import State, make_output_recurrent, make_recurrent, map_state
from recur.nn import initialise_linear, sequence_dropout
from recur.nn.functional import linear_cross_entropy
from recur.ops import Trace

HEAD, MIDDLE = 20, 4
"""Of K tokens, the first K/20 are each in the head, the next up to K/4 in one cluster, the rest in another."""


def adaptive_softmax(width: int, K: int) -> nn.AdaptiveLogSoftmaxWithLoss:
    """log P(k) = log P(cluster of k) + log P(k | its cluster), clusters of rarer tokens by narrower matrices."""
    cutoffs = sorted({cut for cut in (K // HEAD, K // MIDDLE) if 0 < cut < K - 1}) or [K - 1]
    narrower = min(4.0, 0.999 * width ** (1 / len(cutoffs)))  # and one number is left for the last
    return nn.AdaptiveLogSoftmaxWithLoss(width, K, cutoffs, div_value=narrower, head_bias=True)


def log_uniform(ids: Tensor, K: int) -> Tensor:
    """log P(k) of the distribution that is drawn from: P(k) = ln((k + 2)/(k + 1)) / ln(K + 1), Zipf's law, about."""
    k = ids.to(torch.float32)
    return torch.log(torch.log1p(1 / (k + 1))) - math.log(math.log(K + 1))


def adaptive_log_probabilities(softmax: nn.AdaptiveLogSoftmaxWithLoss, outputs: Tensor) -> Tensor:
    """log P of every token, (…, K): its `log_prob`, which writes into a tensor, as one that can be followed."""
    head, short = softmax.head(outputs).log_softmax(-1), softmax.shortlist_size
    tails = [tail(outputs).log_softmax(-1) + head[..., short + k, None] for k, tail in enumerate(softmax.tail)]
    return torch.cat([head[..., :short], *tails], -1)


def sampled_cross_entropy(h: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, samples: int) -> Tensor:
    """The mean loss of each target against the same `samples` drawn tokens.

        a'_k = V_k h + c_k − ln(S P(k))        L = −log softmax(a'_y, a'_drawn)_y

    Subtracting the log of how often k is drawn makes the softmax over a few estimate that over all (Jean et al. 2015).
    A drawn token that is the target itself does not count.
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
"""Numbers at a time, where the loss of each token is asked for."""


class LanguageModelOutput:
    """What a pass over a batch gives. Logits are made when they are asked for: the loss can do without."""

    def __init__(
        self, model: LanguageModel, outputs: Tensor, state: State, trace: tuple[Trace, ...], penalty: Tensor | float
    ) -> None:
        self._model = model
        self.outputs = outputs
        """(B, T, H): what V multiplies."""
        self.state, self.trace = state, trace
        self.penalty = penalty
        """Activation regularisation, to be added to the loss while training."""
        self._logits: Tensor | None = None

    @property
    def logits(self) -> Tensor:
        """(B, T, K)"""
        if self._logits is None:
            self._logits = self._model.logits_of(self.outputs)
        return self._logits


class LanguageModel(nn.Module):
    """Ids (B, T) in, logits (B, T, K) out, state in and out."""

    def __init__(self, K: int, options: LanguageModelOptions) -> None:
        super().__init__()
        o = self.options = options
        self.K = K
        self.embedding = TokenEmbedding(
            K,
            o.embedding,
            o.embedding_init,
            drop=o.dropout_input,
            drop_tokens=o.dropout_embedding,
            variational=o.variational,
        )
        self.clock = o.clock
        width = self.embedding.width + (self.clock is not None)
        self.recurrent = make_output_recurrent(o, width) if o.recurrence == "output" else make_recurrent(o, width)
        # Tied to an embedding of another width, the output goes through a matrix of its own first.
        width = self.recurrent.output_size
        self.narrow = nn.Linear(width, o.embedding, bias=False) if o.tied and o.embedding != width else None
        self.adaptive = adaptive_softmax(width, K) if o.softmax == "adaptive" else None
        self.output = None if o.tied or self.adaptive is not None else nn.Parameter(torch.empty(K, width))
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
        """`start` (B,): where in their texts the rows begin, for a network that reads t; if not given, where the state
        left off, and 0 without one."""
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
        """One token of each row, (B,), for use: logits (B, K) of the next, and the state."""
        out, state = self.output_step(ids, state)
        return self.logits_of(out), state

    @torch.no_grad()
    def output_step(self, ids: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """The same step up to the outputs (B, H) of the layers, which `logits_of` reads."""
        x = self.embedding.vectors(ids)
        if self.clock is None:
            return self.recurrent.step(x, state)
        own, t = split_state(state, ids)
        out, own = self.recurrent.step(append_time(x, t, self.clock), own)
        return out, (*own, (t + 1,))

    @torch.no_grad()
    def output_scan(self, ids: Tensor, lengths: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Many tokens of each row, (B, T), for use: outputs (B, T, H), and the states behind the last of each row's."""
        x = self.embedding.vectors(ids)
        if self.clock is None:
            out, state, _ = self.recurrent(x, state, lengths=lengths)
            return out, state
        own, t = split_state(state, ids)
        out, own, _ = self.recurrent(append_time(x, time_positions(t, ids.shape[1]), self.clock), own, lengths=lengths)
        return out, (*own, (t + lengths.to(t),))

    def output_matrix(self) -> Tensor:
        """V (K, H): the matrix that outputs are multiplied with, whatever it is made of."""
        weight = self._output()
        return weight if self.narrow is None else weight @ self.narrow.weight

    def _output(self) -> Tensor:
        weight = self.embedding.weight if self.output is None else self.output
        assert weight is not None
        return weight

    def logits_of(self, outputs: Tensor) -> Tensor:
        """Of all tokens; an adaptive softmax has their log-probabilities, which serve as well."""
        if self.adaptive is not None:
            return adaptive_log_probabilities(self.adaptive, outputs)
        return linear(self._narrowed(outputs), self._output(), self.bias)

    def _narrowed(self, outputs: Tensor) -> Tensor:
        return outputs if self.narrow is None else self.narrow(outputs)

    def loss(self, predicted: LanguageModelOutput, targets: Tensor) -> Tensor:
        """Mean negative log-likelihood of the targets (B, T); while training, what --softmax has in its place."""
        outputs, targets = predicted.outputs.flatten(0, 1), targets.flatten().long()
        if self.adaptive is not None:
            with torch.autocast(outputs.device.type, enabled=False):
                loss: Tensor = self.adaptive(outputs.to(self.adaptive.head.weight.dtype), targets).loss
            return loss
        h, V, c = self._narrowed(outputs), self._output(), self.bias
        assert c is not None
        if self.training and self.options.softmax == "sampled":
            return sampled_cross_entropy(h, V, c, targets, self.options.softmax_samples)
        return linear_cross_entropy(h, V, c, targets)

    @torch.no_grad()
    def losses(self, predicted: LanguageModelOutput, targets: Tensor) -> Tensor:
        """−log P of each target (B, T), without all logits in memory."""
        found = []
        rows = max(1, MAX_LOGITS // self.K)
        for h, y in zip(predicted.outputs.flatten(0, 1).split(rows), targets.flatten().split(rows), strict=True):
            logits = self.logits_of(h)
            logp = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
            found.append(-logp.gather(1, y.long()[:, None])[:, 0])
        return torch.cat(found).view(targets.shape)

    def detached(self, state: State) -> State:
        """The same state, cut off from how it came about."""
        return map_state(state, Tensor.detach)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.parameters())

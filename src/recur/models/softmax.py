"""Softmaxes that learn a next token without all of them: adaptive and sampled. Both give exact probabilities in use.

Both take tokens by how frequent they are, the most frequent first, as vocabularies have them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, embedding

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


def adaptive_log_p(softmax: nn.AdaptiveLogSoftmaxWithLoss, outputs: Tensor) -> Tensor:
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

"""Softmaxes over many tokens: what is learned is what the whole softmax learns, and probabilities are exact."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.errors import OptionError
from recur.models import LanguageModel, language
from recur.models.language import log_uniform, sampled_cross_entropy
from recur.models.options import LanguageModelOptions
from tests.support import close

K = 60


def model_of(**fields: Any) -> LanguageModel:
    return LanguageModel(K, LanguageModelOptions(hidden_size=8, embedding_size=6, **fields))


def test_what_is_drawn_from_is_a_distribution() -> None:
    p = log_uniform(torch.arange(K), K).exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)
    assert bool((p[1:] < p[:-1]).all()), "frequent tokens more often"


def test_sampled_gradients_are_those_of_the_whole_softmax_on_average() -> None:
    """With many drawn, by the law of large numbers; a wrong sign or a forgotten correction is far off."""
    h, V, c = torch.randn(5, 4, requires_grad=True), torch.randn(K, 4, requires_grad=True), torch.randn(K) / 4
    y = torch.tensor([0, 3, 17, 40, 59])
    expected = torch.autograd.grad(cross_entropy(h @ V.t() + c, y), [h, V])
    found = [torch.zeros_like(h), torch.zeros_like(V)]
    for _ in range(20):
        loss = sampled_cross_entropy(h, V, c, y, 2000)
        for total, g in zip(found, torch.autograd.grad(loss, [h, V]), strict=True):
            total += g / 20
    for got, value in zip(found, expected, strict=True):
        assert (got - value).norm() < 0.05 * value.norm()


def test_a_sampled_model_is_measured_over_all_tokens() -> None:
    net, x, y = (
        model_of(softmax="sampled", softmax_samples=5, tie_weights=True),
        *torch.randint(0, K, (2, 3, 4)).unbind(),
    )
    whole = cross_entropy(net.eval()(x).logits.flatten(0, 1), y.flatten())
    close(net.loss(net(x), y), whole)
    net.train()
    assert float(net.loss(net(x), y).detach()) != pytest.approx(float(whole.detach()))


def test_an_adaptive_softmax_gives_the_probability_of_every_token() -> None:
    net, x, y = model_of(softmax="adaptive"), *torch.randint(0, K, (2, 3, 4)).unbind()
    logp = net.eval()(x).logits
    close(logp.exp().sum(-1), torch.ones(3, 4))
    close(net.loss(net(x), y), -logp.gather(2, y[..., None]).mean())
    close(net.losses(net(x), y), -logp.detach().gather(2, y[..., None])[..., 0])
    net.train().loss(net(x), y).backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in net.recurrent.parameters())


def test_small_vocabularies_have_clusters_too() -> None:
    for k in (2, 3, 5, 30):
        assert language.adaptive_softmax(4, k)(torch.randn(3, 4), torch.randint(0, k, (3,))).loss.isfinite()


def test_refusals() -> None:
    with pytest.raises(OptionError, match="an adaptive softmax has matrices of its own"):
        model_of(softmax="adaptive", tie_weights=True)
    with pytest.raises(OptionError, match="--softmax-samples is for --softmax sampled"):
        model_of(softmax_samples=7)

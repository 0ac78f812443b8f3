"""The language model: its input, its ties, its dropouts and penalties, against the same things written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.errors import OptionError
from recur.models import LanguageModel
from recur.models.options import LanguageModelOptions
from recur.nn.functional import sequence_dropout
from recur.ops import scan
from tests.support import close

K, H = 7, 5


def model(**options: Any) -> LanguageModel:
    return LanguageModel(
        K, LanguageModelOptions(**{"cell": "lstm", "hidden_size": H, "embedding_size": 0, **options})
    ).double()


def ids(B: int = 3, T: int = 6) -> Any:
    return torch.randint(K, (B, T))


def test_one_hot_is_an_embedding_that_is_the_identity() -> None:
    net, x = model(cell="gru"), ids()
    weights = net.recurrent.weights()
    outputs = scan(net.recurrent.cell, weights, torch.eye(K, dtype=torch.float64)[x]).outputs
    assert net.output is not None
    close(net(x).logits, outputs @ net.output.T + net.bias)


@pytest.mark.parametrize("embedding", [H, 3])
def test_tied_weights_are_the_embedding(embedding: int) -> None:
    net, x = model(embedding_size=embedding, tie_weights=True), ids()
    assert net.output is None
    assert net.embedding.weight is not None
    top = net.recurrent(net.embedding.weight[x]).outputs
    if embedding != H:
        assert net.narrow is not None
        top = top @ net.narrow.weight.T
    close(net(x).logits, top @ net.embedding.weight.T + net.bias)
    assert sum(p.shape == (K, embedding) for p in net.parameters()) == 1


def test_the_loss_is_the_mean_over_all_tokens() -> None:
    net, x, y = model(), ids(), ids()
    predicted = net(x)
    close(net.loss(predicted, y), cross_entropy(predicted.logits.reshape(-1, K), y.reshape(-1)))


def test_state_is_carried_and_can_be_cut_off() -> None:
    net, x = model(num_layers=2), ids()
    whole = net(x).logits
    first = net(x[:, :2])
    close(torch.cat([first.logits, net(x[:, 2:], first.state).logits], 1), whole)
    cut = net.detached(first.state)
    assert not any(part.requires_grad for layer in cut for part in layer)
    assert cut[0].c.equal(first.state[0].c)


def test_activation_regularisation_by_its_formula() -> None:
    net, x = model(alpha=2.0, beta=3.0), ids()
    out = net.recurrent(torch.eye(K, dtype=torch.float64)[x]).outputs
    expected = 2 * out.square().mean() + 3 * (out[:, 1:] - out[:, :-1]).square().mean()
    close(net(x).penalty, expected)
    assert net.eval()(x).penalty == 0.0


def test_embedding_dropout_takes_whole_tokens_everywhere() -> None:
    net = model(embedding_size=4, dropout_embedding=0.5)
    x = torch.arange(K).repeat(40, 2)
    seen = net.embedding(x)
    gone = (seen == 0).all(-1)
    assert torch.equal(gone[:, :K], gone[:1, :K].expand(40, K)), "the same tokens in every row"
    assert torch.equal(gone[:, :K], gone[:, K:])
    assert net.embedding.weight is not None
    kept = ~gone[0, :K]
    close(seen[0, :K][kept], 2 * net.embedding.weight[kept])


@pytest.mark.parametrize("variational", [True, False])
def test_input_and_output_dropout_hold_one_mask_or_many(variational: bool) -> None:
    ones = torch.ones(50, 9, 20, dtype=torch.float64)
    dropped = sequence_dropout(ones, 0.3, training=True, variational=variational)
    assert set(dropped.unique().tolist()) == {0.0, 1 / 0.7}
    assert bool((dropped == dropped[:, :1]).all()) is variational
    assert sequence_dropout(ones, 0.3, training=False, variational=variational).eq(1).all()
    net = model(embedding_size=4, dropout_input=0.3, variational=variational)
    vectors = net.embedding(torch.full((50, 9), 5))
    assert bool(((vectors == 0) == (vectors == 0)[:, :1]).all()) is variational
    assert bool((vectors == 0).any())


def test_a_range_draws_every_weight_from_it() -> None:
    net = model(init_range=0.05)
    assert all(p.abs().max() <= 0.05 for p in net.parameters())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tie_weights": True}, "tied weights need an embedding"),
        ({"embedding_size": -1}, "embedding_size must be a whole number ≥ 0"),
        ({"dropout_input": 1.5}, "dropout_input must lie in 0 … 1"),
        ({"cell": "grv"}, "did you mean 'gru'"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], says: str) -> None:
    with pytest.raises((OptionError, ValueError), match=says):
        model(**options)

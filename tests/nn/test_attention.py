"""Attention by its equations, place by place."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from recur.errors import OptionError, ShapeError
from recur.nn import Attention
from tests.support import close

B, T, S, Q, M, A = 3, 4, 5, 6, 7, 8


def case(kind: str) -> tuple[Attention, torch.Tensor, torch.Tensor, torch.Tensor]:
    attention = Attention(kind, Q, M, A).double()
    query = torch.randn(B, T, Q, dtype=torch.float64)
    memory = torch.randn(B, S, M, dtype=torch.float64)
    mask = torch.arange(S) < torch.tensor([5, 3, 1])[:, None]
    return attention, query, memory, mask


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_place_by_place(kind: str) -> None:
    attention, query, memory, mask = case(kind)
    got, weights = attention(query, memory, mask)
    W_q, W_k = attention.query.weight, attention.key.weight
    for b in range(B):
        for t in range(T):
            scores = []
            for s in range(int(mask[b].sum())):
                if kind == "additive":
                    assert attention.score is not None
                    inner = torch.tanh(W_q @ query[b, t] + attention.query.bias + W_k @ memory[b, s])
                    scores.append(torch.exp(attention.score.weight[0] @ inner).item())
                else:
                    scores.append(torch.exp((W_q @ query[b, t]) @ (W_k @ memory[b, s]) / math.sqrt(A)).item())
            expected = sum(w / sum(scores) * memory[b, s] for s, w in enumerate(scores))
            close(got[b, t].detach(), expected)
            assert weights[b, t, len(scores) :].abs().sum() == 0, "padding has no weight"
            close(weights[b, t].sum().detach(), torch.ones((), dtype=weights.dtype))


def test_scaled_dot_product_is_torchs() -> None:
    attention, query, memory, mask = case("dot")
    expected = scaled_dot_product_attention(
        attention.query(query), attention.keys(memory), memory, attn_mask=mask[:, None].expand(-1, T, -1)
    )
    close(attention(query, memory, mask)[0], expected)


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_gradients_and_keys_made_ahead(kind: str) -> None:
    attention, query, memory, mask = case(kind)
    query.requires_grad_()
    memory.requires_grad_()
    torch.autograd.gradcheck(lambda q, m: attention(q, m, mask)[0], (query, memory))
    close(attention(query, memory, mask, attention.keys(memory))[0], attention(query, memory, mask)[0])


def test_what_does_not_fit() -> None:
    with pytest.raises(OptionError, match="unknown attention 'additiv'; did you mean 'additive'?"):
        Attention("additiv", 1, 1, 1)
    attention, query, memory, _ = case("dot")
    with pytest.raises(ShapeError, match="query must be"):
        attention(query[0], memory)

"""A language model's training step as one would write it around cuDNN, with the same sizes and dropouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor, nn
from torch.nn.functional import cross_entropy, dropout, embedding, linear

from recur.runs import autocast_in

Step = Callable[[Any, Any], Any]
"""A batch and the state before it; the state behind it."""


def locked(x: Tensor, p: float, variational: bool) -> Tensor:
    """(T, B, D) with entries dropped, one mask for all steps or one for each."""
    if not p:
        return x
    return x * dropout(x.new_ones(1, x.shape[1], x.shape[2]), p) if variational else dropout(x, p)


def by_hand(o: Any, K: int, device: torch.device) -> Step:
    E, lstm = o.embedding_size, o.cell == "lstm"
    widths = [o.hidden_size] * (o.num_layers - 1) + [o.top_hidden_size or o.hidden_size]
    kind: Any = nn.LSTM if lstm else nn.GRU
    kernel: Any = _VF.lstm if lstm else _VF.gru
    layers: list[Any] = [kind(D, H).to(device) for D, H in zip([E, *widths], widths, strict=False)]
    tokens = nn.Parameter(torch.randn(K, E, device=device) * 0.05)
    V = tokens if o.tie_weights else nn.Parameter(torch.randn(K, widths[-1], device=device) * 0.05)
    c = nn.Parameter(torch.zeros(K, device=device))
    parameters = [*(p for layer in layers for p in layer.parameters()), tokens, *([] if o.tie_weights else [V]), c]
    fused = device.type == "cuda"
    optimizer: Any = (
        torch.optim.SGD(parameters, lr=0.01, fused=fused)
        if o.optimizer == "sgd"
        else torch.optim.AdamW(parameters, lr=0.01, fused=fused)
    )

    def network(x: Tensor, state: Any) -> tuple[Tensor, Tensor, list[Any]]:
        """What the output layer reads, the same before dropout, and the states."""
        weight: Tensor = tokens
        if o.dropout_embedding:
            weight = weight * dropout(weight.new_ones(K, 1), o.dropout_embedding)
        h, after = locked(embedding(x, weight), o.dropout_input, o.variational), []
        raw = h
        for k, layer in enumerate(layers):
            zero = h.new_zeros(1, x.shape[1], widths[k])
            begun = state[k] if state is not None else (zero, zero) if lstm else zero
            if o.dropout_weight:
                flat = [layer.weight_ih_l0, dropout(layer.weight_hh_l0, o.dropout_weight)]
                raw, *found = kernel(
                    h, begun, [*flat, layer.bias_ih_l0, layer.bias_hh_l0], True, 1, 0.0, True, False, False
                )
                end: Any = tuple(found) if lstm else found[0]
            else:
                raw, end = layer(h, begun)
            after.append(tuple(part.detach() for part in end) if lstm else end.detach())
            h = locked(raw, o.dropout_hidden if k + 1 < len(layers) else o.dropout_output, o.variational)
        return h, raw, after

    def step(batch: Any, state: Any) -> Any:
        x, y = (part.t() for part in batch.cut())
        with autocast_in(o.precision or "float32", device):
            h, raw, after = network(x, state)
            loss = cross_entropy(linear(h, V, c).flatten(0, 1), y.flatten())
            loss = loss + o.alpha * h.square().mean() + o.beta * (raw[1:] - raw[:-1]).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, o.grad_clip)
        optimizer.step()
        return after

    return step

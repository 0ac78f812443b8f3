"""scan against the NumPy reference: loss, outputs and every gradient that was derived by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from recur import reference
from recur.ops import scan
from tests.support import Case, close

CELLS: list[tuple[str, Any, dict[str, str]]] = [
    ("elman", reference.elman, {}),
    ("elman-relu", reference.elman, {"activation": "relu"}),
    ("elman-sigmoid", reference.elman, {"activation": "sigmoid"}),
    ("lstm", reference.lstm, {}),
    ("gru", reference.gru, {}),
]
n_y = 6


def as_in_the_notes(case: Case, V: Any, c: Any) -> dict[str, Any]:
    """torch's names to those of the notes. Only the GRU has two biases."""
    w = {name: value.detach().numpy() for name, value in case.weights.items()}
    parameters = {"U": w["weight_ih"], "W": w["weight_hh"], "V": V.detach().numpy(), "c": c.detach().numpy()[:, None]}
    if case.cell.name == "gru":
        return parameters | {"b": w["bias_ih"][:, None], "bW": w["bias_hh"][:, None]}
    return parameters | {"b": (w["bias_ih"] + w["bias_hh"])[:, None]}


@pytest.mark.parametrize("mode", ["full", "truncated:2", "xi"])
@pytest.mark.parametrize(("name", "module", "options"), CELLS, ids=[name for name, _, _ in CELLS])
def test_loss_and_all_gradients(name: str, module: Any, options: dict[str, str], mode: str) -> None:
    case = Case(name, B=3, T=7)
    H = case.state[0].shape[1]
    V = torch.randn(n_y, H, dtype=torch.float64, requires_grad=True)
    c = torch.randn(n_y, dtype=torch.float64, requires_grad=True)
    y = torch.randint(n_y, (3, 7))
    xi = {"full": np.ones(7), "truncated:2": np.array([1, 1, 0, 1, 0, 1, 0.0]), "xi": np.linspace(0.5, 2, 7)}[mode]

    loss, hand = reference.network.loss_and_gradients(
        module,
        case.x.detach().permute(2, 0, 1).numpy(),
        y.numpy(),
        tuple(part.detach().T.numpy() for part in case.state),
        as_in_the_notes(case, V, c),
        xi=xi,
        **options,
    )

    bptt = torch.from_numpy(xi) if mode == "xi" else mode
    outputs, _, trace = scan(case.cell, case.weights, case.x, case.state, bptt=bptt, trace=True)
    logits = outputs @ V.T + c
    logits.retain_grad()
    ours = cross_entropy(logits.reshape(-1, n_y), y.reshape(-1), reduction="sum")
    ours.backward()

    def same(grad: Any, by_hand: Any, what: str) -> None:
        close(grad, torch.from_numpy(np.ascontiguousarray(by_hand)), what)

    close(ours.detach(), torch.tensor(loss, dtype=torch.float64), "loss")
    same(logits.grad, hand.do.transpose(1, 2, 0), "∇o")
    same(V.grad, hand.weights["dV"], "∇V")
    same(c.grad, hand.weights["dc"][:, 0], "∇c")
    same(case.weights["weight_ih"].grad, hand.weights["dU"], "∇U")
    same(case.weights["weight_hh"].grad, hand.weights["dW"], "∇W")
    same(case.weights["bias_ih"].grad, hand.weights["db"][:, 0], "∇b")
    same(case.weights["bias_hh"].grad, hand.weights.get("dbW", hand.weights["db"])[:, 0], "∇bW")
    same(case.x.grad, hand.dx.transpose(1, 2, 0), "dx")
    for part, by_hand in zip(case.state, hand.ds0, strict=True):
        same(part.grad, by_hand.T, "ds0")
    for norms, by_hand in zip(trace.norms.values(), hand.dstates.values(), strict=True):
        same(norms, np.linalg.norm(by_hand, axis=0), "‖∂L/∂s_t‖")

"""The limits that the notes name: one cell becomes another when its gates stand open or shut."""

from __future__ import annotations

import torch
from torch import Tensor

from recur.cells import GRU, LSTM, Elman
from recur.cells.leaky import Leaky
from recur.cells.lstm1997 import LSTM1997
from recur.cells.peephole import PeepholeLSTM
from recur.ops import scan
from tests.support import close, random_weights

OPEN = 60.0  # σ(60) is 1 in double precision, σ(−60) is 0 to 26 digits


def inputs() -> Tensor:
    return torch.randn(3, 7, 4, dtype=torch.float64)


def with_bias(weights: dict[str, Tensor], gates: tuple[str, ...], **biases: float) -> dict[str, Tensor]:
    """The same weights, with the named gates held by their bias alone."""
    held = {name: value.detach().clone() for name, value in weights.items()}
    for gate, value in biases.items():
        k = gates.index(gate)
        for name in held:
            held[name].chunk(len(gates))[k].zero_()
        held["bias_ih"].chunk(len(gates))[k].fill_(value)
    return held


def test_a_gru_with_reset_1_and_update_towards_the_candidate_is_an_elman_network() -> None:
    weights = with_bias(random_weights(GRU(), 4, 5), GRU.gates, r=OPEN, z=-OPEN)
    elman = {name: value.chunk(3)[2] for name, value in weights.items()}
    x = inputs()
    close(scan(GRU(), weights, x).outputs, scan(Elman(), elman, x).outputs)


def test_a_gru_with_update_1_never_changes() -> None:
    weights = with_bias(random_weights(GRU(), 4, 5), GRU.gates, z=OPEN)
    h = torch.randn(3, 5, dtype=torch.float64)
    close(scan(GRU(), weights, inputs(), h).state.h, h)


def test_an_lstm_with_forget_gate_1_is_the_one_of_1997() -> None:
    weights = with_bias(random_weights(LSTM(), 4, 5), LSTM.gates, f=OPEN)
    old = {name: torch.cat([value.chunk(4)[k] for k in (0, 2, 3)]) for name, value in weights.items()}
    x = inputs()
    new, first = scan(LSTM(), weights, x), scan(LSTM1997(), old, x)
    close(new.outputs, first.outputs)
    close(new.state.c, first.state.c)


def test_a_peephole_lstm_without_peepholes_is_an_lstm() -> None:
    weights = random_weights(PeepholeLSTM(), 4, 5)
    plain = {name: value for name, value in weights.items() if not name.startswith("p_")}
    blind = {name: torch.zeros_like(v) if name.startswith("p_") else v for name, v in weights.items()}
    x = inputs()
    close(scan(PeepholeLSTM(), blind, x).outputs, scan(LSTM(), plain, x).outputs)


def test_leaky_units_that_do_not_leak_are_elman_units() -> None:
    weights = random_weights(Elman(), 4, 5)
    x = inputs()
    close(scan(Leaky(alpha=0.0), weights, x).outputs, scan(Elman(), weights, x).outputs)


def test_the_memory_of_1997_hands_its_gradient_on_whole() -> None:
    # ∂c_T/∂c_0 along the carousel is 1, however long; W is zero, so no other path is open.
    cell = LSTM1997()
    weights = random_weights(cell, 4, 5)
    weights["weight_hh"] = torch.zeros_like(weights["weight_hh"])
    c0 = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 200, 4, dtype=torch.float64)
    final = scan(cell, weights, x, (torch.zeros_like(c0), c0)).state
    (grad,) = torch.autograd.grad(final.c.sum(), c0)
    close(grad, torch.ones_like(grad))


def test_the_two_products_are_one_with_blocks_side_by_side() -> None:
    # [x, h] [Uᵀ; Wᵀ] = x Uᵀ + h Wᵀ
    weights = random_weights(Elman(), 4, 5)
    x, h = torch.randn(3, 1, 4, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    side_by_side = torch.cat([x[:, 0], h], dim=1)
    stacked = torch.cat([weights["weight_ih"].T, weights["weight_hh"].T])
    expected = torch.tanh(side_by_side @ stacked + weights["bias_ih"] + weights["bias_hh"])
    close(scan(Elman(), weights, x, h).state.h, expected)

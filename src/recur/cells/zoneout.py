"""Zoneout: LSTM and GRU whose units keep their old state at random during training."""

from __future__ import annotations

from dataclasses import dataclass

from torch import sigmoid, tanh

from recur.cells.cell import Cell, State, Tensors
from recur.cells.contract import check_options
from recur.errors import OptionError


def _check(cell: Cell, **rates: float) -> None:
    check_options(cell, **dict.fromkeys(rates, float))
    for name, rate in rates.items():
        if not 0 <= rate < 1:
            raise OptionError(f"{type(cell).__name__}: {name} must be in 0 … 1, got {rate}")


@dataclass
class ZoneoutLSTM(Cell):
    """ĉ = σ(x_f + h_f) ⊙ c + σ(x_i + h_i) ⊙ tanh(x_g + h_g)
    c' = k_c ⊙ c + (1 − k_c) ⊙ ĉ
    h' = k_h ⊙ h + (1 − k_h) ⊙ σ(x_o + h_o) ⊙ tanh(ĉ)

    Krueger et al., Zoneout: regularizing RNNs by randomly preserving hidden activations, ICLR 2017. In training k is 1
    with probability `cell_rate` or `hidden_rate` and 0 otherwise, drawn anew for every unit and step; in evaluation k
    is that probability. Otherwise it is the LSTM.
    Not in torch.nn.

    >>> net = recur.Recurrent("zoneout_lstm:hidden_rate=0.2", 3, 4)
    >>> net.eval()(torch.randn(2, 5, 3)).outputs.shape
    torch.Size([2, 5, 4])
    """

    cell_rate: float = 0.5
    hidden_rate: float = 0.05

    name = "zoneout_lstm"
    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    forget_gate = "f"
    input_gate = "i"

    def __post_init__(self) -> None:
        _check(self, cell_rate=self.cell_rate, hidden_rate=self.hidden_rate)
        self.noise = {"k_c": f"bernoulli:{self.cell_rate}", "k_h": f"bernoulli:{self.hidden_rate}"}

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        i = sigmoid(x.i + h.i)
        f = sigmoid(x.f + h.f)
        g = tanh(x.g + h.g)
        o = sigmoid(x.o + h.o)
        c = f * s.c + i * g
        return x.k_h * s.h + (1 - x.k_h) * (o * tanh(c)), x.k_c * s.c + (1 - x.k_c) * c


@dataclass
class ZoneoutGRU(Cell):
    """r = σ(x_r + h_r)   z = σ(x_z + h_z)   n = tanh(x_n + r ⊙ h_n)
    h' = k ⊙ h + (1 − k) ⊙ ((1 − z) ⊙ n + z ⊙ h)

    Krueger et al., Zoneout: regularizing RNNs by randomly preserving hidden activations, ICLR 2017. In training k is 1
    with probability `rate` and 0 otherwise, drawn anew for every unit and step; in evaluation k is `rate`. Otherwise it
    is the GRU. Not in torch.nn.

    >>> recur.make_cell("zoneout_gru:rate=0.2").noise
    {'k': 'bernoulli:0.2'}
    """

    rate: float = 0.1

    name = "zoneout_gru"
    gates = ("r", "z", "n")
    forget_gate = "z"

    def __post_init__(self) -> None:
        _check(self, rate=self.rate)
        self.noise = {"k": f"bernoulli:{self.rate}"}

    def step(self, x: Tensors, h: Tensors, s: Tensors) -> State:
        r = sigmoid(x.r + h.r)
        z = sigmoid(x.z + h.z)
        n = tanh(x.n + r * h.n)
        return (x.k * s.h + (1 - x.k) * ((1 - z) * n + z * s.h),)

"""Initialisation of the weights: U, W, and the output matrix V of a model.

    torch           uniform ±1/√H, as torch.nn does, with the same draws for the same seed
    glorot          Glorot and Bengio 2010: U, W and V uniform, scaled to their widths; biases zero
    orthogonal      Saxe et al. 2014: W orthogonal, so its powers neither shrink nor grow; U and V Glorot; biases zero
    identity        Le, Jaitly and Hinton 2015 (IRNN, with ReLU): W = I, U and V normal with 0.001; biases zero
    identity:0.1    the same with W = 0.1 · I
    normal:0.01     all of U, W and V normal with this standard deviation; biases zero

A gate with σ(b) = 1 − 1/τ keeps a state for about τ steps. Chrono initialisation (Tallec and Ollivier 2018) spreads
these times evenly: per unit, b = log u with u uniform in 1 … T − 1 at the forget gate, and −b at the input gate. Other
biases of these gates are zero.

Each block of a gate (and of a head) is initialised as a matrix by itself. V is initialised like U; an embedding that
is tied to V is initialised as `embedding_init` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.types import Device

from recur.cells.cell import Cell, Weights
from recur.errors import OptionError
from recur.nn.options import Init, check_memory, parse_scheme
from recur.utils.files import memory


@torch.no_grad()
def initialise(
    cell: Cell,
    weights: Weights,
    scheme: str = "torch",
    forget_bias: float | None = None,
    chrono: int | None = None,
) -> None:
    """Initialise the weights of one cell in place.

    forget_bias   bias of the forget gate (Jozefowicz et al. 2015)
    chrono        longest dependency T for chrono initialisation
    """
    name, number = parse_scheme(scheme)
    if name == "torch":
        H = weights["weight_ih"].shape[0] // len(cell.gates)
        bound = 1 / math.sqrt(H)  # written as torch writes it, so that the draws agree to the last bit
        for key in (k for k in weights if k not in cell.extras):
            nn.init.uniform_(weights[key], -bound, bound)
    else:
        fill_input, fill_recurrent = _fillers(name, number)
        _each_block(weights["weight_ih"], len(cell.gates), fill_input)
        if "weight_hh" in weights:
            _each_block(weights["weight_hh"], len(cell.recurrent_gates) * cell.heads, fill_recurrent)
        if "weight_hr" in weights:
            fill_input(weights["weight_hr"])
        for key in ("bias_ih", "bias_hh"):
            if key in weights:
                nn.init.zeros_(weights[key])
    cell.init_extras(weights)
    if name != "torch":
        for key in cell.recurrent_matrices:
            if key != "weight_hh":  # a recurrent matrix by another name
                fill_recurrent(weights[key])
    if forget_bias is not None:
        _set_bias(cell, weights, cell.forget_gate, forget_bias)
    if chrono is not None:
        H = weights["bias_ih"].shape[0] // len(cell.gates)
        drawn = torch.empty_like(weights["bias_ih"][:H]).uniform_(1, chrono - 1).log()
        _set_bias(cell, weights, cell.forget_gate, drawn)
        _set_bias(cell, weights, cell.input_gate, -drawn)


@torch.no_grad()
def initialise_linear(scheme: str, weight: Tensor, bias: Tensor | None = None) -> None:
    """Initialise another matrix such as V, and its bias, in place; for `torch` keep the layer's own draws."""
    name, number = parse_scheme(scheme)
    if name == "torch":
        return
    fill, _ = _fillers(name, number)
    fill(weight)
    if bias is not None:
        nn.init.zeros_(bias)


def check_weights_fit(
    shapes: Mapping[str, tuple[int, ...]], layers: int, device: Device, dtype: torch.dtype | None
) -> None:
    """Raise OptionError if the weights of the layers do not fit into memory, before anything is allocated.

    Otherwise torch would raise an error of its own, or the system would kill the process.
    """
    like = torch.empty(0, device=device, dtype=dtype)
    if like.device.type == "cpu":
        check_memory(layers * sum(map(math.prod, shapes.values())) * like.element_size(), memory())


def check_init(cell: Cell, init: Init, bias: bool) -> None:
    """Raise OptionError if an option of `init` does not apply to the cell."""
    who = type(cell).__name__
    if init.forget_bias is not None and cell.forget_gate is None:
        raise OptionError(f"{who} has no forget gate, so forget_bias has no effect")
    if init.chrono is not None and cell.forget_gate is None and cell.input_gate is None:
        raise OptionError(f"{who} has neither a forget nor an input gate, so chrono has no effect")
    for name in ("forget_bias", "chrono"):
        if getattr(init, name) is not None and not bias:
            raise OptionError(f"{who} is made without biases, so {name} has no effect")


Fill = Callable[[Tensor], object]


def _fillers(name: str, number: float) -> tuple[Fill, Fill]:
    """Return the functions that initialise a block of U and a block of W."""

    def scaled_identity(block: Tensor) -> None:
        nn.init.eye_(block).mul_(number)

    fillers: dict[str, tuple[Fill, Fill]] = {
        "glorot": (nn.init.xavier_uniform_, nn.init.xavier_uniform_),
        "orthogonal": (nn.init.xavier_uniform_, nn.init.orthogonal_),
        "identity": (lambda block: nn.init.normal_(block, std=0.001), scaled_identity),
        "normal": (lambda block: nn.init.normal_(block, std=number),) * 2,
    }
    return fillers[name]


def _each_block(matrix: Tensor, blocks: int, fill: Fill) -> None:
    for block in matrix.chunk(blocks):
        fill(block)


def _set_bias(cell: Cell, weights: Weights, gate: str | None, value: float | Tensor) -> None:
    for key, gates, start in (("bias_ih", cell.gates, value), ("bias_hh", cell.recurrent_gates, 0.0)):
        if gate in gates:
            weights[key].chunk(len(gates))[gates.index(gate)][:] = start

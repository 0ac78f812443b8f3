"""Elman, LSTM and GRU in this language, beside the lines of `recur.reference` that compute the same; and others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recur.reference import elman, gru, lstm, network
from recur.reference.sequence import Array, Recurrence

ELMAN = """\
a = U x + W h + b
h' = tanh(a)
"""

LSTM = """\
f = σ(U_f x + W_f h + b_f)
i = σ(U_i x + W_i h + b_i)
g = tanh(U_g x + W_g h + b_g)
o = σ(U_o x + W_o h + b_o)
c' = f ⊙ c + i ⊙ g
h' = o ⊙ tanh(c')
"""

GRU = """\
r = σ(U_r x + W_r h + b_r)
z = σ(U_z x + W_z h + b_z)
h̃ = tanh(U_h x + b_h + r ⊙ (W_h h + d_h))
h' = (1 − z) ⊙ h̃ + z ⊙ h
"""

EXAMPLES = {
    "leaky": "h' = 0.9 h + 0.1 tanh(U x + W h + b)\n",
    "one gate": "z = σ(U_z x + W_z h + b_z)\nh' = (1 − z) ⊙ h + z ⊙ tanh(U x + W h + b)\n",
    "GRU, 2014": (
        "r = σ(U_r x + W_r h + b_r)\nz = σ(U_z x + W_z h + b_z)\n"
        "h̃ = tanh(U x + W (r ⊙ h) + b)\nh' = (1 − z) ⊙ h̃ + z ⊙ h\n"
    ),
    "LSTM, [h, x]": (
        "f_t = σ(W_f·[h_{t−1}, x_t] + b_f)\ni_t = σ(W_i·[h_{t−1}, x_t] + b_i)\n"
        "C̃_t = tanh(W_C·[h_{t−1}, x_t] + b_C)\nC_t = f_t ⊙ C_{t−1} + i_t ⊙ C̃_t\n"
        "o_t = σ(W_o·[h_{t−1}, x_t] + b_o)\nh_t = o_t ⊙ tanh(C_t)\n"
    ),
    "peephole": (
        "i = σ(U_i x + W_i h + p_i ⊙ c + b_i)\nf = σ(U_f x + W_f h + p_f ⊙ c + b_f)\n"
        "c' = f ⊙ c + i ⊙ tanh(U_c x + W_c h + b_c)\n"
        "o = σ(U_o x + W_o h + p_o ⊙ c' + b_o)\nh' = o ⊙ tanh(c')\n"
    ),
}
"""To begin one's own with."""

Lines = Mapping[str, tuple[str, str]]
"""By the symbol of a row: how the line begins, or what it holds, that computes it, and the one for its gradient."""


class Textbook(NamedTuple):
    """A cell of the reference."""

    text: str
    module: Recurrence
    gates: tuple[str, ...]
    """The blocks of the reference's U, W and b, by our subscripts."""
    lines: Lines

    def parameters(self, weights: Mapping[str, Array]) -> dict[str, Array]:
        """Our weights as the reference has them: blocks of gates in one matrix, vectors as columns."""

        def block(letter: str) -> Array:
            names = [f"{letter}_{gate}" if gate else letter for gate in self.gates]
            size = next(weights[name] for name in names if name in weights)
            return np.concatenate([weights.get(name, np.zeros_like(size)) for name in names])

        made = {"U": block("U"), "W": block("W"), "b": block("b")[:, None]}
        if any(name.startswith("d_") for name in weights):
            made["bW"] = block("d")[:, None]
        output = "_y" if "c_y" in weights else ""
        return {**made, "V": weights["V"], "c": weights[f"c{output}"][:, None]}


OUTPUT: Lines = {
    "V h_t": ("o = parameters", ""),
    "o_t": ("o = parameters", "do[y, np.arange(m)"),
    "o_{y,t}": ("o = parameters", "do[y, np.arange(m)"),
    "ŷ_t": ("e = np.exp", ""),
    "L_t": ("return float(-np.log", ""),
    "V": ("", "dV=np.einsum"),
    "c": ("", "dc=do.sum"),
    "c_y": ("", "dc=do.sum"),
}

WEIGHTS = {"U": "U", "W": "W", "b": "b", "d": "bW"}
"""The reference's letters, by ours."""
_GATE = "i, f, g, o = "

TEXTBOOK = {
    "elman": Textbook(
        ELMAN,
        elman,
        ("",),
        {
            "U x_t": ("s_next = phi(b", ""),
            "W h_{t−1}": ("s_next = phi(b", ""),
            "a_t": ("s_next = phi(b", "da = phi_prime"),
            "h_t": ("s_next = phi(b", "dstate = (ds[:, :, t]"),
            "x_t": ("", "return StepGradients"),
            "h_{t−1}": ("", "return StepGradients"),
        },
    ),
    "lstm": Textbook(
        LSTM,
        lstm,
        ("i", "f", "g", "o"),
        {
            **{f"U_{k} x_t": ("a = parameters", "") for k in "ifgo"},
            **{f"W_{k} h_{{t−1}}": ("a = parameters", "") for k in "ifgo"},
            "a_{i,t}": ("a = parameters", "dC_t * g * i"),
            "a_{f,t}": ("a = parameters", "dC_t * C_prev * f"),
            "a_{g,t}": ("a = parameters", "dC_t * i * (1"),
            "a_{o,t}": ("a = parameters", "ds * tanh_C * o"),
            **{f"{k}_t": (_GATE, "") for k in "ifgo"},
            "f_t ⊙ c_{t−1}": ("C_next = ", ""),
            "i_t ⊙ g_t": ("C_next = ", ""),
            "c_t": ("C_next = ", "dC_t = dC"),
            "tanh(c_t)": ("s_next = ", ""),
            "h_t": ("s_next = ", "dstate = (ds[:, :, t]"),
            "x_t": ("", "return StepGradients"),
            "h_{t−1}": ("", "dprev = "),
            "c_{t−1}": ("", "dprev = "),
        },
    ),
    "gru": Textbook(
        GRU,
        gru,
        ("r", "z", "h"),
        {
            **{f"U_{k} x_t": ("x_r, x_z, x_n = ", "") for k in "rzh"},
            **{f"W_{k} h_{{t−1}}": ("h_r, h_z, h_n = ", "") for k in "rzh"},
            "W_h h_{t−1} + d_h": ("h_r, h_z, h_n = ", "dh_share = "),
            "a_{r,t}": ("r, z = ", "da_r = "),
            "a_{z,t}": ("r, z = ", "da_z = "),
            "a_{h̃,t}": ("n = np.tanh", "da_n = "),
            "r_t": ("r, z = ", ""),
            "z_t": ("r, z = ", ""),
            "r_t ⊙ (W_h h_{t−1} + d_h)": ("n = np.tanh", ""),
            "h̃_t": ("n = np.tanh", ""),
            "1 − z_t": ("s_next = ", ""),
            "(1 − z_t) ⊙ h̃_t": ("s_next = ", ""),
            "z_t ⊙ h_{t−1}": ("s_next = ", ""),
            "h_t": ("s_next = ", "dstate = (ds[:, :, t]"),
            "x_t": ("", "return StepGradients"),
            "h_{t−1}": ("", "dprev = "),
        },
    ),
}
"""The cells that the reference has."""


class CodeLine(NamedTuple):
    """A line of source."""

    file: str
    line: int
    text: str


def forward_line(cell: str, symbol: str) -> CodeLine | None:
    """The line of the reference that computes a row."""
    marker = {**OUTPUT, **TEXTBOOK[cell].lines}.get(symbol, ("", ""))[0]
    return _found(cell, marker, backward=False) if marker else None


def backward_line(cell: str, symbol: str) -> CodeLine | None:
    """The line of the reference that computes a row's gradient, or that of a weight."""
    known = {**OUTPUT, **TEXTBOOK[cell].lines}
    marker = known[symbol][1] if symbol in known else ""
    if not marker and symbol[:1] in WEIGHTS and " " not in symbol:
        marker = f'"d{WEIGHTS[symbol[:1]]}": '
    return _found(cell, marker, backward=True) if marker else None


@functools.cache
def _found(cell: str, marker: str, backward: bool) -> CodeLine:
    from recur.reference import sequence

    module: Any = TEXTBOOK[cell].module
    places: tuple[Callable[..., object], ...] = (
        (module.step_backward, network.output_backward, sequence.backward)
        if backward
        else (module.step_forward, network.output_forward, network.softmax, network.negative_log_likelihood)
    )
    for function in places:
        source, first = inspect.getsourcelines(function)
        for k, line in enumerate(source):
            if marker in line:
                file = Path(inspect.getsourcefile(function) or "").name
                return CodeLine(f"recur/reference/{file}", first + k, line.strip())
    raise LookupError(f"{cell} has no line with {marker!r}")  # a test holds that each is there

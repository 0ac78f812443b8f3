"""The equations of the papers of matrix cells, in NumPy: one token, one head after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from recur.cells import make_cell

Step = Callable[..., Any]
PAPERS: dict[str, Step] = {}
"""For every matrix cell, one step of its paper: from x, the parameters and the states to the next states."""


def sigma(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


def silu(a: Any) -> Any:
    return a * sigma(a)


def softplus(a: Any) -> Any:
    return np.log1p(np.exp(a))


def unit(k: Any) -> Any:
    return k / np.sqrt((k * k).sum() + 1e-6)


def rms(o: Any) -> Any:
    return o / np.sqrt((o * o).mean() + 1e-5)


def paper(name: str) -> Callable[[Step], Step]:
    """Register the equations of one head: rule(x, p, S, j), with x and p of head j, to the output and the next S."""

    def register(rule: Step) -> Step:
        def step(x: Any, p: Any, h: Any, S: Any, *m: Any, spec: str = name) -> Any:
            cell = make_cell(spec)
            dims = cell.dims(len(h))
            share = p["weight_ih"] @ x + p["bias_ih"]
            parts = dict(zip(cell.gates, np.split(share, np.cumsum(cell.gate_widths(len(h)))[:-1]), strict=True))
            S = S.reshape(dims.heads, dims.K, dims.columns)
            found = []
            for j in range(dims.heads):
                of_head = {
                    name: part if name in cell.shared else part.reshape(dims.heads, -1)[j]
                    for name, part in parts.items()
                }
                own = {name: p[name] if shape == ("V",) else p[name][j] for name, shape in cell.extras.items()}
                found.append(rule(of_head, own, S[j], j, *(value[j] for value in m)))
            outputs, *states = zip(*found, strict=True)
            return np.concatenate(outputs), np.stack(states[0]).ravel(), *(np.array(part) for part in states[1:])

        PAPERS[name] = step
        return step

    return register


def delta(S: Any, k: Any, b: Any, v: Any) -> Any:
    """Return (I − b k kᵀ) S + b k vᵀ."""
    return (np.eye(len(k)) - b * np.outer(k, k)) @ S + b * np.outer(k, v)


@paper("retnet")
def retnet(x: Any, p: Any, S: Any, j: int) -> Any:
    S = (1 - 2.0 ** (-5 - j)) * S + np.outer(x["k"], x["v"])
    return rms(S.T @ x["q"] / np.sqrt(len(x["q"]))) * silu(x["g"]), S


@paper("gla")
def gla(x: Any, p: Any, S: Any, j: int) -> Any:
    S = np.diag(sigma(x["a"]) ** (1 / 16)) @ S + np.outer(x["k"], x["v"])
    return rms(S.T @ x["q"] / np.sqrt(len(x["q"]))) * silu(x["g"]), S


@paper("hgrn2")
def hgrn2(x: Any, p: Any, S: Any, j: int) -> Any:
    f = sigma(x["f"])
    S = np.diag(f) @ S + np.outer(1 - f, x["i"])
    return rms(S.T @ silu(x["q"])), S


@paper("mamba2")
def mamba2(x: Any, p: Any, S: Any, j: int) -> Any:
    dt = softplus(x["dt"] + p["dt_bias"])
    S = np.exp(-np.exp(p["A_log"]) * dt) * S + np.outer(x["B"], dt * x["v"])
    return rms((S.T @ x["C"] + p["D"] * x["v"]) * silu(x["z"])) * p["norm"], S


@paper("deltanet")
def deltanet(x: Any, p: Any, S: Any, j: int) -> Any:
    S = delta(S, unit(silu(x["k"])), sigma(x["b"]), x["v"])
    return rms(S.T @ unit(silu(x["q"])) / np.sqrt(len(x["q"]))), S


@paper("gated_deltanet")
def gated_deltanet(x: Any, p: Any, S: Any, j: int) -> Any:
    a = np.exp(-np.exp(p["A_log"]) * softplus(x["a"] + p["dt_bias"]))
    S = delta(a * S, unit(silu(x["k"])), sigma(x["b"]), x["v"])
    return rms(S.T @ unit(silu(x["q"])) / np.sqrt(len(x["q"]))) * p["norm"] * silu(x["g"]), S


@paper("gated_deltaproduct")
def gated_deltaproduct(x: Any, p: Any, S: Any, j: int) -> Any:
    S = np.exp(-np.exp(p["A_log"]) * softplus(x["a"] + p["dt_bias"])) * S
    for n in "12":
        S = delta(S, unit(silu(x["k" + n])), 2 * sigma(x["b" + n]), x["v" + n])
    return rms(S.T @ unit(silu(x["q"])) / np.sqrt(len(x["q"]))) * p["norm"] * silu(x["g"]), S


@paper("kda")
def kda(x: Any, p: Any, S: Any, j: int) -> Any:
    a = np.exp(-np.exp(p["A_log"]) * softplus(x["a"] + p["dt_bias"]))
    S = delta(np.diag(a) @ S, unit(silu(x["k"])), sigma(x["b"]), x["v"])
    return rms(S.T @ unit(silu(x["q"])) / np.sqrt(len(x["q"]))) * p["norm"] * sigma(x["g"]), S


@paper("rwkv6")
def rwkv6(x: Any, p: Any, S: Any, j: int) -> Any:
    written = np.outer(x["k"], x["v"])
    o = (S + np.diag(p["u"]) @ written).T @ x["r"]
    return rms(o) * p["norm"] * silu(x["g"]), np.diag(np.exp(-np.exp(x["w"]))) @ S + written


@paper("rwkv7")
def rwkv7(x: Any, p: Any, S: Any, j: int) -> Any:
    a, removed = sigma(x["a"]), unit(p["k_k"] * x["k"])
    k = x["k"] * (1 + (a - 1) * p["k_a"])
    w = np.exp(-np.exp(-0.5) * sigma(x["w"]))
    S = (np.diag(w) - np.outer(a * removed, removed)) @ S + np.outer(k, x["v"])
    o = rms(S.T @ x["r"]) * p["norm"] + (x["r"] * p["r_k"] * k).sum() * x["v"]
    return o * x["g"], S


@paper("mlstm")
def mlstm(x: Any, p: Any, S: Any, j: int, m: Any) -> Any:
    """Without the stabiliser: C and n in full, scaled as they are held at the end."""
    k = x["k"] / np.sqrt(len(x["k"]))
    full = sigma(x["f"]) * S * np.exp(m) + np.exp(x["i"]) * np.outer(k, np.append(x["v"], 1))
    C, n = full[:, :-1], full[:, -1]
    new = max(np.log(sigma(x["f"][0])) + m, x["i"][0])
    o = C.T @ x["q"] / max(abs(n @ x["q"]), 1)
    return sigma(x["o"]) * rms(o) * p["norm"], full * np.exp(-new), new


def mlstm_sigmoid(x: Any, p: Any, S: Any, j: int) -> Any:
    k = x["k"] / np.sqrt(len(x["k"]))
    S = sigma(x["f"]) * S + sigma(x["i"]) * np.outer(k, x["v"])
    return sigma(x["o"]) * rms(S.T @ x["q"]) * p["norm"], S


paper("mlstm:gate=sigmoid")(mlstm_sigmoid)


@paper("m2rnn")
def m2rnn(x: Any, p: Any, S: Any, j: int) -> Any:
    f = sigma(x["f"])
    S = f * S + (1 - f) * np.tanh(S @ p["W"] + np.outer(x["k"], x["v"]))
    return S.T @ x["q"], S

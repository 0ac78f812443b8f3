"""Every registered cell against its paper's equations, written again in NumPy, over two carried steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from recur.cells import DeepTransition, make_cell
from recur.cells.indrnn import IndRNN
from recur.cells.leaky import Leaky
from recur.errors import OptionError
from recur.ops import scan
from tests.cells import matrix_papers
from tests.support import ALL_CELLS, Case, close, random_weights


def sigma(a: Any) -> Any:
    return 1 / (1 + np.exp(-a))


PAPERS: dict[str, Callable[..., Any]] = {**matrix_papers.PAPERS}
"""For every registered cell, one step of its paper: from x, the parameters and the states to the next states."""


def paper(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(step: Callable[..., Any]) -> Callable[..., Any]:
        PAPERS[name] = step
        return step

    return register


def blocks(n: int, x: Any, p: Any, h: Any) -> Any:
    """The sums of both shares, block by block."""
    return np.split(p["weight_ih"] @ x + p["bias_ih"] + p["weight_hh"] @ h + p["bias_hh"], n)


@paper("elman")
def elman(x: Any, p: Any, h: Any) -> Any:
    return (np.tanh(*blocks(1, x, p, h)),)


@paper("elman-relu")
def elman_relu(x: Any, p: Any, h: Any) -> Any:
    return (np.maximum(*blocks(1, x, p, h), 0),)


@paper("elman-sigmoid")
def elman_sigmoid(x: Any, p: Any, h: Any) -> Any:
    return (sigma(*blocks(1, x, p, h)),)


@paper("lstm")
def lstm(x: Any, p: Any, h: Any, c: Any) -> Any:
    i, f, g, o = blocks(4, x, p, h)
    c = sigma(f) * c + sigma(i) * np.tanh(g)
    return sigma(o) * np.tanh(c), c


@paper("lstm1997")
def lstm1997(x: Any, p: Any, h: Any, c: Any) -> Any:
    i, g, o = blocks(3, x, p, h)
    c = c + sigma(i) * np.tanh(g)
    return sigma(o) * np.tanh(c), c


@paper("peephole")
def peephole(x: Any, p: Any, h: Any, c: Any) -> Any:
    i, f, g, o = blocks(4, x, p, h)
    new = sigma(f + p["p_f"] * c) * c + sigma(i + p["p_i"] * c) * np.tanh(g)
    return sigma(o + p["p_o"] * new) * np.tanh(new), new


@paper("gru")
def gru(x: Any, p: Any, h: Any) -> Any:
    U, W = np.split(p["weight_ih"], 3), np.split(p["weight_hh"], 3)
    b, d = np.split(p["bias_ih"], 3), np.split(p["bias_hh"], 3)
    r = sigma(U[0] @ x + b[0] + W[0] @ h + d[0])
    z = sigma(U[1] @ x + b[1] + W[1] @ h + d[1])
    n = np.tanh(U[2] @ x + b[2] + r * (W[2] @ h + d[2]))
    return ((1 - z) * n + z * h,)


@paper("gru2014")
def gru2014(x: Any, p: Any, h: Any) -> Any:
    U, b = np.split(p["weight_ih"], 3), np.split(p["bias_ih"], 3)
    W, d = np.split(p["weight_hh"], 2), np.split(p["bias_hh"], 2)
    r = sigma(U[0] @ x + b[0] + W[0] @ h + d[0])
    z = sigma(U[1] @ x + b[1] + W[1] @ h + d[1])
    n = np.tanh(U[2] @ x + b[2] + p["W_n"] @ (r * h))
    return ((1 - z) * n + z * h,)


@paper("leaky")
def leaky(x: Any, p: Any, h: Any) -> Any:
    alpha = sigma(p["a"])
    return (alpha * h + (1 - alpha) * elman(x, p, h)[0],)


@paper("mgu")
def mgu(x: Any, p: Any, h: Any) -> Any:
    U, W = np.split(p["weight_ih"], 2), np.split(p["weight_hh"], 2)
    b, d = np.split(p["bias_ih"], 2), np.split(p["bias_hh"], 2)
    f = sigma(U[0] @ x + b[0] + W[0] @ h + d[0])
    n = np.tanh(U[1] @ x + b[1] + f * (W[1] @ h + d[1]))
    return ((1 - f) * h + f * n,)


@paper("indrnn")
def indrnn(x: Any, p: Any, h: Any) -> Any:
    return (np.maximum(p["weight_ih"] @ x + p["bias_ih"] + p["u"] * h, 0),)


@paper("mingru")
def mingru(x: Any, p: Any, h: Any) -> Any:
    z, n = np.split(p["weight_ih"] @ x + p["bias_ih"], 2)
    return ((1 - sigma(z)) * h + sigma(z) * n,)


@paper("slstm")
def slstm(x: Any, p: Any, h: Any, c: Any, n: Any, m: Any) -> Any:
    """Without the stabiliser: c and n in full, as the paper first has them; scaled as they are held at the end."""
    i, f, z, o = blocks(4, x, p, h)
    full_c, full_n = c * np.exp(m), n * np.exp(m)
    full_c = sigma(f) * full_c + np.exp(i) * np.tanh(z)
    full_n = sigma(f) * full_n + np.exp(i)
    new = np.maximum(np.log(sigma(f)) + m, i)
    return sigma(o) * full_c / full_n, full_c * np.exp(-new), full_n * np.exp(-new), new


@paper("minlstm")
def minlstm(x: Any, p: Any, h: Any) -> Any:
    f, i, n = np.split(p["weight_ih"] @ x + p["bias_ih"], 3)
    f, i = sigma(f), sigma(i)
    return (f / (f + i) * h + i / (f + i) * n,)


@paper("sru")
def sru(x: Any, p: Any, h: Any, c: Any) -> Any:
    n, f, r, skip = np.split(p["weight_ih"] @ x + p["bias_ih"], 4)
    f, r = sigma(f + p["v_f"] * c), sigma(r + p["v_r"] * c)
    new = f * c + (1 - f) * n
    return r * new + (1 - r) * skip * np.sqrt(3), new


@paper("lru")
def lru(x: Any, p: Any, re: Any, im: Any) -> Any:
    u = np.array([1, 1j]) @ (p["weight_ih"] @ x + p["bias_ih"]).reshape(2, -1)
    eigenvalues = np.exp(-np.exp(p["nu"]) + 1j * np.exp(p["theta"]))
    z = eigenvalues * (re + 1j * im) + np.exp(p["gamma"]) * u
    return z.real, z.imag


@paper("rglru")
def rglru(x: Any, p: Any, h: Any) -> Any:
    r, i, n = np.split(p["weight_ih"] @ x + p["bias_ih"], 3)
    a = sigma(-p["Lambda"]) ** (8 * sigma(r))  # softplus(Λ) = −log σ(−Λ)
    return (a * h + np.sqrt(1 - a**2) * sigma(i) * n,)


@paper("lnlstm")
def lnlstm(x: Any, p: Any, h: Any, c: Any) -> Any:
    def normal(y: Any) -> Any:
        return (y - y.mean()) / np.sqrt(y.var() + 1e-5)

    x_part = p["a_x"].ravel() * normal(p["weight_ih"] @ x + p["bias_ih"])
    h_part = p["a_h"].ravel() * normal(p["weight_hh"] @ h + p["bias_hh"])
    i, f, g, o = np.split(x_part + h_part + p["b"].ravel(), 4)
    c = sigma(f) * c + sigma(i) * np.tanh(g)
    return sigma(o) * np.tanh(p["a_c"] * normal(c) + p["b_c"]), c


@paper("multiplicative_lstm")
def multiplicative_lstm(x: Any, p: Any, h: Any, c: Any) -> Any:
    xi, xf, xg, xo, xm = np.split(p["weight_ih"] @ x + p["bias_ih"], 5)
    i, f, g, o = np.split(p["weight_hh"] @ (xm * (p["M"] @ h)) + p["bias_hh"], 4)
    c = sigma(xf + f) * c + sigma(xi + i) * np.tanh(xg + g)
    return sigma(xo + o) * np.tanh(c), c


@paper("lif")
def lif(x: Any, p: Any, h: Any, v: Any) -> Any:
    v = 0.9 * v + p["weight_ih"] @ x + p["bias_ih"] - h
    return np.heaviside(v - 1, 1), v


@paper("alif")
def alif(x: Any, p: Any, h: Any, v: Any, a: Any) -> Any:
    (current,) = blocks(1, x, p, h)
    v = 0.95 * v + current - h
    h = np.heaviside(v - (1 + 0.17 * a), 1)
    return h, v, 0.99 * a + h


@paper("zoneout_lstm")
def zoneout_lstm(x: Any, p: Any, h: Any, c: Any) -> Any:
    """In evaluation: the expected state."""
    new_h, new_c = lstm(x, p, h, c)
    return 0.05 * h + 0.95 * new_h, 0.5 * c + 0.5 * new_c


@paper("zoneout_gru")
def zoneout_gru(x: Any, p: Any, h: Any) -> Any:
    return (0.1 * h + 0.9 * PAPERS["gru"](x, p, h)[0],)


@paper("ctrnn")
def ctrnn(x: Any, p: Any, h: Any) -> Any:
    return (0.8 * h + 0.2 * np.maximum(*blocks(1, x, p, h), 0),)


@paper("mogrifier")
def mogrifier(x: Any, p: Any, h: Any, c: Any) -> Any:
    gated = h
    for k in (1, 2, 3, 4, 5):
        if k % 2:
            x = 2 * sigma(p[f"Q_{k}"] @ gated) * x
        else:
            gated = 2 * sigma(p[f"R_{k}"] @ x) * gated
    return lstm(x, p, gated, c)


@paper("cfc")
def cfc(x: Any, p: Any, h: Any) -> Any:
    """With a time of 1 between steps; other times are compared with ncps."""
    b = 1.7159 * np.tanh(0.666 * blocks(1, x, p, h)[0])
    f, g = np.tanh(p["F"] @ b + p["k_f"]), np.tanh(p["G"] @ b + p["k_g"])
    t = sigma(p["A"] @ b + p["k_a"] + p["B"] @ b + p["k_b"])
    return ((1 - t) * f + t * g,)


@paper("grud")
def grud(x: Any, p: Any, h: Any, dt: float = 1.0) -> Any:
    h = np.exp(-np.maximum(p["d"] * dt + p["k"], 0)) * h
    of_x = np.split(p["weight_ih"] @ x + p["bias_ih"], 3)
    of_h = np.split(p["weight_hh"] @ h + p["bias_hh"], 2)
    r, z = sigma(of_x[0] + of_h[0]), sigma(of_x[1] + of_h[1])
    return ((1 - z) * h + z * np.tanh(of_x[2] + p["W_n"] @ (r * h)),)


@paper("ltc")
def ltc(x: Any, p: Any, h: Any, dt: float = 1.0) -> Any:
    def soft(y: Any) -> Any:
        return np.log1p(np.exp(y))

    def synapses(y: Any, of: str) -> Any:
        open_ = soft(p[f"{of}w"]) * sigma(p[f"{of}sigma"] * (y[:, None] - p[f"{of}mu"]))
        return (open_ * p[f"{of}erev"]).sum(0), open_.sum(0)

    for _ in range(6):
        capacity = soft(p["cm"]) / (dt / 6)
        above = capacity * h + soft(p["gleak"]) * p["vleak"] + p["weight_ih"] @ x + p["bias_ih"]
        below = capacity + soft(p["gleak"]) + 1e-8
        for y, of in ((h, ""), (x, "sensory_")):
            driven, opened = synapses(y, of)
            above, below = above + driven, below + opened
        h = above / below
    return (h,)


def by_paper(step: Callable[..., Any], case: Case) -> Any:
    p = {name: value.detach().numpy() for name, value in case.weights.items()}
    rows = []
    for b in range(case.x.shape[0]):
        state = tuple(part[b].detach().numpy() for part in case.state)
        for t in range(case.x.shape[1]):
            state = step(case.x[b, t].detach().numpy(), p, *state)
        rows.append(state)
    return [np.stack(parts) for parts in zip(*rows, strict=True)]


@pytest.mark.parametrize("name", ALL_CELLS)
def test_two_carried_steps_follow_the_paper(name: str) -> None:
    case = Case(name, T=2)
    for got, expected, state in zip(case.scan().state, by_paper(PAPERS[name], case), case.cell.states, strict=True):
        close(got, torch.from_numpy(expected), state)


def test_leaky_with_a_fixed_rate() -> None:
    cell = Leaky(alpha=0.25)
    weights = random_weights(cell, 4, 3)
    x, h = torch.randn(2, 1, 4, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    candidate = scan(make_cell("elman"), weights, x, h).state.h
    close(scan(cell, weights, x, h).state.h, 0.25 * h + 0.75 * candidate)


def test_leaky_units_start_with_spread_time_scales() -> None:
    cell = Leaky()
    a = torch.empty(5, dtype=torch.float64)
    cell.init_extras({"a": a})
    scales = 1 / (1 - torch.sigmoid(a))
    close(scales, torch.logspace(np.log10(1.1), 2, 5, dtype=torch.float64))


def test_an_indrnn_with_a_horizon_at_most_doubles() -> None:
    """Over T steps without input a state of 1 becomes at most 2, however large u is; u itself starts near 1."""
    cell, T = IndRNN(horizon=50), 50
    u = torch.empty(500, dtype=torch.float64)
    cell.init_extras({"u": u})
    assert 2 ** (-1 / T) <= u.min() < u.max() <= 2 ** (1 / T)
    weights = {"weight_ih": torch.zeros(3, 4), "bias_ih": torch.zeros(3), "u": torch.tensor([9.0, 1.0, -9.0])}
    weights = {name: w.double().requires_grad_() for name, w in weights.items()}
    x, h = torch.zeros(1, T, 4, dtype=torch.float64), torch.ones(1, 3, dtype=torch.float64)
    for backend in ("loop", "native"):
        found = scan(cell, weights, x, h, backend=backend)
        close(found.state.h, torch.tensor([[2.0, 1.0, 0.0]], dtype=torch.float64))
        (d_u,) = torch.autograd.grad(found.state.h.sum(), weights["u"])
        close(d_u, torch.tensor([0.0, 50.0, 0.0], dtype=torch.float64))
    with pytest.raises(OptionError, match="horizon is a number of steps, got -1"):
        IndRNN(horizon=-1)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("name", ["elman", "lstm", "peephole"])
def test_deep_transition_puts_an_mlp_before_the_product(name: str, skip: bool) -> None:
    inner = make_cell(name)
    cell = DeepTransition(inner, depth=2, skip=skip)
    weights = random_weights(cell, 4, 3)
    x = torch.randn(2, 1, 4, dtype=torch.float64)
    state = tuple(torch.randn(2, 3, dtype=torch.float64) for _ in cell.states)
    h = state[0]
    m = torch.tanh(h @ weights["M_1"].T + weights["k_1"])
    m = torch.tanh(m @ weights["M_2"].T + weights["k_2"])
    m = m + h if skip else m
    # The inner cell multiplies the first state only: give it m there, and what the step itself reads stays as it was.
    expected = scan(inner, {k: v for k, v in weights.items() if k[0] not in "Mk"}, x, (m, *state[1:])).state
    got = scan(cell, weights, x, state).state
    for a, b in zip(got, expected, strict=True):
        close(a, b)


@pytest.mark.parametrize("name", [n for n in ALL_CELLS if make_cell(n).pointwise])
def test_a_pointwise_step_commutes_with_any_order_of_units(name: str) -> None:
    cell = make_cell(name)
    H = 5
    order = torch.randperm(H)

    def args(shuffle: bool) -> Any:
        torch.manual_seed(3)
        made = []
        for role in "xhsw":
            fields = cell.tuple_of(role)._fields
            parts = [torch.randn(2, H, dtype=torch.float64) for _ in fields]
            made.append(cell.tuple_of(role)._make(p[:, order] if shuffle else p for p in parts))
        return made

    for straight, shuffled in zip(cell.advance(*args(False)), cell.advance(*args(True)), strict=True):
        close(shuffled, straight[:, order])

"""The NumPy reference against central differences, and the closed forms of the linear network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from recur import reference
from recur.cells import Cell
from recur.ops import scan
from tests.support import SLOPE_TOLERANCE, close

n_x, n_s, n_y, m, T = 3, 4, 5, 2, 6
CELLS: list[tuple[Any, int, dict[str, str]]] = [
    (reference.elman, 1, {}),
    (reference.elman, 1, {"activation": "sigmoid"}),
    (reference.elman, 1, {"activation": "relu"}),
    (reference.lstm, 4, {}),
    (reference.gru, 3, {}),
]


def problem(module: Any, gates: int) -> Any:
    rng = np.random.default_rng(5)
    parameters = {
        "U": rng.normal(size=(gates * n_s, n_x)),
        "W": rng.normal(size=(gates * n_s, n_s)) * 0.7,
        "b": rng.normal(size=(gates * n_s, 1)),
        "V": rng.normal(size=(n_y, n_s)),
        "c": rng.normal(size=(n_y, 1)),
    }
    if module is reference.gru:
        parameters["bW"] = rng.normal(size=(gates * n_s, 1))
    x, y = rng.normal(size=(n_x, m, T)), rng.integers(n_y, size=(m, T))
    state0 = tuple(rng.normal(size=(n_s, m)) for _ in module.STATES)
    return x, y, state0, parameters


def central_difference(f: Any, array: Any, step: float = 1e-6) -> Any:
    slope = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        value = array[index]
        array[index] = value + step
        above = f()
        array[index] = value - step
        slope[index] = (above - f()) / (2 * step)
        array[index] = value
    return slope


@pytest.mark.parametrize(("module", "gates", "options"), CELLS, ids=["elman", "elman σ", "elman ReLU", "lstm", "gru"])
def test_gradients_by_hand_are_the_slopes_of_the_loss(module: Any, gates: int, options: dict[str, str]) -> None:
    x, y, state0, parameters = problem(module, gates)
    network = reference.network

    def loss() -> float:
        return network.loss(module, x, y, state0, parameters, **options)

    value, grads = network.loss_and_gradients(module, x, y, state0, parameters, **options)
    assert value == loss()
    for name, array in parameters.items():
        close(grads.weights[f"d{name}"], central_difference(loss, array), name, SLOPE_TOLERANCE)
    close(grads.dx, central_difference(loss, x), "dx", SLOPE_TOLERANCE)
    for part, array in zip(grads.ds0, state0, strict=True):
        close(part, central_difference(loss, array), "ds0", SLOPE_TOLERANCE)


def test_one_step_is_a_sequence_of_one() -> None:
    x, _, state0, parameters = problem(reference.lstm, 4)
    (s, C), cache = reference.lstm.step_forward(x[:, :, 0], state0, parameters)
    outputs, last, _ = reference.sequence.forward(reference.lstm, x[:, :, :1], state0, parameters)
    np.testing.assert_array_equal(outputs[:, :, 0], s)
    np.testing.assert_array_equal(last[1], C)
    ds, dC = np.ones_like(s), np.full_like(C, 0.5)
    step = reference.lstm.step_backward((ds, dC), cache)
    whole = reference.sequence.backward(reference.lstm, np.zeros((n_s, m, 1)), [cache], dlast=(ds, dC))
    np.testing.assert_array_equal(whole.dx[:, :, 0], step.dxt)
    np.testing.assert_array_equal(whole.ds0[1], step.dprev[1])


def test_the_output_gradient_is_prediction_minus_truth() -> None:
    x, y, state0, parameters = problem(reference.elman, 1)
    s, _, _ = reference.sequence.forward(reference.elman, x, state0, parameters)
    y_hat = reference.network.output_forward(s, parameters)
    close(y_hat.sum(axis=0), np.ones((m, T)))
    one_hot = np.eye(n_y)[y].transpose(2, 0, 1)
    close(reference.network.output_backward(y_hat, y, s, parameters).do, y_hat - one_hot)
    # A large score must not overflow.
    assert np.isfinite(reference.network.softmax(np.array([[1e4], [0.0]]))).all()


# The linear network: powers of the recurrent matrix -------------------------------------------------------


class Linear(Cell):
    gates = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> Any:
        return (x.h + h.h,)


def test_the_gradient_of_a_linear_network_is_the_sum_of_powers() -> None:
    rng = np.random.default_rng(1)
    U, W, V = rng.normal(size=(n_s, n_x)), rng.normal(size=(n_s, n_s)), rng.normal(size=(n_y, n_s))
    do = rng.normal(size=(n_y, m, T))
    weights = {"weight_ih": torch.from_numpy(U), "weight_hh": torch.from_numpy(W)}
    x = torch.randn(m, T, n_x, dtype=torch.float64, requires_grad=True)
    outputs, _, trace = scan(Linear(), weights, x, trace=True)
    (outputs @ torch.from_numpy(V).T).backward(torch.from_numpy(do.transpose(1, 2, 0).copy()))
    for t in range(T):
        by_powers = reference.sequence.state_gradient(W, V, do, t)
        close(trace.norms["h"][:, t], torch.from_numpy(np.linalg.norm(by_powers, axis=0)))
        close(x.grad[:, t], torch.from_numpy((U.T @ by_powers).T))


@pytest.mark.parametrize(("radius", "grows"), [(0.9, False), (1.1, True)])
def test_eigenvalues_decide_whether_a_state_dies_or_explodes(radius: float, grows: bool) -> None:
    rng = np.random.default_rng(2)
    W = rng.normal(size=(n_s, n_s))
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    h0 = rng.normal(size=(n_s, m))
    weights = {"weight_ih": torch.zeros(n_s, 1, dtype=torch.float64), "weight_hh": torch.from_numpy(W)}
    start = torch.from_numpy(h0.T.copy())
    outputs = scan(Linear(), weights, torch.zeros(m, 200, 1, dtype=torch.float64), start).outputs
    for t in (1, 2, 10, 200):
        expected = reference.sequence.free_state(W, h0, t)
        size = np.abs(expected).max()  # it dies or explodes
        close(outputs[:, t - 1] / size, torch.from_numpy(expected.T / size))
    first, last = outputs[:, 0].norm().item(), outputs[:, -1].norm().item()
    assert (last > 1e6 * first) if grows else (last < 1e-6 * first)

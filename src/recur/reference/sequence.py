"""Sequences: a step repeated forward, and its gradients summed backward; the same code for every recurrence.

Axes are as in the notes: features, batch, time; x is (n_x, m, T_x).

Backward, for t = T … 1, with ∂L_t/∂s_t from the output layer and ξ as in recur.ops.bptt:

    ds_t      = ∂L_t/∂s_t + ξ_{t+1} · ds_prev of step t + 1
    dU, dW, db  summed over t, because all steps share the weights
    ds0       = ξ_1 · ds_prev of step 1

**Linear recurrence.** Powers of the recurrent matrix show why gradients vanish or explode.

    h_t = U x_t + W h_{t−1}          o_t = V h_t

Without input, h_t = Wᵗ h_0 = Q Λᵗ Q⁻¹ h_0: components with eigenvalues below 1 vanish, those above 1 explode. The
backward pass uses the transposed matrix:

    ∂L/∂h_t = Σ_{i=t}^{T} (Wᵀ)^{T−i} Vᵀ ∂L/∂o_{T+t−i}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Gradients",
    "Recurrence",
    "StepGradients",
    "backward",
    "forward",
    "free_state",
    "sigmoid",
    "state_gradient",
]

Array = NDArray[np.float64]
State = tuple[Array, ...]
Parameters = Mapping[str, Array]
Cache = tuple[Any, ...]
"""Values of a forward step that its backward step needs."""


class StepGradients(NamedTuple):
    """Gradients of everything that one step read.

    >>> weights = {"U": np.eye(1), "W": np.eye(1), "b": np.zeros((1, 1))}
    >>> _, cache = recur.reference.elman.step_forward(np.ones((1, 1)), (np.zeros((1, 1)),), weights)
    >>> sorted(recur.reference.elman.step_backward((np.ones((1, 1)),), cache).weights)
    ['dU', 'dW', 'db']
    """

    dxt: Array
    dprev: State
    weights: dict[str, Array]
    """dU, dW, db; for a GRU also dbW."""
    dstate: State
    """The full gradients of the new states, including the part through other states of the step."""


class Gradients(NamedTuple):
    """Gradients of everything that a sequence read.

    >>> recur.reference.sequence.Gradients._fields
    ('dx', 'ds0', 'weights', 'dstates')
    """

    dx: Array
    """(n_x, m, T)"""
    ds0: State
    """One array per state."""
    weights: dict[str, Array]
    """dU, dW, db (and dbW), summed over time."""
    dstates: dict[str, Array]
    """The full gradient of each state at every step, (n_s, m, T), by name: ∇_h L of the notes."""


class Recurrence(Protocol):
    """Interface of the modules elman, lstm and gru.

    >>> recur.reference.lstm.STATES
    ('s', 'C')
    """

    @property
    def STATES(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def step_forward(self) -> Callable[..., tuple[State, Cache]]: ...

    @property
    def step_backward(self) -> Callable[[State, Cache], StepGradients]: ...


def sigmoid(a: Array) -> Array:
    """Return 1 / (1 + e⁻ᵃ), computed without overflow.

    >>> recur.reference.sequence.sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * (1 + np.tanh(a / 2))


def sum_over_batch(da: Array) -> Array:
    total: Array = np.sum(da, axis=1, keepdims=True)
    return total


def forward(
    cell: Recurrence, x: Array, state0: State, parameters: Parameters, **options: str
) -> tuple[Array, State, list[Cache]]:
    """Run `cell` (elman, lstm or gru) along x (n_x, m, T); return the outputs s (n_s, m, T), last state and caches.

    >>> weights = {"U": np.eye(2), "W": np.eye(2), "b": np.zeros((2, 1))}
    >>> s, last, caches = recur.reference.sequence.forward(
    ...     recur.reference.elman, np.zeros((2, 1, 5)), (np.ones((2, 1)),), weights)
    >>> s.shape, len(caches)
    ((2, 1, 5), 5)
    """
    n_s, m = state0[0].shape
    T = x.shape[2]
    s = np.zeros((n_s, m, T))
    state, caches = state0, []
    for t in range(T):
        state, cache = cell.step_forward(x[:, :, t], state, parameters, **options)
        s[:, :, t] = state[0]
        caches.append(cache)
    return s, state, caches


def backward(
    cell: Recurrence, ds: Array, caches: list[Cache], dlast: State | None = None, xi: Array | None = None
) -> Gradients:
    """Return all gradients, given ds (n_s, m, T), those of every s_t from the output layer.

    dlast: the gradient of the last state, zero by default

    >>> elman, weights = recur.reference.elman, {"U": np.eye(2), "W": 0.5 * np.eye(2), "b": np.zeros((2, 1))}
    >>> s, _, caches = recur.reference.sequence.forward(elman, np.zeros((2, 1, 5)), (np.zeros((2, 1)),), weights)
    >>> ds = np.zeros((2, 1, 5)); ds[:, :, -1] = 1
    >>> recur.reference.sequence.backward(elman, ds, caches).dstates["s"][0, 0].tolist()      # halved at every step
    [0.0625, 0.125, 0.25, 0.5, 1.0]
    """
    n_s, m, T = ds.shape
    xi = np.ones(T) if xi is None else xi
    from_next = dlast or tuple(np.zeros((n_s, m)) for _ in cell.STATES)
    dstates = {name: np.zeros((n_s, m, T)) for name in cell.STATES}
    weights: dict[str, Array] = {}
    dx = []
    for t in reversed(range(T)):
        dstate = (ds[:, :, t] + from_next[0], *from_next[1:])
        step = cell.step_backward(dstate, caches[t])
        for name, value in zip(cell.STATES, step.dstate, strict=True):
            dstates[name][:, :, t] = value
        dx.append(step.dxt)
        from_next = tuple(xi[t] * part for part in step.dprev)
        for name, part in step.weights.items():
            weights[name] = weights[name] + part if name in weights else part
    return Gradients(np.stack(dx[::-1], axis=2), from_next, weights, dstates)


def free_state(W: Array, h0: Array, t: int) -> Array:
    """Return h_t = Q Λᵗ Q⁻¹ h_0 for a diagonalisable W, without input.

    >>> recur.reference.sequence.free_state(np.diag([0.5, 2.0]), np.ones((2, 1)), 10).ravel().round(4).tolist()
    [0.001, 1024.0]
    """
    eigenvalues, Q = np.linalg.eig(W)
    h: Array = (Q @ (eigenvalues[:, None] ** t * np.linalg.solve(Q, h0.astype(complex)))).real
    return h


def state_gradient(W: Array, V: Array, do: Array, t: int) -> Array:
    """Return ∂L/∂h_t as a sum of powers, given ∂L/∂o of all steps, do (n_q, m, T); t counts from 0.

    >>> do = np.zeros((1, 1, 11)); do[:, :, -1] = 1
    >>> recur.reference.sequence.state_gradient(np.diag([0.5]), np.ones((1, 1)), do, 0).item() == 0.5**10
    True
    """
    T = do.shape[2]
    total = np.zeros((W.shape[0], do.shape[1]))
    for later in range(t, T):  # T + t − i of the formula above, as i runs from T down to t
        total += np.linalg.matrix_power(W.T, later - t) @ V.T @ do[:, :, later]
    return total

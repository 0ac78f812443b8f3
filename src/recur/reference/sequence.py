"""Along time: a step repeated forward, and its gradients summed backward. The same for every recurrence.

Arrays stand as in the notes: features first, then the batch, then time; x is (n_x, m, T_x).

Backward, for t = T … 1, with ∂L_t/∂s_t what the output layer gives and ξ as in recur.bptt:

    ds_t      = ∂L_t/∂s_t + ξ_{t+1} · (what step t + 1 handed back)
    dU, dW, db  summed over t                because the weights are shared by all steps
    ds0       = ξ_1 · (what step 1 handed back)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Parameters = Mapping[str, Array]


def sigmoid(a: Array) -> Array:
    """1 / (1 + e⁻ᵃ), written so that nothing overflows."""
    return 0.5 * (1 + np.tanh(a / 2))


def sum_over_batch(da: Array) -> Array:
    total: Array = np.sum(da, axis=1, keepdims=True)
    return total


def forward(
    cell: Any, x: Array, state0: tuple[Array, ...], parameters: Parameters, **options: Any
) -> tuple[Array, tuple[Array, ...], list[Any]]:
    """Carry `cell` (elman, lstm or gru) along x (n_x, m, T): the outputs s (n_s, m, T), the last state, caches."""
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
    cell: Any, ds: Array, caches: list[Any], dlast: tuple[Array, ...] | None = None, xi: Array | None = None
) -> dict[str, Any]:
    """From ds (n_s, m, T), the output layer's gradient of every s_t, and `dlast`, that of the last state if any.

    Returns dx (n_x, m, T), ds0 (one for each state), the weight gradients dU, dW, db (and dbW) summed over time,
    and `dstates`: for each state its whole gradient at every step, (n_s, m, T), which is ∇_h L of the notes.
    """
    n_s, m, T = ds.shape
    xi = np.ones(T) if xi is None else xi
    handed_back = dlast or tuple(np.zeros((n_s, m)) for _ in cell.STATES)
    dstates = {name: np.zeros((n_s, m, T)) for name in cell.STATES}
    gradients: dict[str, Any] = {}
    dx = []
    for t in reversed(range(T)):
        dstate = (ds[:, :, t] + handed_back[0], *handed_back[1:])
        for name, value in zip(cell.STATES, dstate, strict=True):
            dstates[name][:, :, t] = value
        step = cell.step_backward(dstate, caches[t])
        dx.append(step.pop("dxt"))
        handed_back = tuple(xi[t] * part for part in step.pop("dprev"))
        for name, part in step.items():
            gradients[name] = gradients.get(name, 0) + part
    return {**gradients, "dx": np.stack(dx[::-1], axis=2), "ds0": handed_back, "dstates": dstates}

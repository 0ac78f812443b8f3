"""One step of the GRU and its gradient, by hand. The reset gate acts after the product, so W has its own bias bW.

    x_r, x_z, x_n = blocks of  U x_t + b          h_r, h_z, h_n = blocks of  W s_{t−1} + bW
    r = σ(x_r + h_r)   z = σ(x_z + h_z)
    n = tanh(x_n + r ⊙ h_n)                       the candidate
    s_t = (1 − z) ⊙ n + z ⊙ s_{t−1}

Backward, with ds = ∂L/∂s_t:

    da_n     = ds ⊙ (1 − z) ⊙ (1 − n²)
    da_z     = ds ⊙ (s_{t−1} − n) ⊙ z (1 − z)
    da_r     = da_n ⊙ h_n ⊙ r (1 − r)
    dx       = [da_r, da_z, da_n]                 gradient of the input projection
    dh       = [da_r, da_z, da_n ⊙ r]             gradient of the recurrent projection: n passes through r
    ds_prev  = Wᵀ dh + ds ⊙ z                     and a direct path, open while z ≈ 1
"""

from __future__ import annotations

import numpy as np

from recur.reference.sequence import Array, Cache, Parameters, State, StepGradients, sigmoid, sum_over_batch

__all__ = ["STATES", "step_backward", "step_forward"]

STATES = ("s",)


def step_forward(xt: Array, state: State, parameters: Parameters) -> tuple[State, Cache]:
    """Compute one step: xt (n_x, m), state (s_prev (n_s, m),); U (3 n_s, n_x), W (3 n_s, n_s), b and bW (3 n_s, 1).

    >>> weights = {"U": np.zeros((6, 3)), "W": np.zeros((6, 2)), "b": np.zeros((6, 1)), "bW": np.zeros((6, 1))}
    >>> (s,), _ = recur.reference.gru.step_forward(np.ones((3, 1)), (np.ones((2, 1)),), weights)
    >>> s.ravel().tolist()                              # z is one half, and the candidate 0
    [0.5, 0.5]
    """
    (s_prev,) = state
    x_r, x_z, x_n = np.split(parameters["U"] @ xt + parameters["b"], 3)
    h_r, h_z, h_n = np.split(parameters["W"] @ s_prev + parameters["bW"], 3)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    n = np.tanh(x_n + r * h_n)
    s_next = (1 - z) * n + z * s_prev
    return (s_next,), (r, z, n, h_n, s_prev, xt, parameters)


def step_backward(dstate: State, cache: Cache) -> StepGradients:
    """Return the gradients of everything that the step read, given dstate (∂L/∂s_t (n_s, m),).

    >>> weights = {"U": np.zeros((6, 3)), "W": np.zeros((6, 2)), "b": np.zeros((6, 1)), "bW": np.zeros((6, 1))}
    >>> _, cache = recur.reference.gru.step_forward(np.ones((3, 1)), (np.ones((2, 1)),), weights)
    >>> recur.reference.gru.step_backward((np.ones((2, 1)),), cache).dprev[0].ravel().tolist()
    [0.5, 0.5]
    """
    (ds,) = dstate
    r, z, n, h_n, s_prev, xt, parameters = cache
    da_n = ds * (1 - z) * (1 - n**2)
    da_z = ds * (s_prev - n) * z * (1 - z)
    da_r = da_n * h_n * r * (1 - r)
    dx_share = np.concatenate([da_r, da_z, da_n])
    dh_share = np.concatenate([da_r, da_z, da_n * r])
    weights = {
        "dU": dx_share @ xt.T,
        "dW": dh_share @ s_prev.T,
        "db": sum_over_batch(dx_share),
        "dbW": sum_over_batch(dh_share),
    }
    dprev = (parameters["W"].T @ dh_share + ds * z,)
    return StepGradients(dxt=parameters["U"].T @ dx_share, dprev=dprev, weights=weights, dstate=dstate)

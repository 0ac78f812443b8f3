"""One step of the LSTM and its gradient, by hand. s is the hidden state, C the memory.

    a = b + W s_{t−1} + U x_t        four blocks: a_i, a_f, a_g, a_o
    i = σ(a_i)   f = σ(a_f)   g = tanh(a_g)   o = σ(a_o)
    C_t = f ⊙ C_{t−1} + i ⊙ g
    s_t = o ⊙ tanh(C_t)

Backward, with ds = ∂L/∂s_t and dC the gradient carried along the memory:

    dC_t     = dC + ds ⊙ o ⊙ (1 − tanh²(C_t))     also through s_t
    da_i     = dC_t ⊙ g ⊙ i (1 − i)
    da_f     = dC_t ⊙ C_{t−1} ⊙ f (1 − f)
    da_g     = dC_t ⊙ i ⊙ (1 − g²)
    da_o     = ds ⊙ tanh(C_t) ⊙ o (1 − o)
    dC_prev  = dC_t ⊙ f                           does not vanish while f ≈ 1
    ds_prev  = Wᵀ da
"""

from __future__ import annotations

import numpy as np

from recur.reference.sequence import Array, Cache, Parameters, State, StepGradients, sigmoid, sum_over_batch

__all__ = ["STATES", "step_backward", "step_forward"]

STATES = ("s", "C")


def step_forward(xt: Array, state: State, parameters: Parameters) -> tuple[State, Cache]:
    """Compute one step: xt (n_x, m), (s_prev, C_prev), each (n_s, m); U (4 n_s, n_x), W (4 n_s, n_s), b (4 n_s, 1).

    >>> weights = {"U": np.zeros((8, 3)), "W": np.zeros((8, 2)), "b": np.zeros((8, 1))}
    >>> (s, C), _ = recur.reference.lstm.step_forward(np.ones((3, 1)), (np.zeros((2, 1)), np.ones((2, 1))), weights)
    >>> C.ravel().tolist()                              # gates half open: half of C is kept
    [0.5, 0.5]
    """
    s_prev, C_prev = state
    a = parameters["b"] + parameters["W"] @ s_prev + parameters["U"] @ xt
    a_i, a_f, a_g, a_o = np.split(a, 4)
    i, f, g, o = sigmoid(a_i), sigmoid(a_f), np.tanh(a_g), sigmoid(a_o)
    C_next = f * C_prev + i * g
    s_next = o * np.tanh(C_next)
    return (s_next, C_next), (i, f, g, o, C_next, s_prev, C_prev, xt, parameters)


def step_backward(dstate: State, cache: Cache) -> StepGradients:
    """Return the gradients of everything that the step read, given dstate (∂L/∂s_t, ∂L/∂C_t).

    >>> weights = {"U": np.zeros((8, 3)), "W": np.zeros((8, 2)), "b": np.zeros((8, 1))}
    >>> state = np.zeros((2, 1)), np.ones((2, 1))
    >>> _, cache = recur.reference.lstm.step_forward(np.ones((3, 1)), state, weights)
    >>> found = recur.reference.lstm.step_backward((np.zeros((2, 1)), np.ones((2, 1))), cache)
    >>> found.dprev[1].ravel().tolist()                 # along C, only the forget gate
    [0.5, 0.5]
    """
    ds, dC = dstate
    i, f, g, o, C_next, s_prev, C_prev, xt, parameters = cache
    tanh_C = np.tanh(C_next)
    dC_t = dC + ds * o * (1 - tanh_C**2)
    da = np.concatenate(
        [
            dC_t * g * i * (1 - i),
            dC_t * C_prev * f * (1 - f),
            dC_t * i * (1 - g**2),
            ds * tanh_C * o * (1 - o),
        ]
    )
    weights = {"dU": da @ xt.T, "dW": da @ s_prev.T, "db": sum_over_batch(da)}
    dprev = parameters["W"].T @ da, dC_t * f
    return StepGradients(dxt=parameters["U"].T @ da, dprev=dprev, weights=weights, dstate=(ds, dC_t))

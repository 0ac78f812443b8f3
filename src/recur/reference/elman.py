"""One step of the Elman network and its gradient, by hand.

    a_t = b + W s_{t−1} + U x_t
    s_t = φ(a_t)                     φ = tanh by default

Backward, with ds_t = ∂L/∂s_t, the full gradient of s_t:

    da_t     = φ'(a_t) ⊙ ds_t        for tanh: (1 − s_t²) ⊙ ds_t
    dW       = da_t s_{t−1}ᵀ         the term of this step in ∇_W L
    dU       = da_t x_tᵀ             the term of this step in ∇_U L
    db       = da_t                  the term of this step in ∇_b L
    dx_t     = Uᵀ da_t
    ds_prev  = Wᵀ da_t               carried to the previous step
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from recur.reference.sequence import Array, Cache, Parameters, State, StepGradients, sigmoid, sum_over_batch

__all__ = ["STATES", "step_backward", "step_forward"]

STATES = ("s",)

Function = Callable[[Array], Array]

# φ, and φ' as a function of s = φ(a), as in 1 − s².
ACTIVATIONS: dict[str, tuple[Function, Function]] = {
    "tanh": (np.tanh, lambda s: 1 - s**2),
    "sigmoid": (sigmoid, lambda s: s * (1 - s)),
    "relu": (lambda a: np.maximum(a, 0), lambda s: (s > 0).astype(s.dtype)),
}


def step_forward(xt: Array, state: State, parameters: Parameters, activation: str = "tanh") -> tuple[State, Cache]:
    """Compute one step: xt (n_x, m), state (s_prev (n_s, m),), parameters U (n_s, n_x), W (n_s, n_s), b (n_s, 1).

    >>> weights = {"U": np.eye(2), "W": np.zeros((2, 2)), "b": np.zeros((2, 1))}
    >>> (s,), cache = recur.reference.elman.step_forward(np.ones((2, 1)), (np.zeros((2, 1)),), weights)
    >>> np.allclose(s, np.tanh(1))
    True
    """
    (s_prev,) = state
    U, W, b = parameters["U"], parameters["W"], parameters["b"]
    phi, _ = ACTIVATIONS[activation]
    s_next = phi(b + W @ s_prev + U @ xt)
    return (s_next,), (s_next, s_prev, xt, parameters, activation)


def step_backward(dstate: State, cache: Cache) -> StepGradients:
    """Return the gradients of everything that the step read, given dstate (∂L/∂s_t (n_s, m),).

    >>> weights = {"U": np.eye(2), "W": np.eye(2), "b": np.zeros((2, 1))}
    >>> (s,), cache = recur.reference.elman.step_forward(np.ones((2, 1)), (np.zeros((2, 1)),), weights)
    >>> found = recur.reference.elman.step_backward((np.ones((2, 1)),), cache)
    >>> np.allclose(found.dprev[0], 1 - s**2)           # Wᵀ (1 − s²) ds
    True
    """
    (ds_next,) = dstate
    s_next, s_prev, xt, parameters, activation = cache
    _, phi_prime = ACTIVATIONS[activation]
    da = phi_prime(s_next) * ds_next
    weights = {"dU": da @ xt.T, "dW": da @ s_prev.T, "db": sum_over_batch(da)}
    return StepGradients(dxt=parameters["U"].T @ da, dprev=(parameters["W"].T @ da,), weights=weights, dstate=dstate)

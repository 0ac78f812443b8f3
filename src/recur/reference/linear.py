"""Linear recurrent network, where powers of the recurrent matrix show why gradients vanish or explode.

    h_t = U x_t + W h_{t−1}          o_t = V h_t

Without input, h_t = Wᵗ h_0 = Q Λᵗ Q⁻¹ h_0: components with eigenvalues below 1 vanish, those above 1 explode. The
backward pass uses the transposed matrix:

    ∂L/∂h_t = Σ_{i=t}^{T} (Wᵀ)^{T−i} Vᵀ ∂L/∂o_{T+t−i}
"""

from __future__ import annotations

import numpy as np

from recur.reference.sequence import Array

__all__ = ["free_state", "state_gradient"]


def free_state(W: Array, h0: Array, t: int) -> Array:
    """Return h_t = Q Λᵗ Q⁻¹ h_0 for a diagonalisable W, without input.

    >>> recur.reference.linear.free_state(np.diag([0.5, 2.0]), np.ones((2, 1)), 10).ravel().round(4).tolist()
    [0.001, 1024.0]
    """
    eigenvalues, Q = np.linalg.eig(W)
    h: Array = (Q @ (eigenvalues[:, None] ** t * np.linalg.solve(Q, h0.astype(complex)))).real
    return h


def state_gradient(W: Array, V: Array, do: Array, t: int) -> Array:
    """Return ∂L/∂h_t as a sum of powers, given ∂L/∂o of all steps, do (n_q, m, T); t counts from 0.

    >>> do = np.zeros((1, 1, 11)); do[:, :, -1] = 1
    >>> recur.reference.linear.state_gradient(np.diag([0.5]), np.ones((1, 1)), do, 0).item() == 0.5**10
    True
    """
    T = do.shape[2]
    total = np.zeros((W.shape[0], do.shape[1]))
    for later in range(t, T):  # T + t − i of the formula above, as i runs from T down to t
        total += np.linalg.matrix_power(W.T, later - t) @ V.T @ do[:, :, later]
    return total

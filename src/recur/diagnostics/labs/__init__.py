"""The textbook's arguments, measured: each experiment gives a figure, a paragraph and its numbers.

vanishing     φ′ ≤ 1/4 for σ and ≤ 1 for tanh: a product of small numbers; the memory c of an LSTM is not one
exploding     h_t = Wᵗ h_0: eigenvalues inside the unit circle vanish, those outside grow
variance      a weight of its own for each step, of variance ⁿ√v*, keeps the product of n at v*; one weight does not
truncation    windows of τ cannot learn what lies further back; a random cut is unbiased, and noisy
forget-gate   f near 1 keeps the gradient, f near 0 cuts it
clipping      g ← min(1, θ/‖g‖) g turns a step over a cliff into a small one in the same direction
parameters    a table of τ steps has O(k^τ) numbers, n-grams those that a text has, a network a constant number
"""

from recur.diagnostics.labs.gradients import clipping, exploding, forget_gate, vanishing
from recur.diagnostics.labs.parameters import parameters
from recur.diagnostics.labs.truncation import Experiment, truncation
from recur.diagnostics.labs.variance import variance

__all__ = ["Experiment", "clipping", "exploding", "forget_gate", "parameters", "truncation", "vanishing", "variance"]

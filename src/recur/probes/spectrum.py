"""The eigenvalues of W, and what the activation allows.

Without its nonlinearity h_t = Wᵗ h_0 = Q Λᵗ Q⁻¹ h_0: eigenvalues inside the unit circle die out, those outside grow
without bound. With it, ∂h_t/∂h_{t−1} = diag(φ′) W, so its norm is at most max φ′ · σ₁(W), and φ′ is at most 1/4 for
σ and 1 for tanh and ReLU: where that product is below 1, gradients must vanish, whatever the text.
W is `weight_hh` here, a block for each gate. For a cell with gates the bound does not hold: its memory has another way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recur.cells import Elman
from recur.probes.finding import Finding, Level, Seen
from recur.probes.gates import SLOPES, activations
from recur.probes.subject import Layer, Subject

POWERS = (1, 2, 4, 8, 16, 32, 64)


def blocks(layer: Layer) -> dict[str, Tensor]:
    """The square matrices that multiply a state, by gate or by name."""
    cell = layer.cell
    found: dict[str, Tensor] = {}
    if cell.recurrent_gates:
        chunks = layer.weights["weight_hh"].chunk(len(cell.recurrent_gates))
        found |= dict(zip(cell.recurrent_gates, chunks, strict=True))
    found |= {name: layer.weights[name] for name in cell.recurrent_matrices if name != "weight_hh"}
    return found


def describe(W: Tensor) -> dict[str, Any]:
    """Eigenvalues, spectral radius, σ₁, and ‖Wᵗ‖₂ as t grows."""
    M = W.double().cpu()
    values = torch.linalg.eigvals(M)
    order = values.abs().argsort(descending=True)
    norms, P, at = {}, torch.eye(len(M), dtype=torch.float64), 0
    for t in POWERS:
        P = torch.linalg.matrix_power(M, t - at) @ P
        at = t
        norms[str(t)] = float(torch.linalg.matrix_norm(P, 2))
    return {
        "eigenvalues": [[float(v.real), float(v.imag)] for v in values[order]],
        "radius": float(values.abs().max()),
        "norm": norms["1"],
        "powers": norms,
    }


def spectrum(subject: Subject) -> Seen:
    numbers: dict[str, Any] = {}
    for layer in subject.layers:
        for gate, W in blocks(layer).items():
            numbers[f"{layer.name}, {gate}"] = describe(W)
    layer, cell = subject.layers[0], subject.net.cell
    if not numbers:
        return Seen(
            Finding("spectrum", Level.SOUND, 0.0, 1.0, f"{type(cell).__name__} multiplies no state by a matrix")
        )
    name = max(numbers, key=lambda key: numbers[key]["radius"])
    radius = numbers[name]["radius"]
    if not isinstance(cell, Elman):
        verdict = f"the largest eigenvalue is {radius:.3g}, of {name}; gates decide what becomes of it"
        return Seen(Finding("spectrum", Level.SOUND, radius, 1.0, verdict), numbers)
    used = activations(layer)["h"]
    bound, steepest = SLOPES[used.kind][1], float(used.slopes.max())
    strongest = max(part["norm"] for part in numbers.values())
    numbers["slope"] = {"activation": used.kind, "bound": bound, "largest": steepest, "mean": float(used.slopes.mean())}
    said = (
        f"max {used.kind}′ = {bound:g} ({steepest:.3g} along the text), σ₁(W) = {strongest:.3g}, |λ|max = {radius:.3g}"
    )
    if bound * strongest < 1:
        verdict = f"gradients must vanish, whatever the text: at most × {bound * strongest:.3g} a step; {said}"
        advice = "init=orthogonal, another activation (--cell elman or elman-relu), a gated cell"
        return Seen(Finding("spectrum", Level.CONCERN, bound * strongest, 1.0, verdict, advice), numbers)
    verdict = f"W alone does not force gradients to vanish: {said}"
    return Seen(Finding("spectrum", Level.SOUND, bound * strongest, 1.0, verdict), numbers)


def as_points(numbers: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Eigenvalues as complex numbers, for a figure."""
    found = {}
    for name, part in numbers.items():
        if "eigenvalues" in part:
            pairs = np.array(part["eigenvalues"])
            found[name] = pairs[:, 0] + 1j * pairs[:, 1]
    return found

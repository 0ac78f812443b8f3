"""The eigenvalues of W, and the bound that the activation function sets.

Without its nonlinearity h_t = Wᵗ h_0 = Q Λᵗ Q⁻¹ h_0: eigenvalues inside the unit circle vanish, those outside grow
without bound. With it, ∂h_t/∂h_{t−1} = diag(φ′) W, so its norm is at most max φ′ · σ₁(W), and φ′ is at most 1/4 for
σ and 1 for tanh and ReLU: where that product is below 1, gradients must vanish, whatever the text.
W is `weight_hh`, a block for each gate. For a gated cell the bound does not hold: its memory has another path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recur.cells import Elman
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.gates import SLOPES, activations
from recur.diagnostics.layer import Layer
from recur.diagnostics.subject import Subject
from recur.i18n import said
from recur.utils.types import JsonObject

POWERS = (1, 2, 4, 8, 16, 32, 64)


class Spectrum(NamedTuple):
    """Of one square matrix."""

    eigenvalues: list[tuple[float, float]]
    """Real and imaginary part, largest |λ| first."""
    radius: float
    """The largest |λ|."""
    norm: float
    """σ₁, the largest singular value."""
    powers: dict[str, float]
    """‖Wᵗ‖₂ by t."""


def recurrent_blocks(layer: Layer) -> dict[str, Tensor]:
    """The square matrices that multiply a state, by gate or by name: of heads, their blocks in one; of a projected
    state, the projection and W in one."""
    cell = layer.cell
    found: dict[str, Tensor] = {}
    if cell.recurrent_gates:
        chunks = cell.dense(layer.weights["weight_hh"]).chunk(len(cell.recurrent_gates))
        if "weight_hr" in layer.weights:
            chunks = tuple(chunk @ layer.weights["weight_hr"] for chunk in chunks)
        found |= dict(zip(cell.recurrent_gates, chunks, strict=True))
    found |= {name: layer.weights[name] for name in cell.recurrent_matrices if name != "weight_hh"}
    return found


def spectrum_of(matrix: Tensor) -> Spectrum:
    W = matrix.double().cpu()
    values = torch.linalg.eigvals(W)
    values = values[values.abs().argsort(descending=True)]
    norms, power, at = {}, torch.eye(len(W), dtype=torch.float64), 0
    for t in POWERS:
        power, at = torch.linalg.matrix_power(W, t - at) @ power, t
        norms[str(t)] = float(torch.linalg.matrix_norm(power, 2))
    return Spectrum(
        eigenvalues=[(float(v.real), float(v.imag)) for v in values],
        radius=float(values.abs().max()),
        norm=norms["1"],
        powers=norms,
    )


def spectrum(subject: Subject) -> Measurement:
    """The spectrum of every recurrent matrix; of an Elman network, whether its gradients must vanish."""
    cell = subject.net.cell
    found = {
        f"{layer.name}, {gate}": spectrum_of(W)
        for layer in subject.layers
        for gate, W in recurrent_blocks(layer).items()
    }
    if not found:
        verdict = said("{cell} multiplies no state by a matrix", cell=type(cell).__name__)
        return Measurement(Finding("spectrum", Level.OK, 0.0, 1.0, verdict))
    numbers: JsonObject = {name: part._asdict() for name, part in found.items()}
    name = max(found, key=lambda key: found[key].radius)
    radius = found[name].radius
    if not isinstance(cell, Elman):
        verdict = said(
            "the largest |λ| is {radius:.3g}, of W of {name}; gates scale it at every step, and carry the memory "
            "past it",
            radius=radius, name=name,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.OK, radius, 1.0, verdict), numbers)
    activation = activations(subject.layers[0])["h"]
    kind, slopes, bound = activation.kind, activation.slopes, SLOPES[activation.kind].bound
    steepest = float(slopes.max())
    numbers["slope"] = {"activation": kind, "bound": bound, "largest": steepest, "mean": float(slopes.mean())}
    norm = max(part.norm for part in found.values())
    detail = said(
        "the slope of {kind} is at most {bound:g} ({mean:.2g} on average here), σ₁(W) = {norm:.3g}, largest "
        "|λ| {radius:.3g}",
        kind=kind, bound=bound, mean=float(slopes.mean()), norm=norm, radius=radius,
    )  # fmt: skip
    if bound * norm < 1:
        verdict = said(
            "gradients must vanish, whatever is read: at most × {factor:.3g} a step, 1 % is left after {steps} "
            "steps; {detail}",
            factor=bound * norm, steps=_steps_left(bound * norm), detail=detail,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.WARNING, bound * norm, 1.0, verdict), numbers)
    if bound * radius < 1:
        longest = str(POWERS[-1])
        verdict = said(
            "W makes gradients vanish in the long run: ‖W^{t}‖ = {power:.1g}, × {factor:.3g} a step at most, so "
            "that 1 % "
            "is left after {steps} steps; {detail}",
            t=longest, power=max(part.powers[longest] for part in found.values()), factor=bound * radius,
            steps=_steps_left(bound * radius), detail=detail,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.WARNING, bound * radius, 1.0, verdict), numbers)
    verdict = said("W is large enough to carry gradients on, where units are not saturated: {detail}", detail=detail)
    return Measurement(Finding("spectrum", Level.OK, bound * norm, 1.0, verdict), numbers)


def _steps_left(factor: float) -> int:
    """After how many steps 1 % is left."""
    return math.ceil(math.log(0.01) / math.log(factor)) if 0 < factor < 1 else 1


def complex_eigenvalues(numbers: Mapping[str, JsonObject]) -> dict[str, NDArray[np.complex128]]:
    """Eigenvalues as complex numbers, for a figure."""
    found = {}
    for name, part in numbers.items():
        if "eigenvalues" in part:
            real, imaginary = np.array(part["eigenvalues"], np.float64).T
            found[name] = real + 1j * imaginary
    return found

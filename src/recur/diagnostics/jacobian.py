"""A layer's steps linearised, along the states of one pass.

    ds_t^a  =  Σ_b  E_t^{ab} ⊙ ds_{t−1}^b  +  Σ_g  D_t^{ag} ⊙ (W_g dh_{t−1})          a, b states, g gates

Of a pointwise cell, E and D are numbers for every unit, computed for all steps at once; its Jacobian is never formed,
only multiplied with. Of any other cell, and with a projection, the Jacobian of each step is formed.
"""

from __future__ import annotations

import dataclasses
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
from recur.diagnostics.subject import Layer, Subject, part_name
from recur.i18n import Message
from recur.utils.types import JsonObject


class Linearised:
    """One row of a layer; steps count from 1, since the first has no state before it that was recorded."""

    def __init__(self, layer: Layer, row: int = 0) -> None:
        self.layer, self.row = layer, row
        self.H = next(iter(layer.states.values())).shape[-1]
        self.S = len(layer.states)
        self.N = sum(part.shape[-1] for part in layer.states.values())
        self.steps = layer.inputs.shape[1] - 1
        self.W: Tensor | None = None
        self.by_unit = by_unit(layer)
        if self.by_unit:
            self._slopes()

    def _slopes(self) -> None:
        layer = self.layer
        x, h, s, w = layer.step_arguments(layer.inputs[self.row, 1:], [part[self.row] for part in layer.previous])
        s = layer.cell.state([part.detach().clone().requires_grad_() for part in s])
        h = type(h)._make(part.detach().clone().requires_grad_() for part in h)
        with torch.enable_grad():
            after = layer.cell.advance(x, h, s, w)
        self.E: list[Tensor] = []
        self.D: list[Tensor | None] = []
        for part in after:
            slopes: list[Tensor | None] = [None] * (len(s) + len(h))
            if part.requires_grad:
                slopes = list(torch.autograd.grad(part.sum(), (*s, *h), allow_unused=True, retain_graph=True))
            filled = [torch.zeros_like(s[0]) if g is None else g for g in slopes]
            self.E.append(torch.stack(filled[: len(s)], dim=1).double().detach())  # (T − 1, b, H)
            self.D.append(torch.stack(filled[len(s) :], dim=1).double().detach() if len(h) else None)  # (T − 1, g, H)
        self._after = after
        if len(h):
            self.W = layer.cell.dense(layer.weights["weight_hh"]).double()

    def own_slope(self, state: int) -> Tensor:
        """∂m_t/∂m_{t−1} of one state, everything else held: (T − 1, H); of c of an LSTM, the forget gate."""
        return self.E[state][:, state]

    def within(self, state: int) -> Tensor:
        """∂s_t^a/∂m_t of one state m, which the others of its step may be made of: (T − 1, a, H); 1 for itself."""
        m = self._after[state]
        return torch.stack([torch.ones_like(m).double() if a is m else _within(a, m) for a in self._after], dim=1)

    def push(self, t: int, X: Tensor) -> Tensor:
        """J_t X; X is (N, M), float64, the states one below the other."""
        if not self.by_unit:
            return self._jacobian(t) @ X if self.N <= WIDEST else self._push(t, X)
        parts = X.view(self.S, self.H, -1)
        WX = None if self.W is None else (self.W @ parts[0]).view(-1, self.H, X.shape[1])
        moved = []
        for E, D in zip(self.E, self.D, strict=True):
            out = torch.einsum("bh,bhm->hm", E[t - 1], parts)
            if WX is not None and D is not None:
                out = out + torch.einsum("gh,ghm->hm", D[t - 1], WX)
            moved.append(out)
        return torch.cat(moved)

    def pull(self, t: int, g: Tensor) -> Tensor:
        """J_tᵀ g; g is (N,)."""
        if not self.by_unit:
            return self._jacobian(t).t() @ g if self.N <= WIDEST else self._pull(t, g)
        parts = g.view(self.S, self.H)
        back = torch.stack([E[t - 1] for E in self.E])  # (a, b, H)
        out = torch.einsum("abh,ah->bh", back, parts)
        if self.W is not None:
            gates = torch.stack([D[t - 1] for D in self.D if D is not None])
            out[0] += self.W.t() @ torch.einsum("agh,ah->gh", gates, parts).reshape(-1)
        return out.reshape(-1)

    def _advance(self, t: int, copies: int) -> tuple[list[Tensor], Tensor]:
        """Run step t of a number of copies in float64; return the states before it, and all those after it joined."""
        layer = self.layer
        weights = {name: weight.double() for name, weight in layer.weights.items()}
        wide = dataclasses.replace(layer, weights=weights)
        before = [part[self.row, t - 1].double().repeat(copies, 1).requires_grad_() for part in layer.states.values()]
        x = layer.inputs[self.row, t].double().expand(copies, -1)
        return before, torch.cat(wide.advance(x, before), dim=-1)

    def _push(self, t: int, X: Tensor) -> Tensor:
        """J_t X without the matrix: Jᵀ u is linear in u, and its derivative with respect to u, times X, is J X."""
        with torch.enable_grad():
            before, after = self._advance(t, X.shape[1])
            u = torch.zeros_like(after).requires_grad_()
            back = torch.autograd.grad(after, before, u, create_graph=True, materialize_grads=True)
            (pushed,) = torch.autograd.grad(torch.cat(back, dim=-1), u, X.t().double(), materialize_grads=True)
        return pushed.t()

    def _pull(self, t: int, g: Tensor) -> Tensor:
        with torch.enable_grad():
            before, after = self._advance(t, 1)
            back = torch.autograd.grad(after, before, g.double()[None], materialize_grads=True)
        return torch.cat(back, dim=-1)[0]

    def _jacobian(self, t: int) -> Tensor:
        """J_t as a matrix: row i is the gradient of output i, taken in row i of a batch of copies."""
        before = [part[self.row, t - 1].repeat(self.N, 1).requires_grad_() for part in self.layer.states.values()]
        x = self.layer.inputs[self.row, t].expand(self.N, -1)
        with torch.enable_grad():
            after = torch.cat(self.layer.advance(x, before), dim=-1)
            rows = torch.autograd.grad(after.diagonal().sum(), before, allow_unused=True)
        filled = [torch.zeros_like(part) if g is None else g for part, g in zip(before, rows, strict=True)]
        return torch.cat(filled, dim=-1).double()


def by_unit(layer: Layer) -> bool:
    """Whether a step mixes units by W as a whole and by nothing else."""
    return layer.cell.pointwise and "weight_hr" not in layer.weights


def _within(part: Tensor, memory: Tensor) -> Tensor:
    slope = None
    if part.requires_grad and memory.requires_grad:
        (slope,) = torch.autograd.grad(part.sum(), memory, allow_unused=True, retain_graph=True)
    return torch.zeros_like(memory, dtype=torch.float64) if slope is None else slope.double()


WIDEST = 1024
"""The Jacobian of a step that mixes units is formed for at most this many numbers of state."""
WHOLE = 512
"""States up to this wide are multiplied whole; for wider ones, DIRECTIONS random directions of them."""
DIRECTIONS = 64
EXPONENTS = 8
CHAOTIC = 0.02
"""λ₁ above this is called chaotic."""
FORGETFUL = math.log(0.01) / 16
"""λ₁ below this leaves less than 1 % of any direction after 16 steps."""
LARGEST_LOG = 700.0
"""exp of more is infinite in float64."""


class Dynamics(NamedTuple):
    """Dynamics of one layer along a text."""

    singular_values: dict[str, list[float]]
    """Of ∂s_t/∂s_{t−k} by k, largest first."""
    lyapunov: list[float]
    """The largest exponents, largest first."""


def singular_values(layer: Layer, lags: list[int], begin: int | None = None) -> dict[int, Tensor]:
    """Singular values of ∂s_t/∂s_{t−k} for each lag k, largest first; t − k is the same step (`begin`) for all.

    Of a state wider than WHOLE, those of the product on a random subspace: lower bounds, tight for the largest.
    """
    steps = Linearised(layer)
    longest = max(lags)
    at = steps.steps - longest if begin is None else begin
    product = basis(steps.N, steps.N if steps.N <= WHOLE else DIRECTIONS)
    log_scale, found = 0.0, {}  # so that neither 1.5^1000 nor 0.1^1000 leaves the range of numbers
    for k in range(1, longest + 1):
        product = steps.push(at + k, product)
        size = float(product.abs().max())
        if size > 0 and math.isfinite(size):
            product, log_scale = product / size, log_scale + math.log(size)
        if k in lags:
            found[k] = torch.linalg.svdvals(product) * math.exp(min(log_scale, LARGEST_LOG))
    return found


def lyapunov(layer: Layer, count: int = EXPONENTS, last: int = 400) -> list[float]:
    """The largest Lyapunov exponents along the last steps of the text, largest first."""
    steps = Linearised(layer)
    Q = basis(steps.N, min(count, steps.N))
    begin = max(0, steps.steps - last)
    warmup = min(20, (steps.steps - begin) // 4)  # until the basis has aligned with the leading directions
    sums = torch.zeros(Q.shape[1], dtype=torch.float64)
    for step in range(begin + 1, steps.steps + 1):
        Q, R = torch.linalg.qr(steps.push(step, Q))
        if step > begin + warmup:
            sums += R.diagonal().abs().clamp_min(1e-300).log()
    exponents: list[float] = (sums / max(1, steps.steps - begin - warmup)).sort(descending=True).values.tolist()
    return exponents


def _one_per_cent(exponent: float) -> str:
    """After how many steps 1 % is left, where anything is lost."""
    if exponent >= -1e-3:
        return ""
    return Message(", 1 % of it is left after {steps:,} steps", steps=math.ceil(math.log(0.01) / exponent))


def basis(N: int, columns: int) -> Tensor:
    """Orthonormal directions of the whole state, (N, M); the identity if there are as many as the state is wide."""
    if columns >= N:
        return torch.eye(N, dtype=torch.float64)
    drawn = torch.randn(N, columns, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Q: Tensor = torch.linalg.qr(drawn).Q
    return Q


def jacobians(subject: Subject, *, lags: tuple[int, ...] = (1, 4, 16, 64), last: int = 400) -> Measurement:
    """Singular values over several lags and Lyapunov exponents, layer by layer."""
    found = {}
    for layer in subject.layers:
        longest = layer.inputs.shape[1] - 1
        values = singular_values(layer, [k for k in lags if k <= longest] or [longest])
        by_lag = {str(k): v.tolist() for k, v in values.items()}
        found[layer.name] = Dynamics(by_lag, lyapunov(layer, last=last))
    numbers = {name: part._asdict() for name, part in found.items()}
    name = max(found, key=lambda key: found[key].lyapunov[0])
    exponent = found[name].lyapunov[0]
    factor = math.exp(min(exponent, LARGEST_LOG))
    detail = Message(
        "λ₁ = {exponent:.3g} in {name}: a small change of the state is multiplied by {factor:.3g} per step{steps}",
        exponent=exponent, name=name, factor=factor, steps=_one_per_cent(exponent),
    )  # fmt: skip
    if exponent > CHAOTIC:
        verdict = Message("small changes grow (chaos): {detail}", detail=detail)
        finding = Finding("Jacobians", Level.WARNING, exponent, CHAOTIC, verdict)
    elif exponent < FORGETFUL:
        verdict = Message("the network forgets at once: {detail}", detail=detail)
        finding = Finding("Jacobians", Level.WARNING, exponent, FORGETFUL, verdict)
    else:
        finding = Finding(
            "Jacobians", Level.OK, exponent, CHAOTIC, Message("the network forgets slowly: {detail}", detail=detail)
        )
    return Measurement(finding, numbers)


POWERS = (1, 2, 4, 8, 16, 32, 64)


class Spectrum(NamedTuple):
    """Eigenvalues of one square matrix."""

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
        part_name(layer.name, gate): spectrum_of(W)
        for layer in subject.layers
        for gate, W in recurrent_blocks(layer).items()
    }
    if not found:
        verdict = Message("{cell} has no recurrent weight matrix", cell=type(cell).__name__)
        return Measurement(Finding("spectrum", Level.OK, 0.0, 1.0, verdict))
    numbers: JsonObject = {name: part._asdict() for name, part in found.items()}
    name = max(found, key=lambda key: found[key].radius)
    radius = found[name].radius
    if not isinstance(cell, Elman):
        verdict = Message(
            "the spectral radius of W in {name} is {radius:.3g}; the gates scale W at every step and keep the memory",
            radius=radius, name=name,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.OK, radius, 1.0, verdict), numbers)
    activation = activations(subject.layers[0])["h"]
    kind, slopes, bound = activation.kind, activation.slopes, SLOPES[activation.kind].bound
    steepest = float(slopes.max())
    numbers["slope"] = {"activation": kind, "bound": bound, "largest": steepest, "mean": float(slopes.mean())}
    norm = max(part.norm for part in found.values())
    detail = Message(
        "the slope of {kind} is at most {bound:g} ({mean:.2g} on average here), σ₁(W) = {norm:.3g}, largest "
        "|λ| {radius:.3g}",
        kind=kind, bound=bound, mean=float(slopes.mean()), norm=norm, radius=radius,
    )  # fmt: skip
    if bound * norm < 1:
        verdict = Message(
            "gradients vanish for any input: at most × {factor:.3g} per step, 1 % is left after {steps} steps; "
            "{detail}",
            factor=bound * norm, steps=_steps_left(bound * norm), detail=detail,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.WARNING, bound * norm, 1.0, verdict), numbers)
    if bound * radius < 1:
        longest = str(POWERS[-1])
        verdict = Message(
            "gradients vanish in the long run: ‖W^{t}‖ = {power:.1g}, at most × {factor:.3g} per step, so 1 % is left "
            "after {steps} steps; {detail}",
            t=longest, power=max(part.powers[longest] for part in found.values()), factor=bound * radius,
            steps=_steps_left(bound * radius), detail=detail,
        )  # fmt: skip
        return Measurement(Finding("spectrum", Level.WARNING, bound * radius, 1.0, verdict), numbers)
    verdict = Message("W is large enough to preserve gradients where units are not saturated: {detail}", detail=detail)
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

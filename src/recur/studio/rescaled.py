"""A network whose W is rescaled to another spectral radius; eigenvalues of W and of a step's Jacobian."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from recur.diagnostics import Subject
from recur.diagnostics.jacobian import Linearised, recurrent_blocks
from recur.diagnostics.subject import Layer
from recur.errors import OptionError
from recur.i18n import Message
from recur.serve.http.fields import field, number
from recur.studio.fields import text_of
from recur.studio.loaded import LoadedModel
from recur.utils.types import JsonObject

WIDEST = 768
"""Of a matrix whose eigenvalues are computed while somebody waits."""


def radius_of(layer: Layer) -> float:
    """The largest |λ| of the blocks of W."""
    radii = [float(_eigenvalues(W).abs().max()) for W in recurrent_blocks(layer).values() if len(W) <= WIDEST]
    return max(radii, default=0.0)


def rescaled(subject: Subject, radius: float) -> Subject:
    """A copy in which W of every layer is scaled to this spectral radius; the subject itself, if that is 0."""
    if not radius:
        return subject
    model = copy.deepcopy(subject.model)
    net = next(module for module in model.modules() if type(module) is type(subject.net))
    for suffix, layer in zip(net.suffixes(), subject.layers, strict=True):
        own = radius_of(layer)
        for name in net.cell.recurrent_matrices:
            with torch.no_grad():
                net.weights(suffix)[name].mul_(radius / own if own else 1.0)
    return Subject(model, net, subject.inputs, subject.language, start=subject.start)


def eigenvalues(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Of each block of W of a layer, and of ∂s_t/∂s_{t−1} at one step of a text."""
    subject = rescaled(model.subject(text_of(request), fewest=2), field(request, "radius", 0.0, 0.0, 10.0))
    layers = subject.layers
    layer = layers[field(request, "layer", 0, 0, len(layers) - 1)]
    steps = Linearised(layer)
    step = field(request, "step", steps.steps, 1, steps.steps)
    blocks = recurrent_blocks(layer)
    if not blocks and steps.N > WIDEST:
        raise OptionError(
            Message(
                "eigenvalues are shown of matrices up to {n} × {m}, and this state has {size}",
                n=WIDEST,
                m=WIDEST,
                size=steps.N,
            )
        )
    found = [_block(f"W_{gate}" if len(blocks) > 1 else "W", W) for gate, W in blocks.items() if len(W) <= WIDEST]
    if steps.N <= WIDEST:
        found.append(_block("J", steps.push(step, torch.eye(steps.N, dtype=torch.float64))))
    return {"blocks": found, "layers": [part.name for part in layers], "step": step, "steps": steps.steps}


def _block(name: str, matrix: Tensor) -> JsonObject:
    values = _eigenvalues(matrix)
    pairs = [[number(round(float(v.real), 5)), number(round(float(v.imag), 5))] for v in values]
    return {"name": name, "values": pairs, "radius": number(float(values.abs().max()))}


def _eigenvalues(matrix: Tensor) -> Tensor:
    values: Tensor = torch.linalg.eigvals(matrix.double())
    return values

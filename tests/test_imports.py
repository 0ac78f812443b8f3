"""Importing recur changes nothing for the rest of the process."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch

from recur.ops.torch_backend import _in_one_piece
from tests.support import Case, all_close, random_weights

CODE = """
import importlib, random, sys, warnings
from pathlib import Path
import numpy, rich.console, torch  # rich draws a random number when it is imported
import torch.optim.optimizer as optimizer
import torch.nn.modules.module as module

def hooks_of(module):
    return {name: list(hooks) for name, hooks in vars(module).items() if name.startswith("_global_") and hooks}

def state():
    numpy_state = numpy.random.get_state()
    return {
        "warnings.filters": list(warnings.filters),
        "warnings.showwarning": warnings.showwarning,
        "hooks of optimizers": hooks_of(optimizer),
        "hooks of modules": hooks_of(module),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "grad": torch.is_grad_enabled(),
        "torch's RNG": torch.get_rng_state().tolist(),
        "numpy's RNG": (numpy_state[0], numpy_state[1].tolist(), numpy_state[2:]),
        "Python's RNG": random.getstate(),
        "excepthook": sys.excepthook,
    }

import recur
root = Path(recur.__file__).parent
paths = [path.relative_to(root.parent).with_suffix("").parts for path in root.rglob("*.py") if path.stem != "__main__"]
names = sorted(".".join(parts).removesuffix(".__init__") for parts in paths)
try:
    import sb3_contrib
except ImportError:
    names.remove("recur.rl")
import sklearn, optuna  # of extras, which set what they set: recur.sklearn and recur.sweep are asked for by name
import sympy  # which torch.export imports when it is used
before = state()
for name in names:
    importlib.import_module(name)
assert {"recur.nn.streaming", "recur.ops.torch_backend", "recur.ops.operator"} <= set(sys.modules)
changed = [what for what, value in state().items() if value != before[what]]
print(len(names), changed)
"""


def test_importing_every_module_leaves_the_process_as_it_was() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    count, _, changed = ran.stdout.partition(" ")
    assert changed.strip() == "[]", ran.stderr
    assert int(count) > 50


@pytest.mark.parametrize("bias", [True, False])
def test_weights_in_one_piece_are_the_same_weights(bias: bool) -> None:
    """What spares a filter for cuDNN's warning about scattered ones: views of one buffer, in torch's order."""
    case = Case("lstm")
    weights = list(random_weights(case.cell, 4, 3, bias=bias).values())
    pieces = _in_one_piece(weights)
    assert len({piece.untyped_storage().data_ptr() for piece in pieces}) == 1
    ends = [piece.storage_offset() + piece.numel() for piece in pieces]
    assert [piece.storage_offset() for piece in pieces] == [0, *ends[:-1]], "one after the other"
    for piece, weight in zip(pieces, weights, strict=False):
        assert torch.equal(piece, weight)
    assert len(pieces) == 4
    assert bias or not any(piece.any() for piece in pieces[2:])
    total = sum(((k + 1) * piece**2).sum() for k, piece in enumerate(pieces))
    for k, grad in enumerate(torch.autograd.grad(total, weights)):
        assert torch.equal(grad, 2 * (k + 1) * weights[k])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", ["elman", "gru", "lstm"])
def test_cudnn_has_nothing_to_warn_of(name: str, bias: bool) -> None:
    case = Case(name)
    case.x, case.state = case.x.detach().cuda().requires_grad_(), tuple(part.detach().cuda() for part in case.state)
    case.weights = {k: w.detach().cuda().requires_grad_() for k, w in case.weights.items() if bias or "bias" not in k}
    found = {}
    for backend in ("torch", "loop"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outputs = case.scan(backend=backend).outputs
            grads = torch.autograd.grad(outputs.square().sum(), list(case.weights.values()))
        found[backend] = {"outputs": outputs.detach(), **dict(zip(case.weights, grads, strict=True))}
    all_close(found["torch"], found["loop"])

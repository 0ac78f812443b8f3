"""Importing recur changes nothing for the rest of the process."""

from __future__ import annotations

import subprocess
import sys

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
before = state()
for name in names:
    importlib.import_module(name)
assert {"recur.layers.streaming", "recur.scan.torch_backend", "recur.native.operators"} <= set(sys.modules)
changed = [what for what, value in state().items() if value != before[what]]
print(len(names), changed)
"""


def test_importing_every_module_leaves_the_process_as_it_was() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    count, _, changed = ran.stdout.partition(" ")
    assert changed.strip() == "[]", ran.stderr
    assert int(count) > 50

"""Classes that `torch.load(path, weights_only=True)` may create after `import recur`: those of whole saved models.

    torch.save(model, path)                     # a module of yours with recur.nn.LSTM or recur.Recurrent in it
    torch.serialization.add_safe_globals([Model, torch.nn.Linear])     # your classes and torch's are yours to name
    model = torch.load(path)

torch refuses every class that is not on its list, because a file may call it with any arguments. recur adds the layers
of `recur.nn`, its cells and their options: none of them opens a file or runs code that it is given. `Recurrent` itself
could, by the name of a cell's file, so it is saved by its attributes and restored by `restored`, which creates no cell.
Add a custom cell yourself: `torch.serialization.add_safe_globals([MyCell])`.

The list is extended when torch is imported, and each class is imported when torch first needs it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from recur.utils.lazy import on_import

TRUSTED = {
    "recur.ops.bptt": ("BPTT",),
    "recur.nn.drop_in": ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"),
    "recur.nn.options": ("Connections", "Depth", "Dropout", "Init"),
    "recur.nn.recurrent": ("restored",),
}
"""Trusted names by module; `recur.cells`, which all of these import, adds the cells itself."""


class _Named(tuple[str, str]):
    """Pair (class, name) for torch, whose class is imported on first access."""

    def __iter__(self) -> Iterator[object]:  # type: ignore[override]
        yield self[0]
        yield self[1]

    def __getitem__(self, which: object) -> object:  # type: ignore[override]
        name = super().__getitem__(1)
        if which != 0:
            return name
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def _tell_torch() -> None:
    from torch.serialization import add_safe_globals

    names = [f"{module}.{name}" for module, group in TRUSTED.items() for name in group]
    add_safe_globals([_Named((name, name)) for name in names])  # type: ignore[misc]


def trust() -> None:
    on_import("torch", _tell_torch)

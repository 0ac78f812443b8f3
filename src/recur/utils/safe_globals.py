"""What `torch.load(path, weights_only=True)` may open after `import recur`: a model that was saved whole.

    torch.save(model, path)                     # a module of yours with recur.nn.LSTM or recur.Recurrent in it
    torch.serialization.add_safe_globals([Model, torch.nn.Linear])     # your classes and torch's are yours to name
    model = torch.load(path)

torch refuses every class that it was not told to trust, because a file may call it with any arguments. Told to it are
the layers of `recur.nn`, the cells of this package and the options that they hold: none of them opens a file or runs
code that it is given. `Recurrent` itself could, by the name of a cell's file, so it is saved by its attributes and
opened by `restored`, which makes no cell. A cell of your own is not trusted until you say so:
`torch.serialization.add_safe_globals([MyCell])`.

torch is told when it is imported, and each class is imported when torch first asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from recur.utils.lazy import once_imported

TRUSTED = {
    "recur.ops.bptt": ("BPTT",),
    "recur.nn.drop_in": ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"),
    "recur.nn.options": ("Connections", "Depth", "Dropout", "Init"),
    "recur.nn.recurrent": ("restored",),
}
"""And every cell: `recur.cells`, which all of these import, tells torch of them itself."""


class _Named(tuple[str, str]):
    """(a class, its name) as torch takes it, of which the class is not imported yet."""

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
    once_imported("torch", _tell_torch)

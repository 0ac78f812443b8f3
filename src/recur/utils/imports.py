"""Lazy imports, import hooks, and the classes that `torch.load` may create. `import recur` does not import torch.

`torch.load(path, weights_only=True)` refuses every class that is not on torch's list, because a file may call it with
any arguments. After `import recur`, the list has what a whole saved model needs:

    torch.save(model, path)                     # a module of yours with recur.nn.LSTM or recur.Recurrent in it
    torch.serialization.add_safe_globals([Model, torch.nn.Linear])     # add your classes and those of torch.nn
    model = torch.load(path)

These are the layers of `recur.nn`, the cells and their options: no constructor on the list opens a file or runs code
from its arguments. The constructor of `Recurrent` may load a cell from a file and is therefore not on the list: a
network is saved by its attributes, and `restore_network` restores it. Add a custom cell yourself:
`torch.serialization.add_safe_globals([MyCell])`.
The list is extended when torch is imported, and each class is imported when torch first needs it.

`python -m recur` imports this module before it removes the current folder from `sys.path`. The module therefore imports
only the standard library.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for a package that imports a name on first use; `names` maps each name to its module."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return find


def on_import(package: str, then: Callable[[], object]) -> None:
    """Call `then` after a package was imported; immediately if it is already imported."""
    if package in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _ImportHook(package, then))


class _ImportHook(MetaPathFinder):
    """Import hook for one package, which removes itself after the import."""

    def __init__(self, package: str, then: Callable[[], object]) -> None:
        self.package, self.then, self.looking = package, then, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.package or self.looking:
            return None
        self.looking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.looking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_notify(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = run_and_notify  # type: ignore[method-assign]  # changes this loader only
        return spec


def leave_current_folder() -> None:
    """Remove the current folder from `sys.path`, where `python -m recur` has put it first."""
    if not sys.flags.safe_path and sys.path and is_current(sys.path[0] or "."):
        del sys.path[0]


def is_current(path: str) -> bool:
    """Return True if a path is the current folder."""
    return os.path.realpath(path) == os.path.realpath(os.getcwd())


LOADABLE = {
    "recur.ops.bptt": ("BPTT",),
    "recur.nn.drop_in": ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"),
    "recur.nn.options": ("Connections", "Depth", "Dropout", "Init"),
    "recur.nn.recurrent": ("restore_network",),
}
"""Names that torch.load may call, by module. `recur.cells` adds the cells; all of these modules import it."""


class _LazyGlobal(tuple[str, str]):
    """Pair (object, name) for `add_safe_globals`, which imports the object on first access."""

    def __iter__(self) -> Iterator[object]:  # type: ignore[override]
        yield self[0]
        yield self[1]

    def __getitem__(self, which: object) -> object:  # type: ignore[override]
        name = super().__getitem__(1)
        if which != 0:
            return name
        module, _, attribute = name.rpartition(".")
        return getattr(importlib.import_module(module), attribute)


def _extend_safe_globals() -> None:
    """Add the names of LOADABLE to the list of torch.load."""
    from torch.serialization import add_safe_globals

    names = [f"{module}.{name}" for module, group in LOADABLE.items() for name in group]
    add_safe_globals([_LazyGlobal((name, name)) for name in names])  # type: ignore[misc]


def allow_saved_models() -> None:
    """Extend the list of torch.load when torch is imported."""
    on_import("torch", _extend_safe_globals)

"""Lazy imports, and hooks that run when another package is imported: `import recur` does not import torch."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__` for `names`, which maps each name to its module."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return find


def on_import(package: str, then: Callable[[], object]) -> None:
    """Call `then` once a package is imported: now, if it is already."""
    if package in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Once(package, then))


class _Once(MetaPathFinder):
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

        def run_and_go(module: ModuleType) -> None:
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        spec.loader.exec_module = run_and_go  # type: ignore[method-assign]  # of this one loader
        return spec

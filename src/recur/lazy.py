"""Names of a package that are imported when they are first used: `import recur` alone does not import torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A package's `__getattr__`, for names and the modules that hold them; a module of that name is meant itself."""

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return find

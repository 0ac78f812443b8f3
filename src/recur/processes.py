"""Child processes that run Python: none of them imports a module from the current folder.

The current folder may hold a stranger's files. Python puts it on `sys.path` for `-c` and `-m`, and for an empty entry
of PYTHONPATH, so that a file `numpy.py` beside the data would be executed in place of NumPy.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parent.parent)
"""Folder of the package recur, which the child must find though it is not installed."""

_START = """import os, sys
root = {root!r}
if root not in sys.path:
    # In the current folder, the package comes behind the standard library and what is installed.
    sys.path.insert(len(sys.path) if root == os.path.realpath(os.getcwd()) else 0, root)
from {module} import {function}
{function}()
"""


def python_command(module: str, function: str, *arguments: str) -> list[str]:
    """Return the command that calls a function of this package in a new Python, with `sys.argv[1:]` as given.

    Start it with `python_environment()`.
    """
    code = _START.format(root=_ROOT, module=module, function=function)
    return [sys.executable, "-P", "-c", code, *arguments]


def python_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without a way to the current folder, for children and their children."""
    kept = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join(os.path.abspath(path) for path in kept if path and not _is_current(path))
    return {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1", **more}


def leave_current_folder() -> None:
    """Remove the current folder from `sys.path`, where `python -m recur` has put it first."""
    if not sys.flags.safe_path and sys.path and _is_current(sys.path[0] or "."):
        del sys.path[0]


def _is_current(path: str) -> bool:
    return os.path.realpath(path) == os.path.realpath(os.getcwd())

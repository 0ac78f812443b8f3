"""Loading of the compiled C++ core, which the CPU and the CUDA backend share.

`setup.py` runs this file for the digest of the sources, so the file imports nothing of recur.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.machinery
from pathlib import Path

FOLDERS = ("cpu", "cuda")
"""Folders of `recur.ops` that hold C++ sources of the library. The built library is in the first one."""


class StaleError(OSError):
    """A library that was built from other sources: its structs would be read wrongly."""


def digest(*folders: Path) -> str | None:
    """Return a digest of the names and contents of the C++ sources, or None without sources, as in a wheel."""
    found = [path for folder in folders for pattern in ("*.cpp", "*.h") for path in folder.glob(pattern)]
    if not found:
        return None
    content = hashlib.sha256()
    for path in sorted(found, key=lambda path: path.name):
        content.update(f"{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return content.hexdigest()[:16]


def built() -> Path | None:
    """Return the path of the compiled library, or None if it was not built."""
    folder = Path(__file__).parents[1] / "ops" / FOLDERS[0]
    found = [folder / f"_core{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return next((path for path in found if path.exists()), None)


def open_library(path: Path) -> ctypes.CDLL:
    """Load the library at `path`; raise StaleError if the sources next to the library are not those it is built of."""
    library = ctypes.CDLL(str(path))
    sources = digest(*(path.parent.with_name(name) for name in FOLDERS[1:]), path.parent)
    built_from = getattr(library, "recur_sources", None)  # older libraries do not have this function
    if built_from is not None:
        built_from.restype = ctypes.c_char_p
    if sources is not None and (built_from is None or built_from().decode() != sources):
        raise StaleError(
            f"{path.name} was built from other sources than the installed ones; build it again: pip install -e ."
        )
    return library


@functools.cache
def load() -> ctypes.CDLL | str:
    """Return the loaded library, or the reason why it cannot be used."""
    path = built()
    if path is None:
        return "it was not built when recur was installed"
    try:
        return open_library(path)
    except StaleError as error:
        return str(error)
    except (OSError, AttributeError) as error:  # built for another machine, or not a library
        return f"{path.name} cannot be used: {error}"

"""The C++ core as Python sees it: its structs, its functions, and torch's threads for it to run on."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

from recur.errors import BackendError, unknown

ISAS = ("portable", "avx2", "avx512")


class Instruction(Structure):
    _fields_ = [(name, c_int32) for name in ("op", "to", "a", "b", "c")]


class Place(Structure):
    _fields_ = [(name, c_int32) for name in ("kind", "index", "read", "written")]


class Program(Structure):
    _fields_ = [
        ("code", POINTER(Instruction)),
        ("length", c_int64),
        ("places", POINTER(Place)),
        ("count", c_int64),
        ("temps", c_int64),
    ]


class Scan(Structure):
    """As in core.h, field by field."""

    _fields_ = [
        *((name, c_int64) for name in ("D", "H", "gates", "products", "states", "extras", "constants", "kept", "own")),
        *((name, c_int64) for name in ("steps", "N", "S")),
        ("sizes", c_void_p),
        ("batch_major", c_int64),
        ("biased", c_int64),
        ("threads", c_int64),
        ("parallel", c_void_p),
        ("workspace", c_void_p),
        ("packed", c_int64),
        *((name, c_void_p) for name in ("data", "weight_ih", "weight_hh", "bias_ih", "bias_hh")),
        *((name, c_void_p) for name in ("extra", "constant", "initial", "mask", "xi")),
        ("clip", c_double),
        *((name, c_void_p) for name in ("share", "tape", "state", "final_state")),
        ("program", Program),
        *((name, c_void_p) for name in ("d_outputs", "d_final", "d_share", "d_product", "product_place")),
        ("adds_to_first", c_int64),
        *((name, c_void_p) for name in ("d_data", "d_weight_ih", "d_weight_hh")),
        ("roomy", c_int64),
        *((name, c_void_p) for name in ("d_bias_ih", "d_bias_hh")),
        *((name, c_void_p) for name in ("d_extra", "d_initial", "norms")),
    ]


class Core:
    """The loaded library, and the instruction set that it is used with."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        library.recur_scan_bytes.restype = c_int64
        if library.recur_scan_bytes() != ctypes.sizeof(Scan):
            raise OSError("it was built from other sources; build it again")
        library.recur_operations.restype = library.recur_places.restype = c_char_p
        self.bytes = library.recur_workspace_bytes
        self.bytes.restype = c_int64
        self.bytes.argtypes = [POINTER(Scan), c_int, c_int, c_int]
        self.forward, self.backward = library.recur_forward, library.recur_backward
        self.forward.restype = self.backward.restype = None
        self.forward.argtypes = self.backward.argtypes = [POINTER(Scan), c_int, c_int]
        self.stack = library.recur_stack
        self.stack.restype, self.stack.argtypes = None, [c_void_p, c_int64, c_int, c_int]
        self.operations = {name: k for k, name in enumerate(library.recur_operations().decode().split())}
        self.places = {name: k for k, name in enumerate(library.recur_places().decode().split())}
        self.best_isa = int(library.recur_best_isa())
        self.isa = self.best_isa
        asked = os.environ.get("RECUR_ISA")
        if asked:
            self.use(asked)

    def use(self, isa: str) -> None:
        """Take this instruction set from now on: one that the machine has."""
        if isa not in ISAS:
            raise BackendError(unknown("instruction set", isa, ISAS))
        if ISAS.index(isa) > self.best_isa:
            raise BackendError(f"this machine has no {isa}; its best is {ISAS[self.best_isa]}")
        self.isa = ISAS.index(isa)

    @functools.cached_property
    def parallel(self) -> Any:
        """OpenMP's entry of the library that torch itself runs on: one pool of threads for both, not two that fight."""
        return _openmp()


def _openmp() -> int | None:
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in mapped.splitlines() if "/" in line}
    for path in sorted(paths):
        if Path(path).name.startswith(("libgomp", "libiomp5", "libomp")):
            entry = getattr(ctypes.CDLL(path), "GOMP_parallel", None)
            if entry is not None:
                return ctypes.cast(entry, c_void_p).value
    return None


def built() -> Path | None:
    """Where the compiled core lies, if it was built."""
    here = Path(__file__).parent
    found = [here / f"_core{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return next((path for path in found if path.exists()), None)


@functools.cache
def _load() -> Core | str:
    path = built()
    if path is None:
        return "it was not built when recur was installed"
    try:
        return Core(path)
    except (OSError, AttributeError) as error:  # built for another machine, or from other sources
        return f"{path.name} cannot be used: {error}"


def core() -> Core | None:
    found = _load()
    return None if isinstance(found, str) else found


def missing() -> str | None:
    """Why there is no core, if there is none."""
    found = _load()
    return found if isinstance(found, str) else None

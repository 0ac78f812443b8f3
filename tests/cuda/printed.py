"""Printed programs on the CPU: the very text that NVRTC compiles, prelude and cell, by g++ and called on arrays."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recur.compiler.assembly import PROGRAMS, Assembly
from recur.ops.cuda.codegen import BACKWARD_PARAMETERS, DTYPE_CODES, FORWARD_PARAMETERS, KERNELS, print_programs

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

HEAD = """
#include <cmath>
#define __device__
#define __forceinline__ static inline
#define NUM {number}
#define FAST 0
{prelude}

// Arrays of many elements: place after place, element after element.
struct Array {{ real* at; int places; }};
"""

WRAPPER = """
extern "C" void {name}(int count, {arguments}) {{
    for (int e = 0; e < count; ++e) {{
{loads}
        {namespace}::{program}_step({pointers});
{stores}
    }}
}}
"""


def wrapper(name: str, namespace: str, program: str, kinds: tuple[str, ...]) -> str:
    def copies(line: str) -> str:
        return "\n".join("        " + line.format(kind=kind) for kind in kinds)

    return WRAPPER.format(
        name=name,
        namespace=namespace,
        program=program,
        arguments=", ".join(f"Array {kind}" for kind in kinds),
        loads=copies(
            "real {kind}_[32]; for (int k = 0; k < {kind}.places; ++k) {kind}_[k] = {kind}.at[k * count + e];"
        ),
        pointers=", ".join(f"{kind}_" for kind in kinds),
        stores=copies("for (int k = 0; k < {kind}.places; ++k) {kind}.at[k * count + e] = {kind}_[k];"),
    )


class _Array(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("places", ctypes.c_int)]


class Host:
    """The programs of several cells, by name, in one library."""

    def __init__(self, cells: Mapping[str, Assembly], dtype: torch.dtype, folder: Path) -> None:
        assert COMPILER is not None
        self._cells, self._dtype = dict(cells), dtype
        self._number = {name: k for k, name in enumerate(cells)}
        parts = [HEAD.format(number=DTYPE_CODES[dtype], prelude=(KERNELS / "prelude.cu").read_text())]
        for name, assembly in cells.items():
            k = self._number[name]
            parts.append(f"namespace cell{k} {{\n{print_programs(assembly)}\n}}")
            for program in PROGRAMS:
                kinds = FORWARD_PARAMETERS if program in PROGRAMS[:2] else BACKWARD_PARAMETERS
                parts.append(wrapper(f"{program}_{k}", f"cell{k}", program, kinds))
        folder.mkdir(parents=True, exist_ok=True)
        source, library = folder / f"{DTYPE_CODES[dtype]}.cpp", folder / f"{DTYPE_CODES[dtype]}.so"
        source.write_text("\n".join(parts))
        # No contraction: the comparison is with operations one by one.
        command = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
        quiet = [
            "-Wno-unused-function",
            "-Wno-unused-variable",
            "-Wno-maybe-uninitialized",
            "-Wno-unused-but-set-variable",
        ]
        subprocess.run([*command, *quiet, "-o", str(library), str(source)], check=True)
        self._library = ctypes.CDLL(str(library))

    def __call__(self, name: str, program: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All kinds of places after a program ran; those not given are zero before it, or no number where that is an
        error."""
        a = self._cells[name]
        counts = {
            "share": a.gates, "product": a.products, "before": a.states, "extra": a.extras, "after": a.states,
            "saved": a.saved, "d_after": a.states, "d_share": a.gates, "d_product": a.own, "d_before": a.states,
            "d_state": a.states, "sum": a.extras,
        }  # fmt: skip
        kinds = FORWARD_PARAMETERS if program in PROGRAMS[:2] else BACKWARD_PARAMETERS
        count = next(iter(given.values())).shape[1]
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        for kind in kinds:
            made = torch.full((counts[kind], count), 0.0 if kind in ("d_before", "sum") else torch.nan)
            arrays[kind] = given.get(kind, made).to(self._dtype, copy=True).contiguous().numpy()
            assert arrays[kind].shape == (counts[kind], count), kind
        run = getattr(self._library, f"{program}_{self._number[name]}")
        run(count, *(_Array(arrays[kind].ctypes.data, counts[kind]) for kind in kinds))
        return {kind: torch.from_numpy(array) for kind, array in arrays.items()}

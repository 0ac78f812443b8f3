"""Headers compiled to libraries that a test calls, and a graph alone in C beside Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from recur.export.artifacts import example_inputs, relative_difference
from recur.export.c_graphs import print_graphs, print_includes, print_work_struct
from recur.export.graphs import Graph, PortableModel

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


def library(folder: Path, headers: dict[str, str], calls: str, *flags: str) -> ctypes.CDLL:
    """A library of functions, in C, that call these headers."""
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    includes = "".join(f'#include "{name}.h"\n' for name in headers)
    source, made = folder / "calls.c", folder / "calls.so"
    source.write_text(includes + calls)
    command = ["gcc", *STRICT, "-O1", "-shared", "-fPIC", *flags, str(source), "-o", str(made), "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return ctypes.CDLL(str(made))


def run_self_test(header: Path, *command: str) -> str:
    """What the header's own test says, compiled by a command."""
    program = header.with_suffix(".test")
    subprocess.run([*command, "-DRECUR_SELFTEST", str(header), "-o", str(program), "-lm"], check=True)
    return subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout


def difference(graph: Graph, steps: tuple[int, ...], folder: Path) -> float:
    """The largest between C and Python, at sequences of so many steps; of numbers above 1, the share that it is."""
    made = print_graphs(
        PortableModel("network", "network", "network", {graph.name: graph}), "m", max(steps), quantize=False
    )
    text = "\n\n".join([print_includes("m"), print_work_struct(made), made.text])
    printer, inputs, outputs = made.printers[graph.name], len(graph.inputs), len(graph.outputs)
    given = [f"(const float *)p[{k}]" for k in range(inputs)]
    call = printer.call(given, [f"(float *)p[{inputs + k}]" for k in range(outputs)], ["T"])
    work = "static m_work memory, *const work = &memory;"
    calls = f"void run(void **p, int32_t T);\nvoid run(void **p, int32_t T) {{ {work} {call} }}\n"
    compiled, largest = library(folder, {"m": text.replace("\nstatic ", "\nM_API ")}, calls), 0.0
    for T in steps:
        read = [part.contiguous() for part in example_inputs(graph, {"B": 1, "T": T}, T, positive=False)]
        expected = graph(*read)
        found = [torch.full_like(part, torch.nan) for part in expected]
        tensors = [*read, *found]
        compiled.run((ctypes.c_void_p * len(tensors))(*(part.data_ptr() for part in tensors)), T)
        largest = max(
            [largest, *(relative_difference(ours, theirs) for ours, theirs in zip(expected, found, strict=True))]
        )
    return largest

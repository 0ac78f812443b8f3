"""Headers compiled to libraries that a test calls."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

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

"""Builds the C++ core of the `native` backend. Where there is no compiler, recur installs without it and says so."""

import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/recur/ops/cpu")
FLAGS = ["-g0", "-std=gnu++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-Wno-ignored-attributes"]
SOURCES = runpy.run_path(str(NATIVE / "sources.py"))["digest"](NATIVE)

core = Extension(
    "recur.ops.cpu._core",  # loaded through ctypes: it holds no Python, and one build serves every version of it
    sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
    depends=sorted(str(path) for path in NATIVE.glob("*.h")),
    define_macros=[("RECUR_SOURCES", f'"{SOURCES}"')],  # a library of other sources is not used
    extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    extra_link_args=[] if sys.platform == "win32" else ["-pthread", "-s"],
    language="c++",
    py_limited_api=True,
    optional=True,
)

setup(
    ext_modules=[core],
    options={
        "build_ext": {"force": True},  # files may be newer in content than by their date
        "bdist_wheel": {"py_limited_api": "cp311"},  # one wheel for Python 3.11 and newer, as the core holds no Python
    },
    exclude_package_data={"recur.ops.cpu": ["*.h", "*.cpp"]},  # the compiled library alone is installed
)

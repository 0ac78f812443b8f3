"""Builds the C++ core of the `native` backend. Where there is no compiler, recur installs without it and says so."""

import sys
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/recur/native")
FLAGS = ["-g0", "-std=gnu++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-Wno-ignored-attributes"]

core = Extension(
    "recur.native._core",  # loaded through ctypes: it holds no Python, and one build serves every version of it
    sources=sorted(str(path) for path in NATIVE.glob("*.cpp")),
    depends=sorted(str(path) for path in NATIVE.glob("*.h")),
    extra_compile_args=[] if sys.platform == "win32" else FLAGS,
    extra_link_args=[] if sys.platform == "win32" else ["-pthread", "-s"],
    language="c++",
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[core])

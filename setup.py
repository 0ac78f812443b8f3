"""Build of the C++ core. Without a C++ compiler, recur installs without the core and reports it when it is used."""

import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup

FOLDERS = [Path("src/recur/ops/cpu"), Path("src/recur/ops/cuda")]
FLAGS = ["-g0", "-std=gnu++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi", "-Wno-ignored-attributes"]
SOURCES = runpy.run_path("src/recur/utils/core_library.py")["digest"](*FOLDERS)

core = Extension(
    "recur.ops.cpu._core",  # loaded through ctypes: it holds no Python, and one build serves every version of it
    sources=sorted(str(path) for folder in FOLDERS for path in folder.glob("*.cpp")),
    depends=sorted(str(path) for folder in FOLDERS for path in folder.glob("*.h")),
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
    # Only the compiled library is installed.
    exclude_package_data={"recur.ops.cpu": ["*.h", "*.cpp"], "recur.ops.cuda": ["*.cpp"]},
)

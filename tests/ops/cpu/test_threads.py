"""The core runs on the pool of threads that torch itself runs on, whatever else the process has loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import core, needs_core

pytestmark = needs_core

CODE = """
import ctypes, re
{imports}
from recur.ops.cpu import library

torch.set_num_threads(3)  # in torch's own OpenMP, and in no other
address, threads = library.core().parallel, {{}}
for line in open("/proc/self/maps"):
    path = line.split(maxsplit=5)[-1].strip()
    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
    if re.search("/lib(gomp|omp|iomp5)", path):
        threads[path] = ctypes.CDLL(path).omp_get_max_threads()
    if begin <= address < end:
        found = path
print(threads[found], sorted(count == 3 for count in threads.values()))
"""

IMPORTS = {
    "torch alone": ("import torch", "3 [True]"),
    "scikit-learn first": ("import sklearn.ensemble, torch", "3 [False, True]"),
    "scikit-learn afterwards": ("import torch, sklearn.ensemble", "3 [False, True]"),
}


@pytest.mark.skipif(not core or core.parallel is None, reason="torch has no OpenMP that could be shared")
@pytest.mark.skipif(sys.platform != "linux", reason="where a library lies is read from /proc")
@pytest.mark.parametrize("order", IMPORTS)
def test_the_pool_is_the_one_of_torch(order: str) -> None:
    """scikit-learn brings an OpenMP of its own, and on its threads the core would compete with torch for the cores."""
    imports, expected = IMPORTS[order]
    if "sklearn" in imports:
        pytest.importorskip("sklearn")
    ran = subprocess.run([sys.executable, "-c", CODE.format(imports=imports)], capture_output=True, text=True)
    assert ran.stdout.strip() == expected, ran.stderr

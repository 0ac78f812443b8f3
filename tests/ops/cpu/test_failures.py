"""What fails inside the C++ core becomes a Python error: no exception crosses its C interface."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from recur.compiler.programs import text_of
from recur.errors import BackendError
from recur.nn import Recurrent
from recur.ops.cpu.plans import CoreConfig, CorePlan, ScanParameters
from tests.support import Case, close, core, needs_core

pytestmark = needs_core

THROWS = {
    "_ZSt17__throw_bad_allocv": (MemoryError, "the native backend ran out of memory"),
    "_ZSt16__throw_bad_castv": (BackendError, "the native backend failed: std::bad_cast"),
}
"""Functions of libstdc++ that throw, by their mangled names."""


def address(name: str) -> int:
    try:
        entry = ctypes.CDLL("libstdc++.so.6")[name]
    except (OSError, AttributeError):
        pytest.skip("no libstdc++ here")
    found = ctypes.cast(entry, ctypes.c_void_p).value
    assert found is not None
    return found


@pytest.fixture(params=THROWS)
def throwing_pool(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, threads: None
) -> tuple[type[Exception], str]:
    """A pool of threads that throws as soon as it is asked for one."""
    error, message = THROWS[request.param]
    monkeypatch.setattr(core, "parallel", address(request.param))
    case = Case("lstm", B=4, T=3)
    for _ in range(60):  # after waits on a busy machine, calls take one thread for a while; none of these can wait
        with contextlib.suppress(error):
            case.scan(backend="native")
    return error, message


def test_an_exception_becomes_an_error(throwing_pool: tuple[type[Exception], str], threads: None) -> None:
    error, message = throwing_pool
    case = Case("lstm", B=4, T=3)
    with pytest.raises(error, match=message):
        case.scan(backend="native")
    net = Recurrent("lstm", 4, 3, dtype=torch.float64)
    for begin in (lambda: net.step(case.x[:, 0].detach()), lambda: net.stream(4).step(case.x[:, 0].detach())):
        with pytest.raises(error, match=message):
            begin()


def test_an_exception_of_the_backward_pass_becomes_an_error(
    throwing_pool: tuple[type[Exception], str], threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, message = throwing_pool
    throwing, case = core.parallel, Case("lstm", B=4, T=3)
    monkeypatch.setattr(core, "parallel", None)
    loss = case.loss(case.scan(backend="native"))
    monkeypatch.setattr(core, "parallel", throwing)
    with pytest.raises(error, match=message):
        torch.autograd.grad(loss, case.x, retain_graph=True)
    monkeypatch.setattr(core, "parallel", None)
    (grad,) = torch.autograd.grad(loss, case.x)
    (expected,) = torch.autograd.grad(case.loss(case.scan(backend="loop")), case.x)
    close(grad, expected)


@pytest.fixture
def threads() -> Iterator[None]:
    was = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(was)


@pytest.mark.parametrize("program", ["use", "train", "back"])
def test_sizes_that_no_memory_holds_are_an_error(program: str) -> None:
    case = Case("lstm")
    text = text_of(case.cell, True)
    form = ScanParameters(text, program, torch.float32, D=1, H=2**40 + 1, sizes=(1,), batch_major=False, biased=True)
    with pytest.raises(MemoryError, match="the native backend ran out of memory"):
        CorePlan(form, CoreConfig(1, 0, None), {}, {}, 0)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "pthread_setattr_default_np"), reason="no glibc here")
def test_threads_that_cannot_be_made_are_done_without() -> None:
    """The threads that there are do all of the work."""
    code = """
import ctypes, threading, torch
from recur.ops.cpu import library
from tests.support import Case, all_close
library.core().parallel = None
torch.set_num_threads(1)
cases = [Case("lstm", 6, 3, 4, 40), Case("lstm", 2, 3, 4, 300)]  # threads take rows of their own; share each step
expected = [case.everything(lambda: case.scan(backend="loop")) for case in cases]
for case in cases:
    case.scan(backend="native")  # compiles the cell, on a thread
libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(2**47))  # more than any address space
libc.pthread_setattr_default_np(attributes)
try:
    threading.Thread(target=print).start()
    raise SystemExit("threads can still be made")
except RuntimeError:
    pass
torch.get_num_threads = lambda: 4  # for the core; torch itself stays with the one that it has
for case, wanted in zip(cases, expected, strict=True):
    all_close(case.everything(lambda: case.scan(backend="native")), wanted)
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "done\n", ran.stderr

"""The C++ core under the address, undefined-behaviour and thread sanitizers, on calls recorded from the operator."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import recur
import recur.ops.operator
from recur.cells import Cell
from recur.compiler.programs import assembled, operands
from recur.nn import Grid
from recur.ops.bptt import BPTT
from recur.ops.cpu import library
from recur.ops.cpu.grid import GridCall
from recur.ops.cpu.plans import CorePlan
from tests.affine_cells import Cascade, ReadOut, Ring, Turned, case_of
from tests.ops.cpu import grid_calls
from tests.ops.cpu.recorded import READ, WRITTEN, Field, write
from tests.ops.cpu.test_heads import Apart, Headed
from tests.support import Case, core, needs_core

pytestmark = [needs_core, pytest.mark.timeout(1200)]  # a busy machine compiles the driver for minutes

NATIVE = Path(recur.__file__).parent / "ops" / "cpu"
DRIVER = Path(__file__).parent / "driver.cpp"
FLAGS = [
    "-std=gnu++17",
    "-O1",
    "-g1",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-fno-sanitize-recover=all",
]
SANITIZERS = {
    "address": ["-fsanitize=address,undefined", "-fno-sanitize=vptr,object-size"],
    "thread": ["-fsanitize=thread"],
}
# Recording ------------------------------------------------------------------------------------------------


def fields_of(s: library.ScanStruct, numbers: int, backward: bool) -> dict[str, Field]:
    real = 8 if numbers == library.NUMBERS.index("float64") else 4
    G, R, N, S, H, D = s.gates * s.H, s.products * s.H, s.N, s.S, s.H, s.D
    P = s.projection or H  # the width of the first state
    found: dict[str, Field] = {}

    def number(name: str, value: int) -> None:
        found[name] = Field.of_number(value)

    def array(name: str, pointer: int | None, count: int, kind: int = READ, size: int = real, **lies: int) -> None:
        if pointer:
            found[name] = Field.of_memory(pointer, count * size, kind, **lies)

    def arrays(name: str, pointer: int | None, many: int, count: int, kind: int = READ, first: int = 0) -> None:
        each = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_void_p)) if pointer else None
        for k in range(many if each else 0):
            array(f"{name}{k}", each[k], count if k or not first else first, kind)

    for name, kind in library.ScanStruct._fields_:
        if kind is ctypes.c_int64:
            number(name, getattr(s, name))
    for name, value in (("backward", backward), ("numbers", numbers), ("isa", core.isa)):
        number(name, value)
    for name in ("length", "count", "temps"):
        number(name, getattr(s.program, name))
    found["clip"] = Field(READ, 8, bytes(ctypes.c_double(s.clip)))
    array(
        "code",
        ctypes.addressof(s.program.code.contents),
        s.program.length,
        size=ctypes.sizeof(library.InstructionStruct),
    )
    array(
        "places",
        ctypes.addressof(s.program.places.contents),
        s.program.count,
        size=ctypes.sizeof(library.OperandStruct),
    )
    array("sizes", s.sizes, s.steps, size=8)
    array("constant", s.constant, s.constants, size=8)
    array("product_place", s.product_place, max(1, s.products), size=4)
    weights = {"weight_ih": G * D, "weight_hh": R * P // s.heads, "weight_hr": P * H, "bias_ih": G, "bias_hh": R}
    for name, count in weights.items():
        array(name, getattr(s, name), count)
    array("data", s.data, N * D)
    array("mask", s.mask, S * P)
    arrays("extra", s.extra, s.extras, H)
    arrays("initial", s.initial, s.states, S * H, first=S * P)
    overwritten = backward and s.d_share == s.share
    padded = {"rows": N, "gap": (s.share_stride - G) * real}
    if s.share != ctypes.c_void_p.from_address(s.state).value:  # which it lies in, or has a place of its own
        array("share", s.share, N * G, READ | WRITTEN if overwritten else READ if backward else WRITTEN, **padded)
    array("tape", s.tape, N * s.saved * H, READ if backward else WRITTEN)
    arrays("state", s.state, s.states, N * H, READ if backward else WRITTEN)
    array("projected", s.projected, N * P, READ if backward else WRITTEN)
    if not backward:
        arrays("final_state", s.final_state, s.states, S * H, WRITTEN, first=S * P)
        return found
    array("xi", s.xi, N, size=8)
    arrays("d_outputs", s.d_outputs, s.states, N * H, first=N * P)
    arrays("d_final", s.d_final, s.states, S * H, first=S * P)
    array("d_projected", s.d_projected, N * P, WRITTEN)
    array("d_share", None if overwritten else s.d_share, N * G, WRITTEN, **padded)
    array("d_product", s.d_product, N * s.own * H, WRITTEN)
    array("d_data", s.d_data, N * D, WRITTEN)
    room = {"weight_ih": s.padded_rows & 1 and G * (-D % 32), "weight_hh": s.padded_rows & 2 and R * (-P % 32)}
    for name, count in weights.items():
        array(f"d_{name}", getattr(s, f"d_{name}"), count, WRITTEN, room=room.get(name, 0) * real)
    arrays("d_extra", s.d_extra, s.extras, H, WRITTEN)
    arrays("d_initial", s.d_initial, s.states, S * H, WRITTEN, first=S * P)
    arrays("d_state", s.d_state, s.states, N * H, WRITTEN)
    return found


class Recorded:
    """Calls as files, and what the operator gave for each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: dict[Path, tuple[str, bytes]] = {}
        self.padded: dict[str, dict[str, Field]] = {"gap": {}, "room": {}}
        """The first call with memory between rows, and the first with memory behind them."""

    def scan(self, plan: CorePlan, tensors: Sequence[Tensor]) -> None:
        p = plan.prepared
        scratch = torch.empty(p.scratch, dtype=torch.uint8)  # the call's own, to be looked into
        s = plan.bound(tensors, scratch.data_ptr())
        whole = library.PreparedStruct(ctypes.addressof(s), p.count, None, 0, 0, p.isa, p.numbers, p.backward)
        run = functools.partial(core.run, ctypes.addressof(whole), 1, None)
        self.record(fields_of(s, p.numbers, bool(p.backward)), library.NUMBERS[p.numbers], run)

    def grid(self, call: GridCall, backward: bool) -> None:
        run = functools.partial(RUN_GRID, call, backward)
        self.record(grid_calls.fields_of(call, backward), library.NUMBERS[call.double], run)

    def record(self, fields: dict[str, Field], numbers: str, run: Callable[[], object]) -> None:
        path = self.folder / f"{len(self.expected)}"
        write(path, fields)
        for kind, there in self.padded.items():
            if not there and any(getattr(field, kind) for field in fields.values()):
                there.update(fields)
        run()
        in_order = [field for _, field in sorted(fields.items())]  # as a std::map has them
        result = b"".join(field.now() for field in in_order if field.kind & WRITTEN)
        self.expected[path] = numbers, result


RUN_GRID = GridCall.run


class Products(Cell):
    """More products with the state than gates, each with a gradient of its own."""

    gates = ("a",)
    state_gates = ("p", "q", "r")
    states = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor]:
        return (torch.tanh(x.a + h.p * h.q * h.r) / 10,)


CASES: list[tuple[str | Cell, tuple[int, ...], torch.dtype, dict[str, Any]]] = [
    (Products(), (1, 256, 9, 64), torch.float64, {}),
    (Products(), (3, 3, 9, 48), torch.float64, {"lengths": [3, 1, 2]}),
    ("lstm", (7, 3, 5, 33), torch.float64, {}),
    ("gru", (14, 3, 3, 17), torch.float32, {"lengths": [1 + b % 3 for b in range(14)]}),
    ("peephole", (3, 4, 2, 9), torch.float64, {"reverse": True, "trace": True}),
    ("leaky", (5, 2, 9, 32), torch.float64, {"bptt": BPTT(xi=torch.rand(5, 2), clip=0.1)}),
    ("elman", (1, 1, 1, 1), torch.float64, {}),
    ("lstm1997", (4, 3, 40, 31), torch.float64, {"mask": torch.full((4, 31), 0.5, dtype=torch.float64)}),
    ("lstm", (2, 3, 40, 131), torch.float32, {}),  # from here on threads share a step
    ("gru", (3, 3, 9, 150), torch.float64, {"lengths": [3, 1, 2]}),
    ("elman", (9, 4, 5, 128), torch.float32, {}),  # whose rows are 2 KiB apart
    ("lstm", (5, 3, 4, 70, 33), torch.float64, {"lengths": [1, 3, 2, 3, 3]}),  # and a projection
    ("lstm", (2, 3, 4, 9, 20), torch.float32, {"bptt": "full,clip:0.1"}),
    (Headed(3), (2, 3, 5, 33), torch.float64, {"lengths": [3, 1]}),  # and blocks for heads
    (Apart(2), (2, 2, 3, 300), torch.float32, {"mask": torch.full((2, 300), 0.5)}),
    ("mingru", (2, 40, 3, 33), torch.float64, {}),  # and from here on programs take steps of one sequence
    ("mingru", (1, 200, 2, 16), torch.float32, {}),  # in which threads wait for each other, and one vector is a row
    (ReadOut(), (3, 60, 3, 70), torch.float32, {"lengths": [60, 3, 31], "trace": True}),
    (Ring(), (2, 30, 2, 5), torch.float32, {}),
    (Turned(), (1, 17, 2, 5), torch.float64, {"bptt": BPTT(xi=torch.rand(1, 17))}),
    (Cascade(), (2, 33, 2, 40), torch.float64, {"reset": torch.arange(33).expand(2, 33) % 20 == 7, "reverse": True}),
    (
        "lstm",
        (2, 2, 257, 128),
        torch.float32,
        {},
    ),  # padded: rows of gates, and those of U in its gradient
    ("mingru", (1, 40, 258, 256), torch.float32, {}),
    ("gru", (3, 2, 4, 257), torch.float64, {}),  # W's
    ("elman", (2, 2, 3, 256), torch.float64, {"trace": True}),  # gates' alone
    ("indrnn", (3, 5, 1, 65), torch.float32, {"reset": torch.tensor([[False, True, False, False, True]] * 3)}),
]


GRIDS = [
    ("net", (1, 1, 1, 1), 1, 1, torch.float32),
    ("lstm", (3, 4, 5, 2), 7, 4, torch.float64),
    ("net", (2, 1, 9, 3), 16, 2, torch.float64),
    ("lstm", (40, 7, 3, 1), 16, 1, torch.float32),  # more than one panel of rows
    ("lstm", (150, 3, 4, 18), 3, 2, torch.float32),  # more than one part
]

FORMATS: list[tuple[str, str | Cell, tuple[int, int, int, int]]] = [
    ("bfloat16", "gru", (14, 3, 5, 33)),
    ("bfloat16", "lstm", (3, 2, 300, 64)),
    ("bfloat16", "elman", (1, 3, 9, 531)),  # threads share a step
    ("bfloat16", Headed(3), (3, 2, 5, 15)),
    ("int8", "lstm", (14, 2, 5, 33)),
    ("int8", "gru", (1, 2, 1100, 200)),
    ("int8", "elman", (3, 2, 64, 512)),
    ("int8", Headed(2), (3, 2, 5, 66)),
]
"""Products in fewer bits: of what, for which cell, B, T, D, H."""


def run_in(products: str, case: Case, sizes: tuple[int, int, int, int]) -> None:
    """The operator itself, and its backward pass where there is one."""
    B, T, _, _ = sizes
    train = products == "bfloat16"
    case.weights = {name: (weight.detach() / 4).requires_grad_() for name, weight in case.weights.items()}
    assembled(case.cell, True)
    text, weights, extras = operands(case.cell, case.weights)
    options = (None, None, [B] * T, False, 0.0, text, products, train)
    with torch.set_grad_enabled(train):
        data = case.x.transpose(0, 1).reshape(-1, case.x.shape[-1])
        outputs = torch.ops.recur.scan(data, weights, extras, list(case.state), *options)[0]
    if train:
        outputs.sum().backward()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    torch.manual_seed(0)
    found = Recorded(tmp_path_factory.mktemp("calls"))
    was = core.isa
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CorePlan, "run", lambda plan, tensors: found.scan(plan, tensors))
        patch.setattr(GridCall, "run", lambda call, backward: found.grid(call, backward))
        for isa in sorted({0, core.best_isa}):
            core.isa = isa
            for name, sizes, dtype, options in CASES:
                case = case_of(name, *sizes, dtype=dtype)
                for keep in (True, False):  # a backward pass that may not overwrite what was saved, and one that may
                    for start in (case.state, None):  # from zero, the backward pass has no step for the initial state
                        result = case.scan_of(slice(None), start, backend="native", **options)
                        torch.autograd.grad(case.loss(result), case.x, retain_graph=keep)
            for name, sizes, width, corners, dtype in GRIDS:
                net = Grid(name, sizes[-1], width, corners=corners, backend="native", dtype=dtype)
                x = torch.randn(sizes, dtype=dtype, requires_grad=True)
                with torch.no_grad():
                    net(x)
                for image in (x, x.detach()):  # with its gradient and without
                    net(image).square().sum().backward()
            for products, name, sizes in FORMATS:
                run_in(products, case_of(name, *sizes, dtype=torch.float32), sizes)
    core.isa = was
    return found


# Running --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SANITIZERS)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver with this sanitizer in it; compiled anew only when a source has changed."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None:
        pytest.skip("no C++ compiler")
    flags = [*FLAGS, *SANITIZERS[request.param]]
    empty = tmp_path_factory.mktemp("sanitizer") / "empty.cpp"
    empty.write_text("int main() {}")
    tried = subprocess.run([compiler, *flags, str(empty), "-o", str(empty.with_suffix(""))], capture_output=True)
    if tried.returncode or subprocess.run([str(empty.with_suffix(""))], capture_output=True).returncode:
        pytest.skip(f"no {request.param} sanitizer here")
    sources = sorted([*NATIVE.glob("*.cpp"), *NATIVE.glob("*.h"), DRIVER])
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True).stdout
    content = hashlib.sha256(b"".join([version, repr(flags).encode(), *(path.read_bytes() for path in sources)]))
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("native-driver")
    built = folder / f"{request.param}-{content.hexdigest()[:16]}"
    if not built.exists():
        for old in folder.glob(f"{request.param}-*"):
            old.unlink()
        units = [DRIVER, NATIVE / "core.cpp", NATIVE / "isa_portable.cpp"]
        others = [isa for isa in library.ISAS[1:] if isa != library.ISAS[core.best_isa]]
        units += [NATIVE / f"isa_{library.ISAS[core.best_isa]}.cpp"] if core.best_isa else []
        absent = empty.with_name("absent.cpp")  # instruction sets that the test does without, to compile less
        absent.write_text('#include <cstdlib>\n#include "table.h"\n' + "".join(ABSENT.format(isa) for isa in others))
        command = [compiler, *flags, f"-I{NATIVE}", *map(str, units), str(absent), "-pthread", "-o", f"{built}.new"]
        subprocess.run(command, check=True)
        Path(f"{built}.new").rename(built)
    return built


BOUNDS = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 4e-3, "int8": 5e-4}
"""The compiler's optimisations differ: a number between two roundings may fall on either side."""

ABSENT = "namespace {} {{ Entries entries(int) {{ std::abort(); }} }}\n"


@pytest.mark.parametrize("threads", [1, 4])
def test_an_exception_on_any_thread_reaches_the_caller(driver: Path, threads: int) -> None:
    """Rather than ending the process, or leaving the other threads to wait for work that will never be done."""
    ran = subprocess.run([str(driver), str(threads)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert not ran.stderr


def test_a_step_into_padding_is_seen(driver: Path, recorded: Recorded) -> None:
    """The sanitizer itself: rows at a wrong distance, and memory behind a gradient that is not there."""
    gaps, room = (dict(fields) for fields in recorded.padded.values())
    stride = int.from_bytes(gaps["share_stride"].held, "little")
    gaps["share_stride"] = Field.of_number(stride - 1)
    shorter = {name: field._replace(room=0) for name, field in room.items()}
    seen = {"use-after-poison": gaps, "heap-buffer-overflow": shorter}
    if driver.name.startswith("thread"):  # which watches races alone: the driver itself looks between rows
        seen = {"share between its rows": gaps}
    for error, fields in seen.items():
        path = recorded.folder / "wrong"
        write(path, fields)
        ran = subprocess.run([str(driver), "1", str(path)], capture_output=True, text=True)
        assert error in ran.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_no_step_over_an_edge_and_no_race(driver: Path, threads: int, recorded: Recorded) -> None:
    paths = [str(path) for path in recorded.expected]
    ran = subprocess.run([str(driver), str(threads), *paths], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert not ran.stderr
    for path, (numbers, bytes_) in recorded.expected.items():
        dtype = torch.float64 if numbers == "float64" else torch.float32
        got = torch.frombuffer(bytearray(Path(f"{path}.out").read_bytes()), dtype=dtype)
        expected = torch.frombuffer(bytearray(bytes_), dtype=dtype)
        assert len(got) == len(expected)
        assert got.isfinite().all(), "all of it was written"
        off, bound = (got - expected).abs().max().item(), BOUNDS[numbers]
        assert off <= bound * max(1.0, expected.abs().max().item()), path.name

"""Kernels compiled by NVRTC for GPUs that are not here: that they are, and that none takes more than the table has.

A sample; `python -m tests.cuda.usage` compiles all of them and writes the table.
"""

from __future__ import annotations

import pytest
import torch

from recur.cells import make_cell
from recur.compiler.programs import Signature, text_of
from recur.errors import BackendError
from recur.ops.cuda import nvrtc, persistent
from recur.ops.cuda.codegen import kernel_source
from recur.ops.cuda.driver import A100, H200
from recur.ops.cuda.heuristics import order_configs
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.nvrtc import ResourceUsage, parse_usage
from tests.cuda.usage import Row, compare, devices, rows, table, worse

needs_nvrtc = pytest.mark.skipif(nvrtc.load_compiler() is None, reason=str(nvrtc.compiler_missing_reason()))

DEVICES = devices()
SAMPLE = [Row("lstm", torch.bfloat16, device, "step") for device in DEVICES]
SAMPLE += [
    Row("gru", torch.float32, A100, "step"),
    Row("peephole", torch.float64, H200, "step"),
    Row("slstm", torch.float16, DEVICES[-1], "step"),
    Row("mingru", torch.float32, H200, "step"),
]
SAMPLE += [
    Row("lstm", torch.bfloat16, H200, f"{config} {direction}")
    for config in ("cta", "cluster", "grid")
    for direction in ("forward", "backward")
]
SAMPLE += [
    Row("gru", torch.float32, H200, "cluster backward"),
    Row("peephole", torch.float16, H200, "grid backward"),
    Row("gru", torch.float16, A100, "grid forward"),
    Row("gru", torch.float32, A100, "grid backward"),
    Row("lstm", torch.bfloat16, DEVICES[-1], "cluster forward"),
    Row("mingru", torch.bfloat16, A100, "elementwise backward"),
    Row("lru", torch.float32, H200, "slices forward"),
]


@needs_nvrtc
@pytest.mark.parametrize("row", SAMPLE, ids=lambda row: row.key)
def test_a_kernel_takes_no_more_than_the_table_has(row: Row) -> None:
    assert compare([row]) == []


def test_the_table_has_every_kernel_of_the_four_architectures() -> None:
    _, kept = table()
    named = [row.key for row in rows() if row.device.name != "the newest"]
    assert [key for key in named if key not in kept] == [], "python -m tests.cuda.usage writes it"


def test_no_kernel_of_one_step_spills() -> None:
    _, kept = table()
    steps = {key: kernels for key, kernels in kept.items() if key.endswith(" step")}
    assert steps
    assert [k for k, kernels in steps.items() for u in (kernels or {}).values() if u.spilled or u.stack] == []


def test_what_is_worse_than_the_table() -> None:
    was = {"k": ResourceUsage(40, 128, 0, 0)}
    assert worse("row", {"k": ResourceUsage(48, 128, 0, 0)}, was, same=True) == []
    assert worse("row", {"k": ResourceUsage(49, 0, 0, 0)}, was, same=True) == ["row: k takes 49 registers, not 40"]
    assert worse("row", {"k": ResourceUsage(49, 0, 0, 0)}, was, same=False) == []
    assert worse("row", {"k": ResourceUsage(40, 129, 8, 4)}, was, same=False) == [
        "row: k takes 129 bytes of shared memory, not 128",
        "row: k has 8 bytes stack, not 0",
        "row: k has 4 bytes spilled, not 0",
    ]
    assert worse("row", {"other": was["k"]}, was, same=True) == ["row: other is new"]
    assert worse("row", None, was, same=True) == ["row: does not fit now"]


def test_what_the_assembler_says() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
    assert parse_usage(log) == {"one": ResourceUsage(40, 128, 16, 20), "two": ResourceUsage(255, 0, 0, 0)}


@needs_nvrtc
def test_what_cannot_be_compiled_is_said() -> None:
    compiler = nvrtc.load_compiler()
    assert compiler is not None
    with pytest.raises(BackendError, match=r"NVRTC [\d.]+ cannot compile a kernel for sm_90a: .*error"):
        compiler.compile('extern "C" __global__ void k() { nothing_of_this_name(); }', "sm_90a")
    with pytest.raises(BackendError, match="for sm_1: "):
        compiler.compile("", "sm_1")


def test_a_text_names_all_that_it_is_made_of() -> None:
    cell = text_of(make_cell("peephole"), True)
    made = kernel_source(cell, torch.bfloat16, ("step",), (("EXTRA_OPTION", 7),))
    for line in ("#define NUM 2", "#define FAST 1", "#define EXTRAS 3", "#define EXTRA_OPTION 7", "void back_step("):
        assert line in made
    assert "#define FAST 0" in kernel_source(cell, torch.float32, ("step",))


@needs_nvrtc
@pytest.mark.parametrize("directions", [1, 2])
def test_weights_make_room_for_what_would_spill(directions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration keeps W in more registers than the compiler has: some weights move elsewhere."""
    monkeypatch.setattr(persistent, "uses_tf32", lambda: False)
    cell, H = text_of(make_cell("lstm"), True), 300
    of = Signature(cell, torch.float32, (6, 20, 16), (), 4 * H, H, 4, 0, 0, False, False, 0.0, "")
    p = persistent.scan_shape(ScanLayout(of), True, directions)
    plain = next(
        config
        for config in order_configs(p, H200)
        if config and (config.warps, config.partial, config.used) == (8, 0, 0)
    )
    assert persistent.fit_registers(cell, torch.float32, p, plain, H200, False) == plain  # as it was estimated
    first = plain.with_changes(in_registers=plain.in_registers + plain.in_shared, in_shared=0)
    config = persistent.fit_registers(cell, torch.float32, p, first, H200, False)
    assert config is not None
    assert config.in_registers < first.in_registers
    assert config.in_registers + config.in_shared == first.in_registers + first.in_shared
    assert config.shared_bytes(p) <= H200.shared
    compiler = nvrtc.load_compiler()
    assert compiler is not None
    usage = compiler.compile(persistent.kernel_text(cell, torch.float32, p, config, False), H200.architecture).usage
    assert usage["carry_backward"].stack <= persistent.MAX_STACK_BYTES
    assert persistent.free_registers(p, first, 10**6, H200) is None

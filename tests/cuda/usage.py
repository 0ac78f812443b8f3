"""python -m tests.cuda.usage: what every kernel takes, compiled for every architecture, written to usage.json.

    python -m tests.cuda.usage                          all cells, dtypes and architectures
    python -m tests.cuda.usage --match "lstm bfloat16"  only these rows; the others stay
    python -m tests.cuda.usage --check                  compare, and write nothing

A row is a cell, a dtype, an architecture and a family of kernels: one launch per step; a persistent kernel by
each exchange of h, forward and backward; or, without a matmul with W, an element-wise kernel, in slices of time with
few units.
test_compile.py compares a sample of them.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

from recur.cells import make_cell
from recur.compiler.assembly import load_assembly
from recur.compiler.programs import Signature, text_of
from recur.errors import BackendError
from recur.ops.cuda import nvrtc, persistent
from recur.ops.cuda.codegen import DTYPE_CODES, kernel_source
from recur.ops.cuda.config import CLUSTER, EXCHANGE_NAMES, GRID, SINGLE_CTA
from recur.ops.cuda.driver import A100, H200, DeviceInfo
from recur.ops.cuda.heuristics import list_configs
from recur.ops.cuda.layout import ScanLayout
from recur.ops.cuda.nvrtc import ResourceUsage
from tests.support import NATIVE_CELLS

TABLE = Path(__file__).with_name("usage.json")
MORE_REGISTERS = 8
"""A kernel may take so many more than the table says: compilers' versions differ by as much."""

OTHERS = (DeviceInfo("an RTX 3090", 8, 6, 82, 101376), DeviceInfo("an RTX 4090", 8, 9, 128, 101376))


def devices() -> list[DeviceInfo]:
    """One of each architecture: those that most have, and the newest that the compiler knows."""
    compiler = nvrtc.load_compiler()
    newest = compiler.architectures[-1] if compiler else 90
    return [A100, *OTHERS, H200, DeviceInfo("the newest", newest // 10, newest % 10, 48, 101376)]


PLACES = {"cta": (64, 32), "cluster": (64, 256), "partial": (64, 256), "grid": (64, 1024)}
PLACES |= {"elementwise": (64, 512), "slices": (1, 64)}
"""The rows and units with which each family is compiled."""


class Row(NamedTuple):
    cell: str
    dtype: torch.dtype
    device: DeviceInfo
    family: str

    @property
    def key(self) -> str:
        return " ".join((self.cell, str(self.dtype).removeprefix("torch."), self.device.architecture, self.family))


SINGLE_FILE_FAMILIES = ("step", "pack", "reduce")


def rows() -> Iterator[Row]:
    for cell in NATIVE_CELLS:
        for dtype in DTYPE_CODES:
            for device in devices():
                yield Row(cell, dtype, device, "step")
                if cell in ("gru", "mingru"):
                    yield from (Row(cell, dtype, device, family) for family in SINGLE_FILE_FAMILIES[1:])
                # Each takes seconds: all cells where most of them run, elsewhere those that all have.
                if device == H200 or (cell in ("gru", "lstm", "mingru") and dtype != torch.float64):
                    for family in families(cell, dtype, device):
                        yield Row(cell, dtype, device, family)


def families(cell: str, dtype: torch.dtype, device: DeviceInfo) -> list[str]:
    configs = ["elementwise", "slices"]
    if make_cell(cell).recurrent_gates:
        carried = [SINGLE_CTA, *([CLUSTER] if device.clusters else []), GRID]
        configs = [EXCHANGE_NAMES[config] for config in carried] if dtype != torch.float64 else []
    found = [f"{config} {direction}" for config in configs for direction in ("forward", "backward")]
    return [*found, *(["partial backward"] if "cluster" in configs and cell in ("gru", "lstm") else [])]


def text(row: Row) -> str | None:
    """Return the source of a row's kernels; None if no such configuration fits its device."""
    cell = text_of(make_cell(row.cell), True)
    if row.family in SINGLE_FILE_FAMILIES:
        return kernel_source(cell, row.dtype, (row.family,))
    kind, _, direction = row.family.partition(" ")
    a, backward = load_assembly(cell), direction == "backward"
    (S, H), steps = PLACES[kind], 1000
    weights, shape = 4 if a.products else 2, (S, steps, H)
    of = Signature(cell, row.dtype, shape, (), a.gates * H, H, weights, a.extras, 0, False, False, 0.0, "")
    if not a.products:
        return elementwise_text(ScanLayout(of), backward, row.device)
    p = persistent.scan_shape(ScanLayout(of), backward)
    exchange, partial = ("cluster", 1) if kind == "partial" else (kind, 0)
    plain = (config for config in list_configs(p, row.device) if config.warps == 8 and not config.used)
    config = next(
        (config for config in plain if EXCHANGE_NAMES[config.exchange] == exchange and config.partial == partial), None
    )
    return None if config is None else persistent.kernel_text(cell, row.dtype, p, config, not backward)


def elementwise_text(layout: ScanLayout, backward: bool, device: DeviceInfo) -> str:
    """What would be loaded."""
    loaded = mock.Mock()
    with (
        mock.patch.object(persistent, "load_module", loaded),
        mock.patch.object(persistent, "device_info", return_value=device),
    ):
        persistent.prepare_elementwise.__wrapped__(layout, backward, not backward, True, 0, None)
    made: str = loaded.call_args.args[0]
    return made


def usage(row: Row) -> dict[str, ResourceUsage] | None:
    made, compiler = text(row), nvrtc.load_compiler()
    assert compiler is not None, nvrtc.compiler_missing_reason()
    return None if made is None else dict(sorted(compiler.compile(made, row.device.architecture).usage.items()))


def attempt(row: Row) -> dict[str, ResourceUsage] | str | None:
    """The same, or why it cannot be compiled."""
    try:
        return usage(row)
    except BackendError as error:
        return " ".join(str(error).split())


def table() -> tuple[str, dict[str, dict[str, ResourceUsage] | None]]:
    """The compiler's version, and by row and kernel what it takes."""
    if not TABLE.exists():
        return "", {}
    content = json.loads(TABLE.read_text())
    found = {
        key: None if kernels is None else {name: ResourceUsage(*numbers) for name, numbers in kernels.items()}
        for key, kernels in content["kernels"].items()
    }
    return content["nvrtc"], found


def worse(
    key: str, found: dict[str, ResourceUsage] | None, expected: dict[str, ResourceUsage] | None, same: bool
) -> list[str]:
    """What a row takes more of than the table has. `same`: by the compiler of the table, to which registers belong."""
    if (found is None) != (expected is None):
        return [f"{key}: {'does not fit' if found is None else 'fits'} now"]
    said = []
    for name, takes in (found or {}).items():
        was = (expected or {}).get(name)
        if was is None:
            said.append(f"{key}: {name} is new")
            continue
        if same and takes.registers > was.registers + MORE_REGISTERS:
            said.append(f"{key}: {name} takes {takes.registers} registers, not {was.registers}")
        if takes.shared > was.shared:
            said.append(f"{key}: {name} takes {takes.shared} bytes of shared memory, not {was.shared}")
        for what in ("stack", "spilled"):
            now, then = getattr(takes, what), getattr(was, what)
            if (now and not then) or (same and now > then):
                said.append(f"{key}: {name} has {now} bytes {what}, not {then}")
    return said


def compare(chosen: Iterable[Row]) -> list[str]:
    version, expected = table()
    compiler = nvrtc.load_compiler()
    assert compiler is not None
    said = []
    for row in chosen:
        if row.key not in expected and row.device.name == "the newest":
            continue  # of a newer compiler
        if row.key not in expected:
            said.append(f"{row.key}: not in the table; python -m tests.cuda.usage writes it")
            continue
        said += worse(row.key, usage(row), expected[row.key], compiler.version == version)
    return said


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cuda.usage")
    parser.add_argument("--match", default="", help="only rows whose name contains this")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    options = parser.parse_args()
    compiler = nvrtc.load_compiler()
    if compiler is None:
        raise SystemExit(nvrtc.compiler_missing_reason())
    version, kept = table()
    chosen = [row for row in rows() if options.match in row.key]
    found: dict[str, dict[str, ResourceUsage] | None] = {}
    failed: list[str] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for k, (row, takes) in enumerate(zip(chosen, pool.map(attempt, chosen, chunksize=4), strict=True)):
            if isinstance(takes, str):
                failed.append(f"{row.key}: {takes}")
            else:
                found[row.key] = takes
            print(f"\r{k + 1} of {len(chosen)}", end="", flush=True)
    print()
    same = compiler.version == version
    said = [line for key, takes in found.items() if key in kept for line in worse(key, takes, kept[key], same)]
    print("\n".join(said) or "nothing takes more than before")
    spilling = [f"{k}: {n} {u.spilled}" for k, v in found.items() for n, u in (v or {}).items() if u.spilled or u.stack]
    print("\n".join(["kernels with spills or a stack:", *spilling]) if spilling else "no kernel spills or has a stack")
    if failed:
        print("\n".join(["kernels that cannot be compiled:", *failed]))
    if options.check:
        raise SystemExit(bool(said or failed))
    every = {row.key: found.get(row.key, kept.get(row.key)) for row in rows() if row.key in found or row.key in kept}
    lines = [f"  {json.dumps(key)}: {json.dumps(takes)}" for key, takes in sorted(every.items())]
    TABLE.write_text(f'{{"nvrtc": "{compiler.version}", "kernels": {{\n' + ",\n".join(lines) + "\n}}\n")
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()

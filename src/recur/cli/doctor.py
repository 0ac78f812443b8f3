"""recur doctor: what this machine has, and which backends work on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from recur.cli.options import Common
from recur.cli.screen import Screen, facts
from recur.errors import BackendError

if TYPE_CHECKING:
    from recur.ops.cuda.report import GpuTuningTarget

PACKAGES = {
    "torch": "the networks",
    "numpy": "counting and text",
    "sentencepiece": "subwords: pip install 'recur[subword]'",
    "matplotlib": "figures: pip install 'recur[plot]'",
    "starlette": "the studio: pip install 'recur[studio]'",
    "onnxscript": "recur export to ONNX: pip install 'recur[export]'",
}


verb = App(
    help_epilogue="""Examples:
  recur doctor
  recur doctor --json
  recur doctor --tune                 measure this GPU once; later scans use the fastest kernels"""
)


@verb.default
def doctor(
    tune: Annotated[bool, Parameter(negative="")] = False,
    minutes: float = 8.0,
    table: Path | None = None,
    common: Common = Common(),  # noqa: B008  frozen
) -> None:
    """Report versions, cores, measured threads, backends and the GPU.

    Parameters
    ----------
    tune
        Measure the fastest kernel configuration for each size on this GPU and keep it in a table. Sizes in the table
        are not measured again.
    minutes
        With --tune: time limit; the next call continues.
    table
        With --tune: file to write instead of the tuning table in use.
    """
    screen = Screen(common)
    if tune:
        screen.result(_tune(screen, minutes, table))
        return
    content = {
        "recur": _version("recur"),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "packages": {name: _version(name) for name in PACKAGES},
        "cores": _cores(),
        "threads": _threads(),
        "backends": _backends(),
        "native": _native(),
        "gpu": _gpu(),
        "cuda": _cuda(),
    }
    _show(screen, content)
    screen.result(content)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads() -> dict[str, Any]:
    """The rate of a large product at each thread count: what more threads bring on this machine, now."""
    import torch

    was = torch.get_num_threads()
    a = torch.randn(768, 768)
    rates: dict[int, float] = {}
    try:
        for threads in sorted({1, 2, was, _cores()}):
            if threads > _cores():
                continue
            torch.set_num_threads(threads)
            a @ a
            times = []
            for _ in range(15):
                begun = time.perf_counter()
                a @ a
                times.append(time.perf_counter() - begun)
            rates[threads] = round(2 * 768**3 / statistics.median(times) / 1e9, 1)
    finally:
        torch.set_num_threads(was)
    return {"torch_uses": was, "gflops": rates, "fastest": max(rates, key=lambda threads: rates[threads])}


def _backends() -> dict[str, str]:
    """Each backend runs a small scan and is compared with the loop; what it says if it cannot."""
    import torch

    from recur.cells import make_cell
    from recur.errors import RecurError
    from recur.ops import BACKENDS, scan

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 4, generator=generator)
    found = {}
    for name in BACKENDS:
        cell = make_cell("mingru" if name == "parallel" else "lstm")  # one that the backend takes
        weights = {key: torch.randn(shape, generator=generator) for key, shape in cell.shapes(4, 5).items()}
        expected = scan(cell, weights, x, backend="loop").outputs
        on = "cuda" if name == "cuda" and torch.cuda.is_available() else "cpu"
        there = {key: weight.to(on) for key, weight in weights.items()}
        near = 1e-2 if on == "cuda" else 1e-5  # products in TF32
        try:
            found_there = scan(cell, there, x.to(on), backend=name).outputs.cpu()
            agrees = torch.allclose(found_there, expected, atol=near)
            found[name] = "works" if agrees else "gives wrong numbers"
        except (RecurError, RuntimeError) as error:
            found[name] = f"does not work: {error}"
    return found


def _native() -> dict[str, Any]:
    """The C++ core of the native backend: what it runs on, or what it lacks."""
    from recur.ops.cpu import library
    from recur.utils import core_library

    core, missing = library.core(), library.missing_reason()
    if core is None:
        compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
        cure = "install recur again" if compiler else "install a C++ compiler (g++ or clang++), then recur again"
        return {"built": core_library.built() is not None, "missing": missing, "compiler": compiler, "cure": cure}
    best = library.ISAS[core.best_isa]
    pool = "torch's own" if core.parallel else "its own: no OpenMP of torch's was found to share"
    found = {"built": True, "instructions": library.ISAS[core.isa], "best": best, "threads": pool}
    has = library.ISAS[core.isa] == "avx512bf16"
    found["bfloat16"] = "multiplied by AVX512-BF16" if has else "rounded, and multiplied as float32: no AVX512-BF16"
    found["int8"] = "multiplied by AVX512-VNNI" if has else "multiplied as 16-bit numbers: no AVX512-VNNI"
    return found


def _gpu() -> str:
    import torch

    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    built = torch.version.cuda or getattr(torch.version, "hip", None)
    return "none seen by torch" if built else "none: this torch is built for the CPU alone"


def _cuda() -> dict[str, Any]:
    """The kernels of the cuda backend: what they run on, each way, or what is missing."""
    from recur.ops.cuda.report import gpu_report

    return gpu_report()


def _tune(screen: Screen, minutes: float, path: Path | None, bench: GpuTuningTarget | None = None) -> dict[str, Any]:
    """Measured, written, and said."""
    from recur.ops.cuda import report, tuning
    from recur.ops.cuda.dispatch import missing_reason

    if bench is None:
        reason = report.no_gpu() or missing_reason(0)
        if reason is not None:
            raise BackendError(f"there is nothing to measure: {reason}")
        from recur.ops.cuda.report import GpuTuningTarget

        bench = GpuTuningTarget()
    made = {"recur": _version("recur"), "torch": _version("torch"), "date": time.strftime("%Y-%m-%d")}
    own = path or tuning.user_file(bench.device)
    # What is at another place than the user's own is not read by scans, but may have been begun before.
    known = tuning.loads(own.read_bytes()) if own.exists() else tuning.load_table(bench.device)
    found = tuning.tune(
        lambda done, total, what: screen.note(f"{done} of {total}{': ' + what if what else ''}"),
        bench,
        known,
        60 * minutes,
        made,
    )
    written = tuning.save(found, own)
    whole = len(bench.tuning_keys())
    done = sum(kind in found.entries for kind in bench.tuning_keys())
    rows = {"GPU": found.device, "problems": f"{done} of {whole}", "written to": str(written)}
    if done < whole:
        rows["to go on"] = "recur doctor --tune"
    screen.show(facts("the fastest ways, measured", rows))
    return {"device": found.device, "problems": whole, "measured": done, "path": str(written)}


def _show(screen: Screen, content: dict[str, Any]) -> None:
    versions = {name: content[name] for name in ("recur", "python", "system")}
    for name, version in content["packages"].items():
        versions[name] = version or f"missing; for {PACKAGES[name]}"
    screen.show(facts("versions", versions), "")

    threads = content["threads"]
    rates = {f"{count} thread{'s' * (count > 1)}": f"{rate:.0f} GFLOP/s" for count, rate in threads["gflops"].items()}
    title = f"{content['cores']} cores, of which torch uses {threads['torch_uses']}; measured, a large product:"
    screen.show(facts(title, rates), "")
    screen.show(facts("backends", content["backends"] | {"GPU": content["gpu"]}), "")

    screen.show(facts("kernels of the cuda backend", _rows_of_cuda(content["cuda"])), "")

    native = content["native"]
    if "missing" in native:
        found = f"compiler: {native['compiler']}" if native["compiler"] else "no C++ compiler found"
        rows = {"missing": f"{native['missing']} ({found}); {native['cure']}"}
    else:
        chosen = "the best of this machine" if native["instructions"] == native["best"] else f"best: {native['best']}"
        rows = {"instructions": f"{native['instructions']} ({chosen})", "threads": native["threads"]}
        rows |= {"bfloat16 products": native["bfloat16"], "8-bit weights": native["int8"]}
    screen.show(facts("C++ core of the native backend", rows))


def _rows_of_cuda(cuda: dict[str, Any]) -> dict[str, str]:
    rows = {}
    if "name" in cuda:
        parts = f"{cuda['multiprocessors']} multiprocessors, {cuda['shared_kib']} KiB of shared memory a CTA"
        rows = {"GPU": f"{cuda['name']}, compute capability {cuda['capability']}, {parts}", "driver": cuda["driver"]}
    rows |= {"compiler": cuda["compiler"], "kept in": cuda["cache"]}
    if "table" in cuda:
        rows["measured"] = cuda["table"]
    if "missing" in cuda:
        return rows | {"missing": cuda["missing"]}
    return rows | {f"state by {name}" if " " not in name else name: said for name, said in cuda["exchanges"].items()}

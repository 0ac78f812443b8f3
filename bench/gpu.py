"""One layer on a GPU beside cuDNN (torch.nn.RNN, GRU and LSTM) and, where it can be imported, FlashRNN.

Sides take turns in one process, each between two CUDA events and after the GPU has come to rest; several calls in a
row where one is short, as training makes them, so that what Python takes is hidden where it can be. Backward passes run
on the calling thread, of all sides (torch.autograd.set_multithreading_enabled), unless --autograd-threads is given: to
wake autograd's own thread may take longer than a short call. What does not agree
with the peer, outputs and all gradients, is not timed. Rows get equal shares of the seconds that are left, and as many
rounds as fit.

    forward     without gradients
    both        a forward pass that keeps what its backward pass needs, and that, for x and all weights
    floor       the least time of the two passes, by bench/gpu_floor.py
    MiB         the most that was allocated at once during both passes, beyond what was there before

Beside the grid stand cells that torch.nn does not have, next to the built-in one of the same equations.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bench.gpu_compile import Row, compile_all
from bench.gpu_flashrnn import flashrnn
from bench.gpu_sides import PEERS, Data, Ours, Side, cudnn, own_cells
from bench.gpu_timing import Contest, Shape, compare
from bench.side_by_side import machine
from recur.cells import make_cell

GRID: list[Shape] = [
    (20, 35, 200), (20, 35, 650), (20, 35, 1500), (64, 256, 256), (64, 256, 512), (64, 256, 1024), (256, 256, 1024),
    (16, 1024, 768), (128, 100, 128), (1, 256, 512),
]  # fmt: skip
"""B, T and H, which is the width of the input too."""
OWN: list[Shape] = [(20, 35, 650), (64, 256, 512), (64, 256, 1024), (128, 100, 128)]
GATES = {"elman": 1, "gru": 3, "lstm": 4}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def persistent(cell: str, shape: Shape, dtype: torch.dtype) -> bool:
    """Whether cuDNN, as torch calls it, takes the kernels that keep W on the chip."""
    B, _, H = shape
    return dtype == torch.float16 and cell != "gru" and H % 128 == 0 and H <= 1024 and B % 8 == 0 and B <= 128


def contests(shapes: list[Shape], backend: str, device: str = "cuda") -> Iterator[Contest]:
    for dtype in DTYPES:
        name_of_dtype = str(dtype).removeprefix("torch.")
        for shape in shapes or GRID:
            where = "B {} T {} H {}".format(*shape)
            for cell in PEERS:
                peer = "cuDNN, persistent" if persistent(cell, shape, dtype) else "cuDNN"
                what = f"{cell} {name_of_dtype}, {where}"
                sides = _beside_cudnn(cell, shape, dtype, backend, device)
                yield Contest(what, shape, dtype, peer, GATES[cell], sides)
        for shape in shapes or OWN:
            where = "B {} T {} H {}".format(*shape)
            for own, (_, like) in own_cells().items():
                what = f"{own} {name_of_dtype}, {where}"
                sides = _beside_built_in(own, shape, dtype, backend, device)
                yield Contest(what, shape, dtype, like, GATES[like], sides)


def _beside_cudnn(
    cell: str, shape: Shape, dtype: torch.dtype, backend: str, device: str
) -> Callable[[], dict[str, Side]]:
    def sides() -> dict[str, Side]:
        data = Data(cell, *shape, dtype, device)
        found: dict[str, Side] = {"ours": Ours(data, backend), "peer": cudnn(data)}
        other = flashrnn(data)
        return found if other is None else found | {"FlashRNN": other}

    return sides


def _beside_built_in(
    own: str, shape: Shape, dtype: torch.dtype, backend: str, device: str
) -> Callable[[], dict[str, Side]]:
    def sides() -> dict[str, Side]:
        cell, like = own_cells()[own]
        data = Data(like, *shape, dtype, device)
        return {"ours": Ours(data, backend, cell), "peer": Ours(data, backend)}

    return sides


def header() -> str:
    columns = ["forward", "peer", "both", "peer", "times", "quartiles", "TFLOP/s", "of floor", "MiB", "peer"]
    return f"{'µs a step':<40}" + "".join(f"{column:>10}" for column in columns) + "  way"


def line(row: dict[str, Any]) -> str:
    name = f"{row['what']}" + (" *" if "persistent" in row["peer"] else "")
    if row.get("refused"):
        return f"{name:<40}  {row['refused']}"
    forward, both = row["forward"]["us_a_step"], row["both"]["us_a_step"]
    times = "".join(f"{us:>10.2f}" for us in (forward["ours"], forward["peer"], both["ours"], both["peer"]))
    low, high = row["both"]["quartiles"]
    share = f"{row['of_floor']:.0%}" if "of_floor" in row else ""
    memory = f"{row['mib']['ours']:>10.1f}{row['mib']['peer']:>10.1f}"
    ratio = f"{row['both']['times']:>10.2f}{f'{low:.2f}–{high:.2f}':>10}"
    others = "".join(f"  {other} {us:.2f}" for other, us in both.items() if other not in ("ours", "peer"))
    return f"{name:<40}{times}{ratio}{row['tflops']:>10.1f}{share:>10}{memory}  {row['way']}{others}"


def means(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Geometric means of the rates over the peer's, by dtype and peer, with the least of them."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if not row.get("refused"):
            peer = row["peer"] if row["peer"].startswith("cuDNN") else "the built-in cell"
            groups.setdefault(f"{row['dtype']} beside {peer}", []).append(row)
    found = {}
    for name, of in groups.items():
        least = min(of, key=lambda row: row["both"]["times"])
        found[name] = {what: _geometric([row[what]["times"] for row in of]) for what in ("forward", "both")}
        found[name] |= {"rows": len(of), "least": least["both"]["times"], "least at": least["what"]}
        found[name]["most memory"] = max(row["mib"]["ours"] / max(row["mib"]["peer"], 1e-9) for row in of)
    return found


def _geometric(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def the_machine(backend: str) -> dict[str, Any]:
    found = machine() | {"backend": backend, "device": "cpu"}
    if torch.cuda.is_available():
        found |= {
            "device": torch.cuda.get_device_name(),
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "tf32": torch.backends.cudnn.allow_tf32,
        }
        if shutil.which("nvidia-smi"):
            ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            found["driver"] = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.strip()
    return found


def rows_of(chosen: list[Contest]) -> list[Row]:
    """Cells, dtypes and shapes."""
    own = {name: cell for name, (cell, _) in own_cells().items()}
    found = []
    for contest in chosen:
        name = contest.what.split(f" {str(contest.dtype).removeprefix('torch.')}")[0]
        found.append((own[name] if name in own else make_cell(name), contest.dtype, contest.shape))
    return found


def measure(options: argparse.Namespace, write: Callable[[object], None], device: str = "cuda") -> int:
    """Prints rows as they come, and hands all of them to `write` each time; returns how many were refused."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("python -m bench gpu needs a GPU, and torch sees none")
    end = time.perf_counter() + options.seconds
    Data.threads = options.autograd_threads
    chosen = [
        contest
        for contest in contests(options.shape, options.backend, device)
        if all(word in contest.what for word in options.match)
    ]
    if device == "cuda" and not options.compiled:
        begin = time.perf_counter()
        made = compile_all(rows_of(chosen), options.seconds / (1 if options.compile_only else 3))
        print(f"{made} kernels compiled or found in {time.perf_counter() - begin:.0f} s", flush=True)
        if options.compile_only:
            return 0
    rows: list[dict[str, Any]] = []
    print(header())
    on = the_machine(options.backend) | {"autograd_threads": Data.threads}
    for k, contest in enumerate(chosen):
        share = max(0.0, end - time.perf_counter()) / (len(chosen) - k)
        rows.append(compare(contest, options.rounds, share, device))
        print(line(rows[-1]), flush=True)
        write({"machine": on, "means": means(rows), "results": rows})
    for name, mean in means(rows).items():
        rates = f"forward + backward {mean['both']:.2f} times as fast, forward {mean['forward']:.2f}"
        least = f"least {mean['least']:.2f} at {mean['least at']}; memory at most {mean['most memory']:.2f} of its"
        print(f"{name}: {rates} (geometric means of {mean['rows']}); {least}")
    if any("persistent" in row["peer"] for row in rows):
        print("* cuDNN keeps W on the chip there")
    refused = sum(bool(row.get("refused")) for row in rows)
    if refused:
        print(f"{refused} rows were not timed")
    return refused


def shape_of(text: str) -> Shape:
    try:
        B, T, H = map(int, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"B,T,H such as 64,256,512 was expected, not {text!r}") from None
    return B, T, H

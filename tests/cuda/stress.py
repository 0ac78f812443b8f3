"""Each way to carry h many times with random waits in every CTA and every warp, bit for bit the same each time; and a
few small scans for compute-sanitizer.

    python -m tests.cuda.stress --repetitions 1000 --seconds 90
    compute-sanitizer --tool memcheck python -m tests.cuda.stress --small
    compute-sanitizer --tool racecheck python -m tests.cuda.stress --small

racecheck does not follow what `st.async` puts in order, and reports the sums of clusters, which are written again after
the next v has arrived. Built with one barrier more there, the kernels must have nothing to report and give the same
bits; built with one barrier less they must be reported:

    compute-sanitizer --tool racecheck python -m tests.cuda.stress --small --ordered
    compute-sanitizer --tool racecheck python -m tests.cuda.stress --small --ordered --planted
    python -m tests.cuda.stress --ordering
"""

from __future__ import annotations

import argparse
import sys
import time

import torch

from recur.ops.cuda.config import CLUSTER, EXTRA_BARRIER, MISSING_BARRIER, KernelConfig, ScanShape, Select, override
from tests.cuda.support import on_gpu
from tests.cuda.test_persistent import CONFIGS, width

CELLS = ("lstm", torch.float32), ("gru", torch.bfloat16)


def select_config(config: str) -> Select:
    """Return a function that selects the configurations of one of `CONFIGS`."""
    exchange, partial, warps, few = CONFIGS[config]

    def select(problem: ScanShape, found: list[KernelConfig]) -> list[KernelConfig]:
        wanted = exchange, partial * problem.backward, warps, few
        return [
            config for config in found if (config.exchange, config.partial, config.warps, config.used > 0) == wanted
        ][:8]

    return select


def small(checked: int) -> None:
    for config in CONFIGS:
        for name, dtype in CELLS:
            case = on_gpu(name, 21, 4, 5, width(config), dtype=dtype)
            with override(select=select_config(config), delays=checked):
                case.everything(lambda case=case: case.scan(backend="cuda"))
    for dtype in (torch.float32, torch.bfloat16):
        for name in ("mingru", "lru"):
            case = on_gpu(name, 3, 40, 5, 64, dtype=dtype)
            case.everything(lambda case=case: case.scan(backend="cuda"))
    torch.cuda.synchronize()
    print("small scans done")


def ordering() -> int:
    """One barrier more gives the same bits, one less does not. Clusters first, which are in question."""
    wrong = 0
    for config in sorted(CONFIGS, key=lambda config: CONFIGS[config][0] != CLUSTER):
        for name, dtype in CELLS:
            case = on_gpu(name, 40, 60, 8, width(config), dtype=dtype)
            found = {}
            for checked in (0, EXTRA_BARRIER, MISSING_BARRIER | 1):
                with override(select=select_config(config), delays=checked):
                    found[checked] = case.everything(lambda case=case: case.scan(backend="cuda"))
            same = {
                checked: all(torch.equal(values[key], true) for key, true in found[0].items())
                for checked, values in found.items()
            }
            ordered, planted = same[EXTRA_BARRIER], same[MISSING_BARRIER | 1]
            wrong += not ordered or planted
            more, less = "the same bits" if ordered else "OTHER BITS", "THE SAME BITS" if planted else "other bits"
            print(f"{config}, {name}: one barrier more, {more}; one less, {less}", flush=True)
    return wrong


def repeated(repetitions: int, seconds: float) -> int:
    """The waits of a kernel are drawn from a number that it is compiled with: 16 of them, each many times."""
    wrong = 0
    for config in CONFIGS:
        select, case = select_config(config), on_gpu("lstm", 40, 60, 8, width(config), dtype=torch.bfloat16)
        with override(select=select):
            true = case.everything(lambda case=case: case.scan(backend="cuda"))
        end, done = time.perf_counter() + seconds / len(CONFIGS), 0
        while done < repetitions and time.perf_counter() < end:
            with override(select=select, delays=1 + done % 16):
                found = case.everything(lambda case=case: case.scan(backend="cuda"))
            wrong += any(not torch.equal(found[key], value) for key, value in true.items())
            done += 1
        print(f"{config}: {done} repetitions with waits, {wrong} different", flush=True)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--ordering", action="store_true")
    options = parser.parse_args()
    if options.small:
        small(EXTRA_BARRIER * options.ordered | MISSING_BARRIER * options.planted)
        return 0
    if options.ordering:
        return int(ordering() > 0)
    return int(repeated(options.repetitions, options.seconds) > 0)


if __name__ == "__main__":
    sys.exit(main())

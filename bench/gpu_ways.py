"""The steps of a layer alone, by every way that the estimate thinks likely: what `recur doctor --tune` chooses from,
and how far the estimate is off.

    python -m bench.gpu_ways lstm,bfloat16,64,512 gru,float32,256,1024 --most 24
"""

from __future__ import annotations

import argparse

import torch

from recur.cells import make_cell
from recur.compiler.program_text import text_of
from recur.ops.cuda import persistent
from recur.ops.cuda.choice import candidates, estimate
from recur.ops.cuda.device import device
from recur.ops.cuda.kernel_time import Measured, compile_all
from recur.ops.cuda.way import Problem, Way

STEPS = 256
SHOWN = 6


class Asked:
    """A layer's passes, and their ways."""

    def __init__(self, text: str, most: int, steps: int) -> None:
        name, dtype, B, H = text.split(",")
        self.name, self.dtype = text, getattr(torch, dtype)
        self.cell = text_of(make_cell(name), True)
        self.measured = Measured(self.cell, self.dtype, int(B), steps, int(H))
        self.problems = [persistent.problem(self.measured.lay, backward) for backward in (False, True)]
        here = device(torch.cuda.current_device())
        self.ways: list[list[Way]] = []
        for p in self.problems:
            found = candidates(p, here)
            self.ways.append([way for k, way in enumerate(found) if k < most or way.partial])
        compile_all(self.cell, self.dtype, list(self.requests()), threads=12)

    def requests(self) -> list[tuple[Problem, Way]]:
        return [(p, way) for p, ways in zip(self.problems, self.ways, strict=True) for way in ways]

    def report(self) -> None:
        """The fastest of each pass, and the fastest whose partial sums travel."""
        for p, ways in zip(self.problems, self.ways, strict=True):
            times = {way: self.measured.microseconds(p, way, rounds=3) for way in ways}
            found = sorted((us, k) for k, us in enumerate(times.values()) if us is not None)
            shown = found[:SHOWN] + [pair for pair in found[SHOWN:] if ways[pair[1]].partial][:2]
            print(f"{self.name} {'back' if p.backward else 'forward'}: {len(found)} of {len(ways)} ways fit")
            for us, k in shown:
                way = ways[k]
                kept = f"{way.in_registers} + {way.in_shared} of {way.groups_each(p)} groups, warps_m {way.warps_m}"
                print(f"  {us:7.2f} µs a step, estimate {estimate(way, p) / 1e3:7.2f}, {k:3}  {way.words()}; {kept}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layer", nargs="+", help="cell,dtype,B,H")
    parser.add_argument("--most", type=int, default=24)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    for text in options.layer:
        asked = Asked(text, options.most, options.steps)
        if not options.compile_only:
            asked.report()


if __name__ == "__main__":
    main()

"""Cells without a recurrent product: all steps in one launch, by a thread for each unit of each segment; or by several,
each with a slice of time, where there are too few units to keep the memory busy. kernels/time.cu says how."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from recur.ops.cuda.cache import loaded
from recur.ops.cuda.device import device
from recur.ops.cuda.driver import Launch, Prepared
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.plan import Plan, Work
from recur.ops.cuda.printer import reads, stage
from recur.ops.cuda.source import source

forced_slices: int | None = None
"""Where a step is an affine map: this many slices of time, instead of the plan's; 1 for none. To compare with."""


def fits(lay: Layout) -> str | None:
    """Why it is not for a scan, or None."""
    if lay.assembly.products:
        return "the cell multiplies its state by W"
    if lay.of.clip:
        return "clip needs all units of a step at once"
    return None


def vector_of(lay: Layout, aligned: bool) -> int:
    """How many units a thread takes side by side: two of 16 bits, if they lie in whole 4 bytes."""
    return 2 if aligned and lay.of.dtype.itemsize == 2 and lay.H % 2 == 0 else 1


def work(lay: Layout, backward: bool, train: bool, aligned: bool) -> Work:
    """What a pass has to do."""
    a = lay.assembly
    if backward:
        count = sum(len({*reads(a.back, kind), *reads(a.trace, kind)}) for kind in ("share", "before", "after"))
        count += a.saved + len(a.outputs) + lay.of.weighted
    else:
        count = len(reads(a.train if train else a.use, "share"))
    states = len(stage(a.along_time["back" if backward else "use"])) if a.along_time else 0
    vector = vector_of(lay, aligned)
    return Work(lay.S * lay.H // vector, lay.steps, max(1, count), lay.of.dtype.itemsize, states, vector)


@functools.lru_cache(maxsize=256)
def prepared(lay: Layout, backward: bool, train: bool, aligned: bool, index: int, slices: int | None) -> Prepared:
    """The kernel of a pass. `train`: of one back, whether it is traced. `aligned`: tensors begin at whole 4 bytes."""
    todo = work(lay, backward, train, aligned)
    chosen = Plan.of(todo, device(index), slices)
    a = lay.assembly
    options = {
        **chosen._asdict(),
        "trace" if backward else "train": train,
        "ragged": not lay.uniform,
        "vector": todo.vector,
        "weighted": backward and lay.of.weighted,
    }
    options |= {"outputs": ones(a.outputs), "kept": ones(range(a.states) if train else a.outputs)}
    defined = tuple((name.upper(), int(value)) for name, value in options.items())
    bodies = ("maps", "fetch", "time", "along_back" if backward else "along")
    text = source(lay.of.cell, lay.of.dtype, bodies, defined)
    module = loaded(text, device(index).architecture, index)
    launch = Launch(-(-todo.columns // chosen.units), chosen.threads, chosen.shared(todo))
    return module.function("along_backward" if backward else "along_forward").prepare(launch)


def ones(indices: Iterable[int]) -> int:
    """A number with these bits."""
    return sum(1 << k for k in indices)

"""The whole text of a kernel: what a cell is, its printed programs, and a body that is the same for all cells."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import torch

from recur.compiler.assembly import PROGRAMS, Assembly
from recur.ops.cuda.printer import (
    BACKWARD,
    BACKWARD_MAP,
    FORWARD,
    FORWARD_MAP,
    printed,
    printed_map,
    reads,
    stage,
    writes,
)

KERNELS = Path(__file__).parent / "kernels"
NUMBERS = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2, torch.float16: 3}
"""As prelude.cu has them."""


@functools.lru_cache(maxsize=256)
def load(text: str) -> Assembly:
    """A cell's programs, from their text."""
    return Assembly.loads(text)


@functools.cache
def _file(name: str) -> str:
    return (KERNELS / f"{name}.cu").read_text()


def bits(indices: Sequence[int]) -> str:
    return hex(sum(1 << k for k in indices))


def definitions(a: Assembly) -> dict[str, str | int]:
    """The numbers of a cell, as the kernels' texts call them."""
    places = "".join(f"(r) == {r} ? {place} : " for r, place in enumerate(a.product_places)) + "0"
    outputs = "".join(f"(j) == {j} ? {k} : " for k, j in enumerate(a.outputs)) + "-1"
    return {
        "GATES": a.gates,
        "PRODUCTS": a.products,
        "STATES": a.states,
        "EXTRAS": a.extras,
        "SAVED": a.saved,
        "OWN": a.own,
        "PRODUCT_PLACE(r)": f"({places})",
        "OUTPUTS": len(a.outputs),
        "OUTPUT_PLACE(j)": f"({outputs})",
        "USE_READS_SHARE": bits(reads(a.use, "share")),
        "TRAIN_READS_SHARE": bits(reads(a.train, "share")),
        "TRAIN_WRITES_SHARE": bits(writes(a.train, "share")),
        "BACK_READS_GIVEN": bits(sorted(set(reads(a.trace, "share")) - set(writes(a.train, "share")))),
        "BACK_READS_SHARE": bits(sorted({*reads(a.back, "share"), *reads(a.trace, "share")})),
        "BACK_READS_BEFORE": bits(sorted({*reads(a.back, "before"), *reads(a.trace, "before")})),
        "BACK_READS_AFTER": bits(sorted({*reads(a.back, "after"), *reads(a.trace, "after")})),
    }


def programs(a: Assembly) -> str:
    """The four functions of a cell. Biases' gradients are sums over a matrix, which is there afterwards."""
    made = [printed(f"{name}_step", getattr(a, name), FORWARD) for name in PROGRAMS[:2]]
    made += [printed(f"{name}_step", getattr(a, name), BACKWARD, sums=a.extras) for name in PROGRAMS[2:]]
    return "\n\n".join(made)


def maps(a: Assembly) -> str:
    """A step as an affine map, on the way and on the way back, where it is one: its states, and its function."""
    made: list[str] = []
    for name, which, kinds in (("forward", "use", FORWARD_MAP), ("backward", "back", BACKWARD_MAP)):
        states = stage(a.along_time[which]) if a.along_time else []
        chosen = "".join(f"(i) == {i} ? {j} : " for i, j in enumerate(states)) + "0"
        made.append(f"#define {name.upper()}_STAGE {len(states)}\n#define {name.upper()}_STATE(i) ({chosen})")
        if states:
            made.append(printed_map(f"{name}_map", a.along_time[which], kinds))
    return "\n\n".join(made)


@functools.lru_cache(maxsize=1024)
def source(cell: str, dtype: torch.dtype, bodies: tuple[str, ...], options: tuple[tuple[str, int], ...] = ()) -> str:
    """A cell's kernels in one text. `bodies`: files of kernels/, or "maps"; `options`: what they are built with."""
    a = load(cell)
    fast = dtype in (torch.bfloat16, torch.float16)
    defined = {"NUM": NUMBERS[dtype], "FAST": int(fast), **definitions(a), **dict(options)}
    head = "\n".join(f"#define {name} {value}" for name, value in defined.items())
    parts = [
        head,
        _file("prelude"),
        _file("arguments"),
        programs(a),
        *(maps(a) if name == "maps" else _file(name) for name in bodies),
    ]
    return "\n\n".join(parts)

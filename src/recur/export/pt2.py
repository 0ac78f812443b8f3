"""Programs of torch.export that open where there is no recur: `torch.export.load("model.pt2").module()`.

Scans are PyTorch's own layers or its `scan` (aten.py). What a model says of itself lies in the archive beside it, one
text for each key.
"""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch.export import ExportedProgram

from recur.export import Options, Written
from recur.export.aten import without_recur
from recur.export.compare import Run, check, largest_difference
from recur.export.graphs import Portable, quiet
from recur.export.parts import metadata, place, signature, wanted
from recur.files import write_atomically

TAKES: set[str] = set()


def write(portable: Portable, path: Path, options: Options) -> Written:
    graphs, positive = wanted(portable), bool(portable.settings.get("positive"))
    made: dict[Path, bytes] = {}
    difference = 0.0
    for name, graph in graphs.items():
        where = place(path, name, graphs)
        made[where] = program_bytes(without_recur(graph.program), metadata(portable, graph))
        difference = max(difference, check(largest_difference(graph, opened(made[where]), positive), where.name))
    for where, content in made.items():
        write_atomically(where, content)
    return Written(
        tuple(made),
        sum(map(len, made.values())),
        difference,
        "; ".join(map(signature, graphs.values())),
        f'torch.export.load("{next(iter(made)).name}").module()(…), a tensor for each input',
        portable.notes,
    )


def program_bytes(program: ExportedProgram, said: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with quiet("torch._export"):
        torch.export.save(program, out, extra_files=said)
    return out.getvalue()


def opened(content: bytes) -> Run:
    """The program, as it is read from a file."""
    with quiet("torch._export"):
        module = torch.export.load(io.BytesIO(content)).module()
    return lambda given: module(*given)

"""Export to torch.export: programs that load without recur, `torch.export.load("model.pt2").module()`.

A recognized cell becomes PyTorch's own layer; any other becomes its program inside PyTorch's `scan`, which torch.onnx
translates as well. The metadata is stored in the archive, one text per key.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.scan import scan_op
from torch.export import ExportedProgram
from torch.nn.functional import linear

from recur.compiler.assembly import Assembly
from recur.compiler.expressions import OPERATIONS
from recur.export import ExportOptions, ExportResult
from recur.export.artifacts import (
    GraphRunner,
    check_difference,
    graph_path,
    graphs_to_write,
    keep_files,
    largest_difference,
    metadata,
    signature,
)
from recur.export.fused_layers import CELL_KINDS, LAYER, SCAN, fuse_layers, interpret
from recur.export.graphs import PortableModel, silence_torch
from recur.ops.cpu.grid import LIBRARY

LAYERS = {
    "lstm": torch.ops.aten.lstm.input,
    "gru": torch.ops.aten.gru.input,
    "rnn_tanh": torch.ops.aten.rnn_tanh.input,
    "rnn_relu": torch.ops.aten.rnn_relu.input,
}
"""PyTorch's recurrent layers by kind of cell."""

PLACEHOLDERS = {kind: f"aten_{kind}" for kind in LAYERS}
"""Operators that stand for PyTorch's layers until a program is finished. When PyTorch traces its own layer it unrolls
every step, for one length only."""

for _kind, _layer in LAYERS.items():
    LIBRARY.define(f"{PLACEHOLDERS[_kind]}{str(_layer._schema).removeprefix(_layer._schema.name + '.input')}")


def _shapes(data: Tensor, hidden: Any, weights: Sequence[Tensor], *options: Any) -> tuple[Tensor, ...]:
    hidden = hidden if isinstance(hidden, list | tuple) else [hidden]
    ways, B, H = hidden[0].shape
    return data.new_empty(B, data.shape[1], ways * H), *(part.new_empty(ways, B, H) for part in hidden)


for _name in PLACEHOLDERS.values():
    torch.library.register_fake(f"recur::{_name}", _shapes, lib=LIBRARY)


KEPT_METADATA = ("val", "tensor_meta")
"""Metadata of a node that is kept; source file names and lines are removed."""


def replace_recur_operators(program: ExportedProgram) -> ExportedProgram:
    """Return the program in PyTorch's own operations."""
    program = decompose(fuse_layers(program, LAYERS), {SCAN: scan_with_torch, LAYER: layer_with_torch})
    own = {getattr(torch.ops.recur, name).default: LAYERS[kind] for kind, name in PLACEHOLDERS.items()}
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.target = own.get(node.target, node.target)
                node.meta = {name: value for name, value in node.meta.items() if name in KEPT_METADATA}
            module.recompile()
    return program


def decompose(program: ExportedProgram, table: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    """Return the program with these operators, and no others, replaced by these functions."""
    with torch.no_grad(), silence_torch("torch.export"):
        found: ExportedProgram = program.run_decompositions(table)
    return found


def scan_with_torch(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    mask: Tensor | None,
    xi: Tensor | None,
    sizes: Sequence[int],
    batch_major: bool,
    clip: float,
    cell: str,
    products: str,
    train: bool,
) -> list[Tensor]:
    """Implement `recur::scan` on whole rows by PyTorch's `scan` over the cell's program."""
    assert batch_major, "expected batch-major data"
    assert mask is None, "expected no mask"
    a = Assembly.loads(cell)
    named = dict(zip(a.weight_names(len(weights)), weights, strict=True))
    H, rows = weights[0].shape[0] // a.gates, data.shape[0]
    if not state:
        first = named["weight_hr"].shape[0] if "weight_hr" in named else H
        state = [data.new_zeros(rows, width) for width in (first, *[H] * (a.states - 1))]
    shares = linear(data, named["weight_ih"], named.get("bias_ih")).transpose(0, 1)
    inside: list[str] = [name for name in ("weight_hh", "bias_hh", "weight_hr") if name in named]

    def step(*given: Tensor) -> list[Tensor]:
        before, share, rest = given[: a.states], given[a.states], given[a.states + 1 :]
        own = dict(zip(inside, rest, strict=False))
        product = _product(before[0], a, own)
        places = {
            "share": share.split(H, dim=-1),
            "product": () if product is None else product.split(H, dim=-1),
            "before": before,
            "extra": rest[len(inside) :],
        }
        after = interpret(a.use, places, lambda value: share.new_full((), value), lambda op, *v: OPERATIONS[op](*v))
        after = [part.expand_as(share[:, :H]) for part in after]
        if "weight_hr" in own:
            after[0] = linear(after[0], own["weight_hr"])
        # torch.scan forbids outputs that alias inputs or each other.
        return [part.clone() for part in (*after, *(after[k] for k in a.outputs))]

    found = scan_op(step, list(state), [shares], (*(named[name] for name in inside), *extras))
    return [*(part.transpose(0, 1) for part in found[a.states :]), *found[: a.states]]


def _product(h: Tensor, a: Assembly, own: dict[str, Tensor]) -> Tensor | None:
    """Return W h + b_h of all gates."""
    if not a.products:
        return None
    W, b_h = own["weight_hh"], own.get("bias_hh")
    if a.heads == 1:
        return linear(h, W, b_h)
    blocks = W.unflatten(0, (a.products, a.heads, -1))
    product = torch.einsum("bnk,rnuk->brnu", h.unflatten(-1, (a.heads, -1)), blocks).flatten(1)
    return product if b_h is None else product + b_h


def layer_with_torch(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    kind: str,
    direction: str,
) -> list[Tensor]:
    """Implement `recur::layer` by PyTorch's layer."""
    both, H, states = direction == "bidirectional", weights[1].shape[1], len(CELL_KINDS[kind].states)
    ways = 2 if both else 1
    if not state:
        state = [data.new_zeros(data.shape[0], H) for _ in range(ways * states)]
    hidden = [torch.stack(list(state[k::states])) for k in range(states)]  # (ways, B, H)
    biased = len(weights) == 4 * ways
    reverse = direction == "reverse"
    given = data.flip(1) if reverse else data
    options = (list(weights), biased, 1, 0.0, False, both, True)
    layer = getattr(torch.ops.recur, PLACEHOLDERS[kind])
    outputs, *finals = layer(given, hidden if states > 1 else hidden[0], *options)
    return [outputs.flip(1) if reverse else outputs, *(final[way] for way in range(ways) for final in finals)]


TAKES: set[str] = set()


def write(portable: PortableModel, path: Path, options: ExportOptions) -> ExportResult:
    graphs, positive = graphs_to_write(portable), bool(portable.settings.get("positive"))
    made: dict[Path, bytes] = {}
    difference = 0.0
    for name, graph in graphs.items():
        where = graph_path(path, name, graphs)
        made[where] = program_bytes(replace_recur_operators(graph.program), metadata(portable, graph))
        difference = max(
            difference, check_difference(largest_difference(graph, run_program(made[where]), positive), where.name)
        )
    keep_files(made)
    return ExportResult(
        tuple(made),
        sum(map(len, made.values())),
        difference,
        "; ".join(map(signature, graphs.values())),
        f'torch.export.load("{next(iter(made)).name}").module()(…), one tensor per input',
        portable.notes,
    )


def program_bytes(program: ExportedProgram, said: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with silence_torch("torch._export"):
        torch.export.save(program, out, extra_files=said)
    return out.getvalue()


def run_program(content: bytes) -> GraphRunner:
    """Load a program from its bytes and return it as a runner."""
    with silence_torch("torch._export"):
        module = torch.export.load(io.BytesIO(content)).module()
    return lambda given: module(*given)

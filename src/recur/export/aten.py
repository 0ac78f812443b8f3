"""A scan in PyTorch's own operations, for programs that have no recur.

Known cells become PyTorch's layers, where it has them; any other its program, step by step, inside PyTorch's `scan`,
which torch.onnx knows as ONNX's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.scan import scan_op
from torch.export import ExportedProgram
from torch.nn.functional import linear

from recur.compiler.assembly import Assembly
from recur.compiler.expressions import OPERATIONS
from recur.export.graphs import quiet
from recur.export.interpret import interpret
from recur.export.known import KINDS, LAYER, SCAN, with_layers
from recur.ops.operator import LIBRARY

LAYERS = {
    "lstm": torch.ops.aten.lstm.input,
    "gru": torch.ops.aten.gru.input,
    "rnn_tanh": torch.ops.aten.rnn_tanh.input,
    "rnn_relu": torch.ops.aten.rnn_relu.input,
}
"""PyTorch's own, by the kinds of cells that they are."""

STANDING_IN = {kind: f"aten_{kind}" for kind in LAYERS}
"""Operators with the same arguments, which take their place until a program is finished: whenever PyTorch follows a
layer of its own, it writes down each of its steps, for one length only."""

for _kind, _layer in LAYERS.items():
    LIBRARY.define(f"{STANDING_IN[_kind]}{str(_layer._schema).removeprefix(_layer._schema.name + '.input')}")


def _shapes(data: Tensor, hidden: Any, weights: Sequence[Tensor], *options: Any) -> tuple[Tensor, ...]:
    hidden = hidden if isinstance(hidden, list | tuple) else [hidden]
    ways, B, H = hidden[0].shape
    return data.new_empty(B, data.shape[1], ways * H), *(part.new_empty(ways, B, H) for part in hidden)


for _name in STANDING_IN.values():
    torch.library.register_fake(f"recur::{_name}", _shapes, lib=LIBRARY)


KEPT = ("val", "tensor_meta")
"""What a node of a program has to say beside its operation: not from which line of which file it came."""


def without_recur(program: ExportedProgram) -> ExportedProgram:
    """The same program in PyTorch's own operations."""
    program = decomposed(with_layers(program, LAYERS), {SCAN: scanned, LAYER: layered})
    own = {getattr(torch.ops.recur, name).default: LAYERS[kind] for kind, name in STANDING_IN.items()}
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                node.target = own.get(node.target, node.target)
                node.meta = {name: value for name, value in node.meta.items() if name in KEPT}
            module.recompile()
    return program


def decomposed(program: ExportedProgram, table: dict[Any, Callable[..., Any]]) -> ExportedProgram:
    """The program with these operators replaced by what these functions do, and no other."""
    with torch.no_grad(), quiet("torch.export"):
        found: ExportedProgram = program.run_decompositions(table)
    return found


def scanned(
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
    """`recur::scan` on whole rows, by PyTorch's `scan` over the cell's program."""
    assert batch_major, "what is exported reads whole rows"
    assert mask is None, "what is exported drops nothing"
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
        # What a step returns may be none of what it was given, nor the same twice.
        return [part.clone() for part in (*after, *(after[k] for k in a.outputs))]

    found = scan_op(step, list(state), [shares], (*(named[name] for name in inside), *extras))
    return [*(part.transpose(0, 1) for part in found[a.states :]), *found[: a.states]]


def _product(h: Tensor, a: Assembly, own: dict[str, Tensor]) -> Tensor | None:
    """W h + b_h of all gates."""
    if not a.products:
        return None
    W, b_h = own["weight_hh"], own.get("bias_hh")
    if a.heads == 1:
        return linear(h, W, b_h)
    blocks = W.unflatten(0, (a.products, a.heads, -1))
    product = torch.einsum("bnk,rnuk->brnu", h.unflatten(-1, (a.heads, -1)), blocks).flatten(1)
    return product if b_h is None else product + b_h


def layered(
    data: Tensor,
    weights: Sequence[Tensor],
    extras: Sequence[Tensor],
    state: Sequence[Tensor],
    kind: str,
    direction: str,
) -> list[Tensor]:
    """`recur::layer` by PyTorch's own."""
    both, H, states = direction == "bidirectional", weights[1].shape[1], len(KINDS[kind].states)
    ways = 2 if both else 1
    if not state:
        state = [data.new_zeros(data.shape[0], H) for _ in range(ways * states)]
    hidden = [torch.stack(list(state[k::states])) for k in range(states)]  # (ways, B, H)
    biased = len(weights) == 4 * ways
    reverse = direction == "reverse"
    given = data.flip(1) if reverse else data
    options = (list(weights), biased, 1, 0.0, False, both, True)
    layer = getattr(torch.ops.recur, STANDING_IN[kind])
    outputs, *finals = layer(given, hidden if states > 1 else hidden[0], *options)
    return [outputs.flip(1) if reverse else outputs, *(final[way] for way in range(ways) for final in finals)]

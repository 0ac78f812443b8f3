"""The backward pass of scans of one form: all that does not depend on where tensors lie is found out once.

After the steps, the gradients of x, U and W are products with the gradients of U x and W h, and those of biases and of
a cell's own weights are sums of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.ops.cuda import around, steps
from recur.ops.cuda.after import After, Asked, first_state, states_of
from recur.ops.cuda.arguments import BACKWARD, SUMMED, Template
from recur.ops.cuda.driver import current_stream
from recur.ops.cuda.launches import Kernel, Multiplication, workspace_of
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.operands import Operands, multiply, precision
from recur.ops.cuda.passes import AFTER, FILLS, STEPS, Pass
from recur.ops.cuda.results import Gradients, Results
from recur.ops.cuda.scratch import Chosen, Places, Scratch

Tensors = list[Tensor]


class Bound(NamedTuple):
    """A call's tensors, ready for its launches."""

    ready: Tensors
    """What it is given, outputs, what was saved, and gradients that arrive."""
    found: dict[str, Tensor]
    addresses: list[int]
    alive: list[object]
    """What has to outlive the launches."""


class Backward(Pass):
    def __init__(
        self, lay: Layout, asked: Asked, index: int, tf32: bool, chosen: Chosen | None, reverse: bool = False
    ) -> None:
        """`reverse`: of a scan from the end, launched together with one from the start, to whose gradient of x it adds
        its own."""
        of, a = lay.of, lay.assembly
        super().__init__(lay, index, chosen, backward=True, variant=asked.traced)
        self._reverse, self._asked = reverse, asked
        self._places = places = Places()
        places.add("data", *lay.names, *(f"extra{k}" for k in range(of.extras)))
        places.add(*(f"initial{k}" for k in range(of.states)))
        places.add(*(["mask"] if of.masked else []), *(["xi"] if of.weighted else []))
        places.add(*(f"output{k}" for k in range(len(lay.outputs))), *(f"saved {name}" for name in lay.saved))
        places.add(*(f"arriving{k}" for k, came in enumerate(asked.arriving) if came))
        self._shapes = self._memory()
        places.add(*(f"d_{name}" for name in self._shapes), *(["d_data"] if asked.for_data and reverse else []))
        if asked.overwrite and "share" in lay.saved:
            self._d_share = places["saved share"]
        else:
            self._d_share = places["d_share"]
        places.add("packed xi", "offset", "length", *Scratch.NAMES, "before", "null")
        biases = [places.get("d_bias_ih"), places.get("d_bias_hh")]
        self._adds_up = max(biases) >= 0 or of.extras > 0
        self._splits = around.splits_of(lay, index) if self._adds_up else 1
        self._sums = Template(
            a, SUMMED,
            {
                "d_share": self._d_share, "d_own": places.get("d_own"), "sums": places.get("d_sums"),
                "partial": places["partial"], "tickets": places["tickets"], "d_bias_ih": biases[0],
                "d_bias_hh": biases[1], "d_extra": places.some("d_extra", of.extras),
            },
            H=lay.H, S=lay.S, N=lay.N, splits=self._splits,
        )  # fmt: skip
        self._gradient_products = After(lay, asked, places, self._d_share, tf32, reverse, chosen is not None)
        workspace = workspace_of(one.product for one in self._gradient_products.all)
        scratch = Scratch(lay, index, chosen, places, workspace, self._splits)
        self._ready(places, self._steps_template(), scratch)

    def _memory(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """What is made: gradients, and what they are made of."""
        lay, asked = self.lay, self._asked
        of, a, number = lay.of, lay.assembly, lay.of.dtype
        G = a.gates * lay.H
        made: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        if asked.for_data and not self._reverse:
            made["data"] = (lay.N, lay.D), number
        shapes = {
            "weight_ih": (G, lay.D), "weight_hh": (a.products * lay.H, lay.P or lay.H), "bias_ih": (G,),
            "bias_hh": (a.products * lay.H,), "weight_hr": (lay.P, lay.H),
        }  # fmt: skip
        made |= {name: (shapes[name], number) for name in lay.names}
        made |= {f"extra{k}": ((lay.H,), number) for k in range(of.extras)}
        if asked.for_state and not self.by_steps:
            made |= {f"carry{j}": ((lay.S, width), lay.real) for j, width in enumerate(lay.widths)}
        if not (asked.overwrite and "share" in lay.saved):
            made["share"] = (lay.N, G), number
        if a.own:
            made["own"] = (lay.N, a.own * lay.H), number
        if a.extras:
            made["sums"] = (lay.S, a.extras * lay.H), lay.real
        if lay.P:
            made["projected"] = (lay.N, lay.P), number
        if asked.traced:
            made |= {f"state{j}": ((lay.N, lay.H), number) for j in range(a.states)}
        return made

    def _steps_template(self) -> Template:
        lay, places = self.lay, self._places
        of, a = lay.of, lay.assembly
        at = {j: places.get(f"arriving{k}") for k, j in enumerate(a.outputs)}
        where: dict[str, int | Sequence[int]] = {
            "share": places.get("saved share"), "tape": places.get("saved tape"), "state": states_of(lay, places),
            "initial": places.some("initial", a.states), "extra": places.some("extra", of.extras),
            "d_outputs": [at.get(j, -1) for j in range(a.states)],
            "d_final": [places.get(f"arriving{len(lay.outputs) + j}") for j in range(a.states)],
            "d_share": self._d_share, "d_own": places.get("d_own"), "d_state": places.some("d_state", a.states),
            "sums": places.get("d_sums"), "carry": places.some("d_carry", a.states),
        }  # fmt: skip
        if of.weighted:
            where["xi"] = places["packed xi"]
        if not lay.assembly.products:  # other ways save what they read with its bias
            where["input_bias"] = places.get("bias_ih")
        if not lay.uniform:
            where |= {"offset": places["offset"], "length": places["length"]}
        if self._chosen is not None:
            where |= {"mask": places.get("mask"), "W": places["laid"], "exchange": places["exchange"]}
            where["arrived"] = places["arrived"]
        return Template(a, BACKWARD, where, steps=lay.steps, S=lay.S, H=lay.H, reversed=int(self._reverse))

    # A call -------------------------------------------------------------------------------------------------

    def bind(self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], d_data: Tensor | None = None) -> Bound:
        lay, of, n = self.lay, self.lay.of, len(self.lay.outputs)
        packed, given = lay.packed, of.given
        ready = [packed(kept[0]), *[part.contiguous() for part in kept[1:given]]]
        ready += [packed(part) for part in kept[given : given + n]]
        ready += kept[given + n :]
        ready += [packed(part) for part in gradients[:n] if part is not None]
        ready += [part.contiguous() for part in gradients[n:] if part is not None]
        empty, number = kept[0].new_empty, of.dtype
        found = {
            name: empty(shape) if dtype is number else empty(shape, dtype=dtype)
            for name, (shape, dtype) in self._shapes.items()
        }
        addresses = [part.data_ptr() for part in ready]
        if d_data is not None:
            found["data"] = d_data
        addresses += [part.data_ptr() for part in found.values()]
        xi = Operands(lay, kept[:given]).xi if of.weighted else None
        order: tuple[Tensor | None, Tensor | None] = (None, None) if lay.uniform else lay.order(kept[0].device)
        addresses += [0 if part is None else part.data_ptr() for part in (xi, *order)]
        W = addresses[self._W] if self._chosen is not None else 0
        memory, parts = self._scratch.take(kept[0], W)
        addresses += (*parts, 0, 0)
        bound = Bound(ready, found, addresses, [xi, order, memory])
        if lay.assembly.products and not self._gradient_products.plain:
            bound.alive.append(before := Operands(lay, kept[:given]).before(self._first(bound)))
            addresses[self._places["before"]] = before.data_ptr()
        return bound

    def __call__(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], Tensors]:
        """The gradients of all that a scan is given, in the operator's order; and what a trace records."""
        bound = self.bind(kept, gradients)
        addresses = bound.addresses
        if not self.by_steps:
            self.launches(addresses, FILLS, STEPS, AFTER)(addresses)
            return self.end(kept, bound)
        self.launches(addresses, FILLS)(addresses)
        carried = self.step_by_step(kept, gradients, bound)
        self.launches(addresses, AFTER)(addresses)
        return self.end(kept, bound, carried)

    def _products(self) -> Sequence[Kernel | Multiplication]:
        lay, of = self.lay, self.lay.of
        if not self._adds_up:
            return [*self._gradient_products.all]
        grid = around.blocks_of(lay) * self._splits
        return [*self._gradient_products.all, Kernel(around.add_up(of.cell, of.dtype, grid, self._index), self._sums)]

    def together(
        self,
        kept: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        other: Backward,
        others: Sequence[Tensor],
        their_gradients: Sequence[Tensor | None],
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """This pass and that of a scan in the other direction of the same x: their steps in one launch. The first has
        the gradient of x."""
        assert self._chosen is not None
        here = self.bind(kept, gradients)
        there = other.bind(others, their_gradients, here.found.get("data"))
        sides = (self, here.addresses), (other, there.addresses)
        for one, addresses in sides:
            one.launches(addresses, FILLS)(addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].packed(current_stream(self._index), arguments)
        for one, addresses in sides:
            one.launches(addresses, AFTER)(addresses)
        return self.end(kept, here)[0], other.end(others, there)[0]

    def end(
        self, kept: Sequence[Tensor], bound: Bound, carried: Sequence[Tensor] | None = None
    ) -> tuple[list[Tensor | None], Tensors]:
        """What a call returns."""
        lay, found = self.lay, bound.found
        if carried is None:
            carried = [found[f"carry{j}"] for j in range(lay.assembly.states)] if self._asked.for_state else []
        return self._gradients(kept, bound, carried), self._recorded(bound) if self._asked.traced else []

    def _d(self, bound: Bound) -> Tensor:
        """The gradients of U x + b, (N, …)."""
        found = bound.found.get("share")
        return bound.ready[self._d_share] if found is None else found

    def _first(self, bound: Bound) -> Tensor:
        """The first state after every step, (N, …)."""
        lay, width = self.lay, self.lay.P or self.lay.H
        return _flat(lay, bound.ready[first_state(lay, self._places)], width)

    def step_by_step(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], bound: Bound
    ) -> Sequence[Tensor]:
        """The steps, a launch each; what reaches the states before them."""
        lay, of, n, found = self.lay, self.lay.of, len(self.lay.outputs), bound.found
        outputs = [lay.by_step(part) for part in kept[of.given : of.given + n]]
        results = Results(lay, outputs, (), kept[of.given + n :])
        arriving = [*gradients, *[None] * (n + lay.assembly.states - len(gradients))]
        into = Gradients(lay, arriving, self._d(bound), found)
        steps.backward(Operands(lay, kept[: of.given]), results, into, self._asked.traced)
        return into.carried

    def _gradients(self, kept: Sequence[Tensor], bound: Bound, carried: Sequence[Tensor]) -> list[Tensor | None]:
        lay, of, found = self.lay, self.lay.of, bound.found
        every: list[Tensor | None] = [None] * of.given
        if self._asked.for_data:
            every[0] = lay.by_row(found["data"])
        at = 1 + of.weights
        every[1:at] = [found[name] for name in lay.names]
        if lay.assembly.products and lay.steps == 1 and not of.states and self._gradient_products.plain:
            found["weight_hh"].zero_()
        if lay.assembly.heads > 1:
            k = 1 + lay.names.index("weight_hh")
            every[k] = Operands(lay, kept[: of.given]).of_heads(found["weight_hh"])
        every[at : at + of.extras] = [found[f"extra{k}"] for k in range(of.extras)]
        at += of.extras
        if self._asked.for_state and of.states:
            if self._chosen is not None and not self._gradient_products.carries:
                ops = Operands(lay, kept[: of.given])
                first = torch.cat([part[: lay.S] for part in self._of_products(bound)], dim=1)
                with precision(of.dtype):
                    steps.carry_back(ops, carried, multiply(first, ops.W, lay.real), lay.S, 0)
            every[at : at + of.states] = [part.to(of.dtype) for part in carried]
        return every

    def _of_products(self, bound: Bound) -> Tensors:
        """The gradients of W h, (N, …), piece after piece."""
        H = self.lay.H
        sources = [bound.found["own"] if piece.own else self._d(bound) for piece in self._gradient_products.pieces]
        return [
            source[:, piece.place * H : (piece.place + piece.many) * H]
            for source, piece in zip(sources, self._gradient_products.pieces, strict=True)
        ]

    def _recorded(self, bound: Bound) -> Tensors:
        """In the caller's order."""
        lay, found = self.lay, bound.found
        states = [found["projected" if lay.P and j == 0 else f"state{j}"] for j in range(lay.assembly.states)]
        products, d = self._of_products(bound), self._d(bound)
        packed = [*states, d, torch.cat(products, dim=1) if products else d.new_empty(lay.N, 0)]
        return [lay.by_row(part).reshape(lay.N, -1).clone() for part in packed]


def _flat(lay: Layout, packed: Tensor, width: int) -> Tensor:
    """(N, width), of memory that goes step after step."""
    return packed if packed.dim() == 2 else packed.transpose(0, 1).reshape(lay.N, width)

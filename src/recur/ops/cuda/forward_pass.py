"""The forward pass of scans of one form: all that does not depend on where tensors lie is found out once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from recur.ops.cuda import steps
from recur.ops.cuda.arguments import FORWARD, Template
from recur.ops.cuda.blas import Side
from recur.ops.cuda.driver import current_stream
from recur.ops.cuda.launches import Kernel, Multiplication, workspace_of
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.operands import Operands
from recur.ops.cuda.passes import FILLS, SHARES, STEPS, Pass
from recur.ops.cuda.results import Results
from recur.ops.cuda.scratch import Chosen, Places, Scratch, product


class Bound(NamedTuple):
    """A call's tensors, ready for its launches."""

    made: list[Tensor]
    """Outputs, final states and what is saved."""
    addresses: list[int]
    alive: object
    """What has to outlive the launches."""


class Forward(Pass):
    """`chosen`: the way that carries all steps in one launch; without one a cell without a product goes along time, and
    others take one step a launch."""

    def __init__(
        self, lay: Layout, train: bool, index: int, tf32: bool, chosen: Chosen | None, reverse: bool = False
    ) -> None:
        """`reverse`: from the end, of a scan that is launched together with one from the start."""
        of, a = lay.of, lay.assembly
        super().__init__(lay, index, chosen, backward=False, variant=train)
        saved = lay.saved if train else {}
        self._shapes = [*lay.outputs, *lay.finals, *saved.values()]
        self._returned = len(self._shapes)
        places = Places()
        places.add("data", *lay.names, *(f"extra{k}" for k in range(of.extras)))
        places.add(*(f"initial{k}" for k in range(of.states)))
        places.add(*(["mask"] if of.masked else []), *(["xi"] if of.weighted else []))
        places.add(*(f"output{k}" for k in range(len(lay.outputs))), *(f"final{k}" for k in range(len(lay.finals))))
        places.add(*(f"saved {name}" for name in saved))
        if "share" not in saved:
            self._shapes.append((lay.N, a.gates * lay.H))
            places.add("saved share")
        places.add("offset", "length", *Scratch.NAMES, "null")
        self._share = places["saved share"]
        states = [
            places.get(f"saved {source}") if isinstance(source, str) else places[f"output{source}"]
            for source in lay.sources
        ]
        where: dict[str, int | Sequence[int]] = {
            "share": self._share, "tape": places.get("saved tape"), "state": states,
            "final_state": places.some("final", a.states), "initial": places.some("initial", a.states),
            "extra": places.some("extra", of.extras), "input_bias": places.get("bias_ih"),
        }  # fmt: skip
        if not lay.uniform:
            where |= {"offset": places["offset"], "length": places["length"]}
        if chosen is not None:
            where |= {"bias": places.get("bias_hh"), "mask": places.get("mask")}
            where |= {"W": places["laid"], "exchange": places["exchange"], "arrived": places["arrived"]}
        template = Template(a, FORWARD, where, steps=lay.steps, S=lay.S, H=lay.H, reversed=int(reverse))
        G = a.gates * lay.H
        shares = product(lay, (lay.N, G, lay.D), Side(lay.D), Side(lay.D, True), G, tf32)
        self._input = Multiplication(shares, (places["data"], 0), (places["weight_ih"], 0), (self._share, 0))
        self._ready(places, template, Scratch(lay, index, chosen, places, workspace_of([shares])))

    def bind(self, given: Sequence[Tensor]) -> Bound:
        lay = self.lay
        ready = [lay.packed(given[0]), *[part.contiguous() for part in given[1:]]]
        empty = given[0].new_empty
        made = [empty(shape) for shape in self._shapes]
        addresses = [part.data_ptr() for part in (*ready, *made)]
        order: tuple[Tensor | None, Tensor | None] = None, None
        if lay.uniform:
            addresses += (0, 0)
        else:
            order = lay.order(given[0].device)
            addresses += [0 if part is None else part.data_ptr() for part in order]
        W = addresses[self._W] if self._chosen is not None else 0
        memory, parts = self._scratch.take(given[0], W)
        addresses += (*parts, 0)
        return Bound(made, addresses, (ready, order, memory))

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        bound = self.bind(given)
        self.launches(bound.addresses, SHARES, FILLS, STEPS)(bound.addresses)
        if self.by_steps:
            self.step_by_step(given, bound.made)
        return self.end(bound)

    def _products(self) -> Sequence[Kernel | Multiplication]:
        return [self._input]

    def end(self, bound: Bound) -> list[Tensor]:
        return self.lay.shown(bound.made[: self._returned])

    def together(self, given: Sequence[Tensor], other: Forward, others: Sequence[Tensor]) -> list[Tensor]:
        """This scan and one in the other direction: their steps in one launch."""
        assert self._chosen is not None
        here, there = self.bind(given), other.bind(others)
        for one, bound in ((self, here), (other, there)):
            one.launches(bound.addresses, SHARES, FILLS)(bound.addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].packed(current_stream(self._index), arguments)
        return [*self.end(here), *other.end(there)]

    def step_by_step(self, given: Sequence[Tensor], made: list[Tensor]) -> None:
        """The steps, a launch each."""
        lay, n, m = self.lay, len(self.lay.outputs), len(self.lay.finals)
        ops = Operands(lay, given)
        saved = made[n + m : self._returned]
        results = Results(lay, made[:n], made[n : n + m], saved)
        results.share = made[self._returned] if len(made) > self._returned else results.share
        assert results.share is not None
        if ops.bias_ih is not None:
            results.share += ops.bias_ih
        steps.forward(ops, results, self._variant)

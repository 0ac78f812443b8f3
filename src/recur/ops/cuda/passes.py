"""What both passes of a scan have in common: their launches, put together once for each form of call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from recur.ops.cuda import along
from recur.ops.cuda.arguments import Template
from recur.ops.cuda.driver import Prepared
from recur.ops.cuda.launches import Kernel, Launches, Multiplication
from recur.ops.cuda.memory import Layout
from recur.ops.cuda.scratch import Chosen, Places, Scratch

SHARES, FILLS, STEPS, AFTER = "shares", "fills", "steps", "after"
"""The parts of a pass: U x of all steps; memory that is filled before the steps; the steps, where they are one launch;
and what is made of their gradients."""


class Pass(ABC):
    """`backward`, `variant`: whether it goes back; whether it is for training, or traced."""

    def __init__(self, lay: Layout, index: int, chosen: Chosen | None, backward: bool, variant: bool) -> None:
        self.lay, self._index, self._chosen = lay, index, chosen
        self._backward, self._variant = backward, variant
        self.by_steps = chosen is None and along.fits(lay) is not None
        """Whether each step is a launch of its own."""
        self._made: dict[tuple[object, ...], Launches] = {}

    def _ready(self, places: Places, template: Template, scratch: Scratch) -> None:
        self._template, self._scratch = template, scratch
        self._W, self._laid, self._workspace = places.get("weight_hh"), places["laid"], places["workspace"]

    def launches(self, addresses: Sequence[int], *parts: str) -> Launches:
        """Those of these parts, for tensors that lie there."""
        kernel, lays_out = self._kernel(addresses), False
        if self._chosen is not None:
            lays_out = addresses[self._laid] != addresses[self._W]
        key = kernel, lays_out, parts
        if key not in self._made:
            all = [one for part in parts for one in self._part(part, kernel, lays_out)]
            self._made[key] = Launches(self._index, all, self._workspace)
        return self._made[key]

    def _kernel(self, addresses: Sequence[int]) -> Prepared | None:
        """That of all steps, if there is one."""
        if self._chosen is not None:
            return self._chosen[2]
        if self.by_steps:
            return None
        aligned = self._template.aligned(addresses, 4)
        return along.prepared(self.lay, self._backward, self._variant, aligned, self._index, along.forced_slices)

    def _part(self, part: str, kernel: Prepared | None, lays_out: bool) -> Sequence[Kernel | Multiplication]:
        if part == FILLS:
            return self._scratch.fills(lays_out)
        if part == STEPS:
            return [] if kernel is None else [Kernel(kernel, self._template)]
        return self._products()

    @abstractmethod
    def _products(self) -> Sequence[Kernel | Multiplication]:
        """Those before the steps, or those after them and what else is made of gradients."""

"""Forward and backward pass of a scan, prepared once per call signature.

Everything that does not depend on addresses is computed once: kernels, argument structs, shapes and matmuls. After the
steps of the backward pass, the gradients of x, U and W are matmuls with the gradients of U x and W h; the gradients of
biases and extra weights are sums of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.compat import current_raw_stream
from recur.ops.cuda import launches, per_step, persistent
from recur.ops.cuda.blas import Matmul, MatmulOperand
from recur.ops.cuda.codegen import BACKWARD_FIELDS, FORWARD_FIELDS, REDUCE_FIELDS, ArgTemplate
from recur.ops.cuda.config import active_overrides
from recur.ops.cuda.driver import PreparedKernel
from recur.ops.cuda.launches import (
    AddressOffset,
    ArgSlots,
    ChosenKernel,
    KernelLaunch,
    LaunchList,
    MatmulLaunch,
    ScratchMemory,
    make_matmul,
    max_workspace,
)
from recur.ops.cuda.layout import ScanGradients, ScanLayout, ScanOperands, ScanResults, float32_precision, multiply

INPUT_PROJECTION, PACK, STEPS, GRADIENT_MATMULS = "shares", "fills", "steps", "after"
"""Parts of a pass: the matmul U x of all steps; launches that fill scratch memory; the steps, if they are one launch;
the matmuls and sums after them.
"""


class ScanPass(ABC):
    """Pass of a scan. `variant`: training in the forward pass, traced in the backward pass."""

    def __init__(
        self, layout: ScanLayout, index: int, chosen: ChosenKernel | None, backward: bool, variant: bool
    ) -> None:
        self.layout, self._index, self._chosen = layout, index, chosen
        self._backward, self._variant = backward, variant
        self.by_steps = chosen is None and persistent.elementwise_unsupported(layout) is not None
        """Whether there is one launch per step."""
        self._made: dict[tuple[object, ...], LaunchList] = {}

    def _ready(self, slots: ArgSlots, template: ArgTemplate, scratch: ScratchMemory) -> None:
        self._template, self._scratch = template, scratch
        self._W, self._packed, self._workspace = slots.get("weight_hh"), slots["packed"], slots["workspace"]

    def launches(self, addresses: Sequence[int], *parts: str) -> LaunchList:
        """Return the launches of some parts of the pass for a call with these addresses."""
        kernel, packs = self._kernel(addresses), False
        if self._chosen is not None:
            packs = addresses[self._packed] != addresses[self._W]
        key = kernel, packs, parts
        if key not in self._made:
            all = [one for part in parts for one in self._part(part, kernel, packs)]
            self._made[key] = LaunchList(self._index, all, self._workspace)
        return self._made[key]

    def _kernel(self, addresses: Sequence[int]) -> PreparedKernel | None:
        """Return the kernel that runs all steps, or None."""
        if self._chosen is not None:
            return self._chosen[2]
        if self.by_steps:
            return None
        aligned = self._template.aligned(addresses, 4)
        return persistent.prepare_elementwise(
            self.layout, self._backward, self._variant, aligned, self._index, active_overrides().slices
        )

    def _part(self, part: str, kernel: PreparedKernel | None, packs: bool) -> Sequence[KernelLaunch | MatmulLaunch]:
        if part == PACK:
            return self._scratch.fills(packs)
        if part == STEPS:
            return [] if kernel is None else [KernelLaunch(kernel, self._template)]
        return self._products()

    @abstractmethod
    def _products(self) -> Sequence[KernelLaunch | MatmulLaunch]:
        """Return the matmuls before the steps, or the matmuls and sums after them."""


class BackwardRequest(NamedTuple):
    """Which gradients the backward pass must compute."""

    arriving: tuple[bool, ...]
    """Which outputs and final states have an incoming gradient."""
    for_data: bool
    for_state: bool
    traced: bool
    overwrite: bool
    """Whether saved tensors may be overwritten."""


class ProductBlock(NamedTuple):
    """Adjacent columns of gradients of W h, which one matmul handles: products `product` to `product + size − 1`."""

    product: int
    size: int
    own: bool
    """Whether the columns are among the products' own gradients (d_own) or among the gates' (d_share)."""
    column: int
    """First column, in units of H."""


def list_product_blocks(layout: ScanLayout) -> list[ProductBlock]:
    """Return the products in order, grouped where their gradients are adjacent."""
    a = layout.assembly
    found, slots, k = list[ProductBlock](), a.product_places, 0
    while k < a.products:
        count = 1
        while k + count < a.products and slots[k + count] == slots[k] + count and slots[k + count] != a.gates:
            count += 1
        own = slots[k] >= a.gates
        found.append(ProductBlock(k, count, own, slots[k] - a.gates if own else slots[k]))
        k += count
    return found


def state_slots(layout: ScanLayout, slots: ArgSlots) -> list[int]:
    """Return the slots of the histories of the states; NULL for a state that is not kept."""
    names = [f"saved {source}" if isinstance(source, str) else f"output{source}" for source in layout.sources]
    return [slots.get(name) for name in names]


def operand_slots(layout: ScanLayout) -> ArgSlots:
    """Return the slots of the operands of a scan, to which a pass adds its own."""
    slots, of = ArgSlots(), layout.of
    slots.add("data", *layout.names, *(f"extra{k}" for k in range(of.extras)))
    slots.add(*(f"initial{k}" for k in range(of.states)))
    slots.add(*["mask"] * of.masked, *["xi"] * of.weighted)
    slots.add(*(f"output{k}" for k in range(len(layout.outputs))))
    return slots


def first_state_slot(layout: ScanLayout, slots: ArgSlots) -> int:
    """Return the slot of the history of the state that W multiplies."""
    return slots["output0"] if layout.P or 0 in layout.assembly.outputs else state_slots(layout, slots)[0]


class WeightGradients:
    """Matmuls that compute the gradients of x, U and W (and of a projection) after the steps.

    Args:
        reverse: scan from the last step to the first and accumulate into an existing gradient of x.
        carries: the kernel leaves out the gradient of the initial state that passes through W.
    """

    def __init__(
        self, layout: ScanLayout, asked: BackwardRequest, slots: ArgSlots, d_share: int, tf32: bool, reverse: bool,
        carries: bool,
    ) -> None:  # fmt: skip
        self.blocks = list_product_blocks(layout)
        self.plain = layout.uniform and not layout.of.masked
        """Whether the operand of W at every step is the unchanged output of the previous step."""
        self.carries = (
            carries and asked.for_state and self.plain and not layout.of.weighted and layout.assembly.heads == 1
        )
        """Whether a matmul adds the gradient of the initial state through W; otherwise PyTorch operations do."""
        self._layout, self._slots, self._d_share, self._tf32, self._reverse = layout, slots, d_share, tf32, reverse
        self.all = [MatmulLaunch(*one) for one in self._of_inputs(asked.for_data)]
        for block in self.blocks:
            self.all += [MatmulLaunch(*one) for one in self._of_state(block)]

    def _of_inputs(self, for_data: bool) -> list[tuple[Matmul, AddressOffset, AddressOffset, AddressOffset]]:
        """Return matmuls for the gradients of x, U and the projection."""
        layout, slots = self._layout, self._slots
        H, N, D, P = layout.H, layout.N, layout.D, layout.P
        G, d, made = layout.assembly.gates * H, (self._d_share, 0), []
        if for_data:
            of_data = make_matmul(layout, (N, D, G), MatmulOperand(G), MatmulOperand(D), D, self._tf32, self._reverse)
            made.append((of_data, d, (slots["weight_ih"], 0), (slots["d_data"], 0)))
        of_U = make_matmul(layout, (G, D, N), MatmulOperand(G, True), MatmulOperand(D), D, self._tf32)
        made.append((of_U, d, (slots["data"], 0), (slots["d_weight_ih"], 0)))
        if P:
            of_R = make_matmul(layout, (P, H, N), MatmulOperand(P, True), MatmulOperand(H), H, self._tf32)
            unprojected = state_slots(layout, slots)[0], 0
            made.append((of_R, (slots["d_projected"], 0), unprojected, (slots["d_weight_hr"], 0)))
        return made

    def _of_state(self, block: ProductBlock) -> list[tuple[Matmul, AddressOffset, AddressOffset, AddressOffset]]:
        """Return matmuls for the gradients of a block of rows of W, and of the initial state."""
        layout, slots, item = self._layout, self._slots, self._layout.of.dtype.itemsize
        a, H, N, S = layout.assembly, layout.H, layout.N, layout.S
        source, pitch = (slots["d_own"], a.own * H) if block.own else (self._d_share, a.gates * H)
        width, rows, made = layout.P or H, block.size * H, []
        begin, into = block.column * H * item, (slots["d_weight_hh"], block.product * H * width * item)

        def of_W(inner: int, adds: bool = False) -> Matmul:  # noqa: N802
            return make_matmul(
                layout, (rows, width, inner), MatmulOperand(pitch, True), MatmulOperand(width), width, self._tf32, adds
            )

        if not self.plain:
            return [(of_W(N), (source, begin), (slots["before"], 0), into)]
        # The gradient of a step is multiplied with the state of the previous step: one step earlier in memory, or one
        # step later if the scan runs from the last step to the first.
        one_step, others = S * pitch * item, (N - S) * pitch * item
        first_step = begin + (others if self._reverse else 0)
        if layout.steps > 1:
            later = begin + (0 if self._reverse else one_step)
            states = first_state_slot(layout, slots), S * width * item if self._reverse else 0
            made.append((of_W(N - S), (source, later), states, into))
        if layout.of.states:
            made.append((of_W(S, layout.steps > 1), (source, first_step), (slots["initial0"], 0), into))
        if self.carries:
            back = make_matmul(
                layout, (S, H, rows), MatmulOperand(pitch), MatmulOperand(H), H, self._tf32, True, layout.real
            )
            weights = slots["weight_hh"], block.product * H * H * item
            made.append((back, (source, first_step), weights, (slots["d_carry0"], 0)))
        return made


class BoundForward(NamedTuple):
    """Tensors of a call with their addresses."""

    made: list[Tensor]
    """Outputs, final states and saved tensors."""
    addresses: list[int]
    alive: object
    """Objects that must outlive the launches."""


class ForwardPass(ScanPass):
    """Forward pass. Without a chosen persistent kernel, element-wise recurrences use one launch and others one per
    step.
    """

    def __init__(
        self, layout: ScanLayout, train: bool, index: int, tf32: bool, chosen: ChosenKernel | None,
        reverse: bool = False,
    ) -> None:  # fmt: skip
        """Prepare the pass. `reverse`: scan from the last step to the first, in one launch with a forward scan."""
        of, a = layout.of, layout.assembly
        super().__init__(layout, index, chosen, backward=False, variant=train)
        saved = layout.saved if train else {}
        self._shapes = [*layout.outputs, *layout.finals, *saved.values()]
        self._returned = len(self._shapes)
        slots = operand_slots(layout)
        slots.add(*(f"final{k}" for k in range(len(layout.finals))), *(f"saved {name}" for name in saved))
        if "share" not in saved:
            self._shapes.append((layout.N, a.gates * layout.H))
            slots.add("saved share")
        slots.add("offset", "length", *ScratchMemory.NAMES, "null")
        self._share = slots["saved share"]
        where: dict[str, int | Sequence[int]] = {
            "share": self._share, "tape": slots.get("saved tape"), "state": state_slots(layout, slots),
            "final_state": slots.some("final", a.states), "initial": slots.some("initial", a.states),
            "extra": slots.some("extra", of.extras), "input_bias": slots.get("bias_ih"),
        }  # fmt: skip
        if not layout.uniform:
            where |= {"offset": slots["offset"], "length": slots["length"]}
        if chosen is not None:
            where |= {"bias": slots.get("bias_hh"), "mask": slots.get("mask")}
            where |= {"W": slots["packed"], "exchange": slots["exchange"], "arrived": slots["arrived"]}
        template = ArgTemplate(
            a, FORWARD_FIELDS, where, steps=layout.steps, S=layout.S, H=layout.H, reversed=int(reverse)
        )
        G = a.gates * layout.H
        shares = make_matmul(
            layout, (layout.N, G, layout.D), MatmulOperand(layout.D), MatmulOperand(layout.D, True), G, tf32
        )
        self._input = MatmulLaunch(shares, (slots["data"], 0), (slots["weight_ih"], 0), (self._share, 0))
        self._ready(slots, template, ScratchMemory(layout, index, chosen, slots, max_workspace([shares])))

    def bind(self, given: Sequence[Tensor]) -> BoundForward:
        layout = self.layout
        ready = [layout.packed(given[0]), *[part.contiguous() for part in given[1:]]]
        empty = given[0].new_empty
        made = [empty(shape) for shape in self._shapes]
        addresses = [part.data_ptr() for part in (*ready, *made)]
        order: tuple[Tensor | None, Tensor | None] = None, None
        if layout.uniform:
            addresses += (0, 0)
        else:
            order = layout.order(given[0].device)
            addresses += [0 if part is None else part.data_ptr() for part in order]
        W = addresses[self._W] if self._chosen is not None else 0
        memory, parts = self._scratch.take(given[0], W)
        addresses += (*parts, 0)
        return BoundForward(made, addresses, (ready, order, memory))

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        bound = self.bind(given)
        self.launches(bound.addresses, INPUT_PROJECTION, PACK, STEPS)(bound.addresses)
        if self.by_steps:
            self.step_by_step(given, bound.made)
        return self.end(bound)

    def _products(self) -> Sequence[KernelLaunch | MatmulLaunch]:
        return [self._input]

    def end(self, bound: BoundForward) -> list[Tensor]:
        return self.layout.shown(bound.made[: self._returned])

    def run_bidirectional(self, given: Sequence[Tensor], other: ForwardPass, others: Sequence[Tensor]) -> list[Tensor]:
        """Run this scan and one in the other direction, with their steps in one launch."""
        assert self._chosen is not None
        here, there = self.bind(given), other.bind(others)
        for one, bound in ((self, here), (other, there)):
            one.launches(bound.addresses, INPUT_PROJECTION, PACK)(bound.addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].launch_bytes(current_raw_stream(self._index), arguments)
        return [*self.end(here), *other.end(there)]

    def step_by_step(self, given: Sequence[Tensor], made: list[Tensor]) -> None:
        """Run the steps with one launch each."""
        layout, n, m = self.layout, len(self.layout.outputs), len(self.layout.finals)
        ops = ScanOperands(layout, given)
        saved = made[n + m : self._returned]
        results = ScanResults(layout, made[:n], made[n : n + m], saved)
        results.share = made[self._returned] if len(made) > self._returned else results.share
        assert results.share is not None
        if ops.bias_ih is not None:
            results.share += ops.bias_ih
        per_step.forward(ops, results, self._variant)


Tensors = list[Tensor]


class BoundBackward(NamedTuple):
    """Tensors of a call with their addresses."""

    ready: Tensors
    """Operands, outputs, saved tensors and incoming gradients."""
    found: dict[str, Tensor]
    addresses: list[int]
    alive: list[object]
    """Objects that must outlive the launches."""


class BackwardPass(ScanPass):
    def __init__(
        self, layout: ScanLayout, asked: BackwardRequest, index: int, tf32: bool, chosen: ChosenKernel | None,
        reverse: bool = False,
    ) -> None:  # fmt: skip
        """Prepare the pass.

        `reverse`: scan from the last step to the first, in one launch with the other direction, and accumulate into
        its gradient of x.
        """
        of, a = layout.of, layout.assembly
        super().__init__(layout, index, chosen, backward=True, variant=asked.traced)
        self._reverse, self._asked = reverse, asked
        self._slots = slots = operand_slots(layout)
        slots.add(*(f"saved {name}" for name in layout.saved))
        slots.add(*(f"arriving{k}" for k, came in enumerate(asked.arriving) if came))
        self._shapes = self._memory()
        slots.add(*(f"d_{name}" for name in self._shapes), *(["d_data"] if asked.for_data and reverse else []))
        if asked.overwrite and "share" in layout.saved:
            self._d_share = slots["saved share"]
        else:
            self._d_share = slots["d_share"]
        slots.add("packed xi", "offset", "length", *ScratchMemory.NAMES, "before", "null")
        biases = [slots.get("d_bias_ih"), slots.get("d_bias_hh")]
        self._adds_up = max(biases) >= 0 or of.extras > 0
        self._splits = launches.count_row_splits(layout, index) if self._adds_up else 1
        self._sums = ArgTemplate(
            a, REDUCE_FIELDS,
            {
                "d_share": self._d_share, "d_own": slots.get("d_own"), "sums": slots.get("d_sums"),
                "partial": slots["partial"], "tickets": slots["tickets"], "d_bias_ih": biases[0],
                "d_bias_hh": biases[1], "d_extra": slots.some("d_extra", of.extras),
            },
            H=layout.H, S=layout.S, N=layout.N, splits=self._splits,
        )  # fmt: skip
        self._gradient_products = WeightGradients(
            layout, asked, slots, self._d_share, tf32, reverse, chosen is not None
        )
        workspace = max_workspace(one.product for one in self._gradient_products.all)
        scratch = ScratchMemory(layout, index, chosen, slots, workspace, self._splits)
        self._ready(slots, self._steps_template(), scratch)

    def _memory(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return shapes and types of the gradients and of intermediate results, by name."""
        layout, asked = self.layout, self._asked
        of, a, number = layout.of, layout.assembly, layout.of.dtype
        G = a.gates * layout.H
        made: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
        if asked.for_data and not self._reverse:
            made["data"] = (layout.N, layout.D), number
        shapes = {
            "weight_ih": (G, layout.D), "weight_hh": (a.products * layout.H, layout.P or layout.H), "bias_ih": (G,),
            "bias_hh": (a.products * layout.H,), "weight_hr": (layout.P, layout.H),
        }  # fmt: skip
        made |= {name: (shapes[name], number) for name in layout.names}
        made |= {f"extra{k}": ((layout.H,), number) for k in range(of.extras)}
        if asked.for_state and not self.by_steps:
            made |= {f"carry{j}": ((layout.S, width), layout.real) for j, width in enumerate(layout.widths)}
        if not (asked.overwrite and "share" in layout.saved):
            made["share"] = (layout.N, G), number
        if a.own:
            made["own"] = (layout.N, a.own * layout.H), number
        if a.extras:
            made["sums"] = (layout.S, a.extras * layout.H), layout.real
        if layout.P:
            made["projected"] = (layout.N, layout.P), number
        if asked.traced:
            made |= {f"state{j}": ((layout.N, layout.H), number) for j in range(a.states)}
        return made

    def _steps_template(self) -> ArgTemplate:
        layout, slots = self.layout, self._slots
        of, a = layout.of, layout.assembly
        at = {j: slots.get(f"arriving{k}") for k, j in enumerate(a.outputs)}
        where: dict[str, int | Sequence[int]] = {
            "share": slots.get("saved share"), "tape": slots.get("saved tape"), "state": state_slots(layout, slots),
            "initial": slots.some("initial", a.states), "extra": slots.some("extra", of.extras),
            "d_outputs": [at.get(j, -1) for j in range(a.states)],
            "d_final": [slots.get(f"arriving{len(layout.outputs) + j}") for j in range(a.states)],
            "d_share": self._d_share, "d_own": slots.get("d_own"), "d_state": slots.some("d_state", a.states),
            "sums": slots.get("d_sums"), "carry": slots.some("d_carry", a.states),
        }  # fmt: skip
        if of.weighted:
            where["xi"] = slots["packed xi"]
        if not layout.assembly.products:  # other kernels store the input projection with its bias
            where["input_bias"] = slots.get("bias_ih")
        if not layout.uniform:
            where |= {"offset": slots["offset"], "length": slots["length"]}
        if self._chosen is not None:
            where |= {"mask": slots.get("mask"), "W": slots["packed"], "exchange": slots["exchange"]}
            where["arrived"] = slots["arrived"]
        return ArgTemplate(
            a, BACKWARD_FIELDS, where, steps=layout.steps, S=layout.S, H=layout.H, reversed=int(self._reverse)
        )

    # A call -------------------------------------------------------------------------------------------------

    def bind(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], d_data: Tensor | None = None
    ) -> BoundBackward:
        layout, of, n = self.layout, self.layout.of, len(self.layout.outputs)
        packed, given = layout.packed, of.given
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
        xi = ScanOperands(layout, kept[:given]).xi if of.weighted else None
        order: tuple[Tensor | None, Tensor | None] = (None, None) if layout.uniform else layout.order(kept[0].device)
        addresses += [0 if part is None else part.data_ptr() for part in (xi, *order)]
        W = addresses[self._W] if self._chosen is not None else 0
        memory, parts = self._scratch.take(kept[0], W)
        addresses += (*parts, 0, 0)
        bound = BoundBackward(ready, found, addresses, [xi, order, memory])
        if layout.assembly.products and not self._gradient_products.plain:
            bound.alive.append(before := ScanOperands(layout, kept[:given]).before(self._first(bound)))
            addresses[self._slots["before"]] = before.data_ptr()
        return bound

    def __call__(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], Tensors]:
        """Return the gradients of all operands, in the operator's order, and the tensors that a trace records."""
        bound = self.bind(kept, gradients)
        addresses = bound.addresses
        if not self.by_steps:
            self.launches(addresses, PACK, STEPS, GRADIENT_MATMULS)(addresses)
            return self.end(kept, bound)
        self.launches(addresses, PACK)(addresses)
        carried = self.step_by_step(kept, gradients, bound)
        self.launches(addresses, GRADIENT_MATMULS)(addresses)
        return self.end(kept, bound, carried)

    def _products(self) -> Sequence[KernelLaunch | MatmulLaunch]:
        layout, of = self.layout, self.layout.of
        if not self._adds_up:
            return [*self._gradient_products.all]
        grid = launches.count_reduce_blocks(layout) * self._splits
        return [
            *self._gradient_products.all,
            KernelLaunch(launches.reduce_kernel(of.cell, of.dtype, grid, self._index), self._sums),
        ]

    def run_bidirectional(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], other: BackwardPass, others: Sequence[Tensor],
        their_gradients: Sequence[Tensor | None],
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:  # fmt: skip
        """Run this pass and that of the other direction, with their steps in one launch. The first result has the
        gradient of x.
        """
        assert self._chosen is not None
        here = self.bind(kept, gradients)
        there = other.bind(others, their_gradients, here.found.get("data"))
        sides = (self, here.addresses), (other, there.addresses)
        for one, addresses in sides:
            one.launches(addresses, PACK)(addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].launch_bytes(current_raw_stream(self._index), arguments)
        for one, addresses in sides:
            one.launches(addresses, GRADIENT_MATMULS)(addresses)
        return self.end(kept, here)[0], other.end(others, there)[0]

    def end(
        self, kept: Sequence[Tensor], bound: BoundBackward, carried: Sequence[Tensor] | None = None
    ) -> tuple[list[Tensor | None], Tensors]:
        """Return the results of a call."""
        layout, found = self.layout, bound.found
        if carried is None:
            carried = [found[f"carry{j}"] for j in range(layout.assembly.states)] if self._asked.for_state else []
        return self._gradients(kept, bound, carried), self._recorded(bound) if self._asked.traced else []

    def _d(self, bound: BoundBackward) -> Tensor:
        """Return the gradients of U x + b, (N, …)."""
        found = bound.found.get("share")
        return bound.ready[self._d_share] if found is None else found

    def _first(self, bound: BoundBackward) -> Tensor:
        """Return the first state after every step, (N, …)."""
        layout, width = self.layout, self.layout.P or self.layout.H
        return _flatten_steps(layout, bound.ready[first_state_slot(layout, self._slots)], width)

    def step_by_step(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], bound: BoundBackward
    ) -> Sequence[Tensor]:
        """Run the steps with one launch each; return the gradients of the initial states."""
        layout, of, n, found = self.layout, self.layout.of, len(self.layout.outputs), bound.found
        outputs = [layout.by_step(part) for part in kept[of.given : of.given + n]]
        results = ScanResults(layout, outputs, (), kept[of.given + n :])
        arriving = [*gradients, *[None] * (n + layout.assembly.states - len(gradients))]
        into = ScanGradients(layout, arriving, self._d(bound), found)
        per_step.backward(ScanOperands(layout, kept[: of.given]), results, into, self._asked.traced)
        return into.carried

    def _gradients(
        self, kept: Sequence[Tensor], bound: BoundBackward, carried: Sequence[Tensor]
    ) -> list[Tensor | None]:
        layout, of, found = self.layout, self.layout.of, bound.found
        every: list[Tensor | None] = [None] * of.given
        if self._asked.for_data:
            every[0] = layout.by_row(found["data"])
        at = 1 + of.weights
        every[1:at] = [found[name] for name in layout.names]
        if layout.assembly.products and layout.steps == 1 and not of.states and self._gradient_products.plain:
            found["weight_hh"].zero_()
        if layout.assembly.heads > 1:
            k = 1 + layout.names.index("weight_hh")
            every[k] = ScanOperands(layout, kept[: of.given]).of_heads(found["weight_hh"])
        every[at : at + of.extras] = [found[f"extra{k}"] for k in range(of.extras)]
        at += of.extras
        if self._asked.for_state and of.states:
            if self._chosen is not None and not self._gradient_products.carries:
                ops = ScanOperands(layout, kept[: of.given])
                first = torch.cat([part[: layout.S] for part in self._of_products(bound)], dim=1)
                with float32_precision(of.dtype):
                    per_step.carry_back(ops, carried, multiply(first, ops.W, layout.real), layout.S, 0)
            every[at : at + of.states] = [part.to(of.dtype) for part in carried]
        return every

    def _of_products(self, bound: BoundBackward) -> Tensors:
        """Return the gradients of W h, (N, …), block by block."""
        H = self.layout.H
        sources = [bound.found["own"] if block.own else self._d(bound) for block in self._gradient_products.blocks]
        return [
            source[:, block.column * H : (block.column + block.size) * H]
            for source, block in zip(sources, self._gradient_products.blocks, strict=True)
        ]

    def _recorded(self, bound: BoundBackward) -> Tensors:
        """Return the recorded tensors in the caller's order."""
        layout, found = self.layout, bound.found
        states = [found["projected" if layout.P and j == 0 else f"state{j}"] for j in range(layout.assembly.states)]
        products, d = self._of_products(bound), self._d(bound)
        packed = [*states, d, torch.cat(products, dim=1) if products else d.new_empty(layout.N, 0)]
        return [layout.by_row(part).reshape(layout.N, -1).clone() for part in packed]


def _flatten_steps(layout: ScanLayout, packed: Tensor, width: int) -> Tensor:
    """Return memory in packed order as (N, width)."""
    return packed if packed.dim() == 2 else packed.transpose(0, 1).reshape(layout.N, width)

"""What both passes of a scan have in common: their launches, put together once for each form of call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from recur.compat import current_raw_stream
from recur.ops.cuda import elementwise, launches, per_step
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
"""The parts of a pass: U x of all steps; memory that is filled before the steps; the steps, where they are one launch;
and what is made of their gradients."""


class ScanPass(ABC):
    """`backward`, `variant`: whether it goes back; whether it is for training, or traced."""

    def __init__(self, lay: ScanLayout, index: int, chosen: ChosenKernel | None, backward: bool, variant: bool) -> None:
        self.lay, self._index, self._chosen = lay, index, chosen
        self._backward, self._variant = backward, variant
        self.by_steps = chosen is None and elementwise.unsupported_reason(lay) is not None
        """Whether each step is a launch of its own."""
        self._made: dict[tuple[object, ...], LaunchList] = {}

    def _ready(self, places: ArgSlots, template: ArgTemplate, scratch: ScratchMemory) -> None:
        self._template, self._scratch = template, scratch
        self._W, self._laid, self._workspace = places.get("weight_hh"), places["laid"], places["workspace"]

    def launches(self, addresses: Sequence[int], *parts: str) -> LaunchList:
        """Those of these parts, for tensors that lie there."""
        kernel, lays_out = self._kernel(addresses), False
        if self._chosen is not None:
            lays_out = addresses[self._laid] != addresses[self._W]
        key = kernel, lays_out, parts
        if key not in self._made:
            all = [one for part in parts for one in self._part(part, kernel, lays_out)]
            self._made[key] = LaunchList(self._index, all, self._workspace)
        return self._made[key]

    def _kernel(self, addresses: Sequence[int]) -> PreparedKernel | None:
        """That of all steps, if there is one."""
        if self._chosen is not None:
            return self._chosen[2]
        if self.by_steps:
            return None
        aligned = self._template.aligned(addresses, 4)
        return elementwise.prepare_kernel(
            self.lay, self._backward, self._variant, aligned, self._index, active_overrides().slices
        )

    def _part(self, part: str, kernel: PreparedKernel | None, lays_out: bool) -> Sequence[KernelLaunch | MatmulLaunch]:
        if part == PACK:
            return self._scratch.fills(lays_out)
        if part == STEPS:
            return [] if kernel is None else [KernelLaunch(kernel, self._template)]
        return self._products()

    @abstractmethod
    def _products(self) -> Sequence[KernelLaunch | MatmulLaunch]:
        """Those before the steps, or those after them and what else is made of gradients."""


class BackwardRequest(NamedTuple):
    """What a backward pass is asked for."""

    arriving: tuple[bool, ...]
    """Which of the outputs and final states have a gradient."""
    for_data: bool
    for_state: bool
    traced: bool
    overwrite: bool
    """Whether memory of what was saved may be used again."""


class ProductBlock(NamedTuple):
    """Gradients of W h that lie side by side: those of products `make_matmul` to `make_matmul + many − 1`."""

    product: int
    many: int
    own: bool
    """Whether they lie among the gradients that a product has for itself, or among the gates'."""
    place: int


def list_product_blocks(lay: ScanLayout) -> list[ProductBlock]:
    """Matmul after product; those that lie side by side together."""
    a = lay.assembly
    found, places, k = list[ProductBlock](), a.product_places, 0
    while k < a.products:
        many = 1
        while k + many < a.products and places[k + many] == places[k] + many and places[k + many] != a.gates:
            many += 1
        own = places[k] >= a.gates
        found.append(ProductBlock(k, many, own, places[k] - a.gates if own else places[k]))
        k += many
    return found


def state_slots(lay: ScanLayout, places: ArgSlots) -> list[int]:
    """AddressOffset each state after every step lies."""
    return [places[f"saved {source}" if isinstance(source, str) else f"output{source}"] for source in lay.sources]


def first_state_slot(lay: ScanLayout, places: ArgSlots) -> int:
    """What W multiplies lies there, of every step."""
    return places["output0"] if lay.P or 0 in lay.assembly.outputs else state_slots(lay, places)[0]


class WeightGradients:
    """`reverse`: of a scan from the end, which adds its gradient of x to that of another. `carries`: whether kernels
    leave out what reaches the initial state through W."""

    def __init__(
        self,
        lay: ScanLayout,
        asked: BackwardRequest,
        places: ArgSlots,
        d_share: int,
        tf32: bool,
        reverse: bool,
        carries: bool,
    ) -> None:
        self.pieces = list_product_blocks(lay)
        self.plain = lay.uniform and not lay.of.masked
        """Whether what W multiplied at every step is the output of the step before."""
        self.carries = carries and asked.for_state and self.plain and not lay.of.weighted and lay.assembly.heads == 1
        """Whether a product adds what reaches the initial state through W; else operations of PyTorch do."""
        self._lay, self._places, self._d_share, self._tf32, self._reverse = lay, places, d_share, tf32, reverse
        self.all = [MatmulLaunch(*one) for one in self._of_inputs(asked.for_data)]
        for piece in self.pieces:
            self.all += [MatmulLaunch(*one) for one in self._of_state(piece)]

    def _of_inputs(self, for_data: bool) -> list[tuple[Matmul, AddressOffset, AddressOffset, AddressOffset]]:
        """Of x and U, and of a projection."""
        lay, places = self._lay, self._places
        H, N, D, P = lay.H, lay.N, lay.D, lay.P
        G, d, made = lay.assembly.gates * H, (self._d_share, 0), []
        if for_data:
            of_data = make_matmul(lay, (N, D, G), MatmulOperand(G), MatmulOperand(D), D, self._tf32, self._reverse)
            made.append((of_data, d, (places["weight_ih"], 0), (places["d_data"], 0)))
        of_U = make_matmul(lay, (G, D, N), MatmulOperand(G, True), MatmulOperand(D), D, self._tf32)
        made.append((of_U, d, (places["data"], 0), (places["d_weight_ih"], 0)))
        if P:
            of_R = make_matmul(lay, (P, H, N), MatmulOperand(P, True), MatmulOperand(H), H, self._tf32)
            unprojected = state_slots(lay, places)[0], 0
            made.append((of_R, (places["d_projected"], 0), unprojected, (places["d_weight_hr"], 0)))
        return made

    def _of_state(self, piece: ProductBlock) -> list[tuple[Matmul, AddressOffset, AddressOffset, AddressOffset]]:
        """Of the rows of W that make these products, and of the initial state."""
        lay, places, item = self._lay, self._places, self._lay.of.dtype.itemsize
        a, H, N, S = lay.assembly, lay.H, lay.N, lay.S
        source, pitch = (places["d_own"], a.own * H) if piece.own else (self._d_share, a.gates * H)
        width, rows, made = lay.P or H, piece.many * H, []
        begin, into = piece.place * H * item, (places["d_weight_hh"], piece.product * H * width * item)

        def of_W(inner: int, adds: bool = False) -> Matmul:  # noqa: N802
            return make_matmul(
                lay, (rows, width, inner), MatmulOperand(pitch, True), MatmulOperand(width), width, self._tf32, adds
            )

        if not self.plain:
            return [(of_W(N), (source, begin), (places["before"], 0), into)]
        # The gradient of a step meets the state that the step before it left: one step earlier in memory, or later.
        one_step, others = S * pitch * item, (N - S) * pitch * item
        first_step = begin + (others if self._reverse else 0)
        if lay.steps > 1:
            later = begin + (0 if self._reverse else one_step)
            states = first_state_slot(lay, places), S * width * item if self._reverse else 0
            made.append((of_W(N - S), (source, later), states, into))
        if lay.of.states:
            made.append((of_W(S, lay.steps > 1), (source, first_step), (places["initial0"], 0), into))
        if self.carries:
            back = make_matmul(lay, (S, H, rows), MatmulOperand(pitch), MatmulOperand(H), H, self._tf32, True, lay.real)
            weights = places["weight_hh"], piece.product * H * H * item
            made.append((back, (source, first_step), weights, (places["d_carry0"], 0)))
        return made


class BoundForward(NamedTuple):
    """A call's tensors, ready for its launches."""

    made: list[Tensor]
    """Outputs, final states and what is saved."""
    addresses: list[int]
    alive: object
    """What has to outlive the launches."""


class ForwardPass(ScanPass):
    """`chosen`: the way that carries all steps in one launch; without one a cell without a product goes along time, and
    others take one step a launch."""

    def __init__(
        self, lay: ScanLayout, train: bool, index: int, tf32: bool, chosen: ChosenKernel | None, reverse: bool = False
    ) -> None:
        """`reverse`: from the end, of a scan that is launched together with one from the start."""
        of, a = lay.of, lay.assembly
        super().__init__(lay, index, chosen, backward=False, variant=train)
        saved = lay.saved if train else {}
        self._shapes = [*lay.outputs, *lay.finals, *saved.values()]
        self._returned = len(self._shapes)
        places = ArgSlots()
        places.add("data", *lay.names, *(f"extra{k}" for k in range(of.extras)))
        places.add(*(f"initial{k}" for k in range(of.states)))
        places.add(*(["mask"] if of.masked else []), *(["xi"] if of.weighted else []))
        places.add(*(f"output{k}" for k in range(len(lay.outputs))), *(f"final{k}" for k in range(len(lay.finals))))
        places.add(*(f"saved {name}" for name in saved))
        if "share" not in saved:
            self._shapes.append((lay.N, a.gates * lay.H))
            places.add("saved share")
        places.add("offset", "length", *ScratchMemory.NAMES, "null")
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
        template = ArgTemplate(a, FORWARD_FIELDS, where, steps=lay.steps, S=lay.S, H=lay.H, reversed=int(reverse))
        G = a.gates * lay.H
        shares = make_matmul(lay, (lay.N, G, lay.D), MatmulOperand(lay.D), MatmulOperand(lay.D, True), G, tf32)
        self._input = MatmulLaunch(shares, (places["data"], 0), (places["weight_ih"], 0), (self._share, 0))
        self._ready(places, template, ScratchMemory(lay, index, chosen, places, max_workspace([shares])))

    def bind(self, given: Sequence[Tensor]) -> BoundForward:
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
        return self.lay.shown(bound.made[: self._returned])

    def together(self, given: Sequence[Tensor], other: ForwardPass, others: Sequence[Tensor]) -> list[Tensor]:
        """This scan and one in the other direction: their steps in one launch."""
        assert self._chosen is not None
        here, there = self.bind(given), other.bind(others)
        for one, bound in ((self, here), (other, there)):
            one.launches(bound.addresses, INPUT_PROJECTION, PACK)(bound.addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].packed(current_raw_stream(self._index), arguments)
        return [*self.end(here), *other.end(there)]

    def step_by_step(self, given: Sequence[Tensor], made: list[Tensor]) -> None:
        """The steps, a launch each."""
        lay, n, m = self.lay, len(self.lay.outputs), len(self.lay.finals)
        ops = ScanOperands(lay, given)
        saved = made[n + m : self._returned]
        results = ScanResults(lay, made[:n], made[n : n + m], saved)
        results.share = made[self._returned] if len(made) > self._returned else results.share
        assert results.share is not None
        if ops.bias_ih is not None:
            results.share += ops.bias_ih
        per_step.forward(ops, results, self._variant)


Tensors = list[Tensor]


class BoundBackward(NamedTuple):
    """A call's tensors, ready for its launches."""

    ready: Tensors
    """What it is given, outputs, what was saved, and gradients that arrive."""
    found: dict[str, Tensor]
    addresses: list[int]
    alive: list[object]
    """What has to outlive the launches."""


class BackwardPass(ScanPass):
    def __init__(
        self,
        lay: ScanLayout,
        asked: BackwardRequest,
        index: int,
        tf32: bool,
        chosen: ChosenKernel | None,
        reverse: bool = False,
    ) -> None:
        """`reverse`: of a scan from the end, launched together with one from the start, to whose gradient of x it adds
        its own."""
        of, a = lay.of, lay.assembly
        super().__init__(lay, index, chosen, backward=True, variant=asked.traced)
        self._reverse, self._asked = reverse, asked
        self._places = places = ArgSlots()
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
        places.add("packed xi", "offset", "length", *ScratchMemory.NAMES, "before", "null")
        biases = [places.get("d_bias_ih"), places.get("d_bias_hh")]
        self._adds_up = max(biases) >= 0 or of.extras > 0
        self._splits = launches.count_row_splits(lay, index) if self._adds_up else 1
        self._sums = ArgTemplate(
            a, REDUCE_FIELDS,
            {
                "d_share": self._d_share, "d_own": places.get("d_own"), "sums": places.get("d_sums"),
                "partial": places["partial"], "tickets": places["tickets"], "d_bias_ih": biases[0],
                "d_bias_hh": biases[1], "d_extra": places.some("d_extra", of.extras),
            },
            H=lay.H, S=lay.S, N=lay.N, splits=self._splits,
        )  # fmt: skip
        self._gradient_products = WeightGradients(lay, asked, places, self._d_share, tf32, reverse, chosen is not None)
        workspace = max_workspace(one.product for one in self._gradient_products.all)
        scratch = ScratchMemory(lay, index, chosen, places, workspace, self._splits)
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

    def _steps_template(self) -> ArgTemplate:
        lay, places = self.lay, self._places
        of, a = lay.of, lay.assembly
        at = {j: places.get(f"arriving{k}") for k, j in enumerate(a.outputs)}
        where: dict[str, int | Sequence[int]] = {
            "share": places.get("saved share"), "tape": places.get("saved tape"), "state": state_slots(lay, places),
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
        return ArgTemplate(a, BACKWARD_FIELDS, where, steps=lay.steps, S=lay.S, H=lay.H, reversed=int(self._reverse))

    # A call -------------------------------------------------------------------------------------------------

    def bind(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], d_data: Tensor | None = None
    ) -> BoundBackward:
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
        xi = ScanOperands(lay, kept[:given]).xi if of.weighted else None
        order: tuple[Tensor | None, Tensor | None] = (None, None) if lay.uniform else lay.order(kept[0].device)
        addresses += [0 if part is None else part.data_ptr() for part in (xi, *order)]
        W = addresses[self._W] if self._chosen is not None else 0
        memory, parts = self._scratch.take(kept[0], W)
        addresses += (*parts, 0, 0)
        bound = BoundBackward(ready, found, addresses, [xi, order, memory])
        if lay.assembly.products and not self._gradient_products.plain:
            bound.alive.append(before := ScanOperands(lay, kept[:given]).before(self._first(bound)))
            addresses[self._places["before"]] = before.data_ptr()
        return bound

    def __call__(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], Tensors]:
        """The gradients of all that a scan is given, in the operator's order; and what a trace records."""
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
        lay, of = self.lay, self.lay.of
        if not self._adds_up:
            return [*self._gradient_products.all]
        grid = launches.count_reduce_blocks(lay) * self._splits
        return [
            *self._gradient_products.all,
            KernelLaunch(launches.reduce_kernel(of.cell, of.dtype, grid, self._index), self._sums),
        ]

    def together(
        self,
        kept: Sequence[Tensor],
        gradients: Sequence[Tensor | None],
        other: BackwardPass,
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
            one.launches(addresses, PACK)(addresses)
        arguments = self._template(here.addresses) + other._template(there.addresses)
        self._chosen[2].packed(current_raw_stream(self._index), arguments)
        for one, addresses in sides:
            one.launches(addresses, GRADIENT_MATMULS)(addresses)
        return self.end(kept, here)[0], other.end(others, there)[0]

    def end(
        self, kept: Sequence[Tensor], bound: BoundBackward, carried: Sequence[Tensor] | None = None
    ) -> tuple[list[Tensor | None], Tensors]:
        """What a call returns."""
        lay, found = self.lay, bound.found
        if carried is None:
            carried = [found[f"carry{j}"] for j in range(lay.assembly.states)] if self._asked.for_state else []
        return self._gradients(kept, bound, carried), self._recorded(bound) if self._asked.traced else []

    def _d(self, bound: BoundBackward) -> Tensor:
        """The gradients of U x + b, (N, …)."""
        found = bound.found.get("share")
        return bound.ready[self._d_share] if found is None else found

    def _first(self, bound: BoundBackward) -> Tensor:
        """The first state after every step, (N, …)."""
        lay, width = self.lay, self.lay.P or self.lay.H
        return _flatten_steps(lay, bound.ready[first_state_slot(lay, self._places)], width)

    def step_by_step(
        self, kept: Sequence[Tensor], gradients: Sequence[Tensor | None], bound: BoundBackward
    ) -> Sequence[Tensor]:
        """The steps, a launch each; what reaches the states before them."""
        lay, of, n, found = self.lay, self.lay.of, len(self.lay.outputs), bound.found
        outputs = [lay.by_step(part) for part in kept[of.given : of.given + n]]
        results = ScanResults(lay, outputs, (), kept[of.given + n :])
        arriving = [*gradients, *[None] * (n + lay.assembly.states - len(gradients))]
        into = ScanGradients(lay, arriving, self._d(bound), found)
        per_step.backward(ScanOperands(lay, kept[: of.given]), results, into, self._asked.traced)
        return into.carried

    def _gradients(
        self, kept: Sequence[Tensor], bound: BoundBackward, carried: Sequence[Tensor]
    ) -> list[Tensor | None]:
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
            every[k] = ScanOperands(lay, kept[: of.given]).of_heads(found["weight_hh"])
        every[at : at + of.extras] = [found[f"extra{k}"] for k in range(of.extras)]
        at += of.extras
        if self._asked.for_state and of.states:
            if self._chosen is not None and not self._gradient_products.carries:
                ops = ScanOperands(lay, kept[: of.given])
                first = torch.cat([part[: lay.S] for part in self._of_products(bound)], dim=1)
                with float32_precision(of.dtype):
                    per_step.carry_back(ops, carried, multiply(first, ops.W, lay.real), lay.S, 0)
            every[at : at + of.states] = [part.to(of.dtype) for part in carried]
        return every

    def _of_products(self, bound: BoundBackward) -> Tensors:
        """The gradients of W h, (N, …), piece after piece."""
        H = self.lay.H
        sources = [bound.found["own"] if piece.own else self._d(bound) for piece in self._gradient_products.pieces]
        return [
            source[:, piece.place * H : (piece.place + piece.many) * H]
            for source, piece in zip(sources, self._gradient_products.pieces, strict=True)
        ]

    def _recorded(self, bound: BoundBackward) -> Tensors:
        """In the caller's order."""
        lay, found = self.lay, bound.found
        states = [found["projected" if lay.P and j == 0 else f"state{j}"] for j in range(lay.assembly.states)]
        products, d = self._of_products(bound), self._d(bound)
        packed = [*states, d, torch.cat(products, dim=1) if products else d.new_empty(lay.N, 0)]
        return [lay.by_row(part).reshape(lay.N, -1).clone() for part in packed]


def _flatten_steps(lay: ScanLayout, packed: Tensor, width: int) -> Tensor:
    """(N, width), of memory that goes step after step."""
    return packed if packed.dim() == 2 else packed.transpose(0, 1).reshape(lay.N, width)

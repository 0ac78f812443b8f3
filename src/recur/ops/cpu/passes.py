"""The two passes of a scan as plans: which of a call's tensors, or which part of one, belongs where in the struct.

The tensors of a call stand one behind the other:

    forward   given, outputs, final states, what is saved
    backward  given, outputs, what was saved, gradients that arrive, gradients found, what is recorded
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from recur.compiler.signature import Signature
from recur.ops.cpu.memory import Sizes, Slab, padded_like, pads_rows
from recur.ops.cpu.plan import SCRATCH, Form, How, Plan, Where
from recur.ops.cpu.programs import load

MOST_SEGMENTS, LEAST_STEPS = 8, 16
"""Up to so many segments of so many steps, a program takes steps of one segment as its rows, where it can; more
segments are rows enough at every step. Measured: with 4 to 16 both ways take the same time on one thread; where threads
are more than segments, only this one has work for all."""

Fields = dict[str, Where]
Tables = dict[str, Sequence[Where | None]]
Piece = tuple[tuple[int, int], tuple[int, int], int]
"""Of a tensor: shape, strides and offset, as as_strided takes them."""


def takes_steps_at_once(cell: str, segments: int, steps: int) -> bool:
    """Whether the rows of a program are steps of one segment, for a cell that is affine in its states."""
    return segments <= MOST_SEGMENTS and steps >= LEAST_STEPS and bool(load(cell).assembly.along_time)


def _whole(begin: int, count: int) -> list[Where]:
    """So many tensors of a call."""
    return [(tensor, 0) for tensor in range(begin, begin + count)]


class _Pass:
    """What both have in common."""

    def __init__(self, of: Signature) -> None:
        self._of, self._sizes = of, Sizes(of)
        z = self._sizes
        self._fields: Fields = dict(zip(("data", *z.weight_names), _whole(0, 1 + of.weights), strict=True))
        if of.masked:
            self._fields["mask"] = of.differentiable, 0
        extras = _whole(1 + of.weights, of.extras)
        states = _whole(1 + of.weights + of.extras, of.states)
        self._tables: Tables = {"extra": extras, "initial": states or [None] * z.assembly.states}

    def _finish(self, program: str, tensors: int, scratch: Slab, stride: int, how: How, clip: float = 0.0) -> None:
        of, z = self._of, self._sizes
        sizes = tuple(of.shape[:2] if z.batch_major else of.sizes)
        steps = sizes[1] if z.batch_major else len(sizes)
        padded_rows = sum(2**k for k, matrix in enumerate(z.matrices) if pads_rows(matrix))
        form = Form(
            of.cell, program, of.dtype, z.D, z.H, sizes, z.batch_major, "bias_ih" in z.weight_names, z.projection,
            of.products, clip, padded_rows, clip == 0 and takes_steps_at_once(of.cell, sizes[0], steps), stride,
        )  # fmt: skip
        self.plan = Plan(form, how, self._fields, self._tables, tensors, scratch.numbers * z.item)


class Forward(_Pass):
    def __init__(self, of: Signature, train: bool, how: How) -> None:
        super().__init__(of)
        z, first, program = self._sizes, of.given, "train" if train else "use"
        a, saved = z.assembly, z.saved(first + len(z.outputs) + len(z.finals))
        self.results = z.results(train)
        """The shapes of outputs, final states, and what is saved."""
        scratch = Slab(SCRATCH, z.item)
        histories = z.histories(_whole(first, len(z.outputs)), saved.others if train else [])
        if histories[0] is None:  # the core always keeps it
            histories[0] = scratch.take(z.N * z.H)
        self._tables |= {"state": histories, "final_state": _whole(first + len(z.outputs), a.states)}
        share, stride = saved.share if train else None, z.share_stride
        if share is None and load(of.cell).share_in_outputs[program]:
            share, stride = histories[0], z.H
        self._fields["share"] = share or scratch.take(z.N * stride)
        if train and saved.tape is not None:
            self._fields["tape"] = saved.tape
        if z.projection:
            self._fields["projected"] = first, 0
        self.unwritten = [((1, end - begin), (1, 1), begin) for begin, end in saved.slab.gaps] if train else []
        """What the core leaves unwritten of what is saved."""
        if train and saved.share is not None:
            columns = a.gates * z.H
            self.unwritten.append(((z.N, stride - columns), (stride, 1), saved.share[1] // z.item + columns))
        self._finish(program, first + len(self.results), scratch, stride, how)


class Backward(_Pass):
    def __init__(
        self,
        of: Signature,
        arriving: tuple[bool, ...],
        for_data: bool,
        for_state: bool,
        traced: bool,
        overwrite_saved: bool,
        how: How,
    ) -> None:
        super().__init__(of)
        z, fields = self._sizes, self._fields
        a, outputs, H = z.assembly, len(z.outputs), z.H
        saved = z.saved(of.given + outputs)
        if of.weighted:
            fields["xi"] = of.given - 1, 0
        if saved.share is not None:
            fields["share"] = saved.share
        if saved.tape is not None:
            fields["tape"] = saved.tape
        arrived = iter(range(of.given + outputs + bool(saved.slab.gaps), 1 << 30))
        gradients = [(next(arrived), 0) if came else None for came in arriving]
        self.wanted = slice(int(not for_data), of.differentiable if for_state else of.differentiable - of.states)
        """The tensors whose gradients are found."""
        at = next(arrived)
        if for_data:
            fields["d_data"] = at, 0
        at += for_data
        fields |= {f"d_{name}": (at + k, 0) for k, name in enumerate(z.weight_names)}
        at += of.weights
        self._tables |= {
            "state": z.histories(_whole(of.given, outputs), saved.others),
            "d_outputs": [gradients[a.outputs.index(j)] if j in a.outputs else None for j in range(a.states)],
            "d_final": gradients[outputs:],
            "d_extra": _whole(at, of.extras),
            "d_initial": _whole(at + of.extras, of.states) if for_state else [],
        }
        at += of.extras + (of.states if for_state else 0)
        self.recorded = [*z.recorded] if traced else []
        """The shapes of what is recorded, and of what some of it is copied from."""
        scratch = Slab(at + len(self.recorded) if traced else SCRATCH, z.item)
        if overwrite_saved and saved.share is not None:
            fields["d_share"] = saved.share
        else:
            fields["d_share"] = scratch.take(z.N * z.share_stride)
        if a.own:
            fields["d_product"] = scratch.take(z.N * a.own * H)
        d_state = _whole(at, a.states) if traced else []
        if z.projection:
            fields["projected"] = of.given, 0
            fields["d_projected"] = (at, 0) if traced else scratch.take(z.N * z.projection)
            if traced:
                d_state[0] = scratch.take(z.N * H)
        self._tables["d_state"] = d_state
        likes = [torch.empty_like, *(padded_like if pads_rows(w) else torch.empty_like for w in z.matrices)]
        likes += [torch.empty_like] * (of.differentiable - len(likes))
        self.likes = likes[self.wanted]
        """What makes memory for each of them."""
        self.copied = self._recorded_products() if traced else []
        """What is recorded of other gradients: which record, its columns; of which tensor, and which part of it."""
        self.records = len(self.recorded)
        if traced and scratch.gaps:
            self.recorded.append((scratch.numbers,))
        scratch = Slab(SCRATCH, z.item) if traced else scratch
        program, tensors = "trace" if traced else "back", at + len(self.recorded)
        self._finish(program, tensors, scratch, z.share_stride, how, of.clip)

    def _recorded_products(self) -> list[tuple[int, slice, int, Piece]]:
        z = self._sizes
        a, H = z.assembly, z.H

        def columns(of: Where, stride: int, begin: int, count: int) -> tuple[int, Piece]:
            return of[0], ((z.N, count * H), (stride, 1), of[1] // z.item + begin * H)

        copied = [(a.states, slice(0, a.gates * H), *columns(self._fields["d_share"], z.share_stride, 0, a.gates))]
        for k, place in enumerate(a.product_places[: a.products]):
            if place < a.gates:
                found = columns(self._fields["d_share"], z.share_stride, place, 1)
            else:
                found = columns(self._fields["d_product"], a.own * H, place - a.gates, 1)
            copied.append((a.states + 1, slice(k * H, (k + 1) * H), *found))
        return copied


forward_pass = functools.lru_cache(maxsize=256)(Forward)
backward_pass = functools.lru_cache(maxsize=256)(Backward)

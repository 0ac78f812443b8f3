"""One call of the C++ core: a cell's programs as it reads them, and the struct of a scan."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from recur.native import library
from recur.scan.assembly import Assembly, Code


class Loaded:
    """A cell's programs as the core reads them."""

    def __init__(self, text: str) -> None:
        a = self.assembly = Assembly.loads(text)
        self.product_places = (ctypes.c_int32 * max(1, a.products))(*a.product_places)
        sides = ("ih", "hh") if a.products else ("ih",)
        plain = tuple(f"weight_{side}" for side in sides)
        self.weight_names = {False: plain, True: (*plain, *(f"bias_{side}" for side in sides))}
        """torch's names, in the order in which the operator takes the weights, without biases and with them."""
        self.use, self.train, self.back = (Encoded(self, code) for code in (a.use, a.train, a.back))


class Encoded:
    """One program, and the struct of a scan as far as a cell and its program fill it: without biases and with them."""

    def __init__(self, cell: Loaded, code: Code) -> None:
        self._program, self._numbers = _encoded(code)
        self.scans: list[library.Scan] = []
        for biased in (0, 1):
            s = library.Scan(program=self._program, biased=biased, adds_to_first=int(cell.assembly.adds_to_first))
            s.constant, s.constants = ctypes.addressof(self._numbers), len(self._numbers)
            s.product_place = ctypes.addressof(cell.product_places)
            for count in ("gates", "products", "states", "extras", "kept", "own"):
                setattr(s, count, getattr(cell.assembly, count))
            self.scans.append(s)


def _encoded(code: Code) -> tuple[library.Program, Any]:
    core = library.core()
    assert core is not None
    written = {operands[0] for _, operands in code.instructions}
    read = {place for op, operands in code.instructions for place in operands[1:]}
    instructions = (library.Instruction * max(1, len(code.instructions)))()
    for k, (op, operands) in enumerate(code.instructions):
        instructions[k] = library.Instruction(core.operations[op], *operands)
    places = (library.Place * max(1, len(code.places)))()
    for k, (kind, index) in enumerate(code.places):
        places[k] = library.Place(core.places[kind], index, k in read, k in written)
    numbers = (ctypes.c_double * max(1, len(code.numbers)))(*code.numbers)
    program = library.Program(instructions, len(code.instructions), places, len(code.places), code.temps)
    return program, numbers


@functools.lru_cache(maxsize=256)
def load(text: str) -> Loaded:
    return Loaded(text)


@functools.lru_cache(maxsize=64)
def _as_array(numbers: tuple[int, ...]) -> Any:
    return (ctypes.c_int64 * len(numbers))(*numbers)


def pointers(tensors: Sequence[Tensor | None]) -> Any:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(None if t is None else t.data_ptr() for t in tensors))


class NativeCall:
    """The struct of one scan, and all that must live as long as it does."""

    def __init__(
        self,
        cell: Loaded,
        program: Encoded,
        data: Tensor,
        weights: Sequence[Tensor],
        extras: Sequence[Tensor],
        state: Sequence[Tensor],
        mask: Tensor | None,
        xi: Tensor | None,
        sizes: Sequence[int],
        batch_major: bool,
        clip: float,
    ) -> None:
        core = library.core()
        assert core is not None
        self.core = core
        self.double = int(data.dtype == torch.float64)
        self._alive: list[Any] = [program, cell]
        names = cell.weight_names[len(weights) > len(cell.weight_names[False])]
        s = self.scan = library.Scan.from_buffer_copy(program.scans[names is cell.weight_names[True]])
        (s.N, s.D), (s.S, s.H) = data.shape, state[0].shape
        s.steps, s.sizes = len(sizes), self.hold(_as_array(tuple(sizes)))
        s.batch_major = int(batch_major)
        s.threads, s.parallel = torch.get_num_threads(), core.parallel
        for name, weight in zip(names, weights, strict=True):
            setattr(s, name, weight.data_ptr())
        s.data = data.data_ptr()
        s.extra, s.initial = self.hold(pointers(extras)), self.hold(pointers(state))
        s.mask = None if mask is None else mask.data_ptr()
        s.xi = None if xi is None else xi.data_ptr()
        s.clip = clip

    def hold(self, array: Any) -> int:
        self._alive.append(array)
        return ctypes.addressof(array)

    def run(self, backward: bool) -> Tensor:
        """Do it. Returns the scratch memory, which holds the packed weights."""
        core, scan = self.core, ctypes.byref(self.scan)
        size = core.bytes(scan, core.isa, self.double, int(backward))
        workspace = torch.empty(size, dtype=torch.uint8, device="cpu")
        self.scan.workspace = workspace.data_ptr()
        (core.backward if backward else core.forward)(scan, core.isa, self.double)
        return workspace

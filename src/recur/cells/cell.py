"""The contract of a cell: the equations of one step, and nothing else.

A cell names its gates and its states and writes one step over them:

    x.g   the input's share of gate g,   W_g x_t + b_g          one matmul for the whole sequence
    h.g   the state's share of gate g,   U_g h_{t−1} + b_hg     the only matmul inside the loop
    s.c   the previous state c
    w.p   a weight of the cell's own, if it declares `extras`

`step` returns the next states, in the order of `states`; the first is the output and what U multiplies.
A step is *pointwise* when unit k of the result depends on unit k of the arguments only. Such a cell runs on
every backend. Any other step in PyTorch is a cell too: it says `pointwise = False` and runs on the loop.

A cell with options is a dataclass: `@dataclass class Elman(Cell): activation: str = "tanh"`.
"""

from __future__ import annotations

import functools
import keyword
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from recur.errors import CellError

Weights = Mapping[str, Tensor]

GATE_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class Cell:
    """One recurrence. Subclass it, name `gates` and `states`, write `step`."""

    name: ClassVar[str] = ""
    """What the registry and the command line call it; empty for a cell that is not registered."""

    gates: tuple[str, ...] = ()
    """The blocks of W, in torch's order. They alone drive chunking, initialisation and labels."""

    state_gates: tuple[str, ...] | None = None
    """The blocks of U; all gates unless said. `()` is a cell without a recurrent product."""

    states: tuple[str, ...] = ("h",)
    """What is carried; the first is the output, and what the next step multiplies."""

    extras: Mapping[str, tuple[str, ...]] = {}
    """Weights of the cell's own, by name: `("H",)` is a vector over units, `("H", "H")` a matrix (not pointwise)."""

    pointwise: bool = True
    """Whether unit k of the step's result depends on unit k of its arguments only."""

    keeps: str | None = None
    """The gate that keeps the old state when it is near 1: where a forget bias goes."""

    step: Callable[..., Sequence[Tensor]]
    """`step(self, x, h, s)`, or `step(self, x, h, s, w)` for a cell with extras."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_contract(cls)

    def __repr__(self) -> str:  # a dataclass writes its own, with the options
        return f"{type(self).__name__}()"

    # What a cell may override ----------------------------------------------------------------------------

    def multiplied(self, s: Any, w: Any) -> Tensor:
        """What U multiplies: the output of the step before. A deep transition puts its layers here."""
        first: Tensor = s[0]
        return first

    def init_extras(self, weights: Weights) -> None:
        """Fill the cell's own weights in place: uniform ±1/√H, as torch does, unless the cell knows better."""
        for name in self.extras:
            bound = weights[name].shape[-1] ** -0.5
            torch.nn.init.uniform_(weights[name], -bound, bound)

    # What backends and layers read -----------------------------------------------------------------------

    @property
    def recurrent_gates(self) -> tuple[str, ...]:
        return self.gates if self.state_gates is None else self.state_gates

    def shapes(self, D: int, H: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
        """Names and shapes of all weights, for D inputs and H units; torch's names, without the layer."""
        G, R = len(self.gates), len(self.recurrent_gates)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (G * H, D), "weight_hh": (R * H, H)}
        if bias:
            shapes |= {"bias_ih": (G * H,), "bias_hh": (R * H,)}
        if not R:
            shapes = {name: shape for name, shape in shapes.items() if not name.endswith("hh")}
        sizes = {"H": H, "D": D}
        return shapes | {name: tuple(sizes[letter] for letter in shape) for name, shape in self.extras.items()}

    def advance(self, x: Any, h: Any, s: Any, w: Any) -> Sequence[Tensor]:
        """One step, whether or not the cell has extras."""
        return self.step(x, h, s, w) if self.extras else self.step(x, h, s)

    def state(self, parts: Sequence[Tensor]) -> Any:
        """The states as a named tuple: `.h`, and `.c` for a cell that has one."""
        return self.tuple_of("s")._make(parts)

    def tuple_of(self, role: str) -> Any:
        """The named tuple of one argument of `step`: x, h, s or w."""
        fields = {"x": self.gates, "h": self.recurrent_gates, "s": self.states, "w": tuple(self.extras)}
        return _named_tuple(type(self).__name__, role, fields[role])


class _NoSuchNameError(CellError, AttributeError):
    """A step that names what its cell does not have: ours by family, an AttributeError by protocol."""


@functools.cache
def _named_tuple(owner: str, role: str, fields: tuple[str, ...]) -> Any:
    made: Any = namedtuple(role, fields)  # type: ignore[misc]  # the fields are the cell's
    kind = {"x": "gates", "h": "gates with a state's share", "s": "states", "w": "extras"}[role]

    def missing(self: Any, name: str) -> Any:
        if name.startswith("_"):  # a protocol asking, not the author of a step
            raise AttributeError(name)
        raise _NoSuchNameError(f"{owner}.step asks for {role}.{name}; its {kind}: {', '.join(fields) or 'none'}")

    type.__setattr__(made, "__getattr__", missing)
    return made


def check_contract(cls: type[Cell]) -> None:
    """Refuse a class that cannot be carried along a sequence, when it is defined."""
    who = cls.__name__
    for what in ("gates", "states", "state_gates", "extras"):
        names = getattr(cls, what)
        if names is None:
            continue
        if isinstance(names, str):
            raise CellError(f"{who}.{what} must be a tuple of names, got the string {names!r}; write ({names!r},)")
        names = tuple(names)
        bad = [n for n in names if not n.isidentifier() or keyword.iskeyword(n) or n.startswith("_")]
        if bad or len(set(names)) < len(names):
            raise CellError(f"{who}.{what} must be distinct Python names, got {names}")
    if not cls.states:
        raise CellError(f"{who}.states is empty; a recurrence carries at least one state, such as ('h',)")
    for name, shape in cls.extras.items():
        if name in GATE_WEIGHTS:
            raise CellError(f"{who}.extras takes the name {name!r}, which belongs to the gates")
        if not set(shape) <= {"H", "D"}:
            raise CellError(f"{who}.extras[{name!r}] must be a shape made of 'H' and 'D', got {shape}")
        if cls.pointwise and tuple(shape) != ("H",):
            raise CellError(f"{who}.extras[{name!r}] of shape {shape} mixes units; say pointwise = False")


def check_step(cell: Cell, result: Any, before: Sequence[Tensor]) -> None:
    """Refuse a step whose result is not the cell's states; called on the first step of a scan."""
    who = f"{type(cell).__name__}.step must return ({', '.join(cell.states)},)"
    if not isinstance(result, tuple | list):
        raise CellError(f"{who}, got {_describe(result)}; one state still needs its comma: return (h,)")
    if len(result) != len(cell.states):
        raise CellError(f"{who}: {len(cell.states)} of them, got {len(result)}")
    for name, value, old in zip(cell.states, result, before, strict=True):
        if not isinstance(value, Tensor) or value.shape != old.shape or value.dtype != old.dtype:
            raise CellError(f"{who}, each like the one before; {name} was {_describe(old)}, got {_describe(value)}")


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"

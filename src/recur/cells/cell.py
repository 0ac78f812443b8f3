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

import inspect
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

    own_products: bool = False
    """Whether the step multiplies a state by a matrix of its own, where a mask on the recurrent state cannot reach."""

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

    @property
    def recurrent_matrices(self) -> tuple[str, ...]:
        """The weights that multiply a state: U, and matrices of the cell's own."""
        square = tuple(name for name, shape in self.extras.items() if tuple(shape) == ("H", "H"))
        return ("weight_hh", *square) if self.recurrent_gates else square

    def advance(self, x: Any, h: Any, s: Any, w: Any) -> Sequence[Tensor]:
        """One step, whether or not the cell has extras."""
        return self.step(x, h, s, w) if self.extras else self.step(x, h, s)

    def state(self, parts: Sequence[Tensor]) -> Any:
        """The states as a named tuple: `.h`, and `.c` for a cell that has one."""
        return self.tuple_of("s")(*parts)

    def tuple_of(self, role: str) -> Any:
        """The named tuple of one argument of `step`: x, h, s or w."""
        fields = {"x": self.gates, "h": self.recurrent_gates, "s": self.states, "w": tuple(self.extras)}
        return _named_tuple(type(self).__name__, role, fields[role])


class _NoSuchNameError(CellError, AttributeError):
    """A step that names what its cell does not have: ours by family, an AttributeError by protocol."""


_NAMED_TUPLES: dict[tuple[str, str, tuple[str, ...]], Any] = {}
"""All that were made: a plain dictionary, which torch.compile can look into."""


def _named_tuple(owner: str, role: str, fields: tuple[str, ...]) -> Any:
    key = owner, role, fields
    if key not in _NAMED_TUPLES:
        _NAMED_TUPLES[key] = _make_named_tuple(owner, role, fields)
    return _NAMED_TUPLES[key]


def _make_named_tuple(owner: str, role: str, fields: tuple[str, ...]) -> Any:
    made: Any = namedtuple(role, fields)  # type: ignore[misc]  # the fields are the cell's
    kind = {"x": "gates", "h": "gates with a state's share", "s": "states", "w": "extras"}[role]

    def missing(self: Any, name: str) -> Any:
        if name.startswith("_"):  # a protocol asking, not the author of a step
            raise AttributeError(name)
        raise _NoSuchNameError(f"{owner}.step asks for {role}.{name}; its {kind}: {', '.join(fields) or 'none'}")

    type.__setattr__(made, "__getattr__", missing)
    type.__setattr__(made, "__reduce__", lambda self: (_rebuild, (owner, role, fields, tuple(self))))
    return made


def _rebuild(owner: str, role: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    """A named tuple from its pickle: its class is made, not imported."""
    return _named_tuple(owner, role, fields)._make(values)


def check_contract(cls: type[Cell]) -> None:
    """Refuse a class that cannot be carried along a sequence, when it is defined."""
    for what in ("gates", "states", "state_gates"):
        names = vars(cls).get(what)
        if isinstance(names, list):
            setattr(cls, what, tuple(names))
    check_names(cls)


def check_names(cell: Cell | type[Cell]) -> None:
    """The names a cell gives to its gates, states and weights."""
    who = cell.__name__ if isinstance(cell, type) else type(cell).__name__
    for what in ("gates", "states", "state_gates"):
        names: Any = getattr(cell, what)
        if isinstance(names, str):
            raise CellError(f"{who}.{what} must be a tuple of names, got the string {names!r}; write ({names!r},)")
        if names is not None and not isinstance(names, property):
            _check_distinct(f"{who}.{what}", names)
    if cell.states == ():
        raise CellError(f"{who}.states is empty; a recurrence carries at least one state, such as ('h',)")
    given: Any = (cell.extras, cell.gates, cell.keeps)
    if any(isinstance(value, property) for value in given):
        return  # a class that computes them: its cells are checked when they are used
    if not isinstance(cell.extras, Mapping):
        raise CellError(f"{who}.extras must map names to shapes, such as {{'p': ('H',)}}, got {cell.extras!r}")
    _check_distinct(f"{who}.extras", tuple(cell.extras))
    for name, shape in cell.extras.items():
        if name in GATE_WEIGHTS or name in [f"{state}0" for state in cell.states]:
            raise CellError(f"{who}.extras takes the name {name!r}, which belongs to the gates or to an initial state")
        if not set(shape) <= {"H", "D"}:
            raise CellError(f"{who}.extras[{name!r}] must be a shape made of 'H' and 'D', got {shape}")
        if cell.pointwise and tuple(shape) != ("H",):
            raise CellError(f"{who}.extras[{name!r}] of shape {shape} mixes units; say pointwise = False")
    if cell.gates and cell.keeps is not None and cell.keeps not in cell.gates:
        raise CellError(f"{who}.keeps must be one of its gates, {', '.join(cell.gates)}; got {cell.keeps!r}")


def _check_distinct(what: str, names: Any) -> None:
    names = tuple(names) if isinstance(names, tuple | list) else (names,)
    fit = all(isinstance(n, str) and n.isidentifier() and not keyword.iskeyword(n) and n[0] != "_" for n in names)
    if not fit or len(set(names)) < len(names):
        raise CellError(f"{what} must be distinct Python names, got {names}")


def check_cell(cell: object) -> Cell:
    """Refuse what is no whole cell: at the door of a scan, and when a layer is made of it."""
    if not isinstance(cell, Cell):
        raise CellError(f"a scan carries a Cell, got {cell!r}; make one with make_cell('lstm')")
    if "_checked" in vars(cell):  # once is enough, and a scan of a few steps would feel it
        return cell
    who = type(cell).__name__
    arguments = "x, h, s, w" if cell.extras else "x, h, s"
    step = getattr(cell, "step", None)
    if not callable(step):
        raise CellError(f"{who} has no step; write step(self, {arguments}) -> ({', '.join(cell.states)},)")
    if not cell.gates:
        raise CellError(f"{who}.gates is empty; a step sees its input through at least one gate")
    check_names(cell)
    try:
        inspect.signature(step).bind(*arguments.split(", "))
    except TypeError:
        has = "extras" if cell.extras else "no extras"
        raise CellError(f"{who} has {has}, so its step takes (self, {arguments})") from None
    for role in "xhsw":
        cell.tuple_of(role)  # made now: torch.compile could not
    vars(cell)["_checked"] = True
    return cell


def check_step(cell: Cell, result: Any, before: Sequence[Tensor], versions: Sequence[int]) -> None:
    """Refuse a step whose result is not the cell's states, or that writes into them; called on the first step."""
    who = f"{type(cell).__name__}.step must return ({', '.join(cell.states)},)"
    if [part._version for part in before] != list(versions):
        raise CellError(f"{who} as new tensors; it changes the states it was given in place")
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

"""Checks of the cell contract: names when a class is defined, the step when it first runs."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor, nn

from recur.errors import CellError, OptionError

if TYPE_CHECKING:
    from recur.cells.cell import Cell

GATE_WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def check_class(cls: type[Cell]) -> None:
    """Raise if a cell class is malformed; called when the class is defined."""
    for name, value in vars(cls).items():
        check_attribute(cls, name, value)
    for attribute in ("gates", "states", "state_gates", "outputs"):
        names = vars(cls).get(attribute)
        if isinstance(names, list):
            setattr(cls, attribute, tuple(names))
    check_names(cls)


def check_attribute(cell: Cell | type[Cell], name: str, value: object) -> None:
    """Raise if an attribute of a cell is a parameter or a module: no optimizer would find it in `parameters()`."""
    parts: Iterable[object] = (value,)
    if isinstance(value, list | tuple):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    if any(isinstance(part, nn.Parameter | nn.Module) for part in parts) and not isinstance(cell, nn.Module):
        who = cell.__name__ if isinstance(cell, type) else type(cell).__name__
        raise CellError(
            f"{who}.{name} holds a {type(value).__name__}, which a cell does not train; declare a weight by "
            f"extras = {{{name!r}: ('H',)}} and read it in the step as w.{name}"
        )


def check_names(cell: Cell | type[Cell]) -> None:
    """Check the names of gates, states and weights of a cell or a class.

    A class may define some of them as properties; these are checked on its instances.
    """
    who = cell.__name__ if isinstance(cell, type) else type(cell).__name__
    for attribute in ("gates", "states", "state_gates", "outputs"):
        names: object = getattr(cell, attribute)
        if isinstance(names, str):
            raise CellError(f"{who}.{attribute} must be a tuple of names, got the string {names!r}; write ({names!r},)")
        if names is not None and not isinstance(names, property):
            _check_distinct(f"{who}.{attribute}", names)
    if cell.states == ():
        raise CellError(f"{who}.states is empty; a recurrence carries at least one state, such as ('h',)")
    if any(
        isinstance(getattr(cell, attribute), property)
        for attribute in ("extras", "gates", "states", "forget_gate", "input_gate", "inputs", "noise")
    ):
        return
    for attribute in ("outputs", "initial"):
        if strange := set(getattr(cell, attribute)) - set(cell.states):
            states = ", ".join(cell.states)
            raise CellError(f"{who}.{attribute} must name its states, {states}; got {', '.join(sorted(strange))}")
    _check_extras(who, cell)
    if cell.sizes == ("H", "D"):
        _check_step_inputs(who, cell)
    for role in ("forget_gate", "input_gate"):
        gate = getattr(cell, role)
        if cell.gates and gate is not None and gate not in cell.gates:
            raise CellError(f"{who}.{role} must be one of its gates, {', '.join(cell.gates)}; got {gate!r}")


def _check_extras(who: str, cell: Cell | type[Cell]) -> None:
    if not isinstance(cell.extras, Mapping):
        raise CellError(f"{who}.extras must map names to shapes, such as {{'p': ('H',)}}, got {cell.extras!r}")
    _check_distinct(f"{who}.extras", tuple(cell.extras))
    taken = {*GATE_WEIGHTS, *(f"{state}0" for state in cell.states)}
    for name, shape in cell.extras.items():
        if name in taken:
            raise CellError(f"{who}.extras takes the name {name!r}, which belongs to the gates or to an initial state")
        named = ", ".join(map(repr, cell.sizes))
        if not all(size in cell.sizes or (isinstance(size, int) and size > 0) for size in shape):
            raise CellError(f"{who}.extras[{name!r}] must be a shape made of {named} and whole numbers, got {shape}")
        if cell.pointwise and tuple(shape) != ("H",):
            raise CellError(f"{who}.extras[{name!r}] of shape {shape} mixes units; add pointwise = False")


def _check_step_inputs(who: str, cell: Cell | type[Cell]) -> None:
    for attribute in ("inputs", "noise"):
        if not isinstance(getattr(cell, attribute), Mapping):
            raise CellError(f"{who}.{attribute} must map names to values, got {getattr(cell, attribute)!r}")
    names = (*cell.inputs, *cell.noise)
    _check_distinct(f"names of {who}.gates, inputs and noise", (*cell.gates, *names))
    if taken := {"training", *RESERVED} & set(names):
        raise CellError(f"{who} gives the name {sorted(taken)[0]!r} to an input, which has a meaning of its own")
    for name, size in cell.inputs.items():
        if size not in (("D",) if name == "raw" else (1, "H")):
            wanted = "'D', it is the input itself" if name == "raw" else "1 or 'H'"
            raise CellError(f"{who}.inputs[{name!r}] must have the size {wanted}, got {size!r}")
    for name, kind in cell.noise.items():
        kind, _, chance = kind.partition(":") if isinstance(kind, str) else ("", "", "")
        if kind not in NOISES or (kind == "bernoulli") != bool(chance) or (chance and not _is_chance(chance)):
            raise CellError(f"{who}.noise[{name!r}] must be normal, uniform or bernoulli:p with p in 0 … 1")


NOISES = ("normal", "uniform", "bernoulli")
RESERVED = ("x", "state", "lengths", "reset", "trace", "seed", "first_step")
"""Arguments of a call of a layer."""


def noise_mean(spec: str) -> float:
    """Return the mean of a distribution: `normal`, `uniform` or `bernoulli:p`."""
    kind, _, chance = spec.partition(":")
    return {"normal": 0.0, "uniform": 0.5}.get(kind, float(chance or 0))


def _is_chance(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _check_distinct(what: str, given: object) -> None:
    names = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not all(_is_name(name) for name in names) or len(set(names)) < len(names):
        raise CellError(f"{what} must be distinct Python names, got {names}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name) and name[0] != "_"


def versions_of(parts: Sequence[Tensor]) -> list[int]:
    """Return the version counters of tensors, which increase with every change in place; 0 in inference mode."""
    return [0 if part.is_inference() else part._version for part in parts]


def check_options(cell: Cell, **kinds: type) -> None:
    """Raise if an option has the wrong type: `check_options(self, positive=bool, rate=float)`."""
    for name, kind in kinds.items():
        value = getattr(cell, name)
        fits = isinstance(value, bool) if kind is bool else isinstance(value, int | float) and math.isfinite(value)
        if not fits:
            wanted = "True or False" if kind is bool else "a number"
            raise OptionError(f"{type(cell).__name__}: {name} must be {wanted}, got {value!r}")


def check_step(
    cell: Cell, result: object, before: Sequence[Tensor], versions: Sequence[int], units: int | None = None
) -> None:
    """Raise if the result of a step is not one tensor per state, or if the step changed its arguments in place.

    units: H, if a projection gives the carried first state another width than the returned one
    """
    who = f"{type(cell).__name__}.step must return ({', '.join(cell.states)},)"
    if versions_of(before) != list(versions):
        raise CellError(f"{who} as new tensors; it changes the states it was given in place")
    if not isinstance(result, tuple | list):
        raise CellError(f"{who}, got {_describe(result)}; one state still needs its comma: return (h,)")
    if len(result) != len(cell.states):
        raise CellError(f"{who}: {len(cell.states)} of them, got {len(result)}")
    if units is not None:
        before = [before[0].new_empty(*before[0].shape[:-1], units), *before[1:]]
    for name, value, old in zip(cell.states, result, before, strict=True):
        if not isinstance(value, Tensor) or value.shape != old.shape or value.dtype != old.dtype:
            raise CellError(f"{who}, each like the one before; {name} was {_describe(old)}, got {_describe(value)}")


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"

"""Step: one step of a cell with all its numbers, forward and back, each beside its equation and its line of code.

A request names a cell (or brings its equations), a text, and what was changed by hand: numbers of weights, of the input
and of the first state, and numbers that are held wherever they stand. The answer has every number of every step. All of
it is computed here, in float64; the page shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recur.errors import CellError, OptionError
from recur.i18n import Message, translate
from recur.serve.http.fields import field, number
from recur.studio.equations import EquationError, Equations, Network, read
from recur.studio.equations.python_cell import PythonCell, python_cell
from recur.studio.equations.textbook import EXAMPLES, TEXTBOOK
from recur.studio.loaded import LoadedModel
from recur.studio.step_answer import Shown, answer
from recur.studio.step_check import compared
from recur.studio.step_run import RunNetwork, network_of
from recur.utils.types import JsonObject

UNITS = 8
"""At most; of a larger network, so many are shown."""
STEPS = 12
"""At most."""
OWN = "own"
"""The cell that is typed into the page."""

Array = NDArray[np.float64]
Edits = dict[str, dict[int, float]]


@dataclass
class Asked:
    """A request, checked."""

    equations: Equations
    cell: str
    text: str
    activation: str = ""
    """Of an Elman network, as the reference calls it."""


def step(request: JsonObject) -> JsonObject:
    """A cell with toy weights."""
    try:
        asked = _asked(request, field(request, "cell", "elman"))
    except EquationError as error:
        return _mistake(error)
    units = field(request, "units", 4, 1, UNITS)
    symbols = list(dict.fromkeys(asked.text))
    K = len(symbols)
    network = Network(asked.equations, K, units, K)
    weights = network.toy_weights(field(request, "seed", 0, 0, 10**6))
    shown = Shown(list(range(units)), list(range(K)), symbols, network.sizes)
    return _worked(request, asked, network, weights, [symbols.index(sign) for sign in asked.text], shown)


def run_step(model: LoadedModel, request: JsonObject) -> JsonObject:
    """The network of a run, whole; of more than eight units, eight are shown."""
    found: RunNetwork = network_of(model)
    asked = Asked(read(found.text), found.cell, _text_of(request), found.activation)
    ids = found.encode(asked.text)
    symbols = list(dict.fromkeys(ids))
    H, K = found.weights["V"].shape[1], found.weights["V"].shape[0]
    network = Network(asked.equations, K, H, K)
    first = network.run(found.weights, np.eye(K)[ids[:-1]], ids[1:])
    units = _units(request, H) or found.telling_units(network, first, UNITS)
    shown = Shown(units, symbols, [found.symbol(k) for k in symbols], network.sizes)
    return {
        **_worked(request, asked, network, found.weights, ids, shown),
        "units_of": H,
        "symbols_of": K,
        "difference": found.difference(model, first, ids),
    }


def _mistake(error: EquationError) -> JsonObject:
    sentence = error.args[0]
    words = {"en": str(sentence), "zh": translate(sentence, "zh")}
    return {"mistake": {"line": error.line, "column": error.column, **words}, "examples": EXAMPLES}


def _asked(request: JsonObject, cell: str) -> Asked:
    if cell not in (*TEXTBOOK, OWN):
        raise OptionError(
            Message("cell must be one of {known}, got {got}", known=", ".join((*TEXTBOOK, OWN)), got=repr(cell[:40]))
        )
    text = _text_of(request)
    written = field(request, "equations", "") if cell == OWN else TEXTBOOK[cell].text
    return Asked(read(written), cell, text)


def _text_of(request: JsonObject) -> str:
    text = field(request, "text", "machine")
    if not 2 <= len(text) <= STEPS + 1:
        raise OptionError(
            Message("a text of 2 to {most} characters is stepped through, got {count}", most=STEPS + 1, count=len(text))
        )
    return text


def _units(request: JsonObject, H: int) -> list[int]:
    """The units asked for; none for those that tell most."""
    if H <= UNITS:
        return list(range(H))
    given = request.get("shown", [])
    if not isinstance(given, list) or not all(type(k) is int and 0 <= k < H for k in given) or len(given) > UNITS:
        raise OptionError(Message("at most {most} units can be shown, each in 0 … {last}", most=UNITS, last=H - 1))
    return sorted(set(given))


def _worked(
    request: JsonObject, asked: Asked, network: Network, weights: Mapping[str, Array], ids: list[int], shown: Shown
) -> JsonObject:
    """The pass with all that was changed by hand, as an answer."""
    weights = {name: value.copy() for name, value in weights.items()}
    x = np.eye(network.sizes["D"])[ids[:-1]]
    start = {name: np.zeros(network.sizes["H"]) for name in asked.equations.states}
    for name, edits in _edits(request, "weights").items():
        if name not in weights:
            raise OptionError(Message("there is no weight {name}", name=repr(name[:40])))
        _put(weights[name], shown.weight(network.shapes[name]), edits)
    for t, edits in _edits(request, "x").items():
        _put(x[_step(t, len(x))], shown.index(("D",)), edits)
    for name, edits in _edits(request, "start").items():
        if name not in start:
            raise OptionError(Message("there is no state {name}", name=repr(name[:40])))
        _put(start[name], shown.index(("H",)), edits)
    held = {}
    for place, edits in _edits(request, "held").items():
        t, _, node = place.partition(".")
        k = int(node) if node.isdecimal() and len(node) < 4 and int(node) < len(network.nodes) else -1
        if k < 0 or network.nodes[k].op in ("weight", "number", "input"):
            raise OptionError(Message("there is no number to hold at {place}", place=repr(place[:40])))
        indices = shown.index(network.nodes[k].size)
        held[_step(t, len(x)), k] = {int(indices[_within(i, indices)]): value for i, value in edits.items()}
    found = network.run(weights, x, ids[1:], start, held)
    code, refusal = _python(asked)
    return {
        **answer(asked.cell, network, weights, found, ids, shown, code),
        "start": {name: shown.numbers(value, ("H",)) for name, value in start.items()},
        "python": None if code is None else code.source,
        "no_python": refusal,
        "equations": asked.equations.text,
        "examples": EXAMPLES,
        "reference": None
        if held or asked.cell == OWN
        else compared(asked.cell, asked.activation, network, weights, x, ids, start, found),
    }


def _python(asked: Asked) -> tuple[PythonCell | None, str]:
    try:
        return python_cell(asked.equations, "Typed" if asked.cell == OWN else f"My{asked.cell.capitalize()}"), ""
    except CellError as error:
        return None, str(error)


# What was changed by hand ---------------------------------------------------------------------------------


def _edits(request: JsonObject, name: str) -> Edits:
    """{"W": {"3": 0.5}}: numbers by the place among those shown."""
    given = request.get(name, {})
    if not isinstance(given, dict):
        raise OptionError(Message("{name} must be an object, got {kind}", name=name, kind=type(given).__name__))
    found: Edits = {}
    for place, numbers in given.items():
        if not isinstance(numbers, dict):
            raise OptionError(Message("{name} must hold objects of numbers", name=name))
        found[place] = {}
        for k, value in numbers.items():
            if not k.isdecimal() or len(k) > 6 or number(value) is None:
                raise OptionError(Message("{name} has {got}, which is no number", name=name, got=repr(value)[:40]))
            found[place][int(k)] = float(value)
    return found


def _within(i: int, indices: NDArray[np.int64]) -> int:
    if i >= len(indices):
        raise OptionError(Message("there is no number {place} among {count}", place=i, count=len(indices)))
    return i


def _put(array: Array, indices: NDArray[np.int64], edits: Mapping[int, float]) -> None:
    for i, value in edits.items():
        array.reshape(-1)[indices[_within(i, indices)]] = value


def _step(t: str, steps: int) -> int:
    if not t.isdecimal() or len(t) > 3 or int(t) >= steps:
        raise OptionError(Message("there is no step {step}", step=repr(t[:10])))
    return int(t)

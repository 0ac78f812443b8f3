"""Step view: one step of a cell with all its numbers, forward and backward, for toy weights or a run's network.

A token's vector is a column of E, so U E has one column a token, and x is one-hot as in the notes. The numbers are
compared with the network's own; a network that is not this, whatever its options, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from recur.data.text import UNK, Vocab
from recur.errors import CellError, OptionError, RunError, TextError
from recur.i18n import Message, translate
from recur.models.language import LanguageModel
from recur.reference import network as reference
from recur.reference.sequence import Array
from recur.serve.http import RequestModel, finite_or_none, validate
from recur.studio.equations import EquationError, Equations, read_equations
from recur.studio.equations.graph import GraphNode, Size
from recur.studio.equations.network import EquationNetwork, ForwardPass, name_slopes
from recur.studio.equations.python_cell import PythonCell, python_cell
from recur.studio.equations.textbook import EXAMPLES, TEXTBOOK, backward_line, forward_line
from recur.studio.loaded_model import LoadedModel
from recur.utils.types import JsonObject

ALIKE = 1e-4
"""How far float32 may lie from float64, in logits relative to the largest."""
ACTIVATIONS = {"tanh": "tanh", "relu": "ReLU", "sigmoid": "σ"}


@dataclass
class RunNetwork:
    cell: str
    text: str
    """Its equations."""
    weights: dict[str, Array]
    vocab: Vocab
    activation: str = ""

    def encode(self, text: str) -> list[int]:
        found = []
        for sign in text:
            k = self.vocab.ids.get(sign, UNK)
            if k == UNK:
                raise TextError(
                    Message("the run has not seen {sign}: its vocabulary does not have it", sign=repr(sign))
                )
            found.append(k)
        return found

    def symbol(self, k: int) -> str:
        return self.vocab.tokens[k]

    def telling_units(self, network: EquationNetwork, found: ForwardPass, count: int) -> list[int]:
        """Return the units with the largest gradient along this text; changing them changes the loss most."""
        k = network.equations.output
        norms = np.sqrt(np.sum([gradients[k] ** 2 for gradients in found.gradients], axis=0))
        return sorted(np.argsort(-norms, kind="stable")[:count].tolist())

    def difference(self, model: LoadedModel, found: ForwardPass, ids: list[int]) -> float:
        """Return the relative difference to the network's own logits; raise RunError if it exceeds rounding."""
        with torch.no_grad():
            theirs = model.language.model(torch.tensor([ids[:-1]])).logits[0].double().numpy()
        ours = np.stack([step[-3] for step in found.values])
        apart = float(np.abs(theirs - ours).max() / max(1.0, np.abs(theirs).max()))
        if not apart < ALIKE:
            name = model.predictor.run.path.name
            raise RunError(Message("{run} computes more than one layer of its cell; Step cannot show it", run=name))
        return apart


def equation_network(model: LoadedModel) -> RunNetwork:
    """Return the weights of a run; raise RunError if it has several layers or another cell."""
    language = model.language
    network: LanguageModel = language.model
    name = language.run.path.name
    net: Any = network.recurrent
    bias = network.output_bias()
    cell = getattr(net, "cell", None)
    kind = getattr(type(cell), "name", "")
    if kind not in TEXTBOOK or net.num_layers != 1 or language.backward or bias is None:
        raise RunError(
            Message("{run}: Step reads runs with one layer of elman, lstm or gru that read forward", run=name)
        )
    if language.vocab.tokenizer.kind != "char":
        raise RunError(Message("{run} reads words; Step spells, one character a step", run=name))
    book, text = TEXTBOOK[kind], TEXTBOOK[kind].text
    activation = str(getattr(cell, "activation", "")) if kind == "elman" else ""
    text = text.replace("tanh", ACTIVATIONS[activation]) if activation else text
    own = {key: value.detach().double().numpy() for key, value in net.weights("_l0").items()}
    E = np.eye(network.K) if network.embedding.weight is None else network.embedding.weight.detach().double().numpy()
    if own["weight_ih"].shape[1] != E.shape[1]:
        raise RunError(Message("{run} computes more than one layer of its cell; Step cannot show it", run=name))
    count = len(book.gates)
    zero = np.zeros(len(own["weight_ih"]))
    b, d = (np.split(own.get(key, zero), count) for key in ("bias_ih", "bias_hh"))
    weights: dict[str, Array] = {}
    for k, (gate, U, W) in enumerate(
        zip(book.gates, np.split(own["weight_ih"], count), np.split(own["weight_hh"], count), strict=True)
    ):
        end = f"_{gate}" if gate else ""
        apart = kind == "gru" and gate == "h"  # r acts on the second bias too
        weights |= {f"U{end}": U @ E.T, f"W{end}": W, f"b{end}": b[k] if apart else b[k] + d[k]}
        if apart:
            weights[f"d{end}"] = d[k]
    weights["V"] = network.output_matrix().detach().double().numpy()
    weights["c_y" if kind == "lstm" else "c"] = bias.detach().double().numpy()
    return RunNetwork(kind, text, weights, language.vocab, activation)


def compare_with_cell(
    cell: str,
    activation: str,
    network: EquationNetwork,
    weights: Mapping[str, Array],
    x: Array,
    ids: list[int],
    start: Mapping[str, Array],
    found: ForwardPass,
) -> float:
    """The largest difference of the loss and of any gradient: of inputs, states and weights."""
    book, states = TEXTBOOK[cell], network.equations.states
    begin = tuple(start[name][:, None] for name in states)
    options: dict[str, Any] = {"activation": activation} if activation else {}
    with np.errstate(all="ignore"):
        loss, theirs = reference.loss_and_gradients(
            book.module, x.T[:, None, :], np.array([ids[1:]]), begin, book.parameters(weights), **options
        )
    totals = book.parameters({name: found.total(name) for name in weights})
    pairs = [(np.array(loss), np.array(found.loss))]
    for name, value in totals.items():
        of_theirs = theirs.weights[f"d{name}"]
        if name == "bW":  # of its three blocks we have the candidate's: the others are in b
            value, of_theirs = np.split(value, 3)[2], np.split(of_theirs, 3)[2]
        pairs.append((value, of_theirs))
    inputs = next(k for k, node in enumerate(network.nodes) if node.op == "input")
    logits = len(network.nodes) - 3
    for t, own in enumerate(found.gradients):
        pairs += [(own[inputs], theirs.dx[:, 0, t]), (own[logits], theirs.do[:, 0, t])]
        pairs += [(own[k], theirs.dstates[s][:, 0, t]) for k, s in zip(states.values(), theirs.dstates, strict=True)]
    pairs += [(found.start[name], part[:, 0]) for name, part in zip(states, theirs.ds0, strict=True)]
    return float(max(np.max(np.abs(a - b)) for a, b in pairs))


KINDS = {("H",): "units", ("D",): "symbols", ("K",): "symbols", (): "one"}
"""What the places of a vector stand for."""


@dataclass
class ShownUnits:
    """Units and symbols of a network that are shown; up to eight units, all of them."""

    units: list[int]
    symbols: list[int]
    labels: list[str]
    """Of the symbols."""
    sizes: Mapping[str, int]

    def index(self, size: Size) -> NDArray[np.int64]:
        """The places of a vector that are shown."""
        if not size:
            return np.zeros(1, dtype=np.int64)
        found, begin = [], 0
        for part in size:
            found.append(begin + np.array(self.units if part == "H" else self.symbols, dtype=np.int64))
            begin += self.sizes[part]
        return np.concatenate(found)

    def weight(self, shape: tuple[Size, Size]) -> NDArray[np.int64]:
        """The places of a weight that are shown, row by row."""
        rows, columns = shape
        if not columns:
            return self.index(rows)
        width = sum(self.sizes[part] for part in columns)
        return (self.index(rows)[:, None] * width + self.index(columns)).reshape(-1)

    def names(self, size: Size) -> list[str]:
        """Return the labels of a vector's elements."""
        found: list[str] = []
        for part in size:
            found += [str(k) for k in self.units] if part == "H" else self.labels
        return found or [""]

    def numbers(self, vector: Array, size: Size) -> list[float | str]:
        return [finite(value) for value in np.atleast_1d(vector)[self.index(size)].tolist()]

    def matrix(self, value: Array, shape: tuple[Size, Size]) -> list[float | str]:
        return [finite(number) for number in value.reshape(-1)[self.weight(shape)].tolist()]


def finite(value: float) -> float | str:
    """A number as JSON has it, or as a person writes it."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "∞" if value > 0 else "−∞"


def describe_step(
    cell: str,
    network: EquationNetwork,
    weights: Mapping[str, Array],
    found: ForwardPass,
    ids: list[int],
    shown: ShownUnits,
    code: PythonCell | None,
) -> JsonObject:
    nodes, states = network.nodes, network.equations.states
    backward = name_slopes(nodes, list(states.values()))
    order = _order(network)
    steps = range(len(found.values))
    label = dict(zip(shown.symbols, shown.labels, strict=True))
    return {
        "cell": cell,
        "symbols": shown.labels,
        "inputs": [label[k] for k in ids[:-1]],
        "targets": [label[k] for k in ids[1:]],
        "units": shown.units,
        "loss": finite(found.loss),
        "states": [{"name": name, "node": k, "before": _before(nodes, name)} for name, k in states.items()],
        "rows": [_node_entry(cell, network, k, backward[k], shown, code) for k in order],
        "weights": [_weight_entry(cell, network, name, backward, shown) for name in network.shapes],
        "values": [[shown.numbers(found.values[t][k], nodes[k].size) for k in order] for t in steps],
        "gradients": [[shown.numbers(found.gradients[t][k], nodes[k].size) for k in order] for t in steps],
        "others": [[_other_units(nodes[k], found.values[t][k], found.values[t], shown) for k in order] for t in steps],
        "within": [_by_state(found.within[t], shown) for t in steps],
        "from_next": [_by_state(found.from_next[t], shown) for t in steps],
        "to_start": _by_state(found.start, shown),
        "numbers": {name: shown.matrix(weights[name], shape) for name, shape in network.shapes.items()},
        "terms": [
            {name: shown.matrix(found.terms[t][name], shape) for name, shape in network.shapes.items()} for t in steps
        ],
        "sums": [
            {name: shown.matrix(found.total(name, t), shape) for name, shape in network.shapes.items()} for t in steps
        ],
    }


def _order(network: EquationNetwork) -> list[int]:
    """Return the nodes that are rows: input and previous states first, then computed nodes in order."""
    nodes = network.nodes
    leaves = [k for op in ("input", "before") for k, node in enumerate(nodes) if node.op == op]
    return leaves + [k for k, node in enumerate(nodes) if node.op not in ("input", "before", "weight", "number")]


def _before(nodes: list[GraphNode], state: str) -> int | None:
    return next((k for k, node in enumerate(nodes) if node.op == "before" and node.name == state), None)


def _by_state(parts: Mapping[str, Array], shown: ShownUnits) -> JsonObject:
    return {name: shown.numbers(value, ("H",)) for name, value in parts.items()}


def _node_entry(
    cell: str, network: EquationNetwork, k: int, slope: str, shown: ShownUnits, code: PythonCell | None
) -> JsonObject:
    node, own = network.nodes[k], k < len(network.equations.nodes)
    if cell in TEXTBOOK or not own:
        book = cell if cell in TEXTBOOK else "elman"  # the output layer is the same for all
        forward, backward = forward_line(book, node.symbol), backward_line(book, node.symbol)
    else:
        forward, backward = None, None
    typed = None
    if forward is None and own and code is not None and cell not in TEXTBOOK:
        typed = next(
            (line for name, line in code.lines.items() if _reads(network, network.equations.names[name], k)), None
        )
    return {
        "node": k,
        "op": node.op,
        "name": node.name,
        "symbol": node.symbol,
        "formula": "" if node.formula == node.symbol and node.op in ("input", "before") else node.formula,
        "slope": slope,
        "kind": KINDS.get(node.size, "parts"),
        "labels": shown.names(node.size),
        "part": "cell" if own else "output",
        "reads": [_read(network.nodes, arg) for arg in node.args],
        "signs": list(node.signs),
        "code": forward._asdict() if forward else {"file": "typed.py", "line": None, "text": typed} if typed else None,
        "back": backward._asdict() if backward else None,
    }


def _read(nodes: list[GraphNode], k: int) -> JsonObject:
    """Return the operand of a row: a weight, a number, or another row."""
    node = nodes[k]
    if node.op == "number":
        return {"number": node.number}
    return {"weight": node.name} if node.op == "weight" else {"node": k}


def _reads(network: EquationNetwork, top: int, k: int) -> bool:
    """Whether a node is computed in the equation whose result is `top`."""
    if top == k:
        return True
    inside = [arg for arg in network.nodes[top].args if not network.nodes[arg].name]
    return any(_reads(network, arg, k) for arg in inside)


def _weight_entry(
    cell: str, network: EquationNetwork, name: str, slopes_of: list[str], shown: ShownUnits
) -> JsonObject:
    rows, columns = network.shapes[name]
    k = next(k for k, node in enumerate(network.nodes) if node.op == "weight" and node.name == name)
    output = name in network.letters
    line = (
        backward_line(cell if cell in TEXTBOOK else "elman", network.nodes[k].symbol)
        if cell in TEXTBOOK or output
        else None
    )
    return {
        "name": name,
        "symbol": network.nodes[k].symbol,
        "rows": shown.names(rows),
        "columns": shown.names(columns) if columns else [],
        "slope": slopes_of[k],
        "back": line._asdict() if line else None,
    }


def _other_units(node: GraphNode, value: Array, values: list[Array], shown: ShownUnits) -> list[float | str] | None:
    """Return what hidden units add to a product, or the probability of the symbols that are not shown."""
    if node.op == "softmax" and len(shown.symbols) < len(value):
        return [finite(float(np.delete(value, shown.symbols).sum()))]
    if node.op != "product":
        return None
    matrix, vector = (values[arg] for arg in node.args)
    hidden = np.setdiff1d(np.arange(len(vector)), shown.units)
    if len(vector) != shown.sizes["H"] or not len(hidden) or len(shown.units) == len(vector):
        return None
    return shown.numbers(matrix[:, hidden] @ vector[hidden], node.size)


UNITS = 8
"""At most; of a larger network, so many are shown."""
STEPS = 12
"""At most."""
UPDATES = 100
"""Updates of the weights, at most."""
TYPED = "own"
"""The cell that is typed into the page."""


Edits = dict[str, dict[int, float]]


@dataclass
class EquationRequest:
    """A request, checked."""

    equations: Equations
    cell: str
    text: str
    activation: str = ""
    """Of an Elman network, as the reference calls it."""


class StepTextRequest(RequestModel):
    """Text that is stepped through, and the updates of the weights before."""

    text: str = "machine"
    updates: Annotated[int, Field(ge=0, le=UPDATES)] = 0
    rate: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Learning rate η of an update."""


class ToyRequest(StepTextRequest):
    """Cell with toy weights, and the equations of a typed one."""

    cell: str = "elman"
    equations: str = ""
    units: Annotated[int, Field(ge=1, le=UNITS)] = 4
    seed: Annotated[int, Field(ge=0, le=10**6)] = 0


def step(request: JsonObject) -> JsonObject:
    """Return the steps of a cell with toy weights."""
    try:
        given = validate(ToyRequest, request)
        asked = _parse_request(given)
    except EquationError as error:
        return _describe_error(error)
    units = given.units
    symbols = list(dict.fromkeys(asked.text))
    K = len(symbols)
    network = EquationNetwork(asked.equations, K, units, K)
    weights = network.toy_weights(given.seed)
    shown = ShownUnits(list(range(units)), list(range(K)), symbols, network.sizes)
    return _compute_step(request, asked, network, weights, [symbols.index(sign) for sign in asked.text], shown)


def run_step(model: LoadedModel, request: JsonObject) -> JsonObject:
    """Return the steps of a run's network; of more than eight units, eight are shown."""
    found: RunNetwork = equation_network(model)
    asked = EquationRequest(
        read_equations(found.text), found.cell, _check_text(validate(StepTextRequest, request).text), found.activation
    )
    ids = found.encode(asked.text)
    symbols = list(dict.fromkeys(ids))
    H, K = found.weights["V"].shape[1], found.weights["V"].shape[0]
    network = EquationNetwork(asked.equations, K, H, K)
    first = network.run(found.weights, np.eye(K)[ids[:-1]], ids[1:])
    units = _units(request, H) or found.telling_units(network, first, UNITS)
    shown = ShownUnits(units, symbols, [found.symbol(k) for k in symbols], network.sizes)
    return {
        **_compute_step(request, asked, network, found.weights, ids, shown),
        "units_of": H,
        "symbols_of": K,
        "difference": found.difference(model, first, ids),
    }


def _describe_error(error: EquationError) -> JsonObject:
    sentence = error.args[0]
    words = {"en": str(sentence), "zh": translate(sentence, "zh")}
    return {"mistake": {"line": error.line, "column": error.column, **words}, "examples": EXAMPLES}


def _parse_request(given: ToyRequest) -> EquationRequest:
    cell = given.cell
    if cell not in (*TEXTBOOK, TYPED):
        raise OptionError(
            Message("cell must be one of {known}, got {got}", known=", ".join((*TEXTBOOK, TYPED)), got=repr(cell[:40]))
        )
    text = _check_text(given.text)
    written = given.equations if cell == TYPED else TEXTBOOK[cell].text
    return EquationRequest(read_equations(written), cell, text)


def _check_text(text: str) -> str:
    if not 2 <= len(text) <= STEPS + 1:
        raise OptionError(
            Message("a text of 2 to {most} characters is stepped through, got {count}", most=STEPS + 1, count=len(text))
        )
    return text


def _units(request: JsonObject, H: int) -> list[int]:
    """Return the requested units; an empty list selects the units with the largest gradients."""
    if H <= UNITS:
        return list(range(H))
    given = request.get("shown", [])
    if not isinstance(given, list) or not all(type(k) is int and 0 <= k < H for k in given) or len(given) > UNITS:
        raise OptionError(Message("at most {most} units can be shown, each in 0 … {last}", most=UNITS, last=H - 1))
    return sorted(set(given))


def _compute_step(
    request: JsonObject,
    asked: EquationRequest,
    network: EquationNetwork,
    weights: Mapping[str, Array],
    ids: list[int],
    shown: ShownUnits,
) -> JsonObject:
    """Run the forward and backward pass with all numbers changed by hand, and return the response."""
    weights = {name: value.copy() for name, value in weights.items()}
    x = np.eye(network.sizes["D"])[ids[:-1]]
    start = {name: np.zeros(network.sizes["H"]) for name in asked.equations.states}
    _edit_weights(request, network, weights, shown)
    for t, edits in _edits(request, "x").items():
        _apply_edits(x[_get_step(t, len(x))], shown.index(("D",)), edits)
    for name, edits in _edits(request, "start").items():
        if name not in start:
            raise OptionError(Message("there is no state {name}", name=repr(name[:40])))
        _apply_edits(start[name], shown.index(("H",)), edits)
    held = {}
    for place, edits in _edits(request, "held").items():
        t, _, node = place.partition(".")
        k = int(node) if node.isdecimal() and len(node) < 4 and int(node) < len(network.nodes) else -1
        if k < 0 or network.nodes[k].op in ("weight", "number", "input"):
            raise OptionError(Message("there is no number to hold at {place}", place=repr(place[:40])))
        indices = shown.index(network.nodes[k].size)
        held[_get_step(t, len(x)), k] = {int(indices[_shown_index(i, indices)]): value for i, value in edits.items()}
    found = network.run(weights, x, ids[1:], start, held)
    losses = [finite(found.loss)]
    given = validate(StepTextRequest, request)
    for _ in range(given.updates):  # W ← W − η ∇W; numbers that were typed stay
        for name in network.shapes:
            weights[name] = weights[name] - given.rate * found.total(name, 0)
        _edit_weights(request, network, weights, shown)
        found = network.run(weights, x, ids[1:], start, held)
        losses.append(finite(found.loss))
    code, refusal = _python(asked)
    return {
        **describe_step(asked.cell, network, weights, found, ids, shown, code),
        "start": {name: shown.numbers(value, ("H",)) for name, value in start.items()},
        "losses": losses,
        "python": None if code is None else code.source,
        "no_python": refusal,
        "equations": asked.equations.text,
        "examples": EXAMPLES,
        "reference": None
        if held or asked.cell == TYPED
        else compare_with_cell(asked.cell, asked.activation, network, weights, x, ids, start, found),
    }


def _python(asked: EquationRequest) -> tuple[PythonCell | None, str]:
    try:
        return python_cell(asked.equations, "Typed" if asked.cell == TYPED else f"My{asked.cell.capitalize()}"), ""
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
            if not k.isdecimal() or len(k) > 6 or finite_or_none(value) is None:
                raise OptionError(Message("{name} has {got}, which is no number", name=name, got=repr(value)[:40]))
            found[place][int(k)] = float(value)
    return found


def _edit_weights(request: JsonObject, network: EquationNetwork, weights: dict[str, Array], shown: ShownUnits) -> None:
    for name, edits in _edits(request, "weights").items():
        if name not in weights:
            raise OptionError(Message("there is no weight {name}", name=repr(name[:40])))
        _apply_edits(weights[name], shown.weight(network.shapes[name]), edits)


def _shown_index(i: int, indices: NDArray[np.int64]) -> int:
    if i >= len(indices):
        raise OptionError(Message("there is no number {place} among {count}", place=i, count=len(indices)))
    return i


def _apply_edits(array: Array, indices: NDArray[np.int64], edits: Mapping[int, float]) -> None:
    for i, value in edits.items():
        array.reshape(-1)[indices[_shown_index(i, indices)]] = value


def _get_step(t: str, steps: int) -> int:
    if not t.isdecimal() or len(t) > 3 or int(t) >= steps:
        raise OptionError(Message("there is no step {step}", step=repr(t[:10])))
    return int(t)

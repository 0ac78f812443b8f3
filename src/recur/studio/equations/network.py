"""A cell along a text, with the notes' output layer: every value of every step, and every gradient on the way back.

    o_t = V h_t + c        ŷ_t = softmax(o_t)        L = − Σ_t log ŷ_t[y_t]

A number that is *held* is not computed: it is what it was set to, and everything after it follows. Back, the gradient
reaches it and goes no further, as with `detach`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recur.reference.sequence import Array
from recur.studio.equations.graph import LEAVES, Equations, GraphNode, Size, backward, forward, shown
from recur.studio.equations.parser import NOW

OUTPUTS: Size = ("K",)

Weights = Mapping[str, Array]
HeldValues = Mapping[tuple[int, int], Mapping[int, float]]
"""By step and node, the numbers that are held, and at what."""


@dataclass
class ForwardPass:
    """One pass along a text, forward and back. Lists are by step, then by node."""

    values: list[list[Array]]
    gradients: list[list[Array]]
    within: list[dict[str, Array]]
    """Of ∂L/∂state after a step, the part that comes through this step: its output, and other states of it."""
    from_next: list[dict[str, Array]]
    """The part that comes from the step behind it."""
    terms: list[dict[str, Array]]
    """What each step adds to the gradient of every weight."""
    start: dict[str, Array] = field(default_factory=dict)
    """∂L/∂ of the states before the first step."""

    @property
    def loss(self) -> float:
        return float(sum(step[-1][0] for step in self.values))

    def total(self, weight: str, first: int = 0) -> Array:
        """∇ of a weight: the sum of all steps' terms, or of those from one step on."""
        found: Array = np.sum([terms[weight] for terms in self.terms[first:]], axis=0)
        return found


class EquationNetwork:
    """Equations for D inputs, H units and K outputs."""

    def __init__(self, equations: Equations, D: int, H: int, K: int) -> None:
        self.equations, self.sizes = equations, {"D": D, "H": H, "K": K}
        taken = {*equations.names, *equations.weights}
        V, c, o = self.letters = tuple(name if name not in taken else f"{name}_y" for name in ("V", "c", "o"))
        """The output layer's; with a y where the cell has such a letter of its own."""
        self.shapes: dict[str, tuple[Size, Size]] = {**equations.weights, V: (OUTPUTS, ("H",)), c: (OUTPUTS, ())}
        self.nodes = [*equations.nodes, *self._output_layer(V, c, o)]

    def _output_layer(self, V: str, c: str, o: str) -> list[GraphNode]:
        h, n = self.equations.output, len(self.equations.nodes)
        state, logits, y_hat = self.equations.nodes[h].symbol, shown(o, NOW), "ŷ_t"
        product = f"{shown(V)} {state}"
        return [
            GraphNode("weight", name=V, size=OUTPUTS, columns=("H",), symbol=shown(V), formula=shown(V)),
            GraphNode("weight", name=c, size=OUTPUTS, symbol=shown(c), formula=shown(c)),
            GraphNode("product", (n, h), size=OUTPUTS, symbol=product, formula=product),
            GraphNode(
                "sum", (n + 2, n + 1), o, OUTPUTS, signs=(1, 1), symbol=logits, formula=f"{product} + {shown(c)}"
            ),
            GraphNode("softmax", (n + 3,), "ŷ", OUTPUTS, symbol=y_hat, formula=f"softmax({logits})"),
            GraphNode("loss", (n + 4,), "L", (), symbol="L_t", formula="−log ŷ_t[y_t]"),
        ]

    def shape_of(self, weight: str) -> tuple[int, ...]:
        rows, columns = self.shapes[weight]
        both = [sum(self.sizes[part] for part in size) for size in (rows, columns)]
        return tuple(both) if columns else (both[0],)

    def toy_weights(self, seed: int) -> dict[str, Array]:
        """Numbers of one decimal, which can be followed by hand: in ± 1, biases in ± 0.3."""
        numbers = np.random.default_rng(seed)
        drawn = {}
        for name, (_, columns) in self.shapes.items():
            bound = 1.0 if columns else 0.3
            drawn[name] = np.round(numbers.uniform(-bound, bound, self.shape_of(name)), 1) + 0.0
        return drawn

    def run(
        self,
        weights: Weights,
        x: Array,
        targets: Sequence[int],
        start: Mapping[str, Array] | None = None,
        held: HeldValues | None = None,
    ) -> ForwardPass:
        """Along x (T, D), each step to say `targets`, from states `start` (zero if not given)."""
        zero = np.zeros(self.sizes["H"])
        before = {name: (start or {}).get(name, zero) for name in self.equations.states}
        with np.errstate(all="ignore"):  # an edited number may be anything: what comes of it is shown, ∞ or no number
            values = self._forward(weights, x, targets, before, held or {})
            return self._backward(values, targets, held or {})

    def _forward(
        self, weights: Weights, x: Array, targets: Sequence[int], before: Mapping[str, Array], held: HeldValues
    ) -> list[list[Array]]:
        steps: list[list[Array]] = []
        for t, target in enumerate(targets):
            values: list[Array] = []
            for k, node in enumerate(self.nodes):
                match node.op:
                    case "input":
                        value = x[t]
                    case "before":
                        value = before[node.name]
                    case "weight":
                        value = weights[node.name]
                    case "number":
                        value = np.array(node.number)
                    case _:
                        value = forward(node, [values[arg] for arg in node.args], target)
                if (t, k) in held:
                    value = value.copy()
                    for place, number in held[t, k].items():
                        value.reshape(-1)[place] = number
                values.append(value)
            steps.append(values)
            before = {name: values[k] for name, k in self.equations.states.items()}
        return steps

    def _backward(self, values: list[list[Array]], targets: Sequence[int], held: HeldValues) -> ForwardPass:
        steps = len(values)
        found = ForwardPass(values, [[]] * steps, [{} for _ in values], [{}] * steps, [{}] * steps)
        state_of = {k: name for name, k in self.equations.states.items()}
        from_next = {name: np.zeros(self.sizes["H"]) for name in self.equations.states}
        for t in reversed(range(steps)):
            own = [np.zeros_like(value) for value in values[t]]
            own[-1] = np.ones(1)
            found.from_next[t] = from_next
            for k in reversed(range(len(self.nodes))):
                node = self.nodes[k]
                if node.op in LEAVES:
                    continue
                if k in state_of:  # all that reads it in this step stands behind it
                    found.within[t][state_of[k]] = own[k]
                    own[k] = own[k] + from_next[state_of[k]]
                onward = own[k].copy()
                for place in held.get((t, k), ()):
                    onward.reshape(-1)[place] = 0.0
                args = [values[t][arg] for arg in node.args]
                for arg, part in zip(node.args, backward(node, onward, values[t][k], args, targets[t]), strict=True):
                    own[arg] = own[arg] + part
            found.gradients[t] = own
            leaves = {node.name: own[k] for k, node in enumerate(self.nodes) if node.op == "before"}
            zero = np.zeros(self.sizes["H"])
            from_next = {
                name: _past_held(leaves.get(name, zero), held.get((t, self._before(name)), {}))
                for name in self.equations.states
            }
            found.terms[t] = {node.name: own[k] for k, node in enumerate(self.nodes) if node.op == "weight"}
        found.start = from_next
        return found

    def _before(self, state: str) -> int:
        """The node of a state before the step; −1 where no equation reads it."""
        return next((k for k, node in enumerate(self.nodes) if node.op == "before" and node.name == state), -1)


def _past_held(gradient: Array, held: Mapping[int, float]) -> Array:
    passed = gradient.copy()
    for place in held:
        passed[place] = 0.0
    return passed


SLOPES = {
    "σ": "{y} ⊙ (1 − {y}) ⊙ {g}", "tanh": "(1 − {y}²) ⊙ {g}", "ReLU": "[{y} > 0] ⊙ {g}", "exp": "{y} ⊙ {g}",
    "log": "{g} / {a}", "√": "{g} / (2 {y})", "softplus": "σ({a}) ⊙ {g}", "sin": "cos({a}) ⊙ {g}",
    "cos": "−sin({a}) ⊙ {g}", "abs": "sign({a}) ⊙ {g}", "same": "{g}", "loss": "−1 / ŷ_t[y_t]",
    "softmax": "ŷ_t − 1[y_t]",
}  # fmt: skip
"""Of y = φ(a) with g = ∂y. That of the softmax has the loss behind it in it."""


def name_slopes(nodes: Sequence[GraphNode], states: Sequence[int]) -> list[str]:
    """For each node the formula of its gradient, in the gradients of those that read it."""
    readers: list[list[tuple[int, int]]] = [[] for _ in nodes]
    for k, node in enumerate(nodes):
        for place, arg in enumerate(node.args):
            readers[arg].append((k, place))
    names = [""] * len(nodes)
    for k in reversed(range(len(nodes))):
        names[k] = _name(nodes, readers, names, states, k)
    found = []
    for k in range(len(nodes)):
        parts = [_part(nodes, names, reader, place) for reader, place in readers[k]]
        text = " + ".join(parts).replace("+ −", "− ")
        found.append(text or ("1" if nodes[k].op == "loss" else "0"))
    return found


def _inside(node: GraphNode) -> str:
    """A node's symbol as a factor."""
    whole = node.symbol != node.formula or node.op not in ("sum", "times", "quotient", "product", "power")
    return node.symbol if whole else f"({node.symbol})"


def _name(
    nodes: Sequence[GraphNode], readers: list[list[tuple[int, int]]], names: list[str], states: Sequence[int], k: int
) -> str:
    if len(readers[k]) == 1 and k not in states and not nodes[k].name:
        reader, place = readers[k][0]
        if nodes[reader].op == "sum" and nodes[reader].signs[place] > 0 and nodes[k].size == nodes[reader].size:
            return names[reader]
    symbol = nodes[k].symbol
    return f"∂{symbol}" if " " not in symbol and "(" not in symbol else f"∂({symbol})"


def _part(nodes: Sequence[GraphNode], names: list[str], reader: int, place: int) -> str:
    node, g = nodes[reader], names[reader]
    inside = [_inside(nodes[arg]) for arg in node.args]
    match node.op:
        case "product":
            return f"{g} {inside[1]}ᵀ" if place == 0 else f"{inside[0]}ᵀ {g}"
        case "sum":
            return g if node.signs[place] > 0 else f"−{g}"
        case "times":
            other = nodes[node.args[1 - place]]
            return f"{inside[1 - place]} {g}" if not other.size else f"{inside[1 - place]} ⊙ {g}"
        case "quotient":
            return f"{g} / {inside[1]}" if place == 0 else f"−{g} ⊙ {_inside(node)} / {inside[1]}"
        case "power":
            return f"{node.number:g} {inside[0]}^{node.number - 1:g} ⊙ {g}"
        case "beside":
            return f"{g}[{inside[place]}]"
        case _:
            return SLOPES[node.op].format(y=_inside(node), a=nodes[node.args[0]].symbol, g=g)

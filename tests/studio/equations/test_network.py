"""Every value and every gradient: against the reference by hand, and against differences of the loss."""

from __future__ import annotations

import numpy as np
import pytest

from recur.reference import network as reference
from recur.reference import sequence
from recur.studio.equations import EquationNetwork, read_equations
from recur.studio.equations.network import name_slopes
from recur.studio.equations.textbook import EXAMPLES, TEXTBOOK, backward_line, forward_line

SYMBOLS = "machine"
IDS = [SYMBOLS.index(sign) for sign in "machine"]
OTHERS = {
    "functions": "a = softplus(U x) / (1 + exp(W h)) + √3\n".replace("√3", "sqrt(3)")
    + "h' = sin(a)² ⊙ cos(h) − log(2 + abs(a)) ^ 2 + relu(−a + h) / 2 + 0.5 h",
    "two states, one matrix": "c' = W c + W h + U x\nk = 0.5 + 1\nh' = k * tanh(c') − c",
}
TEXTS = {**{name: book.text for name, book in TEXTBOOK.items()}, **EXAMPLES, **OTHERS}


def drawn(
    text: str, H: int, seed: int = 0, steps: int = 6
) -> tuple[EquationNetwork, dict[str, np.ndarray], np.ndarray, list[int]]:
    network = EquationNetwork(read_equations(text), len(SYMBOLS), H, len(SYMBOLS))
    numbers = np.random.default_rng(seed)
    weights = {name: numbers.normal(size=network.shape_of(name)) / 2 for name in network.shapes}
    return network, weights, np.eye(len(SYMBOLS))[IDS[:steps]], IDS[1 : steps + 1]


@pytest.mark.parametrize("H", [1, 3, 8])
@pytest.mark.parametrize("cell", TEXTBOOK)
def test_the_three_cells_are_the_references(cell: str, H: int) -> None:
    book = TEXTBOOK[cell]
    network, weights, x, targets = drawn(book.text, H)
    x = x + np.random.default_rng(1).normal(size=x.shape)  # as if all of it had been typed over
    start = {name: np.random.default_rng(2).normal(size=H) for name in network.equations.states}
    found = network.run(weights, x, targets, start)
    parameters = book.parameters(weights)
    begin = tuple(value[:, None] for value in start.values())
    loss, theirs = reference.loss_and_gradients(book.module, x.T[:, None], np.array([targets]), begin, parameters)
    states, last, _ = sequence.forward(book.module, x.T[:, None], begin, parameters)
    near = {"rtol": 1e-12, "atol": 1e-12}

    np.testing.assert_allclose(found.loss, loss, **near)
    output = network.equations.output
    np.testing.assert_allclose([step[output] for step in found.values], states[:, 0].T, **near)
    np.testing.assert_allclose(
        [step[-2] for step in found.values], reference.output_forward(states, parameters)[:, 0].T, **near
    )
    for name, value in zip(network.equations.states, last, strict=True):
        np.testing.assert_allclose(found.values[-1][network.equations.states[name]], value[:, 0], **near)
    totals = book.parameters({name: found.total(name) for name in weights})
    for name, value in totals.items():
        if name == "bW":  # the reference's second bias of r and z is in our first
            value[: 2 * H] = totals["b"][: 2 * H]
        np.testing.assert_allclose(value, theirs.weights[f"d{name}"], **near)
    x_node = next(k for k, node in enumerate(network.nodes) if node.op == "input")
    for t, gradients in enumerate(found.gradients):
        np.testing.assert_allclose(gradients[x_node], theirs.dx[:, 0, t], **near)
        np.testing.assert_allclose(gradients[-3], theirs.do[:, 0, t], **near)
        for k, state in zip(network.equations.states.values(), theirs.dstates.values(), strict=True):
            np.testing.assert_allclose(gradients[k], state[:, 0, t], **near)
    for name, value in zip(start, theirs.ds0, strict=True):
        np.testing.assert_allclose(found.start[name], value[:, 0], **near)


@pytest.mark.parametrize("name", TEXTS)
def test_every_number_has_the_slope_of_the_loss(name: str) -> None:
    """A number is held a little above and below what it is: the loss says its gradient."""
    H, step = 2, 1e-6
    network, weights, x, targets = drawn(TEXTS[name], H, seed=3, steps=3)
    found = network.run(weights, x, targets)
    numbers = np.random.default_rng(4)
    for t in range(len(x)):
        for k, node in enumerate(network.nodes):
            if node.op in ("weight", "number"):
                continue
            place = int(numbers.integers(found.values[t][k].size)) if node.op != "loss" else 0
            value = float(found.values[t][k].reshape(-1)[place])
            above, below = (network.run(weights, x, targets, held={(t, k): {place: value + d}}) for d in (step, -step))
            slope = (above.loss - below.loss) / (2 * step)
            ours = float(found.gradients[t][k].reshape(-1)[place])
            assert ours == pytest.approx(slope, rel=1e-6, abs=1e-7), (t, node.symbol, place)
    for weight, value in weights.items():
        place = int(numbers.integers(value.size))
        losses = []
        for d in (step, -step):
            moved = value.copy()
            moved.reshape(-1)[place] += d
            losses.append(network.run({**weights, weight: moved}, x, targets).loss)
        slope = (losses[0] - losses[1]) / (2 * step)
        assert found.total(weight).reshape(-1)[place] == pytest.approx(slope, rel=1e-6, abs=1e-7), weight


def test_what_is_held_stops_the_gradient_as_detach_does() -> None:
    network, weights, x, targets = drawn(TEXTBOOK["gru"].text, 3)
    whole = network.run(weights, x, targets)
    output = network.equations.output
    kept = {k: float(value) for k, value in enumerate(whole.values[2][output])}
    held = network.run(weights, x, targets, held={(2, output): kept})
    assert held.loss == whole.loss, "held at what it was"
    np.testing.assert_array_equal(held.gradients[2][output], whole.gradients[2][output])
    first = network.run(weights, x[:2], targets[:2])  # of what lies before, the losses before are left
    for weight in ("U_z", "W_h", "d_h"):
        np.testing.assert_array_equal(held.terms[2][weight], np.zeros_like(held.terms[2][weight]))
        for t in range(2):
            np.testing.assert_allclose(held.terms[t][weight], first.terms[t][weight], rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(held.terms[3][weight], whole.terms[3][weight])
    one = network.run(weights, x, targets, held={(2, output): {1: 0.5}})
    assert one.values[2][output][1] == 0.5
    assert one.values[3][output][0] != whole.values[3][output][0]
    assert one.from_next[1]["h"][0] != 0, "the others pass on"


def test_the_two_parts_of_a_states_gradient() -> None:
    network, weights, x, targets = drawn(TEXTBOOK["lstm"].text, 3)
    found = network.run(weights, x, targets)
    V = weights["V"]
    for t in range(len(x)):
        from_output = V.T @ found.gradients[t][-3]
        np.testing.assert_allclose(found.within[t]["h"], from_output, rtol=1e-13)
        for name, k in network.equations.states.items():
            np.testing.assert_array_equal(found.within[t][name] + found.from_next[t][name], found.gradients[t][k])
    assert not any(part.any() for part in found.from_next[-1].values())


def test_numbers_out_of_range_are_shown_and_not_raised() -> None:
    network, weights, x, targets = drawn("h' = exp(U x + W h)", 2)
    found = network.run({**weights, "W": np.full((2, 2), 1e3)}, x, targets)
    assert not np.isfinite(found.loss)


def test_toy_weights_can_be_followed_by_hand() -> None:
    network = EquationNetwork(read_equations(TEXTBOOK["elman"].text), 7, 4, 7)
    weights = network.toy_weights(0)
    assert all(np.array_equal(np.round(value, 1), value) for value in weights.values())
    assert all(np.array_equal(value, network.toy_weights(0)[name]) for name, value in weights.items())
    assert not np.array_equal(weights["W"], network.toy_weights(1)["W"])


@pytest.mark.parametrize("cell", TEXTBOOK)
def test_every_row_has_its_line_of_the_reference(cell: str) -> None:
    network = EquationNetwork(read_equations(TEXTBOOK[cell].text), 5, 3, 5)
    for node in network.nodes:
        if node.op in ("number", "weight", "input", "before"):
            continue
        line = forward_line(cell, node.symbol)
        assert line is not None, node.symbol
        assert line.file.startswith("recur/reference/")
    for node in network.nodes:
        needs = node.op in ("weight", "input", "before") or node.symbol.startswith(("a_", "h_t", "c_t", "o_t"))
        line = backward_line(cell, node.symbol)
        assert line is not None or not needs or node.symbol in ("o_t", "c_t"), node.symbol


def test_the_gradients_are_written_as_a_book_writes_them() -> None:
    network = EquationNetwork(read_equations(TEXTBOOK["lstm"].text), 5, 3, 5)
    found = dict(
        zip(
            (node.symbol for node in network.nodes),
            name_slopes(network.nodes, list(network.equations.states.values())),
            strict=True,
        )
    )
    assert found["a_{f,t}"] == "f_t ⊙ (1 − f_t) ⊙ ∂f_t"
    assert found["f_t"] == "c_{t−1} ⊙ ∂c_t"
    assert found["c_{t−1}"] == "f_t ⊙ ∂c_t"
    assert found["W_g"] == "∂a_{g,t} h_{t−1}ᵀ"
    assert found["h_t"] == "Vᵀ ∂o_{y,t}"
    assert found["o_{y,t}"] == "ŷ_t − 1[y_t]"
    own = read_equations("h' = U x / (2 + h²) − 3 h")
    written = name_slopes(own.nodes, list(own.states.values()))
    assert any("/" in text for text in written)
    assert any(text.startswith("−") for text in written)

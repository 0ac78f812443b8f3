"""The cell that is taken along gives the typed cell's numbers, and autograd its gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from recur.cells import Cell, make_cell
from recur.cli.app import run
from recur.errors import CellError
from recur.ops import scan
from recur.studio.equations import EquationNetwork, read_equations
from recur.studio.equations.python_cell import PythonCell, python_cell
from tests.studio.equations.test_network import TEXTS, drawn

MORE = {
    "names of Python's": "for' = tanh(U x + W for + lambda)\n",
    "no product of W": "z = σ(U_z x)\nh' = z ⊙ h + (1 − z) ⊙ (U x + b)",
    "a bias for two": "z = σ(U_z x + b)\nh' = z ⊙ h + tanh(U x + W h + b)",
    "a gate twice": "h' = tanh(U x + W h) + σ(U x)",
    "three side by side": "c' = tanh(W [h, c, x] + b)\nh' = 0.5 h + W_c c'",
}


def weights_of(
    network: EquationNetwork, made: PythonCell, cell: Cell, typed: dict[str, np.ndarray]
) -> dict[str, torch.Tensor]:
    """The typed weights as the cell's: blocks of gates, biases that nobody wrote at zero."""
    H, D = network.sizes["H"], network.sizes["D"]
    found = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in cell.shapes(D, H).items()}

    def block(matrix: str, part: int) -> np.ndarray:
        if part < 0:
            return typed[matrix]
        sizes = [network.sizes[size] for size in network.shapes[matrix][1]]
        return np.split(typed[matrix], np.cumsum(sizes)[:-1], axis=1)[part]

    for end, first in (("ih", False), ("hh", True)):
        for k, gate in enumerate(gate for gate in made.gates if gate.first == first):
            rows = slice(k * H, (k + 1) * H)
            found[f"weight_{end}"][rows] = torch.from_numpy(block(gate.matrix, gate.part))
            if gate.bias:
                found[f"bias_{end}"][rows] = torch.from_numpy(typed[gate.bias])
    for ours, theirs in made.extras.items():
        name, _, part = ours.partition("/")
        found[theirs] = torch.from_numpy(block(name, int(part)) if part else typed[name]).clone()
    return {name: value.requires_grad_() for name, value in found.items()}


@pytest.mark.parametrize("name", [*TEXTS, *MORE])
def test_it_equals_the_typed_cell_forward_and_back(name: str, tmp_path: Path) -> None:
    network, typed, x, targets = drawn({**TEXTS, **MORE}[name], 3, seed=5)
    made = python_cell(network.equations)
    file = tmp_path / "typed.py"
    file.write_text(made.source)
    cell = make_cell(f"{file}:Typed")
    weights = weights_of(network, made, cell, typed)
    inputs = torch.from_numpy(x)[None].requires_grad_()
    outputs = scan(cell, weights, inputs, backend="loop").outputs[0]
    V, c, _ = network.letters
    logits = outputs @ torch.from_numpy(typed[V]).T + torch.from_numpy(typed[c])
    loss = cross_entropy(logits, torch.tensor(targets), reduction="sum")
    loss.backward()

    found = network.run(typed, x, targets)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose([step[network.equations.output] for step in found.values], outputs.detach(), atol=1e-12)
    input_node = next(k for k, node in enumerate(network.nodes) if node.op == "input")
    np.testing.assert_allclose([g[input_node] for g in found.gradients], inputs.grad[0], atol=1e-12)  # type: ignore[index]
    totals = {weight: found.total(weight) for weight in typed}
    expected = weights_of(network, made, cell, totals)
    for key, value in weights.items():
        theirs = torch.zeros_like(value) if value.grad is None else value.grad
        written = torch.ones_like(value, dtype=torch.bool)
        if key.startswith("bias"):  # one that nobody wrote has a gradient all the same
            H = network.sizes["H"]
            gates = [gate for gate in made.gates if gate.first == key.endswith("hh")]
            written = torch.tensor([bool(gate.bias) for gate in gates]).repeat_interleave(H)
        torch.testing.assert_close(theirs[written], expected[key].detach()[written], atol=1e-11, rtol=1e-11)


def test_the_file_trains(tmp_path: Path) -> None:
    made = python_cell(read_equations(TEXTS["one gate"]))
    (tmp_path / "typed.py").write_text(made.source)
    (tmp_path / "book.txt").write_text("a network reads one symbol at a time\n" * 30)
    options = [
        "--hidden-size",
        "8",
        "--steps",
        "1",
        "--threads",
        "1",
        "--no-baseline",
        "-q",
        "--out",
        str(tmp_path / "run"),
    ]
    assert run(["train", str(tmp_path / "book.txt"), "--cell", f"{tmp_path / 'typed.py'}:Typed", *options]) == 0


def test_it_reads_as_a_person_would_write_it() -> None:
    source = python_cell(read_equations(TEXTS["gru"]), "Mine").source
    assert "class Mine(Cell):" in source
    assert "        h_tilde = tanh(x.h + r * h.h)\n        new_h = (1 - z) * h_tilde + z * s.h\n" in source


def test_what_a_step_of_recur_cannot_see_is_refused() -> None:
    with pytest.raises(CellError, match="sees x through matrices only"):
        python_cell(read_equations("h' = W tanh([h, x])"))

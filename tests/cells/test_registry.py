"""Cells by name, by file and by class, and cells that break the contract."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from recur import cells
from recur.cells import GRU, Cell, DeepTransition, Elman, cell_names, make_cell
from recur.cells.leaky import Leaky
from recur.cells.mingru import MinGRU
from recur.cells.registry import VARIANTS
from recur.errors import CellError, OptionError
from recur.nn import Recurrent
from recur.ops import scan
from tests.support import random_weights

MINE = """
from dataclasses import dataclass
from torch import sigmoid, tanh
from recur import Cell

@dataclass
class LeakyGRU(Cell):
    rate: float = 0.5
    gates = ("r", "z", "n")

    def step(self, x, h, s):
        r, z = sigmoid(x.r + h.r), sigmoid(x.z + h.z)
        n = tanh(x.n + r * h.n)
        return (self.rate * s.h + (1 - self.rate) * ((1 - z) * n + z * s.h),)

class NotACell:
    pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_every_file_of_the_folder_is_registered_and_exported() -> None:
    folder = Path(cells.__file__).parent
    written = re.findall(r'^    name = "(.+)"', "".join(path.read_text() for path in folder.glob("*.py")), re.MULTILINE)
    assert len(written) >= 10
    assert set(written) == set(cell_names()) - set(VARIANTS)
    for name in written:
        cls = type(make_cell(name))
        assert getattr(cells, cls.__name__) is cls
        assert cls.__name__ in cells.__all__
    assert cells.DeepTransition is DeepTransition
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = cells.Nothing


def test_a_name_a_class_and_a_cell_are_all_taken() -> None:
    assert isinstance(make_cell("gru"), GRU)
    assert isinstance(make_cell(GRU), GRU)
    cell = GRU()
    assert make_cell(cell) is cell
    assert make_cell("elman-relu") == Elman("relu") == make_cell("elman:activation=relu")
    assert make_cell("leaky:alpha=0.25") == Leaky(0.25) == make_cell("leaky", alpha=0.25)


def test_a_cell_from_a_file_runs(file: Path) -> None:
    layer = Recurrent(f"{file}:LeakyGRU", 4, 3)
    outputs, _, _ = layer(torch.randn(2, 5, 4))
    outputs.sum().backward()
    assert layer.weight_hh_l0.grad is not None
    assert make_cell(f"{file}:LeakyGRU:rate=0.9").rate == 0.9  # type: ignore[attr-defined]


def test_a_layer_with_a_cell_can_be_copied() -> None:
    layer = Recurrent(DeepTransition(Leaky(0.5)), 4, 3)
    twin = copy.deepcopy(layer)
    x = torch.randn(2, 5, 4)
    assert torch.equal(layer(x).outputs, twin(x).outputs)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("grv", "did you mean 'gru'"),
        ("nothing-like-it", "known: alif, cfc"),
        ("gru:size=3", "its options: none"),
        ("elman:relu", "key=value"),
        ("elman:activation=cosine", "unknown activation 'cosine'"),
        ("leaky:alpha=1.5", "alpha must lie in"),
        ("leaky:beta=1", "its options: alpha"),
        ("absent.py:Cell", "no cell file 'absent.py'"),
        (3, "got int 3"),
        (None, "got NoneType None"),
    ],
)
def test_an_unknown_cell_is_refused_in_words(spec: Any, says: str) -> None:
    with pytest.raises((CellError, OptionError), match=says):
        make_cell(spec)


def test_a_file_without_the_cell_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"no Cell named 'Other'; its cells: LeakyGRU$"):
        make_cell(f"{file}:Other")
    with pytest.raises(CellError, match="no Cell named 'NotACell'"):
        make_cell(f"{file}:NotACell")
    (tmp_path / "broken.py").write_text("def (")
    with pytest.raises(CellError, match="does not run: SyntaxError"):
        make_cell(f"{tmp_path / 'broken.py'}:Cell")


def test_the_options_of_a_plain_class_are_those_of_its_constructor(tmp_path: Path) -> None:
    code = "from recur.cells import GRU\nclass G(GRU):\n    def __init__(self, rate=1):\n        self.rate = 1 / rate\n"
    (tmp_path / "plain.py").write_text(code)
    with pytest.raises(CellError, match="its options: rate"):
        make_cell(f"{tmp_path / 'plain.py'}:G:speed=2")
    with pytest.raises(CellError, match="division by zero; its options: rate"):
        make_cell(f"{tmp_path / 'plain.py'}:G:rate=0")


def test_options_for_a_cell_that_is_made_come_too_late() -> None:
    with pytest.raises(CellError, match="come too late"):
        make_cell(GRU(), alpha=1)


# A class that breaks the contract is refused when it is defined -------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"gates": "h"}, r"write \('h',\)"),
        ({"states": "h"}, r"write \('h',\)"),
        ({"gates": ("h", "h")}, "distinct"),
        ({"gates": ("not a name",)}, "distinct Python names"),
        ({"gates": ("lambda",)}, "distinct Python names"),
        ({"states": ()}, "states is empty"),
        ({"extras": {"weight_ih": ("H",)}}, "belongs to the gates"),
        ({"extras": {"p": ("H", "H")}}, "mixes units; add pointwise = False"),
        ({"extras": {"p": ("K",)}, "pointwise": False}, "made of 'H', 'D' and whole numbers"),
        ({"extras": {"h0": ("H",)}}, "belongs to the gates or to an initial state"),
        ({"extras": ["p"]}, "must map names to shapes"),
        ({"gates": (1, 2)}, "distinct Python names"),
        ({"gates": ("i", "o"), "forget_gate": "f"}, "forget_gate must be one of its gates, i, o; got 'f'"),
    ],
)
def test_a_broken_contract_is_refused(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(CellError, match=says):
        type("Broken", (Cell,), attributes)


def run(cell: Cell) -> None:
    scan(cell, random_weights(cell, 4, 3), torch.randn(2, 5, 4, dtype=torch.float64))


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (lambda x, s: torch.tanh(x.g), r"one state still needs its comma: return \(h,\)"),
        (lambda x, s: (torch.tanh(x.g),), "2 of them, got 1"),
        (lambda x, s: (x.g, s.c, s.h), "2 of them, got 3"),
        (lambda x, s: (x.g, s.c[:, :1]), r"c was a float64 tensor \(2, 3\), got a float64 tensor \(2, 1\)"),
        (lambda x, s: (x.g, s.c.float()), "got a float32 tensor"),
        (lambda x, s: (x.g, None), "got NoneType None"),
        (lambda x, s: (x.q, s.c), "asks for x.q; its gates and inputs: g"),
        (lambda x, s: (x.g, s.d), "asks for s.d; its states: h, c"),
    ],
)
def test_a_step_that_returns_the_wrong_states_is_refused(result: Any, says: str) -> None:
    class Wrong(Cell):
        gates = ("g",)
        states = ("h", "c")

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return result(x, s)

    with pytest.raises(CellError, match=says):
        run(Wrong())


def test_a_cell_without_gates_or_step_is_refused() -> None:
    class NoStep(Cell):
        gates = ("g",)

    class NoGates(Cell):
        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (s.h,)

    with pytest.raises(CellError, match="NoStep has no step"):
        run(NoStep())
    x = torch.randn(2, 5, 4)
    with pytest.raises(CellError, match="gates is empty"):
        scan(NoGates(), {}, x)

    class NoW(Cell):
        gates = ("g",)
        extras = {"p": ("H",)}

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (s.h,)

    with pytest.raises(CellError, match=r"NoW has extras, so its step takes \(self, x, h, s, w\)"):
        run(NoW())
    with pytest.raises(CellError, match="DeepTransition goes around a Cell, got 'gru'"):
        DeepTransition("gru")  # type: ignore[arg-type]
    with pytest.raises(CellError, match="a scan carries a Cell"):
        scan("gru", {}, x)  # type: ignore[arg-type]


def test_a_step_that_writes_into_its_states_is_refused() -> None:
    class InPlace(Cell):
        gates = ("g",)

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (s.h.add_(x.g),)

    with torch.no_grad(), pytest.raises(CellError, match="changes the states it was given in place"):
        run(InPlace())


def test_gates_may_be_a_list_and_a_subclass_is_not_its_parent() -> None:
    class Listed(Cell):
        gates = ["a", "b"]  # type: ignore[assignment]

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (x.a + h.b,)

    run(Listed())

    class Mine(GRU):
        pass

    assert type(make_cell("gru")) is GRU


def test_states_survive_a_pickle_and_files_of_one_name_do_not_meet(tmp_path: Path) -> None:
    state = Recurrent("lstm", 4, 3)(torch.randn(2, 5, 4)).state[0]
    again = pickle.loads(pickle.dumps(state))
    assert torch.equal(again.c, state.c)
    cells = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(MINE)
        cells.append(make_cell(f"{tmp_path / folder / 'mine.py'}:LeakyGRU"))
    assert type(cells[0]) is not type(cells[1])
    assert pickle.loads(pickle.dumps(cells[0])) == cells[0]


def test_what_has_no_product_cannot_be_deepened() -> None:
    with pytest.raises(CellError, match="no product with W"):
        DeepTransition(MinGRU())
    with pytest.raises(OptionError, match="depth=3"):
        DeepTransition(DeepTransition(GRU(), 2), 1)
    with pytest.raises(OptionError, match="whole number"):
        DeepTransition(GRU(), 0)


def test_a_step_that_is_not_pointwise_is_a_cell_too() -> None:
    class NormedElman(Cell):
        gates = ("h",)
        extras = {"gain": ("H",)}
        pointwise = False

        def step(self, x: Any, h: Any, s: Any, w: Any) -> Any:
            a = x.h + h.h
            return (torch.tanh(torch.nn.functional.layer_norm(a, a.shape[-1:], w.gain)),)

    cell = NormedElman()
    weights = random_weights(cell, 4, 3)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, *w: scan(cell, dict(zip(weights, w, strict=True)), x).outputs, (x, *weights.values())
    )


@pytest.mark.parametrize(
    ("readme", "claim"), [("README.md", "{} cells are built in"), ("README.zh-CN.md", "内置 {} 种单元")]
)
def test_the_readme_states_the_number_of_cells(readme: str, claim: str) -> None:
    text = (Path(__file__).parents[2] / readme).read_text(encoding="utf-8")
    assert claim.format(len(cell_names())) in text, f"{readme}: expected {claim.format(len(cell_names()))!r}"

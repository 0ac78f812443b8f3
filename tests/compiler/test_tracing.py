"""Reading a step: what is saved for the backward pass, odd but right steps, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recur.cells import Cell, make_cell
from recur.compiler.assembly import Assembly, assemble
from recur.compiler.tracing import trace_step
from recur.errors import BackendError, CellError
from recur.ops import scan
from tests.support import Case, all_close, close, needs_core, random_state, random_weights

pytestmark = needs_core


def cell_of(step: Any, gates: str = "a", states: str = "h", products: str | None = None, **more: Any) -> Cell:
    made = {"gates": tuple(gates), "states": tuple(states), "step": step, **more}
    if products is not None:
        made["state_gates"] = tuple(products)
    found: Cell = type("Mine", (Cell,), made)()
    return found


def case_of(cell: Cell, H: int = 3) -> Case:
    case = Case("elman", H=H)
    case.cell, case.weights, case.state = cell, random_weights(cell, 4, H), random_state(cell, 3, H)
    case.on_state = [torch.randn(3, H, dtype=torch.float64) for _ in cell.states]
    return case


def by(case: Case, backend: str, **options: Any) -> dict[str, Tensor]:
    return case.everything(lambda: case.scan(backend=backend, **options))


# What the way back costs ----------------------------------------------------------------------------------


def assembled(name: str) -> Assembly:
    cell = make_cell(name)
    return assemble(cell, trace_step(cell), biased=True)


def test_an_elman_network_saves_its_states_alone() -> None:
    for name in ("elman", "elman-relu", "elman-sigmoid", "indrnn"):
        made = assembled(name)
        assert (made.saved, made.own, made.reads_share) == (0, 0, False), name


def test_an_lstm_saves_its_gates_in_their_own_places() -> None:
    for name in ("lstm", "lstm1997", "peephole"):
        made = assembled(name)
        assert (made.saved, made.own) == (0, 0), name
        assert made.product_places == list(range(made.gates))
        written = {made.train.places[operands[0]] for _, operands in made.train.instructions}
        assert {place for place in written if place[0] == "share"} == {("share", g) for g in range(made.gates)}


def test_a_gru_saves_one_value_more_than_its_gates() -> None:
    made = assembled("gru")
    assert (made.saved, made.own) == (1, 1)
    assert made.product_places == [0, 1, 3], "W_n h goes through the reset gate, and has a gradient of its own"


def test_inference_saves_nothing() -> None:
    for name in ("gru", "lstm", "leaky", "mgu"):
        made = assembled(name)
        written = {made.use.places[operands[0]][0] for _, operands in made.use.instructions}
        assert written <= {"after", "temp"}, name


def test_programs_survive_their_text() -> None:
    made = assembled("peephole")
    again = Assembly.loads(made.dumps())
    assert again.dumps() == made.dumps()
    assert [tuple(place) for place in again.back.places] == made.back.places


# Steps that are odd and right -----------------------------------------------------------------------------


def in_place(self: Any, x: Any, h: Any, s: Any) -> Any:
    value = x.a + h.a
    same, before = value, value * 2
    value.mul_(0.5)
    same += s.h
    value -= before
    value /= 3
    F.hardsigmoid(same, inplace=True)
    total = s.h.clone().zero_()
    total += value
    return (total - value.clone().mul_(0.25),)


def by_powers(self: Any, x: Any, h: Any, s: Any) -> Any:
    value = 0.5 * torch.tanh(x.a + h.a)
    value **= 3
    value %= 0.3
    return (value.atan_(),)


ODD: dict[str, Any] = {
    "changes its own values in place": cell_of(in_place),
    "takes powers and remainders in place": cell_of(by_powers),
    "reads an input share twice": cell_of(lambda self, x, h, s: (torch.tanh(x.a + h.a) * x.a,)),
    "returns its argument": cell_of(lambda self, x, h, s: (s.h,)),
    "returns an input share": cell_of(lambda self, x, h, s: (x.a, x.a * s.c), states="hc"),
    "returns a product": cell_of(lambda self, x, h, s: (h.a, s.h * x.a), states="hc"),
    "swaps its states": cell_of(lambda self, x, h, s: (s.c + x.a * 0.1, s.h + h.a), states="hc"),
    "returns one value twice": cell_of(lambda self, x, h, s: (torch.tanh(x.a + h.a),) * 2, states="hc"),
    "leaves a gate unused": cell_of(lambda self, x, h, s: (torch.tanh(x.b + h.c),), gates="abc"),
    "leaves its products unused": cell_of(lambda self, x, h, s: (torch.tanh(x.a) * s.h,)),
    "leaves a state unused": cell_of(lambda self, x, h, s: (torch.tanh(x.a + h.a), x.a * 2), states="hc"),
    "forgets a state": cell_of(lambda self, x, h, s: (torch.tanh(x.a + s.c), torch.zeros_like(s.h)), states="hc"),
    "has fewer products than gates": cell_of(lambda self, x, h, s: (x.a * torch.tanh(x.b + h.b),), "ab", products="b"),
    "uses one product for two gates": cell_of(
        lambda self, x, h, s: (torch.sigmoid(x.a + h.a) * torch.tanh(x.b + h.a) + x.b,), "ab", products="a"
    ),
    "has weights of its own in curves": cell_of(
        lambda self, x, h, s, w: (torch.tanh(x.a + h.a) * torch.sigmoid(w.p) + torch.exp(w.p) * w.q * s.h,),
        extras={"p": ("H",), "q": ("H",)},
    ),
    "saves a difference and its parts": cell_of(
        lambda self, x, h, s: (torch.tanh(x.a + (-x.b)) * h.a * x.b - torch.tanh(h.b) * (-x.b), -x.b * (x.a - x.b)),
        "ab",
        "hc",
    ),
}


@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("what", ODD)
def test_a_step_that(what: str, bias: bool) -> None:
    for H in (3, 33):
        case = case_of(ODD[what], H)
        if not bias:
            case.weights = {name: w for name, w in case.weights.items() if not name.startswith("bias")}
        all_close(by(case, "native"), by(case, "loop"))
        all_close(by(case, "native", lengths=[5, 1, 3]), by(case, "loop", lengths=[5, 1, 3]))


def test_options_that_change_are_read_again() -> None:
    class Scaled(Cell):
        gates = ("a",)

        def __init__(self) -> None:
            self.by = [0.5]

        def step(self, x: Any, h: Any, s: Any) -> Any:
            return (self.by[0] * torch.tanh(x.a + h.a),)

    cell = Scaled()
    case = case_of(cell)
    for change in (lambda: None, lambda: cell.by.__setitem__(0, 0.25), lambda: setattr(cell, "by", (2.0,))):
        change()
        all_close(by(case, "native"), by(case, "loop"))


def test_a_cell_is_read_alike_in_every_mode() -> None:
    for mode in (torch.inference_mode(), torch.no_grad(), torch.device("meta")):
        case = Case("peephole")
        with mode:
            step = scan(case.cell, case.weights, case.x.detach(), backend="native")
        assert step.trace.backend == "native"
        assert case.scan(backend="native").outputs.requires_grad


# What is refused ------------------------------------------------------------------------------------------


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient


def cut(self: Any, x: Any, h: Any, s: Any) -> Any:
    with torch.no_grad():
        gate = torch.sigmoid(x.a)
    return (gate * h.a,)


def changed_in_place(self: Any, x: Any, h: Any, s: Any) -> Any:
    gate = x.a
    gate += 1
    return (torch.tanh(gate * x.a + h.a),)


ELSEWHERE = torch.rand(3, dtype=torch.float64)
NUMBER = torch.tensor(0.5, dtype=torch.float64)
PARAMETER = nn.Parameter(torch.rand(3, dtype=torch.float64))
FOREIGN = "reads a tensor that is none of its arguments"

REFUSED: list[tuple[Any, str]] = [
    (lambda self, x, h, s: (x.a if x.a.sum() > 0 else h.a,), "cannot be followed: .*control flow"),
    (lambda self, x, h, s: (torch.tanh(x.a) * ELSEWHERE + h.a,), FOREIGN),
    (lambda self, x, h, s: (torch.tanh(x.a) * NUMBER + h.a,), FOREIGN),
    (lambda self, x, h, s: (torch.tanh(x.a) * PARAMETER + h.a,), FOREIGN),
    (lambda self, x, h, s: (torch.cumsum(x.a + h.a, 0),), "uses cumsum, which is not among the pointwise operations"),
    (lambda self, x, h, s: (torch.softmax(x.a + h.a, -1),), "uses softmax"),
    (lambda self, x, h, s: (F.dropout(x.a, 0.5) + h.a,), "uses dropout"),
    (lambda self, x, h, s: (x.a.tanh_() + h.a,), "changes its argument x_a in place"),
    (lambda self, x, h, s: (x.a.data + h.a,), "uses getattr"),
    (lambda self, x, h, s: (x.a[:, :1] + h.a,), "uses getitem"),
    (lambda self, x, h, s: (F.relu(h.a.detach(), inplace=True) + x.a,), "changes its argument h_a in place"),
    (lambda self, x, h, s: (torch.div(x.a, h.a, rounding_mode="floor"),), "uses div in a way"),
    (lambda self, x, h, s: (x.a * len(x.a) + h.a,), "cannot be followed: 'len'"),
    (changed_in_place, "changes its argument x_a in place"),
    (lambda self, x, h, s: (x.a * float(torch.rand(())) + h.a,), "gives h by another formula"),
    (cut, "has a derivative that is not that of its formula"),
    (lambda self, x, h, s: (StraightThrough.apply(x.a + h.a),), "has a derivative that is not that of its formula"),
]


@pytest.mark.parametrize(
    ("step", "reason"), REFUSED, ids=[f"{k} {reason[:40]}" for k, (_, reason) in enumerate(REFUSED)]
)
def test_refused_by_name_with_the_reason(step: Any, reason: str) -> None:
    cell = cell_of(step)
    weights, x = random_weights(cell, 4, 3), torch.randn(2, 3, 4, dtype=torch.float64)
    with pytest.raises(
        BackendError, match=rf"backend 'native' cannot run this: .*{reason}.*take backend='auto'"
    ) as caught:
        scan(cell, weights, x, backend="native")
    assert "\n" not in str(caught.value)
    with torch.no_grad():  # where a step may change what it was given
        assert scan(cell, weights, x, backend="auto").trace.backend == "loop"


def test_refused_for_what_the_cell_says() -> None:
    for cell, reason in (
        (make_cell("ltc"), "uses softplus of a matrix"),
        (cell_of(lambda self, x, h, s: (h.a,), multiplied=lambda self, x, s, w: s.h[:1]), "uses getitem"),
        (cell_of(lambda self, x, h, s, w: (w.p * 2,), extras={"p": ("H",)}), "each like the one before"),
    ):
        with pytest.raises((BackendError, CellError), match=reason):
            scan(cell, random_weights(cell, 4, 3), torch.zeros(2, 3, 4, dtype=torch.float64), backend="native")


def test_refused_for_what_the_tensors_are() -> None:
    case = Case("lstm")
    mask = torch.ones(3, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(BackendError, match="gives no gradient to the mask"):
        case.scan(mask=mask, backend="native")
    assert case.scan(mask=mask).trace.backend == "loop"
    assert case.scan(mask=mask.detach()).trace.backend == "native"
    with torch.no_grad():
        assert case.scan(mask=mask).trace.backend == "native"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch.func.jvp uses it
def test_transforms_of_torch_func_go_through_the_loop() -> None:
    case = Case("elman-sigmoid")
    weights = {name: w.detach() for name, w in case.weights.items()}

    def total(x: Tensor, backend: str = "auto") -> Tensor:
        result = scan(case.cell, weights, x, backend=backend)
        assert result.trace.backend == "loop"
        return result.outputs.square().sum()

    x = case.x.detach()
    expected = torch.autograd.grad(scan(case.cell, weights, case.x).outputs.square().sum(), case.x)[0]
    close(torch.func.grad(total)(x), expected)
    one_by_one = torch.func.vmap(lambda row: scan(case.cell, weights, row[None]).outputs)(x)
    close(one_by_one[:, 0], scan(case.cell, weights, x).outputs)
    _, forward = torch.func.jvp(total, (x,), (torch.ones_like(x),))
    close(forward, expected.sum())
    with pytest.raises(BackendError, match="transforms of torch.func"):
        torch.func.grad(lambda x: total(x, "native"))(x)

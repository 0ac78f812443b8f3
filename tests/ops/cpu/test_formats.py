"""Products in fewer bits: exactly those of the rounded numbers, whatever the instruction set, and summed in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import recur.ops.operator  # noqa: F401  registers the operators
from recur.cells import Cell, make_cell
from recur.compiler.programs import assembled, operands
from recur.errors import BackendError, OptionError
from recur.nn import Connections, Recurrent
from tests.support import ISAS, NATIVE_CELLS, TOLERANCE, Case, close, core, needs_core

pytestmark = needs_core

CELLS = [name for name in NATIVE_CELLS if not make_cell(name).outputs]
"""Those whose output is their first state, as this oracle has it, and which a stream takes."""

SIZES = [(3, 4, 5, 7), (14, 3, 9, 33), (1, 3, 40, 131), (5, 2, 70, 64)]
"""B, T, D, H: odd everywhere; more rows than a tile; steps that threads share; whole blocks."""


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    was = core.isa
    core.use(request.param)
    yield request.param
    core.isa = was


class RoundedProduct(torch.autograd.Function):
    """a Wᵀ of numbers rounded to bfloat16, and its gradients as products of rounded numbers too; sums in float64."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, W: Tensor) -> Tensor:
        ctx.save_for_backward(a, W)
        return _rounded(a) @ _rounded(W).t()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        a, W = ctx.saved_tensors
        return _rounded(gradient) @ _rounded(W), _rounded(gradient).t() @ _rounded(a)


def _rounded(x: Tensor) -> Tensor:
    return x.float().bfloat16().to(x.dtype)


def by_steps(case: Case, product: Callable[[Tensor, Tensor], Tensor], mask: Tensor | None = None) -> Any:
    """The cell's own step, one after another, with this product; outputs in packed order and the final state."""
    cell, weights = case.cell, {name: weight.double() for name, weight in case.weights.items()}
    x_of, h_of, s_of, w_of = (cell.tuple_of(role)._make for role in "xhsw")
    own, state, outputs = w_of(weights[name] for name in cell.extras), s_of(p.double() for p in case.state), []
    for x in case.x.double().unbind(1):
        share = product(x, weights["weight_ih"]) + weights["bias_ih"]
        projections: Sequence[Tensor] = ()
        if cell.recurrent_gates:
            h = state[0] if mask is None else state[0] * mask
            projections = (product(h, weights["weight_hh"]) + weights["bias_hh"]).chunk(
                len(cell.recurrent_gates), dim=-1
            )
        state = s_of(cell.advance(x_of(share.chunk(len(cell.gates), dim=-1)), h_of(projections), state, own))
        outputs.append(state[0])
    return torch.stack(outputs, dim=1).float(), [part.float() for part in state]


def native(case: Case, matmul_dtype: str, mask: Tensor | None = None, train: bool = True) -> Any:
    B, T, D = case.x.shape
    assembled(case.cell, True)
    text, weights, extras = operands(case.cell, case.weights)
    data = case.x.transpose(0, 1).reshape(-1, D)
    options = (mask, None, [B] * T, False, 0.0, text, matmul_dtype, train)
    outputs, *rest = torch.ops.recur.scan(data, weights, extras, list(case.state), *options)
    return outputs.view(T, B, -1).transpose(0, 1), rest[: len(case.cell.states)]


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("sizes", SIZES)
def test_bfloat16_products_and_their_gradients(isa: str, name: str, sizes: tuple[int, int, int, int]) -> None:
    torch.manual_seed(1)
    case = Case(name, *sizes, dtype=torch.float32)
    got = case.everything(lambda: native(case, "bfloat16"))
    close_but_for_ties(got, case.everything(lambda: by_steps(case, RoundedProduct.apply)))


@pytest.mark.parametrize("name", CELLS)
def test_bfloat16_products_of_given_numbers(isa: str, name: str) -> None:
    """One step, whose products multiply what was given: no number is computed before it is rounded."""
    case = Case(name, 9, 1, 37, 65, dtype=torch.float32)
    with torch.no_grad():
        got, expected = native(case, "bfloat16"), by_steps(case, RoundedProduct.apply)
    close(got[0], expected[0])


def close_but_for_ties(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """A number between two roundings may fall on either side, and its row with it: the middle error is float32's.

    Were one side of the products rounded in another way, all of them would be off a hundred times as much.
    """
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        scale = max(1.0, value.abs().max().item())
        assert (got[name] - value).abs().median().item() <= TOLERANCE[torch.float32] / 4 * scale, name
        close(got[name], value, name, tolerance=4e-3)


def test_a_mask_is_applied_before_rounding(isa: str) -> None:
    case, mask = Case("gru", 4, 2, 5, 35, dtype=torch.float32), torch.rand(4, 35)
    got = case.everything(lambda: native(case, "bfloat16", mask))
    close_but_for_ties(got, case.everything(lambda: by_steps(case, RoundedProduct.apply, mask.double())))


def test_many_rows_and_a_deep_product(isa: str) -> None:
    """Input products in several blocks of rows and of K, weights' gradients in several parts."""
    torch.manual_seed(0)
    case = Case("elman", 390, 1, 1500, 40, dtype=torch.float32)
    with torch.no_grad():
        case.weights["weight_ih"] /= 40
        case.weights["weight_hh"] /= 4
    got = case.everything(lambda: native(case, "bfloat16"))
    close_but_for_ties(got, case.everything(lambda: by_steps(case, RoundedProduct.apply)))


def quantised(a: Tensor, W: Tensor) -> Tensor:
    """a Wᵀ with W in 8 bits, a scale for each of its rows, and a in 16, a scale for each of its rows, by NumPy."""

    def whole(x: np.ndarray[Any, Any], most: int) -> tuple[Any, Any]:
        largest = np.abs(x).max(axis=1, keepdims=True)
        inverse = np.divide(np.float32(most), largest, out=np.zeros_like(largest), where=largest > 0)
        return np.rint(x * inverse).astype(np.int64), largest / np.float32(most)

    (A, a_scale), (B, b_scale) = whole(a.detach().float().numpy(), 32767), whole(W.detach().float().numpy(), 127)
    assert np.abs(A).max() <= 32767
    assert np.abs(B).max() <= 127
    return torch.from_numpy((A @ B.T).astype(np.float64) * a_scale * b_scale.T)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("sizes", SIZES)
def test_8_bit_weights(isa: str, name: str, sizes: tuple[int, int, int, int]) -> None:
    torch.manual_seed(2)
    case = Case(name, *sizes, dtype=torch.float32)
    with torch.no_grad():
        got, expected = native(case, "int8", train=False), by_steps(case, quantised)
    close(got[0][:, 0], expected[0][:, 0], "first outputs")
    # A state between two whole numbers may become either: 1/32767 of the largest, times the weights it meets.
    for got_part, part in zip([got[0], *got[1]], [expected[0], *expected[1]], strict=True):
        close(got_part, part, "outputs and final state", tolerance=5e-4)


@pytest.mark.parametrize("B", [1, 2, 13])
def test_sums_of_8_bit_products_do_not_overflow(isa: str, B: int) -> None:
    """All of them as large as they can be, of the same sign, and more than 32 bits hold."""
    case = Case("elman", B, 1, 4200, 3, dtype=torch.float32)
    with torch.no_grad():
        case.x.fill_(1.0)
        case.weights["weight_ih"].fill_(1 / 4200)
        got, expected = native(case, "int8", train=False), by_steps(case, quantised)
    close(got[0], expected[0])


@pytest.mark.parametrize("matmul_dtype", ["bfloat16", "int8"])
def test_what_is_no_number_stays_none(isa: str, matmul_dtype: str) -> None:
    """In one row of the input, and in no other; nor does a row of zeros, or of the smallest numbers, become one."""
    case = Case("elman", 5, 1, 7, 3, dtype=torch.float32)
    with torch.no_grad():
        case.x[0, 0, 3], case.x[1, 0, 6] = float("nan"), float("inf")
        case.x[2], case.x[3] = 0.0, 1e-42
        case.state[0].zero_()
        outputs = native(case, matmul_dtype, train=False)[0]
    assert outputs[0].isnan().all()
    assert not outputs[1].isfinite().logical_and(outputs[1].abs() < 1).any()
    assert outputs[2:].isfinite().all()
    close(outputs[2], outputs[3])


def test_8_bit_weights_are_for_use_alone(isa: str) -> None:
    case = Case("elman", dtype=torch.float32)
    with pytest.raises(BackendError, match="no backward pass"):
        case.loss(native(case, "int8")).backward()


class Sum(Cell):
    """The share alone: a product as the core gives it."""

    gates = ("a",)
    state_gates = ()
    states = ("h",)

    def step(self, x: Any, h: Any, s: Any) -> tuple[Tensor]:
        return (x.a + 0 * s.h,)


def test_errors_of_a_random_product(isa: str) -> None:
    """Bounded by the formats: half a unit of the last place of each side, added up as independent errors are."""
    torch.manual_seed(0)
    case = Case(Sum(), 20, 1, 512, 64, dtype=torch.float32)  # type: ignore[arg-type]
    with torch.no_grad():
        case.weights["bias_ih"].zero_()
        exact = case.x[:, 0].double() @ case.weights["weight_ih"].double().t()
        size = exact.std().item()
        off = {
            matmul_dtype: (native(case, matmul_dtype, train=False)[0][:, 0] - exact).std().item() / size
            for matmul_dtype in ("bfloat16", "int8")
        }
    assert 1e-3 < off["bfloat16"] < 2**-9 * 1.5  # 2⁻⁹ at most on each side, a little over half of it on average
    assert (
        3e-3 < off["int8"] < 1.2e-2
    )  # a row of 512 has its largest near 3.2σ: a step of σ/40, of which √12 is the error


# Through the public doors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"lengths": [4, 1, 2]}, {"reverse": True}], ids=str)
def test_scan_takes_products(isa: str, options: dict[str, Any]) -> None:
    """Batch after batch, packed and turned round as in float32; rounded like the operator's."""
    case = Case("lstm", 3, 4, 5, 33, dtype=torch.float32)
    plain = case.scan(backend="native", **options).outputs
    for matmul_dtype, bound in (("bfloat16", 2e-2), ("int8", 4e-2)):
        with torch.no_grad():
            got = case.scan(matmul_dtype=matmul_dtype, **options)
        assert got.trace.backend == "native"
        off = (got.outputs - plain).abs().max().item()
        assert 1e-6 < off < bound, matmul_dtype
        if not options:
            close(got.outputs, native(case, matmul_dtype, train=False)[0])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("matmul_dtype", ["bfloat16", "int8"])
def test_a_stream_gives_what_a_scan_gives(isa: str, matmul_dtype: str, name: str, layers: int) -> None:
    torch.manual_seed(0)
    net, x = Recurrent(name, 6, 37, num_layers=layers), torch.randn(3, 5, 6)
    net.matmul_dtype = matmul_dtype
    with torch.no_grad():
        whole = net(x)
        stream = net.stream(3)
        for k in range(5):
            close(stream.step(x[:, k]), whole.outputs[:, k], f"step {k}", tolerance=5e-4)
        out, state = net.step(x[:, 0])
        close(out, whole.outputs[:, 0])
        close(net.stream(3, matmul_dtype=matmul_dtype).step(x[:, 0]), out)
    assert len(state) == layers


def test_a_stream_packs_again_when_weights_change() -> None:
    net, x = Recurrent("gru", 4, 8), torch.randn(1, 4)
    float32, stream = net.stream(), net.stream(matmul_dtype="int8")
    first, start = stream.step(x), stream.state
    with torch.no_grad():
        net.weight_ih_l0.mul_(2.0)
    stream.state = net.stream().state
    again = stream.step(x)
    assert (again - first).abs().max() > 1e-3
    close(again, float32.step(x), tolerance=2e-2)
    assert not torch.equal(again, float32.net.step(x)[0])
    assert len(start) == 1


def test_autocast_and_tensors_of_bfloat16_have_bfloat16_products() -> None:
    """What torch's own layers give there; weights and their gradients stay float32 under autocast."""
    torch.manual_seed(0)
    net, x = Recurrent("gru", 20, 70), torch.randn(4, 6, 20)
    net.matmul_dtype = "bfloat16"
    expected = net(x)
    net.matmul_dtype = ""
    with torch.autocast("cpu", torch.bfloat16):
        got = net(x)
    assert got.trace[0].backend == "native"
    assert torch.equal(got.outputs, expected.outputs.bfloat16())
    weight = torch.randn(4, 6, 70)
    (d_W,) = torch.autograd.grad((got.outputs.float() * weight).sum(), net.weight_hh_l0)
    assert d_W.dtype == torch.float32
    (exact,) = torch.autograd.grad((net(x).outputs * weight).sum(), net.weight_hh_l0)
    assert 1e-6 < (d_W - exact).abs().max() / exact.abs().max() < 2e-2
    half = net.bfloat16()
    found = half(x.bfloat16())
    assert found.outputs.dtype == torch.bfloat16
    assert found.trace[0].backend == "native"
    close(found.outputs.float(), expected.outputs, tolerance=2e-2)


def test_what_cannot_be_done_is_refused_by_name() -> None:
    case, net = Case("lstm", dtype=torch.float32), Recurrent("lstm", 4, 3)
    with pytest.raises(BackendError, match="no gradient goes through 8-bit weights; call it under torch.no_grad"):
        case.scan(matmul_dtype="int8")
    with pytest.raises(BackendError, match="which cannot run this: 'loop' was asked for"):
        case.scan(matmul_dtype="bfloat16", backend="loop")
    with pytest.raises(BackendError, match="numbers of float32, and x is float64"):
        Case("lstm").scan(matmul_dtype="bfloat16")
    with pytest.raises(OptionError, match="unknown matmul_dtype 'int4'; did you mean 'int8'"):
        net.stream(matmul_dtype="int4")
    with pytest.raises(BackendError, match="it takes plain layers"):
        Recurrent("lstm", 4, 4, num_layers=2, connections=Connections(residual=True)).stream(matmul_dtype="int8").step(
            torch.zeros(1, 4)
        )
    with pytest.raises(BackendError, match="weights of float32, and these are float64"):
        net.double().stream(matmul_dtype="int8").step(torch.zeros(1, 4, dtype=torch.float64))

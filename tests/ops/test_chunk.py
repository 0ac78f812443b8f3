"""Backend `chunk`: the chunkwise form and its adjoint, derived from the step, against the step itself."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import recur
from recur.cells import MatrixCell, Memories, make_cell
from recur.cells.matrix import outer, unit
from recur.compiler.matrix import matrix_form
from recur.errors import BackendError, CellError, OptionError, RecurLoopWarning, ShapeError
from recur.ops import chunk, scan
from tests.support import DOUBLE, MATRIX_CELLS, Case, close, random_weights

WITH_HEADS = [f"{name}:num_heads=2,key_size=3" for name in MATRIX_CELLS]
VARIANTS = ["mlstm:gate=sigmoid", "gated_deltaproduct:products=3"]


def agree(case: Case, **options: Any) -> None:
    """Outputs, final states and all gradients of both backends, to 1e-10."""
    found = []
    for backend in ("chunk", "loop"):
        torch.manual_seed(1)
        found.append(case.everything(lambda backend=backend: case.scan(backend=backend, **options)))
    for name, expected in found[1].items():
        close(found[0][name], expected, name, tolerance=1e-10)


@pytest.mark.parametrize("T", [1, 16, 67])
@pytest.mark.parametrize("name", [*WITH_HEADS, *VARIANTS])
def test_chunks_are_the_steps(name: str, T: int) -> None:
    """One token; a chunk of a vector decay; neither a multiple of 16 nor of 64."""
    agree(Case(name, B=2, T=T, H=4))


@pytest.mark.parametrize("bptt", ["truncated:7", "sliding:3", "randomized:0.5"])
@pytest.mark.parametrize("name", WITH_HEADS)
def test_truncation_is_exact_at_every_step(name: str, bptt: str) -> None:
    agree(Case(name, B=2, T=37, H=4), bptt=bptt)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["gated_deltanet", "kda", "mlstm", "rwkv6"])
def test_lengths_and_resets_at_and_between_the_edges_of_chunks(name: str, reverse: bool) -> None:
    reset = torch.zeros(3, 70, dtype=torch.bool)
    reset[0, [16, 32, 64]] = reset[1, [1, 15, 17, 63, 65]] = True
    case = Case(name, B=3, T=70, H=4)
    agree(case, reset=reset, lengths=[70, 66, 33], reverse=reverse)
    agree(case, reset=reset, lengths=[70, 66, 33], reverse=reverse, bptt="truncated:5")


@pytest.mark.parametrize("bias", [-80.0, -8.0, 8.0, 80.0])
@pytest.mark.parametrize("name", ["gla", "hgrn2", "gated_deltanet", "kda", "mlstm", "mlstm:gate=sigmoid"])
def test_decays_near_0_and_1(name: str, bias: float) -> None:
    case = Case(name, B=2, T=70, H=4)
    gate = next(gate for gate in ("a", "f") if gate in case.cell.gates)
    with torch.no_grad():
        case.cell.blocks(case.weights["bias_ih"])[case.cell.gates.index(gate)].fill_(bias)
    agree(case)


@pytest.mark.parametrize("bias", [-6.0, -1.5, 8.0])
def test_weak_and_strong_decays_over_keys_take_other_chunks(bias: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two factors over 64 steps, over 16, and a mask per key give the same numbers."""
    case, sizes = Case("hgrn2", B=2, T=70, H=4), []
    solved = chunk.ChunkScan.apply
    monkeypatch.setattr(chunk.ChunkScan, "apply", lambda *given: (sizes.append(given[:2]), solved(*given))[1])
    monkeypatch.setattr(chunk, "STRONGEST", {torch.float64: 60.0})
    with torch.no_grad():
        case.weights["weight_ih"].mul_(0.1)
        case.cell.blocks(case.weights["bias_ih"])[1].fill_(bias)
    agree(case)
    assert sizes[0] == {-6.0: (16, False), -1.5: (16, True), 8.0: (64, True)}[bias]


def test_a_decay_of_exactly_0_and_1() -> None:
    class Switch(MatrixCell):
        inputs = {"k": "K", "v": "V", "q": "K", "f": 1}

        def step(self, x: Any, S: Any) -> Any:
            S = S.scale((x.f > 0).to(x.f.dtype)).write(x.k, x.v)
            return S, S.read(x.q)

    cell, x = Switch(), torch.randn(2, 70, 3, **DOUBLE)
    net = recur.Recurrent(cell, 3, 4, **DOUBLE)
    results = [scan(cell, net.weights(), x, backend=backend) for backend in ("chunk", "loop")]
    close(results[0].outputs, results[1].outputs)
    assert results[0].outputs.isfinite().all()


def test_float32_is_near_float64_over_2000_steps() -> None:
    for name in ("gated_deltanet", "kda", "mlstm"):
        net, x = recur.Recurrent(name, 8, 32), torch.randn(1, 2000, 8)
        exact = recur.Recurrent(name, 8, 32, **DOUBLE)
        exact.load_state_dict(net.state_dict())
        close(net(x).outputs, exact(x.double()).outputs.float(), tolerance=1e-4)


def test_auto_takes_chunks_for_long_sequences_and_the_loop_for_short_ones() -> None:
    net = recur.Recurrent("gated_deltanet", 3, 4)
    assert net(torch.randn(2, 50, 3)).trace[0].backend == "chunk"
    found = net(torch.randn(2, 1, 3)).trace[0]
    assert found.backend == "loop"
    assert found.passed_over["chunk"] == "fewer than 4 steps"
    assert net(torch.randn(2, 1, 3), trace=True).trace[0].backend == "loop"
    assert scan(net.cell, net.weights(), torch.randn(2, 1, 3), backend="chunk").trace.backend == "chunk"
    with pytest.raises(BackendError, match="backend 'chunk' cannot run this: it takes cells with a matrix state"):
        recur.Recurrent("gru", 3, 4, backend="chunk")(torch.randn(2, 5, 3))


def test_only_a_cell_without_a_chunkwise_form_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.ops.backends._WARNED", set())
    net = recur.Recurrent("kda", 3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net(torch.randn(2, 1, 3))
        net(torch.randn(2, 9, 3), trace=True)
    with pytest.warns(RecurLoopWarning, match="Made runs on the loop, .* its step never writes to S"):
        recur.Recurrent(cell_of(REFUSED["its step never writes to S"]), 3, 4)(torch.randn(2, 9, 3))


# What the compiler finds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "decay", "reads", "writes", "coupled"),
    [
        ("deltanet", "none", 2, 1, True),
        ("gated_deltanet", "scalar", 2, 1, True),
        ("gated_deltaproduct", "scalar", 3, 2, True),
        ("gla", "vector", 1, 1, False),
        ("kda", "vector", 2, 1, True),
        ("mamba2", "scalar", 1, 1, False),
        ("mlstm", "scalar", 1, 1, False),
        ("retnet", "scalar", 1, 1, False),
        ("rwkv6", "vector", 1, 1, False),
        ("rwkv7", "vector", 2, 2, True),
    ],
)
def test_the_class_of_every_rule(name: str, decay: str, reads: int, writes: int, coupled: bool) -> None:
    for spec in (name, f"{name}:num_heads=2"):
        form = matrix_form(make_cell(spec))
        assert not isinstance(form, str), form
        assert (form.decay, form.reads, form.writes, form.coupled) == (decay, reads, writes, coupled)
        assert f"decay: {decay}" in "\n".join(form.lines)


class OneStep(MatrixCell):
    inputs = {"q": "K", "k": "K", "v": "V", "f": 1}

    def step(self, x: Any, S: Any) -> Any:
        return self.rule(x, S)


def cell_of(rule: Any) -> MatrixCell:
    return type("Made", (OneStep,), {"rule": staticmethod(rule)})()


def test_operators_are_the_methods() -> None:
    def methods(x: Any, S: Any) -> Any:
        S = S.scale(torch.sigmoid(x.f))
        S = S.write(x.k, x.v - S.read(x.k)).write(-x.q, x.v)
        return S, S.read(x.q) / 2

    def operators(x: Any, S: Any) -> Any:
        S = torch.sigmoid(x.f) * S
        S = S + outer(x.k, x.v - x.k @ S) - outer(x.q, x.v)
        return S, 0.5 * (x.q @ S)

    x = torch.randn(2, 20, 3, **DOUBLE)
    net = recur.Recurrent(cell_of(methods), 3, 4, **DOUBLE)
    expected = scan(net.cell, net.weights(), x, backend="loop").outputs
    for rule in (methods, operators):
        for backend in ("loop", "chunk"):
            close(scan(cell_of(rule), net.weights(), x, backend=backend).outputs, expected)


REFUSED = {
    "it writes tanh of what was read from S: not linear in S": lambda x, S: (
        S.write(x.k, torch.tanh(S.read(x.k))), S.read(x.q)
    ),
    "it writes multiplied by a vector over V of what was read from S": lambda x, S: (
        S.write(x.k, x.v * S.read(x.k)), S.read(x.q)
    ),
    "its decay depends on what was read from S: not linear in S": lambda x, S: (
        S.scale(torch.sigmoid(S.read(x.k)).sum(-1, keepdim=True)).write(x.k, x.v), S.read(x.q)
    ),
    "it writes along a key that depends on what was read from S": lambda x, S: (
        S.write(unit(S.read(x.k)), x.v), S.read(x.q)
    ),
    "its decay is a full K × V matrix": lambda x, S: (
        S.scale(torch.sigmoid(x.k[..., :, None] * x.v[..., None, :])).write(x.k, x.v), S.read(x.q)
    ),
    "its step never writes to S": lambda x, S: (S.scale(torch.sigmoid(x.f)), S.read(x.q)),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_chunkwise_form_is_refused_with_the_reason_and_runs_on_the_loop(reason: str) -> None:
    cell = cell_of(REFUSED[reason])
    net, x = recur.Recurrent(cell, 3, 4), torch.randn(2, 6, 3)
    found = net(x)
    assert found.trace[0].backend == "loop"
    assert reason in found.trace[0].passed_over["chunk"]
    with pytest.raises(BackendError, match="backend 'chunk' cannot run this"):
        scan(cell, net.weights(), x, backend="chunk")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (lambda x, S: (torch.tanh(S), x.v), "applies tanh to the state S, which is not linear in S"),
        (lambda x, S: (S.tanh(), x.v), r"uses S\.tanh; a state has"),
        (lambda x, S: (S + x.v, x.v), r"only outer\(k, y\) can be added to the state"),
        (lambda x, S: S.write(x.k, x.v), r"must return the state and the output, \(S, o\), got the state alone"),
        (lambda x, S: (S.write(x.k, x.v), x.f), "must return an output of"),
        (lambda x, S: (S.scale(), x.v), "takes the decay a, or log=its logarithm"),
        (lambda x, S: (S.write(x.k, x.v, log=x.f), x.v), "no stabiliser m"),
    ],
)
def test_a_step_that_breaks_the_contract_is_a_clear_error(rule: Any, says: str) -> None:
    with pytest.raises(CellError, match=says):
        recur.Recurrent(cell_of(rule), 3, 4)(torch.randn(2, 2, 3))


def test_sizes_are_checked() -> None:
    with pytest.raises(OptionError, match="num_heads must be a whole number ≥ 0, got -1"):
        make_cell("gla:num_heads=-1")
    with pytest.raises(OptionError, match="hidden_size 5 cannot be divided into 2 heads"):
        recur.Recurrent("gla:num_heads=2", 3, 5)
    with pytest.raises(ShapeError, match="weight_ih has 7 rows, which fit no hidden size"):
        scan(make_cell("gla"), {"weight_ih": torch.randn(7, 3)}, torch.randn(1, 2, 3))
    with pytest.raises(CellError, match="inputs must map names to sizes"):
        type("Bare", (MatrixCell,), {})()
    assert make_cell("gla").dims(512)[:2] == (8, 64)
    assert make_cell("gla").dims(100)[:2] == (2, 50)


def test_memories_are_the_inner_cell_row_by_row() -> None:
    """Every row is an independent scan of the inner cell over inputs k_i v, with the W of its head."""
    heads, K, V = 2, 3, 4
    cell = Memories(make_cell("lstm"), num_heads=heads, key_size=K)
    weights, x = random_weights(cell, 3, heads * V), torch.randn(2, 6, 3, **DOUBLE)
    result = scan(cell, weights, x)
    parts = dict(zip(cell.gates, cell.split(x @ weights["weight_ih"].T + weights["bias_ih"]), strict=True))
    for j in range(heads):
        total = torch.zeros(2, 6, V, **DOUBLE)
        for i in range(K):
            k = parts["k"][:, :, j, i : i + 1]
            inner = torch.cat([parts[g][:, :, j] * (1 if g == "f" else k) for g in "ifgo"], dim=-1)
            own = {"weight_ih": torch.eye(4 * V, **DOUBLE), "weight_hh": weights["W"][j].flatten(0, 1)}
            total = total + parts["q"][:, :, j, i : i + 1] * scan(make_cell("lstm"), own, inner).outputs
        close(result.outputs.unflatten(-1, (heads, V))[:, :, j], total)
    with pytest.raises(CellError, match="goes around a pointwise cell"):
        Memories(make_cell("lnlstm"))


# As a part of networks ------------------------------------------------------------------------------------


def test_a_row_costs_the_same_memory_however_long_it_is_streamed() -> None:
    net = recur.Recurrent("kda:num_heads=2", 3, 8, num_layers=2, **DOUBLE)
    x = torch.randn(2, 30, 3, **DOUBLE)
    whole, stream = net(x), net.stream(rows=2)
    for t in range(30):
        close(stream.step(x[:, t]), whole.outputs[:, t].detach())
    for found, expected in zip(stream.state, whole.state, strict=True):
        for part, other in zip(found, expected, strict=True):
            close(part, other.detach())


def test_a_copy_task_is_learned_through_the_memory() -> None:
    """Store v under k, recall it much later: outer products do this, and the delta rule overwrites."""
    torch.manual_seed(0)
    net = recur.Recurrent("deltanet:num_heads=1", 8, 8)
    head = torch.nn.Linear(8, 4)
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], 0.02)

    def batch() -> tuple[Tensor, Tensor]:
        keys, values = torch.stack([torch.randperm(4) for _ in range(32)]), torch.randint(4, (32, 4))
        x = torch.zeros(32, 5, 8)
        x[:, :4, :4] = torch.eye(4)[keys]
        x[:, :4, 4:] = torch.eye(4)[values]
        asked = torch.randint(4, (32,))
        x[torch.arange(32), 4, keys[torch.arange(32), asked]] = 1
        return x, values[torch.arange(32), asked]

    for _ in range(250):
        x, y = batch()
        loss = torch.nn.functional.cross_entropy(head(net(x).outputs[:, -1]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, y = batch()
    assert (head(net(x).outputs[:, -1]).argmax(-1) == y).float().mean() > 0.9


@pytest.mark.parametrize("name", ["rwkv6:num_heads=2", "kda:num_heads=2"])
def test_second_derivatives_from_a_start_without_gradient(name: str) -> None:
    """The start and other operands may need no gradient."""
    cell = make_cell(name)
    weights = random_weights(cell, 3, 4)
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    found = []
    for backend in ("chunk", "loop"):
        loss = scan(cell, weights, x, backend=backend).outputs.square().sum()
        first = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), list(weights.values())))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_gradients_of_a_decay_to_zero() -> None:
    """e^−e^20 is 0, and so is its gradient: not a rounding error times e^20."""
    cell = make_cell("rwkv6:num_heads=2")
    torch.manual_seed(0)
    weights = {k: 6 * v.detach() for k, v in random_weights(cell, 3, 8, dtype=torch.float32).items()}
    weights["weight_ih"].requires_grad_()
    x = 3 * torch.randn(2, 40, 3)
    found = []
    for backend in ("chunk", "loop"):
        loss = scan(cell, weights, x, backend=backend).outputs.sum()
        found.append(torch.autograd.grad(loss, weights["weight_ih"])[0])
    assert (found[0] - found[1]).norm() < 1e-3 * found[1].norm()

"""PyTorch's transforms under `auto`: torch.func, forward mode, second derivatives, autocast, checkpoints, processes.

The oracle is the same transform on the loop. Compiling and exporting are in test_graphs.py.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from recur.cells import MatrixCell, make_cell
from recur.errors import BackendError, OptionError
from recur.nn import GRU, LSTM, RNN, Depth, Recurrent
from recur.ops import scan
from tests.support import ALL_CELLS, NATIVE_CELLS, TOLERANCE, TORCH_CELLS, Case, close, core, needs_core

# A warning of torch's own, about how it implements forward mode.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")

RESET = torch.tensor([[False, True, False], [False, False, True]])
XI = torch.tensor([[1.0, 0.5, 2.0], [1.0, 0.0, 3.0]])
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lengths": {"lengths": [3, 2]},
    "resets": {"reset": RESET},
    "reverse": {"reverse": True},
    "truncated": {"bptt": "truncated:2"},
    "xi": {"bptt": XI},
    "randomized to 1": {"bptt": "randomized:1"},
}

Run = Callable[..., tuple[Tensor, ...]]


def small(name: str) -> Case:
    return Case(name, B=2, T=3, D=2, H=3)


def tensors_of(case: Case) -> dict[str, Tensor]:
    return {name: leaf.detach() for name, leaf in case.leaves.items()}


def runs(case: Case, backend: str, **options: Any) -> Run:
    """The scan as a function of x and of all that is trained, to outputs and final states."""

    def run(x: Tensor, trained: dict[str, Tensor]) -> tuple[Tensor, ...]:
        weights = {name: trained[name] for name in case.weights}
        result = scan(case.cell, weights, x, [trained[f"{s}0"] for s in case.cell.states], backend=backend, **options)
        return result.outputs, *result.state

    return run


def loss_of(results: tuple[Tensor, ...]) -> Tensor:
    return sum((part.square().sum() for part in results), torch.zeros(()))


def by_forward_ad(run: Run, x: Tensor, trained: dict[str, Tensor], several: Tensor) -> Any:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(run(forward_ad.make_dual(x, several[0]), trained)[0])


TRANSFORMS: dict[str, Callable[[Run, Tensor, dict[str, Tensor], Tensor], Any]] = {
    "vmap": lambda run, x, w, several: vmap(run, (0, None))(several, w),
    "grad": lambda run, x, w, several: grad(lambda x, w: loss_of(run(x, w)), (0, 1))(x, w),
    "vjp": lambda run, x, w, several: vjp(lambda x: run(x, w), x)[1](run(several[0], w)),
    "jvp": lambda run, x, w, several: jvp(lambda x: run(x, w), (x,), (several[0],)),
    "per sample": lambda run, x, w, several: vmap(grad(lambda w, x: loss_of(run(x, w))), (None, 0))(w, several),
    "jacrev": lambda run, x, w, several: jacrev(lambda x: run(x, w)[0])(x),
    "jacfwd": lambda run, x, w, several: jacfwd(lambda x: run(x, w)[0])(x),
    "hessian": lambda run, x, w, several: hessian(lambda x: loss_of(run(x, w)))(x),
    "forward AD": by_forward_ad,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", ALL_CELLS)
def test_every_transform_of_every_cell(name: str, transform: str) -> None:
    case, several = small(name), torch.randn(4, 2, 3, 2, dtype=torch.float64)
    for options in OPTIONS.values() if name in ("lstm", "leaky") else ({}, OPTIONS["lengths"]):
        found = [
            TRANSFORMS[transform](runs(case, backend, **options), case.x.detach(), tensors_of(case), several)
            for backend in ("auto", "loop")
        ]
        for ours, theirs in zip(*map(tree_leaves, found), strict=True):
            close(ours, theirs, f"{transform} with {options}")


def test_forward_and_reverse_mode_are_transposes() -> None:
    """uᵀ (J v) = (Jᵀ u)ᵀ v: with ξ on what is carried too, which both multiply by it."""
    for options in OPTIONS.values():
        case = small("gru")
        run = runs(case, "auto", **options)
        u, v = torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 3, 2, dtype=torch.float64)
        x, w = case.x.detach(), tensors_of(case)
        forward = (jvp(lambda x, run=run, w=w: run(x, w)[0], (x,), (v,))[1] * u).sum()
        (back,) = vjp(lambda x, run=run, w=w: run(x, w)[0], x)[1](u)
        close(forward, (back * v).sum(), str(options))


@pytest.mark.parametrize("name", TORCH_CELLS)
def test_the_trace_says_why_the_loop_ran(name: str) -> None:
    net = Recurrent(name, 2, 3)
    found = vmap(net)(torch.randn(4, 2, 3, 2))
    assert found.outputs.shape == (4, 2, 3, 3)
    assert found.trace[0].backend == "loop"
    assert list(found.trace[0].passed_over) == ["native", "cuda", "parallel", "torch", "chunk"]
    assert "transforms of torch.func" in found.trace[0].passed_over["torch"]
    if core:
        plain = net(torch.randn(2, 3, 2)).trace[0]
        assert (plain.backend, plain.passed_over) == ("native", {})
    deep = Recurrent(name, 2, 3, depth=Depth(transition=1))(torch.randn(2, 3, 2)).trace[0]
    assert deep.backend == ("native" if core else "loop")
    pairs = Recurrent("ltc", 2, 3)(torch.randn(2, 3, 2)).trace[0]
    assert (pairs.backend, list(pairs.passed_over)) == ("loop", ["native", "cuda", "parallel", "torch", "chunk"])


def test_traces_come_out_of_transforms() -> None:
    net = Recurrent("lstm", 2, 3).double()
    several = torch.randn(4, 2, 3, 2, dtype=torch.float64)

    def loss(weights: dict[str, Tensor], x: Tensor) -> Any:
        found = functional_call(net, weights, (x,), {"trace": True, "lengths": [3, 2]})
        return found.outputs.square().sum(), found

    _, found = vmap(grad(loss, has_aux=True), (None, 0))(dict(net.named_parameters()), several)
    for k, x in enumerate(several):
        alone = net(x, trace=True, lengths=[3, 2])
        alone.outputs.square().sum().backward()
        for state, norms in alone.trace[0].norms.items():
            close(found.trace[0].norms[state][k], norms)
    assert found.trace[0].states["c"].shape == (4, 2, 3, 3)


@pytest.mark.parametrize("make", [RNN, GRU, LSTM])
def test_the_drop_in_layers_are_transformed_as_recurrent_is(make: Any) -> None:
    layer, theirs = make(2, 3, bidirectional=True).double(), None
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}
    several = torch.randn(4, 3, 2, 2, dtype=torch.float64)

    def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs: Tensor = functional_call(layer, weights, (x,))[0]
        return outputs.square().sum()

    found = vmap(grad(loss), (None, 0))(weights, several)
    for k, x in enumerate(several):
        theirs = torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))
        for ours, expected in zip(found.values(), theirs, strict=True):
            close(ours[k], expected)


def test_an_ensemble_runs_as_one() -> None:
    nets = [Recurrent("lstm", 2, 3).double() for _ in range(3)]
    weights, buffers = stack_module_state(nets)
    base, x = copy.deepcopy(nets[0]).to("meta"), torch.randn(2, 3, 2, dtype=torch.float64)
    together = vmap(lambda w, b: functional_call(base, (w, b), (x,)).outputs)(weights, buffers)
    for outputs, net in zip(together, nets, strict=True):
        close(outputs.detach(), net(x).outputs.detach())


def test_what_differs_between_samples_of_a_vmap_cannot_say_which_steps_follow() -> None:
    case, x = small("gru"), torch.randn(4, 2, 3, 2, dtype=torch.float64)
    weights = tensors_of(case)
    with pytest.raises(OptionError, match="GRU: reset must be the same for all samples of a vmap"):
        vmap(lambda x, reset: runs(case, "auto", reset=reset)(x, weights))(x, RESET.expand(4, 2, 3))
    with pytest.raises(OptionError, match="lengths must be the same for all samples"):
        vmap(lambda x, n: runs(case, "auto", lengths=n)(x, weights))(x, torch.ones(4, 2, dtype=torch.long))
    with pytest.raises(OptionError, match="clip bounds the gradient of a backward pass; a forward-mode derivative"):
        jvp(lambda x: runs(case, "auto", bptt="clip:1")(x, weights), (x[0],), (x[1],))


# Gradients per sample: one scan for all samples ------------------------------------------------------------

PER_SAMPLE: dict[str, dict[str, Any]] = {
    "whole": {},
    "lengths": {"lengths": [5, 3]},
    "resets": {"reset": torch.arange(10).view(2, 5) % 4 == 2},
    "truncated": {"bptt": "truncated:2"},
    "lengths, clipped": {"lengths": [4, 5], "bptt": "clip:0.1"},
}


@needs_core
@pytest.mark.parametrize("options", PER_SAMPLE)
@pytest.mark.parametrize("name", ["lstm", "gru", "elman", "peephole", "leaky", "sru", "slstm:heads=2"])
def test_gradients_per_sample_are_those_of_each_sample_alone(name: str, options: str) -> None:
    """Two layers in both directions, with a carried state, on the kernels."""
    given = dict(PER_SAMPLE[options])
    net = Recurrent(name, 3, 4, num_layers=2, direction="both", bptt=given.pop("bptt", "full")).double()
    weights = {key: weight.detach() for key, weight in net.named_parameters()}
    several = torch.randn(4, 2, 5, 3, dtype=torch.float64)
    with torch.no_grad():
        before = [net(x).state for x in several]
    states = torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *before)
    used = set()

    def loss(weights: dict[str, Tensor], x: Tensor, state: Any) -> Tensor:
        found = functional_call(net, weights, (x, state), given)
        used.update(trace.backend for trace in found.trace)
        return found.outputs.sin().sum() + sum(part.square().sum() for part in tree_leaves(found.state))

    of_weights, of_x, of_state = vmap(grad(loss, (0, 1, 2)), (None, 0, 0))(weights, several, states)
    assert used == {"native"}
    for k, x in enumerate(several):
        leaves = [x.clone().requires_grad_(), *(part.clone().requires_grad_() for part in tree_leaves(before[k]))]
        rest = iter(leaves[1:])
        state = torch.utils._pytree.tree_map(lambda _, rest=rest: next(rest), before[k])
        expected = torch.autograd.grad(
            loss(dict(net.named_parameters()), leaves[0], state), [*net.parameters(), *leaves]
        )
        for ours, theirs in zip(tree_leaves((of_weights, of_x, of_state)), expected, strict=True):
            close(ours[k], theirs, tolerance=1e-10)


@needs_core
def test_gradients_per_sample_with_a_mask_and_a_projection() -> None:
    several, mask = torch.randn(4, 2, 5, 3, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    projected = LSTM(3, 4, proj_size=2).double()
    weights = {key: weight.detach() for key, weight in projected.named_parameters()}
    found = vmap(grad(lambda w, x: functional_call(projected, w, (x,))[0].sin().sum()), (None, 0))(weights, several)
    for k, x in enumerate(several):
        expected = torch.autograd.grad(projected(x)[0].sin().sum(), list(projected.parameters()))
        for ours, theirs in zip(found.values(), expected, strict=True):
            close(ours[k], theirs, tolerance=1e-10)
    case = Case("gru", B=2, T=5, D=3, H=4)
    given = {key: weight.detach() for key, weight in case.weights.items()}
    for options in ({}, {"lengths": [5, 3]}):

        def loss(weights: dict[str, Tensor], x: Tensor, options: Any = options) -> Tensor:
            return scan(case.cell, weights, x, mask=mask, **options).outputs.sin().sum()

        masked = vmap(grad(loss), (None, 0))(given, several)
        for k, x in enumerate(several):
            for key, alone in grad(loss)(given, x).items():
                close(masked[key][k], alone, tolerance=1e-10)


@needs_core
def test_what_gradients_per_sample_do_not_cover_runs_on_the_loop() -> None:
    net, several = Recurrent("lstm", 2, 3).double(), torch.randn(4, 2, 3, 2, dtype=torch.float64)
    weights = {key: weight.detach() for key, weight in net.named_parameters()}
    found: list[Any] = []

    def outputs(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        found.append(functional_call(net, weights, (x,)))
        return found[-1].outputs.sin().sum((0, 1))

    jacobians = vmap(jacrev(outputs), (None, 0))(weights, several)
    assert found[-1].trace[0].backend == "native"
    for k, x in enumerate(several):
        for key, alone in jacrev(outputs)(weights, x).items():
            close(jacobians[key][k], alone, tolerance=1e-10)
    total = vmap(grad(lambda w, x: outputs(w, x).sum()), (None, 0))(dict(net.named_parameters()), several)
    assert found[-1].trace[0].backend == "loop"
    assert "detach the weights before vmap" in found[-1].trace[0].passed_over["native"]
    assert total["weight_ih_l0"].requires_grad
    apart = {key: torch.stack([weight] * 4) for key, weight in weights.items()}
    vmap(grad(lambda w, x: outputs(w, x).sum()))(apart, several)
    assert "different weights" in found[-1].trace[0].passed_over["native"]

    def twice(x: Tensor) -> Tensor:
        value, back = vjp(lambda x: outputs(weights, x), x)
        return grad(lambda u: back(u)[0].square().sum())(torch.ones_like(value))

    with pytest.raises(BackendError, match="not differentiated again"):
        vmap(twice)(several)


# Second derivatives ---------------------------------------------------------------------------------------


def second(case: Case, backend: str, **options: Any) -> list[Tensor]:
    """Gradients, the gradients of their size, and the norms of the first pass."""
    leaves = list(case.leaves.values())
    result = case.scan(backend=backend, trace=True, **options)
    loss = case.loss((result.outputs.square(), [part.square() for part in result.state]))
    first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    norms = [norm.clone() for norm in result.trace.norms.values()]
    assert result.trace.recorded == (result.trace.backend == "native")
    size = sum(part.square().sum() for part in first)
    return [*first, *torch.autograd.grad(size, leaves, materialize_grads=True), *norms]


@pytest.mark.parametrize("options", [*OPTIONS, "mask"])
@pytest.mark.parametrize("name", NATIVE_CELLS)
def test_second_derivatives_are_those_of_the_loop(name: str, options: str) -> None:
    case = small(name)
    given = OPTIONS.get(options, {"mask": torch.rand(2, 3, dtype=torch.float64)})
    if options == "mask" and not case.cell.recurrent_gates:
        return
    for ours, theirs in zip(second(case, "auto", **given), second(case, "loop", **given), strict=True):
        close(ours.detach(), theirs.detach())


@pytest.mark.parametrize("name", ["gru", "leaky", "lstm"])
def test_second_derivatives_by_finite_differences(name: str) -> None:
    case = small(name)
    run, names = runs(case, "auto", lengths=[3, 2]), list(case.leaves)
    assert torch.autograd.gradgradcheck(
        lambda *leaves: run(leaves[0], dict(zip(names, leaves, strict=True))), tuple(case.leaves.values())
    )


@needs_core
def test_training_goes_on_natively_after_a_gradient_penalty() -> None:
    case = small("gru")
    result = case.scan(trace=True)
    (d_x,) = torch.autograd.grad(case.loss(result), case.x, create_graph=True)
    (case.loss(result) + d_x.square().sum()).backward()
    assert result.trace.recorded
    plain = case.scan(trace=True)
    case.loss(plain).backward()
    assert (plain.trace.backend, plain.trace.recorded) == ("native", False)


def test_one_tensor_in_two_places_is_counted_twice() -> None:
    found = []
    for backend in ("auto", "loop"):
        torch.manual_seed(0)
        case = small("lstm")
        start = case.state[0]
        result = scan(case.cell, case.weights, case.x, (start, start), backend=backend)
        (first,) = torch.autograd.grad(case.loss(result), start, create_graph=True)
        found.append([first, *torch.autograd.grad(first.square().sum(), [start, case.x])])
    for ours, theirs in zip(*found, strict=True):
        close(ours.detach(), theirs.detach())


@needs_core
def test_a_clipped_pass_is_recorded_by_the_loop_alone() -> None:
    case = small("gru")
    with pytest.raises(BackendError, match="take backend='loop'"):
        torch.autograd.grad(case.loss(case.scan(bptt="clip:1")), case.x, create_graph=True)


# Dtypes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", ALL_CELLS)
def test_autocast_trains_every_cell(name: str, dtype: torch.dtype) -> None:
    """Natively in float32 inside: outputs are rounded once, gradients not at all but by that rounding's arrival. The
    loop rounds at every operation."""
    normalised = isinstance(make_cell(name), MatrixCell)  # a norm per head amplifies the rounding between two layers
    net = Recurrent(name, 3, 4, num_layers=1 if normalised else 2).eval()
    x, leaves = torch.randn(2, 5, 3), list(net.parameters())
    with torch.autocast("cpu", dtype):
        found = net(x)
    assert found.outputs.dtype == found.state[0][0].dtype == dtype
    if core and net.cell.pointwise:
        assert [trace.backend for trace in found.trace] == ["native", "native"]
    exact = net(x)
    close(found.outputs.float(), exact.outputs, tolerance=TOLERANCE[torch.bfloat16])
    # Not the sum of squares, which is nearly constant for normalised outputs.
    grads = torch.autograd.grad(found.outputs.float().sin().sum(), leaves)
    for ours, theirs in zip(grads, torch.autograd.grad(exact.outputs.sin().sum(), leaves), strict=True):
        assert ours.dtype == torch.float32
        close(ours, theirs, tolerance=(2 if net.cell.pointwise else 4) * TOLERANCE[torch.bfloat16])


def test_autocast_leaves_double_precision_alone() -> None:
    """As torch.nn does."""
    x = torch.randn(2, 3, 3, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert Recurrent("lstm", 3, 4).double()(x).outputs.dtype == torch.float64
        assert nn.LSTM(3, 4).double()(x)[0].dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", ALL_CELLS)
def test_layers_of_half_precision_train(name: str, dtype: torch.dtype) -> None:
    net = Recurrent(name, 3, 4).to(dtype).eval()
    x = torch.randn(2, 5, 3).to(dtype)
    found = net(x, lengths=[5, 3])
    assert found.outputs.dtype == dtype
    wide = copy.deepcopy(net).float()
    exact = wide(x.float(), lengths=[5, 3])
    close(found.outputs.float(), exact.outputs, tolerance=TOLERANCE[torch.bfloat16])
    found.outputs.float().sin().sum().backward()
    exact.outputs.sin().sum().backward()
    for ours, theirs in zip(net.parameters(), wide.parameters(), strict=True):
        assert ours.grad.dtype == dtype
        close(ours.grad.float(), theirs.grad, tolerance=2 * TOLERANCE[torch.bfloat16])


# Checkpoints, copies, processes ---------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", ["gru", "leaky", "gru2014", "zoneout_lstm", "mogrifier"])
def test_gradient_checkpointing(name: str, reentrant: bool) -> None:
    net = Recurrent(name, 3, 4, num_layers=2, dropout=0.5)
    x = torch.randn(2, 5, 3, requires_grad=True)
    leaves, found = [x, *net.parameters()], []
    for run in (lambda: checkpoint(lambda x: net(x).outputs, x, use_reentrant=reentrant), lambda: net(x).outputs):
        torch.manual_seed(0)
        for leaf in leaves:
            leaf.grad = None
        run().square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*found, strict=True))


@pytest.mark.parametrize("name", ALL_CELLS)
def test_copies_pickles_and_inference(name: str) -> None:
    net, x = Recurrent(name, 3, 4, num_layers=2).eval(), torch.randn(2, 5, 3)
    expected = net(x)  # after a call: what it has compiled comes along, or is made anew
    saved = io.BytesIO()
    torch.save(net, saved)
    saved.seek(0)
    copies = copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(saved, weights_only=False)
    for other in copies:
        assert torch.equal(other(x).outputs, expected.outputs)
    with torch.inference_mode():
        assert torch.equal(net(x).outputs, expected.outputs)
        assert net(x).outputs.is_inference()
    functional = functional_call(net, {key: 2 * value for key, value in net.named_parameters()}, (x,))
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(2)
    assert torch.equal(functional.outputs, net(x).outputs)


def _work(rank: int, address: str, x: Tensor, weights: dict[str, Tensor], out: str) -> None:
    """One of two processes: half of the batch, the mean of the gradients."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=2)
    net = Recurrent("lstm", 3, 4, num_layers=2).double()
    net.load_state_dict(weights)
    shared = nn.parallel.DistributedDataParallel(net)
    shared(x.chunk(2)[rank]).outputs.square().mean().backward()
    if rank == 0:
        torch.save([weight.grad for weight in net.parameters()], out)
    torch.distributed.barrier()  # neither hangs up on the other
    torch.distributed.destroy_process_group()
    os._exit(0)  # gloo's threads may abort a process that takes itself down in order


def test_two_processes_learn_as_one(tmp_path: Path) -> None:
    net, x = Recurrent("lstm", 3, 4, num_layers=2).double(), torch.randn(4, 5, 3, dtype=torch.float64)
    arguments = (str(tmp_path / "meeting"), x, net.state_dict(), str(tmp_path / "grads.pt"))
    torch.multiprocessing.spawn(_work, arguments, nprocs=2)
    expected = torch.autograd.grad(net(x).outputs.square().mean(), list(net.parameters()))
    for ours, theirs in zip(torch.load(tmp_path / "grads.pt"), expected, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("name", TORCH_CELLS)
@pytest.mark.parametrize("options", [{}, {"lengths": [4, 2, 3], "bptt": "truncated:2"}], ids=["whole", "cut"])
def test_torchs_own_kernels_have_second_derivatives_too(name: str, options: dict[str, Any]) -> None:
    case = Case(name, T=4)

    def twice(backend: str) -> Any:
        result = case.scan(backend=backend, **options)
        first = torch.autograd.grad(case.loss(result).square(), list(case.leaves.values()), create_graph=True)
        return torch.autograd.grad(sum(part.square().sum() for part in first), list(case.leaves.values()))

    for what, got, expected in zip(case.leaves, twice("torch"), twice("loop"), strict=True):
        close(got, expected, what)

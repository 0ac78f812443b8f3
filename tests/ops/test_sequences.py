"""What follows what: cut sequences, resets, lengths, direction. In value and in gradient."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from recur.cells import make_cell
from recur.ops import scan
from tests.support import ALL_CELLS, RUNS, TORCH_CELLS, Case, all_close, close, random_state

each_run = pytest.mark.parametrize(("name", "backend"), RUNS, ids=[f"{n} on {b}" for n, b in RUNS])


@pytest.mark.parametrize(("name", "backend"), [run for run in RUNS if make_cell(run[0]).exact_gradient])
def test_gradcheck_of_inputs_weights_biases_and_initial_state(name: str, backend: str) -> None:
    case = Case(name, B=2, T=4, D=3, H=3)

    def run(*leaves: Any) -> Any:
        given = dict(zip(case.leaves, leaves, strict=True))
        weights = {key: given[key] for key in case.weights}
        state = [given[f"{key}0"] for key in case.cell.states]
        outputs, final, _ = scan(case.cell, weights, given["x"], state, lengths=[4, 2], backend=backend)
        return outputs, *final

    assert torch.autograd.gradcheck(run, tuple(case.leaves.values()))


@pytest.mark.parametrize("name", ["elman", "lstm", "gru2014"])
def test_second_derivatives_too(name: str) -> None:
    case = Case(name, B=1, T=3, D=2, H=2)

    def run(x: Any, *weights: Any) -> Any:
        return scan(case.cell, dict(zip(case.weights, weights, strict=True)), x, lengths=[2], backend="loop").outputs

    assert torch.autograd.gradgradcheck(run, (case.x, *case.weights.values()))


@each_run
def test_a_sequence_cut_in_two_equals_the_whole(name: str, backend: str) -> None:
    case = Case(name, T=7)

    def in_two() -> Any:
        first = scan(case.cell, case.weights, case.x[:, :3], case.state, backend=backend)
        second = scan(case.cell, case.weights, case.x[:, 3:], first.state, backend=backend)
        return torch.cat([first.outputs, second.outputs], dim=1), second.state

    all_close(case.everything(in_two), case.everything(lambda: case.scan(backend=backend)))


@each_run
def test_a_reset_equals_two_separate_sequences(name: str, backend: str) -> None:
    case = Case(name, T=7)
    reset = torch.zeros(3, 7, dtype=torch.bool)
    reset[0, 3] = reset[1, 1] = reset[1, 2] = True  # row 2 has none
    fresh = random_state(case.cell, None, 3)

    def one_by_one() -> Any:
        rows = []
        for b, cuts in enumerate([[0, 3, 7], [0, 1, 2, 7], [0, 7]]):
            state = [part[b : b + 1] for part in case.state]
            outputs = []
            for begin, end in itertools.pairwise(cuts):
                if begin:
                    state = [part[None] for part in fresh]
                piece = scan(case.cell, case.weights, case.x[b : b + 1, begin:end], state, backend=backend)
                outputs.append(piece.outputs)
                state = piece.state
            rows.append((torch.cat(outputs, dim=1), *state))
        outputs, *final = (torch.cat(parts) for parts in zip(*rows, strict=True))
        return outputs, final

    def grads_of_fresh(run: Any) -> Any:
        return torch.autograd.grad(case.loss(run()), fresh, materialize_grads=True)  # a step need not read all

    def together() -> Any:
        return case.scan(reset=reset, initial=fresh, backend=backend)

    all_close(case.everything(together), case.everything(one_by_one))
    for a, b in zip(grads_of_fresh(together), grads_of_fresh(one_by_one), strict=True):
        close(a, b, "initial")


def test_a_reset_at_the_first_step_drops_the_state_given() -> None:
    case = Case("lstm")
    reset = torch.zeros(3, 5, dtype=torch.bool)
    reset[1, 0] = True
    got = case.scan(reset=reset)
    without = scan(case.cell, case.weights, case.x)
    close(got.outputs[1], without.outputs[1])
    close(got.outputs[0], case.scan().outputs[0])


@each_run
def test_lengths_equal_each_sequence_alone(name: str, backend: str) -> None:
    case = Case(name, B=4, T=6)
    lengths = [2, 6, 1, 4]

    def one_by_one() -> Any:
        rows = []
        for b, n in enumerate(lengths):
            state = [part[b : b + 1] for part in case.state]
            outputs, final, _ = scan(case.cell, case.weights, case.x[b : b + 1, :n], state, backend=backend)
            rows.append((torch.nn.functional.pad(outputs, (0, 0, 0, 6 - n)), *final))
        outputs, *final = (torch.cat(parts) for parts in zip(*rows, strict=True))
        return outputs, final

    all_close(case.everything(lambda: case.scan(lengths=lengths, backend=backend)), case.everything(one_by_one))


def test_what_stands_behind_a_length_is_never_read() -> None:
    case = Case("gru")
    poisoned = case.x.detach().clone()
    poisoned[0, 2:] = float("nan")
    outputs, state, _ = scan(case.cell, case.weights, poisoned, lengths=[2, 5, 5])
    assert torch.isfinite(outputs).all()
    assert torch.isfinite(state.h).all()
    assert (outputs[0, 2:] == 0).all()


@each_run
def test_reverse_is_the_same_sequence_from_its_end(name: str, backend: str) -> None:
    case = Case(name)

    def flipped() -> Any:
        outputs, final, _ = scan(case.cell, case.weights, case.x.flip(1), case.state, backend=backend)
        return outputs.flip(1), final

    all_close(case.everything(lambda: case.scan(reverse=True, backend=backend)), case.everything(flipped))


@each_run
def test_reverse_with_lengths_and_resets_keeps_sequences_apart(name: str, backend: str) -> None:
    case = Case(name, B=2, T=6)
    reset = torch.zeros(2, 6, dtype=torch.bool)
    reset[0, 2] = True
    lengths = [5, 3]

    def one_by_one() -> Any:
        def piece(b: int, begin: int, end: int, state: Any) -> Any:
            outputs, final, _ = scan(
                case.cell, case.weights, case.x[b : b + 1, begin:end].flip(1), state, backend=backend
            )
            return outputs.flip(1), final

        # Row 0: steps 4, 3, 2 from the state given, then steps 1, 0 anew. Row 1: steps 2, 1, 0.
        late, _ = piece(0, 2, 5, [p[:1] for p in case.state])
        early, final0 = piece(0, 0, 2, None)
        only, final1 = piece(1, 0, 3, [p[1:] for p in case.state])
        pad = torch.nn.functional.pad
        outputs = torch.cat([pad(torch.cat([early, late], 1), (0, 0, 0, 1)), pad(only, (0, 0, 0, 3))])
        return outputs, [torch.cat(parts) for parts in zip(final0, final1, strict=True)]

    options: Any = {"lengths": lengths, "reset": reset, "reverse": True, "backend": backend}
    all_close(case.everything(lambda: case.scan(**options)), case.everything(one_by_one))


@pytest.mark.parametrize(
    "name", [n for n in ALL_CELLS if make_cell(n).recurrent_gates and not make_cell(n).own_products]
)
def test_a_mask_multiplies_what_u_multiplies(name: str) -> None:
    case = Case(name, T=2)
    mask = torch.rand(3, 3, dtype=torch.float64)
    # Row by row, scaling what W multiplies is scaling W's columns.
    rows = []
    for b in range(3):
        weights = {**case.weights, "weight_hh": case.weights["weight_hh"] * mask[b]}
        rows.append(scan(case.cell, weights, case.x[b : b + 1], [p[b : b + 1] for p in case.state]).outputs)
    close(case.scan(mask=mask).outputs, torch.cat(rows))


def test_one_state_may_be_given_bare_and_a_vector_serves_all_rows() -> None:
    case = Case("gru")
    start = torch.randn(3, dtype=torch.float64)
    close(
        scan(case.cell, case.weights, case.x, start).outputs,
        scan(case.cell, case.weights, case.x, (start.expand(3, 3),)).outputs,
    )


@pytest.mark.parametrize("name", TORCH_CELLS)
def test_single_precision_backends_agree(name: str) -> None:
    case = Case(name, B=5, T=9, D=7, H=11, dtype=torch.float32)
    all_close(case.everything(lambda: case.scan(backend="torch")), case.everything(lambda: case.scan(backend="loop")))

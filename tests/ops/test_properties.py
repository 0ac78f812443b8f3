"""Any shape: both backends agree, rows do not see each other, and packing puts every step back in its place."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from recur.ops import scan
from recur.ops.bptt import BPTT
from recur.ops.packing import Packing
from tests.support import ALL_CELLS, TORCH_CELLS, Case, all_close, close, random_state


@st.composite
def batches(draw: Any) -> dict[str, Any]:
    """Sizes from 1, odd ones among them; lengths; resets; direction."""
    B, T = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    lengths = draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B))
    flags = draw(st.none() | st.lists(st.booleans(), min_size=B * T, max_size=B * T))
    return {
        "sizes": {"B": B, "T": T, "D": draw(st.integers(1, 6)), "H": draw(st.integers(1, 7))},
        "options": {
            "lengths": lengths,
            "reset": None if flags is None else torch.tensor(flags).view(B, T),
            "reverse": draw(st.booleans()),
        },
    }


@given(batch=batches(), name=st.sampled_from(TORCH_CELLS), window=st.integers(1, 10))
def test_backends_agree(batch: dict[str, Any], name: str, window: int) -> None:
    case = Case(name, **batch["sizes"])
    options = batch["options"]
    all_close(
        case.everything(lambda: case.scan(backend="torch", **options)),
        case.everything(lambda: case.scan(backend="loop", **options)),
    )
    if options["reset"] is None:  # windows of rows that restart at different steps are the loop's alone
        options |= {"bptt": f"truncated:{window}"}
        all_close(
            case.everything(lambda: case.scan(backend="torch", **options)),
            case.everything(lambda: case.scan(backend="loop", **options)),
        )


@given(batch=batches(), name=st.sampled_from(ALL_CELLS))
def test_a_row_is_the_same_alone(batch: dict[str, Any], name: str) -> None:
    case = Case(name, **batch["sizes"])
    options = batch["options"]
    together = case.scan(**options)
    for b in range(case.x.shape[0]):
        own = {**options}
        if own["lengths"] is not None:
            own["lengths"] = own["lengths"][b : b + 1]
        if own["reset"] is not None:
            own["reset"] = own["reset"][b : b + 1]
        alone = scan(case.cell, case.weights, case.x[b : b + 1], [p[b : b + 1] for p in case.state], **own)
        close(together.outputs[b : b + 1], alone.outputs)
        for got, expected in zip(together.state, alone.state, strict=True):
            close(got[b : b + 1], expected)


@given(batch=batches(), name=st.sampled_from(ALL_CELLS), data=st.data())
def test_every_option_at_once_against_one_step_at_a_time(batch: dict[str, Any], name: str, data: Any) -> None:
    """An oracle that knows no packing: each row alone, a step at a time, what is carried scaled and clipped by hand."""
    case = Case(name, **batch["sizes"])
    B, T, H = *case.x.shape[:2], case.state[0].shape[1]
    widths = [part.shape[1] for part in case.state]
    lengths, reset = batch["options"]["lengths"] or [T] * B, batch["options"]["reset"]
    reverse = batch["options"]["reverse"]
    xi = torch.rand(B, T, dtype=torch.float64) * 2
    clip = data.draw(st.sampled_from([None, 0.5]))
    masked = case.cell.recurrent_gates and not case.cell.own_products  # a mask reaches the product with W only
    mask = torch.rand(B, H, dtype=torch.float64, requires_grad=data.draw(st.booleans())) if masked else None
    fresh = random_state(case.cell, None, H)

    def carried(state: Any, factor: float) -> Any:
        """Identity forward; on the way back g ← min(1, θ/‖ξg‖) ξg, by a hook on one tensor that joins all states."""
        joined = torch.cat([part.reshape(-1) for part in state]) * 1.0

        def hook(grad: Any) -> Any:
            grad = grad * factor
            return grad if clip is None else grad * min(1.0, clip / max(grad.norm().item(), 1e-300))

        joined.register_hook(hook)
        return [part[None] for part in joined.split(widths)]

    def starts_anew(b: int, k: int, t: int) -> bool:
        if reset is None or (reverse and k == 0):
            return False
        return bool(reset[b, t + 1] if reverse else reset[b, t])

    def step_by_step() -> Any:
        rows = []
        for b in range(B):
            state: Any = [part[b : b + 1] for part in case.state]
            outputs: list[Any] = [torch.zeros_like(case.on_outputs[0, 0])] * T
            for k, t in enumerate(reversed(range(lengths[b])) if reverse else range(lengths[b])):
                anew = starts_anew(b, k, t)
                state = carried(fresh if anew else state, 1.0 if anew else float(xi[b, k]))
                row_mask = None if mask is None else mask[b : b + 1]
                state = scan(case.cell, case.weights, case.x[b : b + 1, t : t + 1], state, mask=row_mask).state
                outputs[t] = case.cell.output(state)[0]
            rows.append((torch.stack(outputs), *(part[0] for part in state)))
        outputs, *final = (torch.stack(parts) for parts in zip(*rows, strict=True))
        return outputs, final

    options: Any = {"lengths": lengths, "reset": reset, "reverse": reverse, "initial": fresh, "mask": mask}
    options["bptt"] = BPTT(xi=xi, clip=clip)
    all_close(case.everything(lambda: case.scan(**options)), case.everything(step_by_step))
    others = [*fresh, *([mask] if mask is not None and mask.requires_grad else [])]
    got = torch.autograd.grad(case.loss(case.scan(**options)), others, allow_unused=True)
    expected = torch.autograd.grad(case.loss(step_by_step()), others, allow_unused=True)
    for a, b, leaf in zip(got, expected, others, strict=True):
        nothing = torch.zeros_like(leaf)
        close(nothing if a is None else a, nothing if b is None else b)


@given(batch=batches())
def test_packing_takes_every_step_once_and_puts_it_back(batch: dict[str, Any]) -> None:
    B, T = batch["sizes"]["B"], batch["sizes"]["T"]
    lengths = batch["options"]["lengths"]
    given_lengths = None if lengths is None else torch.tensor(lengths)
    packing = Packing.of(B, T, given_lengths, batch["options"]["reset"], batch["options"]["reverse"], "cpu")
    assert packing.sizes == sorted(packing.sizes, reverse=True)
    assert len(packing.flat.unique()) == len(packing.flat) == sum(packing.sizes) == sum(lengths or [T] * B)
    x = torch.randn(B, T, 2)
    valid = torch.arange(T) < torch.tensor(lengths or [T] * B)[:, None]
    assert torch.equal(packing.unpack(packing.pack(x)), x * valid[..., None])

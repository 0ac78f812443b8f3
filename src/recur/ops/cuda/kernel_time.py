"""How long a way takes on this GPU: a cell's kernel alone, on numbers of its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

from recur.compiler.signature import Signature
from recur.ops.cuda import persistent
from recur.ops.cuda.after import Asked
from recur.ops.cuda.backward_pass import Backward
from recur.ops.cuda.cache import compiled
from recur.ops.cuda.device import device
from recur.ops.cuda.forward_pass import Forward
from recur.ops.cuda.memory import Layout, layout
from recur.ops.cuda.operands import uses_tf32
from recur.ops.cuda.passes import FILLS, STEPS
from recur.ops.cuda.scratch import Chosen
from recur.ops.cuda.source import load
from recur.ops.cuda.way import Problem, Way

Request = tuple[Problem, Way]


def _layout(cell: str, dtype: torch.dtype, S: int, T: int, H: int) -> Layout:
    a = load(cell)
    weights = 4 if a.products else 2
    return layout(Signature(cell, dtype, (S, T, 1), (), a.gates * H, H, weights, a.extras, 0, False, False, 0.0, ""))


def compile_all(cell: str, dtype: torch.dtype, wanted: list[Request], threads: int = 8) -> None:
    """Into the cache, several at a time: NVRTC does not hold Python up."""
    architecture = device(torch.cuda.current_device()).architecture
    texts = {persistent.text(cell, dtype, p, way, not p.backward) for p, way in wanted}
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda text: compiled(text, architecture), texts))


class Measured:
    """A scan of random numbers, whose passes are timed one by one."""

    def __init__(self, cell: str, dtype: torch.dtype, S: int, T: int, H: int) -> None:
        self.lay = lay = _layout(cell, dtype, S, T, H)
        a, index = lay.assembly, torch.cuda.current_device()
        numbers = torch.Generator(f"cuda:{index}").manual_seed(0)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device=f"cuda:{index}", generator=numbers).to(dtype)

        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (a.gates * H, 1),
            "weight_hh": (a.products * H, H // a.heads),
        }
        shapes |= {"bias_ih": (a.gates * H,), "bias_hh": (a.products * H,)}
        weights = [random(*shapes[name]) * H**-0.5 for name in lay.names]
        given = [random(S, T, 1), *weights, *(random(H) for _ in range(a.extras))]
        self.given = given
        self.arriving = [random(S, T, H) for _ in lay.outputs]
        self.results = lay.empty_results(given[0], True)
        for part in self.results:
            part.copy_(random(*part.shape))

    def microseconds(self, p: Problem, way: Way | None, rounds: int = 5) -> float | None:
        """A step; None for a way that does not fit."""
        lay, index = self.lay, torch.cuda.current_device()
        chosen = None
        if way is not None:
            prepared = persistent.kernel(lay.of.cell, lay.of.dtype, p, way, index, not p.backward)
            if prepared is None:
                return None
            chosen = p, *prepared
        run = self._backward(chosen) if p.backward else self._forward(chosen)
        times: list[float] = []
        run()
        for _ in range(rounds):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            times.append(1e3 * begin.elapsed_time(end) / lay.steps)
        return statistics.median(times)

    def _forward(self, chosen: Chosen | None) -> Callable[[], object]:
        made = Forward(self.lay, True, torch.cuda.current_device(), uses_tf32(), chosen)
        bound = made.bind(self.given)
        if chosen is None:
            return lambda: made.step_by_step(self.given, bound.made)
        return lambda: made.launches(bound.addresses, FILLS, STEPS)(bound.addresses)

    def _backward(self, chosen: Chosen | None) -> Callable[[], object]:
        lay, n = self.lay, len(self.lay.outputs)
        asked = Asked((True,) * n + (False,) * lay.assembly.states, False, False, False, False)
        made = Backward(lay, asked, torch.cuda.current_device(), uses_tf32(), chosen)
        outputs = [lay.by_row(part) for part in self.results[:n]]
        kept = [*self.given, *outputs, *self.results[n + lay.assembly.states :]]
        gradients = [*self.arriving, *[None] * lay.assembly.states]
        bound = made.bind(kept, gradients)
        if chosen is None:
            return lambda: made.step_by_step(kept, gradients, bound)
        return lambda: made.launches(bound.addresses, FILLS, STEPS)(bound.addresses)

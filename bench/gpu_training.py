"""Training steps of language models on a GPU: tokens a second, and where the time of a step goes.

Three sides take turns in one process, with the same sizes and dropouts: `recur` as `recur train` runs it (recorded
steps), the same without graphs, and `by hand`, a loop around cuDNN as one would write it. Then each part of a step by
itself, forward and back, recorded, so that no launch is counted, beside the least it could take: bytes at the memory's
rate, products at the rate of a large one (bench/gpu_floor.py).
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.gpu_by_hand import by_hand
from bench.gpu_floor import PRODUCTS, Problem, floor
from recur.data.text import Stream
from recur.models import LanguageModel
from recur.nn.functional import fast_dropout, linear_cross_entropy
from recur.runs import autocast_in
from recur.tasks import make_options, task_class, task_of
from recur.tasks.common.contract import TrainingProgress
from recur.tasks.language.data import TextWindows
from recur.training import optim
from recur.training.distributed import SINGLE_PROCESS
from recur.training.graphs import CudaGraphs
from recur.training.trainer import TrainStep

MEMORY = 4.0e12
"""Bytes a second that a copy reaches on an H200."""

AWD: dict[str, Any] = {
    "cell": "lstm",
    "hidden_size": 1152,
    "top_hidden_size": 400,
    "num_layers": 3,
    "embedding_size": 400,
    "tie_weights": True,
    "dropout_embedding": 0.1,
    "dropout_input": 0.4,
    "dropout_hidden": 0.25,
    "dropout_weight": 0.5,
    "dropout_output": 0.4,
    "variational": True,
    "alpha": 2.0,
    "beta": 1.0,
    "window": 70,
    "optimizer": "sgd",
    "lr": 1.0,
    "grad_clip": 0.25,
}
MEDIUM: dict[str, Any] = {
    "cell": "lstm",
    "hidden_size": 650,
    "num_layers": 2,
    "embedding_size": 650,
    "tie_weights": False,
    "dropout_input": 0.5,
    "dropout_hidden": 0.5,
    "dropout_output": 0.5,
    "alpha": 0.0,
    "beta": 0.0,
    "window": 35,
    "optimizer": "sgd",
    "lr": 1.0,
    "grad_clip": 0.25,
}
CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "default text": (104, 64, {}),
    "medium": (10_000, 20, MEDIUM),
    "awd 20": (10_000, 20, AWD),
    "awd 40": (10_000, 40, AWD),
    "awd 64": (10_000, 64, AWD),
    "awd 128": (10_000, 128, AWD),
}
"""By name: tokens of the vocabulary, rows, and options of the task."""


class Side(NamedTuple):
    step: Callable[[], Any]
    tokens: int


class Case:
    """One model and its text."""

    def __init__(self, K: int, B: int, fields: dict[str, Any], precision: str, device: str = "cuda") -> None:
        token = {"token": "word"} if K > 1000 else {}
        given = {
            **token,
            **fields,
            "batch_size": B,
            "device": device,
            "precision": precision,
            "steps": 1,
            "texts": "pydoc",
        }
        self.options = o = task_class("language").settle(make_options("language", given))
        self.task, self.device = task_of(o), torch.device(device)
        self.K, self.B, self.T = K, B, o.window
        torch.manual_seed(0)
        ids = np.random.default_rng(0).zipf(1.3, 200 * B * o.window + 1) % K
        self.windows = TextWindows(Stream(ids.astype(np.int32), B, o.window), self.device)

    def new(self) -> tuple[LanguageModel, TrainStep]:
        model = LanguageModel(self.K, self.options).to(self.device).train()
        optimizer = optim.make_optimizer(self.options, model)
        return model, TrainStep(self.task, model, optimizer, self.device, SINGLE_PROCESS, threading.Event())

    def recorded(self) -> Side:
        _, stepper = self.new()
        graphs = CudaGraphs(stepper, lambda rate: optim.set_learning_rate(stepper.optimizer, rate))

        def step(batch: Any, state: Any) -> Any:
            taken = graphs.take(batch, state, TrainingProgress(0, 0, 0.0), 0.01)
            assert taken is not None
            return taken[0].state

        return self._side(step)

    def eager(self) -> Side:
        _, stepper = self.new()

        def step(batch: Any, state: Any) -> Any:
            done = stepper.gradients(batch, state, TrainingProgress(0, 0, 0.0))
            stepper.clip(done.loss)
            optim.set_learning_rate(stepper.optimizer, 0.01)
            stepper.update()
            return done.state

        return self._side(step)

    def by_hand(self) -> Side:
        return self._side(by_hand(self.options, self.K, self.device))

    def _side(self, step: Callable[[Any, Any], Any]) -> Side:
        kept: dict[str, Any] = {"batches": iter(()), "state": None}

        def one() -> None:
            batch = next(kept["batches"], None)
            if batch is None:
                kept["batches"], kept["state"] = self.windows.batches(0), None
                batch = next(kept["batches"])
            kept["state"] = step(batch, kept["state"])

        return Side(one, self.B * self.T)

    # Parts ------------------------------------------------------------------------------------------------

    def parts(self) -> dict[str, tuple[Callable[[], Any], float]]:
        """Each part of a step, and µs that it takes at least."""
        o, N = self.options, self.B * self.T
        model, stepper = self.new()
        x = next(self.windows.batches(0)).cut()[0]
        E, top = model.embedding.width, model.recurrent.output_size
        item = 2 if o.precision in ("bfloat16", "float16") else 4
        wide = torch.zeros(self.B, self.T, E, device=self.device).normal_().requires_grad_()
        h = torch.randn(N, o.embedding_size if o.tie_weights else top, device=self.device, requires_grad=True)
        y = x.flatten()
        net: Any = model.recurrent
        W = [w for name, w in model.recurrent.named_parameters() if "weight_hh" in name]
        out = model.output_matrix()
        bias: Any = model.bias
        numbers = sum(p.numel() for p in model.parameters())
        for p in model.parameters():
            p.grad = torch.zeros_like(p)

        def recurrence() -> None:
            net.eval()
            with autocast_in(o.precision or "float32", self.device):
                found = net(wide).outputs
            torch.autograd.grad(found, [wide, *net.parameters()], torch.ones_like(found))

        def tokens() -> None:
            with autocast_in(o.precision or "float32", self.device):
                found = model.embedding.train()(x)
            if model.embedding.weight is not None:
                torch.autograd.grad(found, [model.embedding.weight], torch.ones_like(found))

        def masks() -> None:
            if o.dropout_weight:
                for w in W:
                    torch.autograd.grad(fast_dropout(w, o.dropout_weight), [w], w.detach())

        def loss() -> None:
            with autocast_in(o.precision or "float32", self.device):
                found = linear_cross_entropy(h, out, bias, y)
            torch.autograd.grad(found, [h, out, bias])

        def update() -> None:
            optim.clip_gradients(stepper.parameters, o.grad_clip, 0.0)
            stepper.optimizer.step()

        rate = PRODUCTS[torch.bfloat16 if item == 2 else torch.float32]
        dtype = torch.bfloat16 if item == 2 else torch.float32
        gates, floors, D = len(net.cell.gates), 0.0, E
        for layer in range(net.num_layers):
            problem = Problem(gates, self.B, self.T, D, net.units(layer), dtype)
            floors += self.T * (floor(problem, False)[0] + floor(problem, True)[0])
            D = net.units(layer)
        state_bytes = 3 if o.optimizer == "sgd" else 7
        return {
            "recurrence": (recurrence, floors),
            "embedding": (tokens, (N * E * 4 * 3 + self.K * E * 4) / MEMORY * 1e6),
            "weight dropout": (masks, sum(w.numel() for w in W) * (4 * 4 + 2) / MEMORY * 1e6 * bool(o.dropout_weight)),
            "output and loss": (loss, max(6.0 * N * h.shape[1] * self.K / rate, 2 * N * self.K * item / MEMORY) * 1e6),
            "clip, optimiser": (update, numbers * 4 * (1 + state_bytes) / MEMORY * 1e6),
        }


def recorded(call: Callable[[], Any]) -> Callable[[], Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def micros(call: Callable[[], Any], many: int) -> float:
    """Of one call, on the device's clock."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(many):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / many


def measure(name: str, precision: str, rounds: int = 5) -> dict[str, Any]:
    K, B, fields = CASES[name]
    case = Case(K, B, fields, precision)
    sides = {"recur": case.recorded(), "eager": case.eager(), "by hand": case.by_hand()}
    row: dict[str, Any] = {"case": name, "precision": precision, "B": B, "T": case.T}
    for side in sides.values():
        for _ in range(6):  # the first of an epoch, and then two of the same form
            side.step()
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for what, side in sides.items():
            begun = time.perf_counter()
            for _ in range(10):
                side.step()
            torch.cuda.synchronize()
            times[what].append((time.perf_counter() - begun) / 10)
    row["tokens_per_second"] = {what: B * case.T / statistics.median(found) for what, found in times.items()}
    whole = statistics.median(times["recur"]) * 1e6
    row["step_us"], row["parts"] = whole, {}
    for what, (call, least) in case.parts().items():
        us = statistics.median(micros(recorded(call), 10) for _ in range(1))
        row["parts"][what] = {"us": us, "share": us / whole, "floor_us": least}
    return row


def report(row: dict[str, Any]) -> list[str]:
    speed = row["tokens_per_second"]
    lines = [
        f"{row['case']}, {row['precision']}: {row['B']} × {row['T']}, {row['step_us']:,.0f} µs a step; "
        + ", ".join(f"{what} {found / 1e3:,.0f}k tokens/s" for what, found in speed.items())
        + f"; {speed['recur'] / speed['by hand']:.2f} × by hand"
    ]
    for what, part in row["parts"].items():
        lines.append(f"    {what:<16} {part['us']:8,.0f} µs  {part['share']:6.1%}  floor {part['floor_us']:7,.0f} µs")
    return lines

"""What training costs outside the network, and how fast a stream of samples is."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recur.decoding import SamplingOptions, generate
from recur.runs import Run
from recur.tasks import config_text, make_options, task_class, task_of
from recur.training import Trainer


def make_trainer(folder: Path, **fields: object) -> Trainer:
    """A language model of the default size on pydoc, in a run of its own, about to make its first step on the CPU."""
    fields = {"device": "cpu", "steps": 10**6, "eval_every": 1e6, "baseline": False, **fields}
    options = task_class("language").settle(make_options("language", fields))
    task = task_of(options)
    data = task.read()
    run = Run.create(folder, task.name, config_text(options, folder), data.vocabs)
    return Trainer(run, task, data, callback=lambda event: None)


def overhead(hidden: int = 256, steps: int = 150) -> dict[str, float]:
    """A step of the trainer, batching, metrics and reports included, beside the same forward, backward, clip and
    optimiser step on a batch that lies ready; in turns, so that both see the same machine."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(Path(folder) / "run", hidden_size=hidden, threads=2)
        batches = trainer.stream.batches()
        ready = next(batches)
        x, y = torch.from_numpy(ready.x), torch.from_numpy(ready.y)
        state: Any = None

        def bare() -> None:
            nonlocal state
            predicted = trainer.model(x, state)
            state = trainer.model.detached(predicted.state)
            (trainer.model.loss(predicted, y) + predicted.penalty).backward()
            nn.utils.clip_grad_norm_(trainer.parameters, 1.0)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad(set_to_none=True)

        times: dict[str, list[float]] = {"bare": [], "trainer": []}
        for k in range(steps):
            begun = time.perf_counter()
            bare()
            middle = time.perf_counter()
            trainer.train_on(next(batches))
            if k % 20 == 0:  # about as often as twice a second
                trainer._report()
            times["bare"].append(middle - begun)
            times["trainer"].append(time.perf_counter() - middle)
    ratios = [b / a for a, b in zip(times["bare"], times["trainer"], strict=True)]
    bare_ms, ours_ms = (statistics.median(times[name]) * 1e3 for name in ("bare", "trainer"))
    return {"bare_ms": bare_ms, "trainer_ms": ours_ms, "ratio": statistics.median(ratios)}


def backends(cell: str, steps: int = 60) -> dict[str, float]:
    """Tokens a second of training at the default size, on the native backend and on torch, taking turns."""
    with tempfile.TemporaryDirectory() as folder:
        trainers = {}
        for backend in ("native", "torch"):
            trainer = make_trainer(Path(folder) / backend, cell=cell, backend=backend, threads=2)
            trainers[backend] = trainer, trainer.stream.batches()
        times: dict[str, list[float]] = {name: [] for name in trainers}
        tokens = 0
        for _ in range(steps):
            for name, (trainer, batches) in trainers.items():
                batch = next(batches)
                tokens = batch.y.size
                begun = time.perf_counter()
                trainer.train_on(batch)
                times[name].append(time.perf_counter() - begun)
    ratio = statistics.median(b / a for a, b in zip(times["native"], times["torch"], strict=True))
    return {name: tokens / statistics.median(seen) for name, seen in times.items()} | {"ratio": ratio}


def sampling(hidden: int = 256, tokens: int = 2000) -> dict[str, float]:
    """Tokens a second, one stream, beside the same model as one writes it in PyTorch: nn.LSTM called step by step."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(Path(folder) / "run", cell="lstm", hidden_size=hidden, embedding_size=0, threads=1)
    model = trainer.model.eval()
    lstm = nn.LSTM(model.K, hidden, batch_first=True)
    lstm.load_state_dict(model.recurrent.state_dict())
    assert model.output is not None
    weight: Tensor = model.output

    @torch.no_grad()
    def by_hand() -> None:
        token, state = torch.tensor([[5]]), None
        for _ in range(tokens):
            out, state = lstm(nn.functional.one_hot(token, model.K).float(), state)
            logits = nn.functional.linear(out[:, -1], weight, model.bias)
            token = torch.multinomial(logits.softmax(-1), 1)

    def ours() -> None:
        for _ in generate(model, [5], tokens, SamplingOptions(), seed=0):
            pass

    times: dict[str, list[float]] = {"ours": [], "by_hand": []}
    for _ in range(5):
        for name, run in (("ours", ours), ("by_hand", by_hand)):
            begun = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - begun)
    rate = {name: tokens / statistics.median(seconds) for name, seconds in times.items()}
    return {"ours_per_s": rate["ours"], "by_hand_per_s": rate["by_hand"], "ratio": rate["ours"] / rate["by_hand"]}

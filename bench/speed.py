"""What `recur train` takes for the speed of a device before it sizes itself, beside that of training itself.

A row a width: tokens a second as they are asked for (train/speed.py), three times; those of a training of some seconds,
after the first second, in which it compiles and records; the seconds that asking took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from recur.tasks import make_options, task_class, task_of
from recur.training import Event, train
from recur.training.autoconfig import measure_throughput
from recur.utils.types import JsonObject

FIRST = 1.0
"""Seconds of a training that are not counted."""


def measure(text: str, width: int, batch: int, device: str, seconds: float, threads: int) -> JsonObject:
    fields: dict[str, Any] = {
        "texts": [text],
        "hidden_size": width,
        "batch_size": batch,
        "device": device,
        "auto_size": False,
    }
    fields |= {"minutes": (seconds + FIRST) / 60, "eval_every": 1e6, "baseline": False}
    fields |= {"threads": threads} if device == "cpu" else {}
    asked = make_options("language", fields)
    task = task_of(task_class("language").settle(asked))
    data, begun = task.read(), time.perf_counter()
    found = [measure_throughput(task, data) for _ in range(3)]
    asking = (time.perf_counter() - begun) / 3
    seen: list[tuple[float, float]] = [(0.0, 0.0)]

    def watch(event: Event) -> None:
        if event.kind == "progress":
            seen.append((float(event.content["seconds"]), float(event.content["predictions"])))

    with tempfile.TemporaryDirectory() as folder:
        train(asked, Path(folder) / "run", watch)
    first, last = next((one for one in seen if one[0] >= FIRST), seen[0]), seen[-1]
    real = (last[1] - first[1]) / (last[0] - first[0])
    return {"width": width, "batch": batch, "asked": found, "trained": real, "asking_seconds": asking}


def main(given: argparse.Namespace) -> dict[str, object]:
    device = given.device if given.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    print("  width   asked, least … most        trained   middle / trained   seconds to ask")
    for width in given.width or ((64, 256, 1024, 2048) if device == "cuda" else (64, 128, 256)):
        row = measure(given.text, width, given.lanes, device, given.seconds, given.threads)
        asked, real = row["asked"], row["trained"]
        share, seconds = statistics.median(asked) / real, row["asking_seconds"]
        rates = f"{min(asked):>12,.0f} … {max(asked):<10,.0f}{real:>11,.0f}"
        print(f"{width:>7}{rates}{share:>15.2f}{seconds:>20.2f}", flush=True)
        rows.append(row)
    return {"device": device, "text": given.text, "rows": rows}

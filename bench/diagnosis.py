"""Planted faults: is the right one named first, and does what X-ray advises help?

Every run of bench/planted.py is trained and looked at; the first thing that X-ray says of it is compared with what was
planted. With `advice`, the first thing that it says to try is then trained for as long, and both figures are kept.

    setting     texts and a seed that thresholds were chosen on
    held-out    other texts and other seeds
"""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.planted import HELD_OUT, PLANTS, SETTING, TOKENS, VANISHING, Plant
from recur.diagnostics import xray
from recur.utils.types import JsonObject

SEEDS = {"setting": (0,), "held-out": (3, 4)}
TEXTS = {"setting": SETTING, "held-out": HELD_OUT}
LONGEST = 1e6
"""Seconds that a lock can wait."""


def plants(which: str, seeds: Iterable[int], advice: bool) -> list[Plant]:
    """The longest first, so that no process ends with one."""
    faults = (*PLANTS, VANISHING) if advice else PLANTS
    made = [
        Plant(fault, text, token, seed)
        for fault in faults
        for text in TEXTS[which]
        for token in TOKENS
        for seed in seeds
    ]
    return sorted(made, key=lambda plant: -plant.cost)


def judge(plant: Plant, data: Path, folder: Path, advice: bool) -> JsonObject:
    """One run: what was planted, what was found, and with `advice` what the first thing to try brought."""
    torch.set_num_threads(1)
    row: JsonObject = {"fault": plant.fault, "text": plant.text, "token": plant.token, "seed": plant.seed}
    try:
        model = plant.train(data, folder)
        report = xray(model)
    except Exception as error:  # one run that fails is a row of its own, and not the end of all
        return row | {"expected": plant.expected, "found": f"error: {error}"}
    found = report.diagnosis
    assert found is not None
    row |= {
        "expected": plant.expected,
        "found": found.condition,
        "reason": str(found.reason),
        "standing": str(found.standing),
    }
    row |= {"perplexity": _best(model.run.metrics()), "baseline": (model.run.baselines() or [{}])[0].get("value")}
    row |= {"values": {f.probe: f.value for f in report.findings if math.isfinite(f.value)}}
    if advice and found.tries and plant.expected == found.condition:
        option = found.tries[0].option
        tried = plant.train(data, folder, **as_options(option))
        row |= {"try": option, "tried": _best(tried.run.metrics())}
    return row


def as_options(flags: str) -> dict[str, Any]:
    """`--lr 0.04 --grad-clip 1` as keyword arguments."""
    words = flags.split()
    pairs = zip(words[::2], words[1::2], strict=True)
    return {name.removeprefix("--").replace("-", "_"): _value(value) for name, value in pairs}


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _best(entries: list[JsonObject]) -> float | None:
    return min((e["valid_perplexity"] for e in entries if "valid_perplexity" in e), default=None)


def measure(
    data: Path,
    which: str,
    jobs: int,
    seeds: list[int],
    advice: bool,
    folder: Path | None,
    *,
    faults: Iterable[str] = (),
    done: Iterable[JsonObject] = (),
    seconds: float = math.inf,
) -> Iterator[JsonObject]:
    """One row after the other, as they come, of these faults, without those that are `done`, for so long. Runs that
    lie in the folder already are not trained again."""
    ended = time.monotonic() + seconds
    known = {tuple(row[name] for name in ("fault", "text", "token", "seed")) for row in done}
    todo = [plant for plant in plants(which, seeds or SEEDS[which], advice) if astuple(plant) not in known]
    todo = [plant for plant in todo if not faults or plant.fault in faults]
    with tempfile.TemporaryDirectory() as scratch:
        work = partial(judge, data=data, folder=folder or Path(scratch), advice=advice)
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:  # which ends those that still run
            rows = pool.imap_unordered(work, todo)
            for _ in todo:
                try:
                    yield rows.next(min(max(ended - time.monotonic(), 0.0), LONGEST))
                except multiprocessing.TimeoutError:
                    return


def confusion(rows: Iterable[JsonObject]) -> str:
    """What was planted, a line each, and what was found, as a table of Markdown."""
    counted = [row for row in rows if row["fault"] != VANISHING]
    names = [Plant(fault, "", "", 0).expected for fault in PLANTS]
    others = sorted({row["found"] for row in counted} - set(names))
    lines = [
        f"| planted ↓ named first → | {' | '.join([*names, *others])} |",
        "| --- |" + " ---: |" * (len(names) + len(others)),
    ]
    for name in names:
        found = [row["found"] for row in counted if row["expected"] == name]
        if found:
            lines.append(f"| {name} | " + " | ".join(str(found.count(each) or "") for each in [*names, *others]) + " |")
    right = sum(row["found"] == row["expected"] for row in counted)
    return "\n".join([*lines, "", f"{right} of {len(counted)} right ({right / max(len(counted), 1):.0%})"])


def advice_table(rows: Iterable[JsonObject]) -> str:
    """The perplexity of runs with a fault, and after what was advised: the median ratio of each, and how many got
    better."""
    lines = [
        "| found | tried | runs | better | perplexity before → after, by text | median |",
        "| --- | --- | ---: | ---: | --- | ---: |",
    ]
    kept = [row for row in rows if row.get("tried") and row.get("perplexity")]
    for name in dict.fromkeys(row["expected"] for row in kept):
        mine = [row for row in kept if row["expected"] == name]
        ratios = [row["tried"] / row["perplexity"] for row in mine]
        first = {
            (row["text"], row["token"]): row for row in sorted(mine, key=lambda row: -row["seed"])
        }  # a seed of each
        shown = ", ".join(
            f"{text} {token} {row['perplexity']:.3g} → {row['tried']:.3g}"
            for (text, token), row in sorted(first.items())
        )
        options = " or ".join(dict.fromkeys(row["try"].split()[0] for row in mine))
        better = sum(ratio < 1 for ratio in ratios)
        lines.append(f"| {name} | `{options}` | {len(mine)} | {better} | {shown} | × {statistics.median(ratios):.2f} |")
    return "\n".join(lines)


def read_rows(path: Path) -> list[JsonObject]:
    rows: list[JsonObject] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows

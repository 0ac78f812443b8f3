"""`recur train` that sizes itself, beside a sweep: does the rule find what 30 trials find?

    sweep     30 random trials for each text and budget: width, layers, batch, window, rate, dropouts, widely drawn
    rule      nothing but the text and the minutes, three seeds
    default   the task's own numbers, whatever the text and the minutes
    around    the rule's own numbers, each moved a little at random: what its constants are fitted on

All with the same minutes, one thread each, several at a time. The rule (tasks/language/sizing.py) was chosen on texts
of FITTED; those of HELD_OUT are for the comparison, and nothing was chosen on them. Figures are of validation parts, on
which a sweep takes the best of its trials, so that the comparison leans to the sweep's side.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recur.utils.files import write_atomically
from recur.utils.types import JsonObject

TRIALS, SEEDS = 30, 3
SPARE = 20.0
"""Seconds that a trial takes beyond its minutes: reading, asking for the speed, the last measurement."""
SIZES = (
    *("hidden_size", "embedding_size", "num_layers", "batch_size", "window", "lr"),
    *("dropout_input", "dropout_hidden", "dropout_output", "softmax", "softmax_samples"),
)
HOPELESS, AFTER = 1.25, 0.35
"""A trial of a sweep is left whose perplexity is so many times the rule's at the same point, behind that share of the
minutes."""


@dataclass(frozen=True)
class Case:
    """A text, what its tokens are, and for how long."""

    text: str
    token: str
    minutes: float

    @property
    def name(self) -> str:
        return f"{self.text}, {self.token}, {self.minutes:g} min"

    def write(self, data: Path, folder: Path) -> Path:
        """The text as a file."""
        path = folder / f"{self.text.replace(' ', '-')}.txt"
        if not path.exists():
            write_atomically(path, TEXTS[self.text](data).encode())
        return path


def _beginning(text: str, characters: int) -> str:
    return text[: text.rindex("\n", 0, characters) + 1] if len(text) > characters else text


def _read(data: Path, name: str) -> str:
    return (data / name).read_text(encoding="utf-8")


def _carried(name: str) -> str:
    """A text that every Python carries."""
    from recur.data.text import Corpus

    return _beginning(Corpus.of(name).text(), 3_000_000)


def _shuffled(text: str) -> str:
    """Pieces in another order, so that the part that is held out is like the rest: modules are sorted by name."""
    pieces = [text[at : at + 5000] for at in range(0, len(text), 5000)]
    random.Random(0).shuffle(pieces)
    return "".join(pieces)


def _sentences(data: Path) -> str:
    return "".join(line.split("\t", 1)[1] for line in _read(data, "sentences/subj_train.tsv").splitlines(True))


TEXTS = {
    "The Time Machine": lambda data: _read(data, "timemachine/timemachine.txt"),
    "Tang quatrains": lambda data: _read(data, "tang/quatrains.txt"),
    "Penn Treebank": lambda data: _beginning(_read(data, "ptb/train.txt"), 1_100_000),
    "standard library": lambda data: _shuffled(_carried("stdlib")),
    "pydoc": lambda data: _carried("pydoc"),
    "Multi30k German": lambda data: _read(data, "multi30k/train.de"),
    "Multi30k English": lambda data: _read(data, "multi30k/train.en"),
    "subjectivity": _sentences,
}

FITTED = (
    Case("The Time Machine", "char", 0.5),
    Case("standard library", "char", 0.5),
    Case("Penn Treebank", "word", 0.5),
    Case("Tang quatrains", "char", 0.5),
    Case("The Time Machine", "char", 1.5),
    Case("standard library", "char", 1.5),
    Case("Penn Treebank", "word", 1.5),
    Case("The Time Machine", "word", 0.5),
)
HELD_OUT = (
    Case("Multi30k German", "char", 0.5),
    Case("Multi30k English", "word", 0.5),
    Case("subjectivity", "word", 0.5),
    Case("pydoc", "char", 1.0),
)


@dataclass(frozen=True)
class Trial:
    case: Case
    kind: str
    """sweep, rule, default or around."""
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.case.name, self.kind, self.seed


def trials(which: str, around: int, match: str = "", minutes: float | None = None) -> list[Trial]:
    """Of the texts that were fitted on, some around the rule, fewer where they take longer; of those held out, a sweep;
    of both the rule itself and the default.

    They take turns, so that a limit of time cuts all cases alike; the longest come first.
    """
    cases = [case for case in (FITTED if which == "fitted" else HELD_OUT) if match in case.name]
    cases = sorted((replace(case, minutes=minutes or case.minutes) for case in cases), key=lambda case: -case.minutes)
    found = [Trial(case, "rule", seed) for seed in range(1 if which == "fitted" else SEEDS) for case in cases]
    found += [Trial(case, "default", 0) for case in cases]
    if which == "held-out":
        return found + [Trial(case, "sweep", seed) for seed in range(TRIALS) for case in cases]
    shortest = min(case.minutes for case in cases)
    return found + [Trial(c, "around", n) for n in range(around) for c in cases if n < around * shortest / c.minutes]


# One trial ------------------------------------------------------------------------------------------------------


def drawn(trial: Trial) -> dict[str, Any]:
    """Options of a trial of the sweep, from its number alone."""
    draw = random.Random(f"{trial.case.name} {trial.seed}")
    words = trial.case.token != "char" or "Tang" in trial.case.text
    hidden = 16 * round(math.exp(draw.uniform(math.log(64), math.log(640))) / 16)
    found = {
        "hidden_size": hidden,
        "num_layers": draw.choice((1, 2)),
        "batch_size": draw.choice((8, 16, 32, 64)),
        "window": draw.choice((16, 32, 64, 128)),
        "lr": math.exp(draw.uniform(math.log(0.002), math.log(0.03))),
        "dropout_input": draw.uniform(0.0, 0.5),
        "dropout_hidden": draw.uniform(0.0, 0.5),
        "dropout_output": draw.uniform(0.0, 0.6),
    }
    found |= {"embedding_size": hidden if words else draw.choice((16, 32, 64, 128))}
    return found | (softmax_of(draw) if trial.case.token != "char" else {})


def softmax_of(draw: random.Random) -> dict[str, Any]:
    return {"softmax": "sampled", "softmax_samples": draw.choice((256, 512, 1024))} if draw.random() < 0.7 else {}


def moved(base: Any, trial: Trial) -> dict[str, Any]:
    """The rule's options, each moved a little."""
    draw = random.Random(f"around {trial.case.name} {trial.seed}")

    def times(octaves: float) -> float:
        return math.pow(2, draw.uniform(-octaves, octaves))

    def near(share: float) -> float:
        return min(0.7, max(0.0, share + draw.uniform(-0.2, 0.2)))

    hidden = max(32, 16 * round(base.hidden_size * times(1.2) / 16))
    found = {
        "hidden_size": hidden,
        "embedding_size": max(16, 16 * round(hidden * base.embedding_size / base.hidden_size * times(0.7) / 16)),
        "num_layers": draw.choice((1, 2)),
        "batch_size": max(2, round(base.batch_size * draw.choice((0.5, 1, 1, 2)))),
        "window": max(8, round(base.window * draw.choice((0.5, 1, 1, 2)))),
        "lr": base.lr * times(1.3),
        "dropout_input": near(base.dropout_input),
        "dropout_hidden": near(base.dropout_hidden),
        "dropout_output": near(base.dropout_output),
    }
    return found | (softmax_of(draw) if trial.case.token != "char" else {})


Curve = list[tuple[float, float]]
"""Perplexity by progress, 0 … 1."""


def run(trial: Trial, text: Path, bar: Curve, cpu_clock: bool) -> JsonObject:
    """Train, and what it came to. With a `cpu_clock` all minutes are those of the process itself, for machines that are
    busy with something else."""
    if cpu_clock:
        time.monotonic = time.perf_counter = time.process_time
    import torch

    from recur.tasks import make_options, task_class, task_of
    from recur.training import Event, train
    from recur.training.autoconfig import ThroughputProbe
    from recur.training.distributed import SINGLE_PROCESS

    torch.set_num_threads(1)
    case = trial.case
    fields: dict[str, Any] = {"texts": [str(text)], "token": case.token, "minutes": case.minutes, "device": "cpu"}
    fields |= {"threads": 1, "baseline": False, "seed": trial.seed}
    row: JsonObject = {"case": case.name, "kind": trial.kind, "seed": trial.seed}
    if trial.kind == "around":
        asked = make_options("language", fields)
        task = task_of(task_class("language").settle(asked))
        data = task.read()
        found, _ = task.sized(asked, data, ThroughputProbe(task, data, SINGLE_PROCESS))
        fields |= moved(task.options.changed(**found), trial)
    elif trial.kind == "sweep":
        fields |= drawn(trial)
    if trial.kind != "rule":
        fields["auto_size"] = False
    if trial.kind in ("sweep", "around"):
        fields["bias_init"] = "unigram"  # as the rule has it: sizes are compared
    curve: Curve = []
    stop = threading.Event()

    def watch(event: Event) -> None:
        if event.kind == "measured":
            at, found = float(event.content["progress"]), float(event.content["valid_perplexity"])
            curve.append((at, found))
            beside = [value for progress, value in bar if progress <= at + 0.02]
            if trial.kind == "sweep" and at > AFTER and beside and found > HOPELESS * beside[-1]:
                stop.set()

    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = train(make_options("language", fields), Path(folder) / "run", watch, stop)
        except Exception as error:  # a trial that diverges is a result, and none is the end of all
            return row | {name: fields.get(name) for name in SIZES} | {"perplexity": None, "error": str(error)}
    o, data, done = outcome.task.options, outcome.task.read(), outcome.summary
    row |= {name: getattr(o, name) for name in (*SIZES, "epochs")}
    row |= {"tokens": len(data.train), "types": len(data.vocab), "read": done["epochs"]}
    row |= {"speed": done["predictions_per_second"], "seconds": done["seconds"], "perplexity": done["valid_perplexity"]}
    return row | {"curve": curve, "left": outcome.stopped}


# All of them ----------------------------------------------------------------------------------------------------


def measure(
    todo: list[Trial], rows: list[JsonObject], data: Path, jobs: int, seconds: float, cpu_clock: bool
) -> Iterator[JsonObject]:
    """Rows as they are done, after those that are there; after so many seconds none is begun that would not end in
    them."""
    os.environ["OMP_NUM_THREADS"] = "1"
    end = time.monotonic() + seconds
    waiting = list(reversed(todo))
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        running: set[Future[JsonObject]] = set()
        while waiting or running:
            while waiting and len(running) < jobs:
                trial = waiting.pop()
                if time.monotonic() + 60 * trial.case.minutes + SPARE < end:
                    text, bar = trial.case.write(data, Path(folder)), bar_of(trial.case, rows)
                    running.add(pool.submit(run, trial, text, bar, cpu_clock))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            found = [one.result() for one in done]
            rows = rows + found
            yield from found


def bar_of(case: Case, rows: Iterable[JsonObject]) -> Curve:
    """How the rule went, the first time it was done with a case."""
    done = [row["curve"] for row in rows if row["case"] == case.name and row["kind"] == "rule" and row.get("curve")]
    return done[0] if done else []


def compared(rows: Iterable[JsonObject]) -> list[JsonObject]:
    """The rule's mean beside the best of the others, a row for each text and budget."""
    by_case: dict[str, list[JsonObject]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row)
    found = []
    for name, mine in by_case.items():
        ruled = [row["perplexity"] for row in mine if row["kind"] == "rule" and row["perplexity"]]
        tried = [row for row in mine if row["kind"] in ("sweep", "around") and row["perplexity"]]
        default = [row["perplexity"] for row in mine if row["kind"] == "default"]
        if ruled and tried:
            best = min(tried, key=lambda row: float(row["perplexity"]))
            found.append(
                {
                    "case": name,
                    "rule": statistics.fmean(ruled),
                    "seeds": ruled,
                    "default": default[0] if default else None,
                    "best": best["perplexity"],
                    "trials": len(tried),
                    "ratio": statistics.fmean(ruled) / best["perplexity"],
                    "sizes": {size: best[size] for size in SIZES},
                }
            )
    return found


def table(found: Iterable[JsonObject]) -> Iterator[str]:
    yield "| text, token, minutes | default | the rule (seeds) | best of a sweep | rule / sweep |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in found:
        seeds = f"{row['rule']:.3f} ({min(row['seeds']):.3f} … {max(row['seeds']):.3f})"
        default = f"{row['default']:.3f}" if row["default"] else ""
        yield f"| {row['case']} | {default} | {seeds} | {row['best']:.3f} (of {row['trials']}) | {row['ratio']:.3f} |"


def read_rows(path: Path) -> list[JsonObject]:
    rows: list[JsonObject] = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    return rows

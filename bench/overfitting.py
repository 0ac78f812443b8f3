"""Is "it overfits" true of more than the validation part? Small runs of sets of which thousands can be held out.

Each run learns from a part of a set and is measured ten times on a small validation part, and on a large one that
nothing is decided by. Said is what the rule says (tasks/learning_curve.py); true is what the large part says: the
figure at the end beside that at the step which the validation part took for the best.

    setting     thirteen sets that the rule was chosen on
    held-out    four others
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from recur.tasks import make_options, task_of
from recur.tasks.common.verdict import distance_to_best, training_remarks
from recur.training import Event, Trainer, train, trainer
from recur.utils.types import JsonObject

REALLY, NOT = 0.03, 0.005
"""By how much a figure is worse on the large part, where a network overfits, and where it does not."""
LARGE = 4000
SEEDS = {"setting": (1,), "held-out": (5, 6, 7)}
LINES = {"names": "names/train.tsv", "cr": "sentences/cr_train.tsv", "subj": "sentences/subj_train.tsv"}
TEXTS = {
    "setting": {"time machine": "timemachine/timemachine.txt", "tang": "tang/quatrains.txt"},
    "held-out": {"ptb": "ptb/train.txt", "captions": "multi30k/train.en"},
}


class Case(NamedTuple):
    name: str
    task: str
    fields: dict[str, Any]
    parts: tuple[str, str, str]
    """What is learned from, a small part to measure on, and a large one."""


def cases(which: str, seed: int, data: Path, folder: Path) -> Iterator[Case]:
    for name, file in LINES.items() if which == "setting" else ():
        for n, measured, epochs in ((300, 60, 12), (300, 60, 40), (1200, 250, 10)):
            lines = (data / file).read_text().splitlines(keepends=True)
            parts = _dealt(lines, (n, measured, 1200), seed, folder, f"{name} {n}")
            fields = {"hidden_size": 32, "epochs": epochs, "dropout_output": 0.0 if seed % 2 else 0.3}
            yield Case(f"{name}, {n} lines", "classify", fields, _three(parts))
    for name, file in TEXTS[which].items():
        text = (data / file).read_text()
        for n, measured, epochs in ((8000, 1500, 12), (8000, 1500, 40), (30_000, 5000, 5)):
            n = n // 2 if name == "tang" else n
            at = n * (seed % 3)
            behind = text[at + n + measured :] + text[:at]
            pieces = (text[at : at + n], text[at + n : at + n + measured], behind[: 5 * LARGE])
            parts = [_file(folder, f"{name} {n} {seed} {k}.txt", piece) for k, piece in enumerate(pieces)]
            yield Case(f"{name}, {n} characters", "language", {"hidden_size": 64, "epochs": epochs}, _three(parts))
    if which == "setting":
        sentences = [f"{one}\n\n" for one in (data / "chunking/train.conll").read_text().strip().split("\n\n")]
        for n, measured, epochs in ((60, 20, 20), (300, 80, 8)):
            parts = _dealt(sentences, (n, measured, 400), seed, folder, f"chunks {n}")
            yield Case(f"chunks, {n} sentences", "tag", {"hidden_size": 32, "epochs": epochs}, _three(parts))


def _three(parts: list[str]) -> tuple[str, str, str]:
    learned, measured, large = parts
    return learned, measured, large


def _file(folder: Path, name: str, content: str) -> str:
    (folder / name).write_text(content)
    return str(folder / name)


def _dealt(examples: list[str], sizes: Iterable[int], seed: int, folder: Path, name: str) -> list[str]:
    rest = list(examples)
    random.Random(seed).shuffle(rest)
    files = []
    for k, size in enumerate(sizes):
        part, rest = rest[:size], rest[size:]
        files.append(_file(folder, f"{name} {seed} {k}.txt", "".join(part)))
    return files


def judge(case: Case, seed: int) -> JsonObject:
    """Train, measured on both parts, and what the rule says with and without the number of examples."""
    learned, measured, large = case.parts
    fields = {**case.fields, "texts": [learned], "valid": [measured], "threads": 1, "device": "cpu", "seed": seed}
    elsewhere: list[float] = []
    entries: list[JsonObject] = []
    ordinary = vars(trainer)["validated"]

    def both(running: Trainer, begun: float) -> Any:
        found = ordinary(running, begun)
        data = task_of(running.options.changed(valid=(large,))).read(running.run.vocabs)
        running.model.eval()
        with torch.no_grad():
            elsewhere.append(running.task.validate(running.model, data).metrics[running.task.curve])
        running.model.train()
        return found

    def watch(event: Event) -> None:
        if event.kind == "measured":
            entries.append(event.content)

    vars(trainer)["validated"] = both
    try:
        with tempfile.TemporaryDirectory() as folder:
            task = train(make_options(case.task, {**fields, "baseline": False}), Path(folder) / "run", watch).task
    finally:
        vars(trainer)["validated"] = ordinary
    small = [distance_to_best(task.curve, entry[task.curve]) for entry in entries]
    losses = [distance_to_best(task.curve, value) for value in elsewhere]
    then, end = losses[small.index(min(small))], sum(losses[-2:]) / 2
    unknown = [{**entry, "measured": 0} for entry in entries]
    said = {name: _said(task, each) for name, each in (("rule", entries), ("without n", unknown))}
    return {"case": case.name, "seed": seed, "examples": entries[-1]["measured"], "worse": end / then - 1} | said


def _said(task: Any, entries: list[JsonObject]) -> bool:
    return any(remark.kind == "overfits" for remark in training_remarks(task, entries))


def measure(which: str, data: Path) -> Iterator[JsonObject]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS[which]:
            for case in cases(which, seed, data, Path(folder)):
                yield judge(case, seed)


def counted(rows: list[JsonObject]) -> JsonObject:
    """Of runs that overfit on the large part and of those that do not: how many are said to."""
    found: JsonObject = {"runs": len(rows)}
    for name in ("rule", "without n"):
        said, silent = ([row["worse"] for row in rows if row[name] is so] for so in (True, False))
        found[name] = {
            "right": sum(worse > REALLY for worse in said),
            "between": sum(NOT < worse <= REALLY for worse in said),
            "wrong": sum(worse <= NOT for worse in said),
            "missed": sum(worse > REALLY for worse in silent),
        }
    return found

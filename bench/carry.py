"""What a language model of the same texts, without their labels, brings to a task of few labelled examples.

For each set: a language model learns the training texts; of these, 100 drawn by the seed keep their labels and 100 more
are the validation part. The task is trained on them from nothing and with --from, the same number of passes, the
weights that are best on the validation part kept, and both are measured on the set's own validation or test part.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import recur
from recur.text import read_labelled, read_tagged, read_trees


class Example(NamedTuple):
    text: str
    """Without its label, as the language model reads it."""
    written: str
    """As the task's file has it."""
    labels: frozenset[str]


class DataSet(NamedTuple):
    task: str
    read: Callable[[Path, str], list[Example]]
    """A part of it: train, valid or test."""
    language: dict[str, Any]
    """Options of its language model."""
    figure: str
    """What `evaluate` gives that is compared."""


def _labelled(folder: str, prefix: str = "") -> Callable[[Path, str], list[Example]]:
    def read(data: Path, part: str) -> list[Example]:
        found = read_labelled([str(data / folder / f"{prefix}{part}.tsv")])
        return [Example(e.text, f"{e.label}\t{e.text}\n", frozenset([e.label])) for e in found]

    return read


def _sst(data: Path, part: str) -> list[Example]:
    """Roots that are positive or negative; the middle is left out."""
    trees = read_trees([str(data / "sst-trees" / f"{'dev' if part == 'valid' else part}.txt")])
    known = [(" ".join(tree.words), int(tree.labels[-1] or 0)) for tree in trees]
    found = [(text, "negative" if k < 2 else "positive") for text, k in known if k != 2]
    return [Example(text, f"{label}\t{text}\n", frozenset([label])) for text, label in found]


def _chunks(data: Path, part: str) -> list[Example]:
    """It has no validation part: the last tenth of train is."""
    sentences = read_tagged([str(data / "chunking" / f"{'test' if part == 'test' else 'train'}.conll")])
    cut = len(sentences) * 9 // 10
    sentences = {"train": sentences[:cut], "valid": sentences[cut:], "test": sentences}[part]
    return [
        Example(
            " ".join(s.words),
            "".join(f"{word}\t{tag}\n" for word, tag in zip(s.words, s.tags, strict=True)) + "\n",
            frozenset(s.tags),
        )
        for s in sentences
    ]


WORDS: dict[str, Any] = {"token": "word", "epochs": 20}
SETS = {
    "names": DataSet("classify", _labelled("names"), {"token": "char", "epochs": 20}, "accuracy"),
    "subj": DataSet("classify", _labelled("sentences", "subj_"), WORDS, "accuracy"),
    "cr": DataSet("classify", _labelled("sentences", "cr_"), WORDS, "accuracy"),
    "sst": DataSet("classify", _sst, WORDS, "accuracy"),
    "chunking": DataSet("tag", _chunks, WORDS, "f1"),
}


class Files(NamedTuple):
    """What one seed learns from and is measured on."""

    texts: str
    train: str
    valid: str
    test: str


def write_files(folder: Path, data: Path, name: str, part: str, seed: int, labelled: int) -> Files:
    given = SETS[name]
    train, measured = given.read(data, "train"), given.read(data, part)
    order = drawn(train, seed)
    parts = {
        "train.tsv": [train[k].written for k in order[:labelled]],
        "valid.tsv": [train[k].written for k in order[labelled : 2 * labelled]],
        "test.tsv": [example.written for example in measured],
        "texts.txt": [f"{example.text}\n" for example in train],
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, lines in parts.items():
        (folder / file).write_text("".join(lines), encoding="utf-8")
    return Files(*(str(folder / file) for file in ("texts.txt", "train.tsv", "valid.tsv", "test.tsv")))


def drawn(examples: Sequence[Example], seed: int) -> list[int]:
    """In random order, but for those that show a label first: so every label is among the first few."""
    order = [int(k) for k in np.random.default_rng(seed).permutation(len(examples))]
    seen: set[str] = set()
    first = []
    for k in order:
        if examples[k].labels - seen:
            first.append(k)
            seen |= examples[k].labels
    return first + [k for k in order if k not in {*first}]


def language_model(files: Files, name: str, out: Path, **options: Any) -> dict[str, float]:
    begun = time.monotonic()
    made = {**SETS[name].language, "baseline": False, **options}
    model = recur.fit(files.texts, task="language", out=out, **made)
    best = min(entry["valid_perplexity"] for entry in model.run.metrics())
    return {"perplexity": best, "seconds": time.monotonic() - begun}


def trained(files: Files, name: str, **options: Any) -> float:
    """The figure of the set's task."""
    given = SETS[name]
    model = recur.fit(files.train, task=given.task, valid=[files.valid], test=[files.test], baseline=False, **options)
    return float(model.evaluate()[given.figure])


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    common = {"threads": options.threads, "device": options.device}
    for name in options.set or SETS:
        found: dict[str, list[float]] = {"nothing": [], "from": []}
        perplexities = []
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                files = write_files(Path(folder), options.data, name, options.part, seed, options.labelled)
                lm = language_model(files, name, Path(folder) / "lm", seed=seed, **common)
                perplexities.append(lm["perplexity"])
                for kind, more in (("nothing", {}), ("from", {"from_": str(Path(folder) / "lm")})):
                    budget = {"epochs": options.epochs} if options.epochs else {}
                    found[kind].append(trained(files, name, seed=seed, **common, **budget, **more))
        yield {"set": name, "figure": SETS[name].figure, "perplexity": perplexities, **found}


def shown(values: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):5.1f}{spread}"


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(f"{options.labelled} labelled examples, {options.seeds} seeds, measured on the {options.part} part; per cent")
    print(f"{'set':<12}{'from nothing':>16}{'--from':>16}{'gain':>8}   perplexity of the language model")
    found = []
    for row in rows(options):
        found.append(row)
        gain = 100 * (statistics.fmean(row["from"]) - statistics.fmean(row["nothing"]))
        perplexity = statistics.fmean(row["perplexity"])
        columns = f"{shown(row['nothing']):>16}{shown(row['from']):>16}{gain:>+8.1f}   {perplexity:.1f}"
        print(f"{row['set']:<12}{columns}", flush=True)
    return found

"""What a language model of the same texts, without their labels, brings to a task of few labelled examples.

For each set two language models, one of each direction, learn the training texts; of these, 100 drawn by the seed keep
their labels and 100 more are the validation part. The task is trained on them from nothing, from the forward language
model and from both: the same number of passes, the weights that are best on the validation part kept. All are measured
on the set's own validation or test part, beside the best of the plain models that `recur eval` shows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import recur
from recur.data.text import read_labelled, read_tagged, read_trees


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


WORDS: dict[str, Any] = {"token": "word", "epochs": 12}
SETS = {
    "names": DataSet("classify", _labelled("names"), {"token": "char", "epochs": 8}, "accuracy"),
    "subj": DataSet("classify", _labelled("sentences", "subj_"), WORDS, "accuracy"),
    "cr": DataSet("classify", _labelled("sentences", "cr_"), WORDS, "accuracy"),
    "sst": DataSet("classify", _sst, WORDS, "accuracy"),
    "chunking": DataSet("tag", _chunks, WORDS, "f1"),
}
EPOCHS = {"classify": 40.0, "tag": 20.0}
"""Of a task, from nothing and from a language model alike."""


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


def language_model(files: Files, name: str, out: Path, **options: Any) -> float:
    """Train one; its perplexity on what it holds out."""
    model = recur.fit(files.texts, task="language", out=out, **{**SETS[name].language, "baseline": False, **options})
    return min(float(entry["valid_perplexity"]) for entry in model.run.metrics())


class Measured(NamedTuple):
    used: float
    """The figure of the set's task, of what `recur train` gives."""
    network: float
    """Of its network alone, where that is mixed with a plain model."""
    plain: float
    """Of the best plain model beside it."""


def trained(files: Files, name: str, **options: Any) -> Measured:
    given = SETS[name]
    budget = {"epochs": EPOCHS[given.task], "baseline": False}
    model = recur.fit(files.train, task=given.task, valid=[files.valid], test=[files.test], **{**budget, **options})
    found = model.evaluate()
    used, plain = found[given.figure], max(row[given.figure] for row in found["beside"])
    alone: Any = found.get("network_accuracy", used)
    return Measured(float(used), float(alone), float(plain))


WAYS: dict[str, list[str]] = {"nothing": [], "one": ["forward"], "two": ["forward", "backward"]}
"""What a task begins with: which language models."""


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in options.set or SETS:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            draws = [
                write_files(folder / str(seed), options.data, name, options.part, seed, options.labelled)
                for seed in range(options.seeds)
            ]
            perplexities = {
                way: language_model(
                    draws[0], name, folder / way, direction=way, threads=options.threads, device=options.device
                )
                for way in ("forward", "backward")
            }
            found: dict[str, list[Measured]] = {}
            for kind, ways in WAYS.items():
                more = {"from_": [str(folder / way) for way in ways]} if ways else {}
                common = {"threads": options.threads, "device": "cpu", **more}
                found[kind] = [trained(files, name, seed=seed, **common) for seed, files in enumerate(draws)]
        figures = {kind: [measured._asdict() for measured in each] for kind, each in found.items()}
        yield {"set": name, "figure": SETS[name].figure, "perplexity": perplexities, **figures}


def shown(measured: Sequence[dict[str, float]], name: str) -> str:
    values = [100 * one[name] for one in measured]
    spread = f" ± {statistics.stdev(values):3.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    print(
        f"{options.labelled} labelled examples, mean ± deviation of {options.seeds} draws, each with its seed, on the "
        f"{options.part} part; per cent, of the network alone in brackets"
    )
    print(f"{'set':<10}{'plain':>12}" + "".join(f"{kind:>26}" for kind in ("from nothing", "--from", "--from --from")))
    found = []
    for row in rows(options):
        found.append(row)
        cells = [f"{shown(row[kind], 'used')} ({shown(row[kind], 'network')})" for kind in WAYS]
        line = f"{row['set']:<10}{shown(row['nothing'], 'plain'):>12}" + "".join(f"{cell:>26}" for cell in cells)
        print(
            line + f"   perplexity {row['perplexity']['forward']:.1f}, {row['perplexity']['backward']:.1f}", flush=True
        )
    return found

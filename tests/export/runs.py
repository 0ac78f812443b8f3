"""Tiny runs of every task, trained for a few steps: enough for weights that are no longer drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import recur
from recur.tasks.common.predictor import Predictor

SMALL = {"steps": 2, "hidden_size": 6, "threads": 1, "seed": 1, "device": "cpu"}

LINE = "the cat sat on the mat and the dog ran to the old red barn"
TEXTS = [f"{word} thing number {k} is {mood}" for k in range(20) for word, mood in (("good", "fine"), ("bad", "poor"))]
LABELS = ["up", "down"] * 20
WORDS = [["Anna", "lives", "in", "Rome", "now"], ["Bob", "saw", "Paris"]] * 12
TAGS = [["B-P", "O", "O", "B-L", "O"], ["B-P", "O", "B-L"]] * 12
PAIRS = [("".join(row), "".join(reversed(row))) for row in ("abc", "bca", "cab", "abca", "bb", "ca")] * 6


def language(folder: Path, **options: Any) -> Predictor[Any]:
    text = folder / "text.txt"
    text.write_text("\n".join([LINE] * 30))
    return recur.fit(text, task="language", window=8, batch_size=2, **SMALL | options)


def classify(folder: Path, **options: Any) -> Predictor[Any]:
    return recur.fit(TEXTS, LABELS, task="classify", **SMALL, **options)


def tag(folder: Path, **options: Any) -> Predictor[Any]:
    return recur.fit(WORDS, TAGS, task="tag", blend=False, **SMALL, **options)


def seq2seq(folder: Path, **options: Any) -> Predictor[Any]:
    given = {"embedding_size": 5, "max_length": 8} | options
    return recur.fit(*zip(*PAIRS, strict=True), task="seq2seq", **SMALL, **given)  # type: ignore[misc]


def conditional(folder: Path, **options: Any) -> Predictor[Any]:
    given = {"embedding_size": 5, "max_length": 8} | options
    return recur.fit([target for _, target in PAIRS], ["x", "y"] * 18, task="conditional", **SMALL, **given)


def forecast(folder: Path, **options: Any) -> Predictor[Any]:
    table = folder / "table.csv"
    rows = [f"{20 + 5 * math.sin(k * math.pi / 3) + 0.1 * k + (k * k) % 7 / 5:.4f}" for k in range(120)]
    table.write_text("value\n" + "\n".join(rows) + "\n")
    return recur.fit(table, task="forecast", **{"horizon": 4, "season": 6} | options, **SMALL)


def signals(n: int = 40) -> list[np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    return [draw.normal(k % 2, 1.0, (6 + k % 3, 3)).astype(np.float32) for k in range(n)]


def numbers(folder: Path, task: str = "classify", **options: Any) -> Predictor[Any]:
    given = signals()
    if task == "classify":
        return recur.fit(given, LABELS, task="classify", **SMALL, **options)
    labels = [["a" if k % 2 else "b"] * (2 if options.get("loss") == "ctc" else len(x)) for k, x in enumerate(given)]
    return recur.fit(given, labels, task="tag", **SMALL, **options)


EVERY: dict[str, Callable[[Path], Predictor[Any]]] = {
    "language": lambda folder: language(folder, num_layers=2, cell="lstm"),
    "language of words": lambda folder: language(
        folder, token="word", cell="slstm", tie_weights=True, embedding_size=6
    ),
    "language of subwords": lambda folder: language(folder, token="subword", pieces=300),
    "language backward": lambda folder: language(folder, direction="backward"),
    "classify": classify,
    "classify words": lambda folder: classify(folder, token="word", lower=True, direction="forward"),
    "classify numbers": lambda folder: numbers(folder, stack=2),
    "tag": tag,
    "tag subwords": lambda folder: tag(folder, token="subword", pieces=290, crf=False, direction="forward"),
    "tag numbers": lambda folder: numbers(folder, "tag"),
    "tag by CTC": lambda folder: numbers(folder, "tag", loss="ctc"),
    "seq2seq": lambda folder: seq2seq(folder, copy=True, input_feeding=True),
    "seq2seq by length": lambda folder: seq2seq(folder, attention="none", stop="length"),
    "conditional": conditional,
    "forecast": forecast,
    "forecast of logarithms": lambda folder: forecast(folder, lags=12, segment=3, base="none", transform="log"),
    "adding": lambda folder: recur.fit(task="adding", length=5, **SMALL),
    "copy": lambda folder: recur.fit(task="copy", length=5, **SMALL),
}
"""Every task, in the forms that a driver knows apart."""

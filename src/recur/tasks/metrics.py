"""What figures are called, which way is better, and how a person reads them.

In files and in Python a share is a number 0 … 1; on the screen it is in per cent, with the sign. BLEU and chrF go from
0 to 100, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from recur.i18n import Message


class Metric(NamedTuple):
    words: str
    share: bool = False
    """Whether it is a share, shown in per cent."""
    higher: bool = False
    """Whether more of it is better."""
    digits: int = 3
    """Behind the point, of what is no share."""


METRICS: Mapping[str, Metric] = {
    # likelihoods
    "loss": Metric("loss in nats"),
    "free_loss": Metric("loss without a teacher"),
    "gap": Metric("gap without a teacher"),
    "perplexity": Metric("perplexity"),
    "bits_per_character": Metric("bits/character"),
    # classes and tags
    "error": Metric("error", share=True),
    "accuracy": Metric("accuracy", share=True, higher=True),
    "network_accuracy": Metric("accuracy of the network alone", share=True, higher=True),
    "node_accuracy": Metric("accuracy at all nodes", share=True, higher=True),
    "binary_accuracy": Metric("accuracy of the two halves", share=True, higher=True),
    "macro_f1": Metric("macro F1", share=True, higher=True),
    "ece": Metric("calibration error", share=True),
    "unseen": Metric("words with tags never seen in training", share=True),
    "precision": Metric("precision", share=True, higher=True),
    "recall": Metric("recall", share=True, higher=True),
    "f1": Metric("span F1", share=True, higher=True),
    # sequences
    "sequence_error_rate": Metric("sequences wrong", share=True),
    "symbol_error_rate": Metric("symbol error rate", share=True),
    "word_error_rate": Metric("word error rate", share=True),
    "bleu": Metric("BLEU", higher=True, digits=1),
    "chrf": Metric("chrF", higher=True, digits=1),
    "empty": Metric("outputs empty", share=True),
    "cut": Metric("outputs cut", share=True),
    # numbers
    "mase": Metric("MASE"),
    "smape": Metric("sMAPE", share=True),
    "owa": Metric("OWA"),
    "mse": Metric("mean squared error"),
    "mae": Metric("mean absolute error"),
    "rmse": Metric("root mean squared error"),
    "unexplained": Metric("variance unexplained", share=True),
    "r2": Metric("R²", higher=True),
    "pinball": Metric("pinball loss"),
    "pinball_scaled": Metric("pinball loss, scaled"),
    "crps": Metric("CRPS"),
    "wql": Metric("weighted quantile loss"),
    "coverage": Metric("coverage", share=True, higher=True),
    "nominal_coverage": Metric("nominal coverage", share=True, higher=True),
}


def metric_of(name: str) -> Metric:
    """Of a figure's name, with or without the part that it was measured on."""
    plain = name.removeprefix("valid_").removeprefix("train_").removeprefix("test_")
    return METRICS.get(plain, Metric(plain.replace("_", " ")))


def show(name: str, value: float) -> str:
    """A figure as a person reads it: `81.2 %`, `3.234`."""
    metric = metric_of(name)
    if name.endswith("per_second"):
        return f"{value:,.0f}"
    return f"{100 * value:.4g} %" if metric.share and abs(value) < 0.001 and value else _shown(metric, value)


def _shown(metric: Metric, value: float) -> str:
    return f"{100 * value:.1f} %" if metric.share else f"{value:,.{metric.digits}f}"


def words(name: str) -> str:
    """`valid_macro_f1` → `valid macro F1`."""
    part, _, rest = name.partition("_")
    metric = metric_of(name).words
    if rest and part == "valid":
        return Message("valid {metric}", metric=metric)
    if rest and part == "train":
        return Message("train {metric}", metric=metric)
    if rest and part == "test":
        return Message("test {metric}", metric=metric)
    return metric


def better(name: str, a: float, b: float) -> bool:
    """Whether a is better than b."""
    return a > b if metric_of(name).higher else a < b


def best_of(name: str, values: list[float]) -> float:
    return max(values) if metric_of(name).higher else min(values)

"""Metrics: their labels, direction and format; edit distance, BLEU and chrF.

A share is a number 0 … 1 in files and in Python, and a percentage on the screen. BLEU and chrF are 0 … 100, as
sacrebleu has them: for whole texts, one reference each.

BLEU = exp(mean of log p_n, n = 1 … 4) · min(1, exp(1 − r / c)) (Papineni et al. 2002; Post 2018), where p_n is the
clipped precision of word n-grams, r and c the numbers of words of references and translations, tokenised as mteval-v13a
does. An order without a match counts as 1/2, 1/4, … of one (sacrebleu's `exp` smoothing).

chrF = (1 + β²) P R / (β² P + R), β = 2 (Popović 2015), where P and R are the mean precision and recall of character
n-grams of orders 1 … 6, without spaces.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


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
    "free_loss": Metric("free-running loss"),
    "gap": Metric("free-running gap"),
    "perplexity": Metric("perplexity"),
    "bits_per_character": Metric("bits/character"),
    # classes and tags
    "error": Metric("error", share=True),
    "accuracy": Metric("accuracy", share=True, higher=True),
    "network_share": Metric("share of the network in the blend", share=True, higher=True),
    "network_accuracy": Metric("accuracy of the network alone", share=True, higher=True),
    "node_accuracy": Metric("accuracy at all nodes", share=True, higher=True),
    "binary_accuracy": Metric("accuracy of the two halves", share=True, higher=True),
    "macro_f1": Metric("macro F1", share=True, higher=True),
    "micro_f1": Metric("micro F1", share=True, higher=True),
    "exact": Metric("exactly the right labels", share=True, higher=True),
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
    "pinball": Metric("pinball loss"),
    "pinball_scaled": Metric("pinball loss, scaled"),
    "crps": Metric("CRPS"),
    "wql": Metric("weighted quantile loss"),
    "coverage": Metric("coverage", share=True, higher=True),
    "nominal_coverage": Metric("nominal coverage", share=True, higher=True),
}


def metric_of(name: str) -> Metric:
    """Return the metric of a name, with or without the prefix of the set that it was evaluated on."""
    plain = name.removeprefix("valid_").removeprefix("train_").removeprefix("test_")
    return METRICS.get(plain, Metric(plain.replace("_", " ")))


def format_metric(name: str, value: float) -> str:
    """Format a value for the screen: `81.2 %`, `3.234`."""
    metric = metric_of(name)
    if name.endswith("per_second"):
        return f"{value:,.0f}"
    return f"{100 * value:.4g} %" if metric.share and abs(value) < 0.001 and value else _format_value(metric, value)


def _format_value(metric: Metric, value: float) -> str:
    return f"{100 * value:.1f} %" if metric.share else f"{value:,.{metric.digits}f}"


def metric_label(name: str) -> str:
    """Return the label of a metric: `valid_macro_f1` → `valid macro F1`."""
    part, found, _ = name.partition("_")
    return f"{part} {metric_of(name).words}" if found and part in ("valid", "train", "test") else metric_of(name).words


def is_better(name: str, a: float, b: float) -> bool:
    """Return True if a is better than b."""
    return a > b if metric_of(name).higher else a < b


def best_value(name: str, values: list[float]) -> float:
    return max(values) if metric_of(name).higher else min(values)


Sequences = Sequence[Sequence[str]]


def edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the least number of insertions, deletions and substitutions from a to b (Levenshtein 1966)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def error_rates(targets: Sequences, predictions: Sequences) -> dict[str, float]:
    """Return the share of wrong sequences, and the edit distance per target symbol."""
    wrong = sum(list(a) != list(b) for a, b in zip(targets, predictions, strict=True))
    return {
        "sequence_error_rate": wrong / max(len(targets), 1),
        "symbol_error_rate": edits_per_symbol(targets, predictions),
    }


def edits_per_symbol(targets: Sequences, predictions: Sequences) -> float:
    """Return the edit distance per target symbol; for sequences of words, the word error rate."""
    edits = sum(edit_distance(b, a) for a, b in zip(targets, predictions, strict=True))
    return edits / max(sum(map(len, targets)), 1)


def perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf


WORDS, CHARACTERS = 4, 6
"""The longest n-grams counted."""

BETA = 2
"""Weight of recall relative to precision."""

ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))

WORD_BOUNDARIES = (
    (re.compile(r"([!-&(-+/:-@\[-`{-~ ])"), r" \1 "),  # signs, but for ' , - and .
    (re.compile(r"([^0-9])([.,])"), r"\1 \2 "),  # . and , unless digits stand on both sides
    (re.compile(r"([.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
)


def mteval_words(line: str) -> list[str]:
    """Tokenise a line as mteval-v13a.pl, the script of the WMT evaluations."""
    line = line.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in ENTITIES:
        line = line.replace(entity, sign)
    line = f" {line} "
    for pattern, apart in WORD_BOUNDARIES:
        line = pattern.sub(apart, line)
    return line.split()


def bleu(references: Sequence[str], translations: Sequence[str]) -> float:
    matched, made = [0] * WORDS, [0] * WORDS
    r = c = 0
    for reference, translation in zip(references, translations, strict=True):
        wanted, found = mteval_words(reference), mteval_words(translation)
        r, c = r + len(wanted), c + len(found)
        for n in range(WORDS):
            there = Counter(zip(*(found[k:] for k in range(n + 1)), strict=False))
            matched[n] += (there & Counter(zip(*(wanted[k:] for k in range(n + 1)), strict=False))).total()
            made[n] += there.total()
    if not matched[0] or not made[-1]:
        return 0.0
    missed, logs = 1.0, 0.0
    for m, n in zip(matched, made, strict=True):
        missed = missed if m else 2 * missed
        logs += math.log((m or 1 / missed) / n)
    return 100 * math.exp(logs / WORDS + min(0.0, 1 - r / c))


def chrf(references: Sequence[str], translations: Sequence[str]) -> float:
    matched, made, there = ([0] * CHARACTERS for _ in range(3))
    for reference, translation in zip(references, translations, strict=True):
        a, b = "".join(reference.split()), "".join(translation.split())
        for n in range(1, CHARACTERS + 1):
            in_a, in_b = (Counter(text[k : k + n] for k in range(len(text) - n + 1)) for text in (a, b))
            matched[n - 1] += (in_a & in_b).total()
            made[n - 1] += in_b.total() if in_a else 0  # of a reference that has none, as sacrebleu counts
            there[n - 1] += in_a.total()
    orders = [n for n in range(CHARACTERS) if made[n] and there[n]]
    if not any(matched[n] for n in orders):
        return 0.0
    precision = sum(matched[n] / made[n] for n in orders) / len(orders)
    recall = sum(matched[n] / there[n] for n in orders) / len(orders)
    return 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)

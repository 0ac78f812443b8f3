"""Sequences of numbers: which of its features a network listens to, ‖∂L_T/∂x‖ of each over all steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy, embedding

from recur.data.batching import in_order
from recur.data.series.evaluation import PredictionIntervals
from recur.data.text import Pair
from recur.diagnostics.finding import Finding, Level, Measurement
from recur.diagnostics.gates import sentence
from recur.diagnostics.subject import Subject
from recur.i18n import Message
from recur.models.classifiers import NO_LABEL
from recur.tasks.classify.data import log_probabilities
from recur.tasks.classify.predictor import TextClassifier
from recur.tasks.classify.signals import SignalClassifierPredictor, targets_of
from recur.tasks.classify.signals import probabilities as signal_probabilities
from recur.tasks.common.classification import class_names, confusion
from recur.tasks.common.predictor import Predictor
from recur.tasks.common.signals import SignalTask
from recur.tasks.forecast import evaluation
from recur.tasks.forecast.predictor import SeriesForecaster
from recur.tasks.grid.predictor import ImageClassifier
from recur.tasks.grid.task import probabilities as image_probabilities
from recur.tasks.seq2seq.predictor import Transducer
from recur.tasks.tag.predictor import TextTagger
from recur.tasks.tag.signals import SignalTagPredictor, TranscriberPredictor, label_steps
from recur.tasks.tag.task import tag, tag_confusion
from recur.tasks.tree.predictor import TreeClassifier
from recur.tasks.tree.task import EncodedTree, TreeBatch

DEAF = 0.01
"""Of the most heard feature: one that is heard less is not heard."""


def inputs(subject: Subject) -> Measurement:
    x, loss = subject.last_loss(16, 200)
    x = x.detach().clone().requires_grad_()
    (grad,) = torch.autograd.grad(loss(subject.model(x)), x)
    heard = grad.double().square().sum(dim=(0, 1)).sqrt()
    most = float(heard.max()) or 1.0
    share = (heard / most).tolist()
    deaf = [k for k, value in enumerate(share) if value < DEAF]
    numbers = {"features": share}
    if deaf:
        verdict = Message(
            "{count} of {all} input features are almost unused, the first of them feature {first}",
            count=len(deaf), all=len(share), first=deaf[0] + 1,
        )  # fmt: skip
        return Measurement(Finding("inputs", Level.OK, len(deaf), 0, verdict), numbers)
    verdict = Message(
        "all {all} input features are used, feature {most} most", all=len(share), most=int(heard.argmax()) + 1
    )  # fmt: skip
    return Measurement(Finding("inputs", Level.OK, 0, 0, verdict), numbers)


PAIRS = 64
"""Of the validation part."""
BLURRED = 0.5
"""Places looked at over the source's length, from which on attention chooses nothing."""
LEFT_OUT = 0.3
"""The share of places without half a look, from which on parts of the source are left out."""
LOOK = 0.5
MAX_SHOWN_SOURCES = 40
"""Symbols of the map that is drawn, at most."""


def attention(predictor: Transducer) -> Measurement:
    if predictor.model.decoder.attention is None:
        verdict = Message("the model has no attention: it encodes the source as one state")
        return Measurement(Finding("attention", Level.OK, 0.0, BLURRED, verdict))
    pairs = predictor.task.read(predictor.run.vocabs).valid_pairs[:PAIRS]
    found = list(predictor.predictions([pair.source for pair in pairs], attention=True))
    wrote = [(row, pair) for row, pair in zip(found, pairs, strict=True) if row["attention"]["weights"]]
    if not wrote:
        return Measurement(
            Finding("attention", Level.UNKNOWN, 0.0, BLURRED, Message("unknown: the model generated nothing"))
        )
    places, covered, right = [], [], []
    for row, pair in wrote:
        weights = np.array(row["attention"]["weights"])
        entropy = -(weights * np.log(np.maximum(weights, 1e-12))).sum(-1)
        places.append(float(np.exp(entropy).mean() / weights.shape[1]))
        covered.append(float((weights.sum(0) >= LOOK).mean()))
        right.append(row["output"] == pair.target)
    numbers: dict[str, Any] = {"places": places, "coverage": covered, "right": right, "example": _clearest(wrote)}
    blurred, left_out = float(np.mean(places)), 1 - float(np.mean(covered))
    detail = Message(
        "a symbol attends to {blurred:.0%} of the source positions, and {covered:.0%} of them receive a total weight "
        "of at least ½",
        blurred=blurred, covered=1 - left_out,
    )  # fmt: skip
    if blurred > BLURRED:
        verdict = Message("attention is diffuse: {detail}", detail=detail)
        return Measurement(Finding("attention", Level.WARNING, blurred, BLURRED, verdict), numbers)
    if left_out > LEFT_OUT:
        verdict = Message("attention does not cover the source: {detail}", detail=detail)
        return Measurement(Finding("attention", Level.WARNING, left_out, LEFT_OUT, verdict), numbers)
    verdict = Message("attention is sharp and covers the source: {detail}", detail=detail)
    return Measurement(Finding("attention", Level.OK, blurred, BLURRED, verdict), numbers)


def _clearest(wrote: Sequence[tuple[Mapping[str, Any], Pair]]) -> dict[str, Any]:
    """A map of a size that can be drawn."""
    looked = [row["attention"] for row, _ in wrote]
    fitting = [
        one for one in looked if len(one["source"]) <= MAX_SHOWN_SOURCES and len(one["target"]) <= MAX_SHOWN_SOURCES
    ] or looked[:1]
    return max(fitting, key=lambda one: len(one["source"]))


TREES = 64
MIN_NODES = 20
"""Leaves of a depth, before their mean is one."""
VANISHED = 0.01


def leaf_depths(tree: EncodedTree) -> list[int]:
    """Return the depth of each leaf below the root; nodes are numbered so that children come before their parents."""
    depth = [0] * len(tree.children)
    for node in range(len(tree.children) - 1, -1, -1):
        for child in tree.children[node]:
            depth[child] = depth[node] + 1
    return [d for d, below in zip(depth, tree.children, strict=True) if not below]


def heights(tree: EncodedTree) -> list[int]:
    """Return the height of each node above its lowest leaf."""
    found: list[int] = []
    for below in tree.children:
        found.append(1 + max(found[child] for child in below) if below else 0)
    return found


def tree_depth(predictor: TreeClassifier) -> Measurement:
    """‖∂L_root/∂x_leaf‖ by the depth of the leaf, and the accuracy at nodes by their height."""
    model, device = predictor.model, predictor.device
    trees = predictor.task.read(predictor.run.vocabs).valid[:TREES]
    by_depth: dict[int, list[float]] = defaultdict(list)
    by_height: dict[int, list[bool]] = defaultdict(list)
    for tree in trees:
        batch = TreeBatch.of([tree]).to(device)
        x = embedding(batch.ids, model.embedding).detach().requires_grad_()
        logits = model.output(model.recursive(x, batch.forest)[0])
        loss = cross_entropy(logits[batch.forest.roots], batch.classes[batch.forest.roots])
        (grad,) = torch.autograd.grad(loss, x)
        for depth, norm in zip(leaf_depths(tree), torch.linalg.vector_norm(grad, dim=-1).tolist(), strict=True):
            by_depth[depth].append(norm)
        for height, target, predicted in zip(heights(tree), tree.classes, logits.argmax(-1).tolist(), strict=True):
            if target != NO_LABEL:
                by_height[height].append(target == predicted)
    norms = {d: float(np.sqrt(np.mean(np.square(v)))) for d, v in sorted(by_depth.items()) if len(v) >= MIN_NODES}
    right = {h: float(np.mean(v)) for h, v in sorted(by_height.items()) if len(v) >= MIN_NODES}
    numbers: dict[str, Any] = {
        "depths": list(norms), "norms": list(norms.values()), "heights": list(right), "right": list(right.values()),
    }  # fmt: skip
    if len(norms) < 2:
        few = Message("unknown: the trees are too shallow or too few to compare depths")
        return Measurement(Finding("tree depth", Level.UNKNOWN, 0.0, VANISHED, few), numbers)
    first, last = min(norms), max(norms)
    left = norms[last] / norms[first] if norms[first] else 0.0
    factor = left ** (1 / (last - first)) if left > 0 else 0.0
    detail = Message(
        "from leaves {first} to leaves {last} levels below the root the gradient changes by × {left:.2g}, × "
        "{factor:.2g} per level",
        first=first, last=last, left=left, factor=factor,
    )  # fmt: skip
    if left < VANISHED:
        verdict = Message("gradients vanish towards deep leaves: {detail}", detail=detail)
        return Measurement(Finding("tree depth", Level.WARNING, left, VANISHED, verdict), numbers)
    verdict = Message("gradients reach deep leaves: {detail}", detail=detail)
    return Measurement(Finding("tree depth", Level.OK, left, VANISHED, verdict), numbers)


BIASED = 0.3
"""Deviations that the mean of residuals may lie from 0."""
REMEMBERS = 0.4
"""|ρ| from which on something is left in residuals that could be forecast; at least 3/√n."""
OFF = 0.15
"""By which coverage may differ from what bands say."""
MIN_RESIDUALS = 12
DRAWN = 300


def residuals_and_bands(predictor: SeriesForecaster) -> list[Measurement]:
    task, model = predictor.task, predictor.model
    data = task.read(predictor.run.vocabs)
    part = task.part(data.panel, data.splits, "valid")
    which, ends = evaluation.pairs(data.rows, part.origins())
    scaled = task.forecast(model, data.rows, which, ends)
    came = evaluation.targets_after(data.rows, which, ends, part.horizon).astype(float)
    quantiles = task.options.quantiles
    middle = quantiles.index(0.5)
    found = [_residuals(came, scaled[..., middle].astype(float), which, task.season)]
    if len(quantiles) > 1:
        found.append(bands_of(came, scaled.astype(float), quantiles, task.options.bands != "model"))
    return found


def _residuals(came: np.ndarray, median: np.ndarray, which: np.ndarray, season: int) -> Measurement:
    errors = came - median  # (N, k, V)
    one = errors[:, 0, 0]
    by_step = np.sqrt(np.nanmean(np.square(errors), axis=(0, 2)))
    ahead = [one[which == row] for row in np.unique(which)]
    series = [part[~np.isnan(part)] for part in ahead]
    series = [part for part in series if len(part) >= MIN_RESIDUALS]
    if not series:
        few = Message("unknown: fewer than {count} consecutive forecasts are available", count=MIN_RESIDUALS)
        return Measurement(Finding("residuals", Level.UNKNOWN, 0.0, REMEMBERS, few), {"by_step": by_step.tolist()})
    whole = np.concatenate(series)
    deviation = float(whole.std()) or 1.0
    bias = float(whole.mean()) / deviation
    lags = [1, season] if season > 1 and min(map(len, series)) > 2 * season else [1]
    correlations = {lag: float(np.mean([correlation(part, lag) for part in series])) for lag in lags}
    lag = max(correlations, key=lambda k: abs(correlations[k]))
    value, limit = abs(correlations[lag]), max(REMEMBERS, 3 / np.sqrt(len(whole)))
    numbers: dict[str, Any] = {
        "residuals": series[0][:DRAWN].tolist(), "by_step": by_step.tolist(), "bias": bias,
        "correlations": {str(k): v for k, v in correlations.items()},
    }  # fmt: skip
    detail = Message(
        "bias {bias:+.2f} standard deviations, autocorrelation {rho:+.2f} at lag {lag}",
        bias=bias, rho=correlations[lag], lag=lag,
    )  # fmt: skip
    if abs(bias) > BIASED:
        verdict = Message("forecasts are biased: {detail}", detail=detail)
        return Measurement(Finding("residuals", Level.WARNING, abs(bias), BIASED, verdict), numbers)
    if value > limit:
        verdict = Message("the residuals are autocorrelated, so a better forecast is possible: {detail}", detail=detail)
        return Measurement(Finding("residuals", Level.WARNING, value, limit, verdict), numbers)
    verdict = Message("the residuals look like white noise: {detail}", detail=detail)
    return Measurement(Finding("residuals", Level.OK, value, limit, verdict), numbers)


def correlation(series: np.ndarray, lag: int) -> float:
    a, b = series[lag:] - series.mean(), series[:-lag] - series.mean()
    scale = float(np.square(series - series.mean()).sum())
    return float((a * b).sum() / scale) if scale else 0.0


def bands_of(came: np.ndarray, scaled: np.ndarray, quantiles: tuple[float, ...], move: bool) -> Measurement:
    half = len(came) // 2
    if half < MIN_RESIDUALS:
        few = Message("unknown: {count} forecasts are too few to measure coverage", count=len(came))
        return Measurement(Finding("bands", Level.UNKNOWN, 0.0, OFF, few))
    made = (
        PredictionIntervals.fit(came[:half], scaled[:half], quantiles).apply(scaled[half:]) if move else scaled[half:]
    )
    there = ~np.isnan(came[half:])
    below = [float((came[half:] <= made[..., q])[there].mean()) for q in range(len(quantiles))]
    nominal, covered = quantiles[-1] - quantiles[0], below[-1] - below[0]
    numbers = {"quantiles": list(quantiles), "below": below, "nominal": nominal, "covered": covered}
    detail = Message("prediction intervals of {nominal:.0%} cover {covered:.0%}", nominal=nominal, covered=covered)
    if abs(nominal - covered) > OFF:
        verdict = Message(
            "the prediction intervals are {way}: {detail}",
            way=Message("too narrow") if covered < nominal else Message("too wide"),
            detail=detail,
        )
        return Measurement(Finding("bands", Level.WARNING, abs(nominal - covered), OFF, verdict), numbers)
    return Measurement(
        Finding(
            "bands",
            Level.OK,
            abs(nominal - covered),
            OFF,
            Message("the prediction intervals are calibrated: {detail}", detail=detail),
        ),
        numbers,
    )


MOST = 2000
"""Examples that are looked at."""
UNSURE = 0.1
"""Calibration error from which on probabilities are not to be trusted."""
HARDER = 0.1
"""How much more of the longest quarter may be wrong than of the shortest."""
BINS = 10
MAX_SHOWN_CLASSES = 12
"""Classes in a figure, at most: the most frequent."""


class Judged(NamedTuple):
    """Predictions of a model on examples."""

    classes: Sequence[str]
    targets: list[int]
    predictions: list[int]
    sure: list[float]
    """The probability of what it says; empty where it gives none."""
    sizes: list[int]
    """How long each is, in steps."""


def judge(predictor: Predictor[Any]) -> Judged | None:
    """On the validation part; None for a model that tells no classes apart."""
    found = JUDGES.get(type(predictor))
    return None if found is None else found(predictor, predictor.task.read(predictor.run.vocabs))


def _texts(predictor: TextClassifier, data: Any) -> Judged:
    examples = data.valid[:MOST]
    p = log_probabilities(predictor.models, examples).exp()
    targets = [example.label for example in examples]
    return Judged(predictor.classes, targets, *_best(p), [example.size for example in examples])


def _tags(predictor: TextTagger, data: Any) -> Judged:
    sentences = data.valid_sentences[: MOST // 4]
    found = tag(predictor.tagger, data.valid[: len(sentences)], predictor.run.vocabs).tags
    target = [sentence.tags for sentence in sentences]
    names, _ = tag_confusion(target, found, predictor.tags)
    number = {name: k for k, name in enumerate(names)}
    sizes = [len(tags) for tags in target for _ in tags]
    targets, predictions = ([number[name] for name in chain.from_iterable(rows)] for rows in (target, found))
    return Judged(names, targets, predictions, [], sizes)


def _signals(predictor: SignalClassifierPredictor, data: Any) -> Judged:
    examples = data.valid[:MOST]
    targets, _ = targets_of(examples, len(predictor.classes))
    names = [*predictor.classes, *["not learned from"] * (len(predictor.classes) in targets)]
    best = _best(signal_probabilities(predictor.models, examples))
    return Judged(names, targets, *best, [example.size for example in examples])


def _steps(predictor: SignalTagPredictor, data: Any) -> Judged:
    examples = data.valid[: MOST // 4]
    found = label_steps(predictor.model, examples).labels
    rows = [
        (k, guess, example.size)
        for example, guesses in zip(examples, found, strict=True)
        for k, guess in zip(example.labels, guesses, strict=False)
        if k != NO_LABEL
    ]
    targets, predictions, sizes = ([row[k] for row in rows] for k in range(3))
    return Judged(predictor.labels, targets, predictions, [], sizes)


@torch.no_grad()
def _trees(predictor: TreeClassifier, data: Any) -> Judged:
    trees, model, found = data.valid[:MOST], predictor.model, []
    for batch in in_order(trees, 128, TreeBatch.of):
        batch = batch.to(predictor.device)
        found.append(model.temperature(model(batch.ids, batch.forest)[batch.forest.roots].log_softmax(-1)).exp().cpu())
    targets = [tree.classes[-1] for tree in trees]
    return Judged(predictor.classes, targets, *_best(torch.cat(found)), [len(tree.ids) for tree in trees])


def _images(predictor: ImageClassifier, data: Any) -> Judged:
    examples = data.valid[:MOST]
    best = _best(image_probabilities(predictor.models, examples, predictor.task.options))
    return Judged(class_names(predictor.run.vocabs["labels"]), [e.label for e in examples], *best, [])


def _best(p: torch.Tensor) -> tuple[list[int], list[float]]:
    sure, predictions = p.max(-1)
    return predictions.tolist(), sure.tolist()


JUDGES: dict[type, Any] = {
    TextClassifier: _texts,
    TextTagger: _tags,
    SignalClassifierPredictor: _signals,
    SignalTagPredictor: _steps,
    TreeClassifier: _trees,
    ImageClassifier: _images,
}
"""By the model. Label sequences without alignment have no class a step: see TranscriberPredictor."""
assert TranscriberPredictor not in JUDGES


def classes(judged: Judged) -> Measurement:
    """Find the class missed most often, the class it is confused with, and classes never predicted."""
    K = len(judged.classes)
    table = confusion(judged.targets, judged.predictions, K)
    occurring = table.sum(1)
    recall = np.divide(np.diag(table), occurring, out=np.ones(K), where=occurring > 0)
    wrong = table - np.diag(np.diag(table))
    numbers: dict[str, Any] = {"classes": list(judged.classes), "confusion": table.tolist(), "recall": recall.tolist()}
    ece = 0.0
    if judged.sure:
        numbers["calibration"], ece = calibration(judged)
        numbers["ece"] = ece
    never = [judged.classes[k] for k in range(K) if occurring[k] and not table[:, k].any()]
    if never:
        verdict = Message(
            "{count} of {classes} classes are never predicted: {names}",
            names=", ".join(map(str, never[:5])), count=len(never), classes=int((occurring > 0).sum()),
        )  # fmt: skip
        return Measurement(Finding("classes", Level.WARNING, len(never), 0, verdict), numbers)
    if not wrong.any():
        return Measurement(
            Finding("classes", Level.OK, 0.0, 0.0, Message("all validation examples are correct")), numbers
        )
    i, j = np.unravel_index(int(wrong.argmax()), wrong.shape)
    mistake = Message(
        "most frequent error: {right} predicted as {wrong}, {count:,} times; lowest recall: {worst}, {recall:.0%}",
        right=judged.classes[int(i)], wrong=judged.classes[int(j)], count=int(wrong[i, j]),
        worst=judged.classes[int(recall.argmin())], recall=float(recall.min()),
    )  # fmt: skip
    if ece > UNSURE:
        verdict = Message("{mistake}; expected calibration error {ece:.0%}", mistake=mistake, ece=ece)
        return Measurement(Finding("classes", Level.WARNING, ece, UNSURE, verdict), numbers)
    return Measurement(Finding("classes", Level.OK, ece, UNSURE, mistake), numbers)


def calibration(judged: Judged) -> tuple[list[dict[str, float]], float]:
    """Compare confidence with accuracy in ten bins of confidence, and return the mean difference."""
    sure, right = np.array(judged.sure), np.array(judged.targets) == np.array(judged.predictions)
    bins = np.minimum((sure * BINS).astype(int), BINS - 1)
    rows, total = [], 0.0
    for k in range(BINS):
        mine = bins == k
        if mine.any():
            row = {"sure": float(sure[mine].mean()), "right": float(right[mine].mean()), "share": float(mine.mean())}
            rows.append(row)
            total += row["share"] * abs(row["sure"] - row["right"])
    return rows, total


def length(judged: Judged) -> Measurement:
    """Whether long inputs are harder: a memory that is too short shows here first."""
    sizes, right = np.array(judged.sizes), np.array(judged.targets) == np.array(judged.predictions)
    edges = np.unique(np.quantile(sizes, [0, 0.25, 0.5, 0.75, 1.0]))
    if len(edges) < 3 or len(sizes) < 40:
        few = Message("unknown: {count} examples of similar length are too few to compare", count=len(sizes))
        return Measurement(Finding("length", Level.UNKNOWN, 0.0, HARDER, few))
    group = np.clip(np.searchsorted(edges, sizes, side="right") - 1, 0, len(edges) - 2)
    rows = [
        {"from": int(edges[k]), "to": int(edges[k + 1]), "right": float(right[group == k].mean())}
        for k in range(len(edges) - 1)
        if (group == k).any()
    ]
    drop = rows[0]["right"] - rows[-1]["right"]
    detail = Message(
        "accuracy {short:.0%} up to {low} steps, {long:.0%} from {high} steps on",
        short=rows[0]["right"], low=rows[0]["to"], long=rows[-1]["right"], high=rows[-1]["from"],
    )  # fmt: skip
    if drop > HARDER:
        verdict = Message("long inputs are harder: {detail}", detail=detail)
        return Measurement(Finding("length", Level.WARNING, drop, HARDER, verdict), {"rows": rows})
    verdict = Message("long inputs are not harder: {detail}", detail=detail)
    return Measurement(Finding("length", Level.OK, drop, HARDER, verdict), {"rows": rows})


def of_task(predictor: Predictor[Any], subject: Subject | None, text: str = "") -> list[Measurement]:
    """On the validation part, where what the run learned from is here; `text` is a sentence to follow gates along."""
    found: list[Measurement] = []
    if subject is not None and isinstance(predictor.task, SignalTask):
        found.append(inputs(subject))
    if predictor.has_training_texts():
        judged = judge(predictor)
        if judged is not None and judged.targets:
            found += [classes(judged)] + ([length(judged)] if judged.sizes else [])
        if isinstance(predictor, Transducer):
            found.append(attention(predictor))
        if isinstance(predictor, TreeClassifier):
            found.append(tree_depth(predictor))
        if isinstance(predictor, SeriesForecaster):
            found += residuals_and_bands(predictor)
    if subject is not None and (text or predictor.has_training_texts()):
        along = sentence(predictor, subject, text)
        found += [] if along is None else [along]
    return found

"""Baselines for classification: softmax regression, sequences of numbers, and texts. Each takes seconds.

Softmax (multinomial logistic) regression is fitted by L-BFGS, for dense and for sparse features. For sequences of
numbers it reads a summary of a sequence (mean, deviation, minimum, maximum, first, last, length), all steps if all
sequences are equally long, or the steps around one step.

For texts:

    naive Bayes            log P(k | text) = log P(k) + Σ_g log P(g | k) + const,   P(g | k) ∝ texts of k with g + α
                           over the n-grams g of the text, each once

    TF-IDF logistic        x_g = count of g in the text · idf_g,   idf_g = ln((1 + N) / (1 + texts with g)) + 1
    regression             P(k | text) = softmax(V x / ‖x‖ + c),   the least of   mean of −log P + ‖V‖² / (2 C N)

n-grams of 1 or 2 words and marks where texts are sentences, of 1 to 5 characters else, a space at either end, without
case. scikit-learn's TfidfVectorizer, MultinomialNB and LogisticRegression are the same but for two classes, where a
softmax with C is their sigmoid with 2 C. C and α are those that the validation texts are likeliest with.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, nll_loss, one_hot

from recur.baselines import ngram
from recur.baselines.ngram import NGram
from recur.baselines.text_ngrams import join_tokens, joined_vocab
from recur.data.text import EOS, SPECIALS, Tokenizer, Vocab
from recur.data.text.tokenizers import Characters, Words
from recur.models.calibration import cross_fit_mixture

LEAST = -70.0
"""Log-probability that stands for log 0, so that losses stay finite."""

Product = Callable[[Tensor], Tensor]


def most_frequent(labels: Sequence[int]) -> int:
    return Counter(labels).most_common(1)[0][0]


def fit_softmax(
    weight: Tensor,
    bias: Tensor,
    forward: Product,
    backward: Product,
    y: Tensor,
    *,
    decay: float,
    class_weights: Tensor | None = None,
    intercept: bool = True,
    tolerance: float = 1e-7,
    max_iter: int = 100,
) -> tuple[Tensor, Tensor]:
    """Minimise −mean log softmax(X W + b)[y] + decay / 2 · ‖W‖², starting from `weight` and `bias`.

    The loss is convex, so the result does not depend on the start. The gradient is written by hand, because autograd
    would visit every column of a sparse X for each row.

    Args:
        weight: W, of shape (D, K). bias: b, of shape (K,).
        forward: W ↦ X W, of shape (N, K). backward: E ↦ Xᵀ E, of shape (D, K).
        y: classes, of shape (N,).
        class_weights: factor of the loss of each class, of shape (K,).
        intercept: fit the bias; if False, it keeps its value.
    """
    weight, bias = nn.Parameter(weight.clone()), nn.Parameter(bias.clone(), requires_grad=intercept)
    target = one_hot(y, len(bias)).to(bias)
    each = (torch.ones(len(y)) if class_weights is None else class_weights[y]).to(bias)[:, None] / len(y)
    optimizer = torch.optim.LBFGS(
        [weight, bias] if intercept else [weight],
        max_iter=max_iter,
        history_size=10,
        tolerance_grad=tolerance,
        tolerance_change=tolerance**2,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        log_p = (forward(weight) + bias).log_softmax(-1)
        error = (log_p.exp() - target) * each
        weight.grad, bias.grad = backward(error).add_(weight, alpha=decay), error.sum(0)
        return -(log_p * target * each).sum() + decay * weight.square().sum() / 2

    with torch.no_grad():
        optimizer.step(closure)
    return weight.detach(), bias.detach()


def softmax_regression(x: Tensor, y: Tensor, classes: int, measured: Tensor, decay: float = 0.01) -> Tensor:
    """Fit a softmax regression to vectors x (N, D) of classes y (N,); return the logits (n, classes) of `measured`."""
    weight, bias = fit_softmax(
        x.new_zeros(x.shape[1], classes), x.new_zeros(classes), x.matmul, x.T.matmul, y, decay=decay
    )
    return measured @ weight + bias


MOST_ENTRIES = 1 << 23
"""Largest number of values that a softmax is fitted to; of more, a sample of the examples is used."""
MOST_FEATURES = 1024
"""Largest number of features of a vector that a softmax reads."""
AROUND = 4
"""Steps to each side."""
DECAYS = (0.001, 0.01, 0.1)


class LabelledSignal(Protocol):
    """Sequence of vectors with its labels."""

    @property
    def values(self) -> np.ndarray:
        """Return the vectors, of shape (T, D)."""

    @property
    def labels(self) -> list[int]: ...

    @property
    def size(self) -> int:
        """Return the number of steps T."""


class BaselineLabels(NamedTuple):
    """Labels that a baseline predicts."""

    name: str
    labels: list[list[int]]
    """Labels of each example: one, one per step, or a sequence."""


def class_baselines(
    train: Sequence[LabelledSignal],
    valid: Sequence[LabelledSignal],
    measured: Sequence[LabelledSignal],
    classes: Sequence[str],
) -> Iterator[BaselineLabels]:
    """Yield the classes that each baseline predicts; fitted to `train`, selected by `valid`."""
    always = most_frequent([example.labels[0] for example in train])
    yield BaselineLabels(f"always {classes[always]}", [[always]] * len(measured))
    parts = [train, valid, measured]
    summaries = [np.stack([_summary(e.values) for e in part]) for part in parts]
    labels = [np.array([e.labels[0] for e in part]) for part in parts]
    found = _softmax(summaries, labels[0], labels[1], len(classes))
    yield BaselineLabels("softmax of mean, deviation, ends and length", [[int(k)] for k in found])
    if len({e.values.shape for part in parts for e in part}) == 1 and train[0].values.size <= MOST_FEATURES:
        steps = [np.stack([e.values.ravel() for e in part]) for part in parts]
        found = _softmax(steps, labels[0], labels[1], len(classes))
        yield BaselineLabels("softmax of all steps", [[int(k)] for k in found])


def step_baselines(
    train: Sequence[LabelledSignal],
    valid: Sequence[LabelledSignal],
    measured: Sequence[LabelledSignal],
    classes: Sequence[str],
) -> Iterator[BaselineLabels]:
    """Yield one label per step from each baseline."""
    always = most_frequent([k for example in train for k in example.labels])
    yield BaselineLabels(f"always {classes[always]}", [[always] * e.size for e in measured])
    width = train[0].values.shape[1]
    around = min(AROUND, (MOST_FEATURES // width - 1) // 2)
    if around < 0:
        return
    some = _as_many(train, MOST_ENTRIES // ((2 * around + 1) * width))
    vectors = [np.concatenate([_windows(e.values, around) for e in part]) for part in (some, valid, measured)]
    learned, chosen = (np.array([k for e in part for k in e.labels]) for part in (some, valid))
    found = _softmax(vectors, learned, chosen, len(classes)).tolist()
    ends = np.cumsum([e.size for e in measured]).tolist()
    name = f"softmax of {2 * around + 1} steps" if around else "softmax of the step"
    yield BaselineLabels(name, [found[a:b] for a, b in zip([0, *ends], ends, strict=False)])


def sequence_baselines(train: Sequence[LabelledSignal], measured: Sequence[LabelledSignal]) -> Iterator[BaselineLabels]:
    """Yield label sequences from each baseline."""
    usual = list(Counter(tuple(e.labels) for e in train).most_common(1)[0][0])
    yield BaselineLabels("the most frequent sequence", [usual] * len(measured))
    always = Counter(k for e in train for k in e.labels).most_common(1)
    if always:
        pace = sum(len(e.labels) for e in train) / sum(e.size for e in train)
        guesses = [[always[0][0]] * round(pace * e.size) for e in measured]
        yield BaselineLabels("the most frequent label, by length", guesses)


def _summary(values: np.ndarray) -> np.ndarray:
    x = values.astype(np.float64)
    parts = (x.mean(0), x.std(0), x.min(0), x.max(0), x[0], x[-1], [np.log(len(x))])
    return np.concatenate(parts)


def _as_many(examples: Sequence[LabelledSignal], steps: int) -> list[LabelledSignal]:
    """Return examples with about `steps` steps in total."""
    order = np.random.default_rng(0).permutation(len(examples))
    sizes = np.cumsum([examples[k].size for k in order])
    return [examples[k] for k in order[: 1 + int((sizes < steps).sum())]]


def _windows(values: np.ndarray, around: int) -> np.ndarray:
    """Return every step with its neighbours, (T, (2 · around + 1) · D); the ends are repeated."""
    wide = np.pad(values, ((around, around), (0, 0)), mode="edge")
    found: np.ndarray = np.lib.stride_tricks.sliding_window_view(wide, 2 * around + 1, axis=0)
    return found.transpose(0, 2, 1).reshape(len(values), -1)


def _softmax(vectors: Sequence[np.ndarray], y: np.ndarray, chosen: np.ndarray, classes: int) -> np.ndarray:
    """Return the class of each measured vector; the validation set selects the weight decay."""
    train, valid, measured = vectors
    take = np.arange(len(train))
    if (most := max(classes, MOST_ENTRIES // train.shape[1])) < len(train):
        take = np.sort(np.random.default_rng(0).permutation(len(train))[:most])
    mean, deviation = train[take].mean(0), train[take].std(0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    x, v, m = (
        torch.from_numpy(np.clip((part - mean) / deviation, -10, 10)).float() for part in (train[take], valid, measured)
    )
    target, right = torch.from_numpy(y[take]), torch.from_numpy(chosen)
    best: tuple[float, Tensor] | None = None
    for decay in DECAYS:
        logits = softmax_regression(x, target, classes, torch.cat([v, m]), decay)
        accuracy = float((logits[: len(v)].argmax(-1) == right).float().mean())
        if best is None or accuracy > best[0]:
            best = accuracy, logits[len(v) :]
    assert best is not None
    found: np.ndarray = best[1].argmax(-1).numpy()
    return found


ALPHAS = (0.03, 0.1, 0.3, 1.0)
"""Candidates of α, which is added to every count."""

STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0, 150.0)
"""Candidates of C, from strong to weak regularisation."""

FEATURES = 1 << 18
"""Largest number of n-grams; the most frequent ones are kept."""

COUNTED = 4_000_000
"""Largest number of n-gram occurrences that are counted; with more, a sample of the texts is used."""

_WORD = re.compile(r"\w+|[^\w\s]")

T = TypeVar("T")

LabelledTexts = Sequence[tuple[str, int]]
"""Texts, each with its class."""


def ngrams_of(text: str, unit: str) -> list[str]:
    """Return the n-grams of a text, each as often as it occurs."""
    if unit == "word":
        words = _WORD.findall(text.lower())
        return [*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))]
    line = f" {' '.join(text.lower().split())} "
    return [line[k : k + n] for n in range(1, 6) for k in range(len(line) - n + 1)]


def count_ngrams(texts: Sequence[str], unit: str) -> Vocab:
    """Return the vocabulary of n-grams of texts, each with the number of texts that contain it."""
    texts = sample_texts(texts, unit)
    counts = Counter(gram for text in texts for gram in set(ngrams_of(text, unit)) if gram not in SPECIALS)
    tokenizer = Words(punctuation=True, lower=True) if unit == "word" else Characters()
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:FEATURES]
    return Vocab((*SPECIALS, *(gram for gram, _ in kept)), (0, 0, 0, 0, *(n for _, n in kept)), tokenizer)


class SparseRows(NamedTuple):
    """Sparse matrix in compressed rows: row r has `values` in the columns `ids`, from starts[r] to the next start."""

    ids: Tensor
    values: Tensor
    starts: Tensor

    def times(self, weight: Tensor) -> Tensor:
        """Multiply (rows, columns) × (columns, classes)."""
        return embedding_bag(self.ids, weight, self.starts, mode="sum", per_sample_weights=self.values.to(weight))

    def present(self) -> SparseRows:
        """Return the matrix with 1 at every entry."""
        return self._replace(values=torch.ones_like(self.values))

    def transposed(self, columns: int) -> SparseRows:
        """Return the transposed matrix."""
        counts = self.starts.diff(append=torch.tensor([len(self.ids)]))
        order = self.ids.argsort(stable=True)
        starts = torch.bincount(self.ids, minlength=columns).cumsum(0).roll(1)
        starts[0] = 0
        return SparseRows(torch.arange(len(counts)).repeat_interleave(counts)[order], self.values[order], starts)


class LinearTextClassifier(nn.Module):
    """Naive Bayes and logistic regression on n-grams, as buffers that training does not change."""

    idf: Tensor
    weight: Tensor
    bias: Tensor
    bayes: Tensor
    prior: Tensor

    def __init__(self, vocab: Vocab, classes: int) -> None:
        super().__init__()
        self.vocab, self.unit = vocab, vocab.tokenizer.kind
        columns = len(vocab) - len(SPECIALS)
        self.register_buffer("idf", torch.zeros(columns))
        for weight, bias in (("weight", "bias"), ("bayes", "prior")):
            self.register_buffer(weight, torch.zeros(columns, classes))
            self.register_buffer(bias, torch.zeros(classes))

    @property
    def fitted(self) -> bool:
        return bool(self.idf.any())

    def rows(self, texts: Iterable[str]) -> SparseRows:
        """Return the TF-IDF features of texts, on the CPU."""
        columns = self.vocab.ids
        ids, values, starts = [], [], [0]
        idf = self.idf.cpu().numpy()
        for text in texts:
            counts = Counter(k for gram in ngrams_of(text, self.unit) if (k := columns.get(gram)) is not None)
            at = np.fromiter(counts.keys(), np.int64, len(counts)) - len(SPECIALS)
            x = np.fromiter(counts.values(), idf.dtype, len(counts)) * idf[at]
            ids.append(at)
            values.append(x / max(float(np.linalg.norm(x)), 1e-12))
            starts.append(starts[-1] + len(at))
        joined = [torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0) for parts in (ids, values)]
        return SparseRows(joined[0].long(), joined[1], torch.tensor(starts[:-1]))

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (texts, classes) of naive Bayes and of the regression."""
        rows = SparseRows(*(part.to(self.weight.device) for part in self.rows(texts)))
        return self.by_bayes(rows), self.by_regression(rows)

    def by_bayes(self, rows: SparseRows) -> Tensor:
        return (rows.present().times(self.bayes) + self.prior).log_softmax(-1)

    def by_regression(self, rows: SparseRows) -> Tensor:
        return (rows.times(self.weight) + self.bias).log_softmax(-1)


def fit_naive_bayes(
    model: LinearTextClassifier, rows: SparseRows, y: Tensor, alpha: float, weights: Tensor | None = None
) -> None:
    """Fit naive Bayes by counting; `weights` of the classes change the prior."""
    each = one_hot(y, len(model.prior)).to(model.bayes)
    counts = rows.present().transposed(len(model.bayes)).times(each) + alpha
    model.bayes.copy_((counts / counts.sum(0)).log())
    share = each.sum(0) if weights is None else each.sum(0) * weights.to(each)
    model.prior.copy_((share / share.sum()).log().clamp_min(LEAST))


def fit_logistic_regression(
    model: LinearTextClassifier,
    rows: SparseRows,
    y: Tensor,
    strength: float,
    weights: Tensor | None = None,
    tolerance: float = 3e-5,
) -> None:
    """Fit the logistic regression, starting from the weights of the model; `weights` are factors of the classes."""
    weight, bias = fit_softmax(
        model.weight,
        model.bias,
        rows.times,
        rows.transposed(len(model.weight)).times,
        y,
        decay=1 / (strength * len(y)),
        class_weights=weights,
        tolerance=tolerance,
    )
    model.weight.copy_(weight)
    model.bias.copy_(bias)


class FittedClassifier(NamedTuple):
    model: LinearTextClassifier
    bayes: str = "naive Bayes"
    """Its name, with the chosen α."""
    regression: str = "TF-IDF logistic regression"
    """Its name, with the chosen C."""


def fit_best_linear(
    train: LabelledTexts, valid: LabelledTexts, vocab: Vocab, classes: int, weights: Tensor | None = None
) -> FittedClassifier:
    """Fit both models. C rises until the validation loss does; α is the best of ALPHAS.

    The loss decides and not the accuracy, which varies by chance.
    """
    model = LinearTextClassifier(vocab, classes)
    learned = sample_texts(train, model.unit)
    seen = np.array(vocab.counts[len(SPECIALS) :], np.float64)
    model.idf.copy_(torch.from_numpy(np.log((1 + len(learned)) / (1 + seen)) + 1))
    rows, y = model.rows(text for text, _ in learned), torch.tensor([k for _, k in learned])
    known = [(text, k) for text, k in valid if k < classes]
    held, targets = model.rows(text for text, _ in known), torch.tensor([k for _, k in known])
    best, kept = math.inf, (model.weight, model.bias, 0.0)
    for strength in STRENGTHS:
        fit_logistic_regression(model, rows, y, strength, weights)
        loss = float(nll_loss(model.by_regression(held), targets, weights)) if known else 0.0
        if loss >= best:
            break
        best, kept = loss, (model.weight.clone(), model.bias.clone(), strength)
    model.weight.copy_(kept[0])
    model.bias.copy_(kept[1])

    def beside_regression(alpha: float) -> float:
        """Return the loss of the mixture of both models: naive Bayes alone is overconfident."""
        fit_naive_bayes(model, rows, y, alpha, weights)
        mixed = cross_fit_mixture([model.by_bayes(held), model.by_regression(held)], targets, start=(0.0, 1.0))
        return float(nll_loss(mixed, targets, weights))

    alpha = min(ALPHAS, key=beside_regression) if known else ALPHAS[1]
    fit_naive_bayes(model, rows, y, alpha, weights)
    part = f" of {len(learned):,} texts" if len(learned) < len(train) else ""
    return FittedClassifier(
        model, f"naive Bayes{part}, α = {alpha:g}", f"TF-IDF logistic regression{part}, C = {kept[2]:g}"
    )


def sample_texts(texts: Sequence[T], unit: str) -> Sequence[T]:
    """Return a random sample of texts if they contain more n-grams than COUNTED."""
    some = [one if isinstance(one, str) else one[0] for one in texts[:: max(len(texts) // 1000, 1)]]  # type: ignore[index]
    most = int(COUNTED * len(some) / max(sum(len(ngrams_of(text, unit)) for text in some), 1))
    if len(texts) <= most:
        return texts
    return [texts[k] for k in sorted(np.random.default_rng(0).permutation(len(texts))[:most])]


ORDERS = (1, 2, 3, 4, 5, 6)


class ClassNGrams:
    def __init__(self, train: LabelledTexts, tokenizer: Tokenizer, order: int) -> None:
        self.order, self.tokenizer = order, tokenizer
        lines = [(join_tokens(tokenizer, text), k) for text, k in train]
        vocab = joined_vocab(line for line, _ in lines)
        self.models: dict[int, NGram] = {}
        self.prior: dict[int, float] = {}
        for k in sorted({k for _, k in lines}):
            own = [line for line, of in lines if of == k]
            self.models[k] = ngram.fit("\n".join(own) + "\n", vocab, order)
            self.prior[k] = math.log(len(own) / len(lines))

    def log_probabilities(self, texts: Sequence[str], classes: int) -> Tensor:
        """Return log P(k | text), (texts, classes)."""
        vocab = next(iter(self.models.values())).vocab
        ids = vocab.encode("".join(f"{join_tokens(self.tokenizer, text)}\n" for text in texts))
        starts = np.concatenate([[0], np.flatnonzero(ids == EOS)[:-1] + 1])
        scores = np.full((len(texts), classes), -np.inf)
        for k, model in self.models.items():
            scores[:, k] = self.prior[k] + np.add.reduceat(model.logprobs(ids), starts)
        return torch.from_numpy(scores).log_softmax(-1)

    def classify(self, texts: Sequence[str]) -> list[int]:
        return self.log_probabilities(texts, max(self.models) + 1).argmax(1).tolist()


def fit_best_ngrams(train: LabelledTexts, valid: LabelledTexts, tokenizer: Tokenizer) -> ClassNGrams:
    """Return the n-gram classifier whose order has the best validation accuracy."""
    best: tuple[int, ClassNGrams] | None = None
    for order in ORDERS:
        model = ClassNGrams(train, tokenizer, order)
        predictions = model.classify([text for text, _ in valid])
        right = sum(k == target for k, (_, target) in zip(predictions, valid, strict=True))
        if best is not None and right <= best[0]:
            break
        best = right, model
    assert best is not None
    return best[1]


class TextBaseline(NamedTuple):
    name: str
    log_probabilities: Callable[[Sequence[str]], Tensor]


def text_baselines(
    train: LabelledTexts, valid: LabelledTexts, tokenizer: Tokenizer, classes: Sequence[str], linear: FittedClassifier
) -> Iterator[TextBaseline]:
    """Yield the most frequent class, n-grams by class, naive Bayes and TF-IDF logistic regression."""
    labels = [k for _, k in train]
    shares = torch.bincount(torch.tensor(labels), minlength=len(classes)) / len(labels)
    prior = shares.log().clamp_min(LEAST)
    yield TextBaseline(f"always {classes[most_frequent(labels)]}", lambda texts: prior.expand(len(texts), -1))
    counted = fit_best_ngrams(train, valid, tokenizer)
    yield TextBaseline(
        f"{counted.order}-grams by class",
        lambda texts: counted.log_probabilities(texts, len(classes)).float(),
    )
    yield from linear_baselines(linear)


def linear_baselines(linear: FittedClassifier) -> tuple[TextBaseline, TextBaseline]:
    return (
        TextBaseline(linear.bayes, lambda texts: linear.model(texts)[0].cpu()),
        TextBaseline(linear.regression, lambda texts: linear.model(texts)[1].cpu()),
    )

"""Baselines for text classification: naive Bayes, TF-IDF logistic regression, and one n-gram model per class.

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
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, nll_loss, one_hot

from recur.baselines import ngram
from recur.baselines.linear_models import LEAST, fit_softmax, most_frequent
from recur.baselines.ngram import NGram
from recur.baselines.text_ngrams import join_tokens, joined_vocab
from recur.data.text import EOS, SPECIALS, Tokenizer, Vocab
from recur.data.text.tokenizers import Characters, Words
from recur.models.calibration import cross_fit_mixture

ALPHAS = (0.03, 0.1, 0.3, 1.0)
"""α: what every n-gram is counted beside its texts."""

STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0, 150.0)
"""C, from strong to weak regularisation."""

FEATURES = 1 << 18
"""n-grams at most: those in the most texts."""

COUNTED = 4_000_000
"""n-grams counted at most, each time they occur: of more texts than hold so many, a sample is learned from."""

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
    model.prior.copy_((share / share.sum()).log().clamp_min(-70))


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
    """Its name, with the α that was taken."""
    regression: str = "TF-IDF logistic regression"
    """… with C."""


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
        """The loss of the two as one: naive Bayes alone is too sure of itself to be judged."""
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

Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]

"""Texts, each with its class."""


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

    def log_probabilities(
        self, texts: Sequence[str], classes: int
    ) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Return log P(k | text), (texts, classes)."""
        vocab = next(iter(self.models.values())).vocab
        ids = vocab.encode("".join(f"{join_tokens(self.tokenizer, text)}\n" for text in texts))
        starts = np.concatenate([[0], np.flatnonzero(ids == EOS)[:-1] + 1])
        scores = np.full((len(texts), classes), -np.inf)
        for k, model in self.models.items():
            scores[:, k] = self.prior[k] + np.add.reduceat(model.logprobs(ids), starts)
        most = scores.max(1, keepdims=True)
        return np.asarray(scores - most - np.log(np.exp(scores - most).sum(1, keepdims=True)))

    def classify(self, texts: Sequence[str]) -> list[int]:
        return [int(k) for k in self.log_probabilities(texts, max(self.models) + 1).argmax(1)]


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
        lambda texts: torch.from_numpy(counted.log_probabilities(texts, len(classes))).float(),
    )
    yield from linear_baselines(linear)


def linear_baselines(linear: FittedClassifier) -> tuple[TextBaseline, TextBaseline]:
    return (
        TextBaseline(linear.bayes, lambda texts: linear.model(texts)[0].cpu()),
        TextBaseline(linear.regression, lambda texts: linear.model(texts)[1].cpu()),
    )

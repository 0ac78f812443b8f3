"""Plain models of n-grams: what the field has for texts before any network, and hard to beat on a few thousand of them.

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
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, nll_loss, one_hot

from recur.data.text import SPECIALS, Vocab
from recur.data.text.tokenizers import Characters, Words
from recur.i18n import Message
from recur.models.calibration import cross_mixed

SMOOTHED = (0.03, 0.1, 0.3, 1.0)
"""α: what every n-gram is counted beside its texts."""

STRENGTHS = (0.5, 1.5, 5.0, 15.0, 50.0, 150.0)
"""C, from strong to weak regularisation."""

FEATURES = 1 << 18
"""n-grams at most: those in the most texts."""

COUNTED = 4_000_000
"""n-grams counted at most, each time they occur: of more texts than hold so many, a sample is learned from."""

_WORD = re.compile(r"\w+|[^\w\s]")

T = TypeVar("T")

Labelled = Sequence[tuple[str, int]]
"""Texts, each with its class."""


def grams(text: str, unit: str) -> list[str]:
    """The n-grams of a text, each as often as it occurs."""
    if unit == "word":
        words = _WORD.findall(text.lower())
        return [*words, *(f"{a} {b}" for a, b in itertools.pairwise(words))]
    line = f" {' '.join(text.lower().split())} "
    return [line[k : k + n] for n in range(1, 6) for k in range(len(line) - n + 1)]


def gram_vocab(texts: Sequence[str], unit: str) -> Vocab:
    """The n-grams of texts behind the special tokens, each with the number of texts that it occurs in."""
    texts = sample(texts, unit)
    counts = Counter(gram for text in texts for gram in set(grams(text, unit)) if gram not in SPECIALS)
    tokenizer = Words(punctuation=True, lower=True) if unit == "word" else Characters()
    kept = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:FEATURES]
    return Vocab((*SPECIALS, *(gram for gram, _ in kept)), (0, 0, 0, 0, *(n for _, n in kept)), tokenizer)


class Rows(NamedTuple):
    """Sparse rows: row r has `values` in the columns `ids` from starts[r] on, to where the next one starts."""

    ids: Tensor
    values: Tensor
    starts: Tensor

    def times(self, weight: Tensor) -> Tensor:
        """(rows, columns) × (columns, classes)."""
        return embedding_bag(self.ids, weight, self.starts, mode="sum", per_sample_weights=self.values.to(weight))

    def present(self) -> Rows:
        """1 where there is anything."""
        return self._replace(values=torch.ones_like(self.values))

    def transposed(self, columns: int) -> Rows:
        """… as rows of the other dimension."""
        counts = self.starts.diff(append=torch.tensor([len(self.ids)]))
        order = self.ids.argsort(stable=True)
        starts = torch.bincount(self.ids, minlength=columns).cumsum(0).roll(1)
        starts[0] = 0
        return Rows(torch.arange(len(counts)).repeat_interleave(counts)[order], self.values[order], starts)


class LinearText(nn.Module):
    """Both models as tensors, none of which a network's training changes."""

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

    def rows(self, texts: Iterable[str]) -> Rows:
        """TF-IDF of texts, on the CPU."""
        columns = self.vocab.ids
        ids, values, starts = [], [], [0]
        idf = self.idf.cpu().numpy()
        for text in texts:
            counts = Counter(k for gram in grams(text, self.unit) if (k := columns.get(gram)) is not None)
            at = np.fromiter(counts.keys(), np.int64, len(counts)) - len(SPECIALS)
            x = np.fromiter(counts.values(), idf.dtype, len(counts)) * idf[at]
            ids.append(at)
            values.append(x / max(float(np.linalg.norm(x)), 1e-12))
            starts.append(starts[-1] + len(at))
        joined = [torch.from_numpy(np.concatenate(parts)) if parts else torch.empty(0) for parts in (ids, values)]
        return Rows(joined[0].long(), joined[1], torch.tensor(starts[:-1]))

    def forward(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Log-probabilities (texts, classes): naive Bayes', and the regression's."""
        rows = Rows(*(part.to(self.weight.device) for part in self.rows(texts)))
        return self.by_bayes(rows), self.by_regression(rows)

    def by_bayes(self, rows: Rows) -> Tensor:
        return (rows.present().times(self.bayes) + self.prior).log_softmax(-1)

    def by_regression(self, rows: Rows) -> Tensor:
        return (rows.times(self.weight) + self.bias).log_softmax(-1)


def fit_bayes(model: LinearText, rows: Rows, y: Tensor, alpha: float, weights: Tensor | None = None) -> None:
    """Counted, and nothing else; with the `weights` of classes that make all alike, the prior is one."""
    each = one_hot(y, len(model.prior)).to(model.bayes)
    counts = rows.present().transposed(len(model.bayes)).times(each) + alpha
    model.bayes.copy_((counts / counts.sum(0)).log())
    share = each.sum(0) if weights is None else each.sum(0) * weights.to(each)
    model.prior.copy_((share / share.sum()).log().clamp_min(-70))


def fit_linear(
    model: LinearText, rows: Rows, y: Tensor, strength: float, weights: Tensor | None = None, tolerance: float = 3e-5
) -> None:
    """The one least point of the loss, found from the weights that the model has; classes may count by `weights`."""
    N, columns = len(y), rows.transposed(len(model.weight))
    weight, bias = (nn.Parameter(start.clone()) for start in (model.weight, model.bias))
    target = one_hot(y, len(bias)).to(bias)
    each = (torch.ones(N) if weights is None else weights[y]).to(bias)[:, None] / N
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=100,
        history_size=10,
        tolerance_grad=tolerance,
        tolerance_change=tolerance**2,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        """The loss, and its gradients by hand: autograd would go through all columns for each text."""
        log_p = (rows.times(weight) + bias).log_softmax(-1)
        error = (log_p.exp() - target) * each
        weight.grad, bias.grad = columns.times(error).add_(weight, alpha=1 / (strength * N)), error.sum(0)
        return -(log_p * target * each).sum() + weight.square().sum() / (2 * strength * N)

    with torch.no_grad():
        optimizer.step(closure)
        model.weight.copy_(weight)
        model.bias.copy_(bias)


class Fitted(NamedTuple):
    model: LinearText
    bayes: str = "naive Bayes"
    """Its name, with the α that was taken."""
    regression: str = "TF-IDF logistic regression"
    """… with C."""


def best_linear(train: Labelled, valid: Labelled, vocab: Vocab, classes: int, weights: Tensor | None = None) -> Fitted:
    """C rises until the loss of the validation texts does, for their accuracy would move by chance; of α the best."""
    model = LinearText(vocab, classes)
    learned = sample(train, model.unit)
    seen = np.array(vocab.counts[len(SPECIALS) :], np.float64)
    model.idf.copy_(torch.from_numpy(np.log((1 + len(learned)) / (1 + seen)) + 1))
    rows, y = model.rows(text for text, _ in learned), torch.tensor([k for _, k in learned])
    known = [(text, k) for text, k in valid if k < classes]
    held, targets = model.rows(text for text, _ in known), torch.tensor([k for _, k in known])
    best, kept = math.inf, (model.weight, model.bias, 0.0)
    for strength in STRENGTHS:
        fit_linear(model, rows, y, strength, weights)
        loss = float(nll_loss(model.by_regression(held), targets, weights)) if known else 0.0
        if loss >= best:
            break
        best, kept = loss, (model.weight.clone(), model.bias.clone(), strength)
    model.weight.copy_(kept[0])
    model.bias.copy_(kept[1])

    def beside_regression(alpha: float) -> float:
        """The loss of the two as one: naive Bayes alone is too sure of itself to be judged."""
        fit_bayes(model, rows, y, alpha, weights)
        mixed = cross_mixed([model.by_bayes(held), model.by_regression(held)], targets, start=(0.0, 1.0))
        return float(nll_loss(mixed, targets, weights))

    alpha = min(SMOOTHED, key=beside_regression) if known else SMOOTHED[1]
    fit_bayes(model, rows, y, alpha, weights)
    part = f" of {len(learned):,} texts" if len(learned) < len(train) else ""
    return Fitted(
        model,
        Message("naive Bayes{features}, α = {alpha}", features=part, alpha=f"{alpha:g}"),
        Message("TF-IDF logistic regression{features}, C = {C}", features=part, C=f"{kept[2]:g}"),
    )


def sample(texts: Sequence[T], unit: str) -> Sequence[T]:
    """Of texts, or of texts with their classes, that hold more n-grams than are counted, some at random."""
    some = [one if isinstance(one, str) else one[0] for one in texts[:: max(len(texts) // 1000, 1)]]  # type: ignore[index]
    most = int(COUNTED * len(some) / max(sum(len(grams(text, unit)) for text in some), 1))
    if len(texts) <= most:
        return texts
    return [texts[k] for k in sorted(np.random.default_rng(0).permutation(len(texts))[:most])]

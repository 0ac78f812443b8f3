"""Linear autoregression, for all origins at once.

ŷ_{o+j} = φ_0j + Σ_i φ_ij y_{o−lags+i}: whatever way it was fitted, it is one matrix (1 + lags, k) a series.

iterated   y_t = c + Σ_i φ_i y_{t−i} by least squares, one step after the other; its matrix is that recurrence run on
           each of the inputs alone
direct     a regression of its own for each of the k steps
relative   either, of values less the last one known: a series that lies elsewhere than it did is forecast as well

Which of them, on how many lags and with how much ridge, is chosen by what they forecast of values that they were not
fitted to, jointly for all series.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recur.data.series.scores import deviations
from recur.data.series.windows import histories, origins, windows
from recur.data.text.arrays import Floats, Ids
from recur.errors import OptionError

LEAST_RIDGE = 1e-12
"""Inputs may say the same twice: a constant, an exact recurrence."""

MOST_LAGS = 400

RIDGES = (0.0, 1e-3, 1e-1)
"""Tried: shares of the inputs' mean square that are added to each."""

INNER = 0.2
"""Of the training part, to choose on."""

MOST_CHECKED = 200
"""Origins to choose on."""

MOST_VALUES = 50_000
"""Values to choose on: of a long horizon fewer origins do."""


class Form(NamedTuple):
    """One way to fit a linear autoregression."""

    lags: int
    direct: bool = False
    relative: bool = False
    ridge: float = 0.0


@dataclass(frozen=True)
class Autoregression:
    form: Form
    weights: Floats
    """(C, 1 + lags, k): of 1, and of the last values, the oldest first."""

    @property
    def name(self) -> str:
        return f"linear autoregression on {self.form.lags}"

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        if k > self.weights.shape[2]:
            raise OptionError(f"this linear autoregression is for {self.weights.shape[2]} steps, not {k}")
        past = histories(values, at, self.form.lags).transpose(2, 0, 1)
        found = past @ self.weights[:, 1:, :k] + self.weights[:, :1, :k]
        return found.transpose(1, 2, 0)


def fit_autoregression(train: Floats, k: int, form: Form) -> Autoregression:
    """Of each series (T, C), without gaps, on its own."""
    least = 2 * form.lags + 2 + (k - 1 if form.direct else 0)
    if len(train) < least:
        raise OptionError(f"a linear autoregression on {form.lags} values needs {least} to fit, got {len(train)}")
    ahead = k if form.direct else 1
    solved = [_solve(_moments(y, form.lags, ahead, form.relative), form.ridge) for y in train.T]
    weights = [_matrix(fitted, y, form, k) for fitted, y in zip(solved, train.T, strict=True)]
    return Autoregression(form, np.stack(weights))


def fit_autoregressions(
    series: Sequence[Floats], k: int, seasons: Sequence[int], fitted: Sequence[int] | None = None
) -> list[Autoregression | None]:
    """Of several series (T, C), fitted to the first so many values of each, in the form that forecasts the rest best;
    without `fitted` to all, in the form that forecasts the last fifth best from the others. A shorter series takes
    fewer lags; None where it is too short for any."""
    form = choose_form(series, k, seasons, fitted)
    found: list[Autoregression | None] = []
    for values, n in zip(series, fitted or map(len, series), strict=True):
        most = (n - 2 - (k - 1 if form.direct else 0)) // 2
        lags = min(form.lags, most)
        found.append(fit_autoregression(values[:n], k, form._replace(lags=lags)) if lags > 0 else None)
    return found


def choose_form(series: Sequence[Floats], k: int, seasons: Sequence[int], fitted: Sequence[int] | None = None) -> Form:
    """By the mean squared error in deviations, of all series together; of a series that is too short for so many lags,
    that of the most it is long enough for."""
    errors: dict[Form, list[float]] = {}
    choices = lag_choices(seasons)
    for values, n in zip(series, fitted or [_all_but_last(len(values), k) for values in series], strict=True):
        at = origins(n, len(values), k)
        most = min(MOST_CHECKED, MOST_VALUES // k)
        at = at[:: -(-len(at) // max(most, 1))] if len(at) else np.array([n])
        target, scale = windows(values, at, k), deviations(values[:n])
        fitting = [lags for lags in choices if n >= 3 * lags + k + 2]
        for form, model in _candidates(values[:n], k, fitting):
            error = float(np.nanmean(((model(values, at, k) - target) / scale) ** 2))
            for lags in choices[choices.index(form.lags) :] if form.lags == fitting[-1] else (form.lags,):
                errors.setdefault(form._replace(lags=lags), []).append(error)
    if not errors:
        raise OptionError(f"{max(map(len, series))} values are too few to fit a linear autoregression")
    return min(errors, key=lambda form: np.mean(errors[form]))


def _all_but_last(n: int, k: int) -> int:
    return max(n - max(round(INNER * n), min(k, n // 3)), 1)


def lag_choices(seasons: Sequence[int]) -> tuple[int, ...]:
    """How many lags are worth a try: few, and a little more than one, two or four seasons have."""
    found = {n * season + 1 for season in seasons for n in (1, 2, 4) if season > 1 and n * season <= MOST_LAGS}
    return tuple(sorted({1, 2, 4, 8, *(found or {16, 32})}))


def _candidates(train: Floats, k: int, choices: Sequence[int]) -> Iterator[tuple[Form, Autoregression]]:
    """All forms of so many lags, which rise; those of fewer are parts of the same sums of products."""
    for relative in (False, True) if choices else ():
        sums = [_moments(y, choices[-1], k, relative) for y in train.T]
        for lags, ridge in itertools.product(choices, RIDGES):
            solved = [_solve(part.of(lags), ridge) for part in sums]
            for direct in (False, True):
                form = Form(lags, direct, relative, ridge)
                weights = [_matrix(fitted, y, form, k) for fitted, y in zip(solved, train.T, strict=True)]
                yield form, Autoregression(form, np.stack(weights))


class _Moments(NamedTuple):
    """Sums of products of the inputs (1, and the last values, the oldest first) and of the targets."""

    inputs: Floats
    """(1 + lags, 1 + lags)"""
    targets: Floats
    """(1 + lags, k)"""
    least: float
    """A sum of squares below this is rounding: the last value less itself, or what repeats exactly, tells nothing."""

    def of(self, lags: int) -> _Moments:
        """Of so many lags only."""
        kept = np.r_[0, len(self.inputs) - lags : len(self.inputs)]
        return _Moments(self.inputs[np.ix_(kept, kept)], self.targets[kept], self.least)


def _moments(series: Floats, lags: int, k: int, relative: bool) -> _Moments:
    """Of a series z less its mean, for sums of squares of large numbers lose what lies beside them. Over all n windows,
    G_ij = Σ_t z_{t+i} z_{t+j} is summed up in its first row alone: G_{i+1,j+1} is G_ij with one product more at its end
    and one less at its beginning."""
    z, width = series - series.mean(), lags + k
    n = len(z) - width + 1
    begin, end = z[:width], z[n:]
    gram = np.empty((lags, width))
    gram[0] = z[:n] @ np.lib.stride_tricks.sliding_window_view(z, width)
    for i in range(lags - 1):
        gram[i + 1, 1:] = gram[i, :-1] + end[i] * end[: width - 1] - begin[i] * begin[:-1]
        gram[i + 1, 0] = gram[0, i + 1]
    total = z[:n].sum() + np.concatenate([[0.0], np.cumsum(end - begin[: width - 1])])
    least = 1e-12 * float(gram.diagonal().max())
    if relative:  # to the last value: what is less it in both factors
        last, own = gram[-1].copy(), gram[:, lags - 1].copy()
        gram = gram - last - own[:, None] + last[lags - 1]
        total = total - total[lags - 1]
    inputs = np.empty((1 + lags, 1 + lags))
    inputs[0, 0], inputs[1:, 1:] = n, gram[:, :lags]
    inputs[0, 1:] = inputs[1:, 0] = total[:lags]
    return _Moments(inputs, np.concatenate([total[None, lags:], gram[:, lags:]]), least)


def _solve(sums: _Moments, ridge: float) -> Floats:
    """(1 + lags, k): least squares; the intercept is not held small, and inputs are of one scale."""
    n, mean = sums.inputs[0, 0], sums.inputs[0] / sums.inputs[0, 0]
    inputs = (sums.inputs - n * np.outer(mean, mean))[1:, 1:]
    targets = (sums.targets - np.outer(mean, sums.targets[0]))[1:]
    squares = inputs.diagonal()
    spread = np.sqrt(np.where(squares > sums.least, squares, np.inf))
    correlations = inputs / np.outer(spread, spread) + max(ridge, LEAST_RIDGE) * np.eye(len(spread))
    weights = np.linalg.solve(correlations, targets / spread[:, None]) / spread[:, None]
    return np.concatenate([(sums.targets[0] / n - mean[1:] @ weights)[None], weights])


def _matrix(fitted: Floats, series: Floats, form: Form, k: int) -> Floats:
    """(1 + lags, k): what was fitted to a series less its mean, for the series itself."""
    fitted = (fitted if form.direct else fitted[:, :1]).copy()
    if form.relative:  # to values less the last one: that is put back
        fitted[-1] += 1 - fitted[1:].sum(0)
    fitted[0] += series.mean() * (1 - fitted[1:].sum(0))
    return fitted if form.direct else _iterated(fitted[:, 0], k)


def _iterated(phi: Floats, k: int) -> Floats:
    """(1 + lags, k): the recurrence c, φ (the oldest first) run on 1 and on each of the last values alone."""
    lags = len(phi) - 1
    path = np.zeros((lags + k, 1 + lags))
    path[:lags, 1:] = np.eye(lags)
    for t in range(lags, lags + k):
        path[t] = phi[1:] @ path[t - lags : t]
        path[t, 0] += phi[0]
    return path[lags:].T

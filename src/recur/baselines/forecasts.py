"""Baseline forecasts: naive, seasonal naive, naive 2, and linear autoregressions of one or all series.

Each takes values (T, C) without gaps and origins (N,), and returns the next k values after every origin, (N, k, C),
computed only from values before the origin.

naive            ŷ_{o+j} = y_o
seasonal naive   ŷ_{o+j} = value one season before, or two where one is not known yet
naive 2          naive forecast of the seasonally adjusted values, with the season added back: the benchmark of M4
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from recur.data.series.evaluation import deviations, mase_scales
from recur.data.series.panel import blocks, histories, origins, windows
from recur.data.text.stream import Floats, Ids
from recur.errors import OptionError
from recur.i18n import Message

BaselineForecast = Callable[[Floats, Ids, int], Floats]
"""Function of values (T, C), origins (N,) and k to forecasts (N, k, C)."""


def naive_forecasts(values: Floats, at: Ids, k: int) -> Floats:
    return np.repeat(values[at - 1][:, None], k, axis=1)


@dataclass(frozen=True)
class SeasonalNaive:
    season: int

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        if len(at) and at.min() < self.season:
            raise OptionError(
                f"a season of {self.season} needs at least {self.season} values before the first forecast"
            )
        return np.take(values, at[:, None] - self.season + np.arange(k) % self.season, axis=0)


@dataclass(frozen=True)
class Naive2:
    """Naive forecast with multiplicative seasonal factors; all ones if a series is not seasonal."""

    factors: Floats
    """(season, C): factors by row number modulo the season."""

    @staticmethod
    def fit(train: Floats, season: int) -> Naive2:
        if season < 2:
            return Naive2(np.ones((1, train.shape[1])))
        columns = [seasonal_factors(y, season) if is_seasonal(y, season) else np.ones(season) for y in train.T]
        return Naive2(np.stack(columns, axis=1))

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        season = len(self.factors)
        level = values[at - 1] / self.factors[(at - 1) % season]
        found: Floats = level[:, None] * self.factors[(at[:, None] + np.arange(k)) % season]
        return found


def is_seasonal(series: Floats, season: int) -> bool:
    """Return True by the test of M4: the autocorrelation at the season is outside the 90 % limits (Bartlett).

    The series must have at least three seasons and only positive values.
    """
    if len(series) < 3 * season or series.min() <= 0:
        return False
    apart = series - series.mean()
    power = float(apart @ apart)
    if power <= 0:
        return False
    r = np.array([apart[lag:] @ apart[:-lag] for lag in range(1, season + 1)]) / power
    limit = 1.645 / np.sqrt(len(series)) * np.sqrt(1 + 2 * (r[:-1] ** 2).sum())
    return bool(abs(r[-1]) > limit)


def seasonal_factors(series: Floats, season: int) -> Floats:
    """Return factors (season,) of the classical multiplicative decomposition.

    Values are divided by their centred moving average and averaged by phase; the factors have mean 1.
    """
    weights = np.ones(season) if season % 2 else np.r_[0.5, np.ones(season - 1), 0.5]
    trend = np.convolve(series, weights / season, "valid")
    half = len(weights) // 2
    ratio = series[half : half + len(trend)] / trend
    phase = (half + np.arange(len(trend))) % season
    factors = np.bincount(phase, ratio, season) / np.bincount(phase, minlength=season)
    found: Floats = factors / factors.mean()
    return found


MIN_RIDGE = 1e-12
"""Least ridge: inputs may be collinear, as for a constant or an exact recurrence."""

MAX_LAGS = 400

RIDGES = (0.0, 1e-3, 1e-1)
"""Ridge candidates, as fractions of the mean square of the inputs."""

SELECTION_FRACTION = 0.2
"""Fraction of the training set that is used to choose options."""

MAX_SELECTION_ORIGINS = 200
"""Largest number of origins used to choose options."""

MAX_SELECTION_VALUES = 50_000
"""Largest number of values used to choose options: a long horizon needs fewer origins."""


class AutoregressionOptions(NamedTuple):
    """Options of a linear autoregression.

    lags      number of past values
    direct    one equation per step ahead; else one equation, iterated
    relative  values relative to the last one
    ridge     fraction of the mean square of the inputs that is added to the diagonal
    """

    lags: int
    direct: bool = False
    relative: bool = False
    ridge: float = 0.0


@dataclass(frozen=True)
class Autoregression:
    """Fitted linear autoregression."""

    form: AutoregressionOptions
    weights: Floats
    """(C, 1 + lags, k): weights of 1 and of the last values, oldest first."""

    @property
    def name(self) -> str:
        return Message("linear autoregression on {lags}", lags=self.form.lags)

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        if k > self.weights.shape[2]:
            raise OptionError(f"this linear autoregression is for {self.weights.shape[2]} steps, not {k}")
        past = histories(values, at, self.form.lags).transpose(2, 0, 1)
        found = past @ self.weights[:, 1:, :k] + self.weights[:, :1, :k]
        return found.transpose(1, 2, 0)


def fit_autoregression(train: Floats, k: int, form: AutoregressionOptions) -> Autoregression:
    """Fit a linear autoregression to each series of (T, C), without gaps."""
    least = 2 * form.lags + 2 + (k - 1 if form.direct else 0)
    if len(train) < least:
        raise OptionError(f"a linear autoregression on {form.lags} values needs {least} to fit, got {len(train)}")
    ahead = k if form.direct else 1
    solved = [_solve(_moments(y, form.lags, ahead, form.relative), form.ridge) for y in train.T]
    weights = [_matrix(fitted, y, form, k) for fitted, y in zip(solved, train.T, strict=True)]
    return Autoregression(form, np.stack(weights))


def fit_in_form(values: Floats, steps: int, form: AutoregressionOptions) -> Autoregression | None:
    """Fit an autoregression to values (n, C) with the lags of the form, or as many as the values allow.

    Return None if there are too few values for one lag.
    """
    lags = min(form.lags, (len(values) - 2 - (steps - 1 if form.direct else 0)) // 2)
    return fit_autoregression(values, steps, form._replace(lags=lags)) if lags > 0 else None


def fit_autoregressions(
    series: Sequence[Floats], k: int, seasons: Sequence[int], fitted: Sequence[int] | None = None
) -> list[Autoregression | None]:
    """Fit linear autoregressions to several series (T, C), with common options.

    fitted   number of first values of each series to fit to; the options are those that forecast the rest best. By
             default all values are fitted, and the options are those that forecast the last fifth best.
    A shorter series uses fewer lags; None if it is too short for any.
    """
    form = choose_autoregression(series, k, seasons, fitted)
    return [fit_in_form(values[:n], k, form) for values, n in zip(series, fitted or map(len, series), strict=True)]


def choose_autoregression(
    series: Sequence[Floats], k: int, seasons: Sequence[int], fitted: Sequence[int] | None = None
) -> AutoregressionOptions:
    """Return the options with the smallest mean squared error, in standard deviations, over all series.

    A series too short for a number of lags counts with the largest number it allows.
    """
    errors: dict[AutoregressionOptions, list[float]] = {}
    choices = candidate_lags(seasons)
    for values, n in zip(series, fitted or [_all_but_last(len(values), k) for values in series], strict=True):
        at = origins(n, len(values), k)
        most = min(MAX_SELECTION_ORIGINS, MAX_SELECTION_VALUES // k)
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
    return max(n - max(round(SELECTION_FRACTION * n), min(k, n // 3)), 1)


def candidate_lags(seasons: Sequence[int]) -> tuple[int, ...]:
    """Return candidate numbers of lags: a few, and slightly more than one, two or four seasons."""
    found = {n * season + 1 for season in seasons for n in (1, 2, 4) if season > 1 and n * season <= MAX_LAGS}
    return tuple(sorted({1, 2, 4, 8, *(found or {16, 32})}))


def _candidates(
    train: Floats, k: int, choices: Sequence[int]
) -> Iterator[tuple[AutoregressionOptions, Autoregression]]:
    """Yield all candidate models; those with fewer lags use parts of the same sums of products."""
    for relative in (False, True) if choices else ():
        sums = [_moments(y, choices[-1], k, relative) for y in train.T]
        for lags, ridge in itertools.product(choices, RIDGES):
            solved = [_solve(part.of(lags), ridge) for part in sums]
            for direct in (False, True):
                form = AutoregressionOptions(lags, direct, relative, ridge)
                weights = [_matrix(fitted, y, form, k) for fitted, y in zip(solved, train.T, strict=True)]
                yield form, Autoregression(form, np.stack(weights))


class _Moments(NamedTuple):
    """Sums of products of the inputs (1 and the last values, oldest first) and of the targets."""

    inputs: Floats
    """(1 + lags, 1 + lags)"""
    targets: Floats
    """(1 + lags, k)"""
    least: float
    """Sums of squares below this are rounding errors and carry no information."""

    def of(self, lags: int) -> _Moments:
        """Return the moments of fewer lags."""
        kept = np.r_[0, len(self.inputs) - lags : len(self.inputs)]
        return _Moments(self.inputs[np.ix_(kept, kept)], self.targets[kept], self.least)


def _moments(series: Floats, lags: int, k: int, relative: bool) -> _Moments:
    """Return the moments of a series minus its mean, which avoids cancellation in sums of large squares.

    Only the first row of G_ij = Σ_t z_{t+i} z_{t+j} is summed over all n windows: G_{i+1,j+1} is G_ij plus one product
    at the end and minus one at the start.
    """
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
    """Return the least-squares weights (1 + lags, k); the intercept is not penalised, and inputs are standardised."""
    n, mean = sums.inputs[0, 0], sums.inputs[0] / sums.inputs[0, 0]
    inputs = (sums.inputs - n * np.outer(mean, mean))[1:, 1:]
    targets = (sums.targets - np.outer(mean, sums.targets[0]))[1:]
    squares = inputs.diagonal()
    spread = np.sqrt(np.where(squares > sums.least, squares, np.inf))
    correlations = inputs / np.outer(spread, spread) + max(ridge, MIN_RIDGE) * np.eye(len(spread))
    weights = np.linalg.solve(correlations, targets / spread[:, None]) / spread[:, None]
    return np.concatenate([(sums.targets[0] / n - mean[1:] @ weights)[None], weights])


def _matrix(fitted: Floats, series: Floats, form: AutoregressionOptions, k: int) -> Floats:
    """Return weights (1 + lags, k) for the series itself, from weights for the series minus its mean."""
    fitted = (fitted if form.direct else fitted[:, :1]).copy()
    if form.relative:  # to values less the last one: that is put back
        fitted[-1] += 1 - fitted[1:].sum(0)
    fitted[0] += series.mean() * (1 - fitted[1:].sum(0))
    return fitted if form.direct else _iterated(fitted[:, 0], k)


def _iterated(phi: Floats, k: int) -> Floats:
    """Return weights (1 + lags, k) of the iterated recurrence c, φ (oldest first), one unit input at a time."""
    lags = len(phi) - 1
    path = np.zeros((lags + k, 1 + lags))
    path[:lags, 1:] = np.eye(lags)
    for t in range(lags, lags + k):
        path[t] = phi[1:] @ path[t - lags : t]
        path[t, 0] += phi[0]
    return path[lags:].T


WINDOW_HORIZONS = (4, 8, 16, 24)
"""Window lengths in multiples of the horizon."""

MIN_WINDOW = 20
"""Least number of values of a window, or a quarter of the median length; the first value is repeated before it."""

MAX_WINDOWS = 1000
"""Largest number of windows of a series: the last ones."""

RIDGE = 1e-3
"""Fraction of the mean square of the inputs."""


@dataclass(frozen=True)
class SharedAutoregression:
    """Linear autoregression with weights shared by all series, averaged over several window lengths."""

    weights: tuple[Floats, ...]
    """For each window, (1 + lags, k): weights of 1 and of its values, oldest first; those of the last value are 0."""
    log: bool = False

    name: ClassVar[str] = "shared linear autoregression"

    def __call__(self, values: Floats, at: Ids, k: int) -> Floats:
        """Return forecasts (N, k, C) for values (T, C) without gaps."""
        z = np.log(values) if self.log else values
        made = [_forecasts(z, at, weights[:, :k]) for weights in self.weights]
        found: Floats = np.mean([np.exp(np.minimum(one, 700.0)) if self.log else one for one in made], axis=0)
        return found


def fit_shared(series: Sequence[Floats], k: int, lags: Sequence[int] = (), log: bool = False) -> SharedAutoregression:
    """Fit to series (T, C) without gaps; with `log`, to the logarithms of positive series.

    lags   window lengths; by default multiples of the horizon
    """
    usual = int(np.median([len(values) for values in series]))
    lags = lags or sorted({max(min(n * k, usual), 2) for n in WINDOW_HORIZONS})
    seen = [np.log(values) if log else values for values in series]
    shortest = max(min(MIN_WINDOW, usual // 4), 2)
    return SharedAutoregression(tuple(_fit(seen, k, n, shortest) for n in lags), log)


def prefers_logarithms(series: Sequence[Floats], k: int, fitted: Sequence[int]) -> bool:
    """Return True if a model of the logarithms forecasts the k values after the fitted ones better.

    The measure is the mean absolute error in units of MASE, for one window length.
    """
    if not all(bool((values > 0).all()) for values in series):
        return False
    first = [values[:n] for values, n in zip(series, fitted, strict=True)]
    lags = [max(min(WINDOW_HORIZONS[1] * k, int(np.median(fitted))), 2)]
    plain, logs = (_error(fit_shared(first, k, lags, log), series, k, fitted) for log in (False, True))
    return logs < plain


def _fit(series: Sequence[Floats], k: int, lags: int, shortest: int) -> Floats:
    products, targets = np.zeros((1 + lags, 1 + lags)), np.zeros((1 + lags, k))
    for z in series:
        at = np.arange(shortest, len(z) - k + 1)[-MAX_WINDOWS:]
        for part in blocks(at, (lags + k) * z.shape[1]):
            past, last, unit = _normalised(z, part, lags)
            moved = unit[:, 0] > 0  # a window that stood still has no unit
            x = past.transpose(0, 2, 1)[moved]
            y = ((windows(z, part, k) - last) / np.where(unit > 0, unit, 1.0)).transpose(0, 2, 1)[moved]
            design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
            products += design.T @ design / len(at) ** 0.5
            targets += design.T @ y / len(at) ** 0.5
    if not products[0, 0]:
        raise OptionError(f"no series has a window of {shortest} values that are not all equal, followed by {k} values")
    ridge = RIDGE * np.trace(products[1:, 1:]) / lags
    weights = np.zeros((1 + lags, k))  # the last value less itself is nothing, and has no weight
    weights[:-1] = np.linalg.solve(products[:-1, :-1] + ridge * np.eye(lags), targets[:-1])
    return weights


def _forecasts(z: Floats, at: Ids, weights: Floats) -> Floats:
    past, last, unit = _normalised(z, at, len(weights) - 1)
    made = (past.transpose(0, 2, 1) @ weights[1:] + weights[0]).transpose(0, 2, 1)
    found: Floats = last + unit * made
    return found


def _error(model: SharedAutoregression, series: Sequence[Floats], k: int, fitted: Sequence[int]) -> float:
    """Return the mean error of forecasts of the values after the fitted ones; each series counts equally."""
    errors = []
    for values, n in zip(series, fitted, strict=True):
        if 2 <= n < len(values):
            at = np.array([n])
            error = np.abs(model(values, at, k) - windows(values, at, k)) / mase_scales(values[:n], 1)
            errors += [float(np.nanmean(error))] if not np.isnan(error).all() else []
    return float(np.mean(errors)) if errors else np.inf


def _normalised(z: Floats, at: Ids, lags: int) -> tuple[Floats, Floats, Floats]:
    """Return the window before each origin (N, lags, C), its last value and its scale (N, 1, C), 0 if constant."""
    past = histories(z, at, lags)
    last, unit = past[:, -1:], past.std(1, keepdims=True)
    unit = np.where(unit > 1e-9 * np.abs(past).max(1, keepdims=True), unit, 0.0)
    return (past - last) / np.where(unit > 0, unit, 1.0), last, unit

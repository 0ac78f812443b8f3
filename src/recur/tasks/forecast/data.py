"""Series of the forecast task: reading, columns, scaled rows, and batches of windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, cast

import numpy as np
import torch
from torch import Tensor

from recur.baselines.forecasts import AutoregressionOptions, choose_autoregression, fit_in_form
from recur.data.csv_files import parse_number
from recur.data.reading import Reading
from recur.data.series import Panel, Series, SeriesColumns, TimeFeature, fill, join_panels, parse_panel, read_panel
from recur.data.text.stream import FULL_BATCH, Floats, ProcessShard
from recur.errors import RunError, TextError
from recur.models.forecaster import SeriesBatch
from recur.runs import Vocabs
from recur.tasks.common.classification import class_names
from recur.tasks.common.splits import reading_of
from recur.tasks.forecast.options import ForecastOptions


def read_series(o: ForecastOptions, reading: Reading | None = None) -> tuple[Panel, int]:
    """Read the series that options name, and return how many values of each are test data.

    All series hold out as many values as the shortest, so that no test value is used for training.
    """
    reading = reading or reading_of(o)
    panel = read_panel(o.texts, columns_of(o), reading)
    if not o.test:
        return panel, 0
    test = read_panel(o.test, columns_of(o), reading)
    both = join_panels(panel, test)
    ahead = min(len(whole) - len(one) for whole, one in zip(both.series, panel.series, strict=True))
    cut = (whole.until(len(one) + ahead) for whole, one in zip(both.series, panel.series, strict=True))
    return replace(both, series=tuple(cut)), ahead


def columns_of(o: ForecastOptions) -> SeriesColumns:
    return SeriesColumns(o.target, o.covariates, o.past_covariates, o.static, o.date, o.id, o.layout)


def parse_series(o: ForecastOptions, lines: Iterable[str], name: str, reading: Reading | None = None) -> Panel:
    """Parse the lines of a table, as the training files were read."""
    return parse_panel(lines, name, columns_of(o), reading or reading_of(o, prior=True))


def check_lists(vocabs: Vocabs) -> None:
    if missing := next((name for name in ("columns", "known", "past") if name not in vocabs), None):
        raise RunError(f"the run has no list {missing!r} of what its network reads: an older one; train it again")


def as_learned(panel: Panel, vocabs: Vocabs, s: RowSettings) -> Panel:
    """Return the panel with the categories of training; raise an error if its columns differ from those of training.

    A category that training did not have counts as missing.
    """
    check_lists(vocabs)
    own, columns = (*panel.targets, *panel.future), class_names(vocabs["columns"])
    if own != columns:
        raise TextError(
            f"{panel.name} has the columns {', '.join(own)}, where what was learned from has {', '.join(columns)}"
        )
    known = class_names(vocabs["known"])
    panel = _with_categories(panel, known)
    for names, learned in ((known_names(panel, s), known), (past_names(panel, s), class_names(vocabs["past"]))):
        if tuple(names) != learned:
            raise TextError(f"{panel.name} {_difference(names, learned)}; its columns and dates must be alike")
    return panel


def _difference(own: Sequence[str], learned: Sequence[str]) -> str:
    missing, more = ([name.strip() for name in a if name not in b] for a, b in ((learned, own), (own, learned)))
    if not missing and not more:
        return f"has its inputs in another order than what was learned from: {', '.join(learned)}"
    said = [f"lacks the inputs {', '.join(missing)} of what was learned from"] if missing else []
    return " and ".join([*said, *([f"has the inputs {', '.join(more)}, which that did not have"] if more else [])])


def _with_categories(panel: Panel, known: Sequence[str]) -> Panel:
    static = np.array([one.static for one in panel.series], dtype=np.float64).reshape(len(panel), len(panel.static))
    categories = dict(panel.categories)
    for k, column in enumerate(panel.static):
        learned = _words(column, panel.static, known)
        if learned and learned != ("",):
            static[:, k] = _places(static[:, k], panel.categories.get(column), learned)
            categories[column] = learned
    series = tuple(replace(one, static=row) for one, row in zip(panel.series, static, strict=True))
    return replace(panel, series=series, categories=categories)


def _words(column: str, columns: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the categories of a static column as `known_names` writes them; ("",) for a column of numbers."""
    start = f"static {column} "
    longer = tuple(f"static {other} " for other in columns if other.startswith(f"{column} "))
    return tuple(name.removeprefix(start) for name in known if name.startswith(start) and not name.startswith(longer))


def _places(values: Floats, words: tuple[str, ...] | None, learned: tuple[str, ...]) -> Floats:
    """Of values in the list that was learned, NaN for what is not in it. Where all words of a table happen to be
    numbers, it holds those."""
    if words is None:
        at = {parse_number(word): float(k) for k, word in enumerate(learned)}
        return np.array([at.get(float(value), np.nan) for value in values])
    moved = [float(learned.index(word)) if word in learned else np.nan for word in words]
    return np.array([np.nan if np.isnan(value) else moved[int(value)] for value in values])


class RowSettings(NamedTuple):
    """Settings that rows are built with."""

    horizon: int
    """Steps that stand behind the last value, for what is known of them."""
    season: int
    steps: int
    """How many the model forecasts at once."""
    back: int = 0
    """Steps in a window."""
    mix: bool = False
    calendar: bool = False
    transform: str = "none"
    scale: str = "deviation"
    linear: bool = False
    gaps: bool = False
    """Whether where values were missing is an input."""
    clock: TimeFeature | None = None
    """The time, where it is an input."""


class Scale(NamedTuple):
    """Scaling of values: (f(y) − mean) / unit, f the identity or the logarithm; (V,) each."""

    mean: Floats
    unit: Floats
    log: bool
    least: Floats
    """Smallest possible value: 0 for a series that was never negative, else −∞."""

    @classmethod
    def of(cls, values: Floats, s: RowSettings) -> Self:
        """Fit the scaling to values (n, V), NaN where nothing was observed."""
        least = np.where((values < 0).any(0), -np.inf, 0.0)
        values = np.log(values) if s.transform == "log" else values
        V = values.shape[1]
        mean, unit = np.zeros(V), np.ones(V)
        for k in range(V):
            seen = values[~np.isnan(values[:, k]), k]
            if not len(seen):
                continue
            if s.scale == "mean":  # counts stay counts
                unit[k] = np.abs(seen).mean()
                continue
            mean[k], unit[k] = seen.mean(), seen.std()
            if s.scale == "changes" and len(seen) > 1:
                unit[k] = np.abs(np.diff(seen)).mean()
        return cls(
            mean, np.where(unit > 1e-12 * np.maximum(np.abs(mean), 1e-30), unit, 1.0), s.transform == "log", least
        )

    def forward(self, values: Floats) -> Floats:
        return ((np.log(values) if self.log else values) - self.mean) / self.unit

    def back(self, scaled: Floats) -> Floats:
        """Undo the scaling of (…, V, Q)."""
        values = scaled * self.unit[:, None] + self.mean[:, None]
        values = np.exp(np.minimum(values, 700.0)) if self.log else values
        return np.maximum(values, self.least[:, None])


@dataclass(frozen=True, eq=False)
class SeriesRows:
    """Rows of all series in one tensor, each with `front` steps of padding before and `horizon` steps after it.

    Rows compare equal only to themselves, because captured CUDA graphs read them at their addresses.
    """

    values: Tensor
    """(steps, V): filled, and scaled."""
    targets: Tensor
    """(steps, V): NaN where nothing was observed, and beyond the end."""
    known: Tensor
    """(steps, C)"""
    past: Tensor
    """(steps, P)"""
    offset: Tensor
    """(R,): where the first value of each row stands."""
    unit: Tensor
    """(R, V)"""
    channel: Tensor
    """(R,)"""
    linear: Tensor | None
    """(R, V, 1 + lags, steps)"""
    lengths: tuple[int, ...]
    front: int
    """As long as anything looks back."""
    series: tuple[int, ...]
    """Which series of the panel each row is of."""
    scales: tuple[Scale, ...]
    form: AutoregressionOptions | None
    """Of the linear autoregressions."""
    zeros: tuple[np.ndarray, ...] = ()
    """For each row, (T + horizon, V): steps at which the value is known to be 0."""
    moved: dict[str, SeriesRows] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.lengths)

    def on(self, device: torch.device) -> SeriesRows:
        """Return the rows on a device; they are copied once."""
        if device.type == "cpu":
            return self
        if str(device) not in self.moved:
            self.moved[str(device)] = self._on(device)
        return self.moved[str(device)]

    def _on(self, device: torch.device) -> SeriesRows:
        return replace(
            self,
            values=self.values.to(device),
            targets=self.targets.to(device),
            known=self.known.to(device),
            past=self.past.to(device),
            offset=self.offset.to(device),
            unit=self.unit.to(device),
            channel=self.channel.to(device),
            linear=None if self.linear is None else self.linear.to(device),
        )

    def seen(self, rows: Tensor, ends: Tensor, back: int, ahead: int) -> SeriesBatch:
        """Return `back` values up to steps `ends` (B,) of rows (B,), with covariates of these and of `ahead` more
        steps.

        Values behind the end of a row are undefined.
        """
        steps = (self.offset[rows] + ends)[:, None] + torch.arange(1 - back, ahead + 1, device=rows.device)
        steps = steps.clamp_max(len(self.values) - 1)
        past = steps[:, :back]
        known, at = self.known[steps], self.channel[rows]
        return SeriesBatch(self.values[past], known, self.past[past], at, rows, self.linear)

    def coming(self, rows: Tensor, ends: Tensor, back: int, ahead: int) -> Tensor:
        """Return the values that follow each of these steps, (B, back, ahead, V)."""
        steps = (self.offset[rows] + ends)[:, None] + torch.arange(2 - back, ahead + 1, device=rows.device)
        return self.targets[steps].unfold(1, ahead, 1).transpose(2, 3)


def make_rows(
    panel: Panel,
    scaled_by: Sequence[int],
    fitted_on: Sequence[int],
    s: RowSettings,
    form: AutoregressionOptions | Sequence[int],
) -> SeriesRows:
    """Build rows, scaled by the first values of each series, with linear autoregressions fitted to the first values.

    `form` is the form of the autoregression, or up to which value a form is chosen.
    """
    own: list[tuple[Floats, Floats, Floats, Floats]] = []
    linear, fitted, lengths, numbers, scales, channels, zeros = [], [], [], [], [], [], []
    for k, (one, n, m) in enumerate(zip(panel.series, scaled_by, fitted_on, strict=True)):
        _check_values(panel, one, s)
        zero = zero_steps(one, n, s)
        scale = Scale.of(one.values[:n], s)
        seen = m if isinstance(form, AutoregressionOptions) else form[k]
        scaled, filled = scale.forward(one.values), scale.forward(fill(one.values, s.season))
        known, past = _known(panel, one, n, s), _past(one, n, s.gaps)
        V = filled.shape[1]
        for variables in [list(range(V))] if s.mix else [[v] for v in range(V)]:
            own.append((filled[:, variables], scaled[:, variables], known, past))
            linear.append(filled[:seen, variables])
            fitted.append(m)
            lengths.append(len(one))
            numbers.append(k)
            channels.append(0 if s.mix else variables[0])
            scales.append(Scale(scale.mean[variables], scale.unit[variables], scale.log, scale.least[variables]))
            zeros.append(zero[:, variables])
    chosen: AutoregressionOptions | None = None
    if s.linear:
        seasons = (s.season,) if s.season > 1 else ()
        chosen = (
            form if isinstance(form, AutoregressionOptions) else choose_autoregression(linear, s.steps, seasons, fitted)
        )
        linear = [values[:m] for values, m in zip(linear, fitted, strict=True)]
    weights = None if chosen is None else _autoregressions(linear, s.steps, chosen)
    front = s.back + s.season + (0 if weights is None else weights.shape[2])

    def joined(which: int) -> Tensor:
        parts = []
        for row in own:
            part = row[which]
            before, behind = np.repeat(part[:1], front, 0), np.repeat(part[-1:], len(row[2]) - len(part), 0)
            if which == 1:
                before, behind = np.full_like(before, np.nan), np.full_like(behind, np.nan)
            parts.append(np.concatenate([before, part, behind]))
        return torch.from_numpy(np.concatenate(parts)).float()

    whole = np.array([front + T + s.horizon for T in lengths])
    return SeriesRows(
        joined(0),
        joined(1),
        joined(2),
        joined(3),
        torch.from_numpy(np.cumsum(whole) - whole + front),
        torch.from_numpy(np.stack([scale.unit for scale in scales])).float(),
        torch.tensor(channels),
        weights,
        tuple(lengths),
        front,
        tuple(numbers),
        tuple(scales),
        chosen,
        tuple(zeros),
    )


CLOSED = 3
"""Least number of times that a day must have been 0 to count as always 0."""


def zero_steps(one: Series, n: int, s: RowSettings) -> np.ndarray:
    """Return the steps (T + horizon, V) at which a series is always 0, such as Sundays and holidays of a shop.

    A step is one if its phase of the season, or its value of a covariate with two values, was always 0 in the first n
    values, at least CLOSED times, and other steps were not.
    """
    length, V = len(one) + s.horizon, one.values.shape[1]
    found = np.zeros((length, V), bool)
    groups: list[Floats] = [(one.start + np.arange(length, dtype=np.float64)) % s.season] if s.season > 1 else []
    for column in np.asarray(one.future, np.float64).T:
        if len(np.unique(column[~np.isnan(column)])) == 2:
            groups.append(np.concatenate([column, np.full(max(length - len(column), 0), np.nan)])[:length])
    for v in range(V):
        values = one.values[:n, v]
        seen = ~np.isnan(values)
        if not (values[seen] != 0).any():
            continue
        for group in groups:
            for value in np.unique(group[~np.isnan(group)]):
                mine = values[seen & (group[:n] == value)]
                if len(mine) >= CLOSED and not mine.any():
                    found[group == value, v] = True
    return found


def known_names(panel: Panel, s: RowSettings) -> list[str]:
    """Return the names of the covariates that are known ahead."""
    names = [f"covariate {name}" for name in panel.future]
    names += ["season, sine", "season, cosine"] if s.season > 1 else []
    names += [f"calendar, {name}" for name in panel.calendar_names("circle")] if s.calendar else []
    for name in panel.static:
        names += [f"static {name} {word}" for word in panel.categories.get(name, ("",))]
    return [*names, *(["time"] if s.clock is not None else [])]


def past_names(panel: Panel, s: RowSettings) -> list[str]:
    """Return the names of the covariates that are known up to now."""
    return [*(f"covariate {name}" for name in panel.past), *(["gaps"] if s.gaps else [])]


def _known(panel: Panel, one: Series, n: int, s: RowSettings) -> Floats:
    """Return the covariates known ahead, (T + horizon, C), scaled by their first n rows.

    They are the columns of the file, the phase of the season, the calendar, static columns and the time.
    """
    length = len(one) + s.horizon
    columns = [_standardised(one.future, n, length)]
    if s.season > 1:
        angle = 2 * np.pi * (one.start % s.season + np.arange(length)) / s.season
        columns.append(np.column_stack([np.sin(angle), np.cos(angle)]))
    if s.calendar:
        columns.append(panel.calendar(one, length, "circle"))
    for name, value in zip(panel.static, one.static, strict=True):
        words = panel.categories.get(name)
        fixed = np.arcsinh(np.nan_to_num([value])) if words is None else (np.arange(len(words)) == value).astype(float)
        columns.append(np.repeat(fixed[None], length, 0))
    if s.clock is not None:
        columns.append(s.clock.read(one.start, length)[:, None])
    return np.concatenate(columns, axis=1)


def _past(one: Series, n: int, gaps: bool) -> Floats:
    """Return the covariates known up to now, (T, P), scaled by their first n rows, and flags of missing values."""
    missing = np.isnan(one.values).any(1, keepdims=True).astype(float)
    return np.concatenate([_standardised(one.past, n, len(one)), missing[:, : int(gaps)]], axis=1)


def _standardised(columns: Floats, n: int, length: int) -> Floats:
    """Return (length, columns) without gaps; the last values are repeated behind the end."""
    if not columns.shape[1]:
        return np.zeros((length, 0))
    filled = fill(columns)[:length]
    spread = filled[:n].std(0)
    scaled = (filled - filled[:n].mean(0)) / np.where(spread > 0, spread, 1.0)
    return np.concatenate([scaled, np.repeat(scaled[-1:], length - len(scaled), 0)])


def _autoregressions(first: Sequence[Floats], steps: int, form: AutoregressionOptions) -> Tensor:
    """(R, V, 1 + lags, steps), fitted to the first values (n, V) of each row: of the lags of a form, or of as many as a
    short row has values for; with none it is the naive forecast."""
    weights = np.zeros((len(first), first[0].shape[1], 1 + form.lags, steps))
    weights[:, :, -1] = 1.0
    for row, values in enumerate(first):
        fitted = fit_in_form(values, steps, form)
        if fitted is not None:
            weights[row] = 0.0
            weights[row, :, 0] = fitted.weights[:, 0]
            weights[row, :, 1 + form.lags - fitted.form.lags :] = fitted.weights[:, 1:]
    return torch.from_numpy(weights).float()


def _check_values(panel: Panel, one: Series, s: RowSettings) -> None:
    if s.transform == "log" and (one.values <= 0).any():
        row, column = np.argwhere(one.values <= 0)[0]
        where = f"{panel.name}: {one.id}: row {row + 1}: {panel.targets[column]} is {one.values[row, column]:g}"
        raise TextError(f"{where}, which has no logarithm; leave --transform log away")
    if s.scale == "mean" and ((one.values < 0).any() or (np.mod(one.values[one.observed], 1) != 0).any()):
        raise TextError(
            f"{panel.name}: {one.id} has values that are no counts, which --distribution negative-binomial is for"
        )


EPOCH = 50
"""Batches that an epoch has at least: it passes over a short series several times."""


class SeriesWindows(NamedTuple):
    """Batch of windows: the rows, and the last steps of the windows."""

    rows: SeriesRows
    which: Tensor
    """(B,)"""
    ends: Tensor
    """(B,)"""
    back: int
    """Steps in each."""


@dataclass(frozen=True)
class SeriesWindowBatches:
    """Windows that end at steps first … last − 1 of each row, one in `stride`, with another offset per epoch."""

    rows: SeriesRows
    first: Sequence[int]
    last: Sequence[int]
    back: int
    batch: int
    seed: int
    stride: int = 1
    balance: float = 0.0
    share: ProcessShard = FULL_BATCH

    def shared(self, share: ProcessShard) -> Self:
        return replace(self, share=share)

    @property
    def quotas(self) -> np.ndarray:
        """Return the number of windows of each row in an epoch, (R,)."""
        counts = np.maximum(np.subtract(self.last, self.first), 0)
        if not counts.any():
            return counts
        shares = np.where(counts > 0, counts, 1) ** (1.0 - self.balance) * (counts > 0)
        total = max(counts.sum() / self.stride, EPOCH * self.batch)
        return np.where(counts > 0, np.maximum(np.round(shares * total / shares.sum()), 1), 0).astype(np.int64)

    def __len__(self) -> int:
        return -(-int(self.quotas.sum()) // self.batch)

    def batches(self, epoch: int = 0, skip: int = 0) -> Iterator[SeriesWindows]:
        draw = np.random.default_rng((self.seed, epoch))
        which, ends = [], []
        for row, quota in enumerate(self.quotas):
            if quota:
                count = self.last[row] - self.first[row]
                order = np.concatenate([draw.permutation(count) for _ in range(-(-quota // count))])[:quota]
                which.append(np.full(quota, row))
                ends.append(self.first[row] + order)
        order = draw.permutation(sum(map(len, which)))
        rows, steps = np.concatenate(which)[order], np.concatenate(ends)[order]
        for k in range(skip, len(self)):
            part = slice(k * self.batch, (k + 1) * self.batch)
            of, to = (torch.from_numpy(found[part][self.share.each()]) for found in (rows, steps))
            yield SeriesWindows(self.rows, of, to, self.back) if len(of) else cast(SeriesWindows, None)

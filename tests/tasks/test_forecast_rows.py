"""Rows of numbers made of panels: scaled by what was learned from, nothing before its time; and batches of windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from recur.baselines.forecasts import AutoregressionOptions
from recur.data.series import Panel, parse_panel
from recur.data.series.reading import SeriesColumns
from recur.tasks.forecast.data import (
    EPOCH,
    RowSettings,
    Scale,
    SeriesRows,
    SeriesWindowBatches,
    known_names,
    make_rows,
    past_names,
)

BASE = RowSettings(horizon=3, season=4, steps=3, back=5)


def panel(seed: int = 0, T: int = 40) -> Panel:
    draw = np.random.default_rng(seed)
    lines = ["t,a,b,x,p"]
    for t in range(T):
        a, b, x, p = draw.normal(size=4)
        lines.append(f"{t},{'' if t == 7 else f'{a + 5:.4f}'},{b:.4f},{x:.4f},{p:.4f}")
    return parse_panel(lines, "y.csv", SeriesColumns(targets=("a", "b"), future=("x",), past=("p",)))


def rows(given: Panel, s: RowSettings = BASE, n: int = 25, m: int = 30) -> SeriesRows:
    return make_rows(given, [n], [n], s, [m])


def test_a_row_is_a_variable_or_the_whole_series() -> None:
    given = panel()
    each, mixed = rows(given), rows(given, BASE._replace(mix=True))
    assert (len(each), len(mixed)) == (2, 1)
    assert each.channel.tolist() == [0, 1]
    values = given.series[0].values
    for row, k in ((0, 0), (1, 1)):
        at = int(each.offset[row])
        own = values[:, k]
        mean, spread = np.nanmean(own[:25]), np.nanstd(own[:25])
        targets = each.targets[at : at + 40, 0].numpy()
        np.testing.assert_allclose(targets, (own - mean) / spread, rtol=1e-5, atol=1e-6)
        assert torch.isnan(each.targets[at + 40 : at + 43]).all()
        assert torch.isnan(each.targets[at - each.front : at]).all()
        assert not torch.isnan(each.values[at - each.front : at + 43]).any()
        assert bool((each.values[at - each.front : at] == each.values[at]).all())
    both = mixed.targets[int(mixed.offset[0]) : int(mixed.offset[0]) + 40]
    at = int(each.offset[1])
    torch.testing.assert_close(both[:, 1], each.targets[at : at + 40, 0])


def test_what_comes_later_changes_nothing_before() -> None:
    given = panel()
    one = given.series[0]
    changed = one.values.copy()
    changed[30:] += 100
    later = replace(given, series=(replace(one, values=changed, past=one.past + (np.arange(40) >= 30)[:, None]),))
    settings = BASE._replace(linear=True, gaps=True)
    a, b = rows(given, settings), rows(later, settings)
    seen = slice(0, int(a.offset[0]) + 30)
    for name in ("values", "known", "past"):
        assert torch.equal(getattr(a, name)[seen], getattr(b, name)[seen])
    assert a.linear is not None
    assert b.linear is not None
    assert torch.equal(a.linear, b.linear)
    assert a.form == b.form


def test_windows_and_what_follows_them() -> None:
    made = rows(panel())
    seen = made.seen(torch.tensor([0, 1]), torch.tensor([12, 20]), 5, 3)
    assert seen.values.shape == (2, 5, 1)
    assert seen.known.shape == (2, 8, 3)
    at = int(made.offset[1])
    assert torch.equal(seen.values[1], made.values[at + 16 : at + 21])
    coming = made.coming(torch.tensor([0, 1]), torch.tensor([12, 20]), 2, 3)
    assert coming.shape == (2, 2, 3, 1)
    assert torch.equal(coming[1, 0], made.targets[at + 20 : at + 23])
    assert torch.equal(coming[1, 1], made.targets[at + 21 : at + 24])
    names = known_names(panel(), BASE)
    assert names == ["covariate x", "season, sine", "season, cosine"]
    assert past_names(panel(), BASE._replace(gaps=True)) == ["covariate p", "gaps"]


def test_autoregressions_of_a_form_and_of_series_too_short_for_it() -> None:
    lines = [
        "id,t,y",
        *(f"s{k},{t},{(t * (k + 1)) % 5 + 0.1 * t:.2f}" for k in range(2) for t in range(40 if k else 9)),
    ]
    given = parse_panel(lines, "y.csv", SeriesColumns(id="id", date="t"))
    made = make_rows(given, [9, 40], [9, 40], BASE._replace(linear=True), AutoregressionOptions(6, False, True, 0.0))
    assert made.linear is not None
    assert made.linear.shape == (2, 1, 7, 3)
    assert bool((made.linear[0, 0, 1:4] == 0).all())  # nine values are enough for three lags
    assert bool((made.linear[0, 0, 4:] != 0).all())


@pytest.mark.parametrize("kind", ["deviation", "changes", "mean"])
@pytest.mark.parametrize("log", [False, True])
def test_a_scale_goes_forth_and_back(kind: str, log: bool) -> None:
    values = np.random.default_rng(0).uniform(1, 9, (30, 2))
    values[4, 0] = np.nan
    scale = Scale.of(values, BASE._replace(scale=kind, transform="log" if log else "none"))
    there = scale.forward(values)
    np.testing.assert_allclose(scale.back(there[..., None])[..., 0], values, rtol=1e-12)
    own = there[:, 1]
    found = {"deviation": own.std(), "changes": np.abs(np.diff(own)).mean(), "mean": np.abs(own).mean()}[kind]
    assert found == pytest.approx(1.0)
    still = Scale.of(np.full((9, 1), 7.0), BASE._replace(scale=kind))
    assert np.isfinite(still.forward(np.array([[7.0], [8.0]]))).all()


def test_an_epoch_is_drawn_from_its_seed_and_holds_every_window() -> None:
    made = rows(panel(T=400), n=380)
    batches = SeriesWindowBatches(made, [4, 4], [377, 377], 5, 10, seed=3)
    epoch = list(batches.batches(2))
    assert len(epoch) == len(batches) >= EPOCH
    pairs = [(int(r), int(e)) for part in epoch for r, e in zip(part.which, part.ends, strict=True)]
    assert sorted(pairs) == [(r, e) for r in (0, 1) for e in range(4, 377)]
    rest = list(batches.batches(2, skip=20))
    assert all(torch.equal(a.ends, b.ends) for a, b in zip(epoch[20:], rest, strict=True))
    assert not torch.equal(epoch[0].ends, next(batches.batches(3)).ends)


def test_balance_between_all_windows_alike_and_all_series_alike() -> None:
    made = rows(panel(T=400), n=380)
    alike = SeriesWindowBatches(made, [4, 4], [29, 370], 5, 2, seed=0, balance=1.0).quotas
    assert alike[0] == alike[1]
    windows = SeriesWindowBatches(made, [4, 4], [29, 370], 5, 2, seed=0, balance=0.0).quotas
    assert windows.tolist() == [25, 366]
    between = SeriesWindowBatches(made, [4, 4], [29, 370], 5, 2, seed=0, balance=0.5).quotas
    assert windows[0] < between[0] < alike[0]
    assert SeriesWindowBatches(made, [4, 9], [29, 7], 5, 2, seed=0).quotas[1] == 0

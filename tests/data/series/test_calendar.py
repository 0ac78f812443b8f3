"""What dates tell by themselves, beside pandas; and dates that go on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recur.data.series import Frequency, calendar_features, calendar_names, parse_panel
from recur.data.series.dates import DAY, HOUR, MINUTE, WEEK, infer_frequency
from recur.errors import OptionError

HOURS, DAYS = Frequency("microseconds", HOUR), Frequency("microseconds", DAY)


def test_features_are_those_of_pandas() -> None:
    when = pd.date_range("2019-12-20 05:00", periods=2000, freq="h")
    places = when.values.astype("datetime64[us]").astype(np.int64)
    expected = np.column_stack(
        [when.hour / 23, when.day_of_week / 6, (when.day - 1) / 30, np.minimum((when.day_of_year - 1) // 7, 52) / 52]
    )
    assert calendar_names(HOURS) == ("hour of day", "day of week", "day of month", "week of year")
    assert calendar_features(places, HOURS) == pytest.approx(expected - 0.5)
    circle = calendar_features(places, HOURS, "circle")
    assert calendar_names(HOURS, "circle")[:2] == ("hour of day sin", "hour of day cos")
    assert circle[:, 0] == pytest.approx(np.sin(2 * np.pi * when.hour / 24))
    assert circle[:, 3] == pytest.approx(np.cos(2 * np.pi * when.day_of_week / 7))
    with pytest.raises(OptionError, match="scaled or circle"):
        calendar_features(places, HOURS, "square")


@pytest.mark.parametrize(
    ("frequency", "names", "seasons"),
    [
        (
            Frequency("microseconds", MINUTE),
            "minute of hour, hour of day, day of week, day of month",
            (60, 1440, 10080),
        ),
        (Frequency("microseconds", 15 * MINUTE), "minute of hour, hour of day, day of week, day of month", (96, 672)),
        (HOURS, "hour of day, day of week, day of month, week of year", (24, 168)),
        (DAYS, "day of week, day of month, week of year, month", (7, 365)),
        (Frequency("business days", 1), "day of week, day of month, week of year, month", (5, 261)),
        (Frequency("microseconds", WEEK), "day of month, week of year, month", (52,)),
        (Frequency("months", 1), "month", (12,)),
        (Frequency("months", 3), "month", (4,)),
        (Frequency("months", 12), "", ()),
        (Frequency("steps", 1), "", ()),
    ],
)
def test_what_varies_at_a_frequency(frequency: Frequency, names: str, seasons: tuple[int, ...]) -> None:
    assert ", ".join(calendar_names(frequency)) == names
    assert frequency.seasons == seasons


@pytest.mark.parametrize(
    ("begin", "rule"),
    [
        ("2020-01-31", "ME"), ("2019-11-01", "MS"), ("2020-02-01", "QS-FEB"), ("2020-03-02", "B"), ("2020-03-06", "B"),
        ("2020-03-04", "W-WED"), ("2020-02-28", "D"), ("2020-02-28 23:30", "30min"), ("1999-12-31", "h"),
        ("2016-02-29", "YE-FEB"), ("0001-01-01", "D"), ("1890-05-01", "MS"),
    ],
)  # fmt: skip
def test_dates_go_on_as_those_of_pandas(begin: str, rule: str) -> None:
    when = pd.date_range(np.datetime64(begin, "s"), periods=300, freq=rule, unit="s")
    places = when.values.astype("datetime64[us]").astype(np.int64)
    frequency = infer_frequency([places[:40]], "date")
    assert (frequency.places(int(places[0]), 300) == places).all()
    assert (frequency.places(int(places[0]), 5, 250) == places[250:255]).all()
    assert (frequency.steps(places) == np.arange(300)).all()
    begins = [frequency.step(int(place)) for place in places]
    assert (np.diff(begins) == 1).all()


def test_a_panel_has_the_features_of_its_dates_and_of_those_to_come() -> None:
    panel = parse_panel(["d,y", "2020-01,1", "2020-02,2"], "x.csv")
    (one,) = panel.series
    assert panel.calendar_names() == ("month",)
    assert panel.calendar(one, 13)[:, 0] == pytest.approx(np.r_[np.arange(12), 0] / 11 - 0.5)
    counted = parse_panel(["d,y", "1,1", "2,2"], "x.csv")
    assert counted.calendar(counted.series[0], 3).shape == (3, 0)
    bare = parse_panel(["y", "1", "2"], "x.csv")
    assert (bare.calendar(bare.series[0], 3).shape, bare.dates(bare.series[0]), bare.calendar_names()) == (
        (3, 0),
        (),
        (),
    )

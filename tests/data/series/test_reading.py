"""Panels from files of every layout: what is read, what is a gap, and what is refused, named with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recur.data.series import Panel, SeriesColumns, fill, join_panels, parse_panel, read_panel
from recur.errors import OptionError, TextError

DATA = Path(__file__).parents[4] / "shared" / "data"


def panel(text: str, **columns: object) -> Panel:
    return parse_panel(text.strip().split("\n"), "x.csv", SeriesColumns(**columns))  # type: ignore[arg-type]


def same(found: np.ndarray, expected: object) -> bool:
    return np.array_equal(found, np.array(expected, dtype=float), equal_nan=True)


NAN = np.nan
LONG = """
unique_id,ds,y,price,kind
a,2020-01-01,1,5,red
b,2020-01-02,7,6,blue
a,2020-01-03,3,6,red
a,2020-01-02,2,5,red
b,2020-01-04,9,,blue
"""


def test_a_wide_table_is_one_series_of_several_variables() -> None:
    found = panel("Date,A,B\n1949-11,1,10\n1949-12,,20\n1950-02,3,NA")
    (one,) = found.series
    assert (found.targets, one.id, len(one)) == (("A", "B"), "x", 4)
    assert same(one.values, [[1, 10], [NAN, 20], [NAN, NAN], [3, NAN]])
    assert one.observed.sum() == 4
    assert found.dates(one, 2, 3) == ("1950-01", "1950-02", "1950-03")


@pytest.mark.parametrize(
    ("table", "targets"),
    [
        ("sales,visits\n5,1\n3,2\n9,3", ("sales", "visits")),  # whole numbers in any order are values
        ("x1,x2\n0.5,1\n1.5,2\n2.5,3", ("x1", "x2")),
        ("sales,visits\n1,1\nNA,2\n3,3", ("sales", "visits")),
        ("sales,visits\n1,1\n1,2\n2,3", ("sales", "visits")),
        ("when,spots\n1700,5\n1701,3\n1702,9", ("spots",)),
        ("when,spots\n1702,5\n1701,3\n1700,9", ("spots",)),
        ("Year,spots\n1702,5\n1700,3\n1701,9", ("spots",)),
        ("when,spots\n1949-03,5\n1949-01,3\n1949-02,9", ("spots",)),
    ],
)
def test_the_first_column_is_a_date_only_where_it_looks_like_one(table: str, targets: tuple[str, ...]) -> None:
    assert panel(table).targets == targets


def test_a_long_table_is_a_series_an_id_in_any_order_of_rows() -> None:
    found = panel(LONG)
    a, b = found.series
    assert (found.targets, found.past, found.static) == (("y",), ("price",), ("kind",))
    assert found.categories == {"kind": ("blue", "red")}
    assert same(a.values, [[1], [2], [3]])
    assert same(b.values, [[7], [NAN], [9]])
    assert same(b.past, [[6], [NAN], [NAN]])
    assert (a.static.tolist(), b.static.tolist()) == ([1], [0])
    assert (b.start - a.start, found.dates(b)[0]) == (1, "2020-01-02")
    assert found.lengths.tolist() == [3, 3]


def test_what_stands_behind_the_last_value_is_known_ahead() -> None:
    text = "id,t,value,x\na,1,5,0\na,2,6,1\na,3,,2\na,4,,3\nb,1,4,0\nb,2,4,1"
    found = panel(text, future=("x",))
    a, b = found.series
    assert (len(a), a.ahead, b.ahead) == (2, 2, 0)
    assert same(a.future, [[0], [1], [2], [3]])
    assert len(a.until(1)) == 1
    assert a.until(1).ahead == 3
    assert found.without(1).lengths.tolist() == [1, 1]


def test_a_row_a_series_of_any_length() -> None:
    found = panel('"V1","V2","V3","V4"\n"W1","1","2","3"\n"W2","4",,"6"\n"W3","7"\n"W4","8",""')
    assert [one.id for one in found.series] == ["W1", "W2", "W3", "W4"]
    assert found.lengths.tolist() == [3, 3, 1, 1]
    assert same(found.series[1].values, [[4], [NAN], [6]])
    assert found.frequency is None
    dated = panel("id,2020-01,2020-02,2020-04\na,1,2,3\nb,,,5")
    assert same(dated.series[0].values, [[1], [2], [NAN], [3]])
    assert dated.dates(dated.series[1]) == ("2020-04",)
    assert panel("name,one,two\n1,5,6\n2,7,8", layout="rows").lengths.tolist() == [2, 2]


def test_rows_may_stand_in_any_order() -> None:
    found = panel("Date,y\n2020-03,3\n2020-02,2\n2020-01,1")  # the newest first, as banks write them
    assert same(found.series[0].values, [[1], [2], [3]])
    found = panel("id,2020-03,2020-02,2020-01\na,3,2,1\nb,,5")
    assert same(found.series[0].values, [[1], [2], [3]])
    assert found.dates(found.series[1]) == ("2020-02",)


def test_ids_without_their_usual_name_are_seen_by_dates_that_repeat() -> None:
    found = panel("when,shop,sold\n2020-01,a,1\n2020-01,b,2\n2020-02,a,3\n2020-02,b,4")
    assert [one.id for one in found.series] == ["a", "b"]
    assert panel("shop,sold\na,1\na,2\nb,3", id="shop").lengths.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("dates", "name", "then"),
    [
        ("1 2 3", "steps", "4"),
        ("2001 2003 2007", "2 steps", "2009"),
        ("2020-01 2020-02 2020-04", "months", "2020-05"),
        ("2020-11 2021-02 2021-05", "quarters", "2021-08"),
        ("2020-01-31 2020-02-29 2020-03-31", "months", "2020-04-30"),
        ("2020-01-15 2020-02-15 2020-03-15", "months", "2020-04-15"),
        ("2019-02-01 2020-02-01 2021-02-01", "years", "2022-02-01"),
        ("2020-02-28 2020-02-29 2020-03-02", "days", "2020-03-03"),
        ("20200228 20200229 20200301", "days", "2020-03-02"),
        ("2020-03-02 2020-03-09 2020-03-23", "weeks", "2020-03-30"),
        ("2020-03-02 2020-03-03 2020-03-04 2020-03-05 2020-03-09 2020-03-13", "business days", "2020-03-16"),
        ("1990/1/1 1990/1/2 1990/1/3", "days", "1990-01-04"),
        ("1990Q3 1990Q4 1991Q1", "quarters", "1991-04"),
        ("2020-10-25T02:00+02:00 2020-10-25T02:00+01:00 2020-10-25T03:00+01:00", "hours", "2020-10-25 03:00:00"),
        ("2020-01-31T22:00 2020-01-31T23:00 2020-02-01T00:00", "hours", "2020-02-01 01:00:00"),
        ("2020-01-31 2020-01-31T00:15 2020-01-31T00:45", "15 minutes", "2020-01-31 01:00:00"),
    ],
)
def test_the_frequency_is_the_largest_step_that_all_dates_keep(dates: str, name: str, then: str) -> None:
    found = panel("when,y\n" + "\n".join(f"{date},{k}" for k, date in enumerate(dates.split())))
    assert found.frequency is not None
    assert found.frequency.name == name
    (one,) = found.series
    assert found.dates(one, len(one), 1) == (then,)
    assert np.nansum(one.values) == sum(range(len(dates.split())))


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("Date,y\n2020-01-01,1\n2020-01-02,2\n2020-01-02,2", {}, "x.csv:4: 2020-01-02 occurs twice in Date"),
        ("Date,y\n1,1\n2,2\n900,3", {}, "x.csv:4: dates are irregular"),
        ("Date,y\n1949-01,1\n1949-13,2", {}, "x.csv:3: Date is '1949-13', not a date"),
        ("Date,y\n1949-01,1\n1949,2", {}, "x.csv:3: Date is '1949', in a different format from '1949-01'"),
        ("Date,y\n0000-01,1", {}, "x.csv:2: Date is '0000-01', not a date"),
        ("Date,y\n1949-01,many", {}, "x.csv:2: y is 'many', which is not a number"),
        ("Date,y\n1949-01,inf", {}, "x.csv:2: y is 'inf', which is not finite"),
        ("Date,y\n1949-01,1e300", {}, "larger than 1e+100"),
        ("Date,y\n1949-01,", {}, "column 'y' has no value"),
        ('Date,y\n1949-01,"1\n"\n1949-02,many', {}, "x.csv:4: y is 'many'"),
        ("Date,y\n1949-01,1\n\n1949-02,2", {}, "x.csv:3: empty row in the middle"),
        ("Date,y,y\n1949-01,1,2", {"targets": ("y",)}, "x.csv: column 'y' occurs 2 times"),
        ("Date,x\n1949-01,1", {"future": ("x",)}, "no column is left to forecast besides x"),
        ("Date,y", {}, "x.csv has a header and no rows"),
        ("Date,y\n1949-01,1,2", {}, "x.csv:2: 3 columns, where the header has 2"),
        ("Date,y,z\n1949-01,1", {}, "x.csv:2: 2 columns, where the header has 3"),
        ("Date,z\n1949-01,1", {"targets": ("y",)}, "x.csv: unknown column 'y'"),
        ("Date,y\n1949-01,1", {"targets": ("y",), "past": ("y",)}, "'y' cannot have several roles"),
        ("Date,y\n1949-01,1", {"static": ("y",)}, "are for a long table"),
        ("Date,y\n1949-01,1", {"layout": "long"}, "no column names the series of each row"),
        ("Date,y\n1949-01,1", {"layout": "deep"}, "auto, wide, long or rows, got 'deep'"),
        ("id,ds,x\na,1,u\na,2,v", {}, "no numeric column is left"),
        ("id,ds,y,x\na,1,1,u\na,2,2,v", {}, "column 'x' holds text that changes within a series"),
        ("id,ds,y,x\na,1,1,u\na,2,2,v", {"static": ("x",)}, "x.csv:3: x is 'v', and 'u' before; it is static"),
        ("id,ds,y\na,1,1\na,1,2", {}, "x.csv:3: 1 occurs twice in ds"),
        ("id,2020-01,2020-01\na,1,2\nb,3,4", {}, "x.csv:2: 2020-01 occurs twice in the header"),
        ("V1,V2,V3\na,1,2\nb,1,many", {}, "x.csv:3: series 'b' is 'many'"),
        ("V1,V2,V3\na,1,2\na,1,2", {"layout": "rows"}, "x.csv:3: series 'a' is already in line 2"),
    ],
)
def test_what_is_wrong_is_named(text: str, columns: dict[str, object], message: str) -> None:
    with pytest.raises((TextError, OptionError)) as error:
        panel(text, **columns)
    assert message in str(error.value)


def test_a_file_of_windows_and_a_name_with_a_comma(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b'\xef\xbb\xbfyear,"y, in units"\r\n1,2\r\n2,3\r\n')
    found = read_panel([str(tmp_path / "a.csv")], SeriesColumns(("y, in units",)))
    assert found.series[0].values.tolist() == [[2], [3]]


def test_files_that_begin_elsewhere_agree_on_the_phase() -> None:
    months = [f"{1949 + k // 12}-{k % 12 + 1:02},{k}" for k in range(30)]
    early, late = (panel("\n".join(["Date,y", *months[begin:]])).series[0] for begin in (0, 7))
    assert late.start - early.start == 7
    assert early.start % 12 == 0
    assert panel("Date,y\n1701,1\n1703,2").series[0].start == 850


def test_several_files_are_one_panel(tmp_path: Path) -> None:
    for name, text in {
        "a.csv": "d,y\n2020-01,1\n2020-02,2\n",
        "b.csv": "d,y\n2020-03,1\n2020-05,2\n",
        "c.csv": "d,z\n2020-03,1\n",
        "d.csv": "id,d,y\na,2020-01,1\na,2020-02,1\n",
        "e.csv": "d,y\n1,1\n",
        "f.csv": "y\n1\n",
        "g.csv": "id,d,y\na,2020-03,1\na,2020-04,1\n",
        "i.csv": "d,y\n2020-03,3\n2020-04,4\n",
        "h.csv": "id,d,y\nb,2020-03,1\nb,2020-04,1\n",
    }.items():
        (tmp_path / name).write_text(text)

    def read(*names: str) -> Panel:
        return read_panel([str(tmp_path / f"{name}.csv") for name in names])

    found = read("a", "b")
    assert [one.id for one in found.series] == ["a", "b"]
    assert found.lengths.tolist() == [2, 3]
    assert found.series[1].start - found.series[0].start == 2
    for names, message in {
        "ac": "has the columns z",
        "ad": "need the same layout",
        "ae": "write dates in different formats",
        "af": "has a column of dates",
        "dg": "series 'a' is in",
    }.items():
        with pytest.raises(TextError, match=message):
            read(*names)
    both = join_panels(read("d"), read("g"))
    assert both.lengths.tolist() == [4]
    with pytest.raises(TextError, match="does not begin where"):
        join_panels(read("g"), read("d"))
    with pytest.raises(TextError, match="does not have the series"):
        join_panels(read("d"), read("h"))
    assert join_panels(read("a"), read("i")).series[0].values[:, 0].tolist() == [
        1,
        2,
        3,
        4,
    ]  # their names are only those of files
    with pytest.raises(TextError, match="has other columns"):
        join_panels(read("a"), read("c"))


def test_gaps_are_filled_with_what_was_known_before() -> None:
    gappy = np.array([[NAN, NAN], [1, NAN], [2, NAN], [NAN, NAN], [NAN, NAN], [NAN, NAN], [9, NAN]])
    assert fill(gappy)[:, 0].tolist() == [1, 1, 2, 2, 2, 2, 9]
    assert fill(gappy, 2)[:, 0].tolist() == [1, 1, 2, 1, 2, 1, 9]
    assert fill(gappy, 4)[:, 0].tolist() == [1, 1, 2, 2, 2, 1, 9]
    assert not fill(gappy)[:, 1].any()
    whole = np.ones((3, 1))
    assert fill(whole) is whole


@pytest.mark.skipif(not (DATA / "m4").is_dir(), reason="../shared/data/m4 is not here")
def test_m4_as_it_is_published() -> None:
    train, test = (read_panel([str(DATA / f"m4/weekly-{part}.csv")]) for part in ("train", "test"))
    assert len(train) == len(test) == 359
    assert (train.lengths.min(), train.lengths.max()) == (80, 2597)
    assert train.series[0].values[:2, 0].tolist() == [1089.2, 1078.91]
    assert (join_panels(train, test).lengths == train.lengths + 13).all()


@pytest.mark.skipif(not (DATA / "ett").is_dir(), reason="../shared/data/ett is not here")
def test_ett_as_it_is_published() -> None:
    found = read_panel([str(DATA / "ett/ETTh2.csv")])
    assert found.frequency is not None
    assert (found.lengths.tolist(), len(found.targets), found.frequency.seasons) == ([17420], 7, (24, 168))

"""Series from CSV files: what is read, and what is missing, out of step or not a number, named with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recur.errors import TextError
from recur.series import parse_table, read_table


def lines(text: str) -> list[str]:
    return text.strip().split("\n")


MONTHS = "Date,A,B\n1949-11,1,10\n1949-12,2,20\n1950-01,3,30"


def test_columns_by_name_or_all_but_the_dates() -> None:
    table = parse_table(lines(MONTHS), "x.csv", targets=["B"])
    assert table.targets == ("B",)
    assert table.values.tolist() == [[10], [20], [30]]
    assert table.dates == ("1949-11", "1949-12", "1950-01")
    assert parse_table(lines(MONTHS), "x.csv").targets == ("A", "B")
    assert parse_table(lines('"YEAR","S"\n1700,5\n1701,1e1'), "x.csv").values.tolist() == [[5], [10]]
    assert parse_table(lines("A,B\n1,2\n3,4"), "x.csv", targets=["A", "B"]).dates == ()


def test_one_name_is_a_list_of_one_and_a_comma_may_stand_in_a_name() -> None:
    text = lines('t,"y, in units",x\n1,2,3\n2,3,4')
    assert parse_table(text, "x.csv", targets="y, in units").targets == ("y, in units",)
    with pytest.raises(TextError, match="no column is left to forecast beside t, y, in units, x"):
        parse_table(text, "x.csv", covariates=["t", "y, in units", "x"])


def test_what_is_known_ahead_stands_behind_the_last_value() -> None:
    table = parse_table(lines("t,y,x\n1,5,0\n2,6,1\n3,,2\n4,,3"), "x.csv", targets=["y"], covariates=["x"])
    assert len(table) == 2
    assert table.ahead == 2
    assert table.known[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dates", [
    "1 2 3", "2001 2003 2005", "2020-01 2020-02 2020-03", "2020-11 2021-02 2021-05", "2020-02-28 2020-02-29 2020-03-01",
    "2020-01-31T22:00 2020-01-31T23:00 2020-02-01T00:00", "2020-01-15 2020-02-15 2020-03-15",
    "2019-02-01 2020-02-01 2021-02-01",
])  # fmt: skip
def test_dates_one_step_apart(dates: str) -> None:
    text = "when,y\n" + "\n".join(f"{date},{k}" for k, date in enumerate(dates.split()))
    assert len(parse_table(lines(text), "x.csv").dates) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Date,y\n1949-01,1\n1949-02,2\n1949-03,3\n1949-05,5", "x.csv:5: a gap in Date, from 1949-03 to 1949-05"),
        ("Date,y\n2020-01-01,1\n2020-01-02,2\n2020-01-02,2\n2020-01-03,3", "x.csv:4: the same date twice in Date"),
        ("Date,y\n3,1\n2,2\n1,3", "x.csv:3: an uneven step in Date, from 3 to 2"),
        ("Date,y\n2020-01-01,1\n2020-01-02,2\n2020-01-04,2\n2020-01-05,2", "x.csv:4: a gap in Date"),
        ("Date,y\n1949-01,1\n1949-13,2", "x.csv:3: Date is '1949-13', not a date"),
        ("Date,y\n1949-01,1\n1949,2", "x.csv:3: Date is '1949', written otherwise than '1949-01'"),
        ("Date,y\n1949-01,1\n1949-02,\n1949-03,3", "x.csv:3: y is missing"),
        ("Date,y\n1949-01,1\n1949-02,NA\n1949-03,3", "x.csv:3: y is missing"),
        ("Date,y\n1949-01,1\n1949-02,", "x.csv:3: y is missing"),
        ("Date,y\n1949-01,many", "x.csv:2: y is 'many', which is not a number"),
        ("Date,y\n1949-01,inf", "x.csv:2: y is inf, which is not finite"),
        ("Date,y\n1949-01,1,2", "x.csv:2: 3 columns, where the header has 2"),
        ("Date,y\n1949-01,1\n\n1949-02,2", "x.csv:3: an empty row in the middle"),
        ("Date,z\n1949-01,1", "x.csv: unknown column 'y'"),
        ("Date,y,y\n1949-01,1,2", "x.csv: column 'y' stands there 2 times"),
        ('Date,y\n1949-01,"1\n"\n1949-02,many', "x.csv:4: y is 'many'"),
        ("Date,y", "x.csv has a header and no rows"),
        ("", "x.csv: the first line must name the columns"),
    ],
)
def test_what_is_wrong_is_named_and_not_guessed(text: str, message: str) -> None:
    with pytest.raises(TextError) as error:
        parse_table(lines(text), "x.csv", targets=["y"])
    assert message in str(error.value)


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfyear,y\r\n1,2\r\n2,3\r\n")
    assert np.array_equal(read_table(str(tmp_path / "a.csv"), ["y"]).values, [[2], [3]])

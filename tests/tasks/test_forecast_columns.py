"""Tables other than the one that was learned from: static words keep their places, other inputs are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recur
from recur.data.series import parse_panel
from recur.errors import TextError
from recur.tasks.common.classification import names_vocab
from recur.tasks.forecast.data import RowSettings, as_learned, known_names, make_rows, past_names

SETTINGS = RowSettings(horizon=3, season=1, steps=3, back=5)


def long_lines(kinds: dict[str, str], sizes: str = "5", steps: int = 40, month: bool = False) -> list[str]:
    lines = ["id,date,sales,kind,size,wind"]
    for n, (name, kind) in enumerate(kinds.items()):
        for t in range(steps):
            date = f"{2000 + t // 12}-{1 + t % 12:02}-01" if month else f"2020-{1 + t // 28:02}-{1 + t % 28:02}"
            lines.append(f"{name},{date},{10 * n + (7 * t) % 5},{kind},{sizes if n else ''},{t % 3}")
    return lines


def learned(lines: list[str], s: RowSettings = SETTINGS) -> dict[str, Any]:
    panel = parse_panel(lines, "learned.csv")
    names = {"columns": [*panel.targets, *panel.future], "known": known_names(panel, s), "past": past_names(panel, s)}
    return {name: names_vocab(dict.fromkeys(found, 1)) for name, found in names.items()}


def statics(lines: list[str], vocabs: dict[str, Any]) -> list[list[float]]:
    panel = as_learned(parse_panel(lines, "other.csv"), vocabs, SETTINGS)
    ends = [len(one) for one in panel.series]
    rows = make_rows(panel, ends, ends, SETTINGS, ends)
    return [[float(x) for x in rows.known[at]] for at in rows.offset]


def test_words_keep_the_places_in_which_they_were_learned() -> None:
    vocabs = learned(long_lines({"s": "b", "t": "a", "u": "7"}))
    assert vocabs["known"].tokens[-4:] == ("static kind 7", "static kind a", "static kind b", "static size ")
    size = float(np.float32(np.arcsinh(5)))
    assert statics(long_lines({"v": "b", "w": "c", "x": "b"}), vocabs) == [
        [0, 0, 1, 0],
        [0, 0, 0, size],
        [0, 0, 1, size],
    ]
    # Words that are all numbers in this table were words nonetheless.
    assert statics(long_lines({"v": "7", "w": "8"}), vocabs) == [[1, 0, 0, 0], [0, 0, 0, size]]


def test_other_inputs_are_refused() -> None:
    kinds = {"s": "b", "t": "a"}
    vocabs = learned(long_lines(kinds))
    with pytest.raises(
        TextError, match=r"^other.csv lacks the inputs static size of .* has the inputs static size big"
    ):
        statics(long_lines(kinds, sizes="big"), vocabs)
    still = [line[:-1] + "1" if line[-1].isdigit() else line for line in long_lines(kinds)]
    with pytest.raises(TextError, match=r"^other.csv has the inputs static wind, which that did not have; its columns"):
        statics(still, vocabs)
    dated = SETTINGS._replace(calendar=True)
    vocabs = learned(long_lines(kinds), dated)
    with pytest.raises(TextError, match=r"^other.csv lacks the inputs calendar, "):
        as_learned(parse_panel(long_lines(kinds, month=True), "other.csv"), vocabs, dated)


def test_other_series_of_a_long_table_are_forecast_by_a_run_that_was_kept(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("\n".join(long_lines({"s": "b", "t": "a", "u": "c"})) + "\n")
    model = recur.fit(str(path), task="forecast", horizon=3, hidden_size=4, steps=2, threads=1, out=tmp_path / "run")
    assert np.isfinite(model.evaluate()["mase"])  # a number that is missing is none of its inputs
    rows = list(recur.load(tmp_path / "run").predictions(long_lines({"v": "b", "w": "d"})))
    assert [row["series"] for row in rows] == ["v"] * 3 + ["w"] * 3
    assert np.isfinite([row["quantiles"]["0.5"] for row in rows]).all()

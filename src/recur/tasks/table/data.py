"""Rows of a CSV as vectors: numbers standardised, words as one of those seen in training, and the target."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from recur.errors import TextError, listed, shown, unknown
from recur.run import Vocabs
from recur.tasks.classes import classes_of, names_vocab
from recur.text import numbered_lines
from recur.text.arrays import Floats
from recur.text.fields import LARGEST, MISSING, no_commas, number

CLASSES = 20
"""Different whole numbers up to which a target is a class, if nobody says."""
WORDS = 200
"""Different words up to which a column is an input."""


class Row(NamedTuple):
    cells: dict[str, str]
    """By column."""
    where: str


def read_rows(names: Sequence[str]) -> list[Row]:
    """The rows of files, each with a header; all have the first one's columns."""
    found: list[Row] = []
    for name in names:
        rows = parse_rows((line for _, line in numbered_lines(name)), name)
        if found and list(rows[0].cells) != list(found[0].cells):
            others = listed(list(rows[0].cells))
            raise TextError(f"{name}: the columns {others}, where {names[0]} has {listed(list(found[0].cells))}")
        found += rows
    return found


def parse_rows(lines: Iterable[str], name: str) -> list[Row]:
    """Rows by the names of the first, each with its file and line."""
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    found: list[Row] = []
    try:
        for row in ([cell.strip() for cell in row] for row in reader):
            where = f"{name}:{reader.line_num}"
            if not any(row):
                continue
            if not header:
                header = row
                if len(header) == 1 and (why := no_commas(header[0], name)):
                    raise TextError(why)
                twice = [column for column, count in Counter(header).items() if count > 1]
                if twice:
                    raise TextError(f"{where}: a column's name stands there twice: {listed(twice)}")
            elif len(row) != len(header):
                raise TextError(f"{where}: {len(row)} columns, where the header has {len(header)}")
            else:
                found.append(Row(dict(zip(header, row, strict=True)), where))
    except csv.Error as error:
        raise TextError(f"{name}:{reader.line_num} is not a CSV: {error}") from None
    if not found:
        raise TextError(f"{name}: a table has a line that names its columns, and rows below it")
    return found


def target_of(rows: Sequence[Row], target: str) -> str:
    header = list(rows[0].cells)
    if target and target not in header:
        raise TextError(f"{rows[0].where}: {unknown('column', target, header)}")
    if len(header) < 2:
        raise TextError(f"{rows[0].where}: one column alone has no other to be told from")
    return target or header[-1]


def check_targets(rows: Sequence[Row], target: str) -> None:
    for row in rows:
        if row.cells.get(target, "").lower() in MISSING:
            raise TextError(f"{row.where} has no {target}, which is what is to be told")


def is_class(rows: Sequence[Row], target: str) -> bool:
    values = {row.cells[target] for row in rows}
    numbers = [number(value) for value in values]
    return None in numbers or (len(values) <= CLASSES and all(n is not None and n % 1 == 0 for n in numbers))


class Inputs(NamedTuple):
    """The columns that are read."""

    numbers: tuple[str, ...]
    words: tuple[str, ...]
    """`column=word`, each an input of its own."""

    @staticmethod
    def of(vocabs: Vocabs) -> Inputs:
        return Inputs(classes_of(vocabs["numbers"]), classes_of(vocabs["words"]))


def find_inputs(rows: Sequence[Row], target: str) -> Vocabs:
    """Columns of nothing but numbers are numbers; others are words, if they repeat."""
    numbers, words = [], []
    for column in (column for column in rows[0].cells if column != target):
        there = [row.cells[column] for row in rows if row.cells[column].lower() not in MISSING]
        if there and all(number(cell) is not None for cell in there):
            numbers.append(column)
        elif 0 < len(set(there)) <= min(WORDS, max(len(there) // 2, 1)):
            if "=" in column:
                raise TextError(f"{rows[0].where}: a column of words is named {shown(column)}; rename it without =")
            words += [f"{column}={word}" for word in sorted(set(there))]
    if not numbers and not words:
        raise TextError(f"{rows[0].where}: no column beside {target} has numbers, or words that repeat")
    return {"numbers": names_vocab(dict.fromkeys(numbers, 1)), "words": names_vocab(dict.fromkeys(words, 1))}


def numbers_in(rows: Sequence[Row], columns: Sequence[str]) -> Floats:
    """(rows, columns): not a number where one is missing."""
    table = np.full((len(rows), len(columns)), np.nan)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            cell = row.cells.get(column)
            if cell is None:
                raise TextError(f"{row.where} has no column {shown(column)}")
            value = number(cell)
            if not (cell.lower() in MISSING if value is None else abs(value) <= LARGEST):
                raise TextError(f"{row.where}: {column} is {shown(cell)}, which is no number up to {LARGEST:g}")
            table[i, j] = np.nan if value is None else value
    return table


def unknown_words(row: Row, inputs: Inputs) -> list[str]:
    """`column=word` of those that were not seen in training: to the network they are as if nothing stood there."""
    known = set(inputs.words)
    columns = dict.fromkeys(word.split("=", 1)[0] for word in inputs.words)
    there = [(column, row.cells.get(column, "")) for column in columns]
    return [f"{c}={w}" for c, w in there if w.lower() not in MISSING and f"{c}={w}" not in known]


def moments(rows: Sequence[Row], columns: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of columns of numbers, without what is missing."""
    table = numbers_in(rows, columns)
    mean, spread = np.nanmean(table, 0), np.nanstd(table, 0)
    return tuple(mean.tolist()), tuple(np.where(spread > 0, spread, 1.0).tolist())


def vectors(rows: Sequence[Row], inputs: Inputs, mean: Sequence[float], deviation: Sequence[float]) -> Floats:
    """(rows, D): numbers standardised, the mean where one is missing; words as ones and zeros."""
    D = len(inputs.numbers)
    scaled = (numbers_in(rows, inputs.numbers) - np.array(mean[:D])) / np.array(deviation[:D])
    split = [word.split("=", 1) for word in inputs.words]
    for column in dict.fromkeys(column for column, _ in split):
        if (row := next((row for row in rows if column not in row.cells), None)) is not None:
            raise TextError(f"{row.where} has no column {shown(column)}")
    ones = [[float(row.cells[column] == word) for column, word in split] for row in rows]
    return np.concatenate([np.nan_to_num(scaled), np.array(ones).reshape(len(rows), len(split))], axis=1)

"""Numbers that pages and READMEs show, written once: by a benchmark, or on one English page under a name.

<!-- figure:awd -->59.27<!-- -->     written here, on an English page, and
<!-- merit:awd:.1f -->59.3<!-- -->   its copy elsewhere, the Chinese page included; behind the colon a format
<!-- merit:rows:trees -->            the rows of a table between this line and <!-- -->, from bench/results; the page
                                     writes the head and the cells that are None in `ROWS`

`python -m docs merit` fills them in, and a test compares. READMEs have no marks; tests/test_documents.py compares them.
"""

from __future__ import annotations

import re
from pathlib import Path

from docs.maker.languages import Pair, pairs
from docs.maker.merit import read
from docs.maker.tables import ROWS, Rows, scan

FORMATTED = re.compile(r"(.*?)(?::([.\d]*[a-z%]))?")
MARK = re.compile(r"(<!-- (merit|figure):([^>\n]+?) -->)(.*?)(<!-- -->)", re.S)


# Single numbers ---------------------------------------------------------------------------------------------------


def worked_out() -> dict[str, str]:
    """Numbers that are computed from several values of bench/results."""
    stream = {(r["hidden"], r["threads"]): r["microseconds"] for r in read("streaming")["results"]}[256, 1]
    size = "B 32 T 35 H 128, forward + backward"
    found = {r["what"]: 1 / r["ratio"] for r in scan(size, "forward + backward", 2)}
    layers = {"elman": "RNN", "gru": "GRU", "lstm": "LSTM"}
    means = read("gpu")["means"]
    return {
        **{cell: f"{found[f'{cell} on native / nn.{layer}, {size}']:.1f}" for cell, layer in layers.items()},
        **{f"gpu-{dtype}": f"{means[f'{dtype} beside cuDNN']['both']:.1f}" for dtype in ("float32", "bfloat16")},
        "stream": f"{stream['recur']:.0f}",
        "stream-torch": f"{stream['torch.nn']:.0f}",
    }


def typed() -> dict[str, str]:
    """Numbers that English pages write under a name."""
    found: dict[str, str] = {}
    for pair in pairs():
        for _, kind, name, value, _ in MARK.findall(pair.english.read_text(encoding="utf-8")):
            if kind != "figure":
                continue
            if name in found:
                raise ValueError(f"figure:{name} is written twice; use merit:{name} for the copy")
            found[name] = value
    return found


def value_of(name: str, known: dict[str, str]) -> str:
    """Return a known number in the format behind the colon."""
    name, form = FORMATTED.fullmatch(name).groups("")  # type: ignore[union-attr]
    if name not in known:
        raise ValueError(f"merit:{name}: neither computed in docs/maker/copied.py nor written on an English page")
    return format(float(known[name].replace(",", "")), form) if form else known[name]


# Pages ------------------------------------------------------------------------------------------------------------


def with_figures(text: str) -> str:
    """A page with its figures as they are now."""
    known = worked_out() | typed()

    def filled(match: re.Match[str]) -> str:
        mark, kind, name, was, end = match.groups()
        if kind == "figure":
            return match[0]
        now = with_rows(was, ROWS[name.removeprefix("rows:")]()) if name.startswith("rows:") else value_of(name, known)
        return f"{mark}{now}{end}"

    return MARK.sub(filled, text)


def with_rows(table: str, rows: Rows) -> str:
    """A table with other rows below its head."""
    head, line, *old = table.strip().split("\n")
    labels = [cells(row) for row in old]
    if any(None in row for row in rows) and len(rows) != len(labels):
        raise ValueError(f"{len(rows)} rows were measured, and the table has labels of {len(labels)}: {head}")
    filled = [[labels[at][k] if cell is None else cell for k, cell in enumerate(row)] for at, row in enumerate(rows)]
    return "\n\n" + "\n".join([head, line, *("| " + " | ".join(row) + " |" for row in filled)]) + "\n\n"


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def marked() -> list[Pair]:
    """Pages that name figures."""
    return [found for found in pairs() if any(MARK.search(path.read_text(encoding="utf-8")) for path in found)]


def written() -> dict[Path, str]:
    """Those pages as they should be."""
    return {path: with_figures(path.read_text(encoding="utf-8")) for found in marked() for path in found}


def write() -> None:
    """A pair of pages that was in step stays so: both get the same figures."""
    for found in marked():
        in_step = found.why_stale() is None
        for path in found:
            path.write_text(with_figures(path.read_text(encoding="utf-8")), encoding="utf-8")
        if in_step:
            found.stamp()

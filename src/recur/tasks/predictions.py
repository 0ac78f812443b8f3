"""What a model makes of inputs: JSON objects, and lists of them, that a person can read, in a notebook too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

SHOWN = 20
"""Predictions that are shown; the rest are counted."""
LIKELIEST = 3
"""Classes whose probability is shown."""
WIDTH = 60
"""Characters of a text that are shown."""


class Prediction(dict[str, Any]):
    """What a model made of one input: at least `input` and `output`; `probabilities` of classes, `quantiles` of numbers
    and whatever else its task has to say. A plain object for JSON."""

    def __repr__(self) -> str:
        cells = cells_of(self)
        more = "   ".join(text if name in ("likeliest", "score") else f"{name} {text}" for name, text in _rest(cells))
        return f"{cells['input']} → {cells['output']}" + (f"   {more}" if more else "")

    def _repr_html_(self) -> str:
        if "words" in self and "tags" in self:
            return html_table([self["words"], self["tags"]])
        return html_table([*([name, text] for name, text in cells_of(self, html=True).items())])


class Predictions(list[Prediction]):
    """What a model made of several inputs, in their order."""

    def __repr__(self) -> str:
        rows = [repr(found) for found in self[:SHOWN]]
        left = len(self) - SHOWN
        return "\n".join([*rows, *([f"… and {left:,} more"] if left > 0 else [])]) or "no predictions"

    def _repr_html_(self) -> str:
        cells = [cells_of(found, html=True) for found in self[:SHOWN]]
        names = list(dict.fromkeys(name for row in cells for name in row))
        left = len(self) - SHOWN
        rows = [[row.get(name, "") for name in names] for row in cells]
        return html_table(rows, names) + (f"<p>… and {left:,} more</p>" if left > 0 else "")


def _rest(cells: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((name, text) for name, text in cells.items() if name not in ("input", "output"))


def cells_of(found: Mapping[str, Any], html: bool = False) -> dict[str, str]:
    """What is worth showing of a prediction, in words."""
    cells = {name: _clipped(found.get(name, "")) for name in ("input", "output")}
    chances = found.get("probabilities")
    if isinstance(chances, Mapping) and chances:
        best = sorted(chances.items(), key=lambda item: -item[1])[:LIKELIEST]
        cells["likeliest"] = ", ".join(f"{_clipped(name)} {100 * p:.1f} %" for name, p in best)
    quantiles = found.get("quantiles")
    if isinstance(quantiles, Mapping) and len(quantiles) > 1:
        if html:
            cells |= {f"{100 * float(q):g} %": f"{x:,.4g}" for q, x in quantiles.items()}
        else:
            low, high = (list(quantiles.items())[k] for k in (0, -1))
            cells[f"{100 * float(low[0]):g} … {100 * float(high[0]):g} %"] = f"{low[1]:,.4g} … {high[1]:,.4g}"
    if isinstance(found.get("score"), float):
        cells["score"] = f"log P {found['score']:.2f}"
    if found.get("cut"):
        cells["cut"] = "did not end by itself"
    if found.get("unknown"):
        cells["unknown"] = _clipped(", ".join(map(str, found["unknown"])))
    return cells


def _clipped(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def html_table(rows: Sequence[Sequence[object]], header: Sequence[str] = ()) -> str:
    """A table of texts, whatever stands in them."""

    def row(cells: Iterable[object], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(str(cell))}</{kind}>" for cell in cells) + "</tr>"

    head = f"<thead>{row(header, 'th')}</thead>" if header else ""
    return f"<table>{head}<tbody>{''.join(row(cells, 'td') for cells in rows)}</tbody></table>"

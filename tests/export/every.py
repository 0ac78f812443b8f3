"""Every pointwise cell and every task in every target: `python -m tests.export.every [--cells lstm,gru] [--to onnx,c]`.

A tiny run of each, written and compared as `recur export` does it; a line each, the largest difference by target. With
--quantize in 8 bits, where a target has them.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recur
from recur.errors import RecurError
from recur.export import TARGETS, export
from recur.tasks.common.predictor import Predictor
from tests.export import runs

ENDINGS = {"c": ".h", "onnx": ".onnx", "html": ".html", "torch": ".pt2", "safetensors": ".safetensors"}

OWN = f"{Path(__file__).with_name('cells.py')}:Leaning"
"""A user's cell, from a file."""


def cell_names() -> list[str]:
    return [name for name in recur.cell_names() if recur.make_cell(name).pointwise]


def models(cells: list[str]) -> Iterator[tuple[str, Predictor[Any]]]:
    for name in cells:
        with tempfile.TemporaryDirectory() as folder:
            short = name.rpartition(":")[2]
            yield f"language {short}", runs.language(Path(folder), cell=name, num_layers=2)
            yield f"tag {short}, both directions", runs.tag(Path(folder), cell=name, direction="both")


def tasks() -> Iterator[tuple[str, Predictor[Any]]]:
    for name, make in runs.EVERY.items():
        with tempfile.TemporaryDirectory() as folder:
            yield name, make(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", default=",".join([*cell_names(), OWN]))
    parser.add_argument("--to", default=",".join(TARGETS))
    parser.add_argument("--quantize", action="store_true")
    asked = parser.parse_args()
    targets, cells = asked.to.split(","), [name for name in asked.cells.split(",") if name]
    for name in cells:
        recur.make_cell(name)  # refused now, not an hour later
    narrow = {to: {"quantize": True} for to in ("c", "onnx", "html") if asked.quantize}
    print(f"{'':<36}" + "".join(f"{to:>14}" for to in targets))
    failed = 0
    for made in (models(cells), tasks()):
        for name, model in made:
            words = []
            for to in targets:
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        found = export(model, to, Path(folder) / f"model{ENDINGS[to]}", **narrow.get(to, {})).difference
                        words.append("written" if found is None else f"{found:.1e}")
                    except RecurError as error:
                        plain = to == "safetensors" and "--to torch and --to onnx take it" in str(error)
                        words.append("refused" if plain else "FAILED")
                        failed += not plain
            print(f"{name:<36}" + "".join(f"{word:>14}" for word in words), flush=True)
    raise SystemExit(f"{failed} failed" if failed else 0)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()

"""What the defaults are measured on: real data from a folder, and pairs made here. Test parts are never read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.made import rings
from recur.tasks.common.registry import BUILT_IN

PAIRS, LETTERS = 10_000, "abcdefghijklmnopqrstuvwxyz"
SEED = 0
"""Of the pairs that are made here."""


@dataclass(frozen=True)
class DataSet:
    """Files for a task, and which recipe is for them."""

    task: str
    name: str
    texts: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    recipe: str = ""

    @property
    def fields(self) -> dict[str, object]:
        """As options: the files, and nothing else."""
        fields: dict[str, object] = {"texts": self.texts} if self.texts else {}
        if self.valid:
            # As the test part too, which nobody measures here: else a part of the training file were held out for it.
            fields |= {"valid": self.valid, "test": self.valid}
        return fields

    @property
    def missing(self) -> str:
        """The first of its files that is not there; empty if all are."""
        names = (name for name in (*self.texts, *self.valid) if name not in BUILT_IN)
        return next((name for name in names if not Path(name).exists()), "")


def data_sets(data: Path, scratch: Path) -> Iterator[DataSet]:
    """All of them, in the order of the table; what has to be made is written into `scratch`."""

    def files(*names: str) -> tuple[str, ...]:
        return tuple(str(data / name) for name in names)

    for language in ("hin", "dut"):
        train, valid = files(f"g2p/{language}_train.tsv"), files(f"g2p/{language}_dev.tsv")
        yield DataSet("seq2seq", f"g2p {language}", train, valid, recipe="g2p.toml")
    yield DataSet("seq2seq", "reverse 10 letters", random_pairs(scratch / "reverse.tsv", lambda word: word[::-1]))
    yield DataSet("seq2seq", "sort 10 letters", random_pairs(scratch / "sort.tsv", lambda word: "".join(sorted(word))))
    german, english = (first_lines(data / f"multi30k/train.{end}", scratch) for end in ("de", "en"))
    valid = files("multi30k/valid.de", "multi30k/valid.en")
    yield DataSet("seq2seq", "multi30k de → en", (german, english), valid)
    names = files("names/train.tsv"), files("names/valid.tsv")
    yield DataSet("classify", "names", *names, recipe="names.toml")
    for kind in ("subj", "cr"):
        yield DataSet("classify", kind, files(f"sentences/{kind}_train.tsv"), files(f"sentences/{kind}_valid.tsv"))
    yield DataSet("tag", "chunking", files("chunking/train.conll"))
    trees = files("sst-trees/train.txt"), files("sst-trees/dev.txt")
    yield DataSet("tree", "sst-trees", *trees, recipe="sst-trees.toml")
    yield DataSet("forecast", "airline", files("series/airline.csv"), recipe="airline.toml")
    yield DataSet("forecast", "sunspots", files("series/sunspots.csv"), recipe="sunspots.toml")
    yield DataSet("forecast", "ETTh2", files("ett/ETTh2.csv"))
    yield DataSet("language", "timemachine", files("timemachine/timemachine.txt"))
    yield DataSet("language", "tang", files("tang/quatrains.txt"), recipe="tang.toml")
    yield DataSet("language", "ptb, characters", files("ptb/train.txt"), files("ptb/valid.txt"))
    yield DataSet("language", "pydoc", ("pydoc",))
    yield DataSet("conditional", "names", *names)
    yield DataSet("grid", "rings, closed or not", rings(scratch / "rings.npz"))
    yield DataSet("adding", "generated", recipe="adding.toml")
    yield DataSet("copy", "generated", recipe="copy.toml")


def random_pairs(path: Path, target: Callable[[str], str]) -> tuple[str, ...]:
    draw = np.random.default_rng(SEED)
    words = ["".join(row) for row in draw.choice(list(LETTERS), size=(PAIRS, 10))]
    path.write_text("".join(f"{word}\t{target(word)}\n" for word in words))
    return (str(path),)


def first_lines(path: Path, scratch: Path) -> str:
    """The first of its lines in a file of the same name; a file that is not there by its own name."""
    if not path.exists():
        return str(path)
    lines = path.read_text(encoding="utf-8").split("\n")[:PAIRS]
    shorter = scratch / path.name
    shorter.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(shorter)

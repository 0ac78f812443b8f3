"""What was measured on a kind of GPU: the fastest way for each kind of problem, and cuDNN's time beside it.

A table is a JSON file, named after the GPU. The user's own, in the folder of compiled kernels, comes before the one
that is shipped; `recur doctor --tune` writes it. A problem that was not measured takes what the nearest one took.

    {"format": 1, "device": "NVIDIA H200", "made": {…}, "entries": [
     {"products": 4, "gates": 4, "H": 512, "S": 64, "numbers": "bfloat16", "direction": "forward",
      "way": {"exchange": 1, …}, "us": 1.9, "whole_us": 2.6, "cudnn_us": 14.2}, …]}
"""

from __future__ import annotations

import functools
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from recur.errors import BackendError
from recur.ops.cuda import cache
from recur.utils.files import read_bounded, write_atomically

FORMAT = 1
SHIPPED = Path(__file__).parent / "tables"
LARGEST_FILE = 1 << 22
FARTHEST = 1.0
"""Doublings: a problem that is farther than this from all that were measured has no entry."""
NUMBERS = ("bfloat16", "float16", "tf32", "exact")
"""What products are made of: float32 as TF32 or as it is."""
DIRECTIONS = ("forward", "backward")

Way = Mapping[str, int | str]
"""As recur.ops.cuda.way.Way has it, by name; nothing at all is one step a launch."""


class Kind(NamedTuple):
    """What the time of a scan depends on, as far as the choice of a way does."""

    products: int
    gates: int
    H: int
    S: int
    """Rows at once."""
    numbers: str
    direction: str

    def words(self) -> str:
        return f"{self.products} products, H {self.H}, {self.S} rows, {self.numbers}, {self.direction}"


class Entry(NamedTuple):
    way: Way
    us: float
    """A step by this way."""
    whole_us: float | None = None
    """The same of the whole pass, its large products and what Python takes included."""
    cudnn_us: float | None = None
    """The whole pass by cuDNN, of cells that it has."""


class Table(NamedTuple):
    device: str
    entries: dict[Kind, Entry]
    made: dict[str, Any]
    """By what and when."""

    def nearest(self, kind: Kind) -> Entry | None:
        """That of this kind, or of the nearest one in doublings of H and S, if one is near."""
        if kind in self.entries:
            return self.entries[kind]
        alike = [k for k in self.entries if k._replace(gates=0, H=0, S=0) == kind._replace(gates=0, H=0, S=0)]
        if not alike:
            return None
        best = min(alike, key=lambda k: (_distance(k, kind), k.gates != kind.gates, -k.H, -k.S))
        return self.entries[best] if _distance(best, kind) <= FARTHEST else None

    def beside_cudnn(self, kinds: Sequence[Kind]) -> float | None:
        """Our time over cuDNN's for passes of these kinds together; None where it is not known."""
        ours, cudnn = 0.0, 0.0
        for entry in map(self.nearest, kinds):
            if entry is None or entry.whole_us is None or entry.cudnn_us is None:
                return None
            ours, cudnn = ours + entry.whole_us, cudnn + entry.cudnn_us
        return ours / cudnn if cudnn else None


def _distance(a: Kind, b: Kind) -> float:
    return math.hypot(math.log2(a.H / b.H), math.log2(a.S / b.S))


# Files ----------------------------------------------------------------------------------------------------------


def file_name(device: str) -> str:
    """NVIDIA H200 → h200.json"""
    words = re.findall(r"[a-z0-9]+", device.lower())
    return "-".join(word for word in words if word != "nvidia") + ".json"


def user_file(device: str) -> Path:
    return cache.folder() / "tables" / file_name(device)


def table(device: str) -> Table | None:
    """What is known of this kind of GPU: what the user measured, else what is shipped."""
    return _table(device, user_file(device), SHIPPED / file_name(device))


@functools.lru_cache(maxsize=16)
def _table(device: str, own: Path, shipped: Path) -> Table | None:
    for path in (own, shipped):
        try:
            found = loads(read_bounded(path, LARGEST_FILE))
        except FileNotFoundError:
            continue
        except (OSError, BackendError) as error:
            warnings.warn(f"{path} is passed over: {error}; recur doctor --tune writes it anew", stacklevel=4)
            continue
        if found.device == device:
            return found
    return None


def loads(content: bytes) -> Table:
    """From the text of a file; a BackendError says what is wrong with it."""
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"format {read['format']!r}, and {FORMAT} is read here")
        entries = dict(_entry(item) for item in read["entries"])
        return Table(str(read["device"]), entries, dict(read["made"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackendError(f"no table of measured ways: {type(error).__name__}: {error}") from None


def _entry(item: dict[str, Any]) -> tuple[Kind, Entry]:
    kind = Kind(*(item[name] for name in Kind._fields))
    if not all(type(n) is int and 0 < n < 1 << 30 for n in kind[:4]):
        raise ValueError(f"no sizes: {kind[:4]}")
    if kind.numbers not in NUMBERS or kind.direction not in DIRECTIONS:
        raise ValueError(f"unknown: {kind.numbers!r}, {kind.direction!r}")
    way = dict(item["way"])
    if not all(isinstance(name, str) and type(value) in (int, str) for name, value in way.items()):
        raise ValueError(f"no way: {way}")
    whole, cudnn = (None if item.get(name) is None else _time(item[name]) for name in ("whole_us", "cudnn_us"))
    return kind, Entry(way, _time(item["us"]), whole, cudnn)


def _time(us: Any) -> float:
    if type(us) not in (int, float) or not 0 < us < math.inf:
        raise ValueError(f"no time: {us!r}")
    return float(us)


def dumps(of: Table) -> bytes:
    rows = [{**kind._asdict(), **entry._asdict(), "way": dict(entry.way)} for kind, entry in sorted(of.entries.items())]
    head = f'{{"format": {FORMAT}, "device": {json.dumps(of.device)}, "made": {json.dumps(of.made)}, "entries": ['
    return (head + "\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n").encode()


def save(of: Table, path: Path | None = None) -> Path:
    """For the user, or at `path`; whole or not at all."""
    path = user_file(of.device) if path is None else path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, dumps(of))
    _table.cache_clear()
    return path


# Measuring ------------------------------------------------------------------------------------------------------


class Bench(Protocol):
    """What is measured, on what: see measuring.py."""

    device: str

    def problems(self) -> Sequence[Kind]:
        """All of them, the most wanted first."""

    def candidates(self, problem: Kind) -> Sequence[Way]:
        """Ways that may be the fastest, the likeliest first."""

    def measure(self, problem: Kind, way: Way) -> float | None:
        """Microseconds a step; None where there is no room for it."""

    def whole(self, problem: Kind, way: Way) -> float | None:
        """The same of the whole pass."""

    def cudnn(self, problem: Kind) -> float | None:
        """The same by cuDNN; None where it has no such cell."""


def tune(
    progress: Callable[[int, int, str], object],
    bench: Bench,
    known: Table | None = None,
    seconds: float = math.inf,
    made: dict[str, Any] | None = None,
) -> Table:
    """Measure all problems that `known` does not have, as many as there is time for.

    `progress` is told how many are done, of how many, and which is next.
    """
    end = time.monotonic() + seconds
    entries = dict(known.entries) if known is not None and known.device == bench.device else {}
    wanted = bench.problems()
    for kind in [kind for kind in wanted if kind not in entries]:
        if time.monotonic() >= end:
            break
        progress(sum(k in entries for k in wanted), len(wanted), kind.words())
        best: tuple[float, Way] | None = None
        for way in bench.candidates(kind):
            us = bench.measure(kind, way)
            if us is not None and (best is None or us < best[0]):
                best = us, way
        if best is not None:
            us, way = best
            entries[kind] = Entry(dict(way), us, bench.whole(kind, way), bench.cudnn(kind))
    progress(sum(k in entries for k in wanted), len(wanted), "")
    return Table(bench.device, entries, made or {})

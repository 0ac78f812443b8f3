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
from recur.ops.cuda import nvrtc
from recur.utils.files import read_bounded, write_atomically

FORMAT = 2
SHIPPED_TABLES = Path(__file__).parent / "tables"
MAX_TABLE_BYTES = 1 << 22
MAX_DISTANCE = 1.0
"""Doublings: a problem that is farther than this from all that were measured has no entry."""
MATMUL_DTYPES = ("bfloat16", "float16", "tf32", "exact")
"""What products are made of: float32 as TF32 or as it is."""
DIRECTIONS = ("forward", "backward")

ConfigValues = Mapping[str, int | str]
"""As recur.ops.cuda.config.Way has it, by name; nothing at all is one step a launch."""


class TuningKey(NamedTuple):
    """What the time of a scan depends on, as far as the choice of a way does."""

    products: int
    gates: int
    H: int
    S: int
    """Rows at once."""
    matmul_dtype: str
    direction: str

    def words(self) -> str:
        return f"{self.products} products, H {self.H}, {self.S} rows, {self.matmul_dtype}, {self.direction}"


class TuningEntry(NamedTuple):
    config: ConfigValues
    us: float
    """A step by this way."""
    whole_us: float | None = None
    """The same of the whole pass, its large products and what Python takes included."""
    cudnn_us: float | None = None
    """The whole pass by cuDNN, of cells that it has."""


class TuningTable(NamedTuple):
    device: str
    entries: dict[TuningKey, TuningEntry]
    made: dict[str, Any]
    """By what and when."""

    def nearest(self, kind: TuningKey) -> TuningEntry | None:
        """That of this kind, or of the nearest one in doublings of H and S, if one is near."""
        if kind in self.entries:
            return self.entries[kind]
        alike = [k for k in self.entries if k._replace(gates=0, H=0, S=0) == kind._replace(gates=0, H=0, S=0)]
        if not alike:
            return None
        best = min(alike, key=lambda k: (_distance(k, kind), k.gates != kind.gates, -k.H, -k.S))
        return self.entries[best] if _distance(best, kind) <= MAX_DISTANCE else None

    def beside_cudnn(self, kinds: Sequence[TuningKey]) -> float | None:
        """Our time over cuDNN's for passes of these kinds together; None where it is not known."""
        ours, cudnn = 0.0, 0.0
        for entry in map(self.nearest, kinds):
            if entry is None or entry.whole_us is None or entry.cudnn_us is None:
                return None
            ours, cudnn = ours + entry.whole_us, cudnn + entry.cudnn_us
        return ours / cudnn if cudnn else None


def _distance(a: TuningKey, b: TuningKey) -> float:
    return math.hypot(math.log2(a.H / b.H), math.log2(a.S / b.S))


# Files ----------------------------------------------------------------------------------------------------------


def table_name(device: str) -> str:
    """NVIDIA H200 → h200.json"""
    words = re.findall(r"[a-z0-9]+", device.lower())
    return "-".join(word for word in words if word != "nvidia") + ".json"


def user_file(device: str) -> Path:
    return nvrtc.cache_folder() / "tables" / table_name(device)


def load_table(device: str) -> TuningTable | None:
    """What is known of this kind of GPU: what the user measured, else what is shipped."""
    return _load_table(device, user_file(device), SHIPPED_TABLES / table_name(device))


@functools.lru_cache(maxsize=16)
def _load_table(device: str, own: Path, shipped: Path) -> TuningTable | None:
    for path in (own, shipped):
        try:
            found = loads(read_bounded(path, MAX_TABLE_BYTES))
        except FileNotFoundError:
            continue
        except (OSError, BackendError) as error:
            warnings.warn(f"{path} is passed over: {error}; recur doctor --tune writes it anew", stacklevel=4)
            continue
        if found.device == device:
            return found
    return None


def loads(content: bytes) -> TuningTable:
    """From the text of a file; a BackendError says what is wrong with it."""
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"format {read['format']!r}, and {FORMAT} is read here")
        entries = dict(_parse_entry(item) for item in read["entries"])
        return TuningTable(str(read["device"]), entries, dict(read["made"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackendError(f"no table of measured ways: {type(error).__name__}: {error}") from None


def _parse_entry(item: dict[str, Any]) -> tuple[TuningKey, TuningEntry]:
    kind = TuningKey(*(item[name] for name in TuningKey._fields))
    if not all(type(n) is int and 0 < n < 1 << 30 for n in kind[:4]):
        raise ValueError(f"no sizes: {kind[:4]}")
    if kind.matmul_dtype not in MATMUL_DTYPES or kind.direction not in DIRECTIONS:
        raise ValueError(f"unknown: {kind.matmul_dtype!r}, {kind.direction!r}")
    config = dict(item["config"])
    if not all(isinstance(name, str) and type(value) in (int, str) for name, value in config.items()):
        raise ValueError(f"config must map names to numbers, got {config}")
    whole, cudnn = (None if item.get(name) is None else _parse_time(item[name]) for name in ("whole_us", "cudnn_us"))
    return kind, TuningEntry(config, _parse_time(item["us"]), whole, cudnn)


def _parse_time(us: Any) -> float:
    if type(us) not in (int, float) or not 0 < us < math.inf:
        raise ValueError(f"no time: {us!r}")
    return float(us)


def dumps(of: TuningTable) -> bytes:
    rows = [
        {**kind._asdict(), **entry._asdict(), "config": dict(entry.config)}
        for kind, entry in sorted(of.entries.items())
    ]
    head = f'{{"format": {FORMAT}, "device": {json.dumps(of.device)}, "made": {json.dumps(of.made)}, "entries": ['
    return (head + "\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]}\n").encode()


def save(of: TuningTable, path: Path | None = None) -> Path:
    """For the user, or at `path`; whole or not at all."""
    path = user_file(of.device) if path is None else path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, dumps(of))
    _load_table.cache_clear()
    return path


# Measuring ------------------------------------------------------------------------------------------------------


class TuningTarget(Protocol):
    """What is measured, on what: see measuring.py."""

    device: str

    def problems(self) -> Sequence[TuningKey]:
        """All of them, the most wanted first."""

    def candidates(self, problem: TuningKey) -> Sequence[ConfigValues]:
        """Ways that may be the fastest, the likeliest first."""

    def measure(self, problem: TuningKey, config: ConfigValues) -> float | None:
        """Microseconds a step; None where there is no room for it."""

    def whole(self, problem: TuningKey, config: ConfigValues) -> float | None:
        """The same of the whole pass."""

    def cudnn(self, problem: TuningKey) -> float | None:
        """The same by cuDNN; None where it has no such cell."""


def tune(
    progress: Callable[[int, int, str], object],
    bench: TuningTarget,
    known: TuningTable | None = None,
    seconds: float = math.inf,
    made: dict[str, Any] | None = None,
) -> TuningTable:
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
        best: tuple[float, ConfigValues] | None = None
        for config in bench.candidates(kind):
            us = bench.measure(kind, config)
            if us is not None and (best is None or us < best[0]):
                best = us, config
        if best is not None:
            us, config = best
            entries[kind] = TuningEntry(dict(config), us, bench.whole(kind, config), bench.cudnn(kind))
    progress(sum(k in entries for k in wanted), len(wanted), "")
    return TuningTable(bench.device, entries, made or {})

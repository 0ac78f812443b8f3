"""Tuning tables: the fastest measured kernel configuration for each kind of scan, and the time of cuDNN.

A table is a JSON file, named after the GPU. A table of the user, in the folder of cached kernels, has priority over the
table that is shipped; `recur doctor --tune` writes it. A scan that was not measured uses the nearest entry.

    {"format": 2, "device": "NVIDIA H200", "made": {…}, "entries": [
     {"products": 4, "gates": 4, "H": 512, "S": 64, "matmul_dtype": "bfloat16", "direction": "forward",
      "config": {"exchange": 1, …}, "us": 1.9, "whole_us": 2.6, "cudnn_us": 14.2}, …]}
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
from typing import Any, NamedTuple

from recur.errors import BackendError
from recur.ops.cuda import nvrtc
from recur.utils.files import read_bounded, write_atomically

FORMAT = 2
SHIPPED_TABLES = Path(__file__).parent / "tables"
MAX_TABLE_BYTES = 1 << 22
MAX_DISTANCE = 1.0
"""Distance in doublings of H and S up to which an entry is used."""
MATMUL_DTYPES = ("bfloat16", "float16", "tf32", "exact")
"""Types of matmuls; float32 is either TF32 or exact."""
DIRECTIONS = ("forward", "backward")

ConfigValues = Mapping[str, int | str]
"""Fields of a KernelConfig by name; an empty mapping is one launch per step."""


class TuningKey(NamedTuple):
    """Properties of a scan by which a table is indexed."""

    products: int
    gates: int
    H: int
    S: int
    """Rows, of both directions if there are two."""
    matmul_dtype: str
    direction: str

    def describe(self) -> str:
        return f"{self.products} products, H {self.H}, {self.S} rows, {self.matmul_dtype}, {self.direction}"


class TuningEntry(NamedTuple):
    config: ConfigValues
    us: float
    """Microseconds per step of the kernel."""
    whole_us: float | None = None
    """Microseconds per step of the whole pass, with its large matmuls and the time of Python."""
    cudnn_us: float | None = None
    """Microseconds per step of the pass in cuDNN, if cuDNN has the cell."""


class TuningTable(NamedTuple):
    device: str
    entries: dict[TuningKey, TuningEntry]
    made: dict[str, Any]
    """Versions and date."""

    def nearest(self, kind: TuningKey) -> TuningEntry | None:
        """Return the entry of this key, or of the nearest one within MAX_DISTANCE; otherwise None."""
        if kind in self.entries:
            return self.entries[kind]
        alike = [k for k in self.entries if k._replace(gates=0, H=0, S=0) == kind._replace(gates=0, H=0, S=0)]
        if not alike:
            return None
        best = min(alike, key=lambda k: (_distance(k, kind), k.gates != kind.gates, -k.H, -k.S))
        return self.entries[best] if _distance(best, kind) <= MAX_DISTANCE else None

    def relative_to_cudnn(self, kinds: Sequence[TuningKey]) -> float | None:
        """Return our time divided by cuDNN's for these passes together; None if an entry is missing."""
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
    """Return the file name of a table: NVIDIA H200 → h200.json."""
    words = re.findall(r"[a-z0-9]+", device.lower())
    return "-".join(word for word in words if word != "nvidia") + ".json"


def user_file(device: str) -> Path:
    return nvrtc.cache_folder() / "tables" / table_name(device)


def load_table(device: str) -> TuningTable | None:
    """Return the table of a GPU: the user's, otherwise the shipped one, otherwise None."""
    return _load_table(device, user_file(device), SHIPPED_TABLES / table_name(device))


@functools.lru_cache(maxsize=16)
def _load_table(device: str, own: Path, shipped: Path) -> TuningTable | None:
    for path in (own, shipped):
        try:
            found = loads(read_bounded(path, MAX_TABLE_BYTES))
        except FileNotFoundError:
            continue
        except (OSError, BackendError) as error:
            warnings.warn(
                f"ignoring the tuning table {path}: {error}; recur doctor --tune writes a new one", stacklevel=4
            )
            continue
        if found.device == device:
            return found
    return None


def loads(content: bytes) -> TuningTable:
    """Parse a table; raise BackendError if it is damaged."""
    try:
        read = json.loads(content)
        if read["format"] != FORMAT:
            raise ValueError(f"format {read['format']!r}, and {FORMAT} is read here")
        entries = dict(_parse_entry(item) for item in read["entries"])
        return TuningTable(str(read["device"]), entries, dict(read["made"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BackendError(f"not a tuning table: {type(error).__name__}: {error}") from None


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
    """Write a table atomically, at `path` or as the user's table."""
    path = user_file(of.device) if path is None else path
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, dumps(of))
    _load_table.cache_clear()
    return path


# Measuring ------------------------------------------------------------------------------------------------------


def tune(
    progress: Callable[[int, int, str], object],
    bench: Any,
    known: TuningTable | None = None,
    seconds: float = math.inf,
    made: dict[str, Any] | None = None,
) -> TuningTable:
    """Measure all keys that `known` does not have, until the time is over.

    `bench` is a target such as `report.GpuTuningTarget`.
    `progress` is called with the number of finished keys, the number of all keys, and a description of the next one.
    """
    end = time.monotonic() + seconds
    entries = dict(known.entries) if known is not None and known.device == bench.device else {}
    wanted = bench.tuning_keys()
    for kind in [kind for kind in wanted if kind not in entries]:
        if time.monotonic() >= end:
            break
        progress(sum(k in entries for k in wanted), len(wanted), kind.describe())
        best: tuple[float, ConfigValues] | None = None
        for config in bench.candidates(kind):
            us = bench.measure(kind, config)
            if us is not None and (best is None or us < best[0]):
                best = us, config
        if best is not None:
            us, config = best
            entries[kind] = TuningEntry(dict(config), us, bench.measure_pass(kind, config), bench.measure_cudnn(kind))
    progress(sum(k in entries for k in wanted), len(wanted), "")
    return TuningTable(bench.device, entries, made or {})

"""Tuning tables: lookup, measurement, writing and reading, without a GPU."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recur.errors import BackendError
from recur.ops.cuda import tuning
from recur.ops.cuda.tuning import TuningEntry, TuningKey, TuningTable

LSTM = TuningKey(4, 4, 512, 64, "bfloat16", "forward")
BACK = LSTM._replace(direction="backward")


def entry(name: str, us: float = 1.0, **more: float) -> TuningEntry:
    return TuningEntry({"name": name}, us, **more)


def table_of(*entries: tuple[TuningKey, TuningEntry]) -> TuningTable:
    return TuningTable("NVIDIA H200", dict(entries), {"date": "2026-11-17"})


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RECUR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "SHIPPED_TABLES", tmp_path / "shipped")
    tuning._load_table.cache_clear()
    yield tmp_path
    tuning._load_table.cache_clear()


# Which is the nearest -------------------------------------------------------------------------------------------


def nearest(found: TuningTable, kind: TuningKey) -> Any:
    made = found.nearest(kind)
    return None if made is None else made.config["name"]


def test_a_problem_takes_its_own_entry_or_the_nearest() -> None:
    wide, tall = LSTM._replace(H=1024), LSTM._replace(S=256)
    found = table_of((LSTM, entry("own")), (wide, entry("wide")), (tall, entry("tall")))
    assert nearest(found, LSTM) == "own"
    assert nearest(found, LSTM._replace(H=650)) == "own", "650 is nearer to 512 than to 1024, in doublings"
    assert nearest(found, LSTM._replace(H=760)) == "wide"
    assert nearest(found, LSTM._replace(S=120)) == "own"
    assert nearest(found, LSTM._replace(S=150)) == "tall"
    assert nearest(found, LSTM._replace(H=700, S=100)) == "own"


def test_what_is_too_far_has_none() -> None:
    found = table_of((LSTM, entry("own")))
    assert nearest(found, LSTM._replace(H=1024)) == "own", "one doubling"
    assert nearest(found, LSTM._replace(H=1025)) is None
    assert nearest(found, LSTM._replace(S=33)) == "own"
    assert nearest(found, LSTM._replace(H=1000, S=33)) is None, "both together"


@pytest.mark.parametrize("other", [{"products": 3}, {"matmul_dtype": "tf32"}, {"direction": "backward"}], ids=str)
def test_what_is_of_another_kind_is_not_taken(other: dict[str, Any]) -> None:
    assert table_of((LSTM, entry("own"))).nearest(LSTM._replace(**other)) is None


def test_gates_and_size_break_ties() -> None:
    found = table_of((LSTM._replace(H=256), entry("half")), (LSTM._replace(H=1024), entry("double")))
    assert nearest(found, LSTM) == "double", "which fits the smaller one, too"
    found = table_of((LSTM._replace(gates=5), entry("five")), (LSTM._replace(H=513), entry("one more")))
    assert nearest(found, LSTM) == "five", "gates without a product matter least"


def test_relative_to_cudnn() -> None:
    found = table_of(
        (LSTM, entry("there", 1.0, whole_us=2.0, cudnn_us=14.0)), (BACK, entry("back", 2.0, whole_us=5.0, cudnn_us=6.0))
    )
    assert found.relative_to_cudnn([LSTM]) == pytest.approx(2 / 14)
    assert found.relative_to_cudnn([LSTM, BACK]) == pytest.approx(7 / 20)
    assert found.relative_to_cudnn([LSTM._replace(H=600)]) == pytest.approx(2 / 14)
    assert found.relative_to_cudnn([LSTM._replace(products=2)]) is None
    assert table_of((LSTM, entry("own"))).relative_to_cudnn([LSTM]) is None


# Files ----------------------------------------------------------------------------------------------------------


def test_the_users_table_comes_before_the_shipped_one(folder: Path) -> None:
    assert tuning.load_table("NVIDIA H200") is None
    shipped = table_of((LSTM, entry("shipped", 3.0, cudnn_us=9.0)))
    assert tuning.save(shipped, folder / "shipped" / "h200.json").exists()
    assert tuning.load_table("NVIDIA H200") == shipped
    own = tuning.save(table_of((LSTM, entry("own")), (BACK, entry("", 2.5, whole_us=3.5))))
    assert own == folder / "cache" / "tables" / "h200.json"
    found = tuning.load_table("NVIDIA H200")
    assert found is not None
    assert nearest(found, LSTM) == "own"
    assert found.entries[BACK] == TuningEntry({"name": ""}, 2.5, 3.5, None)
    assert tuning.load_table("NVIDIA H100 PCIe") is None


@pytest.mark.parametrize("name", ["NVIDIA H200", "nvidia  h200", "H200"])
def test_a_table_is_named_after_its_gpu(name: str) -> None:
    assert tuning.table_name(name) == "h200.json"


def test_a_table_of_another_gpu_is_not_taken(folder: Path) -> None:
    tuning.save(table_of((LSTM, entry("own")))._replace(device="NVIDIA-H200"))
    assert tuning.load_table("NVIDIA H200") is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda read: "nothing", "not a tuning table"),
        (lambda read: read | {"format": 1}, "format 1, and 2 is read here"),
        (lambda read: {k: v for k, v in read.items() if k != "entries"}, "KeyError: 'entries'"),
        (lambda read: _changed(read, H=0), "no sizes"),
        (lambda read: _changed(read, S=1.5), "no sizes"),
        (lambda read: _changed(read, matmul_dtype="8 bits"), "unknown: '8 bits'"),
        (lambda read: _changed(read, config={"exchange": [1]}), "config must map names to numbers"),
        (lambda read: _changed(read, us=-1), "no time: -1"),
        (lambda read: _changed(read, us=math.nan), "no time: nan"),
        (lambda read: _changed(read, cudnn_us="2"), "no time: '2'"),
    ],
)
def test_a_damaged_table_is_passed_over_in_a_line(change: Any, says: str, folder: Path) -> None:
    shipped = table_of((LSTM, entry("shipped")))
    tuning.save(shipped, folder / "shipped" / "h200.json")
    path = tuning.save(table_of((LSTM, entry("own"))))
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    with pytest.raises(BackendError, match=says):
        tuning.loads(path.read_bytes())
    with pytest.warns(UserWarning, match="ignoring the tuning table .*recur doctor --tune writes a new one") as said:
        assert tuning.load_table("NVIDIA H200") == shipped
    assert "\n" not in str(said[0].message)
    assert tuning.load_table("NVIDIA H200") == shipped, "said once"


def _changed(read: Any, **fields: Any) -> Any:
    return read | {"entries": [read["entries"][0] | fields]}


# Measuring ------------------------------------------------------------------------------------------------------


class Described:
    """GPU with given times for each configuration; `fast` does not fit forward."""

    device = "NVIDIA H200"

    def __init__(self) -> None:
        self.measured: list[tuple[TuningKey, Any]] = []

    def tuning_keys(self) -> list[TuningKey]:
        return [LSTM, BACK, LSTM._replace(products=9)]

    def candidates(self, problem: TuningKey) -> list[tuning.ConfigValues]:
        return [{"name": "slow"}, {"name": "fast"}, {"name": "middle"}, {}] if problem.products == 4 else []

    def measure(self, problem: TuningKey, config: tuning.ConfigValues) -> float | None:
        self.measured.append((problem, config.get("name")))
        times = {"slow": 9.0, "fast": 1.0 if problem == BACK else None, "middle": 4.0, None: 20.0}
        return times[config.get("name")]  # type: ignore[index]

    def measure_pass(self, problem: TuningKey, config: tuning.ConfigValues) -> float | None:
        return 6.0

    def measure_cudnn(self, problem: TuningKey) -> float | None:
        return 12.0 if problem == LSTM else None


def test_the_fastest_that_fits_is_kept() -> None:
    bench, told = Described(), []
    found = tuning.tune(lambda *progress: told.append(progress), bench, made={"by": "a test"})
    assert found.entries == {
        LSTM: TuningEntry({"name": "middle"}, 4.0, 6.0, 12.0),
        BACK: TuningEntry({"name": "fast"}, 1.0, 6.0, None),
    }
    assert (found.device, found.made) == ("NVIDIA H200", {"by": "a test"})
    assert [done for done, _, _ in told] == [0, 1, 2, 2]
    assert told[0][1:] == (3, "4 products, H 512, 64 rows, bfloat16, forward")
    assert tuning.loads(tuning.dumps(found)) == found


def test_what_is_known_is_not_measured_again() -> None:
    bench = Described()
    known = table_of((LSTM, entry("known")))
    found = tuning.tune(lambda *progress: None, bench, known)
    assert found.entries[LSTM] == entry("known")
    assert {kind for kind, _ in bench.measured} == {BACK}
    other = Described()
    tuning.tune(lambda *progress: None, other, known._replace(device="NVIDIA A100"))
    assert {kind for kind, _ in other.measured} == {LSTM, BACK}, "of another GPU nothing is known"


def test_time_is_limited() -> None:
    bench = Described()
    assert tuning.tune(lambda *progress: None, bench, seconds=0).entries == {}
    assert bench.measured == []

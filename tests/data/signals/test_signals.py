"""Sequences of numbers from files, folders and archives: what was written comes back, with its labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recur.data.signals import inspect_signals, is_signals, label_of, labels_of, read_signal, read_signals
from recur.errors import TextError

DRAW = np.random.default_rng(0)
LENGTHS = [3, 1, 5, 2]
ROWS = [DRAW.normal(size=(n, 2)).astype(np.float32) for n in LENGTHS]


def padded(rows: list[np.ndarray], fill: float = 99.0) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows)), *rows[0].shape[1:]), fill, rows[0].dtype)
    for k, row in enumerate(rows):
        table[k, : len(row)] = row
    return table


def saved(path: Path, **arrays: object) -> str:
    np.savez(path, **arrays)
    return str(path)


def same(names: list[str], rows: list[np.ndarray]) -> None:
    found = read_signals(names, labelled=False)
    assert [signal.values.tolist() for signal in found] == [row.reshape(len(row), -1).tolist() for row in rows]
    assert {signal.values.dtype for signal in found} == {np.dtype(np.float32)}


def test_ragged_arrays_padded_or_behind_each_other(tmp_path: Path) -> None:
    same([saved(tmp_path / "a.npz", x=padded(ROWS), lengths=LENGTHS)], ROWS)
    same([saved(tmp_path / "b.npz", x=np.concatenate(ROWS), lengths=LENGTHS)], ROWS)
    one = [row[:, 0] for row in ROWS]
    same([saved(tmp_path / "c.npz", x=padded(one), lengths=LENGTHS)], one)
    same([saved(tmp_path / "d.npz", frames=np.concatenate(one), x_lengths=LENGTHS)], one)
    whole = DRAW.integers(0, 255, (4, 6, 3)).astype(np.uint8)
    same([saved(tmp_path / "e.npz", x=whole)], list(whole))
    same([saved(tmp_path / "f.npz", x=whole[:, :, 0])], list(whole[:, :, 0]))


@pytest.mark.parametrize("y", [np.array([3, 1, 0, 1]), np.array([[3], [1], [0], [1]]), np.array(["3", "1", "0", "1"])])
def test_a_class_for_each_sequence(y: np.ndarray, tmp_path: Path) -> None:
    name = saved(tmp_path / "a.npz", x=padded(ROWS), lengths=LENGTHS, y=y)
    assert [label_of(signal) for signal in read_signals([name])] == ["3", "1", "0", "1"]
    look = inspect_signals(name)
    assert look is not None
    assert (look.labels, look.sure) == ("class", True)


def test_a_label_for_each_step(tmp_path: Path) -> None:
    tags = [np.arange(n) % 2 for n in LENGTHS]
    expected = [tuple(map(str, row)) for row in tags]
    for k, arrays in enumerate(
        (
            {"x": padded(ROWS), "lengths": LENGTHS, "y": padded(tags, 7)},
            {"x": np.concatenate(ROWS), "lengths": LENGTHS, "tags": np.concatenate(tags)},
        )
    ):
        name = saved(tmp_path / f"{k}.npz", **arrays)
        found = read_signals([name])
        assert [labels_of(signal) for signal in found] == expected
        assert inspect_signals(name)[:2] == ("steps", True)  # type: ignore[index]
        with pytest.raises(TextError, match=r"\[0\] has 3 labels, and a class is one: take --task tag"):
            label_of(found[0])


def test_label_sequences_of_lengths_of_their_own(tmp_path: Path) -> None:
    labels = [("a", "b"), ("a",), (), ("b", "a", "a")]
    own = [len(row) for row in labels]
    flat = [label for row in labels for label in row]
    rows = padded([np.array(row, "<U1") for row in labels], "?")  # type: ignore[arg-type]
    for k, y in enumerate((flat, rows)):
        name = saved(tmp_path / f"{k}.npz", x=padded(ROWS), lengths=LENGTHS, y=y, y_lengths=own)
        assert [labels_of(signal) for signal in read_signals([name])] == labels
        assert inspect_signals(name)[:2] == ("sequences", True)  # type: ignore[index]
    name = saved(tmp_path / "text.npz", x=padded(ROWS), lengths=LENGTHS, y=["a b", "a", "", "b a a"])
    assert [labels_of(signal) for signal in read_signals([name])] == labels


def test_parts_of_an_archive(tmp_path: Path) -> None:
    arrays = {"x_train": padded(ROWS), "lengths_train": LENGTHS, "y_train": [0, 1, 0, 1]}
    arrays |= {"x_test": padded(ROWS[:2]), "test_lengths": LENGTHS[:2], "y_test": [1, 0]}
    name = saved(tmp_path / "a.npz", **arrays)
    assert [signal.target for signal in read_signals([name])] == ["0", "1", "0", "1"]
    assert [signal.target for signal in read_signals([f"{name}:test"])] == ["1", "0"]
    same([f"{name}:test"], ROWS[:2])
    with pytest.raises(TextError, match="has no part valid; it has train, test"):
        read_signals([f"{name}:valid"])


def write(path: Path, row: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, row)
    else:
        path.write_text("".join(",".join(map(repr, map(float, step))) + "\n" for step in row))


@pytest.mark.parametrize("suffix", [".csv", ".npy"])
def test_a_folder_for_each_class(suffix: str, tmp_path: Path) -> None:
    for k, row in enumerate(ROWS):
        write(tmp_path / ("up" if k % 2 else "down") / f"{k}{suffix}", row)
    found = read_signals([str(tmp_path)])
    assert [(Path(signal.where).name, signal.target) for signal in found] == [
        *((f"{k}{suffix}", "down") for k in (0, 2)),
        *((f"{k}{suffix}", "up") for k in (1, 3)),
    ]
    same([str(tmp_path)], [ROWS[k] for k in (0, 2, 1, 3)])
    assert is_signals(str(tmp_path))
    assert inspect_signals(str(tmp_path)) == ("class", True, "a folder of sequences of numbers for each class")


@pytest.mark.parametrize(("name", "between"), [("labels.csv", ","), ("labels.tsv", "\t")])
def test_a_list_of_labels(name: str, between: str, tmp_path: Path) -> None:
    for k, row in enumerate(ROWS):
        write(tmp_path / f"{k}.{'npy' if k else 'csv'}", row)
    rows = ["file label", "2.npy a", "0 b", "1.npy a"]
    (tmp_path / name).write_text("\n".join(row.replace(" ", between) for row in rows))
    assert [signal.target for signal in read_signals([str(tmp_path)])] == ["a", "b", "a"]
    same([str(tmp_path)], [ROWS[k] for k in (2, 0, 1)])
    assert inspect_signals(str(tmp_path)) == ("class", True, f"3 sequences of numbers with labels in {name}")
    (tmp_path / name).write_text(f"2.npy{between}a b c\n0{between}b\n")
    assert [labels_of(signal) for signal in read_signals([str(tmp_path)])] == [("a", "b", "c"), ("b",)]
    assert inspect_signals(str(tmp_path))[:2] == ("sequences", True)  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    ["x,tag,y\n1,A,2\n3,B,4\n", "1,2,A\n3,4,B\n", "\ufeffx,y,Label\n1,2,A\n\n3,4,B\n", "x,y,label\n1, 2,A\n3,4 ,B"],
)
def test_a_column_of_tags(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    values, tags = read_signal(tmp_path / "a.csv")
    assert values.tolist() == [[1, 2], [3, 4]]
    assert tags == ("A", "B")
    assert inspect_signals(str(tmp_path))[:2] == ("steps", True)  # type: ignore[index]


def test_a_file_without_labels_is_for_prediction_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.npy", ROWS[0])
    assert read_signals([str(tmp_path / "a.npy")], labelled=False)[0].target is None
    with pytest.raises(TextError, match=r"a\.npy has no label; a folder has a folder for each class"):
        read_signals([str(tmp_path / "a.npy")])


@pytest.mark.parametrize(
    ("x", "sure"),
    [
        (np.zeros((4, 8, 8)), None),  # square: images
        (np.zeros((4, 8, 6), np.uint8), None),  # whole numbers: pixels
        (np.zeros((4, 50, 6)), False),  # either
        (np.zeros((4, 50)), True),  # no rows and columns
    ],
)
def test_images_or_sequences(x: np.ndarray, sure: bool | None, tmp_path: Path) -> None:
    look = inspect_signals(saved(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1]))
    assert (None if look is None else look.sure) == sure
    if x.ndim == 3:
        for k, row in enumerate(x):
            write(tmp_path / f"class{k % 2}" / f"{k}.npy", row)
        (tmp_path / "a.npz").unlink()
        look = inspect_signals(str(tmp_path))
        assert (None if look is None else look.sure) == sure


def test_what_is_no_sequences(tmp_path: Path) -> None:
    for name, text in (
        ("a/a.txt", "x"),
        ("b/labels.csv", "some, text, of\nits, own, kind\n"),
        ("c/a.csv", "a,b\nc,d\n"),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
        assert inspect_signals(str((tmp_path / name).parent)) is None
    assert inspect_signals(str(tmp_path)) is None
    assert inspect_signals("nowhere") is None
    assert inspect_signals("x" * 5000) is None

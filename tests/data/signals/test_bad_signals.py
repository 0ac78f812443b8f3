"""Files that are no sequences of numbers: a line says what was expected, nothing in them runs, none fills a memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recur.data.signals import read_signals
from recur.errors import TextError
from tests.data.images.test_bad_images import npy, npz


def refused(name: str, says: str, labelled: bool = True) -> None:
    with pytest.raises(TextError, match=says) as caught:
        read_signals([name], labelled)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((2, 3, 4, 5)), "y": [0, 1]}, "has no array of sequences"),
        ({"x": np.zeros((2, 3)), "z": np.zeros((2, 3))}, "several arrays that could be sequences"),
        ({"x": np.zeros(6), "y": [0, 1]}, r"concatenated steps need an array `lengths` \(N,\)"),
        ({"x": np.zeros(6), "lengths": [2, 3]}, "2 lengths up to 3 with a sum of 5"),
        ({"x": np.zeros((2, 3, 1)), "lengths": [2, 4]}, "2 lengths up to 4 with a sum of 6"),
        ({"x": np.zeros((2, 3, 1)), "lengths": [2, 3, 1]}, "3 lengths, and x has 2 sequences"),
        ({"x": np.zeros((2, 3, 1)), "lengths": [2, -1]}, "lengths holds -1: no length"),
        ({"x": np.zeros((2, 3, 1)), "lengths": [2, 0]}, r"\[1\] has no step"),
        ({"x": np.zeros((2, 3, 1)), "lengths": [2.0, 1.0]}, r"lengths must be whole numbers \(N,\)"),
        ({"x": np.zeros((0, 3, 1))}, "no sequence of numbers"),
        ({"x": np.zeros((2, 3, 0))}, "no sequence of numbers"),
        ({"x": np.array([[0, np.nan]]), "y": [1]}, "not finite"),
        ({"x": np.array([[0, 1e31]]), "y": [1]}, "beyond 1e[+]30"),
        ({"x": np.array([["a", "b"]]), "y": [1]}, "has no array of sequences"),
        ({"x": np.zeros((2, 3)), "y": [0.5, 1.5]}, "y must be whole numbers or text"),
        ({"x": np.zeros((2, 3)), "y": [0, 1, 2]}, "y is .3,., and 2 lengths up to 3"),
        ({"x": np.zeros((2, 3)), "y": [0, 1, 2], "y_lengths": [1, 1]}, "with a sum of 2"),
        ({"x": np.zeros((2, 3)), "y": [0, 1, 2], "y_lengths": [1, 1, 1]}, "3 lengths, and there are 2 sequences"),
        ({"x": np.zeros((2, 3))}, "has no label"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, object], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    refused(str(tmp_path / "a.npz"), says)


def test_arrays_that_say_they_are_larger_than_any_memory(tmp_path: Path) -> None:
    refused(npz(tmp_path / "a.npz", x=npy("(2, 1000000, 1000000)")), "cannot be uint8 of")
    refused(npz(tmp_path / "b.npz", x=npy("(2, 3)", "'|O'", b"x" * 99)), "has no array of sequences|cannot be")
    (tmp_path / "c.npy").write_bytes(npy("(1000000000, 1000000)"))
    refused(str(tmp_path / "c.npy"), "cannot be read as a sequence of numbers: an array of", labelled=False)


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (ran,)

    evil = np.array([Evil()] * 4, dtype=object)
    np.save(tmp_path / "a.npy", evil, allow_pickle=True)
    refused(str(tmp_path / "a.npy"), "cannot be read as a sequence of numbers", labelled=False)
    for k, arrays in enumerate(({"x": evil}, {"x": np.zeros((4, 2)), "y": evil})):
        np.savez(tmp_path / f"{k}.npz", **arrays)
        refused(str(tmp_path / f"{k}.npz"), "no array of sequences|must be whole numbers or text|cannot be")
    assert not ran.exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("x,y\n", "has a header and no steps"),
        ("1,2\n3\n", "a.csv:2: 1 columns, where others have 2"),
        ("1,2\n3,x\n", "a.csv:2: 'x' is not a number"),
        ("x,tag\n1,A\n2,\n", "a.csv:3: the step has no label"),
        ("tag\nA\n", "has 0 columns of numbers"),
        ("1,2\n3,nan\n", "not finite"),
        ('1,"2\n', "is not a CSV"),
        ("1\0,2\n", "not a number|is not a CSV"),
    ],
)
def test_a_csv_that_is_none(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    refused(str(tmp_path / "a.csv"), says, labelled=False)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1,2\n\xff\xfe")
    refused(str(tmp_path / "a.csv"), "is not UTF-8 at byte", labelled=False)
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    refused(str(tmp_path / "a.wav"), r"expected a file that ends in \.csv or \.npy", labelled=False)
    refused(str(tmp_path / "nowhere.npy"), "no file")
    refused(str(tmp_path / "nowhere.npz"), "no file")
    np.save(tmp_path / "b.npy", np.zeros((2, 3, 4)))
    refused(str(tmp_path / "b.npy"), r"\(steps, features\) or \(steps,\), got \(2, 3, 4\)", labelled=False)


def test_lists_of_labels(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    np.save(tmp_path / "outside.npy", np.zeros(3))
    np.save(tmp_path / "inner" / "a.npy", np.zeros(3))
    labels = tmp_path / "inner" / "labels.csv"
    for text, says in (
        ("b,1\n", "labels.csv:1: no file 'b' in"),
        ("../outside.npy,1\n", "labels.csv:1: no file"),
        (f"{'n' * 253},1\n", "labels.csv:1: no file"),  # too long with an ending
        ("a,1\na\n", "labels.csv:2: a line is a file and its label with a comma between"),
        ("file,label\n", "is empty"),
    ):
        labels.write_text(text)
        refused(str(tmp_path / "inner"), says)


def test_features_are_as_many_everywhere(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "b.csv").write_text("1,2,3\n")
    with pytest.raises(TextError, match=r"b\.csv has 3 features a step, and .*a\.csv has 2"):
        read_signals([str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], labelled=False)

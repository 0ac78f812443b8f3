"""Images from files, folders and arrays: what was written is what is read, and what is wrong is said in one line."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from recur.data.images import find_image_arrays, is_image_folder, read_image, read_images, same_channels, split_name
from recur.data.text.recognition import recognise
from recur.errors import OptionError, TextError

DRAW = np.random.default_rng(3)
GREY = DRAW.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = DRAW.integers(0, 256, (4, 6, 3), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "bmp", "pgm", "ppm", "tif"])
def test_what_pillow_wrote_is_read(suffix: str, tmp_path: Path) -> None:
    if suffix != "ppm":
        Pillow.fromarray(GREY).save(tmp_path / f"grey.{suffix}")
        np.testing.assert_array_equal(read_image(tmp_path / f"grey.{suffix}"), GREY[..., None])
    if suffix != "pgm":
        Pillow.fromarray(COLOUR).save(tmp_path / f"colour.{suffix}")
        np.testing.assert_array_equal(read_image(tmp_path / f"colour.{suffix}"), COLOUR)


def test_netpbm_as_text_and_with_sixteen_bits(tmp_path: Path) -> None:
    values = "\n".join(" ".join(map(str, row)) for row in GREY.tolist())
    (tmp_path / "a.pgm").write_text(f"P2\n# a comment\n7 5\n255\n{values}\n")
    np.testing.assert_array_equal(read_image(tmp_path / "a.pgm"), GREY[..., None])
    wide = GREY.astype(int) * 200
    (tmp_path / "b.pgm").write_bytes(b"P5 7 5 65535\n" + wide.astype(">u2").tobytes())
    np.testing.assert_array_equal(read_image(tmp_path / "b.pgm"), wide[..., None])


def test_arrays_keep_their_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", GREY / 3)
    np.testing.assert_array_equal(read_image(tmp_path / "a.npy"), GREY[..., None] / 3)


def write_folder(here: Path) -> None:
    for label in ("cat", "dog"):
        (here / label).mkdir(parents=True)
        for k in range(2):
            Pillow.fromarray(GREY + k).save(here / label / f"{k}.png")


def test_a_folder_of_folders(tmp_path: Path) -> None:
    write_folder(tmp_path / "pets")
    found = read_images([str(tmp_path / "pets")])
    assert [image.label for image in found] == ["cat", "cat", "dog", "dog"]
    np.testing.assert_array_equal(found[1].pixels, (GREY + 1)[..., None])
    assert found[0].where == str(tmp_path / "pets" / "cat" / "0.png")
    assert is_image_folder(tmp_path / "pets")
    assert recognise([str(tmp_path / "pets")]).kind == "images"
    unlabelled = read_images([str(tmp_path / "pets" / "cat"), str(tmp_path / "pets" / "dog" / "1.png")], labelled=False)
    assert [image.label for image in unlabelled] == [None] * 3
    (tmp_path / "pets" / "dog" / "notes.txt").write_text("a text\n")
    assert not is_image_folder(tmp_path / "pets"), "among texts it is a folder of texts"
    assert recognise([str(tmp_path / "pets")]).kind == "text"


def test_the_arrays_of_an_npz_are_found(tmp_path: Path) -> None:
    images, labels = np.stack([GREY] * 4), np.array([0, 1, 1, 0])
    np.savez(tmp_path / "a.npz", weights=np.zeros(3), images=images, target=labels, names=np.array(["zero", "one"]))
    found = find_image_arrays(str(tmp_path / "a.npz"))
    assert (found.images, found.labels, found.shape, found.parts) == ("images", "target", (4, 5, 7), ())
    assert [image.label for image in read_images([str(tmp_path / "a.npz")])] == ["0", "1", "1", "0"]
    kind = recognise([str(tmp_path / "a.npz")])
    assert (kind.kind, kind.sure) == ("images", True)
    assert kind.why == "4 images of 5 × 7 (array images, labels target)"


def test_the_parts_of_an_npz_and_colours_behind_n(tmp_path: Path) -> None:
    first = np.stack([COLOUR.transpose(2, 0, 1)] * 3)
    arrays: dict[str, Any] = {"x_train": first, "y_train": np.array(["a", "b", "a"])}
    np.savez(tmp_path / "a.npz", x_test=first[:2], y_test=np.array([["b"], ["a"]]), **arrays)
    path = str(tmp_path / "a.npz")
    assert find_image_arrays(path).parts == ("train", "test")
    assert split_name(f"{path}:test") == (path, "test")
    train, test = read_images([path]), read_images([f"{path}:test"])
    assert [[image.label for image in part] for part in (train, test)] == [["a", "b", "a"], ["b", "a"]]
    np.testing.assert_array_equal(train[0].pixels, COLOUR)
    with pytest.raises(TextError, match="has no part valid; it has train, test"):
        read_images([f"{path}:valid"])


def test_grey_and_colour_together(tmp_path: Path) -> None:
    Pillow.fromarray(GREY).save(tmp_path / "a.png")
    Pillow.fromarray(COLOUR).save(tmp_path / "b.png")
    images = read_images([str(tmp_path / name) for name in ("a.png", "b.png")], labelled=False)
    grey, _ = same_channels(images, 3)
    assert grey.pixels.shape == (5, 7, 3)
    assert (grey.pixels == GREY[..., None]).all()
    with pytest.raises(TextError, match="b.png has colours, and this model was trained on grey images"):
        same_channels(images, 1)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.zeros((4, 9)), "y": np.zeros(4, int)}, "no array of images (n, rows, columns): x (4, 9), y (4,)"),
        ({"a": np.zeros((2, 3, 3)), "b": np.zeros((2, 3, 3))}, "several arrays that could be images"),
        (
            {"x": np.zeros((2, 3, 3)), "y": np.zeros(2, int), "z": np.zeros(2, int)},
            "several arrays that could be labels",
        ),
        ({"x": np.zeros((2, 3, 3)), "y": np.zeros(2)}, "has no labels: no array of 2 whole numbers or texts beside x"),
        ({"x": np.full((2, 3, 3), np.nan), "y": np.zeros(2, int)}, "x has values that are not finite"),
        ({"x": np.zeros((2, 5, 3, 7)), "y": np.zeros(2, int)}, "no axis of 1 or 3 colours"),
        ({"x": np.array([None, 2])}, "a.npz has no array of images"),
    ],
)
def test_what_an_npz_lacks_is_said(arrays: dict[str, Any], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(TextError) as error:
        read_images([str(tmp_path / "a.npz")])
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.png", b"no image", "a.png cannot be read as an image"),
        ("a.pgm", b"P7 3 3", "a .pgm or .ppm begins with P2, P3, P5 or P6"),
        ("a.pgm", b"P5 3 3 255\n1234", "says 3 × 3 pixels, and has 4"),
        ("a.npy", b"nothing", "a.npy cannot be read as an image"),
        ("a.npz", b"nothing", "a.npz cannot be read as an .npz"),
    ],
)
def test_damage_is_named(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError) as error:
        read_images([str(tmp_path / name)], labelled=False)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_image_by_itself_has_no_label(tmp_path: Path) -> None:
    Pillow.fromarray(GREY).save(tmp_path / "a.png")
    with pytest.raises(TextError, match="a.png has no labels"):
        read_images([str(tmp_path / "a.png")])
    with pytest.raises(TextError, match="no file"):
        read_images([str(tmp_path / "b.png")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TextError, match="holds no image"):
        read_images([str(tmp_path / "empty")])
    np.save(tmp_path / "long.npy", np.zeros((3, 3, 2)))
    with pytest.raises(TextError, match="is not an image: .* got \\(3, 3, 2\\)"):
        read_image(tmp_path / "long.npy")


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Pillow.fromarray(GREY).save(tmp_path / "a.png")
    np.save(tmp_path / "a.npy", GREY)
    ordinary = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return ordinary(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"a.png needs Pillow, which is not installed: pip install 'recur\[image\]'"):
        read_image(tmp_path / "a.png")
    assert read_image(tmp_path / "a.npy").shape == (5, 7, 1)

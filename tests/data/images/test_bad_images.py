"""Files that are no images, or say that they are larger than any memory."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recur.data.images import find_image_arrays, read_image, read_images
from recur.errors import TextError


def npy(shape: str, descr: str = "'<u1'", data: bytes = b"") -> bytes:
    """An array whose header says what it likes."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def npz(path: Path, method: int = zipfile.ZIP_STORED, **arrays: bytes) -> str:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in arrays.items():
            archive.writestr(f"{name}.npy", content)
    return str(path)


@pytest.mark.parametrize(
    ("x", "says"),
    [
        (npy("(2, 10**6, 10**6)"), "cannot be read as an .npz"),
        (npy("(2, 1000000, 1000000)"), "cannot be uint8 of"),
        (npy("(-2, -3, 4)", data=b"x" * 24), "cannot be uint8 of"),
        (npy("(1000000000000, 2, 2)", "'<U0'"), "cannot be <U0 of"),
        (npy("(2, 0, 4)"), "no pixel at all"),
        (npy("(2, 3, 4)", "'|O'", pickle.dumps([1])), "cannot be object of"),
        (npy("(2, 1, 1)", "[('a', '<f4')]", b"x" * 8), "no array of images"),
        (npy("(2, 3, 4)")[:20], "cannot be read as an .npz"),
        (b"", "cannot be read as an .npz"),
        (b"\x93NUMPY\x09\x09", "cannot be read as an .npz"),
    ],
)
def test_arrays_that_are_none(x: bytes, says: str, tmp_path: Path) -> None:
    name = npz(tmp_path / "a.npz", x=x, y=npy("(2,)", data=b"ab"))
    with pytest.raises(TextError, match=says):
        read_images([name])


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    """An array of objects is a program: it is refused as labels, as an image, and as an .npy."""
    ran = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (ran,)

    packed = io.BytesIO()
    np.save(packed, np.array([Evil(), Evil()]), allow_pickle=True)
    name = npz(tmp_path / "a.npz", x=npy("(2, 2, 2)", data=b"abcdefgh"), y=packed.getvalue())
    assert find_image_arrays(name).labels is None
    (tmp_path / "a.npy").write_bytes(packed.getvalue())
    for call in (lambda: read_images([name]), lambda: read_image(tmp_path / "a.npy")):
        with pytest.raises(TextError):
            call()
    assert not ran.exists()


def test_an_archive_that_would_fill_a_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.images.NPZ_BYTES", 1 << 16)
    zeros = npy("(2, 1024, 1024)", data=bytes(1 << 21))
    name = npz(tmp_path / "a.npz", zipfile.ZIP_DEFLATED, x=zeros, y=npy("(2,)", data=b"ab"))
    with pytest.raises(TextError, match="a.npz unpacks to more than 100 times its size"):
        read_images([name])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.pgm", b"P2" + b" " * 5000),
        ("a.pgm", b"P2" + b"#\n" * 5000),
        ("a.pgm", b"P2 99999999999 2 255 1"),
        ("a.pgm", b"P5 1 1 65535\nabc"[:-2]),
        ("a.ppm", b"P3 1 1 255\nx y z"),
        ("a.npy", npy("(100000, 100000)")),
        ("a.npy", b"PK\x03\x04 no zip"),
        ("a.npy", b"\x80\x04N."),
        ("a.png", b"\x89PNG\r\n\x1a\n"),
        ("a.gif", b"GIF89a"),
        ("a.png", b""),
    ],
)
def test_images_that_are_none(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextError, match=name):
        read_image(tmp_path / name)


def test_numbers_that_no_file_should_have(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").write_bytes(b"P2 1 1 255\n" + b"9" * 40)
    assert read_image(tmp_path / "a.pgm").shape == (1, 1, 1)
    np.save(tmp_path / "a.npy", np.full((2, 2), 1e40))
    with pytest.raises(TextError, match="values that are not finite, or beyond"):
        read_image(tmp_path / "a.npy")


def test_a_picture_that_unpacks_to_a_memory_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recur.data.images.IMAGE_PIXELS", 99)
    Image.new("L", (10, 10)).save(tmp_path / "a.png")
    with pytest.raises(TextError, match="expected at most 99 pixels, got 100; scale the image \\(10 × 10\\) down"):
        read_image(tmp_path / "a.png")


def test_devices_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "a.pgm").symlink_to("/dev/zero")
    (tmp_path / "a.npz").symlink_to("/dev/zero")
    with pytest.raises(TextError, match="it is a device, which has no end"):
        read_image(tmp_path / "a.pgm")
    with pytest.raises(TextError, match="it is a device, which has no end"):
        read_images([str(tmp_path / "a.npz")])
    with pytest.raises(TextError, match="its name holds a zero byte"):
        read_images(["a\0b.npz"])

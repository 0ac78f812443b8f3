"""Files of a run stay inside it: links are not followed, and what is no file is not read."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from recur.errors import RunError
from recur.runs.safe_dir import SafeDir


@pytest.fixture
def place(tmp_path: Path) -> SafeDir:
    (tmp_path / "run" / "resume").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("mine")
    return SafeDir(tmp_path / "run")


def test_what_is_written_is_read(place: SafeDir) -> None:
    place.write("resume/a", b"first")
    place.write("resume/a", b"second")
    place.append("resume/a", b" and third")
    assert place.read("resume/a") == b"second and third"
    assert [p.name for p in (place.path / "resume").iterdir()] == ["a"]
    with pytest.raises(RunError, match="has 16 bytes"):
        place.read("resume/a", most=15)
    with pytest.raises(FileNotFoundError) as missing:
        place.read("resume/b")
    assert missing.value.filename == str(place.path / "resume/b")


@pytest.mark.parametrize("name", ["a", "resume/a"])
def test_a_link_is_not_followed(place: SafeDir, name: str) -> None:
    link, outside = place.path / name, place.path.parent / "outside.txt"
    link.symlink_to(outside)
    for act in (lambda: place.read(name), lambda: place.append(name, b"!")):
        with pytest.raises(RunError, match="is a link, or behind one"):
            act()
    place.write(name, b"ours")  # replaces the link itself
    assert (link.is_symlink(), link.read_text(), outside.read_text()) == (False, "ours", "mine")


def test_a_folder_that_is_a_link_is_not_entered(place: SafeDir, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_text("mine")
    (tmp_path / "elsewhere" / ".a.0123abcd.part").write_text("mine")
    (place.path / "resume").rmdir()
    (place.path / "resume").symlink_to(tmp_path / "elsewhere")
    for act in (lambda: place.read("resume/a"), lambda: place.write("resume/a", b"!")):
        with pytest.raises(RunError, match="is a link, or behind one"):
            act()
    with pytest.raises(RunError, match="is not a folder, and a run needs one"):
        place.make_folder("resume")
    place.sweep("resume")
    assert len(list((tmp_path / "elsewhere").iterdir())) == 2
    assert (tmp_path / "elsewhere" / "a").read_text() == "mine"


def test_a_hard_link_is_not_read_or_written_through(place: SafeDir) -> None:
    outside = place.path.parent / "outside.txt"
    os.link(outside, place.path / "a")
    for act in (lambda: place.read("a"), lambda: place.append("a", b" and ours"), lambda: place.digest("a")):
        with pytest.raises(RunError, match="has 2 hard links"):
            act()
    place.write("a", b"ours")  # replaces the link itself
    assert (outside.read_text(), place.read("a")) == ("mine", b"ours")


def test_what_is_no_file_is_not_read(place: SafeDir) -> None:
    os.mkfifo(place.path / "pipe")  # nobody writes into it: reading would wait for ever
    (place.path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place.path / "socket"))
    for name in ("pipe", "folder", "socket"):
        for act in (place.read, lambda name: place.append(name, b"!")):
            with pytest.raises(RunError, match="is not a regular file"):
                act(name)


def test_only_what_was_half_written_is_swept(place: SafeDir) -> None:
    for name in (".a.json.0123abcd.part", ".a.part", "a.0123abcd.part", "mine"):
        (place.path / name).write_text("")
    place.sweep("resume", "nowhere")
    assert sorted(p.name for p in place.path.iterdir()) == [".a.part", "a.0123abcd.part", "mine", "resume"]


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_is_named(
    place: SafeDir, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("a", b"old")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left") as error:
        place.write("a", b"new")
    monkeypatch.undo()
    assert error.value.filename == str(place.path / "a")
    assert place.read("a") == b"old"
    assert sorted(p.name for p in place.path.iterdir()) == ["a", "resume"]


def test_a_write_in_pieces_is_whole(place: SafeDir, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: whole(handle, bytes(data)[:3]))
    place.write("a", b"0123456789")
    monkeypatch.undo()
    assert place.read("a") == b"0123456789"

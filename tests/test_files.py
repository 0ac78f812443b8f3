"""Files are the old ones or the new ones, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recur.utils.files import memory, memory_taken, open_stream, read_bounded, replacing, write_atomically


def test_content_arrives_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_block_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")

    def fail_halfway() -> None:
        with replacing(path) as out:
            out.write(b"half of the n")
            out.flush()
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is POSIX's")
def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, b"old")
    code = (
        "import os, signal, sys; from pathlib import Path; from recur.utils.files import replacing\n"
        "with replacing(Path(sys.argv[1])) as out:\n"
        "    out.write(b'new' * 100_000); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt", reason="permissions are POSIX's")
def test_others_may_read_it_as_any_file(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "any").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.skipif(os.name == "nt", reason="links and devices are POSIX's")
def test_links_and_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", b"content")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"content"
    write_atomically(Path("/dev/null"), b"nowhere")


def test_errors_name_the_file_that_was_asked_for(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "a.txt", tmp_path):
        with pytest.raises(OSError, match="No such file|Is a directory") as caught:
            write_atomically(path, b"")
        assert caught.value.filename == str(path.resolve())
    write_atomically(tmp_path / ("long" * 63), b"")  # 252 of 255 characters: the part's name is no longer than that


def test_a_pipe_is_waited_for_as_long_as_somebody_may_write(tmp_path: Path) -> None:
    """Its writer may be slow to come and slow to write, and what it wrote is all there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = f"import time; time.sleep(0.05); f = open({str(pipe)!r}, 'wb'); time.sleep(0.05); f.write(b'ab' * 99999)"
    writer = subprocess.Popen([sys.executable, "-S", "-c", code])
    with open_stream(pipe) as stream:
        assert stream.read() == b"ab" * 99999
    assert writer.wait() == 0


def test_no_more_is_read_than_was_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bounded(tmp_path / "a", 4)
    with pytest.raises(OSError, match="a device, which has no end"):
        read_bounded("/dev/urandom", 4)
    assert read_bounded(os.devnull, 4) == b""


def test_the_memory_that_a_process_has() -> None:
    before = memory_taken()
    block = b"x" * (64 << 20)
    assert 60 << 20 < memory_taken() - before < 80 << 20
    assert memory_taken() < memory()
    del block

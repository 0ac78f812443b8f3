"""One writer: the second is told who the first is; one that died is no obstacle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recur.errors import RunError
from recur.runs import safe_dir as locks
from recur.runs.safe_dir import Lock


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    held = Lock(tmp_path)
    with pytest.raises(RunError, match=f"is being trained by process {os.getpid()} on {socket.gethostname()} since 2"):
        Lock(tmp_path)
    held.release()
    held.release()  # once is enough
    assert not (tmp_path / "lock").exists()
    Lock(tmp_path).release()


def test_a_lock_can_be_left_as_a_mark(tmp_path: Path) -> None:
    Lock(tmp_path).release(remove=False)
    assert (tmp_path / "lock").exists()
    Lock(tmp_path).release()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from recur.runs.safe_dir import Lock\n"
    code += f"lock = Lock(Path({str(tmp_path)!r})); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"process {process.pid} on"):
            Lock(tmp_path)
        process.send_signal(signal.SIGKILL)
    assert json.loads((tmp_path / "lock").read_text())["process"] == process.pid
    Lock(tmp_path).release()


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening the file and locking it, its holder may have removed it: then it is opened anew."""
    hold, calls = locks._hold, 0

    def removed_once(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            (tmp_path / "lock").unlink()
        hold(handle)

    monkeypatch.setattr(locks, "_hold", removed_once)
    held = Lock(tmp_path)
    assert calls == 2
    with pytest.raises(RunError, match="is being trained"):
        Lock(tmp_path)
    held.release()


@pytest.mark.parametrize(
    ("holder", "free"),
    [
        ({"host": socket.gethostname(), "process": 2**22 + 5, "since": ""}, True),
        ({"host": socket.gethostname(), "process": os.getpid(), "since": ""}, False),
        ({"host": "another", "process": 1, "since": ""}, False),
        ({"host": socket.gethostname(), "process": "?", "since": ""}, False),
        ("no object", True),
    ],
)
def test_where_files_cannot_be_locked_their_word_counts(
    holder: object, free: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks, "_hold", no_locks)
    (tmp_path / "lock").write_text(json.dumps(holder))
    if free:
        Lock(tmp_path).release()
        return
    with pytest.raises(RunError, match="is being trained"):
        Lock(tmp_path)


def test_a_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "mine")
    with pytest.raises(RunError, match="lock is a link"):
        Lock(tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_hard_link_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    os.link(tmp_path / "mine", tmp_path / "lock")
    with pytest.raises(RunError, match="lock has 2 hard links"):
        Lock(tmp_path)
    (tmp_path / "lock").unlink()
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(RunError, match="lock is not a regular file"):
        Lock(tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"

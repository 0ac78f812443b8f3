"""Several processes (gloo): together they do what one does; stopped, killed and started again they go on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from campaigns.small import TASKS, set_up
from recur.errors import OptionError, RankError
from recur.runs import Run
from recur.training import resume
from recur.training.distributed import SINGLE_PROCESS, MultiProcessGroup
from recur.utils.processes import Launch, first_node, launch
from tests.support import TOLERANCE, close
from tests.training.two_ranks import BOOK, begin, fields_of, weights

ROOT = Path(__file__).parents[2]
SECONDS = 240
"""After which a launch hangs."""


def started(arguments: list[str], folder: Path, *of_torchrun: str, **env: str) -> subprocess.Popen[str]:
    """Two ranks, each with one thread."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", *of_torchrun]
    given = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **env}
    return subprocess.Popen(
        [*command, *arguments], cwd=folder, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(job: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        out, err = job.communicate(timeout=SECONDS)
    finally:
        job.kill()
    return out, err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of one process, and then of two."""
    before, threads, path = Path.cwd(), torch.get_num_threads(), tmp_path_factory.mktemp("ranks")
    kept = {name: os.environ.get(name) for name in ("RECUR_STATE", "RECUR_CACHE")}
    set_up(path)
    for task in TASKS:
        begin(f"one/{task}", SINGLE_PROCESS, task, **fields_of(task))
    begin("one/straight", SINGLE_PROCESS, **BOOK)
    begin("one/begun", SINGLE_PROCESS, stop_after=11, **BOOK)
    two = started(["-m", "tests.training.two_ranks", str(path)], path, TORCH_CPP_LOG_LEVEL="ERROR")
    out, err = ended(two)
    assert two.returncode == 0, err[-3000:]
    assert "Warning" not in err
    assert not out
    yield path
    os.chdir(before)
    torch.set_num_threads(threads)
    for name, value in kept.items():
        os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def alike(a: str, b: str, tolerance: float = TOLERANCE[torch.float32]) -> None:
    one, two = weights(a), weights(b)
    assert one.keys() == two.keys()
    for name, value in one.items():
        if value.is_floating_point():
            close(two[name], value, name, tolerance)


@pytest.mark.parametrize("task", TASKS)
def test_two_processes_do_what_one_does(task: str, folder: Path) -> None:
    alike(f"one/{task}", f"two/{task}")
    ends = [
        json.loads((folder / f"{many}/{task}/metrics.jsonl").read_text().splitlines()[-1]) for many in ("one", "two")
    ]
    for name in ("step", "predictions", "train_loss"):
        assert ends[0][name] == pytest.approx(ends[1][name], rel=1e-4), name


def test_two_processes_go_on_exactly(folder: Path) -> None:
    """Dropout, windows of any length, gradients added up, a first state that is learned; the second rank stopped."""
    straight, stopped = weights("two/straight"), weights("two/stopped")
    assert all(torch.equal(value, stopped[name]) for name, value in straight.items())
    lines = [(folder / f"two/{name}/metrics.jsonl").read_text().splitlines() for name in ("straight", "stopped")]
    assert [json.loads(a)["valid_loss"] for a in lines[0]] == [json.loads(b)["valid_loss"] for b in lines[1]]


def test_another_number_of_processes_goes_on_with_the_same_text(folder: Path) -> None:
    """Begun by one and ended by two, or the other way, it comes to what one process makes of it."""
    alike("one/straight", "one/begun")
    said: list[str] = []
    resume("two/begun", callback=lambda event: said.append(event.content["text"]) if event.kind == "note" else None)
    alike("one/straight", "two/begun")
    assert any("trained with 2 processes until now, resumed with one process" in text for text in said)


def test_what_a_clock_or_a_validation_ends_ends_on_all(folder: Path) -> None:
    state = {name: Run.open(f"two/{name}").load_checkpoint()[2] for name in ("patient", "timed")}
    assert state["patient"]["step"] < 200
    assert state["timed"]["seconds"] + state["timed"]["measuring"] >= 1.2
    config = (folder / "two/timed/config.toml").read_text()
    assert "\nsteps = " not in config, "started again, it goes on and begins no other"


@pytest.mark.parametrize("name", ["compressed", "compressed-buckets"])
def test_gradients_of_half_the_bytes_are_near(name: str, folder: Path) -> None:
    one, two = weights("one/straight"), weights(f"two/{name}")
    assert any(not torch.equal(value, two[name]) for name, value in one.items())
    alike("one/straight", f"two/{name}", TOLERANCE[torch.bfloat16])


def test_gradients_in_buckets_equal_those_of_one_message(folder: Path) -> None:
    """The other runs send one fused message per step; this one uses the buckets of DistributedDataParallel."""
    alike("one/straight", "two/buckets")


def rank_of(pid: int, rank: int) -> int | None:
    """The process of a rank, below torchrun's."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            below = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid
            if below and f"\0RANK={rank}\0" in "\0" + (entry / "environ").read_bytes().decode(errors="replace"):
                return int(entry.name)
        except OSError:
            continue
    return None


def until(condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def lines_of(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are looked for in /proc")
def test_a_killed_rank_ends_all_and_a_restart_goes_on(folder: Path) -> None:
    """SIGKILL for the second rank: the first says so in a line. torchrun starts both again, which go on by themselves;
    SIGTERM then leaves a checkpoint."""
    arguments = [
        "book.txt",
        "--hidden-size",
        "4",
        "--batch-size",
        "4",
        "--steps",
        "1000000",
        "--checkpoint-every",
        "0.1",
    ]
    arguments += ["--no-baseline", "--eval-every", "2", "--out", "killed"]
    job = started(["-m", "recur", "train", *arguments], folder, "--max-restarts", "1")
    log = folder / "killed/metrics.jsonl"
    until(lambda: lines_of(log) > 1)
    victim = rank_of(job.pid, 1)
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    begun = json.loads(log.read_text().splitlines()[0])
    until(lambda: (again := rank_of(job.pid, 1)) is not None and again != victim)
    before = lines_of(log)
    until(lambda: lines_of(log) > before)
    job.send_signal(signal.SIGTERM)
    _, err = ended(job)
    assert job.returncode
    assert "recur: rank 0: another process of this training has ended" in err
    assert "Warning" not in err
    assert "restarted: resuming killed from its newest checkpoint" in err
    assert json.loads(log.read_text().splitlines()[0]) == begun, "it is the same run"
    assert err.count("resume with: recur resume killed") == 1, "one of them has the screen"
    outcome = resume("killed", steps=1)
    assert outcome.summary["steps"] > begun["step"]
    assert not (folder / "killed/lock").exists()


def test_slurm_starts_them_too_and_who_reads_another_text_is_told(folder: Path, tmp_path: Path) -> None:
    """By srun's variables; the second has another book."""
    (tmp_path / "book.txt").write_text("another book\n" * 40)
    port = str(30_000 + os.getpid() % 20_000)
    common = {"SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    jobs = []
    for rank, where in enumerate((folder, tmp_path)):
        env = {**os.environ, **common, "OMP_NUM_THREADS": "1", "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        command = [sys.executable, "-m", "recur", "train", "book.txt", "--steps", "4", "--out", str(folder / "slurm")]
        jobs.append(subprocess.Popen(command, cwd=where, env=env, text=True, stderr=subprocess.PIPE))
    said = [ended(job)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [2, 2]
    assert said[0].endswith(
        "recur: rank 0: rank 1 has different data than rank 0: all ranks need the same files and flags\n"
    )
    assert said[1] == ""
    assert not (folder / "slurm").exists()


def test_the_environment_says_which_process_this_is() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "a"}
    assert launch(torchrun | {"MASTER_PORT": "7", "SLURM_PROCID": "0"}) == Launch(3, 4, 1, 2, "a", 7)
    srun = {
        "SLURM_PROCID": "5",
        "SLURM_NTASKS": "7",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "1",
        "SLURM_JOB_ID": "40001",
    }
    srun |= {"SLURM_TASKS_PER_NODE": "4,3", "SLURM_JOB_NODELIST": "gpu[07-09],other", "SLURM_RESTART_COUNT": "2"}
    assert launch(srun | {"SLURM_STEP_NUM_TASKS": "7"}) == Launch(5, 7, 1, 3, "gpu07", 20_001, 2)
    assert launch(srun) == Launch(restarts=2), "a script of sbatch is one process"
    assert launch({}) == Launch()
    assert [first_node(nodes) for nodes in ("a", "a,b", "a[3,5]-x,b", "")] == ["a", "a", "a3-x", ""]
    with pytest.raises(OptionError, match="RANK must be a whole number, got 'x'"):
        launch(torchrun | {"MASTER_PORT": "7", "RANK": "x"})
    with pytest.raises(OptionError, match="process 9 of 4"):
        launch(torchrun | {"MASTER_PORT": "7", "RANK": "9"})


def test_a_rank_that_was_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun keeps the store, so that a rank that dies before the first step leaves no other trace."""
    monkeypatch.setattr("recur.training.distributed.POLL_INTERVAL", timedelta(seconds=0.1))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    store = dist.HashStore()  # type: ignore[attr-defined]
    group = MultiProcessGroup(Launch(1, 2, 1, 2), store, "none")
    store.set("process/0", json.dumps([socket.gethostname(), ended.pid]))
    with pytest.raises(RankError, match="rank 0 has ended"):
        group.from_rank0(lambda: None)
    store.set("process/0", json.dumps([socket.gethostname(), os.getpid()]))
    store.set("decision/2", json.dumps(3))
    assert group.from_rank0(lambda: None) == 3
    assert not group._has_ended(0), "it runs"
    elsewhere = MultiProcessGroup(Launch(2, 4, 0, 2), store, "none")
    assert not elsewhere._has_ended(0), "the number of a process of another machine says nothing"
